"""RMSNorm, add+RMSNorm and LayerNorm kernels against float64 and against the formulas of eager models."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from support.kernel_calls import (
    BAD_ARGUMENT,
    DTYPES,
    LEVELS,
    Guarded,
    for_every_block_dim,
    odd_sizes,
    run,
    same_bits,
    ulp_of,
)

UNIT_OFFSET, ROUND_FIRST = 1, 2
EPSILON = 1e-5


def random(rows: int, columns: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * rows + columns + seed)
    return (torch.randn(rows, columns, generator=generator) * 3 + 0.5).to(dtype)


def formula(x: Tensor, weight: Tensor | None, flags: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The rule of eager in float64, rounded where `flags` say: the normed row, and its scale of errors."""
    wide = x.double()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
    if weight is None:
        return normed, ulp_of(normed, dtype)
    factor = weight.double() + (1.0 if flags & UNIT_OFFSET else 0.0)
    # With an early rounding the product may carry a whole unit of the factor before it.
    slack = ulp_of(normed, dtype) * factor.abs() if flags & ROUND_FIRST else 0.0
    return normed * factor, ulp_of(normed * factor, dtype) + slack


def rms_norm(x: Tensor, weight: Tensor | None, flags: int, level: str, block_dim: int = 1) -> Tensor:
    kind = "bf16" if x.dtype is torch.bfloat16 else "f32"
    rows, columns = x.shape
    output = Guarded((rows, columns), x.dtype)
    slots = [x, 0 if weight is None else weight, output.tensor, rows, columns, x.stride(0), EPSILON, flags]
    assert run(f"rms_norm_{kind}", level, slots, block_dim=block_dim) == 0
    return output.check()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("flags", range(4))
def test_rms_norm_over_odd_widths(flags: int, dtype: torch.dtype, level: str) -> None:
    for columns in odd_sizes():
        x, weight = random(3, columns, dtype), random(1, columns, dtype, seed=7)[0]
        got = for_every_block_dim(lambda block_dim, x=x, w=weight: rms_norm(x, w, flags, level, block_dim))
        true, unit = formula(x, weight, flags, dtype)
        steps = 0.6 if dtype is torch.bfloat16 else 6.0
        assert ((got.double() - true).abs() <= steps * unit).all(), columns


@pytest.mark.parametrize("level", LEVELS)
def test_flags_choose_the_formulas_of_the_models(level: str) -> None:
    dtype = torch.bfloat16
    x, weight = random(5, 576, dtype), random(1, 576, dtype, seed=7)[0]
    # A sum in another order moves few elements over a rounding boundary.
    r = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + EPSILON)
    eager = {
        0: (r * weight.float()).to(dtype),
        UNIT_OFFSET: (r * (1.0 + weight.float())).to(dtype),
        ROUND_FIRST: weight * r.to(dtype),
        UNIT_OFFSET | ROUND_FIRST: (r.to(dtype).float() * (1.0 + weight.float())).to(dtype),
    }
    for flags, expected in eager.items():
        others = [other for key, other in eager.items() if key != flags]
        got = rms_norm(x, weight, flags, level)
        different = (got != expected).sum()
        assert different <= 10
        assert all(different < (got != other).sum() / 5 for other in others)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", DTYPES)
def test_add_rms_norm_is_an_addition_of_eager_and_a_norm(kind: str, level: str) -> None:
    dtype = DTYPES[kind]
    for rows, columns in ((1, 1), (2, 17), (5, 100), (3, 576)):
        x, residual = random(rows, columns, dtype), random(rows, columns, dtype, seed=1)
        weight = random(1, columns, dtype, seed=7)[0]
        for flags in range(4):
            added, output = Guarded(x.shape, dtype), Guarded(x.shape, dtype)
            slots = [x, residual, weight, added.tensor, output.tensor, rows, columns, EPSILON, flags]
            assert run(f"add_rms_norm_{kind}", level, slots, block_dim=2) == 0
            assert same_bits(added.check(), x + residual)
            assert same_bits(output.check(), rms_norm(x + residual, weight, flags, level))
        # The sum may replace the residual.
        slots[1] = slots[3] = total = residual.clone()
        assert run(f"add_rms_norm_{kind}", level, slots, block_dim=3) == 0
        assert same_bits(total, x + residual)


def layer_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, level: str, block_dim: int = 1
) -> Tensor:
    kind = "bf16" if x.dtype is torch.bfloat16 else "f32"
    output = Guarded(x.shape, x.dtype)
    optional = [0 if part is None else part for part in (weight, bias)]
    slots = [x, *optional, output.tensor, *x.shape, EPSILON]
    assert run(f"layer_norm_{kind}", level, slots, block_dim=block_dim) == 0
    return output.check()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("affine", ["both", "weight", "none"])
def test_layer_norm_over_odd_widths(affine: str, dtype: torch.dtype, level: str) -> None:
    for columns in odd_sizes():
        x = random(3, columns, dtype)
        weight = random(1, columns, dtype, seed=7)[0] if affine != "none" else None
        bias = random(1, columns, dtype, seed=8)[0] if affine == "both" else None
        got = for_every_block_dim(
            lambda block_dim, x=x, w=weight, b=bias: layer_norm(x, w, b, level, block_dim)
        )
        wide = [None if part is None else part.double() for part in (weight, bias)]
        true = torch.nn.functional.layer_norm(x.double(), (columns,), *wide, EPSILON)
        # Centring and the sum with the bias may cancel: judged by the size of the terms.
        size = true.abs() + (1 if weight is None else weight.double().abs())
        size += 0 if bias is None else bias.double().abs()
        steps = 0.6 if dtype is torch.bfloat16 else 8.0
        assert ((got.double() - true).abs() <= ulp_of(size, dtype) * steps).all()


@pytest.mark.parametrize("level", LEVELS)
def test_a_large_mean_does_not_cancel(level: str) -> None:
    x = random(2, 1009, torch.float32) + 3000.0
    true = torch.nn.functional.layer_norm(x.double(), (1009,), eps=EPSILON)
    assert (layer_norm(x, None, None, level).double() - true).abs().max() < 2e-4


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_rows_do_not_see_their_neighbours(dtype: torch.dtype, level: str) -> None:
    x, weight = random(4, 129, dtype), random(1, 129, dtype, seed=7)[0]
    x[1], x[3, 5] = math.nan, math.inf
    normed, centred = rms_norm(x, weight, 2, level), layer_norm(x, weight, None, level)
    for row in (0, 2):
        assert same_bits(normed[row], rms_norm(x[row : row + 1], weight, 2, level)[0])
        assert same_bits(centred[row], layer_norm(x[row : row + 1], weight, None, level)[0])
    assert normed[1].isnan().all() and centred[1].isnan().all() and centred[3].isnan().all()
    # inf * (1 / inf) is NaN, everything else times 1 / inf is zero: as in eager.
    assert normed[3, 5].isnan() and (normed[3].nan_to_num(0) == 0).all()


@pytest.mark.parametrize("level", LEVELS)
def test_without_weight_with_stride_and_refusals(level: str) -> None:
    wide = random(3, 80, torch.bfloat16)
    narrow = wide[:, :33]
    assert same_bits(rms_norm(narrow, None, 0, level), rms_norm(narrow.contiguous(), None, 0, level))
    x = torch.zeros(8)
    for rows, columns, flags in ((-1, 8, 0), (1, 0, 0), (1, 8, 4), (1, 8, -1)):
        assert run("rms_norm_f32", level, [x, 0, x, rows, columns, 8, 1e-5, flags]) == BAD_ARGUMENT
        assert run("add_rms_norm_f32", level, [x, x, 0, x, x, rows, columns, 1e-5, flags]) == BAD_ARGUMENT
    assert run("layer_norm_f32", level, [x, 0, 0, x, 1, 0, 1e-5]) == BAD_ARGUMENT

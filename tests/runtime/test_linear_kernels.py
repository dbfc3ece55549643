"""The packed linear kernels against float64, at every level, and what their results must not depend on."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from graphsink import _native
from graphsink.runtime.linear import (
    LINEAR_SCRATCH_BYTES,
    LinearCall,
    LinearDtype,
    PackedLayout,
    PackedWeight,
    pack_rows,
    run_linear,
)
from graphsink.target import IsaLevel

LEVELS = [level for level in IsaLevel if _native.isa_level_runs_here(str(level))]
TORCH_TYPES = {LinearDtype.FLOAT32: torch.float32, LinearDtype.BFLOAT16: torch.bfloat16}
DTYPES = tuple(LinearDtype)
# One, primes, and one below, at and above a line pair, a tile step, a run of lines and a panel.
INPUTS = [1, 2, 3, 31, 32, 33, 97, 576, 1025]
OUTPUTS = [1, 15, 16, 17, 65, 131]
# The same around vector row tiles (6, 8), tile registers (16, 32) and blocks of rows (128).
ROWS = [1, 2, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 127, 128, 129, 150]
BLOCKS_AND_SCRATCH = [(1, LINEAR_SCRATCH_BYTES), (2, 1 << 20), (3, 1 << 18), (16, 1 << 20)]
CANARY = 7.0


def tensors(dtype: LinearDtype, rows: int, outputs: int, inputs: int) -> tuple[torch.Tensor, ...]:
    """x with NaN between its rows, weight, bias."""
    generator = torch.Generator().manual_seed(rows + 1000 * outputs + 1_000_000 * inputs)
    kind = TORCH_TYPES[dtype]
    poisoned = torch.full((rows + 1, inputs + 7), float("nan"), dtype=kind)
    x = poisoned[:rows, :inputs]
    x.copy_(torch.randn(rows, inputs, generator=generator))
    weight = torch.randn(outputs, inputs, generator=generator).to(kind)
    return x, weight, torch.randn(outputs, generator=generator).to(kind)


def packed(weight: torch.Tensor) -> PackedWeight:
    dtype = next(key for key, value in TORCH_TYPES.items() if value == weight.dtype)
    result = PackedWeight(PackedLayout(dtype, *weight.shape))
    pack_rows(result.layout, result.address, weight.data_ptr(), 0, weight.shape[0])
    return result


def linear(
    x: torch.Tensor,
    weight: PackedWeight,
    bias: torch.Tensor | None,
    level: IsaLevel,
    *,
    block_dim: int = 1,
    scratch_bytes: int = 1 << 20,
) -> torch.Tensor:
    """y, after checking that nothing around it was written."""
    rows, outputs = x.shape[0], weight.layout.outputs
    guarded = torch.full((rows + 2, outputs + 5), CANARY, dtype=x.dtype)
    y = guarded[1 : rows + 1, 2 : outputs + 2]
    call = LinearCall(
        weight,
        x.data_ptr(),
        y.data_ptr(),
        rows,
        bias=0 if bias is None else bias.data_ptr(),
        x_row_stride=x.stride(0),
        y_row_stride=guarded.stride(0),
    )
    run_linear(call, level, block_dim=block_dim, scratch_bytes=scratch_bytes)
    result = y.clone()
    y.fill_(CANARY)
    assert (guarded == CANARY).all()
    return result


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    kind = torch.int16 if a.dtype == torch.bfloat16 else torch.int32
    return torch.equal(a.view(kind), b.view(kind))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inputs", INPUTS)
def test_against_float64(level: IsaLevel, dtype: LinearDtype, inputs: int) -> None:
    for outputs in OUTPUTS:
        x, weight, bias = tensors(dtype, 150, outputs, inputs)
        weights = packed(weight)
        for with_bias in (bias, None):
            addend = torch.zeros(outputs) if with_bias is None else bias
            exact = x.double() @ weight.double().T + addend.double()
            size = x.double().abs() @ weight.double().abs().T + addend.double().abs()
            y = linear(x, weights, with_bias, level, block_dim=2).double()
            # Each of `inputs` additions rounds once, relative to at most `size`; then bfloat16 rounds.
            bound = size * (inputs + 2) * 2.0**-24
            if dtype is LinearDtype.BFLOAT16:
                bound += exact.abs() * 2.0**-8 + 2.0**-133
            assert ((y - exact).abs() <= bound).all(), (outputs, with_bias is None)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inputs", [33, 1025])
def test_bits_depend_neither_on_rows_nor_blocks_nor_scratch(
    level: IsaLevel, dtype: LinearDtype, inputs: int
) -> None:
    x, weight, bias = tensors(dtype, max(ROWS), 131, inputs)
    weights = packed(weight)
    reference = linear(x, weights, bias, level)
    for rows in ROWS:
        for block_dim, scratch_bytes in BLOCKS_AND_SCRATCH:
            y = linear(x[:rows], weights, bias, level, block_dim=block_dim, scratch_bytes=scratch_bytes)
            assert same_bits(y, reference[:rows]), (rows, block_dim, scratch_bytes)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_do_not_depend_on_neighbours(level: IsaLevel, dtype: LinearDtype) -> None:
    x, weight, bias = tensors(dtype, 40, 67, 130)
    reference = linear(x, packed(weight), bias, level)
    others, other_weight, _ = tensors(dtype, 40, 67, 130)
    others.fill_(float("inf"))
    others[11] = x[11]
    other_weight.fill_(float("nan"))
    other_weight[29] = weight[29]
    y = linear(others, packed(other_weight), bias, level)
    assert same_bits(y[11, 29], reference[11, 29])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_and_infinity_spread_as_in_eager(level: IsaLevel, dtype: LinearDtype) -> None:
    x, weight, bias = tensors(dtype, 35, 20, 45)
    x[2, 44] = float("nan")
    x[20, 0] = float("inf")
    x[34, 7] = float("-inf")
    weight[19, 43] = float("inf")
    weight[3, 1] = float("nan")
    x[5, 43] = 0.0  # times infinity
    bias[6] = float("-inf")
    y = linear(x, packed(weight), bias, level)
    eager = F.linear(x.float(), weight.float(), bias.float())
    assert torch.equal(y.isnan(), eager.isnan())
    assert torch.equal(y.isinf(), eager.isinf())
    assert torch.equal(y[y.isinf()].sign(), eager[eager.isinf()].sign().to(y.dtype))


@pytest.mark.parametrize("level", LEVELS)
def test_bfloat16_rounds_once_to_nearest_even(level: IsaLevel) -> None:
    # 1 + 2**-8 lies half-way between two bfloat16 numbers, the even one below; from 1 + 2**-7 it is above.
    x = torch.tensor([[1.0, 2.0**-8], [1.0 + 2.0**-7, 2.0**-8], [2.0**127, 2.0**127]], dtype=torch.bfloat16)
    weight = torch.ones(1, 2, dtype=torch.bfloat16)
    y = linear(x, packed(weight), None, level)
    assert y.flatten().tolist() == [1.0, 1.0 + 2.0**-6, float("inf")]
    # The bias comes before the rounding: 1 + 2**-9 + 2**-9 is the same half-way point, and 2**-8 more is not.
    small = torch.tensor([[1.0, 2.0**-9]], dtype=torch.bfloat16)
    bias = torch.tensor([2.0**-9 + 2.0**-12], dtype=torch.bfloat16)
    assert linear(small, packed(weight), bias, level).item() == 1.0 + 2.0**-7


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_empty_sizes(level: IsaLevel, dtype: LinearDtype) -> None:
    for rows, outputs, inputs in ((0, 5, 5), (3, 0, 5), (3, 5, 0), (40, 17, 0)):
        x, weight, bias = tensors(dtype, rows, outputs, inputs)
        y = linear(x, packed(weight), bias, level, block_dim=3)
        assert same_bits(y, F.linear(x.contiguous(), weight, bias))


@pytest.mark.parametrize("level", LEVELS)
def test_a_row_may_be_used_many_times(level: IsaLevel) -> None:
    x, weight, bias = tensors(LinearDtype.BFLOAT16, 1, 33, 70)
    weights = packed(weight)
    one = linear(x, weights, bias, level)
    assert same_bits(linear(x.expand(37, 70), weights, bias, level), one.expand(37, 33).contiguous())


@pytest.mark.parametrize("level", LEVELS)
def test_wrong_arguments_are_reported_and_write_nothing(level: IsaLevel) -> None:
    x, weight, _ = tensors(LinearDtype.BFLOAT16, 4, 20, 40)
    weights = packed(weight)
    y = torch.full((4, 20), CANARY, dtype=torch.bfloat16)
    good = LinearCall(weights, x.data_ptr(), y.data_ptr(), 4, x_row_stride=x.stride(0)).slots()
    cases = {"rows": (4, -1), "outputs": (5, 21), "inputs": (6, 39), "negative": (6, -40)}
    for name, (slot, value) in cases.items():
        slots = [*good[:slot], value, *good[slot + 1 :]]
        assert _native.call_kernel("linear_bf16", str(level), slots, 2) == 3, name
    assert _native.call_kernel("linear_f32", str(level), good, 2) == 3, "packed for another dtype"
    if level is not IsaLevel.SCALAR:
        too_little = LINEAR_SCRATCH_BYTES - 1
        assert _native.call_kernel("linear_bf16", str(level), good, 1, too_little) == 2
    assert (y == CANARY).all()

"""argmax and top_k kernels: torch's answers, ties by the lowest index."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from support.kernel_calls import (
    BAD_ARGUMENT,
    DTYPES,
    LEVELS,
    SCRATCH_TOO_SMALL,
    Guarded,
    for_every_block_dim,
    odd_sizes,
    run,
    same_bits,
)


def argmax(x: Tensor, level: str, block_dim: int = 1) -> Tensor:
    kind = "bf16" if x.dtype is torch.bfloat16 else "f32"
    output = Guarded((len(x),), torch.int64)
    slots = [x, output.tensor, *x.shape, x.stride(0)]
    assert run(f"argmax_{kind}", level, slots, block_dim=block_dim) == 0
    return output.check()


def top_k(x: Tensor, k: int, level: str, block_dim: int = 1) -> tuple[Tensor, Tensor]:
    kind = "bf16" if x.dtype is torch.bfloat16 else "f32"
    values, indices = Guarded((len(x), k), x.dtype), Guarded((len(x), k), torch.int64)
    slots = [x, values.tensor, indices.tensor, *x.shape, x.stride(0), k]
    assert run(f"top_k_{kind}", level, slots, block_dim=block_dim) == 0
    return values.check(), indices.check()


def ordered(x: Tensor) -> Tensor:
    """Indices of the elements, greatest first, equal ones by index; NaN is greatest, as in torch."""
    keys = x.double().nan_to_num(nan=math.inf, posinf=1e300, neginf=-1e300)
    return torch.argsort(keys, dim=-1, descending=True, stable=True)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_over_odd_widths(dtype: torch.dtype, level: str) -> None:
    for columns in odd_sizes():
        # Few different values: ties everywhere.
        x = torch.randint(-4, 5, (3, columns), generator=torch.Generator().manual_seed(columns)).to(dtype)
        expected = ordered(x)
        assert torch.equal(for_every_block_dim(lambda n, x=x: argmax(x, level, n)), expected[:, 0])
        for k in {1, min(5, columns), columns}:
            values, indices = top_k(x, k, level)
            assert torch.equal(indices, expected[:, :k])
            assert same_bits(values, x.gather(1, indices))
            assert torch.equal(for_every_block_dim(lambda n, x=x, k=k: top_k(x, k, level, n)[1]), indices)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_a_vocabulary(dtype: torch.dtype, level: str) -> None:
    x = torch.randn(2, 49_157, generator=torch.Generator().manual_seed(3)).to(dtype)
    assert torch.equal(argmax(x, level), x.argmax(-1))
    values, indices = top_k(x, 50, level)
    assert torch.equal(values, x.topk(50).values)
    assert torch.equal(indices, ordered(x)[:, :50])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_special_values(dtype: torch.dtype, level: str) -> None:
    nan, inf = math.nan, math.inf
    rows = torch.tensor(
        [
            [1.0, nan, inf, nan],
            [-inf, -inf, -inf, -inf],
            [-0.0, 0.0, -0.0, -1.0],
            [-3.0, -2.0, -2.0, -inf],
            [1e-40, 0.0, 2e-40, -1e-40],
        ]
    ).to(dtype)
    assert argmax(rows, level).tolist() == [1, 0, 0, 1, 2] == rows.argmax(-1).tolist()
    assert top_k(rows, 4, level)[1].tolist() == [
        [1, 3, 2, 0],
        [0, 1, 2, 3],
        [0, 1, 2, 3],
        [1, 2, 0, 3],
        [2, 0, 1, 3],
    ]


@pytest.mark.parametrize("level", LEVELS)
def test_strides_and_refusals(level: str) -> None:
    wide = torch.arange(30.0).view(3, 10)
    assert argmax(wide[:, 2:7], level).tolist() == [4, 4, 4]
    x, out = torch.zeros(8), torch.zeros(8, dtype=torch.int64)
    for rows, columns in ((-1, 8), (1, 0)):
        assert run("argmax_f32", level, [x, out, rows, columns, 8]) == BAD_ARGUMENT
    for rows, columns, k in ((-1, 8, 1), (1, 0, 1), (1, 8, 0), (1, 8, 9)):
        assert run("top_k_f32", level, [x, x, out, rows, columns, 8, k]) == BAD_ARGUMENT
    assert run("top_k_f32", level, [x, x, out, 1, 8, 8, 3], scratch_bytes=16) == SCRATCH_TOO_SMALL

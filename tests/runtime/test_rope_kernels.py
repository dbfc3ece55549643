"""The RoPE kernel: the same bits as eager's rotate-half."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from support.kernel_calls import BAD_ARGUMENT, BLOCK_DIMS, DTYPES, LEVELS, Guarded, run, same_bits


def rotate_half(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """As transformers does it in eager; x [T, H, D], cosine and sine [T, R]."""
    size = cosine.shape[1]
    turned, rest = x[..., :size], x[..., size:]
    half = size // 2
    rotated = torch.cat((-turned[..., half:], turned[..., :half]), dim=-1)
    return torch.cat((turned * cosine[:, None] + rotated * sine[:, None], rest), dim=-1)


def inputs(
    tokens: int, heads: int, kv_heads: int, size: int, rotary: int, dtype: torch.dtype
) -> tuple[Guarded, Tensor, Tensor]:
    """Queries and keys as they lie in one product [T, (H + 2 G) D], cosine and sine."""
    generator = torch.Generator().manual_seed(size)
    packed = Guarded((tokens, (heads + 2 * kv_heads) * size), dtype)
    packed.tensor.copy_(torch.randn(packed.tensor.shape, generator=generator))
    # Halves that differ: a kernel that reads only one of them is wrong.
    cosine, sine = torch.rand(2, tokens, rotary, generator=generator).to(dtype)
    return packed, cosine, sine


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 1, 2, 2),
        (3, 4, 2, 16, 16),
        (5, 3, 1, 64, 64),
        (2, 2, 2, 80, 20),
        (1, 9, 3, 64, 62),
        (7, 2, 1, 34, 34),
        (2, 4, 4, 128, 0),
    ],
)
def test_equals_eager(shape: tuple[int, int, int, int, int], kind: str, level: str) -> None:
    tokens, heads, kv_heads, size, rotary = shape
    dtype = DTYPES[kind]
    for block_dim in BLOCK_DIMS:
        packed, cosine, sine = inputs(*shape, dtype)
        before = packed.tensor.clone().view(tokens, heads + 2 * kv_heads, size)
        stride = packed.tensor.shape[1]
        key = packed.tensor[:, heads * size :]
        slots = [packed.tensor, key, cosine, sine, tokens, heads, kv_heads, size, rotary, stride, stride]
        assert run(f"rope_{kind}", level, slots, block_dim=block_dim) == 0
        after = packed.check().view_as(before)
        both = heads + kv_heads
        assert same_bits(after[:, :both], rotate_half(before[:, :both], cosine, sine))
        assert same_bits(after[:, both:], before[:, both:])


@pytest.mark.parametrize("level", LEVELS)
def test_nan_and_infinity_stay_in_their_pair(level: str) -> None:
    x = torch.ones(1, 1, 32)
    x[0, 0, 3], x[0, 0, 20] = math.nan, math.inf
    cosine = sine = torch.full((1, 32), 0.5)
    expected = rotate_half(x, cosine, sine)
    assert run("rope_f32", level, [x, x, cosine, sine, 1, 1, 0, 32, 32, 32, 0]) == 0
    assert torch.equal(x.nan_to_num(9.0, 8.0, 7.0), expected.nan_to_num(9.0, 8.0, 7.0))
    assert sorted(x[0, 0].isnan().nonzero().flatten().tolist()) == [3, 19]


@pytest.mark.parametrize("level", LEVELS)
def test_refuses_sizes_that_make_no_sense(level: str) -> None:
    x = torch.ones(64)
    for tokens, heads, rotary in ((-1, 1, 8), (1, -1, 8), (1, 1, 7), (1, 1, 18), (1, 1, -2)):
        assert run("rope_f32", level, [x, x, x, x, tokens, heads, 0, 16, rotary, 16, 16]) == BAD_ARGUMENT
    assert (x == 1).all()

"""Calls of prebuilt kernels: one level at a time, outputs between guard bytes, every block_dim."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from graphsink import _native

# Levels that run here, each forced in turn.
LEVELS = [
    level
    for level in ("scalar", "avx2", "avx512", "avx512_bf16", "amx", "neon")
    if _native.isa_level_runs_here(level)
]
BLOCK_DIMS = (1, 2, 3, 7)
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
INDEX_OUT_OF_RANGE, SCRATCH_TOO_SMALL, BAD_ARGUMENT = 1, 2, 3

_GUARD_BYTES, _GUARD = 64, 0xA5
_UNIT = {torch.bfloat16: 2.0**-7, torch.float32: 2.0**-23}


class Guarded:
    """A tensor of NaN (integers: -1) with guard bytes before and behind it."""

    def __init__(self, shape: Sequence[int], dtype: torch.dtype) -> None:
        count, item = math.prod(shape), dtype.itemsize
        self._bytes = torch.full((count * item + 2 * _GUARD_BYTES,), _GUARD, dtype=torch.uint8)
        inner = self._bytes[_GUARD_BYTES : _GUARD_BYTES + count * item]
        self.tensor = inner.view(dtype).view(*shape)
        self.tensor.fill_(math.nan if dtype.is_floating_point else -1)

    def check(self) -> Tensor:
        """The tensor, after a look at the guard bytes."""
        ends = torch.cat([self._bytes[:_GUARD_BYTES], self._bytes[-_GUARD_BYTES:]])
        assert (ends == _GUARD).all(), "a kernel wrote outside of its output"
        return self.tensor


def run(
    name: str,
    level: str,
    slots: Sequence[Tensor | int | float],
    *,
    block_dim: int = 1,
    scratch_bytes: int = 1 << 20,
) -> int:
    """Call a kernel; tensors are given as their addresses. Returns the error code."""
    values = [slot.data_ptr() if isinstance(slot, Tensor) else slot for slot in slots]
    return _native.call_kernel(name, level, values, block_dim, scratch_bytes)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors hold the same bytes."""
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def for_every_block_dim(compute: Callable[[int], Tensor]) -> Tensor:
    """`compute(block_dim)` for several block_dim: the same bits each time, which are returned."""
    first = compute(BLOCK_DIMS[0]).clone()
    for block_dim in BLOCK_DIMS[1:]:
        assert same_bits(first, compute(block_dim)), f"block_dim {block_dim} changes the result"
    return first


def ulp_of(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Distance of neighbouring numbers of `dtype` at float64 values; never under the least denormal."""
    _, exponent = torch.frexp(value.abs())
    normal = torch.ldexp(torch.full_like(value, _UNIT[dtype]), exponent - 1)
    return normal.where(value != 0, 0.0).clamp_min(torch.finfo(dtype).tiny * _UNIT[dtype])


def worst_ulps(got: Tensor, true: Tensor) -> float:
    """Greatest |got - true| in units in the last place; NaN and infinities must be where they are in `true`.

    `true` is float64. Where it rounds to infinity in the dtype of `got`, infinity and the greatest finite
    number are both right.
    """
    nan = true.isnan()
    assert torch.equal(got.isnan(), nan)
    limit = torch.finfo(got.dtype).max
    huge = ~nan & (true.abs() > limit)
    assert (got[huge].double().abs() >= limit).all()
    assert torch.equal(got[huge].sign(), true[huge].sign().to(got.dtype))
    rest = ~nan & ~huge
    assert got[rest].isfinite().all()
    error = (got[rest].double() - true[rest]).abs() / ulp_of(true[rest], got.dtype)
    return float(error.max()) if error.numel() else 0.0


def all_bf16() -> Tensor:
    """Every bfloat16, NaN and infinities included."""
    return torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


def many_f32(count: int = 1 << 17) -> Tensor:
    """Float32 values spread over all bit patterns, over [-10, 10], and the special ones."""
    patterns = torch.linspace(-(2.0**31), 2.0**31 - 1, count, dtype=torch.float64).to(torch.int32)
    special = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 4.0, -4.0, 88.72, -87.3, -103.9])
    return torch.cat([patterns.view(torch.float32), torch.linspace(-10, 10, count), special])


def odd_sizes() -> Iterator[int]:
    """One, primes, and one over and under each register, cache line and piece of work."""
    yield from (1, 2, 3, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 255, 256, 257, 1009)

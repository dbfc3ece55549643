"""KV capacity, and which cache slots each request owns.

A *slot* is the place of one token: ``block * block_size + position % block_size``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphsink.engine.block_pool import BlockPool
from graphsink.errors import CapacityError, KVCacheError, RecipeValueError

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class KVCacheSpec:
    """What one attention layer keeps per token. Keys and values may differ in size."""

    num_kv_heads: int
    key_head_size: int
    value_head_size: int

    def bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes of the keys and values of one token."""
        return self.num_kv_heads * (self.key_head_size + self.value_head_size) * dtype_bytes


@dataclass(frozen=True, slots=True)
class KVCapacity:
    """A planned cache.

    Attributes:
        num_blocks: blocks per layer, with the null block.
        bytes: size of all layers together.
    """

    num_blocks: int
    bytes: int


def bytes_per_block(specs: Sequence[KVCacheSpec], dtype_bytes: int, block_size: int) -> int:
    """Bytes of one block over all layers; `KVCacheError` if there is nothing to keep."""
    total = block_size * sum(spec.bytes_per_token(dtype_bytes) for spec in specs)
    if total <= 0:
        raise KVCacheError(
            f"a KV block of {len(specs)} layers, {block_size} tokens and {dtype_bytes}-byte numbers is empty"
        )
    return total


def default_kv_tokens(
    batch_size: int,
    input_truncated_len: int,
    max_new_tokens: int,
    block_size: int,
    context_length: int | None,
) -> int:
    """Tokens for ``batch_size`` of the longest sequences that the recipe allows, each in whole blocks."""
    longest = input_truncated_len + max_new_tokens
    if context_length is not None:
        longest = min(longest, context_length)
    return batch_size * math.ceil(longest / block_size) * block_size


def plan_capacity(
    specs: Sequence[KVCacheSpec],
    dtype_bytes: int,
    block_size: int,
    *,
    kv_cache_gib: float | None,
    kv_cache_tokens: int | None,
    default_tokens: int,
    available_bytes: int,
    mem_fraction: float,
) -> KVCapacity:
    """Choose the number of blocks.

    Args:
        specs: one per attention layer.
        dtype_bytes: size of one number in the cache.
        block_size: tokens per block.
        kv_cache_gib: size in GiB that the whole cache, with its null block, stays within.
        kv_cache_tokens: length; rounded up to blocks, and the null block comes on top.
        default_tokens: the same, used if neither is given (see `default_kv_tokens`).
        available_bytes: memory that is free now.
        mem_fraction: share of it that the cache may take, in (0, 1].

    Raises:
        CapacityError: the cache does not fit into its share of the memory, or ``kv_cache_gib`` is smaller
            than one usable block. The hint gives the largest length that would fit.
        RecipeValueError: both ``kv_cache_gib`` and ``kv_cache_tokens`` are given.
        KVCacheError: ``specs`` is empty.
    """
    if kv_cache_gib is not None and kv_cache_tokens is not None:
        raise RecipeValueError(
            "kv_cache_gib and kv_cache_tokens exclude each other",
            key="scheduler_config.kv_cache_tokens",
            hint="keep one of the two",
        )
    block_bytes = bytes_per_block(specs, dtype_bytes, block_size)
    if kv_cache_gib is not None:
        num_blocks = _blocks_within(int(kv_cache_gib * _GIB), block_bytes, block_size)
        key = "scheduler_config.kv_cache_gib"
    else:
        tokens = default_tokens if kv_cache_tokens is None else kv_cache_tokens
        num_blocks = 1 + max(1, -(-tokens // block_size))
        key = "scheduler_config" if kv_cache_tokens is None else "scheduler_config.kv_cache_tokens"
    capacity = KVCapacity(num_blocks, num_blocks * block_bytes)
    allowed = int(available_bytes * mem_fraction)
    if capacity.bytes > allowed:
        raise CapacityError(
            f"a KV cache of {(num_blocks - 1) * block_size:,} tokens does not fit into"
            f" {mem_fraction:.0%} of the {available_bytes:,} bytes of free memory",
            needed=capacity.bytes,
            available=allowed,
            where=key,
            hint=_smaller_cache_hint(allowed, block_bytes, block_size),
        )
    return capacity


def _blocks_within(size: int, block_bytes: int, block_size: int) -> int:
    """Blocks that fit into ``size`` bytes; refuses less than the null block and a usable one."""
    num_blocks = size // block_bytes
    if num_blocks < 2:
        raise CapacityError(
            f"kv_cache_gib is too small for two KV blocks of {block_size} tokens",
            needed=2 * block_bytes,
            available=size,
            where="scheduler_config.kv_cache_gib",
            hint=f"give at least {math.ceil(2 * block_bytes / _GIB * 1000) / 1000:g}, or lower block_size",
        )
    return num_blocks


def _smaller_cache_hint(allowed: int, block_bytes: int, block_size: int) -> str:
    """What to change when the cache exceeds its share of the memory."""
    largest = (allowed // block_bytes - 1) * block_size
    if largest < 1:
        return "free some memory, or lower scheduler_config.block_size: not even one block fits"
    return (
        f"at most {largest:,} tokens fit: set kv_cache_tokens to that, or lower batch_size,"
        " input_truncated_len or max_new_tokens"
    )


@dataclass(frozen=True, slots=True)
class _Reservation:
    """The blocks of one request, and the slot of each of its positions."""

    blocks: list[int]
    slots: NDArray[np.int64]


class KVCacheManager:
    """Reserves blocks for whole requests and translates positions to slots.

    A request gets all blocks of its longest possible length at once, so it can never run out half-way.

    Args:
        num_blocks: blocks in the pool, with the null block; at least 2.
        block_size: tokens per block.

    Raises `KVCacheError` if a size is too small.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if block_size < 1:
            raise KVCacheError(f"a KV block must hold at least 1 token, not {block_size}")
        self._pool = BlockPool(num_blocks)
        self._block_size = block_size
        self._reservations: dict[int, _Reservation] = {}

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._block_size

    @property
    def max_tokens(self) -> int:
        """Length of the longest request that fits when nothing else is admitted."""
        return self._pool.num_usable * self._block_size

    @property
    def num_free_blocks(self) -> int:
        """Blocks that no request owns."""
        return self._pool.num_free

    def can_admit(self, total_tokens: int) -> bool:
        """Whether a request of this length, prompt and output together, fits now."""
        return self._num_blocks_for(total_tokens) <= self._pool.num_free

    def admit(self, request_id: int, total_tokens: int) -> None:
        """Reserve the blocks for ``total_tokens`` positions.

        Raises:
            CapacityError: too few blocks are free (``unit="blocks"``); nothing is reserved.
            KVCacheError: the request is admitted already, or the length is not positive.
        """
        if request_id in self._reservations:
            raise KVCacheError(f"request {request_id} is in the KV cache already")
        if total_tokens < 1:
            raise KVCacheError(f"request {request_id} asks for {total_tokens} tokens of KV cache")
        blocks = self._pool.allocate(self._num_blocks_for(total_tokens))
        starts = np.asarray(blocks, dtype=np.int64) * self._block_size
        slots = (starts[:, None] + np.arange(self._block_size, dtype=np.int64)).reshape(-1)[:total_tokens]
        self._reservations[request_id] = _Reservation(blocks, slots)

    def block_table(self, request_id: int) -> list[int]:
        """The blocks of a request, in order of position (a copy); `KVCacheError` if it is unknown."""
        return self._reservation(request_id).blocks.copy()

    def slots(self, request_id: int, start: int, count: int) -> NDArray[np.int64]:
        """The slots of positions ``start .. start + count - 1``, int64 ``[count]`` (a copy).

        Raises:
            KVCacheError: the request is unknown, or a position is outside of its reservation.
        """
        slots = self._reservation(request_id).slots
        if start < 0 or count < 0 or start + count > len(slots):
            raise _outside(request_id, f"positions {start} to {start + count - 1}", len(slots))
        return slots[start : start + count].copy()

    def slot_for(self, request_id: int, position: int) -> int:
        """The slot of one position; raises as `slots` does."""
        slots = self._reservation(request_id).slots
        if not 0 <= position < len(slots):
            raise _outside(request_id, f"position {position}", len(slots))
        return int(slots[position])

    def release(self, request_id: int) -> None:
        """Give the blocks of a request back; `KVCacheError` if it is unknown."""
        self._pool.free(self._reservation(request_id).blocks)
        del self._reservations[request_id]

    def _num_blocks_for(self, total_tokens: int) -> int:
        return -(-total_tokens // self._block_size)

    def _reservation(self, request_id: int) -> _Reservation:
        reservation = self._reservations.get(request_id)
        if reservation is None:
            raise KVCacheError(f"request {request_id} is not in the KV cache")
        return reservation


def _outside(request_id: int, positions: str, reserved: int) -> KVCacheError:
    return KVCacheError(f"request {request_id} reserved {reserved} KV positions, {positions} is outside")

"""KV capacity planning and slot arithmetic, against hand-computed values."""

from __future__ import annotations

import numpy as np
import pytest

from graphsink.engine.kv_cache import (
    KVCacheManager,
    KVCacheSpec,
    KVCapacity,
    bytes_per_block,
    default_kv_tokens,
    plan_capacity,
)

SPECS = [KVCacheSpec(num_kv_heads=3, key_head_size=64, value_head_size=32)] * 2
BLOCK_BYTES = 2 * 16 * 3 * (64 + 32) * 2
"""Two layers, 16 tokens, 3 heads, keys and values, bfloat16."""


def plan(
    *,
    kv_cache_gib: float | None = None,
    kv_cache_tokens: int | None = None,
    default_tokens: int = 100,
    available_bytes: int = 2**40,
    mem_fraction: float = 1.0,
) -> KVCapacity:
    return plan_capacity(
        SPECS,
        2,
        16,
        kv_cache_gib=kv_cache_gib,
        kv_cache_tokens=kv_cache_tokens,
        default_tokens=default_tokens,
        available_bytes=available_bytes,
        mem_fraction=mem_fraction,
    )


def test_bytes_count_keys_and_values_of_all_layers() -> None:
    assert SPECS[0].bytes_per_token(2) == 576
    assert bytes_per_block(SPECS, 2, 16) == BLOCK_BYTES == 18432


def test_tokens_round_up_to_blocks_and_the_null_block_comes_on_top() -> None:
    assert plan(default_tokens=100) == KVCapacity(8, 8 * BLOCK_BYTES)
    assert plan(kv_cache_tokens=16) == KVCapacity(2, 2 * BLOCK_BYTES)
    assert plan(kv_cache_tokens=17).num_blocks == 3


def test_gib_is_never_exceeded() -> None:
    capacity = plan(kv_cache_gib=0.001)
    assert capacity.num_blocks == 1073741 // BLOCK_BYTES == 58
    assert capacity.bytes == 58 * BLOCK_BYTES


def test_share_of_memory_is_inclusive() -> None:
    exact = 8 * BLOCK_BYTES
    assert plan(available_bytes=2 * exact, mem_fraction=0.5).num_blocks == 8


@pytest.mark.parametrize(
    ("context_length", "expected"), [(None, 3 * 112), (1000, 3 * 112), (80, 3 * 80), (70, 3 * 80)]
)
def test_default_tokens_are_whole_blocks_per_sequence_within_the_context(
    context_length: int | None, expected: int
) -> None:
    assert default_kv_tokens(3, 64, 40, 16, context_length) == expected


def test_slots_follow_the_block_table() -> None:
    kv = KVCacheManager(num_blocks=6, block_size=4)
    kv.admit(7, 5)
    kv.admit(8, 9)
    kv.release(7)
    kv.admit(9, 8)
    assert (kv.block_table(8), kv.block_table(9)) == ([3, 4, 5], [1, 2])
    slots = kv.slots(8, 2, 6)
    assert slots.dtype == np.int64
    assert slots.tolist() == [14, 15, 16, 17, 18, 19]
    assert [kv.slot_for(8, position) for position in range(9)] == kv.slots(8, 0, 9).tolist()
    assert kv.slots(8, 9, 0).tolist() == []


def test_results_are_copies() -> None:
    kv = KVCacheManager(num_blocks=4, block_size=4)
    kv.admit(1, 8)
    kv.block_table(1)[0] = 99
    kv.slots(1, 0, 8)[:] = -1
    assert kv.block_table(1) == [1, 2]
    assert kv.slots(1, 0, 8).tolist() == [4, 5, 6, 7, 8, 9, 10, 11]


def test_admission_reserves_the_worst_case() -> None:
    kv = KVCacheManager(num_blocks=6, block_size=4)
    assert (kv.max_tokens, kv.num_free_blocks) == (20, 5)
    assert kv.can_admit(20)
    assert not kv.can_admit(21)
    kv.admit(1, 9)
    assert kv.num_free_blocks == 2
    assert kv.can_admit(8)
    assert not kv.can_admit(9)
    kv.release(1)
    assert kv.num_free_blocks == 5

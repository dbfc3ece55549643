"""What the KV cache refuses, and in which words."""

from __future__ import annotations

import pytest

from graphsink.engine.kv_cache import KVCacheManager, KVCacheSpec, bytes_per_block, plan_capacity
from graphsink.errors import CapacityError, KVCacheError, RecipeValueError

SPECS = [KVCacheSpec(num_kv_heads=2, key_head_size=64, value_head_size=64)] * 4
BLOCK_BYTES = 4 * 16 * 2 * 128 * 4


def plan(kv_cache_gib: float | None, kv_cache_tokens: int | None, available_bytes: int) -> None:
    plan_capacity(
        SPECS,
        4,
        16,
        kv_cache_gib=kv_cache_gib,
        kv_cache_tokens=kv_cache_tokens,
        default_tokens=160,
        available_bytes=available_bytes,
        mem_fraction=0.5,
    )


@pytest.mark.parametrize(
    ("gib", "tokens", "key", "blocks"),
    [
        (None, None, "scheduler_config", 11),
        (None, 1000, "scheduler_config.kv_cache_tokens", 64),
        (1.0, None, "scheduler_config.kv_cache_gib", 2**30 // BLOCK_BYTES),
    ],
)
def test_cache_larger_than_memory_gives_the_numbers_and_what_fits(
    gib: float | None, tokens: int | None, key: str, blocks: int
) -> None:
    with pytest.raises(CapacityError) as caught:
        plan(gib, tokens, available_bytes=2 * (6 * BLOCK_BYTES + 1))
    error = caught.value
    assert (error.needed, error.available, error.unit) == (blocks * BLOCK_BYTES, 6 * BLOCK_BYTES + 1, "bytes")
    assert error.where == key
    assert f"{(blocks - 1) * 16:,} tokens does not fit into 50% of the" in error.what
    assert error.hint is not None
    assert "at most 80 tokens fit" in error.hint


def test_what_is_said_to_fit_does_fit() -> None:
    plan(None, 80, available_bytes=2 * (6 * BLOCK_BYTES + 1))
    with pytest.raises(CapacityError):
        plan(None, 81, available_bytes=2 * (6 * BLOCK_BYTES + 1))


def test_memory_below_one_block() -> None:
    with pytest.raises(CapacityError, match="not even one block fits"):
        plan(None, None, available_bytes=BLOCK_BYTES)


def test_gib_below_one_usable_block_names_the_smallest_size() -> None:
    with pytest.raises(
        CapacityError, match=r"kv_cache_gib is too small for two KV blocks of 16 tokens"
    ) as caught:
        plan(1e-6, None, available_bytes=2**40)
    assert (caught.value.needed, caught.value.available) == (2 * BLOCK_BYTES, 1073)
    assert caught.value.hint == "give at least 0.001, or lower block_size"
    plan(0.001, None, available_bytes=2**40)


def test_two_sizes_exclude_each_other() -> None:
    with pytest.raises(RecipeValueError, match="exclude each other") as caught:
        plan(1.0, 100, available_bytes=2**40)
    assert caught.value.key == "scheduler_config.kv_cache_tokens"


def test_no_layers() -> None:
    with pytest.raises(KVCacheError, match="a KV block of 0 layers"):
        bytes_per_block([], 2, 16)


def test_request_that_does_not_fit_reserves_nothing() -> None:
    kv = KVCacheManager(num_blocks=4, block_size=4)
    with pytest.raises(CapacityError, match=r"needed 4 blocks, available 3 blocks"):
        kv.admit(1, 13)
    assert kv.num_free_blocks == 3
    with pytest.raises(KVCacheError, match="request 1 is not in the KV cache"):
        kv.block_table(1)


def test_misuse_is_named() -> None:
    kv = KVCacheManager(num_blocks=8, block_size=4)
    kv.admit(1, 6)
    with pytest.raises(KVCacheError, match="request 1 is in the KV cache already"):
        kv.admit(1, 2)
    with pytest.raises(KVCacheError, match="request 2 asks for 0 tokens"):
        kv.admit(2, 0)
    for call in (
        kv.release,
        kv.block_table,
        lambda name: kv.slot_for(name, 0),
        lambda name: kv.slots(name, 0, 1),
    ):
        with pytest.raises(KVCacheError, match="request 3 is not in the KV cache"):
            call(3)
    kv.release(1)
    with pytest.raises(KVCacheError, match="request 1 is not in the KV cache"):
        kv.release(1)
    assert kv.num_free_blocks == 7


@pytest.mark.parametrize("position", [-1, 6, 7, 8])
def test_positions_outside_of_the_reservation(position: int) -> None:
    kv = KVCacheManager(num_blocks=8, block_size=4)
    kv.admit(1, 6)
    with pytest.raises(
        KVCacheError, match=f"request 1 reserved 6 KV positions, position {position} is outside"
    ):
        kv.slot_for(1, position)
    with pytest.raises(KVCacheError, match=f"positions {position} to {position} is outside"):
        kv.slots(1, position, 1)


def test_ranges_that_leave_the_reservation() -> None:
    kv = KVCacheManager(num_blocks=8, block_size=4)
    kv.admit(1, 6)
    with pytest.raises(KVCacheError, match="positions 4 to 6 is outside"):
        kv.slots(1, 4, 3)
    with pytest.raises(KVCacheError):
        kv.slots(1, 4, -1)


def test_impossible_block_size() -> None:
    with pytest.raises(KVCacheError, match="at least 1 token, not 0"):
        KVCacheManager(4, 0)

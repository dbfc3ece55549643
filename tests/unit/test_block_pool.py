"""Block pool: order, accounting, and refusal of every wrong free."""

from __future__ import annotations

import pytest

from graphsink.engine.block_pool import BlockPool
from graphsink.errors import CapacityError, KVCacheError


def test_null_block_is_never_handed_out() -> None:
    pool = BlockPool(5)
    assert (pool.num_usable, pool.num_free) == (4, 4)
    assert pool.allocate(4) == [1, 2, 3, 4]
    assert pool.num_free == 0


def test_freed_run_comes_back_in_its_order() -> None:
    pool = BlockPool(8)
    first = pool.allocate(3)
    assert (first, pool.allocate(2)) == ([1, 2, 3], [4, 5])
    pool.free(first)
    assert pool.num_free == 5
    assert pool.allocate(4) == [1, 2, 3, 6]


def test_allocating_nothing_takes_nothing() -> None:
    pool = BlockPool(3)
    assert pool.allocate(0) == []
    pool.free([])
    assert pool.num_free == 2


def test_too_few_blocks_says_how_many_and_takes_none() -> None:
    pool = BlockPool(4)
    pool.allocate(1)
    with pytest.raises(CapacityError, match=r"needed 3 blocks, available 2 blocks") as caught:
        pool.allocate(3)
    assert (caught.value.needed, caught.value.available, caught.value.unit) == (3, 2, "blocks")
    assert pool.num_free == 2
    assert pool.allocate(2) == [2, 3]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([2, 0], "block 0: it is the null block"),
        ([2, 9], r"block 9: it is not of this pool \(blocks 1 to 5\)"),
        ([2, -1], "block -1: it is not of this pool"),
        ([2, 5], "block 5: it is free already"),
        ([2, 3, 2], "block 2: it is free already"),
    ],
)
def test_wrong_free_is_refused_and_frees_nothing(bad: list[int], words: str) -> None:
    pool = BlockPool(6)
    owned = pool.allocate(4)
    with pytest.raises(KVCacheError, match=words):
        pool.free(bad)
    assert pool.num_free == 1
    pool.free(owned)
    assert pool.num_free == 5


def test_double_free_is_refused() -> None:
    pool = BlockPool(4)
    blocks = pool.allocate(2)
    pool.free(blocks)
    with pytest.raises(KVCacheError, match="block 1: it is free already"):
        pool.free(blocks)
    assert sorted(pool.allocate(3)) == [1, 2, 3]


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(KVCacheError, match=r"at least 2 blocks.*not 1"):
        BlockPool(1)
    with pytest.raises(KVCacheError, match="cannot allocate -1"):
        BlockPool(2).allocate(-1)

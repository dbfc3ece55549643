"""Random admissions and releases against a model of the pool kept by the test."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphsink.engine.kv_cache import KVCacheManager
from graphsink.errors import CapacityError, KVCacheError

ACTIONS = st.lists(
    st.tuples(st.sampled_from(["admit", "release"]), st.integers(0, 5), st.integers(0, 40)), max_size=60
)


@settings(max_examples=300, deadline=None, print_blob=True)
@given(num_blocks=st.integers(2, 14), block_size=st.integers(1, 7), actions=ACTIONS)
def test_slots_are_never_shared(
    num_blocks: int, block_size: int, actions: list[tuple[str, int, int]]
) -> None:
    kv = KVCacheManager(num_blocks, block_size)
    admitted: dict[int, int] = {}
    for action, request_id, tokens in actions:
        needed = -(-tokens // block_size)
        free = num_blocks - 1 - sum(-(-length // block_size) for length in admitted.values())
        if action == "release":
            if request_id in admitted:
                kv.release(request_id)
                del admitted[request_id]
            else:
                with pytest.raises(KVCacheError):
                    kv.release(request_id)
        elif request_id in admitted or tokens == 0:
            with pytest.raises(KVCacheError):
                kv.admit(request_id, tokens)
        elif needed > free:
            assert not kv.can_admit(tokens)
            with pytest.raises(CapacityError) as caught:
                kv.admit(request_id, tokens)
            assert (caught.value.needed, caught.value.available) == (needed, free)
        else:
            assert kv.can_admit(tokens)
            kv.admit(request_id, tokens)
            admitted[request_id] = tokens
        check_consistent(kv, admitted, num_blocks)
    for request_id in admitted:
        kv.release(request_id)
    assert kv.num_free_blocks == num_blocks - 1


def check_consistent(kv: KVCacheManager, admitted: dict[int, int], num_blocks: int) -> None:
    """Owned blocks are real, distinct and not the null block; slots are the blocks' own places."""
    size = kv.block_size
    tables = {request_id: kv.block_table(request_id) for request_id in admitted}
    owned = [block for table in tables.values() for block in table]
    assert len(owned) == len(set(owned)) == num_blocks - 1 - kv.num_free_blocks
    assert all(0 < block < num_blocks for block in owned)
    for request_id, length in admitted.items():
        expected = [tables[request_id][p // size] * size + p % size for p in range(length)]
        assert kv.slots(request_id, 0, length).tolist() == expected
        assert kv.slot_for(request_id, length - 1) == expected[-1]
        with pytest.raises(KVCacheError):
            kv.slot_for(request_id, length)

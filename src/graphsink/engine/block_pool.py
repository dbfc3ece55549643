"""The pool of KV blocks: which are free, which are in use."""

from __future__ import annotations

from collections.abc import Sequence

from graphsink.errors import CapacityError, KVCacheError

NULL_BLOCK = 0
"""Padding rows write here. No request ever owns it."""


class BlockPool:
    """Hands out block ids ``1 .. num_blocks - 1``; block 0 is the null block.

    The order is deterministic: ascending at first, and a freed run comes back in the order in which it
    was handed out, so that the blocks of a sequence tend to be neighbours in memory. Allocating and
    freeing cost O(1) per block.

    Args:
        num_blocks: blocks in the pool, with the null block; at least 2.

    Raises:
        KVCacheError: the pool would have no usable block.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 2:
            raise KVCacheError(
                f"a KV block pool needs at least 2 blocks, the null block and one to use, not {num_blocks}"
            )
        self._num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, NULL_BLOCK, -1))
        self._in_use = bytearray(num_blocks)

    @property
    def num_usable(self) -> int:
        """Blocks that requests can own (all but the null block)."""
        return self._num_blocks - 1

    @property
    def num_free(self) -> int:
        """Blocks that nobody owns at the moment."""
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Take ``count`` blocks.

        Raises:
            CapacityError: fewer are free (``unit="blocks"``); none is taken.
            KVCacheError: ``count`` is negative.
        """
        if count < 0:
            raise KVCacheError(f"cannot allocate {count} KV blocks")
        if count > len(self._free):
            raise CapacityError(
                f"the KV cache has too few free blocks ({self.num_usable:,} in all)",
                needed=count,
                available=len(self._free),
                unit="blocks",
                hint="wait until a running request ends, or raise scheduler_config.kv_cache_tokens",
            )
        if count == 0:
            return []
        blocks = self._free[: -count - 1 : -1]
        del self._free[-count:]
        for block in blocks:
            self._in_use[block] = 1
        return blocks

    def free(self, blocks: Sequence[int]) -> None:
        """Give blocks back.

        Raises:
            KVCacheError: a block is the null block, is not of this pool, or is free already (also: is
                listed twice). Nothing is freed then.
        """
        for index, block in enumerate(blocks):
            fault = self._fault(block)
            if fault is not None:
                for earlier in blocks[:index]:
                    self._in_use[earlier] = 1
                raise KVCacheError(f"cannot free KV block {block}: {fault}")
            self._in_use[block] = 0
        self._free.extend(reversed(blocks))

    def _fault(self, block: int) -> str | None:
        """Why a block cannot be freed, if it cannot."""
        if block == NULL_BLOCK:
            return "it is the null block, which is never handed out"
        if not 0 < block < self._num_blocks:
            return f"it is not of this pool (blocks 1 to {self._num_blocks - 1})"
        if not self._in_use[block]:
            return "it is free already"
        return None

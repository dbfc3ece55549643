"""graphsink::paged_attention against a float64 closed form, and its registration with PyTorch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from graphsink.torch_bridge.paged_attention import paged_attention

BLOCK_SIZE = 4


class Pool:
    """A KV pool filled with a pattern, and sequences whose blocks are scattered in it."""

    def __init__(
        self, num_blocks: int, kv_heads: int, key_size: int, value_size: int, dtype: torch.dtype
    ) -> None:
        self.keys = torch.full((num_blocks, BLOCK_SIZE, kv_heads, key_size), 7.0, dtype=dtype)
        self.values = torch.full((num_blocks, BLOCK_SIZE, kv_heads, value_size), 7.0, dtype=dtype)
        generator = torch.Generator().manual_seed(num_blocks)
        self._free = (torch.randperm(num_blocks - 1, generator=generator) + 1).tolist()

    def take(self, length: int) -> list[int]:
        return [self._free.pop() for _ in range(math.ceil(length / BLOCK_SIZE))]


def closed_form(
    query: Tensor, keys: Tensor, values: Tensor, *, scale: float, window: int, softcap: float
) -> Tensor:
    """Attention of the last n positions in float64, head by head: query [n, H, D] -> [n, H, Dv]."""
    n, heads, _ = query.shape
    length, kv_heads, value_size = values.shape
    output = torch.zeros(n, heads, value_size, dtype=torch.float64)
    for token in range(n):
        position = length - n + token
        first = max(0, position + 1 - window) if window else 0
        for head in range(heads):
            group = head // (heads // kv_heads)
            k = keys[first : position + 1, group].double()
            v = values[first : position + 1, group].double()
            scores = (k @ query[token, head].double()) * scale
            if softcap:
                scores = softcap * torch.tanh(scores / softcap)
            output[token, head] = torch.softmax(scores, dim=0) @ v
    return output


CASES = {
    "one sequence, prefill": ([(5, 5)], 4, 2),
    "one sequence, decode": ([(9, 1)], 4, 2),
    "one sequence, first token": ([(1, 1)], 4, 4),
    "decode of three lengths": ([(9, 1), (4, 1), (13, 1)], 6, 3),
    "ragged prefill": ([(3, 3), (8, 8), (1, 1)], 4, 1),
    "chunks on top of stored tokens": ([(9, 4), (6, 2)], 4, 2),
    "prefill and decode together": ([(5, 5), (11, 1)], 4, 2),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("window", [0, 1, 3, 64])
@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_matches_closed_form(case: str, window: int, softcap: float, dtype: torch.dtype) -> None:
    """Every shape of batch, with and without window and soft-cap, with different key and value sizes."""
    sequences, heads, kv_heads = CASES[case]
    torch.manual_seed(0)
    key_size, value_size, scale = 8, 12, 0.3
    pool = Pool(24, kv_heads, key_size, value_size, dtype)
    tokens = sum(n for _, n in sequences)
    query = torch.randn(tokens, heads, key_size, dtype=dtype)
    all_keys = [torch.randn(length, kv_heads, key_size, dtype=dtype) for length, _ in sequences]
    all_values = [torch.randn(length, kv_heads, value_size, dtype=dtype) for length, _ in sequences]
    tables, slots, starts = [], [], [0]
    for (length, n), keys, values in zip(sequences, all_keys, all_values, strict=True):
        blocks = pool.take(length)
        all_slots = [blocks[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in range(length)]
        old = torch.tensor(all_slots[: length - n], dtype=torch.int64)
        pool.keys.flatten(0, 1)[old] = keys[: length - n]
        pool.values.flatten(0, 1)[old] = values[: length - n]
        slots += all_slots[length - n :]
        tables.append(blocks)
        starts.append(starts[-1] + n)
    width = max(map(len, tables))
    before = pool.keys.clone(), pool.values.clone()
    output = paged_attention(
        query,
        torch.cat([k[length - n :] for k, (length, n) in zip(all_keys, sequences, strict=True)]),
        torch.cat([v[length - n :] for v, (length, n) in zip(all_values, sequences, strict=True)]),
        pool.keys,
        pool.values,
        torch.tensor(slots),
        torch.tensor([t + [0] * (width - len(t)) for t in tables], dtype=torch.int32),
        torch.tensor(starts, dtype=torch.int32),
        torch.tensor([length for length, _ in sequences], dtype=torch.int32),
        scale=scale,
        window=window,
        softcap=softcap,
    )
    assert output.shape == (tokens, heads, value_size)
    assert output.dtype == dtype
    tolerance = 2e-6 if dtype == torch.float32 else 2e-2
    for row, (_, n) in enumerate(sequences):
        expected = closed_form(
            query[starts[row] : starts[row] + n],
            all_keys[row],
            all_values[row],
            scale=scale,
            window=window,
            softcap=softcap,
        )
        torch.testing.assert_close(
            output[starts[row] : starts[row] + n].double(), expected, rtol=tolerance, atol=tolerance
        )
    # Nothing but the slots of this step was written, and the null block least of all.
    untouched = torch.ones(pool.keys.shape[0] * BLOCK_SIZE, dtype=torch.bool)
    untouched[slots] = False
    for cache, old in zip((pool.keys, pool.values), before, strict=True):
        assert torch.equal(cache.flatten(0, 1)[untouched], old.flatten(0, 1)[untouched])
    assert bool((pool.keys[0] == 7.0).all())


def test_negative_slot_is_refused() -> None:
    """In plain indexing -1 is the last slot of the pool; here it is an error and nothing is written."""
    pool = Pool(3, 1, 2, 2, torch.float32)
    before = pool.keys.clone()
    one = torch.ones(1, 1, 2)
    table, start, lens = (torch.tensor(x, dtype=torch.int32) for x in ([[1]], [0, 1], [1]))
    with pytest.raises((IndexError, RuntimeError)):
        paged_attention(
            one, one, one, pool.keys, pool.values, torch.tensor([-1]), table, start, lens, scale=1.0
        )
    assert torch.equal(pool.keys, before)


def test_registration_is_complete() -> None:
    """Schema, fake kernel and mutation declaration agree with what the kernel does."""
    pool = Pool(4, 2, 8, 8, torch.float32)
    arguments = (
        torch.randn(3, 4, 8),
        torch.randn(3, 2, 8),
        torch.randn(3, 2, 8),
        pool.keys,
        pool.values,
        torch.tensor([4, 5, 8]),
        torch.tensor([[1], [2]], dtype=torch.int32),
        torch.tensor([0, 2, 3], dtype=torch.int32),
        torch.tensor([2, 1], dtype=torch.int32),
    )
    torch.library.opcheck(
        paged_attention, arguments, {"scale": 0.5}, test_utils=("test_schema", "test_faketensor")
    )

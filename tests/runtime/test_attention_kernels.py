"""Paged attention kernels against float64 closed forms and against the operator of eager mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from graphsink.runtime.kernel_signatures import decode_workspace_floats
from graphsink.torch_bridge.paged_attention import paged_attention
from support.kernel_calls import (
    BAD_ARGUMENT,
    BLOCK_DIMS,
    DTYPES,
    INDEX_OUT_OF_RANGE,
    LEVELS,
    SCRATCH_TOO_SMALL,
    Guarded,
    for_every_block_dim,
    run,
    same_bits,
)


@dataclass(frozen=True)
class Shape:
    """Heads and sizes of an attention layer, and how it scores."""

    heads: int = 4
    kv_heads: int = 2
    key_size: int = 16
    value_size: int = 16
    block_size: int = 16
    window: int = 0
    softcap: float = 0.0

    @property
    def scale(self) -> float:
        return self.key_size**-0.5


class Batch:
    """Sequences whose keys and values are scattered over a pool that is NaN everywhere else."""

    def __init__(
        self, shape: Shape, kind: str, lengths: Sequence[tuple[int, int]], spare_blocks: int = 3
    ) -> None:
        """`lengths`: of each sequence, tokens in the pool and query tokens."""
        self.shape, self.kind, self.dtype, self.lengths = shape, kind, DTYPES[kind], list(lengths)
        size = shape.block_size
        columns = max([math.ceil(length / size) for length, _ in lengths] + [1])
        blocks = sum(math.ceil(length / size) for length, _ in lengths) + spare_blocks
        self.key_cache = torch.full(
            (blocks, size, shape.kv_heads, shape.key_size), math.nan, dtype=self.dtype
        )
        self.value_cache = torch.full(
            (blocks, size, shape.kv_heads, shape.value_size), math.nan, dtype=self.dtype
        )
        free = torch.randperm(blocks - 1, generator=torch.Generator().manual_seed(1)).tolist()
        # Entries that no position needs point outside of the pool.
        self.block_table = torch.full((len(lengths), columns + 1), -7, dtype=torch.int32)
        self.queries: list[Tensor] = []
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        for row, (length, tokens) in enumerate(lengths):
            generator = torch.Generator().manual_seed(1000 * length + tokens)
            for i in range(math.ceil(length / size)):
                self.block_table[row, i] = free.pop() + 1
            self.queries.append(self._random(generator, tokens, shape.heads, shape.key_size) * 2)
            self.keys.append(self._random(generator, length, shape.kv_heads, shape.key_size))
            self.values.append(self._random(generator, length, shape.kv_heads, shape.value_size))
            slots = self.slots(row)
            self.key_cache.flatten(0, 1)[slots] = self.keys[-1]
            self.value_cache.flatten(0, 1)[slots] = self.values[-1]
        self.seq_lens = torch.tensor([length for length, _ in lengths], dtype=torch.int32)
        starts = torch.tensor([0] + [tokens for _, tokens in lengths]).cumsum(0)
        self.query_start = starts.to(torch.int32)
        self.query = torch.cat(self.queries) if self.queries else torch.empty(0, shape.heads, shape.key_size)

    def _random(self, generator: torch.Generator, *size: int) -> Tensor:
        return torch.randn(*size, generator=generator).to(self.dtype)

    def slots(self, row: int) -> Tensor:
        """Slots of all positions of a sequence."""
        position = torch.arange(self.lengths[row][0])
        size = self.shape.block_size
        return self.block_table[row].long()[position // size] * size + position % size

    def pool_slots(self) -> list[Tensor | int]:
        shape = self.shape
        sizes = [shape.heads, shape.kv_heads, shape.key_size, shape.value_size]
        return [*sizes, self.key_cache.shape[0], shape.block_size, self.block_table.shape[1]]

    def scoring(self) -> list[int | float]:
        shape = self.shape
        return [shape.heads * shape.key_size, shape.scale, shape.window, shape.softcap]

    def decode_slots(self, workspace: Tensor) -> list[Tensor | int | float]:
        tensors = [self.query, self.key_cache, self.value_cache, self.block_table, self.seq_lens, workspace]
        return [*tensors, len(self.lengths), *self.pool_slots(), *self.scoring()]

    def decode(self, level: str, block_dim: int = 1, scratch_bytes: int = 1 << 20) -> Tensor:
        """[B, H, Dv] by the two decode kernels."""
        shape, rows, columns = self.shape, len(self.lengths), self.block_table.shape[1]
        floats = decode_workspace_floats(rows, shape.heads, shape.value_size, shape.block_size, columns)
        workspace = Guarded((floats,), torch.float32)
        slots = self.decode_slots(workspace.tensor)
        name = f"paged_attention_decode_{self.kind}"
        assert run(name, level, slots, block_dim=block_dim, scratch_bytes=scratch_bytes) == 0
        workspace.check()
        output = Guarded((rows, shape.heads, shape.value_size), self.dtype)
        slots = [workspace.tensor, self.seq_lens, output.tensor, rows, shape.heads, shape.value_size]
        slots += [shape.block_size, columns, shape.window]
        assert run(f"paged_attention_combine_{self.kind}", level, slots, block_dim=block_dim) == 0
        return output.check()

    def prefill_slots(self, output: Tensor) -> list[Tensor | int | float]:
        tensors = [self.query, self.key_cache, self.value_cache, self.block_table]
        tensors += [self.query_start, self.seq_lens, output]
        return [*tensors, len(self.query), len(self.lengths), *self.pool_slots(), *self.scoring()]

    def prefill(self, level: str, block_dim: int = 1) -> Tensor:
        """[T, H, Dv] by the prefill kernel."""
        output = Guarded((len(self.query), self.shape.heads, self.shape.value_size), self.dtype)
        name = f"paged_attention_prefill_{self.kind}"
        assert run(name, level, self.prefill_slots(output.tensor), block_dim=block_dim) == 0
        return output.check()

    def closed_form(self) -> Tensor:
        """[T, H, Dv] in float64, sequence by sequence."""
        return torch.cat([self._closed_form(row) for row in range(len(self.lengths))])

    def _closed_form(self, row: int) -> Tensor:
        shape, (length, tokens) = self.shape, self.lengths[row]
        if length == 0:
            return torch.zeros(tokens, shape.heads, shape.value_size, dtype=torch.float64)
        group = shape.heads // shape.kv_heads
        keys = self.keys[row].double().repeat_interleave(group, 1)
        values = self.values[row].double().repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", self.queries[row].double(), keys) * shape.scale
        if shape.softcap:
            scores = shape.softcap * torch.tanh(scores / shape.softcap)
        distance = torch.arange(length - tokens, length)[:, None] - torch.arange(length)
        allowed = (distance >= 0) & ((distance < shape.window) | (shape.window == 0))
        weights = torch.softmax(scores.masked_fill(~allowed, -math.inf), -1)
        return torch.einsum("hqk,khd->qhd", weights, values)


SHAPES = {
    "plain": Shape(),
    "one head of one": Shape(1, 1, 1, 1, 1),
    "grouped by 3, head 64": Shape(9, 3, 64, 64),
    "grouped by 7, odd sizes": Shape(7, 1, 33, 17, 5),
    "key and value sizes differ": Shape(4, 4, 80, 48, 8),
    "head 128": Shape(8, 2, 128, 128, 16),
    "window": Shape(6, 2, 32, 32, 4, window=37),
    "window of one": Shape(2, 1, 16, 31, 3, window=1),
    "window longer than a chunk": Shape(2, 1, 16, 16, 16, window=300),
    "softcap": Shape(4, 2, 32, 32, 16, softcap=1.5),
    "window and softcap": Shape(10, 2, 24, 40, 7, window=65, softcap=3.0),
}
DECODE_LENGTHS = (1, 2, 15, 16, 17, 31, 33, 255, 256, 257, 300, 511, 513, 0, 64)
PREFILLS = ((1, 1), (7, 7), (17, 17), (66, 66), (130, 130), (64, 3), (65, 1), (200, 40), (129, 65), (5, 5))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_decode(shape: Shape, kind: str, level: str) -> None:
    batch = Batch(shape, kind, [(length, 1) for length in DECODE_LENGTHS])
    got = for_every_block_dim(lambda block_dim: batch.decode(level, block_dim))
    true = batch.closed_form()
    # Only the result is rounded to bf16.
    unit = 2.0**-8 if kind == "bf16" else 2.0**-20
    torch.testing.assert_close(got.double(), true, rtol=unit, atol=unit / 16 + 2e-6)
    assert (got[DECODE_LENGTHS.index(0)] == 0).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_prefill(shape: Shape, kind: str, level: str) -> None:
    batch = Batch(shape, kind, PREFILLS)
    got = for_every_block_dim(lambda block_dim: batch.prefill(level, block_dim))
    true = batch.closed_form()
    # With pairs of bf16 the weights are rounded too: twice half a unit, relative to the values' size of 4.
    unit = 2.0**-8 if kind == "bf16" else 2.0**-20
    torch.testing.assert_close(got.double(), true, rtol=unit, atol=2 * unit + 2e-6)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", DTYPES)
def test_like_the_operator(kind: str, level: str) -> None:
    shape = Shape(9, 3, 64, 64)
    for lengths, kernel in (([(300, 1), (17, 1)], Batch.decode), ([(70, 70), (40, 9)], Batch.prefill)):
        batch = Batch(shape, kind, lengths)
        # The operator writes this step's keys and values once more, and pads its tables with block 0.
        new = [slice(length - tokens, length) for length, tokens in lengths]
        slots = torch.cat([batch.slots(row)[part] for row, part in enumerate(new)])
        key = torch.cat([keys[part] for keys, part in zip(batch.keys, new, strict=True)])
        value = torch.cat([values[part] for values, part in zip(batch.values, new, strict=True)])
        table = batch.block_table.clamp_min(0)
        caches = [batch.key_cache, batch.value_cache]
        where = [slots, table, batch.query_start, batch.seq_lens]
        expected = paged_attention(batch.query, key, value, *caches, *where, scale=shape.scale)
        unit = 2.0**-7 if kind == "bf16" else 2.0**-19
        torch.testing.assert_close(kernel(batch, level), expected, rtol=unit, atol=2 * unit)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("name", ["grouped by 3, head 64", "window and softcap"])
def test_neighbours_change_nothing(name: str, kind: str, level: str) -> None:
    shape = SHAPES[name]
    decodes = [(300, 1), (1, 1), (1000, 1)]
    together = Batch(shape, kind, decodes).decode(level, 3)
    for row, lengths in enumerate(decodes):
        assert same_bits(together[row], Batch(shape, kind, [lengths]).decode(level)[0])
    prefills = [(90, 90), (3, 3), (200, 70)]
    together = Batch(shape, kind, prefills).prefill(level, 3)
    for lengths, part in zip(prefills, together.split([tokens for _, tokens in prefills]), strict=True):
        assert same_bits(part, Batch(shape, kind, [lengths]).prefill(level))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", DTYPES)
def test_a_prompt_in_chunks_is_a_prompt_at_once(kind: str, level: str) -> None:
    whole = Batch(Shape(6, 2, 40, 24, window=50), kind, [(200, 200)])
    at_once, starts = whole.prefill(level), [0, 1, 34, 130, 200]
    for begin, end in pairwise(starts):
        whole.query = whole.queries[0][begin:end].contiguous()
        whole.query_start = torch.tensor([0, end - begin], dtype=torch.int32)
        whole.seq_lens = torch.tensor([end], dtype=torch.int32)
        assert same_bits(whole.prefill(level), at_once[begin:end])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", DTYPES)
def test_nan_and_infinity_reach_only_who_sees_them(kind: str, level: str) -> None:
    lengths = [(40, 1), (300, 1), (40, 1)]
    clean = Batch(Shape(), kind, lengths).decode(level)
    for cache, poison in (("key_cache", math.nan), ("value_cache", math.nan), ("value_cache", math.inf)):
        batch = Batch(Shape(), kind, lengths)
        getattr(batch, cache).flatten(0, 1)[batch.slots(1)[77], 1, 3] = poison
        got = batch.decode(level)
        assert same_bits(got[0], clean[0]) and same_bits(got[2], clean[2])
        assert same_bits(got[1, :2], clean[1, :2])
        if cache == "key_cache":
            assert got[1, 2:].isnan().all()
        else:
            assert not got[1, 2:, 3].isfinite().any()
            assert same_bits(got[1, 2:, :3], clean[1, 2:, :3])
    # In prefill a key is hidden from the tokens before it.
    batch = Batch(Shape(), kind, [(40, 40)])
    before = batch.prefill(level)
    batch.key_cache.flatten(0, 1)[batch.slots(0)[30], 0, 0] = math.nan
    after = batch.prefill(level)
    assert same_bits(after[:30], before[:30]) and same_bits(after[:, 2:], before[:, 2:])
    assert after[30:, :2].isnan().all()


@pytest.mark.parametrize("level", LEVELS)
def test_scores_of_minus_infinity(level: str) -> None:
    # A whole chunk that weighs nothing, and a sequence in which everything does.
    for tokens in (1, 3):
        batch = Batch(Shape(2, 1, 4, 4), "f32", [(600, tokens), (20, tokens)])
        batch.query.fill_(1.0)
        batch.queries = [torch.ones_like(query) for query in batch.queries]
        for row, hidden in ((0, slice(0, 512)), (1, slice(0, 20))):
            batch.keys[row][hidden] = -math.inf
            batch.key_cache.flatten(0, 1)[batch.slots(row)] = batch.keys[row]
        got = batch.decode(level) if tokens == 1 else batch.prefill(level)
        true = batch.closed_form().float()
        torch.testing.assert_close(got[:tokens], true[:tokens], rtol=1e-5, atol=1e-5)
        assert got[tokens:].isnan().all() and true[tokens:].isnan().all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", DTYPES)
def test_queries_inside_a_wider_product(kind: str, level: str) -> None:
    batch = Batch(SHAPES["plain"], kind, [(30, 1), (5, 1)])
    packed = torch.full((2, 100), math.nan, dtype=batch.dtype)
    packed[:, 36:] = batch.query.flatten(1)
    expected = [batch.decode(level), batch.prefill(level)]
    batch.query = packed[:, 36:]
    scoring = [100, *batch.scoring()[1:]]
    batch.scoring = lambda: scoring  # type: ignore[method-assign]
    assert same_bits(batch.decode(level), expected[0])
    assert same_bits(batch.prefill(level), expected[1])


def test_little_scratch_takes_the_heads_in_turn() -> None:
    batch = Batch(Shape(8, 4, 32, 32), "bf16", [(300, 1)] * 40)
    expected = batch.decode(LEVELS[-1])
    least = 2 * 256 * 4
    assert same_bits(batch.decode(LEVELS[-1], scratch_bytes=least), expected)
    slots = batch.decode_slots(torch.zeros(1))
    assert run("paged_attention_decode_bf16", LEVELS[-1], slots, scratch_bytes=least - 1) == SCRATCH_TOO_SMALL
    slots = batch.prefill_slots(torch.zeros(1))
    assert run("paged_attention_prefill_bf16", LEVELS[-1], slots, scratch_bytes=1024) == SCRATCH_TOO_SMALL


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("entry", [-1, 10**6, 2**31 - 1])
def test_a_block_outside_of_the_pool_is_reported(entry: int, level: str) -> None:
    for block_dim in BLOCK_DIMS:
        batch = Batch(Shape(), "bf16", [(40, 1), (300, 1)])
        batch.block_table[1, 9] = entry
        workspace = torch.zeros(decode_workspace_floats(2, 4, 16, 16, batch.block_table.shape[1]))
        output = Guarded((2, 4, 16), torch.bfloat16)
        decode, prefill = batch.decode_slots(workspace), batch.prefill_slots(output.tensor)
        assert run("paged_attention_decode_bf16", level, decode, block_dim=block_dim) == INDEX_OUT_OF_RANGE
        assert run("paged_attention_prefill_bf16", level, prefill, block_dim=block_dim) == INDEX_OUT_OF_RANGE
        output.check()


@pytest.mark.parametrize("level", LEVELS)
def test_lengths_that_make_no_sense_are_reported(level: str) -> None:
    batch = Batch(Shape(), "f32", [(40, 2), (30, 2)])
    output, workspace = Guarded((4, 4, 16), torch.float32), torch.zeros(1 << 16)
    combine = [workspace, batch.seq_lens, output.tensor, 2, 4, 16, 16, batch.block_table.shape[1], 0]
    for length, code in ((-1, BAD_ARGUMENT), (10**6, INDEX_OUT_OF_RANGE)):
        batch.seq_lens[1] = length
        assert run("paged_attention_decode_f32", level, batch.decode_slots(workspace)) == code
        assert run("paged_attention_combine_f32", level, combine) == code
        assert run("paged_attention_prefill_f32", level, batch.prefill_slots(output.tensor)) == code
    batch.seq_lens[1] = 1  # fewer than its query tokens
    assert run("paged_attention_prefill_f32", level, batch.prefill_slots(output.tensor)) == BAD_ARGUMENT
    batch.seq_lens[1] = 30
    refused = {(0, 2, 1): BAD_ARGUMENT, (-1, 2, 4): INDEX_OUT_OF_RANGE, (0, 2, 5): INDEX_OUT_OF_RANGE}
    for starts, code in refused.items():
        batch.query_start = torch.tensor(starts, dtype=torch.int32)
        assert run("paged_attention_prefill_f32", level, batch.prefill_slots(output.tensor)) == code
    output.check()


@pytest.mark.parametrize("level", LEVELS)
def test_prefill_of_an_empty_sequence_gives_zeros(level: str) -> None:
    batch = Batch(Shape(), "bf16", [(20, 20), (0, 3), (9, 9)])
    got = batch.prefill(level, 2)
    assert (got[20:23] == 0).all() and got.isfinite().all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", DTYPES)
def test_kv_write(kind: str, level: str) -> None:
    generator = torch.Generator().manual_seed(5)
    packed = torch.randn(7, 60, generator=generator).to(DTYPES[kind])
    key, value = packed[:, 3:24], packed[:, 24:57]  # 3 heads of 7 and of 11
    mapping = torch.tensor([11, 0, 5, 29, 7, 8, 2])
    for block_dim in BLOCK_DIMS:
        keys, values = Guarded((30, 3, 7), packed.dtype), Guarded((30, 3, 11), packed.dtype)
        slots = [key, value, keys.tensor, values.tensor, mapping, 7, 3, 7, 11, 30, 60, 60]
        assert run(f"kv_write_{kind}", level, slots, block_dim=block_dim) == 0
        assert same_bits(keys.check()[mapping].flatten(1), key)
        assert same_bits(values.check()[mapping].flatten(1), value)
        untouched = [slot for slot in range(30) if slot not in mapping]
        assert keys.tensor[untouched].isnan().all() and values.tensor[untouched].isnan().all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bad", [-1, 30, 2**62, -(2**63)])
def test_kv_write_with_a_bad_slot_writes_nothing(bad: int, level: str) -> None:
    x = torch.zeros(4, 8)
    for block_dim in BLOCK_DIMS:
        keys, values = Guarded((30, 1, 8), torch.float32), Guarded((30, 1, 8), torch.float32)
        slots = [x, x, keys.tensor, values.tensor, torch.tensor([1, 2, 3, bad]), 4, 1, 8, 8, 30, 8, 8]
        assert run("kv_write_f32", level, slots, block_dim=block_dim) == INDEX_OUT_OF_RANGE
        assert keys.check().isnan().all() and values.check().isnan().all()
    assert run("kv_write_f32", level, [*slots[:5], -1, *slots[6:]]) == BAD_ARGUMENT

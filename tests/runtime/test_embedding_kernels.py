"""The embedding kernel: rows by token id, and ids that are not in the table."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from support.kernel_calls import (
    BAD_ARGUMENT,
    BLOCK_DIMS,
    DTYPES,
    INDEX_OUT_OF_RANGE,
    LEVELS,
    Guarded,
    run,
    same_bits,
)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", DTYPES)
def test_equals_eager(kind: str, level: str) -> None:
    for tokens, vocabulary, width in ((1, 1, 1), (5, 11, 33), (17, 300, 64)):
        generator = torch.Generator().manual_seed(width)
        table = torch.randn(vocabulary, width, generator=generator).to(DTYPES[kind])
        ids = torch.arange(tokens) * 7 % vocabulary
        for block_dim in BLOCK_DIMS:
            output = Guarded((tokens, width), table.dtype)
            slots = [ids, table, output.tensor, tokens, vocabulary, width]
            assert run(f"embedding_{kind}", level, slots, block_dim=block_dim) == 0
            assert same_bits(output.check(), F.embedding(ids, table))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bad", [-1, 11, 2**62, -(2**63)])
def test_a_bad_id_is_reported_and_nothing_is_written(bad: int, level: str) -> None:
    table, ids = torch.ones(11, 8), torch.tensor([0, 10, 3, bad])
    for block_dim in BLOCK_DIMS:
        output = Guarded((4, 8), torch.float32)
        slots = [ids, table, output.tensor, 4, 11, 8]
        assert run("embedding_f32", level, slots, block_dim=block_dim) == INDEX_OUT_OF_RANGE
        assert output.check().isnan().all()


@pytest.mark.parametrize("level", LEVELS)
def test_refuses_negative_sizes(level: str) -> None:
    table, ids = torch.ones(4), torch.zeros(1, dtype=torch.int64)
    for sizes in ((-1, 4, 1), (1, -4, 1), (1, 4, -1)):
        assert run("embedding_f32", level, [ids, table, table, *sizes]) == BAD_ARGUMENT

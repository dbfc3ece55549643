"""Scheduler: admission order, budgets, limits and finishing."""

from __future__ import annotations

import pytest

from graphsink.config import SamplingParams
from graphsink.engine.kv_cache import KVCacheManager
from graphsink.engine.request import FinishReason, Request
from graphsink.engine.scheduler import ScheduledBatch, Scheduler
from graphsink.errors import EngineError, InternalError, PromptError


def make_request(request_id: int, prompt_tokens: int, max_new_tokens: int = 4) -> Request:
    return Request(request_id, None, [1] * prompt_tokens, SamplingParams(max_new_tokens=max_new_tokens))


def make_scheduler(
    *,
    num_blocks: int = 101,
    batch_size: int = 4,
    max_prefill_tokens: int = 100,
    context_length: int | None = None,
) -> tuple[Scheduler, KVCacheManager]:
    kv = KVCacheManager(num_blocks, block_size=4)
    scheduler = Scheduler(
        kv, batch_size=batch_size, max_prefill_tokens=max_prefill_tokens, context_length=context_length
    )
    return scheduler, kv


def ids(batch: ScheduledBatch | None) -> list[int]:
    return [] if batch is None else [request.request_id for request in batch.requests]


def test_prefill_comes_first_then_all_running_decode() -> None:
    scheduler, _ = make_scheduler()
    assert scheduler.schedule() is None
    assert not scheduler.has_work
    for index in range(2):
        assert scheduler.add(make_request(index, 3 + index))
    batch = scheduler.schedule()
    assert batch is not None
    assert (batch.is_prefill, ids(batch), batch.num_tokens) == (True, [0, 1], 7)
    assert scheduler.add(make_request(2, 5))
    batch = scheduler.schedule()
    assert batch is not None
    assert (batch.is_prefill, ids(batch)) == (True, [2])
    batch = scheduler.schedule()
    assert batch is not None
    assert (batch.is_prefill, ids(batch), batch.num_tokens) == (False, [0, 1, 2], 3)
    assert (scheduler.num_waiting, scheduler.num_running) == (0, 3)


def test_batch_size_counts_running_requests() -> None:
    scheduler, _ = make_scheduler(batch_size=2)
    requests = [make_request(index, 2) for index in range(4)]
    for request in requests:
        scheduler.add(request)
    assert ids(scheduler.schedule()) == [0, 1]
    assert ids(scheduler.schedule()) == [0, 1]
    scheduler.finish(requests[0], FinishReason.STOP)
    batch = scheduler.schedule()
    assert batch is not None
    assert (batch.is_prefill, ids(batch)) == (True, [2])
    assert ids(scheduler.schedule()) == [1, 2]


def test_token_budget_is_exact_and_nobody_overtakes() -> None:
    scheduler, _ = make_scheduler(max_prefill_tokens=10)
    for index, length in enumerate([6, 4, 7, 4, 1]):
        scheduler.add(make_request(index, length))
    assert ids(scheduler.schedule()) == [0, 1]
    assert ids(scheduler.schedule()) == [2], "request 4 would have fitted, but may not overtake 3"
    scheduler.abort_all(FinishReason.ERROR, "test")


def test_full_pool_holds_the_queue_in_order() -> None:
    scheduler, kv = make_scheduler(num_blocks=6)
    requests = [make_request(0, 8), make_request(1, 10), make_request(2, 1, 1)]
    for request in requests:
        scheduler.add(request)
    assert ids(scheduler.schedule()) == [0]
    assert kv.num_free_blocks == 2
    batch = scheduler.schedule()
    assert batch is not None
    assert (batch.is_prefill, ids(batch)) == (False, [0]), "2 would fit, but 1 is first"
    scheduler.finish(requests[0], FinishReason.LENGTH)
    assert ids(scheduler.schedule()) == [1, 2]


@pytest.mark.parametrize(
    ("prompt", "new", "context", "num_blocks", "expected"),
    [
        (10, 4, None, 101, 14),
        (10, 4, 12, 101, 12),
        (10, 400, None, 6, 20),
        (10, 400, 16, 6, 16),
        (15, 4, 16, 101, 16),
    ],
)
def test_total_length_is_capped_by_context_and_pool(
    prompt: int, new: int, context: int | None, num_blocks: int, expected: int
) -> None:
    scheduler, kv = make_scheduler(context_length=context, num_blocks=num_blocks)
    request = make_request(0, prompt, new)
    assert scheduler.add(request)
    assert request.max_total_tokens == expected
    scheduler.schedule()
    assert kv.slots(0, 0, expected).shape == (expected,)


@pytest.mark.parametrize(
    ("limit", "longest", "words"),
    [
        ("budget", 12, "13 tokens, but one prefill step takes at most 12 (scheduler_config.max_prefill"),
        ("context", 11, "12 tokens, but the context of the model is 12 tokens for prompt and at least one"),
        ("pool", 11, "12 tokens, but the KV cache holds 12 tokens for prompt and at least one new token"),
    ],
)
def test_prompts_at_and_above_each_limit(limit: str, longest: int, words: str) -> None:
    scheduler, kv = make_scheduler(
        max_prefill_tokens=12 if limit == "budget" else 1000,
        context_length=12 if limit == "context" else None,
        num_blocks=4 if limit == "pool" else 101,
    )
    fits, too_long = make_request(0, longest), make_request(1, longest + 1)
    assert scheduler.add(fits)
    assert not scheduler.add(too_long)
    assert fits.finish_reason is None
    assert too_long.finish_reason is FinishReason.PROMPT_TOO_LONG
    assert too_long.error is not None
    assert words in too_long.error
    assert ids(scheduler.schedule()) == [0], "the others keep flowing"
    scheduler.finish(fits, FinishReason.STOP)
    assert not scheduler.has_work
    assert kv.can_admit(kv.max_tokens)


def test_finish_releases_and_records() -> None:
    scheduler, kv = make_scheduler()
    request = make_request(0, 5)
    scheduler.add(request)
    scheduler.schedule()
    assert kv.num_free_blocks == 97
    scheduler.finish(request, FinishReason.ERROR, "broken")
    assert kv.num_free_blocks == 100
    assert (request.finish_reason, request.error) == (FinishReason.ERROR, "broken")
    assert not scheduler.has_work


def test_waiting_request_can_be_finished() -> None:
    scheduler, kv = make_scheduler(batch_size=1)
    requests = [make_request(index, 3) for index in range(3)]
    for request in requests:
        scheduler.add(request)
    scheduler.schedule()
    scheduler.finish(requests[1], FinishReason.ERROR, "cancelled")
    assert scheduler.num_waiting == 1
    scheduler.finish(requests[0], FinishReason.STOP)
    assert ids(scheduler.schedule()) == [2]
    assert kv.num_free_blocks == 98


def test_abort_all_ends_running_and_waiting_in_order() -> None:
    scheduler, kv = make_scheduler(batch_size=2)
    requests = [make_request(index, 3) for index in range(4)]
    for request in requests:
        scheduler.add(request)
    scheduler.schedule()
    assert scheduler.abort_all(FinishReason.ERROR, "interrupted") == tuple(requests)
    assert [request.error for request in requests] == ["interrupted"] * 4
    assert kv.num_free_blocks == 100
    assert scheduler.schedule() is None
    assert scheduler.abort_all(FinishReason.ERROR, "again") == ()


def test_misuse_is_refused() -> None:
    scheduler, _ = make_scheduler()
    request = make_request(0, 3)
    scheduler.add(request)
    with pytest.raises(EngineError, match="request 0 was added to the scheduler before"):
        scheduler.add(request)
    with pytest.raises(EngineError, match="request 0 was added to the scheduler before"):
        scheduler.add(make_request(0, 3))
    with pytest.raises(PromptError, match="the prompt of request 1 has no tokens"):
        scheduler.add(make_request(1, 0))
    with pytest.raises(EngineError, match="request 9 cannot end with 'stop': it is neither"):
        scheduler.finish(make_request(9, 3), FinishReason.STOP)
    scheduler.schedule()
    scheduler.finish(request, FinishReason.STOP)
    with pytest.raises(EngineError, match="request 0 cannot end with 'length'"):
        scheduler.finish(request, FinishReason.LENGTH)
    with pytest.raises(EngineError, match="request 0 was added to the scheduler before"):
        scheduler.add(request)
    assert request.finish_reason is FinishReason.STOP


def test_leaked_blocks_are_an_error_and_not_a_hang() -> None:
    scheduler, kv = make_scheduler(num_blocks=6)
    kv.admit(99, 8)
    scheduler.add(make_request(0, 12))
    with pytest.raises(InternalError, match="request 0 of 16 tokens does not fit into the 3 free KV blocks"):
        scheduler.schedule()


@pytest.mark.parametrize("name", ["batch_size", "max_prefill_tokens", "context_length"])
def test_impossible_limits(name: str) -> None:
    with pytest.raises(EngineError, match=f"{name} of a scheduler must be at least 1, not 0"):
        make_scheduler(**{name: 0})

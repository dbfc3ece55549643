"""Random loads: nobody is lost, overtaken or admitted beyond a limit, and all blocks come back."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from graphsink.config import SamplingParams
from graphsink.engine.kv_cache import KVCacheManager
from graphsink.engine.request import FinishReason, Request
from graphsink.engine.scheduler import Scheduler

BLOCK_SIZE = 4


@dataclass(frozen=True)
class Arrival:
    """A request that arrives before the given step."""

    step: int
    prompt_tokens: int
    max_new_tokens: int
    tokens_until_stop: int
    """The model ends it after this many tokens, if nothing else does before."""


ARRIVALS = st.lists(
    st.builds(Arrival, st.integers(0, 20), st.integers(1, 30), st.integers(1, 12), st.integers(1, 12)),
    max_size=14,
)


@dataclass
class Driver:
    """Plays the engine: feeds arrivals, gives every scheduled request a token, ends what is due."""

    scheduler: Scheduler
    kv: KVCacheManager
    arrivals: list[Arrival]
    requests: list[Request] = field(default_factory=list)
    prefilled: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)

    def add(self, arrival: Arrival) -> None:
        sampling = SamplingParams(max_new_tokens=arrival.max_new_tokens)
        request = Request(len(self.requests), None, [0] * arrival.prompt_tokens, sampling)
        self.requests.append(request)
        if not self.scheduler.add(request):
            assert request.finish_reason is FinishReason.PROMPT_TOO_LONG
            assert f"{arrival.prompt_tokens} tokens" in str(request.error)
            self.finished.append(request.request_id)

    def take_token(self, request: Request, arrival: Arrival) -> None:
        request.output_token_ids.append(0)
        self.kv.slot_for(request.request_id, request.num_tokens - 1)
        assert request.num_tokens <= request.max_total_tokens
        if len(request.output_token_ids) >= arrival.tokens_until_stop:
            self.end(request, FinishReason.STOP)
        elif request.num_tokens == request.max_total_tokens:
            self.end(request, FinishReason.LENGTH)

    def end(self, request: Request, reason: FinishReason) -> None:
        self.scheduler.finish(request, reason)
        self.running.remove(request.request_id)
        self.finished.append(request.request_id)


@settings(max_examples=300, deadline=None, print_blob=True)
@given(
    arrivals=ARRIVALS,
    batch_size=st.integers(1, 5),
    budget=st.integers(1, 40),
    context_length=st.one_of(st.none(), st.integers(1, 40)),
    num_blocks=st.integers(2, 14),
    abort_at=st.one_of(st.none(), st.integers(0, 25)),
)
def test_random_load(
    arrivals: list[Arrival],
    batch_size: int,
    budget: int,
    context_length: int | None,
    num_blocks: int,
    abort_at: int | None,
) -> None:
    kv = KVCacheManager(num_blocks, BLOCK_SIZE)
    scheduler = Scheduler(kv, batch_size=batch_size, max_prefill_tokens=budget, context_length=context_length)
    arrivals = sorted(arrivals, key=lambda arrival: arrival.step)
    driver = Driver(scheduler, kv, arrivals)
    for step in range(500):
        while len(driver.requests) < len(arrivals) and arrivals[len(driver.requests)].step <= step:
            driver.add(arrivals[len(driver.requests)])
        if step == abort_at:
            aborted = scheduler.abort_all(FinishReason.ERROR, "interrupted")
            driver.finished += [request.request_id for request in aborted]
            driver.running.clear()
            assert kv.num_free_blocks == num_blocks - 1
        if not scheduler.has_work:
            assert scheduler.schedule() is None
            if len(driver.requests) == len(arrivals):
                break
            continue
        play_step(driver, batch_size, budget)
    assert not scheduler.has_work, "every load ends within the step limit"
    assert sorted(driver.finished) == list(range(len(arrivals))), "each request ends exactly once"
    assert all(request.is_finished for request in driver.requests)
    assert driver.prefilled == sorted(driver.prefilled), "strict order of arrival"
    assert kv.num_free_blocks == num_blocks - 1


def play_step(driver: Driver, batch_size: int, budget: int) -> None:
    """One step, with the limits checked on what was scheduled."""
    batch = driver.scheduler.schedule()
    assert batch is not None
    scheduled = [request.request_id for request in batch.requests]
    if batch.is_prefill:
        assert sum(len(request.prompt_token_ids) for request in batch.requests) == batch.num_tokens <= budget
        driver.prefilled += scheduled
        driver.running += scheduled
    else:
        assert scheduled == driver.running, "a decode step takes all that run"
    assert 0 < len(driver.running) == driver.scheduler.num_running <= batch_size
    for request in batch.requests:
        driver.take_token(request, driver.arrivals[request.request_id])

"""One ``generate()`` call: the loop of schedule, forward, sample, detokenise."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from graphsink.engine.metrics import GenerationMetrics
from graphsink.engine.request import FinishReason, Request, RequestOutput, TokenEvent
from graphsink.engine.sampler import SampledToken, SampleResult
from graphsink.engine.scheduler import ScheduledBatch
from graphsink.errors import EngineError, GenerationFailedError, NonFiniteLogitsError

if TYPE_CHECKING:
    from torch import Tensor

    from graphsink.engine.engine import Engine
    from graphsink.engine.forward_batch import ForwardBatch


class Generation:
    """The requests of one call, from admission to results.

    Iterate over `events` to generate; `outputs` gives the results, also after an interruption.

    Attributes:
        metrics: filled while the events are consumed.
    """

    def __init__(self, engine: Engine, requests: Sequence[Request], started: float) -> None:
        self._engine, self._started = engine, started
        self._requests = list(requests)
        self._index_of = {request.request_id: index for index, request in enumerate(self._requests)}
        self._streams = {r.request_id: engine.text_stream(r.sampling.stop) for r in self._requests}
        self.metrics = GenerationMetrics()

    def events(self) -> Iterator[TokenEvent]:
        """Generate; one event per token, and one for each request that ends without a token."""
        scheduler = self._engine.scheduler
        try:
            for request in self._requests:
                scheduler.add(request)
                if request.is_finished:
                    yield self._event(request, None, "")
            while scheduler.has_work:
                yield from self._step()
        except BaseException as error:
            # Interrupts and faults of the caller's callback too: KV blocks go back, partial output stays.
            self.abort(_abort_reason(error))
            raise
        finally:
            self.metrics.wall_s = time.perf_counter() - self._started

    def abort(self, reason: str) -> None:
        """End all unfinished requests with ``error``; what they have generated is kept."""
        unfinished = [request for request in self._requests if not request.is_finished]
        try:
            self._engine.scheduler.abort_all(FinishReason.ERROR, reason)
        except (KeyError, EngineError):
            # An interrupt struck between two entries of the scheduler's books: begin new ones.
            self._engine.renew()
        for request in unfinished:
            # Some may not have reached the scheduler yet.
            request.finish_reason, request.error = FinishReason.ERROR, reason
            self._streams[request.request_id].finish()
            self._engine.sampler.forget(request.request_id)

    def release(self) -> None:
        """Give back what unfinished requests hold; called when the generation is left."""
        self.abort("the caller stopped reading")

    def outputs(self) -> list[RequestOutput]:
        """Results in the order of the requests."""
        return [self._output(request) for request in self._requests]

    def _step(self) -> list[TokenEvent]:
        """One scheduled batch: a prefill or a decode step."""
        started = time.perf_counter()
        batch = self._engine.scheduler.schedule()
        if batch is None:
            return []
        forward_batch = self._engine.build_batch(batch)
        forward_started = time.perf_counter()
        logits = self._forward(forward_batch)
        forward_ended = time.perf_counter()
        sampled = self._engine.sampler.sample(logits, batch.requests)
        events = self._take_tokens(batch, sampled)
        overhead_s = time.perf_counter() - forward_ended + forward_started - started
        self._record(batch, forward_batch.kv_bytes, forward_ended - forward_started, overhead_s)
        return events

    def _forward(self, batch: ForwardBatch) -> Tensor:
        try:
            return self._engine.executor.forward(batch)
        except (RuntimeError, ValueError, TypeError, IndexError, MemoryError) as error:
            # What models and ATen raise; a caller's own exception (a time-out from a signal) passes through.
            lines = str(error).strip().splitlines() or [""]
            raise GenerationFailedError(
                f"the forward of {batch.num_tokens} tokens failed: {type(error).__name__}: {lines[0]}"
            ) from error

    def _record(self, batch: ScheduledBatch, kv_bytes: int, forward_s: float, overhead_s: float) -> None:
        if batch.is_prefill:
            self.metrics.prefill_ms.append(forward_s * 1e3)
        else:
            self.metrics.decode_ms.append(forward_s * 1e3)
            self.metrics.decode_kv_bytes.append(kv_bytes)
        self.metrics.step_overhead_ms.append(overhead_s * 1e3)

    def _take_tokens(self, batch: ScheduledBatch, sampled: Sequence[SampleResult]) -> list[TokenEvent]:
        events = []
        for request, token in zip(batch.requests, sampled, strict=True):
            if isinstance(token, NonFiniteLogitsError):
                self._finish(request, FinishReason.ERROR, str(token))
                events.append(self._event(request, None, self._streams[request.request_id].finish()[0]))
            else:
                events.append(self._take_token(request, token))
        return events

    def _take_token(self, request: Request, token: SampledToken) -> TokenEvent:
        request.output_token_ids.append(token.token_id)
        if token.logprobs is not None:
            request.logprobs.append(token.logprobs)
        self.metrics.generated_tokens += 1
        stream = self._streams[request.request_id]
        text, stopped = stream.push(token.token_id)
        reason = FinishReason.STOP if stopped else self._reason_to_end(request)
        if reason is not None:
            if not stopped:
                rest, stopped = stream.finish()
                text += rest
                reason = FinishReason.STOP if stopped else reason
            self._finish(request, reason, self._why_short(request, reason))
        return self._event(request, token.token_id, text)

    def _reason_to_end(self, request: Request) -> FinishReason | None:
        sampling = request.sampling
        if not sampling.ignore_eos and request.output_token_ids[-1] in self._engine.eos_token_ids:
            return FinishReason.STOP
        if len(request.output_token_ids) >= sampling.max_new_tokens:
            return FinishReason.LENGTH
        return FinishReason.LENGTH if request.num_tokens >= request.max_total_tokens else None

    def _why_short(self, request: Request, reason: FinishReason) -> str | None:
        """Why a request has fewer tokens than it asked for, if the context or the KV pool ended it."""
        if reason is not FinishReason.LENGTH:
            return None
        if len(request.output_token_ids) >= request.sampling.max_new_tokens:
            return None
        return (
            f"the limit of {request.max_total_tokens:,} tokens for prompt and answer was reached "
            "(the model's context, or scheduler_config.kv_cache_tokens / kv_cache_gib)"
        )

    def _finish(self, request: Request, reason: FinishReason, error: str | None) -> None:
        self._engine.scheduler.finish(request, reason, error)
        self._engine.sampler.forget(request.request_id)

    def _event(self, request: Request, token_id: int | None, text: str) -> TokenEvent:
        index = self._index_of[request.request_id]
        return TokenEvent(index, token_id, text, request.finish_reason)

    def _output(self, request: Request) -> RequestOutput:
        return RequestOutput(
            request_id=request.request_id,
            prompt=request.prompt,
            prompt_tokens=len(request.prompt_token_ids),
            truncated_tokens=request.truncated_tokens,
            token_ids=list(request.output_token_ids),
            text=self._streams[request.request_id].text,
            finish_reason=request.finish_reason or FinishReason.ERROR,
            error=request.error,
            logprobs=list(request.logprobs),
        )


def _abort_reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, GeneratorExit):
        return "the caller stopped reading"
    return f"{type(error).__name__}: {error}"

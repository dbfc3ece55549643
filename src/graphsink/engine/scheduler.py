"""Which requests take part in the next step: continuous batching, prefill first, strict FIFO."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from graphsink.engine.kv_cache import KVCacheManager
from graphsink.engine.request import FinishReason, Request
from graphsink.errors import EngineError, InternalError, PromptError


@dataclass(frozen=True, slots=True)
class ScheduledBatch:
    """The requests of one step.

    Attributes:
        is_prefill: all prompt tokens of each request are computed; otherwise one token of each.
        requests: in order of arrival.
    """

    is_prefill: bool
    requests: tuple[Request, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens that the forward of this step computes."""
        if not self.is_prefill:
            return len(self.requests)
        return sum(len(request.prompt_token_ids) for request in self.requests)


class Scheduler:
    """Moves requests from waiting to running to finished.

    A step is a prefill of as many waiting requests as fit the batch, the KV pool and the token budget, or
    else a decode of all running ones. A request that does not fit yet is never overtaken. What could never
    fit is turned away by `add`, so the first in the queue always gets its turn.

    Args:
        kv: the KV cache; nobody else may admit requests to it.
        batch_size: requests that may run at the same time.
        max_prefill_tokens: most prompt tokens of one prefill step.
        context_length: longest sequence of the model in tokens, ``None`` if it has no limit.

    Raises:
        EngineError: a limit is not positive.
    """

    def __init__(
        self,
        kv: KVCacheManager,
        *,
        batch_size: int,
        max_prefill_tokens: int,
        context_length: int | None,
    ) -> None:
        limits = {
            "batch_size": batch_size,
            "max_prefill_tokens": max_prefill_tokens,
            "context_length": 1 if context_length is None else context_length,
        }
        for name, value in limits.items():
            if value < 1:
                raise EngineError(f"{name} of a scheduler must be at least 1, not {value}")
        self._kv = kv
        self._batch_size = batch_size
        self._max_prefill_tokens = max_prefill_tokens
        self._context_length = context_length
        self._waiting: deque[Request] = deque()
        self._running: dict[int, Request] = {}
        self._active_ids: set[int] = set()

    @property
    def num_waiting(self) -> int:
        """Requests that have not been prefilled."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Requests that own KV blocks."""
        return len(self._running)

    @property
    def has_work(self) -> bool:
        """Whether `schedule` would return a batch."""
        return bool(self._waiting or self._running)

    def add(self, request: Request) -> bool:
        """Queue a request and set its ``max_total_tokens``.

        A prompt that is longer than the prefill budget, or that leaves no room for one new token in the
        context or in the KV pool, finishes at once with ``PROMPT_TOO_LONG`` and the numbers in ``error``.

        Returns:
            Whether it was queued.

        Raises:
            PromptError: the prompt has no tokens.
            EngineError: the request was added before, or has finished.
        """
        if request.request_id in self._active_ids or request.is_finished:
            raise EngineError(f"request {request.request_id} was added to the scheduler before")
        prompt_tokens = len(request.prompt_token_ids)
        if prompt_tokens == 0:
            raise PromptError(f"the prompt of request {request.request_id} has no tokens")
        too_long = self._why_too_long(prompt_tokens)
        if too_long is not None:
            request.finish_reason = FinishReason.PROMPT_TOO_LONG
            request.error = too_long
            return False
        total = min(prompt_tokens + request.sampling.max_new_tokens, self._kv.max_tokens)
        if self._context_length is not None:
            total = min(total, self._context_length)
        request.max_total_tokens = total
        self._waiting.append(request)
        self._active_ids.add(request.request_id)
        return True

    def schedule(self) -> ScheduledBatch | None:
        """The next step, or ``None`` when there is nothing to do.

        Requests of a prefill batch are running from now on and own their KV blocks.

        Raises:
            InternalError: nothing runs and the first waiting request still does not fit.
        """
        prefill = self._admit_waiting()
        if prefill:
            return ScheduledBatch(True, prefill)
        if self._running:
            return ScheduledBatch(False, tuple(self._running.values()))
        if self._waiting:
            first = self._waiting[0]
            raise InternalError(
                f"nothing is running, but request {first.request_id} of {first.max_total_tokens} tokens does"
                f" not fit into the {self._kv.num_free_blocks} free KV blocks of {self._kv.block_size} tokens"
            )
        return None

    def finish(self, request: Request, reason: FinishReason, error: str | None = None) -> None:
        """End a waiting or running request and release its KV blocks.

        Raises:
            EngineError: the request is neither waiting nor running (for example: has ended before).
        """
        if self._running.get(request.request_id) is request:
            del self._running[request.request_id]
            self._kv.release(request.request_id)
        elif request in self._waiting:
            self._waiting.remove(request)
        else:
            raise EngineError(
                f"request {request.request_id} cannot end with '{reason}': it is neither waiting nor running"
            )
        self._active_ids.remove(request.request_id)
        request.finish_reason = reason
        request.error = error

    def abort_all(self, reason: FinishReason, error: str | None) -> tuple[Request, ...]:
        """End every running and waiting request; returns them in order of arrival."""
        requests = (*self._running.values(), *self._waiting)
        for request in requests:
            self.finish(request, reason, error)
        return requests

    def _admit_waiting(self) -> tuple[Request, ...]:
        """Move the head of the queue to running while batch, KV pool and token budget allow."""
        admitted: list[Request] = []
        budget = self._max_prefill_tokens
        while self._waiting and len(self._running) < self._batch_size:
            request = self._waiting[0]
            budget -= len(request.prompt_token_ids)
            if budget < 0 or not self._kv.can_admit(request.max_total_tokens):
                break
            self._kv.admit(request.request_id, request.max_total_tokens)
            self._running[request.request_id] = self._waiting.popleft()
            admitted.append(request)
        return tuple(admitted)

    def _why_too_long(self, prompt_tokens: int) -> str | None:
        """The first limit that a prompt of this length breaks, in words."""
        room = "prompt and at least one new token"
        limits: list[tuple[int, int | None, str]] = [
            (
                prompt_tokens,
                self._max_prefill_tokens,
                "one prefill step takes at most {limit:,} (scheduler_config.max_prefill_tokens)",
            ),
            (
                prompt_tokens + 1,
                self._context_length,
                f"the context of the model is {{limit:,}} tokens for {room}"
                " (cut the prompt with data_config.input_truncated_len)",
            ),
            (
                prompt_tokens + 1,
                self._kv.max_tokens,
                f"the KV cache holds {{limit:,}} tokens for {room}"
                " (scheduler_config.kv_cache_tokens or kv_cache_gib)",
            ),
        ]
        for needed, limit, words in limits:
            if limit is not None and needed > limit:
                return f"the prompt has {prompt_tokens:,} tokens, but {words.format(limit=limit)}"
        return None

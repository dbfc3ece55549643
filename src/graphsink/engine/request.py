"""Requests: what the scheduler moves around, and what the caller gets back."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from graphsink.config import SamplingParams


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    """An end-of-sequence token or a stop text."""
    LENGTH = "length"
    """``max_new_tokens``, or the end of the context or of the KV pool, was reached."""
    PROMPT_TOO_LONG = "prompt_too_long"
    """The prompt exceeds the prefill budget, the KV pool or the context; nothing was generated."""
    ERROR = "error"
    """The request failed or was interrupted; ``RequestOutput.error`` says why."""


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities of one step.

    Attributes:
        chosen: log-probability of the token that was taken, under the model's own distribution
            (before temperature, top-k and top-p).
        top: the most likely tokens as ``(token id, log-probability)``, best first.
    """

    chosen: float
    top: tuple[tuple[int, float], ...]


@dataclass(slots=True, eq=False)
class Request:
    """One sequence while it is being generated.

    Attributes:
        request_id: unique within an engine, ascending in order of arrival.
        prompt: the text it came from; ``None`` if it was given as token ids.
        prompt_token_ids: the tokens to prefill, after truncation.
        sampling: how its tokens are chosen.
        truncated_tokens: how many prompt tokens ``input_truncated_len`` cut off.
        output_token_ids: the tokens generated so far.
        logprobs: one entry per generated token when they were asked for.
        max_total_tokens: prompt plus output may not exceed this (context and KV pool).
        finish_reason: set once the request has ended.
        error: the reason in words, with ``PROMPT_TOO_LONG`` and ``ERROR``, and with a ``LENGTH`` that is not
            ``max_new_tokens``.
    """

    request_id: int
    prompt: str | None
    prompt_token_ids: list[int]
    sampling: SamplingParams
    truncated_tokens: int = 0
    output_token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    max_total_tokens: int = 0
    finish_reason: FinishReason | None = None
    error: str | None = None

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens together."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def is_finished(self) -> bool:
        """Whether the request has ended."""
        return self.finish_reason is not None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """The result of one request, in the order in which the prompts were given."""

    request_id: int
    prompt: str | None
    prompt_tokens: int
    truncated_tokens: int
    token_ids: list[int]
    text: str | None
    """``None`` when the model has no tokenizer."""
    finish_reason: FinishReason
    error: str | None = None
    logprobs: list[TokenLogprobs] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """What ``on_token`` and the streaming iterator receive for each generated token.

    Attributes:
        index: position of the prompt in the caller's list.
        token_id: the token.
        text: the text that became certain with this token; empty while a character or a possible
            stop text is still incomplete. The texts of a request add up to ``RequestOutput.text``.
        finish_reason: set on the last event of the request.
    """

    index: int
    token_id: int | None
    text: str
    finish_reason: FinishReason | None = None

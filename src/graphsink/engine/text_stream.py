"""Text of one request while its tokens arrive."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphsink.engine.detokenizer import IncrementalDetokenizer
from graphsink.engine.stop_strings import StopStringFilter


class TextStream:
    """Turns tokens into text that is safe to show: whole characters, nothing of a stop text.

    Args:
        decode: token ids -> text, without special tokens; ``None`` if the model has no tokenizer.
        byte_tokens: tokens that stand for single bytes, see `byte_fallback_tokens`.
        stops: texts that end the request.
    """

    def __init__(
        self, decode: Callable[[list[int]], str] | None, byte_tokens: frozenset[int], stops: Sequence[str]
    ) -> None:
        self._detokenizer = (
            IncrementalDetokenizer(decode, byte_tokens=byte_tokens) if decode is not None else None
        )
        self._filter = StopStringFilter(stops)
        self._parts: list[str] = []

    @property
    def text(self) -> str | None:
        """Everything emitted so far; ``None`` without a tokenizer."""
        return "".join(self._parts) if self._detokenizer is not None else None

    def push(self, token_id: int) -> tuple[str, bool]:
        """Add a token; returns the text that became certain and whether a stop text was completed."""
        if self._detokenizer is None:
            return "", False
        return self._emit(self._detokenizer.push(token_id))

    def finish(self) -> tuple[str, bool]:
        """End of the request: the text that was held back, and whether it contained a stop text."""
        if self._detokenizer is None:
            return "", False
        text, stopped = self._emit(self._detokenizer.finish())
        if not stopped:
            rest = self._filter.finish()
            self._parts.append(rest)
            text += rest
        return text, stopped

    def _emit(self, delta: str) -> tuple[str, bool]:
        text, stopped = self._filter.push(delta)
        self._parts.append(text)
        return text, stopped

"""Token by token to text, with whole characters only."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

_REPLACEMENT = "\ufffd"
"""What a decoder writes for bytes that are not (yet) a character."""
_MAX_WINDOW = 16
"""Tokens after which the decoded window is cut."""
_KEPT_WINDOW = 4
"""Tokens kept as left context by a cut. A UTF-8 character has at most 4 bytes and a token at least 1, so a
character that is unfinished at the end of the text begins within them."""

_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


def byte_fallback_tokens(vocabulary: Mapping[str, int]) -> frozenset[int]:
    """Ids of the byte tokens (``<0x0A>``) of a sentencepiece-like vocabulary (token -> id)."""
    return frozenset(token_id for token, token_id in vocabulary.items() if _BYTE_TOKEN.fullmatch(token))


class IncrementalDetokenizer:
    """Gives the text that each new token makes certain.

    The pieces returned by `push` and `finish` add up to ``decode(all tokens)`` exactly, invalid UTF-8
    included, for byte-level decoders and for sentencepiece-like ones that strip the space before the first
    word. A character that is not complete is held back. Each push decodes a bounded number of tokens.

    The decoder must not rewrite earlier text (no ``clean_up_tokenization_spaces``). It may skip special
    tokens.

    Args:
        decode: token ids to text.
        prompt_tail: tokens before the first one, as context. The pieces then add up to
            ``decode(prompt_tail + tokens)`` without the text of ``prompt_tail``; an unfinished character at
            its end counts as output.
        byte_tokens: see `byte_fallback_tokens`. Such a decoder replaces a whole run of byte tokens if any
            part of it is invalid, so the text of a run is held until another token ends it.
    """

    def __init__(
        self,
        decode: Callable[[list[int]], str],
        prompt_tail: Sequence[int] = (),
        byte_tokens: Collection[int] = (),
    ) -> None:
        self._decode = decode
        self._byte_tokens = frozenset(byte_tokens)
        self._window = list(prompt_tail)
        self._text: str | None = None
        self._emitted = len(self._window_text().rstrip(_REPLACEMENT))

    def push(self, token_id: int) -> str:
        """Add a token; returns the text that is certain now and was not before (may be empty)."""
        if token_id in self._byte_tokens:
            self._window.append(token_id)
            self._text = None
            return ""
        before = self._window_text()
        self._window.append(token_id)
        text = self._decode(self._window)
        if text == before and not self._decode([token_id, token_id]):
            # A token without text (a skipped special token) would displace context from the window. Asked
            # for twice, because a decoder may strip a lone space.
            self._window.pop()
            return ""
        self._text = text
        stable = len(text.rstrip(_REPLACEMENT))
        delta = text[self._emitted : stable]
        self._emitted = max(self._emitted, stable)
        if len(self._window) > _MAX_WINDOW:
            delta += self._cut_window(text)
        return delta

    def finish(self) -> str:
        """The text that was held back. Call it once, after the last token."""
        text = self._window_text()
        rest = text[self._emitted :]
        self._emitted = len(text)
        return rest

    def _window_text(self) -> str:
        """The text of the window, decoded once per state."""
        if self._text is None:
            self._text = self._decode(self._window) if self._window else ""
        return self._text

    def _cut_window(self, text: str) -> str:
        """Keep only the last tokens as context; returns text that became certain by this."""
        tail = self._window[-_KEPT_WINDOW:]
        tail_text = self._decode(tail)
        # The tail may begin inside a character. From its first whole character on it reads the same bytes
        # as the window does, so both texts end alike, and they will with any further token.
        anchor = tail_text.lstrip(_REPLACEMENT)
        held = len(text) - self._emitted
        if len(anchor) > held and text.endswith(anchor):
            self._replace_window(tail, tail_text, len(tail_text) - held)
            return ""
        if tail_text and not anchor:
            return self._cut_invalid(text, tail, tail_text)
        return ""

    def _cut_invalid(self, text: str, tail: list[int], tail_text: str) -> str:
        """Cut a window whose tail has no whole character (a model that repeats invalid bytes).

        A character that the cut splits is complete within the tail and one character in the text of the
        head as in the whole text, so what comes after it is what the whole text has more than the head.
        """
        certain = len(self._decode(self._window[:-_KEPT_WINDOW]))
        emitted_of_tail = len(tail_text) - (len(text) - certain)
        if certain < self._emitted or emitted_of_tail < 0:
            return ""
        delta = text[self._emitted : certain]
        self._replace_window(tail, tail_text, emitted_of_tail)
        return delta

    def _replace_window(self, window: list[int], text: str, emitted: int) -> None:
        self._window = window
        self._text = text
        self._emitted = emitted

"""Shows generated text: as it is made, or per request in the order of the prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from graphsink.cli.broken_pipe import silence
from graphsink.recipe.prompt_values import PromptItem

if TYPE_CHECKING:
    from graphsink.engine.request import RequestOutput, TokenEvent

SHOWN_PROMPT_CHARACTERS = 200


class TokenPrinter:
    """Prints token events as they come; when several requests decode together, one text after another.

    Then a text is printed when it is complete and those of all earlier prompts have been printed, so that
    a script can match texts to prompts by their order.

    Args:
        out: where to print.
        prompts: in the order of the events' indices.
        has_text: whether events carry text; token ids are printed otherwise.
        one_by_one: whether at most one request generates at a time.
        headings: print the prompt before each text.
        enabled: ``False`` prints nothing.

    Attributes:
        closed: the reader of ``out`` has gone.
    """

    def __init__(
        self,
        out: TextIO,
        prompts: Sequence[PromptItem],
        *,
        has_text: bool,
        one_by_one: bool,
        headings: bool,
        enabled: bool,
    ) -> None:
        self._out, self._prompts = out, prompts
        self._has_text, self._one_by_one = has_text, one_by_one
        self._headings, self._enabled = headings, enabled
        self._pieces: dict[int, list[str]] = {}
        self._received: dict[int, int] = {}
        self._complete: set[int] = set()
        self._next = 0
        self._open: int | None = None
        self.closed = False

    def __call__(self, event: TokenEvent) -> None:
        """Take one event."""
        if not self._enabled:
            return
        piece = event.text if self._has_text else ("" if event.token_id is None else f" {event.token_id}")
        self._received[event.index] = self._received.get(event.index, 0) + len(event.text)
        if self._one_by_one:
            self._start(event.index)
            self._write(piece)
        else:
            self._pieces.setdefault(event.index, []).append(piece)
        if event.finish_reason is not None:
            self._complete.add(event.index)
            self._show_complete()

    def finish(self, outputs: Sequence[RequestOutput]) -> None:
        """Print what has not been shown: texts of an interrupted run."""
        if not self._enabled:
            return
        for index, output in enumerate(outputs):
            if index < self._next or index in self._complete:
                self._show_complete()
                continue
            # Text that was held back (half a character, the start of a stop text) is certain now.
            held_back = (output.text or "")[self._received.get(index, 0) :]
            if self._open == index:
                self._write(held_back)
            else:
                self._pieces.setdefault(index, []).append(held_back)
            self._complete.add(index)
            self._show_complete()

    def _show_complete(self) -> None:
        """Print what is complete and in turn."""
        while self._next in self._complete:
            self._start(self._next)
            self._write("".join(self._pieces.pop(self._next, [])))
            self._write("\n")
            self._next += 1
            self._open = None

    def _start(self, index: int) -> None:
        if self._open == index:
            return
        self._open = index
        if self._headings:
            number = f"[{index + 1}] " if len(self._prompts) > 1 else ""
            self._write(f"\n>>> {number}{_preview(self._prompts[index])}\n")

    def _write(self, text: str) -> None:
        if self.closed:
            return
        try:
            self._out.write(text)
            self._out.flush()
        except BrokenPipeError:
            # The reader has gone (`| head`): the run and its report go on without it.
            self.closed = True
            silence(self._out)


def _preview(prompt: PromptItem) -> str:
    text = prompt.text
    if text is None:
        text = f"{len(prompt.token_ids or ())} token ids"
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_PROMPT_CHARACTERS else text[:SHOWN_PROMPT_CHARACTERS] + "…"

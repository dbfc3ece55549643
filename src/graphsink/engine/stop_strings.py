"""Stop texts in a stream: what comes before is passed on, the stop text itself never is."""

from __future__ import annotations

from collections.abc import Sequence

from graphsink.errors import RecipeValueError


class StopStringFilter:
    """Ends a stream of text at the first stop text.

    The stream ends as soon as any stop text is complete; if several end at the same character, it is cut
    before the longest. The result does not depend on how the text is divided into pushes.

    Args:
        stops: stop texts; none lets everything pass.

    Raises:
        RecipeValueError: a stop text is empty.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if "" in stops:
            raise RecipeValueError("a stop text is empty", key="data_config.stop", hint="remove it")
        self._matchers = [_Matcher(stop) for stop in dict.fromkeys(stops)]
        self._held = ""
        self._stopped = False

    def push(self, text: str) -> tuple[str, bool]:
        """Add text.

        Returns:
            The text that can be passed on (a possible beginning of a stop text is held back), and whether
            the stream has ended. After the end nothing is passed on.
        """
        if self._stopped:
            return "", True
        if not self._matchers:
            return text, False
        pending = self._held + text
        for index, character in enumerate(text, start=len(self._held) + 1):
            longest = max(matcher.advance(character) for matcher in self._matchers)
            if longest:
                self._held = ""
                self._stopped = True
                return pending[: index - longest], True
        passed = len(pending) - max(matcher.matched for matcher in self._matchers)
        self._held = pending[passed:]
        return pending[:passed], False

    def finish(self) -> str:
        """The text that was held back, once no more comes."""
        rest = self._held
        self._held = ""
        return rest


class _Matcher:
    """Finds one stop text, a character at a time (Knuth-Morris-Pratt).

    Attributes:
        matched: length of the longest beginning of the stop text that the text so far ends with.
    """

    __slots__ = ("_fallback", "_stop", "matched")

    def __init__(self, stop: str) -> None:
        self._stop = stop
        self._fallback = _border_lengths(stop)
        self.matched = 0

    def advance(self, character: str) -> int:
        """Add a character; returns the length of the stop text if it is complete, else 0."""
        matched = self.matched
        while matched and self._stop[matched] != character:
            matched = self._fallback[matched - 1]
        if self._stop[matched] == character:
            matched += 1
        if matched == len(self._stop):
            self.matched = 0
            return matched
        self.matched = matched
        return 0


def _border_lengths(pattern: str) -> list[int]:
    """For each prefix of ``pattern``: length of its longest proper prefix that is also its suffix."""
    lengths = [0] * len(pattern)
    border = 0
    for index in range(1, len(pattern)):
        while border and pattern[index] != pattern[border]:
            border = lengths[border - 1]
        if pattern[index] == pattern[border]:
            border += 1
        lengths[index] = border
    return lengths

"""Stop texts: what is passed on, what is held back, and where the stream is cut."""

from __future__ import annotations

import pytest

from graphsink.engine.stop_strings import StopStringFilter
from graphsink.errors import RecipeValueError


def run(stops: list[str], pieces: list[str]) -> tuple[list[str], bool, str]:
    """Pieces passed on, whether it stopped, and what `finish` returned."""
    stop_filter = StopStringFilter(stops)
    passed, stopped = [], False
    for piece in pieces:
        text, stopped = stop_filter.push(piece)
        passed.append(text)
    return passed, stopped, stop_filter.finish()


@pytest.mark.parametrize(
    ("stops", "pieces", "passed", "stopped", "rest"),
    [
        ([], ["ab", "c"], ["ab", "c"], False, ""),
        (["END"], ["one EN", "D two"], ["one ", ""], True, ""),
        (["END"], ["one EN", "ough"], ["one ", "ENough"], False, ""),
        (["END"], ["one EN"], ["one "], False, "EN"),
        (["Observation:"], ["so Obs", "erva", "tion", ": 42"], ["so ", "", "", ""], True, ""),
        (["aab"], ["aaaa", "ab!"], ["aa", "a"], True, ""),
        (["aabaaaX"], ["aabaaab", "aaaX"], ["aaba", ""], True, ""),
        (["abab", "c"], ["abac"], ["aba"], True, ""),
        (["cd", "abcdef"], ["abcd", "ef"], ["ab", ""], True, ""),
        (["bc", "abc"], ["xab", "c"], ["x", ""], True, ""),
        (["\n\n", "\n"], ["a", "\n", "\n"], ["a", "", ""], True, ""),
        (["x"], ["x", "more"], ["", ""], True, ""),
        (["é!"], ["caf", "é", "?"], ["caf", "", "é?"], False, ""),
    ],
)
def test_pieces(stops: list[str], pieces: list[str], passed: list[str], stopped: bool, rest: str) -> None:
    assert run(stops, pieces) == (passed, stopped, rest)


def test_finish_returns_held_text_once() -> None:
    stop_filter = StopStringFilter(["stop"])
    assert stop_filter.push("a sto") == ("a ", False)
    assert (stop_filter.finish(), stop_filter.finish()) == ("sto", "")


def test_empty_stop_text_is_refused() -> None:
    with pytest.raises(RecipeValueError, match="a stop text is empty") as caught:
        StopStringFilter(["a", ""])
    assert caught.value.key == "data_config.stop"


def test_all_texts_and_divisions_over_two_letters() -> None:
    """Exhaustive: every text of 7 letters, every set of two stop texts, one letter at a time and at once."""
    words = [f"{value:b}"[1:] for value in range(2, 16)]
    texts = [f"{value:07b}" for value in range(128)]
    for first in words:
        for second in words:
            for text in texts:
                ends = {
                    end: max(len(stop) for stop in (first, second) if text[:end].endswith(stop))
                    for end in range(1, 8)
                    if text[:end].endswith((first, second))
                }
                end = min(ends, default=None)
                expected = text if end is None else text[: end - ends[end]]
                for pieces in ([text], list(text)):
                    passed, stopped, rest = run([first, second], pieces)
                    found = "".join(passed) + rest
                    assert (found, stopped) == (expected, end is not None), (first, second, text)

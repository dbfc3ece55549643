"""The table of environment variables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphsink.config import knobs
from graphsink.config.knobs import CACHE_DIRECTORY, CXX, DEBUG, ISA, KNOBS, Knob, knobs_documentation
from graphsink.errors import RecipeValueError

REPOSITORY = Path(__file__).parents[2]


def test_documentation_is_up_to_date() -> None:
    committed = (REPOSITORY / "docs" / "knobs.md").read_text(encoding="utf-8")
    assert committed == knobs_documentation(), "run: python -m graphsink.config.knobs > docs/knobs.md"
    for knob in KNOBS:
        assert committed.count(f"| `{knob.name}` |") == 1


def test_every_knob_of_the_module_is_in_the_table() -> None:
    assert {id(value) for value in vars(knobs).values() if isinstance(value, Knob)} == {id(k) for k in KNOBS}


def test_the_environment_is_read_nowhere_else() -> None:
    """Every other module goes through a knob; a child's environment may still be passed on whole."""
    readers = re.compile(r"os\.environ\[|os\.environ\.get|os\.getenv|getenv\(")
    found = [
        path.name
        for path in (REPOSITORY / "src" / "graphsink").rglob("*.py")
        if path.name != "knobs.py" and readers.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_unset_and_empty_give_the_default(knob: Knob[object]) -> None:
    assert knob.read({}) == knob.default
    assert knob.read({knob.name: "  "}) == knob.default


def test_values() -> None:
    assert ISA.read({"GRAPHSINK_ISA": " avx2 "}) == "avx2"
    assert CACHE_DIRECTORY.read({"GRAPHSINK_CACHE_DIR": "/some/where"}) == Path("/some/where")
    assert CACHE_DIRECTORY.read({"GRAPHSINK_CACHE_DIR": "~/x"}) == Path.home() / "x"
    assert CXX.read({"CXX": "ccache g++"}) == "ccache g++"
    for text, value in {
        "1": True,
        "TRUE": True,
        "on": True,
        "0": False,
        "off": False,
        "False": False,
    }.items():
        assert DEBUG.read({"GRAPHSINK_DEBUG": text}) is value


@pytest.mark.parametrize(
    ("knob", "text", "message", "hint"),
    [
        (
            DEBUG,
            "yes",
            "environment variable GRAPHSINK_DEBUG is 'yes', which is not a switch",
            "use one of: 1, true",
        ),
        (
            CACHE_DIRECTORY,
            "relative/path",
            "is 'relative/path', which is not an absolute path",
            "absolute path",
        ),
        (CXX, "g++ 'open", "which is not a command", "No closing quotation"),
    ],
)
def test_bad_values_name_the_variable(knob: Knob[object], text: str, message: str, hint: str) -> None:
    with pytest.raises(RecipeValueError) as caught:
        knob.read({knob.name: text})
    assert caught.value.key == knob.name
    assert message in caught.value.what
    assert caught.value.hint is not None
    assert hint in caught.value.hint


def test_the_process_environment_is_read_at_call_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHSINK_DEBUG", "1")
    assert DEBUG.read() is True
    monkeypatch.setenv("GRAPHSINK_DEBUG", "0")
    assert DEBUG.read() is False

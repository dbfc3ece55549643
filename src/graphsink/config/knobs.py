"""Every environment variable that graphsink reads, in one table.

A knob is read when its value is needed, never at import, so a test or a caller can change it at any
time. An empty variable counts as not set. ``python -m graphsink.config.knobs`` prints the table of
``docs/knobs.md``.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from graphsink.errors import RecipeValueError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Knob(Generic[T]):
    """One environment variable.

    Attributes:
        name: the variable.
        kind: type of its value, in words.
        parse: turns the text into the value; raises ``ValueError`` with what would be right.
        default: value when the variable is not set.
        default_text: the default in words, for the documentation.
        description: what it does.
    """

    name: str
    kind: str
    parse: Callable[[str], T]
    default: T
    default_text: str
    description: str

    def read(self, environment: Mapping[str, str] | None = None) -> T:
        """The current value, from ``environment`` (``os.environ`` if ``None``).

        Raises:
            RecipeValueError: the text is not a value of this kind; ``key`` is the variable's name.
        """
        text = (os.environ if environment is None else environment).get(self.name, "").strip()
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise RecipeValueError(
                f"environment variable {self.name} is '{text}', which is not {self.kind}",
                key=self.name,
                hint=f"{error}, or unset it",
            ) from None


def _parse_path(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise ValueError("give an absolute path")
    return path


def _parse_command(text: str) -> str:
    shlex.split(text)  # raises ValueError for an open quote
    return text


_SWITCH_WORDS: Final = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}


def _parse_switch(text: str) -> bool:
    if text.lower() not in _SWITCH_WORDS:
        raise ValueError(f"use one of: {', '.join(_SWITCH_WORDS)}")
    return _SWITCH_WORDS[text.lower()]


ISA: Final[Knob[str | None]] = Knob(
    "GRAPHSINK_ISA",
    "an instruction-set level",
    str,
    None,
    "the highest level detected",
    "Use a lower instruction-set level: `scalar`, `avx2`, `avx512`, `avx512_bf16`, `amx` or `neon`. "
    "A level that the processor lacks is refused.",
)
CACHE_DIRECTORY: Final[Knob[Path | None]] = Knob(
    "GRAPHSINK_CACHE_DIR",
    "an absolute path",
    _parse_path,
    None,
    "`$XDG_CACHE_HOME/graphsink`, else `~/.cache/graphsink`",
    "Where converted models and compiled plans are kept. Must be yours and not writable by others.",
)
XDG_CACHE_HOME: Final[Knob[Path | None]] = Knob(
    "XDG_CACHE_HOME",
    "an absolute path",
    _parse_path,
    None,
    "`~/.cache`",
    "The user's cache directory, as on other desktop programs. Used when `GRAPHSINK_CACHE_DIR` is not set.",
)
CXX: Final[Knob[str | None]] = Knob(
    "CXX",
    "a command",
    _parse_command,
    None,
    "the first of `g++`, `clang++`, `c++` on `PATH`",
    "The C++ compiler of `compile` mode; may have words before and after it (`ccache g++`).",
)
DEBUG: Final[Knob[bool]] = Knob(
    "GRAPHSINK_DEBUG",
    "a switch",
    _parse_switch,
    False,
    "`0`",
    "`1`: full tracebacks for errors on the command line.",
)

KNOBS: Final[tuple[Knob[Any], ...]] = (ISA, CACHE_DIRECTORY, XDG_CACHE_HOME, CXX, DEBUG)
"""All knobs, in the order of the documentation."""

_DOCUMENT_HEAD: Final = """\
# Environment variables

All the variables that graphsink itself reads. They are read when their value is needed, and an empty
variable counts as not set. This file is generated: `python -m graphsink.config.knobs > docs/knobs.md`.

| variable | value | default | meaning |
|---|---|---|---|
"""


def knobs_documentation() -> str:
    """The text of ``docs/knobs.md``."""
    rows = (f"| `{k.name}` | {k.kind} | {k.default_text} | {k.description} |\n" for k in KNOBS)
    return _DOCUMENT_HEAD + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(knobs_documentation())

"""Where a value of a recipe came from: a line of the file, or an override."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from graphsink.recipe.yaml_reader import KeyPath, Position


@dataclass(frozen=True, slots=True)
class Origin:
    """The place of one value; both parts are ``None`` for a default.

    Attributes:
        line: 1-based line in the recipe file.
        override: the override as the user wrote it.
    """

    line: int | None = None
    override: str | None = None


@dataclass(frozen=True, slots=True)
class Provenance:
    """Places of all values of a recipe.

    Attributes:
        file: the recipe file as messages name it; ``None`` for a recipe made in Python.
        positions: key path → position in the file.
        overrides: key path → the override as the user wrote it.
    """

    file: str | None = None
    positions: Mapping[KeyPath, Position] = field(default_factory=dict)
    overrides: Mapping[KeyPath, str] = field(default_factory=dict)

    def locate(self, path: KeyPath) -> Origin:
        """The origin of a value, or of the nearest enclosing thing that was written."""
        for place in _prefixes(path):
            if place in self.overrides:
                return Origin(override=self.overrides[place])
        for place in _prefixes(path):
            if place in self.positions:
                return Origin(line=self.positions[place].line)
            inner = [text for other, text in self.overrides.items() if other[: len(place)] == place]
            if inner:
                return Origin(override=inner[0])
        return Origin()

    def is_written(self, path: KeyPath) -> bool:
        """Whether the user wrote this key, in the file or as an override."""
        return path in self.positions or path in self.overrides

    def describe(self, path: KeyPath) -> str:
        """``file:line``, ``file``, or ``<recipe>`` for messages about this value."""
        origin = self.locate(path)
        name = self.file or "<recipe>"
        return name if origin.line is None else f"{name}:{origin.line}"


def _prefixes(path: KeyPath) -> Iterator[KeyPath]:
    return (path[:length] for length in range(len(path), 0, -1))

"""YAML text → plain values and the place of each of them.

PyYAML scans, parses and composes; no object constructors of it run. What a recipe has no use for
(tags, several documents, self-containing aliases, thousands of levels) is refused with its line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from yaml.composer import Composer
from yaml.events import Event
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from graphsink.errors import RecipeSyntaxError
from graphsink.recipe.text_file import MIB, read_text_file
from graphsink.recipe.yaml_scalars import IMPLICIT_RESOLVERS, MERGE_TAG, SCALAR_PARSERS, TAG_PREFIX

MAX_FILE_BYTES = MIB
MAX_NODES = 100_000
MAX_DEPTH = 50

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """Where something starts in a file; both 1-based."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A parsed document.

    Attributes:
        value: dicts, lists, str, int, float, bool and None.
        positions: key path → position of the key (of the element, within a list).
        name: the file, as messages should call it.
    """

    value: object
    positions: Mapping[KeyPath, Position]
    name: str


class _LimitError(Exception):
    """The document is too deep or too large; raised while composing."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(what)
        self.what = what
        self.line = line


class _RecipeComposer(Reader, Scanner, Parser, Composer, BaseResolver):
    """Builds YAML nodes, with limits on their number and depth."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self._depth = 0
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        """Count nodes and levels around PyYAML's recursive composition."""
        self._depth += 1
        self._nodes += 1
        if self._depth > MAX_DEPTH:
            raise _LimitError(f"the YAML is nested deeper than {MAX_DEPTH} levels", self._current_line())
        if self._nodes > MAX_NODES:
            raise _LimitError(f"the YAML has more than {MAX_NODES:,} values", self._current_line())
        node = super().compose_node(parent, index)  # type: ignore[arg-type]
        self._depth -= 1
        return node

    def _current_line(self) -> int:
        event: Event = self.peek_event()  # type: ignore[no-untyped-call]
        return 1 if event.start_mark is None else int(event.start_mark.line) + 1


for _tag, _pattern, _first in IMPLICIT_RESOLVERS:
    _RecipeComposer.add_implicit_resolver(_tag, _pattern, list(_first))
_RecipeComposer.add_implicit_resolver(TAG_PREFIX + "null", re.compile(r"^$"), [""])


def read_yaml_file(path: Path) -> YamlDocument:
    """Read one YAML mapping from a file of at most 1 MiB.

    Raises:
        RecipeSyntaxError: the file is missing, a directory, unreadable, too large, not UTF-8, empty,
            not valid YAML, not a mapping, or uses something a recipe may not use.
    """
    text = read_text_file(path, kind="recipe", limit_bytes=MAX_FILE_BYTES, error=RecipeSyntaxError)
    document = parse_yaml(text, name=str(path))
    if document.value is None:
        raise RecipeSyntaxError(
            "the recipe is empty", where=str(path), hint="start with 'model_config:' and a 'model_path'"
        )
    if not isinstance(document.value, dict):
        kind = "a list" if isinstance(document.value, list) else "a single value"
        raise RecipeSyntaxError(
            f"the recipe is {kind}, not a mapping of sections",
            where=f"{path}:1",
            hint="start with 'model_config:', 'data_config:', 'parallel_config:' or 'scheduler_config:'",
        )
    return document


def parse_yaml(text: str, *, name: str) -> YamlDocument:
    """Parse YAML text; an empty text gives ``None``.

    Args:
        text: the document.
        name: what messages call it.

    Raises:
        RecipeSyntaxError: with ``name:line`` and what to change.
    """
    builder = _Builder(name)
    try:
        node = _RecipeComposer(text).get_single_node()
    except _LimitError as problem:
        raise builder.error(
            problem.what,
            problem.line,
            "write it flatter or shorter; long prompt lists belong in a .jsonl file",
        ) from None
    except ReaderError as problem:
        line = text.count("\n", 0, problem.position) + 1
        raise builder.error(
            f"character U+{problem.character:04X} is not allowed in YAML", line, "remove it"
        ) from None
    except yaml.MarkedYAMLError as problem:
        raise _syntax_error(problem, text, name) from None
    value = None if node is None else builder.build(node, ())
    return YamlDocument(value, builder.positions, name)


def _syntax_error(problem: yaml.MarkedYAMLError, text: str, name: str) -> RecipeSyntaxError:
    """Say a YAML error in the user's terms."""
    mark = problem.problem_mark or problem.context_mark
    line = 1 if mark is None else mark.line + 1
    lines = text.splitlines()
    first = line if problem.context_mark is None else problem.context_mark.line + 1
    for number in (*range(line, first - 1, -1), line - 1):
        if 1 <= number <= len(lines) and re.match(r" *\t", lines[number - 1]):
            return RecipeSyntaxError(
                "a tab is used for indentation",
                where=f"{name}:{number}",
                hint="indent with spaces; YAML does not allow tabs there",
            )
    if problem.context == "expected a single document in the stream":
        return RecipeSyntaxError(
            "the file holds more than one YAML document",
            where=f"{name}:{line}",
            hint="keep one document; remove the second '---'",
        )
    what = ": ".join(part for part in (problem.context, problem.problem) if part)
    return RecipeSyntaxError(
        f"invalid YAML: {what or problem}",
        where=f"{name}:{line}",
        hint="check quotes, colons and the indentation of this line and the one before",
    )


@dataclass(slots=True)
class _Builder:
    """Turns nodes into values and notes their positions."""

    name: str
    positions: dict[KeyPath, Position] = field(default_factory=dict)
    _built: int = 0
    _open: set[int] = field(default_factory=set)

    def error(self, what: str, line: int, hint: str) -> RecipeSyntaxError:
        return RecipeSyntaxError(what, where=f"{self.name}:{line}", hint=hint)

    def build(self, node: yaml.Node, path: KeyPath) -> object:
        """The value of a node; ``path`` is where it stands in the document."""
        # Aliases share nodes, so a small document can describe an endless or exponential value:
        # what is counted here is the expanded size.
        self._built += 1
        if id(node) in self._open or len(self._open) > MAX_DEPTH or self._built > MAX_NODES:
            grown = f"aliases expand the YAML to more than {MAX_NODES:,} values or {MAX_DEPTH} levels"
            raise self.error(
                "an alias contains itself" if id(node) in self._open else grown,
                _line(node),
                "write the values out instead of using aliases (*name)",
            )
        self.positions.setdefault(path, Position(_line(node), node.start_mark.column + 1))
        self._open.add(id(node))
        value = self._build_open(node, path)
        self._open.discard(id(node))
        return value

    def _build_open(self, node: yaml.Node, path: KeyPath) -> object:
        if isinstance(node, yaml.MappingNode) and node.tag == TAG_PREFIX + "map":
            return self._build_mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == TAG_PREFIX + "seq":
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and node.tag in SCALAR_PARSERS:
            return self._scalar(node)
        if node.tag == MERGE_TAG:
            return "<<"
        shown = node.tag.replace(TAG_PREFIX, "!!")
        raise self.error(
            f"the tag {shown[:60]!r} is not allowed in a recipe",
            _line(node),
            "remove the tag and write a plain value",
        )

    def _scalar(self, node: yaml.ScalarNode) -> object:
        try:
            return SCALAR_PARSERS[node.tag](node.value)
        except ValueError as problem:
            raise self.error(str(problem), _line(node), "write another value") from None

    def _build_mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str | int, object]:
        result: dict[str | int, object] = {}
        lines: dict[str | int, int] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == MERGE_TAG:
                merged.append(value_node)
                continue
            key = self._key(key_node)
            if key in lines:
                raise self.error(
                    f"the key {key!r} appears twice, in lines {lines[key]} and {_line(key_node)}",
                    _line(key_node),
                    "keep one of the two",
                )
            lines[key] = _line(key_node)
            self.positions[(*path, key)] = Position(lines[key], key_node.start_mark.column + 1)
            result[key] = self.build(value_node, (*path, key))
        for value_node in merged:
            self._merge(value_node, path, result)
        return result

    def _key(self, node: yaml.Node) -> str | int:
        value = (
            self._scalar(node) if isinstance(node, yaml.ScalarNode) and node.tag in SCALAR_PARSERS else None
        )
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise self.error("a key must be text or an integer", _line(node), "put the key in quotes")
        return value

    def _merge(self, node: yaml.Node, path: KeyPath, result: dict[str | int, object]) -> None:
        """Apply ``<<: *name``: keys of the mapping itself, and of earlier merges, win."""
        for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(source, yaml.MappingNode):
                raise self.error(
                    "'<<' can only merge a mapping", _line(node), "give it the alias of a mapping"
                )
            scratch = _Builder(self.name, _built=self._built, _open=self._open)
            values = scratch.build(source, path)
            self._built = scratch._built
            if not isinstance(values, dict):
                raise self.error("'<<' can only merge a mapping", _line(node), "remove its tag")
            new = {key: value for key, value in values.items() if key not in result}
            result.update(new)
            for place, position in scratch.positions.items():
                if len(place) > len(path) and place[len(path)] in new:
                    self.positions[place] = position


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1

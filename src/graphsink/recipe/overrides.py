"""Overrides: ``section.key=value`` from the command line, a mapping from Python."""

from __future__ import annotations

import numbers
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from graphsink.errors import RecipeSyntaxError, RecipeValueError
from graphsink.recipe.field_catalog import FieldRow, field_catalog, preview
from graphsink.recipe.suggestions import suggest_top_level
from graphsink.recipe.yaml_reader import MAX_DEPTH, KeyPath, parse_yaml
from graphsink.recipe.yaml_scalars import LARGEST_INTEGER, parse_null, parse_text

Overrides = Mapping[str, object] | Sequence[str]


@dataclass(frozen=True, slots=True)
class Override:
    """One override.

    Attributes:
        path: key path, at least section and key.
        value: plain value (str, int, float, bool, None, list, dict).
        text: how the user wrote it, shortened, for messages.
    """

    path: KeyPath
    value: object
    text: str


def parse_overrides(overrides: Overrides) -> list[Override]:
    """Parse overrides in either form.

    A text that the field itself accepts stays text, so ``model_path=123`` needs no quotes; every
    other value is read as YAML.

    Raises:
        RecipeValueError: an override without ``=``, without a section, or with a value that is no
            YAML or no plain Python value. The message names the override.
    """
    if isinstance(overrides, str):
        overrides = [overrides]
    if isinstance(overrides, Mapping):
        return [parsed for key, value in overrides.items() for parsed in _from_python(key, value)]
    return [_from_text(text) for text in overrides]


def apply_overrides(raw: dict[str | int, object], overrides: Iterable[Override]) -> dict[KeyPath, str]:
    """Write overrides into the raw recipe, creating mappings on the way.

    Returns:
        Key path → text of the override, for those now in effect.

    Raises:
        RecipeValueError: an override that reaches into a value that is not a mapping.
    """
    origins: dict[KeyPath, str] = {}
    for override in overrides:
        target = raw
        for depth, part in enumerate(override.path[:-1], start=1):
            inner = target.get(part)
            if inner is None:
                inner = target[part] = {}
            if not isinstance(inner, dict):
                place = ".".join(str(name) for name in override.path[:depth])
                raise RecipeValueError(
                    f"override '{override.text}': '{place}' is {preview(inner)}, not a mapping",
                    key=".".join(str(name) for name in override.path),
                    hint=f"give '{place}' as a whole",
                )
            target = inner
        target[override.path[-1]] = override.value
        origins[override.path] = override.text
    return origins


def plain_value(value: object, depth: int = 0) -> object:
    """Copy a Python value into plain YAML terms. Raises ``ValueError`` in words."""
    if depth > MAX_DEPTH:
        raise ValueError(f"the value is nested deeper than {MAX_DEPTH} levels")
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, (str, os.PathLike)):
        return parse_text(os.fsdecode(value))
    if isinstance(value, numbers.Integral):
        return _limited(int(value))
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, Mapping):
        return {_plain_key(key): plain_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(item, depth + 1) for item in value]
    raise ValueError(f"a value of the Python type {type(value).__name__} cannot stand in a recipe")


def _plain_key(key: object) -> str | int:
    if isinstance(key, str):
        return parse_text(key)
    if isinstance(key, bool) or not isinstance(key, int):
        raise ValueError(f"a key must be text or an integer, not a {type(key).__name__}")
    return _limited(key)


def _limited(value: int) -> int:
    if abs(value) > LARGEST_INTEGER:
        raise ValueError(f"an integer of {value.bit_length()} bits is too large (the limit is 64 bits)")
    return value


def _from_python(key: object, value: object) -> list[Override]:
    if not isinstance(key, str):
        raise RecipeValueError(
            f"an override has a key of the type {type(key).__name__}; the key must be text",
            hint="use 'section.key'",
        )
    try:
        plain = plain_value(value)
    except ValueError as problem:
        raise RecipeValueError(f"override '{_shorten(key)}': {problem}", key=_shorten(key)) from problem
    if "." not in key and isinstance(plain, dict):
        return [Override((key, name), item, _shorten(f"{key}.{name}")) for name, item in plain.items()]
    text = _shorten(key if isinstance(plain, (dict, list)) else f"{key}={plain!r}")
    return [Override(_path(key, text), plain, text)]


def _from_text(text: object) -> Override:
    if not isinstance(text, str):
        raise RecipeValueError(f"override {preview(text)} is not text", hint="write 'section.key=value'")
    shown = _shorten(text)
    key, equals, value_text = text.partition("=")
    if not equals:
        raise RecipeValueError(f"override '{shown}' has no '='", hint="write 'section.key=value'")
    path = _path(key.strip(), shown)
    row = field_catalog().get(".".join(str(part) for part in path))
    try:
        value = _read_value(row, parse_text(value_text))
    except RecipeSyntaxError as problem:
        raise RecipeValueError(
            f"override '{shown}': the value is not valid YAML ({problem.what})",
            key=_shorten(key.strip()),
            hint="quote the value for the shell and for YAML: --set \"section.key='text'\"",
        ) from problem
    except ValueError as problem:
        raise RecipeValueError(f"override '{shown}': {problem}", key=_shorten(key.strip())) from problem
    return Override(path, value, shown)


def _path(key: str, shown: str) -> KeyPath:
    parts = tuple(key.split("."))
    if len(parts) >= 2 and all(parts) and len(parts) <= MAX_DEPTH:
        return parts
    raise RecipeValueError(
        f"override '{shown}' does not name a section and a key",
        key=_shorten(key) or None,
        suggestion=suggest_top_level(key),
        hint=None
        if suggest_top_level(key)
        else "write 'section.key=value', e.g. scheduler_config.batch_size=4",
    )


def _read_value(row: FieldRow | None, text: str) -> object:
    """The value of a command-line override for a field (``None``: a key that the catalog lacks)."""
    stripped = text.strip()
    if row is not None and row.accepts_text:
        quoted = stripped[:1] in ("'", '"')
        other_kind = not row.accepts_only_text and stripped[:1] in ("[", "{")
        if row.accepts_null and _is_null(stripped):
            return None
        if not quoted and not other_kind:
            return text
    if row is not None and stripped in row.choices:
        return stripped
    return parse_yaml(text, name="<override>").value


def _is_null(text: str) -> bool:
    try:
        parse_null(text)
    except ValueError:
        return False
    return text != ""


def _shorten(text: str) -> str:
    shown = text if text.isprintable() else repr(text)[1:-1]
    return shown if len(shown) <= 80 else shown[:77] + "..."

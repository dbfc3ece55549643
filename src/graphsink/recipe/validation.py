"""Raw mapping → typed `Recipe`, collecting every fault on the way."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from graphsink.config import EXECUTION_MODE_ALIASES, Recipe
from graphsink.recipe.cross_checks import CROSS_CHECKS
from graphsink.recipe.faults import Fault, dotted, raise_faults
from graphsink.recipe.field_catalog import FieldRow, field_catalog, preview, section_models, type_name
from graphsink.recipe.legacy_keys import LEGACY_KEYS, TOP_LEVEL_KEYS
from graphsink.recipe.provenance import Provenance
from graphsink.recipe.suggestions import closest, suggest_key, suggest_top_level
from graphsink.recipe.yaml_reader import KeyPath

RawRecipe = dict[str | int, object]

_RANGE_ERRORS = frozenset({"greater_than_equal", "greater_than", "less_than_equal", "less_than"})


def validate(raw: RawRecipe, provenance: Provenance) -> Recipe:
    """Build the recipe from raw values.

    Args:
        raw: the mapping as read, overrides applied. Not changed.
        provenance: where its values came from, for messages.

    Raises:
        RecipeValueError: unknown sections and keys, wrong types, values out of range, and fields
            that contradict each other; all of them in one error.
    """
    faults: list[Fault] = []
    sections = _known_sections(raw, faults)
    suspect = {_suspect(fault) for fault in faults}
    recipe, faulty = _typed(sections, faults)
    for check in CROSS_CHECKS:
        for finding in check.find(recipe):
            # A rule that is broken only because a key was misspelt would hide the real fault.
            involved = {*finding.keys, *(key.split(".")[0] for key in finding.keys)}
            if involved.isdisjoint(faulty) and involved.isdisjoint(suspect):
                path = _blamed_path(finding.keys, provenance)
                faults.append(Fault(path, finding.message, hint=finding.hint))
    _check_top_level(raw, recipe, provenance, faults)
    raise_faults(faults, provenance)
    return recipe


def _known_sections(raw: RawRecipe, faults: list[Fault]) -> dict[str, dict[str, object]]:
    """Keep known sections and keys, with aliases replaced; report the others."""
    models = section_models()
    kept: dict[str, dict[str, object]] = {}
    for name, content in raw.items():
        if name in models and content is None:
            continue  # a section whose lines are all commented out
        if name in models and isinstance(content, dict):
            kept[str(name)] = _known_keys(str(name), content, faults)
        elif name in models:
            faults.append(
                Fault(
                    (name,),
                    f"{name} must be a mapping of keys, got {preview(content)} ({type_name(content)})",
                    hint="indent its keys under it, one 'key: value' per line",
                )
            )
        elif name not in LEGACY_KEYS and name not in TOP_LEVEL_KEYS:
            suggestion = suggest_top_level(str(name))
            faults.append(
                Fault(
                    (name,),
                    f"unknown section {preview(name)}",
                    suggestion,
                    None if suggestion else f"the sections are {', '.join(models)}",
                )
            )
    return kept


def _known_keys(section: str, content: Mapping[object, object], faults: list[Fault]) -> dict[str, object]:
    fields = section_models()[section].model_fields
    kept: dict[str, object] = {}
    for key, value in content.items():
        if key in fields:
            kept[str(key)] = copy.copy(value)
        elif key not in LEGACY_KEYS:
            place = (section, key if isinstance(key, (str, int)) else str(key))
            suggestion = suggest_key(section, str(key))
            hint = None if suggestion else "remove it; `graphsink recipe fields` lists the valid keys"
            faults.append(Fault(place, f"unknown key {preview(key)} in {section}", suggestion, hint))
    mode = kept.get("exe_mode")
    if isinstance(mode, str) and mode in EXECUTION_MODE_ALIASES:
        kept["exe_mode"] = EXECUTION_MODE_ALIASES[mode]
    return kept


def _suspect(fault: Fault) -> str:
    """The key or section that a structural fault probably stands for."""
    meant = fault.suggestion or dotted(fault.path)
    return f"{fault.path[0]}.{meant}" if len(fault.path) > 1 and "." not in meant else meant


def _typed(sections: dict[str, dict[str, object]], faults: list[Fault]) -> tuple[Recipe, set[str]]:
    """Validate types and ranges. Faulty fields are reported and take their default."""
    try:
        return Recipe.model_validate(sections), set()
    except ValidationError as problem:
        errors = problem.errors(include_url=False, include_input=False)
    grouped: dict[str, list[tuple[KeyPath, str]]] = {}
    for error in errors:
        path = _existing_path(sections, error["loc"])
        kind = "invalid_key" if error["loc"][-1] == "[key]" else str(error["type"])
        grouped.setdefault(_field_key(path), []).append((path, kind))
    for key, problems in grouped.items():
        faults.append(_type_fault(field_catalog()[key], problems, sections))
    faulty = set(grouped)
    for key in faulty:
        section, name = key.split(".")[:2]
        sections[section].pop(name, None)
    return Recipe.model_validate(sections), {".".join(key.split(".")[:2]) for key in faulty}


def _existing_path(sections: object, loc: Sequence[str | int]) -> KeyPath:
    """The part of a pydantic location that exists in the input (unions add type names to it)."""
    path: list[str | int] = []
    current: Any = sections
    for part in loc:
        inside_list = isinstance(current, list) and isinstance(part, int) and part < len(current)
        if inside_list or (isinstance(current, dict) and part in current):
            current = current[part]
            path.append(part)
    return tuple(path)


def _field_key(path: KeyPath) -> str:
    """Dotted key of the catalog entry that a path belongs to."""
    names = [str(part) for part in path]
    longest = ".".join(names[:3])
    return longest if longest in field_catalog() else ".".join(names[:2])


def _type_fault(row: FieldRow, problems: list[tuple[KeyPath, str]], sections: Mapping[str, object]) -> Fault:
    path = max((place for place, _ in problems), key=len)
    value: Any = sections
    for part in path:
        value = value[part]
    kinds = {kind for _, kind in problems}
    if "invalid_key" in kinds:
        return Fault(path, f"{row.name}: the keys must be text", hint="put the key in quotes")
    got = f"got {preview(value)} ({type_name(value)})"
    name = row.name
    if row.choices and isinstance(value, str):
        words = ", ".join(row.choices)
        expected = (
            f"{row.type_text} {row.check_text}" if row.type_text.startswith("int") else f"one of {words}"
        )
        suggestion = closest(value, row.choices)
        hint = None if suggestion else f"use {expected}"
        return Fault(path, f"{name}: unknown value {preview(value)}; expected {expected}", suggestion, hint)
    if kinds <= _RANGE_ERRORS or kinds == {"finite_number"}:
        wanted = row.check_text if kinds <= _RANGE_ERRORS else "a finite number"
        return Fault(path, f"{name} must be {wanted}, {got}", hint=f"choose a value: {wanted}")
    expected = row.type_text + (f" ({row.check_text})" if row.check_text else "")
    return Fault(path, f"{name}: expected {expected}, {got}", hint=_type_hint(row, value))


def _type_hint(row: FieldRow, value: object) -> str:
    if value is None:
        return "give it a value, or remove the line to get the default"
    if row.type_text == "bool":
        return "write True or False, without quotes"
    if isinstance(value, str) and row.type_text in ("int", "float"):
        return f"write a plain {row.type_text} without quotes"
    if row.accepts_text and isinstance(value, (bool, int, float)):
        return "put the value in quotes to make it text"
    return f"write a value of type {row.type_text}"


def _blamed_path(keys: Sequence[str], provenance: Provenance) -> KeyPath:
    """The first of the keys that the user wrote; the first one if none was."""
    paths: list[KeyPath] = [tuple(key.split(".")) for key in keys]
    return next((path for path in paths if provenance.is_written(path)), paths[0])


def _check_top_level(raw: RawRecipe, recipe: Recipe, provenance: Provenance, faults: list[Fault]) -> None:
    """Keys that reference recipes repeat at top level: right type, no contradiction."""
    for name, (kind, _) in TOP_LEVEL_KEYS.items():
        value = raw.get(name)
        if name in raw and (not isinstance(value, kind) or isinstance(value, bool)):
            faults.append(
                Fault(
                    (name,),
                    f"{name}: expected {kind.__name__}, got {preview(value)} ({type_name(value)})",
                    hint="remove it; it has no effect at top level",
                )
            )
        elif name == "world_size" and name in raw and value != recipe.parallel.world_size:
            if ("parallel_config", "world_size") in provenance.overrides:
                continue  # the override is the newer word
            faults.append(
                Fault(
                    (name,),
                    f"world_size is {value} at top level, but parallel_config.world_size is "
                    f"{recipe.parallel.world_size}",
                    hint="make them equal, or remove the one at top level",
                )
            )

"""What a recipe sets without effect on this device, each listed once."""

from __future__ import annotations

from collections.abc import Iterator

from graphsink.config import Recipe
from graphsink.recipe.faults import dotted
from graphsink.recipe.field_catalog import CUSTOM_PARAMS_KEY, FieldRow, field_catalog, section_models
from graphsink.recipe.legacy_keys import LEGACY_KEYS, TOP_LEVEL_KEYS, RecipeNote
from graphsink.recipe.provenance import Provenance
from graphsink.recipe.suggestions import suggest_custom_param
from graphsink.recipe.validation import RawRecipe
from graphsink.recipe.yaml_reader import KeyPath


def collect_notes(raw: RawRecipe, recipe: Recipe, provenance: Provenance) -> tuple[RecipeNote, ...]:
    """List what is set without effect, in the order of the file.

    That is: fields that only an NPU uses, legacy keys, unknown custom parameters, and switches of the
    graph modes in an eager recipe.
    """
    notes = [
        RecipeNote(dotted(path), provenance.locate(path).line, reason)
        for path, reason in _findings(raw, recipe)
    ]
    return tuple(sorted(notes, key=lambda note: 2**62 if note.line is None else note.line))


def _findings(raw: RawRecipe, recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    for name, content in raw.items():
        if name in TOP_LEVEL_KEYS:
            yield (name,), TOP_LEVEL_KEYS[str(name)][1]
        elif name in LEGACY_KEYS:
            yield (name,), LEGACY_KEYS[str(name)]
        elif name in section_models() and isinstance(content, dict):
            for key, value in content.items():
                if key in LEGACY_KEYS:
                    yield (name, key), LEGACY_KEYS[key]
                elif (row := field_catalog().get(f"{name}.{key}")) is not None:
                    reason = _reason(row, value, recipe)
                    if reason:
                        yield (name, key), reason
    yield from _custom_findings(recipe)


def _reason(row: FieldRow, value: object, recipe: Recipe) -> str | None:
    """Why a field that is set has no effect; ``None`` if it has one."""
    if row.effect == "npu_only":
        return "no effect on this device; the reference uses it on an NPU"
    if row.effect == "graph_modes" and recipe.model.exe_mode == "eager" and str(value) != row.default:
        return "no effect with exe_mode 'eager'; the graph modes use it"
    return None


def _custom_findings(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    section, name = CUSTOM_PARAMS_KEY.split(".")
    for key, value in recipe.model.custom_params.items():
        row = field_catalog().get(f"{CUSTOM_PARAMS_KEY}.{key}")
        if row is not None:
            reason = _reason(row, value, recipe)
        else:
            nearest = suggest_custom_param(str(key))
            reason = "unknown custom parameter, no effect"
            reason += f"; did you mean '{nearest}'?" if nearest else ""
        if reason:
            yield (section, name, key), reason

"""The way from a recipe file to a validated recipe."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from graphsink.config import Recipe
from graphsink.config import paths as config_paths
from graphsink.errors import RecipeValueError
from graphsink.recipe.legacy_keys import RecipeNote
from graphsink.recipe.notes import collect_notes
from graphsink.recipe.overrides import Overrides, apply_overrides, parse_overrides, plain_value
from graphsink.recipe.provenance import Provenance
from graphsink.recipe.validation import RawRecipe, validate
from graphsink.recipe.yaml_reader import KeyPath, Position, read_yaml_file


@dataclass(frozen=True, slots=True)
class LoadedRecipe:
    """A recipe and where it came from.

    Attributes:
        recipe: the validated recipe.
        path: the file; ``None`` for a recipe made in Python.
        notes: what it sets without effect on this device, in the order of the file.
        base_directory: absolute directory against which its relative paths are resolved.
        provenance: lines and overrides of its values.
    """

    recipe: Recipe
    path: Path | None
    notes: tuple[RecipeNote, ...]
    base_directory: Path
    provenance: Provenance


def load_recipe(path: str | os.PathLike[str], overrides: Overrides = ()) -> LoadedRecipe:
    """Read and validate a recipe file.

    Args:
        path: YAML file of at most 1 MiB.
        overrides: ``["section.key=value", …]`` with values in YAML, or ``{"section.key": value}``
            with Python values. Later ones win.

    Raises:
        RecipeSyntaxError: the file is missing or is not a readable YAML mapping.
        RecipeValueError: unknown keys, wrong types or ranges, contradictions; in the file (with
            its line) or in an override (which is named). All faults are in one error.
    """
    file = Path(path)
    document = read_yaml_file(file)
    if not isinstance(document.value, dict):  # read_yaml_file has refused it; this informs the type checker
        raise RecipeValueError("the recipe is not a mapping", file=document.name)
    return _load(document.value, document.positions, document.name, file, file.absolute().parent, overrides)


def recipe_from_dict(
    values: Mapping[str, object],
    overrides: Overrides = (),
    base_directory: str | os.PathLike[str] | None = None,
) -> LoadedRecipe:
    """Validate a recipe given as nested mappings under the YAML names.

    Args:
        values: ``{"model_config": {…}, …}``.
        overrides: as in `load_recipe`.
        base_directory: where its relative paths start; the working directory by default.

    Raises:
        RecipeValueError: as in `load_recipe`; there is no line.
    """
    try:
        raw = plain_value(values)
    except ValueError as problem:
        raise RecipeValueError(f"the recipe cannot be used: {problem}") from problem
    if not isinstance(raw, dict):
        raise RecipeValueError("the recipe is not a mapping of sections", hint="pass {'model_config': {...}}")
    return _load(raw, {}, None, None, Path(base_directory or "").absolute(), overrides)


def _load(
    raw: RawRecipe,
    positions: Mapping[KeyPath, Position],
    name: str | None,
    path: Path | None,
    base_directory: Path,
    overrides: Overrides,
) -> LoadedRecipe:
    origins = apply_overrides(raw, parse_overrides(overrides))
    provenance = Provenance(name, positions, origins)
    recipe = validate(raw, provenance)
    return LoadedRecipe(recipe, path, collect_notes(raw, recipe, provenance), base_directory, provenance)


def resolve_path(loaded: LoadedRecipe, value: str) -> str:
    """Make a path of the recipe absolute: relative to the recipe's directory, ``~`` expanded.

    An empty value and a ``sample://…`` address are returned as they are.

    Raises:
        RecipeValueError: the home directory of ``~name`` is not known.
    """
    return config_paths.resolve_path(value, loaded.base_directory)

"""Paths that a recipe names."""

from __future__ import annotations

import os
from pathlib import Path

from graphsink.errors import RecipeValueError

SAMPLE_SCHEME = "sample://"


def resolve_path(value: str, base_directory: Path, *, key: str | None = None) -> str:
    """Make a path absolute: relative to ``base_directory``, ``~`` expanded.

    An empty value and a ``sample://…`` address are returned as they are.

    Args:
        value: the path as written.
        base_directory: directory of the recipe.
        key: the recipe field, for the message.

    Raises:
        RecipeValueError: the home directory of ``~name`` is not known.
    """
    if not value or value.startswith(SAMPLE_SCHEME):
        return value
    try:
        expanded = Path(value).expanduser()
    except RuntimeError as problem:
        raise RecipeValueError(
            f"the path '{value}' cannot be expanded: {problem}", key=key, hint="write it out"
        ) from problem
    return os.path.normpath(base_directory / expanded)

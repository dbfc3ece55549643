"""Small helpers for files that users name: nearest names, JSON with positions."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from graphsink.errors import ModelFileError

MAX_JSON_BYTES = 256 * 2**20
"""Largest JSON file of a model directory that is read (tokenizer files of large vocabularies are ~30 MB)."""


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like ``name``, or ``None`` if nothing is close."""
    matches = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return matches[0] if matches else None


def nearest_path_hint(path: Path) -> str:
    """What to change when ``path`` does not exist: the first folder that is missing, and the nearest name."""
    parent = path.parent
    name = path.name
    while not parent.exists() and parent != parent.parent:
        name, parent = parent.name, parent.parent
    if not parent.is_dir():
        return f"'{parent}' is not a directory"
    try:
        match = nearest(name, (entry.name for entry in parent.iterdir()))
    except OSError as error:
        return f"'{parent}' cannot be listed: {error.strerror}"
    if match is not None:
        return f"did you mean '{parent / match}'?"
    return f"there is no '{name}' in '{parent}'"


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON file whose top level is an object.

    Raises:
        ModelFileError: missing, unreadable, too large, not UTF-8, not JSON (with line), not an object.
    """
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise ModelFileError(
                f"'{path.name}' has {size:,} bytes; a model's JSON file may have {MAX_JSON_BYTES:,}",
                where=str(path),
            )
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelFileError(f"'{path.name}' is missing", where=str(path)) from error
    except OSError as error:
        raise ModelFileError(f"'{path.name}' cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise ModelFileError(
            f"'{path.name}' is not UTF-8 text (byte {error.start})",
            where=str(path),
            hint="download the file again",
        ) from error
    except json.JSONDecodeError as error:
        raise ModelFileError(
            f"'{path.name}' is not valid JSON: {error.msg}",
            where=f"{path}:{error.lineno}",
            hint="the file may be incomplete; download it again",
        ) from error
    except RecursionError as error:
        raise ModelFileError(f"'{path.name}' is nested too deeply", where=str(path)) from error
    if not isinstance(value, dict):
        raise ModelFileError(
            f"'{path.name}' holds a JSON {type(value).__name__}, not an object", where=str(path)
        )
    return value


def first_names(names: Iterable[str], limit: int = 5) -> str:
    """The first names in order, and how many more there are."""
    ordered = sorted(names)
    shown = ", ".join(f"'{name}'" for name in ordered[:limit])
    return shown if len(ordered) <= limit else f"{shown} and {len(ordered) - limit} more"

"""Nearest valid keys and values for what the user wrote."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from graphsink.recipe.field_catalog import CUSTOM_PARAMS_KEY, FieldRow, field_catalog, section_models

CUTOFF = 0.6
MAX_LENGTH = 80
"""Longer words are not compared: nothing valid is that long, and comparing is quadratic."""


def closest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like ``word``, regardless of case, if one is like it at all."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    if len(word) > MAX_LENGTH:
        return None
    matches = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=CUTOFF)
    return by_lower[matches[0]] if matches else None


def suggest_key(section: str, name: str) -> str | None:
    """The nearest valid key for an unknown key of a section.

    The same name in another section wins over a similar name in this one; a key of the same
    section is given bare, any other with its section.
    """
    rows = field_catalog().values()
    for row in rows:
        if row.name == name:
            return row.key
    own = closest(name, [row.name for row in rows if row.section == section])
    return own or _closest_anywhere(name, rows)


def suggest_top_level(name: str) -> str | None:
    """The nearest section for an unknown one; the full key if a field was written at top level."""
    for row in field_catalog().values():
        if row.name == name:
            return row.key
    return closest(name, section_models()) or _closest_anywhere(name, field_catalog().values())


def suggest_custom_param(name: str) -> str | None:
    """The nearest known custom parameter."""
    return closest(name, [row.name for row in field_catalog().values() if row.section == CUSTOM_PARAMS_KEY])


def _closest_anywhere(name: str, rows: Iterable[FieldRow]) -> str | None:
    keys = {row.name: row.key for row in rows}
    nearest = closest(name, keys)
    return keys[nearest] if nearest else None

"""Faults found in a recipe, and the one error that reports all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphsink.errors import RecipeValueError
from graphsink.recipe.provenance import Provenance
from graphsink.recipe.yaml_reader import KeyPath

MAX_FAULTS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        path: key path of the value.
        message: what is wrong, without the place.
        suggestion: nearest valid key or value.
        hint: what to change, when there is no suggestion.
    """

    path: KeyPath
    message: str
    suggestion: str | None = None
    hint: str | None = None


def dotted(path: KeyPath) -> str:
    """``model_config.exe_mode``, ``data_config.prompts[2]``; odd characters are escaped, long keys cut."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            shown = part if part.isprintable() else repr(part)
            text += ("." if text else "") + (shown if len(shown) <= 60 else shown[:57] + "...")
    return text


def raise_faults(faults: Sequence[Fault], provenance: Provenance) -> None:
    """Raise one `RecipeValueError` for all faults, in the order of the file; nothing if there are none.

    The attributes of the error (key, line, suggestion) are those of the first fault. Faults that an
    override causes come last and name the override instead of a line.
    """
    if not faults:
        return

    def rank(fault: Fault) -> int:
        line = provenance.locate(fault.path).line
        return 2**62 if line is None else line

    ordered = sorted(faults, key=rank)
    first = ordered[0]
    lines = [_one_line(fault, provenance) for fault in ordered[:MAX_FAULTS_SHOWN]]
    if len(ordered) > MAX_FAULTS_SHOWN:
        lines.append(f"... and {len(ordered) - MAX_FAULTS_SHOWN} more")
    if len(ordered) == 1:
        what = _with_override(first, provenance)
    else:
        what = "\n  ".join([f"{len(ordered)} problems in the recipe:", *lines])
    origin = provenance.locate(first.path)
    raise RecipeValueError(
        what,
        key=dotted(first.path),
        file=provenance.file if origin.override is None else None,
        line=origin.line,
        suggestion=first.suggestion,
        hint=first.hint,
    )


def _with_override(fault: Fault, provenance: Provenance) -> str:
    override = provenance.locate(fault.path).override
    return fault.message if override is None else f"override '{override}': {fault.message}"


def _one_line(fault: Fault, provenance: Provenance) -> str:
    line = provenance.locate(fault.path).line
    place = dotted(fault.path) if line is None else f"line {line}, {dotted(fault.path)}"
    advice = f"did you mean '{fault.suggestion}'?" if fault.suggestion else fault.hint
    return f"{place}: {_with_override(fault, provenance)}" + (f" ({advice})" if advice else "")

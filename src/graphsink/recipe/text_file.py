"""Reading the small text files a user hands us: recipes and prompt files.

The size is checked before anything is read, so a wrong path to a huge file costs nothing.
"""

from __future__ import annotations

import difflib
import stat
from pathlib import Path
from typing import NoReturn, Protocol

from graphsink.errors import RecipeError

MIB = 1024 * 1024


class ErrorMaker(Protocol):
    """An error class of the recipe family: ``RecipeSyntaxError`` or ``PromptError``."""

    def __call__(self, what: str, *, where: str | None = None, hint: str | None = None) -> RecipeError:
        """Make the error; the parts are those of `graphsink.errors.GraphsinkError`."""
        ...


def read_text_file(path: Path, *, kind: str, limit_bytes: int, error: ErrorMaker) -> str:
    """Read a UTF-8 file (a byte-order mark is dropped).

    Args:
        path: the file.
        kind: what it is, for messages: ``"recipe"``, ``"prompt file"``.
        limit_bytes: largest size in bytes that is read.
        error: class of the error that is raised for a path that is missing, not a regular file,
            not readable, too large, or not UTF-8.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        _raise_missing(path, kind, error)
    except (OSError, ValueError) as problem:
        raise error(
            f"the {kind} cannot be read: {_reason(problem)}", where=str(path), hint="check the path"
        ) from problem
    if stat.S_ISDIR(status.st_mode):
        raise error(f"the {kind} is a directory", where=str(path), hint="give the path of a file in it")
    if not stat.S_ISREG(status.st_mode):
        raise error(f"the {kind} is not a regular file", where=str(path), hint="save it to a file first")
    if status.st_size > limit_bytes:
        _raise_too_large(path, kind, status.st_size, limit_bytes, error)
    try:
        with path.open("rb") as stream:
            data = stream.read(limit_bytes + 1)
    except OSError as problem:
        raise error(
            f"the {kind} cannot be read: {_reason(problem)}",
            where=str(path),
            hint="check the permissions of the file",
        ) from problem
    if len(data) > limit_bytes:  # it grew after stat
        _raise_too_large(path, kind, len(data), limit_bytes, error)
    return _decode(data, path, kind, error)


def _decode(data: bytes, path: Path, kind: str, error: ErrorMaker) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise error(
            f"the {kind} is not UTF-8 text: byte 0x{data[problem.start]:02x} at offset {problem.start}",
            where=f"{path}:{line}",
            hint="save the file as UTF-8",
        ) from problem


def _raise_missing(path: Path, kind: str, error: ErrorMaker) -> NoReturn:
    directory = path.parent
    if not directory.is_dir():
        raise error(
            f"the {kind} does not exist; its directory '{directory}' does not exist either",
            where=str(path),
            hint="check the path",
        )
    nearest = nearest_file_name(path)
    hint = f"did you mean '{directory / nearest}'?" if nearest else "check the path"
    raise error(f"the {kind} does not exist", where=str(path), hint=hint)


def nearest_file_name(path: Path) -> str | None:
    """The file name in ``path``'s directory that looks most like it, if one does."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return None
    same_stem = [name for name in names if Path(name).stem == path.stem]
    matches = same_stem or difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
    return sorted(matches)[0] if matches else None


def _raise_too_large(path: Path, kind: str, size: int, limit: int, error: ErrorMaker) -> NoReturn:
    raise error(
        f"the {kind} is too large: {size / MIB:,.1f} MiB ({size:,} bytes), the limit is {limit // MIB} MiB",
        where=str(path),
        hint="check that this is the file you meant; long prompt lists belong in a .jsonl file",
    )


def _reason(problem: Exception) -> str:
    return (problem.strerror or str(problem)) if isinstance(problem, OSError) else str(problem)

"""A file that a run writes at its end, checked at its beginning."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from graphsink.errors import RecipeError


class ReportFile:
    """Reserves a place for a report before minutes are spent on the run.

    A regular file is written beside its final place and renamed, so a reader never sees half of it, and a
    report that was there before stays until the new one is complete; its permissions are kept, and a
    symbolic link keeps pointing to it. Anything else (a device, a pipe) is written to as it is.

    Args:
        path: where the report goes.

    Raises:
        RecipeError: nothing can be written there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._partial: Path | None = None
        try:
            mode: int | None = path.stat().st_mode
        except OSError:
            mode = None
        if mode is not None and stat.S_ISDIR(mode):
            raise RecipeError(f"'{path}' is a directory", where="--json", hint="give the path of a file")
        if mode is None or stat.S_ISREG(mode):
            self._reserve(mode)
        elif not os.access(path, os.W_OK):
            raise _unwritable(path, "Permission denied")

    def _reserve(self, mode: int | None) -> None:
        self._final = Path(os.path.realpath(self.path))
        if mode is not None and not os.access(self._final, os.W_OK):
            raise _unwritable(self.path, "Permission denied")
        try:
            descriptor, name = tempfile.mkstemp(prefix=f".{self._final.name}.", dir=self._final.parent)
        except OSError as error:
            raise _unwritable(self.path, error.strerror) from error
        os.close(descriptor)
        self._partial = Path(name)
        self._mode = stat.S_IMODE(mode) if mode is not None else 0o666 & ~_umask()

    def write(self, document: str) -> None:
        """Put the document in its place.

        Raises:
            RecipeError: the disk is full, or the place was taken away.
        """
        try:
            if self._partial is None:
                self.path.write_text(document + "\n", encoding="utf-8")
                return
            self._partial.write_text(document + "\n", encoding="utf-8")
            self._partial.chmod(self._mode)
            self._partial.replace(self._final)
        except OSError as error:
            raise RecipeError(
                f"the report could not be written: {error.strerror}", where=str(self.path)
            ) from error

    def discard(self) -> None:
        """Drop the reserved place if nothing was written."""
        if self._partial is not None:
            with contextlib.suppress(OSError):
                self._partial.unlink(missing_ok=True)


def _unwritable(path: Path, reason: str | None) -> RecipeError:
    return RecipeError(
        f"'{path}' cannot be written: {reason}",
        where="--json",
        hint="give a file in a directory that exists and that you may write to",
    )


def _umask() -> int:
    """The process's umask; it can only be read by setting it."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask

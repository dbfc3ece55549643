"""A file that a run writes at its end, checked at its beginning."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from graphsink.errors import RecipeError


class ReportFile:
    """Reserves a place for a report before minutes are spent on the run.

    The document is written beside its final place and renamed, so a reader never sees half of it, and a
    report that was there before stays until the new one is complete.

    Args:
        path: where the report goes.

    Raises:
        RecipeError: nothing can be written there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_dir():
            raise RecipeError(f"'{path}' is a directory", where="--json", hint="give the path of a file")
        try:
            descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
        except OSError as error:
            raise RecipeError(
                f"'{path}' cannot be written: {error.strerror}",
                where="--json",
                hint="give a file in a directory that exists and that you may write to",
            ) from error
        os.close(descriptor)
        self._partial = Path(name)

    def write(self, document: str) -> None:
        """Put the document in its place.

        Raises:
            RecipeError: the disk is full, or the place was taken away.
        """
        try:
            self._partial.write_text(document + "\n", encoding="utf-8")
            self._partial.chmod(0o644)
            self._partial.replace(self.path)
        except OSError as error:
            raise RecipeError(
                f"the report could not be written: {error.strerror}", where=str(self.path)
            ) from error

    def discard(self) -> None:
        """Drop the reserved place if nothing was written."""
        with contextlib.suppress(OSError):
            self._partial.unlink(missing_ok=True)

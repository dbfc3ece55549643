"""When the reader of the output goes away (``| head``)."""

from __future__ import annotations

import os
from typing import TextIO

BROKEN_PIPE = 141
"""Exit code for it, as shells have it: 128 + SIGPIPE."""


def silence(out: TextIO) -> None:
    """Send what is still written to ``out`` nowhere.

    Python flushes standard output once more at exit; without this, that flush fails with a traceback.
    """
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 -- a device, not a path
        os.dup2(nowhere.fileno(), out.fileno())

"""Keep transformers' own log lines and progress bars off the terminal while it works for us.

Everything they report that matters (missing, unexpected and mismatched tensors, remote code) is
returned to the caller or raised as an error of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Within the block transformers logs errors only and draws no bars; the settings come back after it."""
    verbosity = logging.get_verbosity()
    progress_bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if progress_bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]

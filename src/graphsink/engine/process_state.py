"""State of the whole process that a generation changes for its duration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let ATen compute with ``count`` threads inside the block.

    The setting belongs to the process: two models with different settings may be loaded at once, so each
    sets its own when it runs.
    """
    before = torch.get_num_threads()
    if before != count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if before != count:
            torch.set_num_threads(before)

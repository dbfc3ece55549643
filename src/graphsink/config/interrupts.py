"""Ctrl-C at places where stopping loses nothing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class InterruptFlag:
    """Remembers a first ctrl-C until a place where stopping loses nothing; see `deferred_interrupts`."""

    def __init__(self) -> None:
        self._count = 0

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if ctrl-C was pressed."""
        if self._count:
            raise KeyboardInterrupt

    def handle(self, _signal: int, _frame: FrameType | None) -> None:
        """The signal handler: the second ctrl-C does not wait."""
        self._count += 1
        if self._count > 1:
            raise KeyboardInterrupt


@contextmanager
def deferred_interrupts() -> Iterator[InterruptFlag]:
    """Inside the block, ctrl-C only sets the flag, so that it cannot strike in the middle of bookkeeping.

    Only in the main thread, where Python delivers signals, and only if the program has not installed a
    handler of its own.
    """
    flag = InterruptFlag()
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not ours:
        yield flag
        return
    signal.signal(signal.SIGINT, flag.handle)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)

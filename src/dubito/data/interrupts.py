"""Ctrl-C that waits until what is half started can be ended in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

__all__ = ["interrupts_wait"]


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Hold an interrupt back until the block ends; processes that start inside never see one.

    Only the main thread is told of interrupts: in others, and where signals have no mask, this does
    nothing.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not (is_main and hasattr(signal, "pthread_sigmask")):
        yield
        return
    resource_tracker.ensure_running()  # which multiprocessing starts, and then clears the mask
    noted: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    # Threads and processes that start inside inherit the mask; threads from before it do not, and
    # may take the interrupt for the whole process: then it is noted.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
    if noted:
        raise KeyboardInterrupt

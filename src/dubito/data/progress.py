"""Progress of long passes over rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol

Unit = Literal["rows", "tasks"]


class ProgressListener(Protocol):
    """Receives each pass over `name`; returns a function that takes the number of new steps."""

    def start(self, name: str, unit: Unit, total: int | None) -> Callable[[int], None]: ...


LISTENER: ContextVar[ProgressListener | None] = ContextVar("listener", default=None)


@contextmanager
def report_progress_to(listener: ProgressListener) -> Iterator[None]:
    """Report all passes over streamed rows that start inside the block to a listener.

    It may be called from several threads at once.
    """
    token = LISTENER.set(listener)
    try:
        yield
    finally:
        LISTENER.reset(token)


def started(
    name: str | None, unit: Unit = "rows", total: int | None = None
) -> Callable[[int], None]:
    """Report the start of a pass; return a function that reports its steps.

    Nothing is reported without a name (rows in memory) or without a listener.

    >>> started("predictions/")(1000)
    """
    listener = LISTENER.get()
    if listener is None or name is None:
        return ignore
    return listener.start(name, unit, total)


def ignore(_: int) -> None:
    """Report nothing."""

"""Progress of long passes over rows, reported to whoever listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol

Unit = Literal["rows", "tasks"]


class Watcher(Protocol):
    """Whoever is told of each pass over `name`; what it returns takes how many more are done."""

    def start(self, name: str, unit: Unit, total: int | None) -> Callable[[int], None]: ...


WATCHER: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Have a watcher told of all passes over streamed rows that begin inside.

    It may be told from several threads at once.
    """
    token = WATCHER.set(watcher)
    try:
        yield
    finally:
        WATCHER.reset(token)


def started(
    name: str | None, unit: Unit = "rows", total: int | None = None
) -> Callable[[int], None]:
    """Tell the watcher that a pass begins; return what to tell of its steps.

    Rows in memory have no name, and where nobody watches nothing is told.

    >>> started("predictions/")(1000)
    """
    watcher = WATCHER.get()
    if watcher is None or name is None:
        return ignore
    return watcher.start(name, unit, total)


def ignore(_: int) -> None:
    """Tell nobody."""

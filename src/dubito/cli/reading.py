"""Where rows are read: here, in memory or streamed, or on the workers of a Dask cluster."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Self, final

import typer

from dubito.errors import BadValueError

if TYPE_CHECKING:
    from dubito.data import BadRows, Columns, DaskShards, Shards

__all__ = ["ENGINE_OPTIONS", "Engine", "Reader", "as_typed"]

IN_MEMORY = 1 << 30  # bytes of files that are read at once; larger ones are streamed


@final
class Engine(StrEnum):
    """What works on rows."""

    LOCAL = "local"
    DASK = "dask"


ENGINE_OPTIONS = [
    inspect.Parameter(
        "engine",
        inspect.Parameter.KEYWORD_ONLY,
        default=Engine.LOCAL,
        annotation=Annotated[
            Engine,
            typer.Option(help="local; or dask, on this machine unless --scheduler is given."),
        ],
    ),
    inspect.Parameter(
        "scheduler",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            str | None, typer.Option(help="Of --engine dask, say tcp://10.0.0.1:8786.")
        ],
    ),
]


@final
class Reader:
    """Gives the rows of files on an engine; a cluster is reached when it is first needed."""

    def __init__(self, engine: Engine = Engine.LOCAL, scheduler: str | None = None) -> None:
        if scheduler is not None and engine != Engine.DASK:
            rule, fix = "beside --engine dask", f"--engine dask --scheduler {scheduler}"
            raise BadValueError("--scheduler", "dubito", rule, f"{scheduler} alone", fix)
        self.is_dask = engine == Engine.DASK
        self.scheduler = scheduler
        self.opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.opened.close()

    @cached_property
    def client(self) -> Any:
        """The client of the cluster, which is quiet: what matters is raised."""
        from dubito.data.dask import connected, extra

        extra()  # sets its own levels when it is imported
        for name in ("distributed", "tornado"):
            logger = logging.getLogger(name)
            self.opened.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL + 1)
        return self.opened.enter_context(connected(self.scheduler))

    def rows(self, file: str, columns: Columns) -> Shards:
        """Return the rows of files: in memory, where figures are exact, unless they are many."""
        from dubito.data import ArrayShards, read, scan

        if self.is_dask:
            return self.on_workers(file, columns)
        if n_bytes_of(file) > IN_MEMORY:
            return scan(file, columns)
        return ArrayShards(read(file, columns))

    def streamed(self, file: str, columns: Columns, bad_rows: BadRows | None) -> Shards:
        """Return the rows of files as they are read, never all at once."""
        from dubito.data import scan

        if self.is_dask:
            return self.on_workers(file, columns, bad_rows)
        return scan(file, columns, bad_rows=bad_rows)

    def on_workers(
        self, file: str, columns: Columns, bad_rows: BadRows | None = None
    ) -> DaskShards:
        """Return the rows of files on the workers of the cluster, wherever these were started."""
        from dubito.data import DaskShards
        from dubito.data.sources.locations import is_url

        place = file if is_url(file) else os.path.abspath(file)
        return DaskShards(self.client, place, columns, bad_rows=bad_rows)


def n_bytes_of(file: str) -> int:
    """Return how large a file is, or all of a folder or pattern together."""
    from dubito.data.sources.locations import files_under, size_of

    files = files_under(file)
    return size_of(file) if files is None else sum(map(size_of, files))


def as_typed(*files: str) -> Callable[[str], str]:
    """Return what names files as they were typed: from here, unless one was typed in full."""
    from dubito.data.sources.locations import is_url

    here = os.getcwd()
    is_short = not any(is_url(file) or os.path.isabs(file) for file in files)
    return lambda name: os.path.relpath(name, here) if is_short else name

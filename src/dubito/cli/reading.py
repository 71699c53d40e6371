"""Where rows are read (in memory, streamed, or on a Dask cluster) and where results may be written."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from enum import StrEnum
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, final

import typer

from dubito.errors import BadValueError, DubitoError

if TYPE_CHECKING:
    from dubito.data import BadRows, Columns, DaskShards, FileShards, Shards


def require_places(
    places: Mapping[str, str | Path | None],
    inputs: Sequence[str | Path],
    tables: tuple[str, ...] = (),
) -> None:
    """Raise unless each option's file can be written: told before the work, not after it.

    Those in `tables` are CSV files. What is elsewhere, at a URL, is tried only when it is written.

    >>> require_places({"--output": "report.html"}, ["predictions.csv"])
    """
    from dubito.data.sources.locations import is_url

    read = set(map(resolved, inputs))
    for option, place in places.items():
        if place is None:
            continue
        path = Path(place)
        if resolved(place) in read:
            rule, fix = "another file than those that are read", f"{option} NEW{path.suffix}"
            raise BadValueError(option, "dubito", rule, str(place), fix)
        if not is_url(str(place)):
            _require_folder(option, path, [Path(one) for one in read])
        if option in tables and path.suffix.lower() != ".csv":
            rule, fix = "a file in .csv", f"{option} {path.stem}.csv"
            raise BadValueError(option, "dubito", rule, str(place), fix)
        read.add(resolved(place))


def resolved(place: str | Path) -> str:
    """Return a URL as it is, and a path as it is from everywhere."""
    from dubito.data.sources.locations import is_url

    return str(place) if is_url(str(place)) else str(Path(place).resolve())


def _require_folder(option: str, place: Path, read: list[Path]) -> None:
    """Raise unless the folder of a file is there, and the file would not be read the next time."""
    if not place.parent.is_dir():
        rule, fix = "in a folder that is there", f"mkdir {place.parent}"
        raise BadValueError(option, "dubito", rule, str(place), fix)
    is_table = place.suffix.lower() not in (".html", ".json")
    if is_table and any(one.is_dir() and place.resolve().is_relative_to(one) for one in read):
        rule, fix = "outside of the folders that are read", f"{option} ../{place.name}"
        raise BadValueError(option, "dubito", rule, str(place), fix)


IN_MEMORY = 1 << 29  # bytes of all numbers in float64; more of them are streamed
UNPACKED = 4  # bytes of numbers for each byte of a file that does not say how many rows it has


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
            typer.Option(
                help="local or dask (a cluster on this machine unless --scheduler is given)."
            ),
        ],
    ),
    inspect.Parameter(
        "scheduler",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            str | None, typer.Option(help="Address of a Dask scheduler, e.g. tcp://10.0.0.1:8786.")
        ],
    ),
]


@final
class Reader:
    """Gives the rows of files on an engine; a cluster is reached when it is first needed."""

    def __init__(self, engine: Engine = Engine.LOCAL, scheduler: str | None = None) -> None:
        if scheduler is not None and engine != Engine.DASK:
            rule, fix = (
                "given together with --engine dask",
                f"--engine dask --scheduler {scheduler}",
            )
            raise BadValueError("--scheduler", "dubito", rule, f"{scheduler} alone", fix)
        self.is_dask = engine == Engine.DASK
        self.scheduler = scheduler
        self.opened = ExitStack()
        self.files: list[str] = []  # that workers were sent to

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.opened.close()
        if isinstance(error, DubitoError) and self.files:
            name = as_typed(*self.files)
            told = [name(one) if isinstance(one, str) else one for one in error.args]
            if told != list(error.args):
                raise type(error)(*told) from error

    @cached_property
    def client(self) -> Any:
        """The client of the cluster, which is quiet: what matters is raised."""
        from dubito.data.dask import connected, extra

        extra()  # sets its own levels when it is imported, also of loggers below these
        for name in sorted({"asyncio", "distributed", "tornado", *logging.root.manager.loggerDict}):
            if name.partition(".")[0] in ("asyncio", "distributed", "tornado"):
                logger = logging.getLogger(name)
                self.opened.callback(logger.setLevel, logger.level)
                logger.setLevel(logging.CRITICAL + 1)
        return self.opened.enter_context(connected(self.scheduler))

    def rows(self, file: str, columns: Columns) -> Shards:
        """Return the rows of files: in memory, where figures are exact, unless they are many."""
        from dubito.data import ArrayShards, read, scan

        if self.is_dask:
            return self.on_workers(file, columns)
        shards = scan(file, columns)
        return shards if _n_bytes_of(shards) > IN_MEMORY else ArrayShards(read(file, columns))

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

        self.files.append(file)
        place = file if is_url(file) else os.path.abspath(file)
        return DaskShards(self.client, place, columns, bad_rows=bad_rows)


def _n_bytes_of(shards: FileShards) -> int:
    """Return about how many bytes of memory the numbers of files take, as far as files tell."""
    from dubito.data.sources.locations import files_under, size_of
    from dubito.data.tables import row_count

    name = shards.source.name
    n_rows = row_count(name)
    if n_rows is None:
        files = files_under(name)
        return UNPACKED * (size_of(name) if files is None else sum(map(size_of, files)))
    return 8 * n_rows * shards.columns.n_entries


def as_typed(*files: str) -> Callable[[str], str]:
    """Return what names, in any text, files in full as they were typed: from here, or in full."""
    from dubito.data.sources.locations import folder_of, is_url

    typed = [folder_of(file) for file in files if not is_url(file)]
    names = {os.path.join(os.path.abspath(one), ""): os.path.join(one, "") for one in typed}
    names |= {os.path.abspath(one): os.path.normpath(one) for one in typed if one}
    return lambda text: reduce(lambda told, pair: told.replace(*pair), names.items(), text)

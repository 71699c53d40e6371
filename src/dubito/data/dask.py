"""The same sums on a Dask cluster: rows stay on the workers, functions and states travel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from itertools import accumulate
from operator import add, getitem
from typing import Any, final

import pyarrow as pa

from dubito.data.batch import Batch
from dubito.data.columns import Columns
from dubito.data.files import FileShards, FileSpan, scan
from dubito.data.folder_sink import FolderSink, Slot
from dubito.data.shards import Result, Shards, Sum
from dubito.data.sink import Sink
from dubito.data.sources import open_source
from dubito.data.sources.frames import TableSource
from dubito.data.sources.numpy_files import arrow_of
from dubito.errors import BadFileError, BadTypeError, EmptyStateError, MissingExtraError

__all__ = ["DaskShards", "connected"]

PATIENCE = "10s"  # for a scheduler to answer
FAN_IN = 8  # states that are added in one task: a tree, so that the client adds none


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Give a client of the scheduler at an address, such as tcp://127.0.0.1:8786."""
    distributed = extra()
    try:
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        fix = "`dask scheduler`, and the address that it prints"
        raise BadFileError(address, "no Dask scheduler answers there", fix) from error
    with client:
        yield client


@final
class DaskShards(Shards):
    """Rows of files, or of Dask arrays or frames, on the workers of a cluster.

    `source` is a path that all workers can read (a file, folder, pattern or URL), a Dask frame, or
    a dict of Dask arrays, each a column, a matrix one of lists. The first sum has rows decoded;
    workers keep them until the shards are gone. How rows are cut and added depends on the data
    alone: any number of workers gives the same digits, and a worker that dies costs time only,
    where rows come from files.
    """

    def __init__(self, client: Any, source: Any, columns: Columns) -> None:
        if not isinstance(client, extra().Client):
            rule, fix = "a distributed.Client", "distributed.Client('tcp://...')"
            raise BadTypeError("client", "DaskShards", rule, type(client).__name__, fix)
        self.client = client
        self.spans: list[FileSpan] = []
        self.tables: list[Any] = []  # what makes the rows of each partition of a collection
        if is_collection(source):
            self.name, self.tables = "the Dask collection", partitions_of(source, columns)
        else:
            shards = scan(source, columns)
            require_files(shards)
            self.name, self.spans = shards.source.name, shards.spans()
        self.kept: list[Any] | None = None  # the batches of each task, on the workers
        self.sizes: list[list[int]] = []  # of these batches

    def __reduce__(self) -> tuple[Any, ...]:
        # Functions that travel may hold the shards that they are summed over: these stay here.
        return Elsewhere, (self.name,)

    def load(self) -> list[Any]:
        """Have the workers decode all rows, if they have not yet; return what stands for them."""
        if self.kept is not None:
            return self.kept
        with self.reaching():
            if self.tables:
                kept: list[Any] = self.client.compute(self.tables)
            else:
                shards = [span.shards for span in self.spans]
                kept = self.client.map(batches_of, shards, pure=False)
            self.sizes = self.client.gather(self.client.map(lengths, kept, pure=False))
        self.kept = kept
        return kept

    def parts(self) -> Iterator[Callable[[], Batch]]:
        for kept, firsts, sizes in zip(self.load(), self.firsts(), self.sizes, strict=True):
            for k in range(len(sizes)):
                yield partial(self.fetch, kept, k, firsts[k])

    def fetch(self, kept: Any, k: int, first_row: int) -> Batch:
        """Return one of the batches of a task."""
        with self.reaching():
            batch: Batch = self.client.submit(getitem, kept, k, pure=False).result()
        return replace(batch, first_row=first_row)

    def map(self, function: Callable[[int, Batch], Result]) -> Iterator[Result]:
        kept = self.load()
        numbers = [0, *accumulate(map(len, self.sizes))]
        tasks = [
            partial(self.client.submit, results, function, batches, firsts, number, pure=False)
            for batches, firsts, number in zip(kept, self.firsts(), numbers, strict=False)
        ]
        return (result for some in self.in_order(tasks) for result in some)

    def sum(self, function: Callable[[Batch], Sum]) -> Sum:
        kept = self.load()
        with self.reaching():
            level = self.client.map(
                partial(added, function), kept, self.firsts(), pure=False, priority=1
            )
            while len(level) > 1:
                groups = [level[k : k + FAN_IN] for k in range(0, len(level), FAN_IN)]
                level = self.client.map(total, groups, pure=False, priority=2)
            found: Sum | None = level[0].result()
        if found is None:
            raise EmptyStateError("A sum over shards")
        return found

    def write(
        self,
        function: Callable[[Batch], Mapping[str, Any] | None],
        sink: Sink,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> int:
        rows, firsts = self.rows()
        tasks = [
            partial(self.client.submit, columns_of, function, some, first, pure=False)
            for some, first in zip(rows, firsts, strict=True)
        ]
        for written in self.in_order(tasks):
            for columns in written:
                sink.write(columns)
            if on_progress is not None:
                on_progress(sink.n_rows)
        return sink.n_rows

    def write_parts(
        self,
        function: Callable[[Batch], Mapping[str, Any] | None],
        folder: FolderSink,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> int:
        """Have workers write a part a task to a folder that all can reach; return how many rows.

        The manifest takes up each part once it is whole: a run that was stopped goes on there.
        """
        require_spans(self.spans)
        rows, firsts = self.rows()
        slots = [slot_of(span.shards, folder) for span in self.spans]
        folder.sweep()
        with self.reaching():
            tasks = {
                self.client.submit(
                    write_part, function, some, first, folder.place(slot.file), pure=False
                ): slot
                for slot, some, first in zip(slots, rows, firsts, strict=True)
                if slot is not None and first != []
            }
            for task, n_rows in extra().as_completed(tasks, with_results=True):
                folder.finish(tasks[task], n_rows)
                if on_progress is not None:
                    on_progress(folder.n_rows)
        folder.sweep()
        return folder.n_rows

    def rows(self) -> tuple[Sequence[Any], list[list[int]]]:
        """Return the rows of each task and where they begin: files, unless they were read yet."""
        counts = [span.n_rows for span in self.spans if span.n_rows is not None]
        if self.kept is not None or self.tables or len(counts) < len(self.spans):
            return self.load(), self.firsts()
        starts = [0, *accumulate(counts)]
        firsts = [[start] if n else [] for start, n in zip(starts, counts, strict=False)]
        return [span.shards for span in self.spans], firsts

    def firsts(self) -> list[list[int]]:
        """Return the numbers of the first rows of the batches of each task."""
        starts = iter([0, *accumulate(size for sizes in self.sizes for size in sizes)])
        return [[next(starts) for _ in sizes] for sizes in self.sizes]

    def in_order(self, tasks: Sequence[Callable[[], Any]]) -> Iterator[Any]:
        """Yield what tasks return, in order, with as many under way as the workers have threads."""
        under_way: list[Any] = []
        waiting = iter(tasks)
        with self.reaching():
            n_ahead = 1 + sum(self.client.nthreads().values())
            while True:
                under_way += [task() for _, task in zip(range(n_ahead), waiting, strict=False)]
                if not under_way:
                    return
                n_ahead = 1
                yield under_way.pop(0).result()

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Say clearly that the cluster is gone, if it is."""
        distributed = extra()
        address = self.client.scheduler.address if self.client.scheduler else "the Dask client"
        fix = "starting the cluster, and then the run, again"
        gone = BadFileError(address, "the Dask scheduler went away", fix)
        if self.client.status != "running":
            raise gone
        try:
            yield
        except (CancelledError, distributed.comm.CommClosedError) as error:
            raise gone from error
        except distributed.KilledWorker as error:
            problem = "workers died again and again over the same rows"
            raise BadFileError(self.name, problem, "workers with more memory") from error


@final
class Elsewhere(Shards):
    """What is left of shards on a worker: their name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def parts(self) -> Iterator[Callable[[], Batch]]:
        rule, fix = "read where they were made", "`shards.sum(...)` outside of the function"
        raise BadTypeError("shards", "a task", rule, f"those of {self.name} on a worker", fix)


def extra() -> Any:
    """Return the package of Dask that has clusters."""
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError("A Dask cluster", "dask") from error
    return distributed


def is_collection(source: Any) -> bool:
    """Whether a source is a Dask frame, or a dict of Dask arrays."""
    values = source.values() if isinstance(source, Mapping) else [source]
    return bool(values) and all(hasattr(value, "to_delayed") for value in values)


def partitions_of(source: Any, columns: Columns) -> list[Any]:
    """Return, of each partition of a collection, what makes its batches."""
    from dask.delayed import delayed

    if not isinstance(columns, Columns):
        fix = "Columns(label='y', logits='logit_*')"
        raise BadTypeError("columns", "DaskShards", "of type Columns", repr(columns), fix)
    if not isinstance(source, Mapping):
        columns.bind([str(name) for name in source.columns], "the Dask frame")
        parts = source.to_delayed()
        return [delayed(batches_of_frame)(part, columns, k) for k, part in enumerate(parts)]
    columns.bind(list(source), "the Dask arrays")
    rows = next(iter(source.values())).chunks[0]
    cut = [array.rechunk({0: rows, 1: -1} if array.ndim == 2 else {0: rows})
           for array in source.values()]  # fmt: skip
    blocks = zip(*(array.to_delayed().ravel() for array in cut), strict=True)
    return [
        delayed(batches_of_arrays)(list(source), list(some), columns, k)
        for k, some in enumerate(blocks)
    ]


def batches_of_frame(frame: Any, columns: Columns, number: int) -> list[Batch]:
    """Return the batches of a partition of a frame, none if it has no rows."""
    opened = open_source(frame)
    assert isinstance(opened, TableSource)
    named = replace(opened, name=f"partition {number}")
    return list(scan(named, columns).batches()) if len(frame) else []


def batches_of_arrays(
    names: list[str], arrays: list[Any], columns: Columns, number: int
) -> list[Batch]:
    """Return the batches of some rows of arrays, none if there are no rows."""
    table = pa.table(dict(zip(names, map(arrow_of, arrays), strict=True)))
    return batches_of_frame(table, columns, number)


def batches_of(shards: FileShards) -> list[Batch]:
    """Decode some rows of files."""
    return list(shards.batches())


def lengths(batches: list[Batch]) -> list[int]:
    """Return how many rows batches have."""
    return [len(batch) for batch in batches]


def numbered(rows: FileShards | list[Batch], firsts: list[int]) -> Iterator[Batch]:
    """Yield batches with the numbers that their rows have in the whole."""
    batches = rows.batches() if isinstance(rows, FileShards) else iter(rows)
    first_row = firsts[0] if firsts else 0
    for batch in batches:
        # A twin: what is worked out of rows is not kept on the worker.
        yield replace(batch, first_row=first_row)
        first_row += len(batch)


def results(
    function: Callable[[int, Batch], Result], batches: list[Batch], firsts: list[int], number: int
) -> list[Result]:
    """Return a function of each batch and its number."""
    return [function(number + k, batch) for k, batch in enumerate(numbered(batches, firsts))]


def added(function: Callable[[Batch], Sum], batches: list[Batch], firsts: list[int]) -> Sum | None:
    """Return the sum of a function over batches, None if there are none."""
    return total(function(batch) for batch in numbered(batches, firsts))


def total(sums: Iterable[Sum | None]) -> Sum | None:
    """Return the sum in order, None if there is nothing to add."""
    known = (one for one in sums if one is not None)
    first = next(known, None)
    return None if first is None else reduce(add, known, first)


def columns_of(
    function: Callable[[Batch], Mapping[str, Any] | None],
    rows: FileShards | list[Batch],
    firsts: list[int],
) -> list[Mapping[str, Any] | None]:
    """Return the columns of each batch."""
    return [function(batch) for batch in numbered(rows, firsts)]


def write_part(
    function: Callable[[Batch], Mapping[str, Any] | None],
    rows: FileShards | list[Batch],
    firsts: list[int],
    path: str,
) -> int:
    """Write a part, whole or not at all; return how many rows it has."""
    with Sink(path) as sink:
        for batch in numbered(rows, firsts):
            sink.write(function(batch))
    return sink.n_rows


def require_files(shards: FileShards) -> None:
    """Raise unless workers can read the rows themselves."""
    if isinstance(shards.source, TableSource):
        rule = "a path that all workers can read, a Dask frame or Dask arrays"
        fix = "dask.dataframe.from_pandas(frame, npartitions=8)"
        raise BadTypeError("source", "DaskShards", rule, "a table in memory", fix)


def require_spans(spans: list[FileSpan]) -> None:
    """Raise unless rows come from files, so that a part is of one that can be told again."""
    if not spans:
        rule, fix = "files, where parts are written", "`to_parquet` first, or `write` to one file"
        raise BadTypeError("source", "write_parts", rule, "a Dask collection", fix)


def slot_of(shards: FileShards, folder: FolderSink) -> Slot | None:
    """Return the place of the part of some rows of a file, None if it is written."""
    file, label = shards.source.name, f"from row {shards.first_row}"
    return None if folder.is_finished(file, label) else folder.slot(file, label)

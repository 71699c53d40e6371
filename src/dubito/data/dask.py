"""Sums on a Dask cluster: rows stay on the workers, functions and states are sent."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial, reduce
from itertools import accumulate, chain
from math import isnan
from multiprocessing import resource_tracker
from operator import add
from typing import Any, NamedTuple, final

import pyarrow as pa

from dubito.data.batch import Batch
from dubito.data.columns import Columns
from dubito.data.directory_sink import DirectorySink, Slot, WriteLock
from dubito.data.files import BadRow, BadRows, FileShards, FileSpan, scan, without_rows
from dubito.data.progress import ignore, started
from dubito.data.shards import Result, Shards, Sum
from dubito.data.sink import Sink
from dubito.data.sources import open_source
from dubito.data.sources.formats import TableSource, arrow_of
from dubito.data.sources.locations import is_url
from dubito.errors import BadFileError, BadTypeError, BadValueError, MissingExtraError
from dubito.kernels.blocks import n_threads


class Decoded(NamedTuple):
    """The rows of a task, on a worker, and those that were set aside."""

    batches: list[Batch]
    bad: list[BadRow]


class Counts(NamedTuple):
    """What the client knows of the rows of a task; `n_rows` with those that were set aside."""

    n_batches: int
    n_rows: int
    bad: list[BadRow]


class Numbering(NamedTuple):
    """Offsets of the row numbers of a task; ids are such numbers where no column is named."""

    offset: int
    is_ids: bool

    def of(self, batch: Batch) -> Batch:
        """Return a twin of a batch: what is worked out of its rows is not kept on the worker."""
        ids = batch.ids + self.offset if self.is_ids and batch.ids is not None else batch.ids
        return replace(batch, first_row=batch.first_row + self.offset, ids=ids)


@final
class Elsewhere(Shards):
    """A stand-in for shards on a worker, which holds their name only."""

    def __init__(self, name: str) -> None:
        self.name = name

    def parts(self) -> Iterator[Callable[[], Batch]]:
        rule, got = "cannot be read on a Dask worker", f"those of {self.name} on a worker"
        fix = "Call `shards.sum(...)` outside of the function"
        raise BadTypeError("shards", "DaskShards", rule, got, fix)


def _decoded_frame(frame: Any, columns: Columns, number: int, max_bad: int | None) -> Decoded:
    """Return the batches of a partition of a frame, none if it has no rows."""
    opened = open_source(frame)
    assert isinstance(opened, TableSource)
    named = replace(opened, name=f"partition {number}")
    return _decoded(replace(scan(named, columns), is_some=True), max_bad)


def _decoded_arrays(
    names: list[str], arrays: list[Any], columns: Columns, number: int, max_bad: int | None
) -> Decoded:
    """Return the batches of some rows of arrays, none if there are no rows."""
    table = pa.table(dict(zip(names, map(arrow_of, arrays), strict=True)))
    return _decoded_frame(table, columns, number, max_bad)


def _decoded(shards: FileShards, max_bad: int | None) -> Decoded:
    """Decode some rows of files; bad ones stop it, or are set aside up to so many."""
    batches, bad = _streamed(shards, max_bad)
    return Decoded(list(batches), bad())


def _counted(rows: Decoded) -> Counts:
    """Return how many batches and rows there are, and which rows are bad."""
    return Counts(len(rows.batches), sum(map(len, rows.batches)) + len(rows.bad), rows.bad)


def _nth(rows: Decoded, k: int) -> Batch:
    """Return one of the batches of a task."""
    return rows.batches[k]


def _results(
    function: Callable[[int, Batch], Result], rows: Decoded, numbering: Numbering, number: int
) -> list[Result]:
    """Return a function of each batch and its number."""
    return [function(number + k, numbering.of(batch)) for k, batch in enumerate(rows.batches)]


def _added(function: Callable[[Batch], Sum], rows: Decoded, numbering: Numbering) -> Sum | None:
    """Return the sum of a function over batches, None if there are none."""
    return _total(function(numbering.of(batch)) for batch in rows.batches)


def _total(sums: Iterable[Sum | None]) -> Sum | None:
    """Return the sum in order, None if there is nothing to add."""
    known = (one for one in sums if one is not None)
    first = next(known, None)
    return None if first is None else reduce(add, known, first)


def _streamed(
    rows: FileShards | Decoded, max_bad: int | None
) -> tuple[Iterator[Batch], Callable[[], list[BadRow]]]:
    """Return the batches of a task one by one, and what tells its bad rows when they are read.

    Raise if the file is there for the client, but not for this worker.
    """
    if isinstance(rows, Decoded):
        return iter(rows.batches), lambda: rows.bad
    name = rows.source.name
    if not (isinstance(rows.source, TableSource) or is_url(name) or os.path.exists(name)):
        fix = "Use a directory that all workers can read, or a URL"
        raise BadFileError(name, "a Dask worker cannot read it", fix)
    bad_rows = None if max_bad is None else BadRows(max_bad)
    return replace(rows, bad_rows=bad_rows).batches(), lambda: list(bad_rows or ())


def _columns_of(
    function: Callable[[Batch], Mapping[str, Any] | None],
    rows: FileShards | Decoded,
    numbering: Numbering,
    max_bad: int | None,
) -> tuple[list[Mapping[str, Any] | None], list[BadRow]]:
    """Return the columns of each batch, and the rows that are bad."""
    batches, bad = _streamed(rows, max_bad)
    return [function(numbering.of(batch)) for batch in batches], bad()


def _write_part(
    function: Callable[[Batch, str], Mapping[str, Any] | None],
    rows: FileShards | Decoded,
    file: str,
    path: str,
    lock: WriteLock,
    max_bad: int | None,
) -> tuple[int | None, list[BadRow]]:
    """Write a part, whole or not at all; return how many rows it has, None for no part at all.

    It is none if the lock of the run that asked for it is over by then.
    """
    batches, bad = _streamed(rows, max_bad)
    first = next(batches, None)
    if first is None:
        return None, []
    with Sink(path) as sink:
        for batch in chain([first], batches):
            # A twin, as in `Numbering.of`: what is worked out of the rows must not stay with them.
            sink.write(function(replace(batch), file))
        lock.require()
    return sink.n_rows, bad()


def _is_collection(source: Any) -> bool:
    """Whether a source is a Dask frame, or a dict of Dask arrays; raise for what is nearly so."""
    arrays = source.values() if isinstance(source, Mapping) else [source]
    is_dask = [hasattr(one, "to_delayed") for one in arrays]
    if isinstance(source, Mapping) and not all(is_dask):
        other = next(name for name, is_one in zip(source, is_dask, strict=True) if not is_one)
        got = f"{type(source[other]).__name__} as {other!r}"
        fix = "Use dask.array.from_array(array)"
        raise BadTypeError("source", "DaskShards", "must hold Dask arrays only", got, fix)
    if all(is_dask) and not isinstance(source, Mapping) and not hasattr(source, "columns"):
        rule, fix = "must be a dict of Dask arrays", "Pass {'logits': array, 'y': labels}"
        raise BadTypeError("source", "DaskShards", rule, f"a bare {type(source).__name__}", fix)
    return bool(is_dask) and all(is_dask)


def _partitions_of(
    source: Any, columns: Columns, max_bad: int | None, delayed: Callable[..., Any]
) -> list[Any]:
    """Return what makes the batches of each partition of a collection, `delayed` by Dask."""
    if not isinstance(columns, Columns):
        fix = "Pass Columns(label='y', logits='logit_*')"
        raise BadTypeError("columns", "DaskShards", "must be Columns", repr(columns), fix)
    if not isinstance(source, Mapping):
        columns.bind([str(name) for name in source.columns], "the Dask frame")
        parts, decode = source.to_delayed(), delayed(_decoded_frame)
        return [decode(part, columns, k, max_bad) for k, part in enumerate(parts)]
    columns.bind(list(source), "the Dask arrays")
    _require_rows(source)
    rows = next(iter(source.values())).chunks[0]
    # A matrix is cut by rows only.
    chunks = {1: {0: rows}, 2: {0: rows, 1: -1}}
    cut = [array.rechunk(chunks[array.ndim]) for array in source.values()]
    blocks = zip(*(array.to_delayed().ravel() for array in cut), strict=True)
    names, decode = list(source), delayed(_decoded_arrays)
    return [decode(names, list(some), columns, k, max_bad) for k, some in enumerate(blocks)]


def _require_rows(arrays: Mapping[str, Any]) -> None:
    """Raise unless arrays have a row or an entry each for the same rows."""
    where = "the Dask arrays"
    first, n_rows = next((name, array.shape[:1]) for name, array in arrays.items())
    for name, array in arrays.items():
        if array.ndim not in (1, 2):
            rule, fix = "must have 1 or 2 dimensions", f"Use {name}.reshape(len({name}), -1)"
            raise BadValueError(name, where, rule, f"shape {array.shape}", fix)
        if isnan(array.shape[0]):
            rule, fix = "must have a known length", f"Call {name}.compute_chunk_sizes()"
            raise BadValueError(name, where, rule, f"shape {array.shape}", fix)
        if array.shape[:1] != n_rows:
            rule = f"must be as long as `{first}` ({n_rows[0]} rows)"
            fix = "Provide one value per row"
            raise BadValueError(name, where, rule, f"{array.shape[0]} rows", fix)


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Hold an interrupt back until the block ends; processes that start inside never see one.

    Only the main thread receives interrupts: in others, and where signals have no mask, this does
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


PATIENCE = "10s"  # for a scheduler to answer
JOINING = "60s"  # for a worker to join it: some clusters start them when they are asked for
FAN_IN = 8  # states that are added in one task: a tree, so that the client adds none


@contextmanager
def connected(
    address: str | None = None, patience: str = PATIENCE, joining: str = JOINING
) -> Iterator[Any]:
    """Yield a client of the scheduler at an address, such as tcp://127.0.0.1:8786.

    Without an address, of a local cluster with one single-threaded worker per core, which ends
    with the block.
    """
    distributed = extra()
    if address is None:
        with ExitStack() as opened:
            with _interrupts_wait():  # a cluster that is half started cannot be closed
                cluster = opened.enter_context(_local_cluster())
                here = opened.enter_context(distributed.Client(cluster, set_as_default=False))
            yield here
        return
    try:
        distributed.comm.get_address_host_port(address)  # a client of nowhere is hard to close
        client = distributed.Client(address, timeout=patience, set_as_default=False)
    except (OSError, ValueError) as error:
        fix = "Start `dask scheduler` and pass the address that it prints"
        where = "address", "Dask scheduler"
        raise BadValueError(*where, "must be reachable", address, fix) from error
    with client:
        try:  # without a worker, all would wait forever
            client.wait_for_workers(1, timeout=joining)
        except TimeoutError as error:
            rule, fix = "must be at least 1", f"Start `dask worker {address}` on each machine"
            raise BadValueError("workers", "Dask scheduler", rule, "0", fix) from error
        yield client


def _local_cluster() -> Any:
    """Return a cluster of as many single threads as this process may use."""
    return extra().LocalCluster(
        n_workers=n_threads(),
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
        env={"DUBITO_THREADS": "1"},
    )


@final
class DaskShards(Shards):
    """Rows of files, or of Dask arrays or frames, on the workers of a cluster.

    The first sum decodes the rows, and the workers keep them until the shards are deleted. How rows
    are split and added depends on the data only: any number of workers gives bit-identical results,
    and a lost worker costs only time if rows come from files.

    Parameters
    ----------
    client : distributed.Client
        The cluster.
    source : path, Dask frame or dict of Dask arrays
        A path that all workers can read (a file, directory, pattern or URL), a frame, or one array
        per column; a matrix is a column of lists.
    columns : Columns
        The roles of the columns.
    bad_rows : BadRows, optional
        Collects bad rows, which otherwise raise an error.
    """

    def __init__(
        self, client: Any, source: Any, columns: Columns, *, bad_rows: BadRows | None = None
    ) -> None:
        if not isinstance(client, extra().Client):
            rule, fix = "must be a distributed.Client", "Pass distributed.Client('tcp://...')"
            raise BadTypeError("client", "DaskShards", rule, type(client).__name__, fix)
        self.client, self.bad_rows = client, bad_rows
        self.max_bad = None if bad_rows is None else bad_rows.max_rows
        self.spans: list[FileSpan] = []
        self.tables: list[Any] = []  # what makes the rows of each partition of a collection
        if _is_collection(source):
            from dask.delayed import delayed

            self.name = "the Dask collection"
            self.tables = _partitions_of(source, columns, self.max_bad, delayed)
        else:
            shards = scan(source, columns)
            if isinstance(shards.source, TableSource):
                rule = "must be a path that all workers can read, a Dask frame or Dask arrays"
                fix = "Use dask.dataframe.from_pandas(frame, npartitions=8)"
                raise BadTypeError("source", "DaskShards", rule, "a table in memory", fix)
            self.name, self.spans = shards.source.name, shards.spans()
        self.is_ids = bad_rows is not None and columns.id is None
        self.kept: list[Any] | None = None  # what is decoded of each task, on the workers
        self.counts: list[Counts] = []  # of these

    def __reduce__(self) -> tuple[Any, ...]:
        # Functions that travel may hold the shards that they are summed over: these stay here.
        return Elsewhere, (self.name,)

    def load(self) -> list[Any]:
        """Have the workers decode all rows, if they have not yet; return what stands for them.

        Returns
        -------
        list of future
            One per task: its decoded batches, in the memory of a worker.
        """
        if self.kept is not None:
            return self.kept
        with self.reaching():
            if self.tables:
                kept: list[Any] = self.client.compute(self.tables)
            else:
                shards = [span.shards for span in self.spans]
                kept = self.client.map(partial(_decoded, max_bad=self.max_bad), shards, pure=False)
            self.tell(kept)
            self.counts = self.client.gather(self.client.map(_counted, kept, pure=False))
        if not any(counts.n_batches for counts in self.counts):
            raise without_rows(self.name)
        for counts in self.counts:
            self.set_aside(counts.bad)
        self.kept = kept
        return kept

    def set_aside(self, bad: Iterable[BadRow]) -> None:
        """Take up bad rows that a task found: those of one that ran twice are the same.

        Parameters
        ----------
        bad : iterable of BadRow
            The bad rows of one task.
        """
        if self.bad_rows is not None:
            for one in bad:
                self.bad_rows.add(one)

    def tell(self, tasks: list[Any]) -> None:
        """Report each finished task to the progress listener.

        Parameters
        ----------
        tasks : list of future
            The tasks under way.
        """
        step = started(self.name, "tasks", len(tasks))
        for task in tasks if step is not ignore else ():
            task.add_done_callback(lambda _: step(1))

    def parts(self) -> Iterator[Callable[[], Batch]]:
        rows = self.load()
        for kept, numbering, counts in zip(rows, self.numberings(), self.counts, strict=True):
            for k in range(counts.n_batches):
                yield partial(self.fetch, kept, k, numbering)

    def fetch(self, kept: Any, k: int, numbering: Numbering) -> Batch:
        """Return one of the batches of a task.

        Parameters
        ----------
        kept : future
            The decoded batches of a task, on a worker.
        k : int
            The position of the batch within the task.
        numbering : Numbering
            The number of the first row of the task in the whole.

        Returns
        -------
        Batch
            The batch, in the memory of this process.
        """
        with self.reaching():
            batch: Batch = self.client.submit(_nth, kept, k, pure=False).result()
        return numbering.of(batch)

    def apply(self, function: Callable[[int, Batch], Result]) -> Iterator[Result]:
        kept = self.load()
        numbers = accumulate((counts.n_batches for counts in self.counts), initial=0)
        submit = partial(self.client.submit, _results, pure=False)
        tasks = [
            partial(submit, function, some, numbering, number)
            for some, numbering, number in zip(kept, self.numberings(), numbers, strict=False)
        ]
        step = started(self.name, "tasks", len(tasks))
        return (result for some in self.in_order(tasks, step) for result in some)

    def sum(self, function: Callable[[Batch], Sum]) -> Sum:
        kept = self.load()
        with self.reaching():
            add_up = partial(_added, function)
            level = self.client.map(add_up, kept, self.numberings(), pure=False, priority=1)
            self.tell(level)
            while len(level) > 1:
                groups = [level[k : k + FAN_IN] for k in range(0, len(level), FAN_IN)]
                level = self.client.map(_total, groups, pure=False, priority=2)
            found: Sum | None = level[0].result()
        assert found is not None  # as there are rows
        return found

    def write(
        self,
        function: Callable[[Batch], Mapping[str, Any] | None],
        sink: Sink,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> int:
        rows, numberings = self.rows()
        submit = partial(self.client.submit, _columns_of, pure=False)
        tasks = [
            partial(submit, function, some, numbering, self.max_bad)
            for some, numbering in zip(rows, numberings, strict=True)
        ]
        for written, bad in self.in_order(tasks):
            self.set_aside(bad)
            for columns in written:
                sink.write(columns)
            (on_progress or ignore)(sink.n_rows)
        return sink.n_rows

    def write_parts(
        self,
        function: Callable[[Batch, str], Mapping[str, Any] | None],
        folder: DirectorySink,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> int:
        """Have workers write a part a task to a folder that all can reach; return how many rows.

        `function` takes a batch and the file that it is of, where its rows have their numbers. The
        manifest takes up each part once it is whole: a run that was stopped goes on there.

        Parameters
        ----------
        function : callable
            Takes a batch and its file, and returns the columns to write, None for no rows.
        folder : DirectorySink
            The directory of the parts, which every worker can reach.
        on_progress : callable, optional
            Called with the number of rows written so far.

        Returns
        -------
        int
            The number of rows in all finished parts.
        """
        if not self.spans:
            rule, fix = "must be files", "Use `to_parquet` first, or `write` to one file"
            raise BadTypeError("source", "write_parts", rule, "a Dask collection", fix)
        with self.reaching(), folder.exclusive():
            tasks = self.tasks_of(function, folder)
            for task in extra().as_completed(tasks, loop=self.client.loop):
                n_rows, bad = task.result()
                self.set_aside(bad)
                if n_rows is not None:
                    folder.finish(tasks[task], n_rows, bad)
                (on_progress or ignore)(folder.n_rows)
            folder.sweep()  # of workers that died
        if not any(folder.is_finished(*part) for part in map(_part_of, self.spans)):
            raise without_rows(self.name)
        return folder.n_rows

    def tasks_of(
        self, function: Callable[[Batch, str], Mapping[str, Any] | None], folder: DirectorySink
    ) -> dict[Any, Slot]:
        """Have the parts written that are not there yet; return tasks and the places of parts.

        Parameters
        ----------
        function : callable
            Takes a batch and its file, and returns the columns to write, None for no rows.
        folder : DirectorySink
            The directory of the parts.

        Returns
        -------
        dict of future to Slot
            The place of the part that each task writes.
        """
        rows = [span.shards for span in self.spans] if self.kept is None else self.kept
        labels: dict[str, list[str]] = {}
        for file, label in map(_part_of, self.spans):
            labels.setdefault(file, []).append(label)
        folder.drop_stale(labels)
        submit = partial(self.client.submit, _write_part, pure=False)
        tasks: dict[Any, Slot] = {}
        for span, some in zip(self.spans, rows, strict=True):
            file, label = _part_of(span)
            if folder.is_finished(file, label):
                self.set_aside(folder.bad_rows(file, label))
            elif span.n_rows != 0:
                slot = folder.slot(file, label)
                target = folder.place(slot.file), folder.write_lock
                tasks[submit(function, some, file, *target, self.max_bad)] = slot
        return tasks

    def rows(self) -> tuple[Sequence[Any], list[Numbering]]:
        """Return the rows of each task and their numbering: files, unless they were read yet.

        Returns
        -------
        tuple of two lists
            The rows of each task (decoded on workers, or still in their files), and their
            numbering.
        """
        counts = [span.n_rows for span in self.spans if span.n_rows is not None]
        if self.kept is not None or self.tables or len(counts) < len(self.spans):
            return self.load(), self.numberings()
        if not any(counts):
            raise without_rows(self.name)
        return [span.shards for span in self.spans], self.numbered_by(counts)

    def numberings(self) -> list[Numbering]:
        """Return how the rows of each task, which are decoded, are numbered in the whole.

        Returns
        -------
        list of Numbering
            The offset of each task's rows in the whole.
        """
        return self.numbered_by([counts.n_rows for counts in self.counts])

    def numbered_by(self, sizes: Sequence[int]) -> list[Numbering]:
        """Return how rows are numbered where tasks have so many each.

        Parameters
        ----------
        sizes : sequence of int
            The number of rows of each task.

        Returns
        -------
        list of Numbering
            The offset of each task's rows in the whole.
        """
        firsts = [span.shards.first_row for span in self.spans] or [0] * len(sizes)
        return [
            Numbering(start - first, self.is_ids)
            for start, first in zip(accumulate(sizes, initial=0), firsts, strict=False)
        ]

    def in_order(
        self, tasks: Sequence[Callable[[], Any]], step: Callable[[int], None] = ignore
    ) -> Iterator[Any]:
        """Yield what tasks return, in order, with as many under way as the workers have threads.

        Parameters
        ----------
        tasks : sequence of callable
            Functions that submit a task and return its future.
        step : callable, optional
            Called with 1 after each finished task, to report progress.

        Yields
        ------
        object
            The result of the next task.
        """
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
                step(1)

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Say clearly that the cluster is gone, if it is.

        Yields
        ------
        None
            Inside the block, errors of a lost cluster become a `BadFileError`.
        """
        distributed = extra()
        address = self.client.scheduler.address if self.client.scheduler else "the Dask client"
        fix = "Restart the cluster, then the run"
        gone = BadFileError(self.name, f"the Dask scheduler at {address} went away", fix)
        if self.client.status != "running":
            raise gone
        try:
            yield
        except (CancelledError, OSError) as error:
            is_lost = isinstance(error, CancelledError | distributed.comm.CommClosedError)
            if not is_lost and self.client.status == "running":
                raise  # of a task, such as a disk that is full
            raise gone from error
        except ModuleNotFoundError as error:
            problem = f"the Dask workers lack a package ({error})"
            fix = "Install the same packages everywhere"
            raise BadFileError(self.name, problem, fix) from error
        except distributed.KilledWorker as error:
            problem = "workers died repeatedly on the same rows"
            raise BadFileError(self.name, problem, "Use workers with more memory") from error


def extra() -> Any:
    """Return the package of Dask that has clusters."""
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError("A Dask cluster", "dask") from error
    return distributed


def _part_of(span: FileSpan) -> tuple[str, str]:
    """Return the file of some rows, and what names them there."""
    return span.shards.source.name, f"from row {span.shards.first_row}"

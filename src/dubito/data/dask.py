"""Sums on a Dask cluster: rows stay on the workers, functions and states are sent."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import accumulate
from multiprocessing import resource_tracker
from typing import Any, final

from dubito.data import dask_tasks
from dubito.data.bad_rows import BadRow, BadRows
from dubito.data.batch import Batch
from dubito.data.columns import Columns
from dubito.data.dask_tasks import Counts, Elsewhere, Numbering
from dubito.data.directory_sink import DirectorySink, Slot
from dubito.data.files import FileSpan, scan, without_rows
from dubito.data.progress import ignore, started
from dubito.data.shards import Result, Shards, Sum
from dubito.data.sink import Sink
from dubito.data.sources.frames import TableSource
from dubito.errors import BadFileError, BadTypeError, BadValueError, MissingExtraError
from dubito.kernels.blocks import n_threads


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
def connected(address: str | None = None) -> Iterator[Any]:
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
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        fix = "Start `dask scheduler` and pass the address that it prints"
        where = "address", "Dask scheduler"
        raise BadValueError(*where, "must be reachable", address, fix) from error
    with client:
        _require_workers(client, address)
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


def _require_workers(client: Any, address: str) -> None:
    """Raise unless a worker has joined, or does so soon: without one, all would wait forever."""
    try:
        client.wait_for_workers(1, timeout=JOINING)
    except TimeoutError as error:
        rule, fix = "must be at least 1", f"Start `dask worker {address}` on each machine"
        raise BadValueError("workers", "Dask scheduler", rule, "0", fix) from error


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
        self.most = None if bad_rows is None else bad_rows.most
        self.spans: list[FileSpan] = []
        self.tables: list[Any] = []  # what makes the rows of each partition of a collection
        if dask_tasks.is_collection(source):
            from dask.delayed import delayed

            self.name = "the Dask collection"
            self.tables = dask_tasks.partitions_of(source, columns, self.most, delayed)
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
        """Have the workers decode all rows, if they have not yet; return what stands for them."""
        if self.kept is not None:
            return self.kept
        with self.reaching():
            if self.tables:
                kept: list[Any] = self.client.compute(self.tables)
            else:
                shards = [span.shards for span in self.spans]
                decoded = partial(dask_tasks.decoded, most=self.most)
                kept = self.client.map(decoded, shards, pure=False)
            self.tell(kept)
            self.counts = self.client.gather(self.client.map(dask_tasks.counted, kept, pure=False))
        if not any(counts.n_batches for counts in self.counts):
            raise without_rows(self.name)
        for counts in self.counts:
            self.set_aside(counts.bad)
        self.kept = kept
        return kept

    def set_aside(self, bad: Iterable[BadRow]) -> None:
        """Take up bad rows that a task found: those of one that ran twice are the same."""
        if self.bad_rows is not None:
            for one in bad:
                self.bad_rows.add(one)

    def tell(self, tasks: list[Any]) -> None:
        """Report each finished task to the progress listener."""
        step = started(self.name, "tasks", len(tasks))
        for task in tasks if step is not ignore else ():
            task.add_done_callback(lambda _: step(1))

    def parts(self) -> Iterator[Callable[[], Batch]]:
        for kept, numbering, counts in zip(
            self.load(), self.numberings(), self.counts, strict=True
        ):
            for k in range(counts.n_batches):
                yield partial(self.fetch, kept, k, numbering)

    def fetch(self, kept: Any, k: int, numbering: Numbering) -> Batch:
        """Return one of the batches of a task."""
        with self.reaching():
            batch: Batch = self.client.submit(dask_tasks.nth, kept, k, pure=False).result()
        return numbering.of(batch)

    def apply(self, function: Callable[[int, Batch], Result]) -> Iterator[Result]:
        kept = self.load()
        numbers = accumulate((counts.n_batches for counts in self.counts), initial=0)
        submit = partial(self.client.submit, dask_tasks.results, pure=False)
        tasks = [
            partial(submit, function, some, numbering, number)
            for some, numbering, number in zip(kept, self.numberings(), numbers, strict=False)
        ]
        step = started(self.name, "tasks", len(tasks))
        return (result for some in self.in_order(tasks, step) for result in some)

    def sum(self, function: Callable[[Batch], Sum]) -> Sum:
        kept = self.load()
        with self.reaching():
            level = firsts = self.client.map(
                partial(dask_tasks.added, function), kept, self.numberings(), pure=False, priority=1
            )
            self.tell(firsts)
            while len(level) > 1:
                groups = [level[k : k + FAN_IN] for k in range(0, len(level), FAN_IN)]
                level = self.client.map(dask_tasks.total, groups, pure=False, priority=2)
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
        submit = partial(self.client.submit, dask_tasks.columns_of, pure=False)
        tasks = [
            partial(submit, function, some, numbering, self.most)
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
        """Have the parts written that are not there yet; return tasks and the places of parts."""
        rows = [span.shards for span in self.spans] if self.kept is None else self.kept
        labels: dict[str, list[str]] = {}
        for file, label in map(_part_of, self.spans):
            labels.setdefault(file, []).append(label)
        folder.drop_stale(labels)
        submit = partial(self.client.submit, dask_tasks.write_part, pure=False)
        tasks: dict[Any, Slot] = {}
        for span, some in zip(self.spans, rows, strict=True):
            file, label = _part_of(span)
            if folder.is_finished(file, label):
                self.set_aside(folder.bad_rows(file, label))
            elif span.n_rows != 0:
                slot = folder.slot(file, label)
                target = folder.place(slot.file), folder.write_lock
                tasks[submit(function, some, file, *target, self.most)] = slot
        return tasks

    def rows(self) -> tuple[Sequence[Any], list[Numbering]]:
        """Return the rows of each task and their numbering: files, unless they were read yet."""
        counts = [span.n_rows for span in self.spans if span.n_rows is not None]
        if self.kept is not None or self.tables or len(counts) < len(self.spans):
            return self.load(), self.numberings()
        if not any(counts):
            raise without_rows(self.name)
        return [span.shards for span in self.spans], self.numbered_by(counts)

    def numberings(self) -> list[Numbering]:
        """Return how the rows of each task, which are decoded, are numbered in the whole."""
        return self.numbered_by([counts.n_rows for counts in self.counts])

    def numbered_by(self, sizes: Sequence[int]) -> list[Numbering]:
        """Return how rows are numbered where tasks have so many each."""
        firsts = [span.shards.first_row for span in self.spans] or [0] * len(sizes)
        return [
            Numbering(start - first, self.is_ids)
            for start, first in zip(accumulate(sizes, initial=0), firsts, strict=False)
        ]

    def in_order(
        self, tasks: Sequence[Callable[[], Any]], step: Callable[[int], None] = ignore
    ) -> Iterator[Any]:
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
                step(1)

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Say clearly that the cluster is gone, if it is."""
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

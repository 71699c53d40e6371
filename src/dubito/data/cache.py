"""A cache of decoded batches for fits that read them many times, in an unnamed temporary file."""

from __future__ import annotations

import mmap
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from threading import Lock
from time import perf_counter
from typing import IO, NamedTuple, final

import numpy as np

from dubito.data.batch import Batch
from dubito.data.files import FileShards
from dubito.data.shards import Shards
from dubito.data.sources.formats import TableSource

TRIAL_BYTES = 1 << 26  # after this much, the cache is kept only if it is faster
SPEED_UP = 1.5  # required speed-up of the cache over decoding
DISK_FRACTION = 0.5  # of the free space, at most
LINE = 64  # alignment of arrays in bytes


@contextmanager
def cached(shards: Shards) -> Iterator[Shards]:
    """Yield shards whose passes after the first read a cache, if they come from files.

    Text is always cached; other files only if decoding their first batches again is slower than
    the cache. The cache is removed when the block ends; the shards can still be read.
    """
    if not isinstance(shards, FileShards) or isinstance(shards.source, TableSource):
        yield shards
        return
    with closing(CachedShards(shards, is_tried=shards.source.has_types)) as kept:
        yield kept


class _CachedBatch(NamedTuple):
    """The position of a batch in the file: consecutive buffers, each aligned to 64 bytes."""

    start: int
    sizes: list[int]


@final
class BatchFile:
    """Batches in an unnamed temporary file, which disappears with its process.

    A loaded batch is a memory-mapped view of the file.

    >>> with closing(BatchFile()) as file:
    ...     _ = file.keep(0, Batch.of([1, 0], [0.8, 0.4]))
    ...     file.load(0).rows.correct.tolist()
    [1.0, 1.0]
    """

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(prefix="dubito-")  # noqa: SIM115
        self.most = int(DISK_FRACTION * shutil.disk_usage(tempfile.gettempdir()).free)
        self.entries: dict[int, _CachedBatch] = {}
        self.n_bytes = 0
        self.lock = Lock()

    def keep(self, number: int, batch: Batch) -> bool:
        """Write a batch; return whether there was room for it."""
        buffers: list[pickle.PickleBuffer] = []
        bare = batch.take(slice(None))  # without its row statistics
        head = pickle.dumps(bare, protocol=5, buffer_callback=buffers.append)
        views = [memoryview(head), *(buffer.raw() for buffer in buffers)]
        size = sum(_aligned(view.nbytes, LINE) for view in views)
        with self.lock:
            start = _aligned(self.n_bytes, mmap.ALLOCATIONGRANULARITY)
            if self.file.closed or start + size > self.most or not self.write(start, views):
                return False
            self.n_bytes = start + size
            self.entries[number] = _CachedBatch(start, [view.nbytes for view in views])
        return True

    def write(self, start: int, views: list[memoryview]) -> bool:
        """Write consecutive buffers; return whether that succeeded."""
        try:
            self.file.seek(start)
            for view in views:
                self.file.write(view)
                self.file.write(bytes(-view.nbytes % LINE))
            self.file.flush()
        except OSError:
            return False
        return True

    def load(self, number: int) -> Batch:
        """Return a stored batch."""
        start, sizes = self.entries[number]
        size = sum(_aligned(size, LINE) for size in sizes)
        with self.lock:  # the descriptor of a closed file may be reused
            mapped = mmap.mmap(self.file.fileno(), size, access=mmap.ACCESS_READ, offset=start)
        whole, views, low = memoryview(mapped), [], 0
        for length in sizes:
            views.append(whole[low : low + length])
            low += _aligned(length, LINE)
        head, *buffers = views
        batch: Batch = pickle.loads(head, buffers=buffers)
        return batch

    def close(self) -> None:
        """Free the space."""
        with self.lock:
            self.file.close()


@final
class CachedShards(Shards):
    """Other shards, whose first pass stores decoded batches in a file for all later ones.

    With `is_tried`, only if loading them turns out faster than decoding. If the disk is too full,
    or after `close`, rows are read from their source.

    Parameters
    ----------
    shards : Shards
        The rows, which are expensive to decode.
    is_tried : bool, default=False
        Measure during the first pass whether the cache is faster than decoding, and drop it if not.
    """

    def __init__(self, shards: Shards, *, is_tried: bool = False) -> None:
        self.shards = shards
        self.is_tried = is_tried
        self.is_used = True
        self.file: BatchFile | None = None
        self.n_batches: int | None = None  # known after the first full pass
        self.seconds_decoding = self.seconds_reading = 0.0

    @property
    def progress_name(self) -> str | None:
        return self.shards.progress_name

    def parts(self) -> Iterator[Callable[[], Batch]]:
        file = self.file
        if file is not None and len(file.entries) == self.n_batches:
            return (partial(file.load, number) for number in range(self.n_batches))
        return self.keeping_parts() if self.is_used else self.shards.parts()

    def keeping_parts(self) -> Iterator[Callable[[], Batch]]:
        """Yield functions that make each batch and store it.

        Yields
        ------
        callable
            Returns one batch, and stores it as a side effect.
        """
        self.drop()
        file = self.file = BatchFile()
        number, start = 0, perf_counter()
        for make in self.shards.parts():
            self.seconds_decoding += perf_counter() - start
            yield partial(self.kept, file, number, make)
            number, start = number + 1, perf_counter()
        self.n_batches = number

    def kept(self, file: BatchFile, number: int, make: Callable[[], Batch]) -> Batch:
        """Make a batch and store it, as long as the cache pays off.

        Parameters
        ----------
        file : BatchFile
            The cache.
        number : int
            The position of the batch.
        make : callable
            Decodes the batch.

        Returns
        -------
        Batch
            The decoded batch.
        """
        start = perf_counter()
        batch = make()
        if file.file.closed:
            return batch
        self.seconds_decoding += perf_counter() - start
        if not file.keep(number, batch):
            self.give_up()
        elif self.is_tried:
            self.try_out(file, number)
        return batch

    def try_out(self, file: BatchFile, number: int) -> None:
        """Load a batch again, and after some of them decide whether the cache pays off.

        Parameters
        ----------
        file : BatchFile
            The cache.
        number : int
            The position of the batch to load.
        """
        start = perf_counter()
        try:
            _touch(file.load(number))
        except ValueError:  # another thread has just closed the cache
            return
        self.seconds_reading += perf_counter() - start
        if file.n_bytes >= TRIAL_BYTES:
            self.is_tried = False
            if self.seconds_decoding < SPEED_UP * self.seconds_reading:
                self.give_up()

    def give_up(self) -> None:
        """Read rows from their source from now on."""
        self.is_used = False
        self.drop()

    def drop(self) -> None:
        """Free the space of the file."""
        if self.file is not None:
            self.file.close()
        self.file, self.n_batches = None, None

    close = give_up  # the rows can still be read, without the cache


def _touch(batch: Batch) -> None:
    """Load all memory pages of a batch."""
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(batch, protocol=5, buffer_callback=buffers.append)
    for buffer in buffers:
        np.frombuffer(buffer.raw(), np.uint8)[:: mmap.PAGESIZE].sum()


def _aligned(size: int, step: int) -> int:
    """Return a size rounded up to a multiple of `step`.

    >>> _aligned(65, 64)
    128
    """
    return -(-size // step) * step

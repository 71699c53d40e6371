"""What a fit reads many times is decoded once, and kept in a file that cannot be left behind."""

from __future__ import annotations

import mmap
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from time import perf_counter
from typing import IO, NamedTuple, final

import numpy as np

from dubito.data.batch import Batch
from dubito.data.files import FileShards
from dubito.data.shards import Shards
from dubito.data.sources.frames import TableSource

TRIAL_BYTES = 1 << 26  # after so many it is known whether reading them again is faster
SPEED_UP = 1.5  # how much faster it must be
SHARE_OF_DISK = 0.5  # of what is free, at most so much is taken
LINE = 64  # bytes, on which arrays begin


@contextmanager
def cached(shards: Shards) -> Iterator[Shards]:
    """Give shards whose passes after the first read a cache, where these come from files.

    Text is always kept; of other files the first batches tell whether decoding them again takes
    longer. The cache is gone when the block ends; the shards can still be read.
    """
    if not isinstance(shards, FileShards) or isinstance(shards.source, TableSource):
        yield shards
        return
    kept = CachedShards(shards, is_tried=shards.source.has_types)
    try:
        yield kept
    finally:
        kept.close()


class Entry(NamedTuple):
    """Where a batch is in the file: its buffers one after the other, each on a line of 64 bytes."""

    start: int
    sizes: list[int]


@final
class BatchFile:
    """Batches in a temporary file without a name: it goes with its process, however that ends.

    A batch that is read is a view of the file, mapped for as long as the batch is used.

    >>> with BatchFile() as file:
    ...     _ = file.keep(0, Batch.of([1, 0], [0.8, 0.4]))
    ...     file.load(0).rows.correct.tolist()
    [1.0, 1.0]
    """

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(prefix="dubito-")  # noqa: SIM115
        self.most = int(SHARE_OF_DISK * shutil.disk_usage(tempfile.gettempdir()).free)
        self.entries: dict[int, Entry] = {}
        self.n_bytes = 0
        self.lock = Lock()

    def keep(self, number: int, batch: Batch) -> bool:
        """Write a batch down; return whether there was room for it."""
        buffers: list[pickle.PickleBuffer] = []
        bare = batch.take(slice(None))  # without what was worked out of its rows
        head = pickle.dumps(bare, protocol=5, buffer_callback=buffers.append)
        views = [memoryview(head), *(buffer.raw() for buffer in buffers)]
        size = sum(_aligned(view.nbytes, LINE) for view in views)
        with self.lock:
            start = _aligned(self.n_bytes, mmap.ALLOCATIONGRANULARITY)
            if self.file.closed or start + size > self.most or not self.write(start, views):
                return False
            self.n_bytes = start + size
            self.entries[number] = Entry(start, [view.nbytes for view in views])
        return True

    def write(self, start: int, views: list[memoryview]) -> bool:
        """Write buffers one after the other; return whether the disk took them."""
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
        """Return a batch that was kept."""
        start, sizes = self.entries[number]
        size = sum(_aligned(size, LINE) for size in sizes)
        with self.lock:  # a number of a file that is closed may soon be that of another one
            mapped = mmap.mmap(self.file.fileno(), size, access=mmap.ACCESS_READ, offset=start)
        whole, views, low = memoryview(mapped), [], 0
        for length in sizes:
            views.append(whole[low : low + length])
            low += _aligned(length, LINE)
        head, *buffers = views
        batch: Batch = pickle.loads(head, buffers=buffers)
        return batch

    def close(self) -> None:
        """Give the space back."""
        with self.lock:
            self.file.close()

    def __enter__(self) -> BatchFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@final
class CachedShards(Shards):
    """Other shards, whose first pass keeps decoded batches in a file for all later ones.

    With `is_tried`, only where reading them again turns out faster than decoding. Where the disk
    is too full, or `close` was called, rows are read from where they came.
    """

    def __init__(self, shards: Shards, *, is_tried: bool = False) -> None:
        self.shards = shards
        self.is_tried = is_tried
        self.is_used = True
        self.file: BatchFile | None = None
        self.n_batches: int | None = None  # known when they were read to the end
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
        """Yield what makes each batch, and keeps it."""
        self.drop()
        file = self.file = BatchFile()
        number, start = 0, perf_counter()
        for make in self.shards.parts():
            self.seconds_decoding += perf_counter() - start
            yield partial(self.kept, file, number, make)
            number, start = number + 1, perf_counter()
        self.n_batches = number

    def kept(self, file: BatchFile, number: int, make: Callable[[], Batch]) -> Batch:
        """Make a batch and keep it, as long as that seems worth it."""
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
        """Read a batch again, and after some of them tell whether that is worth it."""
        start = perf_counter()
        try:
            _touch(file.load(number))
        except ValueError:  # another thread has just given up
            return
        self.seconds_reading += perf_counter() - start
        if file.n_bytes >= TRIAL_BYTES:
            self.is_tried = False
            if self.seconds_decoding < SPEED_UP * self.seconds_reading:
                self.give_up()

    def give_up(self) -> None:
        """Read rows from where they came from now on."""
        self.is_used = False
        self.drop()

    def drop(self) -> None:
        """Give the space of the file back."""
        if self.file is not None:
            self.file.close()
        self.file, self.n_batches = None, None

    close = give_up  # to whoever made them: the rows are still there, without the file


def _touch(batch: Batch) -> None:
    """Have a batch's pages read."""
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(batch, protocol=5, buffer_callback=buffers.append)
    for buffer in buffers:
        np.frombuffer(buffer.raw(), np.uint8)[:: mmap.PAGESIZE].sum()


def _aligned(size: int, step: int) -> int:
    """Return a size rounded up to whole steps.

    >>> _aligned(65, 64)
    128
    """
    return -(-size // step) * step

"""Blocks of rows over threads: the pool, single-threaded BLAS and reusable memory."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from ctypes import CDLL
from functools import cache, partial
from itertools import islice
from threading import Lock, local
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from dubito.errors import BadValueError


@contextmanager
def _single_products() -> Iterator[None]:
    """Limit BLAS to one thread until the last block that asked for it ends.

    The limit is global to the process: if several threads set and restored it independently, the
    last one would restore the value that another had set.
    """
    with INSIDE.lock:
        if not INSIDE.n_inside:
            _let_go()
            INSIDE.limits = _blas().limit(limits=1, user_api="blas")
        INSIDE.n_inside += 1
    try:
        yield
    finally:
        with INSIDE.lock:
            INSIDE.n_inside -= 1
            if not INSIDE.n_inside:
                _let_go()
                INSIDE.limits.restore_original_limits()
                _let_go()


class Inside:
    """The number of blocks that limit BLAS to one thread, and what restores the limit."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.n_inside = 0
        self.limits: Any = None


INSIDE = Inside()


@cache
def _blas() -> ThreadpoolController:
    """Return the controller of BLAS threads; finding the libraries is slow."""
    return ThreadpoolController()


def _let_go() -> None:
    """Let any thread set the limit, not only the first one.

    Since threadpoolctl 3.8, calls from other threads are silently ignored: limits set by a worker
    thread would have no effect, and those of a thread that has ended would persist.
    """
    for library in _blas().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


KEPT_BYTES = 32 << 20  # the largest allocation that glibc serves from retained memory
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # constants of malloc.h in glibc


@cache
def _keep_memory() -> None:
    """Let glibc retain freed memory for the next block instead of mapping fresh pages.

    Fresh pages cost as much as a pass over their content. Dask workers set a trim threshold of
    64 kB, with the same effect. Only glibc offers this option.
    """
    set_option: Any = getattr(CDLL(None), "mallopt", None) if os.name == "posix" else None
    if set_option is not None:
        set_option(M_MMAP_THRESHOLD, KEPT_BYTES)
        set_option(M_TRIM_THRESHOLD, 2 * KEPT_BYTES)


BLOCK_ENTRIES = 1 << 20  # 4 MB of float32: amortizes the overhead of a task, and fits in caches

# Not set in the threads of the pool itself: a nested map has threads of its own, if any.
KEPT: ContextVar[ThreadPoolExecutor | None] = ContextVar("kept", default=None)

NESTED = local()  # in a thread of a map: the number of threads of a nested map

Item = TypeVar("Item")
Result = TypeVar("Result")


def n_threads() -> int:
    """Return the number of threads that kernels may use; fewer inside a map."""
    if hasattr(NESTED, "n_threads"):
        return int(NESTED.n_threads)
    setting = _read_setting("DUBITO_THREADS", example=2)
    if setting is None and hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return setting or os.cpu_count() or 1


def block_entries() -> int:
    """Return how many entries of a matrix a block of rows has at most."""
    return _read_setting("DUBITO_BLOCK_ENTRIES", example=BLOCK_ENTRIES) or BLOCK_ENTRIES


def _read_setting(name: str, example: int) -> int | None:
    """Return a positive integer of the environment, None if it is not set."""
    setting = os.environ.get(name, "").strip()
    if not setting:
        return None
    if not setting.isdecimal() or int(setting) < 1:
        rule, fix = "must be a positive integer", f"Set {name}={example}"
        raise BadValueError(name, "The environment", rule, repr(setting), fix)
    return int(setting)


@contextmanager
def kept_threads() -> Iterator[None]:
    """Reuse one thread pool for all maps inside, and limit BLAS to one thread.

    For work that passes over blocks of rows many times, or multiplies matrices in them.
    """
    if KEPT.get() is not None:
        yield
        return
    with _single_products(), ThreadPoolExecutor(n_threads()) as pool:
        token = KEPT.set(pool)
        try:
            yield
        finally:
            KEPT.reset(token)


def row_blocks(n_rows: int, n_columns: int, most_entries: int | None = None) -> list[slice]:
    """Return the row ranges of blocks that cover `n_rows`; none for no rows.

    >>> row_blocks(3, 2)
    [slice(0, 3, None)]
    """
    limit = block_entries()
    step = max(1, min(most_entries or limit, limit) // max(n_columns, 1))
    return [slice(low, min(low + step, n_rows)) for low in range(0, n_rows, step)]


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], most_ahead: int | None = None
) -> Iterator[Result]:
    """Yield `function(item)` for each item in order, using threads, with few items in flight.

    A single item, or a single thread, runs in the caller's thread. `most_ahead` limits the items in
    flight where results are large. Nested maps use the threads that the items leave idle.
    """
    _keep_memory()
    threads = n_threads()
    n_ahead = min(2 * threads, most_ahead or 2 * threads)
    stream = iter(items)
    first = list(islice(stream, max(2, min(threads, n_ahead))))
    if threads == 1 or len(first) < 2:
        yield from map(function, first)
        yield from map(function, stream)
        return
    # A pool of its own, so that a process forked later never inherits threads that do not run.
    kept = KEPT.get()
    pool = kept or ThreadPoolExecutor(threads)
    is_left_early = False
    under_way: list[Future[Result]] = []
    work = partial(_run_nested, threads // len(first), function)
    try:
        under_way.extend(pool.submit(work, item) for item in first)
        while under_way:
            more = islice(stream, max(0, n_ahead - len(under_way)))
            under_way.extend(pool.submit(work, item) for item in more)
            yield under_way.pop(0).result()
    except GeneratorExit:
        # The garbage collector may close the generator while holding a lock that a thread needs.
        is_left_early = True
        raise
    finally:
        if kept is None:
            pool.shutdown(wait=not is_left_early, cancel_futures=True)
        for future in under_way:
            future.cancel()


def run_in_order(function: Callable[[Item], None], items: Iterable[Item]) -> None:
    """Call a function with each item as `map_in_order` does; the first error stops it."""
    for _ in map_in_order(function, items):
        pass


def _run_nested(threads: int, function: Callable[[Item], Result], item: Item) -> Result:
    """Return `function(item)` in a thread of a map, with the given threads for nested maps."""
    NESTED.n_threads = max(1, threads)
    return function(item)

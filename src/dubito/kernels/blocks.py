"""Rows in blocks of fixed size over threads: the thread pool, single-threaded matrix products, and reusable block memory."""

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
    """Keep matrix products to the thread they are asked in, until the last one inside has left.

    The number of their threads is one for the whole process: were it set and set back by several
    threads at once, the last to leave would set it back to what another had set.
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
    """How many want products on one thread, and what sets it back."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.n_inside = 0
        self.limits: Any = None


INSIDE = Inside()


@cache
def _blas() -> ThreadpoolController:
    """Return what sets the number of threads of matrix products; finding it takes a while."""
    return ThreadpoolController()


def _let_go() -> None:
    """Have any thread set the number, not only the one that did so first.

    From threadpoolctl 3.8 on the others are not heard, and not told: limits that a worker thread
    set would do nothing, and those of one that has left first would stay.
    """
    for library in _blas().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


KEPT_BYTES = 32 << 20  # the most that glibc takes from what it keeps
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as malloc.h of glibc numbers them


@cache
def _keep_memory() -> None:
    """Have freed memory kept for the next block, rather than fresh pages made for each.

    Those would take as long as a pass over what is in them. Workers of Dask are told to give back
    all that is free above 64 kB, which is the same. Only glibc can be told otherwise.
    """
    set_option: Any = getattr(CDLL(None), "mallopt", None) if os.name == "posix" else None
    if set_option is not None:
        set_option(M_MMAP_THRESHOLD, KEPT_BYTES)
        set_option(M_TRIM_THRESHOLD, 2 * KEPT_BYTES)


BLOCK_ENTRIES = 1 << 20  # 4 MB of float32: large against a task's overhead, small against memory

# Threads of the pool itself see none: a map inside a map has threads of its own, if any.
KEPT: ContextVar[ThreadPoolExecutor | None] = ContextVar("kept", default=None)

SHARE = local()  # in a thread of a map: how many threads a map inside it may use

Item = TypeVar("Item")
Result = TypeVar("Result")


def n_threads() -> int:
    """Return how many threads kernels may use; inside a map, the share of the thread that asks."""
    if hasattr(SHARE, "n_threads"):
        return int(SHARE.n_threads)
    wish = os.environ.get("DUBITO_THREADS", "").strip()
    if not wish:
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    if not wish.isdecimal() or int(wish) < 1:
        raise BadValueError(
            "DUBITO_THREADS",
            "The environment",
            "must be a positive integer",
            repr(wish),
            "Set DUBITO_THREADS=2",
        )
    return int(wish)


@contextmanager
def kept_threads() -> Iterator[None]:
    """Keep threads between the maps inside, and matrix products from starting more of their own.

    For work that goes over blocks of rows many times, or multiplies matrices there.
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


def row_blocks(n_rows: int, n_columns: int, block_entries: int | None = None) -> list[slice]:
    """Return the row ranges that together make up `n_rows`; none for no rows.

    >>> row_blocks(3, 2)
    [slice(0, 3, None)]
    """
    step = max(1, (block_entries or BLOCK_ENTRIES) // max(n_columns, 1))
    return [slice(low, min(low + step, n_rows)) for low in range(0, n_rows, step)]


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], most_ahead: int | None = None
) -> Iterator[Result]:
    """Yield `function` of each item in order, over threads, with few items under way at once.

    One item, or one thread, runs in the caller's thread. `most_ahead` is for results so large that
    two for each thread would be too many. Maps inside share the threads that the items leave idle.
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
    work = partial(_in_share, threads // len(first), function)
    try:
        under_way.extend(pool.submit(work, item) for item in first)
        while under_way:
            more = islice(stream, max(0, n_ahead - len(under_way)))
            under_way.extend(pool.submit(work, item) for item in more)
            yield under_way.pop(0).result()
    except GeneratorExit:
        # It may be the garbage collector that leaves, inside a lock that a thread needs to end.
        is_left_early = True
        raise
    finally:
        if kept is None:
            pool.shutdown(wait=not is_left_early, cancel_futures=True)
        for future in under_way:
            future.cancel()


def _in_share(share: int, function: Callable[[Item], Result], item: Item) -> Result:
    """Return `function` of an item, in a thread of a map that leaves it so many threads."""
    SHARE.n_threads = max(1, share)
    return function(item)

"""Matrix products on one thread each, for work that has its own threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["single_products"]


@contextmanager
def single_products() -> Iterator[None]:
    """Keep matrix products to the thread they are asked in, until the last one inside has left.

    The number of their threads is one for the whole process: were it set and set back by several
    threads at once, the last to leave would set it back to what another had set.
    """
    with INSIDE.lock:
        if not INSIDE.n_inside:
            let_go()
            INSIDE.limits = blas().limit(limits=1, user_api="blas")
        INSIDE.n_inside += 1
    try:
        yield
    finally:
        with INSIDE.lock:
            INSIDE.n_inside -= 1
            if not INSIDE.n_inside:
                let_go()
                INSIDE.limits.restore_original_limits()
                let_go()


class Inside:
    """How many want products on one thread, and what sets it back."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.n_inside = 0
        self.limits: Any = None


INSIDE = Inside()


@cache
def blas() -> ThreadpoolController:
    """Return what sets the number of threads of matrix products; finding it takes a while."""
    return ThreadpoolController()


def let_go() -> None:
    """Have any thread set the number, not only the one that did so first.

    From threadpoolctl 3.8 on the others are not heard, and not told: limits that a worker thread
    set would do nothing, and those of one that has left first would stay.
    """
    for library in blas().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)

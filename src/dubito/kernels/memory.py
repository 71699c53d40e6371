"""Memory of one block of rows, there for the next."""

import os
from ctypes import CDLL
from functools import cache
from typing import Any

__all__ = ["keep_memory"]

KEPT_BYTES = 32 << 20  # the most that glibc takes from what it keeps
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as malloc.h of glibc numbers them


@cache
def keep_memory() -> None:
    """Have freed memory kept for the next block, rather than fresh pages made for each.

    Those would take as long as a pass over what is in them. Workers of Dask are told to give back
    all that is free above 64 kB, which is the same. Only glibc can be told otherwise.
    """
    set_option: Any = getattr(CDLL(None), "mallopt", None) if os.name == "posix" else None
    if set_option is not None:
        set_option(M_MMAP_THRESHOLD, KEPT_BYTES)
        set_option(M_TRIM_THRESHOLD, 2 * KEPT_BYTES)

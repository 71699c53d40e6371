"""Freed memory is kept, also where the environment sets that it is returned."""

import multiprocessing
import resource
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from dubito.kernels.blocks import _keep_memory

WAIT = 60  # seconds until a test that hangs fails


def fresh_pages() -> int:
    """Return how many pages are made for 16 MB of arrays."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.ones(1 << 18) for _ in range(8)]
    assert sum(array.nbytes for array in arrays) == 1 << 24
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def least_fresh_pages() -> int:
    _keep_memory()
    fresh_pages()
    return min(fresh_pages() for _ in range(5))


@pytest.mark.slow
@pytest.mark.parametrize("trimmed", [None, "65536"], ids=["as it is", "as workers of Dask are"])
def test_memory_of_one_block_is_there_for_the_next(
    monkeypatch: pytest.MonkeyPatch, trimmed: str | None
) -> None:
    if trimmed is not None:
        monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", trimmed)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        made = process.submit(least_fresh_pages).result(WAIT)
    assert made < (1 << 24) // resource.getpagesize() // 4

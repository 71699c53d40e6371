"""Cached runs: an interrupted study resumes where it stopped."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_limits

Arrays = dict[str, npt.NDArray[Any]]
RunResult = Mapping[str, Any]  # what a run returns: metrics, lists and arrays by name
Setting = TypeVar("Setting")


def run_all(
    work: Callable[[Setting], RunResult],
    settings: Sequence[Setting],
    folder: Path,
    n_processes: int,
) -> dict[Setting, Arrays]:
    """Return the result of `work` for each setting, read from `folder` if it is cached.

    `work` is a module-level function, and a setting a frozen dataclass with everything that the
    run depends on: its repr is the cache key. Each process computes on one thread.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {setting: folder / file_name(setting) for setting in settings}
    missing = [setting for setting, path in paths.items() if not path.is_file()]
    for done in progress(run_missing(work, missing, n_processes), len(missing), len(settings)):
        setting, arrays = done
        save(paths[setting], arrays)
    return {setting: read(path) for setting, path in paths.items()}


def run_one(work: Callable[[Setting], RunResult], setting: Setting, folder: Path) -> Arrays:
    """Return the result of `work` for one setting, read from `folder` if it is cached.

    For studies that build on the runs of another.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(setting)
    if not path.is_file():
        save(path, on_one_thread(work, setting))
    return read(path)


def run_missing(
    work: Callable[[Setting], RunResult], settings: Sequence[Setting], n_processes: int
) -> Iterable[tuple[Setting, RunResult]]:
    """Yield each setting with its result, in the order in which they finish."""
    if n_processes == 1 or len(settings) < 2:
        yield from ((setting, on_one_thread(work, setting)) for setting in settings)
        return
    # A process forked after PyTorch started its threads may hang, so spawn instead.
    pool = ProcessPoolExecutor(n_processes, mp_context=get_context("spawn"))
    with pool:
        calls = {pool.submit(partial(on_one_thread, work), one): one for one in settings}
        for call in as_completed(calls):
            yield calls[call], call.result()


def on_one_thread(work: Callable[[Setting], RunResult], setting: Setting) -> RunResult:
    """Return the result of `work` for a setting, computed on one thread."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            return work(setting)
    finally:
        torch.set_num_threads(n_threads)


def progress(
    done: Iterable[tuple[Setting, RunResult]], n_missing: int, n_all: int
) -> Iterable[tuple[Setting, RunResult]]:
    """Yield the finished runs, and print the progress."""
    if n_missing < n_all:
        print_progress(f"{n_all - n_missing} of {n_all} runs were cached")
    start = time.monotonic()
    for count, one in enumerate(done, start=1):
        yield one
        left = (time.monotonic() - start) / count * (n_missing - count) / 60
        print_progress(
            f"{n_all - n_missing + count} of {n_all} runs done, about {left:.0f} min left"
        )


def print_progress(text: str) -> None:
    """Print a line to standard error."""
    print(text, file=sys.stderr, flush=True)


def file_name(setting: object) -> str:
    """Return a file name that is unique to a setting."""
    text = repr(setting)
    readable = re.sub(r"[^\w.=-]+", "_", text)[:80].strip("_")
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.npz"


def save(path: Path, found: RunResult) -> None:
    """Write the result of a run atomically."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        arrays: Arrays = {name: np.asarray(value) for name, value in found.items()}
        np.savez_compressed(file, allow_pickle=False, **arrays)
    draft.replace(path)


def read(path: Path) -> Arrays:
    """Read a cached run."""
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)

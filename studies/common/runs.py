"""Runs that are kept when they are done: a study that was stopped goes on where it was."""

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
Found = Mapping[str, Any]  # what a run returns: figures, lists and arrays by name
Setting = TypeVar("Setting")


def run_all(
    work: Callable[[Setting], Found], settings: Sequence[Setting], folder: Path, n_processes: int
) -> dict[Setting, Arrays]:
    """Return what `work` makes of each setting, read from `folder` where it was done before.

    `work` is a function of a module, and a setting a frozen dataclass that says all that the run
    depends on: its text is what a kept run is found by. Each process computes on one thread.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {setting: folder / file_name(setting) for setting in settings}
    missing = [setting for setting, path in paths.items() if not path.is_file()]
    for done in progress(made(work, missing, n_processes), len(missing), len(settings)):
        setting, arrays = done
        keep(paths[setting], arrays)
    return {setting: read(path) for setting, path in paths.items()}


def run_one(work: Callable[[Setting], Found], setting: Setting, folder: Path) -> Arrays:
    """Return what `work` makes of one setting, read from `folder` where it was done before.

    For studies that build upon the runs of another.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(setting)
    if not path.is_file():
        keep(path, on_one_thread(work, setting))
    return read(path)


def made(
    work: Callable[[Setting], Found], settings: Sequence[Setting], n_processes: int
) -> Iterable[tuple[Setting, Found]]:
    """Yield each setting with what `work` makes of it, as they get ready."""
    if n_processes == 1 or len(settings) < 2:
        yield from ((setting, on_one_thread(work, setting)) for setting in settings)
        return
    # A process that was forked after PyTorch started its threads may hang: spawn.
    pool = ProcessPoolExecutor(n_processes, mp_context=get_context("spawn"))
    with pool:
        calls = {pool.submit(partial(on_one_thread, work), one): one for one in settings}
        for call in as_completed(calls):
            yield calls[call], call.result()


def on_one_thread(work: Callable[[Setting], Found], setting: Setting) -> Found:
    """Return what `work` makes of a setting, computed on one thread."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            return work(setting)
    finally:
        torch.set_num_threads(n_threads)


def progress(
    done: Iterable[tuple[Setting, Found]], n_missing: int, n_all: int
) -> Iterable[tuple[Setting, Found]]:
    """Pass on what is done, and say how much is left."""
    if n_missing < n_all:
        say(f"{n_all - n_missing} of {n_all} runs were done before")
    start = time.monotonic()
    for count, one in enumerate(done, start=1):
        yield one
        left = (time.monotonic() - start) / count * (n_missing - count) / 60
        say(f"{n_all - n_missing + count} of {n_all} runs done, about {left:.0f} min left")


def say(text: str) -> None:
    """Write a line for people who wait."""
    print(text, file=sys.stderr, flush=True)


def file_name(setting: object) -> str:
    """Return a name that tells a setting from all others."""
    text = repr(setting)
    readable = re.sub(r"[^\w.=-]+", "_", text)[:80].strip("_")
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.npz"


def keep(path: Path, found: Found) -> None:
    """Write a run, whole or not at all."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        arrays: Arrays = {name: np.asarray(value) for name, value in found.items()}
        np.savez_compressed(file, allow_pickle=False, **arrays)
    draft.replace(path)


def read(path: Path) -> Arrays:
    """Return a run that was kept."""
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)

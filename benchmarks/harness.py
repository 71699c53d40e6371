"""Runs calibration methods in processes of their own, with the same number of threads."""

import io
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from benchmarks.ours import BASELINES, OURS
from benchmarks.peers import PEERS, Method
from dubito import TopLabel, __version__
from dubito.arrays import FloatArray, IntArray
from dubito.measure import expected_calibration_error

__all__ = [
    "METHODS",
    "N_BINS",
    "N_THREADS",
    "Figures",
    "evaluate",
    "in_fresh_process",
    "in_fresh_processes",
    "other_cpu_seconds",
    "run_quietly",
    "timed",
    "versions",
]

METHODS: dict[str, Method] = {**OURS, **BASELINES, **PEERS}
N_BINS = 15
N_THREADS = 2
FLOOR = 1e-12  # a probability of 0 for the true class counts as this, for every method
THREAD_SETTINGS = (
    "DUBITO_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
)
PACKAGES = (
    *("scikit-learn", "netcal", "probmetrics", "torchmetrics", "torch", "scipy"),
    *("betacal", "venn-abers", "catboost", "lightgbm"),
)

Result = TypeVar("Result")


class Figures(NamedTuple):
    """Metrics of probabilities; `torchmetrics_ece` is NaN if torchmetrics is not installed."""

    log_loss: float
    brier: float
    ece: float
    torchmetrics_ece: float


def in_fresh_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function in a new process, in which nothing is loaded or cached."""
    (result,) = in_fresh_processes(function, [arguments])
    return result


def in_fresh_processes(
    function: Callable[..., Result],
    calls: Iterable[tuple[Any, ...]],
    n_processes: int = 1,
    n_threads: int = N_THREADS,
) -> Iterator[Result]:
    """Call a function with different arguments, each in a new process; yield results in order."""
    kept = {name: os.environ.get(name) for name in THREAD_SETTINGS}
    os.environ.update(dict.fromkeys(THREAD_SETTINGS, str(n_threads)))
    try:
        spawn = get_context("spawn")
        with ProcessPoolExecutor(n_processes, spawn, max_tasks_per_child=1) as pool:
            waiting = [pool.submit(run_quietly, function, *arguments) for arguments in calls]
            for one in waiting:
                yield one.result()
    finally:
        for name, value in kept.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def run_quietly(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function without the progress bars and warnings of peers."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            return function(*arguments)


def timed(call: Callable[[], Result]) -> tuple[float, Result]:
    """Return the seconds that a call takes, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def other_cpu_seconds() -> float:
    """Return the CPU seconds that all other processes have used so far (Linux).

    Threads that wait for each other may take fifty times as long if another process uses a core:
    times are meaningful only if this hardly grows.
    """
    ticks = [int(text) for text in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    mine = os.times()
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK") - mine.user - mine.system


def evaluate(probabilities: FloatArray, y: IntArray) -> Figures:
    """Return the metrics of probabilities, computed the same way for every method."""
    rows = np.arange(y.size)
    label = probabilities[rows, y].astype(np.float64)
    loss = float(-np.log(np.clip(label, FLOOR, 1)).mean())
    squares = np.einsum("ij,ij->i", probabilities, probabilities, dtype=np.float64)
    brier = float((squares - 2 * label + 1).mean())
    if not np.isfinite(loss + brier):
        return Figures(np.inf, np.inf, np.inf, np.nan)
    top = probabilities.argmax(axis=1)
    confidence = np.clip(probabilities[rows, top], 0, 1)
    ece = expected_calibration_error(None, TopLabel(confidence, top == y), n_bins=N_BINS)
    return Figures(loss, brier, ece, torchmetrics_ece(probabilities, y))


def torchmetrics_ece(probabilities: FloatArray, y: IntArray) -> float:
    """Return the expected calibration error of torchmetrics."""
    if not find_spec("torchmetrics"):
        return np.nan
    import torch
    from torchmetrics.functional.classification import multiclass_calibration_error

    inputs = torch.from_numpy(np.clip(probabilities, 0, 1))
    n_classes = probabilities.shape[1]
    return float(multiclass_calibration_error(inputs, torch.from_numpy(y), n_classes, N_BINS))


def versions(n_threads: int = N_THREADS) -> str:
    """Return the versions of all packages, and the number of threads."""
    found = [f"dubito {__version__}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return f"{', '.join(found)}; {n_threads} thread{'s' * (n_threads > 1)}"

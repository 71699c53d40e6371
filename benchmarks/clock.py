"""Time and memory of a call, measured in the same way for all libraries."""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

__all__ = ["best_times", "peak_growth", "resident"]


def best_times(
    calls: Mapping[str, Callable[[], object]],
    n_times: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the minimum seconds of several alternating calls of each function.

    The minimum is least affected by noise; alternating exposes all functions to the same noise.
    With `clock=time.process_time` these are CPU seconds of all threads.
    """
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(n_times):
        for name, call in calls.items():
            start = clock()
            call()
            best[name] = min(best[name], clock() - start)
    return best


def peak_growth(function: Callable[[], object]) -> float:
    """Return the increase of the peak resident memory of this process by a call, in MB (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = resident("VmRSS")
    function()
    return resident("VmHWM") - before


def resident(field: str) -> float:
    """Return one of the process's memory values in MB."""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024

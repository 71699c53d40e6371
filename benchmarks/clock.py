"""Time and memory of a call, measured the same way for everyone."""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

__all__ = ["best_times", "peak_growth", "resident"]


def best_times(calls: Mapping[str, Callable[[], object]], n_times: int) -> dict[str, float]:
    """Return the least seconds of several calls of each, taken in turn.

    The least is what is left when the machine's noise is not; in turn, noise meets all alike.
    """
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(n_times):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def peak_growth(function: Callable[[], object]) -> float:
    """Return by how many MB a call raises the memory this process holds, at its peak (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = resident("VmRSS")
    function()
    return resident("VmHWM") - before


def resident(field: str) -> float:
    """Return a figure of the process's memory in MB."""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024

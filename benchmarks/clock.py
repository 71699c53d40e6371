"""Time and memory of a call, measured the same way for everyone."""

import re
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["best_time", "peak_growth"]


def best_time(function: Callable[[], object], n_times: int) -> float:
    """Return the least seconds of several calls: what is left when the machine's noise is not."""
    seconds = []
    for _ in range(n_times):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


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

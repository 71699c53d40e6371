"""The command line with its defaults on a Parquet file of many rows, next to reading the file.

    python -m benchmarks.many_rows                # 5,000,000 x 10 float32 columns, 260 MB
    python -m benchmarks.many_rows --quick        # 20,000 rows
    python -m benchmarks.many_rows --calibrator TemperatureScaling    # the same, lighter to fit

Each command runs in a process of its own, start-up included, one after the other. "x read" is its
time relative to `pyarrow.parquet.read_table` of the same file, also in a process of its own, its
start-up left out. CPU seconds and peak memory are those of the process.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyarrow import parquet

from benchmarks.datasets import generate_logits
from dubito.kernels.blocks import n_threads

__all__ = ["main"]

N_CLASSES = 10
READ = """
import sys, time
from pyarrow import parquet
start = time.perf_counter()
parquet.read_table(sys.argv[1])
print(time.perf_counter() - start)
"""


class Usage(NamedTuple):
    """What a process took: seconds on the clock and of the processor, and its peak memory in MB."""

    wall: float
    cpu: float
    peak: float


def write_rows(path: Path, n_rows: int) -> None:
    """Write logits and labels of an over-confident model, in the row groups of pyarrow."""
    logits, labels = generate_logits(n_rows, N_CLASSES)
    columns = {f"logit_{k}": logits[:, k] for k in range(N_CLASSES)}
    parquet.write_table(pa.table({**columns, "label": labels}), path)


def run(*words: str) -> Usage:
    """Run a command of dubito, and return what it took; raise if it fails."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "dubito", *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return Usage(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def seconds_to_read(path: Path) -> float:
    """Return how long pyarrow takes to read the file, the best of three."""
    command = [sys.executable, "-c", READ, str(path)]
    calls = (subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(3))
    return min(float(call.stdout) for call in calls)


def measure(folder: Path, n_rows: int, calibrator: str) -> Iterator[str]:
    """Yield the lines of the table."""
    path, policy = folder / "rows.parquet", str(folder / "policy.json")
    # In another process, whose memory this one would hand on to its children's peak.
    writer = get_context("spawn").Process(target=write_rows, args=(path, n_rows))
    writer.start()
    writer.join()
    read = seconds_to_read(path)
    size = path.stat().st_size / 2**20
    yield f"{n_rows:,} x {N_CLASSES} float32 columns, {size:,.0f} MB, {n_threads()} threads"
    yield f"pyarrow.parquet.read_table: {read:.2f} s"
    yield f"{'':<30} {'seconds':>9} {'CPU s':>8} {'peak MB':>9} {'x read':>8}"
    decide = ("decide", policy, str(path), "-o", str(folder / "decisions.parquet"))
    commands = {
        "audit": ("audit", str(path)),
        "audit -o report.html": ("audit", str(path), "-o", str(folder / "report.html")),
        f"fit, {calibrator}": (
            *("fit", str(path), "--reject-cost", "0.3"),
            *("--calibrator", calibrator, "-o", policy),
        ),
        "decide": decide,
        "decide --with-probabilities": (*decide, "--with-probabilities"),
    }
    for name, words in commands.items():
        used = run(*words)
        yield (
            f"{name:<30} {used.wall:>9.1f} {used.cpu:>8.1f} {used.peak:>9,.0f} "
            f"{used.wall / read:>8.1f}"
        )


def main() -> None:
    """Print the table."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rows", type=int, default=5_000_000, help="the number of rows")
    parser.add_argument("--quick", action="store_true", help="20,000 rows")
    parser.add_argument("--calibrator", default="auto", help="as in `dubito fit`")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dubito-rows-") as folder:
        n_rows = 20_000 if given.quick else given.rows
        for line in measure(Path(folder), n_rows, given.calibrator):
            print(line, flush=True)


if __name__ == "__main__":
    main()

"""The command line with its defaults on a Parquet file of many rows, next to reading the file.

    python -m benchmarks.many_rows                # 5,000,000 x 10 float32 columns, 220 MB
    python -m benchmarks.many_rows --quick        # 20,000 rows
    python -m benchmarks.many_rows --calibrator TemperatureScaling    # the same, lighter to fit

Each command runs in a process of its own, start-up included, one after the other, and once on fewer
rows before, which compiles the kernels. "x read" is its time relative to
`pyarrow.parquet.read_table` of the same file, also in a process of its own, its start-up left out.
CPU seconds and peak memory are those of the process.
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

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from dubito.arrays import FloatArray, IntArray
from dubito.data.samples import load_fashion_mnist
from dubito.kernels.blocks import n_threads

__all__ = ["main"]

N_CLASSES = 10
N_PLACES, WIDTH = 40, 6.0  # where the model is off, and how far around
GROUP_ROWS = 1 << 20
WARM_ROWS = 50_000  # above what is sampled
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


def some_rows(n_rows: int, seed: int = 0) -> tuple[FloatArray, IntArray]:
    """Return logits of an over-confident model, and labels.

    The logits are those of the sample that ships with dubito, and of two more classes, with noise.
    The model is off by a temperature, and in some places more than in others: a good default
    calibrator needs parts of every kind.
    """
    rng, sample = np.random.default_rng(seed), load_fashion_mnist()
    known = np.concatenate([sample.validation_logits, sample.test_logits])
    fixed = np.random.default_rng(0)
    centers = with_two_more(known[fixed.integers(0, len(known), N_PLACES)], fixed)
    heights = 3 * fixed.standard_normal((N_PLACES, N_CLASSES))
    z = with_two_more(known[rng.integers(0, len(known), n_rows)], rng)
    z += rng.standard_normal(z.shape, np.float32)
    squares = (z**2).sum(axis=1, keepdims=True) - 2 * z @ centers.T + (centers**2).sum(axis=1)
    scores = z / 2 + np.exp(-squares / (2 * WIDTH**2)) @ heights
    return z, (scores + rng.gumbel(size=z.shape)).argmax(axis=1)


def with_two_more(logits: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return logits with two more classes, which look like others of other rows."""
    others = logits[rng.permutation(len(logits))][:, :2] - 2
    return np.concatenate([logits, others], axis=1)


def write_rows(path: Path, n_rows: int) -> None:
    """Write rows as a user would have them, in the row groups that pyarrow makes by default."""
    names = [f"logit_{k}" for k in range(N_CLASSES)]
    schema = pa.schema([*((name, pa.float32()) for name in names), ("label", pa.int64())])
    with parquet.ParquetWriter(path, schema) as writer:
        for seed, low in enumerate(range(0, n_rows, GROUP_ROWS)):
            logits, labels = some_rows(min(GROUP_ROWS, n_rows - low), seed + 1)
            columns = dict(zip(names, logits.T, strict=True))
            writer.write_table(pa.table({**columns, "label": labels}, schema))


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


def commands(folder: Path, calibrator: str) -> dict[str, tuple[str, ...]]:
    """Return the words of each command by its name in the table."""
    path, policy = str(folder / "rows.parquet"), str(folder / "policy.json")
    decide = ("decide", policy, path, "-o", str(folder / "decisions.parquet"))
    costs = ("--reject-cost", "0.3")
    return {
        "audit": ("audit", path),
        "audit -o report.html": ("audit", path, "-o", str(folder / "report.html")),
        f"fit, {calibrator}": ("fit", path, *costs, "--calibrator", calibrator, "-o", policy),
        "decide": decide,
        "decide --columns '', no proba": (*decide, "--columns", "", "--no-probabilities"),
    }


def measure(folder: Path, n_rows: int, calibrator: str) -> Iterator[str]:
    """Yield the lines of the table."""
    path = folder / "rows.parquet"
    for n_written in (min(n_rows, WARM_ROWS), n_rows):
        # In another process, whose memory this one would hand on to its children's peak.
        writer = get_context("spawn").Process(target=write_rows, args=(path, n_written))
        writer.start()
        writer.join()
        if n_written < n_rows:
            for words in commands(folder, calibrator).values():
                run(*words)
    read = seconds_to_read(path)
    size = path.stat().st_size / 2**20
    yield f"{n_rows:,} x {N_CLASSES} float32 columns, {size:,.0f} MB, {n_threads()} threads"
    yield f"pyarrow.parquet.read_table: {read:.2f} s"
    yield f"{'':<30} {'seconds':>9} {'CPU s':>8} {'peak MB':>9} {'x read':>8}"
    for name, words in commands(folder, calibrator).items():
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

"""Audit, temperature and decisions of Parquet files, compared with pyarrow's readers in one run.

    python -m benchmarks.scale    # 20,000,000 x 10, 10,000,000 x 100 and 1,000,000 x 1,000
    python -m benchmarks.scale --rows 100000000    # this many x 10; less than an hour
    python -m benchmarks.scale --quick             # a few thousand

Files are created one at a time in the temporary directory (`TMPDIR`) and deleted afterwards. This
needs about 170 bytes of free space for each of the `--rows`, including a fit's cache and the
decisions, and 10 GB for 1,000,000 x 1,000. A pass reads, validates and sums every row, and "read
and validate" only counts them; "x batches" and "x scanner" are its throughput relative to pyarrow's
two readers of the same columns of the same file: `ParquetFile.iter_batches`, and the dataset
scanner, which reads ahead in threads. Calls alternate. A policy has one action per tenth of the
classes. Memory is the peak of a separate process. Fewer threads, the cluster and alternatives are
measured on up to 20,000,000 rows.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from unittest.mock import patch

import numpy as np

from benchmarks.clock import best_times
from benchmarks.scale_cluster import timed, workers_table
from benchmarks.scale_peers import peers_table
from benchmarks.scale_rows import (
    LISTS,
    PLAIN,
    WIDE,
    WIDER,
    Shape,
    read_by_batches,
    read_by_scanner,
    write_rows,
)
from benchmarks.scale_work import policy_of, steps
from dubito.calibrate import TemperatureScaling
from dubito.calibrate.temperature import temperature_sums
from dubito.data import Batch, scan
from dubito.kernels.blocks import n_threads
from dubito.measure import AuditState

__all__ = ["main"]

MAX_ENTRIES, MAX_SHARED = 1_000_000_000, 20_000_000  # maximum size of the other tables
BY_BATCHES, BY_SCANNER = "pyarrow, iter_batches", "pyarrow, dataset scanner"


def passes(path: Path, shape: Shape) -> dict[str, Callable[[], object]]:
    """Return the passes that are compared with reading."""
    shards = scan(path, shape.columns)
    policy = policy_of(shards, TemperatureScaling(), shape.n_classes)

    def decided(batch: Batch) -> int:
        return len(policy.decide(batch.outputs))

    return {
        BY_BATCHES: lambda: read_by_batches(path),
        BY_SCANNER: lambda: read_by_scanner(path),
        "read and validate": lambda: shards.sum(len),
        "audit": lambda: shards.sum(lambda batch: AuditState.of(batch, is_gridded=True)),
        "one round of a fit": lambda: shards.sum(lambda batch: temperature_sums(batch, 0.5)),
        "decide, no writing": lambda: shards.sum(decided),
    }


def passes_table(path: Path, shape: Shape, n_rows: int, n_times: int) -> str:
    """Return a table of the throughput of each pass relative to pyarrow."""
    best = best_times(passes(path, shape), n_times)
    lines = [f"{shape.title}, {n_rows:,} rows, {path.stat().st_size / 2**20:,.0f} MB"]
    heads = f"{'seconds':>9} {'million rows/s':>15} {'x batches':>10} {'x scanner':>10}"
    lines.append(f"{'':<24} {heads}")
    for name, seconds in best.items():
        rate, ratios = (
            n_rows / seconds / 1e6,
            (best[BY_BATCHES] / seconds, best[BY_SCANNER] / seconds),
        )
        lines.append(
            f"{name:<24} {seconds:>9.3f} {rate:>15.2f} {ratios[0]:>10.2f} {ratios[1]:>10.2f}"
        )
    return "\n".join(lines)


def threads_table(path: Path, n_rows: int, n_times: int) -> str:
    """Return a table of the throughput of each pass by the number of threads."""
    names = ["read and validate", "audit", "one round of a fit", "decide, no writing"]
    most, best = n_threads(), {}
    for threads in (1, most):
        with patch.dict(os.environ, {"DUBITO_THREADS": str(threads)}):
            all_passes = passes(path, PLAIN)
            best[threads] = best_times({name: all_passes[name] for name in names}, n_times)
    lines = [f"{PLAIN.title}, {n_rows:,} rows, million rows/s by threads"]
    lines.append(f"{'':<24} {'1 thread':>9} {f'{most} threads':>10} {'speed-up':>9}")
    for name in names:
        one, all_ = (n_rows / best[threads][name] / 1e6 for threads in (1, most))
        lines.append(f"{name:<24} {one:>9.2f} {all_:>10.2f} {all_ / one:>9.2f}")
    return "\n".join(lines)


def growth_table(seconds: Mapping[int, Mapping[str, float]]) -> str:
    """Return how time grows with rows: a fixed time, a time per row, and an exponent.

    The line minimizes relative errors, so that small files determine the fixed time.
    """
    sizes = np.array(list(seconds), dtype=np.float64)
    head = " ".join(f"{int(size):>12,}" for size in sizes)
    lines = [f"{'seconds for rows':<24} {head} {'fixed s':>8} {'ns per row':>9} {'power':>6}"]
    for name in next(iter(seconds.values())):
        taken = np.array([seconds[size][name] for size in seconds])
        slope, fixed = np.maximum(np.polyfit(sizes, taken, 1, w=1 / taken), 0.0)
        power = float(np.polyfit(np.log(sizes), np.log(taken), 1)[0])
        columns = " ".join(f"{one:>12.2f}" for one in taken)
        lines.append(f"{name:<24} {columns} {fixed:>8.2f} {slope * 1e9:>9.0f} {power:>6.2f}")
    return "\n".join(lines)


def memory_line(path: Path, shape: Shape) -> str:
    """Return the peak memory of audit, temperature and decisions in a separate process."""
    command = [sys.executable, "-m", "benchmarks.scale_work", str(path), shape.title]
    peak = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return f"audit, temperature and decisions: {peak:,.0f} MB peak memory"


def sizes(n_rows: int) -> list[int]:
    """Return the numbers of rows for measuring growth: from a million up, if possible."""
    return [min(n_rows // 16, 1_000_000), n_rows // 4, n_rows // 2, n_rows]


def measure(folder: Path, n_rows: int, n_times: int) -> Iterator[str]:
    """Yield all tables."""
    path, output = folder / "rows.parquet", folder / "decisions.parquet"
    for shape in (LISTS, PLAIN):
        write_rows(path, min(n_rows, 20_000), shape)
        timed(steps(path, shape, output))  # loads the kernels
        seconds = {}
        for size in sizes(n_rows):
            write_rows(path, size, shape)
            seconds[size] = timed(steps(path, shape, output))
        output.unlink()
        yield passes_table(path, shape, n_rows, n_times)
        yield memory_line(path, shape)
        yield growth_table(seconds)
    n_shared = min(n_rows, MAX_SHARED)
    if n_shared < n_rows:
        write_rows(path, n_shared, PLAIN)
    yield threads_table(path, n_shared, n_times)
    yield peers_table(path, n_shared)
    yield workers_table(path, PLAIN, n_shared, n_times)
    for shape in (WIDE, WIDER):
        n_wide = min(n_rows * 50, MAX_ENTRIES) // shape.n_classes
        write_rows(path, n_wide, shape)
        yield passes_table(path, shape, n_wide, n_times)
        yield memory_line(path, shape)


def main() -> None:
    """Print the tables."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rows", type=int, default=20_000_000, help="the most rows of ten classes")
    parser.add_argument("--quick", action="store_true", help="8,000 rows")
    parser.add_argument("-o", "--output", type=Path, help="a file for the tables")
    given = parser.parse_args()
    n_rows, n_times = (8_000, 1) if given.quick else (given.rows, 3)
    start = time.perf_counter()
    tables = [f"up to {n_rows:,} rows of float32 logits, {n_threads()} threads"]
    print(tables[0])
    with tempfile.TemporaryDirectory(prefix="dubito-scale-") as folder:
        for table in measure(Path(folder), n_rows, n_times):
            print(f"\n{table}", flush=True)
            tables.append(table)
    print(f"\nall of it took {time.perf_counter() - start:.0f} s")
    if given.output is not None:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text("\n\n".join(tables) + "\n")


if __name__ == "__main__":
    main()

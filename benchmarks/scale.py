"""Audit, temperature and decisions of Parquet files, beside pyarrow's own reading, in one run.

    python -m benchmarks.scale                     # up to 20,000,000 x 10, a cluster of 1 and of 2
    python -m benchmarks.scale --rows 100000000    # up to so many
    python -m benchmarks.scale --quick             # a few thousand

Files are made first and deleted last, in a temporary folder: about 60 bytes a row and layout. A
pass reads, checks and sums every row, and "read and check" only counts them; "x pyarrow" is its
rate beside `iter_batches` over the same columns of the same file, taken in turn. Memory is the peak
that this process held.
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.clock import best_times
from dubito.calibrate import TemperatureScaling
from dubito.data import Batch, Columns, DaskShards, FileShards, Shards, Sink, scan
from dubito.decide import CostMatrix, Policy
from dubito.decide.deciding import write_decisions
from dubito.kernels.blocks import n_threads
from dubito.measure import Audit, AuditState

__all__ = ["main"]

N_CLASSES = 10
LAYOUTS = {
    "fixed-size lists": Columns(label="y", logits="logits"),
    "plain columns": Columns(label="y", logits="logit_*"),
}
GROUP_ROWS = 1 << 18  # a row group of the files that are made


def table_of(n_rows: int, seed: int, layout: str) -> pa.Table:
    """Return rows of a model that is too sure."""
    rng = np.random.default_rng(seed)
    logits = 3 * rng.standard_normal((n_rows, N_CLASSES), dtype=np.float32)
    y = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    if layout == "fixed-size lists":
        lists = pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), N_CLASSES)
        return pa.table({"y": y, "logits": lists})
    columns = {f"logit_{k}": logits[:, k] for k in range(N_CLASSES)}
    return pa.table({"y": y, **columns})


def write_rows(path: Path, n_rows: int, layout: str) -> None:
    """Write so many rows, a row group at a time."""
    with parquet.ParquetWriter(path, table_of(1, 0, layout).schema) as writer:
        for low in range(0, n_rows, GROUP_ROWS):
            writer.write_table(table_of(min(GROUP_ROWS, n_rows - low), low, layout))


def read_by_pyarrow(path: Path) -> int:
    """Read all columns as pyarrow does it, batch by batch."""
    with parquet.ParquetFile(path) as file:
        return sum(batch.num_rows for batch in file.iter_batches())


def policy_of(shards: Shards, temperature: TemperatureScaling) -> Policy:
    """Return a policy of some rows, with the temperature of all."""
    costs = CostMatrix.zero_one(N_CLASSES).with_reject(0.4)
    first = next(shards.batches()).take(slice(0, 5_000))
    assert first.truth is not None
    return Policy.fit(first.outputs, first.truth, costs=costs, calibrator=temperature)


def passes(shards: FileShards, policy: Policy) -> dict[str, Callable[[], object]]:
    """Return the passes that are compared with reading alone."""

    def decided(batch: Batch) -> int:
        return len(policy.decide(batch.outputs))

    return {
        "read and check": lambda: shards.sum(len),
        "audit": lambda: shards.sum(lambda batch: AuditState.of(batch, is_gridded=True)),
        "one round of a fit": lambda: shards.sum(lambda batch: batch.rows.confidence.sum()),
        "decide, not written": lambda: shards.sum(decided),
    }


def print_passes(path: Path, layout: str, n_rows: int, n_times: int) -> None:
    """Print the rate of each pass beside that of pyarrow."""
    shards = scan(path, LAYOUTS[layout])
    policy = policy_of(shards, TemperatureScaling())
    calls = {"pyarrow": lambda: read_by_pyarrow(path), **passes(shards, policy)}
    best = best_times(calls, n_times)
    print(f"\n{layout}, {n_rows:,} rows, {path.stat().st_size / 2**20:.0f} MB")
    print(f"{'':<24} {'seconds':>9} {'million rows/s':>15} {'x pyarrow':>10}")
    for name, seconds in best.items():
        rate = n_rows / seconds / 1e6
        print(f"{name:<24} {seconds:>9.3f} {rate:>15.1f} {best['pyarrow'] / seconds:>10.2f}")


def steps(path: Path, layout: str, output: Path) -> dict[str, float]:
    """Return the seconds of a whole audit, of a fit, and of decisions that are written."""
    shards = scan(path, LAYOUTS[layout])
    temperature = TemperatureScaling()
    policy = policy_of(shards, TemperatureScaling())

    def write() -> int:
        with Sink(output) as sink:
            return write_decisions(policy, shards, sink)

    return timed(
        {
            "audit": lambda: Audit.of(shards, n_resamples=0),
            "temperature": lambda: temperature.fit(shards),
            "decide and write": write,
        }
    )


def timed(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return the seconds of one call of each."""
    return {name: best_times({name: call}, 1)[name] for name, call in calls.items()}


def print_growth(seconds: Mapping[int, Mapping[str, float]]) -> None:
    """Print what more rows cost, and the power of their number that time grows with."""
    sizes = np.array(list(seconds))
    print(f"\n{'seconds for rows':<24} " + " ".join(f"{size:>12,}" for size in sizes) + "   power")
    for name in next(iter(seconds.values())):
        taken = np.array([seconds[size][name] for size in seconds])
        power = float(np.polyfit(np.log(sizes), np.log(taken), 1)[0])
        print(f"{name:<24} " + " ".join(f"{one:>12.2f}" for one in taken) + f" {power:>7.2f}")


def on_cluster(path: Path, layout: str, n_workers: int) -> dict[str, float]:
    """Return the seconds of work on a cluster of so many processes of one thread each."""
    import distributed

    local: Any = distributed.LocalCluster
    client_of: Any = distributed.Client
    cluster = local(
        n_workers=n_workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None,
        silence_logs=50,
    )  # fmt: skip
    with cluster, client_of(cluster) as client:
        client.run(os.environ.__setitem__, "DUBITO_THREADS", "1")
        warm = DaskShards(client, path.with_name("warm.parquet"), LAYOUTS[layout])
        TemperatureScaling().fit(warm)  # loads the kernels
        Audit.of(warm, n_resamples=0)
        shards = DaskShards(client, path, LAYOUTS[layout])
        return timed(
            {
                "decode": shards.load,
                "audit": lambda: Audit.of(shards, n_resamples=0),
                "temperature": lambda: TemperatureScaling().fit(shards),
            }
        )


def print_workers(path: Path, layout: str, n_rows: int) -> None:
    """Print what a second worker is worth."""
    write_rows(path.with_name("warm.parquet"), 20_000, layout)
    one, two = (on_cluster(path, layout, n_workers) for n_workers in (1, 2))
    one["together"], two["together"] = sum(one.values()), sum(two.values())
    print(f"\n{layout}, {n_rows:,} rows on a cluster")
    print(f"{'':<24} {'1 worker':>9} {'2 workers':>10} {'speed-up':>9}")
    for name in one:
        print(f"{name:<24} {one[name]:>9.2f} {two[name]:>10.2f} {one[name] / two[name]:>9.2f}")


def measure(folder: Path, sizes: list[int], n_times: int) -> None:
    """Print all tables."""
    for layout in LAYOUTS:
        seconds = {}
        for n_rows in sizes:
            path = folder / "rows.parquet"
            write_rows(path, n_rows, layout)
            steps(folder / "rows.parquet", layout, folder / "decisions.parquet")  # loads kernels
            seconds[n_rows] = steps(path, layout, folder / "decisions.parquet")
        print_passes(path, layout, sizes[-1], n_times)
        print_growth(seconds)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"\npeak of memory held, all of the above: {held:,.0f} MB")
    print_workers(path, layout, sizes[-1])


def sizes_up_to(n_rows: int) -> list[int]:
    """Return four sizes, each twice the one before."""
    return [n_rows // 8, n_rows // 4, n_rows // 2, n_rows]


def main() -> None:
    """Print the tables."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rows", type=int, default=20_000_000, help="the most rows")
    parser.add_argument("--quick", action="store_true", help="8,000 rows")
    given = parser.parse_args()
    n_rows, n_times = (8_000, 1) if given.quick else (given.rows, 3)
    start = time.perf_counter()
    print(f"up to {n_rows:,} x {N_CLASSES} float32 logits, {n_threads()} threads")
    with tempfile.TemporaryDirectory(prefix="dubito-scale-") as folder:
        measure(Path(folder), sizes_up_to(n_rows), n_times)
    print(f"all of it took {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()

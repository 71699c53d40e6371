"""The speedup from a second worker of a local Dask cluster."""

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.clock import best_times
from benchmarks.scale_rows import Shape, write_rows
from benchmarks.scale_work import policy_of
from dubito.calibrate import TemperatureScaling
from dubito.data import DaskShards
from dubito.data.directory_sink import DirectorySink
from dubito.decide.policy.table import decision_columns
from dubito.measure import Audit

__all__ = ["timed", "workers_table"]

N_WARM = 20_000  # warm-up rows, so that kernels are loaded


def timed(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return the seconds of one call of each, in order."""
    return {name: best_times({name: call}, 1)[name] for name, call in calls.items()}


def work(client: Any, path: Path, shape: Shape, output: Path) -> dict[str, Callable[[], object]]:
    """Return the functions timed on a cluster; rows are decoded once, and again for decisions."""
    shards = DaskShards(client, path, shape.columns)
    policy = policy_of(DaskShards(client, warm_file(path), shape.columns), TemperatureScaling(), 10)

    def decide() -> object:
        again = DaskShards(client, path, shape.columns)
        folder = DirectorySink(output, settings={})
        return again.write_parts(partial(decision_columns, policy), folder)

    return {
        "decode": shards.load,
        "audit": lambda: Audit.of(shards, n_resamples=0),
        "temperature": lambda: TemperatureScaling().fit(shards),
        "decide and write parts": decide,
    }


def warm_file(path: Path) -> Path:
    """Return the location of the warm-up rows."""
    return path.with_name("warm.parquet")


def on_cluster(path: Path, shape: Shape, n_workers: int, n_times: int) -> dict[str, float]:
    """Return the minimum seconds of work on a cluster of single-threaded processes."""
    import distributed

    local: Any = distributed.LocalCluster
    client_of: Any = distributed.Client
    cluster = local(
        n_workers=n_workers, threads_per_worker=1, host="127.0.0.1", silence_logs=50,
        dashboard_address="127.0.0.1:0", env={"DUBITO_THREADS": "1"},
    )  # fmt: skip
    with cluster, client_of(cluster) as client:
        turns = []
        for file in [warm_file(path)] + [path] * n_times:
            with tempfile.TemporaryDirectory(dir=path.parent) as output:
                turns.append(timed(work(client, file, shape, Path(output, "decisions"))))
    return {name: min(turn[name] for turn in turns[1:]) for name in turns[0]}


def workers_table(path: Path, shape: Shape, n_rows: int, n_times: int) -> str:
    """Return a table that compares one worker with two."""
    write_rows(warm_file(path), min(N_WARM, n_rows), shape)
    one, two = (on_cluster(path, shape, n_workers, n_times) for n_workers in (1, 2))
    one["together"], two["together"] = sum(one.values()), sum(two.values())
    lines = [f"{shape.title}, {n_rows:,} rows on a cluster of single-thread processes"]
    lines.append(f"{'seconds':<24} {'1 worker':>9} {'2 workers':>10} {'speed-up':>9}")
    for name in one:
        ratio = one[name] / two[name]
        lines.append(f"{name:<24} {one[name]:>9.2f} {two[name]:>10.2f} {ratio:>9.2f}")
    return "\n".join(lines)

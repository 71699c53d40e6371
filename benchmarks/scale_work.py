"""Audit, temperature and decisions of one file, and their peak memory.

    python -m benchmarks.scale_work rows.parquet "10 scalar columns"

Started by `benchmarks.scale` in a separate process; prints the peak resident memory in MB.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.clock import resident
from benchmarks.scale_rows import SHAPES, Shape
from dubito.calibrate import TemperatureScaling
from dubito.data import Shards, Sink, scan
from dubito.decide import CostMatrix, Policy
from dubito.decide.policy.table import write_decisions
from dubito.measure import Audit

__all__ = ["main", "policy_of", "steps"]

N_ACTIONS = 10


def policy_of(shards: Shards, temperature: TemperatureScaling, n_classes: int) -> Policy:
    """Return a policy fitted on the first rows: one action per tenth of the classes, and reject."""
    tenth = np.arange(n_classes) * N_ACTIONS // n_classes
    wrong = tenth != np.arange(N_ACTIONS)[:, np.newaxis]
    costs = CostMatrix(wrong.astype(float)).with_reject(0.4)
    first = next(shards.batches()).take(slice(0, 5_000))
    assert first.labels is not None
    return Policy.fit(first.outputs, first.labels, costs=costs, calibrator=temperature)


def steps(path: Path, shape: Shape, output: Path) -> dict[str, Callable[[], object]]:
    """Return the steps: an audit, a fit, and decisions written to disk."""
    shards = scan(path, shape.columns)
    temperature = TemperatureScaling()
    policy = policy_of(shards, TemperatureScaling(), shape.n_classes)

    def write() -> int:
        with Sink(output) as sink:
            return write_decisions(policy, shards, sink)

    return {
        "audit": lambda: Audit.of(shards, n_resamples=0),
        "temperature": lambda: temperature.fit(shards),
        "decide and write": write,
    }


def main() -> None:
    """Run all steps, and print the peak memory."""
    path, title = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        for step in steps(Path(path), SHAPES[title], Path(folder) / "decisions.parquet").values():
            step()
    # Not `ru_maxrss`: that includes the peak of the parent process.
    print(resident("VmHWM"))


if __name__ == "__main__":
    main()

"""Audit, temperature and decisions of one file, and the peak of memory they take in all.

    python -m benchmarks.scale_work rows.parquet "10 plain columns"

Started by `benchmarks.scale` in a process of its own; prints the MB that were resident at most.
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
from dubito.decide.policy.policy import write_decisions
from dubito.measure import Audit

__all__ = ["main", "policy_of", "steps"]

N_ACTIONS = 10


def policy_of(shards: Shards, temperature: TemperatureScaling, n_classes: int) -> Policy:
    """Return a policy of the first rows: an action for each tenth of the classes, and to ask."""
    tenth = np.arange(n_classes) * N_ACTIONS // n_classes
    wrong = tenth != np.arange(N_ACTIONS)[:, np.newaxis]
    costs = CostMatrix(wrong.astype(float)).with_reject(0.4)
    first = next(shards.batches()).take(slice(0, 5_000))
    assert first.labels is not None
    return Policy.fit(first.outputs, first.labels, costs=costs, calibrator=temperature)


def steps(path: Path, shape: Shape, output: Path) -> dict[str, Callable[[], object]]:
    """Return a whole audit, a fit, and decisions that are written."""
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
    """Take all steps, and print the peak of memory."""
    path, title = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        for step in steps(Path(path), SHAPES[title], Path(folder) / "decisions.parquet").values():
            step()
    # Not `ru_maxrss`: that starts with the peak of whoever started this process.
    print(resident("VmHWM"))


if __name__ == "__main__":
    main()

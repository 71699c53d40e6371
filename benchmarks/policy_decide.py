"""Deciding a million rows by a policy, beside one softmax of SciPy, in one run.

    python -m benchmarks.policy_decide            # 1,000,000 x 10 float32 logits, 38 MB
    python -m benchmarks.policy_decide --quick    # a hundredth of it

A policy calibrates, weighs costs, rejects rows, and gives the value of reviewing them. Its
decisions by temperature are compared with SciPy's first. "auto" is the default calibrator, whose
choice is printed; the two mixtures have three parts each, as many as it may choose, without and
with a forest and radial basis functions. SciPy's softmax takes one thread, which the ratios of CPU
seconds account for. Memory is the peak above what was there, less the decisions that come out.
"""

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
from scipy.special import softmax

from benchmarks.clock import best_times, peak_growth
from dubito import Logits
from dubito.arrays import FloatArray, IntArray
from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
    ForestCalibration,
    IsotonicCalibration,
    OneVsRest,
    StructuredMatrixScaling,
    TemperatureScaling,
    VectorScaling,
)
from dubito.calibrate.auto import _FixedMixture
from dubito.decide import CostMatrix, Decisions, Policy
from dubito.errors import DubitoWarning
from dubito.kernels.blocks import n_threads

__all__ = ["main"]

SCIPY = "scipy.special.softmax"
N_KNOWN = 5_000  # rows that policies are fitted on
REJECT_COST = 0.73
CALIBRATORS: dict[str, BaseCalibrator] = {
    "temperature": TemperatureScaling(),
    "vector": VectorScaling(),
    "structured matrix": StructuredMatrixScaling(),
    "auto": AutoCalibrator(),
    "smooth mixture": _FixedMixture(
        [
            VectorScaling(regularization=1.0, input="log_proba"),
            StructuredMatrixScaling(regularization=3.0, basis="spline"),
            OneVsRest(IsotonicCalibration()),
        ],
        np.array([0.2, 0.5, 0.3]),
        uniform_weight=0.01,
    ),
    "forest and RBF mixture": _FixedMixture(
        [
            StructuredMatrixScaling(regularization=3.0, basis="spline"),
            ForestCalibration(),
            StructuredMatrixScaling(regularization=0.3, basis="rbf"),
        ],
        np.array([0.4, 0.3, 0.3]),
        uniform_weight=0.01,
    ),
}


def some_rows(n_rows: int, n_classes: int = 10) -> tuple[FloatArray, IntArray]:
    """Return logits of a model that is too sure, and labels."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((n_rows, n_classes), dtype=np.float32)
    return logits, (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)


def fitted(calibrator: BaseCalibrator, n_rows: int = N_KNOWN) -> Policy:
    """Return a policy that rejects a part of the rows."""
    logits, y = some_rows(n_rows)
    costs = CostMatrix.zero_one(logits.shape[1]).with_reject(REJECT_COST)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DubitoWarning)
        return Policy.fit(Logits(logits), y, costs=costs, calibrator=calibrator)


def of_scipy(logits: FloatArray, temperature: float) -> IntArray:
    """Return the actions of least cost, the usual way."""
    p = softmax(logits / temperature, axis=1)
    is_asked = 1 - p.max(axis=1) >= REJECT_COST
    return np.asarray(np.where(is_asked, p.shape[1], p.argmax(axis=1)))


def disagreement(policy: Policy, logits: FloatArray) -> float:
    """Return the fraction of rows where a policy by temperature and SciPy in float64 differ."""
    scaling = policy.calibrator
    assert isinstance(scaling, TemperatureScaling)
    theirs = of_scipy(logits.astype(np.float64), scaling.temperature_)
    return float((policy.decide(Logits(logits)).action != theirs).mean())


def size_of(decisions: Decisions) -> float:
    """Return how many MB decisions take."""
    columns = (
        decisions.action,
        decisions.predicted_class,
        decisions.probability,
        decisions.expected_cost,
        decisions.reason,
        decisions.review_value,
    )
    return sum(column.nbytes for column in columns) / 2**20


def main() -> None:
    """Print the table."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the rows")
    is_quick = parser.parse_args().quick
    logits, _ = some_rows(10_000 if is_quick else 1_000_000)
    outputs = Logits(logits)
    n_known = 500 if is_quick else N_KNOWN
    policies = {name: fitted(one, n_known) for name, one in CALIBRATORS.items()}
    first = policies["temperature"]
    decisions = first.decide(outputs)  # loads or compiles the kernels, too
    n_rows, n_classes = logits.shape
    print(f"{n_rows:,} x {n_classes} float32 logits, {n_threads()} threads")
    print(f"rejected by temperature: {decisions.is_rejected.mean():.1%} of rows")
    print(f"actions off SciPy's in float64: {disagreement(first, logits):.4%} of rows")
    out = size_of(decisions)

    def decide(policy: Policy) -> Callable[[], object]:
        return lambda: policy.decide(outputs)

    calls: dict[str, Callable[[], object]] = {SCIPY: lambda: softmax(logits, axis=1)}
    calls |= {f"Policy.decide, {name}": decide(policy) for name, policy in policies.items()}
    print(f"auto: {policies['auto'].calibrator.summary()}")
    for call in calls.values():
        call()
    growth = {name: peak_growth(call) for name, call in calls.items()}
    best, cpu = best_times(calls, 9), best_times(calls, 9, time.process_time)
    print(f"\n{'':<38} {'seconds':>9} {'x softmax':>10} {'x CPU':>7} {'memory above':>14}")
    for name, seconds in best.items():
        above = growth[name] - (logits.nbytes / 2**20 if name == SCIPY else out)
        ratios = f"{seconds / best[SCIPY]:>10.1f} {cpu[name] / cpu[SCIPY]:>7.1f}"
        print(f"{name:<38} {seconds:>9.4f} {ratios} {max(above, 0):>11.0f} MB")
    print(f"\nlogits {logits.nbytes / 2**20:.0f} MB in, decisions {out:.0f} MB out")


if __name__ == "__main__":
    main()

"""Every metric of a large matrix of logits, compared with numpy.sum and with peers in one run.

    python -m benchmarks.row_pass            # 50,000 x 1,000 float32 logits, 200 MB
    python -m benchmarks.row_pass --quick    # a hundredth of the size

"First five" are accuracy, log loss, Brier, ECE and mean entropy, including validation of the input.
The full audit adds debiased, smooth and class-wise errors, the calibration test, risk-coverage and
the ranking of errors. Peers get ready-made probabilities, and are left out if not installed.
"""

import argparse
import warnings
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from benchmarks.clock import best_times, peak_growth
from dubito import Logits
from dubito.arrays import FloatArray, IntArray
from dubito.data import Batch
from dubito.kernels.blocks import n_threads
from dubito.measure import (
    ProperScoresState,
    ReliabilityState,
    audit,
    confidence_interval,
    expected_calibration_error,
    log_loss,
)

__all__ = ["main"]

N_RESAMPLES = 1000


def logits_and_labels(n_rows: int, n_classes: int) -> tuple[FloatArray, IntArray]:
    """Return logits of a model with an accuracy of about 75 %."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((n_rows, n_classes), dtype=np.float32)
    logits *= 2
    y = rng.integers(0, n_classes, n_rows)
    logits[np.arange(n_rows), y] += 12 * (rng.random(n_rows) < 0.76).astype(np.float32)
    return logits, y


def ours(logits: FloatArray, y: IntArray) -> dict[str, Callable[[], object]]:
    """Return the functions of dubito that are timed."""

    def first_five() -> object:
        batch = Batch.of(y, Logits(logits))
        scores, bins = ProperScoresState.of(batch), ReliabilityState.of(batch)
        return scores.value, bins.expected()

    def full_audit() -> object:
        return audit(y, Logits(logits), n_resamples=0)

    return {"dubito, first five metrics": first_five, "dubito, full audit": full_audit}


def peers(logits: FloatArray, y: IntArray) -> dict[str, Callable[[], object]]:
    """Return the peers that compute some of these metrics."""
    calls: dict[str, Callable[[], object]] = {}
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    labels = np.arange(logits.shape[1])
    if find_spec("sklearn"):
        from sklearn import metrics

        calls["scikit-learn log_loss"] = lambda: metrics.log_loss(y, probabilities, labels=labels)
        calls["scikit-learn brier_score_loss"] = lambda: metrics.brier_score_loss(
            y, probabilities, labels=labels
        )
    if find_spec("torchmetrics"):
        import torch
        from torchmetrics.functional.classification import multiclass_calibration_error

        tensor, target = torch.from_numpy(probabilities), torch.from_numpy(y)
        calls["torchmetrics ECE"] = lambda: multiclass_calibration_error(
            tensor, target, labels.size, n_bins=15
        )
    return calls


def main() -> None:
    """Print the table."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the rows")
    n_rows, n_classes = (500 if parser.parse_args().quick else 50_000), 1_000
    logits, y = logits_and_labels(n_rows, n_classes)
    megabytes = logits.nbytes / 2**20
    calls = ours(logits, y)
    for call in ours(logits[:100], y[:100]).values():
        call()  # loads or compiles the kernels
    growth = {name: peak_growth(call) for name, call in calls.items()}
    best = best_times({"numpy.sum": logits.sum, **calls}, 15)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a peer's warning about float32 sums is irrelevant here
        theirs = best_times(peers(logits, y), 1)
    theirs["other libraries, total"] = sum(theirs.values())
    print(f"{n_rows:,} x {n_classes:,} float32 logits, {megabytes:.0f} MB, {n_threads()} threads\n")
    print(f"{'':<32} {'seconds':>9} {'x numpy.sum':>12} {'peak memory':>14}")
    for name, seconds in {**best, **theirs}.items():
        memory = f"{growth[name] / megabytes:+.1%}" if name in growth else ""
        ratio = seconds / best["numpy.sum"]
        print(f"{name:<32} {seconds:>9.4f} {ratio:>12.1f} {memory:>14}".rstrip())
    print_bootstrap(logits, y)


def print_bootstrap(logits: FloatArray, y: IntArray) -> None:
    """Print the time of intervals, including the one pass over the matrix that each needs."""
    few = Logits(logits[:, :10])
    for metric in (expected_calibration_error, log_loss):
        interval = confidence_interval(metric, y % 10, few, n_resamples=40)
        assert interval.low <= interval.high

    def both() -> object:
        return [
            confidence_interval(metric, y, Logits(logits), n_resamples=N_RESAMPLES)
            for metric in (expected_calibration_error, log_loss)
        ]

    together = best_times({"both": both}, 3)["both"]
    print(f"\n{N_RESAMPLES:,} resamples of ECE and of log loss, both: {together:.3f} s")


if __name__ == "__main__":
    main()

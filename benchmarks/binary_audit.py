"""The audit of two classes, compared with the metrics of scikit-learn in one run.

    python -m benchmarks.binary_audit            # 50,000 rows, 2 % of them positive
    python -m benchmarks.binary_audit --quick    # a tenth of the rows

Scikit-learn computes roc_auc_score, average_precision_score and calibration_curve. The point
figures of dubito are those of the positive class with analytic intervals: base rate, ROC-AUC,
average precision, slope, intercept, Brier skill score, reliability in bins, gains and confusion
matrix. The full audit adds the metrics of the top label. Seconds are CPU seconds of all threads,
the minimum of several alternating calls.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
from sklearn.calibration import calibration_curve
from sklearn.metrics import average_precision_score, roc_auc_score

from benchmarks.clock import best_times
from dubito import Probabilities, audit
from dubito.arrays import FloatArray, IntArray
from dubito.data import Batch
from dubito.measure import BinaryAudit
from dubito.measure.binary import rank_positives

__all__ = ["main"]

N_TIMES = 7
MAX_RATIO = 3.0
MAX_SECONDS = 1.0


def rare(n_rows: int) -> tuple[IntArray, FloatArray]:
    """Return labels, about 2 % of them positive, and probabilities that are too extreme."""
    rng = np.random.default_rng(0)
    odds = rng.normal(-5, 1.5, n_rows)
    y = (rng.random(n_rows) < 1 / (1 + np.exp(-0.9 * odds))).astype(int)
    p = 1 / (1 + np.exp(-odds))
    return y, np.column_stack([1 - p, p])


def calls(y: IntArray, table: FloatArray) -> dict[str, Callable[[], object]]:
    """Return what is timed."""
    p = table[:, 1].copy()

    def theirs() -> object:
        ranking = roc_auc_score(y, p), average_precision_score(y, p)
        return ranking, calibration_curve(y, p, n_bins=10, strategy="quantile")

    def positive() -> object:
        return BinaryAudit.of(rank_positives(Batch.of(y, Probabilities(table))))

    return {
        "scikit-learn": theirs,
        "dubito, point figures": positive,
        "dubito, full audit": lambda: audit(y, Probabilities(table), n_resamples=0),
        "dubito, with bootstrap": lambda: audit(y, Probabilities(table)),
    }


def main() -> None:
    """Print the table."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    n_rows = 5_000 if parser.parse_args().quick else 50_000
    timed = calls(*rare(n_rows))
    for call in timed.values():
        call()  # loads or compiles the kernels
    best = best_times(timed, N_TIMES, time.process_time)
    reference = best["scikit-learn"]
    print(f"{n_rows:,} x 2 probabilities, CPU seconds, minimum of {N_TIMES}\n")
    print(f"{'':<24} {'seconds':>9} {'x scikit-learn':>15}")
    for name, seconds in best.items():
        print(f"{name:<24} {seconds:>9.4f} {seconds / reference:>15.2f}")
    drawn = best["dubito, with bootstrap"] - best["dubito, full audit"]
    ratio = best["dubito, point figures"] / reference
    print(f"\npoint figures: {ratio:.2f} x scikit-learn (at most {MAX_RATIO:g})")
    print(f"bootstrap intervals: {drawn:.3f} s (at most {MAX_SECONDS:g})")


if __name__ == "__main__":
    main()

"""Do dubito's intervals and its calibration test have their nominal coverage and level?

    python -m studies.interval_coverage            # 500 sets of 2,000 rows, some minutes
    python -m studies.interval_coverage --quick    # 20 sets

Simulated models of 10 classes, right in about three rows of four: one perfectly calibrated, one
with logits multiplied by 1.2. The truth of each figure is taken from two million further rows.
"""

import argparse
from functools import partial

import numpy as np

from dubito import Logits
from dubito.arrays import FloatArray, IntArray
from dubito.measure import calibration_test, confidence_interval
from dubito.measure.intervals import CATALOG

METRICS = [
    "log_loss",
    "brier_score",
    "accuracy",
    "expected_calibration_error",
    "debiased_calibration_error",
]
N_ROWS = 2000


def simulated(rng: np.random.Generator, n_rows: int) -> tuple[FloatArray, IntArray]:
    """Return logits, and labels drawn from their softmax."""
    logits = rng.normal(0, 4.5, (n_rows, 10))
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    cumulative = exponentials.cumsum(axis=1)
    draw = rng.random((n_rows, 1)) * cumulative[:, -1:]
    return logits, (cumulative < draw).sum(axis=1)


def main() -> None:
    """Print the coverage of the intervals, and the rejection rate of the test."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="20 sets instead of 500")
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=METRICS)
    options = parser.parse_args()
    n_sets, n_truth = (20, 100_000) if options.quick else (500, 2_000_000)
    rng = np.random.default_rng(0)
    logits, y = simulated(rng, n_truth)
    sets = [simulated(rng, N_ROWS) for _ in range(n_sets)]
    print(f"{n_sets} sets of {N_ROWS:,} rows, 10 classes; intervals of 95 %, 200 resamples\n")
    print(f"{'':<30} {'calibrated':>22} {'logits x 1.2':>22}")
    print(f"{'':<30} {'truth':>11} {'held':>10} {'truth':>11} {'held':>10}")
    for name in options.metrics:
        line = f"{name:<30}"
        for scale in (1.0, 1.2):
            metric = CATALOG[name].function
            truth = metric(y, Logits(scale * logits))
            of = partial(confidence_interval, metric, n_resamples=200)
            intervals = [of(labels, Logits(scale * z)) for z, labels in sets]
            held = np.mean([one.low <= truth <= one.high for one in intervals])
            line += f" {truth:>11.4f} {held:>10.1%}"
        print(line, flush=True)
    for scale, words in ((1.0, "calibrated"), (1.2, "logits x 1.2")):
        p_values = [calibration_test(labels, Logits(scale * z)).p_value for z, labels in sets]
        rejected = np.mean(np.array(p_values) < 0.05)
        print(f"\ncalibration test at 5 %, {words}: rejects {rejected:.1%}", end="")
    right = np.mean([(z.argmax(axis=1) == labels).mean() for z, labels in sets])
    print(f"\n\naccuracy of these models: {right:.3f}")


if __name__ == "__main__":
    main()

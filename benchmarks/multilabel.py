"""Calibration and risk control of several labels per row, beside the usual methods.

    python -m benchmarks.multilabel FOLDER           # the files multilabel_*.npz of a folder
    python -m benchmarks.multilabel FOLDER --json    # the figures as JSON
    python -m benchmarks.multilabel --quick          # a small generated set

A file holds probs_cal, labels_cal, probs_test and labels_test, each rows x labels. Methods are
fitted on the first two, label by label except for the temperature, and evaluated on the others:
log loss, Brier score and ECE with 15 equal-width bins of the probability, means over labels.
A probability of 0 for what occurred counts as 1e-12. Seconds are CPU seconds.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.calibration import _SigmoidCalibration

from dubito import MultiLabel
from dubito.arrays import FloatArray
from dubito.calibrate import (
    BetaCalibration,
    IsotonicCalibration,
    MultiLabelCalibrator,
    PlattScaling,
)
from dubito.calibrate.binary import BaseBinaryCalibrator

__all__ = ["main"]

OURS = "MultiLabelCalibrator"
N_BINS = 15
FLOOR = 1e-12
MAX_RATIO = 1.005  # of the best other method, on each set


class LabelSet(NamedTuple):
    """Probabilities and labels to fit on, and others to evaluate on."""

    name: str
    p: FloatArray
    y: FloatArray
    p_test: FloatArray
    y_test: FloatArray


class Figures(NamedTuple):
    """Means over labels on the test part, and the CPU seconds of fitting and applying."""

    log_loss: float
    brier: float
    ece: float
    seconds: float


Method = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]


def load_sets(folder: Path | None) -> Iterator[LabelSet]:
    """Yield the sets of a folder, or a generated one."""
    if folder is None:
        rng = np.random.default_rng(0)
        common = rng.normal(size=(1600, 1))
        odds = common + rng.normal(size=(1600, 6)) - np.arange(6) / 2
        y = (rng.random(odds.shape) < expit(odds + 0.5 * common)).astype(float)
        p = expit(2 * odds + 0.5)
        yield LabelSet("generated", p[:800], y[:800], p[800:], y[800:])
        return
    for path in sorted(folder.glob("multilabel_*.npz")):
        with np.load(path, allow_pickle=False) as file:
            parts = [
                file[f"{a}_{b}"].astype(float) for b in ("cal", "test") for a in ("probs", "labels")
            ]
        yield LabelSet(path.stem.removeprefix("multilabel_"), *parts)


def by_label(fit: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]) -> Method:
    """Return a method that handles each label by itself; one outcome only leaves it unchanged."""

    def run(p: FloatArray, y: FloatArray, new: FloatArray) -> FloatArray:
        result = new.copy()
        for k in range(y.shape[1]):
            is_known = ~np.isnan(y[:, k])
            labels = y[is_known, k]
            if labels.min() < labels.max():
                result[:, k] = fit(p[is_known, k], labels, new[:, k])
        return result

    return run


def binary(calibrator: type[BaseBinaryCalibrator]) -> Method:
    """Return a calibrator of two classes as a method."""
    return by_label(lambda p, y, new: calibrator().fit(p, y.astype(int)).predict_proba(new)[:, 1])


def sigmoid(p: FloatArray, y: FloatArray, new: FloatArray) -> FloatArray:
    """Return scikit-learn's sigmoid calibration, which is fitted on probabilities."""
    return np.asarray(_SigmoidCalibration().fit(p, y).predict(new))


def joint(**settings: str | bool) -> Method:
    """Return our calibrator with settings as a method."""

    def run(p: FloatArray, y: FloatArray, new: FloatArray) -> FloatArray:
        return MultiLabelCalibrator(**settings).fit(MultiLabel(p), y).predict_proba(MultiLabel(new))  # type: ignore[arg-type]

    return run


METHODS: dict[str, Method] = {
    "uncalibrated": lambda p, y, new: new,
    "sigmoid": by_label(sigmoid),
    "Platt": binary(PlattScaling),
    "isotonic": binary(IsotonicCalibration),
    "beta": binary(BetaCalibration),
    "one temperature": joint(base="temperature", other_labels=False),
    f"{OURS}, each label alone": joint(other_labels=False),
    OURS: joint(),
}


def figures(method: Method, data: LabelSet) -> Figures:
    """Return the figures of a method on a set."""
    start = time.process_time()
    p = np.asarray(method(data.p, data.y, data.p_test))
    seconds = time.process_time() - start
    y, is_known = data.y_test, ~np.isnan(data.y_test)
    loss = -np.log(np.maximum(np.where(y == 1, p, 1 - p), FLOOR))
    each = [
        (loss[known, k].mean(), ((p - y)[known, k] ** 2).mean(), ece(y[known, k], p[known, k]))
        for k, known in enumerate(is_known.T)
        if known.any()
    ]
    log_loss, brier, error = map(float, np.mean(each, axis=0))
    return Figures(log_loss, brier, error, seconds)


def ece(y: FloatArray, p: FloatArray) -> float:
    """Return the expected calibration error of the probability of one label."""
    bins = np.clip(np.ceil(p * N_BINS) - 1, 0, N_BINS - 1).astype(int)
    return float(np.abs(np.bincount(bins, p - y, N_BINS)).sum() / y.size)


def verdicts(table: dict[str, dict[str, Figures]]) -> Iterator[str]:
    """Yield how our log loss and Brier score compare with the best other method."""
    others = [name for name in METHODS if not name.startswith(OURS)]
    for k, what in enumerate(("log loss", "Brier score")):
        for name, rows in table.items():
            best = min(others, key=lambda one: rows[one][k])
            ratio = rows[OURS][k] / rows[best][k]
            yield f"{what}, {name}: {ratio:.4f} of the best ({best}; at most {MAX_RATIO})"
        means = {one: float(np.mean([rows[one][k] for rows in table.values()])) for one in METHODS}
        best = min(others, key=lambda one: means[one])
        ratio = means[OURS] / means[best]
        yield f"{what}, mean over sets: {ratio:.4f} of the best method ({best}; at most 1)"


def main() -> None:
    """Print the tables."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--quick", action="store_true", help="a small generated set")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if (options.folder is None) != options.quick:
        parser.error("pass a folder, or --quick")
    sets = list(load_sets(options.folder))
    if not sets:
        parser.error(f"{options.folder} has no files multilabel_*.npz")
    table = {one.name: {name: figures(run, one) for name, run in METHODS.items()} for one in sets}
    lines = list(verdicts(table))
    if options.json:
        plain = {
            name: {one: row._asdict() for one, row in rows.items()} for name, rows in table.items()
        }
        print(json.dumps({"calibration": plain, "verdicts": lines}, indent=1))
        return
    for data in sets:
        n_rows, n_labels = data.p.shape
        print(
            f"{data.name}: {n_labels} labels, {n_rows:,} rows to fit, {len(data.p_test):,} to test"
        )
        print(f"{'':<38} {'log loss':>9} {'Brier':>8} {'ECE':>8} {'seconds':>8}")
        for name, row in table[data.name].items():
            scores = " ".join(
                f"{one:>{width}.4f}" for one, width in zip(row[:3], (9, 8, 8), strict=True)
            )
            print(f"{name:<38} {scores} {row.seconds:>8.2f}")
        print()
    print("\n".join(lines))


if __name__ == "__main__":
    main()

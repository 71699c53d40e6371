"""P(correct) of the answers of language models, beside the usual calibrators of one score.

    python -m benchmarks.confidence FOLDER           # the files cascade_*.npz of a folder
    python -m benchmarks.confidence FOLDER --json    # the figures as JSON
    python -m benchmarks.confidence --quick          # a small generated set

A file holds confidence_test and correct_test, rows x models. In each of five random splits, 300
rows of them are to fit and all others to evaluate: log loss, Brier score (of P(correct), one
number per row) and ECE with 15 equal-width bins of P(correct), means over splits and models. The
confidence of a model is the only score; "all scores" predicts whether this model is correct from
the confidences of all models. A probability of 0 for what occurred counts as 1e-12, and the
isotonic regression of scikit-learn is clipped at 1e-6. "scikit-learn sigmoid" is fitted on the
confidence and not on its log odds. Peers that are not installed are left out. "above uncalibrated"
counts models of a set whose mean log loss or mean ECE is above that of their confidence as it is.
Seconds are CPU seconds of one fit and its predictions.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.calibration import _SigmoidCalibration
from sklearn.isotonic import IsotonicRegression

from benchmarks.multilabel import ece
from dubito.arrays import FloatArray
from dubito.calibrate import (
    BetaCalibration,
    ConfidenceCalibrator,
    IsotonicCalibration,
    PlattScaling,
)
from dubito.calibrate.binary import BaseBinaryCalibrator

__all__ = ["main"]

OURS, SEVERAL = "ConfidenceCalibrator", "ConfidenceCalibrator, all scores"
N_FIT, N_SPLITS = 300, 5
FLOOR = 1e-12
MAX_ECE, MIN_GAIN = 0.045, 0.04


class AnswerSet(NamedTuple):
    """The confidences of several models in their answers, and which are correct."""

    name: str
    confidence: FloatArray
    correct: FloatArray


class Figures(NamedTuple):
    """Means over splits and models."""

    log_loss: float
    brier: float
    ece: float
    seconds: float


Method = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]


def load_sets(folder: Path | None) -> Iterator[AnswerSet]:
    """Yield the sets of a folder, or a generated one."""
    if folder is None:
        rng = np.random.default_rng(0)
        ease = rng.normal(1, 1.2, (900, 1))
        odds = ease + rng.normal(0, 0.8, (900, 3)) + np.arange(3) / 2
        correct = (rng.random(odds.shape) < expit(odds)).astype(float)
        seen = odds + rng.normal(0, 1, odds.shape)
        yield AnswerSet("generated", expit(2.5 * seen + 1).round(3), correct)
        return
    for path in sorted(folder.glob("cascade_*.npz")):
        with np.load(path, allow_pickle=False) as file:
            parts = [file[f"{one}_test"].astype(float) for one in ("confidence", "correct")]
        yield AnswerSet(path.stem.removeprefix("cascade_"), *parts)


def binary(calibrator: type[BaseBinaryCalibrator]) -> Method:
    """Return a calibrator of two classes as a method."""

    def run(p: FloatArray, y: FloatArray, new: FloatArray) -> FloatArray:
        fitted = calibrator().fit(p[:, 0], y.astype(int))
        return fitted.predict_proba(new[:, 0])[:, 1]

    return run


def sigmoid(p: FloatArray, y: FloatArray, new: FloatArray) -> FloatArray:
    """Return scikit-learn's sigmoid calibration, which is fitted on probabilities."""
    return np.asarray(_SigmoidCalibration().fit(p[:, 0], y).predict(new[:, 0]))


def isotonic(p: FloatArray, y: FloatArray, new: FloatArray) -> FloatArray:
    """Return scikit-learn's isotonic regression."""
    fitted = IsotonicRegression(out_of_bounds="clip").fit(p[:, 0], y)
    return np.asarray(np.clip(fitted.predict(new[:, 0]), 1e-6, 1 - 1e-6))


def betacal(p: FloatArray, y: FloatArray, new: FloatArray) -> FloatArray:
    """Return the beta calibration of its authors' package."""
    fitted = import_module("betacal").BetaCalibration().fit(p, y)
    return np.asarray(fitted.predict(new))


def ours(p: FloatArray, y: FloatArray, new: FloatArray) -> FloatArray:
    """Return our calibrator."""
    return ConfidenceCalibrator().fit(p, y).predict_proba(new)[:, 1]


METHODS: dict[str, Method] = {
    "uncalibrated": lambda p, y, new: new[:, 0],
    "base rate": lambda p, y, new: np.full(len(new), y.mean()),
    "scikit-learn sigmoid": sigmoid,
    "scikit-learn isotonic": isotonic,
    "isotonic": binary(IsotonicCalibration),
    "Platt": binary(PlattScaling),
    "beta": binary(BetaCalibration),
    **({"betacal": betacal} if find_spec("betacal") else {}),
    OURS: ours,
    SEVERAL: ours,
}


def figures(data: AnswerSet, method: str, n_fit: int, n_splits: int) -> FloatArray:
    """Return log loss, Brier score, ECE and seconds of each model, means over splits."""
    n_rows, n_models = data.confidence.shape
    result = np.zeros((n_models, 4))
    for seed in range(n_splits):
        order = np.random.default_rng(seed).permutation(n_rows)
        fit, new = order[:n_fit], order[n_fit:]
        for model in range(n_models):
            scores = np.roll(data.confidence, -model, axis=1)
            scores = scores if method == SEVERAL else scores[:, :1]
            y, y_new = data.correct[fit, model], data.correct[new, model]
            start = time.process_time()
            p = METHODS[method](scores[fit], y, scores[new])
            seconds = time.process_time() - start
            loss = -np.log(np.maximum(np.where(y_new == 1, p, 1 - p), FLOOR)).mean()
            result[model] += loss, ((p - y_new) ** 2).mean(), ece(y_new, p), seconds
    return result / n_splits


def verdicts(table: dict[str, dict[str, FloatArray]]) -> Iterator[str]:
    """Yield how we compare with the better of Platt and beta, and with one score."""
    means = {name: np.mean([one[name][:, :3].mean(axis=0) for one in table.values()], axis=0)
             for name in METHODS}  # fmt: skip
    rivals = {name: means[name][0] for name in ("Platt", "beta")}
    best = min(rivals, key=lambda name: rivals[name])
    for name, rows in table.items():
        own = {one: rows[one][:, 0].mean() for one in rivals}
        rival = min(own, key=lambda one: own[one])
        ratio = rows[OURS][:, 0].mean() / own[rival]
        yield f"log loss, {name}: {ratio:.4f} of {rival}"
    ratio = means[OURS][0] / rivals[best]
    yield f"log loss, mean over sets: {ratio:.4f} of {best} (at most 1)"
    yield f"ECE, mean over sets: {means[OURS][2]:.4f} (at most {MAX_ECE})"
    above = sum(
        int((rows[OURS][:, k] > rows["uncalibrated"][:, k]).sum())
        for rows in table.values()
        for k in (0, 2)
    )
    yield f"models and metrics above uncalibrated: {above} (at most 0)"
    for name, rows in table.items():
        gain = 1 - rows[SEVERAL][:, 0].mean() / rows[OURS][:, 0].mean()
        yield f"all scores, {name}: log loss {gain:.1%} below one score"
    gain = 1 - means[SEVERAL][0] / means[OURS][0]
    yield f"all scores, mean over sets: log loss {gain:.1%} below it (at least {MIN_GAIN:.0%})"


def main() -> None:
    """Print the tables."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument(
        "--quick", action="store_true", help="few splits; generated rows without a folder"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.folder is None and not options.quick:
        parser.error("pass a folder, or --quick")
    sets = list(load_sets(options.folder))
    if not sets:
        parser.error(f"{options.folder} has no files cascade_*.npz")
    n_splits = 2 if options.quick else N_SPLITS
    table = {
        one.name: {name: figures(one, name, N_FIT, n_splits) for name in METHODS} for one in sets
    }
    lines = list(verdicts(table))
    shown = {
        name: {one: Figures(*map(float, rows.mean(axis=0))) for one, rows in methods.items()}
        for name, methods in table.items()
    }
    if options.json:
        plain = {
            name: {one: row._asdict() for one, row in rows.items()} for name, rows in shown.items()
        }
        print(json.dumps({"figures": plain, "verdicts": lines}, indent=1))
        return
    for data in sets:
        n_rows, n_models = data.confidence.shape
        print(f"{data.name}: {n_models} models, {N_FIT} rows to fit, {n_rows - N_FIT:,} to test")
        print(f"{'':<34} {'log loss':>9} {'Brier':>8} {'ECE':>8} {'seconds':>8}")
        for name, row in shown[data.name].items():
            print(
                f"{name:<34} {row.log_loss:>9.4f} {row.brier:>8.4f} {row.ece:>8.4f} "
                f"{row.seconds:>8.3f}"
            )
        print()
    print("\n".join(lines))


if __name__ == "__main__":
    main()

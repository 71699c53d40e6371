"""Beta calibration: the log odds of what beta-distributed scores would mean."""

from __future__ import annotations

from typing import final

import numpy as np
from scipy.special import log_expit

from dubito.arrays import BoolArray, FloatArray
from dubito.calibrate.binary import BaseBinaryCalibrator, Scores
from dubito.calibrate.logistic import fit_logistic
from dubito.kept_arrays import array, require_each
from dubito.kept_checks import Entry, entries

__all__ = ["BetaCalibration"]


@final
class BetaCalibration(BaseBinaryCalibrator):
    """Fit log odds = a log(p) - b log(1 - p) + c with a, b from 0 up.

    For two classes whose confidence is off differently near 0 and near 1. Kull, Silva Filho and
    Flach, "Beta calibration", 2017.

    >>> from dubito import Probabilities
    >>> beta = BetaCalibration().fit(Probabilities([0.9, 0.8, 0.3, 0.2, 0.9, 0.1]), [1, 1, 0, 1, 0, 0])
    >>> beta.predict_proba([0.5]).round(2).tolist()
    [[0.45, 0.55]]
    """

    coefficients_: FloatArray

    learned_checks = entries(coefficients_=array(3))

    def _learn_scores(self, scores: Scores) -> None:
        is_free = np.ones(3, dtype=bool)
        while True:
            found = self.coefficients_ = best_of(scores, is_free)
            if found[:2].min() >= 0:
                return
            is_free[np.argmin(found[:2])] = False

    def _require_learned(self, entry: Entry) -> None:
        is_fine = np.append(self.coefficients_[:2] >= 0, True)
        rule = "two numbers from 0 up, and any third"
        require_each(is_fine, self.coefficients_, entry.at("coefficients_"), rule)

    def _calibrated(self, scores: FloatArray) -> FloatArray:
        return np.asarray(numbers_of(scores) @ self.coefficients_)

    def _words(self) -> str:
        a, b, c = self.coefficients_
        return f"log odds = {a:.3g} log(p) - {b:.3g} log(1 - p) {c:+.3g}"


def numbers_of(scores: FloatArray) -> FloatArray:
    """Return log(p), -log(1 - p) and 1 of log odds."""
    return np.column_stack([log_expit(scores), -log_expit(-scores), np.ones(scores.size)])


def best_of(scores: Scores, is_free: BoolArray) -> FloatArray:
    """Return the best coefficients among those whose others are 0."""
    found = np.zeros(3)
    found[is_free] = fit_logistic(
        scores,
        lambda values: numbers_of(values)[:, is_free],
        targets=(0.0, 1.0),
        start=np.array([1.0, 1.0, 0.0])[is_free],
        penalty=1e-6,
    )
    return found

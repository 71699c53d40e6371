"""Platt scaling: a slope and an intercept on the log odds."""

from __future__ import annotations

from typing import final

import numpy as np

from dubito.arrays import FloatArray
from dubito.calibrate.binary import BaseBinaryCalibrator, Scores
from dubito.calibrate.logistic import fit_logistic
from dubito.kept_checks import entries, number

__all__ = ["PlattScaling"]


@final
class PlattScaling(BaseBinaryCalibrator):
    """Fit log odds = slope x log odds + intercept, against Platt's smoothed targets.

    For two classes and few rows; the targets keep it finite on separable data. Platt,
    "Probabilistic outputs for support vector machines", 1999; here on log odds.

    >>> from dubito import Logits
    >>> platt = PlattScaling().fit(Logits([2.0, 1.0, -1.0, -2.0, 2.0]), [1, 1, 0, 0, 0])
    >>> round(platt.slope_, 2), round(platt.intercept_, 2)
    (0.4, -0.53)
    """

    slope_: float
    intercept_: float

    learned_checks = entries(slope_=number(), intercept_=number())

    def _learn_scores(self, scores: Scores) -> None:
        positive, total = scores.sum(
            lambda rows: np.array([rows.weight @ rows.targets, rows.weight.sum()])
        )
        targets = 1 / (total - positive + 2), (positive + 1) / (positive + 2)
        start = np.array([1.0, 0.0])
        found = fit_logistic(scores, with_ones, targets, start, penalty=1e-12)
        self.slope_, self.intercept_ = map(float, found)

    def _calibrated(self, scores: FloatArray) -> FloatArray:
        return self.slope_ * scores + self.intercept_

    def _words(self) -> str:
        verdict = "too high" if self.slope_ < 1 else "too low"
        if self.slope_ <= 0:
            verdict = "the contrary of what was true"
        elif abs(self.slope_ - 1) < 0.005:
            verdict = "right already"
        return f"log odds x {self.slope_:.3g} {self.intercept_:+.3g}: confidence was {verdict}"


def with_ones(scores: FloatArray) -> FloatArray:
    """Return the scores beside a column of ones."""
    return np.column_stack([scores, np.ones(scores.size)])

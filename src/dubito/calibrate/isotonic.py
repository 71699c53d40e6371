"""Isotonic calibration: any rising curve from score to probability."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Self, final

import numpy as np
from scipy.special import logit

from dubito.arrays import FloatArray
from dubito.calibrate.binary import BaseBinaryCalibrator, BinaryRows, HeldScores, Scores
from dubito.calibrate.knots import Curves, ScoredRows, fit_curves
from dubito.calibrate.rows import FLOOR
from dubito.calibrate.thinning import few_knots
from dubito.kept_arrays import array, require_rising
from dubito.kept_checks import MOST, Entry, entries, number

__all__ = ["IsotonicCalibration"]

REACH = 30.0  # log odds are never beyond
ROUNDING = 1e-9  # by which a curve may fall


@final
class IsotonicCalibration(BaseBinaryCalibrator):
    """Fit the rising curve closest to the labels, linear between its knots.

    For two classes and some thousand rows. An end that is all one class is smoothed by 1 / (n + 1)
    towards the prior. Exact in memory; of a stream, that of log odds rounded by at most 0.007.
    Zadrozny and Elkan, "Transforming classifier scores", 2002.

    >>> curve = IsotonicCalibration().fit([0.1, 0.4, 0.5, 0.8, 0.9], [0, 1, 0, 1, 1])
    >>> curve.predict_proba([0.4, 0.5])[:, 1].tolist()
    [0.5, 0.5]
    """

    knots_: FloatArray
    values_: FloatArray
    n_certain_: float

    learned_checks = entries(
        knots_=array(None, low=-REACH, high=REACH),
        values_=array("knots_", low=0, high=1),
        n_certain_=number(0, MOST),
    )

    def _learn_scores(self, scores: Scores) -> None:
        def sum_over(function: Callable[[ScoredRows], Any]) -> Any:
            return scores.sum(lambda rows: function(as_column(rows)))

        self._take(fit_curves(sum_over, 1, is_held=isinstance(scores, HeldScores)))

    def _take(self, curves: Curves, k: int = 0) -> Self:
        part = slice(curves.offsets[k], curves.offsets[k + 1])
        self.knots_, self.values_ = curves.x[part], curves.y[part]
        self.n_certain_ = float(curves.n_certain[k])
        return self

    def _require_learned(self, entry: Entry) -> None:
        require_rising(self.knots_, entry.at("knots_"))
        require_rising(self.values_, entry.at("values_"), least=-ROUNDING)

    def _thinned(self, bound: float) -> Self:
        twin, kept = copy(self), few_knots(self.knots_, self.values_, bound)
        twin.knots_, twin.values_ = self.knots_[kept], self.values_[kept]
        return twin

    def _calibrated(self, scores: FloatArray) -> FloatArray:
        values = np.interp(scores, self.knots_, self.values_)
        return np.asarray(logit(np.clip(values, FLOOR, 1 - FLOOR)))

    def _words(self) -> str:
        return (
            f"a rising curve with {self.knots_.size} knots from {self.values_.min():.3g} to "
            f"{self.values_.max():.3g}; {self.n_certain_:,.0f} rows at its ends smoothed"
        )


def as_column(rows: BinaryRows) -> ScoredRows:
    """Return the rows of one class as a table of one column."""
    codes = np.zeros(rows.scores.size, dtype=np.int64)
    return ScoredRows(rows.scores[:, np.newaxis], codes, rows.targets[:, np.newaxis], rows.weight)

"""One-vs-rest: a binary calibrator for each class, and what they say together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.special import expit
from sklearn.base import clone

from dubito.arrays import BoolArray, FloatArray
from dubito.calibrate.binary import BaseBinaryCalibrator, scores_by_class
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.inputs import FLOOR, LabelledRows, log_odds, log_probabilities
from dubito.calibrate.isotonic import Curves, IsotonicCalibration, ScoredRows, fit_curves
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards
from dubito.errors import BadTypeError
from dubito.outputs import Logits, Probabilities
from dubito.serialization.fields import Entry, declare, integer, list_of
from dubito.serialization.objects import estimator


@final
class OneVsRest(BaseCalibrator):
    """Calibrate each class against the rest, then divide each row by its sum.

    For calibrators of two classes; the predicted class may change. A row to which no class gives
    anything falls back to what came in. `n_fell_back_` and `n_changed_` count the fit's rows that
    fell back, or whose class changed; `counts` those of others. Zadrozny and Elkan 2002.

    >>> from dubito.calibrate import PlattScaling
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7], [0.5, 0.4, 0.1]]
    >>> OneVsRest(PlattScaling()).fit(p, [0, 1, 2, 1]).predict_proba(p)[3].round(2).tolist()
    [0.33, 0.52, 0.15]
    """

    calibrators_: list[BaseBinaryCalibrator]
    n_fell_back_: int
    n_changed_: int

    param_fields = declare(calibrator=estimator(BaseBinaryCalibrator, is_fitted=False))
    fitted_fields = declare(
        calibrators_=list_of(estimator(BaseBinaryCalibrator), "n_classes_"),
        n_fell_back_=integer(),
        n_changed_=integer(),
    )

    def __init__(self, calibrator: BaseBinaryCalibrator):
        self.calibrator = calibrator

    def _check_params(self) -> None:
        if not isinstance(self.calibrator, BaseBinaryCalibrator):
            rule, fix = "a calibrator of two classes", "OneVsRest(IsotonicCalibration())"
            raise BadTypeError("calibrator", "OneVsRest", rule, repr(self.calibrator), fix)
        self.calibrator._check_params()

    def _check_fitted(self, entry: Entry) -> None:
        wanted = type(self.calibrator).__name__
        for k, one in enumerate(self.calibrators_):
            if type(one).__name__ != wanted:
                place = entry.at(f"calibrators_[{k}]")
                raise place.error(f"{wanted}, like the setting", type(one).__name__)

    def _learn(self, shards: Shards) -> None:
        if isinstance(self.calibrator, IsotonicCalibration):
            curves = _all_curves(shards, self.n_classes_)
            for k, one in enumerate(self._start()):
                one._take(curves, k)
        else:
            every = scores_by_class(shards, range(self.n_classes_))
            for one, scores in zip(self._start(), every, strict=True):
                one._learn_scores(scores)
        counted = shards.sum(lambda batch: self._counts(LabelledRows.of(batch).outputs))
        self.n_fell_back_, self.n_changed_ = map(int, counted)

    def _start(self) -> list[Any]:
        """Set and return a calibrator for each class, each of two classes, yet to learn."""
        self.calibrators_ = [clone(self.calibrator) for _ in range(self.n_classes_)]
        for one in self.calibrators_:
            one.n_classes_, one.classes_ = 2, None
        return self.calibrators_

    def _shares(self, outputs: Logits | Probabilities) -> FloatArray:
        """Return what each class's own calibrator says, before they are brought together."""
        scores = log_odds(outputs)
        curves = [one for one in self.calibrators_ if isinstance(one, IsotonicCalibration)]
        if len(curves) == self.n_classes_:
            sizes = np.array([curve.knots_.size for curve in curves])
            return Curves(
                np.concatenate([curve.knots_ for curve in curves]),
                np.concatenate([curve.values_ for curve in curves]),
                np.concatenate([[0], np.cumsum(sizes)]),
                np.zeros(sizes.size),
            ).read(scores)
        columns = [one._calibrated(scores[:, k]) for k, one in enumerate(self.calibrators_)]
        return np.asarray(expit(np.column_stack(columns)))

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        return _together(self._shares(outputs), outputs)

    def counts(self, outputs: Any) -> OneVsRestCounts:
        """Count the rows that fall back, and those whose predicted class changes."""
        known = self._known(outputs, "counts")
        return OneVsRestCounts(known.n_rows, *map(int, self._counts(known)))

    def _counts(self, outputs: Logits | Probabilities) -> FloatArray:
        shares = self._shares(outputs)
        before, after = outputs.array.argmax(axis=1), _together(shares, outputs).argmax(axis=1)
        return np.array([_fell_back(shares).sum(), (before != after).sum()])

    def _words(self) -> str:
        return (
            f"{type(self.calibrator).__name__} for each of {self.n_classes_} classes; of the fit's "
            f"rows {self.n_changed_:,} changed class, {self.n_fell_back_:,} fell back"
        )


@final
@dataclass(frozen=True, slots=True)
class OneVsRestCounts:
    """How many rows there were, fell back to what came in, and changed their class."""

    n_rows: int
    n_fell_back: int
    n_changed: int


def _fell_back(shares: FloatArray) -> BoolArray:
    """Tell the rows to which no class's calibrator gives anything."""
    return np.asarray(shares.sum(axis=1) <= shares.shape[1] * FLOOR)


def _together(shares: FloatArray, outputs: Logits | Probabilities) -> FloatArray:
    """Return the log probabilities that shares make, those that came in where a row falls back."""
    is_empty = _fell_back(shares)
    result = np.log(np.maximum(shares, FLOOR))
    if is_empty.any():
        result[is_empty] = log_probabilities(outputs.take(np.flatnonzero(is_empty)))
    return np.asarray(result)


def _all_curves(shards: Shards, n_classes: int) -> Curves:
    """Return every class's rising curve, from one pass over the matrix."""

    def scored(batch: Batch) -> ScoredRows:
        rows = LabelledRows.of(batch)
        return ScoredRows(log_odds(rows.outputs), rows.codes, rows.soft, rows.weight)

    def sum_over(function: Any) -> Any:
        return shards.sum(lambda batch: function(scored(batch)))

    return fit_curves(sum_over, n_classes, is_held=isinstance(shards, ArrayShards))

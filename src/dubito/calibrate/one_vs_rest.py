"""One-vs-rest: a binary calibrator for each class, normalized to probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.special import expit

from dubito.arrays import BoolArray, FloatArray
from dubito.calibrate.binary import BaseBinaryCalibrator, ScoredRows, one_vs_rest_shards
from dubito.calibrate.calibrator import (
    FLOOR,
    BaseCalibrator,
    ColumnBlock,
    LabeledRows,
    not_a_calibrator,
)
from dubito.calibrate.isotonic import Curve, IsotonicCalibration, interpolate_curves
from dubito.data.shards import Shards
from dubito.outputs import Logits, Probabilities
from dubito.serialization.fields import Entry, declare, fitted, integer, list_of
from dubito.serialization.objects import clone, estimator

LOWEST = -700.0  # the exponential of a lower log probability is 0


@final
class OneVsRest(BaseCalibrator):
    """Calibrate each class against the rest, then normalize each row.

    Extends calibrators of two classes to any number; the predicted class may change. A row to
    which no class gives any probability keeps its uncalibrated probabilities.

    Parameters
    ----------
    calibrator : BaseBinaryCalibrator
        A calibrator of two classes, such as `IsotonicCalibration()`.

    Attributes
    ----------
    calibrators_ : list of BaseBinaryCalibrator
        One fitted calibrator per class.
    n_fell_back_ : int
        Rows of the fit that kept their uncalibrated probabilities.
    n_changed_ : int
        Rows of the fit whose predicted class changed.

    References
    ----------
    Zadrozny and Elkan, "Transforming classifier scores into accurate multiclass probability
    estimates", KDD 2002.

    Examples
    --------
    >>> from dubito.calibrate import OneVsRest
    >>> from dubito.calibrate import PlattScaling
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7], [0.5, 0.4, 0.1]]
    >>> OneVsRest(PlattScaling()).fit(p, [0, 1, 2, 1]).predict_proba(p)[3].round(2).tolist()
    [0.33, 0.52, 0.15]
    """

    param_fields = declare(calibrator=estimator(BaseBinaryCalibrator, is_fitted=False))
    calibrators_: list[BaseBinaryCalibrator] = fitted(
        list_of(estimator(BaseBinaryCalibrator), "n_classes_", least=2)
    )
    n_fell_back_: int = fitted(integer())
    n_changed_: int = fitted(integer())

    def __init__(self, calibrator: BaseBinaryCalibrator):
        self.calibrator = calibrator

    def _check_params(self) -> None:
        if not isinstance(self.calibrator, BaseBinaryCalibrator):
            rule, fix = "must be a calibrator of two classes", "Pass IsotonicCalibration()"
            raise not_a_calibrator(self.calibrator, "OneVsRest", rule, fix, BaseBinaryCalibrator)
        self.calibrator._check_params()

    def _check_fitted(self, entry: Entry) -> None:
        wanted = type(self.calibrator).__name__
        for k, one in enumerate(self.calibrators_):
            if type(one).__name__ != wanted:
                place = entry.at(f"calibrators_[{k}]")
                raise place.error(f"{wanted}, like the setting", type(one).__name__)

    def _learn(self, shards: Shards) -> None:
        calibrators = [clone(self.calibrator) for _ in range(self.n_classes_)]
        for one in calibrators:
            one.n_classes_, one.classes_ = 2, None
        if isinstance(self.calibrator, IsotonicCalibration):
            # All curves from one pass over the matrix.
            in_memory = shards.in_memory is not None
            rows = shards.map(ScoredRows.of)
            curves = self.calibrator._fit_curves(rows, self.n_classes_, in_memory=in_memory)
            for one, curve in zip(calibrators, curves, strict=True):
                one._take(curve)
        else:
            every = one_vs_rest_shards(shards, range(self.n_classes_))
            for one, own in zip(calibrators, every, strict=True):
                one._learn_scores(own)
        self.calibrators_ = calibrators
        counts = shards.sum(lambda batch: self._count(LabeledRows.of(batch).outputs))
        self.n_fell_back_, self.n_changed_ = map(int, counts)

    def counts(self, outputs: Any) -> OneVsRestCounts:
        """Count the rows that keep their uncalibrated probabilities or change class.

        Parameters
        ----------
        outputs : Logits, Probabilities, Members or array of probabilities
            Model outputs over the classes of the fit.

        Returns
        -------
        OneVsRestCounts
            `n_rows`, `n_fell_back` and `n_changed`.
        """
        known = self._check_outputs(outputs, "counts")
        return OneVsRestCounts(known.n_rows, *map(int, self._count(known)))

    def _count(self, outputs: Logits | Probabilities) -> FloatArray:
        block = ColumnBlock(outputs)
        separate = self._separate_probabilities(block)
        after = np.log(_combine(separate, block)).argmax(axis=0)
        n_changed = (outputs.array.argmax(axis=1) != after).sum()
        return np.array([_fell_back(separate).sum(), n_changed])

    def _separate_probabilities(self, block: ColumnBlock) -> FloatArray:
        """Return the probability of each class by its own calibrator, classes x rows."""
        scores = block.log_odds
        every = [one for one in self.calibrators_ if isinstance(one, IsotonicCalibration)]
        if len(every) == self.n_classes_:
            curves = [Curve(one.knots_, one.values_, one.n_certain_) for one in every]
            return interpolate_curves(curves, scores)
        pairs = zip(self.calibrators_, scores, strict=True)
        return np.asarray(expit(np.stack([one._calibrated(column) for one, column in pairs])))

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        block = ColumnBlock(outputs)
        return np.log(_combine(self._separate_probabilities(block), block)).T

    def _add_probabilities(self, block: ColumnBlock, weight: float, mixed: FloatArray) -> None:
        combined = _combine(self._separate_probabilities(block), block)
        combined *= weight / combined.sum(axis=0)
        mixed += combined

    def _describe(self) -> str:
        return (
            f"{type(self.calibrator).__name__} for each of {self.n_classes_} classes; the "
            f"predicted class changed in {self.n_changed_:,} training rows; "
            f"{self.n_fell_back_:,} rows were left uncalibrated"
        )


@final
@dataclass(frozen=True, slots=True)
class OneVsRestCounts:
    """How many rows there are, kept uncalibrated probabilities, and changed class."""

    n_rows: int
    n_fell_back: int
    n_changed: int


def _fell_back(separate: FloatArray) -> BoolArray:
    """Return which rows get no probability from any class."""
    return np.asarray(separate.sum(axis=0) <= len(separate) * FLOOR)


def _combine(separate: FloatArray, block: ColumnBlock) -> FloatArray:
    """Return probabilities that need not sum to 1, uncalibrated ones for rows that fall back."""
    result = np.maximum(separate, FLOOR)
    is_empty = _fell_back(separate)
    if is_empty.any():
        result[:, is_empty] = np.exp(np.maximum(block.log_proba[:, is_empty], LOWEST))
    return np.asarray(result)

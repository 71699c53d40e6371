"""Proper scores split into calibration loss and refinement loss."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np
from sklearn.base import clone

from dubito.arrays import RandomState, draw_seed
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.inputs import as_class_outputs
from dubito.calibrate.temperature import TemperatureScaling
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards
from dubito.errors import BadTypeError, BadValueError, BoundWarning, EmptyStateError
from dubito.measure.proper_scores import ProperScoresState
from dubito.measure.state import labeled_batch

CALLER = "decompose_loss"
SCORES = ("log_loss", "brier_score")


@final
@dataclass(frozen=True, slots=True)
class LossDecomposition:
    """A score as `calibration`, which recalibration removes, plus `refinement`, which remains.

    `recalibrated` is the score after recalibration as it was found. Where it is above `score`,
    recalibration only added noise: then `calibration` is 0 and `refinement` the score itself.
    `print(split)` tells it in words.
    """

    score: float
    calibration: float
    refinement: float
    recalibrated: float
    name: str
    n_rows: int
    n_folds: int

    def __str__(self) -> str:
        return (
            f"{self.name} {self.score:.4g} = calibration {self.calibration:.4g} + refinement "
            f"{self.refinement:.4g} ({self.n_rows:,} rows, {self.n_folds} folds)"
        )


def decompose_loss(
    y_true: Any,
    outputs: Any,
    *,
    score: Literal["log_loss", "brier_score"] = "log_loss",
    calibrator: BaseCalibrator | None = None,
    cv: int = 5,
    random_state: RandomState = 0,
    sample_weight: Any = None,
) -> LossDecomposition:
    """Return how much of a proper score recalibration removes, and how much remains.

    Compare models by `refinement`: calibration can be had afterwards. It is the score of rows that
    `calibrator` (default `TemperatureScaling()`) was not fitted on, over `cv` seeded folds. An
    infinite log loss stays infinite, and so is its calibration. Berta, Holzmueller, Jordan, Bach,
    "Rethinking early stopping: refine, then calibrate", 2025.

    >>> y, says = [0, 0, 0, 1] * 10 + [1, 1, 1, 0] * 10, [0.01] * 40 + [0.99] * 40
    >>> split = decompose_loss(y, says)
    >>> round(split.score, 2), round(split.calibration, 2), round(split.refinement, 2)
    (1.16, 0.56, 0.6)
    """
    if score not in SCORES:
        rule = " or ".join(map(repr, SCORES))
        raise BadValueError("score", CALLER, rule, repr(score), "score='log_loss'")
    model = TemperatureScaling() if calibrator is None else calibrator
    if not isinstance(model, BaseCalibrator):
        rule, fix = "a calibrator of classes", "calibrator=TemperatureScaling()"
        raise BadTypeError("calibrator", CALLER, rule, type(model).__name__, fix)
    rows = _scored_rows(y_true, outputs, sample_weight)
    n_folds = _n_folds_of(cv, len(rows))
    before = ProperScoresState.of(rows).score(score)
    after = _recalibrated_state(rows, model, n_folds, draw_seed(random_state, CALLER)).score(score)
    calibration, refinement = max(0.0, before - after), min(before, after)
    return LossDecomposition(before, calibration, refinement, after, score, len(rows), n_folds)


def _scored_rows(y_true: Any, outputs: Any, sample_weight: Any) -> Batch:
    """Return the rows that have a label and a weight."""
    wrapped = as_class_outputs(outputs, CALLER)
    batch = labeled_batch(y_true, wrapped, sample_weight, CALLER)
    return batch.take(np.flatnonzero(batch.labeled_weight))


def _n_folds_of(cv: Any, n_rows: int) -> int:
    """Return how many folds there can be."""
    if not isinstance(cv, int | np.integer) or isinstance(cv, bool) or cv < 2:
        rule, fix = "a whole number from 2 up", "cv=5"
        raise BadValueError("cv", CALLER, rule, repr(cv), fix)
    if n_rows == 0:
        raise EmptyStateError(CALLER)
    if n_rows == 1:
        rule, fix = "2 labeled rows or more", "more rows: one is needed to fit, one to score"
        raise BadValueError("y_true", CALLER, rule, "1", fix)
    return min(int(cv), n_rows)


def _recalibrated_state(
    rows: Batch, calibrator: BaseCalibrator, n_folds: int, seed: int
) -> ProperScoresState:
    """Return the scores of each fold after a recalibration fitted on the others."""
    order = np.random.default_rng(seed).permutation(len(rows))
    states = []
    for fold in np.array_split(order, n_folds):
        others, held_out = np.setdiff1d(order, fold), rows.take(fold)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BoundWarning)  # a fold may well be separable
            fitted = clone(calibrator).fit(ArrayShards(rows.take(others)))
        outputs = fitted.transform(held_out.outputs)
        states.append(ProperScoresState.of(replace(held_out, outputs=outputs)))
    return sum(states[1:], start=states[0])

"""Calibrated outputs, always evaluated out of sample."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from scipy.special import softmax

from dubito.arrays import FloatArray, freeze
from dubito.calibrate import AutoCalibrator, BaseCalibrator, TemperatureScaling
from dubito.calibrate.calibrator import drop_unlabeled
from dubito.calibrate.cross_validation import Fold, held_out_logits, make_folds
from dubito.data.batch import Batch
from dubito.data.labels import Labels
from dubito.data.shards import ArrayShards
from dubito.decide.policy.report import Evidence
from dubito.errors import DubitoWarning
from dubito.outputs import Members, Probabilities, TopLabel, unchecked

FOLDS = {40_000: 2, 1_000: 3, 0: 5}  # by the number of rows: of many, fewer are enough to fit on
MAX_SAMPLES = 10_000  # rows on which a calibrator is selected
MIN_ROWS = 10  # fewer rows cannot fit a calibrator


@final
@dataclass(frozen=True, slots=True, eq=False)
class Recalibration:
    """The same rows with calibrated outputs, out of sample.

    `scaled` are the rows after temperature scaling alone. It and `temperature` are None with too
    few rows, when the outputs are unchanged, and for top labels, which have no logits. `method`
    describes in a sentence how the calibrator was fitted and evaluated.
    """

    batch: Batch
    method: str
    chosen: str = "nothing"
    leaderboard: tuple[dict[str, Any], ...] = ()
    scaled: Batch | None = None
    temperature: float | None = None

    @classmethod
    def of(
        cls, batch: Batch, probabilities: FloatArray, calibrator: BaseCalibrator, method: str
    ) -> Recalibration:
        """Return rows with probabilities that a calibrator returned."""
        chosen = calibrator.summary().partition(";")[0]
        leaderboard = tuple(getattr(calibrator, "leaderboard_", ()))
        return cls(_with_probabilities(batch, probabilities), method, chosen, leaderboard)


def recalibrate(
    batch: Batch, calibration: Batch | BaseCalibrator | None, seed: int
) -> Recalibration:
    """Return labeled rows after cross-fitting, or with a calibrator fitted on other rows."""
    rows = as_class_problem(batch)
    fitted_on = (
        drop_unlabeled(as_class_problem(calibration)) if isinstance(calibration, Batch) else rows
    )
    if len(fitted_on) < MIN_ROWS:
        method = f"{len(fitted_on)} rows are too few to calibrate: the outputs are unchanged."
        return Recalibration(batch, method)
    shards = ArrayShards(fitted_on)
    # About bounds: the metrics show the effect.
    with warnings.catch_warnings(action="ignore", category=DubitoWarning):
        if isinstance(calibration, BaseCalibrator):
            fitted = calibration
        else:
            cv = max(_n_folds(len(fitted_on)), 3)
            auto = AutoCalibrator(cv=cv, max_samples=MAX_SAMPLES, random_state=seed)
            fitted = auto.fit(shards)
        single = TemperatureScaling().fit(shards)
        folds = make_folds(rows, min(_n_folds(len(rows)), len(rows)), seed)
        seen = (fitted, calibration is None), (single, not isinstance(calibration, Batch))
        after, scaled = (
            _cross_fitted(one, rows, folds) if is_seen else one._predict_proba(rows.outputs)
            for one, is_seen in seen
        )
    found = Recalibration.of(batch, after, fitted, _method(len(fitted_on), calibration, fitted))
    if isinstance(batch.outputs, TopLabel):
        return found
    scaled_rows = _with_probabilities(batch, scaled)
    return replace(found, scaled=scaled_rows, temperature=single.temperature_)


def held_out(batch: Batch, calibrator: BaseCalibrator, evidence: Evidence) -> Recalibration:
    """Return rows with the probabilities that a policy's fit decided them by."""
    method = (
        "The calibrator is that of the policy. Every metric “after” is about the probabilities "
        f"behind the report of the policy: {len(batch):,} rows, {evidence.evaluation}."
    )
    return Recalibration.of(batch, evidence.decisions.probabilities, calibrator, method)


def as_class_problem(batch: Batch) -> Batch:
    """Return rows with outputs over classes: "wrong" and "correct" for top labels.

    Groups are dropped: here folds are drawn over rows, groups are only reported.
    """
    outputs, truth = batch.outputs, batch.labels
    if isinstance(outputs, Members):
        outputs = outputs.mean
    if isinstance(outputs, TopLabel):
        right, confidence = outputs.correct, outputs.confidence
        truth = Labels(
            freeze(np.zeros(len(batch), np.int64)), freeze(np.stack([1 - right, right], axis=1))
        )
        outputs = Probabilities(
            np.stack([1 - confidence, confidence], axis=1), ("wrong", "correct")
        )
    return replace(batch, outputs=outputs, labels=truth, groups=None)


def _cross_fitted(calibrator: BaseCalibrator, batch: Batch, folds: Sequence[Fold]) -> FloatArray:
    """Return probabilities of each row from a calibrator fitted on the other folds."""
    parts = held_out_logits(calibrator, batch, folds)
    result = np.empty((len(batch), parts[0].n_classes), parts[0].array.dtype)
    for (_, test), logits in zip(folds, parts, strict=True):
        result[test] = softmax(logits.array.astype(np.float64), axis=1)
    return result


def _with_probabilities(batch: Batch, probabilities: FloatArray) -> Batch:
    """Return a batch with its outputs replaced."""
    outputs = batch.outputs
    if isinstance(outputs, TopLabel):
        fields = {"confidence": freeze(probabilities[:, 1]), "correct": outputs.correct}
        return replace(batch, outputs=unchecked(TopLabel, fields))
    return replace(batch, outputs=Probabilities(probabilities, getattr(outputs, "classes", None)))


def _n_folds(n_rows: int) -> int:
    """Return the number of folds.

    >>> _n_folds(999), _n_folds(1_000), _n_folds(40_000)
    (5, 3, 2)
    """
    return next(n for least, n in FOLDS.items() if n_rows >= least)


def _method(n_rows: int, calibration: Batch | BaseCalibrator | None, fitted: BaseCalibrator) -> str:
    """Return a description of how the calibrated outputs were obtained."""
    if isinstance(calibration, BaseCalibrator):
        return (
            "A fitted calibrator was supplied; it is assumed that it was fitted on other rows. "
            "Temperature scaling alone, where it is mentioned, is cross-fitted on these rows."
        )
    if isinstance(calibration, Batch):
        return (
            f"The calibrator was selected and fitted on {n_rows:,} other rows; it has seen none of "
            "the rows of this report."
        )
    assert isinstance(fitted, AutoCalibrator)
    times, rest, part = {
        5: ("5 times", "four fifths", "fifth"),
        3: ("3 times", "two thirds", "third"),
        2: ("twice", "half", "half"),
    }[_n_folds(n_rows)]
    of_these = "" if n_rows <= fitted.max_samples else f"{fitted.max_samples:,} of "
    return (
        f"Candidates were cross-fitted on {of_these}these {n_rows:,} rows to select the calibrator "
        f"({fitted.chosen_}). It was then fitted {times} on {rest} of the rows, and every metric "
        f"“after” is measured on the held-out {part}. Only the selection saw held-out rows."
    )

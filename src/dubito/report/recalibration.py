"""What calibration does to the outputs, always evaluated on rows it was not fitted on."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from scipy.special import softmax

from dubito.arrays import FloatArray, freeze
from dubito.calibrate import AutoCalibrator, BaseCalibrator, TemperatureScaling
from dubito.calibrate.cross_validation import Fold, folds_of, held_out_logits, labeled_only
from dubito.data.batch import Batch
from dubito.data.labels import Labels
from dubito.data.shards import ArrayShards
from dubito.errors import DubitoWarning
from dubito.outputs import Members, Probabilities, TopLabel, unchecked
from dubito.report.formatting import spaced

N_FOLDS = 5
FEWEST_ROWS = 10  # with fewer, nothing can be learned that is not luck


@final
@dataclass(frozen=True, slots=True, eq=False)
class Mended:
    """The same rows calibrated, out of sample; `tempered` by a temperature alone.

    `how` says what was done. Without enough rows everything is as it came, and `temperature` and
    `tempered` are None; so they are where only top labels are known, as these have no logits.
    """

    batch: Batch
    tempered: Batch | None
    temperature: float | None
    chosen: str
    leaderboard: tuple[dict[str, Any], ...]
    how: str


def mended(batch: Batch, calibration: Batch | BaseCalibrator | None, seed: int) -> Mended:
    """Calibrate labeled rows: cross-fitted, or by what other rows teach or have taught."""
    asked = as_question(batch)
    taught = labeled_only(as_question(calibration)) if isinstance(calibration, Batch) else asked
    if len(taught) < FEWEST_ROWS:
        how = f"{len(taught)} rows are too few to calibrate by: all is as it came."
        return Mended(batch, None, None, "nothing", (), how)
    shards = ArrayShards(taught)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DubitoWarning)  # of bounds: the figures show what comes
        found = (
            calibration
            if isinstance(calibration, BaseCalibrator)
            else AutoCalibrator(random_state=seed).fit(shards)
        )
        single = TemperatureScaling().fit(shards)
        folds = folds_of(asked, min(N_FOLDS, len(asked)), seed)
        after, tempered = (
            _cross_fitted(one, asked, folds) if is_seen else one.predict_proba(asked.outputs)
            for one, is_seen in (
                (found, calibration is None),
                (single, not isinstance(calibration, Batch)),
            )
        )
    has_logits = not isinstance(batch.outputs, TopLabel)
    return Mended(
        _with_probabilities(batch, after),
        _with_probabilities(batch, tempered) if has_logits else None,
        single.temperature_ if has_logits else None,
        spaced(found.summary().partition(";")[0]),
        tuple(getattr(found, "leaderboard_", ())),
        _how_it_was_done(len(taught), calibration, getattr(found, "chosen_", "")),
    )


def as_question(batch: Batch) -> Batch:
    """Return rows as a question of classes; of top labels it is whether the answer is right.

    Groups are left out, as folds are of rows here: groups are what a report tells apart.
    """
    outputs, truth = batch.outputs, batch.labels
    if isinstance(outputs, Members):
        outputs = outputs.mean
    if isinstance(outputs, TopLabel):
        right, says = outputs.correct, outputs.confidence
        truth = Labels(
            freeze(np.zeros(len(batch), np.int64)), freeze(np.stack([1 - right, right], axis=1))
        )
        outputs = Probabilities(np.stack([1 - says, says], axis=1), ("wrong", "right"))
    return replace(batch, outputs=outputs, labels=truth, groups=None)


def _cross_fitted(calibrator: BaseCalibrator, batch: Batch, folds: Sequence[Fold]) -> FloatArray:
    """Return the probabilities of each row, by a calibrator that was fitted on the other folds."""
    parts = held_out_logits(calibrator, batch, folds)
    result = np.empty((len(batch), parts[0].n_classes), parts[0].array.dtype)
    for (_, test), logits in zip(folds, parts, strict=True):
        result[test] = softmax(logits.array.astype(np.float64), axis=1)
    return result


def _with_probabilities(batch: Batch, probabilities: FloatArray) -> Batch:
    """Return the rows of a batch with other outputs of their kind."""
    outputs = batch.outputs
    if isinstance(outputs, TopLabel):
        fields = {"confidence": freeze(probabilities[:, 1]), "correct": outputs.correct}
        return replace(batch, outputs=unchecked(TopLabel, fields))
    return replace(batch, outputs=Probabilities(probabilities, getattr(outputs, "classes", None)))


def _how_it_was_done(n_rows: int, calibration: Batch | BaseCalibrator | None, chosen: str) -> str:
    """Say how the figures after calibration came about."""
    if isinstance(calibration, BaseCalibrator):
        return (
            "The calibrator was fitted before, on rows that should be none of these. A temperature "
            "alone, where it is told of, is cross-fitted on these rows."
        )
    if isinstance(calibration, Batch):
        return (
            f"The calibrator was chosen and fitted on {n_rows:,} other rows. None of the rows "
            "measured here was seen by it."
        )
    return (
        f"The calibrator was chosen by cross-fitting all candidates on these {n_rows:,} rows. What "
        f"was chosen ({chosen}) was then fitted anew {N_FOLDS} times, each time on four fifths of "
        "the rows, and every figure “after” is of the fifth that was held out. Only the choice "
        "itself, not what was learned, has seen all rows."
    )

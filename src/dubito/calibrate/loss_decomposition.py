"""Proper scores split into calibration loss and refinement loss."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, final

from dubito.arrays import RandomState, as_count, draw_seed, require_choice
from dubito.calibrate.calibrator import BaseCalibrator, as_class_outputs, drop_unlabeled
from dubito.calibrate.cross_validation import held_out_logits, make_folds, require_two_rows
from dubito.calibrate.temperature import TemperatureScaling
from dubito.errors import BadTypeError, EmptyStateError
from dubito.measure.proper_scores import ProperScoresState
from dubito.measure.state import labeled_batch
from dubito.serialization.objects import clone

CALLER = "decompose_loss"


@final
@dataclass(frozen=True, slots=True)
class LossDecomposition:
    """A proper score as calibration loss plus refinement loss; `print` gives one line.

    Attributes
    ----------
    score : float
        The score of the uncalibrated outputs.
    calibration : float
        What recalibration removes; 0 where it only adds noise.
    refinement : float
        What remains.
    recalibrated : float
        The score after recalibration, which may be above `score`.
    name : str
        "log_loss" or "brier_score".
    n_rows, n_folds : int
        Number of rows and of folds.
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

    Compare models by `refinement`, as calibration can be corrected afterwards.

    Parameters
    ----------
    y_true : array of shape (n_rows,) or (n_rows, n_classes)
        Labels, or label probabilities.
    outputs : Logits, Probabilities, Members or array of probabilities
        Model outputs.
    score : {"log_loss", "brier_score"}
        The proper score. An infinite log loss has an infinite calibration loss.
    calibrator : BaseCalibrator, optional
        What recalibrates held-out rows; `TemperatureScaling()` by default.
    cv : int
        Number of folds, at most one per row.
    random_state : int, RandomState or None
        Seed of the folds.
    sample_weight : array of shape (n_rows,), optional
        Frequency weights.

    Returns
    -------
    LossDecomposition
        The score, its calibration loss and its refinement loss.

    References
    ----------
    Berta, Holzmueller, Jordan and Bach, "Rethinking early stopping: refine, then calibrate", 2025.

    Examples
    --------
    >>> y, p = [0, 0, 0, 1] * 10 + [1, 1, 1, 0] * 10, [0.01] * 40 + [0.99] * 40
    >>> found = decompose_loss(y, p)
    >>> round(found.score, 2), round(found.calibration, 2), round(found.refinement, 2)
    (1.16, 0.56, 0.6)
    """
    require_choice(score, ("log_loss", "brier_score"), "score", CALLER)
    model = TemperatureScaling() if calibrator is None else calibrator
    if not isinstance(model, BaseCalibrator):
        rule, fix = "must be a calibrator of classes", "Pass calibrator=TemperatureScaling()"
        raise BadTypeError("calibrator", CALLER, rule, type(model).__name__, fix)
    n_folds = as_count(cv, "cv", CALLER, least=2, example=5)
    wrapped = as_class_outputs(outputs, CALLER)
    batch = drop_unlabeled(labeled_batch(y_true, wrapped, sample_weight, CALLER))
    if len(batch) == 0:
        raise EmptyStateError(CALLER)
    require_two_rows(batch, "y_true", CALLER)
    folds = make_folds(batch, min(n_folds, len(batch)), draw_seed(random_state, CALLER), CALLER)
    logits = held_out_logits(clone(model), batch, folds)
    states = [
        ProperScoresState.of(replace(batch.take(test), outputs=part))
        for (_, test), part in zip(folds, logits, strict=True)
    ]
    before = ProperScoresState.of(batch).score(score)
    after = sum(states[1:], start=states[0]).score(score)
    calibration, refinement = max(0.0, before - after), min(before, after)
    return LossDecomposition(before, calibration, refinement, after, score, len(batch), len(folds))

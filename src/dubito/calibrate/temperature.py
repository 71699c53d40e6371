"""Temperature scaling, and ensemble temperature scaling."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Literal, final

import numpy as np

from dubito.arrays import FloatArray, contiguous, freeze, require_choice
from dubito.calibrate.calibrator import (
    FLOOR,
    BaseCalibrator,
    ColumnBlock,
    LabeledRows,
    log_probabilities,
)
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards, sample_rows
from dubito.errors import BoundWarning
from dubito.formatting import percent
from dubito.kernels.bins import tempered_gaps
from dubito.kernels.blocks import BLOCK_ENTRIES
from dubito.kernels.columns import add_softmax
from dubito.kernels.row_statistics import NARROW
from dubito.kernels.scaling import (
    fit_mixture,
    label_scores,
    narrow_temperature_sums,
    temper_rows,
    wide_temperature_sums,
)
from dubito.measure.calibration_error import uniform_edges
from dubito.measure.state import require_weight
from dubito.outputs import BaseClassOutputs, Logits, Probabilities
from dubito.serialization.array_fields import distribution
from dubito.serialization.fields import fitted, number

MIN_BETA, MAX_BETA = 1e-6, 1e4  # bounds of the inverse temperature
TOLERANCE = 1e-5  # a relative Newton step this small leaves an error of its square
MAX_ROUNDS = 60
MIN_BLOCK_ENTRIES = 1 << 16  # in smaller blocks, starting another thread costs more than it saves
MAX_MIXTURE_STEPS = 2000
MIXTURE_TOLERANCE = 1e-6  # mean log likelihood that other weights could still gain
# The expected calibration error is searched on a grid of log temperatures up to that of 20, and to
# 1.5 beyond that of lowest log loss, with as many points as so many exponentials suffice for.
MAX_LOG_BETA, REACH = float(np.log(20)), 1.5
N_EXPONENTIALS, N_GRID_POINTS = 5e7, (100, 20_000)
BIN_COST = 5  # of putting a confidence into its bin, in exponentials
N_PLACES = 16  # the best points, which finer grids are laid around
FINER_GRID = np.linspace(-1, 1, 33)
N_BLOCKS = 4  # of rows in memory: every entry takes long enough for several threads
MAX_SAMPLES = 1_000_000  # mixture weights of longer streams come from a sample of this size

TEMPERATURE_FIELD = number(1e-9, 1e9)  # of a file: no product with logits over- or underflows


@final
class TemperatureScaling(BaseCalibrator):
    """Divide logits by one temperature; the predicted class never changes.

    Try it first: a single parameter does not overfit.

    Parameters
    ----------
    objective : {"log_loss", "ece"}
        What to minimize. Log loss is convex. The expected calibration error is neither smooth nor
        convex, and its global minimum is searched over temperatures from 0.05 to 20 at least.
    n_bins : int
        Number of equal-width bins of the expected calibration error.

    Attributes
    ----------
    temperature_ : float
        Above 1 if the model was over-confident.

    Notes
    -----
    Temperature scaling is also the answer to another question: of all probabilities q whose mean
    logit of the predicted distribution equals the mean logit of the true class, sum_i sum_k q_ik
    z_ik = sum_i z_iy, which have the largest entropy? With a Lagrange multiplier b for that
    constraint, and one per row for sum_k q_ik = 1, the derivative of the Lagrangian is 0 where
    log q_ik = b z_ik + constant: q is softmax(b z). The constraint that determines b is the
    derivative of the log loss with respect to b, so that b = 1/T of lowest log loss. It makes
    predictions as uncertain as they can be while their mean logit is right.

    References
    ----------
    Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML 2017; the
    derivation by entropy is in their supplement.

    Examples
    --------
    >>> from dubito import Logits
    >>> from dubito.calibrate import TemperatureScaling
    >>> scaling = TemperatureScaling().fit(Logits([[3.0, 0.0], [3.0, 0.0], [0.0, 3.0]]), [0, 1, 1])
    >>> round(scaling.temperature_, 3)
    4.328
    """

    temperature_: float = fitted(TEMPERATURE_FIELD)

    def __init__(self, objective: Literal["log_loss", "ece"] = "log_loss", n_bins: int = 15):
        self.objective = objective
        self.n_bins = n_bins

    def _check_params(self) -> None:
        name = type(self).__name__
        require_choice(self.objective, ("log_loss", "ece"), "objective", name)
        if self.objective == "ece":
            uniform_edges(self.n_bins, name)

    def _learn(self, shards: Shards) -> None:
        beta = best_inverse_temperature(shards)
        if self.objective == "ece":
            beta = _minimize_calibration_error(shards, beta, self.n_bins)
        self.temperature_ = 1 / beta

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        # Logits times the inverse temperature, 0 for the top class of each row.
        result = np.empty(outputs.array.shape, outputs.array.dtype)
        beta, is_logits = float(1 / self.temperature_), isinstance(outputs, Logits)
        temper_rows(contiguous(outputs.array), beta, is_logits, FLOOR, result)
        return result

    def _add_probabilities(self, block: ColumnBlock, weight: float, mixed: FloatArray) -> None:
        add_softmax(block.log_proba, 1 / self.temperature_, weight, mixed)

    def _describe(self) -> str:
        verdict = f"{'over' if self.temperature_ > 1 else 'under'}-confident"
        if abs(self.temperature_ - 1) < 0.005:
            verdict = "neither over- nor under-confident"
        return f"T = {self.temperature_:.3g}: {verdict}"


def best_inverse_temperature(shards: Shards) -> float:
    """Return the inverse temperature of lowest log loss, by a safeguarded Newton method.

    Each round is one pass. The loss is convex, so the sign of its derivative brackets the minimum.
    """
    shards = _smaller_blocks(shards)
    low, high, beta = MIN_BETA, MAX_BETA, 1.0
    for n_rounds in range(MAX_ROUNDS):
        beta = float(np.float32(beta))  # what float32 rows are multiplied by
        sums = shards.sum(lambda batch: temperature_sums(batch, beta))  # noqa: B023
        weight, loss, slope, curvature = sums
        require_weight(weight, "A temperature")
        if loss <= 0:  # confident and always right: rounding leaves no derivative
            _warn_about_bound(MAX_BETA)
            return MAX_BETA
        step = _newton_step(slope, curvature)
        if abs(step) < TOLERANCE:
            return float(beta * (1 + step))
        low, high = (low, beta) if slope > 0 else (beta, high)
        if (slope > 0 and beta <= MIN_BETA) or (slope < 0 and beta >= MAX_BETA * (1 - 1e-6)):
            _warn_about_bound(beta)
            return beta
        # Newton steps shrink in the exponential tail of separable data: leap out of it.
        is_slow = n_rounds > 6 and (high == MAX_BETA or low == MIN_BETA)
        leap = 8.0 if step > 0 else 1 / 8
        factor = leap if is_slow else float(np.clip(1 + step, 1 / 8, 8.0))
        proposal = min(max(beta * factor, MIN_BETA), MAX_BETA)
        is_inside = low < proposal < high or proposal in (MIN_BETA, MAX_BETA)
        beta = proposal if is_inside else float(np.sqrt(low * high))
    return beta


def temperature_sums(batch: Batch, beta: float) -> FloatArray:
    """Return the sums of weight, log loss and its two derivatives at an inverse temperature."""
    rows = LabeledRows.of(batch)
    scores, sums = np.empty(rows.labels.size), np.zeros(4)
    label_scores(rows.array, rows.labels, rows.soft_labels, rows.is_logits, FLOOR, scores)
    is_narrow = rows.outputs.n_classes <= NARROW
    add = narrow_temperature_sums if is_narrow else wide_temperature_sums
    add(rows.array, freeze(scores), rows.weight, beta, rows.is_logits, FLOOR, sums)
    return sums


def _smaller_blocks(shards: Shards) -> Shards:
    """Return rows in memory in blocks small enough to keep several threads busy."""
    if not isinstance(shards, ArrayShards):
        return shards
    outputs = shards.batch.outputs
    assert isinstance(outputs, BaseClassOutputs)
    n_entries = outputs.n_rows * outputs.n_classes
    return replace(shards, block_entries=min(max(n_entries // 4, MIN_BLOCK_ENTRIES), BLOCK_ENTRIES))


def _newton_step(slope: float, curvature: float) -> float:
    """Return the relative step of the inverse temperature.

    Downward steps are taken in its logarithm: saturated rows have little curvature, and a plain
    Newton step would overshoot.
    """
    if slope > 0:
        return float(np.expm1(-slope / (curvature + slope)))
    return -slope / curvature if curvature > 0 else -np.sign(slope) * np.inf if slope else 0.0


def _warn_about_bound(beta: float) -> None:
    """Warn that no finite temperature is best, and why."""
    why = "the outputs are unrelated to the labels, or contradict them"
    if beta > 1:
        why = "every prediction is correct, and more confidence only lowers the loss"
    text = f"The temperature ended at its bound of {1 / beta:.3g}: {why}. Check the labels."
    warnings.warn(text, BoundWarning, stacklevel=5)


def _minimize_calibration_error(shards: Shards, start: float, n_bins: int) -> float:
    """Return the inverse temperature of lowest expected calibration error.

    The error jumps wherever a row enters another bin, so that no slope leads to its minimum: a fine
    grid finds the best places, and finer grids around them the best of all.
    """
    edges = freeze(uniform_edges(n_bins, "TemperatureScaling"))
    n_rows, weight = shards.sum(lambda batch: np.array([len(batch), batch.labeled_weight.sum()]))
    n_classes = LabeledRows.of(next(shards.batches())).outputs.n_classes
    if isinstance(shards, ArrayShards):
        block_entries = min(int(n_rows) * n_classes // N_BLOCKS + 1, BLOCK_ENTRIES)
        shards = replace(shards, block_entries=block_entries)

    def gaps(batch: Batch, betas: FloatArray) -> FloatArray:
        rows, sums = LabeledRows.of(batch), np.zeros((betas.size, n_bins))
        labels = (freeze(batch.rows.correct), rows.weight)
        tempered_gaps(rows.array, *labels, betas, rows.is_logits, FLOOR, edges, sums)
        return sums

    def best_points(points: FloatArray) -> FloatArray:
        """Return the points of lowest error; of equal ones, those nearest to the center first."""
        sums = shards.sum(lambda batch: gaps(batch, freeze(np.exp(points))))
        # Rounded, like the center, so that the search does not depend on last digits.
        errors = np.round(np.abs(sums).sum(axis=1) / weight, 9)
        return points[np.lexsort((np.abs(points - center), errors))]

    center = round(float(np.log(start)), 6)
    low, high = min(center - REACH, -MAX_LOG_BETA), max(center + REACH, MAX_LOG_BETA)
    n_points = int(np.clip(N_EXPONENTIALS / (n_rows * (n_classes + BIN_COST)), *N_GRID_POINTS))
    best = best_points(np.append(center, np.linspace(low, high, n_points)))
    step = (high - low) / (n_points - 1)
    for finer in (step, step / 16):
        best = best_points(np.add.outer(best[:N_PLACES], finer * FINER_GRID).ravel())
    return float(np.exp(best[0]))


@final
class EnsembleTemperatureScaling(BaseCalibrator):
    """Mix temperature-scaled, uncalibrated and uniform probabilities.

    Use it where a model makes occasional confident errors, which the uniform part makes
    affordable. The predicted class never changes.

    Attributes
    ----------
    temperature_ : float
        Temperature of the scaled part.
    weights_ : array of shape (3,)
        Weights of the scaled, uncalibrated and uniform parts.

    References
    ----------
    Zhang, Kailkhura and Han, "Mix-n-Match: ensemble and compositional methods for uncertainty
    calibration in deep learning", ICML 2020.

    Examples
    --------
    >>> from dubito import Logits
    >>> from dubito.calibrate import EnsembleTemperatureScaling
    >>> logits = Logits([[9.0, 0.0], [9.0, 0.0], [0.0, 9.0], [0.0, 9.0]])
    >>> ensemble = EnsembleTemperatureScaling().fit(logits, [0, 1, 1, 1])
    >>> ensemble.predict_proba(logits)[0].round(2).tolist()
    [0.75, 0.25]
    """

    temperature_: float = fitted(TEMPERATURE_FIELD)
    weights_: FloatArray = fitted(distribution(3))

    def _learn(self, shards: Shards) -> None:
        beta = best_inverse_temperature(shards)
        rows = LabeledRows.of(sample_rows(shards, MAX_SAMPLES))
        likelihoods, weights, _ = rows.label_likelihoods(_ensemble_parts(rows.outputs, beta))
        self.temperature_ = 1 / beta
        self.weights_ = fit_mixture_weights(likelihoods, weights)

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        parts = _ensemble_parts(outputs, 1 / self.temperature_)
        mixed = np.tensordot(self.weights_, np.stack(parts), axes=1)
        logits = np.log(np.maximum(mixed, np.finfo(mixed.dtype).tiny))
        logits -= logits.max(axis=1, keepdims=True)
        # Rounding must not turn a small difference into a tie, and so change the class.
        array = outputs.array
        below = -float(np.finfo(array.dtype).smallest_subnormal)
        is_top = array == array.max(axis=1, keepdims=True)
        return np.where(is_top, 0.0, np.minimum(logits, below))

    def _add_probabilities(self, block: ColumnBlock, weight: float, mixed: FloatArray) -> None:
        for part, beta in zip(self.weights_, (1 / self.temperature_, 1.0, 0.0), strict=True):
            add_softmax(block.log_proba, beta, float(weight * part), mixed)

    def _describe(self) -> str:
        scaled, unchanged, uniform = self.weights_
        return (
            f"{percent(scaled)} at T = {self.temperature_:.3g}, {percent(unchanged)} uncalibrated, "
            f"{percent(uniform)} uniform"
        )


def _ensemble_parts(outputs: Logits | Probabilities, beta: float) -> list[FloatArray]:
    """Return temperature-scaled, uncalibrated and uniform probabilities."""
    shape = outputs.array.shape
    return [
        np.exp(log_probabilities(outputs, beta)),
        np.exp(log_probabilities(outputs)),
        np.full(shape, 1 / shape[1]),
    ]


def fit_mixture_weights(
    likelihoods: FloatArray, weights: FloatArray, prior_weight: float = 0.0
) -> FloatArray:
    """Return the mixture weights of highest likelihood, by expectation-maximization.

    `likelihoods` are rows x parts. `prior_weight` pseudo-rows are shared equally by the parts.
    """
    n_parts = likelihoods.shape[1]
    parts = contiguous(np.asarray(likelihoods.T, np.float64))  # one type: one kernel to compile
    mixture, limits = np.full(n_parts, 1 / n_parts), (MAX_MIXTURE_STEPS, MIXTURE_TOLERANCE)
    fit_mixture(parts, contiguous(weights), float(prior_weight), *limits, mixture)
    return np.asarray(mixture / mixture.sum())

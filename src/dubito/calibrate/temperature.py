"""Temperature scaling, and ensemble temperature scaling."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Literal, final

import numpy as np
from scipy.optimize import minimize_scalar

from dubito.arrays import FloatArray, contiguous, freeze
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.inputs import FLOOR, LabelledRows, log_probabilities
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards, sample_rows
from dubito.errors import BadValueError, BoundWarning, EmptyStateError
from dubito.kernels.blocks import BLOCK_ENTRIES
from dubito.kernels.mixture import mixture_step
from dubito.kernels.rows import NARROW
from dubito.kernels.temperature import (
    label_scores,
    narrow_temperature_sums,
    temper_rows,
    wide_temperature_sums,
)
from dubito.measure.calibration_error import ReliabilityState, uniform_edges
from dubito.outputs import BaseClassOutputs, Logits, Probabilities, unchecked
from dubito.serialization.arrays import distribution
from dubito.serialization.fields import declare, number

LOWEST, HIGHEST = 1e-6, 1e4  # bounds of the inverse temperature
CLOSE = 1e-5  # a relative Newton step this small leaves an error of its square
MOST_ROUNDS = 60
LEAST_PART = 1 << 16  # entries below which another thread takes longer to start than to help

TEMPERATURE = number(1e-9, 1e9)  # what may be read of a file: no product with logits is lost


@final
class TemperatureScaling(BaseCalibrator):
    """Divide logits by one temperature; the predicted class never changes.

    Try it first: one parameter cannot overfit. `objective` is what it minimizes, "log_loss"
    (convex, the default) or "ece", the expected calibration error over `n_bins` uniform bins, which
    is neither smooth nor convex. Guo et al., "On calibration of modern neural networks", 2017.

    >>> scaling = TemperatureScaling().fit(Logits([[3.0, 0.0], [3.0, 0.0], [0.0, 3.0]]), [0, 1, 1])
    >>> round(scaling.temperature_, 3)
    4.328
    """

    temperature_: float

    fitted_fields = declare(temperature_=TEMPERATURE)

    def __init__(self, objective: Literal["log_loss", "ece"] = "log_loss", n_bins: int = 15):
        self.objective = objective
        self.n_bins = n_bins

    def _check_params(self) -> None:
        name = type(self).__name__
        if self.objective not in ("log_loss", "ece"):
            rule, fix = "'log_loss' or 'ece'", "objective='log_loss'"
            raise BadValueError("objective", name, rule, repr(self.objective), fix)
        if self.objective == "ece":
            uniform_edges(self.n_bins, name)

    def _learn(self, shards: Shards) -> None:
        beta = best_inverse_temperature(shards)
        if self.objective == "ece":
            beta = _least_calibration_error(shards, beta, self.n_bins)
        self.temperature_ = 1 / beta

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        return _tempered(outputs, 1 / self.temperature_)

    def _words(self) -> str:
        too = "high" if self.temperature_ > 1 else "low"
        is_right = abs(self.temperature_ - 1) < 0.005
        verdict = "confidence was right already" if is_right else f"confidence was too {too}"
        return f"T = {self.temperature_:.3g}: {verdict}"


def _tempered(outputs: Logits | Probabilities, beta: float) -> FloatArray:
    """Return logits times an inverse temperature, 0 for the top class of each row."""
    result = np.empty(outputs.array.shape, outputs.array.dtype)
    is_logits = isinstance(outputs, Logits)
    temper_rows(contiguous(outputs.array), float(beta), is_logits, FLOOR, result)
    return result


def temperature_sums(batch: Batch, beta: float) -> FloatArray:
    """Return weight, loss, slope and bend of a batch at an inverse temperature."""
    rows = LabelledRows.of(batch)
    scores, sums = np.empty(rows.codes.size), np.zeros(4)
    label_scores(rows.array, rows.codes, rows.soft, rows.is_logits, FLOOR, scores)
    is_narrow = rows.outputs.n_classes <= NARROW
    add = narrow_temperature_sums if is_narrow else wide_temperature_sums
    add(rows.array, freeze(scores), rows.weight, beta, rows.is_logits, FLOOR, sums)
    return sums


def best_inverse_temperature(shards: Shards) -> float:
    """Return the inverse temperature of least log loss: safeguarded Newton, a pass a round.

    The loss is convex in it, so that the slope's sign tells on which side the best one lies.
    """
    shards = _in_parts(shards)
    low, high, beta = LOWEST, HIGHEST, 1.0
    for n_rounds in range(MOST_ROUNDS):
        beta = float(np.float32(beta))  # what float32 rows are really multiplied by
        weight, loss, slope, bend = shards.sum(lambda batch: temperature_sums(batch, beta))  # noqa: B023
        if not weight > 0:
            raise EmptyStateError("A temperature")
        if loss <= 0:  # so sure, and always right, that not even rounding leaves a slope
            _warn_of_bound(HIGHEST)
            return HIGHEST
        step = _newton_step(slope, bend)
        if abs(step) < CLOSE:
            return float(beta * (1 + step))
        low, high = (low, beta) if slope > 0 else (beta, high)
        if (slope > 0 and beta <= LOWEST) or (slope < 0 and beta >= HIGHEST * (1 - 1e-6)):
            _warn_of_bound(beta)
            return beta
        # The exponential tail of separable data shrinks Newton's steps: leave it by leaps.
        is_slow = n_rounds > 6 and (high == HIGHEST or low == LOWEST)
        leap = 8.0 if step > 0 else 1 / 8
        factor = leap if is_slow else float(np.clip(1 + step, 1 / 8, 8.0))
        proposal = min(max(beta * factor, LOWEST), HIGHEST)
        is_inside = low < proposal < high or proposal in (LOWEST, HIGHEST)
        beta = proposal if is_inside else float(np.sqrt(low * high))
    return beta


def _in_parts(shards: Shards) -> Shards:
    """Return rows in memory in parts so small that several threads have some of a single block."""
    if not isinstance(shards, ArrayShards):
        return shards
    outputs = shards.batch.outputs
    assert isinstance(outputs, BaseClassOutputs)
    n_entries = outputs.n_rows * outputs.n_classes
    return replace(shards, block_entries=min(max(n_entries // 4, LEAST_PART), BLOCK_ENTRIES))


def _newton_step(slope: float, bend: float) -> float:
    """Return the relative step in the inverse temperature.

    Where it is too high, the step is taken in its logarithm: saturated rows hardly bend the loss,
    and a plain step would overshoot.
    """
    if slope > 0:
        return float(np.expm1(-slope / (bend + slope)))
    return -slope / bend if bend > 0 else -np.sign(slope) * np.inf if slope else 0.0


def _warn_of_bound(beta: float) -> None:
    """Say that no finite temperature is best, and why that may be."""
    why = (
        "every row is right, and more confidence only lowers the loss"
        if beta > 1
        else "the outputs say nothing of the labels, or the contrary"
    )
    text = f"The temperature ended at its bound of {1 / beta:.3g}: {why}. Try other rows."
    warnings.warn(text, BoundWarning, stacklevel=5)


def _least_calibration_error(shards: Shards, start: float, n_bins: int) -> float:
    """Return the inverse temperature of least expected calibration error, near a good start.

    The error has steps and dents: a grid finds the valley, Brent's method its bottom.
    """
    edges = uniform_edges(n_bins, "TemperatureScaling")

    def error(log_beta: float) -> float:
        def bins(batch: Batch) -> ReliabilityState:
            scaled = unchecked(
                Logits,
                {
                    "array": _tempered(LabelledRows.of(batch).outputs, float(np.exp(log_beta))),
                    "classes": None,
                },
            )
            twin = Batch(scaled, batch.labels, batch.weight)
            return ReliabilityState.of(twin, edges)

        # Rounded, as the grid is, so that the search does not hang on last digits.
        return round(shards.sum(bins).expected(), 9)

    center = np.round(np.log(start), 6)
    grid = np.append(center + np.linspace(-1.5, 1.5, 31), center)
    errors = [error(float(point)) for point in grid]
    best = int(np.argmin(errors))
    step = 0.1
    found = minimize_scalar(
        error,
        bounds=(grid[best] - step, grid[best] + step),
        method="bounded",
        options={"maxiter": 25},
    )
    return float(np.exp(found.x if found.fun < errors[best] else grid[best]))


MOST_STEPS = 2000
CLOSE_WEIGHTS = 1e-6  # log likelihood, a unit of weight, that other shares could still gain
MOST_ROWS = 1_000_000  # the shares of a longer stream come from a seeded subsample of so many rows


@final
class EnsembleTemperatureScaling(BaseCalibrator):
    """Mix calibrated, original and uniform probabilities.

    Use it where a model is sometimes sure and wrong: the uniform part is what it costs to forgive
    that. The predicted class never changes. Zhang, Kailkhura and Han, "Mix-n-Match", 2020.

    >>> logits = Logits([[9.0, 0.0], [9.0, 0.0], [0.0, 9.0], [0.0, 9.0]])
    >>> EnsembleTemperatureScaling().fit(logits, [0, 1, 1, 1]).predict_proba(logits).round(2).tolist()[0]
    [0.75, 0.25]
    """

    temperature_: float
    weights_: FloatArray

    fitted_fields = declare(temperature_=TEMPERATURE, weights_=distribution(3))

    def _learn(self, shards: Shards) -> None:
        beta = best_inverse_temperature(shards)
        rows = LabelledRows.of(sample_rows(shards, MOST_ROWS))
        likelihoods, weights, _ = rows.likelihoods_of(_parts_of(rows.outputs, beta))
        self.temperature_ = 1 / beta
        self.weights_ = mixture_weights(likelihoods, weights)

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        parts = _parts_of(outputs, 1 / self.temperature_)
        mixed = np.tensordot(self.weights_, np.stack(parts), axes=1)
        logits = np.log(np.maximum(mixed, np.finfo(mixed.dtype).tiny))
        logits -= logits.max(axis=1, keepdims=True)
        # Rounding must not make a tie, and with it another class, of a small difference.
        array = outputs.array
        below = -float(np.finfo(array.dtype).smallest_subnormal)
        is_top = array == array.max(axis=1, keepdims=True)
        return np.where(is_top, 0.0, np.minimum(logits, below))

    def _words(self) -> str:
        calibrated, original, uniform = self.weights_
        return (
            f"{calibrated:.1%} at T = {self.temperature_:.3g}, {original:.1%} as it came, "
            f"{uniform:.1%} no opinion"
        )


def _parts_of(outputs: Logits | Probabilities, beta: float) -> list[FloatArray]:
    """Return the probabilities that are mixed."""
    shape = outputs.array.shape
    return [
        np.exp(log_probabilities(outputs, beta)),
        np.exp(log_probabilities(outputs)),
        np.full(shape, 1 / shape[1]),
    ]


def mixture_weights(likelihoods: FloatArray, weights: FloatArray, pull: float = 0.0) -> FloatArray:
    """Return the shares of the parts under which rows x parts of likelihoods are most likely.

    Expectation-maximization from equal shares; `pull` is so much weight explained by equal shares.
    """
    n_parts = likelihoods.shape[1]
    equal = np.full(n_parts, 1 / n_parts)
    shares, parts, weights = equal, contiguous(likelihoods.T), contiguous(weights)
    total = weights.sum()
    explained = np.empty(n_parts)
    for _ in range(MOST_STEPS):
        mixture_step(parts, weights, shares, explained)
        ratio = np.divide(explained, shares, out=np.zeros(n_parts), where=shares > 0)
        if ratio.max() - total < CLOSE_WEIGHTS * total:
            break
        shares = (explained + pull * equal) / (total + pull)
    return np.asarray(shares / shares.sum())

"""Temperature mixture: softened, as it came, and no opinion at all, in learned shares."""

from __future__ import annotations

from typing import final

import numpy as np

from dubito.arrays import FloatArray, contiguous
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.rows import LabelledRows, log_probabilities
from dubito.calibrate.temperature import TEMPERATURE, best_inverse_temperature
from dubito.data.sampling import sample_rows
from dubito.data.shards import Shards
from dubito.kept_arrays import shares
from dubito.kept_checks import entries
from dubito.kernels.mixture import mixture_step
from dubito.outputs import Logits, Probabilities

__all__ = ["EnsembleTemperatureScaling", "mixture_weights"]

MOST_STEPS = 2000
CLOSE = 1e-6  # log likelihood, a unit of weight, that other shares could still gain
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

    learned_checks = entries(temperature_=TEMPERATURE, weights_=shares(3))

    def _learn(self, shards: Shards) -> None:
        beta = best_inverse_temperature(shards)
        rows = LabelledRows.of(sample_rows(shards, MOST_ROWS))
        likelihoods, weights, _ = rows.likelihoods_of(parts_of(rows.outputs, beta))
        self.temperature_ = 1 / beta
        self.weights_ = mixture_weights(likelihoods, weights)

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        parts = parts_of(outputs, 1 / self.temperature_)
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


def parts_of(outputs: Logits | Probabilities, beta: float) -> list[FloatArray]:
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
        if ratio.max() - total < CLOSE * total:
            break
        shares = (explained + pull * equal) / (total + pull)
    return np.asarray(shares / shares.sum())

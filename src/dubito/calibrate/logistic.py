"""Logistic regression in a few numbers a row, by Newton's method over sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit, log_expit

from dubito.arrays import FloatArray
from dubito.calibrate.binary import BinaryRows, Scores
from dubito.errors import EmptyStateError

__all__ = ["fit_logistic"]

CLOSE = 1e-9  # what a Newton step promises to gain, below which a fit has ended
MOST_ROUNDS = 100


def fit_logistic(
    scores: Scores,
    numbers_of: Callable[[FloatArray], FloatArray],
    targets: tuple[float, float],
    start: FloatArray,
    penalty: float,
) -> FloatArray:
    """Return the coefficients of least mean log loss, plus `penalty` times the squared step away.

    `numbers_of` turns log odds into rows x coefficients. `targets` are what a row of the rest and a
    row of the class count as.
    """

    def sums(rows: BinaryRows, coefficients: FloatArray) -> FloatArray:
        numbers = numbers_of(rows.scores)
        odds = numbers @ coefficients
        wanted = targets[0] + (targets[1] - targets[0]) * rows.targets
        p = expit(odds)
        loss = -(wanted * log_expit(odds) + (1 - wanted) * log_expit(-odds))
        slope = numbers.T @ (rows.weight * (p - wanted))
        bend = (numbers * (rows.weight * p * (1 - p))[:, np.newaxis]).T @ numbers
        return np.concatenate([[rows.weight.sum(), rows.weight @ loss], slope, bend.ravel()])

    def objective(coefficients: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        weight, *rest = scores.sum(lambda rows: sums(rows, coefficients))
        if not weight > 0:
            raise EmptyStateError("A calibrator")
        loss, *derivatives = np.array(rest) / weight
        away = coefficients - start
        slope = np.array(derivatives[: start.size]) + 2 * penalty * away
        bend = np.reshape(derivatives[start.size :], (start.size, start.size))
        return loss + penalty * away @ away, slope, bend + 2 * penalty * np.eye(start.size)

    best = start
    loss, slope, bend = objective(best)
    for _ in range(MOST_ROUNDS):
        step = -np.linalg.solve(bend, slope)
        gain = -slope @ step
        if gain < CLOSE:
            return best + step
        length = 1.0
        while True:
            trial = best + length * step
            tried = objective(trial)
            if tried[0] <= loss - 1e-4 * length * gain or length < 1e-6:
                break
            length /= 2
        best, (loss, slope, bend) = trial, tried
    return best

"""Maps of log probabilities to scores, u = x + V f(x) + b: how vector and matrix scaling fit.

Both start from V = 0, b = 0 and minimise mean log loss plus L2 penalties. V and b are held in a
table of K rows whose last column is b. Before it stand the diagonal of V as one column, V for
f(x) = x as K columns, or, for maps that bend, K columns for each part of f: x, the probabilities,
and max(x - c, 0) for each bend c.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from dubito.arrays import FloatArray, IntArray
from dubito.calibrate.rows import LabelledRows, class_weights, log_probabilities
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards
from dubito.errors import EmptyStateError
from dubito.kernels.affine import residual_rows, vector_sums
from dubito.outputs import Logits, Probabilities

__all__ = ["N_PARTS", "affine_scores", "fit_affine"]

BENDS = (-6.0, -3.0, -1.0)  # log probabilities at which a map may bend: of 0.2 %, 5 % and 37 %
N_PARTS = 2 + len(BENDS)  # of f, for a map that bends

LEAST_PENALTY = 1e-6  # keeps finite what the data leave free
MOST_ROUNDS = 500
MOST_NEWTON = 800  # entries of a table; above, the whole curvature costs more than it saves
MOST_HELD = 1 << 25  # numbers kept in memory between rounds, 256 MB
CLOSE = 1e-8  # loss still to be gained, below which a fit has ended


def affine_scores(outputs: Logits | Probabilities, beta: float, table: FloatArray) -> FloatArray:
    """Return the scores of some rows, their log probabilities taken at an inverse temperature."""
    numbers = numbers_of(outputs, beta, table.shape[1])
    if table.shape[1] == 2:
        return np.asarray(numbers * (1 + table[:, 0]) + table[:, 1])
    return full_scores(numbers, table)


def full_scores(numbers: FloatArray, table: FloatArray) -> FloatArray:
    """Return the scores of rows of f(x)."""
    scores = numbers @ table[:, :-1].T
    scores += numbers[:, : table.shape[0]]
    scores += table[:, -1]
    return scores


def numbers_of(outputs: Logits | Probabilities, beta: float, n_columns: int) -> FloatArray:
    """Return f(x) of some rows, for a table of so many columns."""
    x = log_probabilities(outputs, beta)
    if n_columns <= x.shape[1] + 1:
        return x
    return np.column_stack([x, np.exp(x), *(np.maximum(x - bend, 0) for bend in BENDS)])


def fit_affine(shards: Shards, beta: float, penalty: FloatArray) -> FloatArray:
    """Return the table of least mean log loss plus sum(penalty * table^2).

    Log probabilities are taken at the inverse temperature `beta`. Newton's method where the whole
    curvature is worth its cost, else L-BFGS; either takes a pass over the rows a round.
    """
    penalty = np.maximum(penalty, LEAST_PENALTY)
    if penalty.shape[1] > 2 and isinstance(shards, ArrayShards):
        n_entries = len(shards.batch) * penalty.shape[0]
        block_entries = min(max(n_entries // 4, 1 << 13), 1 << 17)
        shards = replace(shards, block_entries=block_entries)
    weight = float(class_weights(shards).sum())
    if not weight > 0:
        raise EmptyStateError("A calibrator")
    # Threads go over parts of the rows: matrix products must not start threads of their own.
    with threadpool_limits(1, user_api="blas"):
        loss = PenalisedLoss(shards, beta, penalty, weight)
        is_small = penalty.shape[1] > 2 and penalty.size <= MOST_NEWTON
        return by_newton(loss) if is_small else by_descent(loss)


def by_newton(loss: PenalisedLoss) -> FloatArray:
    """Return the table of least loss by Newton's method, with a step that never overshoots."""
    table = np.zeros(loss.penalty.shape)
    value, slope = loss.at(table)
    for _ in range(MOST_ROUNDS):
        step = -cho_solve(cho_factor(loss.curvature(table)), slope.ravel()).reshape(table.shape)
        promise = -float((slope * step).sum())
        length = 1.0
        while True:
            tried, slope = loss.at(table + length * step)
            if tried <= value - 1e-4 * length * promise or length < 1e-6:
                break
            length /= 2
        table, value = table + length * step, min(tried, value)
        if promise < CLOSE:
            break
    return table


def by_descent(loss: PenalisedLoss) -> FloatArray:
    """Return the table of least loss by L-BFGS, in coordinates that undo most of the curvature."""
    coordinates = Coordinates.of(*loss.own_curvature(), loss.penalty)

    def objective(y: FloatArray) -> tuple[float, FloatArray]:
        value, slope = loss.at(coordinates.table(y))
        return value, coordinates.slope(slope)

    limits = {"maxiter": MOST_ROUNDS, "maxfun": 2 * MOST_ROUNDS, "ftol": CLOSE, "gtol": 1e-6}
    start = np.zeros(loss.penalty.size)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=limits)
    return coordinates.table(found.x)


class PenalisedLoss:
    """Mean log loss of a table over shards plus its penalty, and the derivatives of that."""

    def __init__(self, shards: Shards, beta: float, penalty: FloatArray, weight: float) -> None:
        self.shards, self.beta, self.penalty, self.weight = shards, beta, penalty, weight
        n_numbers = penalty.size if penalty.shape[1] > 2 else penalty.shape[0]
        # Rows in memory keep their f(x) between rounds, within reason.
        is_held = isinstance(shards, ArrayShards) and len(shards.batch) * n_numbers <= MOST_HELD
        self.held: dict[int, FloatArray] | None = {} if is_held else None

    def at(self, table: FloatArray) -> tuple[float, FloatArray]:
        """Return the loss and its slope."""
        sums = self.shards.sum(lambda batch: self.sums_of(batch, table)) / self.weight
        slope = sums[1:].reshape(table.shape) + 2 * self.penalty * table
        return float(sums[0] + (self.penalty * table**2).sum()), np.asarray(slope)

    def sums_of(self, batch: Batch, table: FloatArray) -> FloatArray:
        """Return loss and slope of a batch, without the penalty."""
        rows, numbers = self.rows_of(batch)
        if table.shape[1] == 2:
            sums = np.zeros((2, table.shape[0]))
            scale, bias = 1 + table[:, 0], table[:, 1].copy()
            loss = vector_sums(numbers, rows.codes, rows.soft, rows.weight, scale, bias, sums)
            return np.concatenate([[loss], sums.T.ravel()])
        residuals = full_scores(numbers, table)
        loss = residual_rows(residuals, rows.codes, rows.soft, rows.weight)
        slope = np.column_stack([residuals.T @ numbers, residuals.sum(axis=0)])
        return np.concatenate([[loss], slope.ravel()])

    def rows_of(self, batch: Batch) -> tuple[LabelledRows, FloatArray]:
        """Return the rows of a batch and their f(x)."""
        rows = LabelledRows.of(batch)
        numbers = None if self.held is None else self.held.get(batch.first_row)
        if numbers is None:
            numbers = numbers_of(rows.outputs, self.beta, self.penalty.shape[1])
            if self.held is not None:
                self.held[batch.first_row] = numbers
        return rows, numbers

    def curvature(self, table: FloatArray) -> FloatArray:
        """Return the whole curvature, entries of the table by entries."""
        found = self.shards.sum(lambda batch: self.curvature_of(batch, table)) / self.weight
        found[np.diag_indices(table.size)] += 2 * self.penalty.ravel()
        return np.asarray(found)

    def curvature_of(self, batch: Batch, table: FloatArray) -> FloatArray:
        """Return the curvature of a batch: of scores, diag(p) - p p', times f f'."""
        rows, numbers = self.rows_of(batch)
        p = softmax(full_scores(numbers, table), axis=1)
        entries = np.column_stack([numbers, np.ones(len(numbers))])
        root = np.sqrt(rows.weight)[:, np.newaxis]
        products = (root * p)[:, :, np.newaxis] * entries[:, np.newaxis, :]
        flat = products.reshape(len(p), -1)
        result = -(flat.T @ flat)
        blocks = result.reshape(table.shape * 2)
        for k in range(table.shape[0]):
            blocks[k, :, k, :] += (root * products[:, k, :]).T @ entries
        return np.asarray(result)

    def own_curvature(self) -> tuple[FloatArray, FloatArray]:
        """Return the curvature at the start of each entry by itself.

        And, for each class, the mixed term of its diagonal and its bias.
        """
        n_classes = self.penalty.shape[0]
        found = self.shards.sum(self.own_curvature_of) / self.weight
        return found[:-n_classes].reshape(self.penalty.shape), found[-n_classes:]

    def own_curvature_of(self, batch: Batch) -> FloatArray:
        """Return the sums of a batch that `own_curvature` is made of."""
        rows, numbers = self.rows_of(batch)
        x = numbers[:, : rows.outputs.n_classes]
        p = np.exp(x)
        bends = rows.weight[:, np.newaxis] * p * (1 - p)
        mixed = bends * x
        if self.penalty.shape[1] == 2:
            squares = (mixed * x).sum(axis=0)
        else:
            squares = bends.T @ np.square(numbers)
        table = np.column_stack([squares, bends.sum(axis=0)])
        return np.concatenate([table.ravel(), mixed.sum(axis=0)])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Coordinates:
    """A change of variables in which entries of the table curve nearly alike.

    Of each class, diagonal and bias go together; every other entry is scaled by itself.
    """

    scale: FloatArray  # a table
    mixed: FloatArray  # the lower left entry of the factor of diagonal and bias, a class
    diagonal: tuple[IntArray, IntArray]

    @classmethod
    def of(cls, bends: FloatArray, mixed: FloatArray, penalty: FloatArray) -> Coordinates:
        """Return the coordinates that suit a curvature."""
        classes = np.arange(penalty.shape[0])
        curvature = bends + 2 * penalty
        scale = np.sqrt(curvature)
        diagonal = classes, classes if penalty.shape[1] > 2 else np.zeros_like(classes)
        mixed = mixed / scale[diagonal]
        scale[:, -1] = np.sqrt(np.maximum(curvature[:, -1] - mixed**2, 1e-6 * curvature[:, -1]))
        return cls(scale, mixed, diagonal)

    def table(self, y: FloatArray) -> FloatArray:
        """Return the table at some coordinates."""
        table = y.reshape(self.scale.shape) / self.scale
        table[self.diagonal] -= self.mixed * table[:, -1] / self.scale[self.diagonal]
        return table

    def slope(self, slopes: FloatArray) -> FloatArray:
        """Return the slope in the coordinates of a slope in the table."""
        result = slopes / self.scale
        result[:, -1] -= self.mixed * result[self.diagonal] / self.scale[:, -1]
        return result.ravel()

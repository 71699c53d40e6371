"""Maps of log probabilities to scores, u = x + V f(x) + b: how vector and matrix scaling fit.

Both start from V = 0, b = 0 and minimise mean log loss plus L2 penalties. V and b are held in a
table of K rows whose last column is b. Before it stand the diagonal of V as one column, V for
f(x) = x as K columns, or, for maps that bend, K columns for each part of f: x, the probabilities,
and max(x - c, 0) for each bend c.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, final

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.special import softmax
from threadpoolctl import ThreadpoolController

from dubito.arrays import FloatArray, freeze
from dubito.calibrate.rows import FLOOR, LabelledRows, class_weights, log_probabilities
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards
from dubito.errors import EmptyStateError
from dubito.kernels.affine import residual_rows, vector_sums
from dubito.outputs import Logits, Probabilities

__all__ = ["N_PARTS", "affine_scores", "fit_affine"]

BENDS = (-6.0, -3.0, -1.0)  # log probabilities at which a map may bend: of 0.2 %, 5 % and 37 %
N_PARTS = 2 + len(BENDS)  # of f, for a map that bends

LOWEST = float(np.log(FLOOR))  # log probability, of logits as of probabilities
LEAST_PENALTY = 1e-6  # keeps finite what the data leave free
MOST_ROUNDS = 500
MOST_NEWTON = 800  # entries of a table; above, the whole curvature costs more than it saves
MANY_ENTRIES = 1 << 16  # of a part of the rows
MOST_HELD = 1 << 25  # numbers kept in memory between rounds, 256 MB
CLOSE = {"float64": 1e-8, "float32": 1e-7}  # loss to be gained, below which a fit has ended


def affine_scores(outputs: Logits | Probabilities, beta: float, table: FloatArray) -> FloatArray:
    """Return the scores of some rows, their log probabilities taken at an inverse temperature."""
    numbers = numbers_of(outputs, beta, table.shape[1])
    if table.shape[1] == 2:
        return np.asarray(numbers * (1 + table[:, 0]) + table[:, 1])
    return full_scores(numbers, table)


def full_scores(numbers: FloatArray, table: FloatArray) -> FloatArray:
    """Return the scores of rows of f(x)."""
    weights = table[:, :-1] + np.eye(table.shape[0], table.shape[1] - 1)
    scores = numbers @ np.ascontiguousarray(weights.T, dtype=numbers.dtype)
    scores += table[:, -1].astype(numbers.dtype)
    return scores


def numbers_of(
    outputs: Logits | Probabilities, beta: float, n_columns: int, precision: str = "float64"
) -> FloatArray:
    """Return f(x) of some rows, for a table of so many columns."""
    x = log_probabilities(outputs, beta, precision)
    np.maximum(x, LOWEST, out=x)
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
    with blas().limit(limits=1, user_api="blas"):
        loss = PenalisedLoss(shards, beta, penalty, weight)
        is_small = penalty.shape[1] > 2 and penalty.size <= MOST_NEWTON
        return by_newton(loss) if is_small else by_descent(loss)


@cache
def blas() -> Any:
    """Return what sets the number of threads of matrix products; finding it takes a while."""
    return ThreadpoolController()


def by_newton(loss: PenalisedLoss) -> FloatArray:
    """Return the table of least loss by Newton's method, with a step that never overshoots."""
    table = np.zeros(loss.penalty.shape)
    value, slope = loss.at(table)
    for _ in range(MOST_ROUNDS):
        step = -solved(loss.curvature(table), slope.ravel()).reshape(table.shape)
        promise = -float((slope * step).sum())
        length = 1.0
        while True:
            tried, slope = loss.at(table + length * step)
            if tried <= value - 1e-4 * length * promise or length < 1e-6:
                break
            length /= 2
        table, value = table + length * step, min(tried, value)
        if promise < CLOSE[loss.precision]:
            break
    return table


def solved(curvature: FloatArray, slope: FloatArray) -> FloatArray:
    """Return curvature^-1 slope, with as much of a ridge as rounding makes needful."""
    ridge = 0.0
    while True:
        try:
            return np.asarray(cho_solve(cho_factor(curvature), slope))
        except np.linalg.LinAlgError:
            added = max(9 * ridge, 1e-12 * float(np.trace(curvature)))
            curvature[np.diag_indices(len(curvature))] += added
            ridge += added


def by_descent(loss: PenalisedLoss) -> FloatArray:
    """Return the table of least loss by L-BFGS, in coordinates that undo most of the curvature."""
    coordinates = Coordinates.of(loss.moments(), loss.penalty)

    def objective(y: FloatArray) -> tuple[float, FloatArray]:
        value, slope = loss.at(coordinates.table(y))
        return value, coordinates.slope(slope)

    start = np.zeros(loss.penalty.size)
    close = CLOSE[loss.precision]
    steepest = float(np.sqrt(2 * close / start.size))  # curvature is about 1: slopes tell the gain
    limits = {"maxiter": MOST_ROUNDS, "maxfun": 2 * MOST_ROUNDS, "ftol": close, "gtol": steepest}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=limits)
    return coordinates.table(found.x)


class PenalisedLoss:
    """Mean log loss of a table over shards plus its penalty, and the derivatives of that."""

    def __init__(self, shards: Shards, beta: float, penalty: FloatArray, weight: float) -> None:
        self.shards, self.beta, self.penalty, self.weight = shards, beta, penalty, weight
        array = LabelledRows.of(next(shards.batches())).array
        # Where rows are many, the noise of single precision is far below that of the labels.
        self.precision: str = array.dtype.name if array.size >= MANY_ENTRIES else "float64"
        n_numbers = max(penalty.shape[1] - 1, penalty.shape[0])
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
            loss, sums = vector_sums_of(rows, numbers, table)
            return np.concatenate([[loss], sums[:2].T.ravel()])
        residuals = full_scores(numbers, table)
        loss = residual_rows(residuals, rows.codes, rows.soft, rows.weight)
        slope = np.column_stack([residuals.T @ numbers, residuals.sum(axis=0)])
        return np.concatenate([[loss], slope.ravel()])

    def rows_of(self, batch: Batch) -> tuple[LabelledRows, FloatArray]:
        """Return the rows of a batch and their f(x)."""
        rows = LabelledRows.of(batch)
        numbers = None if self.held is None else self.held.get(batch.first_row)
        if numbers is None:
            numbers = numbers_of(rows.outputs, self.beta, self.penalty.shape[1], self.precision)
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

    def moments(self) -> FloatArray:
        """Return what the curvature at the start is made of, three tables.

        For each entry: the mean over rows of h = p (1 - p) of its class, of h f, and of h f^2.
        """
        shape = (3, *self.penalty.shape)
        return np.asarray(self.shards.sum(self.moments_of) / self.weight).reshape(shape)

    def moments_of(self, batch: Batch) -> FloatArray:
        """Return the sums of a batch that `moments` is made of."""
        rows, numbers = self.rows_of(batch)
        if self.penalty.shape[1] == 2:
            _, sums = vector_sums_of(rows, numbers, np.zeros(self.penalty.shape))
            squares, firsts, total = sums[2:, :, np.newaxis]
        else:
            p = np.exp(numbers[:, : rows.outputs.n_classes])
            bends = rows.weight.astype(p.dtype)[:, np.newaxis] * p * (1 - p)
            squares, firsts = bends.T @ np.square(numbers), bends.T @ numbers
            total = bends.sum(axis=0)[:, np.newaxis]
        counts = np.broadcast_to(total, squares.shape)
        tables = ((counts, total), (firsts, total), (squares, total))
        return np.stack([np.column_stack(table) for table in tables])


def vector_sums_of(
    rows: LabelledRows, x: FloatArray, table: FloatArray
) -> tuple[float, FloatArray]:
    """Return the loss of a diagonal map, and its slope and curvature class by class."""
    sums = np.zeros((5, table.shape[0]))
    scale, bias = freeze(1 + table[:, 0]), freeze(table[:, 1].copy())
    loss = vector_sums(freeze(x), rows.codes, rows.soft, rows.weight, scale, bias, sums)
    return float(loss), sums


@final
@dataclass(frozen=True, slots=True, eq=False)
class Coordinates:
    """A change of variables in which entries of the table curve nearly alike.

    The curvature of a class's entries is taken as diagonal plus h m m', m the mean of f: exact for
    diagonal and bias alone, else without how entries vary together. With the diagonal scaled away
    that is 1 + u u', whose inverse root is 1 - c u u'.
    """

    scale: FloatArray  # roots of the diagonals, a table
    along: FloatArray  # u, a table
    shrink: FloatArray  # c, a class

    @classmethod
    def of(cls, moments: FloatArray, penalty: FloatArray) -> Coordinates:
        """Return the coordinates that suit the moments of f at the start."""
        total, firsts, squares = moments
        h = np.maximum(total, np.finfo(np.float64).tiny)
        own = np.maximum(squares - firsts**2 / h, 0) + 2 * penalty
        scale = np.sqrt(own)
        along = firsts / np.sqrt(h) / scale
        length = np.maximum((along**2).sum(axis=1), np.finfo(np.float64).tiny)
        return cls(scale, along, -np.expm1(-0.5 * np.log1p(length)) / length)

    def table(self, y: FloatArray) -> FloatArray:
        """Return the table at some coordinates."""
        return self.turned(y.reshape(self.scale.shape)) / self.scale

    def slope(self, slopes: FloatArray) -> FloatArray:
        """Return the slope in the coordinates of a slope in the table."""
        return self.turned(slopes / self.scale).ravel()

    def turned(self, table: FloatArray) -> FloatArray:
        """Return (1 - c u u') of each class's row."""
        along = (self.along * table).sum(axis=1) * self.shrink
        return np.asarray(table - along[:, np.newaxis] * self.along)

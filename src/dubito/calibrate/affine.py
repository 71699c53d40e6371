"""Maps of log probabilities to scores, u = x + V f(x) + b: how vector and matrix scaling fit.

Both start from V = 0, b = 0 and minimize mean log loss plus L2 penalties. V and b are held in a
table of K rows whose last column is b. Before it stand the diagonal of V as one column, or all of
V, a column for each number of the basis f.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, final

import numpy as np

from dubito.arrays import FloatArray, freeze
from dubito.calibrate.basis import Basis
from dubito.calibrate.curvature import CurvatureGuess, Moments
from dubito.calibrate.descent import descend
from dubito.calibrate.rows import LabelledRows
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards
from dubito.errors import EmptyStateError
from dubito.kernels.affine import residual_rows, vector_sums
from dubito.kernels.blocks import kept_threads
from dubito.outputs import Logits, Probabilities

__all__ = ["affine_scores", "fit_affine"]

LEAST_PENALTY = 1e-6  # keeps finite what the data leave free
MANY_ENTRIES = 1 << 16  # of a part of the rows
MANY_PRODUCTS = 1 << 24  # of rows and a table; for fewer, threads cost more than they save
ENOUGH_ROWS = 300  # of a part, to guess the curvature from
MOST_HELD = 1 << 25  # numbers kept in memory between rounds, 256 MB
# Loss to be gained, below which a fit has ended. A matrix in single precision is by far the most
# work, and its bound still far below the noise that labels leave in the loss of a million rows.
CLOSE, CLOSE_SINGLE, CLOSE_MATRIX = 1e-8, 5e-7, 2e-6


def affine_scores(outputs: Logits | Probabilities, basis: Basis, table: FloatArray) -> FloatArray:
    """Return the scores of some rows."""
    numbers = basis.numbers(outputs)
    if table.shape[1] == 2:
        return np.asarray(numbers * (1 + table[:, 0]) + table[:, 1])
    weights = table[:, :-1] + np.eye(table.shape[0], table.shape[1] - 1)
    scores = numbers @ weights.T
    scores += table[:, -1]
    return np.asarray(scores)


def fit_affine(shards: Shards, basis: Basis, penalty: FloatArray) -> FloatArray:
    """Return the table of least mean log loss plus sum(penalty * table^2).

    L-BFGS takes a pass over the rows a round, and few rounds, as it starts from a good guess of the
    curvature.
    """
    penalty = np.maximum(penalty, LEAST_PENALTY)
    if penalty.shape[1] > 2 and isinstance(shards, ArrayShards):
        n_entries = len(shards.batch) * penalty.shape[0]
        is_short = n_entries * penalty.shape[1] < MANY_PRODUCTS
        block_entries = n_entries if is_short else min(n_entries // 4, 1 << 17)
        shards = replace(shards, block_entries=max(block_entries, 1))
    with kept_threads():
        weight = float(shards.sum(lambda batch: batch.labeled_weight.sum()))
        if not weight > 0:
            raise EmptyStateError("A calibrator")
        loss = PenalisedLoss(shards, basis, penalty, weight)
        start = shards.sum(loss.start_of)
        guess = CurvatureGuess(start.moments, weight, penalty)
        first = loss.of(start.sums, np.zeros(penalty.shape))
        return descend(loss.at, np.zeros(penalty.shape), first, guess, loss.close)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """Loss and slope of some rows at the start, and what the curvature there is guessed from."""

    sums: FloatArray
    moments: Moments

    def __add__(self, other: Self) -> Self:
        return type(self)(self.sums + other.sums, self.moments + other.moments)


class PenalisedLoss:
    """Mean log loss of a table over shards plus its penalty, and the derivatives of that."""

    def __init__(self, shards: Shards, basis: Basis, penalty: FloatArray, weight: float) -> None:
        self.shards, self.basis, self.penalty, self.weight = shards, basis, penalty, weight
        array = LabelledRows.of(next(shards.batches())).array
        # Where rows are many, the noise of single precision is far below that of the labels.
        self.precision: str = array.dtype.name if array.size >= MANY_ENTRIES else "float64"
        close = CLOSE_SINGLE if penalty.shape[1] == 2 else CLOSE_MATRIX
        self.close = CLOSE if self.precision == "float64" else close
        n_numbers = max(penalty.shape[1] - 1, penalty.shape[0])
        # Rows in memory keep their f(x) between rounds, within reason.
        is_held = isinstance(shards, ArrayShards) and len(shards.batch) * n_numbers <= MOST_HELD
        self.held: dict[int, tuple[LabelledRows, FloatArray]] | None = {} if is_held else None

    def at(self, table: FloatArray) -> tuple[float, FloatArray]:
        """Return the loss and its slope."""
        return self.of(self.shards.sum(lambda batch: self.sums_of(batch, table)), table)

    def of(self, sums: FloatArray, table: FloatArray) -> tuple[float, FloatArray]:
        """Return the loss and its slope, of sums over all rows."""
        slope = sums[1:].reshape(table.shape) / self.weight + 2 * self.penalty * table
        return float(sums[0] / self.weight + (self.penalty * table**2).sum()), np.asarray(slope)

    def sums_of(self, batch: Batch, table: FloatArray) -> FloatArray:
        """Return loss and slope of a batch, without the penalty."""
        rows, numbers = self.rows_of(batch)
        if table.shape[1] == 2:
            loss, sums = vector_sums_of(rows, numbers, table, 2)
            return np.concatenate([[loss], sums.T.ravel()])
        weights = (table + np.eye(*table.shape)).astype(numbers.dtype)
        return full_sums_of(rows, numbers, numbers @ weights.T)

    def rows_of(self, batch: Batch) -> tuple[LabelledRows, FloatArray]:
        """Return the rows of a batch and their f(x), with a 1 for the bias if V is whole."""
        if self.held is not None and batch.first_row in self.held:
            return self.held[batch.first_row]
        rows = LabelledRows.of(batch)
        numbers = self.basis.numbers(rows.outputs, self.precision)
        if self.penalty.shape[1] > 2:
            numbers = np.column_stack([numbers, np.ones(len(numbers), numbers.dtype)])
        if self.held is not None:
            self.held[batch.first_row] = rows, numbers
        return rows, numbers

    def start_of(self, batch: Batch) -> Start:
        """Return what a batch says of the loss and its curvature at the start."""
        rows, numbers = self.rows_of(batch)
        if self.penalty.shape[1] == 2:
            loss, sums = vector_sums_of(rows, numbers, np.zeros(self.penalty.shape), 5)
            squares, firsts, weights = (np.column_stack([one, sums[4]]) for one in sums[2:])
            none = np.empty((0, 0))
            moments = Moments(weights, firsts, squares, none, none)
            return Start(np.concatenate([[loss], sums[:2].T.ravel()]), moments)
        is_large = rows.array.size >= MANY_ENTRIES
        step = max(1, len(numbers) // ENOUGH_ROWS) if is_large else 1
        moments = moments_of(numbers[::step], step * rows.weight[::step], self.penalty.shape[0])
        # No product is needed where V = 0 and b = 0.
        scores = numbers[:, : self.penalty.shape[0]].copy()
        return Start(full_sums_of(rows, numbers, scores), moments)


def moments_of(numbers: FloatArray, weight: FloatArray, n_classes: int) -> Moments:
    """Return the sums over rows of f(x) that the curvature at the start is guessed from."""
    p = np.exp(numbers[:, :n_classes])
    weighted = weight.astype(p.dtype)[:, np.newaxis] * p
    bends = weighted * (1 - p)
    firsts = bends.T @ numbers
    return Moments(
        weights=np.broadcast_to(firsts[:, -1:], firsts.shape),
        firsts=firsts,
        squares=bends.T @ np.square(numbers),
        classes=np.diag(weighted.sum(axis=0)) - weighted.T @ p,
        numbers=(bends.sum(axis=1)[:, np.newaxis] * numbers).T @ numbers,
    )


def full_sums_of(rows: LabelledRows, numbers: FloatArray, scores: FloatArray) -> FloatArray:
    """Return the loss of scores, which are written over, and its slope in the table."""
    loss = residual_rows(scores, rows.codes, rows.soft, rows.weight)
    return np.concatenate([[loss], (scores.T @ numbers).ravel()])


def vector_sums_of(
    rows: LabelledRows, x: FloatArray, table: FloatArray, n_sums: int
) -> tuple[float, FloatArray]:
    """Return the loss of a diagonal map, and its slope (2 sums a class) and curvature (3 more)."""
    sums = np.zeros((n_sums, table.shape[0]))
    scale, bias = freeze(1 + table[:, 0]), freeze(table[:, 1].copy())
    loss = vector_sums(freeze(x), rows.codes, rows.soft, rows.weight, scale, bias, sums)
    return float(loss), sums

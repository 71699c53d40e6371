"""Maps of log probabilities to scores, u = x + V f(x) + b: how vector and matrix scaling fit.

Both start from V = 0, b = 0 and minimise mean log loss plus L2 penalties. V and b are held in a
table of K rows whose last column is b. Before it stand the diagonal of V as one column, or all of
V, a column for each number of the basis f.
"""

from __future__ import annotations

from dataclasses import replace

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
ENOUGH_ROWS = 600  # of a part, to guess the curvature from
MOST_HELD = 1 << 25  # numbers kept in memory between rounds, 256 MB
CLOSE = {"float64": 1e-8, "float32": 5e-7}  # loss to be gained, below which a fit has ended


def affine_scores(outputs: Logits | Probabilities, basis: Basis, table: FloatArray) -> FloatArray:
    """Return the scores of some rows."""
    numbers = basis.numbers(outputs)
    if table.shape[1] == 2:
        return np.asarray(numbers * (1 + table[:, 0]) + table[:, 1])
    return full_scores(numbers, table)


def full_scores(numbers: FloatArray, table: FloatArray) -> FloatArray:
    """Return the scores of rows of f(x)."""
    weights = table[:, :-1] + np.eye(table.shape[0], table.shape[1] - 1)
    scores = numbers @ np.ascontiguousarray(weights.T, dtype=numbers.dtype)
    scores += table[:, -1].astype(numbers.dtype)
    return scores


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
        weight = float(shards.sum(lambda batch: batch.labelled_weight.sum()))
        if not weight > 0:
            raise EmptyStateError("A calibrator")
        loss = PenalisedLoss(shards, basis, penalty, weight)
        guess = CurvatureGuess(shards.sum(loss.moments_of), weight, penalty)
        return descend(loss.at, np.zeros(penalty.shape), guess, CLOSE[loss.precision])


class PenalisedLoss:
    """Mean log loss of a table over shards plus its penalty, and the derivatives of that."""

    def __init__(self, shards: Shards, basis: Basis, penalty: FloatArray, weight: float) -> None:
        self.shards, self.basis, self.penalty, self.weight = shards, basis, penalty, weight
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
            numbers = self.basis.numbers(rows.outputs, self.precision)
            if self.held is not None:
                self.held[batch.first_row] = numbers
        return rows, numbers

    def moments_of(self, batch: Batch) -> Moments:
        """Return the sums over a batch that the curvature at the start is guessed from."""
        rows, numbers = self.rows_of(batch)
        if self.penalty.shape[1] == 2:
            _, sums = vector_sums_of(rows, numbers, np.zeros(self.penalty.shape))
            squares, firsts, total = sums[2:, :, np.newaxis]
            of_classes = of_numbers = np.empty((0, 0))
        else:
            is_large = rows.array.size >= MANY_ENTRIES
            step = max(1, len(numbers) // ENOUGH_ROWS) if is_large else 1
            numbers, weight = numbers[::step], step * rows.weight[::step]
            p = np.exp(numbers[:, : rows.outputs.n_classes])
            weighted = weight.astype(p.dtype)[:, np.newaxis] * p
            bends = weighted * (1 - p)
            squares, firsts = bends.T @ np.square(numbers), bends.T @ numbers
            total = bends.sum(axis=0)[:, np.newaxis]
            of_classes = np.diag(weighted.sum(axis=0)) - weighted.T @ p
            entries = np.column_stack([numbers, np.ones(len(numbers), numbers.dtype)])
            of_numbers = (bends.sum(axis=1)[:, np.newaxis] * entries).T @ entries
        counts = np.broadcast_to(total, squares.shape)
        weights, firsts, squares = (
            np.column_stack([table, total]) for table in (counts, firsts, squares)
        )
        return Moments(weights, firsts, squares, of_classes, of_numbers)


def vector_sums_of(
    rows: LabelledRows, x: FloatArray, table: FloatArray
) -> tuple[float, FloatArray]:
    """Return the loss of a diagonal map, and its slope and curvature class by class."""
    sums = np.zeros((5, table.shape[0]))
    scale, bias = freeze(1 + table[:, 0]), freeze(table[:, 1].copy())
    loss = vector_sums(freeze(x), rows.codes, rows.soft, rows.weight, scale, bias, sums)
    return float(loss), sums

"""Affine maps of log probabilities, u = x + V f(x) + b, fitted by preconditioned L-BFGS."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Self, final

import numpy as np
from scipy.linalg import eigh

from dubito.arrays import FloatArray, freeze
from dubito.calibrate.basis import Basis
from dubito.calibrate.inputs import LabelledRows
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards
from dubito.errors import EmptyStateError
from dubito.kernels.affine import residual_rows, vector_sums
from dubito.kernels.blocks import kept_threads
from dubito.outputs import Logits, Probabilities

MOST_ROUNDS = 500
MOST_PAIRS = 20  # steps that are remembered
SHORTEST = 1e-12  # part of a step; below, rounding hides what is gained
LEAST_GAIN = 1e-4  # of what the slope promises, for a step to be taken
LEAST_LEFT = 0.1  # of what is to be gained, that a step is trusted to leave


class Pair(NamedTuple):
    """A step and by how much it changed the slope."""

    step: FloatArray
    change: FloatArray
    product: float


def _descend(
    loss: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    first: tuple[float, FloatArray],
    guess: Callable[[FloatArray], FloatArray],
    close: float,
) -> FloatArray:
    """Return where a loss is least, to about `close`.

    `loss` gives value and slope, `first` are those of the start, `guess` is the inverse curvature
    times a slope, as known beforehand; what steps show of the curvature is put on top. The last
    step is taken unseen, once it leaves less than `close` if it does as well as the one before.

    >>> import numpy as np
    >>> bowl = lambda x: (float((x - 3) @ (x - 3)), 2 * (x - 3))
    >>> start = np.zeros(2)
    >>> _descend(bowl, start, bowl(start), lambda slope: slope / 3, 1e-12).round(4).tolist()
    [3.0, 3.0]
    """
    x, (value, slope) = start, first
    pairs: deque[Pair] = deque(maxlen=MOST_PAIRS)
    before = 0.0
    for _ in range(MOST_ROUNDS):
        step = -_inverse_times(slope, pairs, guess)
        promise = -float(np.vdot(slope, step))
        left = min(max(promise / before, LEAST_LEFT), 1.0) if before > 0 else 1.0
        if promise * left < 2 * close:
            return x + step
        before = promise
        length = 1.0
        tried, new_slope = loss(x + step)
        while tried > value - LEAST_GAIN * length * promise and length > SHORTEST:
            bend = tried - value + length * promise  # of the parabola through what is known
            length *= min(max(0.5 * length * promise / bend, 0.1), 0.5)
            tried, new_slope = loss(x + length * step)
        if not tried < value:
            break
        change = new_slope - slope
        product = length * float(np.vdot(step, change))
        if product > 0:
            pairs.append(Pair(length * step, change, product))
        x, value, slope = x + length * step, tried, new_slope
    return x


def _inverse_times(
    slope: FloatArray, pairs: deque[Pair], guess: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """Return the inverse curvature times a slope: the guess, corrected by every pair."""
    shares = []
    for step, change, product in reversed(pairs):
        shares.append(float(np.vdot(step, slope)) / product)
        slope = slope - shares[-1] * change
    result = guess(slope)
    for (step, change, product), share in zip(pairs, reversed(shares), strict=True):
        result = result + (share - float(np.vdot(change, result)) / product) * step
    return result


TINY = np.finfo(np.float64).tiny


@final
@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Sums over rows that the curvature is guessed from; h is p (1 - p) of a class.

    `classes` and `numbers` have no entries for a diagonal map, whose scores do not share numbers.
    """

    weights: FloatArray  # sum of h, for each entry of the table
    firsts: FloatArray  # of h f
    squares: FloatArray  # of h f^2
    classes: FloatArray  # of diag(p) - p p'
    numbers: FloatArray  # of f f', by the trace of diag(p) - p p'

    def __add__(self, other: Self) -> Self:
        return type(self)(
            *(getattr(self, field.name) + getattr(other, field.name) for field in fields(self))
        )


@final
class CurvatureGuess:
    """The inverse curvature of the mean loss plus penalty, as guessed from the moments."""

    def __init__(self, moments: Moments, weight: float, penalty: FloatArray) -> None:
        self.by_class = ClassGuess(moments, weight, penalty)
        self.by_product = None
        if moments.classes.size:
            self.by_product = ProductGuess(moments, weight, penalty)

    def __call__(self, slope: FloatArray) -> FloatArray:
        """Return the inverse curvature times a slope."""
        first = self.by_class(slope)
        return first if self.by_product is None else (first + self.by_product(slope)) / 2


@final
class ClassGuess:
    """A diagonal plus h m m' for each class, m the mean of f: exact for a diagonal and a bias."""

    def __init__(self, moments: Moments, weight: float, penalty: FloatArray) -> None:
        h = np.maximum(moments.weights / weight, TINY)
        firsts = moments.firsts / weight
        self.diagonal = np.maximum(moments.squares / weight - firsts**2 / h, 0) + 2 * penalty
        along = firsts / np.sqrt(h)
        self.scaled = along / self.diagonal
        self.length = 1 + (along * self.scaled).sum(axis=1, keepdims=True)

    def __call__(self, slope: FloatArray) -> FloatArray:
        """Return the inverse times a slope, by Sherman and Morrison's formula."""
        share = (self.scaled * slope).sum(axis=1, keepdims=True) / self.length
        return np.asarray(slope / self.diagonal - share * self.scaled)


@final
class ProductGuess:
    """The mean of diag(p) - p p' times the mean of f f', penalized as most entries of a column."""

    def __init__(self, moments: Moments, weight: float, penalty: FloatArray) -> None:
        trace = max(float(np.trace(moments.classes)), TINY)
        # In units in which every column's penalty is 1, both factors and it share directions.
        self.units = 1 / np.sqrt(2 * np.median(penalty, axis=0))
        scaled = moments.numbers / trace * np.outer(self.units, self.units)
        of_classes, self.classes = eigh(moments.classes / weight, driver="evd")
        of_numbers, self.numbers = eigh(scaled, driver="evd")
        self.diagonal = 1 + np.outer(np.maximum(of_classes, 0), np.maximum(of_numbers, 0))

    def __call__(self, slope: FloatArray) -> FloatArray:
        """Return the inverse times a slope, in the directions in which it is diagonal."""
        turned = self.classes.T @ (slope * self.units) @ self.numbers
        return np.asarray(self.classes @ (turned / self.diagonal) @ self.numbers.T) * self.units


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
        return _descend(loss.at, np.zeros(penalty.shape), first, guess, loss.close)


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
            loss, sums = _vector_sums_of(rows, numbers, table, 2)
            return np.concatenate([[loss], sums.T.ravel()])
        weights = (table + np.eye(*table.shape)).astype(numbers.dtype)
        return _full_sums_of(rows, numbers, numbers @ weights.T)

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
            loss, sums = _vector_sums_of(rows, numbers, np.zeros(self.penalty.shape), 5)
            squares, firsts, weights = (np.column_stack([one, sums[4]]) for one in sums[2:])
            none = np.empty((0, 0))
            moments = Moments(weights, firsts, squares, none, none)
            return Start(np.concatenate([[loss], sums[:2].T.ravel()]), moments)
        is_large = rows.array.size >= MANY_ENTRIES
        step = max(1, len(numbers) // ENOUGH_ROWS) if is_large else 1
        moments = _moments_of(numbers[::step], step * rows.weight[::step], self.penalty.shape[0])
        # No product is needed where V = 0 and b = 0.
        scores = numbers[:, : self.penalty.shape[0]].copy()
        return Start(_full_sums_of(rows, numbers, scores), moments)


def _moments_of(numbers: FloatArray, weight: FloatArray, n_classes: int) -> Moments:
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


def _full_sums_of(rows: LabelledRows, numbers: FloatArray, scores: FloatArray) -> FloatArray:
    """Return the loss of scores, which are written over, and its slope in the table."""
    loss = residual_rows(scores, rows.codes, rows.soft, rows.weight)
    return np.concatenate([[loss], (scores.T @ numbers).ravel()])


def _vector_sums_of(
    rows: LabelledRows, x: FloatArray, table: FloatArray, n_sums: int
) -> tuple[float, FloatArray]:
    """Return the loss of a diagonal map, and its slope (2 sums a class) and curvature (3 more)."""
    sums = np.zeros((n_sums, table.shape[0]))
    scale, bias = freeze(1 + table[:, 0]), freeze(table[:, 1].copy())
    loss = vector_sums(freeze(x), rows.codes, rows.soft, rows.weight, scale, bias, sums)
    return float(loss), sums

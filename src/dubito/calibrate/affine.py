"""Affine maps u = x + V f(x) + b of logits or log probabilities, by preconditioned L-BFGS.

The coefficients are a table of classes x (features + 1): V and, in the last column, b. A table of
two columns is a diagonal map, u = x + v x + b per class. The features f(x) are linear, splines or
radial bases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from scipy.linalg import eigh
from scipy.special import softmax

from dubito.arrays import FloatArray, contiguous, freeze
from dubito.calibrate.calibrator import (
    FLOOR,
    ColumnBlock,
    LabeledRows,
    as_class_outputs,
    drop_unlabeled,
    log_probabilities,
)
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards, sample_rows
from dubito.kernels.blocks import kept_threads
from dubito.kernels.columns import fill_basis, fill_bumps
from dubito.kernels.scaling import residual_rows, vector_sums
from dubito.measure.state import State, require_weight
from dubito.outputs import Logits, Probabilities

BASES = ("linear", "spline", "rbf")
SPLINE_KNOTS = (-6.0, -3.0, -1.0)  # log probabilities of 0.2 %, 5 % and 37 %
N_CENTERS = (
    100  # of radial basis functions, each the mean of so many rows, out of so many per center
)
N_NEAREST, N_AROUND = 5, 20
RELATIVE_WIDTH = 0.2  # of a radial basis function, relative to the median distance of two centers
MIN_RBF_LOG_PROBA = -8.0  # radial basis functions do not distinguish lower log probabilities
MIN_LOG_PROBA = float(np.log(FLOOR))  # for logits as for probabilities
MAX_SAMPLES = 20_000  # rows from which centers are chosen
HASH_FACTOR = 12345.678901  # large and irregular: remainders of its multiples look random


@final
@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """Features f(x) of log probabilities x at the inverse temperature `beta`.

    "linear" is x itself; "spline" adds the probabilities and max(x - c, 0) for each knot c; "rbf"
    also adds a radial basis function around each of the `centers`. With `is_logits`, x is logits
    times `beta`, as they were given.
    """

    beta: float
    kind: str = "linear"
    centers: FloatArray | None = None
    width: float = 1.0
    is_logits: bool = False

    def n_per_class(self) -> int:
        """Return the number of features per class, radial basis functions not counted."""
        return 1 if self.kind == "linear" else 2 + len(SPLINE_KNOTS)

    def features(self, outputs: Logits | Probabilities, precision: str = "float64") -> FloatArray:
        """Return f(x), rows x features."""
        if self.is_logits:
            return np.asarray(outputs.array.astype(precision) * np.dtype(precision).type(self.beta))
        if self.kind == "linear":
            return np.maximum(log_probabilities(outputs, self.beta, precision), MIN_LOG_PROBA)
        columns = np.concatenate(self.columns(ColumnBlock(outputs)))
        return np.ascontiguousarray(columns.T, precision)

    def columns(self, block: ColumnBlock) -> list[FloatArray]:
        """Return f(x), features x rows: those per class, and radial basis functions if any."""
        if self.is_logits:
            return [np.asarray(block.outputs.array.T.astype(np.float64) * self.beta)]
        n_classes, n_rows = block.log_proba.shape
        n_features = self.n_per_class() * n_classes
        features = block.features.get(self.beta, block.log_proba[:0])
        if len(features) < n_features:
            features = block.features[self.beta] = np.empty((n_features, n_rows))
            knots = freeze(np.array(SPLINE_KNOTS))
            fill_basis(block.log_proba, self.beta, MIN_LOG_PROBA, knots, features)
        if self.centers is None:
            return [features[:n_features]]
        bumps, x = np.empty((len(self.centers), n_rows)), features[:n_classes]
        fill_bumps(x, MIN_RBF_LOG_PROBA, self.centers, self.width, bumps)
        return [features, bumps]


def choose_centers(shards: Shards, beta: float) -> tuple[FloatArray, float]:
    """Return the centers of radial basis functions and their width.

    A center is the mean of a row and the rows nearest to it, so that no row is stored. Rows are
    chosen by a hash of their values: as good as random, yet independent of the order of rows and
    classes, of duplicates, and (but for a few) of the precision.
    """
    batch = drop_unlabeled(sample_rows(shards, MAX_SAMPLES))
    outputs = as_class_outputs(batch.outputs, "a calibrator")
    rounded = np.round(Basis(1.0).features(outputs), 6)
    distinct, firsts = np.unique(rounded, axis=0, return_index=True)
    # The finer hash separates rows that agree to three digits.
    coarse, fine = _hash_rows(np.round(distinct, 3)), _hash_rows(distinct)
    order = np.lexsort((fine, coarse))

    def first_rows(n_rows: int) -> FloatArray:
        last = order[:n_rows][-1]
        is_chosen = (coarse < coarse[last]) | ((coarse == coarse[last]) & (fine <= fine[last]))
        chosen = outputs.take(firsts[is_chosen])
        return np.maximum(Basis(beta).features(chosen), MIN_RBF_LOG_PROBA)

    centers = contiguous(_local_means(first_rows(N_CENTERS), first_rows(N_AROUND * N_CENTERS)))
    distance = np.sqrt(np.square(centers[:, np.newaxis] - centers).sum(axis=2))
    is_apart = distance > 1e-9  # of two rows with the same near rows, by rounding
    width = RELATIVE_WIDTH * float(np.median(distance[is_apart])) if is_apart.any() else 1.0
    return centers, width


def _local_means(rows: FloatArray, others: FloatArray) -> FloatArray:
    """Return the mean of the rows among `others` that are nearest to each row, ties included."""
    n_nearest = min(N_NEAREST, len(others))
    means = np.empty(rows.shape)
    for row, mean in zip(rows, means, strict=True):
        distance = np.sqrt(np.square(others - row).sum(axis=1))
        limit = np.partition(distance, n_nearest - 1)[n_nearest - 1] * (1 + 1e-6)
        mean[:] = others[distance <= limit].mean(axis=0)
    return means


def _hash_rows(rows: FloatArray) -> FloatArray:
    """Return a pseudo-random number between 0 and 1 for each row, whatever the column order."""
    remainder = np.mod(np.mod(HASH_FACTOR * rows, 1).sum(axis=1), 1)
    return np.asarray(np.round(remainder, 9))  # the order of a sum changes last digits


MIN_PENALTY = 1e-6  # keeps directions finite that the data do not determine
MIN_PENALTY_LOGITS = 1e-10  # hardly any: without penalties it is logistic regression
LARGE_BLOCK = 1 << 16  # entries; so many stay in single precision, and are subsampled
THREADED_PRODUCTS = 1 << 24  # rows x table; with fewer, threads cost more than they save
CURVATURE_ROWS = 300  # of a large block, to estimate the curvature
MAX_CACHED = 1 << 25  # features kept in memory between rounds: 256 MB
# Loss that may remain to be gained at the end. A matrix in single precision takes by far the most
# work, and its tolerance is still far below the noise of the labels of a million rows.
TOLERANCE, TOLERANCE_SINGLE, TOLERANCE_MATRIX = 1e-8, 5e-7, 2e-6
TOLERANCE_ROUGH = 2e-6  # of a fit that only compares calibrators
TOLERANCE_LOGITS = 1e-14  # of few rows, whose probabilities are then right to about 1e-7

MAX_ROUNDS = 500
MEMORY = 20  # steps that L-BFGS remembers
MIN_STEP = 1e-12  # fraction of a step below which rounding hides any decrease
ARMIJO = 1e-4  # fraction of the predicted decrease that a step must achieve
MIN_REMAINING = 0.1  # fraction of the possible decrease that one step is expected to leave
TINY = np.finfo(np.float64).tiny

Linear = Callable[[FloatArray], FloatArray]  # such as the inverse curvature times a gradient
Correction = tuple[FloatArray, FloatArray, float]  # a step, the change of the gradient, and both


def fit_affine(
    shards: Shards, basis: Basis, penalty: FloatArray, is_rough: bool = False
) -> FloatArray:
    """Return the table of lowest mean log loss plus sum(penalty * table^2).

    Each round of L-BFGS is a pass over the rows. A good estimate of the curvature at the start
    keeps rounds few.
    """
    penalty = np.maximum(penalty, MIN_PENALTY_LOGITS if basis.is_logits else MIN_PENALTY)
    if penalty.shape[1] > 2 and isinstance(shards, ArrayShards):
        n_entries = len(shards.batch) * penalty.shape[0]
        is_short = n_entries * penalty.shape[1] < THREADED_PRODUCTS
        block_entries = n_entries if is_short else min(n_entries // 4, 1 << 17)
        shards = replace(shards, block_entries=max(block_entries, 1))
    with kept_threads():
        weight = float(shards.sum(lambda batch: batch.labeled_weight.sum()))
        require_weight(weight, "A calibrator")
        loss = _PenalizedLoss(shards, basis, penalty, weight)
        start = shards.sum(loss.start_moments)
        table = np.zeros(penalty.shape)
        first = loss.from_sums(start.sums, table)
        precondition = _preconditioner(start, weight, penalty)
        tolerance = max(loss.tolerance, TOLERANCE_ROUGH) if is_rough else loss.tolerance
        return _minimize(loss, table, first, precondition, tolerance)


@final
class _PenalizedLoss:
    """Mean log loss of a table over shards plus its penalty, with the gradient."""

    def __init__(self, shards: Shards, basis: Basis, penalty: FloatArray, weight: float) -> None:
        self.shards, self.basis, self.penalty, self.weight = shards, basis, penalty, weight
        array = LabeledRows.of(next(shards.batches())).array
        n_entries = array.size
        batch = shards.in_memory
        if batch is not None:
            n_entries = len(batch) * penalty.shape[0]
        # With many rows, the rounding of single precision is far below the noise of the labels.
        self.is_large = n_entries >= LARGE_BLOCK
        self.precision: str = array.dtype.name if self.is_large else "float64"
        single = TOLERANCE_SINGLE if penalty.shape[1] == 2 else TOLERANCE_MATRIX
        self.tolerance = TOLERANCE if self.precision == "float64" else single
        if basis.is_logits and not self.is_large:
            self.tolerance = TOLERANCE_LOGITS
        n_numbers = max(penalty.shape[1] - 1, penalty.shape[0])
        is_cached = batch is not None and len(batch) * n_numbers <= MAX_CACHED
        self.cache: dict[int, tuple[LabeledRows, FloatArray]] | None = {} if is_cached else None

    def __call__(self, table: FloatArray) -> tuple[float, FloatArray]:
        """Return the loss and its gradient."""
        return self.from_sums(self.shards.sum(lambda batch: self.sums(batch, table)), table)

    def from_sums(self, sums: FloatArray, table: FloatArray) -> tuple[float, FloatArray]:
        """Return the loss and its gradient from sums over all rows."""
        gradient = sums[1:].reshape(table.shape) / self.weight + 2 * self.penalty * table
        loss = sums[0] / self.weight + (self.penalty * table**2).sum()
        return float(loss), np.asarray(gradient)

    def sums(self, batch: Batch, table: FloatArray) -> FloatArray:
        """Return the loss and the gradient of a batch, without the penalty."""
        rows, features = self.features(batch)
        if table.shape[1] == 2:
            loss, sums = _diagonal_sums(rows, features, table, 2)
            return np.concatenate([[loss], sums.T.ravel()])
        weights = (table + np.eye(*table.shape)).astype(features.dtype)
        return _matrix_sums(rows, features, features @ weights.T)

    def features(self, batch: Batch) -> tuple[LabeledRows, FloatArray]:
        """Return the rows of a batch and their f(x), with a column of ones for a full matrix."""
        if self.cache is not None and batch.first_row in self.cache:
            return self.cache[batch.first_row]
        rows = LabeledRows.of(batch)
        features = self.basis.features(rows.outputs, self.precision)
        if self.penalty.shape[1] > 2:
            features = np.column_stack([features, np.ones(len(features), features.dtype)])
        if self.cache is not None:
            self.cache[batch.first_row] = rows, features
        return rows, features

    def start_moments(self, batch: Batch) -> _Moments:
        """Return the loss, the gradient and the moments of a batch where the table is 0."""
        rows, features = self.features(batch)
        n_classes = self.penalty.shape[0]
        if self.penalty.shape[1] == 2:
            loss, sums = _diagonal_sums(rows, features, np.zeros(self.penalty.shape), 5)
            squares, firsts, weights = (np.column_stack([one, sums[4]]) for one in sums[2:])
            none, gradient = np.empty((0, 0)), sums[:2].T.ravel()
            return _Moments(np.append(loss, gradient), weights, firsts, squares, none, none)
        step = max(1, len(features) // CURVATURE_ROWS) if self.is_large else 1
        scores = features[:, :n_classes].copy()  # a table of 0 needs no product
        sums = _matrix_sums(rows, features, scores)
        first = features[::step, :n_classes]
        p = softmax(first, axis=1) if self.basis.is_logits else np.exp(first)
        return _matrix_moments(sums, p, features[::step], step * rows.weight[::step])


def _matrix_sums(rows: LabeledRows, features: FloatArray, scores: FloatArray) -> FloatArray:
    """Return the loss of scores, which are overwritten, and its gradient in the table."""
    loss = residual_rows(scores, rows.labels, rows.soft_labels, rows.weight)
    return np.concatenate([[loss], (scores.T @ features).ravel()])


def _diagonal_sums(
    rows: LabeledRows, x: FloatArray, table: FloatArray, n_sums: int
) -> tuple[float, FloatArray]:
    """Return the loss of a diagonal map, its gradient (2 sums per class) and curvature (3 more)."""
    sums = np.zeros((n_sums, table.shape[0]))
    scale, bias = freeze(1 + table[:, 0]), freeze(table[:, 1].copy())
    loss = vector_sums(freeze(x), rows.labels, rows.soft_labels, rows.weight, scale, bias, sums)
    return float(loss), sums


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Moments(State):
    """Sums over rows where the table is 0: loss, gradient, and what the curvature is estimated of.

    With h = p (1 - p) per class. `classes` and `features` are empty for a diagonal map, whose
    scores share no features.
    """

    sums: FloatArray  # loss and gradient
    weights: FloatArray  # h, for each entry of the table
    firsts: FloatArray  # h f
    squares: FloatArray  # h f^2
    classes: FloatArray  # diag(p) - p p'
    features: FloatArray  # f f' times the trace of diag(p) - p p'


def _matrix_moments(
    sums: FloatArray, p: FloatArray, features: FloatArray, weight: FloatArray
) -> _Moments:
    """Return the moments of rows of probabilities p."""
    weighted = weight.astype(p.dtype)[:, np.newaxis] * p
    h = weighted * (1 - p)
    firsts = h.T @ features
    weights, squares = np.broadcast_to(firsts[:, -1:], firsts.shape), h.T @ np.square(features)
    classes = np.diag(weighted.sum(axis=0)) - weighted.T @ p
    products = (h.sum(axis=1)[:, np.newaxis] * features).T @ features
    return _Moments(sums, weights, firsts, squares, classes, products)


def _preconditioner(moments: _Moments, weight: float, penalty: FloatArray) -> Linear:
    """Return the inverse curvature of the penalized mean loss, as estimated from the moments."""
    per_class = _class_curvature(moments, weight, penalty)
    if not moments.classes.size:
        return per_class
    product = _product_curvature(moments, weight, penalty)
    return lambda gradient: (per_class(gradient) + product(gradient)) / 2


def _class_curvature(moments: _Moments, weight: float, penalty: FloatArray) -> Linear:
    """Return the inverse of a diagonal plus h m m' per class, m the mean of f.

    Exact for a diagonal and an intercept; inverted by the Sherman-Morrison formula.
    """
    h = np.maximum(moments.weights / weight, TINY)
    firsts = moments.firsts / weight
    diagonal = np.maximum(moments.squares / weight - firsts**2 / h, 0) + 2 * penalty
    direction = firsts / np.sqrt(h)
    scaled = direction / diagonal
    length = 1 + (direction * scaled).sum(axis=1, keepdims=True)

    def inverse_times(gradient: FloatArray) -> FloatArray:
        along = (scaled * gradient).sum(axis=1, keepdims=True) / length
        return np.asarray(gradient / diagonal - along * scaled)

    return inverse_times


def _product_curvature(moments: _Moments, weight: float, penalty: FloatArray) -> Linear:
    """Return the inverse of the Kronecker product of the means of diag(p) - p p' and f f'.

    Penalized per column; inverted in the eigenvectors.
    """
    trace = max(float(np.trace(moments.classes)), TINY)
    # In units in which every column has penalty 1, both factors keep their eigenvectors.
    units = 1 / np.sqrt(2 * np.median(penalty, axis=0))
    class_values, classes = eigh(moments.classes / weight, driver="evd")
    scaled = moments.features / trace * np.outer(units, units)
    feature_values, features = eigh(scaled, driver="evd")
    diagonal = 1 + np.outer(np.maximum(class_values, 0), np.maximum(feature_values, 0))

    def inverse_times(gradient: FloatArray) -> FloatArray:
        rotated = classes.T @ (gradient * units) @ features
        return np.asarray(classes @ (rotated / diagonal) @ features.T) * units

    return inverse_times


def _minimize(
    loss: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    first: tuple[float, FloatArray],
    precondition: Linear,
    tolerance: float,
) -> FloatArray:
    """Return the minimum of a loss, to about `tolerance` in its value, by L-BFGS.

    `loss` returns value and gradient, and `first` is that of the start. `precondition` multiplies
    a gradient with an estimate of the inverse curvature. The last step is not evaluated: it is
    taken once it would leave less than `tolerance`, given the progress of the step before.

    >>> import numpy as np
    >>> bowl = lambda x: (float((x - 3) @ (x - 3)), 2 * (x - 3))
    >>> start = np.zeros(2)
    >>> _minimize(bowl, start, bowl(start), lambda slope: slope / 3, 1e-12).round(4).tolist()
    [3.0, 3.0]
    """
    x, (value, gradient) = start, first
    corrections: deque[Correction] = deque(maxlen=MEMORY)
    previous = 0.0
    for _ in range(MAX_ROUNDS):
        step = -_inverse_times(gradient, corrections, precondition)
        decrease = -float(np.vdot(gradient, step))
        remaining = min(max(decrease / previous, MIN_REMAINING), 1.0) if previous > 0 else 1.0
        if decrease * remaining < 2 * tolerance:
            return x + step
        previous = decrease
        length = 1.0
        new_value, new_gradient = loss(x + step)
        while new_value > value - ARMIJO * length * decrease and length > MIN_STEP:
            curvature = new_value - value + length * decrease  # of the interpolating parabola
            length *= min(max(0.5 * length * decrease / curvature, 0.1), 0.5)
            new_value, new_gradient = loss(x + length * step)
        if not new_value < value:
            break
        change = new_gradient - gradient
        product = length * float(np.vdot(step, change))
        if product > 0:
            corrections.append((length * step, change, product))
        x, value, gradient = x + length * step, new_value, new_gradient
    return x


def _inverse_times(
    gradient: FloatArray, corrections: deque[Correction], precondition: Linear
) -> FloatArray:
    """Return the inverse curvature times a gradient, by the two-loop recursion."""
    factors = []
    for step, change, product in reversed(corrections):
        factors.append(float(np.vdot(step, gradient)) / product)
        gradient = gradient - factors[-1] * change
    result = precondition(gradient)
    for (step, change, product), factor in zip(corrections, reversed(factors), strict=True):
        result = result + (factor - float(np.vdot(change, result)) / product) * step
    return result

"""Features of logits or log probabilities in which a matrix calibration map is linear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dubito.arrays import FloatArray, contiguous, freeze
from dubito.calibrate.calibrator import (
    FLOOR,
    RowBlock,
    as_class_outputs,
    drop_unlabeled,
    log_probabilities,
)
from dubito.data.shards import Shards, sample_rows
from dubito.kernels.columns import fill_basis, fill_bumps
from dubito.outputs import Logits, Probabilities

BASES = ("linear", "spline", "rbf")
SPLINE_KNOTS = (-6.0, -3.0, -1.0)  # log probabilities of 0.2 %, 5 % and 37 %
N_CENTERS = 100  # of radial basis functions
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
        columns = np.concatenate(self.columns(RowBlock(outputs)))
        return np.ascontiguousarray(columns.T, precision)

    def columns(self, block: RowBlock) -> list[FloatArray]:
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

    Rows are chosen by a hash of their values: as good as random, yet independent of the order of
    rows and classes, of duplicates, and (but for a few) of the precision.
    """
    batch = drop_unlabeled(sample_rows(shards, MAX_SAMPLES))
    outputs = as_class_outputs(batch.outputs, "a calibrator")
    rounded = np.round(Basis(1.0).features(outputs), 6)
    distinct, firsts = np.unique(rounded, axis=0, return_index=True)
    # The finer hash separates rows that agree to three digits.
    coarse, fine = _hash_rows(np.round(distinct, 3)), _hash_rows(distinct)
    last = np.lexsort((fine, coarse))[:N_CENTERS][-1]
    is_chosen = (coarse < coarse[last]) | ((coarse == coarse[last]) & (fine <= fine[last]))
    chosen = outputs.take(firsts[is_chosen])
    centers = contiguous(np.maximum(Basis(beta).features(chosen), MIN_RBF_LOG_PROBA))
    distance = np.sqrt(np.square(centers[:, np.newaxis] - centers).sum(axis=2))
    is_apart = distance > 0
    width = RELATIVE_WIDTH * float(np.median(distance[is_apart])) if is_apart.any() else 1.0
    return centers, width


def _hash_rows(rows: FloatArray) -> FloatArray:
    """Return a pseudo-random number between 0 and 1 for each row, whatever the column order."""
    remainder = np.mod(np.mod(HASH_FACTOR * rows, 1).sum(axis=1), 1)
    return np.asarray(np.round(remainder, 9))  # the order of a sum changes last digits

"""Class means and covariances from sums over rows of features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from scipy import sparse

from dubito.arrays import FloatArray
from dubito.doubt.features import FeatureRows, FeatureShards
from dubito.doubt.gaussians import (
    BaseGaussians,
    DiagonalGaussians,
    PerClassGaussians,
    SharedGaussians,
    shrunk_covariance,
    usable_variances,
)
from dubito.errors import BadValueError


@final
@dataclass(frozen=True, slots=True, eq=False)
class ClassMeans:
    """Means of classes, their weights, and how many rows of equal weight these are worth."""

    means: FloatArray
    weights: FloatArray
    n_effective: FloatArray
    reach: FloatArray  # a feature: the furthest a mean is from the middle, what rounding hangs on

    @property
    def n_pooled(self) -> float:
        """How many rows all are worth, less one for each mean beyond the first."""
        squares = np.square(self.weights) / self.n_effective
        n_rows = float(np.square(self.weights.sum()) / squares.sum())
        return max(1.0, n_rows - (self.weights.size - 1))

    def residuals(self, rows: FeatureRows) -> FloatArray:
        """Return how far rows are from the means of their classes, in float64."""
        return np.asarray(rows.features - self.means[rows.codes])


def _class_means(shards: FeatureShards, caller: str) -> ClassMeans:
    """Return the weighted means of classes."""
    first = next(shards.blocks()).features
    start = first[0].astype(np.float64)
    middle = start + (first - start).mean(axis=0)  # the very value of a feature that never varies

    def sums_of(rows: FeatureRows) -> FloatArray:
        squares = np.bincount(rows.codes, np.square(rows.weight), shards.n_classes)
        return np.column_stack([_by_class(rows, rows.features - middle, shards.n_classes), squares])

    sums = shards.sum(sums_of)
    require_summable(sums, caller)
    offsets = sums[:, :-1] / shards.weights[:, np.newaxis]
    n_effective = np.square(shards.weights) / sums[:, -1]
    return ClassMeans(middle + offsets, shards.weights, n_effective, np.abs(offsets).max(axis=0))


def _pooled_scatter(shards: FeatureShards, of: ClassMeans, caller: str) -> FloatArray:
    """Return the sum of outer products of what rows are off the means of their classes."""

    def scatter(rows: FeatureRows) -> FloatArray:
        residuals = of.residuals(rows)
        residuals *= np.sqrt(rows.weight)[:, np.newaxis]
        return np.asarray(residuals.T @ residuals)

    return require_summable(shards.sum(scatter), caller)


def _squared_deviations(shards: FeatureShards, of: ClassMeans, caller: str) -> FloatArray:
    """Return classes x features of the sum of squares of what rows are off their class's mean."""

    def squares(rows: FeatureRows) -> FloatArray:
        return _by_class(rows, np.square(of.residuals(rows)), shards.n_classes)

    return require_summable(shards.sum(squares), caller)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Scatters:
    """A scatter matrix a class, of the classes that were seen."""

    of_class: dict[int, FloatArray]

    def __add__(self, other: Scatters) -> Scatters:
        merged = dict(self.of_class)
        for code, scatter in other.of_class.items():
            merged[code] = merged[code] + scatter if code in merged else scatter
        return Scatters(merged)


def _own_scatters(shards: FeatureShards, of: ClassMeans, caller: str) -> FloatArray:
    """Return classes x features x features: the scatter of each class about its mean."""

    def scatters(rows: FeatureRows) -> Scatters:
        residuals = of.residuals(rows) * np.sqrt(rows.weight)[:, np.newaxis]
        parts = {int(code): residuals[rows.codes == code] for code in np.unique(rows.codes)}
        return Scatters({code: part.T @ part for code, part in parts.items()})

    found = shards.sum(scatters).of_class
    return require_summable(np.stack([found[k] for k in range(shards.n_classes)]), caller)


def _by_class(rows: FeatureRows, values: FloatArray, n_classes: int) -> FloatArray:
    """Return the weighted sums of rows of values over the rows of each class."""
    starts = np.arange(len(rows) + 1)
    places = sparse.csc_array((rows.weight, rows.codes, starts), shape=(n_classes, len(rows)))
    return np.asarray(places @ values)


def require_summable(sums: FloatArray, caller: str) -> FloatArray:
    """Return sums, or raise where the features are too large to be squared and added."""
    if not np.isfinite(sums).all():
        rule, fix = "small enough to be squared and summed", "dividing them by a scale of theirs"
        raise BadValueError("features", caller, rule, "sums beyond the largest float", fix)
    return sums


@final
@dataclass(frozen=True, slots=True, eq=False)
class FittedGaussians:
    """Normal distributions, and what share was mixed in to make each covariance invertible."""

    gaussians: BaseGaussians
    shrinkage: FloatArray  # a class, or one entry for all


def fit_shared(shards: FeatureShards, shrinkage: float | None, caller: str) -> FittedGaussians:
    """Return classes that share a covariance: the mean over all rows, about their class's mean."""
    means = _class_means(shards, caller)
    covariance = _pooled_scatter(shards, means, caller) / means.weights.sum()
    variances = np.diag(covariance)
    shrunk = shrunk_covariance(
        covariance, variances, means.reach, means.n_pooled, shrinkage, caller
    )
    gaussians = SharedGaussians(means.means, shrunk.covariance)
    return FittedGaussians(gaussians, np.array([shrunk.shrinkage]))


def fit_per_class(shards: FeatureShards, shrinkage: float | None, caller: str) -> FittedGaussians:
    """Return classes of which each has a covariance of its own."""
    means = _several_rows_a_class(shards, "per_class", caller)
    scatters = _own_scatters(shards, means, caller)
    pooled = np.diag(scatters.sum(axis=0)) / means.weights.sum()
    shrunk = [
        shrunk_covariance(scatter / weight, pooled, means.reach, n_rows, shrinkage, caller)
        for scatter, weight, n_rows in zip(scatters, means.weights, means.n_effective, strict=True)
    ]
    gaussians = PerClassGaussians(means.means, np.stack([one.covariance for one in shrunk]))
    return FittedGaussians(gaussians, np.array([one.shrinkage for one in shrunk]))


def fit_diagonal(shards: FeatureShards, shrinkage: float | None, caller: str) -> FittedGaussians:
    """Return classes of independent features, variances drawn towards those of all classes.

    Without a share given, the variances of all classes count as much as one row does.
    """
    means = _several_rows_a_class(shards, "diagonal", caller)
    squares = _squared_deviations(shards, means, caller)
    together = squares.sum(axis=0) / means.weights.sum()
    pooled, _ = usable_variances(together, together, means.reach, 1.0, caller)
    automatic = 1 / (1 + means.n_effective)
    shares = automatic if shrinkage is None else np.full(shards.n_classes, shrinkage)
    variances = [
        (1 - share) * usable_variances(own, pooled, means.reach, share, caller)[0] + share * pooled
        for own, share in zip(squares / means.weights[:, np.newaxis], shares, strict=True)
    ]
    return FittedGaussians(DiagonalGaussians(means.means, np.stack(variances)), shares)


def _several_rows_a_class(shards: FeatureShards, covariance: str, caller: str) -> ClassMeans:
    """Return the means of classes that all have rows enough to vary."""
    means = _class_means(shards, caller)
    is_single = means.n_effective < 1 + 1e-9
    if is_single.any():
        names = shards.classes or ("all rows",)
        rule = f"labels with 2 rows or more a class where covariance={covariance!r}"
        got = f"1 row of class {names[int(np.argmax(is_single))]!r}"
        raise BadValueError("y", caller, rule, got, "covariance='shared', or more rows")
    return means

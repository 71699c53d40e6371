"""Class means and covariances, from sums over rows of features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import scipy

from dubito.arrays import FloatArray
from dubito.doubt.features import FeatureRows, FeatureShards
from dubito.doubt.gaussians import shrunk_covariance, usable_variances
from dubito.errors import BadValueError
from dubito.measure.state import GroupedState


class FittedGaussians(NamedTuple):
    """Means, covariances, and the shrinkage of each covariance (one entry if shared)."""

    means: FloatArray
    covariance: FloatArray
    shrinkage: FloatArray


def fit_shared(rows: FeatureShards, shrinkage: float | None, caller: str) -> FittedGaussians:
    """Fit a mean per class and one covariance, pooled over the classes."""
    means = _class_means(rows, caller)
    pooled = _pooled_scatter(rows, means, caller) / means.weights.sum()
    covariance, used = shrunk_covariance(
        pooled, np.diag(pooled), means.scale, means.n_pooled, shrinkage, caller
    )
    return FittedGaussians(means.means, covariance, np.array([used]))


def fit_per_class(rows: FeatureShards, shrinkage: float | None, caller: str) -> FittedGaussians:
    """Fit a mean and a covariance per class."""
    means = _means_of_several_rows(rows, "per_class", caller)
    scatters = _class_scatters(rows, means, caller)
    pooled = np.diag(scatters.sum(axis=0)) / means.weights.sum()
    fitted = [
        shrunk_covariance(scatter / weight, pooled, means.scale, weight, shrinkage, caller)
        for scatter, weight in zip(scatters, means.weights, strict=True)
    ]
    covariances, used = zip(*fitted, strict=True)
    return FittedGaussians(means.means, np.stack(covariances), np.array(used))


def fit_diagonal(rows: FeatureShards, shrinkage: float | None, caller: str) -> FittedGaussians:
    """Fit a mean and variances per class, shrunk towards the variances pooled over classes.

    With automatic shrinkage the pooled variances count as much as one row.
    """
    means = _means_of_several_rows(rows, "diagonal", caller)
    squares = _squared_deviations(rows, means, caller)
    total = squares.sum(axis=0) / means.weights.sum()
    pooled, _ = usable_variances(total, total, means.scale, 1.0, caller)
    automatic = 1 / (1 + means.weights)
    used = automatic if shrinkage is None else np.full(rows.n_classes, shrinkage)
    variances = [
        (1 - w) * usable_variances(own, pooled, means.scale, w, caller)[0] + w * pooled
        for own, w in zip(squares / means.weights[:, np.newaxis], used, strict=True)
    ]
    return FittedGaussians(means.means, np.stack(variances), used)


def require_summable(sums: FloatArray, caller: str) -> FloatArray:
    """Return sums, or raise if the features are too large to be squared and summed."""
    if not np.isfinite(sums).all():
        rule = "must be small enough to be squared and summed in float64"
        fix = "Divide the features by a constant first"
        raise BadValueError("features", caller, rule, "an overflow", fix)
    return sums


@final
@dataclass(frozen=True, slots=True, eq=False)
class _ClassMeans:
    """Class means with their weights, which are numbers of rows.

    `scale` is, per feature, the largest distance of a class mean from the center: the magnitude
    that rounding errors are relative to.
    """

    means: FloatArray
    weights: FloatArray
    scale: FloatArray

    @property
    def n_pooled(self) -> float:
        """The number of rows of all classes, less one per mean after the first."""
        return max(1.0, float(self.weights.sum()) - (self.weights.size - 1))

    def residuals(self, rows: FeatureRows) -> FloatArray:
        """Return rows minus the means of their classes, in float64."""
        return np.asarray(rows.features - self.means[rows.codes])


def _class_means(rows: FeatureShards, caller: str) -> _ClassMeans:
    """Return the weighted means of the classes."""
    first = next(block.features for block in rows.shards.batches() if len(block))
    start = first[0].astype(np.float64)
    center = start + (first - start).mean(axis=0)  # exact for a constant feature

    sums = rows.sum(lambda block: _class_sums(block, block.features - center, rows))
    offsets = require_summable(sums, caller) / rows.weights[:, np.newaxis]
    return _ClassMeans(center + offsets, rows.weights, np.abs(offsets).max(axis=0))


def _means_of_several_rows(rows: FeatureShards, covariance: str, caller: str) -> _ClassMeans:
    """Return the class means, or raise if a class has a single row and so no variance."""
    means = _class_means(rows, caller)
    is_single = means.weights < 1 + 1e-9
    if is_single.any():
        name = (rows.classes or ("all rows",))[int(np.argmax(is_single))]
        rule = f"must have at least 2 rows per class with covariance={covariance!r}"
        fix = "Use covariance='shared', or more rows"
        raise BadValueError("y", caller, rule, f"1 row of class {name!r}", fix)
    return means


def _pooled_scatter(rows: FeatureShards, means: _ClassMeans, caller: str) -> FloatArray:
    """Return the weighted sum of outer products of the residuals of all rows."""

    def scatter(block: FeatureRows) -> FloatArray:
        residuals = means.residuals(block)
        residuals *= np.sqrt(block.weight)[:, np.newaxis]
        return np.asarray(residuals.T @ residuals)

    return require_summable(rows.sum(scatter), caller)


def _squared_deviations(rows: FeatureShards, means: _ClassMeans, caller: str) -> FloatArray:
    """Return weighted sums of squared residuals, shape (n_classes, n_features)."""

    def squares(block: FeatureRows) -> FloatArray:
        return _class_sums(block, np.square(means.residuals(block)), rows)

    return require_summable(rows.sum(squares), caller)


def _class_scatters(rows: FeatureShards, means: _ClassMeans, caller: str) -> FloatArray:
    """Return the scatter matrix of each class, shape (n_classes, n_features, n_features)."""

    def scatters(block: FeatureRows) -> GroupedState[FloatArray]:  # of the classes that occur
        residuals = means.residuals(block) * np.sqrt(block.weight)[:, np.newaxis]
        parts = {str(code): residuals[block.codes == code] for code in np.unique(block.codes)}
        return GroupedState({code: part.T @ part for code, part in parts.items()})

    by_code = rows.sum(scatters).states
    return require_summable(np.stack([by_code[str(k)] for k in range(rows.n_classes)]), caller)


def _class_sums(block: FeatureRows, values: FloatArray, rows: FeatureShards) -> FloatArray:
    """Return the weighted sum of `values` over the rows of each class."""
    starts = np.arange(len(block) + 1)
    shape = (rows.n_classes, len(block))
    return np.asarray(
        scipy.sparse.csc_array((block.weight, block.codes, starts), shape=shape) @ values
    )

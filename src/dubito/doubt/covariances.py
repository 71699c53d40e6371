"""Normal distributions of classes, learned from rows of features by sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dubito.arrays import FloatArray
from dubito.doubt.feature_shards import FeatureShards
from dubito.doubt.gaussians import (
    BaseGaussians,
    NaiveGaussians,
    OwnGaussians,
    SharedGaussians,
)
from dubito.doubt.moments import (
    ClassMeans,
    class_means,
    own_scatters,
    pooled_scatter,
    squared_deviations,
)
from dubito.doubt.shrinking import shrunk_covariance, usable_variances
from dubito.errors import BadValueError

__all__ = ["FittedGaussians", "fit_naive", "fit_own", "fit_shared"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class FittedGaussians:
    """Normal distributions, and what share was mixed in to make each covariance invertible."""

    gaussians: BaseGaussians
    shrinkage: FloatArray  # a class, or one entry for all


def fit_shared(shards: FeatureShards, shrinkage: float | None, caller: str) -> FittedGaussians:
    """Return classes that share a covariance: the mean over all rows, about their class's mean."""
    means = class_means(shards, caller)
    covariance = pooled_scatter(shards, means, caller) / means.weights.sum()
    variances = np.diag(covariance)
    shrunk = shrunk_covariance(
        covariance, variances, means.reach, means.n_pooled, shrinkage, caller
    )
    gaussians = SharedGaussians(means.means, shrunk.covariance)
    return FittedGaussians(gaussians, np.array([shrunk.shrinkage]))


def fit_own(shards: FeatureShards, shrinkage: float | None, caller: str) -> FittedGaussians:
    """Return classes of which each has a covariance of its own."""
    means = several_rows_a_class(shards, "own", caller)
    scatters = own_scatters(shards, means, caller)
    pooled = np.diag(scatters.sum(axis=0)) / means.weights.sum()
    shrunk = [
        shrunk_covariance(scatter / weight, pooled, means.reach, n_rows, shrinkage, caller)
        for scatter, weight, n_rows in zip(scatters, means.weights, means.n_effective, strict=True)
    ]
    gaussians = OwnGaussians(means.means, np.stack([one.covariance for one in shrunk]))
    return FittedGaussians(gaussians, np.array([one.shrinkage for one in shrunk]))


def fit_naive(shards: FeatureShards, shrinkage: float | None, caller: str) -> FittedGaussians:
    """Return classes of independent features, variances drawn towards those of all classes.

    Without a share given, the variances of all classes count as much as one row does.
    """
    means = several_rows_a_class(shards, "naive", caller)
    squares = squared_deviations(shards, means, caller)
    together = squares.sum(axis=0) / means.weights.sum()
    pooled, _ = usable_variances(together, together, means.reach, 1.0, caller)
    automatic = 1 / (1 + means.n_effective)
    shares = automatic if shrinkage is None else np.full(shards.n_classes, shrinkage)
    variances = [
        (1 - share) * usable_variances(own, pooled, means.reach, share, caller)[0] + share * pooled
        for own, share in zip(squares / means.weights[:, np.newaxis], shares, strict=True)
    ]
    return FittedGaussians(NaiveGaussians(means.means, np.stack(variances)), shares)


def several_rows_a_class(shards: FeatureShards, covariance: str, caller: str) -> ClassMeans:
    """Return the means of classes that all have rows enough to vary."""
    means = class_means(shards, caller)
    is_single = means.n_effective < 1 + 1e-9
    if is_single.any():
        names = shards.classes or ("all rows",)
        rule = f"labels with 2 rows or more a class where covariance={covariance!r}"
        got = f"1 row of class {names[int(np.argmax(is_single))]!r}"
        raise BadValueError("y", caller, rule, got, "covariance='shared', or more rows")
    return means

"""Normal distributions per class: means and covariances from sums over rows, with shrinkage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import scipy
from scipy.linalg import lapack, solve_triangular

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.doubt.features import FeatureRows, FeatureShards
from dubito.errors import BadValueError
from dubito.measure.state import GroupedState
from dubito.serialization.fields import Entry

CANCELLATION = 1e-2  # distances this small relative to their terms are computed directly
MAX_DISTANCE = 1e300  # what a squared distance that overflows is replaced by
ASYMMETRY = 1e-6  # by which entries (i, j) and (j, i) may differ, in units of a correlation
ROUNDING = 1e-9  # a standard deviation below this fraction of the scale is a rounding error
MIN_UNEXPLAINED = 1e-15  # per feature: variance not explained by the other features, as a fraction


@dataclass(frozen=True, eq=False)
class BaseGaussians(ABC):
    """One normal distribution per class, with means of shape (n_classes, n_features)."""

    means: FloatArray
    covariance: FloatArray

    def log_likelihoods(self, features: FloatArray) -> FloatArray:
        """Return log p(x | class) of shape (n_rows, n_classes), always finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            distances = self.squared_distances(features)
        distances = np.nan_to_num(distances, copy=False, nan=MAX_DISTANCE, posinf=MAX_DISTANCE)
        constant = self.log_determinants() + self.means.shape[1] * np.log(2 * np.pi)
        return np.asarray(-0.5 * (np.minimum(distances, MAX_DISTANCE) + constant))

    @abstractmethod
    def squared_distances(self, features: FloatArray) -> FloatArray:
        """Return squared Mahalanobis distances of shape (n_rows, n_classes)."""

    @abstractmethod
    def log_determinants(self) -> FloatArray:
        """Return the log determinant of each class's covariance."""

    @abstractmethod
    def from_noise(self, codes: IntArray, noise: FloatArray) -> FloatArray:
        """Return samples of the given classes, made from standard normal noise."""

    @cached_property
    def center(self) -> FloatArray:
        """The mean of the means; subtracting it first avoids cancellation."""
        return np.asarray(self.means.mean(axis=0))


@final
class SharedGaussians(BaseGaussians):
    """One covariance for all classes, of shape (n_features, n_features)."""

    @cached_property
    def whitening(self) -> Whitening:
        """The transform that makes the covariance the identity."""
        return Whitening.of(self.covariance)

    @cached_property
    def white_means(self) -> FloatArray:
        """The means, whitened."""
        return self.whiten(self.means)

    def whiten(self, features: FloatArray) -> FloatArray:
        """Return whitened rows, in float64."""
        return np.asarray((features - self.center) @ self.whitening.matrix)

    def squared_distances(self, features: FloatArray) -> FloatArray:
        rows, means = self.whiten(features), self.white_means
        distances = rows @ (-2 * means.T)
        distances += squared_norms(rows)[:, np.newaxis]
        distances += squared_norms(means)
        return np.maximum(distances, 0.0, out=distances)

    def log_determinants(self) -> FloatArray:
        return np.full(self.means.shape[0], self.whitening.log_determinant)

    def from_noise(self, codes: IntArray, noise: FloatArray) -> FloatArray:
        return np.asarray(self.means[codes] + noise @ self.whitening.factor.T)


@final
class PerClassGaussians(BaseGaussians):
    """A covariance per class, of shape (n_classes, n_features, n_features)."""

    @cached_property
    def whitenings(self) -> list[Whitening]:
        """For each class, the transform that makes its covariance the identity."""
        return [Whitening.of(covariance) for covariance in self.covariance]

    def squared_distances(self, features: FloatArray) -> FloatArray:
        distances = np.empty((features.shape[0], self.means.shape[0]))
        for k, whitening in enumerate(self.whitenings):
            distances[:, k] = squared_norms((features - self.means[k]) @ whitening.matrix)
        return distances

    def log_determinants(self) -> FloatArray:
        return np.array([whitening.log_determinant for whitening in self.whitenings])

    def from_noise(self, codes: IntArray, noise: FloatArray) -> FloatArray:
        result = self.means[codes]
        for k, whitening in enumerate(self.whitenings):
            result[codes == k] += noise[codes == k] @ whitening.factor.T
        return result


@final
class DiagonalGaussians(BaseGaussians):
    """Independent features: variances per class, of shape (n_classes, n_features)."""

    @cached_property
    def scale(self) -> FloatArray:
        """A standard deviation per feature; in its units no square over- or underflows."""
        return np.asarray(np.sqrt(self.covariance).mean(axis=0))

    @cached_property
    def coefficients(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Coefficients of x^2, of x and of 1 in (x - mean)^2 / variance."""
        means = (self.means - self.center) / self.scale
        precision = np.square(self.scale / np.sqrt(self.covariance))
        return precision.T, -2 * (means * precision).T, (np.square(means) * precision).sum(axis=1)

    def squared_distances(self, features: FloatArray) -> FloatArray:
        quadratic, linear, constant = self.coefficients
        rows = (features - self.center) / self.scale
        magnitude = np.square(rows) @ quadratic + constant
        distances = magnitude + rows @ linear
        is_inexact = ~(distances > CANCELLATION * magnitude)  # also for NaN
        for k in np.flatnonzero(is_inexact.any(axis=0)):
            residuals = features[is_inexact[:, k]] - self.means[k]
            distances[is_inexact[:, k], k] = squared_norms(residuals / np.sqrt(self.covariance[k]))
        return np.asarray(distances)

    def log_determinants(self) -> FloatArray:
        return np.asarray(np.log(self.covariance).sum(axis=1))

    def from_noise(self, codes: IntArray, noise: FloatArray) -> FloatArray:
        return np.asarray(self.means[codes] + noise * np.sqrt(self.covariance[codes]))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Whitening:
    """The transform `(x - mean) @ matrix` to unit covariance, and the Cholesky factor."""

    matrix: FloatArray
    factor: FloatArray

    @classmethod
    def of(cls, covariance: FloatArray) -> Whitening:
        """Factorize a covariance; raise LinAlgError if it is not positive definite."""
        factor = np.linalg.cholesky(covariance)
        identity = np.eye(factor.shape[0])
        return cls(np.ascontiguousarray(solve_triangular(factor, identity, lower=True).T), factor)

    @property
    def log_determinant(self) -> float:
        """The log determinant of the covariance."""
        return float(2 * np.log(np.diag(self.factor)).sum())


def squared_norms(rows: FloatArray) -> FloatArray:
    """Return the sum of squares of each row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def require_covariance(covariance: FloatArray, entry: Entry) -> None:
    """Raise unless a matrix read from a file is symmetric and positive definite."""
    with np.errstate(all="ignore"):
        scale = np.sqrt(np.diag(covariance))
        difference = np.abs(covariance - covariance.T) / scale / scale[:, np.newaxis]
        is_valid = bool((difference <= ASYMMETRY).all())
        try:
            is_valid = is_valid and bool(np.isfinite(Whitening.of(covariance).matrix).all())
        except np.linalg.LinAlgError:
            is_valid = False
    if not is_valid:
        raise entry.error("symmetric and positive definite", "a matrix that is not")


def as_shrinkage(value: Any, caller: str) -> float | None:
    """Return a shrinkage between 0 and 1, None for "auto"."""
    if isinstance(value, str) and value == "auto":
        return None
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (is_number and 0 <= value <= 1):
        rule = "must be 'auto' or a number between 0 and 1"
        raise BadValueError("shrinkage", caller, rule, repr(value), "Use shrinkage='auto'")
    return float(value)


def _shrunk_covariance(
    covariance: FloatArray,
    fallback: FloatArray,
    scale: FloatArray,
    n_effective: float,
    shrinkage: float | None,
    caller: str,
) -> tuple[FloatArray, float]:
    """Return an invertible covariance with its correlations shrunk to 0, and the shrinkage.

    Variances are unchanged; constant features take the variance of `fallback`. If `shrinkage` is
    None it is the oracle approximating shrinkage for normal data (Chen et al., "Shrinkage
    algorithms for MMSE covariance estimation", 2010).
    """
    own = np.diag(covariance)
    variances, is_constant = _usable_variances(own, fallback, scale, shrinkage, caller)
    std = np.sqrt(variances)
    correlations = covariance / std / std[:, np.newaxis]
    correlations[is_constant] = correlations[:, is_constant] = 0.0
    np.fill_diagonal(correlations, 1.0)
    used = _oracle_shrinkage(correlations, n_effective) if shrinkage is None else shrinkage
    shrunk = (1 - used) * correlations
    np.fill_diagonal(shrunk, 1.0)
    _require_independent(shrunk, caller)
    return shrunk * std * std[:, np.newaxis], used


def _usable_variances(
    variances: FloatArray,
    fallback: FloatArray,
    scale: FloatArray,
    shrinkage: float | None,
    caller: str,
) -> tuple[FloatArray, BoolArray]:
    """Return positive variances, and which features were constant and took the fallback's.

    Where the fallback is 0 too, the mean of its other variances is taken. Without shrinkage a
    constant feature is an error.
    """
    is_constant = _is_rounding_error(variances, scale)
    if shrinkage == 0 and is_constant.any():
        raise _redundant_feature(int(np.argmax(is_constant)), caller)
    is_zero = _is_rounding_error(fallback, scale)
    if is_zero.all():
        rule, fix = "must vary within a class", "Use more rows per class, or fit without labels"
        raise BadValueError("features", caller, rule, "constant features", fix)
    filled = np.where(is_zero, fallback[~is_zero].mean(), fallback)
    return np.where(is_constant, filled, variances), is_constant


def _is_rounding_error(variances: FloatArray, scale: FloatArray) -> BoolArray:
    """Return which variances are 0 up to rounding."""
    return np.asarray(variances <= np.square(ROUNDING * scale))


def _oracle_shrinkage(correlations: FloatArray, n_effective: float) -> float:
    """Return the shrinkage of correlations estimated from so many rows."""
    mean_square = float(np.mean(np.square(correlations)))
    excess = (n_effective + 1) * (mean_square - 1 / correlations.shape[0])
    return 1.0 if excess <= 0 else min(1.0, (mean_square + 1) / excess)


def _require_independent(correlations: FloatArray, caller: str) -> None:
    """Raise at the first feature that is a linear combination of those before it."""
    lower, info = lapack.dpotrf(correlations, lower=1)
    unexplained = np.square(np.diag(lower))
    if info > 0:
        unexplained[info - 1 :] = 0.0
    is_redundant = unexplained < MIN_UNEXPLAINED * correlations.shape[0]
    if is_redundant.any():
        raise _redundant_feature(int(np.argmax(is_redundant)), caller)


def _redundant_feature(column: int, caller: str) -> BadValueError:
    """Return the error for a feature that is constant or follows from others."""
    rule = "must be linearly independent and vary within classes"
    got, fix = "a redundant feature", "Use shrinkage='auto', fewer features or more rows"
    return BadValueError("features", caller, rule, got, fix, column=column)


class FittedGaussians(NamedTuple):
    """Means, covariances, and the shrinkage of each covariance (one entry if shared)."""

    means: FloatArray
    covariance: FloatArray
    shrinkage: FloatArray


def fit_shared(rows: FeatureShards, shrinkage: float | None, caller: str) -> FittedGaussians:
    """Fit a mean per class and one covariance, pooled over the classes."""
    means = _class_means(rows, caller)
    pooled = _pooled_scatter(rows, means, caller) / means.weights.sum()
    covariance, used = _shrunk_covariance(
        pooled, np.diag(pooled), means.scale, means.n_pooled, shrinkage, caller
    )
    return FittedGaussians(means.means, covariance, np.array([used]))


def fit_per_class(rows: FeatureShards, shrinkage: float | None, caller: str) -> FittedGaussians:
    """Fit a mean and a covariance per class."""
    means = _means_of_several_rows(rows, "per_class", caller)
    scatters = _class_scatters(rows, means, caller)
    pooled = np.diag(scatters.sum(axis=0)) / means.weights.sum()
    fitted = [
        _shrunk_covariance(scatter / weight, pooled, means.scale, weight, shrinkage, caller)
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
    pooled, _ = _usable_variances(total, total, means.scale, 1.0, caller)
    used = 1 / (1 + means.weights) if shrinkage is None else np.full(rows.n_classes, shrinkage)
    variances = [
        (1 - w) * _usable_variances(own, pooled, means.scale, w, caller)[0] + w * pooled
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
    starts, shape = np.arange(len(block) + 1), (rows.n_classes, len(block))
    members = scipy.sparse.csc_array((block.weight, block.codes, starts), shape=shape)
    return np.asarray(members @ values)

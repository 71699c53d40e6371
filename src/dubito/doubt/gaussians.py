"""Normal distributions of features per class, with shared, own or diagonal covariances and shrinkage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from scipy.linalg import lapack, solve_triangular

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.errors import BadValueError
from dubito.serialization.fields import Entry

CANCELLED = 1e-2  # distances this small beside their terms are taken from the difference itself
FURTHEST = 1e300  # squared distances that cannot be held
SYMMETRIC = 1e-6  # what two halves of a covariance may differ by, as a correlation


@final
@dataclass(frozen=True, slots=True, eq=False)
class Whitening:
    """What makes a covariance the identity: `(x - mean) @ matrix`, and its inverse's transpose."""

    matrix: FloatArray
    factor: FloatArray

    @classmethod
    def of(cls, covariance: FloatArray) -> Whitening:
        factor = np.linalg.cholesky(covariance)
        identity = np.eye(factor.shape[0])
        return cls(np.ascontiguousarray(solve_triangular(factor, identity, lower=True).T), factor)

    @property
    def log_determinant(self) -> float:
        """The logarithm of the covariance's determinant."""
        return float(2 * np.log(np.diag(self.factor)).sum())


@dataclass(frozen=True, eq=False)
class BaseGaussians(ABC):
    """Means of classes (classes x features) and one covariance or more."""

    means: FloatArray
    covariance: FloatArray

    def log_likelihoods(self, features: FloatArray) -> FloatArray:
        """Return log p(x | class), rows x classes, in float64; never NaN, nor infinite."""
        with np.errstate(over="ignore", invalid="ignore"):
            distances = self.squared_distances(features)
        distances = np.nan_to_num(distances, copy=False, nan=FURTHEST, posinf=FURTHEST)
        constant = self.log_determinants() + self.means.shape[1] * np.log(2 * np.pi)
        return np.asarray(-0.5 * (np.minimum(distances, FURTHEST) + constant))

    @abstractmethod
    def squared_distances(self, features: FloatArray) -> FloatArray:
        """Return rows x classes of squared Mahalanobis distances."""

    @abstractmethod
    def log_determinants(self) -> FloatArray:
        """Return the logarithm of each class's covariance's determinant."""

    @abstractmethod
    def spread(self, codes: IntArray, noise: FloatArray) -> FloatArray:
        """Return what standard normal noise is about the means of some classes."""


@final
class SharedGaussians(BaseGaussians):
    """One covariance for all classes: features x features."""

    @cached_property
    def whitening(self) -> Whitening:
        """What makes the covariance the identity."""
        return Whitening.of(self.covariance)

    @cached_property
    def middle(self) -> FloatArray:
        """The mean of the means: about it, nothing large cancels."""
        return np.asarray(self.means.mean(axis=0))

    @cached_property
    def white_means(self) -> FloatArray:
        """The means, whitened."""
        return np.asarray((self.means - self.middle) @ self.whitening.matrix)

    def white(self, features: FloatArray) -> FloatArray:
        """Return rows whitened, in float64."""
        return np.asarray((features - self.middle) @ self.whitening.matrix)

    def squared_distances(self, features: FloatArray) -> FloatArray:
        rows, means = self.white(features), self.white_means
        distances = rows @ (-2 * means.T)
        distances += squares_of(rows)[:, np.newaxis]
        distances += squares_of(means)
        return np.maximum(distances, 0.0, out=distances)

    def log_determinants(self) -> FloatArray:
        return np.full(self.means.shape[0], self.whitening.log_determinant)

    def spread(self, codes: IntArray, noise: FloatArray) -> FloatArray:
        return np.asarray(self.means[codes] + noise @ self.whitening.factor.T)


@final
class PerClassGaussians(BaseGaussians):
    """A covariance a class: classes x features x features."""

    @cached_property
    def whitenings(self) -> list[Whitening]:
        """What makes each covariance the identity."""
        return [Whitening.of(covariance) for covariance in self.covariance]

    def squared_distances(self, features: FloatArray) -> FloatArray:
        distances = np.empty((features.shape[0], self.means.shape[0]))
        for k, whitening in enumerate(self.whitenings):
            distances[:, k] = squares_of((features - self.means[k]) @ whitening.matrix)
        return distances

    def log_determinants(self) -> FloatArray:
        return np.array([whitening.log_determinant for whitening in self.whitenings])

    def spread(self, codes: IntArray, noise: FloatArray) -> FloatArray:
        result = self.means[codes]
        for k, whitening in enumerate(self.whitenings):
            result[codes == k] += noise[codes == k] @ whitening.factor.T
        return result


@final
class DiagonalGaussians(BaseGaussians):
    """Features independent within a class: classes x features of variances."""

    @cached_property
    def middle(self) -> FloatArray:
        """The mean of the means: about it, little cancels."""
        return np.asarray(self.means.mean(axis=0))

    @cached_property
    def scale(self) -> FloatArray:
        """A deviation of each feature, so that no square is too large or too small."""
        return np.asarray(np.sqrt(self.covariance).mean(axis=0))

    @cached_property
    def tables(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What squares and rows are multiplied by, and what is left: (x - m)^2 / v, expanded."""
        means = (self.means - self.middle) / self.scale
        precision = np.square(self.scale / np.sqrt(self.covariance))
        return precision.T, -2 * (means * precision).T, (np.square(means) * precision).sum(axis=1)

    def squared_distances(self, features: FloatArray) -> FloatArray:
        rows, (of_squares, of_rows, constant) = (features - self.middle) / self.scale, self.tables
        size = np.square(rows) @ of_squares + constant
        distances = size + rows @ of_rows
        is_unsure = ~(distances > CANCELLED * size)  # NaN is unsure too
        for k in np.flatnonzero(is_unsure.any(axis=0)):
            near = features[is_unsure[:, k]] - self.means[k]
            distances[is_unsure[:, k], k] = squares_of(near / np.sqrt(self.covariance[k]))
        return np.asarray(distances)

    def log_determinants(self) -> FloatArray:
        return np.asarray(np.log(self.covariance).sum(axis=1))

    def spread(self, codes: IntArray, noise: FloatArray) -> FloatArray:
        return np.asarray(self.means[codes] + noise * np.sqrt(self.covariance[codes]))


def require_covariance(covariance: FloatArray, entry: Entry) -> None:
    """Raise unless a matrix is symmetric, and has a whitening."""
    with np.errstate(all="ignore"):
        scale = np.sqrt(np.diag(covariance))
        difference = np.abs(covariance - covariance.T) / scale / scale[:, np.newaxis]
        is_fine = bool((difference <= SYMMETRIC).all())
        try:
            is_fine = is_fine and bool(np.isfinite(Whitening.of(covariance).matrix).all())
        except np.linalg.LinAlgError:
            is_fine = False
    if not is_fine:
        raise entry.error("symmetric and positive definite", "a matrix that is not")


def squares_of(rows: FloatArray) -> FloatArray:
    """Return the sum of squares of each row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


ROUNDING = 1e-9  # a deviation this small beside how far apart the means are
LEAST_SHARE = 1e-15  # a feature: the share of a variance that no others explain, below none is left

INDEPENDENT = "of columns that differ within classes, none a combination of others"
MORE = "shrinkage='auto', fewer features or more rows"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Shrunk:
    """A covariance that has an inverse, and the share of its diagonal that was mixed in."""

    covariance: FloatArray
    shrinkage: float


def as_shrinkage(value: Any, caller: str) -> float | None:
    """Return how much of the diagonal is mixed in, None for "auto"."""
    if isinstance(value, str) and value == "auto":
        return None
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (is_number and 0 <= value <= 1):
        rule = "'auto' or a number between 0 and 1"
        raise BadValueError("shrinkage", caller, rule, repr(value), "shrinkage='auto'")
    return float(value)


def usable_variances(
    variances: FloatArray,
    fallback: FloatArray,
    reach: FloatArray,
    shrinkage: float | None,
    caller: str,
) -> tuple[FloatArray, BoolArray]:
    """Return variances above 0, the fallback's where features never vary, and which those are.

    Where that is 0 too, it is the mean of the others. Without shrinkage, none may be 0.
    """
    is_constant = _is_rounding(variances, reach)
    if shrinkage == 0 and is_constant.any():
        raise _dependent(int(np.argmax(is_constant)), caller)
    is_lost = _is_rounding(fallback, reach)
    if is_lost.all():
        fix = "more rows a class, fewer classes, or no labels at all"
        raise BadValueError("features", caller, "rows that differ within a class", "none", fix)
    filled = np.where(is_lost, fallback[~is_lost].mean(), fallback)
    return np.where(is_constant, filled, variances), is_constant


def shrunk_covariance(
    covariance: FloatArray,
    fallback: FloatArray,
    reach: FloatArray,
    n_effective: float,
    shrinkage: float | None,
    caller: str,
) -> Shrunk:
    """Return correlations drawn towards 0, variances as they are.

    Without a share given, it is the one that comes closest for normal data: the oracle
    approximating estimator. Chen et al., "Shrinkage algorithms for MMSE covariance estimation",
    2010.
    """
    variances, is_constant = usable_variances(
        np.diag(covariance), fallback, reach, shrinkage, caller
    )
    scale = np.sqrt(variances)
    correlations = covariance / scale / scale[:, np.newaxis]
    correlations[is_constant] = correlations[:, is_constant] = 0.0
    np.fill_diagonal(correlations, 1.0)
    share = _oracle_share(correlations, n_effective) if shrinkage is None else shrinkage
    mixed = (1 - share) * correlations
    np.fill_diagonal(mixed, 1.0)
    _require_independent(mixed, caller)
    return Shrunk(mixed * scale * scale[:, np.newaxis], share)


def _is_rounding(variances: FloatArray, reach: FloatArray) -> BoolArray:
    """Which variances are nothing but rounding, if anything."""
    return np.asarray(variances <= np.square(ROUNDING * reach))


def _oracle_share(correlations: FloatArray, n_effective: float) -> float:
    """Return how far correlations of so many rows are best drawn towards 0."""
    mean_square = float(np.mean(np.square(correlations)))
    excess = (n_effective + 1) * (mean_square - 1 / correlations.shape[0])
    return 1.0 if excess <= 0 else min(1.0, (mean_square + 1) / excess)


def _require_independent(correlations: FloatArray, caller: str) -> None:
    """Raise at the first feature that is a combination of those before it."""
    lower, info = lapack.dpotrf(correlations, lower=1)
    shares = np.square(np.diag(lower))
    if info > 0:
        shares[info - 1 :] = 0.0
    is_explained = shares < LEAST_SHARE * correlations.shape[0]
    if is_explained.any():
        raise _dependent(int(np.argmax(is_explained)), caller)


def _dependent(column: int, caller: str) -> BadValueError:
    """Say which feature adds nothing, and what to do about it."""
    got = "one that is constant, or follows from those before it,"
    return BadValueError("features", caller, INDEPENDENT, got, MORE, column=column)

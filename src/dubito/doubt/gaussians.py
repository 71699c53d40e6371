"""Normal distributions of features, one a class: covariances alike, of their own, or diagonal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from scipy.linalg import solve_triangular

from dubito.arrays import FloatArray, IntArray
from dubito.kept_checks import Entry

__all__ = [
    "BaseGaussians",
    "NaiveGaussians",
    "OwnGaussians",
    "SharedGaussians",
    "Whitening",
    "require_covariance",
    "squares_of",
]

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
class OwnGaussians(BaseGaussians):
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
class NaiveGaussians(BaseGaussians):
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
        raise entry.refused("symmetric and positive definite", "a matrix that is not")


def squares_of(rows: FloatArray) -> FloatArray:
    """Return the sum of squares of each row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))

"""Mahalanobis distance: how far a row is from the nearest class, in that class's own units."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, final

import numpy as np

from dubito.arrays import FloatArray, IntArray
from dubito.doubt.features import BaseOODScore, FeatureShards
from dubito.doubt.gaussians import SharedGaussians, as_shrinkage, require_covariance, squares_of
from dubito.doubt.moments import fit_shared
from dubito.errors import BadTypeError
from dubito.serialization.arrays import array
from dubito.serialization.fields import MOST, Entry, boolean, declare, number

SAFETY = 4.0  # how many times its usual size an error of rounding may have


@final
class MahalanobisDistance(BaseOODScore):
    """The squared distance to the nearest class mean, in units of the covariance within classes.

    Without labels there is one mean. `normalize` takes features at length 1, where their norm
    says more of confidence than of strangeness. `shrinkage` is the share of correlations given up;
    "auto" finds it from the number of rows. Lee et al., "A simple unified framework for detecting
    out-of-distribution samples and adversarial attacks", 2018.

    >>> features = [[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]]
    >>> MahalanobisDistance().fit(features).score([[1.0, 1.0], [3.0, 1.0]]).tolist()
    [0.0, 4.0]
    """

    means_: FloatArray
    covariance_: FloatArray
    shrinkage_: float
    is_normalized_: bool

    fitted_fields = declare(
        means_=array("classes_", "n_features_", low=-MOST, high=MOST),
        covariance_=array("n_features_", "n_features_", low=-MOST, high=MOST),
        shrinkage_=number(0, 1),
        is_normalized_=boolean,
    )

    def __init__(self, *, normalize: bool = False, shrinkage: float | Literal["auto"] = "auto"):
        self.normalize = normalize
        self.shrinkage = shrinkage

    def _check_params(self) -> None:
        name = type(self).__name__
        if not isinstance(self.normalize, bool | np.bool_):
            got, fix = repr(self.normalize), "normalize=True"
            raise BadTypeError("normalize", name, "True or False", got, fix)
        as_shrinkage(self.shrinkage, name)

    def _check_fitted(self, entry: Entry) -> None:
        require_covariance(self.covariance_, entry.at("covariance_"))

    def _learn(self, shards: FeatureShards) -> None:
        name = type(self).__name__
        self.is_normalized_ = bool(self.normalize)
        rows = shards.mapped(_normalized) if self.is_normalized_ else shards
        fitted = fit_shared(rows, as_shrinkage(self.shrinkage, name), name)
        self.means_, self.covariance_ = fitted.gaussians.means, fitted.gaussians.covariance
        self.shrinkage_ = float(fitted.shrinkage[0])

    def _doubt(self, features: FloatArray) -> FloatArray:
        white = self._classes.white(_normalized(features) if self.is_normalized_ else features)
        nearest = self._search.nearest(white)
        # The very difference: no square of something large is taken from another.
        return squares_of(white - self._classes.white_means[nearest])

    @cached_property
    def _classes(self) -> SharedGaussians:
        return SharedGaussians(self.means_, self.covariance_)

    @cached_property
    def _search(self) -> NearestMean:
        return NearestMean(self._classes.white_means)


@final
class NearestMean:
    """The nearest of many means by matrix products: |m|^2 - 2 z.m, least where m is nearest to z.

    In float32; again in float64 for rows whose two nearest means are closer than rounding may err.
    """

    def __init__(self, means: FloatArray) -> None:
        squares = squares_of(means)
        self.wide = np.vstack([-2 * means.T, squares])
        self.narrow = self.wide.astype(np.float32)
        self.longest = float(np.sqrt(squares.max()))

    def nearest(self, rows: FloatArray) -> IntArray:
        """Return the number of each row's nearest mean."""
        if self.wide.shape[1] == 1:
            return np.zeros(rows.shape[0], np.int64)
        best, gap = _best_and_gap(rows, self.narrow)
        n_terms, unit = rows.shape[1], float(np.finfo(np.float32).eps)
        length = np.sqrt(squares_of(rows))
        error = SAFETY * (1 + np.sqrt(n_terms)) * unit * self.longest * (length + self.longest)
        is_unsure = ~(gap > error)  # NaN is unsure too
        if is_unsure.any():
            best[is_unsure] = _best_and_gap(rows[is_unsure], self.wide)[0]
        return best


def _best_and_gap(rows: FloatArray, table: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the least column of `[rows, 1] @ table` of each row, and how far the second is."""
    longer = np.ones((rows.shape[0], rows.shape[1] + 1), table.dtype)
    longer[:, :-1] = rows
    values, numbers = longer @ table, np.arange(rows.shape[0])
    best = values.argmin(axis=1)
    least = values[numbers, best]
    values[numbers, best] = np.inf
    return best, values.min(axis=1) - least


def _normalized(features: FloatArray) -> FloatArray:
    """Return rows of length 1, in float64; a row of zeros stays one."""
    largest = np.abs(features).max(axis=1, keepdims=True).astype(np.float64)
    scaled = features / np.where(largest > 0, largest, 1.0)  # squares neither overflow nor vanish
    lengths = np.sqrt(squares_of(scaled))[:, np.newaxis]
    return np.asarray(scaled / np.where(lengths > 0, lengths, 1.0))

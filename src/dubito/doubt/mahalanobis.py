"""Mahalanobis distance to the nearest class mean, an out-of-distribution score."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, final

import numpy as np

from dubito.arrays import FloatArray, IntArray, require_bool
from dubito.doubt.features import BaseOODScore, FeatureShards, unit_rows_and_norms
from dubito.doubt.gaussians import SharedGaussians, as_shrinkage, require_covariance, squared_norms
from dubito.doubt.moments import fit_shared
from dubito.serialization.array_fields import array
from dubito.serialization.fields import MOST, Entry, boolean, declare, number

SAFETY = 4.0  # by which a rounding error may exceed its usual size


@final
class MahalanobisDistance(BaseOODScore):
    """Squared Mahalanobis distance to the nearest class mean.

    A good first score on features of a network. All classes share one covariance; without labels
    there is a single mean.

    Parameters
    ----------
    normalize : bool, default=False
        Scale features to unit length first. Use it where their norm reflects confidence rather
        than how far out of distribution a row is.
    shrinkage : float or "auto", default="auto"
        How far correlations are shrunk to 0, from 0 to 1; "auto" chooses it by the number of
        rows.

    Attributes
    ----------
    classes_ : tuple or None
        The classes that occurred in `y`, sorted.
    means_ : ndarray of shape (n_classes, n_features)
        Class means.
    covariance_ : ndarray of shape (n_features, n_features)
        The covariance within classes.
    shrinkage_ : float
        The shrinkage used.
    is_normalized_ : bool
        Whether features are scaled to unit length.

    References
    ----------
    Lee et al., "A simple unified framework for detecting out-of-distribution samples and
    adversarial attacks", 2018.

    Examples
    --------
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
        require_bool(self.normalize, "normalize", name)
        as_shrinkage(self.shrinkage, name)

    def _check_fitted(self, entry: Entry) -> None:
        require_covariance(self.covariance_, entry.at("covariance_"))

    def _learn(self, rows: FeatureShards) -> None:
        name = type(self).__name__
        self.is_normalized_ = bool(self.normalize)
        used = rows.map_features(_unit_rows) if self.is_normalized_ else rows
        fitted = fit_shared(used, as_shrinkage(self.shrinkage, name), name)
        self.means_, self.covariance_ = fitted.means, fitted.covariance
        self.shrinkage_ = float(fitted.shrinkage[0])

    def _score_rows(self, features: FloatArray) -> FloatArray:
        white = self._classes.whiten(_unit_rows(features) if self.is_normalized_ else features)
        nearest = self._search.nearest(white)
        # From the difference itself: expanding the square would cancel far from the means.
        return squared_norms(white - self._classes.white_means[nearest])

    @cached_property
    def _classes(self) -> SharedGaussians:
        return SharedGaussians(self.means_, self.covariance_)

    @cached_property
    def _search(self) -> NearestMean:
        return NearestMean(self._classes.white_means)


@final
class NearestMean:
    """Search for the nearest mean by matrix products: |m|^2 - 2 z.m is least for the nearest m.

    The products are in float32, and repeated in float64 for rows whose two nearest means are
    closer than the rounding error.
    """

    def __init__(self, means: FloatArray) -> None:
        squares = squared_norms(means)
        self.wide = np.vstack([-2 * means.T, squares])
        self.narrow = self.wide.astype(np.float32)
        self.max_norm = float(np.sqrt(squares.max()))

    def nearest(self, rows: FloatArray) -> IntArray:
        """Return the index of each row's nearest mean."""
        if self.wide.shape[1] == 1:
            return np.zeros(rows.shape[0], np.int64)
        best, gap = _best_and_gap(rows, self.narrow)
        n_terms, unit = rows.shape[1], float(np.finfo(np.float32).eps)
        norms = np.sqrt(squared_norms(rows))
        error = SAFETY * (1 + np.sqrt(n_terms)) * unit * self.max_norm * (norms + self.max_norm)
        is_uncertain = ~(gap > error)  # also for NaN
        if is_uncertain.any():
            best[is_uncertain] = _best_and_gap(rows[is_uncertain], self.wide)[0]
        return best


def _best_and_gap(rows: FloatArray, table: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return each row's smallest column of `[rows, 1] @ table`, and the gap to the second."""
    longer = np.ones((rows.shape[0], rows.shape[1] + 1), table.dtype)
    longer[:, :-1] = rows
    values, numbers = longer @ table, np.arange(rows.shape[0])
    best = values.argmin(axis=1)
    least = values[numbers, best]
    values[numbers, best] = np.inf
    return best, values.min(axis=1) - least


def _unit_rows(features: FloatArray) -> FloatArray:
    """Return rows scaled to unit length, in float64; rows of zeros are unchanged."""
    return unit_rows_and_norms(features)[0]

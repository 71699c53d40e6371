"""Mahalanobis distance to the nearest class mean, an out-of-distribution score."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, final

import numpy as np

from dubito.arrays import FloatArray, IntArray, require_bool
from dubito.doubt.features import BaseOODScore, FeatureShards, unit_rows_and_norms
from dubito.doubt.gaussians import SharedGaussians, as_shrinkage, require_covariance, squared_norms
from dubito.doubt.moments import fit_shared
from dubito.errors import BadValueError
from dubito.serialization.array_fields import array
from dubito.serialization.fields import MOST, Entry, Omittable, boolean, declare, number, optional

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
    relative : bool, default=False
        Subtract the squared distance to the mean of all rows, in the covariance of all rows: the
        relative Mahalanobis distance. What is unusual in directions in which classes do not
        differ then cancels, which often helps against inputs that resemble the training classes.

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
    mean_, total_covariance_ : ndarray or None
        The mean and covariance of all rows; None unless `relative`.

    References
    ----------
    Lee et al., "A simple unified framework for detecting out-of-distribution samples and
    adversarial attacks", 2018. Ren et al., "A simple fix to Mahalanobis distance for improving
    near-OOD detection", 2021, for the relative distance.

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
    mean_: FloatArray | None = None
    total_covariance_: FloatArray | None = None

    fitted_fields = declare(
        means_=array("classes_", "n_features_", low=-MOST, high=MOST),
        covariance_=array("n_features_", "n_features_", low=-MOST, high=MOST),
        shrinkage_=number(0, 1),
        is_normalized_=boolean,
        mean_=Omittable(optional(array("n_features_", low=-MOST, high=MOST))),
        total_covariance_=Omittable(
            optional(array("n_features_", "n_features_", low=-MOST, high=MOST))
        ),
    )
    param_fields = declare(relative=Omittable(boolean))

    def __init__(
        self,
        *,
        normalize: bool = False,
        shrinkage: float | Literal["auto"] = "auto",
        relative: bool = False,
    ) -> None:
        self.normalize = normalize
        self.shrinkage = shrinkage
        self.relative = relative

    def _check_params(self) -> None:
        name = type(self).__name__
        require_bool(self.normalize, "normalize", name)
        require_bool(self.relative, "relative", name)
        as_shrinkage(self.shrinkage, name)

    def _check_fitted(self, entry: Entry) -> None:
        require_covariance(self.covariance_, entry.at("covariance_"))
        if (self.mean_ is None) != (self.total_covariance_ is None):
            raise entry.at("mean_").error("given with total_covariance_", "one of both")
        if self.total_covariance_ is not None:
            require_covariance(self.total_covariance_, entry.at("total_covariance_"))

    def _learn(self, rows: FeatureShards) -> None:
        name = type(self).__name__
        self.is_normalized_ = bool(self.normalize)
        used = rows.map_features(_unit_rows) if self.is_normalized_ else rows
        fitted = fit_shared(used, as_shrinkage(self.shrinkage, name), name)
        self.means_, self.covariance_ = fitted.means, fitted.covariance
        self.shrinkage_ = float(fitted.shrinkage[0])
        if self.relative:
            if rows.n_classes < 2:
                rule, fix = "must have at least 2 classes with relative=True", "Pass labels to fit"
                raise BadValueError("y", name, rule, f"{rows.n_classes}", fix)
            whole = fit_shared(used.pooled(), as_shrinkage(self.shrinkage, name), name)
            self.mean_, self.total_covariance_ = whole.means[0], whole.covariance

    def _score_rows(self, features: FloatArray) -> FloatArray:
        used = _unit_rows(features) if self.is_normalized_ else features
        white = self._classes.whiten(used)
        nearest = self._search.nearest(white)
        # From the difference itself: expanding the square would cancel far from the means.
        distances = squared_norms(white - self._classes.white_means[nearest])
        return distances if self._all is None else distances - squared_norms(self._all.whiten(used))

    @cached_property
    def _classes(self) -> SharedGaussians:
        return SharedGaussians(self.means_, self.covariance_)

    @cached_property
    def _all(self) -> SharedGaussians | None:
        """The distribution of all rows, around their mean; None unless distances are relative."""
        if self.mean_ is None or self.total_covariance_ is None:
            return None
        return SharedGaussians(self.mean_[np.newaxis], self.total_covariance_)

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

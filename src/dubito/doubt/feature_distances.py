"""Distances in feature space, OOD scores: Mahalanobis, and to the k-th nearest neighbor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Literal, final

import numpy as np

from dubito.arrays import (
    FloatArray,
    IntArray,
    RandomState,
    as_count,
    contiguous,
    draw_seed,
    freeze,
    require_bool,
    require_random_state,
)
from dubito.data.shards import sample_of
from dubito.doubt.features import BaseOODScore, FeatureRows, FeatureShards, unit_rows_and_norms
from dubito.doubt.gaussians import (
    SharedGaussians,
    as_shrinkage,
    fit_shared,
    require_covariance,
    squared_norms,
)
from dubito.errors import BadValueError
from dubito.kernels.blocks import row_blocks
from dubito.kernels.distances import nearest_rows, unit_rows
from dubito.serialization.array_fields import array
from dubito.serialization.fields import (
    MAX_FLOAT,
    Entry,
    Omittable,
    boolean,
    declare,
    fitted,
    integer,
    number,
    optional,
)

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
    >>> from dubito.doubt import MahalanobisDistance
    >>> features = [[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]]
    >>> MahalanobisDistance().fit(features).score([[1.0, 1.0], [3.0, 1.0]]).tolist()
    [0.0, 4.0]
    """

    means_: FloatArray = fitted(array("classes_", "n_features_", low=-MAX_FLOAT, high=MAX_FLOAT))
    covariance_: FloatArray = fitted(
        array("n_features_", "n_features_", low=-MAX_FLOAT, high=MAX_FLOAT)
    )
    shrinkage_: float = fitted(number(0, 1))
    is_normalized_: bool = fitted(boolean)
    mean_: FloatArray | None = fitted(
        Omittable(optional(array("n_features_", low=-MAX_FLOAT, high=MAX_FLOAT))), None
    )
    total_covariance_: FloatArray | None = fitted(
        Omittable(optional(array("n_features_", "n_features_", low=-MAX_FLOAT, high=MAX_FLOAT))),
        None,
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


BLOCK = 256  # queries per block: enough for fast products, few enough to keep all threads busy
CHUNK_ENTRIES = 1 << 19  # products of a block at a time, 2 MB
ROUNDING, FINE_ROUNDING = 2.0**-24, 2.0**-52
MAX_SQUARED_NORM = 1.001  # of a row of unit length, with rounding
MAX_LENGTH = 1e15  # of a query, in units of the furthest reference row, that float32 can square


@final
class NearestNeighborDistance(BaseOODScore):
    """Distance to the `n_neighbors`-th nearest training row.

    Makes no assumption about the distribution of the features, at the price of keeping the
    training rows. The search is exact. Labels are ignored, and a weight only matters by being 0
    or not. A training row is its own nearest neighbor.

    Parameters
    ----------
    n_neighbors : int, default=50
        Which neighbor's distance is the score.
    normalize : bool, default=True
        Scale features to unit length first.
    max_samples : int or None, default=None
        Keep a random sample of at most so many rows, in memory or streamed; None keeps all.
    random_state : int, RandomState or None, default=0
        The seed of that sample.

    Attributes
    ----------
    reference_ : ndarray of shape (n_samples, n_features)
        The rows that are kept.
    n_neighbors_ : int
        The value of `n_neighbors` in the fit.
    is_normalized_ : bool
        Whether features are scaled to unit length.

    References
    ----------
    Sun et al., "Out-of-distribution detection with deep nearest neighbors", 2022.

    Examples
    --------
    >>> from dubito.doubt import NearestNeighborDistance
    >>> train = [[0.0, 1.0], [0.0, 2.0], [3.0, 4.0]]
    >>> NearestNeighborDistance(2, normalize=False).fit(train).score([[0.0, 1.0], [0.0, 5.0]])
    array([1.        , 3.16227766])
    """

    reference_: FloatArray = fitted(array(None, "n_features_", low=-MAX_FLOAT, high=MAX_FLOAT))
    n_neighbors_: int = fitted(integer(1))
    is_normalized_: bool = fitted(boolean)

    uses_labels = False

    def __init__(
        self,
        n_neighbors: int = 50,
        normalize: bool = True,
        max_samples: int | None = None,
        random_state: RandomState = 0,
    ):
        self.n_neighbors = n_neighbors
        self.normalize = normalize
        self.max_samples = max_samples
        self.random_state = random_state

    def _check_params(self) -> None:
        name = type(self).__name__
        as_count(self.n_neighbors, "n_neighbors", name)
        require_random_state(self.random_state, name)
        if self.max_samples is not None:
            as_count(self.max_samples, "max_samples", name, self.n_neighbors)
        require_bool(self.normalize, "normalize", name)

    def _check_fitted(self, entry: Entry) -> None:
        if self.n_neighbors_ > len(self.reference_):
            rule = f"at most {len(self.reference_)}, the number of rows in reference_"
            raise entry.at("n_neighbors_").error(rule, f"{self.n_neighbors_}")
        if self.is_normalized_:
            _require_unit_rows(self.reference_, entry.at("reference_"))

    def _learn(self, rows: FeatureShards) -> None:
        name = type(self).__name__
        self.n_neighbors_, self.is_normalized_ = int(self.n_neighbors), bool(self.normalize)
        sizes = list(rows.shards.apply(lambda _, block: len(block)))
        seed, n_rows = draw_seed(self.random_state, name), sum(sizes)
        chosen = sample_of(n_rows, n_rows if self.max_samples is None else self.max_samples, seed)
        if chosen.size < self.n_neighbors:
            rule = f"must have at least n_neighbors={self.n_neighbors} rows"
            raise BadValueError("features", name, rule, f"{chosen.size}", "Lower n_neighbors")
        starts = [0, *accumulate(sizes)]
        ends = np.searchsorted(chosen, starts)

        def part(k: int, block: FeatureRows) -> FloatArray:
            wanted = chosen[ends[k] : ends[k + 1]] - starts[k]
            return self._scaled(block.features[wanted])

        reference = np.empty((0, 0))
        for k, some in enumerate(rows.shards.apply(part)):
            if not k:
                reference = np.empty((chosen.size, rows.n_features), some.dtype)
            reference[ends[k] : ends[k + 1]] = some
        self.reference_ = freeze(reference)

    def _scaled(self, features: FloatArray) -> FloatArray:
        """Return features, at unit length if the fit was so."""
        if not self.is_normalized_:
            return features
        units = np.empty(features.shape, features.dtype)
        unit_rows(contiguous(features), units)
        return units

    @cached_property
    def _search(self) -> SearchRows:
        return SearchRows.of(self.reference_, is_unit=self.is_normalized_)

    def _n_entries(self) -> int:
        return max(self.n_features_, (1 << 20) // BLOCK)

    def _score_rows(self, features: FloatArray) -> FloatArray:
        search, reference = self._search, contiguous(self.reference_)
        queries = contiguous(self._scaled(features).astype(np.float64))
        centered = queries / search.scale - search.center / search.scale
        lengths = np.sqrt(np.einsum("ij,ij->i", centered, centered))
        slack = search.slack(lengths, np.abs(queries).max(axis=1))
        heaps = np.full((len(queries), self.n_neighbors_), np.inf)
        narrow = centered.astype(np.float32)
        for rows in row_blocks(len(reference), len(queries), CHUNK_ENTRIES):
            nearest_rows(
                contiguous(narrow @ search.rows[rows].T),
                search.half_squares[rows],
                reference[rows],
                queries,
                freeze(lengths),
                freeze(slack),
                search.scale,
                heaps,
            )
        return heaps[:, 0].copy()


def _require_unit_rows(rows: FloatArray, entry: Entry) -> None:
    """Raise if a row read from a file is longer than 1."""
    for block in row_blocks(*rows.shape):
        with np.errstate(over="ignore"):
            squares = np.einsum("ij,ij->i", rows[block], rows[block])
        if not squares.max() <= MAX_SQUARED_NORM:
            row = block.start + int(np.argmax(squares))
            raise entry.error("rows of length 1", f"a longer one, number {row}")


@final
@dataclass(frozen=True, slots=True, eq=False)
class SearchRows:
    """Reference rows in float32, centered and scaled to a largest entry of 1.

    Rows of unit length are used unchanged. `max_length` is the largest length, `max_entry` the
    largest entry before scaling.
    """

    rows: FloatArray
    half_squares: FloatArray
    max_length: float
    center: FloatArray
    scale: float
    max_entry: float

    @classmethod
    def of(cls, reference: FloatArray, *, is_unit: bool) -> SearchRows:
        """Prepare reference rows for the search."""
        blocks = row_blocks(*reference.shape)
        max_entry = float(max(np.abs(reference[rows]).max() for rows in blocks))
        center, scale = np.zeros(reference.shape[1]), 1.0
        if not is_unit:
            unit = max_entry or 1.0  # sums of unscaled rows might overflow
            sums = ((reference[rows] / np.float64(unit)).sum(axis=0) for rows in blocks)
            center = sum(sums, center) / len(reference) * unit
            furthest = max(np.abs(reference[rows] / 2 - center / 2).max() for rows in blocks)
            scale = float(furthest) * 2 or unit
        narrow = reference
        if not (is_unit and reference.dtype == np.float32):
            narrow = np.empty(reference.shape, np.float32)
            for rows in blocks:
                narrow[rows] = reference[rows] / np.float64(scale) - center / scale
        squares = np.einsum("ij,ij->i", narrow, narrow, dtype=np.float64)
        halves, max_length = (squares / 2).astype(np.float32), float(np.sqrt(squares.max()))
        return cls(contiguous(narrow), contiguous(halves), max_length, center, scale, max_entry)

    def slack(self, lengths: FloatArray, largest: FloatArray) -> FloatArray:
        """Return a bound on the rounding error of each query's search keys.

        Float32 products err by u |q| |x| per term and entry. The float64 part covers centering
        and the exact distance.
        """
        n_terms, both = self.rows.shape[1], lengths + self.max_length
        products = ROUNDING * ((n_terms + 16) * lengths * self.max_length + 8 * self.max_length**2)
        centering = 4 * both * np.sqrt(n_terms) * (largest + self.max_entry) / self.scale
        exact = FINE_ROUNDING * (centering + (n_terms + 16) * np.square(both))
        bound = products + exact + 1e-30  # the last term for values too small for float32
        return np.where((lengths < MAX_LENGTH) & (bound < np.inf), bound, np.inf)

"""Distance to the k-th nearest neighbor among the training rows, an out-of-distribution score."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import final

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
from dubito.doubt.features import BaseOODScore, FeatureRows, FeatureShards
from dubito.errors import BadValueError
from dubito.kernels.blocks import row_blocks
from dubito.kernels.distances import nearest_rows, unit_rows
from dubito.serialization.array_fields import array
from dubito.serialization.fields import MOST, Entry, boolean, declare, integer

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
    >>> train = [[0.0, 1.0], [0.0, 2.0], [3.0, 4.0]]
    >>> NearestNeighborDistance(2, normalize=False).fit(train).score([[0.0, 1.0], [0.0, 5.0]])
    array([1.        , 3.16227766])
    """

    reference_: FloatArray
    n_neighbors_: int
    is_normalized_: bool

    fitted_fields = declare(
        reference_=array(None, "n_features_", low=-MOST, high=MOST),
        n_neighbors_=integer(1),
        is_normalized_=boolean,
    )

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
        chosen = _sampled_rows(sum(sizes), self.max_samples, draw_seed(self.random_state, name))
        if chosen.size < self.n_neighbors:
            rule = f"must have at least n_neighbors={self.n_neighbors} rows"
            raise BadValueError("features", name, rule, f"{chosen.size}", "Lower n_neighbors")
        starts = [0, *accumulate(sizes)]
        ends = np.searchsorted(chosen, starts)

        def part(number: int, block: FeatureRows) -> FloatArray:
            wanted = chosen[ends[number] : ends[number + 1]] - starts[number]
            return self._scaled(block.features[wanted])

        reference = np.empty((0, 0))
        for number, some in enumerate(rows.shards.apply(part)):
            if not number:
                reference = np.empty((chosen.size, rows.n_features), some.dtype)
            reference[ends[number] : ends[number + 1]] = some
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


def _sampled_rows(n_rows: int, max_samples: int | None, seed: int) -> IntArray:
    """Return the sorted indices of the rows to keep."""
    if max_samples is None or n_rows <= max_samples:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(seed).choice(n_rows, max_samples, replace=False))


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
            center = sum(
                ((reference[rows] / np.float64(unit)).sum(axis=0) for rows in blocks), center
            )
            center = center / len(reference) * unit
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

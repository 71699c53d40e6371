"""How far the k-th nearest known row is: no model of the known rows but the rows themselves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, final

import numpy as np

from dubito.arrays import (
    FloatArray,
    IntArray,
    RandomState,
    contiguous,
    draw_seed,
    freeze,
    require_random_state,
)
from dubito.doubt.features import BaseOODScore, FeatureRows, FeatureShards
from dubito.errors import BadValueError
from dubito.kernels.blocks import row_blocks
from dubito.kernels.distances import nearest_rows, unit_rows
from dubito.serialization.arrays import array
from dubito.serialization.fields import MOST, Entry, boolean, declare, integer

BLOCK = 256  # queries at a time: enough for a fast product, few enough for all threads to have some
CHUNK_ENTRIES = 1 << 19  # products of a block at a time, 2 MB
ROUNDING, FINE_ROUNDING = 2.0**-24, 2.0**-52
LONGEST = 1.001  # square of the length of a row of length 1, rounded
FURTHEST = 1e15  # lengths of queries, in units of the furthest known row, that float32 can square


@final
class NearestNeighborDistance(BaseOODScore):
    """The distance to the `n_neighbors`-th nearest known row; exact, however many rows there are.

    By default of features at length 1 (`normalize`). It keeps the rows, or a sample of
    `max_samples` of them drawn by `random_state`, in memory or streamed; a known row counts as a neighbor of
    itself, weights only whether they are above 0, labels not at all. Sun et al.,
    "Out-of-distribution detection with deep nearest neighbors", 2022.

    >>> known = [[0.0, 1.0], [0.0, 2.0], [3.0, 4.0]]
    >>> NearestNeighborDistance(2, normalize=False).fit(known).score([[0.0, 1.0], [0.0, 5.0]])
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

    def _check_fitted(self, entry: Entry) -> None:
        if self.n_neighbors_ > len(self.reference_):
            rule = f"at most {len(self.reference_)}, the number of rows in reference_"
            raise entry.at("n_neighbors_").error(rule, f"{self.n_neighbors_}")
        if self.is_normalized_:
            _require_units(self.reference_, entry.at("reference_"))

    def _learn(self, shards: FeatureShards) -> None:
        self.n_neighbors_, self.is_normalized_ = int(self.n_neighbors), bool(self.normalize)
        sizes = list(shards.map(lambda _, rows: len(rows)))
        chosen = _chosen_rows(
            sum(sizes), self.max_samples, draw_seed(self.random_state, type(self).__name__)
        )
        if chosen.size < self.n_neighbors:
            rule = f"{self.n_neighbors} rows or more, as many as neighbors"
            got = f"{chosen.size}"
            raise BadValueError("features", type(self).__name__, rule, got, "a lower n_neighbors")
        starts = [0, *accumulate(sizes)]
        self.reference_ = freeze(
            self._taken(shards, chosen, np.searchsorted(chosen, starts), starts)
        )

    def _taken(
        self, shards: FeatureShards, chosen: IntArray, ends: IntArray, starts: list[int]
    ) -> FloatArray:
        """Return some rows of the shards, ready to be measured; `ends` cut them by blocks."""

        def part(number: int, rows: FeatureRows) -> FloatArray:
            wanted = chosen[ends[number] : ends[number + 1]] - starts[number]
            return self._measured(rows.features[wanted])

        known = np.empty((0, 0))
        for number, some in enumerate(shards.map(part)):
            if not number:
                known = np.empty((chosen.size, shards.n_features), some.dtype)
            known[ends[number] : ends[number + 1]] = some
        return known

    def _measured(self, features: FloatArray) -> FloatArray:
        """Return features at length 1, if so set at the fit."""
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

    def _doubt(self, features: FloatArray) -> FloatArray:
        search, known = self._search, contiguous(self.reference_)
        queries = contiguous(self._measured(features).astype(np.float64))
        close = queries / search.scale - search.center / search.scale
        lengths = np.sqrt(np.einsum("ij,ij->i", close, close))
        slack = search.slack(lengths, np.abs(queries).max(axis=1))
        heaps = np.full((len(queries), self.n_neighbors_), np.inf)
        narrow = close.astype(np.float32)
        for rows in row_blocks(len(known), len(queries), CHUNK_ENTRIES):
            nearest_rows(
                contiguous(narrow @ search.rows[rows].T),
                search.half_squares[rows],
                known[rows],
                queries,
                freeze(lengths),
                freeze(slack),
                search.scale,
                heaps,
            )
        return heaps[:, 0].copy()

    def _check_params(self) -> None:
        _require_whole(self, "n_neighbors", 1)
        require_random_state(self.random_state, type(self).__name__)
        if self.max_samples is not None:
            _require_whole(self, "max_samples", self.n_neighbors)
        if not isinstance(self.normalize, bool | np.bool_):
            name, got = type(self).__name__, repr(self.normalize)
            rule, fix = "True or False", "normalize=True"
            raise BadValueError("normalize", name, rule, got, fix)


def _require_units(known: FloatArray, entry: Entry) -> None:
    """Raise unless no row is longer than 1."""
    for rows in row_blocks(*known.shape):
        with np.errstate(over="ignore"):
            squares = np.einsum("ij,ij->i", known[rows], known[rows])
        if not squares.max() <= LONGEST:
            row = rows.start + int(np.argmax(squares))
            raise entry.error("rows of length 1", f"a longer one, number {row}")


def _require_whole(doubt: NearestNeighborDistance, argument: str, least: int) -> None:
    """Raise unless a setting is a whole number from `least` up."""
    value: Any = getattr(doubt, argument)
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (is_whole and value >= least):
        rule, fix = f"a whole number from {least} up", f"{argument}={least}"
        raise BadValueError(argument, type(doubt).__name__, rule, repr(value), fix)


def _chosen_rows(n_rows: int, most: int | None, seed: int) -> IntArray:
    """Return the numbers of the rows that are kept, in order."""
    if most is None or n_rows <= most:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(seed).choice(n_rows, most, replace=False))


@final
@dataclass(frozen=True, slots=True, eq=False)
class SearchRows:
    """Known rows in float32 about their center, largest entry 1: what products are taken of.

    Rows of length 1 are taken as they are.
    """

    rows: FloatArray
    half_squares: FloatArray
    reach: float  # the largest length
    center: FloatArray
    scale: float
    largest: float  # entry of the known rows

    @classmethod
    def of(cls, known: FloatArray, *, is_unit: bool) -> SearchRows:
        blocks = row_blocks(*known.shape)
        largest = float(max(np.abs(known[rows]).max() for rows in blocks))
        center, scale = np.zeros(known.shape[1]), 1.0
        if not is_unit:
            unit = largest or 1.0  # sums of the rows as they are might not be held
            center = sum(((known[rows] / np.float64(unit)).sum(axis=0) for rows in blocks), center)
            center = center / len(known) * unit
            furthest = max(np.abs(known[rows] / 2 - center / 2).max() for rows in blocks)
            scale = float(furthest) * 2 or unit
        narrow = known
        if not (is_unit and known.dtype == np.float32):
            narrow = np.empty(known.shape, np.float32)
            for rows in blocks:
                narrow[rows] = known[rows] / np.float64(scale) - center / scale
        squares = np.einsum("ij,ij->i", narrow, narrow, dtype=np.float64)
        halves, reach = (squares / 2).astype(np.float32), float(np.sqrt(squares.max()))
        return cls(contiguous(narrow), contiguous(halves), reach, center, scale, largest)

    def slack(self, lengths: FloatArray, largest: FloatArray) -> FloatArray:
        """Return how far the key of a query may be off, for sure.

        Products err by their number of terms, entries by their own rounding: u |q| |x| for each.
        Of the rest float64 leaves little: what centering and the exact distance are off.
        """
        n_terms, both = self.rows.shape[1], lengths + self.reach
        products = ROUNDING * ((n_terms + 16) * lengths * self.reach + 8 * self.reach**2)
        centering = 4 * both * np.sqrt(n_terms) * (largest + self.largest) / self.scale
        exact = FINE_ROUNDING * (centering + (n_terms + 16) * np.square(both))
        bound = products + exact + 1e-30  # the last for what is too small for float32
        return np.where((lengths < FURTHEST) & (bound < np.inf), bound, np.inf)

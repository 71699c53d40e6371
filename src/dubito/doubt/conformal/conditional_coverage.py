"""Does the coverage of intervals depend on their width, or on features?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import (
    BoolArray,
    FloatArray,
    RandomState,
    as_count,
    as_fraction,
    as_numbers,
    draw_seed,
    freeze,
    require_rows,
)
from dubito.doubt.conformal.regressor import PredictionIntervals
from dubito.doubt.features import as_feature_matrix
from dubito.errors import BadTypeError, BadValueError
from dubito.formatting import HTMLTable, align_table, html_view, percent

N_SIMULATED = 2000  # draws of what chance explains
CALLER = "conditional_coverage"


@final
@dataclass(frozen=True, slots=True)
class WidthBin:
    """The rows whose interval has a width from `low` to `high`, and how many are covered."""

    low: float
    high: float
    n_rows: int
    coverage: float


@final
@dataclass(frozen=True, slots=True, eq=False)
class WorstSlab:
    """The slab of features with the lowest coverage, found on one half and evaluated on the other.

    Attributes
    ----------
    direction : array of shape (n_features,)
        The slab holds rows whose standardized features, times this, lie between `low` and `high`.
    low, high : float
        The bounds.
    found_coverage : float
        The coverage on the half where it was found: the lowest of all slabs, so chance lowers it.
    n_rows, coverage : int, float
        The rows of the other half in the slab, and their coverage, which has no such bias.
    rest_coverage : float
        The coverage of the other half outside the slab.
    p_value : float
        How likely chance alone gives so low a coverage in the slab.
    """

    direction: FloatArray
    low: float
    high: float
    found_coverage: float
    n_rows: int
    coverage: float
    rest_coverage: float
    p_value: float


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ConditionalCoverage:
    """How coverage varies with the predicted width and with features.

    Attributes
    ----------
    n_rows, coverage : int, float
        All rows, and their coverage.
    bins : tuple of WidthBin
        Bins of the predicted width with about equal numbers of rows.
    gap : float
        The largest difference between the coverage of a bin and that of all rows.
    chance_gap : float
        The mean of that gap if coverage did not depend on the width: the part that chance explains.
    p_value : float
        How likely chance alone gives a gap as large.
    worst_slab : WorstSlab or None
        The slab of features with the lowest coverage, if there are features.
    """

    n_rows: int
    coverage: float
    bins: tuple[WidthBin, ...]
    gap: float
    chance_gap: float
    p_value: float
    worst_slab: WorstSlab | None

    def __repr__(self) -> str:
        verdict, head, rows, others = self._parts()
        return "\n".join([verdict, *align_table([head, *rows]), *others])

    def _repr_html_(self) -> str:
        verdict, head, rows, others = self._parts()
        return html_view(verdict, HTMLTable(head, rows), "\n".join(others))

    def _parts(self) -> tuple[str, tuple[str, ...], list[tuple[str, ...]], list[str]]:
        """Return the verdict, the head and rows of a table by width, and further sentences."""
        rows: list[tuple[str, ...]] = [
            (f"{one.low:.4g} to {one.high:.4g}", f"{one.n_rows:,}", percent(one.coverage))
            for one in self.bins
        ]
        lines = [
            f"Largest gap {self.gap * 100:.1f} points; by chance alone it would be "
            f"{self.chance_gap * 100:.1f} on average (p = {self.p_value:.2g}).",
        ]
        slab = self.worst_slab
        if slab is not None:
            lines.append(
                f"Worst slab of features: {percent(slab.coverage)} of {slab.n_rows:,} rows, "
                f"{percent(slab.rest_coverage)} outside it (p = {slab.p_value:.2g})."
            )
        verdict = f"Coverage {percent(self.coverage)} of {self.n_rows:,} rows."
        return verdict, ("predicted width", "rows", "coverage"), rows, lines


def conditional_coverage(
    y_true: Any,
    intervals: PredictionIntervals,
    *,
    features: Any = None,
    n_bins: int = 5,
    n_directions: int = 1000,
    min_fraction: float = 0.2,
    random_state: RandomState = 0,
) -> ConditionalCoverage:
    """Return how the coverage of intervals varies with their width and with features.

    Conformal intervals cover a fraction of all rows. They may still cover fewer of the difficult
    ones, which this shows: in bins of the predicted width, and in the slab of features (rows
    between two parallel hyperplanes) that is covered worst.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        The targets of rows that intervals were not calibrated on; none may be missing.
    intervals : PredictionIntervals
        Their intervals.
    features : array-like of shape (n_rows, n_features), optional
        Features in which slabs are searched; they are standardized.
    n_bins : int, default=5
        The number of bins of the width.
    n_directions : int, default=1000
        Random directions of slabs. In each the worst slab is found exactly.
    min_fraction : float, default=0.2
        The smallest fraction of rows in a slab.
    random_state : int, RandomState or None, default=0
        The seed of directions, of the halves, and of what chance explains.

    Returns
    -------
    ConditionalCoverage
        Figures that print as a table.

    References
    ----------
    Cauchois, Gupta and Duchi, "Knowing what you know: valid and validated confidence sets in
    multiclass and multilabel prediction", JMLR 2021; Romano, Sesia and Candès, "Classification with
    valid and adaptive coverage", 2020 (evaluation on other rows).

    Examples
    --------
    >>> import numpy as np
    >>> from dubito.doubt import PredictionIntervals, conditional_coverage
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(2000, 2))
    >>> y = np.exp(x[:, 0] / 2) * rng.normal(size=2000)
    >>> fixed = PredictionIntervals(np.full(2000, -2.0), np.full(2000, 2.0))
    >>> conditional_coverage(y, fixed, features=x)
    Coverage 90.3 % of 2,000 rows.
    predicted width   rows  coverage
    4 to 4           2,000    90.3 %
    Largest gap 0.0 points; by chance alone it would be 0.0 on average (p = 1).
    Worst slab of features: 67.6 % of 188 rows, 96.3 % outside it (p = 7.5e-27).
    """
    if not isinstance(intervals, PredictionIntervals):
        rule, fix = "must be PredictionIntervals", "Pass what ConformalRegressor.predict returned"
        raise BadTypeError("intervals", CALLER, rule, type(intervals).__name__, fix)
    y = as_numbers(y_true, "y_true", CALLER, len(intervals.low), "the intervals")
    as_count(n_bins, "n_bins", CALLER, example=5)
    as_count(n_directions, "n_directions", CALLER, example=1000)
    as_fraction(min_fraction, "min_fraction", CALLER, is_open=True)
    rng = np.random.default_rng(draw_seed(random_state, CALLER))
    if not y.size:
        raise BadValueError("y_true", CALLER, "must have at least 1 row", "0", "Pass more rows")
    is_covered = intervals.contains(y)
    slab = None
    if features is not None:
        matrix = as_feature_matrix(features, CALLER)
        require_rows(matrix, y.size, "features", CALLER, "the intervals")
        slab = _worst_slab(matrix.astype(np.float64), is_covered, n_directions, min_fraction, rng)
    return _by_width(intervals.width, is_covered, n_bins, slab, rng)


def _by_width(
    width: FloatArray,
    is_covered: BoolArray,
    n_bins: int,
    slab: WorstSlab | None,
    rng: np.random.Generator,
) -> ConditionalCoverage:
    """Return the coverage in bins of the width; equal widths are in the same bin."""
    total, coverage = width.size, float(is_covered.mean())
    # Widths that differ by rounding alone are equal.
    unit = float(np.max(width[np.isfinite(width)], initial=0.0)) or 1.0
    width = np.round(width / unit, 9) * unit
    ranked = np.sort(width)
    edges = np.unique(ranked[np.arange(1, n_bins) * total // n_bins])
    _, bins = np.unique(np.searchsorted(edges, width), return_inverse=True)
    counts, covered = np.bincount(bins), np.bincount(bins, is_covered)
    parts = tuple(
        WidthBin(float(width[bins == k].min()), float(width[bins == k].max()), int(n), float(c / n))
        for k, (n, c) in enumerate(zip(counts, covered, strict=True))
    )
    gap = float(np.abs(covered / counts - coverage).max())
    drawn = rng.multivariate_hypergeometric(counts, int(is_covered.sum()), N_SIMULATED)
    gaps = np.abs(drawn / counts - coverage).max(axis=1)
    p_value = float((1 + (gaps >= gap - 1e-12).sum()) / (1 + N_SIMULATED))
    return ConditionalCoverage(total, coverage, parts, gap, float(gaps.mean()), p_value, slab)


def _worst_slab(
    features: FloatArray,
    is_covered: BoolArray,
    n_directions: int,
    min_fraction: float,
    rng: np.random.Generator,
) -> WorstSlab:
    """Return the slab of lowest coverage on a random half, evaluated on the other."""
    order = rng.permutation(len(features))
    search, check = order[: order.size // 2], order[order.size // 2 :]
    least = int(np.ceil(min_fraction * search.size))
    if least < 2:
        rule = f"must have at least {int(np.ceil(4 / min_fraction))} rows"
        raise BadValueError("features", CALLER, rule, f"{len(features)}", "Pass more rows")
    std = features.std(axis=0)
    scaled = (features - features.mean(axis=0)) / np.where(std > 0, std, 1.0)
    directions = rng.normal(size=(n_directions, features.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    ranks = np.argsort(scaled[search] @ directions.T, axis=0)
    k, first, last = _lowest_mean_run(is_covered[search][ranks].T.astype(np.float64), least)
    rows = search[ranks[first:last, k]]
    place = scaled @ directions[k]
    low, high = float(place[rows[0]]), float(place[rows[-1]])
    is_inside = (place[check] >= low) & (place[check] <= high)
    inside, outside = is_covered[check][is_inside], is_covered[check][~is_inside]
    from scipy.stats import hypergeom

    chance = hypergeom(check.size, int(is_covered[check].sum()), inside.size)
    return WorstSlab(
        direction=freeze(directions[k]),
        low=low,
        high=high,
        found_coverage=float(is_covered[rows].mean()),
        n_rows=int(inside.size),
        coverage=float(inside.mean()) if inside.size else float(is_covered[check].mean()),
        rest_coverage=float(outside.mean()) if outside.size else float(is_covered[check].mean()),
        p_value=float(chance.cdf(int(inside.sum()))),
    )


def _lowest_mean_run(values: FloatArray, least: int) -> tuple[int, int, int]:
    """Return the row, start and end of the run of at least `least` values with the lowest mean.

    Dinkelbach's method: the run with the lowest sum of value - mean, for the mean of the best run
    so far, until none is lower.

    >>> _lowest_mean_run(np.array([[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]]), 2)
    (1, 2, 4)
    """
    n_rows = values.shape[1]
    sums = np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)
    steps = np.arange(n_rows + 1)
    best, mean = (0, 0, n_rows), float(values[0].mean())
    while True:
        above = sums - mean * steps
        highest = np.maximum.accumulate(above[:, : n_rows + 1 - least], axis=1)
        sizes = above[:, least:] - highest
        k, at = np.unravel_index(int(sizes.argmin()), sizes.shape)
        last = int(at) + least
        first = int(above[k, : last - least + 1].argmax())
        found = float((sums[k, last] - sums[k, first]) / (last - first))
        if not found < mean - 1e-12:
            return best
        best, mean = (int(k), first, last), found

from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from dubito.calibrate.isotonic import GRID, Curves, ScoredRows, _Cells, fit_curves
from dubito.data.shards import Shards
from dubito.errors import EmptyStateError

Array = NDArray[Any]


class Parts(Shards[ScoredRows]):
    """Rows in given parts."""

    def __init__(self, *rows: ScoredRows) -> None:
        self.rows = rows

    def parts(self) -> Iterator[Callable[[], ScoredRows]]:
        return (partial(copy, rows) for rows in self.rows)


def smoothed_curve(scores: Array, targets: Array, weight: Array) -> tuple[Array, float]:
    """Return scikit-learn's curve at the scores, its certain ends smoothed, and their weight."""
    level = IsotonicRegression().fit(scores, targets, sample_weight=weight).predict(scores)
    level = level.round(12)
    is_certain = (level <= 0) | (level >= 1)
    prior = (weight @ targets + 0.5) / (weight.sum() + 1)
    # A row of the prior more in each end, wherever in it: the end is level.
    ends = np.unique(level[is_certain])
    more = [scores[level == end].mean() for end in ends]
    scores_and_more = np.append(scores, more)
    wanted = np.append(level, np.full(ends.size, prior))
    weights = np.append(weight, np.ones(ends.size))
    for end in ends:  # rows of an end are one block, whatever is pooled with it
        rows = np.append(level == end, ends == end)
        wanted[rows] = np.average(wanted[rows], weights=weights[rows])
    again = IsotonicRegression().fit(scores_and_more, wanted, sample_weight=weights)
    return again.predict(scores), float(weight[is_certain].sum())


def curve_of(scores: Array, targets: Array, weight: Array, **settings: Any) -> Curves:
    codes = np.zeros(scores.size, dtype=np.int64)
    rows = ScoredRows(scores[:, np.newaxis], codes, targets[:, np.newaxis], weight)
    return fit_curves(Parts(rows), 1, **settings)


ROWS = st.lists(
    st.tuples(st.integers(-6, 6), st.sampled_from([0.0, 0.0, 0.25, 1.0, 1.0]), st.integers(1, 3)),
    min_size=1,
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=200)
@given(ROWS)
def test_curves_are_scikit_learns_but_for_certain_ends(rows: list[tuple[int, float, int]]) -> None:
    scores, targets, weight = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    curves = curve_of(scores, targets, weight, in_memory=True)
    found = curves.interpolate(scores[:, np.newaxis])[:, 0]
    expected, n_certain = smoothed_curve(scores, targets, weight)
    assert_allclose(found, expected, atol=1e-9)
    assert curves.n_certain.tolist() == [n_certain]
    assert (np.diff(curves.x) > 0).all()
    assert (np.diff(curves.y) >= 0).all()
    assert ((curves.y > 0) & (curves.y < 1)).all()


def test_without_certain_ends_the_whole_curve_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=500).round(2)
    targets = rng.uniform(0.05, 0.95, 500) * (1 + np.tanh(scores)) / 2 + 0.01
    curves = curve_of(scores, targets, np.ones(500), in_memory=True)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(scores, targets)
    anywhere = np.linspace(-6, 6, 2001)
    assert_allclose(
        curves.interpolate(anywhere[:, np.newaxis])[:, 0], theirs.predict(anywhere), atol=1e-9
    )
    assert curves.n_certain.tolist() == [0.0]


def some_rows(n_rows: int, n_classes: int, seed: int = 0) -> ScoredRows:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n_rows, n_classes)) * 3
    codes = np.where(rng.random(n_rows) < 0.7, scores.argmax(axis=1), 0)
    codes[rng.random(n_rows) < 0.1] = -1
    weight = np.where(codes < 0, 0.0, rng.uniform(0.5, 2, n_rows))
    return ScoredRows(scores, codes, np.empty((0, n_classes)), weight)


def test_many_curves_are_each_class_by_itself() -> None:
    rows = some_rows(400, 11)
    curves = fit_curves(Parts(rows), 11, in_memory=True)
    together = curves.interpolate(rows.scores)
    for k in range(11):
        targets = (rows.labels == k).astype(float)
        alone = curve_of(rows.scores[:, k], targets, rows.weight, in_memory=True)
        assert_array_equal(alone.interpolate(rows.scores[:, k : k + 1])[:, 0], together[:, k])
        assert alone.n_certain[0] == curves.n_certain[k]


def test_a_streamed_curve_is_that_of_scores_rounded_to_the_grid() -> None:
    rng = np.random.default_rng(1)
    scores = np.append(rng.normal(size=3000) * 2, GRID[2000:2050])
    targets = (rng.random(scores.size) < 1 / (1 + np.exp(-scores))).astype(float)
    weight = rng.uniform(0.5, 2, scores.size)
    found = curve_of(scores, targets, weight, in_memory=False)
    above = np.searchsorted(GRID, scores, side="right")
    rounded = (GRID[above] + GRID[above - 1]) / 2
    assert np.abs(rounded - scores).max() <= 0.007
    exact = curve_of(rounded, targets, weight, in_memory=True)
    assert np.unique(scores).size > np.unique(rounded).size + 500
    assert_allclose(
        found.interpolate(scores[:, np.newaxis]),
        exact.interpolate(rounded[:, np.newaxis]),
        atol=1e-9,
    )
    assert_allclose(found.n_certain, exact.n_certain)


def test_a_streamed_curve_is_exact_where_scores_are_a_cell_apart() -> None:
    rng = np.random.default_rng(2)
    scores = rng.integers(-300, 300, 1000) * 0.0137
    targets = (rng.random(1000) < 0.5).astype(float)
    found, exact = (
        curve_of(scores, targets, np.ones(1000), in_memory=in_memory) for in_memory in (False, True)
    )
    assert_allclose(found.x, exact.x, rtol=1e-12)
    assert_allclose(found.y, exact.y, rtol=1e-12)


@pytest.mark.parametrize("in_memory", [True, False])
def test_rows_in_parts_pool_to_the_whole(in_memory: bool) -> None:
    rows = some_rows(300, 3)
    parts = [
        ScoredRows(rows.scores[part], rows.labels[part], rows.soft_labels, rows.weight[part])
        for part in (slice(0, 120), slice(120, 121), slice(121, 300))
    ]
    whole = fit_curves(Parts(rows), 3, in_memory=in_memory)
    found = fit_curves(Parts(*parts), 3, in_memory=in_memory)
    assert_array_equal(found.x, whole.x)
    assert_allclose(found.y, whole.y, rtol=1e-12)
    assert_array_equal(found.offsets, whole.offsets)
    assert_allclose(found.n_certain, whole.n_certain, rtol=1e-12)


@pytest.mark.parametrize(("target", "value"), [(0.0, 0.1 / 5), (1.0, 4.9 / 5)])
def test_rows_of_one_class_are_smoothed_towards_the_prior(target: float, value: float) -> None:
    curves = curve_of(np.arange(4.0), np.full(4, target), np.ones(4), in_memory=True)
    assert_allclose(curves.y, value)  # the prior is half a row more of each class: 0.5 / 5
    assert curves.n_certain.tolist() == [4.0]


def test_an_end_that_smoothing_would_lift_above_its_neighbor_is_pooled_with_it() -> None:
    scores = np.array([0.0, 1, 1, 1, 1, 1, 2, 2, 2])
    targets = np.array([0.0, 1, 0, 0, 0, 0, 1, 1, 1])
    prior = 4.5 / 10
    assert prior / 2 > 1 / 5
    curves = curve_of(scores, targets, np.ones(9), in_memory=True)
    assert_allclose(curves.x, [0, 1, 2])
    assert_allclose(curves.y, [(1 + prior) / 7, (1 + prior) / 7, (3 + prior) / 4])
    assert curves.n_certain.tolist() == [4.0]


def test_cells_without_rows_are_neutral() -> None:
    knots, offsets = np.array([0.0, 1.0]), np.array([0, 2])
    scores = np.array([[0.0], [0.5], [2.0]])
    rows = ScoredRows(scores, np.zeros(3, dtype=np.int64), np.empty((0, 1)), np.ones(3))
    none = ScoredRows(scores[:0], rows.labels[:0], rows.soft_labels, rows.weight[:0])
    cells, empty = (_Cells.of(each, knots, offsets) for each in (rows, none))
    both = cells + empty
    for name in ("weight", "positive", "low", "high"):
        assert_array_equal(getattr(both, name), getattr(cells, name))
    assert cells.weight.tolist() == [0, 2, 1]


def test_no_rows_make_no_curve() -> None:
    with pytest.raises(EmptyStateError, match="A calibrator needs at least 1 labeled row"):
        curve_of(np.zeros(2), np.ones(2), np.zeros(2), in_memory=True)

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from dubito.arrays import contiguous
from dubito.kernels.nonparametric import (
    N_PARTS,
    _index_of,
    _part_of,
    add_to_cells,
    pool_neighbors,
    read_knots,
)

Array = NDArray[Any]


def pooled(positive: Any, weight: Any) -> list[list[float]]:
    """Return the blocks of cells whose lowest and highest score are their number."""
    cells = [np.array(column, np.float64) for column in (positive, weight)]
    cells += [np.arange(len(weight), dtype=np.float64) for _ in range(2)]
    n_blocks = pool_neighbors(*cells)
    return [[float(entry) for entry in column[:n_blocks]] for column in cells]


@pytest.mark.parametrize(
    ("positive", "weight", "blocks"),
    [
        ([0, 1, 2], [2, 2, 2], [[0, 1, 2], [2, 2, 2], [0, 1, 2], [0, 1, 2]]),
        ([2, 1, 0], [2, 2, 2], [[3], [6], [0], [2]]),
        ([0, 2, 1, 3], [3, 3, 3, 3], [[0, 3, 3], [3, 6, 3], [0, 1, 3], [0, 2, 3]]),
        ([1, 2, 4], [2, 4, 4], [[3, 4], [6, 4], [0, 2], [1, 2]]),
        ([0, 0, 1], [1, 0, 1], [[0, 1], [1, 1], [0, 2], [0, 2]]),
        ([0, 0], [0, 0], [[], [], [], []]),
        ([], [], [[], [], [], []]),
    ],
    ids=["rising", "falling", "one dip", "level", "without weight", "no weight", "no cells"],
)
def test_neighbors_out_of_order_are_pooled(positive: Any, weight: Any, blocks: Any) -> None:
    assert pooled(positive, weight) == blocks


@pytest.mark.slow
@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), min_size=1, max_size=40))
def test_blocks_are_those_of_scikit_learn(cells: list[tuple[int, int]]) -> None:
    weight = np.array([w for _, w in cells], np.float64)
    positive = np.array([min(p, w) for p, w in cells], np.float64)
    blocks = np.array(pooled(positive, weight))
    values = blocks[0] / blocks[1]
    assert (np.diff(values) > 0).all()
    expected = IsotonicRegression().fit_transform(
        np.arange(weight.size), positive / weight, sample_weight=weight
    )
    sizes = (blocks[3] - blocks[2] + 1).astype(int)
    assert_allclose(np.repeat(values, sizes), expected, atol=1e-9)


def cells_of(scores: Any, codes: Any, weights: Any, knots: list[list[float]], soft: Any) -> Array:
    offsets = np.cumsum([0, *map(len, knots)])
    cells = np.tile([0.0, 0.0, np.inf, -np.inf], (offsets[-1] + len(knots), 1))
    columns = (scores, codes, soft, weights, np.concatenate([*knots, []]), offsets)
    add_to_cells(*(contiguous(np.asarray(column)) for column in columns), cells)
    return cells


def plain_cells(scores: Any, codes: Any, weights: Any, knots: Any, soft: Any) -> Array:
    cells = []
    for k, own in enumerate(knots):
        bounds = pairwise([-np.inf, *own, np.inf])
        is_in = [(low <= scores[:, k]) & (scores[:, k] < high) for low, high in bounds]
        share = soft[:, k] if len(soft) else codes == k
        for rows in is_in:
            here = scores[rows & (weights > 0), k]
            low, high = here.min(initial=np.inf), here.max(initial=-np.inf)
            cells.append([weights[rows].sum(), (weights * share)[rows].sum(), low, high])
    return np.array(cells)


@pytest.mark.parametrize("is_soft", [False, True])
@pytest.mark.parametrize("n_classes", [1, 3, 20])
def test_cells_match_numpy_reference(n_classes: int, is_soft: bool) -> None:
    rng = np.random.default_rng(n_classes)
    choices = np.array([-90.0, -28.0, -3.0, -0.1, 0.0, 1e-9, 0.25, 2.0, 27.9, 28.0, 31.0])
    scores = rng.choice(choices, (200, n_classes))
    codes, weights = rng.integers(-1, n_classes, 200), rng.random(200) * rng.integers(0, 2, 200)
    knots = [sorted(rng.choice(choices, k % 8, replace=False)) for k in range(n_classes)]
    soft = rng.random((200, n_classes)) if is_soft else np.empty((0, n_classes))
    columns = scores, codes, weights, knots, soft
    assert_allclose(cells_of(*columns), plain_cells(*columns), rtol=1e-12)


def test_rows_without_weight_are_left_out_whatever_they_hold() -> None:
    scores = np.array([[0.5], [np.inf], [0.7]])
    weights, codes = np.array([1.0, 0.0, 2.0]), np.array([0, 0, -1])
    cells = cells_of(scores, codes, weights, [[0.5]], np.empty((0, 1)))
    assert cells.tolist() == [[0, 0, np.inf, -np.inf], [3, 1, 0.5, 0.7]]


def curve_at(scores: Any, curves: list[tuple[list[float], list[float]]]) -> Array:
    x, y = (np.concatenate([curve[i] for curve in curves]) for i in (0, 1))
    offsets = np.cumsum([0, *(len(own) for own, _ in curves)])
    values = np.full(scores.T.shape, np.nan)
    read_knots(*map(contiguous, (scores.T, x, y, offsets)), values)
    return values.T


LOG_ODDS = st.floats(-30, 30)


@pytest.mark.slow
@given(st.lists(LOG_ODDS, min_size=1, max_size=30, unique=True), st.lists(LOG_ODDS, max_size=30))
def test_curves_are_linear_between_knots_and_level_beyond(
    knots: list[float], others: list[float]
) -> None:
    x = sorted(knots)
    y = list(np.linspace(0.1, 0.8, len(x)))
    scores = np.array([*x, *others, -1e3, 1e3])
    # Among other classes, so that each has to be distinguished from its neighbors.
    curves = [([-1.0, 1.0], [0.3, 0.6]), (x, y), ([0.0], [0.5])]
    values = curve_at(np.stack([scores] * 3, axis=1), curves)
    assert_allclose(values[:, 1], np.interp(scores, x, y), rtol=1e-9)
    assert_allclose(values[:, 0], np.interp(scores, [-1, 1], [0.3, 0.6]), rtol=1e-9)
    assert_array_equal(values[:, 2], 0.5)


def test_every_class_has_its_own_curve() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(50, 21))
    curves = [(sorted(rng.normal(size=5)), sorted(rng.random(5))) for _ in range(21)]
    expected = [np.interp(scores[:, k], *curve) for k, curve in enumerate(curves)]
    assert_allclose(curve_at(scores, curves), np.stack(expected, axis=1), rtol=1e-12)


@njit
def index_and_parts(knots, offsets):  # type: ignore[no-untyped-def]
    return _index_of(knots, offsets), [_part_of(knot) for knot in knots]


@pytest.mark.slow
def test_the_index_holds_the_start_of_each_class_and_part() -> None:
    knots, offsets = np.array([-99.0, -28.0, 0.0, 0.01, 27.99, 99.0, 5.0]), np.array([0, 6, 6, 7])
    starts, parts = index_and_parts(contiguous(knots), contiguous(offsets))
    assert parts == [0, 0, N_PARTS // 2, N_PARTS // 2, N_PARTS - 1, N_PARTS - 1, 603]
    for k in range(3):
        own = parts[offsets[k] : offsets[k + 1]]
        expected = [offsets[k] + sum(one < part for one in own) for part in range(N_PARTS)]
        assert starts[N_PARTS * k : N_PARTS * (k + 1)].tolist() == expected
    assert starts[-1] == 7

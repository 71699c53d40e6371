"""Thinned curves stay within their bound, everywhere, and need fewer knots where they can."""

from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression

from dubito import Logits, Probabilities
from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
    IsotonicCalibration,
    OneVsRest,
    PlattScaling,
    TemperatureScaling,
)
from dubito.calibrate.binary import GRID, ScoredRows
from dubito.calibrate.isotonic import (
    Curve,
    _Cells,
    _select_knots,
    interpolate_curves,
)
from dubito.data import Columns, Shards, scan
from dubito.errors import BadValueError, DubitoError, EmptyStateError, UnfittedError

rng = np.random.default_rng(0)
S = (rng.normal(size=800) * 2).round(1)
Y = (rng.random(800) < expit(S)).astype(int)
WEIGHT = rng.integers(0, 4, 800).astype(float)


def theirs(scores: Any, y: Any, weight: Any) -> Any:
    return IsotonicRegression(out_of_bounds="clip").fit(scores, y, sample_weight=weight)


def textbook_steps(scores: Any, y: Any, weight: Any, new: Any) -> list[float]:
    """Return the step function of Zadrozny and Elkan: pool adjacent violators, in plain loops."""
    blocks: list[list[float]] = []  # lowest score, weight of positives, weight
    for score in sorted(set(scores[weight > 0])):
        is_here = scores == score
        blocks.append([score, (weight * y)[is_here].sum(), weight[is_here].sum()])
        while len(blocks) > 1 and blocks[-2][1] / blocks[-2][2] >= blocks[-1][1] / blocks[-1][2]:
            _, positive, total = blocks.pop()
            blocks[-1][1] += positive
            blocks[-1][2] += total
    found = []
    for score in new:
        last = max((i for i, block in enumerate(blocks) if block[0] <= score), default=0)
        found.append(blocks[last][1] / blocks[last][2])
    return found


@pytest.mark.parametrize("weight", [np.ones(800), WEIGHT])
@pytest.mark.parametrize("kind", [Logits, Probabilities])
def test_steps_are_those_of_the_textbook(kind: Any, weight: Any) -> None:
    rows = Logits(S) if kind is Logits else Probabilities(expit(S))
    steps = IsotonicCalibration("step", smooth=False).fit(rows, Y, weight)
    new = np.concatenate([S, S + 0.037, [-20.0, 20.0]])
    expected = textbook_steps(S, Y, weight, new)
    assert min(expected) == 0
    assert max(expected) == 1
    assert_allclose(steps.predict_proba(Logits(new))[:, 1], expected, atol=1e-9)
    again = IsotonicCalibration.from_dict(steps.to_dict())
    assert_array_equal(again.predict_proba(Logits(new)), steps.predict_proba(Logits(new)))
    assert "rows at its ends, of one class" in steps.summary()
    fewer = steps._with_fewer_knots(1e-4).predict_proba(Logits(new))[:, 1]
    assert_allclose(fewer, expected, atol=1e-4)
    # Smoothed, only the certain ends differ.
    smoothed = IsotonicCalibration("step").fit(rows, Y, weight).predict_proba(Logits(S))[:, 1]
    linear = IsotonicCalibration().fit(rows, Y, weight).predict_proba(Logits(S))[:, 1]
    assert_allclose(smoothed, linear, atol=1e-9)


def test_steps_of_several_classes_are_those_of_each() -> None:
    draw = np.random.default_rng(2)
    logits, y = draw.normal(size=(300, 3)), draw.integers(0, 3, 300)
    steps = OneVsRest(IsotonicCalibration("step", smooth=False)).fit(Logits(logits), y)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    odds = logit(p)
    each = np.array([textbook_steps(odds[:, k], y == k, np.ones(300), odds[:, k])
                     for k in range(3)])  # fmt: skip
    expected = np.maximum(each, 1e-12) / np.maximum(each, 1e-12).sum(axis=0)
    is_given = each.sum(axis=0) > 0
    assert is_given.mean() > 0.9
    assert_allclose(steps.predict_proba(Logits(logits)).T[:, is_given], expected[:, is_given],
                    atol=1e-9)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "name"), [({"interpolation": "cubic"}, "interpolation"), ({"smooth": 1}, "smooth")]
)
def test_options_are_checked(options: dict[str, Any], name: str) -> None:
    with pytest.raises(DubitoError, match=f"`{name}`"):
        IsotonicCalibration(**options).fit([0.1, 0.9], [0, 1])


@pytest.mark.parametrize("weight", [np.ones(800), WEIGHT, WEIGHT + rng.random(800)])
@pytest.mark.parametrize("kind", [Logits, Probabilities])
def test_the_curve_is_scikit_learns_but_for_certain_ends(kind: Any, weight: Any) -> None:
    rows = Logits(S) if kind is Logits else Probabilities(expit(S))
    curve = IsotonicCalibration().fit(rows, Y, weight)
    found = curve.predict_proba(rows)[:, 1]
    expected = theirs(S, Y, weight).predict(S)
    is_certain = (expected <= 0) | (expected >= 1)
    assert is_certain.any()
    assert_allclose(found[~is_certain], expected[~is_certain], atol=1e-9)
    assert_allclose(curve.n_certain_, weight[is_certain].sum())
    prior = (weight @ Y + 0.5) / (weight.sum() + 1)
    for end in (0, 1):
        rows_of_end = expected == end
        n = weight[rows_of_end].sum()
        assert_allclose(found[rows_of_end], (end * n + prior) / (n + 1), rtol=1e-9)


@pytest.mark.filterwarnings("ignore::dubito.errors.SingleClassWarning")
@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.integers(-5, 5), st.booleans(), st.integers(0, 3)), min_size=1, max_size=30
    ).filter(lambda rows: any(weight for *_, weight in rows))
)
def test_curves_never_fall_and_never_say_0_or_1(rows: list[tuple[int, bool, int]]) -> None:
    scores, y, weight = (np.array(column) for column in zip(*rows, strict=True))
    curve = IsotonicCalibration().fit(Logits(scores), y.astype(int), weight)
    assert (np.diff(curve.knots_) > 0).all()
    assert (np.diff(curve.values_) >= 0).all()
    found = curve.predict_proba(Logits(np.linspace(-9, 9, 181)))[:, 1]
    assert (np.diff(found) >= -1e-15).all()
    assert found.min() > 0
    assert found.max() < 1


def test_between_knots_it_is_linear_in_log_odds() -> None:
    curve = IsotonicCalibration().fit(Logits(S), Y)
    i = int(np.argmax(np.diff(curve.values_)))
    share = np.linspace(0, 1, 11)
    odds = (1 - share) * curve.knots_[i] + share * curve.knots_[i + 1]
    expected = (1 - share) * curve.values_[i] + share * curve.values_[i + 1]
    assert_allclose(curve.predict_proba(Probabilities(expit(odds)))[:, 1], expected, rtol=1e-9)
    beyond = curve.predict_proba(Logits([-50.0, 50.0]))[:, 1]
    assert_allclose(beyond, curve.values_[[0, -1]], rtol=1e-9)


def test_streamed_it_is_the_curve_of_scores_rounded_to_the_grid(tmp_path: Path) -> None:
    scores = rng.normal(size=5000)
    y = (rng.random(5000) < expit(scores)).astype(int)
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"logit": scores, "y": y}).to_parquet(path)
    streamed = IsotonicCalibration().fit(scan(path, Columns(label="y", logits="logit")))
    width = 56 / 4096
    rounded = (np.floor((scores + 28) / width) + 0.5) * width - 28
    assert np.abs(rounded - scores).max() <= 0.007
    assert np.unique(rounded).size < 600
    exact = IsotonicCalibration().fit(Logits(rounded), y)
    found = streamed.predict_proba(Logits(scores))
    assert_allclose(found, exact.predict_proba(Logits(rounded)), atol=1e-9)
    # So small a move of the scores costs next to nothing in squared error.
    held = IsotonicCalibration().fit(Logits(scores), y).predict_proba(Logits(scores))
    errors = [((p[:, 1] - y) ** 2).mean() for p in (held, found)]
    assert errors[0] <= errors[1] <= errors[0] + 2e-3


def test_the_description_counts_knots_ends_and_smoothed_rows() -> None:
    curve = IsotonicCalibration().fit(Logits([-2.0, -1.0, 0.0, 1.0, 2.0]), [0, 1, 0, 1, 1])
    prior = 3.5 / 6
    assert_allclose(curve.knots_, [-2, -1, 0, 1, 2], atol=1e-12)
    assert_allclose(curve.values_, [prior / 2, 0.5, 0.5, (2 + prior) / 3, (2 + prior) / 3])
    assert (
        curve._describe()
        == "an increasing curve with 5 knots from 0.292 to 0.861; 3 rows at its ends smoothed"
    )


def test_scores_that_are_all_the_same_get_the_share_of_positives() -> None:
    curve = IsotonicCalibration().fit(Probabilities(np.full(10, 0.7)), np.arange(10) < 4)
    assert_allclose(curve.predict_proba([0.1, 0.7, 0.9])[:, 1], 0.4, rtol=1e-9)
    assert_allclose(curve.knots_, [logit(0.7)])


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


def curve_of(scores: Array, targets: Array, weight: Array, **settings: Any) -> Curve:
    codes = np.zeros(scores.size, dtype=np.int64)
    rows = ScoredRows(scores[:, np.newaxis], codes, targets[:, np.newaxis], weight)
    (curve,) = IsotonicCalibration()._fit_curves(Parts(rows), 1, **settings)
    return curve


ROWS = st.lists(
    st.tuples(st.integers(-6, 6), st.sampled_from([0.0, 0.0, 0.25, 1.0, 1.0]), st.integers(1, 3)),
    min_size=1,
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=100)
@given(ROWS)
def test_curves_are_scikit_learns_but_for_certain_ends(rows: list[tuple[int, float, int]]) -> None:
    scores, targets, weight = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    curve = curve_of(scores, targets, weight, in_memory=True)
    found = interpolate_curves([curve], scores[np.newaxis])[0]
    expected, n_certain = smoothed_curve(scores, targets, weight)
    assert_allclose(found, expected, atol=1e-9)
    assert curve.n_certain == n_certain
    assert (np.diff(curve.x) > 0).all()
    assert (np.diff(curve.y) >= 0).all()
    assert ((curve.y > 0) & (curve.y < 1)).all()


def test_without_certain_ends_the_whole_curve_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=500).round(2)
    targets = rng.uniform(0.05, 0.95, 500) * (1 + np.tanh(scores)) / 2 + 0.01
    curve = curve_of(scores, targets, np.ones(500), in_memory=True)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(scores, targets)
    anywhere = np.linspace(-6, 6, 2001)
    assert_allclose(
        interpolate_curves([curve], anywhere[np.newaxis])[0],
        theirs.predict(anywhere),
        atol=1e-9,
    )
    assert curve.n_certain == 0.0


def some_rows(n_rows: int, n_classes: int, seed: int = 0) -> ScoredRows:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n_rows, n_classes)) * 3
    codes = np.where(rng.random(n_rows) < 0.7, scores.argmax(axis=1), 0)
    codes[rng.random(n_rows) < 0.1] = -1
    weight = np.where(codes < 0, 0.0, rng.uniform(0.5, 2, n_rows))
    return ScoredRows(scores, codes, np.empty((0, n_classes)), weight)


def test_many_curves_are_each_class_by_itself() -> None:
    rows = some_rows(400, 11)
    curves = IsotonicCalibration()._fit_curves(Parts(rows), 11, in_memory=True)
    together = interpolate_curves(curves, rows.scores.T).T
    for k in range(11):
        targets = (rows.labels == k).astype(float)
        alone = curve_of(rows.scores[:, k], targets, rows.weight, in_memory=True)
        values = interpolate_curves([alone], rows.scores[:, k][np.newaxis]).T
        assert_array_equal(values[:, 0], together[:, k])
        assert alone.n_certain == curves[k].n_certain


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
        interpolate_curves([found], scores[np.newaxis]),
        interpolate_curves([exact], rounded[np.newaxis]),
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
    whole = IsotonicCalibration()._fit_curves(Parts(rows), 3, in_memory=in_memory)
    found = IsotonicCalibration()._fit_curves(Parts(*parts), 3, in_memory=in_memory)
    for one, other in zip(found, whole, strict=True):
        assert_array_equal(one.x, other.x)
        assert_allclose(one.y, other.y, rtol=1e-12)
        assert_allclose(one.n_certain, other.n_certain, rtol=1e-12)


@pytest.mark.parametrize(("target", "value"), [(0.0, 0.1 / 5), (1.0, 4.9 / 5)])
def test_rows_of_one_class_are_smoothed_towards_the_prior(target: float, value: float) -> None:
    curve = curve_of(np.arange(4.0), np.full(4, target), np.ones(4), in_memory=True)
    assert_allclose(curve.y, value)  # the prior is half a row more of each class: 0.5 / 5
    assert curve.n_certain == 4.0


def test_an_end_that_smoothing_would_lift_above_its_neighbor_is_pooled_with_it() -> None:
    scores = np.array([0.0, 1, 1, 1, 1, 1, 2, 2, 2])
    targets = np.array([0.0, 1, 0, 0, 0, 0, 1, 1, 1])
    prior = 4.5 / 10
    assert prior / 2 > 1 / 5
    curve = curve_of(scores, targets, np.ones(9), in_memory=True)
    assert_allclose(curve.x, [0, 1, 2])
    assert_allclose(curve.y, [(1 + prior) / 7, (1 + prior) / 7, (3 + prior) / 4])
    assert curve.n_certain == 4.0


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


def furthest_apart(x: Any, y: Any, kept: Any) -> float:
    """Return the largest difference, on a fine grid and at all knots."""
    grid = np.concatenate([x, np.linspace(x[0] - 1, x[-1] + 1, 2001)])
    return float(np.abs(np.interp(grid, x, y) - np.interp(grid, x[kept], y[kept])).max())


@st.composite
def curves(draw: Any) -> Any:
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from([1e-12, 1e-6, 0.01, 0.5, 3.0]) | st.floats(1e-9, 2),
                st.sampled_from([0.0, 1e-9, 1e-4, 0.01, 0.3]) | st.floats(0, 0.2),
            ),
            min_size=1,
            max_size=60,
        )
    )
    x, y = np.cumsum(steps, axis=0).T
    return np.unique(x), np.minimum(y[np.unique(x, return_index=True)[1]], 1.0)


@pytest.mark.slow
@settings(max_examples=200)
@given(curves(), st.sampled_from([0.0, 1e-6, 1e-4, 1e-2, 0.3, 1.0]))
def test_nothing_moves_by_more_than_the_bound(curve: Any, bound: float) -> None:
    x, y = curve
    kept = _select_knots(x, y, bound)
    assert kept[0] == 0
    assert kept[-1] == x.size - 1
    assert (np.diff(kept) > 0).all()
    assert furthest_apart(x, y, kept) <= bound + 1e-12


@pytest.mark.parametrize("bound", [1e-5, 1e-4, 1e-3])
def test_curves_made_to_be_hard_stay_within_the_bound(bound: float) -> None:
    x = np.arange(3000.0) / 100 - 15
    zigzag = np.maximum.accumulate(np.arange(3000) / 3000 + bound * np.tile([0.9, -0.9], 1500))
    stairs = np.floor(np.arange(3000) / 7) * 1.9 * bound % 1
    for y in (np.clip(zigzag, 0, 1), np.sort(stairs), np.repeat([0.0, 1.0], 1500)):
        assert furthest_apart(x, y, _select_knots(x, y, bound)) <= bound


def fewest(x: Any, y: Any, bound: float) -> int:
    """Return the least number of knots that will do, by trying every pair: slow and sure."""
    steps = np.full(x.size, np.inf)
    steps[0] = 1
    for j in range(1, x.size):
        for i in range(j):
            line = np.interp(x[i : j + 1], x[[i, j]], y[[i, j]])
            if np.abs(line - y[i : j + 1]).max() <= bound:
                steps[j] = min(steps[j], steps[i] + 1)
    return int(steps[-1])


@pytest.mark.slow
def test_a_smooth_curve_needs_hardly_more_knots_than_the_fewest() -> None:
    x = np.linspace(-6, 6, 120)
    for bound in (1e-3, 1e-2):
        for y in (expit(x), expit(2 * x), np.sqrt((x + 6) / 12)):
            n_knots = _select_knots(x, y, bound).size
            assert n_knots < 40
            assert n_knots <= fewest(x, y, bound) + 1


def test_a_straight_line_needs_its_ends() -> None:
    x = np.arange(1001.0)
    assert _select_knots(x, x / 1024, 0.0).tolist() == [0, 1000]
    assert _select_knots(x[:1], x[:1], 0.1).tolist() == [0]


def made(n_rows: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(n_rows, 3)) * 2
    y = (0.6 * logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return logits, y


def test_a_fitted_curve_is_thinned_and_the_fit_left_alone() -> None:
    logits, y = made(20_000)
    outputs = Logits(logits[:, :2])
    curve = IsotonicCalibration().fit(outputs, y == 1)
    n_knots = curve.knots_.size
    for bound, most in ((1e-4, 1.0), (1e-2, 0.6), (0.05, 0.2)):
        thin = curve.reduce_knots(bound)
        assert np.abs(thin.predict_proba(outputs) - curve.predict_proba(outputs)).max() <= bound
        assert thin.knots_.size <= most * n_knots
        assert (thin.values_.min(), thin.values_.max()) == (
            curve.values_.min(),
            curve.values_.max(),
        )
        again = IsotonicCalibration.from_dict(thin.to_dict())
        assert np.array_equal(again.predict_proba(outputs), thin.predict_proba(outputs))
    assert curve.knots_.size == n_knots


@pytest.mark.slow
def test_what_is_inside_is_thinned() -> None:
    logits, y = made(3000)
    each = OneVsRest(IsotonicCalibration()).fit(Logits(logits), y)
    thin = each.reduce_knots(0.02)
    for before, after in zip(each.calibrators_, thin.calibrators_, strict=True):
        assert isinstance(before, IsotonicCalibration)
        assert isinstance(after, IsotonicCalibration)
        assert after.knots_.size < before.knots_.size
        assert np.array_equal(after.knots_, before.reduce_knots(0.02).knots_)
    mixture = AutoCalibrator(time_budget=0).fit(Logits(logits), y)
    mixture.calibrators_ = [each, TemperatureScaling().fit(Logits(logits), y)]
    mixture.weights_ = np.array([0.5, 0.5])
    thinner = mixture.reduce_knots(0.02)
    assert thinner.calibrators_[1] is mixture.calibrators_[1]
    kept: Any = thinner.to_dict()["fitted"]["calibrators_"][0]["fitted"]["calibrators_"]
    assert [one["fitted"] for one in kept] == [
        one["fitted"] for one in thin.to_dict()["fitted"]["calibrators_"]
    ]
    assert each.calibrators_[0] is mixture.calibrators_[0].calibrators_[0]


def test_what_has_no_knots_is_returned_as_it_is() -> None:
    logits, y = made(300)
    calibrators: list[BaseCalibrator] = [TemperatureScaling(), OneVsRest(PlattScaling())]
    for calibrator in calibrators:
        calibrator.fit(Logits(logits), y)
        assert calibrator.reduce_knots() is calibrator


def test_a_bound_is_a_probability_and_a_fit_is_needed() -> None:
    with pytest.raises(UnfittedError, match="This IsotonicCalibration is not fitted yet"):
        IsotonicCalibration().reduce_knots()
    curve = IsotonicCalibration().fit([0.2, 0.8], [0, 1])
    with pytest.raises(BadValueError) as caught:
        curve.reduce_knots(-1)
    assert str(caught.value) == (
        "IsotonicCalibration.reduce_knots: `tolerance` must be a number between 0 and 1, "
        "got -1. Divide percentages by 100."
    )

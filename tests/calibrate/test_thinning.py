"""Thinned curves stay within their bound, everywhere, and need fewer knots where they can."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from dubito import Logits
from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
    IsotonicCalibration,
    OneVsRest,
    PlattScaling,
    TemperatureScaling,
)
from dubito.calibrate.isotonic import _select_knots
from dubito.errors import BadValueError, UnfittedError


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
@settings(max_examples=400)
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

"""Lines between regions: exact where costs are planes, and none missing."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dubito.decide.regions import _boundaries_of


def lengths(segments: Any) -> float:
    return float(np.linalg.norm(segments[:, 1] - segments[:, 0], axis=1).sum())


def test_three_planes_meet_in_a_point() -> None:
    x = np.linspace(0, 0.5, 8)
    columns, rows = np.meshgrid(x, x)
    costs = 1 - np.stack([columns, rows, 1 - columns - rows], axis=-1)
    segments, between = _boundaries_of(x, x, costs)
    long = float(np.hypot(1 / 6, 1 / 3))
    for pair, length in [((0, 1), np.hypot(1 / 6, 1 / 6)), ((0, 2), long), ((1, 2), long)]:
        lines = segments[(between == pair).all(axis=1)]
        assert lengths(lines) == pytest.approx(length, rel=1e-9)
        distance = np.linalg.norm(lines.reshape(-1, 2) - 1 / 3, axis=1)
        assert distance.min() < 1e-12
    assert len(segments) == len(between)


def test_a_line_through_points_of_the_grid_is_drawn_once() -> None:
    x = np.linspace(-1, 1, 5)
    columns, _ = np.meshgrid(x, x)
    noise = np.array([1e-17, -1e-17, 0, 1e-17, 0])[:, np.newaxis]
    segments, _ = _boundaries_of(x, x, np.stack([columns + noise, -columns], axis=-1))
    assert lengths(segments) == pytest.approx(2)
    assert np.abs(segments[..., 0]).max() < 1e-15


def test_one_action_has_no_boundary_and_equal_actions_have_none_between_them() -> None:
    x, y = np.arange(4.0), np.arange(3.0)
    assert _boundaries_of(x, y, np.zeros((3, 4, 1)))[0].shape == (0, 2, 2)
    assert _boundaries_of(x, y, np.zeros((3, 4, 3)))[1].shape == (0, 2)
    slope = np.broadcast_to(x - 1.5, (3, 4))
    segments, between = _boundaries_of(x, y, np.stack([slope, -slope, -slope], axis=-1))
    assert np.unique(between, axis=0).tolist() == [[0, 1]]
    assert lengths(segments) == pytest.approx(2)


def plane_costs(x: Any, y: Any, costs: Any, point: Any) -> Any:
    """Return costs at a point, each cell being two planes that share its rising diagonal."""
    column = min(int(np.searchsorted(x, point[0], side="right")) - 1, len(x) - 2)
    row = min(int(np.searchsorted(y, point[1], side="right")) - 1, len(y) - 2)
    u = (point[0] - x[column]) / (x[column + 1] - x[column])
    v = (point[1] - y[row]) / (y[row + 1] - y[row])
    low, high = costs[row, column], costs[row + 1, column + 1]
    if v <= u:
        return low * (1 - u) + costs[row, column + 1] * (u - v) + high * v
    return low * (1 - v) + costs[row + 1, column] * (v - u) + high * u


TABLES = hnp.arrays(
    np.float64,
    st.tuples(st.just(3), st.just(4), st.integers(2, 5)),
    elements=st.integers(-8, 8).map(float) | st.floats(0, 1, width=16),
)


@pytest.mark.slow
@settings(max_examples=80)
@given(TABLES)
def test_along_a_line_both_actions_cost_the_same_and_no_other_less(costs: Any) -> None:
    x, y = np.array([0.0, 1.0, 2.0, 3.0]), np.array([-1.0, 1.0, 3.0])
    segments, between = _boundaries_of(x, y, costs)
    seen = np.unique(costs.argmin(axis=-1))
    for (start, end), (i, j) in zip(segments, between, strict=True):
        assert {i, j} <= set(seen.tolist())
        assert i < j
        for share in (0.0, 0.3, 1.0):
            at = plane_costs(x, y, costs, start * (1 - share) + end * share)
            assert at[i] == pytest.approx(at[j], abs=1e-9)
            assert at[i] <= at[seen].min() + 1e-9


@pytest.mark.slow
@settings(max_examples=80)
@given(TABLES)
def test_between_two_points_of_different_action_there_is_a_line(costs: Any) -> None:
    x, y = np.array([0.0, 1.0, 2.0, 3.0]), np.array([-1.0, 1.0, 3.0])
    # Away from ties, at which a line may end in a corner and have no length.
    costs = costs + np.random.default_rng(0).uniform(0, 1e-3, costs.shape)
    segments, _ = _boundaries_of(x, y, costs)
    ends = segments.reshape(-1, 2)
    least = costs.argmin(axis=-1)
    for row, column in zip(*np.nonzero(least[:, 1:] != least[:, :-1]), strict=True):
        is_on_row = np.abs(ends[:, 1] - y[row]) < 1e-9
        assert (is_on_row & (np.abs(ends[:, 0] - x[column] - 0.5) <= 0.5)).any()

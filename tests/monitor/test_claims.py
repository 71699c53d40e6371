"""Adjusted p-values keep all claims together, and are those of the definition."""

import json
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy import stats

from dubito.measure import Interval
from dubito.monitor.metrics import holm, normal_p_value, plain


def slow_holm(p_values: list[float]) -> list[float]:
    """Step down: the k-th smallest is held to level / (m - k), and none may be below the last."""
    adjusted, worst = [0.0] * len(p_values), 0.0
    for k, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        worst = max(worst, min(1.0, (len(p_values) - k) * p_values[i]))
        adjusted[i] = worst
    return adjusted


@given(st.lists(st.floats(0, 1), max_size=12))
def test_it_steps_down_as_holm_does(p_values: list[float]) -> None:
    assert holm(p_values).tolist() == pytest.approx(slow_holm(p_values))


def test_true_nulls_are_seldom_rejected_however_they_hang_together() -> None:
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(4000, 1))
    for share in (0.0, 0.5, 0.95):
        z = np.sqrt(share) * shared + np.sqrt(1 - share) * rng.normal(size=(4000, 6))
        p_values = 2 * stats.norm.sf(np.abs(z))
        n_false = sum(bool((holm(row) < 0.05).any()) for row in p_values)
        assert n_false <= 4000 * 0.05 + 3 * np.sqrt(4000 * 0.05 * 0.95)


@given(st.floats(-5, 5), st.floats(0.01, 3), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_p_values_are_those_of_the_normal_law(value: float, error: float, level: float) -> None:
    reach = stats.norm.ppf((1 + level) / 2) * error
    found = normal_p_value(Interval(value, value - reach, value + reach), level)
    assert found == pytest.approx(2 * stats.norm.sf(abs(value) / error), rel=1e-6, abs=1e-12)


def test_an_interval_without_width_is_certain() -> None:
    assert normal_p_value(Interval(0.0, 0.0, 0.0), 0.95) == 1.0
    assert normal_p_value(Interval(1.0, 1.0, 1.0), 0.95) == 0.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Interval(1.0, -np.inf, 2.0), {"value": 1.0, "low": None, "high": 2.0}),
        ({"a": (1, "b", None)}, {"a": [1, "b", None]}),
        (np.array([0.5, np.nan]), [0.5, None]),
        (np.bool_(True), True),
    ],
)
def test_plain_values_go_through_json(value: Any, expected: Any) -> None:
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == expected

"""Reports of cost against plain NumPy, and intervals that hold the truth."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy.special import softmax

from dubito import Logits, Members, TopLabel
from dubito.decide.costs import CostMatrix
from dubito.decide.value import cost_report, expected_risk
from dubito.errors import BadValueError, EmptyStateError, MissingLabelsWarning
from tests.decide.growing import growing

Floats = NDArray[np.float64]


def made(n_rows: int, n_classes: int, seed: int = 0) -> tuple[NDArray[np.int64], Floats]:
    """Return labels drawn from logits, and these logits."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n_rows, n_classes))
    draws = rng.random((n_rows, 1))
    y = (softmax(logits, axis=1).cumsum(axis=1) < draws).sum(axis=1)
    return np.minimum(y, n_classes - 1), logits


@pytest.mark.slow
@given(st.integers(1, 30), st.integers(2, 5), st.integers(0, 50), st.booleans())
@settings(max_examples=40)
def test_every_figure_agrees_with_plain_numpy(
    n_rows: int, n_classes: int, seed: int, grows: bool
) -> None:
    y, logits = made(n_rows, n_classes, seed)
    rng = np.random.default_rng(seed)
    base, rate = rng.random((4, n_classes)), rng.random((4, n_classes))
    row_costs = rng.random(n_rows) * 3
    weight = rng.random(n_rows) + 0.1
    costs = CostMatrix(growing(base, rate) if grows else base, ["a", "b", "c", "d"])
    found = cost_report(
        y,
        Logits(logits),
        costs,
        row_costs if grows else None,
        sample_weight=weight,
        n_resamples=40,
    )
    table = base[np.newaxis] + (row_costs[:, np.newaxis, np.newaxis] * rate if grows else 0 * rate)
    table = np.broadcast_to(table, (n_rows, 4, n_classes))
    expected = np.einsum("ik,iak->ia", softmax(logits, axis=1), table)
    by_action = table[np.arange(n_rows), :, y]
    action = expected.argmin(axis=1)
    paid = by_action[np.arange(n_rows), action]
    means = np.average(by_action, axis=0, weights=weight)
    close(found.realized.value, np.average(paid, weights=weight))
    close(found.expected, np.average(expected.min(axis=1), weights=weight))
    close(found.gap.value, found.expected - found.realized.value, atol=1e-12)
    close(found.constant, means.min())
    assert found.constant_action == "abcd"[means.argmin()]
    close(found.regret_to_constant.value, found.realized.value - means.min(), atol=1e-12)
    close(found.oracle, np.average(by_action.min(axis=1), weights=weight))
    close(found.regret_to_oracle.value, found.realized.value - found.oracle, atol=1e-12)
    assert found.regret_to_oracle.value >= -1e-12
    shares = [np.average(action == k, weights=weight) for k in range(4)]
    close(list(found.fractions.values()), shares, atol=1e-12)
    assert found.n_rows == n_rows
    assert found.realized.low <= found.realized.high


def test_predicted_risk_is_the_mean_doubt_or_the_mean_least_cost() -> None:
    _, logits = made(50, 4)
    p = softmax(logits, axis=1)
    close(expected_risk(Logits(logits)), (1 - p.max(axis=1)).mean())
    close(expected_risk(p), expected_risk(p, CostMatrix.zero_one(4)))
    costs = CostMatrix.zero_one(4).with_reject(0.3)
    close(expected_risk(p, costs), np.minimum(1 - p.max(axis=1), 0.3).mean())
    rated = CostMatrix(growing(1 - np.eye(4), np.ones((4, 4))))
    close(expected_risk(p, rated, np.full(50, 2.0)), (3 - p.max(axis=1)).mean())
    assert expected_risk(TopLabel([0.5, 1.0], [1, 0])) == 0.25
    assert expected_risk([[1.0, 0.0], [0.5, 0.5]], sample_weight=[3.0, 1.0]) == 0.125
    close(expected_risk(Members([p, p[::-1]])), 1 - ((p + p[::-1]) / 2).max(axis=1).mean())


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_saturated_model_keeps_its_small_risk(dtype: Any) -> None:
    close(expected_risk(Logits(np.array([[40.0, 0.0]], dtype))), np.exp(-40.0), rtol=1e-5)
    close(
        expected_risk(Logits(np.array([[40.0, 0.0]], dtype)), CostMatrix.zero_one(2)),
        np.exp(-40.0),
        rtol=1e-5,
    )


@pytest.mark.slow
def test_a_calibrated_model_is_not_accused_and_an_over_confident_one_is() -> None:
    y, logits = made(4000, 3)
    costs = CostMatrix.zero_one(3).with_reject(0.2)
    calibrated = cost_report(y, Logits(logits), costs)
    assert calibrated.gap.low < 0 < calibrated.gap.high
    assert "no significant difference" in str(calibrated)
    boaster = cost_report(y, Logits(5 * logits), costs)
    assert boaster.gap.high < 0
    assert "an underestimate by " in str(boaster)
    modest = cost_report(y, Logits(0.2 * logits), CostMatrix.zero_one(3))
    assert modest.gap.low > 0
    assert "an overestimate by " in str(modest)


@pytest.mark.slow
def test_intervals_hold_what_a_normal_law_says() -> None:
    y, logits = made(3000, 3)
    found = cost_report(y, Logits(logits), CostMatrix.zero_one(3), random_state=3)
    wrong = (logits.argmax(axis=1) != y).astype(float)
    error = wrong.std() / np.sqrt(wrong.size)
    close(found.realized.low, wrong.mean() - 1.96 * error, atol=0.3 * error)
    close(found.realized.high, wrong.mean() + 1.96 * error, atol=0.3 * error)
    assert found == cost_report(y, Logits(logits), CostMatrix.zero_one(3), random_state=3)


@pytest.mark.slow
def test_the_report_speaks_plainly() -> None:
    costs = CostMatrix([[0, 10], [1, 0]], actions=["send home", "treat"]).with_reject(0.7)
    with pytest.warns(MissingLabelsWarning):
        found = cost_report([0, 1, 1, None], [[0.75, 0.25], [0.25, 0.75]] * 2, costs)
    paid, gap, regret = found.realized, found.gap, found.regret_to_constant
    assert str(found).splitlines() == [
        f"Mean cost per row: 0.4667 ({paid.low:.4f} to {paid.high:.4f}).",
        "Expected cost according to the model: 0.5500, no significant difference, +0.0833 "
        f"({gap.low:+.4f} to {gap.high:+.4f}).",
        "Always 'treat' would cost 0.3333; these decisions are worse by 0.1333 "
        f"({regret.low:.4f} to {regret.high:.4f}).",
        "Perfect information would cost 0.0000 (0.4667 less).",
        "Actions: send home 0.0 %, treat 33.3 %, reject 66.7 %.",
        "3 rows; 1 unlabeled row left out; 95 % intervals in parentheses.",
    ]
    better = cost_report([0, 1], [[0.99, 0.01], [0.25, 0.75]], costs)
    regret = better.regret_to_constant
    assert better.comparison == f"better by 0.5000 ({0 - regret.high:.4f} to {-regret.low:.4f})"


def test_errors_say_what_to_do() -> None:
    costs = CostMatrix.zero_one(2)
    with pytest.raises(BadValueError) as raised:
        expected_risk([[0.5, 0.5]], row_costs=[1.0])
    assert re.search(r"`row_costs` .*got list\. Pass costs=CostMatrix\(", str(raised.value))
    with pytest.raises(BadValueError) as raised:
        cost_report([0], [[0.5, 0.5]], costs, level=95)
    assert re.search(r"`level`.*95\.", str(raised.value))
    with pytest.raises(BadValueError) as raised:
        cost_report([0], [[0.5, 0.5]], costs, n_resamples=3)
    assert re.search(r"`n_resamples` .*got 3\. Use n_resamples", str(raised.value))
    with pytest.raises(EmptyStateError):
        expected_risk(np.empty((0, 2)))

"""Metrics are those of `dubito.measure`; p-values are adjusted as in the definition."""

import json
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy import stats

from dubito import Logits, Normal, Probabilities, Quantiles, Samples, TopLabel, measure
from dubito.data import Batch
from dubito.measure import Interval
from dubito.measure.state import _json_ready
from dubito.monitor.metrics import (
    TITLES,
    _holm,
    normal_p_value,
    resampled_metrics,
    row_losses,
    row_metrics,
)

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(300, 4)) * 2
Y = (Z + RNG.gumbel(size=Z.shape)).argmax(axis=1)
W = RNG.exponential(size=300)


@pytest.mark.parametrize("outputs", [Logits(Z), Probabilities(RNG.dirichlet(np.ones(4), 300))])
def test_metrics_are_those_of_measure(outputs: Logits | Probabilities) -> None:
    found = row_metrics(Batch.of(Y, outputs, sample_weight=W))
    assert set(found) <= set(TITLES)
    for name, value in found.items():
        assert value == pytest.approx(getattr(measure, name)(Y, outputs, sample_weight=W))


def test_top_labels_have_fewer_metrics() -> None:
    found = row_metrics(Batch.of(None, TopLabel([0.5, 0.9], [1, 0])))
    assert set(found) == {
        "accuracy",
        "expected_calibration_error",
        "debiased_calibration_error",
        "area_under_risk_coverage",
    }


def test_resamples_are_those_of_an_interval() -> None:
    name = "log_loss"
    drawn = resampled_metrics(Batch.of(Y, Logits(Z)), [name], 3, 100)[name]
    assert drawn.size == 100
    interval = measure.confidence_interval(
        name, Y, Logits(Z), random_state=3, n_resamples=100, level=0.5
    )
    low, high = np.quantile(drawn, [0.25, 0.75], method="nearest")
    assert (interval.low, interval.high) == pytest.approx((low, high))


def test_a_resample_without_rows_is_left_out() -> None:
    drawn = resampled_metrics(Batch.of([0], [[0.5, 0.5]]), ["accuracy"], 0, 100)["accuracy"]
    assert 40 < drawn.size < 90  # a row is drawn in 63 % of the resamples
    assert set(drawn) == {1.0}


DRAWS = np.sort(RNG.normal(size=(300, 5)), axis=1)
LEVELS = [0.1, 0.3, 0.5, 0.7, 0.9]


@pytest.mark.parametrize(
    ("outputs", "names", "levels"),
    [
        (
            Normal(DRAWS[:, 0], DRAWS[:, 4] - DRAWS[:, 0] + 0.1),
            {"continuous_ranked_probability_score", "negative_log_likelihood"},
            {90, 80, 95, 50},
        ),
        (Samples(DRAWS), {"continuous_ranked_probability_score"}, {50}),
        (Quantiles(DRAWS, LEVELS), {"crps_from_quantiles", "pinball_loss"}, {80}),
    ],
)
def test_row_losses_have_the_means_of_the_metrics(
    outputs: object, names: set[str], levels: set[int]
) -> None:
    y = RNG.normal(size=300)
    found = row_losses(Batch.of(y, outputs), "test")
    scores = {f"interval_score_{level}" for level in levels}
    assert set(found) == {*names, *scores, "mean_absolute_error", "mean_squared_error"}
    for level in levels:
        expected = measure.interval_score(y, outputs, level=level / 100)
        assert found[f"interval_score_{level}"].mean() == pytest.approx(expected)
    for name in names:
        metric = name.replace("crps_from_quantiles", "continuous_ranked_probability_score")
        assert found[name].mean() == pytest.approx(getattr(measure, metric)(y, outputs))
    audit = measure.RegressionState.of(Batch.of(y, outputs)).value
    error = np.sqrt(found["mean_squared_error"].mean())
    assert error == pytest.approx(audit.root_mean_squared_error)


def test_vector_targets_are_averaged() -> None:
    y = RNG.normal(size=(300, 2))
    outputs = Normal(np.zeros((300, 2)), np.ones((300, 2)))
    found = row_losses(Batch.of(y, outputs), "test")["negative_log_likelihood"]
    assert found.shape == (300,)
    assert found.mean() == pytest.approx(measure.negative_log_likelihood(y, outputs))


def slow_holm(p_values: list[float]) -> list[float]:
    """Step down: the k-th smallest is compared with level / (m - k), never below the previous."""
    adjusted, worst = [0.0] * len(p_values), 0.0
    for k, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        worst = max(worst, min(1.0, (len(p_values) - k) * p_values[i]))
        adjusted[i] = worst
    return adjusted


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_steps_down(p_values: list[float]) -> None:
    assert _holm(p_values).tolist() == pytest.approx(slow_holm(p_values))


def test_true_nulls_are_rarely_rejected_however_they_depend() -> None:
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(4000, 1))
    for share in (0.0, 0.5, 0.95):
        z = np.sqrt(share) * shared + np.sqrt(1 - share) * rng.normal(size=(4000, 6))
        p_values = 2 * stats.norm.sf(np.abs(z))
        n_false = sum(bool((_holm(row) < 0.05).any()) for row in p_values)
        assert n_false <= 4000 * 0.05 + 3 * np.sqrt(4000 * 0.05 * 0.95)


@given(st.floats(-5, 5), st.floats(0.01, 3), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_p_values_are_those_of_the_normal_distribution(
    value: float, error: float, level: float
) -> None:
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
    assert json.loads(json.dumps(_json_ready(value), allow_nan=False)) == expected

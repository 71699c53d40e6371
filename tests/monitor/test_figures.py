"""Figures of a batch are those of `dubito.measure`, and so are their resamples."""

import numpy as np
import pytest

from dubito import Logits, Normal, Probabilities, Quantiles, Samples, TopLabel, measure
from dubito.data import Batch
from dubito.monitor.metrics import TITLES, figures_of, losses_of_rows, resampled_figures

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(300, 4)) * 2
Y = (Z + RNG.gumbel(size=Z.shape)).argmax(axis=1)
W = RNG.exponential(size=300)


@pytest.mark.parametrize("outputs", [Logits(Z), Probabilities(RNG.dirichlet(np.ones(4), 300))])
def test_figures_are_those_of_the_metrics(outputs: Logits | Probabilities) -> None:
    found = figures_of(Batch.of(Y, outputs, sample_weight=W))
    assert set(found) <= set(TITLES)
    for name, value in found.items():
        assert value == pytest.approx(getattr(measure, name)(Y, outputs, sample_weight=W))


def test_top_labels_tell_less() -> None:
    found = figures_of(Batch.of(None, TopLabel([0.5, 0.9], [1, 0])))
    assert set(found) == {
        "accuracy",
        "expected_calibration_error",
        "debiased_calibration_error",
        "area_under_risk_coverage",
    }


def test_resamples_are_those_of_an_interval() -> None:
    name = "log_loss"
    drawn = resampled_figures(Batch.of(Y, Logits(Z)), [name], 3, 100)[name]
    assert drawn.size == 100
    interval = measure.confidence_interval(name, Y, Logits(Z), seed=3, n_resamples=100, level=0.5)
    low, high = np.quantile(drawn, [0.25, 0.75], method="nearest")
    assert (interval.low, interval.high) == pytest.approx((low, high))


def test_a_resample_without_rows_is_left_out() -> None:
    drawn = resampled_figures(Batch.of([0], [[0.5, 0.5]]), ["accuracy"], 0, 100)["accuracy"]
    assert 40 < drawn.size < 90  # a row is drawn in 63 % of them
    assert set(drawn) == {1.0}


DRAWS = np.sort(RNG.normal(size=(300, 5)), axis=1)
LEVELS = [0.1, 0.3, 0.5, 0.7, 0.9]


@pytest.mark.parametrize(
    ("outputs", "names"),
    [
        (
            Normal(DRAWS[:, 0], DRAWS[:, 4] - DRAWS[:, 0] + 0.1),
            {"continuous_ranked_probability_score", "negative_log_likelihood"},
        ),
        (Samples(DRAWS), {"continuous_ranked_probability_score"}),
        (Quantiles(DRAWS, LEVELS), {"continuous_ranked_probability_score", "pinball_loss"}),
    ],
)
def test_losses_of_rows_have_the_means_of_the_metrics(outputs: object, names: set[str]) -> None:
    y = RNG.normal(size=300)
    found = losses_of_rows(Batch.of(y, outputs), "test")
    assert set(found) == {*names, "mean_squared_error"}
    for name in names:
        assert found[name].mean() == pytest.approx(getattr(measure, name)(y, outputs))
    audit = measure.RegressionState.of(Batch.of(y, outputs)).value
    assert found["mean_squared_error"].mean() == pytest.approx(audit.root_mean_squared_error**2)


def test_vector_targets_are_taken_by_their_mean() -> None:
    y = RNG.normal(size=(300, 2))
    outputs = Normal(np.zeros((300, 2)), np.ones((300, 2)))
    found = losses_of_rows(Batch.of(y, outputs), "test")["negative_log_likelihood"]
    assert found.shape == (300,)
    assert found.mean() == pytest.approx(measure.negative_log_likelihood(y, outputs))

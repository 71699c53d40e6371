from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from sklearn.calibration import _SigmoidCalibration

from dubito import Logits, Probabilities
from dubito.calibrate import PlattScaling

rng = np.random.default_rng(0)
S = rng.normal(size=200) * 3
Y = (rng.random(200) < expit(0.6 * S + 0.8)).astype(int)


def by_scipy(scores: Any, y: Any, weight: Any) -> Any:
    """Return slope and intercept against Platt's targets, by a method without derivatives."""
    n_positive, n_negative = weight @ y, weight @ (1 - y)
    wanted = np.where(y == 1, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))

    def loss(line: Any) -> Any:
        odds = line[0] * scores + line[1]
        return -weight @ (wanted * log_expit(odds) + (1 - wanted) * log_expit(-odds))

    options = {"xatol": 1e-10, "fatol": 1e-12, "maxiter": 4000}
    return minimize(loss, [1.0, 0.0], method="Nelder-Mead", options=options).x


@pytest.mark.parametrize("weight", [np.ones(200), rng.integers(0, 5, 200).astype(float)])
@pytest.mark.parametrize("kind", [Logits, Probabilities])
def test_the_line_is_that_of_scipy(kind: Any, weight: Any) -> None:
    rows = Logits(S) if kind is Logits else Probabilities(expit(S))
    platt = PlattScaling().fit(rows, Y, weight)
    expected = by_scipy(S, Y, weight)
    assert_allclose([platt.slope_, platt.intercept_], expected, atol=1e-6)
    said = platt.predict_proba(rows)[:, 1]
    assert_allclose(said, expit(expected[0] * S + expected[1]), atol=1e-6)


@pytest.mark.parametrize("weight", [np.ones(200), rng.integers(0, 5, 200).astype(float)])
def test_plain_targets_are_a_logistic_regression(weight: Any) -> None:
    plain = PlattScaling(smooth=False).fit(Logits(S), Y, weight)
    # Maximum likelihood: residuals sum to 0, and are orthogonal to the scores.
    residuals = weight * (expit(plain.slope_ * S + plain.intercept_) - Y)
    assert_allclose([residuals.sum(), residuals @ S], 0, atol=1e-6)
    line = np.array([1.0, 0.0])
    features = np.column_stack([S, np.ones(200)])
    for _ in range(50):  # Newton's method, without any safeguard
        p = expit(features @ line)
        hessian = (features * (weight * p * (1 - p))[:, np.newaxis]).T @ features
        line = line - np.linalg.solve(hessian, features.T @ (weight * (p - Y)))
    assert_allclose([plain.slope_, plain.intercept_], line, rtol=1e-9)
    smoothed = PlattScaling().fit(Logits(S), Y, weight)
    assert abs(smoothed.slope_) < abs(plain.slope_)
    assert PlattScaling.from_dict(plain.to_dict()).slope_ == plain.slope_


def test_plain_targets_of_separable_rows_stay_finite() -> None:
    plain = PlattScaling(smooth=False).fit(Logits(np.linspace(-3, 3, 60)), np.arange(60) >= 30)
    assert np.isfinite([plain.slope_, plain.intercept_]).all()
    assert plain.slope_ > 10


def test_the_line_is_that_of_scikit_learn() -> None:
    theirs = _SigmoidCalibration().fit(S, Y)
    platt = PlattScaling().fit(Logits(S), Y)
    assert_allclose([platt.slope_, platt.intercept_], [-theirs.a_, -theirs.b_], atol=1e-4)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 8.0])
def test_separable_rows_have_a_finite_line(scale: float) -> None:
    scores = scale * np.linspace(-3, 3, 60)
    y = (scores > 0).astype(int)
    platt = PlattScaling().fit(Logits(scores), y)
    expected = by_scipy(scores / scale, y, np.ones(60)) / [scale, 1]
    assert_allclose(platt.slope_, expected[0], rtol=1e-4)
    p = platt.predict_proba(Logits(scores))[:, 1]
    assert ((p > 0.5) == (y == 1)).all()
    assert 1e-4 < p.min() < p.max() < 1 - 1e-4


def test_scores_that_are_all_the_same_get_the_share_of_positives() -> None:
    platt = PlattScaling().fit(Logits(np.full(50, 0.7)), np.arange(50) < 20)
    wanted = (20 * 21 / 22 + 30 / 32) / 50
    assert_allclose(platt.predict_proba(Logits([0.7]))[:, 1], wanted, rtol=1e-6)
    assert_allclose(platt.slope_, 1, atol=3)


def test_scores_the_wrong_way_round_are_turned() -> None:
    platt = PlattScaling().fit(Logits(-S), Y)
    assert_allclose(platt.slope_, -PlattScaling().fit(Logits(S), Y).slope_, rtol=1e-6)


@pytest.mark.parametrize(("slope", "verdict"), [(0.5, "over-confident"), (2.0, "under-confident")])
def test_words_say_which_way_confidence_was_off(slope: float, verdict: str) -> None:
    scores = np.linspace(-3, 3, 4000)
    shares = expit(slope * scores + 0.2)
    platt = PlattScaling().fit(Logits(scores), np.stack([1 - shares, shares], axis=1))
    assert_allclose([platt.slope_, platt.intercept_], [slope, 0.2], atol=0.02)
    assert platt._describe() == (
        f"log odds = {platt.slope_:.3g} z + {platt.intercept_:.3g}: {verdict}"
    )


def test_saturated_scores_are_calibrated_to_the_base_rate() -> None:
    odds = np.full(200, -20.7)
    odds[:5] = -8
    y = (np.arange(200) % 10 == 0).astype(int)
    p = PlattScaling().fit(Logits(odds), y).predict_proba(Logits(odds))[:, 1]
    loss = -(y * np.log(p) + (1 - y) * np.log(1 - p)).mean()
    assert loss < -(0.1 * np.log(0.1) + 0.9 * np.log(0.9)) + 0.001

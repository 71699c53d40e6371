from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from dubito import Logits, Probabilities
from dubito.calibrate import BetaCalibration

rng = np.random.default_rng(0)
P = rng.uniform(0.01, 0.99, 500)


def labels_of(a: float, b: float, c: float, seed: int = 1) -> Any:
    odds = a * np.log(P) - b * np.log1p(-P) + c
    return (np.random.default_rng(seed).random(P.size) < expit(odds)).astype(int)


def loss_of(coefficients: Any, y: Any, weight: Any) -> Any:
    """Return the mean log loss by the formula of the paper, c the intercept, and the penalty."""
    a, b, c = coefficients
    p = 1 / (1 + 1 / (np.exp(c) * P**a / (1 - P) ** b))
    away = coefficients - np.array([1.0, 1.0, 0.0])
    return -weight @ np.log(np.where(y == 1, p, 1 - p)) / weight.sum() + 1e-6 * away @ away


def by_scipy(y: Any, weight: Any) -> Any:
    options = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 2000}
    bounds = [(0, None), (0, None), (None, None)]
    start = [1.0, 1.0, 0.0]
    return minimize(
        loss_of, start, (y, weight), method="L-BFGS-B", bounds=bounds, options=options
    ).x


@pytest.mark.parametrize(
    ("truth", "zeros"),
    [
        ((0.7, 1.6, 0.3), [False, False]),
        ((-0.9, 2.0, 0.0), [True, False]),
        ((2.0, -0.9, 0.0), [False, True]),
        ((-1.0, -1.5, 0.4), [True, True]),
        ((-1.5, -1.0, 0.4), [True, True]),
    ],
    ids=["both free", "a is 0", "b is 0", "both are 0", "both are 0, the other way"],
)
@pytest.mark.parametrize("weight", [np.ones(500), rng.uniform(0, 3, 500)])
def test_the_curve_is_that_of_scipy(truth: Any, zeros: list[bool], weight: Any) -> None:
    y = labels_of(*truth)
    beta = BetaCalibration().fit(Probabilities(P), y, weight)
    found, expected = beta.coefficients_, by_scipy(y, weight)
    assert (found[:2] == 0).tolist() == zeros
    assert (found[:2] >= 0).all()
    assert_allclose(found, expected, atol=2e-3)  # where scipy stops
    assert loss_of(found, y, weight) <= loss_of(expected, y, weight) + 1e-9
    a, b, c = found
    p = 1 / (1 + np.exp(-c) * (1 - P) ** b / P**a)
    assert_allclose(beta.predict_proba(Probabilities(P))[:, 1], p, atol=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_few_rows_end_at_the_best_that_is_allowed(seed: int) -> None:
    one = np.random.default_rng(seed)
    y, weight = one.integers(0, 2, P.size), (one.random(P.size) < 0.05).astype(float)
    found = BetaCalibration().fit(Probabilities(P), y, weight).coefficients_
    assert loss_of(found, y, weight) <= loss_of(by_scipy(y, weight), y, weight) + 1e-8


def test_free_coefficients_are_those_of_a_logistic_regression() -> None:
    y = labels_of(0.7, 1.6, 0.3)
    numbers = np.stack([np.log(P), -np.log1p(-P)], axis=1)
    theirs = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(numbers, y)
    found = BetaCalibration().fit(Probabilities(P), y).coefficients_
    assert_allclose(found, [*theirs.coef_[0], theirs.intercept_[0]], atol=1e-3)


def test_calibrated_rows_stay_unchanged() -> None:
    p = np.linspace(0.001, 0.999, 2001)
    beta = BetaCalibration().fit(Probabilities(p), np.stack([1 - p, p], axis=1))
    assert_allclose(beta.coefficients_, [1, 1, 0], atol=1e-6)


def test_separable_rows_have_a_finite_curve() -> None:
    beta = BetaCalibration().fit(Probabilities(P), (P > 0.5).astype(int))
    assert np.isfinite(beta.coefficients_).all()
    said = beta.predict_proba(Probabilities([0.01, 0.2, 0.8, 0.99]))[:, 1]
    assert (np.diff(said) >= 0).all()
    assert said[0] < 1e-6
    assert said[3] > 1 - 1e-6


def test_saturated_scores_are_read() -> None:
    beta = BetaCalibration().fit(Logits(np.array([-1e4, 1e4, 3.0, -3.0])), [0, 1, 0, 1])
    assert np.isfinite(beta.transform(Logits([-1e4, 1e4])).array).all()


def test_words_give_the_formula() -> None:
    beta = BetaCalibration().fit(Probabilities(P), labels_of(-0.9, 2.0, 0.0))
    _, b, c = beta.coefficients_
    sign = "-" if c < 0 else "+"
    assert beta._describe() == f"log odds = 0 log(p) - {b:.3g} log(1 - p) {sign} {abs(c):.3g}"

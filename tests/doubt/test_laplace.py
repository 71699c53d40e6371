"""Bayesian logistic regression against scikit-learn, numerical Hessians and quadrature."""

from typing import Any

import numpy as np
import pytest
from scipy.special import expit, log_softmax, softmax
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from dubito.doubt import BayesianLogisticRegression, decompose_uncertainty, laplace_last_layer
from dubito.errors import DubitoError


def data(n: int = 60, n_classes: int = 3) -> tuple[Any, Any]:
    x, y = make_classification(
        n, 4, n_informative=3, n_redundant=0, n_classes=n_classes, random_state=0
    )
    return x, y


def negative_log_posterior(theta: Any, x: Any, y: Any, precision: float) -> float:
    weights = theta.reshape(-1, x.shape[1])
    logs = log_softmax(x @ weights.T, axis=1)
    return float(-logs[np.arange(len(y)), y].sum() + precision / 2 * (theta**2).sum())


def numerical_hessian(function: Any, at: Any, step: float = 1e-3) -> Any:
    """Return second differences, extrapolated to step 0 (errors of order step^4)."""

    def once(h: float) -> Any:
        size = at.size
        steps = h * np.eye(size)
        return np.array(
            [
                [
                    function(at + steps[i] + steps[j])
                    - function(at + steps[i] - steps[j])
                    - function(at - steps[i] + steps[j])
                    + function(at - steps[i] - steps[j])
                    for j in range(size)
                ]
                for i in range(size)
            ]
        ) / (4 * h * h)

    return (4 * once(step) - once(2 * step)) / 3


def test_the_mode_is_that_of_scikit_learn() -> None:
    x, y = data()
    model = BayesianLogisticRegression(0.5).fit(x, y)
    with_ones = np.column_stack([x, np.ones(len(x))])
    reference = LogisticRegression(C=1 / 0.5, fit_intercept=False, tol=1e-12, max_iter=9999)
    reference.fit(with_ones, y)
    found = np.column_stack([model.coef_, model.intercept_])
    np.testing.assert_allclose(found, reference.coef_, atol=2e-5)
    # Newton's steps end closer: the slope vanishes.
    slope = (softmax(with_ones @ found.T, axis=1) - np.eye(3)[y]).T @ with_ones + 0.5 * found
    assert np.abs(slope).max() < 1e-9


def test_the_precision_is_the_hessian() -> None:
    x, y = data(40, 2)
    x = x[:, :2]
    model = BayesianLogisticRegression(2.0, fit_intercept=False).fit(x, y)
    numeric = numerical_hessian(
        lambda theta: negative_log_posterior(theta, x, y, 2.0), model.coef_.ravel()
    )
    np.testing.assert_allclose(model.precision_, numeric, atol=2e-6)
    probabilities = softmax(x @ model.coef_.T, axis=1)
    exact = 2.0 * np.eye(4) + sum(
        np.kron(np.diag(p) - np.outer(p, p), np.outer(row, row))
        for p, row in zip(probabilities, x, strict=True)
    )
    np.testing.assert_allclose(model.precision_, exact, rtol=1e-12, atol=1e-12)
    diagonal = BayesianLogisticRegression(2.0, covariance="diagonal", fit_intercept=False)
    np.testing.assert_allclose(diagonal.fit(x, y).precision_, np.diag(model.precision_), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_predictions_are_integrals_over_the_normal_posterior(covariance: Any) -> None:
    x, y = data(30, 2)
    x = x[:, :1]
    model = BayesianLogisticRegression(covariance=covariance, fit_intercept=False).fit(x, y)
    precision = model.precision_ if covariance == "full" else np.diag(model.precision_)
    new = np.array([[-3.0], [0.2], [5.0]])
    # The log odds are (w1 - w0) x, normal: a one-dimensional integral.
    contrast = np.array([-1.0, 1.0])
    std = np.sqrt(contrast @ np.linalg.inv(precision) @ contrast)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    mean = model.coef_[1, 0] - model.coef_[0, 0]
    odds = (mean + std * nodes) * new
    expected = (expit(odds) * weights).sum(axis=1) / weights.sum()
    spread = np.sqrt((expit(odds) ** 2 * weights).sum(axis=1) / weights.sum() - expected**2)
    drawn = model.predict_proba(new, 20_000)[:, 1]
    assert (np.abs(drawn - expected) < 4 * spread / np.sqrt(20_000)).all()


@pytest.mark.slow
def test_with_many_rows_it_is_the_true_posterior_by_quadrature() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 1))
    y = (rng.random(400) < expit(1.5 * x[:, 0])).astype(int)
    model = BayesianLogisticRegression(fit_intercept=False).fit(x, y)
    grid = np.linspace(-4, 4, 161)
    first, second = np.meshgrid(grid, grid, indexing="ij")
    odds = (second - first)[..., np.newaxis] * x[:, 0]
    logs = np.where(y == 1, -np.logaddexp(0, -odds), -np.logaddexp(0, odds)).sum(axis=-1)
    logs -= (first**2 + second**2) / 2
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    for new in (-2.0, 0.5, 3.0):
        exact = float((mass * expit((second - first) * new)).sum())
        assert model.predict_proba([[new]], 20_000)[0, 1] == pytest.approx(exact, abs=0.005)


def test_the_last_layer_of_a_network_is_the_same_approximation() -> None:
    x, y = data()
    fitted = BayesianLogisticRegression(0.7).fit(x, y)
    layer = laplace_last_layer(x, fitted.coef_, fitted.intercept_, prior_precision=0.7)
    np.testing.assert_allclose(layer.precision_, fitted.precision_, rtol=1e-12)
    assert np.array_equal(layer.members(x, 5).array, fitted.members(x, 5).array)


def test_epistemic_uncertainty_shrinks_with_rows_and_grows_far_away() -> None:
    few, many = (BayesianLogisticRegression().fit(*data(n)) for n in (20, 2000))
    x = data(200)[0]
    doubts = [decompose_uncertainty(one.members(x)).epistemic.mean() for one in (few, many)]
    assert doubts[1] < 0.2 * doubts[0]
    confident = softmax(50 * x @ few.coef_.T, axis=1).max(axis=1).mean()
    assert few.predict_proba(50 * x).max(axis=1).mean() < confident - 0.05


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda m, x, y: m(0.0).fit(x, y), "`prior_precision` must be a finite number above 0"),
        (lambda m, x, y: m(covariance="kron").fit(x, y), "`covariance`"),
        (lambda m, x, y: m().fit(x, y[:-1]), "`y` must have 60 labels"),
        (lambda m, x, y: m().fit(x, y + 0.5), r"`y` must be classes as numbers from 0, got \d\.5"),
        (lambda m, x, y: m().fit(x, y, n_classes=2), "`y` must be classes as numbers from 0 to 1"),
        (lambda m, x, y: m().fit(x, y).members(x[:, :2]), "`X` must have 4 features, got 2"),
        (
            lambda m, x, y: laplace_last_layer(x, np.ones((3, 4)), [0.0]),
            "`bias` must have 3 entries",
        ),
        (
            lambda m, x, y: laplace_last_layer(np.ones((2, 999)), np.ones((9, 999)), np.zeros(9)),
            "must be 'diagonal' for more than 5,000 weights, got 9,000",
        ),
    ],
)
def test_what_is_wrong_is_reported(run: Any, message: str) -> None:
    with pytest.raises(DubitoError, match=message):
        run(BayesianLogisticRegression, *data())

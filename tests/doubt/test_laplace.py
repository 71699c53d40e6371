"""Bayesian logistic regression against scikit-learn, numerical Hessians and quadrature."""

import json
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, log_softmax, softmax
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dubito.doubt import BayesianLogisticRegression, decompose_uncertainty, laplace_last_layer
from dubito.errors import DubitoError, DubitoWarning


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


def test_a_layer_without_a_bias_has_no_intercept() -> None:
    x, y = data()
    fitted = BayesianLogisticRegression(0.7, fit_intercept=False).fit(x, y)
    layer = laplace_last_layer(x, fitted.coef_, prior_precision=0.7)
    assert layer.precision_.shape == (12, 12)
    np.testing.assert_allclose(layer.precision_, fitted.precision_, rtol=1e-12)
    assert not layer.intercept_.any()


@pytest.mark.slow
def test_a_diagonal_covariance_takes_any_number_of_weights() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 1100)), rng.integers(0, 5, 80)
    model = BayesianLogisticRegression(2.0, covariance="diagonal").fit(x, y)
    wide = np.column_stack([x, np.ones(80)])
    found = np.column_stack([model.coef_, model.intercept_])
    probabilities = softmax(wide @ found.T, axis=1)
    slope = (probabilities - np.eye(5)[y]).T @ wide + 2.0 * found
    assert np.abs(slope).max() < 1e-9
    variance = probabilities * (1 - probabilities)
    exact = np.einsum("nk,nd->kd", variance, wide**2).ravel() + 2.0
    np.testing.assert_allclose(model.precision_, exact, rtol=1e-9)
    assert model.score(x, y) > 0.7  # averaging blurs: there are 5,505 weights and 80 rows


def test_it_is_a_classifier_of_scikit_learn() -> None:
    x, codes = data(200)
    y = np.array(["low", "middle", "high"])[codes]
    model = BayesianLogisticRegression(0.5, covariance="diagonal")
    assert repr(model) == "BayesianLogisticRegression(covariance='diagonal', prior_precision=0.5)"
    assert model.get_params() == {
        "prior_precision": 0.5, "covariance": "diagonal", "fit_intercept": True, "max_iter": 100
    }  # fmt: skip
    copy = clone(model.fit(x, y))
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "coef_")
    assert is_classifier(model)
    assert model.classes_.tolist() == ["high", "low", "middle"]
    assert model.n_features_in_ == model.n_features_ == 4
    assert not hasattr(copy, "n_features_in_")
    top = model.predict_proba(x).argmax(axis=1)
    assert (model.predict(x) == model.classes_[top]).all()
    assert model.score(x, y) == (model.predict(x) == y).mean()
    assert model.members(x[:2], 3).classes == ("high", "low", "middle")
    # Labels only name the columns: sorted names are the codes 2, 0, 1.
    coded = BayesianLogisticRegression(0.5, covariance="diagonal").fit(x, codes)
    np.testing.assert_allclose(model.coef_, coded.coef_[[2, 0, 1]], atol=1e-9)
    pipeline = make_pipeline(StandardScaler(), BayesianLogisticRegression())
    scores = cross_val_score(pipeline, x, y, scoring="neg_log_loss", cv=3)
    assert (scores > -np.log(3)).all()
    search = GridSearchCV(model, {"prior_precision": [0.1, 10.0]}, cv=3).fit(x, y)
    assert search.best_score_ > 0.5


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_a_weight_of_k_is_a_row_k_times(covariance: Any) -> None:
    x, y = data()
    weight = np.random.default_rng(1).integers(0, 4, len(y))
    rows = np.repeat(np.arange(len(y)), weight)
    weighted = BayesianLogisticRegression(covariance=covariance).fit(x, y, weight)
    repeated = BayesianLogisticRegression(covariance=covariance).fit(x[rows], y[rows])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-9)
    np.testing.assert_allclose(weighted.precision_, repeated.precision_, rtol=1e-9, atol=1e-9)
    layer = (weighted.coef_, weighted.intercept_)
    one = laplace_last_layer(x, *layer, covariance=covariance, sample_weight=weight)
    np.testing.assert_allclose(one.precision_, repeated.precision_, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("has_intercept", [True, False])
def test_json_keeps_all_that_predictions_need(covariance: Any, has_intercept: bool) -> None:
    x, y = data()
    model = BayesianLogisticRegression(covariance=covariance, fit_intercept=has_intercept)
    text = json.dumps(model.fit(x, y).to_dict())
    again = BayesianLogisticRegression.from_dict(json.loads(text))
    assert np.array_equal(again.members(x, 5).array, model.members(x, 5).array)
    assert again.predict(x).dtype == model.predict(x).dtype
    # What `set_params` changes after the fit concerns the next one.
    again.set_params(covariance="full", fit_intercept=True)
    assert np.array_equal(again.members(x, 5).array, model.members(x, 5).array)
    broken = json.loads(text)
    broken["fitted"]["precision_"] = broken["fitted"]["precision_"][:-1]
    with pytest.raises(DubitoError, match=r"`fitted.precision_` must be one row per weight"):
        BayesianLogisticRegression.from_dict(broken)


def test_a_fit_that_does_not_converge_is_reported() -> None:
    with pytest.warns(DubitoWarning, match="did not converge in 2 steps. Standardize") as seen:
        BayesianLogisticRegression(max_iter=2).fit(*data())
    assert seen[0].filename == __file__


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
        (lambda m, x, y: m("a").fit(x, y), "`prior_precision` .* got 'a'. Use prior_precision=1.0"),
        (lambda m, x, y: m(None).fit(x, y), "`prior_precision` .* got None"),
        (lambda m, x, y: m(covariance="kron").fit(x, y), "`covariance` must be 'full' or 'diag"),
        (lambda m, x, y: m(fit_intercept="no").fit(x, y), "`fit_intercept` must be True or False"),
        (lambda m, x, y: m().fit(x), "`y` must have at least 2 classes, got no labels. Pass one"),
        (lambda m, x, y: m().fit(x, ["a"] * 60), "`y` must have at least 2 classes, got 'a' only"),
        (lambda m, x, y: m().fit(x, y[:-1]), "`y` must have length 60, like the features, got"),
        (lambda m, x, y: m().fit(x, y + 0.5), r"`y` must hold integers .*, got \d\.5 in row 0"),
        (lambda m, x, y: m().fit(x[:0], y[:0]), "needs at least 1 labeled row .*, got 0"),
        (lambda m, x, y: m().fit(x * 1e200, y), "`features` must be small enough"),
        (lambda m, x, y: m().fit(x, y).members(x[:, :2]), "`features` must have 4 columns.*got 2"),
        (
            lambda m, x, y: m().fit(x, y).members(x.clip(-1, 1) * 1.5e308),
            "`features` must be small",
        ),
        (lambda m, x, y: m().fit(x, y).members(x, 0), "`n_draws` must be an integer of at least 1"),
        (lambda m, x, y: m().fit(x, y).members(x, random_state="x"), "`random_state` must be"),
        (
            lambda m, x, y: m().fit(np.ones((60, 2000)), y),
            r"cannot be 'full' .* 6,003 weights\. Use",
        ),
        (lambda m, x, y: m().predict(x), "not fitted yet. Call `fit` before `predict"),
        (lambda m, x, y: m().members(x), "not fitted yet. Call `fit` before `members`"),
        (lambda m, x, y: m().to_dict(), "not fitted yet. Call `fit` before `to_dict`"),
        (
            lambda m, x, y: laplace_last_layer(x, np.ones((3, 4)), [0.0]),
            r"laplace_last_layer: `bias` must have shape \(3,\), got shape \(1,\)",
        ),
        (
            lambda m, x, y: laplace_last_layer(x, np.ones((3, 5))),
            r"laplace_last_layer: `weights` must have shape \(n_classes, 4\), like the features",
        ),
        (
            lambda m, x, y: laplace_last_layer(x, np.ones((1, 4))),
            "laplace_last_layer: `weights` must have at least 2 classes, got 1",
        ),
        (
            lambda m, x, y: laplace_last_layer(x[:0], np.ones((3, 4))),
            "laplace_last_layer needs at least 1 row",
        ),
        (
            lambda m, x, y: laplace_last_layer(x, np.ones((3, 4)), prior_precision=-1),
            "laplace_last_layer: `prior_precision` .* above 0, got -1",
        ),
        (
            lambda m, x, y: laplace_last_layer(np.ones((2, 999)), np.ones((9, 999)), np.zeros(9)),
            "laplace_last_layer: .* cannot be 'full' for more than 5,000 weights, got 9,000 w",
        ),
    ],
)
def test_what_is_wrong_is_reported(run: Any, message: str) -> None:
    with pytest.raises(DubitoError, match=message):
        run(BayesianLogisticRegression, *data())

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from sklearn.linear_model import LogisticRegression

from dubito.calibrate.binary import BinaryRows, _fit_logistic
from dubito.data import ArrayShards
from dubito.errors import EmptyStateError

rng = np.random.default_rng(0)
S = rng.normal(size=400) * 2
Y = (rng.random(400) < expit(S - 0.5)).astype(float)
W = rng.uniform(0, 2, 400)


def cubic(scores: Any) -> Any:
    return np.stack([scores, scores**3, np.ones(scores.size)], axis=1)


def line(scores: Any) -> Any:
    return np.stack([scores, np.ones(scores.size)], axis=1)


@pytest.mark.parametrize("targets", [(0.0, 1.0), (0.05, 0.9)])
@pytest.mark.parametrize("penalty", [1e-9, 0.1])
def test_coefficients_are_those_of_scipy(targets: tuple[float, float], penalty: float) -> None:
    start = np.array([1.0, 0.0, 0.5])

    def loss(coefficients: Any) -> Any:
        odds = cubic(S) @ coefficients
        wanted = np.where(Y == 1, targets[1], targets[0])
        each = -wanted * log_expit(odds) - (1 - wanted) * log_expit(-odds)
        return W @ each / W.sum() + penalty * ((coefficients - start) ** 2).sum()

    expected = minimize(loss, start, method="BFGS", options={"gtol": 1e-9, "xrtol": 1e-12}).x
    rows = BinaryRows(S, Y, W)
    for shards in (ArrayShards(rows), ArrayShards(rows, block_entries=7)):
        found = _fit_logistic(shards, cubic, targets, start, penalty)
        assert_allclose(found, expected, atol=2e-6)
        assert loss(found) <= loss(expected) + 1e-12


def test_coefficients_are_those_of_scikit_learn() -> None:
    theirs = LogisticRegression(C=np.inf, tol=1e-10).fit(S[:, np.newaxis], Y, W)
    rows = ArrayShards(BinaryRows(S, Y, W))
    found = _fit_logistic(rows, line, (0.0, 1.0), np.zeros(2), penalty=1e-12)
    assert_allclose(found, [theirs.coef_[0, 0], theirs.intercept_[0]], atol=1e-5)


@pytest.mark.parametrize("start", [[0.0, 0.0], [50.0, 40.0], [-90.0, 300.0]])
def test_any_start_ends_at_the_same_place(start: list[float]) -> None:
    rows = ArrayShards(BinaryRows(S, Y, W))
    near, far = (
        _fit_logistic(rows, line, (0.0, 1.0), np.array(one), 1e-12) for one in ([1.0, 0.0], start)
    )
    assert_allclose(far, near, rtol=1e-5)


def test_separable_rows_end_where_the_penalty_holds_them() -> None:
    rows = ArrayShards(BinaryRows(S, (S > 0).astype(float), np.ones(400)))
    slope, _ = found = _fit_logistic(rows, line, (0.0, 1.0), np.array([1.0, 0.0]), 1e-6)

    def loss(coefficients: Any) -> Any:
        odds = line(S) @ coefficients
        away = coefficients - [1.0, 0.0]
        return -log_expit(np.where(S > 0, odds, -odds)).mean() + 1e-6 * away @ away

    theirs = minimize(loss, found, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-15})
    assert loss(found) <= theirs.fun + 1e-8
    assert slope > 10


def test_no_weight_is_no_fit() -> None:
    with pytest.raises(EmptyStateError, match="A calibrator"):
        _fit_logistic(ArrayShards(BinaryRows(S, Y, 0 * W)), line, (0.0, 1.0), np.zeros(2), 1e-6)

"""Kernels over classes x rows, beside SciPy and plain NumPy."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.special import log_softmax, softmax

from dubito.arrays import contiguous
from dubito.kernels.columns import (
    add_softmax,
    fill_basis,
    fill_bumps,
    log_odds_columns,
    log_softmax_columns,
    write_probabilities,
)

FLOOR = 1e-12
RNG = np.random.default_rng(0)
ROWS = {n_classes: RNG.normal(0, 5, (700, n_classes)) for n_classes in (2, 10, 300)}
each_width = pytest.mark.parametrize("n_classes", ROWS)

Array = NDArray[Any]


def log_probabilities(array: Array, is_logits: bool = True) -> Array:
    result = np.empty(array.shape[::-1])
    log_softmax_columns(contiguous(array), is_logits, FLOOR, result)
    return result


@each_width
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_probabilities_are_scipys(n_classes: int, dtype: Any) -> None:
    rows = ROWS[n_classes].astype(dtype)
    expected = log_softmax(rows.astype(np.float64), axis=1)
    close(log_probabilities(rows).T, expected, rtol=1e-13, atol=1e-14)
    p = softmax(rows, axis=1)
    floored = np.maximum(p.astype(np.float64), FLOOR)
    expected = np.log(floored / floored.sum(axis=1, keepdims=True))
    close(log_probabilities(p, is_logits=False).T, expected, rtol=1e-13, atol=1e-14)


def test_huge_logits_stay_finite() -> None:
    for rows in (np.array([[3e38, -3e38]], np.float32), np.array([[1e308, -1e308]])):
        x = log_probabilities(rows)
        assert x[0, 0] == 0
        assert x[1, 0] <= -1e30
        assert np.isfinite(x).all()


@each_width
@pytest.mark.parametrize("beta", [0.0, 0.4, 3.0])
def test_softmax_is_added_with_its_weight(n_classes: int, beta: float) -> None:
    scores = np.ascontiguousarray(ROWS[n_classes].T)
    mixed = np.full(scores.shape, 0.125)
    add_softmax(scores, beta, 0.75, mixed)
    close(mixed, 0.125 + 0.75 * softmax(beta * scores, axis=0), rtol=1e-13)


@each_width
def test_a_basis_is_log_probabilities_their_exponentials_and_hinges(n_classes: int) -> None:
    x, knots = log_probabilities(ROWS[n_classes]), np.array([-6.0, -1.0])
    features = np.empty((4 * n_classes, 700))
    fill_basis(x, 0.7, -9.0, contiguous(knots), features)
    u = np.maximum(log_softmax(0.7 * x, axis=0), -9.0)
    expected = [u, np.exp(u), *(np.maximum(u - knot, 0) for knot in knots)]
    close(features, np.concatenate(expected), rtol=1e-12, atol=1e-13)
    fill_basis(x, 0.7, -9.0, contiguous(knots), features[:n_classes])
    close(features[:n_classes], u, rtol=1e-12, atol=1e-13)


@each_width
def test_bumps_are_scipys_distances(n_classes: int) -> None:
    x = log_probabilities(ROWS[n_classes])
    centers = contiguous(np.maximum(x.T[:37] + 0.1, -8.0))
    bumps = np.empty((37, 700))
    fill_bumps(x, -8.0, centers, 2.5, bumps)
    squares = cdist(centers, np.maximum(x.T, -8.0), "sqeuclidean")
    close(bumps, np.exp(-squares / (2 * 2.5**2)), rtol=1e-11, atol=1e-300)


@each_width
def test_log_odds_do_not_cancel(n_classes: int) -> None:
    x = log_probabilities(np.concatenate([ROWS[n_classes], 4 * ROWS[n_classes]]))
    odds = np.empty(x.shape)
    log_odds_columns(x, FLOOR, odds)
    p = np.exp(x)
    rest = np.stack([np.delete(p, k, axis=0).sum(axis=0) for k in range(n_classes)])
    limit = -np.log(FLOOR)
    close(odds, np.clip(x - np.log(np.maximum(rest, 1e-300)), -limit, limit), atol=1e-9)


@each_width
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_written_rows_sum_to_1_and_keep_the_first_highest(n_classes: int, dtype: Any) -> None:
    mixed = softmax(ROWS[n_classes].T, axis=0)
    mixed[0, :50] = 0.0
    mixed[:2, 50:100] = [[0.75], [0.75 * (1 + 1e-10)]]  # a tie in float32
    result = np.empty(mixed.T.shape, dtype)
    write_probabilities(3 * mixed, FLOOR, result)
    expected = mixed / mixed.sum(axis=0)
    close(result, np.maximum(expected, FLOOR).T, rtol=2 * np.finfo(dtype).eps, atol=1e-12)
    assert (result[:50, 0] == dtype(FLOOR)).all()
    assert (result.argmax(axis=1) == mixed.argmax(axis=0)).all()

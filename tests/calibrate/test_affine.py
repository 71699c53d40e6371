"""The table that `fit_affine` returns has the least penalized loss, whichever way it is found."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize, special
from scipy.special import softmax

from dubito import Logits
from dubito.arrays import FloatArray
from dubito.calibrate.affine import (
    MIN_PENALTY,
    Basis,
    _class_curvature,
    _minimize,
    _Moments,
    _PenalizedLoss,
    _preconditioner,
    _product_curvature,
    fit_affine,
)
from dubito.data import ArrayShards, Batch
from dubito.errors import EmptyStateError

Floats = NDArray[np.float64]


def made(n_rows: int, n_classes: int) -> tuple[Floats, Floats, Floats]:
    """Return logits, label probabilities (one-hot) and weights."""
    rng = np.random.default_rng(n_classes)
    y = rng.integers(0, n_classes, n_rows)
    spread = np.eye(n_classes) + rng.random((n_classes, n_classes)) / 2
    logits = 2 * spread[y] + rng.normal(size=(n_rows, n_classes))
    return logits, np.eye(n_classes)[y], rng.random(n_rows)


def objective(
    logits: Floats, q: Floats, weight: Floats, beta: float, penalty: Floats
) -> Callable[[Floats], float]:
    """Return mean log loss plus penalty as a function of the table, written out."""
    x = special.log_softmax(beta * logits, axis=1)
    least = np.maximum(penalty, MIN_PENALTY)

    def loss(entries: Floats) -> float:
        table = entries.reshape(penalty.shape)
        scores = x + table[:, -1]
        scores = scores + (x * table[:, 0] if penalty.shape[1] == 2 else x @ table[:, :-1].T)
        losses = special.logsumexp(scores, axis=1) - (q * scores).sum(axis=1)
        return float(weight @ losses / weight.sum() + (least * table**2).sum())

    return loss


def least(loss: Callable[[Floats], float], size: int) -> float:
    options: dict[str, Any] = {"gtol": 1e-9, "maxiter": 5000}
    start = optimize.minimize(loss, np.zeros(size), method="BFGS", options=options)
    return float(start.fun)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3, 4])
@pytest.mark.parametrize("is_diagonal", [True, False], ids=["vector", "matrix"])
@pytest.mark.parametrize("strength", [1e-3, 0.1, 10.0])
def test_no_table_has_a_lower_objective(n_classes: int, is_diagonal: bool, strength: float) -> None:
    logits, q, weight = made(150, n_classes)
    shape = (n_classes, 2 if is_diagonal else n_classes + 1)
    penalty = strength * np.random.default_rng(0).uniform(0.5, 2, shape)
    shards = ArrayShards(Batch.of(q.argmax(axis=1), Logits(logits), sample_weight=weight))
    table = fit_affine(shards, Basis(0.8), penalty)
    assert table.shape == shape
    loss = objective(logits, q, weight, 0.8, penalty)
    got = loss(np.float64(table).ravel())
    assert got <= least(loss, penalty.size) + 1e-7
    assert got < loss(np.zeros(penalty.size))


@pytest.mark.slow
@pytest.mark.parametrize("is_diagonal", [True, False], ids=["vector", "matrix"])
def test_many_rows_in_single_precision_come_close(is_diagonal: bool) -> None:
    logits, q, _ = made(2_000, 40)
    y, single = q.argmax(axis=1), logits.astype(np.float32)
    penalty = np.full((40, 2 if is_diagonal else 41), 0.02)
    loss = objective(single.astype(np.float64), q, np.ones(2_000), 0.8, penalty)
    tables = [
        fit_affine(ArrayShards(Batch.of(y, Logits(array))), Basis(0.8), penalty)
        for array in (single, single.astype(np.float64))
    ]
    near, best = (loss(table.astype(np.float64).ravel()) for table in tables)
    assert near == pytest.approx(best, abs=1e-6 if is_diagonal else 1e-5)


def test_rows_that_weigh_nothing_are_no_rows() -> None:
    shards = ArrayShards(Batch.of([0, 1], Logits(np.eye(2)), sample_weight=[0.0, 0.0]))
    with pytest.raises(EmptyStateError):
        fit_affine(shards, Basis(1.0), np.ones((2, 2)))


def whole_curvature(p: Floats, f: Floats, weight: Floats, penalty: Floats) -> Floats:
    """Return the curvature of the mean loss plus penalty, entries by entries, written out."""
    size = penalty.size
    result = np.zeros((size, size))
    for row, numbers, w in zip(p, f, weight, strict=True):
        result += w * np.kron(np.diag(row) - np.outer(row, row), np.outer(numbers, numbers))
    result /= weight.sum()
    result[np.diag_indices(size)] += 2 * penalty.ravel()
    return result


def made_shards(n_rows: int, n_classes: int) -> tuple[Floats, Floats, ArrayShards]:
    """Return probabilities, weights and labeled rows."""
    rng = np.random.default_rng(0)
    logits, weight = rng.normal(size=(n_rows, n_classes)), rng.random(n_rows) + 0.1
    y = rng.integers(0, n_classes, n_rows)
    batch = Batch.of(y, Logits(logits), sample_weight=weight)
    return softmax(logits, axis=1), weight, ArrayShards(batch)


def test_moments_add_up() -> None:
    ones = _Moments(*(np.ones((2, 2)) for _ in range(6)))
    total = ones + ones
    assert total.weights.tolist() == total.features.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_a_class_of_its_own_is_exact() -> None:
    """For a diagonal and a bias a class's two entries are two numbers, which it holds exactly."""
    p, weight, shards = made_shards(60, 3)
    penalty = np.random.default_rng(1).uniform(0.1, 1, (3, 2))
    loss = _PenalizedLoss(shards, Basis(1.0), penalty, float(weight.sum()))
    moments = shards.sum(loss.start_moments)
    slope = np.random.default_rng(2).normal(size=(3, 2))
    got = _preconditioner(moments, float(weight.sum()), penalty)(slope)
    x = np.log(p)
    for k in range(3):
        h = weight * p[:, k] * (1 - p[:, k]) / weight.sum()
        entries = np.column_stack([x[:, k], np.ones(60)])
        exact = (entries * h[:, np.newaxis]).T @ entries + np.diag(2 * penalty[k])
        np.testing.assert_allclose(got[k], np.linalg.solve(exact, slope[k]), rtol=1e-9)


def test_rows_all_alike_make_the_product_exact() -> None:
    p = np.tile([0.2, 0.3, 0.5], (20, 1))
    weight, penalty = np.ones(20), np.full((3, 4), 0.3)
    batch = Batch.of(np.zeros(20, int), Logits(np.log(p)))
    loss = _PenalizedLoss(ArrayShards(batch), Basis(1.0), penalty, 20.0)
    guess = _product_curvature(loss.start_moments(batch), 20.0, penalty)
    f = np.column_stack([np.log(p), np.ones(20)])
    slope = np.random.default_rng(0).normal(size=(3, 4))
    exact = np.linalg.solve(whole_curvature(p, f, weight, penalty), slope.ravel())
    np.testing.assert_allclose(guess(slope).ravel(), exact, rtol=1e-8)


@pytest.mark.parametrize("make", [_class_curvature, _product_curvature, _preconditioner])
def test_it_is_symmetric_and_points_downhill(make: type) -> None:
    _, weight, shards = made_shards(200, 4)
    penalty = np.full((4, 5), 0.05)
    loss = _PenalizedLoss(shards, Basis(1.0), penalty, float(weight.sum()))
    guess = make(shards.sum(loss.start_moments), float(weight.sum()), penalty)
    basis = np.eye(penalty.size)
    inverse = np.stack([guess(row.reshape(4, 5)).ravel() for row in basis])
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-9)
    assert np.linalg.eigvalsh(inverse).min() > 0


def test_it_takes_most_of_the_curvature_away() -> None:
    p, weight, shards = made_shards(200, 4)
    penalty = np.full((4, 5), 0.05)
    np.fill_diagonal(penalty, 0.01)
    loss = _PenalizedLoss(shards, Basis(1.0), penalty, float(weight.sum()))
    guess = _preconditioner(shards.sum(loss.start_moments), float(weight.sum()), penalty)
    f = np.column_stack([np.log(p), np.ones(200)])
    curvature = whole_curvature(p, f, weight, penalty)
    left = np.stack([guess(column.reshape(4, 5)).ravel() for column in curvature])
    bends = np.linalg.eigvals(left).real
    plain = np.linalg.eigvalsh(curvature)
    assert bends.max() / bends.min() < plain.max() / plain.min() / 5


def bowl(seed: int, size: int, steepness: float) -> tuple[FloatArray, FloatArray]:
    """Return the curvature and the lowest point of a quadratic."""
    rng = np.random.default_rng(seed)
    turned, _ = np.linalg.qr(rng.normal(size=(size, size)))
    return (turned * np.geomspace(1, steepness, size)) @ turned.T, rng.normal(size=size)


@given(st.integers(0, 1000), st.integers(1, 12), st.floats(1, 1e4), st.floats(0.3, 1e3))
def test_the_lowest_point_of_a_quadratic(
    seed: int, size: int, steepness: float, scale: float
) -> None:
    curvature, lowest = bowl(seed, size, steepness)

    def loss(x: FloatArray) -> tuple[float, FloatArray]:
        away = x - lowest
        return float(away @ curvature @ away) / 2, curvature @ away

    start = np.zeros(size)
    found = _minimize(loss, start, loss(start), lambda slope: scale * slope, 1e-12)
    assert loss(found)[0] < 1e-6 * loss(np.zeros(size))[0] + 1e-8


def test_the_right_guess_takes_one_step() -> None:
    curvature, lowest = bowl(0, 8, 1e4)
    seen: list[FloatArray] = []

    def loss(x: FloatArray) -> tuple[float, FloatArray]:
        seen.append(x)
        away = x - lowest
        return float(away @ curvature @ away) / 2, curvature @ away

    start = np.zeros(8)
    first = loss(start)
    found = _minimize(loss, start, first, lambda slope: np.linalg.solve(curvature, slope), 1e-12)
    assert len(seen) == 2
    np.testing.assert_allclose(found, lowest)


def test_it_stays_where_nothing_is_to_be_gained() -> None:
    flat = 0.0, np.zeros(3)
    assert (
        _minimize(lambda x: flat, np.ones(3), flat, lambda slope: slope, 1e-8).tolist() == [1] * 3
    )


@pytest.mark.parametrize("close", [1e-3, 1e-6, 1e-9])
def test_the_last_step_is_taken_unseen(close: float) -> None:
    curvature, lowest = bowl(1, 8, 10.0)
    seen: list[FloatArray] = []

    def loss(x: FloatArray) -> tuple[float, FloatArray]:
        seen.append(x)
        away = x - lowest
        return float(away @ curvature @ away) / 2, curvature @ away

    start = np.zeros(8)
    found = _minimize(loss, start, loss(start), lambda slope: slope / 5, close)
    before = list(seen)
    assert not any(np.array_equal(found, x) for x in before)
    assert loss(found)[0] < close


@pytest.mark.parametrize("scale", [0.1, 1.0, 1e4])
def test_a_loss_that_is_no_parabola(scale: float) -> None:
    weights = np.array([1.0, 2.0, 3.0])

    def loss(x: FloatArray) -> tuple[float, FloatArray]:
        return float(weights @ np.logaddexp(x, -x)), weights * np.tanh(x)

    start = np.array([-3.0, 1.0, 4.0])
    found = _minimize(loss, start, loss(start), lambda slope: scale * slope, 1e-12)
    np.testing.assert_allclose(found, 0, atol=1e-5)


def test_the_start_stays_untouched() -> None:
    start = np.ones(2)
    _minimize(lambda x: (float(x @ x), 2 * x), start, (2.0, 2 * start), lambda slope: slope, 1e-8)
    assert start.tolist() == [1.0, 1.0]

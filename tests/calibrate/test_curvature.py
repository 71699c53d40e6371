"""Guesses of the curvature are the true one where it has their form, and never point uphill."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import softmax

from dubito import Logits
from dubito.calibrate.affine import (
    _ClassCurvature,
    _Moments,
    _PenalizedLoss,
    _Preconditioner,
    _ProductCurvature,
)
from dubito.calibrate.basis import Basis
from dubito.data import Batch
from dubito.data.shards import ArrayShards

Floats = NDArray[np.float64]


def whole_curvature(p: Floats, f: Floats, weight: Floats, penalty: Floats) -> Floats:
    """Return the curvature of the mean loss plus penalty, entries by entries, written out."""
    size = penalty.size
    result = np.zeros((size, size))
    for row, numbers, w in zip(p, f, weight, strict=True):
        result += w * np.kron(np.diag(row) - np.outer(row, row), np.outer(numbers, numbers))
    result /= weight.sum()
    result[np.diag_indices(size)] += 2 * penalty.ravel()
    return result


def made(n_rows: int, n_classes: int) -> tuple[Floats, Floats, ArrayShards]:
    """Return probabilities, weights and labeled rows."""
    rng = np.random.default_rng(0)
    logits, weight = rng.normal(size=(n_rows, n_classes)), rng.random(n_rows) + 0.1
    y = rng.integers(0, n_classes, n_rows)
    batch = Batch.of(y, Logits(logits), sample_weight=weight)
    return softmax(logits, axis=1), weight, ArrayShards(batch)


def test_moments_add_up() -> None:
    ones = _Moments(*(np.ones((2, 2)) for _ in range(5)))
    total = ones + ones
    assert total.weights.tolist() == total.features.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_a_class_of_its_own_is_exact() -> None:
    """For a diagonal and a bias a class's two entries are two numbers, which it holds exactly."""
    p, weight, shards = made(60, 3)
    penalty = np.random.default_rng(1).uniform(0.1, 1, (3, 2))
    loss = _PenalizedLoss(shards, Basis(1.0), penalty, float(weight.sum()))
    moments = shards.sum(loss.start_sums).moments
    slope = np.random.default_rng(2).normal(size=(3, 2))
    got = _Preconditioner(moments, float(weight.sum()), penalty)(slope)
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
    guess = _ProductCurvature(loss.start_sums(batch).moments, 20.0, penalty)
    f = np.column_stack([np.log(p), np.ones(20)])
    slope = np.random.default_rng(0).normal(size=(3, 4))
    exact = np.linalg.solve(whole_curvature(p, f, weight, penalty), slope.ravel())
    np.testing.assert_allclose(guess(slope).ravel(), exact, rtol=1e-8)


@pytest.mark.parametrize("make", [_ClassCurvature, _ProductCurvature, _Preconditioner])
def test_it_is_symmetric_and_points_downhill(make: type) -> None:
    _, weight, shards = made(200, 4)
    penalty = np.full((4, 5), 0.05)
    loss = _PenalizedLoss(shards, Basis(1.0), penalty, float(weight.sum()))
    guess = make(shards.sum(loss.start_sums).moments, float(weight.sum()), penalty)
    basis = np.eye(penalty.size)
    inverse = np.stack([guess(row.reshape(4, 5)).ravel() for row in basis])
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-9)
    assert np.linalg.eigvalsh(inverse).min() > 0


def test_it_takes_most_of_the_curvature_away() -> None:
    p, weight, shards = made(200, 4)
    penalty = np.full((4, 5), 0.05)
    np.fill_diagonal(penalty, 0.01)
    loss = _PenalizedLoss(shards, Basis(1.0), penalty, float(weight.sum()))
    guess = _Preconditioner(shards.sum(loss.start_sums).moments, float(weight.sum()), penalty)
    f = np.column_stack([np.log(p), np.ones(200)])
    curvature = whole_curvature(p, f, weight, penalty)
    left = np.stack([guess(column.reshape(4, 5)).ravel() for column in curvature])
    bends = np.linalg.eigvals(left).real
    plain = np.linalg.eigvalsh(curvature)
    assert bends.max() / bends.min() < plain.max() / plain.min() / 5

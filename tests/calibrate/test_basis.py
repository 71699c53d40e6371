"""The numbers that a map is linear in."""

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from scipy.spatial.distance import cdist, pdist
from scipy.special import log_softmax

from dubito import Logits
from dubito.arrays import FloatArray
from dubito.calibrate import StructuredMatrixScaling
from dubito.calibrate.affine import (
    MIN_RBF_LOG_PROBA,
    N_CENTERS,
    N_NEAREST,
    RELATIVE_WIDTH,
    SPLINE_KNOTS,
    Basis,
    choose_centers,
)
from dubito.data import ArrayShards, Batch
from dubito.errors import BadValueError

LOGITS = np.random.default_rng(0).normal(0, 4, (300, 3))


def shards(logits: np.ndarray) -> ArrayShards:
    return ArrayShards(Batch.of(np.zeros(len(logits), int), Logits(logits)))


def test_linear_is_the_log_probability_at_a_temperature() -> None:
    close(Basis(0.5).features(Logits(LOGITS)), log_softmax(LOGITS / 2, axis=1), rtol=1e-12)


def test_bent_adds_probabilities_and_broken_lines() -> None:
    got = Basis(1.0, "spline").features(Logits(LOGITS))
    x = log_softmax(LOGITS, axis=1)
    close(
        got,
        np.column_stack([x, np.exp(x), *(np.maximum(x - c, 0) for c in SPLINE_KNOTS)]),
        atol=1e-12,
    )
    assert got.shape[1] == 3 * Basis(1.0, "spline").n_per_class()


def test_local_adds_a_bump_a_center() -> None:
    centers, width = choose_centers(shards(LOGITS), 1.0)
    got = Basis(1.0, "rbf", centers, width).features(Logits(LOGITS))
    x = np.maximum(log_softmax(LOGITS, axis=1), MIN_RBF_LOG_PROBA)
    close(got[:, 15:], np.exp(-cdist(x, centers, "sqeuclidean") / (2 * width**2)), atol=1e-10)


def assert_means_of_near_rows(centers: FloatArray, logits: FloatArray) -> None:
    """Each center is the mean of the rows that are nearest to one of them."""
    x = np.maximum(log_softmax(logits, axis=1), MIN_RBF_LOG_PROBA)
    apart = cdist(x, x)
    limits = np.sort(apart, axis=1)[:, N_NEAREST - 1] * (1 + 1e-6)  # ties are included
    means = [x[one <= limit].mean(axis=0) for one, limit in zip(apart, limits, strict=True)]
    assert cdist(centers, means).min(axis=1).max() < 1e-9


def test_centers_are_means_of_near_rows_and_further_apart_than_they_are_wide() -> None:
    centers, width = choose_centers(shards(LOGITS), 1.0)
    assert centers.shape == (N_CENTERS, 3)  # none tied with the last
    assert_means_of_near_rows(centers, LOGITS)
    assert_means_of_near_rows(choose_centers(shards(LOGITS), 2.0)[0], 2 * LOGITS)
    apart = pdist(centers)
    assert width == pytest.approx(RELATIVE_WIDTH * np.median(apart[apart > 1e-9]), rel=1e-6)


def test_no_center_is_a_row() -> None:
    logits = np.random.default_rng(0).normal(0, 2, (3000, 4))
    x = np.maximum(log_softmax(logits, axis=1), MIN_RBF_LOG_PROBA)
    assert cdist(choose_centers(shards(logits), 1.0)[0], x).min() > 0.01


@pytest.mark.parametrize("digits", [0, 1, 15])
def test_bumps_are_the_same_in_any_order_and_however_often(digits: int) -> None:
    logits = np.round(LOGITS, digits)  # with rows that are each other's in another order of classes
    centers, width = choose_centers(shards(logits), 1.0)
    order = np.random.default_rng(1).permutation(300)
    for rows in (order, np.concatenate([order, order[:50]])):
        again, same = choose_centers(shards(logits[rows]), 1.0)
        assert again == pytest.approx(centers)
        assert same == pytest.approx(width)
    turned, _ = choose_centers(shards(logits[:, [2, 0, 1]]), 1.0)
    assert sorted_rows(turned) == pytest.approx(sorted_rows(centers[:, [2, 0, 1]]))


def sorted_rows(rows: FloatArray) -> FloatArray:
    return rows[np.lexsort(np.round(rows, 6).T)]


def test_rows_all_alike_have_one_bump() -> None:
    centers, width = choose_centers(shards(np.ones((20, 3))), 1.0)
    assert centers.shape == (1, 3)
    assert width == 1.0


def test_an_unknown_basis_raises() -> None:
    with pytest.raises(BadValueError, match=r"must be 'linear', 'spline' or 'rbf', got 'round'"):
        StructuredMatrixScaling(basis="round").fit(Logits(LOGITS), np.zeros(300, int))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_centers_are_the_same_but_for_few(n_classes: int) -> None:
    logits = np.random.default_rng(0).normal(0, 2, (3000, n_classes))
    whole, _ = choose_centers(shards(logits), 1.0)
    assert len(whole) > N_CENTERS - 9
    for rows in (logits.astype(np.float32), logits[:-1]):
        distance = cdist(whole, choose_centers(shards(rows), 1.0)[0])
        for nearest in (distance.min(axis=0), distance.min(axis=1)):
            assert (nearest > 0.1).sum() <= 8

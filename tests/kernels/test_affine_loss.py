"""Loss and slopes of affine maps match a float64 NumPy reference, and with differences."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import special

from dubito.arrays import contiguous, freeze
from dubito.kernels.scaling import residual_rows, vector_sums

Floats = NDArray[np.float64]

each_width = pytest.mark.parametrize("n_classes", [2, 3, 64, 65, 300])
each_label = pytest.mark.parametrize("is_soft", [False, True], ids=["plain", "soft"])


def some_labels(n_rows: int, n_classes: int, is_soft: bool) -> tuple[Any, Floats, Floats, Floats]:
    """Return codes, label probabilities as the kernels take them and in full, and weights."""
    rng = np.random.default_rng(n_classes)
    codes = rng.integers(-1, n_classes, n_rows)
    weight = np.where(codes < 0, 0.0, rng.random(n_rows) * (rng.random(n_rows) < 0.8))
    if is_soft:
        full = rng.dirichlet(np.full(n_classes, 0.3), n_rows)
        return codes, full, full, weight
    return codes, np.empty((0, n_classes)), np.eye(n_classes)[np.maximum(codes, 0)], weight


@each_width
@each_label
def test_residuals_and_loss_match_numpy_reference(n_classes: int, is_soft: bool) -> None:
    codes, soft, q, weight = some_labels(30, n_classes, is_soft)
    assert (weight == 0).any()
    scores = np.random.default_rng(1).normal(0, 5, (30, n_classes))
    log_p = special.log_softmax(scores, axis=1)
    loss = residual_rows(scores, contiguous(codes), contiguous(soft), contiguous(weight))
    assert loss == pytest.approx(-weight @ (q * log_p).sum(axis=1), rel=1e-12)
    close(scores, weight[:, np.newaxis] * (np.exp(log_p) - q), rtol=1e-10, atol=1e-15)


@each_width
@each_label
def test_vector_sums_match_numpy_reference(n_classes: int, is_soft: bool) -> None:
    codes, soft, q, weight = some_labels(30, n_classes, is_soft)
    rng = np.random.default_rng(2)
    x = special.log_softmax(rng.normal(0, 3, (30, n_classes)), axis=1)
    scale, bias = rng.normal(1, 0.3, n_classes), rng.normal(0, 1, n_classes)
    sums = np.zeros((5, n_classes))
    labels = contiguous(codes), contiguous(soft), contiguous(weight)
    loss = vector_sums(x, *labels, scale, bias, sums)
    log_p = special.log_softmax(x * scale + bias, axis=1)
    residual = weight[:, np.newaxis] * (np.exp(log_p) - q)
    assert loss == pytest.approx(-weight @ (q * log_p).sum(axis=1), rel=1e-12)
    p = np.exp(log_p)
    bend = weight[:, np.newaxis] * p * (1 - p)
    rows = (residual * x, residual, bend * x**2, bend * x, bend)
    close(sums, [row.sum(axis=0) for row in rows], rtol=1e-10, atol=1e-12)
    vector_sums(x, *labels, scale, bias, sums)
    close(sums[1], 2 * residual.sum(axis=0), rtol=1e-10, atol=1e-12)
    slopes = np.zeros((2, n_classes))
    assert vector_sums(x, *labels, scale, bias, slopes) == loss
    close(slopes, sums[:2] / 2, rtol=1e-10, atol=1e-12)


@each_label
def test_slopes_are_differences_of_the_loss(is_soft: bool) -> None:
    codes, soft, _, weight = some_labels(30, 4, is_soft)
    rng = np.random.default_rng(3)
    x = special.log_softmax(rng.normal(0, 2, (30, 4)), axis=1)
    labels = contiguous(codes), contiguous(soft), contiguous(weight)

    def loss(scale: Floats, bias: Floats) -> float:
        return float(vector_sums(x, *labels, scale, bias, np.zeros((5, 4))))

    scale, bias, sums = np.ones(4), np.zeros(4), np.zeros((5, 4))
    vector_sums(x, *labels, scale, bias, sums)
    for k, step in enumerate(1e-6 * np.eye(4)):
        in_scale = (loss(scale + step, bias) - loss(scale - step, bias)) / 2e-6
        in_bias = (loss(scale, bias + step) - loss(scale, bias - step)) / 2e-6
        assert sums[:2, k] == pytest.approx([in_scale, in_bias], abs=1e-6)


def test_saturated_scores_stay_finite() -> None:
    scores = np.array([[1e8, -1e8], [-1e8, 1e8]])
    codes, weight = contiguous(np.array([0, 0])), contiguous(np.ones(2))
    loss = residual_rows(scores, codes, contiguous(np.empty((0, 2))), weight)
    assert loss == 2e8
    assert scores.tolist() == [[0, 0], [-1, 1]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [3, 10, 24, 70])
def test_digits_do_not_depend_on_where_memory_is_free(n_classes: int, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = freeze(rng.normal(size=(500, n_classes)).astype(dtype))
    codes, soft, weights = rng.integers(0, n_classes, 500), np.empty((0, n_classes)), np.ones(500)
    scale, bias = 1 + rng.random(n_classes), rng.normal(size=n_classes)
    found, kept = set(), []
    for _ in range(30):
        sums = np.zeros((5, n_classes))
        loss = vector_sums(x, codes, soft, freeze(weights), scale, bias, sums)
        found.add((loss, sums.tobytes()))
        kept.append(np.empty(int(rng.integers(1, 500))))
    assert len(found) == 1

"""Losses against label probabilities match a float64 NumPy reference."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from dubito.arrays import contiguous
from dubito.kernels.row_statistics import soft_losses

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]

each_precision = pytest.mark.parametrize("dtype", [np.float32, np.float64])
each_width = pytest.mark.parametrize("n_classes", [2, 3, 10, 65, 1025])
each_kind = pytest.mark.parametrize("is_logits", [True, False], ids=["logits", "probabilities"])


def losses_of(array: Floats, labels: Any, *, is_logits: bool) -> Floats:
    n_rows = array.shape[0]
    log_sum = log_sums(array) if is_logits else np.zeros(n_rows)
    losses = np.full((2, n_rows), np.nan)
    soft_losses(contiguous(array), contiguous(np.asarray(labels)), is_logits, log_sum, losses)
    return losses


def log_sums(logits: Floats) -> Floats:
    return np.asarray(np.logaddexp.reduce(logits.astype(np.float64), axis=1))


def plain(array: Floats, labels: Floats, *, is_logits: bool) -> Floats:
    x = array.astype(np.float64)
    with np.errstate(divide="ignore"):
        log_p = x - log_sums(array)[:, np.newaxis] if is_logits else np.log(x)
    terms = np.where(labels > 0, labels * np.where(labels > 0, log_p, 0), 0)
    return np.stack([-terms.sum(axis=1), ((labels - np.exp(log_p)) ** 2).sum(axis=1)])


@each_precision
@each_width
@each_kind
@pytest.mark.parametrize("n_rows", [0, 1, 30])
def test_losses_match_numpy_reference(
    dtype: Precision, n_classes: int, is_logits: bool, n_rows: int
) -> None:
    rng = np.random.default_rng(n_classes)
    labels = rng.dirichlet(np.ones(n_classes), n_rows)
    labels[::2, 1:][:, ::2] = 0
    logits = rng.normal(0, 5, (n_rows, n_classes))
    shares = rng.dirichlet(np.ones(n_classes), n_rows)
    array = (logits if is_logits else shares).astype(dtype)
    expected = plain(array, labels, is_logits=is_logits)
    assert_allclose(losses_of(array, labels, is_logits=is_logits), expected, rtol=1e-12)


@each_precision
def test_saturated_logits_lose_what_their_distance_says(dtype: Precision) -> None:
    logits = np.array([[1e4, -1e4, 0.0], [np.finfo(dtype).min, 3.0, 3.0]], dtype)
    labels = np.array([[0.0, 1.0, 0.0], [0.0, 0.5, 0.5]])
    expected = [[2e4, np.log(2)], [2.0, 0.0]]
    assert_allclose(losses_of(logits, labels, is_logits=True), expected, rtol=1e-12, atol=1e-15)


@each_precision
def test_a_class_ruled_out_that_may_have_happened_makes_only_the_loss_infinite(
    dtype: Precision,
) -> None:
    array = np.array([[1.0, 0.0], [1.0, 0.0]], dtype)
    labels = np.array([[0.75, 0.25], [1.0, 0.0]])
    expected = [[np.inf, 0.0], [0.125, 0.0]]
    assert losses_of(array, labels, is_logits=False).tolist() == expected


@each_kind
def test_a_one_hot_label_loses_what_a_plain_label_does(is_logits: bool) -> None:
    p = np.array([[0.7, 0.2, 0.1]])
    array = np.log(p) if is_logits else p
    losses = losses_of(array, np.array([[0.0, 1.0, 0.0]]), is_logits=is_logits)
    assert_allclose(losses, [[-np.log(0.2)], [0.7**2 + 0.8**2 + 0.1**2]], rtol=1e-12)

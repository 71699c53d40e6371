"""Sums a class and bin are those of a plain loop, for plain and soft labels."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from dubito.arrays import contiguous, freeze
from dubito.kernels.bins import narrow_class_sums, wide_class_sums

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]

N_ROWS = 60
TOLERANCE = {np.float32: 1e-6, np.float64: 1e-12}

each_precision = pytest.mark.parametrize("dtype", [np.float32, np.float64])
each_width = pytest.mark.parametrize("n_classes", [2, 3, 32, 33, 64, 65, 300])
each_kind = pytest.mark.parametrize("is_logits", [True, False], ids=["logits", "probabilities"])
each_label = pytest.mark.parametrize("is_soft", [False, True], ids=["codes", "soft"])
each_binning = pytest.mark.parametrize("n_bins", [1, 2, 15])


def shares_of(array: Floats, *, is_logits: bool) -> Floats:
    x = array.astype(np.float64)
    if not is_logits:
        return x
    with np.errstate(over="ignore"):
        shares = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def sums_of(
    array: Floats,
    labels: Any,
    weights: Any,
    edges: Any,
    *,
    is_logits: bool,
    sums: Floats | None = None,
    add: Any = narrow_class_sums,
) -> Floats:
    labels, edges = np.asarray(labels), np.asarray(edges)
    is_soft = labels.ndim == 2
    sums = np.zeros((3, array.shape[1], edges.size - 1)) if sums is None else sums
    add(
        contiguous(array),
        freeze(np.zeros(len(labels), np.int64) if is_soft else labels),
        contiguous(labels if is_soft else np.zeros((0, 0))),
        freeze(np.asarray(weights, np.float64)),
        freeze(array.argmax(axis=1).astype(np.int32)),
        freeze(shares_of(array, is_logits=is_logits).max(axis=1, initial=0)),
        is_logits,
        freeze(edges),
        sums,
    )
    return sums


def plain(shares: Floats, labels: Any, weights: Any, edges: Any) -> Floats:
    n_classes, n_bins = shares.shape[1], len(edges) - 1
    labels = np.asarray(labels)
    truth = labels if labels.ndim == 2 else np.eye(n_classes)[labels]
    sums = np.zeros((3, n_classes, n_bins))
    for row, q, weight in zip(shares, truth, weights, strict=True):
        if weight == 0:
            continue
        # Bins are closed on the right: the number of inner edges below a value is its bin.
        bins = np.searchsorted(edges[1:-1], row, side="left")
        for k, b in enumerate(bins):
            sums[:, k, b] += [weight, weight * row[k], weight * q[k]]
    return sums


def some_rows(n_classes: int, dtype: Precision, is_logits: bool) -> Floats:
    rng = np.random.default_rng(n_classes)
    sharpness = np.linspace(0.1, 12, N_ROWS)[:, np.newaxis]
    logits = (sharpness * rng.normal(size=(N_ROWS, n_classes))).astype(dtype)
    return logits if is_logits else shares_of(logits, is_logits=True).astype(dtype)


def some_labels(n_classes: int, is_soft: bool) -> tuple[Any, Floats]:
    """Return labels, some of them missing, and weights that are 0 there and elsewhere."""
    rng = np.random.default_rng(n_classes)
    weights = rng.random(N_ROWS) * (rng.random(N_ROWS) < 0.8)
    is_missing = rng.random(N_ROWS) < 0.2
    if is_soft:
        soft = rng.dirichlet(np.full(n_classes, 0.3), N_ROWS)
        labels = np.where(is_missing[:, np.newaxis], np.nan, soft)
    else:
        labels = np.where(is_missing, -1, rng.integers(0, n_classes, N_ROWS))
    return labels, np.where(is_missing, 0.0, weights)


@each_precision
@each_width
@each_kind
@each_label
@each_binning
def test_sums_match_numpy_reference(
    dtype: Precision, n_classes: int, is_logits: bool, is_soft: bool, n_bins: int
) -> None:
    array = some_rows(n_classes, dtype, is_logits)
    labels, weights = some_labels(n_classes, is_soft)
    edges, shares = np.linspace(0, 1, n_bins + 1), shares_of(array, is_logits=is_logits)
    # Where rounding could move a probability over an edge, the reference may find another bin.
    distance = np.abs(shares[..., np.newaxis] - edges[1:-1]).min(initial=1)
    assert not is_logits or distance > 2 * float(np.finfo(dtype).eps)
    expected = plain(shares, labels, weights, edges)
    for add in (narrow_class_sums, wide_class_sums):
        sums = sums_of(array, labels, weights, edges, is_logits=is_logits, add=add)
        assert_allclose(sums, expected, rtol=TOLERANCE[dtype], atol=1e-30)
        assert (sums[0, expected[0] == 0] == 0).all()


@each_precision
@each_label
def test_a_probability_on_an_edge_belongs_to_the_bin_on_its_left(
    dtype: Precision, is_soft: bool
) -> None:
    array = np.array([[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]], dtype)
    labels = np.eye(2)[[0, 0, 0]] if is_soft else np.zeros(3, np.int64)
    sums = sums_of(array, labels, [1, 2, 4], [0.0, 0.25, 0.5, 0.75, 1.0], is_logits=False)
    weight = [[1, 2, 0, 4], [4, 2, 1, 0]]
    share = [[0.25, 1, 0, 4], [0, 1, 0.75, 0]]
    assert sums.tolist() == [weight, share, [[1, 2, 0, 4], [0, 0, 0, 0]]]


@each_kind
@each_label
def test_empty_bins_hold_exactly_nothing(is_logits: bool, is_soft: bool) -> None:
    array = np.full((20, 3), 7.0) if is_logits else np.full((20, 3), 1 / 3)
    labels = np.full((20, 3), 1 / 3) if is_soft else np.arange(20) % 3
    sums = sums_of(array, labels, np.ones(20), np.linspace(0, 1, 11), is_logits=is_logits)
    assert sums[0].tolist() == [[0, 0, 0, 20, 0, 0, 0, 0, 0, 0]] * 3
    assert not np.delete(sums, 3, axis=2).any()


@each_precision
@each_binning
def test_the_spread_of_logits_may_overflow(dtype: Precision, n_bins: int) -> None:
    info = np.finfo(dtype)
    array = np.array([[info.max, info.min, 0], [info.min, 0, 0], [-1e4, 1e4, -0.0]], dtype)
    edges, labels, weights = np.linspace(0, 1, n_bins + 1), np.array([0, 1, 2]), np.ones(3)
    expected = plain(shares_of(array, is_logits=True), labels, weights, edges)
    sums = sums_of(array, labels, weights, edges, is_logits=True)
    assert_allclose(sums, expected, rtol=TOLERANCE[dtype], atol=1e-30)


@each_kind
@each_label
def test_each_row_is_counted_once_a_class(is_logits: bool, is_soft: bool) -> None:
    array = some_rows(65, np.float32, is_logits)
    labels, weights = some_labels(65, is_soft)
    sums = sums_of(array, labels, weights, np.linspace(0, 1, 16), is_logits=is_logits)
    assert_allclose(sums[0].sum(axis=1), weights.sum(), rtol=1e-12)
    assert_allclose(sums[1].sum(), weights.sum(), rtol=1e-6)
    assert_allclose(sums[2].sum(), weights.sum(), rtol=1e-12)


@each_precision
@each_kind
@each_label
def test_no_rows_add_nothing(dtype: Precision, is_logits: bool, is_soft: bool) -> None:
    labels = np.empty((0, 4)) if is_soft else np.empty(0, np.int64)
    array = np.empty((0, 4), dtype)
    assert not sums_of(array, labels, np.empty(0), [0.0, 0.5, 1.0], is_logits=is_logits).any()


@each_label
def test_sums_add_to_what_is_there(is_soft: bool) -> None:
    array, edges = some_rows(5, np.float64, False), np.linspace(0, 1, 4)
    labels, weights = some_labels(5, is_soft)
    once = sums_of(array, labels, weights, edges, is_logits=False)
    twice = sums_of(array, labels, weights, edges, is_logits=False, sums=once.copy())
    assert_allclose(twice, 2 * once, rtol=1e-12)


@each_precision
def test_many_rows_of_few_classes_match_numpy_reference(dtype: Precision) -> None:
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(3), 700).astype(dtype)
    labels, weights = rng.integers(0, 3, 700), rng.random(700)
    edges = np.array([0.0, 0.01, 0.02, 0.6, 1.0])  # far from what bins of equal width would guess
    expected = plain(shares.astype(np.float64), labels, weights, edges)
    sums = sums_of(shares, labels, weights, edges, is_logits=False)
    assert_allclose(sums, expected, rtol=1e-12)

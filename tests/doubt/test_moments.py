"""Means and scatters of classes, beside loops over the classes."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close

from dubito.doubt.features import feature_shards
from dubito.doubt.gaussians import (
    _class_means,
    _class_scatters,
    _pooled_scatter,
    _squared_deviations,
)
from dubito.errors import BadValueError

RNG = np.random.default_rng(2)
LABELS = RNG.integers(0, 3, 400)
X = RNG.normal(size=(400, 5)) * [1, 10, 1e-3, 1e4, 1] + RNG.normal(size=(3, 5))[LABELS]
W = RNG.random(400) * (RNG.random(400) < 0.8)


def expected_scatters(x: Any) -> Any:
    scatters = []
    for k in range(3):
        rows = np.flatnonzero(np.equal(LABELS, k))
        part, weight = x[rows], W[rows]
        off = part - np.average(part, axis=0, weights=weight)
        scatters.append((weight[:, None] * off).T @ off)
    return np.stack(scatters)


@pytest.mark.parametrize("shift", [0.0, 1e6])
@pytest.mark.parametrize("block", [1 << 20, 64])
def test_sums_are_those_of_the_reference(
    shift: float, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", str(block))
    x = X + shift
    shards = feature_shards(x, LABELS, W, "caller")
    means = _class_means(shards, "caller")
    parts = [np.flatnonzero(np.equal(LABELS, k)) for k in range(3)]
    expected = [np.average(x[rows], axis=0, weights=W[rows]) for rows in parts]
    close(means.means, expected, rtol=1e-12)
    close(means.weights, np.bincount(LABELS, W))
    close(means.n_pooled, W.sum() - 2)
    scatters = expected_scatters(x)
    sizes = np.sqrt(np.einsum("kii->i", scatters))
    near = 1e-10 * np.outer(sizes, sizes)
    assert (np.abs(_class_scatters(shards, means, "caller") - scatters) < near).all()
    assert (np.abs(_pooled_scatter(shards, means, "caller") - scatters.sum(axis=0)) < near).all()
    close(_squared_deviations(shards, means, "caller"), np.einsum("kii->ki", scatters), rtol=1e-9)


def test_a_feature_that_never_varies_scatters_by_exactly_nothing() -> None:
    x = np.column_stack([X[:, 0], np.full(400, 0.1)])
    shards = feature_shards(x, None, None, "caller")
    means = _class_means(shards, "caller")
    assert means.means[0, 1] == 0.1
    assert _pooled_scatter(shards, means, "caller")[1].tolist() == [0, 0]


def test_features_too_large_to_be_squared_raise() -> None:
    shards = feature_shards([[1e200], [-1e200]], None, None, "caller")
    with pytest.raises(
        BadValueError,
        match=r"`features` .*, got an overflow\. Divide the features by a constant first",
    ):
        _pooled_scatter(shards, _class_means(shards, "caller"), "caller")

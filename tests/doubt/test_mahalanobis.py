"""The nearest class's squared distance, beside SciPy's over all pairs."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose as close
from scipy.spatial.distance import cdist
from sklearn.covariance import EmpiricalCovariance

from dubito.doubt import MahalanobisDistance
from dubito.doubt.feature_distances import NearestMean
from dubito.errors import BadTypeError, BadValueError

RNG = np.random.default_rng(7)


def made(n_rows: int, n_features: int, n_classes: int, apart: float = 2.0) -> tuple[Any, Any]:
    y = np.arange(n_rows) % n_classes
    mixing = RNG.normal(size=(n_features, n_features))
    x = RNG.normal(size=(n_rows, n_features)) @ mixing
    return x + apart * RNG.normal(size=(n_classes, n_features))[y], y


def expected(x: Any, y: Any, new: Any) -> Any:
    means = np.stack([x[y == k].mean(axis=0) for k in np.unique(y)])
    off = x - means[np.unique(y, return_inverse=True)[1]]
    inverse = np.linalg.inv(off.T @ off / len(x))
    return cdist(new, means, "mahalanobis", VI=inverse).min(axis=1) ** 2


@pytest.mark.parametrize("n_classes", [1, 2, 50])
@pytest.mark.parametrize("apart", [0.0, 2.0, 1e4])
def test_distances_are_scipys(n_classes: int, apart: float) -> None:
    x, y = made(500, 6, n_classes, apart)
    new = np.vstack([x[::7], RNG.normal(0, 20, (40, 6))])
    found = MahalanobisDistance(shrinkage=0.0).fit(x, y).score(new)
    close(found, expected(x, y, new), rtol=1e-9)


def test_normalized_features_are_directions() -> None:
    x, y = made(500, 6, 4)
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    uncertainty = MahalanobisDistance(normalize=True, shrinkage=0.0).fit(x, y)
    close(uncertainty.score(x), expected(units, y, units), rtol=1e-8)
    close(uncertainty.score(1e200 * x), uncertainty.score(x), rtol=1e-8)
    close(uncertainty.score(1e-200 * x), uncertainty.score(x), rtol=1e-8)
    assert np.isfinite(uncertainty.score(np.zeros((1, 6)))).all()


def test_without_labels_there_is_one_mean() -> None:
    x, _ = made(300, 5, 3)
    peer = EmpiricalCovariance().fit(x)
    found = MahalanobisDistance(shrinkage=0.0).fit(x)
    close(found.score(x), peer.mahalanobis(x), rtol=1e-9)
    assert found.classes_ is None
    assert found.means_.shape == (1, 5)


def test_shrinkage_is_reported_and_fixes_few_rows() -> None:
    x, y = made(8, 20, 2)
    found = MahalanobisDistance().fit(x, y)
    assert 0 < found.shrinkage_ <= 1
    assert (found.score(x) > 0).all()
    with pytest.raises(BadValueError, match="Use shrinkage='auto', fewer features or more rows"):
        MahalanobisDistance(shrinkage=0.0).fit(x, y)


def test_features_that_never_vary_are_no_obstacle() -> None:
    x, y = made(200, 4, 3)
    dead = np.column_stack([x, np.zeros(200)])
    found = MahalanobisDistance(shrinkage=0.3).fit(dead, y)
    close(found.score(dead), MahalanobisDistance(shrinkage=0.3).fit(x, y).score(x), rtol=1e-9)
    outliers = dead[:1] + np.array([0, 0, 0, 0, 50.0])
    assert found.score(outliers) > found.score(dead[:1])


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e15, 1e25])
def test_the_nearest_mean_is_exact_below_the_precision_of_float32(scale: float) -> None:
    means = scale * RNG.normal(size=(40, 8)) + RNG.normal(size=(40, 8))
    means[20:] = means[:20] + 1e-3 * scale * RNG.normal(size=(20, 8))
    rows = means + 1e-4 * scale * RNG.normal(size=means.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        found = NearestMean(means).nearest(rows)
    assert found.tolist() == cdist(rows, means).argmin(axis=1).tolist()


@pytest.mark.slow
@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 6), st.sampled_from([0.0, 1e3, 1e6]))
@settings(max_examples=60)
def test_the_least_of_all_distances_is_found(n: int, d: int, k: int, far: float) -> None:
    rng = np.random.default_rng(n * 100 + d * 10 + k)
    means = np.round(rng.normal(size=(k, d)), 1) + far  # ties among them
    rows = np.round(rng.normal(size=(n, d)), 1) + far
    found = NearestMean(means).nearest(rows)
    distances = cdist(rows, means, "sqeuclidean")
    close(distances[np.arange(n), found], distances.min(axis=1), rtol=1e-9, atol=1e-9 * far)


@pytest.mark.slow
def test_memory_stays_bounded() -> None:
    n_rows, n_classes = 40_000, 500
    y = np.arange(n_rows) % n_classes
    x = RNG.standard_normal((n_rows, 16), dtype=np.float32)
    tracemalloc.start()
    try:
        MahalanobisDistance().fit(x, y).score(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n_rows * n_classes * 4 / 2  # not even half of rows x classes


def test_settings_are_checked() -> None:
    with pytest.raises(BadTypeError, match=r"`normalize` .*, got 'yes'\. Use normalize=True"):
        MahalanobisDistance(normalize="yes").fit([[1.0], [2.0]])  # type: ignore[arg-type]
    with pytest.raises(
        BadValueError,
        match="MahalanobisDistance: `shrinkage` must be 'auto' "
        r"or a number between 0 and 1, got -1\. Use "
        "shrinkage='auto'",
    ):
        MahalanobisDistance(shrinkage=-1).fit([[1.0], [2.0]])


def test_settings_count_at_the_next_fit_only() -> None:
    x, y = made(60, 3, 2)
    found = MahalanobisDistance().fit(x, y)
    expected = found.score(x)
    assert (found.set_params(normalize=True).score(x) == expected).all()

"""Normal densities of classes, beside SciPy's."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from scipy import stats
from scipy.spatial.distance import cdist

from dubito.doubt.gaussians import (
    BaseGaussians,
    DiagonalGaussians,
    PerClassGaussians,
    SharedGaussians,
    Whitening,
)

RNG = np.random.default_rng(4)
MEANS = RNG.normal(0, 3, (3, 4))
ROOTS = RNG.normal(size=(3, 4, 4))
FULL = ROOTS @ ROOTS.transpose(0, 2, 1) + 0.1 * np.eye(4)
X = RNG.normal(0, 3, (30, 4))

KINDS: list[tuple[BaseGaussians, Any]] = [
    (SharedGaussians(MEANS, FULL[0]), np.stack([FULL[0]] * 3)),
    (PerClassGaussians(MEANS, FULL), FULL),
    (
        DiagonalGaussians(MEANS, np.einsum("kii->ki", FULL)),
        np.stack([np.diag(np.diag(one)) for one in FULL]),
    ),
]
each_kind = pytest.mark.parametrize(("gaussians", "covariances"), KINDS)


@each_kind
def test_likelihoods_are_scipys(gaussians: BaseGaussians, covariances: Any) -> None:
    expected = [
        stats.multivariate_normal(mean, covariance).logpdf(X)
        for mean, covariance in zip(MEANS, covariances, strict=True)
    ]
    close(gaussians.log_likelihoods(X), np.stack(expected, axis=1), rtol=1e-10)


@each_kind
def test_distances_are_scipys_and_never_negative(
    gaussians: BaseGaussians, covariances: Any
) -> None:
    inverses = np.linalg.inv(covariances)
    parts = [
        cdist(X, MEANS[k : k + 1], "mahalanobis", VI=inverse) for k, inverse in enumerate(inverses)
    ]
    close(gaussians.squared_distances(X), np.hstack(parts) ** 2, rtol=1e-9)
    own = np.diag(gaussians.squared_distances(MEANS))
    assert (own >= 0).all()
    assert (own < 1e-10).all()


@each_kind
def test_rows_beyond_all_floats_are_finite(gaussians: BaseGaussians, covariances: Any) -> None:
    with np.errstate(all="raise"):
        found = gaussians.log_likelihoods(np.full((1, 4), 1e308))
    assert np.isfinite(found).all()
    assert (found < -1e299).all()


@each_kind
def test_noise_spreads_as_the_covariances_say(gaussians: BaseGaussians, covariances: Any) -> None:
    for k in range(3):
        codes = np.full(4, k)
        root = gaussians.from_noise(codes, np.eye(4)) - MEANS[k]
        close(root.T @ root, covariances[k], rtol=1e-10, atol=1e-12)
    mixed = gaussians.from_noise(np.array([2, 0]), np.zeros((2, 4)))
    close(mixed, MEANS[[2, 0]])


def test_whitening_makes_the_covariance_the_identity() -> None:
    whitening = Whitening.of(FULL[0])
    close(whitening.matrix.T @ FULL[0] @ whitening.matrix, np.eye(4), atol=1e-12)
    assert whitening.log_determinant == pytest.approx(np.linalg.slogdet(FULL[0])[1])


@pytest.mark.parametrize("far", [0.0, 1.0, 1e8])
@pytest.mark.parametrize("size", [1e-150, 1.0, 1e150])
def test_products_lose_no_digits_of_naive_distances(far: float, size: float) -> None:
    rng = np.random.default_rng(0)
    means = (rng.normal(0, 5, (7, 12)) + far) * size
    variance = np.square(10 ** rng.uniform(-3, 3, (7, 12)) * size)
    rows = means[rng.integers(0, 7, 50)] + rng.normal(0, 2, (50, 12)) * size
    expected = (np.square((rows[:, None] - means) / np.sqrt(variance))).sum(axis=2)
    close(DiagonalGaussians(means, variance).squared_distances(rows), expected, rtol=1e-12)

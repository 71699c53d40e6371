"""Covariances learned from rows, beside those of NumPy."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close

from dubito.doubt.features import FeatureShards, feature_shards
from dubito.doubt.gaussians import fit_diagonal, fit_per_class, fit_shared
from dubito.errors import BadValueError

RNG = np.random.default_rng(5)
CODES = RNG.integers(0, 3, 200)
X = RNG.normal(size=(200, 3)) @ RNG.normal(size=(3, 3)) + RNG.normal(size=(3, 3))[CODES]
PARTS = [np.flatnonzero(np.equal(CODES, k)) for k in range(3)]
OWN = np.stack([np.cov(X[rows].T, bias=True) for rows in PARTS])
SHARED = np.einsum("k,kij->ij", [len(rows) / 200 for rows in PARTS], OWN)


def shards(x: Any = X, y: Any = CODES) -> FeatureShards:
    return feature_shards(x, y, None, "caller")


def test_without_shrinkage_covariances_are_numpys() -> None:
    close(fit_shared(shards(), 0.0, "caller").covariance, SHARED)
    close(fit_per_class(shards(), 0.0, "caller").covariance, OWN)
    close(fit_diagonal(shards(), 0.0, "caller").covariance, np.einsum("kii->ki", OWN))


def test_row_uniforms_classes_are_reported() -> None:
    assert fit_shared(shards(), 0.25, "caller").shrinkage.tolist() == [0.25]
    assert fit_per_class(shards(), 0.25, "caller").shrinkage.tolist() == [0.25] * 3
    counts = np.array([len(rows) for rows in PARTS])
    close(fit_diagonal(shards(), None, "caller").shrinkage, 1 / (counts + 1))


def test_naive_variances_are_drawn_towards_those_of_all_classes() -> None:
    found = fit_diagonal(shards(), 0.5, "caller").covariance
    close(found, (np.einsum("kii->ki", OWN) + np.diag(SHARED)) / 2)


@pytest.mark.parametrize("fit", [fit_per_class, fit_diagonal])
def test_a_feature_constant_in_a_class_varies_as_in_all(fit: Any) -> None:
    x = X.copy()
    x[PARTS[1], 2] = 5.0
    pooled = sum(len(rows) * x[rows, 2].var() for rows in PARTS) / 200
    found = fit(shards(x), None, "caller").covariance[1]
    assert (found[2, 2] if found.ndim == 2 else found[2]) == pytest.approx(pooled)


@pytest.mark.parametrize("fit", [fit_per_class, fit_diagonal])
def test_without_shrinkage_a_constant_feature_raises(fit: Any) -> None:
    x = X.copy()
    x[PARTS[1], 2] = 5.0
    with pytest.raises(
        BadValueError,
        match="`features` .*, got a redundant feature in "
        r"column 2\. Use shrinkage='auto', fewer features "
        "or more rows",
    ):
        fit(shards(x), 0.0, "caller")


def test_a_class_of_one_row_shares_a_covariance_but_has_none_of_its_own() -> None:
    x, y = np.vstack([X, [[9.0, 9, 9]]]), [*CODES, 3]
    found = fit_shared(shards(x, y), 0.0, "caller")
    close(found.covariance, SHARED * 200 / 201)
    close(found.means[3], [9, 9, 9])
    for fit, name in ((fit_per_class, "per_class"), (fit_diagonal, "diagonal")):
        with pytest.raises(
            BadValueError,
            match=f"`y` .* covariance={name!r}, got 1 row of class 3. Use covariance='shared', or "
            "more rows",
        ):
            fit(shards(x, y), None, "caller")


def test_a_single_row_varies_in_nothing() -> None:
    with pytest.raises(
        BadValueError,
        match="`features` must vary within a class, got "
        r"constant features\. Use more rows per class, or "
        "fit without labels",
    ):
        fit_shared(shards([[1.0, 2.0]], None), None, "caller")
    with pytest.raises(
        BadValueError,
        match=r"`y` .*, got 1 row of class 'all rows'\. Use "
        "covariance='shared', or more rows",
    ):
        fit_per_class(shards([[1.0, 2.0]], None), None, "caller")

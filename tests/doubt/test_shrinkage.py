"""Covariances that can be inverted, or an error with the remedy."""

import re
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from sklearn.covariance import oas

from dubito.doubt.gaussians import _shrunk_covariance, _usable_variances, as_shrinkage
from dubito.errors import BadValueError

RNG = np.random.default_rng(3)
NO_SCALE = np.zeros(4)


def rows(n_rows: int) -> Any:
    return RNG.normal(size=(n_rows, 4)) @ RNG.normal(size=(4, 4)) * [1, 10, 1e-3, 1e5]


@pytest.mark.parametrize("n_rows", [3, 20, 1000])
def test_the_automatic_share_is_that_of_standardized_rows(n_rows: int) -> None:
    x = rows(n_rows)
    standard = (x - x.mean(axis=0)) / x.std(axis=0)
    covariance, share = oas(standard)
    s = np.cov(x.T, bias=True)
    found = _shrunk_covariance(s, np.diag(s), NO_SCALE, n_rows, None, "caller")
    assert found[1] == pytest.approx(share, rel=1e-9)
    close(found[0], covariance * np.outer(x.std(axis=0), x.std(axis=0)), rtol=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_correlations_shrink_and_variances_stay(share: float) -> None:
    s = np.cov(rows(50).T, bias=True)
    found = _shrunk_covariance(s, np.diag(s), NO_SCALE, 50, share, "caller")
    close(found[0], (1 - share) * s + share * np.diag(np.diag(s)), rtol=1e-12)
    assert found[1] == share


def test_a_single_feature_has_nothing_to_shrink() -> None:
    found = _shrunk_covariance(np.array([[4.0]]), np.array([4.0]), np.zeros(1), 9, None, "caller")
    assert found[0].tolist() == [[4.0]]


def test_features_that_never_vary_get_a_variance_of_others() -> None:
    s = np.diag([0.0, 2.0, 4.0])
    s[1, 2] = s[2, 1] = 0.5
    reach = np.zeros(3)
    found = _shrunk_covariance(s, np.diag(s), reach, 50, 0.5, "caller")[0]
    close(found, np.array([[3, 0, 0], [0, 2, 0.25], [0, 0.25, 4]]), rtol=1e-14)
    found = _shrunk_covariance(s, np.array([7.0, 1, 1]), reach, 50, 0.5, "caller")[0]
    close(found[0], [7, 0, 0], rtol=1e-14)


def test_what_rounding_leaves_of_a_constant_is_no_variance() -> None:
    variances, is_constant = _usable_variances(
        np.array([1e-22, 1.0]), np.array([1e-22, 1.0]), np.array([1.0, 1.0]), None, "caller"
    )
    assert variances.tolist() == [1, 1]
    assert is_constant.tolist() == [True, False]


SINGULAR = (
    "`features` must be linearly independent .*, got a redundant feature in column {}. "
    "Use shrinkage='auto', fewer features or more rows"
)


@pytest.mark.parametrize(
    ("x", "column"),
    [
        (np.column_stack([rows(50), np.ones(50)]), 4),
        (np.column_stack([rows(50)[:, :2], np.arange(50.0), 3 - 1e4 * np.arange(50.0)]), 3),
        (rows(3), 2),
        (rows(4), 3),
    ],
)
def test_a_singular_covariance_says_where_and_how_to_fix_it(x: Any, column: int) -> None:
    s = np.cov(x.T, bias=True)
    reach = np.zeros(len(s))
    with pytest.raises(BadValueError, match=SINGULAR.format(column)):
        _shrunk_covariance(s, np.diag(s), reach, len(x), 0.0, "caller")
    shrunk = _shrunk_covariance(s, np.diag(s), reach, len(x), None, "caller")[0]
    assert np.linalg.eigvalsh(shrunk).min() > 0


def test_rows_that_never_differ_raise() -> None:
    with pytest.raises(
        BadValueError,
        match=r"`features` .*, got constant features\. Use more rows per class, or fit "
        "without labels",
    ):
        _usable_variances(np.zeros(2), np.zeros(2), np.zeros(2), None, "caller")


def test_a_share_is_a_number_or_automatic() -> None:
    assert as_shrinkage("auto", "caller") is None
    assert as_shrinkage(np.float32(0.5), "caller") == 0.5


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan, True, None, "most"])
def test_an_invalid_shrinkage_raises(value: Any) -> None:
    with pytest.raises(
        BadValueError,
        match=re.escape(f"got {value!r}. Use shrinkage='auto'."),
    ):
        as_shrinkage(value, "caller")

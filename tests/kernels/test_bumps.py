"""Bumps agree with plain NumPy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from scipy.spatial.distance import cdist

from dubito.arrays import contiguous
from dubito.kernels.affine_loss import bump_rows


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("n_rows", [0, 1, 30])
def test_they_fall_off_with_distance(precision: str, n_rows: int) -> None:
    rng = np.random.default_rng(0)
    rows, centers = rng.normal(size=(n_rows, 4)).astype(precision), rng.normal(size=(7, 4))
    got = np.full((n_rows, 7), np.nan, precision)
    bump_rows(contiguous(rows), contiguous(centers), 0.7, got)
    close(got, np.exp(-cdist(rows, centers, "sqeuclidean") / (2 * 0.7**2)), rtol=1e-5, atol=1e-12)


def test_a_row_at_its_center_has_a_whole_bump() -> None:
    centers = contiguous(np.random.default_rng(0).normal(size=(3, 2)))
    got = np.empty((3, 3))
    bump_rows(centers, centers, 1e-3, got)
    assert np.diag(got).tolist() == [1.0, 1.0, 1.0]

"""Passes in float64, against NumPy."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import special

from dubito.arrays import contiguous
from dubito.kernels.uncertainty import (
    entropy_parts,
    mean_tops,
    tally_rows,
    top_rows,
    variance_parts,
)

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]

each_precision = pytest.mark.parametrize("dtype", [np.float32, np.float64])
each_width = pytest.mark.parametrize("n_classes", [2, 3, 513, 1024, 1025])


def made(n_classes: int, dtype: Precision) -> Floats:
    rng = np.random.default_rng(n_classes)
    return rng.dirichlet(np.full(n_classes, 0.3), (4, 11)).astype(dtype)


@each_precision
@each_width
@pytest.mark.parametrize("first", [0, 3])
def test_parts_of_rows_from_the_first_on(dtype: Precision, n_classes: int, first: int) -> None:
    array = made(n_classes, dtype)
    flat, p = contiguous(array).reshape(4, -1), array[:, first:10].astype(np.float64)
    mean = p.mean(axis=0)
    total, aleatoric, epistemic = np.full((3, 10 - first), np.nan)
    entropy_parts(flat, first, n_classes, total, aleatoric, epistemic)
    close(total, special.entr(mean).sum(axis=1), rtol=1e-12)
    close(aleatoric, special.entr(p).sum(axis=2).mean(axis=0), rtol=1e-12)
    close(epistemic, special.kl_div(p, mean).sum(axis=2).mean(axis=0), rtol=1e-11)
    variance_parts(flat, first, n_classes, total, aleatoric, epistemic)
    close(total, (mean - mean**2).sum(axis=1), rtol=1e-12)
    close(aleatoric, (p - p**2).sum(axis=2).mean(axis=0), rtol=1e-12)
    close(epistemic, p.var(axis=0).sum(axis=1), rtol=1e-12)


def test_an_entry_just_above_1_turns_no_sign() -> None:
    above = np.nextafter(np.float32(1), np.float32(2))
    flat = contiguous(np.array([[above, 0], [above, 0]], np.float32))
    total, aleatoric, epistemic = np.full((3, 1), np.nan)
    for fill in (entropy_parts, variance_parts):
        fill(flat, 0, 2, total, aleatoric, epistemic)
        assert total[0] == aleatoric[0] == epistemic[0] == 0


@each_precision
@each_width
def test_tops_of_rows_and_of_their_mean(dtype: Precision, n_classes: int) -> None:
    array = made(n_classes, dtype)
    predicted, confidence = np.full(11, -1), np.empty(11, dtype)
    top_rows(contiguous(array[2]), predicted, confidence)
    assert (predicted == array[2].argmax(axis=1)).all()
    assert (confidence == array[2].max(axis=1)).all()
    chosen, share = np.full(9, -1), np.full(9, np.nan)
    mean_tops(contiguous(array).reshape(4, -1), 2, n_classes, chosen, share)
    mean = array.astype(np.float64).mean(axis=0)[2:]
    assert (chosen == mean.argmax(axis=1)).all()
    close(share, mean.max(axis=1) / mean.sum(axis=1), rtol=1e-12)


def test_tallies_add_weights_of_the_same_class_and_of_no_other_row() -> None:
    votes = np.array([[5, 1, 0], [2, 1, 3], [5, 0, 3]])
    weights = np.array([[1.0, 0.2, 2.0], [1.5, 0.2, 1.0], [1.0, 0.5, 1.0]])
    chosen, share = np.full(3, -1), np.full(3, np.nan)
    tally_rows(contiguous(votes), contiguous(weights), 6, chosen, share)
    assert chosen.tolist() == [5, 0, 0]
    close(share, [2 / 3.5, 0.5 / 0.9, 0.5])

"""Log probabilities, probabilities and log odds agree with SciPy in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import special

from dubito.arrays import contiguous
from dubito.kernels.scaling import log_softmax_rows, softmax_rows

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]
Make = Callable[..., tuple[Floats, NDArray[np.float64]]]

FLOOR = 1e-12
HIGHEST = float(np.log((1 - FLOOR) / FLOOR))

each_precision = pytest.mark.parametrize("dtype", [np.float32, np.float64])
each_width = pytest.mark.parametrize("n_classes", [2, 3, 64, 65, 300])
each_meaning = pytest.mark.parametrize("is_logits", [True, False], ids=["logits", "probabilities"])


@each_precision
@each_width
@each_meaning
@pytest.mark.parametrize("beta", [0.1, 1.0, 20.0])
def test_log_probabilities_equal_scipy(
    some_rows: Make, dtype: Precision, n_classes: int, is_logits: bool, beta: float
) -> None:
    array, logits = some_rows(n_classes, (25, n_classes), dtype, is_logits)
    result = np.full(array.shape, np.nan)
    log_softmax_rows(contiguous(array), beta, is_logits, FLOOR, result)
    expected = special.log_softmax(beta * logits, axis=1)
    close(result, expected, rtol=1e-12, atol=1e-13)


@each_precision
def test_log_probabilities_of_saturated_logits_are_kept(dtype: Precision) -> None:
    array = np.array([[1e4, -1e4, 0], [-1e4, -1e4, -1e4]], dtype)
    result = np.full(array.shape, np.nan)
    log_softmax_rows(contiguous(array), 1.0, True, FLOOR, result)
    third = float(np.log(1 / 3))
    close(result, [[0.0, -2e4, -1e4], [third] * 3], rtol=1e-12)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@each_precision
@each_width
def test_probabilities_equal_scipy(
    some_rows: Make, kind: Precision, dtype: Precision, n_classes: int
) -> None:
    scores, _ = some_rows(n_classes, (25, n_classes), kind, is_logits=True)
    result = np.full(scores.shape, np.nan, dtype)
    softmax_rows(contiguous(scores), FLOOR, result)
    expected = np.maximum(special.softmax(scores.astype(np.float64), axis=1), FLOOR)
    rtol = 1e-12 if kind is dtype is np.float64 else 2e-6
    close(result, expected, rtol=rtol)
    # What is lifted to the floor comes on top.
    close(result.sum(axis=1, dtype=np.float64), 1, rtol=rtol + n_classes * FLOOR)


@each_precision
def test_no_probability_is_below_the_floor(dtype: Precision) -> None:
    scores = np.array([[0, -30, -1e4], [1e4, -1e4, np.finfo(dtype).min]], dtype)
    result = np.full(scores.shape, np.nan, dtype)
    softmax_rows(contiguous(scores), FLOOR, result)
    assert (result[:, 1:] == dtype(FLOOR)).all()
    close(result[:, 0], 1, rtol=2e-13)


@st.composite
def close_scores(draw: Any) -> Floats:
    dtype: Precision = draw(st.sampled_from([np.float32, np.float64]))
    base = dtype(draw(st.sampled_from([0.0, 1.0, -3.7, 1e4, 1e-30])))
    shape = draw(st.tuples(st.integers(1, 3), st.sampled_from([2, 3, 70])))
    ulps = draw(hnp.arrays(np.int8, shape, elements=st.integers(-2, 2)))
    return np.asarray(base + ulps * np.spacing(base), dtype)


@pytest.mark.slow
@given(close_scores())
def test_the_first_highest_score_is_the_first_highest_probability(scores: Floats) -> None:
    result = np.full(scores.shape, np.nan, scores.dtype)
    softmax_rows(contiguous(scores), FLOOR, result)
    assert result.argmax(axis=1).tolist() == scores.argmax(axis=1).tolist()
    close(result, 1 / scores.shape[1], rtol=1e-2)

"""The minimum of a convex loss is found, whatever the preconditioner."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.arrays import FloatArray
from dubito.calibrate.affine import _minimize


def bowl(seed: int, size: int, steepness: float) -> tuple[FloatArray, FloatArray]:
    """Return the curvature and the lowest point of a quadratic."""
    rng = np.random.default_rng(seed)
    turned, _ = np.linalg.qr(rng.normal(size=(size, size)))
    return (turned * np.geomspace(1, steepness, size)) @ turned.T, rng.normal(size=size)


@given(st.integers(0, 1000), st.integers(1, 12), st.floats(1, 1e4), st.floats(0.3, 1e3))
def test_the_lowest_point_of_a_quadratic(
    seed: int, size: int, steepness: float, scale: float
) -> None:
    curvature, lowest = bowl(seed, size, steepness)

    def loss(x: FloatArray) -> tuple[float, FloatArray]:
        away = x - lowest
        return float(away @ curvature @ away) / 2, curvature @ away

    start = np.zeros(size)
    found = _minimize(loss, start, loss(start), lambda slope: scale * slope, 1e-12)
    assert loss(found)[0] < 1e-6 * loss(np.zeros(size))[0] + 1e-8


def test_the_right_guess_takes_one_step() -> None:
    curvature, lowest = bowl(0, 8, 1e4)
    seen: list[FloatArray] = []

    def loss(x: FloatArray) -> tuple[float, FloatArray]:
        seen.append(x)
        away = x - lowest
        return float(away @ curvature @ away) / 2, curvature @ away

    start = np.zeros(8)
    first = loss(start)
    found = _minimize(loss, start, first, lambda slope: np.linalg.solve(curvature, slope), 1e-12)
    assert len(seen) == 2
    np.testing.assert_allclose(found, lowest)


def test_it_stays_where_nothing_is_to_be_gained() -> None:
    flat = 0.0, np.zeros(3)
    assert (
        _minimize(lambda x: flat, np.ones(3), flat, lambda slope: slope, 1e-8).tolist() == [1] * 3
    )


@pytest.mark.parametrize("close", [1e-3, 1e-6, 1e-9])
def test_the_last_step_is_taken_unseen(close: float) -> None:
    curvature, lowest = bowl(1, 8, 10.0)
    seen: list[FloatArray] = []

    def loss(x: FloatArray) -> tuple[float, FloatArray]:
        seen.append(x)
        away = x - lowest
        return float(away @ curvature @ away) / 2, curvature @ away

    start = np.zeros(8)
    found = _minimize(loss, start, loss(start), lambda slope: slope / 5, close)
    before = list(seen)
    assert not any(np.array_equal(found, x) for x in before)
    assert loss(found)[0] < close


@pytest.mark.parametrize("scale", [0.1, 1.0, 1e4])
def test_a_loss_that_is_no_parabola(scale: float) -> None:
    weights = np.array([1.0, 2.0, 3.0])

    def loss(x: FloatArray) -> tuple[float, FloatArray]:
        return float(weights @ np.logaddexp(x, -x)), weights * np.tanh(x)

    start = np.array([-3.0, 1.0, 4.0])
    found = _minimize(loss, start, loss(start), lambda slope: scale * slope, 1e-12)
    np.testing.assert_allclose(found, 0, atol=1e-5)


def test_the_start_stays_untouched() -> None:
    start = np.ones(2)
    _minimize(lambda x: (float(x @ x), 2 * x), start, (2.0, 2 * start), lambda slope: slope, 1e-8)
    assert start.tolist() == [1.0, 1.0]

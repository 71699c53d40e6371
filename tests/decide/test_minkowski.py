"""Minkowski curves against SciPy's quadrature and closed forms, with global minima below q = 1."""

from fractions import Fraction
from functools import partial
from math import comb, factorial
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from dubito.decide import minkowski_curve
from dubito.errors import DubitoError, DubitoWarning

SKEWED, X = stats.gamma(2), np.linspace(0, 45, 451)
POWERS = (0.3, 1, 2, 10)


def two_modes(at: Any, weight: float = 0.6) -> Any:
    first, second = ((at - mean) / std for mean, std in ((-2, 0.5), (2, 0.7)))
    left, right = weight * np.exp(-(first**2) / 2) / 0.5, np.exp(-(second**2) / 2) / 0.7
    return (left + (1 - weight) * right) / np.sqrt(2 * np.pi)


def slope_of_two_modes(t: float, weight: float) -> float:
    """Return the derivative of E|y - t|^0.3 in t, that of the density integrated."""
    u, u_weights = np.polynomial.legendre.leggauss(400)
    u = (1 + u) / 2 * 10**0.1
    r = u**10  # takes out the kink at t

    def change(at: Any) -> Any:
        parts = ((weight, -2, 0.5), (1 - weight, 2, 0.7))
        shapes = [(w, (at - mean) / std, std) for w, mean, std in parts]
        return sum(
            -w * z * np.exp(-(z**2) / 2) / std**2 / np.sqrt(2 * np.pi) for w, z, std in shapes
        )

    inside = 10 * u**12 * (change(t + r) + change(t - r))
    return float((u_weights * inside).sum() * 10**0.1 / 2)


def expected(density: Any, t: float, q: float, low: float, high: float) -> float:
    """Return E|y - t|^q, its kink at t taken out by substitution: |y - t| = u^k."""
    k = 10.0 if q < 1 else 1.0

    def side(sign: int, length: float) -> float:
        return float(
            integrate.quad(
                lambda u: k * u ** (k * q + k - 1) * density(t + sign * u**k),
                0,
                length ** (1 / k),
                epsabs=1e-12,
                epsrel=1e-12,
                limit=400,
            )[0]
        )

    return side(-1, t - low) + side(1, high - t)


@pytest.mark.slow
@pytest.mark.parametrize("q", POWERS)
def test_losses_are_those_of_quadrature(q: float) -> None:
    found = minkowski_curve(SKEWED.pdf, X, q)
    for row in (10, 33, 100, 200):
        value = expected(SKEWED.pdf, X[row], q, 0, 45)
        assert found.loss[row] == pytest.approx(value, rel=1e-9)
    assert found.minimum == pytest.approx(expected(SKEWED.pdf, found.estimate, q, 0, 45), rel=1e-9)


@pytest.mark.slow
def test_mean_median_and_moments_are_exact() -> None:
    assert minkowski_curve(SKEWED.pdf, X, 2).estimate == pytest.approx(2, abs=1e-9)
    assert minkowski_curve(SKEWED.pdf, X, 2).minimum == pytest.approx(2, rel=1e-9)
    assert minkowski_curve(SKEWED.pdf, X, 1).estimate == pytest.approx(SKEWED.median(), abs=1e-9)

    # The minimizer of an even power is the root of a polynomial in the moments, here exact.
    def slope(t: Fraction) -> Fraction:
        return sum(
            ((-1) ** k * comb(9, k) * factorial(10 - k) * t**k for k in range(10)), Fraction()
        )

    low, high = Fraction(3), Fraction(6)
    assert slope(low) > 0 > slope(high)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    wide = np.linspace(0, 120, 601)  # the ninth moment has mass far out
    assert minkowski_curve(SKEWED.pdf, wide, 10).estimate == pytest.approx(float(low), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("weight", "mode"), [(0.6, -2), (0.35, 2)])
def test_below_1_the_deepest_of_several_valleys_is_found(weight: float, mode: float) -> None:
    x = np.linspace(-8, 8, 161)
    density = partial(two_modes, weight=weight)
    found = minkowski_curve(density, x, 0.3)
    assert abs(found.estimate - mode) < 0.5
    is_valley = (found.loss[1:-1] < found.loss[:-2]) & (found.loss[1:-1] < found.loss[2:])
    assert is_valley.sum() == 2
    loss = partial(expected, density, q=0.3, low=-8, high=8)
    valleys = [
        optimize.brentq(partial(slope_of_two_modes, weight=weight), *bounds, xtol=1e-12)
        for bounds in ((-3, -1), (1, 3))
    ]
    deepest = min(valleys, key=loss)
    assert found.estimate == pytest.approx(deepest, abs=1e-9)
    assert found.minimum == pytest.approx(loss(deepest), rel=1e-9)
    # The mean lies between the modes, where hardly any mass is.
    assert minkowski_curve(density, x, 2).estimate == pytest.approx(2 - 4 * weight, abs=1e-9)


@pytest.mark.parametrize("n_points", [101, 134])
@pytest.mark.parametrize("mode", [3.0, 3.1])
def test_narrow_modes_between_grid_points_are_compared(n_points: int, mode: float) -> None:
    parts = ((-3.0, 0.04), (mode, 0.03))

    def density(at: Any) -> Any:
        shapes = [np.exp(-(((at - mean) / std) ** 2) / 2) / std for mean, std in parts]
        return sum(shapes) / np.sqrt(8 * np.pi)

    def loss(t: float) -> float:
        # E|mean + std z|^q of a normal part, by Kummer's function.
        def moment(mean: float, std: float) -> float:
            scale = std**0.1 * 2**0.05 * special.gamma(0.55) / np.sqrt(np.pi)
            return float(scale * special.hyp1f1(-0.05, 0.5, -(((mean - t) / std) ** 2) / 2))

        return sum(moment(*part) for part in parts) / 2

    found = minkowski_curve(density, np.linspace(-10, 10, n_points), 0.1)
    best = optimize.minimize_scalar(loss, bounds=(mode - 0.1, mode + 0.1), method="bounded")
    assert loss(-3) > best.fun + 0.009  # the other mode
    assert found.minimum == pytest.approx(best.fun, rel=1e-9)
    assert found.estimate == pytest.approx(best.x, abs=1e-5)  # a search by values ends there


@pytest.mark.parametrize(("end", "beyond"), [(12, 0.81), (15, 0.48), (20, 0.1)])
def test_loss_beyond_the_grid_is_warned_about(end: float, beyond: float) -> None:
    x = np.linspace(0, end, 101)
    with pytest.warns(DubitoWarning, match=r"is beyond `x`, which ends at 0 and .*wider x") as seen:
        cut = minkowski_curve(SKEWED.pdf, x, 10)
    # The reference integrates as far beyond the end as the grid is long.
    tail = integrate.quad(lambda y: (y - cut.estimate) ** 10 * SKEWED.pdf(y), end, 2 * end)[0]
    assert f"at least {tail / (tail + cut.minimum):.2g} of" in str(seen[0].message)
    assert tail / (tail + cut.minimum) == pytest.approx(beyond, abs=0.01)


def test_a_density_that_ends_with_its_grid_is_complete() -> None:
    x = np.linspace(0, 1, 21)
    for density in (stats.uniform.pdf, np.ones_like):  # 0 beyond the end, or not known there
        assert minkowski_curve(density, x, 50).estimate == pytest.approx(0.5, abs=1e-9)
    slope = partial(np.interp, xp=[0, 1], fp=[0, 2])
    found = minkowski_curve(lambda y: slope(y), x, 2)
    assert found.estimate == pytest.approx(2 / 3, abs=1e-9)


def test_a_small_q_tends_to_the_minimizer_of_the_expected_log_distance() -> None:
    # Not to the mode, which is 1: E log|y - t| is stationary where Cauchy's integral is 0.
    def slope(t: float) -> float:
        near = integrate.quad(SKEWED.pdf, 0, 3, weight="cauchy", wvar=t)[0]
        return float(near + integrate.quad(lambda y: SKEWED.pdf(y) / (y - t), 3, np.inf)[0])

    expected = optimize.brentq(slope, 1, 2)
    found = minkowski_curve(SKEWED.pdf, np.linspace(0, 40, 101), 1e-6).estimate
    assert found == pytest.approx(expected, abs=1e-5)
    assert expected == pytest.approx(1.347, abs=5e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": 400}, r"`q` must leave \|y - t\|\^q within floating point .*width 45, got 400"),
        ({"q": 0}, r"`q` must be a finite number above 0, got 0\. Use q=2"),
        ({"q": np.inf}, "`q` must be"),
        ({"x": [0, 1]}, r"`x` must have at least 3 points, got 2"),
        ({"x": [0, 2, 1]}, r"`x` must be increasing"),
        ({"density": 3}, r"`density` must be a function of x, got int"),
        ({"density": lambda x: -np.ones(x.size)}, r"`density\(x\)` must be at least 0"),
        ({"x": np.linspace(0, 1, 11)}, r"must be a density with integral 1 over x, got 0\.26"),
    ],
)
def test_what_is_wrong_is_reported(change: Any, message: str) -> None:
    with pytest.raises(DubitoError, match=message):
        minkowski_curve(**{"density": SKEWED.pdf, "x": X, "q": 2, **change})

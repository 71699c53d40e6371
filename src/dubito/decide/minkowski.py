"""Expected Minkowski loss of a density, by quadrature: its curve over t and its global minimum."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
import scipy

from dubito.arrays import ArrayResult, FloatArray, as_number, as_numbers, freeze, require_everywhere
from dubito.errors import BadTypeError, BadValueError, DubitoError, DubitoWarning

N_NODES = 20
NODES, WEIGHTS = np.polynomial.legendre.leggauss(N_NODES)  # of each interval between grid points
MASS_TOLERANCE = 0.01  # a density may miss this much of its mass on the grid
TAIL_TOLERANCE = 1e-6  # the fraction of the expected loss that may be beyond the grid
MAX_LOG = 600.0  # of |y - t|^q over the whole grid, either way: floats end at about 709
HALVINGS = 5  # of grid intervals in which the minimum may be


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MinkowskiCurve(ArrayResult):
    """The expected |y - t|^q of a density.

    Attributes
    ----------
    q : float
        The power.
    t : array of float
        The estimates, the grid.
    loss : array of float
        The expected loss of each.
    estimate : float
        The estimate of least expected loss, of all t.
    minimum : float
        Its expected loss.
    """

    q: float
    t: FloatArray
    loss: FloatArray
    estimate: float
    minimum: float


def minkowski_curve(density: Callable[[FloatArray], Any], x: Any, q: float) -> MinkowskiCurve:
    """Return the expected |y - t|^q of a density over t, and the t that minimizes it.

    q = 2 gives the mean, q = 1 the median, a large q the middle of the range. As q goes to 0, the
    minimizer tends to that of E log|y - t|, a point near the mode but not the mode itself, unless
    the density is symmetric around a single one: texts that say "the mode" mean a loss of 0 within
    a small distance and 1 beyond. Below 1 the loss may have a local minimum at every mode of the
    density: all valleys are compared, also those between grid points. `minkowski_estimate` is for
    predictive distributions of many rows.

    Parameters
    ----------
    density : callable
        A density, as a function of an array; smooth between grid points.
    x : array
        An increasing grid of at least 3 points that covers the density: with a large q far into its
        tails. If more than a millionth of the expected loss is beyond, a warning says so.
    q : float
        The power, above 0.

    Returns
    -------
    MinkowskiCurve

    References
    ----------
    Bishop, "Pattern recognition and machine learning", 2006, section 1.5.5.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito.decide import minkowski_curve
    >>> from scipy.stats import gamma
    >>> skewed, x = gamma(2).pdf, np.linspace(0, 40, 101)
    >>> [round(minkowski_curve(skewed, x, q).estimate, 3) for q in (0.3, 1, 2, 10)]
    [1.448, 1.678, 2.0, 4.435]
    """
    caller = "minkowski_curve"
    fix = "Use q=2 for the mean, q=1 for the median"
    power = as_number(q, "q", caller, 0, fix=fix, is_open=True)
    grid = as_grid(x, caller, 3)
    width = float(grid[-1] - grid[0])
    if abs(power * np.log(width)) > MAX_LOG:
        rule = f"must leave |y - t|^q within floating point on an x of width {width:.4g}"
        raise BadValueError("q", caller, rule, f"{power:g}", "Use a smaller q, or rescale y")
    cells = _Cells.of(density, grid, caller)
    loss = np.array([sum(cells.moments(t, power)) for t in grid])
    estimate, minimum = _global_minimum(cells, grid, loss, power)
    beyond = cells.loss_beyond(estimate, power)
    if beyond > TAIL_TOLERANCE * minimum:
        fraction = beyond / (beyond + minimum)
        text = (
            f"{caller}: at least {fraction:.2g} of the expected |y - t|^{power:g} is beyond `x`, "
            f"which ends at {grid[0]:g} and {grid[-1]:g}. Use a wider x."
        )
        warnings.warn(text, DubitoWarning, stacklevel=2)
    return MinkowskiCurve(power, freeze(grid), freeze(loss), estimate, minimum)


def _global_minimum(
    cells: _Cells, grid: FloatArray, loss: FloatArray, q: float
) -> tuple[float, float]:
    """Return the deepest of all valleys, each refined where the slope changes its sign."""

    def slope(t: float) -> float:
        left, right = cells.moments(t, q - 1)
        return left - right

    best = float(grid[loss.argmin()]), float(loss.min())
    if q < 1:  # otherwise the loss is convex
        steepest = cells.steepest(q)
        for _ in range(HALVINGS):
            lowest = (loss[:-1] + loss[1:] - steepest * np.diff(grid)) / 2  # possible in between
            rows = np.flatnonzero(lowest < loss.min())
            middles = (grid[rows] + grid[rows + 1]) / 2
            found = [sum(cells.moments(t, q)) for t in middles]
            grid, loss = np.insert(grid, rows + 1, middles), np.insert(loss, rows + 1, found)
            steepest = np.insert(steepest, rows + 1, steepest[rows])
    padded = np.concatenate([[np.inf], loss, [np.inf]])
    for row in np.flatnonzero((loss <= padded[:-2]) & (loss <= padded[2:])).tolist():
        low, high = (float(grid[min(max(row + step, 0), grid.size - 1)]) for step in (-1, 1))
        if slope(low) < 0 < slope(high):
            t = float(scipy.optimize.brentq(slope, low, high, xtol=1e-14))
            reached = sum(cells.moments(t, q))
            if reached < best[1]:
                best = t, reached
    return best


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """A density at the Gauss-Legendre nodes of each interval of a grid."""

    density: Callable[[FloatArray], FloatArray]
    grid: FloatArray
    points: FloatArray  # intervals x nodes
    weights: FloatArray  # intervals x nodes
    masses: FloatArray  # intervals x nodes: weight times density

    @classmethod
    def of(cls, density: Any, grid: FloatArray, caller: str) -> _Cells:
        """Check the density, and evaluate it."""
        if not callable(density):
            rule, fix = "must be a function of x", "Pass the pdf of a scipy.stats distribution"
            raise BadTypeError("density", caller, rule, type(density).__name__, fix)

        def checked(at: FloatArray) -> FloatArray:
            return as_densities(density(at), at, "density(x)", caller)

        half = np.diff(grid)[:, np.newaxis] / 2
        points = grid[:-1, np.newaxis] + half * (1 + NODES)
        weights = half * WEIGHTS
        masses = checked(points.ravel()).reshape(points.shape) * weights
        require_mass(float(masses.sum()), "density", caller)
        return cls(checked, grid, points, weights, masses)

    def steepest(self, q: float) -> FloatArray:
        """Return a bound of the slope of the expected loss in each interval, for q below 1.

        If no density within d of t exceeds h, the slope is at most 2 h d^q + q d^(q - 1).
        """
        highest = np.pad((self.masses / self.weights).max(axis=1), 1)
        widths = np.pad(np.diff(self.grid), 1, mode="edge")
        h = np.maximum(highest[1:-1], np.maximum(highest[:-2], highest[2:]))
        with np.errstate(divide="ignore", over="ignore"):
            d = np.minimum(np.minimum(widths[:-2], widths[2:]), (1 - q) / (2 * h))
        return np.asarray(2 * h * d**q + q * d ** (q - 1))

    def loss_beyond(self, t: float, power: float) -> float:
        """Return the expected loss that the same number of intervals beyond each end adds.

        0 if the function is no density there, where it may be defined on the grid alone.
        """
        first, last, mass = self.grid[0], self.grid[-1], float(self.masses.sum())
        mirrored = [2 * first - self.points.ravel(), 2 * last - self.points.ravel()]
        try:
            with np.errstate(all="ignore"):
                masses = [self.density(at) * self.weights.ravel() for at in mirrored]
        except (DubitoError, ArithmeticError, LookupError, ValueError):
            return 0.0
        if mass + sum(one.sum() for one in masses) > 1 + MASS_TOLERANCE:
            return 0.0
        return float(
            sum((np.abs(y - t) ** power * m).sum() for y, m in zip(mirrored, masses, strict=True))
        )

    def moments(self, t: float, power: float) -> tuple[float, float]:
        """Return the integrals of |y - t|^power left and right of t, for a power above -1.

        In the interval of t and its neighbors, where |y - t|^power is not smooth, the nodes are
        those of Gauss and Jacobi for this weight.
        """
        last = self.grid.size - 2
        own = int(np.clip(np.searchsorted(self.grid, t) - 1, 0, last))
        first, final_ = max(own - 1, 0), min(own + 1, last)
        left = float(((t - self.points[:first]) ** power * self.masses[:first]).sum())
        beyond = slice(final_ + 1, None)
        right = float(((self.points[beyond] - t) ** power * self.masses[beyond]).sum())
        left += self._near(t, t - self.grid[first], -1, power)
        right += self._near(t, self.grid[final_ + 1] - t, 1, power)
        return left, right

    def _near(self, t: float, length: float, side: int, power: float) -> float:
        """Return the integral of r^power times the density at t + side * r, for r up to length."""
        if length <= 0:
            return 0.0
        nodes, weights = _jacobi(power)
        at = length * (1 + nodes) / 2
        values = self.density(np.asarray(t + side * at))
        return float((length / 2) ** (power + 1) * (weights * values).sum())


@lru_cache
def _jacobi(power: float) -> tuple[FloatArray, FloatArray]:
    """Return the nodes and weights of Gauss and Jacobi for the weight (1 + x)^power."""
    nodes, weights = scipy.special.roots_jacobi(N_NODES, 0.0, power)
    return freeze(nodes), freeze(weights)


def as_grid(x: Any, caller: str, n_least: int) -> FloatArray:
    """Return at least some increasing points."""
    grid = as_numbers(x, "x", caller, shape="a list of numbers").astype(np.float64)
    if grid.size < n_least:
        rule, fix = f"must have at least {n_least} points", "Use np.linspace(low, high, 201)"
        raise BadValueError("x", caller, rule, str(grid.size), fix)
    is_fine = np.diff(grid, prepend=-np.inf) > 0
    require_everywhere(is_fine, grid, "x", caller, "must be increasing", "Use np.unique(x)")
    return grid


def as_densities(values: Any, x: FloatArray, argument: str, caller: str) -> FloatArray:
    """Return one nonnegative density per point."""
    shape = "one number per point of x"
    found = as_numbers(values, argument, caller, x.size, "x", shape).astype(np.float64)
    rule, fix = "must be at least 0", "Pass densities, not their logarithms"
    require_everywhere(found >= 0, found, argument, caller, rule, fix)
    return found


def require_mass(mass: float, argument: str, caller: str) -> None:
    """Raise unless a density has about its whole mass on a grid."""
    if abs(mass - 1) > MASS_TOLERANCE:
        rule, fix = "must be a density with integral 1 over x", "Use a wider or a finer x"
        raise BadValueError(argument, caller, rule, f"{mass:.4g}", fix)

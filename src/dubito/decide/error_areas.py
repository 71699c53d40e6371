"""Two classes along one feature: the areas of error, and the boundaries that minimize them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy

from dubito.arrays import (
    ArrayResult,
    FloatArray,
    IntArray,
    as_distributions,
    as_floats,
    as_list,
    as_numbers,
    freeze,
    require_dimensions,
    require_everywhere,
)
from dubito.decide.costs import CostMatrix
from dubito.decide.regions import as_constant_costs
from dubito.errors import BadValueError

Density = Callable[[FloatArray], FloatArray]

NODES, WEIGHTS = np.polynomial.legendre.leggauss(5)  # of each interval between grid points
MASS_TOLERANCE = 0.01  # a density may miss this much of its mass on the grid


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IntervalDecision(ArrayResult):
    """The class decided in each interval of a feature, and the resulting errors.

    Attributes
    ----------
    boundaries : array of float
        The ends of the intervals, increasing.
    decided : array of int
        The class of each interval, one more than there are boundaries.
    missed : array of float
        Per class, the fraction of all rows of this class that are misclassified.
    cost : float
        The mean cost per row.
    """

    boundaries: FloatArray
    decided: IntArray
    missed: FloatArray
    cost: float

    def at(self, x: Any) -> Any:
        """Return the class decided at each x; a boundary belongs to the interval on its left."""
        return self.decided[np.searchsorted(self.boundaries, x)]


@final
@dataclass(frozen=True, slots=True, eq=False)
class ErrorAreas:
    """Joint densities of two classes, a decision, and the optimal decision.

    Attributes
    ----------
    x : array of float
        The grid.
    joint : array of float, classes x points
        The joint densities p(x, class).
    costs : CostMatrix
        The costs of the two actions.
    decision, best : IntervalDecision
        `missed[1]` is the integral of p(x, C2) over R1, `missed[0]` that of p(x, C1) over R2.
    """

    x: FloatArray
    joint: FloatArray
    costs: CostMatrix
    decision: IntervalDecision
    best: IntervalDecision

    def __repr__(self) -> str:
        cost, best = self.decision.cost, self.best.cost
        return f"ErrorAreas({self.x.size:,} points, cost {cost:.4g}, at best {best:.4g})"

    @property
    def avoidable(self) -> float:
        """The mean cost per row above that of the optimal boundaries."""
        return self.decision.cost - self.best.cost


def error_areas(
    priors: Any,
    densities: Any,
    x: Any,
    boundary: Any = None,
    *,
    costs: CostMatrix | None = None,
) -> ErrorAreas:
    """Return the areas of error of a decision boundary, and the optimal boundaries.

    Parameters
    ----------
    priors : array of 2 floats
        The class priors.
    densities : pair of callables or arrays
        The class-conditional densities, as functions of x or as values on the grid.
    x : array
        An increasing grid that covers both densities.
    boundary : float or array, optional
        The first class is decided on its left, and the classes alternate at each boundary. By
        default the optimal boundaries.
    costs : CostMatrix, optional
        Two actions and two classes without reject. By default every error costs 1.

    Returns
    -------
    ErrorAreas

    References
    ----------
    Bishop, "Pattern recognition and machine learning", 2006, figure 1.24.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> pair = norm(-1, 1).pdf, norm(1, 1).pdf
    >>> error_areas([0.5, 0.5], pair, np.linspace(-9, 9, 99), 1).decision.missed.round(4).tolist()
    [0.0114, 0.25]
    """
    caller = "error_areas"
    grid = _as_increasing(x, "x", caller)
    table = CostMatrix.zero_one(2) if costs is None else _as_two_by_two(costs, caller)
    joint = _as_joint(priors, densities, grid, caller)
    best = _best_decision(joint, grid, table)
    decision = best
    if boundary is not None:
        cuts = _as_cuts(boundary, grid, caller)
        decision = _decision_of(joint, grid, table, cuts, np.arange(cuts.size + 1) % 2)
    values = np.stack([one(grid) for one in joint])
    return ErrorAreas(freeze(grid), freeze(values), table, decision, best)


def _best_decision(joint: list[Density], x: FloatArray, costs: CostMatrix) -> IntervalDecision:
    """Decide by the sign of the cost difference of the two actions."""
    surplus = costs.array[1] - costs.array[0]

    def gain(at: Any) -> Any:
        return surplus[0] * joint[0](np.asarray(at)) + surplus[1] * joint[1](np.asarray(at))

    gains = gain(x)
    # Where both densities vanish, the neighboring interval continues.
    rows = np.flatnonzero(gains)
    is_second = gains[rows] < 0
    turns = np.flatnonzero(is_second[1:] != is_second[:-1])
    ends = zip(x[rows[turns]], x[rows[turns + 1]], strict=True)
    cuts = [scipy.optimize.brentq(lambda at: float(gain([at])[0]), *pair) for pair in ends]
    start = int(is_second[0]) if rows.size else 0
    decided = (start + np.arange(len(cuts) + 1)) % 2
    return _decision_of(joint, x, costs, np.array(cuts, dtype=np.float64), decided)


def _decision_of(
    joint: list[Density], x: FloatArray, costs: CostMatrix, cuts: FloatArray, decided: IntArray
) -> IntervalDecision:
    """Integrate each class over the intervals of each action."""
    edges = np.union1d(x, cuts)
    # No interval contains a boundary, and a boundary belongs to the interval on its left.
    action = decided[np.searchsorted(cuts, edges[1:])]
    masses = np.stack([_masses_of(one, edges) for one in joint])
    # Actions x classes: the joint probability of action and class.
    met = np.stack([(masses * (action == number)).sum(axis=1) for number in (0, 1)])
    cost = float((costs.array * met).sum())
    missed = np.array([met[1, 0], met[0, 1]])
    return IntervalDecision(freeze(cuts), freeze(decided), freeze(missed), cost)


def _masses_of(density: Density, edges: FloatArray) -> FloatArray:
    """Return the integral of a density between neighboring edges (Gauss-Legendre)."""
    half = np.diff(edges) / 2
    points = (edges[:-1] + half)[:, np.newaxis] + half[:, np.newaxis] * NODES
    values = density(points.ravel()).reshape(points.shape)
    return np.asarray((values @ WEIGHTS) * half)


def _as_joint(priors: Any, densities: Any, x: FloatArray, caller: str) -> list[Density]:
    """Return two functions, each the prior of a class times its density."""
    prior = as_floats(priors, "priors", caller).astype(np.float64)
    if prior.shape != (2,):
        rule, fix = "must be 2 probabilities, one per class", "Use priors=[0.5, 0.5]"
        raise BadValueError("priors", caller, rule, f"shape {prior.shape}", fix)
    prior = as_distributions(prior[np.newaxis], "priors", caller)[0]
    rule = "must be 2 densities, one per class"
    fix = "Pass two functions of x, or two arrays of the length of x"
    listed = as_list(densities, "densities", caller, rule, fix)
    if len(listed) != 2:
        raise BadValueError("densities", caller, rule, f"{len(listed)}", fix)
    return [
        _as_density(one, float(prior[number]), x, f"densities[{number}]", caller)
        for number, one in enumerate(listed)
    ]


def _as_density(value: Any, prior: float, x: FloatArray, argument: str, caller: str) -> Density:
    """Return a prior times a nonnegative function that integrates to 1 over the grid.

    Values on the grid are interpolated linearly.
    """
    values = _as_values(value(x) if callable(value) else value, x, argument, caller)

    def density(at: FloatArray) -> FloatArray:
        if callable(value):
            return _as_values(value(at), at, argument, caller)
        return np.asarray(np.interp(at, x, values))

    mass = float(_masses_of(density, x).sum())
    if abs(mass - 1) > MASS_TOLERANCE:
        rule, fix = "must be a density with integral 1 over x", "Use a wider or a finer x"
        raise BadValueError(argument, caller, rule, f"{mass:.4g}", fix)
    return lambda at: prior * density(at)


def _as_values(value: Any, x: FloatArray, argument: str, caller: str) -> FloatArray:
    """Return one nonnegative density per point."""
    shape = "one number per point of x"
    array = as_numbers(value, argument, caller, x.size, "x", shape).astype(np.float64)
    rule, fix = "must be at least 0", "Pass densities, not their logarithms"
    require_everywhere(array >= 0, array, argument, caller, rule, fix)
    return array


def _as_increasing(value: Any, argument: str, caller: str) -> FloatArray:
    """Return at least two increasing points."""
    array = as_numbers(value, argument, caller, shape="a list of numbers").astype(np.float64)
    if array.size < 2:
        rule, fix = "must have at least 2 points", "Use np.linspace(low, high, 201)"
        raise BadValueError(argument, caller, rule, str(array.size), fix)
    is_fine, rule = np.diff(array, prepend=-np.inf) > 0, "must be increasing"
    require_everywhere(is_fine, array, argument, caller, rule, "Use np.unique(x)")
    return array


def _as_cuts(boundary: Any, x: FloatArray, caller: str) -> FloatArray:
    """Return one boundary, or several that increase, all inside x."""
    cuts = as_floats(np.atleast_1d(boundary), "boundary", caller).astype(np.float64)
    require_dimensions(cuts, (1,), "boundary", caller, "a number, or increasing numbers")
    is_fine = (np.diff(cuts, prepend=-np.inf) > 0) & (cuts >= x[0]) & (cuts <= x[-1])
    rule = f"must be increasing, from {x[0]:g} to {x[-1]:g} like x"
    require_everywhere(is_fine, cuts, "boundary", caller, rule, "Pass sorted numbers inside x")
    return cuts


def _as_two_by_two(costs: Any, caller: str) -> CostMatrix:
    """Return costs of two actions, neither of them reject, in two classes."""
    table = as_constant_costs(costs, caller)
    if table.array.shape != (2, 2) or table.reject is not None:
        got = f"{table.n_actions} x {table.n_classes}"
        got += "" if table.reject is None else f", {table.actions[table.reject]!r} to reject"
        rule = "must have 2 actions and 2 classes, without reject"
        fix = "Use CostMatrix.from_errors(...)"
        raise BadValueError("costs", caller, rule, got, fix)
    return table.for_classes(table.classes, 2)

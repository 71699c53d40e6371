"""Two classes along one feature: the areas of error, and the boundaries that make them least."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
from scipy import optimize

from dubito.arrays import (
    FloatArray,
    IntArray,
    as_distributions,
    as_finite,
    as_floats,
    as_list,
    freeze,
    require_dimensions,
    require_everywhere,
    require_rows,
)
from dubito.decide.costs import CostMatrix
from dubito.decide.regions import as_constant_costs
from dubito.errors import BadValueError

Density = Callable[[FloatArray], FloatArray]

NODES, WEIGHTS = np.polynomial.legendre.leggauss(5)  # of each interval between grid points
MASS_TOLERANCE = 0.01  # a density that leaves more than this of its mass outside is refused


@final
@dataclass(frozen=True, slots=True, eq=False)
class IntervalDecision:
    """Which class is decided in which interval, and what it costs.

    `decided` has one class more than there are `boundaries`, from left to right. `missed` is the
    share of all rows that are of each class and decided otherwise, `cost` the mean cost a row.
    """

    boundaries: FloatArray
    decided: IntArray
    missed: FloatArray
    cost: float

    def at(self, x: Any) -> Any:
        """Return the class decided at each of x, at a boundary that to its left."""
        return self.decided[np.searchsorted(self.boundaries, x)]


@final
@dataclass(frozen=True, slots=True, eq=False)
class ErrorAreas:
    """Joint densities of two classes, classes x points, a decision, and the best decision.

    `missed[1]` of a decision is the integral of p(x, C2) over R1, `missed[0]` that of p(x, C1)
    over R2.
    """

    x: FloatArray
    joint: FloatArray
    costs: CostMatrix
    decision: IntervalDecision
    best: IntervalDecision

    @property
    def avoidable(self) -> float:
        """How much more a row costs than with the best boundaries."""
        return self.decision.cost - self.best.cost


def error_areas(
    priors: Any,
    densities: Any,
    x: Any,
    boundary: Any = None,
    *,
    costs: CostMatrix | None = None,
) -> ErrorAreas:
    """Return the two areas of error of a boundary, and the boundaries that cost least.

    `densities` are two functions of x, or two arrays on the points `x` with straight lines between.
    Left of `boundary` the first class is decided, and at each of several they take turns; without
    it the decision is the best one, whose boundaries are found where points of `x` disagree.
    Bishop, "Pattern recognition and machine learning", 2006, figure 1.24.

    >>> from scipy.stats import norm
    >>> pair = norm(-1, 1).pdf, norm(1, 1).pdf
    >>> error_areas([0.5, 0.5], pair, np.linspace(-9, 9, 99), 1).decision.missed.round(4).tolist()
    [0.0114, 0.25]
    """
    caller = "error_areas"
    grid = _as_rising(x, "x", caller)
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
    """Decide by the sign of what the second action costs more than the first."""
    surplus = costs.array[1] - costs.array[0]

    def gain(at: Any) -> Any:
        return surplus[0] * joint[0](np.asarray(at)) + surplus[1] * joint[1](np.asarray(at))

    gains = gain(x)
    # Where both densities vanish there is nothing to decide: the neighbors' interval goes on.
    told = np.flatnonzero(gains)
    is_second = gains[told] < 0
    turns = np.flatnonzero(is_second[1:] != is_second[:-1])
    cuts = [
        optimize.brentq(lambda at: float(gain([at])[0]), x[told[turn]], x[told[turn + 1]])
        for turn in turns
    ]
    start = int(is_second[0]) if told.size else 0
    decided = (start + np.arange(len(cuts) + 1)) % 2
    return _decision_of(joint, x, costs, np.array(cuts, dtype=np.float64), decided)


def _decision_of(
    joint: list[Density], x: FloatArray, costs: CostMatrix, cuts: FloatArray, decided: IntArray
) -> IntervalDecision:
    """Integrate each class over the intervals of each action."""
    edges = np.union1d(x, cuts)
    # An interval ends at most at a boundary, and there the class to its left is decided.
    action = decided[np.searchsorted(cuts, edges[1:])]
    masses = np.stack([_masses_of(one, edges) for one in joint])
    # Actions x classes: how much of all rows is of a class and gets an action.
    met = np.stack([(masses * (action == number)).sum(axis=1) for number in (0, 1)])
    cost = float((costs.array * met).sum())
    missed = np.array([met[1, 0], met[0, 1]])
    return IntervalDecision(freeze(cuts), freeze(decided), freeze(missed), cost)


def _masses_of(density: Density, edges: FloatArray) -> FloatArray:
    """Return the integral of a density between each two edges, by Gauss and Legendre's rule."""
    half = np.diff(edges) / 2
    points = (edges[:-1] + half)[:, np.newaxis] + half[:, np.newaxis] * NODES
    values = density(points.ravel()).reshape(points.shape)
    return np.asarray((values @ WEIGHTS) * half)


def _as_joint(priors: Any, densities: Any, x: FloatArray, caller: str) -> list[Density]:
    """Return two functions, each the prior of a class times its density."""
    shares = as_floats(priors, "priors", caller).astype(np.float64)
    rule, fix = "2 shares, one a class", "priors=[0.5, 0.5]"
    if shares.shape != (2,):
        raise BadValueError("priors", caller, rule, f"shape {shares.shape}", fix)
    shares = as_distributions(shares[np.newaxis], "priors", caller)[0]
    fix = "two functions of x, or two arrays of the length of x"
    listed = as_list(densities, "densities", caller, "two densities, one a class", fix)
    if len(listed) != 2:
        got = f"{len(listed)} of them"
        raise BadValueError("densities", caller, "two densities, one a class", got, fix)
    joint: list[Density] = []
    for number, (share, one) in enumerate(zip(shares.tolist(), listed, strict=True)):
        density = _as_density(one, x, f"densities[{number}]", caller)
        joint.append(partial(_scaled, density, share))
    return joint


def _scaled(density: Density, share: float, x: FloatArray) -> FloatArray:
    """Return a density times its prior."""
    return share * density(x)


def _as_density(value: Any, x: FloatArray, argument: str, caller: str) -> Density:
    """Return a function of x that is not below 0 on its points and has its mass among them."""
    values = _as_values(value(x) if callable(value) else value, x, argument, caller)
    density: Density = partial(_straight, x, values)
    if callable(value):
        density = partial(_called, value, argument, caller)
    mass = float(_masses_of(density, x).sum())
    if abs(mass - 1) > MASS_TOLERANCE:
        rule, fix = "a density whose integral over x is 1", "a wider or a finer x"
        raise BadValueError(argument, caller, rule, f"{mass:.4g}", fix)
    return density


def _straight(x: FloatArray, values: FloatArray, at: FloatArray) -> FloatArray:
    """Return what lies on straight lines between the values at the points x."""
    return np.asarray(np.interp(at, x, values))


def _called(function: Any, argument: str, caller: str, x: FloatArray) -> FloatArray:
    """Return what a density says at each of x, checked."""
    return _as_values(function(x), x, argument, caller)


def _as_values(value: Any, x: FloatArray, argument: str, caller: str) -> FloatArray:
    """Return one density a point, 0 or above."""
    array = as_finite(as_floats(value, argument, caller), argument, caller).astype(np.float64)
    require_dimensions(array, (1,), argument, caller, "one number per point of x")
    require_rows(array, x.size, argument, caller, "x")
    require_everywhere(array >= 0, array, argument, caller, "0 or above", "densities, not logs")
    return array


def _as_rising(value: Any, argument: str, caller: str) -> FloatArray:
    """Return two or more points, each above the one before."""
    array = as_finite(as_floats(value, argument, caller), argument, caller).astype(np.float64)
    require_dimensions(array, (1,), argument, caller, "one number per point")
    if array.size < 2:
        rule, fix = "2 points or more", "np.linspace(low, high, 201)"
        raise BadValueError(argument, caller, rule, str(array.size), fix)
    is_rising = np.diff(array, prepend=-np.inf) > 0
    require_everywhere(is_rising, array, argument, caller, "rising", "np.unique(x)")
    return array


def _as_cuts(boundary: Any, x: FloatArray, caller: str) -> FloatArray:
    """Return one boundary, or several that rise, all inside x."""
    cuts = as_floats(np.atleast_1d(boundary), "boundary", caller).astype(np.float64)
    require_dimensions(cuts, (1,), "boundary", caller, "a number, or rising numbers")
    is_fine = (np.diff(cuts, prepend=-np.inf) > 0) & (cuts >= x[0]) & (cuts <= x[-1])
    rule = f"rising, from {x[0]:g} to {x[-1]:g} as x is"
    require_everywhere(is_fine, cuts, "boundary", caller, rule, "numbers in order inside x")
    return cuts


def _as_two_by_two(costs: Any, caller: str) -> CostMatrix:
    """Return costs of two actions, neither of them reject, in two classes."""
    table = as_constant_costs(costs, caller)
    if table.array.shape != (2, 2) or table.reject is not None:
        got = f"{table.n_actions} x {table.n_classes}"
        got += "" if table.reject is None else f", {table.actions[table.reject]!r} to reject"
        rule, fix = "2 actions x 2 classes, without reject", "CostMatrix.from_errors(...)"
        raise BadValueError("costs", caller, rule, got, fix)
    return table

"""Classes along one feature: the areas of error, and the boundaries that minimize the cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy

from dubito.arrays import (
    ArrayResult,
    BoolArray,
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
ROUNDING = 1e-12  # costs this close, relative to the largest, are equal
MASS_TOLERANCE = 0.01  # a density may miss this much of its mass on the grid


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IntervalDecision(ArrayResult):
    """The action taken in each interval of a feature, and the resulting errors.

    An action is correct for a class if it is the cheapest one there; for 0-1 costs it is that class
    itself. Rejecting is neither correct nor a mistake.

    Attributes
    ----------
    boundaries : array of float
        The ends of the intervals, increasing.
    decided : array of int
        The action of each interval, one more than there are boundaries.
    missed : array of float
        Per class, the fraction of all rows that are of this class and get a wrong action.
    correct : array of float
        Per class, the fraction of all rows that are of this class and get its correct action.
    cost : float
        The mean cost per row.
    """

    boundaries: FloatArray
    decided: IntArray
    missed: FloatArray
    correct: FloatArray
    cost: float

    @property
    def p_correct(self) -> float:
        """The probability of a correct decision."""
        return float(self.correct.sum())

    @property
    def p_mistake(self) -> float:
        """The probability of a mistake; with p_correct it sums to 1 unless rows are rejected."""
        return float(self.missed.sum())

    def at(self, x: Any) -> Any:
        """Return the action taken at each x; a boundary belongs to the interval on its left."""
        return self.decided[np.searchsorted(self.boundaries, x)]


@final
@dataclass(frozen=True, slots=True, eq=False)
class ErrorAreas:
    """Joint densities of the classes, a decision, and the optimal decision.

    Attributes
    ----------
    x : array of float
        The grid.
    joint : array of float, classes x points
        The joint densities p(x, class).
    costs : CostMatrix
        The costs of the actions.
    decision, best : IntervalDecision
        For two classes `missed[1]` is the integral of p(x, C2) over R1, `missed[0]` that of
        p(x, C1) over R2.
    """

    x: FloatArray
    joint: FloatArray
    costs: CostMatrix
    decision: IntervalDecision
    best: IntervalDecision

    def __repr__(self) -> str:
        cost, best = self.decision.cost, self.best.cost
        return f"ErrorAreas({self.x.size:,} points, cost {cost:.4g}, at best {best:.4g})"

    def is_mistake(self, action: int) -> BoolArray:
        """Return for which classes an action is a mistake."""
        is_rejected = action == self.costs.reject
        return np.asarray(~_correct_actions(self.costs)[action] & (not is_rejected))

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
    decided: Any = None,
    costs: CostMatrix | None = None,
) -> ErrorAreas:
    """Return the areas of error of decision boundaries, and the optimal boundaries.

    Parameters
    ----------
    priors : array of K floats
        The class priors.
    densities : list of K callables or arrays
        The class-conditional densities, as functions of x or as values on the grid.
    x : array
        An increasing grid that covers all densities. Regions narrower than its steps may be missed.
    boundary : float or array, optional
        The boundaries between intervals. By default the optimal ones.
    decided : array of int, optional
        The action of each interval, one more than there are boundaries. By default the classes in
        order, starting again after the last: two classes alternate.
    costs : CostMatrix, optional
        Any actions, also to reject, and K classes. By default every error costs 1.

    Returns
    -------
    ErrorAreas

    References
    ----------
    Bishop, "Pattern recognition and machine learning", 2006, section 1.5 and figure 1.24.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> pair = norm(-1, 1).pdf, norm(1, 1).pdf
    >>> error_areas([0.5, 0.5], pair, np.linspace(-9, 9, 99), 1).decision.missed.round(4).tolist()
    [0.0114, 0.25]

    >>> three = [norm(mean, 1).pdf for mean in (-2, 0, 2)]
    >>> best = error_areas([0.25, 0.5, 0.25], three, np.linspace(-9, 9, 99)).best
    >>> best.boundaries.round(3).tolist(), round(best.p_correct, 4)
    ([-1.347, 1.347], 0.7826)
    """
    caller = "error_areas"
    grid = _as_increasing(x, "x", caller)
    joint = _as_joint(priors, densities, grid, caller)
    table = CostMatrix.zero_one(len(joint)) if costs is None else as_constant_costs(costs, caller)
    table = table.for_classes(table.classes, len(joint))
    best = _best_decision(joint, grid, table)
    decision = best
    if boundary is not None:
        cuts = _as_cuts(boundary, grid, caller)
        actions = _as_decided(decided, cuts.size + 1, len(joint), table, caller)
        decision = _decision_of(joint, grid, table, cuts, actions)
    values = np.stack([one(grid) for one in joint])
    return ErrorAreas(freeze(grid), freeze(values), table, decision, best)


def _best_decision(joint: list[Density], x: FloatArray, costs: CostMatrix) -> IntervalDecision:
    """Take the cheapest action at each grid point, and find where it changes between points."""

    def expected(at: Any) -> FloatArray:
        points = np.atleast_1d(np.asarray(at, dtype=np.float64))
        return costs.array @ np.stack([one(points) for one in joint])

    values = expected(x)
    # Where all densities vanish, the neighboring interval continues.
    rows = np.flatnonzero(np.ptp(values, axis=0))
    cheapest = _cheapest(values[:, rows], costs.reject)
    cuts: list[float] = []
    decided = [int(cheapest[0]) if rows.size else 0]
    for turn in np.flatnonzero(np.diff(cheapest)):
        ends = float(x[rows[turn]]), float(x[rows[turn + 1]])
        actions = int(cheapest[turn]), int(cheapest[turn + 1])
        for cut, action in _turns(expected, ends, actions, costs.reject):
            cuts.append(cut)
            decided.append(action)
    return _decision_of(joint, x, costs, np.array(cuts, dtype=np.float64), np.array(decided))


def _cheapest(costs: FloatArray, reject: int | None) -> IntArray:
    """Return the cheapest action of each column; reject wins ties."""
    order = sorted(range(len(costs)), key=lambda action: action != reject)
    return np.asarray(np.array(order)[costs[order].argmin(axis=0)])


def _turns(
    expected: Callable[[Any], FloatArray],
    ends: tuple[float, float],
    actions: tuple[int, int],
    reject: int | None,
) -> list[tuple[float, int]]:
    """Return where the cheapest action changes between two points, and to which action.

    If a third action is cheaper where the two cost the same, both sides are searched.
    """
    left, right = actions

    def gap(at: float) -> float:
        costs = expected(at)
        return float((costs[left] - costs[right])[0])

    # A tie at an end is a change there.
    at_ends = [gap(end) for end in ends]
    if 0 in at_ends:
        root = ends[at_ends.index(0)]
    else:
        root = float(scipy.optimize.brentq(gap, *ends, xtol=1e-14))
    costs = expected(root)[:, 0]
    third = int(_cheapest(costs[:, np.newaxis], reject)[0])
    is_lower = costs[third] < min(costs[left], costs[right]) - ROUNDING * np.abs(costs).max()
    if third in actions or not is_lower or root in ends:
        return [(root, right)]
    return [
        *_turns(expected, (ends[0], root), (left, third), reject),
        *_turns(expected, (root, ends[1]), (third, right), reject),
    ]


def _correct_actions(costs: CostMatrix) -> BoolArray:
    """Return actions x classes: which actions are the cheapest for a class, without reject."""
    taken = np.array(costs.array, dtype=np.float64)
    if costs.reject is not None:
        taken[costs.reject] = np.inf
    return np.asarray(taken <= taken.min(axis=0))


def _decision_of(
    joint: list[Density], x: FloatArray, costs: CostMatrix, cuts: FloatArray, decided: IntArray
) -> IntervalDecision:
    """Integrate each class over the intervals of each action."""
    edges = np.union1d(x, cuts)
    # No interval contains a boundary, and a boundary belongs to the interval on its left.
    action = decided[np.searchsorted(cuts, edges[1:])]
    masses = np.stack([_masses_of(one, edges) for one in joint])
    # Actions x classes: the joint probability of action and class.
    met = np.stack([(masses * (action == number)).sum(axis=1) for number in range(costs.n_actions)])
    cost = float((costs.array * met).sum())
    is_correct = _correct_actions(costs)
    is_missed = ~is_correct
    if costs.reject is not None:
        is_missed[costs.reject] = False
    missed, correct = (met * is_missed).sum(axis=0), (met * is_correct).sum(axis=0)
    return IntervalDecision(freeze(cuts), freeze(decided), freeze(missed), freeze(correct), cost)


def _masses_of(density: Density, edges: FloatArray) -> FloatArray:
    """Return the integral of a density between neighboring edges (Gauss-Legendre)."""
    half = np.diff(edges) / 2
    points = (edges[:-1] + half)[:, np.newaxis] + half[:, np.newaxis] * NODES
    values = density(points.ravel()).reshape(points.shape)
    return np.asarray((values @ WEIGHTS) * half)


def _as_joint(priors: Any, densities: Any, x: FloatArray, caller: str) -> list[Density]:
    """Return one function per class, its prior times its density."""
    prior = as_floats(priors, "priors", caller).astype(np.float64)
    if prior.ndim != 1 or prior.size < 2:
        rule, fix = "must be at least 2 probabilities, one per class", "Use priors=[0.5, 0.5]"
        raise BadValueError("priors", caller, rule, f"shape {prior.shape}", fix)
    prior = as_distributions(prior[np.newaxis], "priors", caller)[0]
    rule = f"must be {prior.size} densities, one per class"
    fix = "Pass one function of x, or one array of the length of x, per prior"
    listed = as_list(densities, "densities", caller, rule, fix)
    if len(listed) != prior.size:
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


def _as_decided(
    decided: Any, n_intervals: int, n_classes: int, costs: CostMatrix, caller: str
) -> IntArray:
    """Return the action of each interval; by default the classes in turn."""
    if decided is None:
        decided = np.arange(n_intervals) % min(n_classes, costs.n_actions)
    array = as_floats(decided, "decided", caller)
    is_fine = array.shape == (n_intervals,) and bool(np.isin(array, range(costs.n_actions)).all())
    if not is_fine:
        rule = f"must be {n_intervals} actions from 0 to {costs.n_actions - 1}, one per interval"
        raise BadValueError("decided", caller, rule, repr(decided), "Pass one action per interval")
    return array.astype(np.int64)

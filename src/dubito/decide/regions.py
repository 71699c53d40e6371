"""Decisions over features: error areas along one, regions and boundaries over two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, final

import numpy as np
import scipy

from dubito.arrays import (
    ArrayResult,
    BoolArray,
    FloatArray,
    IntArray,
    as_count,
    as_distributions,
    as_finite,
    as_floats,
    as_list,
    freeze,
    require_dimensions,
    require_everywhere,
)
from dubito.calibrate.calibrator import as_class_outputs
from dubito.data.batch import row_statistics
from dubito.decide.actions import MARGIN, expected_costs, least_costs
from dubito.decide.costs import CostMatrix, as_costs
from dubito.decide.minkowski import as_densities, as_grid, require_mass
from dubito.errors import BadTypeError, BadValueError

CORNERS = np.array([[0, 0], [0, 1], [1, 1], [1, 0]])  # of a cell, in rows and columns, in turn
TRIANGLES = np.array([[0, 1, 2], [0, 2, 3]])
ROUNDING = 1e-12  # relative; costs this close are equal
SHORTEST = 1e-9  # of the diagonal of a cell: shorter lines only touch a corner


def _boundaries_of(x: FloatArray, y: FloatArray, costs: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return the lines where the cheapest action changes, for costs of shape y x x x actions.

    They are segments x two ends x two features, with the two actions each lies between. Each cell
    is cut into two triangles on which costs are linear, so that lines meet exactly where three
    actions cost the same.
    """
    least = costs.argmin(axis=2)
    # An action that is cheapest at no grid point has no region.
    actions = np.unique(least)
    # Cells whose corners do not all have the same action.
    corner, others = least[:-1, :-1], (least[:-1, 1:], least[1:, 1:], least[1:, :-1])
    rows, columns = np.nonzero(np.logical_or.reduce([corner != other for other in others]))
    corner_rows = rows[:, np.newaxis] + CORNERS[:, 0]
    corner_columns = columns[:, np.newaxis] + CORNERS[:, 1]
    points = np.stack([x[corner_columns], y[corner_rows]], axis=-1)[:, TRIANGLES]
    heights = costs[corner_rows, corner_columns][:, TRIANGLES][..., actions]
    points, heights = points.reshape(-1, 3, 2), heights.reshape(-1, 3, actions.size)
    shortest = SHORTEST * float(np.hypot(x[1] - x[0], y[1] - y[0]))
    segments, between = [np.empty((0, 2, 2))], [np.empty((0, 2), np.int64)]
    for first, second in combinations(range(actions.size), 2):
        lines = _lines_between(points, heights, first, second)
        lines = lines[np.hypot(*(lines[:, 1] - lines[:, 0]).T) > shortest]
        segments.append(lines)
        between.append(np.tile([actions[first], actions[second]], (len(lines), 1)))
    return np.concatenate(segments), np.concatenate(between)


def _lines_between(points: FloatArray, heights: FloatArray, i: int, j: int) -> FloatArray:
    """Return where planes i and j of triangles meet, cut to where no other plane is lower."""
    gap = heights[:, :, i] - heights[:, :, j]
    is_first = gap <= 0
    is_cut = is_first.any(axis=1) & ~is_first.all(axis=1)
    points, heights, gap, is_first = points[is_cut], heights[is_cut], gap[is_cut], is_first[is_cut]
    # One corner is alone on its side; the line crosses both edges from it.
    alone = np.where(is_first.sum(axis=1) == 1, is_first.argmax(axis=1), is_first.argmin(axis=1))
    triangle = np.arange(len(alone))[:, np.newaxis]
    near, far = alone[:, np.newaxis], (alone[:, np.newaxis] + [1, 2]) % 3
    part = (gap[triangle, near] / (gap[triangle, near] - gap[triangle, far]))[..., np.newaxis]
    ends = points[triangle, near] * (1 - part) + points[triangle, far] * part
    costs = heights[triangle, near] * (1 - part) + heights[triangle, far] * part
    low, high, is_kept = _span_of_least(costs, i, j)
    along = np.stack([low, high], axis=1)[is_kept, :, np.newaxis]
    start, end = ends[is_kept, :1], ends[is_kept, 1:]
    return np.asarray(start * (1 - along) + end * along)


def _span_of_least(costs: FloatArray, i: int, j: int) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return the part of each line where i and j are cheapest, and whether there is one."""
    own = costs[:, :, [i]]
    above = costs - own + ROUNDING * (np.abs(costs) + np.abs(own))
    above[:, :, [i, j]] = 1.0  # no cut against themselves
    start, end = above[:, 0], above[:, 1]
    rises, falls = (start < 0) & (end >= 0), (start >= 0) & (end < 0)
    crossing = start / np.where(rises | falls, start - end, 1.0)
    low = np.where(rises, crossing, 0.0).max(axis=1)
    high = np.where(falls, crossing, 1.0).min(axis=1)
    return low, high, (low < high) & ~((start < 0) & (end < 0)).any(axis=1)


MAX_POINTS = 2000  # per side, four million in total


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DecisionRegions(ArrayResult):
    """The optimal action at each point of a grid over two features, and the decision boundaries.

    Attributes
    ----------
    x, y : array of float
        The grid along each feature.
    action : array of int, y x x
        The index of the optimal action.
    cost : array of float, y x x
        Its expected cost.
    confidence : array of float, y x x
        The largest posterior.
    actions : tuple of str
        The names of the actions.
    reject : int or None
        The index of the reject action.
    segments : array, lines x 2 ends x 2 features
        The boundaries.
    between : array of int, lines x 2
        The two actions that cost the same along each line.
    area_fraction : array of float
        The fraction of the area of each action.
    """

    x: FloatArray
    y: FloatArray
    action: IntArray
    cost: FloatArray
    confidence: FloatArray
    actions: tuple[str, ...]
    reject: int | None
    segments: FloatArray
    between: IntArray
    area_fraction: FloatArray


def decision_regions(
    posterior: Callable[[FloatArray], Any],
    x: Any,
    y: Any,
    costs: CostMatrix | None = None,
    *,
    n_points: int = 200,
) -> DecisionRegions:
    """Return the optimal action over a rectangle of two features.

    Parameters
    ----------
    posterior : callable
        A function of features, rows x 2, that returns outputs, such as `model.predict_proba`.
    x, y : tuple of float
        The lowest and the highest value of each feature.
    costs : CostMatrix, optional
        By default every error costs 1.
    n_points : int, default 200
        The number of grid points per side.

    Returns
    -------
    DecisionRegions

    References
    ----------
    Bishop, "Pattern recognition and machine learning", 2006, section 1.5.

    Examples
    --------
    >>> from dubito import CostMatrix
    >>> from dubito.decide import decision_regions
    >>> from scipy.special import expit
    >>> costs = CostMatrix.zero_one(2).with_reject(0.25)
    >>> found = decision_regions(lambda z: expit(z[:, 0]), (-5, 5), (0, 1), costs)
    >>> found.area_fraction.round(2).tolist()
    [0.39, 0.39, 0.22]
    """
    caller = "decision_regions"
    n_points = as_count(n_points, "n_points", caller, 2, MAX_POINTS, example=200)
    side_x = np.linspace(*_as_range(x, "x", caller), n_points)
    side_y = np.linspace(*_as_range(y, "y", caller), n_points)
    outputs = _outputs_on(posterior, side_x, side_y, caller)
    if costs is None:
        costs = CostMatrix.zero_one(outputs.classes or outputs.n_classes)
    table = _as_constant_costs(costs, caller)
    least, shape = least_costs(outputs, table), (n_points, n_points)
    expected = expected_costs(outputs, table).reshape(*shape, -1)
    expected[..., list(table.rejecting)] -= MARGIN
    segments, between = _boundaries_of(side_x, side_y, expected)
    action = least.action.reshape(shape)
    return DecisionRegions(
        x=freeze(side_x),
        y=freeze(side_y),
        action=freeze(action),
        cost=freeze(least.cost.reshape(shape)),
        confidence=freeze(row_statistics(outputs, None).confidence.reshape(shape)),
        actions=table.actions,
        reject=table.reject,
        segments=freeze(segments),
        between=freeze(between),
        area_fraction=freeze(_area_fractions(action, table.n_actions)),
    )


def _outputs_on(posterior: Any, x: FloatArray, y: FloatArray, caller: str) -> Any:
    """Return the outputs at each grid point, row by row."""
    if not callable(posterior):
        rule, fix = "must be a function of features, rows x 2", "Pass model.predict_proba"
        raise BadTypeError("posterior", caller, rule, type(posterior).__name__, fix)
    features = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    outputs = as_class_outputs(posterior(features), caller, "posterior(features)")
    if outputs.n_rows != len(features):
        rule = f"must have {len(features):,} rows, one per point"
        fix = "Return one row of outputs per row of features"
        raise BadValueError("posterior(features)", caller, rule, f"{outputs.n_rows:,}", fix)
    return outputs


def _area_fractions(action: IntArray, n_actions: int) -> FloatArray:
    """Return the fraction of the area of each action; points at an edge count half."""
    side = np.ones(len(action))
    side[[0, -1]] = 0.5
    area = np.bincount(action.ravel(), np.outer(side, side).ravel(), n_actions)
    return np.asarray(area / side.sum() ** 2)


def _as_constant_costs(costs: Any, caller: str) -> CostMatrix:
    """Return costs without expressions, as grid points have no row costs."""
    table = as_costs(costs, "costs", caller)
    if table.columns:
        rule, got = "must have no expressions of columns", f"{table.expressions[0]}"
        fix = f"Use costs.at({{{table.columns[0]!r}: ...}}), the costs of one row"
        raise BadValueError("costs", caller, rule, got, fix)
    return table


def _as_range(value: Any, argument: str, caller: str) -> tuple[float, float]:
    """Return the lowest and the highest value of a feature."""
    array = as_finite(as_floats(value, argument, caller), argument, caller)
    if array.shape != (2,) or not 0 < float(array[1]) - float(array[0]) < np.inf:
        shown = f"{array.tolist()}" if array.size <= 4 else f"shape {array.shape}"
        rule, fix = "must be the lowest and the highest value", f"Pass {argument}=(0, 1)"
        raise BadValueError(argument, caller, rule, shown, fix)
    return float(array[0]), float(array[1])


Density = Callable[[FloatArray], FloatArray]

NODES, WEIGHTS = np.polynomial.legendre.leggauss(5)  # of each interval between grid points


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
        """Return the action taken at each x; a boundary belongs to the interval on its left.

        Parameters
        ----------
        x : float or array
            Values of the feature.

        Returns
        -------
        int or array of int
            Indices of actions.
        """
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
        """Return for which classes an action is a mistake.

        Parameters
        ----------
        action : int
            An index into the actions of the costs.

        Returns
        -------
        array of bool of shape (n_classes,)
            All False for the reject action.
        """
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
    >>> import numpy as np
    >>> from dubito.decide import error_areas
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
    grid = as_grid(x, caller, 2)
    joint = _as_joint(priors, densities, grid, caller)
    table = CostMatrix.zero_one(len(joint)) if costs is None else _as_constant_costs(costs, caller)
    table = table.for_classes(table.classes, len(joint))
    if table.reviews:
        rule, fix = "must not ask someone who may err", "Use decision_regions"
        raise BadValueError("costs", caller, rule, repr(table.reviews[0].name), fix)
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
    missed, correct = ((met * part).sum(axis=0) for part in (is_missed, is_correct))
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
    values = as_densities(value(x) if callable(value) else value, x, argument, caller)

    def density(at: FloatArray) -> FloatArray:
        if callable(value):
            return as_densities(value(at), at, argument, caller)
        return np.asarray(np.interp(at, x, values))

    require_mass(float(_masses_of(density, x).sum()), argument, caller)
    return lambda at: prior * density(at)


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

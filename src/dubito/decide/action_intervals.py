"""Where each action is optimal: thresholds of the positive class, and actions that never win."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dubito.arrays import FloatArray
from dubito.decide.costs import CostMatrix
from dubito.errors import BadValueError

SMALLEST = 1e-9  # shorter intervals, and smaller advantages, are rounding


@final
@dataclass(frozen=True, slots=True)
class ActionInterval:
    """The probabilities of the positive of two classes for which an action has the lowest cost.

    Attributes
    ----------
    action : str
        The name of the action.
    low, high : float
        Ends of the interval.
    """

    action: str
    low: float
    high: float


def action_intervals(costs: CostMatrix, column: int = 1) -> tuple[ActionInterval, ...]:
    """Return which action is optimal from which calibrated probability on, for two classes.

    Expected costs are lines over the probability of the positive class; where two actions cost the
    same, the reject action is taken.

    Parameters
    ----------
    costs : CostMatrix
        Costs of two classes, without expressions of columns.
    column : {0, 1}, default 1
        The column of the positive class.

    Returns
    -------
    tuple of ActionInterval
        By increasing probability of the positive class; actions that never win are left out.

    Examples
    --------
    >>> costs = CostMatrix([[0, 20], [1, 0]], actions=["pass", "block"]).with_reject(0.5, "review")
    >>> for one in action_intervals(costs):
    ...     print(f"{one.action}: {one.low:.3f} to {one.high:.3f}")
    pass: 0.000 to 0.025
    review: 0.025 to 0.500
    block: 0.500 to 1.000
    """
    if costs.n_classes != 2 or costs.columns:
        is_binary = costs.n_classes == 2
        got = f"{costs.expressions[0]}" if is_binary else f"{costs.n_classes} classes"
        rule, fix = "must be constant costs of two classes", "Use decision_regions for more"
        raise BadValueError("costs", "action_intervals", rule, got, fix)
    start = costs.array[:, 1 - column]
    slope = costs.array[:, column] - start
    smallest = SMALLEST * (np.abs(costs.array).max() or 1.0)
    found: list[ActionInterval] = []
    p = 0.0
    order = [k for k in range(costs.n_actions) if k != costs.reject]
    order = order if costs.reject is None else [costs.reject, *order]
    while p < 1:
        # Of the cheapest lines here, the one that falls fastest stays the cheapest.
        heights = start + slope * p
        ties = [k for k in order if heights[k] <= heights.min() + smallest]
        best = min(ties, key=lambda k: slope[k])
        steeper = slope < slope[best] - smallest
        crossings = np.full(costs.n_actions, np.inf)
        gap = heights[steeper] - heights[best]
        crossings[steeper] = p + np.maximum(gap, 0.0) / (slope[best] - slope[steeper])
        end = min(float(crossings.min()), 1.0)
        if end - p > SMALLEST or not found:
            found.append(ActionInterval(costs.actions[best], p, end))
        p = max(end, p + SMALLEST)
    return tuple(found)


def unused_actions(costs: CostMatrix) -> dict[str, float]:
    """Return the actions that are optimal for no probabilities, and by how much they cost too much.

    Parameters
    ----------
    costs : CostMatrix
        Costs; where they depend on columns, nothing is known, and the result is empty.

    Returns
    -------
    dict of str to float
        How much less each such action would have to cost, in every class, to be optimal somewhere.

    Examples
    --------
    >>> unused_actions(CostMatrix.zero_one(2).with_reject(0.6, "review"))
    {'review': 0.1}
    """
    if costs.columns:
        return {}
    scale = float(np.abs(costs.array).max()) or 1.0
    excess = [_excess(costs.array / scale, k) for k in range(costs.n_actions)]
    too_much = zip(costs.actions, excess, strict=True)
    return {name: float(f"{scale * by:.9g}") for name, by in too_much if by > SMALLEST}


def cost_warnings(costs: CostMatrix, *, may_reject: bool = False) -> list[str]:
    """Return a sentence for each way in which costs can hardly be meant.

    Parameters
    ----------
    costs : CostMatrix
        Costs; where they depend on columns, nothing is known.
    may_reject : bool, default False
        Whether rows are rejected for other reasons than their costs.

    Returns
    -------
    list of str

    Examples
    --------
    >>> cost_warnings(CostMatrix.zero_one(2).with_reject(5, "ask"))
    ["'ask' costs 5, but no error costs more than 1: it would have to cost at most 0.5, 4.5 less."]
    """
    if costs.columns:
        return []
    if costs.n_actions > 1 and (costs.array == costs.array[0]).all():
        return ["All actions cost the same in each class, so that decisions make no difference."]
    others = np.delete(costs.array, [] if costs.reject is None else costs.reject, axis=0)
    sentences = []
    for name, excess in unused_actions(costs).items():
        problem = f"'{name}' is never optimal"
        if name == costs.reject_name:
            if may_reject:
                continue
            least = float(costs.array[costs.reject].min())
            if least > others.max():
                problem = f"'{name}' costs {least:.4g}, but no error costs more than "
                problem += f"{others.max():.4g}"
        row = costs.array[costs.actions.index(name)]
        sentences.append(too_costly(problem, excess, float(row[0]) if np.ptp(row) == 0 else None))
    return sentences


def too_costly(problem: str, excess: float, cost: float | None) -> str:
    """Return a sentence on an action that costs too much; `cost` where it is always the same.

    >>> too_costly("'review' is never optimal", 0.1, 0.6)
    "'review' is never optimal: it would have to cost at most 0.5, 0.1 less."
    """
    less = f"{excess:.3g} less"
    least = f"at least {less}" if cost is None else f"at most {cost - excess:.4g}, {less}"
    return f"{problem}: it would have to cost {least}."


def _excess(costs: FloatArray, action: int) -> float:
    """Return the least that an action costs above the best other one, over all probabilities.

    A linear program: over p, minimize t such that the action costs at most t more than each other.
    """
    n_actions, n_classes = costs.shape
    if n_actions == 1:
        return 0.0
    others = np.delete(costs, action, axis=0)
    # Most actions are optimal if a class is certain or all are equal: to import the solver is slow.
    points = np.vstack([np.eye(n_classes), np.full(n_classes, 1 / n_classes)])
    excess = float((points @ (costs[action] - others).T).max(axis=1).min())
    if excess <= SMALLEST:
        return excess
    from scipy.optimize import linprog

    rows = np.column_stack([costs[action] - others, -np.ones(n_actions - 1)])
    solution = linprog(
        np.append(np.zeros(n_classes), 1.0),
        A_ub=rows,
        b_ub=np.zeros(n_actions - 1),
        A_eq=np.append(np.ones(n_classes), 0.0)[np.newaxis],
        b_eq=[1.0],
        bounds=[(0, 1)] * n_classes + [(None, None)],
    )
    return float(solution.fun)

"""From probabilities and costs to the action of lowest expected cost, and where each is optimal."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, final

import numpy as np

from dubito.arrays import FloatArray, IntArray, contiguous, freeze
from dubito.calibrate.calibrator import as_class_outputs
from dubito.decide.costs import CostMatrix, as_costs
from dubito.decide.row_costs import CostTerms, RowCosts
from dubito.errors import BadValueError
from dubito.kernels.blocks import kept_threads, row_blocks, run_in_order
from dubito.kernels.expected_cost import (
    ACTION,
    CLASS,
    COST,
    EXCESS,
    PROBABILITY,
    TIE,
    narrow_costs,
    narrow_least,
    share_rows,
)
from dubito.kernels.row_statistics import NARROW
from dubito.outputs import Logits

MARGIN = 1e-9  # reject wins where it costs at most this much more than the lowest cost
WIDE_ENTRIES = 1 << 18  # of a block whose probabilities are materialized, 2 MB


@final
@dataclass(frozen=True, slots=True, eq=False)
class LeastCosts:
    """The optimal action of each row, its expected cost, and by-products of the same pass.

    `excess` is the expected regret of the best action other than reject; `predicted_class` and
    `probability` are those of the most probable class.
    """

    action: IntArray
    cost: FloatArray
    excess: FloatArray
    predicted_class: IntArray
    probability: FloatArray


def expected_costs(outputs: Any, costs: CostMatrix, row_costs: Any = None) -> FloatArray:
    """Return the expected cost of each action, rows x actions.

    Parameters
    ----------
    outputs : array, Logits, Probabilities or Members
        Calibrated outputs.
    costs : CostMatrix
        The cost of each action in each class.
    row_costs : dict, data frame or array, optional
        The columns that the costs depend on, by name; one number per row if they depend on one; or
        the costs themselves, rows x actions x classes, which replace those of the matrix.

    Returns
    -------
    array of float64, rows x actions

    References
    ----------
    Bishop, "Pattern recognition and machine learning", 2006, section 1.5.2.

    Examples
    --------
    >>> from dubito import CostMatrix
    >>> from dubito.decide import expected_costs
    >>> costs = CostMatrix.from_errors(false_positive=1, false_negative=8)
    >>> expected_costs([[0.75, 0.25]], costs).tolist()
    [[2.0, 0.75]]
    """
    inputs = DecisionInputs.of(outputs, costs, row_costs, "expected_costs")
    result = np.empty((inputs.array.shape[0], inputs.costs.n_actions))

    def fill(rows: slice) -> None:
        terms = inputs.row_costs.terms(rows)
        if inputs.is_narrow:
            narrow_costs(*inputs.block(rows), *_as_kernels_take(terms), result[rows])
        else:
            result[rows] = terms.expected(inputs.probabilities_of(rows))

    inputs.run(fill)
    return result


def optimal_actions(outputs: Any, costs: CostMatrix, row_costs: Any = None) -> IntArray:
    """Return the index of the action of lowest expected cost for each row.

    Reject wins a tie (within 1e-9), otherwise the first action. With `CostMatrix.zero_one` it is
    the most probable class.

    Parameters
    ----------
    outputs : array, Logits, Probabilities or Members
        Calibrated outputs.
    costs : CostMatrix
        The cost of each action in each class.
    row_costs : dict, data frame or array, optional
        The columns that the costs depend on, by name; one number per row if they depend on one; or
        the costs themselves, rows x actions x classes, which replace those of the matrix.

    Returns
    -------
    array of int

    References
    ----------
    Elkan, "The foundations of cost-sensitive learning", 2001.

    Examples
    --------
    >>> from dubito import CostMatrix
    >>> from dubito.decide import optimal_actions
    >>> costs = CostMatrix.zero_one(2).with_reject(0.25)
    >>> optimal_actions([[0.875, 0.125], [0.75, 0.25], [0.5, 0.5]], costs).tolist()
    [0, 2, 2]
    """
    return least_costs(outputs, costs, row_costs, "optimal_actions").action


def least_costs(
    outputs: Any, costs: Any, row_costs: Any = None, caller: str = "optimal_actions"
) -> LeastCosts:
    """Return the optimal actions and their expected costs, in one pass over the outputs."""
    inputs = DecisionInputs.of(outputs, costs, row_costs, caller)
    constant = inputs.row_costs.terms().above_cheapest() if inputs.row_costs.is_constant else None
    rejects = freeze(np.array(inputs.costs.rejecting, np.int64))
    n_rows = inputs.array.shape[0]
    choices, numbers = np.empty((2, n_rows), np.int64), np.empty((3, n_rows))

    def fill(rows: slice) -> None:
        parts = choices[:, rows], numbers[:, rows]
        terms = constant or inputs.row_costs.terms(rows).above_cheapest()
        if inputs.is_narrow:
            narrow_least(*inputs.block(rows), *_as_kernels_take(terms), rejects, MARGIN, *parts)
        else:
            probabilities, array = inputs.probabilities_of(rows), inputs.array[rows]
            _fill_least(terms.expected(probabilities), rejects, *parts)
            top = array.argmax(axis=1)
            known = probabilities if inputs.is_logits else array
            choices[CLASS, rows], numbers[PROBABILITY, rows] = top, known[np.arange(top.size), top]

    inputs.run(fill)
    return LeastCosts(
        choices[ACTION], numbers[COST], numbers[EXCESS], choices[CLASS], numbers[PROBABILITY]
    )


@final
@dataclass(frozen=True, slots=True, eq=False)
class DecisionInputs:
    """Outputs, costs and row costs that match."""

    array: FloatArray
    is_logits: bool
    costs: CostMatrix
    row_costs: RowCosts

    @classmethod
    def of(cls, outputs: Any, costs: Any, row_costs: Any, caller: str) -> DecisionInputs:
        """Check the arguments."""
        wrapped = as_class_outputs(outputs, caller)
        table = as_costs(costs, "costs", caller).for_classes(wrapped.classes, wrapped.n_classes)
        by_row = RowCosts.of(row_costs, table, wrapped.n_rows, caller).answered(wrapped)
        return cls(wrapped.array, isinstance(wrapped, Logits), table, by_row)

    @property
    def is_narrow(self) -> bool:
        """Whether there are so few classes that SIMD lanes run over rows."""
        return bool(self.array.shape[1] <= NARROW)

    def block(self, rows: slice) -> tuple[FloatArray, bool]:
        """Return a range of rows as kernels take them."""
        return contiguous(self.array[rows]), self.is_logits

    def probabilities_of(self, rows: slice) -> FloatArray:
        """Return the probabilities of a range of rows."""
        array, is_logits = self.block(rows)
        probabilities = np.empty(array.shape)
        share_rows(array, is_logits, probabilities)
        return probabilities

    def run(self, fill: Any) -> None:
        """Call `fill` with every block of rows, over threads."""
        n_rows, n_classes = self.array.shape
        if self.is_narrow:
            run_in_order(fill, row_blocks(n_rows, n_classes))
            return
        widest = max(n_classes, self.costs.n_actions)
        with kept_threads():
            run_in_order(fill, row_blocks(n_rows, widest, WIDE_ENTRIES))


def _as_kernels_take(terms: CostTerms) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return costs as read-only contiguous arrays, so that kernels are compiled once."""
    base, entries, values = (freeze(contiguous(one)) for one in terms)
    return base, entries, values


def _fill_least(
    costs: FloatArray, rejects: IntArray, choices: IntArray, numbers: FloatArray
) -> None:
    """Fill in the first action of lowest cost, or reject on a tie, as `narrow_least` does."""
    above = costs[:, :-1]
    lowest = above.min(axis=1)
    action = (above <= lowest[:, np.newaxis] * (1.0 + TIE)).argmax(axis=1)
    numbers[EXCESS] = lowest
    if rejects.size:
        is_near = above[:, rejects] <= lowest[:, np.newaxis] + MARGIN
        action = np.where(is_near.any(axis=1), rejects[is_near.argmax(axis=1)], action)
        numbers[EXCESS] = np.delete(above, rejects, axis=1).min(axis=1, initial=np.inf)
    choices[ACTION] = action
    numbers[COST] = above[np.arange(len(action)), action] + costs[:, -1]


SMALLEST = 1e-9  # shorter intervals, and smaller advantages, are rounding


@final
@dataclass(frozen=True, slots=True)
class ActionInterval:
    """The probabilities of the positive of two classes for which an action has the lowest cost.

    Of a cascade, the confidences of its first tier that lead to an action.

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

    Expected costs are lines over the probability of the positive class, and that of asking someone
    is the lowest of some lines; where two actions cost the same, one that rejects is taken.

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
    >>> from dubito import CostMatrix
    >>> from dubito.decide import action_intervals
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
    lines, owner = _cost_lines(costs)
    start = lines[:, 1 - column]
    slope = lines[:, column] - start
    smallest = SMALLEST * (np.abs(lines).max() or 1.0)
    found: list[ActionInterval] = []
    p = 0.0
    order = sorted(range(len(lines)), key=lambda k: owner[k] not in costs.rejecting)
    while p < 1:
        # Of the cheapest lines here, the one that falls fastest stays the cheapest.
        heights = start + slope * p
        ties = [k for k in order if heights[k] <= heights.min() + smallest]
        best = min(ties, key=lambda k: slope[k])
        steeper = slope < slope[best] - smallest
        crossings = np.full(len(lines), np.inf)
        gap = heights[steeper] - heights[best]
        crossings[steeper] = p + np.maximum(gap, 0.0) / (slope[best] - slope[steeper])
        end = min(float(crossings.min()), 1.0)
        name = costs.actions[owner[best]]
        if found and found[-1].action == name:
            found[-1] = ActionInterval(name, found[-1].low, end)
        elif end - p > SMALLEST or not found:
            found.append(ActionInterval(name, p, end))
        p = max(end, p + SMALLEST)
    return tuple(found)


def _cost_lines(costs: CostMatrix) -> tuple[FloatArray, list[int]]:
    """Return the costs in both classes of all that can be done, and the action of each line.

    To ask someone is one line per way to act on the two answers. Where the only action is to
    answer, these are to keep the answer, and to take that of the one who is asked.
    """
    asked = {costs.actions.index(one.name): one for one in costs.reviews}
    lines: list[FloatArray] = []
    owner: list[int] = []
    decided = costs.array[list(costs.deciding)]
    for k, price in enumerate(costs.array):
        after: list[FloatArray] = [np.zeros(2)]
        if k in asked and len(decided) == 1:
            kept = [decided[0]] if asked[k].needs_posterior else []
            after = [*kept, asked[k].costs_of_own_answer(decided[0])]
        elif k in asked:
            ways = [decided[decided.argmin(axis=0)]]
            if asked[k].needs_posterior:
                ways = [decided[list(rule)] for rule in product(range(len(decided)), repeat=2)]
            after = [(asked[k].likelihoods * way.T).sum(axis=1) for way in ways]
        lines += [price + one for one in after]
        owner += [k] * len(after)
    return np.array(lines), owner


def unused_actions(costs: CostMatrix) -> dict[str, float]:
    """Return the actions that are optimal for no probabilities, and by how much they cost too much.

    Parameters
    ----------
    costs : CostMatrix
        Costs; where they depend on columns, or actions ask someone who may err, nothing is known,
        and the result is empty.

    Returns
    -------
    dict of str to float
        How much less each such action would have to cost, in every class, to be optimal somewhere.

    Examples
    --------
    >>> from dubito import CostMatrix
    >>> from dubito.decide import unused_actions
    >>> unused_actions(CostMatrix.zero_one(2).with_reject(0.6, "review"))
    {'review': 0.1}
    """
    if costs.columns or costs.reviews:
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
    ["'ask' costs 5 and is never chosen: it would have to cost 0.5 or less."]
    >>> cost_warnings(CostMatrix.zero_one(2).with_reject(-1))[0].partition(", so")[0]
    "'reject' costs -1 at most, less than any decision"
    """
    if costs.columns or costs.reviews:
        return []
    if costs.n_actions > 1 and (costs.array == costs.array[0]).all():
        return ["All actions cost the same in each class, so that decisions make no difference."]
    others = np.delete(costs.array, [] if costs.reject is None else costs.reject, axis=0)
    if costs.reject is not None and (costs.array[costs.reject] < others.min(axis=0)).all():
        highest = costs.array[costs.reject].max()
        return [
            f"'{costs.reject_name}' costs {highest:.4g} at most, less than any decision, so every "
            "row is rejected. Raise its cost."
        ]
    sentences = []
    for name, excess in unused_actions(costs).items():
        if name == costs.reject_name and may_reject:
            continue
        row = costs.array[costs.actions.index(name)]
        price = float(row[0]) if np.ptp(row) == 0 else None
        stated = "" if price is None else f"costs {price:.4g} and "
        sentences.append(too_costly(f"'{name}' {stated}is never chosen", excess, price))
    return sentences


def too_costly(problem: str, excess: float, cost: float | None) -> str:
    """Return a sentence on an action that costs too much; `cost` where it is always the same.

    >>> too_costly("'review' is never chosen", 0.1, 0.6)
    "'review' is never chosen: it would have to cost 0.5 or less."
    >>> too_costly("Review of a row is never chosen", 0.0, 1.0)
    'Review of a row is never chosen: it would have to cost less than 1.'
    """
    if cost is not None and cost == float(f"{cost - excess:.4g}"):
        return f"{problem}: it would have to cost less than {cost:.4g}."
    most = f"at least {excess:.3g} less" if cost is None else f"{cost - excess:.4g} or less"
    return f"{problem}: it would have to cost {most}."


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

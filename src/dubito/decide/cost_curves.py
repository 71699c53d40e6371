"""How cost changes with what is kept, and with how common a class is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import (
    FloatArray,
    as_finite,
    as_floats,
    as_shares,
    require_dimensions,
    require_rows,
)
from dubito.data.batch import Ranks
from dubito.data.labels import names_of
from dubito.decide.actions import as_class_outputs, expected_costs, optimal_actions
from dubito.decide.costs import CostMatrix
from dubito.decide.priors import adjust_prior
from dubito.decide.realized import Judged
from dubito.errors import BadValueError
from dubito.outputs import BaseClassOutputs


@final
@dataclass(frozen=True, slots=True, eq=False)
class CostCoverageCurve:
    """Keeping rows of doubt up to `doubt` keeps the share `coverage`, at `cost` a kept row.

    `total` is the cost a row of all when the others are rejected, None where costs know no reject.
    One step for each different doubt.
    """

    doubt: FloatArray
    coverage: FloatArray
    cost: FloatArray
    total: FloatArray | None


@final
@dataclass(frozen=True, slots=True, eq=False)
class CostPriorCurve:
    """Costs a row as one class becomes more common, the others keeping their proportions.

    `cost` is that of decisions as they are, `adapted` that of decisions told of each prior (the
    outputs taken as calibrated at the share measured here),
    `constant` that of the best single action at each. `measured` is the share of the class here.
    """

    prior: FloatArray
    cost: FloatArray
    adapted: FloatArray
    constant: FloatArray
    measured: float


def cost_coverage_curve(
    y_true: Any,
    outputs: Any,
    costs: CostMatrix,
    row_costs: Any = None,
    *,
    doubt: Any = None,
    sample_weight: Any = None,
) -> CostCoverageCurve:
    """Return what rows cost when only those of least doubt are acted on, at every coverage.

    Without `doubt`, one number a row, it is how much more acting is expected to cost than
    rejecting. Rows of equal doubt go together.

    >>> costs = CostMatrix.zero_one(2).with_reject(0.25)
    >>> cost_coverage_curve([0, 0], [[0.9, 0.1], [0.4, 0.6]], costs).total.tolist()
    [0.125, 0.5]
    """
    caller = "cost_coverage_curve"
    wrapped = as_class_outputs(outputs, "outputs", caller)
    judged = Judged.of(y_true, wrapped, costs, row_costs, sample_weight, caller)
    reject, n_actions = judged.costs.reject, judged.costs.n_actions
    acting = [number for number in range(n_actions) if number != reject]
    if not acting:
        rule, fix = "of 1 action or more beside reject", "a row of costs a class"
        raise BadValueError("costs", caller, rule, "reject only", fix)
    expected = expected_costs(wrapped, judged.costs, row_costs)
    paid = judged.by_action[:, acting]
    paid = paid[np.arange(len(paid)), expected[:, acting].argmin(axis=1)]
    scores = expected[:, acting].min(axis=1) - (0.0 if reject is None else expected[:, reject])
    if doubt is not None:
        scores = as_finite(as_floats(doubt, "doubt", caller), "doubt", caller)
        require_dimensions(scores, (1,), "doubt", caller, "one number per row")
        require_rows(scores, paid.size, "doubt", caller)
    ranks, weight = Ranks.of(scores), judged.weight
    mass = ranks.sums(weight)
    held = mass > 0
    kept, spent = np.cumsum(mass[held]), np.cumsum(ranks.sums(weight * paid)[held])
    total = None
    if reject is not None:
        rejected = ranks.sums(weight * judged.by_action[:, reject])[held]
        total = (spent + rejected.sum() - np.cumsum(rejected)) / kept[-1]
    return CostCoverageCurve(ranks.values[held], kept / kept[-1], spent / kept, total)


def cost_prior_curve(
    y_true: Any,
    outputs: Any,
    costs: CostMatrix,
    row_costs: Any = None,
    *,
    class_: Any,
    priors: Any = None,
    sample_weight: Any = None,
) -> CostPriorCurve:
    """Return the cost a row as the prior of `class_` moves, by weighing rows anew.

    What a row of each class looks like must stay the same. Without `priors`, 0 to 1 in steps of
    0.05. Drummond and Holte, "Cost curves", 2006.

    >>> costs = CostMatrix.zero_one(2)
    >>> outputs = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]
    >>> cost_prior_curve([0, 1, 1], outputs, costs, class_=1, priors=[0.0, 0.5, 1.0]).cost.tolist()
    [0.0, 0.25, 0.5]
    """
    caller = "cost_prior_curve"
    wrapped = as_class_outputs(outputs, "outputs", caller)
    judged = Judged.of(y_true, wrapped, costs, row_costs, sample_weight, caller)
    column = _column_of(class_, wrapped, caller)
    grid = np.linspace(0, 1, 21) if priors is None else as_shares(priors, "priors", caller)
    soft = judged.labels.probabilities
    if soft is not None:
        rule, fix = "one label a row", "the most probable label of each row"
        raise BadValueError("y_true", caller, rule, "label probabilities", fix)
    is_class = judged.labels.codes == column
    inside, outside = judged.weight * is_class, judged.weight * ~is_class
    if not (inside.sum() > 0 and outside.sum() > 0):
        got = "none of it" if outside.sum() > 0 else "nothing else"
        rule, fix = "rows of the class and of others", "rows of both, each with weight"
        raise BadValueError("y_true", caller, rule, got, fix)
    measured = float(inside.sum() / judged.weight.sum())
    rows = np.arange(is_class.size)
    costs_at: list[tuple[float, float, float]] = []
    for prior in grid.astype(np.float64).tolist():
        weight = prior * inside / inside.sum() + (1 - prior) * outside / outside.sum()
        told = _moved(wrapped, column, measured, prior)
        action = optimal_actions(told, judged.costs, row_costs)
        each = weight @ judged.by_action
        adapted = weight @ judged.by_action[rows, action]
        costs_at.append((float(weight @ judged.realized), float(adapted), float(each.min())))
    cost, adapted_costs, constant = np.array(costs_at).reshape(-1, 3).T
    return CostPriorCurve(grid.astype(np.float64), cost, adapted_costs, constant, measured)


def _moved(outputs: BaseClassOutputs, column: int, measured: float, prior: float) -> Any:
    """Return the outputs told that a class is as common as `prior`, the others in proportion."""
    factor = np.full(outputs.n_classes, (1 - prior) / (1 - measured))
    factor[column] = prior / measured
    even = np.full(outputs.n_classes, 1 / outputs.n_classes)
    # Only the ratio of priors counts, so that classes without a row need none.
    return adjust_prior(outputs, even, factor / factor.sum())


def _column_of(class_: Any, outputs: BaseClassOutputs, caller: str) -> int:
    """Return the column of a class, by its name or, without names, its number."""
    names = list(names_of(outputs))
    if isinstance(class_, bool) or class_ not in names:
        shown = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
        rule, fix = f"one of the classes ({shown})", "the class whose prior may move"
        raise BadValueError("class_", caller, rule, repr(class_), fix)
    return names.index(class_)

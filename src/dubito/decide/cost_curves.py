"""Cost curves: cost as a function of coverage, and of the prior of a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import ArrayResult, FloatArray, as_fractions, as_numbers
from dubito.calibrate.calibrator import as_class_outputs
from dubito.data.batch import Ranks
from dubito.data.labels import names_of
from dubito.decide.actions import expected_costs, optimal_actions
from dubito.decide.costs import CostMatrix
from dubito.decide.priors import adjust_prior
from dubito.decide.realized import RealizedCosts
from dubito.errors import BadValueError
from dubito.outputs import BaseClassOutputs


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CostCoverageCurve(ArrayResult):
    """The cost of accepting rows up to each value of an uncertainty score.

    Attributes
    ----------
    doubt : array of float
        The distinct scores, increasing.
    coverage : array of float
        The fraction of rows accepted up to each score.
    cost : array of float
        The mean cost per accepted row.
    total : array of float or None
        The mean cost per row when the others are rejected, None without a reject action.
    """

    doubt: FloatArray
    coverage: FloatArray
    cost: FloatArray
    total: FloatArray | None


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CostPriorCurve(ArrayResult):
    """Mean costs per row as one class becomes more frequent, the others in proportion.

    Attributes
    ----------
    prior : array of float
        The prior of the class.
    cost : array of float
        The cost of unchanged decisions.
    adapted : array of float
        The cost of decisions adjusted to each prior, if the outputs are calibrated at `measured`.
    constant : array of float
        The cost of the best constant action at each prior.
    measured : float
        The frequency of the class among the rows.
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
    """Return the cost when only the least uncertain rows are decided, at every coverage.

    Parameters
    ----------
    y_true : array
        Labels.
    outputs : array, Logits, Probabilities or Members
        Outputs that the decisions are based on.
    costs : CostMatrix
        The cost of each action in each class.
    row_costs : dict, data frame or array, optional
        As for `expected_costs`.
    doubt : array, optional
        One uncertainty score per row; rows with equal scores are accepted together. By default,
        how much more the best action is expected to cost than rejecting.
    sample_weight : array, optional
        Weights of the rows.

    Returns
    -------
    CostCoverageCurve

    Examples
    --------
    >>> costs = CostMatrix.zero_one(2).with_reject(0.25)
    >>> cost_coverage_curve([0, 0], [[0.9, 0.1], [0.4, 0.6]], costs).total.tolist()
    [0.125, 0.5]
    """
    caller = "cost_coverage_curve"
    wrapped = as_class_outputs(outputs, caller)
    realized = RealizedCosts.of(y_true, wrapped, costs, row_costs, sample_weight, caller)
    reject, n_actions = realized.costs.reject, realized.costs.n_actions
    acting = [number for number in range(n_actions) if number != reject]
    if not acting:
        rule, fix = "must have an action that does not reject", "Add a row of costs per class"
        raise BadValueError("costs", caller, rule, "only a reject action", fix)
    expected = expected_costs(wrapped, realized.costs, realized.row_costs)
    paid = realized.by_action[:, acting]
    paid = paid[np.arange(len(paid)), expected[:, acting].argmin(axis=1)]
    scores = expected[:, acting].min(axis=1) - (0.0 if reject is None else expected[:, reject])
    if doubt is not None:
        scores = as_numbers(doubt, "doubt", caller, paid.size)
    ranks, weight = Ranks.of(scores), realized.weight
    mass = ranks.sums(weight)
    held = mass > 0
    kept, spent = np.cumsum(mass[held]), np.cumsum(ranks.sums(weight * paid)[held])
    total = None
    if reject is not None:
        rejected = ranks.sums(weight * realized.by_action[:, reject])[held]
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
    """Return the mean cost per row as the prior of a class changes, by reweighting the rows.

    The distribution within each class is assumed to stay the same (prior shift).

    Parameters
    ----------
    y_true : array
        Labels.
    outputs : array, Logits, Probabilities or Members
        Outputs that the decisions are based on.
    costs : CostMatrix
        The cost of each action in each class.
    row_costs : dict, data frame or array, optional
        As for `expected_costs`.
    class_ : str or number
        The name of the class, or its column index without names.
    priors : array, optional
        The priors to evaluate, by default 0 to 1 in steps of 0.05.
    sample_weight : array, optional
        Weights of the rows.

    Returns
    -------
    CostPriorCurve

    References
    ----------
    Drummond and Holte, "Cost curves: an improved method for visualizing classifier performance",
    2006.

    Examples
    --------
    >>> costs = CostMatrix.zero_one(2)
    >>> outputs = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]
    >>> cost_prior_curve([0, 1, 1], outputs, costs, class_=1, priors=[0.0, 0.5, 1.0]).cost.tolist()
    [0.0, 0.25, 0.5]
    """
    caller = "cost_prior_curve"
    wrapped = as_class_outputs(outputs, caller)
    realized = RealizedCosts.of(y_true, wrapped, costs, row_costs, sample_weight, caller)
    column = _column_of(class_, wrapped, caller)
    grid = np.linspace(0, 1, 21) if priors is None else as_fractions(priors, "priors", caller)
    soft = realized.labels.probabilities
    if soft is not None:
        rule, fix = "must be one label per row", "Pass the most probable label of each row"
        raise BadValueError("y_true", caller, rule, "label probabilities", fix)
    is_class = realized.labels.codes == column
    inside, outside = realized.weight * is_class, realized.weight * ~is_class
    if not (inside.sum() > 0 and outside.sum() > 0):
        got = "none of the class" if outside.sum() > 0 else "only this class"
        rule, fix = "must have rows of the class and of others", "Pass rows of both"
        raise BadValueError("y_true", caller, rule, got, fix)
    measured = float(inside.sum() / realized.weight.sum())
    rows = np.arange(is_class.size)
    costs_at: list[tuple[float, float, float]] = []
    for prior in grid.astype(np.float64).tolist():
        weight = prior * inside / inside.sum() + (1 - prior) * outside / outside.sum()
        adjusted = _with_prior(wrapped, column, measured, prior)
        action = optimal_actions(adjusted, realized.costs, realized.row_costs)
        each = weight @ realized.by_action
        adapted = weight @ realized.by_action[rows, action]
        costs_at.append((float(weight @ realized.realized), float(adapted), float(each.min())))
    cost, adapted_costs, constant = np.array(costs_at).reshape(-1, 3).T
    return CostPriorCurve(grid.astype(np.float64), cost, adapted_costs, constant, measured)


def _with_prior(outputs: BaseClassOutputs, column: int, measured: float, prior: float) -> Any:
    """Return outputs adjusted to the prior of one class, the others in proportion."""
    factor = np.full(outputs.n_classes, (1 - prior) / (1 - measured))
    factor[column] = prior / measured
    even = np.full(outputs.n_classes, 1 / outputs.n_classes)
    # Only the ratio of priors counts, so classes without rows need none.
    return adjust_prior(outputs, even, factor / factor.sum())


def _column_of(class_: Any, outputs: BaseClassOutputs, caller: str) -> int:
    """Return the column of a class by its name, or by its index without names."""
    names = list(names_of(outputs))
    if isinstance(class_, bool) or class_ not in names:
        shown = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
        rule, fix = f"must be one of the classes ({shown})", "Name the class whose prior changes"
        raise BadValueError("class_", caller, rule, repr(class_), fix)
    return names.index(class_)

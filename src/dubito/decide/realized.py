"""Realized costs of actions once the true classes are known; cost curves over coverage or prior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import (
    ArrayResult,
    BoolArray,
    FloatArray,
    IntArray,
    as_array,
    as_fractions,
    as_numbers,
    require_dimensions,
    require_everywhere,
)
from dubito.calibrate.calibrator import as_class_outputs
from dubito.data.argument_order import convert_in_order
from dubito.data.batch import Batch, Ranks, as_weights
from dubito.data.labels import Labels, names_of
from dubito.decide.actions import expected_costs, least_costs, optimal_actions
from dubito.decide.costs import CostMatrix, as_costs
from dubito.decide.priors import adjust_prior
from dubito.decide.row_costs import RowCosts
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.measure.state import labeled_batch, warn_of_missing
from dubito.outputs import BaseClassOutputs, Probabilities, unchecked

SAME = 1e-12  # costs this close, relative to the smaller, are equal


def realized_cost(
    y_true: Any,
    actions: Any,
    costs: CostMatrix,
    row_costs: Any = None,
    *,
    sample_weight: Any = None,
) -> float:
    """Return the mean realized cost of actions per row.

    Parameters
    ----------
    y_true : array
        Column indices, class names of the costs, or label probabilities.
    actions : array
        Indices or names of actions.
    costs : CostMatrix
        The cost of each action in each class.
    row_costs : dict, data frame or array, optional
        As for `expected_costs`.
    sample_weight : array, optional
        Weights of the rows.

    Returns
    -------
    float

    Examples
    --------
    >>> from dubito import CostMatrix
    >>> from dubito.decide import realized_cost
    >>> costs = CostMatrix([[0, 10], [1, 0]], actions=["send home", "treat"])
    >>> realized_cost([0, 1, 1], ["treat", "treat", "send home"], costs)
    3.6666666666666665
    """
    caller = "realized_cost"
    table = as_costs(costs, "costs", caller)
    table = table.for_classes(table.classes, table.n_classes)
    taken = action_numbers(actions, table, caller)
    labels = _labels_of(y_true, taken.size, table, caller)
    warn_of_missing(labels.n_missing, taken.size, caller, stacklevel=3)
    by_row = RowCosts.of(row_costs, table, taken.size, caller)
    weight = as_weights(sample_weight, taken.size, caller) * ~labels.is_missing
    require_weight(weight, "The realized cost")
    return float(np.average(by_row.paid(labels, taken), weights=weight))


@final
@dataclass(frozen=True, slots=True, eq=False)
class RealizedCosts:
    """Expected and realized costs of the optimal actions, row by row.

    `by_action` is the realized cost of every action, rows x actions. Unlabeled rows have weight 0.
    """

    costs: CostMatrix
    labels: Labels
    row_costs: RowCosts
    weight: FloatArray
    action: IntArray
    expected: FloatArray
    by_action: FloatArray

    @classmethod
    def of(
        cls, y_true: Any, outputs: Any, costs: Any, row_costs: Any, sample_weight: Any, caller: str
    ) -> RealizedCosts:
        """Decide every row and compare with the labels."""
        wrapped = convert_in_order(y_true, outputs, as_class_outputs, caller)
        table = as_costs(costs, "costs", caller).for_classes(wrapped.classes, wrapped.n_classes)
        batch = labeled_batch(y_true, wrapped, sample_weight, caller)
        labels, weight = batch.class_labels, batch.labeled_weight
        require_weight(weight, "The cost")
        by_row = RowCosts.of(row_costs, table, len(batch), caller).answered(wrapped)
        by_action = by_row.of_labels(labels)
        found = least_costs(wrapped, table, by_row)
        return cls(table, labels, by_row, weight, found.action, found.cost, by_action)

    @property
    def realized(self) -> FloatArray:
        """The realized costs of the actions taken."""
        return np.asarray(self.by_action[np.arange(self.action.size), self.action])

    @property
    def oracle(self) -> FloatArray:
        """The cost of the best action with perfect information."""
        soft = self.labels.probabilities
        if soft is None:
            return np.asarray(self.by_action.min(axis=1))
        each = [self.row_costs.in_class(k).min(axis=0) for k in range(self.costs.n_classes)]
        return np.asarray(sum(soft[:, k] * cost for k, cost in enumerate(each)))

    @property
    def best_constant(self) -> int:
        """The index of the action that is cheapest when always taken, in hindsight."""
        return int(np.average(self.by_action, axis=0, weights=self.weight).argmin())


def decide_rows(
    batch: Batch, costs: CostMatrix, pos_column: int | None
) -> tuple[FloatArray, FloatArray]:
    """Return whether each row's action is that of the positive class, and its realized cost."""
    outputs = as_class_outputs(batch.outputs, "audit")
    table = costs.for_classes(outputs.classes, outputs.n_classes)
    by_row = RowCosts.of(batch.row_costs, table, len(batch), "audit").answered(outputs)
    action = least_costs(outputs, table, by_row, "audit").action
    is_positive = np.zeros(action.size)
    if pos_column is not None:
        is_positive = (action == by_row.in_class(pos_column).argmin(axis=0)) * 1.0
    return is_positive, by_row.paid(batch.class_labels, action)


def is_wrong_of(action: IntArray, labels: Labels, row_costs: RowCosts) -> BoolArray:
    """Return where another action, other than reject, would have cost less.

    If there is only one, where it costs more than in the class for which it is right.
    """
    by_action, costs = row_costs.of_labels(labels), row_costs.costs
    paid = by_action[np.arange(action.size), action]
    least = by_action[:, list(costs.deciding)].min(axis=1)
    if len(costs.deciding) == 1:
        least = row_costs.least_in_class(0)
    return np.asarray(paid > least + SAME * np.abs(least))


def _labels_of(y_true: Any, n_rows: int, costs: CostMatrix, caller: str) -> Labels:
    """Return labels by the classes of the costs; integers with string class names are columns."""
    classes = costs.classes
    is_integer = as_array(y_true, "y_true", caller).dtype.kind in "iu"
    if is_integer and all(isinstance(name, str) for name in classes or ()):
        classes = None
    shape = np.broadcast_to(0.0, (n_rows, costs.n_classes))
    rows = unchecked(Probabilities, {"array": shape, "classes": classes})
    return Labels.of(y_true, rows, "y_true", caller)


def action_numbers(
    actions: Any, costs: CostMatrix, caller: str, argument: str = "actions"
) -> IntArray:
    """Return actions as indices, given as such or by name."""
    array = as_array(actions, argument, caller)
    require_dimensions(array, (1,), argument, caller, "one action per row")
    names = ", ".join(repr(name) for name in costs.actions[:5])
    if array.dtype.kind in "iu":
        is_fine = (array >= 0) & (array < costs.n_actions)
        rule, fix = f"must be from 0 to {costs.n_actions - 1}", f"Use names such as {names}"
        require_everywhere(is_fine, array, argument, caller, rule, fix)
        return array.astype(np.int64)
    if array.dtype.kind not in "UO":
        rule, fix = "must be indices or names of actions", "Pass what optimal_actions returns"
        raise BadTypeError(argument, caller, rule, f"dtype {array.dtype}", fix)
    number_of = {name: number for number, name in enumerate(costs.actions)}
    for row, name in enumerate(array.tolist()):
        if name not in number_of:
            rule, fix = "must be names of actions of the costs", f"Use one of {names}"
            raise BadValueError(argument, caller, rule, repr(name), fix, row)
    return np.array([number_of[name] for name in array.tolist()], dtype=np.int64)


def require_weight(weight: FloatArray, what: str) -> None:
    """Raise unless some labeled row has a positive weight."""
    if not weight.sum() > 0:
        raise EmptyStateError(what)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CostCoverageCurve(ArrayResult):
    """The cost of accepting rows up to each value of an uncertainty score.

    Attributes
    ----------
    uncertainty : array of float
        The distinct scores, increasing.
    coverage : array of float
        The fraction of rows accepted up to each score.
    cost : array of float
        The mean cost per accepted row.
    total : array of float or None
        The mean cost per row when the others are rejected, None without a reject action.
    """

    uncertainty: FloatArray
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
    uncertainty: Any = None,
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
    uncertainty : array, optional
        One uncertainty score per row; rows with equal scores are accepted together. By default,
        how much more the best action is expected to cost than rejecting.
    sample_weight : array, optional
        Weights of the rows.

    Returns
    -------
    CostCoverageCurve

    Examples
    --------
    >>> from dubito import CostMatrix
    >>> from dubito.decide import cost_coverage_curve
    >>> costs = CostMatrix.zero_one(2).with_reject(0.25)
    >>> cost_coverage_curve([0, 0], [[0.9, 0.1], [0.4, 0.6]], costs).total.tolist()
    [0.125, 0.5]
    """
    caller = "cost_coverage_curve"
    wrapped = convert_in_order(y_true, outputs, as_class_outputs, caller)
    realized = RealizedCosts.of(y_true, wrapped, costs, row_costs, sample_weight, caller)
    acting, rejecting = list(realized.costs.deciding), list(realized.costs.rejecting)
    if not acting:
        rule, fix = "must have an action that does not reject", "Add a row of costs per class"
        raise BadValueError("costs", caller, rule, "only a reject action", fix)
    expected = expected_costs(wrapped, realized.costs, realized.row_costs)
    rows, scores = np.arange(len(expected)), expected[:, acting].min(axis=1)
    paid = realized.by_action[:, acting][rows, expected[:, acting].argmin(axis=1)]
    if rejecting:
        scores = scores - expected[:, rejecting].min(axis=1)
    if uncertainty is not None:
        scores = as_numbers(uncertainty, "uncertainty", caller, paid.size)
    ranks, weight = Ranks.of(scores), realized.weight
    mass = ranks.sums(weight)
    held = mass > 0
    kept, spent = np.cumsum(mass[held]), np.cumsum(ranks.sums(weight * paid)[held])
    total = None
    if rejecting:
        by_reject = realized.by_action[:, rejecting][rows, expected[:, rejecting].argmin(axis=1)]
        rejected = ranks.sums(weight * by_reject)[held]
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
    >>> from dubito import CostMatrix
    >>> from dubito.decide import cost_prior_curve
    >>> costs = CostMatrix.zero_one(2)
    >>> outputs = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]
    >>> cost_prior_curve([0, 1, 1], outputs, costs, class_=1, priors=[0.0, 0.5, 1.0]).cost.tolist()
    [0.0, 0.25, 0.5]
    """
    caller = "cost_prior_curve"
    wrapped = convert_in_order(y_true, outputs, as_class_outputs, caller)
    realized = RealizedCosts.of(y_true, wrapped, costs, row_costs, sample_weight, caller)
    column = _column_of(class_, wrapped, caller)
    grid = np.linspace(0, 1, 21) if priors is None else as_fractions(priors, "priors", caller)
    if realized.labels.probabilities is not None:
        rule, fix = "must be one label per row", "Pass the most probable label of each row"
        raise BadValueError("y_true", caller, rule, "label probabilities", fix)
    is_class = realized.labels.codes == column
    inside, outside = realized.weight * is_class, realized.weight * ~is_class
    if not (inside.sum() > 0 and outside.sum() > 0):
        got = "none of the class" if outside.sum() > 0 else "only this class"
        rule, fix = "must have rows of the class and of others", "Pass rows of both"
        raise BadValueError("y_true", caller, rule, got, fix)
    measured = float(inside.sum() / realized.weight.sum())
    rows, paid, grid = np.arange(is_class.size), realized.realized, grid.astype(np.float64)
    cost, adapted, constant = np.empty((3, grid.size))
    for k, prior in enumerate(grid.tolist()):
        weight = prior * inside / inside.sum() + (1 - prior) * outside / outside.sum()
        adjusted = _with_prior(wrapped, column, measured, prior)
        action = optimal_actions(adjusted, realized.costs, realized.row_costs)
        cost[k], adapted[k] = weight @ paid, weight @ realized.by_action[rows, action]
        constant[k] = (weight @ realized.by_action).min()
    return CostPriorCurve(grid, cost, adapted, constant, measured)


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

"""Realized costs of actions, row by row, once the true classes are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    as_array,
    require_dimensions,
    require_everywhere,
)
from dubito.calibrate.calibrator import as_class_outputs
from dubito.data.batch import Batch, as_weights
from dubito.data.labels import Labels
from dubito.decide.actions import least_costs
from dubito.decide.costs import CostMatrix, as_costs
from dubito.decide.row_costs import RowCosts
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.measure.state import labeled_batch, warn_of_missing
from dubito.outputs import Probabilities, unchecked

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
    paid = by_row.of_labels(labels)[np.arange(taken.size), taken]
    return float(np.average(paid, weights=weight))


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
        wrapped = as_class_outputs(outputs, caller)
        table = as_costs(costs, "costs", caller).for_classes(wrapped.classes, wrapped.n_classes)
        batch = labeled_batch(y_true, wrapped, sample_weight, caller)
        labels, weight = batch.class_labels, batch.labeled_weight
        require_weight(weight, "The cost")
        by_row = RowCosts.of(row_costs, table, len(batch), caller)
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
    by_row = RowCosts.of(batch.row_costs, table, len(batch), "audit")
    action = least_costs(outputs, table, by_row, "audit").action
    realized = by_row.of_labels(batch.class_labels)[np.arange(action.size), action]
    if pos_column is None:
        return np.zeros(action.size), realized
    return (action == by_row.in_class(pos_column).argmin(axis=0)) * 1.0, realized


def is_wrong_of(action: IntArray, labels: Labels, row_costs: RowCosts) -> BoolArray:
    """Return where another action, other than reject, would have cost less."""
    by_action, costs = row_costs.of_labels(labels), row_costs.costs
    paid = by_action[np.arange(action.size), action]
    decided = [number for number in range(costs.n_actions) if number != costs.reject]
    least = by_action[:, decided].min(axis=1)
    return np.asarray(paid > least + SAME * np.abs(least))


def _labels_of(y_true: Any, n_rows: int, costs: CostMatrix, caller: str) -> Labels:
    """Return labels by the classes of the costs; integers with string class names are columns."""
    array = as_array(y_true, "y_true", caller)
    is_named = costs.classes is not None and not (
        array.dtype.kind in "iu" and all(isinstance(name, str) for name in costs.classes)
    )
    shape = np.broadcast_to(0.0, (n_rows, costs.n_classes))
    classes = costs.classes if is_named else None
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

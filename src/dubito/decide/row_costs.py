"""Costs that differ from row to row: what `row_costs` gives to a cost matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import (
    FloatArray,
    IntArray,
    as_array,
    as_numbers,
    column_names_of,
    contiguous,
    freeze,
)
from dubito.data.batch import as_row_costs
from dubito.data.expressions import HIGHEST_COST
from dubito.data.labels import Labels
from dubito.decide.answerers import Answerer
from dubito.decide.costs import CostMatrix
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels.expected_cost import share_rows
from dubito.outputs import Logits, Probabilities

NO_ENTRIES, NO_VALUES = freeze(np.empty((0, 3), np.int64)), freeze(np.empty((0, 0)))


class CostTerms(NamedTuple):
    """Costs as kernels take them, actions x classes: constant cells, and others by row.

    `entries` are lines of an action, a class and a row of `values`, which is values x rows.
    """

    base: FloatArray
    entries: IntArray
    values: FloatArray

    def expected(self, probabilities: FloatArray) -> FloatArray:
        """Return the expected cost of each action, rows x actions, by matrix products."""
        costs: FloatArray = probabilities @ self.base.T
        for action in np.unique(self.entries[:, 0]).tolist():
            _, classes, numbers = self.entries[self.entries[:, 0] == action].T
            some, values = probabilities[:, classes], self.values[numbers]
            costs[:, action] += np.einsum("nk,kn->n", some, values)
        return costs

    def above_cheapest(self) -> CostTerms:
        """Return costs relative to the cheapest action of each class, and these as one more action.

        No cost is negative then: sums do not cancel, and ties are relative to the lowest cost.
        """
        if not len(self.entries):
            cheapest = self.base.min(axis=0)
            return CostTerms(np.vstack([self.base - cheapest, cheapest]), NO_ENTRIES, NO_VALUES)
        varies = np.zeros(self.base.shape, np.bool_)
        varies[self.entries[:, 0], self.entries[:, 1]] = True
        least = np.where(varies, np.inf, self.base).min(axis=0)
        base = np.where(varies, 0.0, self.base - np.where(np.isinf(least), 0.0, least))
        is_varying = varies.any(axis=0)
        base = np.vstack([base, np.where(is_varying, 0.0, least)])
        entries: list[tuple[int, int, int]] = []
        values: list[FloatArray] = []
        for k in np.flatnonzero(is_varying).tolist():
            own = self.entries[self.entries[:, 1] == k]
            cells = self.values[own[:, 2]]
            cheapest = np.minimum(cells.min(axis=0), least[k])
            entries += [(a, k, len(values) + i) for i, a in enumerate(own[:, 0].tolist())]
            entries.append((len(self.base), k, len(values) + len(own)))
            values += [*(cells - cheapest), cheapest]
            shift = least[k] - cheapest  # of the actions whose cost is the same for all rows
            if not varies[:, k].all() and shift.any():
                entries += [(a, k, len(values)) for a in np.flatnonzero(~varies[:, k]).tolist()]
                values.append(shift)
        return CostTerms(base, np.array(entries, np.int64), np.stack(values))


@final
@dataclass(frozen=True, slots=True, eq=False)
class RowCosts:
    """The cost of each action in each class for some rows.

    Made by `RowCosts.of`, which accepts what users pass as `row_costs`. `values` is values x rows.
    The cost of asking someone includes what is decided after the answer; where that depends on the
    probabilities of the row, only once `answered` was called (`is_answered`).
    """

    costs: CostMatrix
    n_rows: int
    base: FloatArray
    entries: IntArray
    values: FloatArray
    is_answered: bool = True

    @classmethod
    def of(cls, row_costs: Any, costs: CostMatrix, n_rows: int, caller: str) -> RowCosts:
        """Evaluate the expressions of costs on the columns of rows, or take the costs of rows.

        An array rows x actions x classes replaces all costs; its classes are in the order of the
        outputs.
        """
        if isinstance(row_costs, RowCosts):
            return row_costs
        if row_costs is None:
            if costs.columns:
                rule = f"must hold the columns of the costs, {_listed(costs.columns)}"
                fix = f"Pass row_costs={{{costs.columns[0]!r}: [...]}}"
                raise BadTypeError("row_costs", caller, rule, "None", fix)
            return cls._with_final_answers(costs, n_rows, NO_ENTRIES, NO_VALUES)
        if np.ndim(row_costs) == 3 and not isinstance(row_costs, Mapping):
            return cls._of_array(row_costs, costs, n_rows, caller)
        if not costs.columns:
            rule, got = "has no effect on costs without expressions", type(row_costs).__name__
            fix = "Leave it out, or use expressions such as CostMatrix([[0, 'amount'], [1, 0]])"
            raise BadValueError("row_costs", caller, rule, f"a {got}", fix)
        columns = _columns_of(row_costs, costs.columns, n_rows, caller)
        values = np.empty((len(costs.expressions), n_rows))
        for number, expression in enumerate(costs.expressions):
            action, class_, _ = costs.entries[costs.entries[:, 2] == number][0].tolist()
            name = class_ if costs.classes is None else costs.classes[class_]
            cell = f"{costs.actions[action]},{name}="
            values[number] = expression.evaluate(columns, n_rows, caller, cell)
        return cls._with_final_answers(costs, n_rows, costs.entries, freeze(values))

    @classmethod
    def _with_final_answers(
        cls, costs: CostMatrix, n_rows: int, entries: IntArray, values: FloatArray
    ) -> RowCosts:
        """Add what is decided after final answers to the price of asking for them."""
        is_answered = not any(one.needs_posterior for one in costs.reviews)
        prices = cls(costs, n_rows, costs.array, entries, values, is_answered)
        for one in costs.reviews:
            if not one.needs_posterior:
                prices = prices._with_answer(one, None)
        return prices

    def answered(self, outputs: Logits | Probabilities) -> RowCosts:
        """Return the costs with what is decided after answers that are combined by Bayes.

        `outputs` are the calibrated outputs of the rows.
        """
        if self.is_answered:
            return self
        result, p = self, np.empty(outputs.array.shape)
        share_rows(contiguous(outputs.array), isinstance(outputs, Logits), p)
        for one in self.costs.reviews:
            if one.needs_posterior:
                result = result._with_answer(one, p)
        return replace(result, is_answered=True)

    def _with_answer(self, asked: Answerer, p: FloatArray | None) -> RowCosts:
        """Return the costs with those of what is decided after an answer; p where it matters."""
        action, others = self.costs.actions.index(asked.name), self.without_reject()
        n_rows, n_classes = self.n_rows, self.costs.n_classes
        if p is None:
            p = np.full((n_rows if len(others.entries) else 1, n_classes), 1 / n_classes)
        after = asked.costs_after(p, others.terms(), by_class=True)
        if not asked.needs_posterior and not len(others.entries):
            base = self.base.copy()
            base[action] += after[0]
            return replace(self, base=freeze(base))
        own = self.entries[:, 0] == action
        for _, k, number in self.entries[own].tolist():
            after[:, k] += self.values[number]
        after += self.base[action]
        base = self.base.copy()
        base[action] = 0.0
        values = np.vstack([self.values, after.T]) if self.values.size else after.T
        first = len(values) - n_classes
        cells = [(action, k, first + k) for k in range(n_classes)]
        entries = np.vstack([self.entries[~own], np.array(cells, np.int64)])
        return replace(self, base=freeze(base), entries=entries, values=freeze(values))

    @classmethod
    def _of_array(cls, row_costs: Any, costs: CostMatrix, n_rows: int, caller: str) -> RowCosts:
        """Return the costs in an array rows x actions x classes."""
        array = as_row_costs(row_costs, n_rows, caller)
        shape = (costs.n_actions, costs.n_classes)
        if array.shape[1:] != shape:
            rule = f"must be rows x {shape[0]} actions x {shape[1]} classes, as the costs are"
            fix = "Give the costs of every action in every class"
            raise BadValueError("row_costs", caller, rule, f"shape {array.shape}", fix)
        is_fine = (np.abs(array) <= HIGHEST_COST).all(axis=(1, 2))
        if not is_fine.all():
            rule, fix = f"must be at most {HIGHEST_COST:g} in size", "Use another unit"
            raise BadValueError("row_costs", caller, rule, "more", fix, int(np.argmin(is_fine)))
        cells = np.indices(shape).reshape(2, -1)
        entries = np.vstack([cells, np.arange(cells.shape[1])]).T
        values = np.ascontiguousarray(array.reshape(n_rows, -1).T)
        return cls(costs, n_rows, freeze(np.zeros(shape)), entries, freeze(values))

    @property
    def is_constant(self) -> bool:
        """Whether the costs are the same for all rows."""
        return not len(self.entries)

    def constant_cost(self, action: int) -> float | None:
        """Return the cost of an action, None unless it is the same for all rows and classes."""
        costs = self.base[action]
        is_same = np.ptp(costs) == 0 and action not in self.entries[:, 0]
        return float(costs[0]) if is_same else None

    def terms(self, rows: slice | IntArray = slice(None)) -> CostTerms:
        """Return the costs of some rows as kernels take them."""
        return CostTerms(self.base, self.entries, self.values[:, rows])

    def take(self, rows: slice | IntArray) -> RowCosts:
        """Return the costs of some rows."""
        n_rows = len(range(self.n_rows)[rows]) if isinstance(rows, slice) else rows.size
        values = self.values if self.is_constant else self.values[:, rows]
        return replace(self, n_rows=n_rows, values=values)

    def without_reject(self) -> RowCosts:
        """Return the costs of all actions that do not reject."""
        rejecting = list(self.costs.rejecting)
        if not rejecting:
            return self
        kept = self.entries[~np.isin(self.entries[:, 0], rejecting)]
        kept[:, 0] -= np.isin(np.arange(self.costs.n_actions), rejecting).cumsum()[kept[:, 0]]
        base, others = np.delete(self.base, rejecting, axis=0), without_reject(self.costs)
        return RowCosts(others, self.n_rows, base, kept, self.values)

    def in_class(self, class_: int) -> FloatArray:
        """Return the costs of all actions in a class, actions x rows, or x 1 if constant."""
        if self.is_constant:
            return self.base[:, [class_]]
        costs = np.repeat(self.base[:, [class_]], self.n_rows, axis=1)
        for action, _, number in self.entries[self.entries[:, 1] == class_].tolist():
            costs[action] = self.values[number]
        return costs

    def least_in_class(self, class_: int) -> FloatArray:
        """Return the cost of the best decision in a class, for each row, or 1 if constant.

        With a single action, such as to answer, it is what a correct decision costs: its cost in
        the class where it costs least.
        """
        others = self.without_reject()
        if others.costs.n_actions > 1:
            return np.asarray(others.in_class(class_).min(axis=0))
        by_class = [others.in_class(k)[0] for k in range(others.costs.n_classes)]
        return np.asarray(np.min(by_class, axis=0))

    def of_labels(self, labels: Labels) -> FloatArray:
        """Return the cost of each action in the true class, rows x actions.

        The cost of asking someone is its mean over the answers.
        """
        if not self.is_answered:
            rule = "must be final answers where the probabilities of the rows are not known"
            fix = "Use combine='replace', or pass row_costs as rows x actions x classes"
            names = [one.name for one in self.costs.reviews if one.needs_posterior]
            raise BadValueError("costs", "realized costs", rule, f"{names[0]!r} with Bayes", fix)
        soft = labels.probabilities
        if soft is not None:
            return self.terms().expected(soft)
        # A missing label has the code -1: any column will do, as its row has weight 0.
        costs = np.array(self.base.T[labels.codes])
        for class_ in np.unique(self.entries[:, 1]).tolist():
            rows = np.flatnonzero(labels.codes == class_)
            for action, _, number in self.entries[self.entries[:, 1] == class_].tolist():
                costs[rows, action] = self.values[number, rows]
        return costs

    def paid(self, labels: Labels, action: IntArray) -> FloatArray:
        """Return the cost of one action per row in the true class."""
        return np.asarray(self.of_labels(labels)[np.arange(action.size), action])

    def expected(self, probabilities: FloatArray, action: IntArray) -> FloatArray:
        """Return the expected cost of one action per row.

        Row by row, as the rounding of a matrix product depends on the number of rows.
        """
        costs = np.asarray((probabilities * self.base[action]).sum(axis=1))
        for taken in np.unique(action).tolist():
            rows = np.flatnonzero(action == taken)
            for _, class_, number in self.entries[self.entries[:, 0] == taken].tolist():
                costs[rows] += probabilities[rows, class_] * self.values[number, rows]
        return costs


@lru_cache(maxsize=16)  # a service needs it for each request
def without_reject(costs: CostMatrix) -> CostMatrix:
    """Return the costs of all actions that do not reject."""
    if costs.reject is None:
        return costs
    others = list(costs.deciding)
    names = [costs.actions[number] for number in others]
    return CostMatrix(costs.cells[others].tolist(), names, costs.classes)


def column_medians(row_costs: Any, names: tuple[str, ...]) -> dict[str, float]:
    """Return the median of each column that costs depend on; none if costs are given by row."""
    if not names or row_costs is None or np.ndim(row_costs) == 3:
        return {}
    columns = _columns_of(row_costs, names, len(row_costs), "Policy.fit")
    return {name: float(np.median(column)) for name, column in columns.items()}


def _columns_of(
    row_costs: Any, names: tuple[str, ...], n_rows: int, caller: str
) -> dict[str, NDArray[Any]]:
    """Return the columns that costs need, as numbers."""
    held = column_names_of(row_costs)
    if held is None:
        if len(names) > 1:
            rule = f"must have the columns {_listed(names)}"
            fix = f"Pass a dict or a data frame: row_costs={{{names[0]!r}: [...], ...}}"
            raise BadTypeError("row_costs", caller, rule, type(row_costs).__name__, fix)
        return {names[0]: as_numbers(row_costs, "row_costs", caller, n_rows)}
    missing = [name for name in names if name not in held]
    if missing:
        rule, got = f"must have the columns {_listed(names)}", _listed(tuple(held)) or "none"
        fix = f"Add {_listed(tuple(missing))}, or change the costs"
        raise BadValueError("row_costs", caller, rule, got, fix)
    found = {}
    for name in names:
        try:
            found[name] = as_numbers(as_array(row_costs[name], name, caller), name, caller, n_rows)
        except (BadTypeError, BadValueError) as error:
            raise error.moved(argument=f"row_costs[{name!r}]", column=None) from error
    return found


def _listed(names: tuple[str, ...]) -> str:
    """Return the first few names for a message."""
    return ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")

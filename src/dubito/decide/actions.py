"""From probabilities and costs to the action that costs least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import (
    FloatArray,
    IntArray,
    as_finite,
    as_floats,
    contiguous,
    freeze,
    require_dimensions,
    require_everywhere,
    require_rows,
)
from dubito.decide.costs import HIGHEST_COST, CostMatrix, as_costs
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels.blocks import kept_threads, map_in_order, row_blocks
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
from dubito.outputs import Logits, Members, Probabilities, as_outputs

MARGIN = 1e-9  # where reject costs at most so much more than the least, it wins
WIDE_ENTRIES = 1 << 18  # of a block whose probabilities are written down, 2 MB


@final
@dataclass(frozen=True, slots=True, eq=False)
class LeastCosts:
    """The action of least expected cost, a number each row, and what was seen on the way to it.

    `excess` is the least of what actions other than reject cost above the cheapest of each class;
    `class_` and `probability` are those of the top class.
    """

    action: IntArray
    cost: FloatArray
    excess: FloatArray
    class_: IntArray
    probability: FloatArray


def expected_costs(outputs: Any, costs: CostMatrix, row_costs: Any = None) -> FloatArray:
    """Return what each action costs on average, rows x actions, in float64.

    `row_costs`, one a row, are needed where costs grow with them. Bishop, "Pattern recognition and
    machine learning", 2006, section 1.5.2.

    >>> costs = CostMatrix.from_errors(false_positive=1, false_negative=8)
    >>> expected_costs([[0.75, 0.25]], costs).tolist()
    [[2.0, 0.75]]
    """
    asked = Question.of(outputs, costs, row_costs, "expected_costs")
    base, rate = asked.costs.array, asked.rate
    result = np.empty((asked.array.shape[0], base.shape[0]))

    def fill(rows: slice) -> None:
        if asked.is_narrow:
            narrow_costs(*asked.block(rows), base, rate, asked.row_costs[rows], result[rows])
        else:
            result[rows] = asked.wide_costs(rows, asked.wide_shares(rows), base, rate)

    asked.run(fill)
    return result


def optimal_actions(outputs: Any, costs: CostMatrix, row_costs: Any = None) -> IntArray:
    """Return the number of the action of least expected cost, a row each.

    On a tie reject wins (within 1e-9), else the first action. With `CostMatrix.zero_one` it is the
    most probable class.

    >>> costs = CostMatrix.zero_one(2).with_reject(0.25)
    >>> optimal_actions([[0.875, 0.125], [0.75, 0.25], [0.5, 0.5]], costs).tolist()
    [0, 2, 2]
    """
    return _least_costs_of(outputs, costs, row_costs, "optimal_actions").action


def least_costs(outputs: Any, costs: CostMatrix, row_costs: Any = None) -> LeastCosts:
    """Return the action of least expected cost and that cost, in one pass over the outputs.

    >>> least_costs([[0.875, 0.125]], CostMatrix.zero_one(2)).cost.tolist()
    [0.125]
    """
    return _least_costs_of(outputs, costs, row_costs, "least_costs")


def _least_costs_of(outputs: Any, costs: Any, row_costs: Any, caller: str) -> LeastCosts:
    """Return the action of least expected cost and that cost, for `caller`."""
    asked = Question.of(outputs, costs, row_costs, caller)
    # Above the cheapest action of a class no cost is below 0: sums do not cancel, and ties but for
    # rounding are told as a share of the least.
    base, rate = _above_cheapest(asked.costs.array), _above_cheapest(asked.rate)
    reject = -1 if asked.costs.reject is None else asked.costs.reject
    n_rows = asked.array.shape[0]
    choices, numbers = np.empty((2, n_rows), np.int64), np.empty((3, n_rows))

    def fill(rows: slice) -> None:
        found = choices[:, rows], numbers[:, rows]
        if asked.is_narrow:
            row_costs = asked.row_costs[rows]
            narrow_least(*asked.block(rows), base, rate, row_costs, reject, MARGIN, *found)
        else:
            shares = asked.wide_shares(rows)
            _fill_least(asked.wide_costs(rows, shares, base, rate), reject, *found)
            asked.fill_top(rows, shares, *found)

    asked.run(fill)
    return LeastCosts(
        choices[ACTION], numbers[COST], numbers[EXCESS], choices[CLASS], numbers[PROBABILITY]
    )


@final
@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """Outputs, costs and row_costs that fit each other."""

    array: FloatArray
    is_logits: bool
    costs: CostMatrix
    rate: FloatArray
    row_costs: FloatArray

    @classmethod
    def of(cls, outputs: Any, costs: Any, row_costs: Any, caller: str) -> Question:
        """Check what was asked; without rates there are no row_costs."""
        wrapped = as_class_outputs(outputs, "outputs", caller)
        table = as_costs(costs, "costs", caller).for_classes(wrapped.classes, wrapped.n_classes)
        rate = freeze(np.zeros((0, table.n_classes))) if table.rate is None else table.rate
        sizes = as_row_costs(row_costs, table, wrapped.n_rows, caller)
        return cls(wrapped.array, isinstance(wrapped, Logits), table, rate, sizes)

    @property
    def is_narrow(self) -> bool:
        """Whether classes are so few that lanes run over rows."""
        return bool(self.array.shape[1] <= NARROW)

    def block(self, rows: slice) -> tuple[FloatArray, bool]:
        """Return a range of rows as kernels take them."""
        return contiguous(self.array[rows]), self.is_logits

    def wide_shares(self, rows: slice) -> FloatArray:
        """Return the probabilities of a range of rows."""
        array, is_logits = self.block(rows)
        shares = np.empty(array.shape)
        share_rows(array, is_logits, shares)
        return shares

    def fill_top(
        self, rows: slice, shares: FloatArray, choices: IntArray, numbers: FloatArray
    ) -> None:
        """Fill in the top class of a range of rows; its probability, where given, as it is."""
        array = self.array[rows]
        top = array.argmax(axis=1)
        choices[CLASS] = top
        numbers[PROBABILITY] = (shares if self.is_logits else array)[np.arange(top.size), top]

    def wide_costs(
        self, rows: slice, shares: FloatArray, base: FloatArray, rate: FloatArray
    ) -> FloatArray:
        """Return expected costs of a range of rows by a matrix product."""
        costs: FloatArray = shares @ base.T
        if self.row_costs.size:
            costs += self.row_costs[rows, np.newaxis] * (shares @ rate.T)
        return costs

    def run(self, fill: Any) -> None:
        """Call `fill` with every block of rows, over threads."""
        n_rows, n_classes = self.array.shape
        if self.is_narrow:
            for _ in map_in_order(fill, row_blocks(n_rows, n_classes)):
                pass
            return
        widest = max(n_classes, self.costs.n_actions)
        with kept_threads():
            for _ in map_in_order(fill, row_blocks(n_rows, widest, WIDE_ENTRIES)):
                pass


def _above_cheapest(table: FloatArray) -> FloatArray:
    """Return what each action costs above the cheapest of a class, and below that the cheapest."""
    if not table.shape[0]:
        return table
    cheapest = table.min(axis=0)
    return contiguous(np.vstack([table - cheapest, cheapest]))


def _fill_least(costs: FloatArray, reject: int, choices: IntArray, numbers: FloatArray) -> None:
    """Fill in the first action of least cost, or reject near it, as `narrow_least` does."""
    above = costs[:, :-1]
    lowest = above.min(axis=1)
    action = (above <= lowest[:, np.newaxis] * (1.0 + TIE)).argmax(axis=1)
    numbers[EXCESS] = lowest
    if reject >= 0:
        action = np.where(above[:, reject] <= lowest + MARGIN, reject, action)
        numbers[EXCESS] = np.delete(above, reject, axis=1).min(axis=1, initial=np.inf)
    choices[ACTION] = action
    numbers[COST] = above[np.arange(len(action)), action] + costs[:, -1]


def as_class_outputs(outputs: Any, argument: str, caller: str) -> Logits | Probabilities:
    """Return outputs of one matrix, rows x classes: of several members, their mean."""
    wrapped = as_outputs(outputs, argument, caller)
    if isinstance(wrapped, Members):
        wrapped = wrapped.mean
    if not isinstance(wrapped, Logits | Probabilities):
        kinds = "Logits, Probabilities, Members or an array of probabilities"
        fix = "a classifier's outputs, all classes of them"
        raise BadTypeError(argument, caller, kinds, type(wrapped).__name__, fix)
    return wrapped


def as_row_costs(row_costs: Any, costs: CostMatrix, n_rows: int, caller: str) -> FloatArray:
    """Return one amount a row in float64; none where costs do not grow with them."""
    if costs.rate is None:
        if row_costs is not None:
            rule, fix = "None, as no cost grows with it", "CostMatrix(..., rate=...)"
            raise BadValueError("row_costs", caller, rule, type(row_costs).__name__, fix)
        return freeze(np.empty(0))
    if row_costs is None:
        rule, fix = "one number a row, as costs grow with it", "row_costs=..., such as prices"
        raise BadTypeError("row_costs", caller, rule, "None", fix)
    array = as_finite(as_floats(row_costs, "row_costs", caller), "row_costs", caller)
    require_dimensions(array, (1,), "row_costs", caller, "one number per row")
    require_rows(array, n_rows, "row_costs", caller)
    array = array.astype(np.float64)
    is_fine = (array >= 0) & (array <= HIGHEST_COST)
    rule = f"between 0 and {HIGHEST_COST:g}"
    require_everywhere(is_fine, array, "row_costs", caller, rule, "a rate below 0 for a gain")
    return freeze(array)

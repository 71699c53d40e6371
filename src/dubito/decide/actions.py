"""From probabilities and costs to the action of lowest expected cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import FloatArray, IntArray, contiguous, freeze
from dubito.calibrate.calibrator import as_class_outputs
from dubito.decide.costs import CostMatrix, as_costs
from dubito.decide.row_costs import CostTerms, RowCosts
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

    `excess` is the expected regret of the best action other than reject; `class_` and
    `probability` are those of the most probable class.
    """

    action: IntArray
    cost: FloatArray
    excess: FloatArray
    class_: IntArray
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
    is_constant = inputs.row_costs.is_constant
    constant = inputs.row_costs.terms().above_cheapest() if is_constant else None
    reject = -1 if inputs.costs.reject is None else inputs.costs.reject
    n_rows = inputs.array.shape[0]
    choices, numbers = np.empty((2, n_rows), np.int64), np.empty((3, n_rows))

    def fill(rows: slice) -> None:
        parts = choices[:, rows], numbers[:, rows]
        terms = constant or inputs.row_costs.terms(rows).above_cheapest()
        if inputs.is_narrow:
            taken = _as_kernels_take(terms)
            narrow_least(*inputs.block(rows), *taken, reject, MARGIN, *parts)
        else:
            probabilities = inputs.probabilities_of(rows)
            _fill_least(terms.expected(probabilities), reject, *parts)
            inputs.fill_top(rows, probabilities, *parts)

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
        by_row = RowCosts.of(row_costs, table, wrapped.n_rows, caller)
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

    def fill_top(
        self, rows: slice, probabilities: FloatArray, choices: IntArray, numbers: FloatArray
    ) -> None:
        """Fill in the most probable class of a range of rows, and its probability."""
        array = self.array[rows]
        top = array.argmax(axis=1)
        choices[CLASS] = top
        numbers[PROBABILITY] = (probabilities if self.is_logits else array)[
            np.arange(top.size), top
        ]

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


def _fill_least(costs: FloatArray, reject: int, choices: IntArray, numbers: FloatArray) -> None:
    """Fill in the first action of lowest cost, or reject on a tie, as `narrow_least` does."""
    above = costs[:, :-1]
    lowest = above.min(axis=1)
    action = (above <= lowest[:, np.newaxis] * (1.0 + TIE)).argmax(axis=1)
    numbers[EXCESS] = lowest
    if reject >= 0:
        action = np.where(above[:, reject] <= lowest + MARGIN, reject, action)
        numbers[EXCESS] = np.delete(above, reject, axis=1).min(axis=1, initial=np.inf)
    choices[ACTION] = action
    numbers[COST] = above[np.arange(len(action)), action] + costs[:, -1]

"""Which action is taken where: decision regions over two features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import FloatArray, IntArray, as_finite, as_floats, freeze
from dubito.data.rows import rows_of
from dubito.decide.actions import MARGIN, as_class_outputs, expected_costs, least_costs
from dubito.decide.boundaries import boundaries_of
from dubito.decide.costs import CostMatrix, as_costs
from dubito.errors import BadTypeError, BadValueError

__all__ = ["DecisionRegions", "as_constant_costs", "decision_regions"]

MOST_POINTS = 2000  # along a side, four million altogether


@final
@dataclass(frozen=True, slots=True, eq=False)
class DecisionRegions:
    """The action at each point of a grid over two features, and the lines between regions.

    `action`, `cost` and `confidence` (the largest posterior) have a row for each of `y` and a
    column for each of `x`. `segments` are lines x two ends x two features, along which the two
    actions `between` cost the same. `share` is the part of the area each action takes, counted on
    the grid.
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
    share: FloatArray


def decision_regions(
    posterior: Callable[[FloatArray], Any],
    x: Any,
    y: Any,
    costs: CostMatrix | None = None,
    *,
    n_points: int = 200,
) -> DecisionRegions:
    """Return the action of least expected cost over a rectangle of two features.

    `posterior` takes features, rows x 2, and returns outputs, as `model.predict_proba` does. `x`
    and `y` are the lowest and the highest value of each feature. Without `costs` each error costs
    1. Bishop, "Pattern recognition and machine learning", 2006, section 1.5.

    >>> from scipy.special import expit
    >>> costs = CostMatrix.zero_one(2).with_reject(0.25)
    >>> decision_regions(lambda z: expit(z[:, 0]), (-5, 5), (0, 1), costs).share.round(2).tolist()
    [0.39, 0.39, 0.22]
    """
    caller = "decision_regions"
    n_points = as_n_points(n_points, caller)
    side_x = np.linspace(*as_range(x, "x", caller), n_points)
    side_y = np.linspace(*as_range(y, "y", caller), n_points)
    outputs = outputs_on(posterior, side_x, side_y, caller)
    if costs is None:
        table = CostMatrix.zero_one(outputs.n_classes if not outputs.classes else outputs.classes)
    else:
        table = as_constant_costs(costs, caller)
    least, shape = least_costs(outputs, table), (n_points, n_points)
    expected = expected_costs(outputs, table).reshape(*shape, -1)
    if table.reject is not None:
        expected[..., table.reject] -= MARGIN
    lines = boundaries_of(side_x, side_y, expected)
    action = least.action.reshape(shape)
    return DecisionRegions(
        x=freeze(side_x),
        y=freeze(side_y),
        action=freeze(action),
        cost=freeze(least.cost.reshape(shape)),
        confidence=freeze(rows_of(outputs, None).confidence.reshape(shape)),
        actions=table.actions,
        reject=table.reject,
        segments=freeze(lines.segments),
        between=freeze(lines.between),
        share=freeze(shares_of(action, table.n_actions)),
    )


def outputs_on(posterior: Any, x: FloatArray, y: FloatArray, caller: str) -> Any:
    """Return what a posterior says at each point, rows of the grid one after the other."""
    if not callable(posterior):
        rule, fix = "a function of features, rows x 2", "`model.predict_proba`"
        raise BadTypeError("posterior", caller, rule, type(posterior).__name__, fix)
    columns, rows = np.meshgrid(x, y)
    features = np.stack([columns.ravel(), rows.ravel()], axis=1)
    n_rows = len(features)
    outputs = as_class_outputs(posterior(features), "posterior(features)", caller)
    if outputs.n_rows != n_rows:
        rule, fix = f"of {n_rows:,} rows, one a point", "a function that keeps the rows it is given"
        raise BadValueError("posterior(features)", caller, rule, f"{outputs.n_rows:,}", fix)
    return outputs


def shares_of(action: IntArray, n_actions: int) -> FloatArray:
    """Return the part of the area each action takes; a point at the edge stands for half a cell."""
    side = np.ones(len(action))
    side[[0, -1]] = 0.5
    area = np.bincount(action.ravel(), np.outer(side, side).ravel(), n_actions)
    return np.asarray(area / side.sum() ** 2)


def as_constant_costs(costs: Any, caller: str) -> CostMatrix:
    """Return costs that do not grow with an amount, as points have none."""
    table = as_costs(costs, "costs", caller)
    if table.rate is not None:
        rule, fix = "without a rate, as points have no amounts", "the costs at one amount"
        raise BadValueError("costs", caller, rule, "a rate", fix)
    return table


def as_range(value: Any, argument: str, caller: str) -> tuple[float, float]:
    """Return the lowest and the highest value of a feature."""
    array = as_finite(as_floats(value, argument, caller), argument, caller)
    if array.shape != (2,) or not 0 < float(array[1]) - float(array[0]) < np.inf:
        shown = f"{array.tolist()}" if array.size <= 4 else f"shape {array.shape}"
        rule, fix = "the lowest and the highest value", f"{argument}=(0, 1)"
        raise BadValueError(argument, caller, rule, shown, fix)
    return float(array[0]), float(array[1])


def as_n_points(n_points: Any, caller: str) -> int:
    """Return how many points a side has."""
    is_whole = isinstance(n_points, int | np.integer) and not isinstance(n_points, bool)
    if not is_whole or not 2 <= n_points <= MOST_POINTS:
        rule = f"a whole number from 2 to {MOST_POINTS:,}"
        raise BadValueError("n_points", caller, rule, repr(n_points), "n_points=200")
    return int(n_points)

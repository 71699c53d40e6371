"""Pictures of cost draw the library's curves, against coverage and over priors."""

from typing import Any

import numpy as np

from dubito.decide import CostMatrix, cost_coverage_curve, cost_prior_curve
from dubito.report import CostDisplay

RNG = np.random.default_rng(0)
P = RNG.dirichlet(np.ones(3), 400)
Y = (P.cumsum(axis=1) < RNG.random((400, 1))).sum(axis=1)
COSTS = CostMatrix.zero_one(3)
WITH_REJECT = COSTS.with_reject(0.3)


def same(line: Any, x: Any, y: Any) -> None:
    np.testing.assert_array_equal(line.get_xdata(), x)
    np.testing.assert_array_equal(line.get_ydata(), y)


def test_cost_against_coverage_with_its_least() -> None:
    display = CostDisplay.from_predictions(Y, P, WITH_REJECT, name="net")
    curve = cost_coverage_curve(Y, P, WITH_REJECT)
    assert curve.total is not None
    kept, total, least = display.ax_.lines
    same(kept, curve.coverage, curve.cost)
    same(total, curve.coverage, curve.total)
    best = int(np.argmin(curve.total))
    same(least, [curve.coverage[best]], [curve.total[best]])
    assert [line.get_label() for line in display.ax_.lines] == [
        "net: of rows acted on",
        "net: of all, rest rejected",
        f"least, {curve.total[best]:.3g} at coverage {curve.coverage[best]:.1%}",
    ]
    assert display.ax_.get_xlabel() == "Coverage: share of rows acted on"
    assert display.ax_.get_ylabel() == "Cost a row"


def test_without_reject_there_is_no_total() -> None:
    doubt = np.arange(400)
    display = CostDisplay.from_predictions(Y, P, COSTS, doubt=doubt)
    curve = cost_coverage_curve(Y, P, COSTS, doubt=doubt)
    (line,) = display.ax_.lines
    same(line, curve.coverage, curve.cost)
    again = CostDisplay.from_curve(curve, name="again", ax=display.ax_)
    assert [one.get_label() for one in again.ax_.lines] == [
        "model: of rows acted on",
        "again: of rows acted on",
    ]


def test_cost_over_priors() -> None:
    display = CostDisplay.over_priors(Y, P, WITH_REJECT, class_=1)
    curve = cost_prior_curve(Y, P, WITH_REJECT, class_=1)
    cost, adapted, constant, measured = display.ax_.lines
    same(cost, curve.prior, curve.cost)
    same(adapted, curve.prior, curve.adapted)
    same(constant, curve.prior, curve.constant)
    same(measured, [curve.measured] * 2, [0, 1])
    assert [line.get_label() for line in display.ax_.lines] == [
        "decisions as they are",
        "decisions told of the prior",
        "best single action",
        f"share here, {curve.measured:.1%}",
    ]
    assert display.ax_.get_xlabel() == "Prior of class 1"
    assert CostDisplay.from_curve(curve).ax_.get_xlabel() == "Prior of the class"


def test_amounts_reach_the_curves() -> None:
    costs = CostMatrix([[0, 0], [1, 0]], rate=[[0, 1], [0, 0]])
    outputs, row_costs = [[0.9, 0.1], [0.4, 0.6]], [2.0, 5.0]
    display = CostDisplay.from_predictions([1, 0], outputs, costs, row_costs)
    curve = cost_coverage_curve([1, 0], outputs, costs, row_costs)
    same(display.ax_.lines[0], curve.coverage, curve.cost)
    priors = CostDisplay.over_priors([1, 0], outputs, costs, row_costs, class_=1)
    same(
        priors.ax_.lines[0],
        np.linspace(0, 1, 21),
        cost_prior_curve([1, 0], outputs, costs, row_costs, class_=1).cost,
    )

"""Displays draw the curves of the library."""

from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot
from scipy import special

from dubito import Logits, TopLabel
from dubito.decide import CostMatrix, cost_coverage_curve, cost_prior_curve
from dubito.measure import expected_calibration_error, reliability_curve, risk_coverage_curve
from dubito.report import CostDisplay, ReliabilityDisplay, RiskCoverageDisplay

RNG = np.random.default_rng(0)
P = RNG.dirichlet(np.ones(3), 400)
Y = (P.cumsum(axis=1) < RNG.random((400, 1))).sum(axis=1)
COSTS = CostMatrix.zero_one(3)
WITH_REJECT = COSTS.with_reject(0.3)


@pytest.fixture(scope="module")
def rows() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1.5, (500, 3))
    draws = rng.random((500, 1))
    y = (special.softmax(logits, axis=1).cumsum(axis=1) < draws).sum(axis=1).clip(0, 2)
    return y, Logits(2 * logits)


def labels_of(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_the_curve_its_band_and_its_bins_are_drawn(rows: Any, strategy: Any) -> None:
    display = ReliabilityDisplay.from_predictions(*rows, n_bins=8, strategy=strategy, name="net")
    curve = reliability_curve(*rows, n_bins=8, strategy=strategy)
    diagonal, line, dots = display.ax_.lines
    np.testing.assert_array_equal(dots.get_xydata(), line.get_xydata())
    np.testing.assert_array_equal(diagonal.get_xydata(), [[0, 0], [1, 1]])
    np.testing.assert_array_equal(line.get_xdata(), curve.confidence)
    np.testing.assert_array_equal(line.get_ydata(), curve.accuracy)
    boxes: Any = display.ax_.patches
    sides = [(box.get_x(), box.get_y(), box.get_x() + box.get_width()) for box in boxes]
    left, right = curve.edges[curve.bins], curve.edges[curve.bins + 1]
    np.testing.assert_allclose(sides, np.stack([left, curve.low, right], axis=1))
    np.testing.assert_allclose([box.get_height() for box in boxes], curve.high - curve.low)
    bars: Any = display.histogram_ax_.patches
    areas = [bar.get_width() * bar.get_height() for bar in bars]
    np.testing.assert_allclose(areas, curve.count / curve.count.sum())
    np.testing.assert_allclose([bar.get_x() for bar in bars], left)
    error = expected_calibration_error(*rows, n_bins=8, strategy=strategy)
    assert labels_of(display.ax_) == [
        "calibrated",
        f"net (ECE {error:.3g}, 8 {strategy} bins)",
        "95 % range of a calibrated model",
    ]
    assert display.ax_.get_ylabel() == "Accuracy"
    assert display.histogram_ax_.get_xlabel() == "Confidence"
    assert display.histogram_ax_.get_ylabel() == "Density of rows"


def test_two_models_share_axes_and_histogram(rows: Any) -> None:
    first = ReliabilityDisplay.from_predictions(*rows, name="first")
    curve = reliability_curve(*rows, n_bins=5)
    second = ReliabilityDisplay.from_curve(curve, name="second", ax=first.ax_)
    assert second.histogram_ax_ is first.histogram_ax_
    assert len(first.figure_.axes) == 2
    labels = labels_of(first.ax_)
    assert labels.count("calibrated") == labels.count("95 % range of a calibrated model") == 1
    assert labels.count("second") == 1
    colors = [line.get_color() for line in first.ax_.lines[1:]]
    assert len(set(colors)) == 2
    assert second.curve is curve


def test_each_of_two_panels_has_a_histogram_of_its_own(rows: Any) -> None:
    figure, panels = pyplot.subplots(1, 2, sharex=True)
    shown = [ReliabilityDisplay.from_predictions(*rows, ax=ax) for ax in panels]
    assert len(figure.axes) == 4
    assert shown[0].histogram_ax_ is not shown[1].histogram_ax_
    for display in shown:
        upper, lower = display.ax_.get_position(), display.histogram_ax_.get_position()
        assert lower.y1 < upper.y0
        assert lower.x0 == pytest.approx(upper.x0)


def test_top_labels_will_do() -> None:
    display = ReliabilityDisplay.from_predictions(None, TopLabel([0.9, 0.6], [1, 0]), n_bins=2)
    assert labels_of(display.ax_)[1] == "model (ECE 0.25, 2 uniform bins)"


def test_the_risk_curve_is_drawn_with_its_area() -> None:
    display = RiskCoverageDisplay.from_predictions(Y, P, name="net")
    curve = risk_coverage_curve(Y, P)
    line, last = display.ax_.lines
    np.testing.assert_array_equal(line.get_xdata(), curve.coverage)
    np.testing.assert_array_equal(line.get_ydata(), curve.risk)
    np.testing.assert_array_equal(last.get_xydata(), [[1.0, curve.risk[-1]]])
    assert line.get_label() == f"net (AURC {curve.area:.3g})"
    assert display.ax_.get_xlabel() == "Coverage: fraction of rows accepted"
    assert display.ax_.get_ylabel() == "Risk: error rate of accepted rows"


def test_the_scale_suits_every_curve_but_not_the_first_few_rows() -> None:
    curve = risk_coverage_curve(Y, P, uncertainty=np.arange(400))
    good = RiskCoverageDisplay.from_predictions(Y, P)
    top = good.ax_.get_ylim()[1]
    both = RiskCoverageDisplay.from_curve(curve, name="by order", ax=good.ax_)
    highest = [one.risk[one.coverage >= 0.02].max() for one in (good.curve, curve)]
    assert highest[0] < top < 1.5 * highest[0]
    assert both.ax_.get_ylim()[0] == 0
    assert max(highest) < both.ax_.get_ylim()[1] < 1.5 * max(highest)
    assert len(both.ax_.lines) == 4


def test_a_model_without_errors_is_a_line_at_the_bottom() -> None:
    display = RiskCoverageDisplay.from_predictions([0, 1], [[0.9, 0.1], [0.2, 0.8]])
    np.testing.assert_array_equal(display.ax_.lines[0].get_ydata(), [0.0, 0.0])
    assert 0 < display.ax_.get_ylim()[1] < 0.02


def same(line: Any, x: Any, y: Any) -> None:
    np.testing.assert_array_equal(line.get_xdata(), x)
    np.testing.assert_array_equal(line.get_ydata(), y)


def test_cost_over_coverage_with_its_minimum() -> None:
    display = CostDisplay.from_predictions(Y, P, WITH_REJECT, name="net")
    curve = cost_coverage_curve(Y, P, WITH_REJECT)
    assert curve.total is not None
    accepted, total, lowest = display.ax_.lines
    same(accepted, curve.coverage, curve.cost)
    same(total, curve.coverage, curve.total)
    best = int(np.argmin(curve.total))
    same(lowest, [curve.coverage[best]], [curve.total[best]])
    assert [line.get_label() for line in display.ax_.lines] == [
        "net: accepted rows",
        "net: all rows, with rejects",
        f"lowest: {curve.total[best]:.3g} at coverage {100 * curve.coverage[best]:.1f} %",
    ]
    assert display.ax_.get_xlabel() == "Coverage: fraction of rows accepted"
    assert display.ax_.get_ylabel() == "Cost per row"


def test_without_reject_there_is_no_total() -> None:
    uncertainty = np.arange(400)
    display = CostDisplay.from_predictions(Y, P, COSTS, uncertainty=uncertainty)
    curve = cost_coverage_curve(Y, P, COSTS, uncertainty=uncertainty)
    (line,) = display.ax_.lines
    same(line, curve.coverage, curve.cost)
    again = CostDisplay.from_curve(curve, name="again", ax=display.ax_)
    assert [one.get_label() for one in again.ax_.lines] == [
        "model: accepted rows",
        "again: accepted rows",
    ]


def test_cost_over_priors() -> None:
    display = CostDisplay.over_priors(Y, P, WITH_REJECT, class_=1)
    curve = cost_prior_curve(Y, P, WITH_REJECT, class_=1)
    cost, adapted, constant = display.ax_.lines
    same(cost, curve.prior, curve.cost)
    same(adapted, curve.prior, curve.adapted)
    same(constant, curve.prior, curve.constant)
    observed: Any = display.ax_.collections[0]
    np.testing.assert_array_equal(
        observed.get_segments()[0], [[curve.measured, 0], [curve.measured, 1]]
    )
    assert labels_of(display.ax_) == [
        "fixed decisions",
        "prior-adjusted decisions",
        "best single action",
        f"observed prior, {100 * curve.measured:.1f} %",
    ]
    assert display.ax_.get_xlabel() == "Prior of class 1"
    assert CostDisplay.from_curve(curve).ax_.get_xlabel() == "Prior of the class"


def test_amounts_reach_the_curves() -> None:
    costs = CostMatrix([[0, "amount"], [1, 0]])
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

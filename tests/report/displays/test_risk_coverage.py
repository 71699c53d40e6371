"""The risk-coverage picture draws the library's curve."""

import numpy as np
import pytest

from dubito.measure import risk_coverage_curve
from dubito.report import RiskCoverageDisplay

RNG = np.random.default_rng(0)
P = RNG.dirichlet(np.ones(3), 400)
Y = (P.cumsum(axis=1) < RNG.random((400, 1))).sum(axis=1)


def test_the_curve_is_drawn_with_its_area() -> None:
    display = RiskCoverageDisplay.from_predictions(Y, P, name="net")
    curve = risk_coverage_curve(Y, P)
    line, last = display.ax_.lines
    np.testing.assert_array_equal(line.get_xdata(), curve.coverage)
    np.testing.assert_array_equal(line.get_ydata(), curve.risk)
    np.testing.assert_array_equal(last.get_xydata(), [[1.0, curve.risk[-1]]])
    assert line.get_label() == f"net (AURC {curve.area:.3g})"
    assert display.ax_.get_xlabel() == "Coverage: share of rows kept"
    assert display.ax_.get_ylabel() == "Risk: share of errors among them"


def test_the_scale_suits_every_curve_but_not_the_first_few_rows() -> None:
    curve = risk_coverage_curve(Y, P, doubt=np.arange(400))
    good = RiskCoverageDisplay.from_predictions(Y, P)
    top = good.ax_.get_ylim()[1]
    both = RiskCoverageDisplay.from_curve(curve, name="by order", ax=good.ax_)
    highest = [one.risk[one.coverage >= 0.02].max() for one in (good.curve, curve)]
    assert top == pytest.approx(1.1 * highest[0])
    assert both.ax_.get_ylim() == pytest.approx((0, 1.1 * max(highest)))
    assert len(both.ax_.lines) == 4


def test_a_model_without_errors_is_a_line_at_the_bottom() -> None:
    display = RiskCoverageDisplay.from_predictions([0, 1], [[0.9, 0.1], [0.2, 0.8]])
    np.testing.assert_array_equal(display.ax_.lines[0].get_ydata(), [0.0, 0.0])
    assert display.ax_.get_ylim() == (0, 1e-3)

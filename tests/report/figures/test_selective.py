"""Curves that scripts can put marks on."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from dubito.report.figures.charts import _thinned, cost_chart, risk_chart


def test_a_risk_chart_says_where_its_axes_lie() -> None:
    coverage = np.linspace(0.01, 1, 100)
    lines, wanted = [("after", coverage, coverage / 4)], ("best", "policy", "yours")
    chart = ElementTree.fromstring(risk_chart("name", lines, marks=wanted))
    assert float(chart.attrib["data-high"]) == pytest.approx(0.25)
    left, right, bottom, top = map(float, chart.attrib["data-box"].split())
    assert left < right
    assert top < bottom
    marks = [one.attrib["data-mark"] for one in chart.findall("circle")]
    assert marks == ["best", "policy", "yours"]
    assert "<circle" not in risk_chart("name", lines)


def test_no_risk_at_all_makes_a_chart() -> None:
    chart = ElementTree.fromstring(risk_chart("name", [("after", np.ones(1), np.zeros(1))]))
    assert float(chart.attrib["data-high"]) > 0


def test_gains_lie_below_zero() -> None:
    cost = np.array([-3.0, 1.0])
    chart = ElementTree.fromstring(cost_chart("name", np.array([0.0, 1.0]), cost))
    assert float(chart.attrib["data-low"]) <= -3
    assert float(chart.attrib["data-high"]) >= 1


def test_long_curves_are_thinned_but_for_their_ends() -> None:
    xs = np.arange(5000.0)
    found, _ = _thinned(xs, xs)
    assert (found[0], found[-1], found.size) == (0.0, 4999.0, 400)
    assert _thinned(xs[:7], xs[:7])[0].size == 7

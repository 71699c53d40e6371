"""Diagrams show every bin, where it is."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from dubito.measure import ReliabilityCurve, reliability_curve
from dubito.report.figures.canvas import Axis, Canvas
from dubito.report.figures.charts import confidence_histogram, reliability_diagram


def made() -> ReliabilityCurve:
    rng = np.random.default_rng(0)
    return reliability_curve(rng.integers(0, 2, 200), rng.uniform(size=200))


def test_each_bin_is_a_point_that_tells_its_counts() -> None:
    curve = made()
    chart = ElementTree.fromstring(reliability_diagram(curve, "name", "before"))
    points = chart.findall("circle")
    where = Canvas("", Axis(0, 1, ""), Axis(0, 1, ""))
    assert len(points) == len(curve.bins) == len(chart.findall("rect"))
    for point, says, right, count in zip(
        points, curve.confidence, curve.accuracy, curve.count, strict=True
    ):
        assert float(point.attrib["cx"]) == where.at_x(says)
        assert float(point.attrib["cy"]) == where.at_y(right)
        tells = point.find("title").text or ""  # type: ignore[union-attr]
        assert tells.startswith(f"says {says * 100:.1f}\u00a0%, right {right * 100:.1f}\u00a0%")
        assert f"({count:,.0f} rows;" in tells


def test_bars_are_as_high_as_their_share_of_rows() -> None:
    curve = made()
    chart = ElementTree.fromstring(confidence_histogram(curve, "name", "after"))
    bars = chart.findall("rect")
    heights = np.array([float(bar.attrib["height"]) for bar in bars])
    whole, right = heights[::2], heights[1::2]
    shares = curve.count / curve.count.sum()
    assert whole / whole.max() == pytest.approx(shares / shares.max(), abs=0.02)
    assert right / whole == pytest.approx(curve.accuracy, abs=0.02)

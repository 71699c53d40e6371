"""The charts of a report hold what was measured."""

import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest

from dubito.charts import Axis, Bars, Chart, Line, Points
from dubito.measure import ReliabilityCurve, reliability_curve
from dubito.measure.text import reliability_chart
from dubito.report.chart_builders import (
    Curve,
    Population,
    confidence_histogram,
    nominal_chart,
    pit_histogram,
    review_cost_chart,
    risk_chart,
    uncertainty_histogram,
    uncertainty_scatter,
    width_chart,
)
from dubito.report.svg import Scale, draw_svg

LEVELS = np.array([0.5, 0.9])


def svg_of(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(draw_svg(chart))


def made() -> ReliabilityCurve:
    rng = np.random.default_rng(0)
    return reliability_curve(rng.integers(0, 2, 200), rng.uniform(size=200))


def test_each_bin_is_a_point_with_its_counts() -> None:
    curve = made()
    svg = svg_of(reliability_chart(curve, "name", "before"))
    points = svg.findall("circle")
    scale = Scale(Chart("", Axis(0, 1, ""), Axis(0, 1, ""), ()))
    assert len(points) == len(curve.bins) == len(svg.findall("rect"))
    for point, confidence, accuracy, count in zip(
        points, curve.confidence, curve.accuracy, curve.count, strict=True
    ):
        assert float(point.attrib["cx"]) == scale.at_x(confidence)
        assert float(point.attrib["cy"]) == scale.at_y(accuracy)
        hint = point.find("title").text or ""  # type: ignore[union-attr]
        numbers = confidence * 100, accuracy * 100
        assert hint.startswith("confidence {:.1f} %, accuracy {:.1f} %".format(*numbers))
        assert f"({count:,.0f} rows;" in hint


def test_bars_are_as_high_as_their_fraction_of_rows() -> None:
    curve = made()
    bars = svg_of(confidence_histogram(curve, "name", "after")).findall("rect")
    heights = np.array([float(bar.attrib["height"]) for bar in bars])
    whole, correct = heights[: len(curve.bins)], heights[len(curve.bins) :]
    fractions = curve.count / curve.count.sum()
    assert whole / whole.max() == pytest.approx(fractions / fractions.max(), abs=0.02)
    assert correct / whole == pytest.approx(curve.accuracy, abs=0.02)


def test_fractions_are_weighted_and_none_is_lost() -> None:
    scores, weight = np.array([-5.0, 0.1, 0.6, 99.0]), np.array([1.0, 1, 2, 4])
    population = Population("name", "correct", scores, weight)
    assert population.fractions(np.array([0.0, 0.5, 1.0])).tolist() == [2 / 8, 6 / 8]


@pytest.mark.parametrize("scores", [[0.5, 0.5], [0.0, 1e-12], [0.0, 1.0], [3.0, 1e6]])
def test_any_scores_make_a_chart(scores: list[float]) -> None:
    kinds = [Population(kind, kind, np.array(scores), np.ones(2)) for kind in ("correct", "wrong")]
    svg = svg_of(uncertainty_histogram("name", "score", kinds))
    titles: list[Any] = [bar.find("title") for bar in svg.findall("rect")]
    fractions = [float(title.text.split()[1][:-2]) for title in titles]
    assert sum(fractions) == pytest.approx(200)


def test_each_row_is_a_dot() -> None:
    parts = [
        Curve("correct", "correct rows", np.array([0.1, 0.2]), np.array([0.0, 0.3])),
        Curve("wrong", "wrong rows", np.zeros(0), np.zeros(0)),
    ]
    svg = svg_of(uncertainty_scatter("name", parts))
    assert [one.attrib["class"] for one in svg.findall("circle")] == ["speck correct"] * 2


def test_each_level_is_a_point_with_its_coverage() -> None:
    curve = Curve("before", "uncalibrated", LEVELS, np.array([0.4, 0.75]))
    svg = svg_of(nominal_chart("coverage", "name", 100, [curve]))
    hints = [one.find("title").text for one in svg.findall("circle")]  # type: ignore[union-attr]
    assert hints == [
        "uncalibrated: 50 % intervals contain 40.0 %",
        "uncalibrated: 90 % intervals contain 75.0 %",
    ]


def test_the_band_of_coverage_is_that_of_a_binomial() -> None:
    band: Any = nominal_chart("coverage", "name", 100, []).marks[0]
    half = int(np.flatnonzero(band.x == 0.5)[0])
    assert (band.low[half], band.high[half]) == pytest.approx((0.5 - 0.098, 0.5 + 0.098))
    assert (band.low[0], band.high[-1]) == (0, 1)


def test_widths_begin_at_zero() -> None:
    svg = svg_of(width_chart("name", [Curve("after", "after", LEVELS, np.array([1.0, 3.0]))]))
    lines = [one for one in svg.findall("path") if "line" in one.attrib["class"]]
    assert lines[0].attrib["d"].count("L") == 2
    empty = width_chart("name", [Curve("after", "after", np.empty(0), np.empty(0))])
    assert not svg_of(empty).findall("circle")


def test_pit_bars_are_as_high_as_their_fraction() -> None:
    pit = np.array([0.1, 0.2, 0.3, 0.4])
    svg = svg_of(pit_histogram("name", pit, 100, "before"))
    bars = [one for one in svg.findall("rect") if one.attrib["class"] == "bar before"]
    heights = np.array([float(one.attrib["height"]) for one in bars])
    assert heights / heights.sum() == pytest.approx(pit, abs=0.005)


def test_a_risk_chart_has_its_axes_as_data_attributes() -> None:
    coverage = np.linspace(0.01, 1, 100)
    curves = [Curve("after", "calibrated", coverage, coverage / 4)]
    handles = (("best", "lowest cost"), ("policy", "the policy"), ("yours", "your threshold"))
    svg = svg_of(risk_chart("name", curves, handles=handles))
    assert float(svg.attrib["data-high"]) == pytest.approx(0.25)
    left, right, bottom, top = map(float, svg.attrib["data-box"].split())
    assert left < right
    assert top < bottom
    marks = [one.attrib.get("data-mark") for one in svg.findall("circle")]
    assert marks == [None, "best", "policy", "yours"]
    assert "data-box" not in svg_of(risk_chart("name", curves)).attrib


def test_no_risk_at_all_makes_a_chart() -> None:
    chart = risk_chart("name", [Curve("after", "calibrated", np.ones(1), np.zeros(1))])
    assert chart.y.high > 0


def test_negative_costs_lie_below_zero() -> None:
    chart = review_cost_chart("name", np.array([0.0, 1.0]), np.array([-3.0, 1.0]))
    assert chart.y.low <= -3
    assert chart.y.high >= 1


def test_marks_are_those_of_the_specification() -> None:
    kinds = [type(mark) for mark in reliability_chart(made()).marks]
    assert kinds == [Bars, Line, Line, Points]

"""Charts of intervals and of where truths lie."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from dubito.report.figures.charts import coverage_chart, pit_histogram, width_chart

LEVELS = np.array([0.5, 0.9])


def test_each_level_is_a_point_that_tells_what_it_holds() -> None:
    band = (np.array([0.0, 1.0]), np.zeros(2), np.ones(2))
    curve = ("before", "as it came", LEVELS, np.array([0.4, 0.75]))
    chart = ElementTree.fromstring(coverage_chart("name", band, [curve]))
    tells = [one.find("title").text for one in chart.findall("circle")]  # type: ignore[union-attr]
    assert tells == [
        "as it came: intervals of 50\u00a0% hold 40.0\u00a0%",
        "as it came: intervals of 90\u00a0% hold 75.0\u00a0%",
    ]


def test_widths_begin_at_nothing() -> None:
    chart = ElementTree.fromstring(
        width_chart("name", [("after", "after", LEVELS, np.array([1.0, 3.0]))])
    )
    lines = [one for one in chart.findall("path") if "line" in one.attrib["class"]]
    assert lines[0].attrib["d"].count("L") == 2
    empty = width_chart("name", [("after", "after", np.empty(0), np.empty(0))])
    assert not ElementTree.fromstring(empty).findall("circle")


def test_bars_are_as_high_as_their_share() -> None:
    pit = np.array([0.1, 0.2, 0.3, 0.4])
    chart = ElementTree.fromstring(pit_histogram("name", pit, 100, "before"))
    bars = [one for one in chart.findall("rect") if one.attrib["class"] == "bar before"]
    heights = np.array([float(one.attrib["height"]) for one in bars])
    assert heights / heights.sum() == pytest.approx(pit, abs=0.005)

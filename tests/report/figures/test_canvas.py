"""Axes and marks, where they should be."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.report.figures.canvas import Axis, Canvas, percent, plain, ticks_between

numbers = st.floats(-1e9, 1e9).filter(lambda value: value == 0 or abs(value) > 1e-9)


@given(numbers, numbers)
def test_ticks_are_few_even_and_around_both(a: float, b: float) -> None:
    low, high = sorted([a, b])
    ticks = ticks_between(low, high)
    assert 2 <= len(ticks) <= 8
    slack = 1e-6 * max(abs(low), abs(high))
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    steps = np.diff(ticks)
    assert steps.min() > 0
    assert steps == pytest.approx(steps[0], rel=1e-6)


def test_values_lie_where_their_axes_say() -> None:
    canvas = Canvas("name", Axis(0, 2, "x"), Axis(-1, 1, "y"))
    left, right = canvas.at_x(0), canvas.at_x(2)
    assert canvas.at_x(0.5) == pytest.approx(left + (right - left) / 4, abs=0.06)
    assert canvas.at_y(1) < canvas.at_y(0) < canvas.at_y(-1)


def test_a_chart_is_whole_xml_with_everything_escaped() -> None:
    canvas = Canvas('<name> & "co"', Axis(0, 1, "<x>"), Axis.of([0, 3], "<y>"))
    canvas.line([0, 1], [0, 3], "before")
    canvas.band(np.array([0.0, 1.0]), np.zeros(2), np.ones(2))
    canvas.box(0, 0.5, 0, 1, "bar", "<tells>")
    canvas.point(1, 1, "dot")
    chart = ElementTree.fromstring(canvas.svg())
    assert chart.attrib["aria-label"] == '<name> & "co"'
    assert [one.tag for one in chart][-4:] == ["path", "path", "rect", "circle"]
    assert chart.find("rect/title").text == "<tells>"  # type: ignore[union-attr]
    labels = [one.text for one in chart.findall("text") if "label" in one.attrib["class"]]
    assert labels == ["<x>", "<y>"]


def test_points_in_the_same_place_are_drawn_once() -> None:
    canvas = Canvas("name", Axis(0, 1, "x"), Axis(0, 1, "y"))
    assert canvas.path([0, 0, 1e-9, 1], [0, 0, 0, 1]).count("L") == 1
    assert canvas.path([], []) == ""


def test_numbers_are_told_short() -> None:
    assert (percent(0.125), plain(0.1), plain(123456.7)) == ("12.5 %", "0.1", "123,457")

"""SVG: values at their positions, everything escaped."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from dubito.charts import Axis, Band, Bars, Chart, Line, Mark, Points, Span, SpanRow, Verticals
from dubito.report.chart_builders import span_chart
from dubito.report.svg import LEFT, MAX_LETTERS, RIGHT, WIDTH, Scale, _thinned, draw_svg


def chart_of(*marks: Mark) -> Chart:
    return Chart('<name> & "co"', Axis(0, 1, "<x>"), Axis.of([0, 3], "<y>"), marks)


def test_values_lie_where_their_axes_are() -> None:
    scale = Scale(Chart("name", Axis(0, 2, "x"), Axis(-1, 1, "y"), ()))
    left, right = scale.at_x(0), scale.at_x(2)
    assert scale.at_x(0.5) == pytest.approx(left + (right - left) / 4, abs=0.06)
    assert scale.at_y(1) < scale.at_y(0) < scale.at_y(-1)
    assert scale.at_y(5) == scale.at_y(1)


def test_a_chart_is_valid_xml_with_everything_escaped() -> None:
    chart = chart_of(
        Line([0, 1], [0, 3], "before"),
        Band(np.array([0.0, 1.0]), np.zeros(2), np.ones(2)),
        Verticals([0.5], "boundary"),
        Bars([0], [0.5], [1], "wrong", hints=("<hint>",)),
        Points([1], [1], "after"),
    )
    found = ElementTree.fromstring(draw_svg(chart))
    assert found.attrib["aria-label"] == '<name> & "co"'
    assert [one.tag for one in found][-5:] == ["path", "path", "path", "rect", "circle"]
    assert found.find("rect/title").text == "<hint>"  # type: ignore[union-attr]
    labels = [one.text for one in found.findall("text") if "label" in one.attrib["class"]]
    assert labels == ["<x>", "<y>"]


def test_points_at_the_same_position_are_drawn_once() -> None:
    scale = Scale(chart_of())
    assert scale.path([0, 0, 1e-9, 1], [0, 0, 0, 1]).count("L") == 1
    assert scale.path([], []) == ""


def test_long_lines_are_thinned_except_for_their_ends() -> None:
    xs = np.arange(5000.0)
    found, _ = _thinned(Line(xs, xs, "after"))
    assert (found[0], found[-1], found.size) == (0.0, 4999.0, 400)
    assert _thinned(Line(xs[:7], xs[:7], "after"))[0].size == 7


def test_steps_hold_a_value_from_the_previous_point_on() -> None:
    x, y = _thinned(Line([0.0, 1.0, 2.0], [5.0, 6.0, 7.0], "after", steps=True))
    assert list(zip(x, y, strict=True)) == [(0, 5), (0, 6), (1, 6), (1, 7), (2, 7)]


def test_a_span_is_a_line_with_a_mark_at_its_value() -> None:
    rows = [SpanRow("log loss", (Span("correct", -0.4, -0.3, -0.2),))]
    svg = draw_svg(span_chart("Both", rows, "change"))
    lines = re.findall(r'class="line correct" d="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)"', svg)
    across, *marks = [[float(end) for end in line] for line in lines]
    assert across[1] == across[3]
    assert [mark[0] for mark in marks] == [mark[2] for mark in marks]
    low, value, high = (mark[0] for mark in marks)
    assert (low, high) == (across[0], across[2])
    assert abs(value - (low + high) / 2) < 0.11
    # The axis goes from -0.4 to 0 over the whole width.
    assert low == LEFT
    assert high == LEFT + (WIDTH - LEFT - RIGHT) / 2
    assert "reference" in svg  # at 0


def test_rows_of_spans_come_from_the_top_with_their_titles_escaped() -> None:
    names = ("<b>", "y" * 99, "z")
    rows = [SpanRow(name, (Span("before", 0.1, 0.1, 0.1),)) for name in names]
    svg = draw_svg(span_chart("Classes", rows, "fraction"))
    texts = re.findall(r'<text class="label" x="[\d.]+" y="([\d.]+)">([^<]*)</text>', svg)
    titles = [title for _, title in texts]
    assert titles == ["&lt;b&gt;", "y" * (MAX_LETTERS - 1) + "\u2026", "z"]
    heights = [float(y) for y, _ in texts]
    assert heights == sorted(heights)

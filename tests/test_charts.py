"""The chart specification: axes, legends, and the terminal renderer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.charts import (
    Axis,
    Bars,
    Chart,
    Line,
    Points,
    Span,
    SpanRow,
    draw_text,
    ticks_between,
)
from dubito.formatting import plain

numbers = st.floats(-1e9, 1e9).filter(lambda value: value == 0 or abs(value) > 1e-9)


@given(numbers, numbers)
def test_ticks_are_few_even_and_enclose_both(a: float, b: float) -> None:
    low, high = sorted([a, b])
    ticks = ticks_between(low, high)
    assert 2 <= len(ticks) <= 8
    slack = 1e-6 * max(abs(low), abs(high))
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    steps = np.diff(ticks)
    assert steps.min() > 0
    assert steps == pytest.approx(steps[0], rel=1e-6)


def test_a_legend_names_each_style_once() -> None:
    axes = Axis(0, 1, "x"), Axis(0, 1, "y")
    spans = SpanRow("row", (Span("wrong", 0.0, 0.1, 0.2, "worse"), Span("after", 0, 0, 0)))
    marks = (Line([0], [0], "after", "a"), Line([0], [0], "after", "a"), spans)
    chart = Chart("title", *axes, marks, handles=(("best", "lowest cost"),))
    assert chart.legend == (("after", "a"), ("wrong", "worse"), ("best", "lowest cost"))


def test_the_terminal_draws_points_with_counts_and_the_reference() -> None:
    marks = (
        Line([0, 1], [0, 1], "reference", "calibrated"),
        Points([0.25, 1.0], [0.5, 0.0], "model", count=np.array([1200.0, 3.0])),
    )
    chart = Chart("title", Axis(0, 1, "Confidence"), Axis(0, 1, "Accuracy"), marks)
    assert draw_text(chart, 8) == [
        "  confidence accuracy        rows   (| = calibrated)",
        "      25.0 %   50.0 %       1,200   ##|#",
        "     100.0 %    0.0 %           3           |",
    ]


def test_the_terminal_draws_bars_on_any_scale() -> None:
    bars = Bars([0.0, 1.0], [1.0, 2.0], [5.0, 10.0], "after")
    chart = Chart("title", Axis(0, 2, "score", plain), Axis(0, 10, "rows", plain), (bars,))
    assert draw_text(chart, 4) == ["  score rows", "      0    5   ##", "      1   10   ####"]

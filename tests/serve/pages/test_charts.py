"""A chart has a mark for every known window, a gap for every other, and dashes beside both."""

import pytest

from dubito.charts import plain
from dubito.measure import Interval
from dubito.report.charts.svg import draw_svg
from dubito.serve.monitor import Figure, Window
from dubito.serve.pages.charts import over_time

UNKNOWN = Figure(None, "no labels")


def window(log_loss: Figure, n_rows: int = 100) -> Window:
    return Window(0.0, 1.0, n_rows, 40, "", UNKNOWN, UNKNOWN, log_loss, UNKNOWN, None)


def test_known_windows_are_drawn_and_unknown_ones_are_gaps() -> None:
    known = Figure(Interval(0.5, 0.25, 0.75))
    windows = [window(known), window(UNKNOWN), window(known, 200)]
    chart = over_time("Log loss", windows, lambda one: one.log_loss, plain, lambda one: 0.4)
    svg = draw_svg(chart)
    assert svg.count("<circle") == 2
    assert svg.count('class="line after"') == 2
    assert svg.count('class="line reference"') == 3
    assert svg.count("<title>0.5 (0.25 to 0.75), 40 labels</title>") == 2
    assert 'aria-label="Log loss over time"' in svg
    places = [float(part.split('"')[0]) for part in svg.split('cx="')[1:]]
    # 50 and 300 of 400 rows, between the ends of the axis.
    assert places == pytest.approx([64 + 318 * 50 / 400, 64 + 318 * 300 / 400], abs=0.06)


def test_nothing_known_is_an_empty_chart() -> None:
    chart = over_time("Cost", [window(UNKNOWN)], lambda one: one.cost, plain, lambda one: None)
    svg = draw_svg(chart)
    assert "<circle" not in svg
    assert "nan" not in svg

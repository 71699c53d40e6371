"""Charts as SVG for a web page.

Styles become CSS classes: the page's stylesheet has their colors in light, dark and print.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from markupsafe import Markup

from dubito.charts import Axis, Band, Bars, Chart, Line, Points, SpanRow, Verticals

LEFT, RIGHT, TOP, BOTTOM = 76.0, 24.0, 12.0, 50.0
WIDTH = 400.0
MAX_POINTS = 400  # per line: more cannot be seen
MAX_LETTERS = 50  # of a row's title
RADII = {"best": 7, "policy": 5, "yours": 5}
ROW_HEIGHT, MARGIN_HEIGHT = 44.0, 62.0  # of a row of intervals, and of the axis below all rows


def draw_svg(chart: Chart) -> Markup:
    """Return a chart as an SVG element; all text in it is escaped.

    >>> from dubito.charts import Axis
    >>> draw_svg(Chart("<b>", Axis(0, 1, "Confidence"), Axis(0, 1, "Accuracy"), ()))[:4]
    Markup('<svg')
    """
    scale = Scale(chart)
    marks = Markup("").join(_draw_mark(scale, mark, k) for k, mark in enumerate(chart.marks))
    handle = Markup('<circle class="{0}-mark" data-mark="{0}" r="{1}" hidden=""/>')
    marks += Markup("").join(handle.format(style, RADII[style]) for style, _ in chart.handles)
    box = Markup("")
    if chart.handles:  # where the axes are, so that scripts can place dots
        low, high, bottom, top = map(float, (chart.x.low, chart.x.high, chart.y.low, chart.y.high))
        box = Markup(
            'data-box="{} {} {} {}" data-x="{!r} {!r}" data-low="{!r}" data-high="{!r}" '
        ).format(
            *map(scale.at_x, (low, high)), *map(scale.at_y, (bottom, top)), low, high, bottom, top
        )
    frame = Markup(
        '<svg {}class="chart" viewBox="0 0 {:g} {:g}" role="img" aria-label="{}">{}{}</svg>'
    )
    return frame.format(box, WIDTH, chart.height, chart.title, _draw_axes(scale), marks)


@final
@dataclass(frozen=True, slots=True)
class Scale:
    """Positions of values in the SVG; values beyond an axis lie at its end."""

    chart: Chart

    def at_x(self, value: float) -> float:
        """Return the distance of a value from the left edge."""
        return round(LEFT + _fraction(self.chart.x, value) * (WIDTH - LEFT - RIGHT), 1)

    def at_y(self, value: float) -> float:
        """Return the distance of a value from the top edge."""
        height = self.chart.height - BOTTOM
        return round(height - _fraction(self.chart.y, value) * (height - TOP), 1)

    def path(self, xs: Any, ys: Any) -> str:
        """Return the path through points; points at the same position are drawn once."""
        pairs = zip(xs, ys, strict=True)
        places = dict.fromkeys((self.at_x(float(x)), self.at_y(float(y))) for x, y in pairs)
        return "M" + "L".join(f"{x:g} {y:g}" for x, y in places) if places else ""


def _fraction(axis: Axis, value: float) -> float:
    """Return where on an axis a value lies, from 0 to 1."""
    return (min(max(value, axis.low), axis.high) - axis.low) / (axis.high - axis.low)


def _draw_mark(scale: Scale, mark: object, row: int) -> Markup:
    """Return a mark as SVG elements."""
    match mark:
        case Line():
            return _path(f"line {mark.style}", scale.path(*_thinned(mark)))
        case Band():
            outline = scale.path([*mark.x, *mark.x[::-1]], [*mark.low, *mark.high[::-1]])
            return _path("hatched" if mark.is_hatched else mark.style, f"{outline}Z")
        case Bars():
            return Markup("").join(_bars(scale, mark))
        case Points():
            dot = Markup('<circle class="{}" cx="{:g}" cy="{:g}" r="{:g}">{}</circle>')
            kind = f"{'dot' if mark.radius >= 3 else 'speck'} {mark.style}"
            hints = mark.hints or [""] * len(mark.x)
            return Markup("").join(
                dot.format(kind, scale.at_x(x), scale.at_y(y), mark.radius, _hint(hint))
                for x, y, hint in zip(mark.x, mark.y, hints, strict=True)
            )
        case Verticals():
            axis = scale.chart.y
            ends = [axis.low, axis.low + mark.top * (axis.high - axis.low)]
            lines = (_path(f"line {mark.style}", scale.path([x, x], ends)) for x in mark.x)
            return Markup("").join(lines)
        case SpanRow():
            return _span_row(scale, mark, row)
    raise AssertionError(mark)


def _path(kind: str, path: str) -> Markup:
    """Return a path of a CSS class."""
    return Markup('<path class="{}" d="{}"/>').format(kind, path)


def _thinned(line: Line) -> tuple[Any, Any]:
    """Return at most a few hundred points of a line, both ends among them; steps as corners."""
    x, y = np.asarray(line.x, dtype=np.float64), np.asarray(line.y, dtype=np.float64)
    if x.size > MAX_POINTS:
        chosen = np.unique(np.linspace(0, x.size - 1, MAX_POINTS).astype(np.int64))
        x, y = x[chosen], y[chosen]
    return (np.repeat(x, 2)[:-1], np.repeat(y, 2)[1:]) if line.steps else (x, y)


def _bars(scale: Scale, bars: Bars) -> Iterator[Markup]:
    """Yield rectangles."""
    ends = np.broadcast_arrays(bars.left, bars.right, bars.low, bars.high)
    box = Markup('<rect class="{}" x="{:g}" y="{:g}" width="{:g}" height="{:g}">{}</rect>')
    kind = bars.style if bars.style == "band" else f"bar {bars.style}"
    hints = bars.hints or [""] * ends[0].size
    for left, right, low, high, hint in zip(*(one.flat for one in ends), hints, strict=True):
        x, y = scale.at_x(left), scale.at_y(high)
        width = round(max(scale.at_x(right) - x, 0.5), 1)
        height = round(max(scale.at_y(low) - y, 0.0), 1)
        yield box.format(kind, x, y, width, height, _hint(hint))


def _span_row(scale: Scale, row: SpanRow, number: int) -> Markup:
    """Return the intervals of a row, its title above them and its own part of the grid."""
    chart = scale.chart
    height = chart.y.high - number - 0.7
    parts = []

    def add(xs: list[float], reach: float, kind: str) -> None:
        parts.append(_path(f"line {kind}", scale.path(xs, [height - reach, height + reach])))

    for value in chart.x.ticks:
        add([value, value], 0.26, "reference" if value == 0 else "grid")
    for span in row.spans:
        add([span.low, span.high], 0.0, span.style)
        for end, reach in ((span.low, 0.07), (span.value, 0.17), (span.high, 0.07)):
            add([end, end], reach, span.style)
    title = row.title
    short = title if len(title) <= MAX_LETTERS else f"{title[: MAX_LETTERS - 1]}\u2026"
    text = Markup('<text class="label" x="{:g}" y="{:g}">{}</text>')
    parts.append(text.format(scale.at_x(chart.x.low), scale.at_y(height + 0.36), short))
    return Markup("").join(parts)


def _draw_axes(scale: Scale) -> Markup:
    """Return the grid, the numbers and the labels of both axes."""
    chart = scale.chart
    left, right, bottom = LEFT, WIDTH - RIGHT, chart.height - BOTTOM
    tick = Markup('<text class="tick {}" x="{:g}" y="{:g}">{}</text>')
    label = Markup('<text class="label middle" {}>{}</text>')
    parts = []
    for value in chart.y.ticks:
        y = scale.at_y(value)
        parts.append(_path("grid", f"M{left:g} {y:g}H{right:g}"))
        parts.append(tick.format("end", left - 7, y + 4, chart.y.formatter(value)))
    parts += [
        tick.format("middle", scale.at_x(value), bottom + 21, chart.x.formatter(value))
        for value in chart.x.ticks
    ]
    parts.append(_path("axis", f"M{left:g} {bottom:g}H{right:g}"))
    place = Markup('x="{:g}" y="{:g}"').format((left + right) / 2, chart.height - 7)
    parts.append(label.format(place, chart.x.label))
    turned = Markup('transform="translate(14 {:g})rotate(-90)"').format((TOP + bottom) / 2)
    parts.append(label.format(turned, chart.y.label))
    return Markup("").join(parts)


def _hint(text: str) -> Markup:
    """Return the tooltip of a mark."""
    return Markup("<title>{}</title>").format(text) if text else Markup("")

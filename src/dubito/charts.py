"""The specification of a chart: axes and marks, without anything about how they are drawn.

A page draws it as SVG (`dubito.report.svg`), a display with matplotlib
(`dubito.report.displays`), and a terminal as text (`draw_text`, below).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, final

import numpy as np

from dubito.formatting import percent, plain, short_percent

TEXT_WIDTH = 30
DAY = 86_400.0
TIME_STEPS = (
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0,
    *(60.0 * n for n in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720)),
    *(DAY * n for n in (1, 2, 5, 7, 14, 30, 60, 90, 180, 365)),
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Axis:
    """The range, ticks, label and number format of an axis."""

    low: float
    high: float
    label: str
    formatter: Callable[[float], str] = short_percent
    ticks: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)

    @classmethod
    def of(
        cls, values: Iterable[float], label: str, formatter: Callable[[float], str] = plain
    ) -> Axis:
        """Return an axis over 0 and all values, between two round numbers."""
        array = np.asarray(list(values), dtype=np.float64)
        ticks = ticks_between(float(array.min(initial=0.0)), float(array.max(initial=0.0)))
        return cls(ticks[0], ticks[-1], label, formatter, ticks)

    @classmethod
    def of_times(cls, times: Iterable[float], label: str) -> Axis:
        """Return an axis from the first to the last time, in seconds since 1970, labeled in UTC.

        >>> axis = Axis.of_times([1.7e9, 1.7e9 + 86400], "decided")
        >>> axis.label, [axis.formatter(tick) for tick in axis.ticks]
        ('decided, Nov 14 to 15, 2023 (UTC)', ['00:00', '06:00', '12:00', '18:00'])
        """
        array = np.asarray(list(times), dtype=np.float64)
        low, high = float(array.min(initial=np.inf)), float(array.max(initial=-np.inf))
        if not array.size:
            return cls(0.0, 1.0, label, plain, ())
        high = max(high, low + 1.0)
        step = next((one for one in TIME_STEPS if (high - low) / one <= 5), TIME_STEPS[-1])
        step *= max(1, int(np.ceil((high - low) / step / 5)))
        ticks = np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step
        first, last = (datetime.fromtimestamp(end, UTC) for end in (low, high))
        form = "%b %-d" if step >= DAY else "%H:%M" if step >= 60 else "%H:%M:%S"
        if step >= DAY:
            years = f"{first.year}" if first.year == last.year else f"{first.year}-{last.year}"
            name = f"{label}, {years} (UTC)"
        else:
            same = first.date() == last.date()
            until = "" if same else f" to {last:%b %-d}".replace(f" {first:%b} ", " ")
            name = f"{label}, {first:%b %-d}{until}, {last.year} (UTC)"

        def show(tick: float) -> str:
            return datetime.fromtimestamp(tick, UTC).strftime(form)

        return cls(low, high, name, show, tuple(ticks.tolist()))


def ticks_between(low: float, high: float) -> tuple[float, ...]:
    """Return two to eight round, evenly spaced numbers that enclose both.

    >>> ticks_between(0.0, 0.87)
    (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """
    is_spread = high - low > 1e-6 * max(abs(low), abs(high))  # less is rounding
    span = high - low if is_spread else max(abs(high), 1.0)
    size = 10.0 ** np.floor(np.log10(span / 4))
    step = next(size * by for by in (1.0, 2.0, 5.0, 10.0) if span / (size * by) <= 6)
    first, last = int(np.floor(low / step + 1e-9)), int(np.ceil((low + span) / step - 1e-9))
    return tuple(float(f"{k * step:.12g}") for k in range(first, last + 1))


# A style names what a mark stands for ("before", "after", "correct", "wrong", "reference", ...);
# each renderer has its own colors for it. A label makes an entry of the legend.


@final
@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A line through points; with `steps`, each value holds from the previous point on."""

    x: Any
    y: Any
    style: str
    label: str = ""
    steps: bool = False


@final
@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """The area between two lines, filled or hatched."""

    x: Any
    low: Any
    high: Any
    style: str = "band"
    label: str = ""
    is_hatched: bool = False


@final
@dataclass(frozen=True, slots=True, eq=False)
class Bars:
    """Rectangles between `left` and `right`, from `low` to `high`; `hints` are tooltips."""

    left: Any
    right: Any
    high: Any
    style: str
    label: str = ""
    low: Any = 0.0
    hints: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Dots; `count` is the number of rows behind each, `hints` are tooltips."""

    x: Any
    y: Any
    style: str
    label: str = ""
    count: Any = None
    hints: tuple[str, ...] = ()
    radius: float = 4.0


@final
@dataclass(frozen=True, slots=True, eq=False)
class Verticals:
    """Vertical lines, from the bottom to a fraction `top` of the height."""

    x: Any
    style: str
    label: str = ""
    top: float = 1.0


@final
@dataclass(frozen=True, slots=True)
class Span:
    """An estimate and the ends of its interval, which may be the estimate itself."""

    style: str
    low: float
    value: float
    high: float
    label: str = ""


@final
@dataclass(frozen=True, slots=True)
class SpanRow:
    """Horizontal intervals in one row of a chart, under a title."""

    title: str
    spans: tuple[Span, ...]


Mark = Line | Band | Bars | Points | Verticals | SpanRow


@final
@dataclass(frozen=True, slots=True, eq=False)
class Chart:
    """Marks between two axes; what comes first lies below.

    `title` is also what a screen reader announces. `handles` are styles and names of dots that a
    page's script places; `height` is that of the SVG, whose width is 400.

    >>> line = Line([0, 1], [0, 1], "reference", "calibrated")
    >>> Chart("A chart", Axis(0, 1, "Confidence"), Axis(0, 1, "Accuracy"), (line,)).legend
    (('reference', 'calibrated'),)
    """

    title: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    height: float = 300.0
    handles: tuple[tuple[str, str], ...] = ()

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """The style and the label of each labeled mark, without repetitions."""
        marks: list[Any] = []
        for mark in self.marks:
            marks += mark.spans if isinstance(mark, SpanRow) else [mark]
        known = dict.fromkeys((one.style, one.label) for one in marks if one.label)
        return (*known, *self.handles)


def draw_text(chart: Chart, width: int = TEXT_WIDTH) -> list[str]:
    r"""Return the points or bars of a chart as text: one line each, with a bar of `#`.

    `|` marks the reference line.

    >>> marks = Line([0, 1], [0, 1], "reference", "calibrated"), Points([0.5], [0.25], "model")
    >>> chart = Chart("A chart", Axis(0, 1, "Confidence"), Axis(0, 1, "Accuracy"), marks)
    >>> print("\n".join(draw_text(chart, 8)))
      confidence accuracy   (| = calibrated)
          50.0 %   25.0 %   ##  |
    """
    kinds = {type(one): one for one in chart.marks if isinstance(one, Points | Bars)}
    mark = kinds.get(Points) or kinds[Bars]
    lines = [one for one in chart.marks if isinstance(one, Line) and one.style == "reference"]
    xs, ys = (mark.x, mark.y) if isinstance(mark, Points) else (mark.left, mark.high)
    counts = mark.count if isinstance(mark, Points) else None
    names = [chart.x.label.lower(), chart.y.label.lower()]
    note = f"   (| = {lines[0].label})" if lines else ""
    head = "  " + " ".join(names) + ("" if counts is None else f" {'rows':>11}") + note
    rows = [head]
    for k, (x, y) in enumerate(zip(xs, ys, strict=True)):
        bar = list(("#" * _column(chart.y, y, width)).ljust(width + 1))
        if lines:
            bar[_column(chart.y, float(np.interp(x, lines[0].x, lines[0].y)), width)] = "|"
        n_rows = "" if counts is None else f" {counts[k]:>11,.0f}"
        cells = " ".join(
            f"{_text(axis, value):>{len(name)}}"
            for axis, value, name in zip((chart.x, chart.y), (x, y), names, strict=True)
        )
        rows.append(f"  {cells}{n_rows}   {''.join(bar)}".rstrip())
    return rows


def _text(axis: Axis, value: float) -> str:
    """Return a number of an axis with a fixed number of digits, so that columns align."""
    return f"{percent(value)}" if axis.formatter is short_percent else f"{value:.4g}"


def _column(axis: Axis, value: float, width: int) -> int:
    """Return the text column in which a value lies."""
    fraction = (value - axis.low) / (axis.high - axis.low)
    return round(min(max(fraction, 0.0), 1.0) * width)

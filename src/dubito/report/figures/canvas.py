"""A small drawing board: two axes, and what is drawn between them, as SVG for a web page.

Colors are names of classes, which the page's stylesheet gives their color: light, dark, on paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from markupsafe import Markup

from dubito.arrays import FloatArray

LEFT, RIGHT, TOP, BOTTOM = 64.0, 18.0, 12.0, 46.0
WIDTH = 400.0


def percent(value: float) -> str:
    """Return a share in per cent, with as many digits as it needs.

    >>> percent(0.5), percent(0.025)
    ('50 %', '2.5 %')
    """
    return f"{value * 100:.3g} %"


def plain(value: float) -> str:
    """Return a number as short as it can be told.

    >>> plain(1500.0), plain(0.25)
    ('1,500', '0.25')
    """
    return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


@final
@dataclass(frozen=True, slots=True)
class Axis:
    """From where to where, what is marked, and what it is called."""

    low: float
    high: float
    label: str
    tell: Callable[[float], str] = percent
    ticks: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)

    @classmethod
    def of(cls, values: Iterable[float], label: str, tell: Callable[[float], str] = plain) -> Axis:
        """Return an axis that holds all values, from one round number to another."""
        held = np.asarray(list(values), dtype=np.float64)
        ticks = ticks_between(float(held.min(initial=0.0)), float(held.max(initial=0.0)))
        return cls(ticks[0], ticks[-1], label, tell, ticks)


def ticks_between(low: float, high: float) -> tuple[float, ...]:
    """Return four to eight round numbers, the outer ones around both.

    >>> ticks_between(0.0, 0.87)
    (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """
    is_spread = high - low > 1e-6 * max(abs(low), abs(high))  # less is the same but for rounding
    span = high - low if is_spread else max(abs(high), 1.0)
    size = 10.0 ** np.floor(np.log10(span / 4))
    step = next(size * by for by in (1.0, 2.0, 5.0, 10.0) if span / (size * by) <= 6)
    first, last = int(np.floor(low / step + 1e-9)), int(np.ceil((low + span) / step - 1e-9))
    return tuple(float(f"{k * step:.12g}") for k in range(first, last + 1))


@final
@dataclass(slots=True, eq=False)
class Canvas:
    """A chart under way: what is drawn first lies below. `svg` is the chart.

    `name` is what it shows, for those who hear the page rather than see it.

    >>> canvas = Canvas("A chart", Axis(0, 1, "says"), Axis(0, 1, "is right"))
    >>> canvas.line([0, 1], [0, 1], "before")
    >>> canvas.svg().startswith("<svg")
    True
    """

    name: str
    x: Axis
    y: Axis
    height: float = 300.0
    marks: list[Markup] = field(default_factory=list)

    def at_x(self, value: float) -> float:
        """Return where a value lies from the left."""
        share = (value - self.x.low) / (self.x.high - self.x.low)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def at_y(self, value: float) -> float:
        """Return where a value lies from the top."""
        share = (value - self.y.low) / (self.y.high - self.y.low)
        return round(self.height - BOTTOM - share * (self.height - BOTTOM - TOP), 1)

    def path(self, xs: Sequence[float] | FloatArray, ys: Sequence[float] | FloatArray) -> str:
        """Return a line through points as SVG has it; points that hide in others are left out."""
        places = list(
            dict.fromkeys(
                (self.at_x(float(x)), self.at_y(float(y))) for x, y in zip(xs, ys, strict=True)
            )
        )
        return "M" + "L".join(f"{x:g} {y:g}" for x, y in places) if places else ""

    def line(
        self, xs: Sequence[float] | FloatArray, ys: Sequence[float] | FloatArray, kind: str
    ) -> None:
        """Draw a line through points."""
        mark = Markup('<path class="line {}" d="{}"/>')
        self.marks.append(mark.format(kind, self.path(xs, ys)))

    def band(self, xs: FloatArray, low: FloatArray, high: FloatArray) -> None:
        """Draw the area between two lines."""
        outline = self.path([*xs, *xs[::-1]], [*low, *high[::-1]])
        self.marks.append(Markup('<path class="band" d="{}Z"/>').format(outline))

    def box(
        self,
        left: float,
        right: float,
        low: float,
        high: float,
        kind: str,
        tells: str = "",
    ) -> None:
        """Draw a box between values; `tells` is shown to whoever points at it."""
        x, y = self.at_x(left), self.at_y(high)
        width, height = max(self.at_x(right) - x, 0.5), max(self.at_y(low) - y, 0.0)
        mark = Markup('<rect class="{}" x="{:g}" y="{:g}" width="{:g}" height="{:g}">{}</rect>')
        self.marks.append(mark.format(kind, x, y, round(width, 1), round(height, 1), _hint(tells)))

    def point(self, x: float, y: float, kind: str, tells: str = "", radius: float = 4.0) -> None:
        """Draw a point; `tells` is shown to whoever points at it."""
        mark = Markup('<circle class="{}" cx="{:g}" cy="{:g}" r="{:g}">{}</circle>')
        self.marks.append(mark.format(kind, self.at_x(x), self.at_y(y), radius, _hint(tells)))

    def axes(self) -> Markup:
        """Return the grid, the numbers and the names of both axes."""
        left, right = LEFT, WIDTH - RIGHT
        top, bottom = TOP, self.height - BOTTOM
        parts = []
        for value in self.y.ticks:
            y = self.at_y(value)
            parts.append(Markup('<path class="grid" d="M{:g} {:g}H{:g}"/>').format(left, y, right))
            text = Markup('<text class="tick end" x="{:g}" y="{:g}">{}</text>')
            parts.append(text.format(left - 7, y + 4, self.y.tell(value)))
        for value in self.x.ticks:
            text = Markup('<text class="tick middle" x="{:g}" y="{:g}">{}</text>')
            parts.append(text.format(self.at_x(value), bottom + 17, self.x.tell(value)))
        parts.append(Markup('<path class="axis" d="M{:g} {:g}H{:g}"/>').format(left, bottom, right))
        label = Markup('<text class="label middle" x="{:g}" y="{:g}">{}</text>')
        parts.append(label.format((left + right) / 2, self.height - 7, self.x.label))
        middle = (top + bottom) / 2
        turned = Markup(
            '<text class="label middle" transform="translate(13 {:g})rotate(-90)">{}</text>'
        )
        parts.append(turned.format(middle, self.y.label))
        return Markup("").join(parts)

    def svg(self) -> Markup:
        """Return the chart."""
        frame = Markup(
            '<svg class="chart" viewBox="0 0 {:g} {:g}" role="img" aria-label="{}">{}{}</svg>'
        )
        return frame.format(WIDTH, self.height, self.name, self.axes(), Markup("").join(self.marks))


def _hint(tells: str) -> Markup:
    """Return what is shown to whoever points at a mark."""
    return Markup("<title>{}</title>").format(tells) if tells else Markup("")

"""What is left when the most doubtful rows go to a person: risk and cost over what is kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from dubito.arrays import FloatArray
from dubito.report.figures.canvas import Axis, Canvas, percent, plain, ticks_between

__all__ = ["cost_chart", "risk_chart"]

MOST_POINTS = 400
RADII = {"best": 7, "policy": 5, "yours": 5}

Curve = tuple[str, FloatArray, FloatArray]


def risk_chart(
    name: str,
    curves: Sequence[Curve],
    label: str = "share of them wrong",
    marks: Sequence[str] = (),
) -> Markup:
    """Return risk over coverage, a line for each (kind, coverage, risk), and marks to be moved."""
    highest = max(float(risk[coverage >= 0.05].max(initial=0.0)) for _, coverage, risk in curves)
    ticks = ticks_between(0.0, highest or 0.01)
    is_share = label.startswith("share")
    y = Axis(0, ticks[-1], label, percent if is_share else plain, ticks)
    canvas = Canvas(name, Axis(0, 1, "share of rows kept"), y)
    for kind, coverage, risk in curves:
        xs, ys = thinned(coverage, np.minimum(risk, ticks[-1]))
        canvas.line(xs, ys, kind)
    return scaled(canvas, marks)


def cost_chart(
    name: str, reviewed: FloatArray, cost: FloatArray, marks: Sequence[str] = ()
) -> Markup:
    """Return the cost of 1,000 rows over the share that a person looks at; scripts redraw it."""
    ticks = ticks_between(min(0.0, float(cost.min())), float(cost.max()))
    y = Axis(ticks[0], ticks[-1], "cost of 1,000 rows", plain, ticks)
    canvas = Canvas(name, Axis(0, 1, "share of rows reviewed"), y)
    canvas.line(*thinned(reviewed, cost), "after")
    return scaled(canvas, marks)


def scaled(canvas: Canvas, marks: Sequence[str]) -> Markup:
    """Return a chart that says where its axes lie, so that scripts can put marks on it."""
    for mark in marks:
        circle = Markup('<circle class="{0}-mark" data-mark="{0}" r="{1}" hidden=""/>')
        canvas.marks.append(circle.format(mark, RADII[mark]))
    box = f"{canvas.at_x(canvas.x.low)} {canvas.at_x(canvas.x.high)}"
    box += f" {canvas.at_y(canvas.y.low)} {canvas.at_y(canvas.y.high)}"
    scale = f'data-box="{box}" data-low="{canvas.y.low!r}" data-high="{canvas.y.high!r}"'
    return Markup(str(canvas.svg()).replace("<svg ", f"<svg {scale} ", 1))


def thinned(xs: FloatArray, ys: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return at most a few hundred points of a line, both ends among them."""
    if xs.size <= MOST_POINTS:
        return xs, ys
    chosen = np.unique(np.linspace(0, xs.size - 1, MOST_POINTS).astype(np.int64))
    return xs[chosen], ys[chosen]

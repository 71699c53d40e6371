"""Reliability diagrams: stated confidence against how often it was right."""

from __future__ import annotations

from markupsafe import Markup

from dubito.measure import ReliabilityCurve
from dubito.report.figures.canvas import Axis, Canvas, percent, ticks_between
from dubito.report.numbers import share

__all__ = ["confidence_histogram", "reliability_diagram"]


def reliability_diagram(curve: ReliabilityCurve, name: str, kind: str) -> Markup:
    """Return the diagram of one curve over the band that a calibrated model would stay in."""
    canvas = Canvas(name, Axis(0, 1, "stated confidence"), Axis(0, 1, "share that is right"))
    edges = curve.edges
    for k, low, high in zip(curve.bins, curve.low, curve.high, strict=True):
        canvas.box(edges[k], edges[k + 1], low, high, "band")
    canvas.line([0, 1], [0, 1], "diagonal")
    canvas.line(curve.confidence, curve.accuracy, kind)
    lines = zip(curve.confidence, curve.accuracy, curve.count, curve.low, curve.high, strict=True)
    for says, right, count, low, high in lines:
        tells = (
            f"says {share(says)}, right {share(right)} ({count:,.0f} rows; "
            f"a calibrated model: {share(low)} to {share(high)})"
        )
        canvas.point(says, right, f"dot {kind}", tells)
    return canvas.svg()


def confidence_histogram(curve: ReliabilityCurve, name: str, kind: str) -> Markup:
    """Return how many rows state which confidence, and below each bar how many are right."""
    heights = curve.count / curve.count.sum()
    ticks = ticks_between(0.0, float(heights.max()))[:: 2 if heights.max() > 0.1 else 1]
    y = Axis(0, max(ticks[-1], float(heights.max())), "rows", percent, ticks)
    canvas = Canvas(name, Axis(0, 1, "stated confidence"), y, height=130)
    lines = zip(curve.bins, curve.count, heights, curve.accuracy, strict=True)
    for k, count, height, right in lines:
        left, width = curve.edges[k], curve.edges[k + 1] - curve.edges[k]
        ends = (left + 0.08 * width, left + 0.92 * width)
        tells = f"{count:,.0f} rows ({share(height)}), {share(right)} of them right"
        canvas.box(*ends, 0, height, f"bar wrong {kind}", tells)
        canvas.box(*ends, 0, height * right, f"bar right {kind}", tells)
    return canvas.svg()

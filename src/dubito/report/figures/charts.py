"""The charts of a report: reliability, selective risk, uncertainty, regression and intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from markupsafe import Markup

from dubito.arrays import FloatArray
from dubito.measure import ReliabilityCurve
from dubito.report.figures.canvas import Axis, Canvas, percent, plain, ticks_between
from dubito.report.formatting import share

N_BINS = 25


@final
@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """Rows of one kind: what they are called, their color, doubts and weights."""

    name: str
    kind: str
    doubt: FloatArray
    weight: FloatArray


def doubt_histogram(name: str, label: str, populations: Sequence[Population]) -> Markup:
    """Return how the doubts of several kinds of rows spread, each kind as shares of itself.

    What lies beyond the 99th hundredth of all is counted in the last bin.
    """
    every = np.concatenate([one.doubt for one in populations])
    low, high = float(every.min()), float(np.quantile(every, 0.99))
    ticks = ticks_between(low, high)
    edges = np.linspace(ticks[0], ticks[-1], N_BINS + 1)
    heights = [_shares_in(edges, one) for one in populations]
    most = max(float(height.max()) for height in heights)
    y_ticks = ticks_between(0.0, most)
    x = Axis(ticks[0], ticks[-1], label, plain, ticks)
    canvas = Canvas(name, x, Axis(0, y_ticks[-1], "share of each kind", percent, y_ticks))
    for one, height in zip(populations, heights, strict=True):
        for left, right, height_ in zip(edges[:-1], edges[1:], height, strict=True):
            if height_ > 0:
                tells = f"{one.name}: {share(height_)} between {left:.4g} and {right:.4g}"
                canvas.box(left, right, 0, height_, f"bar {one.kind}", tells)
        steps = np.repeat(height, 2)
        canvas.line(np.repeat(edges, 2)[1:-1], steps, one.kind)
    return canvas.svg()


def _shares_in(edges: FloatArray, population: Population) -> FloatArray:
    """Return the share of a population in each bin; what is beyond is in the outer bins."""
    inside = np.clip(population.doubt, edges[0], edges[-1])
    counts: Any = np.histogram(inside, edges, weights=population.weight)[0]
    return np.asarray(counts / max(population.weight.sum(), np.finfo(np.float64).tiny))


def doubt_parts(name: str, populations: Sequence[tuple[str, FloatArray, FloatArray]]) -> Markup:
    """Return noise in the data against ignorance of the model, a point a row."""
    xs = np.concatenate([noise for _, noise, _ in populations])
    ys = np.concatenate([ignorance for _, _, ignorance in populations])
    canvas = Canvas(
        name,
        Axis.of(xs, "aleatoric: noise in the data (nats)"),
        Axis.of(ys, "epistemic: ignorance (nats)"),
    )
    for kind, noise, ignorance in populations:
        for x, y in zip(noise, ignorance, strict=True):
            canvas.point(float(x), float(y), f"speck {kind}", radius=2.0)
    return canvas.svg()


Levels = tuple[str, str, FloatArray, FloatArray]  # kind, name, levels, and a value at each


def coverage_chart(
    name: str, band: tuple[FloatArray, FloatArray, FloatArray], curves: Sequence[Levels]
) -> Markup:
    """Return the share of truths that intervals hold against what they should hold.

    `band` has the levels, and the lowest and highest coverage of a calibrated model.
    """
    canvas = Canvas(name, Axis(0, 1, "should hold"), Axis(0, 1, "holds"))
    canvas.band(*band)
    canvas.line([0, 1], [0, 1], "diagonal")
    for kind, title, levels, coverage in curves:
        canvas.line([0.0, *levels, 1.0], [0.0, *coverage, 1.0], kind)
        for level, held in zip(levels, coverage, strict=True):
            tells = f"{title}: intervals of {share(float(level), 0)} hold {share(float(held))}"
            canvas.point(float(level), float(held), f"dot {kind}", tells)
    return canvas.svg()


def width_chart(name: str, curves: Sequence[Levels]) -> Markup:
    """Return how wide intervals are on average, over what they should hold."""
    highest = max((float(widths.max(initial=0.0)) for *_, widths in curves), default=0.0)
    ticks = ticks_between(0.0, highest)
    canvas = Canvas(name, Axis(0, 1, "should hold"), Axis(0, ticks[-1], "mean width", plain, ticks))
    for kind, title, levels, widths in curves:
        canvas.line([0.0, *levels], [0.0, *widths], kind)
        for level, width in zip(levels, widths, strict=True):
            tells = f"{title}: intervals of {share(float(level), 0)} are {width:.4g} wide"
            canvas.point(float(level), float(width), f"dot {kind}", tells)
    return canvas.svg()


def pit_histogram(name: str, pit: FloatArray, n_rows: int, kind: str) -> Markup:
    """Return how many truths lie where in their predicted distribution; flat is calibrated."""
    even = 1 / pit.size
    margin = 1.96 * float(np.sqrt(even * (1 - even) / max(n_rows, 1)))
    ticks = ticks_between(0.0, max(float(pit.max()), even + margin))
    x = Axis(0, 1, "place of the truth, 0 lowest, 1 highest", lambda v: f"{v:g}")
    canvas = Canvas(name, x, Axis(0, ticks[-1], "rows", percent, ticks))
    canvas.box(0, 1, max(even - margin, 0), even + margin, "band")
    for k, height in enumerate(pit):
        left, right = (k + 0.06) / pit.size, (k + 0.94) / pit.size
        tells = (
            f"{share(float(height))} of the truths between {k * even:.2f} and {(k + 1) * even:.2f}"
        )
        canvas.box(left, right, 0, float(height), f"bar {kind}", tells)
    canvas.line([0, 1], [even, even], "diagonal")
    return canvas.svg()


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
        xs, ys = _thinned(coverage, np.minimum(risk, ticks[-1]))
        canvas.line(xs, ys, kind)
    return _scaled(canvas, marks)


def cost_chart(
    name: str, reviewed: FloatArray, cost: FloatArray, marks: Sequence[str] = ()
) -> Markup:
    """Return the cost of 1,000 rows over the share that a person looks at; scripts redraw it."""
    ticks = ticks_between(min(0.0, float(cost.min())), float(cost.max()))
    y = Axis(ticks[0], ticks[-1], "cost of 1,000 rows", plain, ticks)
    canvas = Canvas(name, Axis(0, 1, "share of rows reviewed"), y)
    canvas.line(*_thinned(reviewed, cost), "after")
    return _scaled(canvas, marks)


def _scaled(canvas: Canvas, marks: Sequence[str]) -> Markup:
    """Return a chart that says where its axes lie, so that scripts can put marks on it."""
    for mark in marks:
        circle = Markup('<circle class="{0}-mark" data-mark="{0}" r="{1}" hidden=""/>')
        canvas.marks.append(circle.format(mark, RADII[mark]))
    box = f"{canvas.at_x(canvas.x.low)} {canvas.at_x(canvas.x.high)}"
    box += f" {canvas.at_y(canvas.y.low)} {canvas.at_y(canvas.y.high)}"
    scale = f'data-box="{box}" data-low="{canvas.y.low!r}" data-high="{canvas.y.high!r}"'
    return Markup(str(canvas.svg()).replace("<svg ", f"<svg {scale} ", 1))


def _thinned(xs: FloatArray, ys: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return at most a few hundred points of a line, both ends among them."""
    if xs.size <= MOST_POINTS:
        return xs, ys
    chosen = np.unique(np.linspace(0, xs.size - 1, MOST_POINTS).astype(np.int64))
    return xs[chosen], ys[chosen]


ROW, REST = 44.0, 58.0  # heights of a row, and of what stands below all of them
MOST_LETTERS = 50


@final
@dataclass(frozen=True, slots=True)
class Span:
    """A value between two ends, which may be the value itself; `kind` is its color."""

    kind: str
    low: float
    value: float
    high: float


def span_chart(
    name: str,
    rows: Sequence[tuple[str, Sequence[Span]]],
    label: str,
    tell: Callable[[float], str] = percent,
) -> Markup:
    """Return a chart with a line from end to end for each span, under the name of its row.

    >>> span_chart("One", [("log loss", [Span("right", -0.4, -0.3, -0.2)])], "less")[:4]
    Markup('<svg')
    """
    ends = [end for _, spans in rows for span in spans for end in (span.low, span.high)]
    n_rows = len(rows)
    canvas = Canvas(
        name, Axis.of(ends, label, tell), Axis(0, n_rows, "", plain, ()), ROW * n_rows + REST
    )
    for k, (title, spans) in enumerate(rows):
        height = n_rows - k - 0.7
        for value in canvas.x.ticks:
            kind = "diagonal" if value == 0 else "grid"
            canvas.line([value, value], [height - 0.26, height + 0.26], kind)
        for span in spans:
            canvas.line([span.low, span.high], [height, height], span.kind)
            for end, reach in ((span.low, 0.07), (span.value, 0.17), (span.high, 0.07)):
                canvas.line([end, end], [height - reach, height + reach], span.kind)
        short = title if len(title) <= MOST_LETTERS else f"{title[: MOST_LETTERS - 1]}\u2026"
        text = Markup('<text class="label" x="{:g}" y="{:g}">{}</text>')
        place = canvas.at_x(canvas.x.low), canvas.at_y(height + 0.36)
        canvas.marks.append(text.format(*place, short))
    return canvas.svg()

"""Charts of risk, cost, uncertainty, prediction intervals and decision errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, final

import numpy as np
from scipy.special import expit

from dubito.arrays import FloatArray
from dubito.charts import (
    Axis,
    Band,
    Bars,
    Chart,
    Line,
    Mark,
    Points,
    SpanRow,
    Verticals,
    ticks_between,
)
from dubito.decide.realized import CostCoverageCurve, CostPriorCurve
from dubito.decide.regions import ErrorAreas
from dubito.formatting import percent, plain, short_percent
from dubito.measure import ReliabilityCurve, RiskCoverageCurve
from dubito.report.sample import Thresholds
from dubito.report.svg import MARGIN_HEIGHT, ROW_HEIGHT

N_BINS = 25
MIN_COVERAGE = 0.02  # below it a few errors must not set the scale
HEADROOM = 1.5  # above densities, for the legend
ODDS_TICKS = (
    1e-6, 1e-5, 1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
    0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999, 0.99999, 0.999999,
)  # fmt: skip
N_GRID = 201
MIN_SPACING = 0.2  # of ticks on an axis of log odds
RANGE = "95 % range of a calibrated model"
Handles = tuple[tuple[str, str], ...]


class Curve(NamedTuple):
    """Points to draw: their style, label and coordinates."""

    style: str
    label: str
    x: FloatArray
    y: FloatArray

    @classmethod
    def of_risk(cls, style: str, label: str, curve: RiskCoverageCurve) -> Curve:
        """Return the risk over coverage."""
        return cls(style, label, curve.coverage, curve.risk)


def confidence_histogram(curve: ReliabilityCurve, title: str, style: str) -> Chart:
    """Return how many rows have which confidence, correct rows below wrong ones."""
    heights = curve.count / curve.count.sum()
    top = float(heights.max())
    ticks = ticks_between(0.0, top)[:: 2 if top > 0.1 else 1]
    left, right = curve.edges[curve.bins], curve.edges[curve.bins + 1]
    ends = left + 0.08 * (right - left), right - 0.08 * (right - left)
    hints = tuple(
        f"{count:,.0f} rows ({percent(height)}), accuracy {percent(accuracy)}"
        for count, height, accuracy in zip(curve.count, heights, curve.accuracy, strict=True)
    )
    return Chart(
        title,
        Axis(0, 1, "Confidence"),
        Axis(0, max(ticks[-1], top), "Rows", short_percent, ticks),
        (
            Bars(*ends, heights, f"{style} faint", "wrong rows", hints=hints),
            Bars(*ends, heights * curve.accuracy, style, "correct rows", hints=hints),
        ),
        height=130,
    )


def risk_chart(
    title: str,
    curves: Sequence[Curve],
    label: str = "Risk: error rate of accepted rows",
    formatter: Callable[[float], str] = short_percent,
    handles: Handles = (),
) -> Chart:
    """Return the risk of accepted rows over coverage, with the risk of all rows as a dot."""
    top = max(float(one.y[one.x >= MIN_COVERAGE].max(initial=0.0)) for one in curves)
    marks: list[Mark] = []
    for one in curves:
        marks.append(Line(one.x, one.y, one.style, one.label, steps=True))
        marks.append(Points(one.x[-1:], one.y[-1:], one.style))
    x = Axis(0, 1, "Coverage: fraction of rows accepted")
    y = Axis.of([top or 0.01], label, formatter)
    return Chart(title, x, y, tuple(marks), handles=handles)


def review_cost_chart(
    title: str, reviewed: FloatArray, cost: FloatArray, handles: Handles = ()
) -> Chart:
    """Return the cost per 1,000 rows over the fraction sent to review."""
    line = Line(reviewed, cost, "after", "by threshold")
    x, y = Axis(0, 1, "Fraction of rows reviewed"), Axis.of(cost, "Cost per 1,000 rows")
    return Chart(title, x, y, (line,), handles=handles)


def log_odds(p: Any) -> FloatArray:
    """Return where probabilities lie on an axis of log odds, 0 and 1 at its ends.

    >>> log_odds([0.5, 0.9]).round(3).tolist()
    [0.0, 2.197]
    """
    inside = np.clip(np.asarray(p, np.float64), ODDS_TICKS[0], ODDS_TICKS[-1])
    return np.asarray(np.log(inside / (1 - inside)))


def odds_axis(p: FloatArray, label: str, formatter: Callable[[float], str] = plain) -> Axis:
    """Return an axis of log odds that holds probabilities, with a few round ticks."""
    low, high = np.clip([p.min(), p.max()], ODDS_TICKS[0], ODDS_TICKS[-1])
    first = min(int(np.searchsorted(ODDS_TICKS, low, side="right")), len(ODDS_TICKS) - 1) - 1
    last = max(int(np.searchsorted(ODDS_TICKS, high, side="left")), first + 1)
    places = log_odds(ODDS_TICKS[first : last + 1]).tolist()
    ticks: list[float] = []
    for place in places:
        if not ticks or place - ticks[-1] >= MIN_SPACING * (places[-1] - places[0]):
            ticks.append(place)
    shown = dict(zip(places, ODDS_TICKS[first : last + 1], strict=True))
    return Axis(places[0], places[-1], label, lambda odds: formatter(shown[odds]), tuple(ticks))


def threshold_charts(rows: Thresholds, name: str) -> tuple[Chart, Chart]:
    """Return the rows at or above each probability, and the cost as the first threshold moves.

    Both over the same axis of log odds, on which a page's script moves the thresholds.
    """
    optimal, p = rows.optimal, rows.p
    seen = np.append(p[p >= np.quantile(p, 0.01)], optimal)  # a few tiny ones need no room
    x = odds_axis(seen, f"Threshold: calibrated {name}")
    grid = np.linspace(x.low, x.high, N_GRID)
    marks: list[Mark] = []
    for part, style, label in (
        (rows.positive, "after", f"recall: {rows.classes[1]} at or above"),
        (rows.weight, "neutral", "all rows at or above"),
    ):
        above = np.append(np.cumsum(part[::-1])[::-1], 0.0) / max(part.sum(), 1e-300)
        marks.append(Line(grid, above[np.searchsorted(p, expit(grid))], style, label))
    marks.append(Verticals(log_odds(optimal), "optimal", "optimal threshold"))
    handles: Handles = (("yours", "your threshold"),)
    y = Axis(0, 1, "Fraction at or above", short_percent)
    rates = Chart(f"Rows at or above each {name}", x, y, tuple(marks), handles=handles)
    high = float(log_odds(optimal[1])) if len(optimal) > 1 else x.high
    part = np.linspace(x.low, high, N_GRID)
    costs = 10_000 * rows.costs_over_first(optimal, expit(part))
    line, y = Line(part, costs, "after", "cost"), Axis.of(costs, "Cost per 10,000 rows")
    handles = (("best", "optimal threshold"), *handles)
    return rates, Chart("Cost over the threshold", x, y, (line,), handles=handles)


def cost_coverage_chart(curve: CostCoverageCurve, name: str) -> Chart:
    """Return the cost of accepted rows and, with a reject action, of all rows."""
    accepted = "model" if curve.total is None else "model dotted"
    label = f"{name}: accepted rows"
    marks: list[Mark] = [Line(curve.coverage, curve.cost, accepted, label, steps=True)]
    if curve.total is not None:
        k = int(curve.total.argmin())
        lowest = f"lowest: {curve.total[k]:.3g} at coverage {percent(curve.coverage[k])}"
        marks.append(Line(curve.coverage, curve.total, "model", f"{name}: all rows, with rejects"))
        marks.append(Points(curve.coverage[[k]], curve.total[[k]], "model", lowest, radius=5.0))
    costs = curve.cost if curve.total is None else np.append(curve.cost, curve.total)
    x = Axis(0, 1, "Coverage: fraction of rows accepted")
    return Chart("Cost over coverage", x, Axis.of(costs, "Cost per row"), tuple(marks))


def cost_prior_chart(curve: CostPriorCurve, name: str) -> Chart:
    """Return the cost of fixed and of prior-adjusted decisions, and of one action for all rows."""
    marks = (
        Line(curve.prior, curve.cost, "fixed", "fixed decisions"),
        Line(curve.prior, curve.adapted, "adjusted", "prior-adjusted decisions"),
        Line(curve.prior, curve.constant, "neutral dotted", "best single action"),
        Verticals([curve.measured], "reference", f"observed prior, {percent(curve.measured)}"),
    )
    costs = np.concatenate([curve.cost, curve.adapted, curve.constant])
    x = Axis(0, 1, f"Prior of {name}", plain)
    return Chart("Cost over the prior", x, Axis.of(costs, "Cost per row"), marks)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """Rows of one kind: their name, style, uncertainty scores, and weights other than 1."""

    name: str
    style: str
    scores: FloatArray
    weight: FloatArray | None = None

    def fractions(self, edges: FloatArray) -> FloatArray:
        """Return the weight in each bin as a fraction; the outer bins include what is beyond."""
        inside = np.clip(self.scores, edges[0], edges[-1])
        weight = np.ones(inside.size) if self.weight is None else self.weight
        counts: Any = np.histogram(inside, edges, weights=weight)[0]
        return np.asarray(counts / max(weight.sum(), np.finfo(np.float64).tiny))


def uncertainty_histogram(title: str, label: str, populations: Sequence[Population]) -> Chart:
    """Return the distribution of an uncertainty score in several kinds of rows.

    Scores above the 99th percentile are counted in the last bin.
    """
    scores = np.concatenate([one.scores for one in populations])
    ticks = ticks_between(float(scores.min()), float(np.quantile(scores, 0.99)))
    edges = np.linspace(ticks[0], ticks[-1], N_BINS + 1)
    marks: list[Mark] = []
    tops = []
    for one in populations:
        heights = one.fractions(edges)
        full = np.flatnonzero(heights)
        hints = tuple(
            f"{one.name}: {percent(heights[k])} between {edges[k]:.4g} and {edges[k + 1]:.4g}"
            for k in full
        )
        style, name = f"{one.style} faint", f"{one.name} ({one.scores.size:,})"
        marks.append(Bars(edges[full], edges[full + 1], heights[full], style, hints=hints))
        corners = np.repeat(edges, 2)[1:-1]
        marks.append(Line(corners, np.repeat(heights, 2), one.style, name))
        tops.append(float(heights.max()))
    x = Axis(ticks[0], ticks[-1], label, plain, ticks)
    return Chart(title, x, Axis.of(tops, "Fraction of each kind", short_percent), tuple(marks))


def uncertainty_scatter(title: str, populations: Sequence[Curve]) -> Chart:
    """Return epistemic over aleatoric uncertainty, a dot per row."""
    x, y = (np.concatenate([one[axis] for one in populations]) for axis in (2, 3))
    marks = tuple(Points(one.x, one.y, one.style, one.label, radius=2.0) for one in populations)
    axes = Axis.of(x, "Aleatoric uncertainty (nats)"), Axis.of(y, "Epistemic uncertainty (nats)")
    return Chart(title, *axes, marks)


NOMINAL = {  # the labels of both axes, and a tooltip
    "coverage": (
        "Nominal coverage", "Observed coverage",
        lambda level, held: f"{percent(level, 0)} intervals contain {percent(held)}",
    ),
    "quantiles": (
        "Level of the quantile", "Outcomes at or below it",
        lambda level, held: f"{percent(held)} at or below the {level:.3g} quantile",
    ),
}  # fmt: skip


def nominal_chart(
    kind: Literal["coverage", "quantiles"], title: str, n_rows: int, curves: Sequence[Curve]
) -> Chart:
    """Return observed over nominal coverage of intervals, or fractions of outcomes by quantile.

    The band is the range that chance explains.
    """
    grid = np.linspace(0, 1, 41)
    margin = 1.96 * np.sqrt(grid * (1 - grid) / max(n_rows, 1))
    low, high = np.clip(grid - margin, 0, 1), np.clip(grid + margin, 0, 1)
    marks: list[Mark] = [Band(grid, low, high, label=RANGE), Line([0, 1], [0, 1], "reference")]
    x_label, y_label, describe = NOMINAL[kind]
    for one in curves:
        line = Line([0.0, *one.x, 1.0], [0.0, *one.y, 1.0], one.style, one.label)
        marks += [line, _level_points(one, describe)]
    return Chart(title, Axis(0, 1, x_label), Axis(0, 1, y_label), tuple(marks))


def width_chart(title: str, curves: Sequence[Curve]) -> Chart:
    """Return the mean width of prediction intervals over their nominal coverage."""

    def describe(level: float, width: float) -> str:
        return f"{percent(level, 0)} intervals have mean width {width:.4g}"

    marks: list[Mark] = []
    for one in curves:
        line = Line([0.0, *one.x], [0.0, *one.y], one.style, one.label)
        marks += [line, _level_points(one, describe)]
    tops = [float(one.y.max(initial=0.0)) for one in curves]
    return Chart(title, Axis(0, 1, "Nominal coverage"), Axis.of(tops, "Mean width"), tuple(marks))


def _level_points(curve: Curve, describe: Callable[[float, float], str]) -> Points:
    """Return a dot per nominal level, with a tooltip."""
    hints = tuple(
        f"{curve.label}: {describe(level, value)}"
        for level, value in zip(curve.x, curve.y, strict=True)
    )
    return Points(curve.x, curve.y, curve.style, hints=hints)


def pit_histogram(title: str, pit: FloatArray, n_rows: int, style: str) -> Chart:
    """Return the distribution of the probability integral transform; flat is calibrated."""
    even = 1 / pit.size
    margin = 1.96 * float(np.sqrt(even * (1 - even) / max(n_rows, 1)))
    k = np.arange(pit.size)
    hints = tuple(
        f"{percent(height)} of the targets between {j * even:.2f} and {(j + 1) * even:.2f}"
        for j, height in enumerate(pit)
    )
    marks = (
        Bars([0.0], [1.0], [even + margin], "band", RANGE, low=[max(even - margin, 0.0)]),
        Bars((k + 0.06) * even, (k + 0.94) * even, pit, style, "targets", hints=hints),
        Line([0, 1], [even, even], "reference"),
    )
    x = Axis(0, 1, "PIT: predicted probability of a lower target", plain)
    return Chart(title, x, Axis.of([float(pit.max()), even + margin], "Rows", short_percent), marks)


def span_chart(
    title: str,
    rows: Sequence[SpanRow],
    label: str,
    formatter: Callable[[float], str] = short_percent,
) -> Chart:
    """Return estimates with their intervals, row below row.

    >>> from dubito.charts import Span
    >>> row = SpanRow("log loss", (Span("correct", -0.4, -0.3, -0.2),))
    >>> span_chart("Differences", [row], "difference").height
    106.0
    """
    ends = [end for row in rows for span in row.spans for end in (span.low, span.high)]
    x, y = Axis.of(ends, label, formatter), Axis(0, len(rows), "", plain, ())
    return Chart(title, x, y, tuple(rows), ROW_HEIGHT * len(rows) + MARGIN_HEIGHT)


def error_areas_chart(areas: ErrorAreas, feature: str) -> Chart:
    """Return the joint densities of the classes, filled where a wrong action is taken."""
    marks: list[Mark] = []
    n_classes = len(areas.joint)
    for k, name in enumerate(areas.costs.classes or range(n_classes)):
        joint, style = areas.joint[k], f"class-{k}"
        marks.append(Line(areas.x, joint, style, f"p({feature}, {name})"))
        missed = f"{name} missed: {areas.decision.missed[k]:.3g}"
        for x in _pieces(areas.x, areas.decision.boundaries):
            if areas.is_mistake(areas.decision.at(x[:2].mean()))[k]:
                marks.append(Band(x, 0 * x, np.interp(x, areas.x, joint), style, missed))
                missed = ""
    if np.array_equal(areas.costs.array, 1 - np.eye(n_classes)):  # otherwise areas are not costs
        marks += _avoidable(areas)
    marks.append(_boundaries("boundary", "boundary", areas.decision))
    if areas.decision is not areas.best:
        marks.append(_boundaries("boundary dashed", "optimal", areas.best))
    top = HEADROOM * float(areas.joint.max())
    x_axis = Axis(float(areas.x[0]), float(areas.x[-1]), feature, plain)
    return Chart("Error areas", x_axis, Axis(0, top, "Joint density", plain), tuple(marks))


def _avoidable(areas: ErrorAreas) -> Iterator[Band]:
    """Yield the areas between the densities of the decided and of the optimal class."""
    label = f"avoidable: {areas.avoidable:.3g}"
    for x in _pieces(areas.x, np.union1d(areas.decision.boundaries, areas.best.boundaries)):
        inside = x[:2].mean()
        taken, best = areas.decision.at(inside), areas.best.at(inside)
        if taken != best:
            low, high = (np.interp(x, areas.x, areas.joint[k]) for k in (taken, best))
            yield Band(x, low, high, "neutral", label, is_hatched=True)
            label = ""


def _boundaries(style: str, name: str, decision: Any) -> Verticals:
    """Return the boundaries of a decision, labeled with its cost."""
    label = f"{name}: cost {decision.cost:.3g} per row"
    return Verticals(decision.boundaries, style, label, top=1.04 / HEADROOM)


def _pieces(x: FloatArray, cuts: FloatArray) -> Iterator[FloatArray]:
    """Yield the points from each cut to the next one, both included."""
    edges = np.unique(np.concatenate([x[:1], cuts, x[-1:]]))
    for low, high in pairwise(edges):
        yield np.concatenate([[low], x[(x > low) & (x < high)], [high]])

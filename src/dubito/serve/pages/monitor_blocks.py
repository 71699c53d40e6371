"""The content of the monitor page: verdict, metrics, charts, shifts, and the comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from dubito.charts import Axis, Bars, Chart, Line, Mark, Points
from dubito.decide import Cascade, Policy
from dubito.decide.cascade import ABSTAIN, REVIEW
from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.policy.report import PolicyReport
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.decide.regression.value_decisions import RegressionPolicyReport
from dubito.formatting import (
    ABSENT,
    decimal,
    duration,
    join_words,
    percent,
    plain,
    quantity,
    short_percent,
)
from dubito.measure import Interval
from dubito.measure.binary import wilson_interval
from dubito.report.chart_builders import log_odds, odds_axis
from dubito.report.content import Block, Card, Cards, Figure, Row, Table, Text, Verdict
from dubito.report.sections.positive_class import positive_figure
from dubito.serve.forecast_metrics import ForecastCell, ForecastMetrics, ForecastReport
from dubito.serve.policies import PolicyComparison
from dubito.serve.policy_metrics import (
    CascadeWindow,
    ClassWindow,
    LabelMetrics,
    LabelWindow,
    MonitorReport,
    ValueWindow,
    Window,
)
from dubito.serve.store import StoredPolicy, StoredRows
from dubito.serve.team import MemberReport, TeamReport
from dubito.serve.weighted_estimates import MONITOR_DAYS, Estimate, Reliability, usual_delay

MAX_CLASSES = 12  # rows of the table of priors
MAX_LABELS, MAX_FIGURES = 50, 12  # rows of the table of labels, and small multiples
CLOSEST = 0.02  # distance of windows, relative to the length of an axis of time
MAX_CELLS = 30  # rows of the table of series and horizons
REJECT_STYLES = {REVIEW: "before", ABSTAIN: "band"}
ANSWER_STYLES = ("after", "correct", "ood", "wrong")  # of tiers in order
AnyReport = MonitorReport[Any]
BlocksOf = Callable[[Any, Any], list[Block]]  # of a report and its policy
WIDTHS = "w / (w + mean width of the fit) of an interval of width w"
FIRST_TIER = "1 - P(correct) of the first model, as rows arrive"
ECE = "expected_calibration_error"
EXTREME, CROWDED = 0.1, 0.8  # where points are crowded at an end of a reliability curve
RELIABILITY = (
    "Reliability: {} over probability, in bins of equally many labels. Where an interval misses "
    "the dashed line, probabilities deviate by more than chance."
)
INTERVALS = "Ranges are 95 % confidence intervals."
WEIGHTED = (
    "Each label is weighted by the inverse of its row's probability of being reviewed. Rejected "
    f"rows all count once every one has been reviewed; until then only audited ones. {INTERVALS}"
)


def describe_labels(rows: StoredRows, audit_fraction: float) -> tuple[str, str]:
    """Return how many labels there are and are missing, and which rows are expected to have one."""
    known, delay = quantity(int(np.count_nonzero(rows.label >= 0)), "label"), rows.delay
    if delay is None:
        now = float(rows.audit_probability[-1]) if len(rows) else audit_fraction
        drawn = (
            f"Labels are those of rejected rows and of a random {percent(now)} of all rows, the "
            "audit sample, weighted to represent all rows."
        )
        if not now:
            drawn = (
                "Labels are those of rejected rows alone, as no rows are audited (--audit-fraction "
                "0): they do not represent the others."
            )
        return f"{known} in the last {MONITOR_DAYS:.0f} days", (
            f"{drawn} If you learn the truth of every row later, serve with --labels all and send "
            "it to /v1/labels."
        )
    oldest = f" (of the oldest row for {duration(delay.oldest)})" if delay.n_missing else ""
    after = "" if delay.seconds is None else f" ({usual_delay(delay.seconds)})"
    since = "" if delay.missing_since is None else ", if decided before labels stopped arriving"
    return f"{known}, {delay.n_missing:,} missing{oldest}", (
        "The label of every row is expected, sooner or later (--labels all), and no rows are "
        "audited. Early labels may differ from late ones, so metrics and alarms use the rows older "
        f"than the usual delay{after}, by which 98 % of labels have arrived{since}."
    )


def _source(report: AnyReport, noun: str = "rows") -> str:
    """Return which rows have the labels that metrics and alarms use."""
    return f"audited {noun}" if report.delay is None else f"{noun} older than the usual delay"


def _verdict(
    report: AnyReport, headline: str, found: Sequence[str], quiet: str, n_labels: int, what: str
) -> Verdict:
    """Return what alarms found, or that inputs have shifted, or how many labels were quiet."""
    uncertainty = report.alarms["uncertainty"]
    guarantee = (
        f"Each alarm is false with probability at most {percent(uncertainty.alpha, 0)}, "
        "however often it is checked."
    )
    if report.labels is not None:
        guarantee = (
            "The probability of any false alarm of a label is at most 5 % in total, however often "
            "they are checked."
        )
    shifted = []
    if uncertainty.has_alarmed:
        direction = "increased" if uncertainty.direction == "under" else "decreased"
        shifted = [f"Model uncertainty has {direction} since the first rows (no labels needed)."]
    if found or shifted:
        headline = headline if found else "Inputs have shifted."
        return Verdict(headline, (*found, *shifted, guarantee), "bad")
    if n_labels:
        return Verdict("No alarm.", (quiet, guarantee), "good")
    delay = report.delay
    if delay is not None and delay.seconds is None and delay.n_missing:
        text = f"{delay.n_missing:,} of {quantity(delay.n_rows)} have no {what} yet"
        return Verdict("Unknown.", (f"{text}, and metrics need 98 % of those of older rows.",))
    return Verdict("Unknown.", (f"No {_source(report, 'row')} has a {what} yet.",))


def _confidence_verdict(
    report: MonitorReport[ClassWindow] | MonitorReport[CascadeWindow],
) -> Verdict:
    """Return what the alarms say, with their error rate."""
    alarm, found = report.alarms["calibration"], []
    headline = "Over-confident." if alarm.direction == "over" else "Under-confident."
    if alarm.has_alarmed:
        stated = "P(correct)" if isinstance(report.overall, CascadeWindow) else "Confidence"
        found = [
            f"{stated} deviates from accuracy by more than {100 * alarm.tolerance:.0f} points, "
            f"found after {quantity(alarm.alarmed_after or 0, 'label')} of {_source(report)}."
        ]
    quiet = (
        f"No sign of miscalibration in {quantity(alarm.n_labels, 'label')} of {_source(report)} "
        f"(anytime-valid p-value {alarm.p_value:.2g})."
    )
    return _verdict(report, headline, found, quiet, alarm.n_labels, "label")


def _labels_verdict(report: MonitorReport[LabelWindow]) -> Verdict:
    """Return what the alarms of several labels say, with their error rate."""
    found, labels = [], report.labels or ()
    for direction, problem in (("over", "too high"), ("under", "too low")):
        names = [one.name for one in labels if one.alarm.direction == direction]
        if names:
            which = f"The {'probabilities' if len(names) > 1 else 'probability'} of"
            are = "are" if len(names) > 1 else "is"
            tolerance = f"{100 * labels[0].alarm.tolerance:.0f} points"
            found.append(f"{which} {join_words(names)} {are} {problem} by more than {tolerance}.")
    n_labels = sum(one.alarm.n_labels for one in labels)
    quiet = f"No sign of miscalibration in {quantity(n_labels, 'answer')} on {_source(report)}."
    return _verdict(report, "Miscalibrated labels.", found, quiet, n_labels, "label")


def _values_verdict(report: MonitorReport[ValueWindow]) -> Verdict:
    """Return what the alarms of a regression policy say, with their error rate."""
    coverage, bias = report.alarms["coverage"], report.alarms["bias"]
    sizes = {"over": "too narrow", "under": "too wide"}
    sides = {"over": "too high", "under": "too low"}
    pairs = (("Prediction intervals", coverage, sizes), ("Predictions", bias, sides))
    found = [
        f"{what} are {words[alarm.direction or '']}, found after "
        f"{quantity(alarm.alarmed_after or 0, 'true value')} of {_source(report)}."
        for what, alarm, words in pairs
        if alarm.has_alarmed
    ]
    headline = "Intervals do not hold." if coverage.has_alarmed else "Predictions are biased."
    quiet = (
        f"No sign of wrong intervals or of a bias in {quantity(coverage.n_labels, 'true value')} "
        f"of {_source(report)} (anytime-valid p-values {coverage.p_value:.2g} and "
        f"{bias.p_value:.2g})."
    )
    return _verdict(report, headline, found, quiet, coverage.n_labels, "true value")


class _Metric(NamedTuple):
    """How a metric is shown: as a card, and as a chart over time with a dashed reference.

    The reference is a number, or the name of what windows have; a chart without a name is left out.
    """

    card: str
    field: str
    show: Callable[[float | None], str]
    chart: str = ""
    reference: Any = None
    dashed: str = "estimate at the time of the fit"
    beside: str = ""

    @property
    def show_axis(self) -> Callable[[float], str]:
        """How numbers of the chart are written."""
        return percent if self.show is percent else plain


def _cards(overall: Any, metrics: Sequence[_Metric]) -> Cards:
    """Return the current metrics, or why they are unavailable."""
    return Cards(tuple(_card(one, getattr(overall, one.field)) for one in metrics))


def _card(metric: _Metric, estimate: Estimate) -> Card:
    """Return a metric as a card, or the reason why it is unavailable."""
    one, show = estimate.interval, metric.show
    if one is None:
        return Card(metric.card, "unknown", estimate.unavailable)
    note = f"{show(one.low)} to {show(one.high)}"
    return Card(metric.card, show(one.value), f"{note}; {metric.beside}".removesuffix("; "))


def _calibration_metric(what: str, overall: ClassWindow | CascadeWindow) -> _Metric:
    """Return how a calibration error is shown: beside that of a calibrated model."""
    field, dashed = "expected_if_calibrated", "expected if calibrated"
    expected = getattr(overall, field)
    beside = "" if expected is None else f"{decimal(expected)} {dashed}"
    card = f"{what} (15 uniform bins)"
    return _Metric(card, "calibration_error", decimal, what, field, dashed, beside)


def _summary(report: AnyReport, label: str, remark: str = "", awaited: str = "") -> Text:
    """Return which rows metrics are of, how many still wait, and how labels are weighted."""
    overall = report.overall
    counts = f"{quantity(overall.n_rows)} decided, {quantity(overall.n_labels, label)} used."
    waiting = [f"{quantity(n)} for {name}" for name, n in (report.waiting or {}).items() if n]
    waits = f" Still waiting for {awaited}: {join_words(waiting)}." if waiting else ""
    weights = WEIGHTED if report.delay is None else f"Each label counts once. {INTERVALS}"
    text = f"Last {MONITOR_DAYS:.0f} days: {counts}{remark}{waits} {weights}"
    return Text(f"{text} {getattr(overall, 'note', '')}".rstrip())


def _label_metric_blocks(
    report: MonitorReport[LabelWindow], policy: MultiLabelPolicy
) -> list[Block]:
    """Return the current metrics of several labels, each of them, and charts over time."""
    overall, fitted, labels = report.overall, policy.report, report.labels or ()
    unit = "Cost per row" if policy.f_beta is None else "Wrong labels per row"
    reviewed = (
        f"{percent(overall.row_review_rate)} of rows as a whole, "
        f"{percent(overall.label_review_rate)} of labels one by one"
    )
    without = "Coverage: rows without review"
    metrics = (
        _Metric(
            "Log loss (mean over labels)", "log_loss", decimal, "Log loss", fitted.log_loss_after
        ),
        _Metric(unit, "cost", decimal, unit, fitted.cost.value),
        _Metric(without, "coverage", percent, "Coverage", beside=reviewed),
    )
    blocks: list[Block] = [_cards(overall, metrics), _summary(report, "answer")]
    blocks += [*_label_table(labels), *_charts(report.windows, metrics)]
    known = [(one.name, one.audit) for one in _worst_first(labels) if one.audit]
    if known:
        intro = (
            "Reliability of each label, worst first: observed frequency over probability. Gray "
            "boxes show where the frequency of a calibrated model would lie with 95 % probability."
        )
        figures = tuple(positive_figure(name, one, "after") for name, one in known[:MAX_FIGURES])
        blocks += [Text(intro), Row(figures, is_small=True)]
    return blocks


def _worst_first(labels: Sequence[LabelMetrics]) -> list[LabelMetrics]:
    """Return labels with an alarm first, then by their calibration error."""
    error = [0.0 if one.audit is None else one.audit.expected_calibration_error for one in labels]
    order = sorted(range(len(labels)), key=lambda k: (not labels[k].alarm.has_alarmed, -error[k]))
    return [labels[k] for k in order]


def _label_table(labels: Sequence[LabelMetrics]) -> list[Block]:
    """Return the metrics of each label, and what is missing."""

    def error_range(one: LabelMetrics) -> str:
        error = one.audit and one.audit.intervals.get(ECE)
        return f"{decimal(error.low)} to {decimal(error.high)}" if error else ABSENT

    table = Table.of(
        "Labels, worst calibrated first (ECE in 10 equal-mass bins). * Alarm.",
        _worst_first(labels)[:MAX_LABELS],
        ("label", lambda one: f"{one.name} *" if one.alarm.has_alarmed else one.name),
        ("answers used", lambda one: f"{one.n_labels:,}"),
        ("reviewed", lambda one: percent(one.review_rate)),
        ("frequency", lambda one: percent(one.audit and one.audit.base_rate)),
        ("mean probability", lambda one: percent(one.audit and one.audit.mean_probability)),
        ("ECE", lambda one: decimal(one.audit and one.audit.expected_calibration_error)),
        ("95 % interval", error_range),
        ("log loss", lambda one: decimal(one.log_loss)),
        ("cost", lambda one: decimal(one.cost)),
    )
    blocks: list[Block] = [table]
    missing: dict[str, list[str]] = {}
    for one in labels:
        for note in (one.unavailable, one.note):
            if note:
                missing.setdefault(note, []).append(one.name)
    for note, names in missing.items():
        which = "All labels" if len(names) == len(labels) else join_words(names)
        blocks.append(Text(f"{which}: {note}"))
    return blocks


def _value_metric_blocks(
    report: MonitorReport[ValueWindow], policy: RegressionPolicy
) -> list[Block]:
    """Return the current metrics of a regression policy, and charts of them over time."""
    fitted, cost, score = policy.report, "Cost per row", "Interval score"
    name, nominal = f"Coverage of {short_percent(fitted.level)} intervals", "nominal coverage"
    metrics = (
        _Metric(name, "coverage", percent, "Coverage", fitted.level, nominal),
        _Metric("Bias of the predicted mean", "bias", decimal, "Bias", 0.0, "no bias"),
        _Metric(score, "interval_score", decimal, score, fitted.interval_score),
        _Metric(cost, "cost", decimal, cost, fitted.cost.value),
        _Metric("Decided without review", "automatic", percent),
    )
    intro = (
        "Reliability of quantiles: of the ends of the prediction intervals and of the median, how "
        "many true values lie below them; on the dashed line as many as stated."
    )
    curve = _reliability(report.reliability, "Stated", "Observed fraction below", intro)
    cards, text = _cards(report.overall, metrics), _summary(report, "true value")
    return [cards, text, *_charts(report.windows, metrics), *curve]


def _metric_blocks(report: MonitorReport[ClassWindow], policy: Policy) -> list[Block]:
    """Return the current metrics, and charts of them over time."""
    overall, fitted, cost = report.overall, policy.report, "Cost per row"
    asking = "review" if report.waiting is None else "asking a model or a reviewer"
    covered = f"Coverage: decided without {asking}"
    metrics = (
        _calibration_metric("ECE", overall),
        _Metric("Log loss", "log_loss", decimal, "Log loss", fitted.log_loss_after),
        _Metric(cost, "cost", decimal, cost, fitted.cost.value),
        _Metric(covered, "coverage", percent, "Coverage", fitted.coverage.value),
    )
    stated, observed = "Confidence", "Accuracy"
    if len(policy.classes) == 2:
        stated, observed = f"P({policy.classes[policy.pos_column]})", "Observed frequency"
    intro = RELIABILITY.format(observed.lower())
    curve = _reliability(report.reliability, stated, observed, intro)
    text = _summary(report, "label", awaited="an answer")
    return [_cards(overall, metrics), text, *_charts(report.windows, metrics), *curve]


def _reliability(found: Reliability | None, what: str, observed: str, intro: str) -> list[Block]:
    """Return the reliability curve of a weighted sample, with intervals; nothing without one."""
    if found is None:
        return []
    ends = np.array([*found.stated, *found.low, *found.high])
    near_end = max(np.mean(found.stated < EXTREME), np.mean(found.stated > 1 - EXTREME))
    is_crowded = near_end >= CROWDED
    place = log_odds if is_crowded else np.asarray
    if is_crowded:
        seen = found.observed[(found.observed > 0) & (found.observed < 1)]
        held = np.concatenate([found.stated, seen, found.high[found.observed == 0]])
        x, y = (odds_axis(held, f"{one}, %", lambda p: f"{100 * p:g}") for one in (what, observed))
    else:
        x, y = (Axis.of(ends, one, short_percent) for one in (what, observed))
    lines = tuple(
        (percent(p), percent(f), f"{percent(low)} to {percent(high)}", f"{n:,}")
        for p, f, low, high, n in found.rows
    )
    hints = tuple(
        f"{what} {p}, {observed.lower()} {f} ({ends}), {n} labels" for p, f, ends, n in lines
    )
    at, seen = place(found.stated), place(found.observed).clip(y.low, y.high)
    low, high = (place(one).clip(y.low, y.high) for one in (found.low, found.high))
    bars = tuple(Line([p, p], pair, "after") for p, *pair in zip(at, low, high, strict=True))
    marks: tuple[Mark, ...] = (
        Line([x.low, x.high], [x.low, x.high], "reference", "calibrated"),
        *bars,
        Points(at, seen, "after", "with 95 % interval", hints=hints),
    )
    chart = Chart(f"Reliability: {observed.lower()} over {what.lower()}", x, y, marks)
    heads = (what, observed, "95 % interval", "labels")
    table = Table("Reliability", heads, lines)
    caption = ""
    if is_crowded:
        caption = "Both axes are on a scale of log odds; what lies beyond is drawn at their ends."
    return [Text(intro), Row((Figure("Reliability", (chart,), caption, table),))]


def _ranged(one: Interval, show: Callable[[float], str] = percent) -> str:
    """Return a number with its interval."""
    return f"{show(one.value)} ({show(one.low)} to {show(one.high)})"


def _interval_marks(
    at: float, one: Interval, show: Callable[[float], str], about: str, name: str = ""
) -> tuple[Line, Points]:
    """Return a point with its interval, and a hint about it."""
    points = Points([at], [one.value], "after", name, hints=(f"{_ranged(one, show)}, {about}",))
    return Line([at, at], [one.low, one.high], "after"), points


def _chart(metric: _Metric, windows: Sequence[Window]) -> Figure | None:
    """Return a chart of a metric per window, with intervals and a dashed reference.

    None if no window has the metric.
    """
    estimates = [getattr(window, metric.field) for window in windows]
    if all(estimate.interval is None for estimate in estimates):
        return None
    levels = [metric.reference] * len(windows)
    if isinstance(metric.reference, str):
        levels = [getattr(window, metric.reference) for window in windows]
    marks: list[Mark] = []
    heights: list[float] = []
    used = [window for window in windows if window.n_rows]
    x, places = _window_axis(used)
    for window, place, estimate, level in zip(used, places, estimates, levels, strict=False):
        start, middle, until = place
        if level is not None:
            heights.append(level)
            marks.append(Line([start, until], [level, level], "reference"))
        if one := estimate.interval:
            heights += one.low, one.high
            around = datetime.fromtimestamp((window.start + window.end) / 2, UTC)
            about = f"{quantity(window.n_labels, 'label')}, around {around:%Y-%m-%d %H:%M}"
            marks += _interval_marks(middle, one, metric.show_axis, about)
    n_rows = quantity(max((window.n_rows for window in used), default=0))
    caption = f"A point is a window of {n_rows}."
    if any(level is not None for level in levels):
        caption += f" Dashed: {metric.dashed}."
    if n_missing := sum(estimate.interval is None for estimate in estimates):
        caption += f" Unknown in {n_missing} of {len(windows)} windows."
    return _over_time(
        metric.chart, x, Axis.of(heights, metric.chart, metric.show_axis), marks, caption
    )


def _over_time(
    name: str, x: Axis, y: Axis, marks: Sequence[Mark], caption: str, table: Table | None = None
) -> Figure:
    """Return a chart of windows as a figure."""
    chart = Chart(f"{name} over time", x, y, tuple(marks), height=220)
    return Figure(name, (chart,), caption, table)


def _charts(
    windows: Sequence[Window], metrics: Sequence[_Metric], first: Figure | None = None
) -> list[Block]:
    """Return the charts of metrics over time side by side, those that have something to show."""
    return _row([first, *(_chart(one, windows) for one in metrics if one.chart)])


def _row(charts: Sequence[Figure | None]) -> list[Block]:
    """Return charts side by side, without those that have nothing to show."""
    found = tuple(one for one in charts if one is not None)
    return [Row(found)] if found else []


def _window_axis(used: Sequence[Window]) -> tuple[Axis, list[tuple[float, float, float]]]:
    """Return an axis of time, and the start, the middle and the end of each window on it.

    Where windows would lie on top of each other, as those of a single request, they are numbered.
    """
    label = "arrived" if used and isinstance(used[0], CascadeWindow) else "decided"
    ends = [*(one.start for one in used[1:]), *(one.end for one in used[-1:])]
    middles = [(one.start + one.end) / 2 for one in used]
    length = used[-1].end - used[0].start if used else 0.0
    if used and min(np.diff(middles), default=length) <= CLOSEST * max(length, 1.0):
        return _numbered_axis(used, label), [(k - 0.5, k, k + 0.5) for k in range(len(used))]
    times = [time for one in used for time in (one.start, one.end)]
    places = [(one.start, at, end) for one, at, end in zip(used, middles, ends, strict=True)]
    return Axis.of_times(times, label), places


def _numbered_axis(used: Sequence[Window], label: str) -> Axis:
    """Return an axis with a place for each window, by number."""
    first, last = (datetime.fromtimestamp(one, UTC) for one in (used[0].start, used[-1].end))
    when = f"{first:%b %-d}"
    if first.date() != last.date():
        when += f" to {last:%b %-d}".replace(f" {first:%b} ", " ")
    elif last.timestamp() - first.timestamp() < 60:
        when += f" {first:%H:%M}"
    ticks = tuple(float(k) for k in range(len(used)))
    name = f"window of rows, {label} {when}, {last.year} (UTC)"
    return Axis(-0.5, len(used) - 0.5, name, lambda k: f"{int(k) + 1}", ticks)


def _named_axis(label: str, names: Sequence[str]) -> Axis:
    """Return an axis with a place for each name, of which some are shown."""
    n = len(names)
    ticks = tuple(float(k) for k in range(0, n, max(-(-n // 3), 1)))  # more would touch on a phone
    return Axis(-0.5, n - 0.5, label, lambda k: names[int(k)], ticks)


def _shift_blocks(report: MonitorReport[ClassWindow], policy: Policy) -> list[Block]:
    """Return the shifts that need no labels: of the uncertainty and of the class priors."""
    uncertainty = _uncertainty_shift(report, policy)
    prior, reference = report.prior, report.reference_prior
    if prior is None or reference is None:
        missing = "Class priors: unknown, because fewer than 100 rows were decided."
        return [*uncertainty, Text(missing)]
    order = np.argsort(-np.abs(prior.prior - reference), kind="stable")[:MAX_CLASSES]
    table = Table.of(
        f"Class priors of the last {prior.n_rows:,} rows, estimated from the outputs alone under "
        "label shift",
        order.tolist(),
        ("class", lambda k: str(policy.classes[k])),
        ("at the fit", lambda k: percent(reference[k])),
        ("now", lambda k: percent(prior.prior[k]) if prior.is_identified[k] else "unknown"),
        ("95 % interval", lambda k: f"{percent(prior.low[k])} to {percent(prior.high[k])}"),
    )
    return [*uncertainty, table]


def _uncertainty_shift(report: AnyReport, _: Any, measure: str = "1 - confidence") -> list[Block]:
    """Return the shift of the uncertainty, and how that is measured."""
    shift = report.uncertainty
    if shift is None or shift.difference is None:
        missing = "Shift of the uncertainty: unknown, because fewer than 200 rows were decided."
        return [Text(missing)]
    one = shift.difference
    low, value, high = (f"{100 * end:+.1f}" for end in (one.low, one.value, one.high))
    text = (
        f"Mean uncertainty ({measure}) was {percent(shift.reference)} in the first rows and is "
        f"{percent(shift.current)} in the last: {value} points ({low} to {high})."
    )
    return [Text(text)]


def comparison_blocks(found: PolicyComparison) -> list[Block]:
    """Return two policies side by side on the same rows, with caveats."""
    caption = f"The active policy and the candidate on {found.rows}; 95 % confidence intervals"
    figures = _compared_figures(found.active)
    rows = [(name, show(found.active), show(found.candidate)) for name, show in figures.items()]
    table = Table(caption, ("", "active", "candidate"), tuple(rows))
    return [table, *(Text(note) for note in found.notes)]


def _compared_figures(report: Any) -> dict[str, Callable[[Any], str]]:
    """Return what is compared of policies of a kind, by name."""
    if isinstance(report, PolicyReport):
        own: dict[str, Callable[[Any], str]] = {
            "coverage": lambda r: _ranged(r.coverage),
            "error rate of decided rows": lambda r: "none" if r.risk is None else _ranged(r.risk),
            "log loss": lambda r: decimal(r.log_loss_after),
            report.calibration_error_name: lambda r: decimal(r.calibration_error_after),
            "labels": lambda r: f"{r.n_rows:,}",
        }
    elif isinstance(report, RegressionPolicyReport):
        own = {
            "rows reviewed": lambda r: _ranged(r.review_rate),
            "coverage of intervals": lambda r: _ranged(r.coverage),
            "interval score": lambda r: decimal(r.interval_score),
            "bias": lambda r: f"{r.bias:+}",
            "labeled rows": lambda r: f"{r.n_rows:,}",
        }
    else:
        own = {
            "rows reviewed as a whole": lambda r: _ranged(r.row_review_rate),
            "labels reviewed one by one": lambda r: percent(r.label_review_rate),
            "score": lambda r: ABSENT if r.score is None else f"{r.score:.4f}",
            "log loss": lambda r: decimal(r.log_loss_after),
            "labeled rows": lambda r: f"{r.n_rows:,}",
        }
        if report.score is None:
            del own["score"]
    return {
        "cost per row": lambda r: f"{r.cost}",
        "expected cost per row": lambda r: decimal(r.expected_cost),
        **own,
        "evidence": lambda r: r.evaluation,
    }


def policy_table(policies: Sequence[StoredPolicy]) -> Table:
    """Return all policies, newest first."""
    states = {(True, True): "active", (False, True): "was active", (False, False): "never active"}
    return Table.of(
        "All policies",
        reversed(policies),
        ("policy", lambda one: f"{one.id}"),
        ("stored (UTC)", lambda one: f"{datetime.fromtimestamp(one.created, UTC):%Y-%m-%d %H:%M}"),
        ("origin", lambda one: "uploaded" if one.trained_until is None else "refitted"),
        ("status", lambda one: states[one.is_active, one.was_active]),
    )


def team_blocks(report: TeamReport) -> list[Block]:
    """Return what the review team does: queues, capacity, prices and agreement."""
    waits = f"{quantity(report.waiting)} {'waits' if report.waiting == 1 else 'wait'}"
    parts = _counted(
        (sum(one.queue for one in report.reviewers), "in the queues below"),
        (report.beyond_capacity, "beyond today's capacity"),
        (report.unassigned, "worth no review at current prices"),
    )
    waits += f": {parts}." if parts else "."
    kinds = _counted(
        (report.audited, "drawn for the audit"),
        (report.second_opinions, "with an answer, for a second opinion"),
    )
    waits += f" Among them: {kinds}." if kinds else ""
    if report.expected:
        are = "is" if report.expected == 1 else "are"
        waits += f" {report.expected:,} more {are} expected until midnight, as many as yesterday."
    columns: list[tuple[str, Callable[[MemberReport], str]]] = [
        ("reviewer", lambda one: one.name if one.is_present else f"{one.name} (absent)"),
        ("queue", lambda one: f"{one.queue:,}"),
        ("left today", lambda one: f"{one.left_today:,}"),
        ("done today", lambda one: _of(one.used_today, one.capacity)),
        ("one more row saves", lambda one: decimal(one.shadow_price)),
    ]
    if any(one.hour_saves is not None for one in report.reviewers):
        columns.append(("one more hour saves", lambda one: decimal(one.hour_saves)))
    if any(one.rows_per_hour is not None for one in report.reviewers):
        columns.append(("this hour", lambda one: _of(one.used_this_hour, one.rows_per_hour)))
    columns += [
        ("error rate", lambda one: percent(one.error_rate)),
        ("confirmed answers", lambda one: f"{one.n_confirmed:,}"),
        ("agreement", lambda one: _of(one.n_agreeing, one.n_pairs or None)),
    ]
    caption = (
        "Reviewers now: rows planned for each today, capacity left and used, error rate (as "
        "stated, updated by answers that the truth or two people confirm), and agreement with "
        "others"
    )
    if not report.n_pairs:
        agreement = "No row has answers of two people yet, so agreement is unknown."
    else:
        found = wilson_interval(report.n_agreeing / report.n_pairs, report.n_pairs)
        pairs = quantity(report.n_pairs, "pair")
        agreement = (
            f"Agreement: {report.n_agreeing:,} of {pairs} of answers to the same row, "
            f"{_ranged(found)}. Second opinions go to uncertain rows, on which people "
            "agree less than on others."
        )
    return [Text(waits), Table.of(caption, report.reviewers, *columns), Text(agreement)]


def _counted(*counts: tuple[int, str]) -> str:
    """Return what there is any of, with its number, in words."""
    return join_words([f"{n:,} {what}" for n, what in counts if n])


def _of(n: int, total: int | None) -> str:
    """Return how many of how many, on one line."""
    return ABSENT if total is None else f"{n:,}\u00a0of\u00a0{total:,}"


def forecast_verdict(report: ForecastReport) -> Verdict:
    """Return whether forecasts cover what they promise."""
    overall, nominal = report.overall, short_percent(report.level)
    found = overall.coverage.interval
    waits = "waits for its outcome" if report.n_waiting == 1 else "wait for their outcome"
    given_up = f", and {report.n_dropped:,} were given up" if report.n_dropped else ""
    counts = f"{quantity(report.n_waiting, 'forecast')} {waits}{given_up}."
    if found is None:
        return Verdict("Unknown.", (overall.coverage.unavailable, counts))
    what = "Intervals" if overall.interval_score else "Sets"
    before = overall.raw_coverage
    raw = "" if before is None else f" ({percent(before)} before correction)"
    covered = (
        f"{what} at {nominal} covered {_ranged(found)} of "
        f"{quantity(overall.n_outcomes, 'outcome')}{raw}."
    )
    if found.high < report.level:
        return Verdict("Coverage is too low.", (covered, counts), "bad")
    if found.low > report.level:
        return Verdict("Coverage is too high.", (covered, counts))
    return Verdict("Coverage holds.", (covered, counts), "good")


def forecast_blocks(report: ForecastReport) -> list[Block]:
    """Return the metrics of forecasts, charts of them over time, and each series and horizon."""
    overall, windows = report.overall, report.windows
    has_score = overall.interval_score is not None
    width, score = "Mean width" if has_score else "Classes per set", "Interval score"
    nominal = f"Coverage at {short_percent(report.level)}"
    metrics = [
        _Metric(nominal, "coverage", percent, "Coverage", report.level),
        _Metric(width, "width", decimal, width),
        *([_Metric(score, "interval_score", decimal, score)] if has_score else []),
    ]
    charts = _row([_forecast_chart(one, windows) for one in metrics])
    warm_up = (
        f"; {quantity(report.n_warm_up, 'outcome')} of forecasts that were not corrected yet "
        f"{'is' if report.n_warm_up == 1 else 'are'} left out"
    )
    text = (
        f"{quantity(report.n_forecasts, 'forecast')}, "
        f"{quantity(overall.n_outcomes, 'outcome')} used"
        f"{warm_up if report.n_warm_up else ''}. Ranges are 95 % confidence intervals, for which "
        "the times of forecasts are resampled. Charts divide the forecasts into consecutive "
        "windows with about as many times each, labeled by the first date: the axis counts "
        "windows, not days."
    )
    return [_cards(overall, metrics), Text(text), *charts, *_cell_blocks(report)]


def _forecast_chart(metric: _Metric, windows: Sequence[ForecastMetrics]) -> Figure | None:
    """Return a chart of a metric per window; of the coverage, with the nominal one.

    None if no window has the metric.
    """
    name, level = metric.chart, metric.reference
    estimates = [getattr(window, metric.field) for window in windows]
    if all(estimate.interval is None for estimate in estimates):
        return None
    n, show, marks, heights = len(windows), metric.show_axis, list[Mark](), list[float]()
    if level is not None:
        marks.append(Line([-0.5, n - 0.5], [level, level], "reference", "nominal"))
        if all(one.raw_coverage is not None for one in windows):
            raw = [one.raw_coverage for one in windows]
            marks.append(Points(list(range(n)), raw, "before", "uncorrected"))
    for k, (window, estimate) in enumerate(zip(windows, estimates, strict=True)):
        if one := estimate.interval:
            heights += one.low, one.high
            outcomes = quantity(window.n_outcomes, "outcome")
            about = f"from {window.start} to {window.end}, {outcomes}"
            marks += _interval_marks(k, one, show, about, "issued")
    x = _named_axis("Time of the forecasts", [one.start.partition("T")[0] for one in windows])
    y = Axis.of(heights, name, show) if level is None else Axis(0, 1, name, short_percent)
    notes = {
        "Coverage": "Fraction of outcomes inside, by window.",
        "Interval score": "Width plus a penalty for each miss, by window: lower is better.",
    }
    return _over_time(name, x, y, marks, notes.get(name, f"{name}, by window."))


def _cell_blocks(report: ForecastReport) -> list[Block]:
    """Return the series and horizons with the lowest coverage, and the weights of the methods."""
    has_score = report.overall.interval_score is not None

    def shown(estimate: Estimate | None, show: Callable[[float | None], str] = decimal) -> str:
        one = None if estimate is None else estimate.interval
        text = ABSENT if one is None else _ranged(one, show)
        return text.replace(" ", "\u00a0")  # which breaks no line

    columns: list[tuple[str, Callable[[ForecastCell], str]]] = [
        ("series", lambda one: one.series),
        ("horizon", lambda one: f"{one.horizon}"),
        ("outcomes", lambda one: f"{one.metrics.n_outcomes:,}"),
        ("coverage", lambda one: shown(one.metrics.coverage, percent)),
        ("mean width" if has_score else "classes per set", lambda one: shown(one.metrics.width)),
    ]
    if has_score:
        columns.append(("interval score", lambda one: shown(one.metrics.interval_score)))
    last = "last width" if has_score else "last set"
    columns.append((last, lambda one: decimal(one.current_width)))
    if report.kind == "spread":
        columns.append(
            ("last / uncorrected", lambda r: ABSENT if r.widening is None else f"{r.widening:.2f}")
        )
    cells = report.cells[:MAX_CELLS]
    caption = "Series and horizons, lowest coverage first, with 95 % confidence intervals."
    if len(report.cells) > MAX_CELLS:
        caption += f" {MAX_CELLS} of {len(report.cells):,}."
    weights = Table.of(
        "Current adaptation: how thresholds move, by the weight in the online state.",
        sorted(
            ((w, name) for name, w in report.method_weights.items() if w > 0.0005), reverse=True
        ),
        ("method", lambda one: one[1]),
        ("weight", lambda one: percent(one[0])),
    )
    text = (
        "The first word of a method is the scale on which errors are of similar size: identity "
        "for absolute errors, log1p for relative ones. aci moves the level of a quantile of "
        "past scores, tracking the threshold itself, and pi adds the sum of past errors; "
        "two-sided ones have a threshold for each side."
    )
    return [Table.of(caption, cells, *columns), weights, Text(text)]


def _cascade_blocks(report: MonitorReport[CascadeWindow], cascade: Cascade) -> list[Block]:
    """Return the current metrics of a cascade, who answers, and charts of them over time."""
    overall, fitted, windows = report.overall, cascade.report, report.windows
    cost, stated = "Cost per row", overall.p_correct
    right = None if fitted.accuracy is None else fitted.accuracy.value
    beside = "" if stated is None else f"mean P(correct) {percent(stated)}"
    metrics = (
        _Metric(cost, "cost", decimal, cost, fitted.cost.value),
        _Metric("Accuracy of answers", "accuracy", percent, "Accuracy", right, beside=beside),
        _calibration_metric("ECE of P(correct)", overall),
        _Metric("Answered by a model", "answered", percent),
    )
    remark = " The cost is that of calls, wrong answers and rejected rows."
    text = _summary(report, "label", remark, "an output")
    charts = _charts(windows, metrics, _action_chart(windows))
    intro = RELIABILITY.format("accuracy")
    curve = _reliability(report.reliability, "P(correct)", "Accuracy", intro)
    return [_cards(overall, metrics), text, *_cascade_tables(overall, cascade), *charts, *curve]


def _cascade_tables(overall: CascadeWindow, cascade: Cascade) -> list[Block]:
    """Return how many rows each tier is called for and answers, and how many are rejected."""
    fitted, n = cascade.report, max(overall.n_rows, 1)
    called = Table.of(
        "Calls of each model, and the rows that it answers.",
        cascade.tiers,
        ("model", str),
        ("calls", lambda name: f"{overall.calls[name]:,}"),
        ("of rows", lambda name: percent(overall.calls[name] / n)),
        ("at the fit", lambda name: percent(fitted.calls.get(name))),
        ("answers", lambda name: f"{overall.actions[f'answer {name}']:,}"),
        ("of rows", lambda name: percent(overall.actions[f"answer {name}"] / n)),
        ("at the fit", lambda name: percent(fitted.answers.get(name))),
    )
    rejected = ", ".join(
        f"{quantity(overall.actions[name])} {did} ({percent(overall.actions[name] / n)})"
        for name, did in ((REVIEW, "sent to a person"), (ABSTAIN, "left without any answer"))
        if name in overall.actions
    )
    return [called, *([Text(f"Not answered by a model: {rejected}.")] if rejected else [])]


def _action_chart(windows: Sequence[CascadeWindow]) -> Figure | None:
    """Return the fraction of rows with each action per window, stacked; None without rows."""
    used = [window for window in windows if window.n_rows]
    if not used:
        return None
    names, answer_styles = list(used[0].actions), cycle(ANSWER_STYLES)
    marks: list[Mark] = []
    base = np.zeros(len(used))
    left, right = np.arange(len(used)) - 0.4, np.arange(len(used)) + 0.4
    for name in names:
        style = REJECT_STYLES.get(name) or next(answer_styles)
        fractions = [one.actions[name] / one.n_rows for one in used]
        high = base + fractions
        hints = tuple(
            f"{name}: {one.actions[name]:,} of {quantity(one.n_rows)} ({percent(fraction)})"
            for one, fraction in zip(used, fractions, strict=True)
        )
        marks.append(Bars(left, right, high, style, name, low=base, hints=hints))
        base = high
    days = [datetime.fromtimestamp(one.start, UTC) for one in used]
    is_long = len({day.date() for day in days}) > 1
    starts = [day.strftime("%b %-d" if is_long else "%H:%M") for day in days]
    if len({*starts}) < len(used):
        x = _numbered_axis(used, "arrived")
        starts = [f"{day:%b %-d %H:%M:%S}" for day in days]
    else:
        when = f"{days[0].year}" if is_long else f"{days[0]:%b %-d, %Y}"
        x = _named_axis(f"start of the window, {when} (UTC)", starts)
    y = Axis(0, 1, "Fraction of rows", short_percent)
    counts = [(one.n_rows, *one.actions.values(), *one.calls.values()) for one in used]
    lines = tuple(
        (start, *(f"{n:,}" for n in row)) for start, row in zip(starts, counts, strict=True)
    )
    calls = [f"calls of {name}" for name in used[0].calls]
    table = Table("Rows by action", ("from (UTC)", "rows", *names, *calls), lines)
    caption = "A bar is a window of decided rows, consecutive by arrival."
    return _over_time("Actions", x, y, marks, caption, table)


VIEWS: dict[type, tuple[Callable[[Any], Verdict], BlocksOf, BlocksOf]] = {
    # Of the reports on policies of each kind: the verdict, the metrics, and the shifts.
    Policy: (_confidence_verdict, _metric_blocks, _shift_blocks),
    MultiLabelPolicy: (_labels_verdict, _label_metric_blocks, _uncertainty_shift),
    RegressionPolicy: (
        _values_verdict,
        _value_metric_blocks,
        partial(_uncertainty_shift, measure=WIDTHS),
    ),
    Cascade: (
        _confidence_verdict,
        _cascade_blocks,
        partial(_uncertainty_shift, measure=FIRST_TIER),
    ),
}

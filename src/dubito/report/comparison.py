"""Pages that compare models, or two periods of one model."""

from __future__ import annotations

import re

import numpy as np

from dubito import __version__
from dubito.charts import Span, SpanRow
from dubito.formatting import decimal, or_dash, p_value, percent
from dubito.monitor import Comparison, DistributionShift, Drift
from dubito.monitor.metrics import TITLES
from dubito.report.chart_builders import span_chart
from dubito.report.content import Figure, Row, Section, Table, Text, Verdict, render
from dubito.report.reports import Report
from dubito.report.sections.inspection import provenance_section

FRACTIONS = ("confidence", "accuracy", "gap", "ECE", "coverage")
MAX_CLASSES = 12
STYLES = {True: "correct", False: "wrong", None: "neutral"}
JUDGMENTS = {True: "better", False: "worse", None: "not significant"}
VERSION = ("dubito", __version__)
DIFFERENCES = Text(
    "Each model minus its baseline, on the same rows. “Better” and “worse” are significant after "
    "correction for all comparisons (Holm)."
)


def comparison_report(
    comparison: Comparison, *, title: str = "Model comparison", command: str | None = None
) -> Report:
    """Return an HTML page about models that were compared on the same rows.

    Parameters
    ----------
    comparison : Comparison
        The result of `dubito.monitor.compare`.
    title : str, default "Model comparison"
        The title of the page.
    command : str, optional
        The command that reproduces the page.

    Returns
    -------
    Report

    Examples
    --------
    >>> from dubito.report import comparison_report
    >>> from dubito.monitor import compare
    >>> a, b = [[0.6, 0.4], [0.4, 0.6]] * 50, [[0.9, 0.1], [0.1, 0.9]] * 50
    >>> page = comparison_report(compare([0, 1] * 50, {"a": a, "b": b}, n_resamples=50))
    >>> page.html.startswith("<!doctype html>")
    True
    """
    headline, mood = _comparison_headline(comparison)
    verdict = Verdict(headline, _sentences(comparison.verdict), mood)
    charts = Row(tuple(_difference_figures(comparison)))
    tables = (_difference_table(comparison), _metric_table(comparison))
    facts = (
        ("Rows", f"{comparison.n_rows:,}"),
        ("Rows without a label, left out", f"{comparison.n_missing:,}"),
        ("Best model", f"{comparison.best}, by {TITLES[comparison.best_by]}"),
        ("Intervals", f"{comparison.level * 100:.3g} %, paired bootstrap"),
        VERSION,
    )
    sections = [
        Section("differences", "Differences", (DIFFERENCES, charts)),
        Section("metrics", "Metrics", tables),
        provenance_section(facts, command),
    ]
    html = render(title, verdict, sections, kicker="Model comparison")
    return Report(title, comparison.verdict, html)


def drift_report(
    drift: Drift, *, title: str = "Drift between two periods", command: str | None = None
) -> Report:
    """Return an HTML page about the drift between two periods.

    Parameters
    ----------
    drift : Drift
        The result of `dubito.monitor.detect_drift`.
    title : str, default "Drift between two periods"
        The title of the page.
    command : str, optional
        The command that reproduces the page.

    Returns
    -------
    Report

    Examples
    --------
    >>> from dubito.report import drift_report
    >>> from dubito.monitor import detect_drift
    >>> page = drift_report(detect_drift([[0.9, 0.1], [0.2, 0.8]] * 50, [[0.6, 0.4]] * 100))
    >>> page.title
    'Drift between two periods'
    """
    headline = f"Drift: {', '.join(drift.shifted)}" if drift.shifted else "No sign of drift"
    mood = "bad" if drift.has_drifted else "good"
    verdict = Verdict(headline, _sentences(drift.verdict), mood)
    # Below each other: charts of one row and of many would leave a gap side by side.
    figures = (*_shift_figures(drift), *_prior_figures(drift))
    facts = [
        ("Reference rows", f"{drift.n_reference:,}"),
        ("Current rows", f"{drift.n_current:,}"),
        ("False alarm rate", f"at most {(1 - drift.level) * 100:.3g} %, over all tests (Holm)"),
        VERSION,
    ]
    if drift.expected_accuracy is not None:
        expected = percent(drift.expected_accuracy)
        facts.insert(2, ("Current accuracy expected from the outputs", expected))
    sections = [
        Section("shifts", "Shifts", (*figures, _shift_table(drift))),
        provenance_section(facts, command),
    ]
    return Report(title, drift.verdict, render(title, verdict, sections, kicker="Drift"))


def _sentences(verdict: str) -> tuple[str, ...]:
    """Return a verdict sentence by sentence.

    >>> _sentences("One is 0.5 better. Two is not.")
    ('One is 0.5 better.', 'Two is not.')
    """
    parts = re.split(r"(?<=[A-Za-z)%]\.)\s+", verdict)
    return tuple(filter(None, parts))


def _comparison_headline(comparison: Comparison) -> tuple[str, str]:
    """Return the headline of a comparison, and whether it is good for the new model."""
    first, *others = comparison.models
    metric = TITLES[comparison.best_by]
    if len(others) > 1:
        return f"Best by {metric}: {comparison.best}", "neutral"
    found = [one for one in comparison.differences if one.metric == comparison.best_by]
    is_better = found[0].is_better if found else None
    if is_better is None:
        return f"No significant difference in {metric}", "neutral"
    mood = "good" if is_better else "bad"
    return f"{others[0]} is {JUDGMENTS[is_better]} than {first}, by {metric}", mood


def _difference_figures(comparison: Comparison) -> list[Figure]:
    """Return the differences of each pair of models, relative to a baseline clearly above 0."""
    pairs: dict[tuple[str, str], list[SpanRow]] = {}
    for one in comparison.differences:
        base = comparison.metrics[one.baseline][one.metric]
        if base.low > 0:
            ends = (one.interval.low, one.interval.value, one.interval.high)
            low, value, high = (end / base.value for end in ends)
            word = JUDGMENTS[one.is_better]
            title = f"{TITLES[one.metric]}: {_change(value)}, {word}"
            span = Span(STYLES[one.is_better], low, value, high, word)
            pairs.setdefault((one.model, one.baseline), []).append(SpanRow(title, (span,)))
    figures, names = [], {one.metric for one in comparison.differences}
    for (model, baseline), rows in pairs.items():
        title = f"{model} compared with {baseline}"
        chart = span_chart(title, rows, f"Relative change from {baseline} to {model}", _change)
        caption = (
            f"Each difference relative to {baseline}, with its {comparison.level * 100:.3g} % "
            f"interval. Lower is better{', except for accuracy' * ('accuracy' in names)}."
        )
        figures.append(Figure(title, (chart,), caption))
    return figures


def _change(value: float) -> str:
    r"""Return a relative change in percent, with its sign.

    >>> _change(-0.125), _change(0)
    ('-12.5 %', '0 %')
    """
    return f"{value * 100:+.3g} %" if abs(value) >= 5e-5 else "0 %"


def _metric_table(comparison: Comparison) -> Table:
    """Return the metrics of each model."""
    metrics = comparison.metrics
    return Table.of(
        "Metrics of each model, with intervals",
        dict.fromkeys(name for one in metrics.values() for name in one),
        ("metric", TITLES.__getitem__),
        *(
            (model, lambda name, model=model: or_dash(metrics[model].get(name)))
            for model in comparison.models
        ),
    )


def _difference_table(comparison: Comparison) -> Table:
    """Return the differences and their significance."""
    return Table.of(
        "Differences on the same rows",
        comparison.differences,
        ("metric", lambda one: TITLES[one.metric]),
        ("model", lambda one: one.model),
        ("baseline", lambda one: one.baseline),
        ("difference", lambda one: or_dash(one.interval)),
        ("p-value", lambda one: p_value(one.p_value)),
        ("result", lambda one: JUDGMENTS[one.is_better]),
        texts=(0, 1, 2, 5),
    )


def _shift_table(drift: Drift) -> Table:
    """Return the tested quantities of both periods."""
    return Table.of(
        "Both periods",
        drift.shifts.items(),
        ("quantity", lambda item: item[0]),
        ("reference", lambda item: decimal(item[1].reference)),
        ("current", lambda item: decimal(item[1].current)),
        ("difference", lambda item: or_dash(item[1].difference)),
        ("p-value", lambda item: p_value(item[1].p_value)),
        ("result", lambda item: _result(item[1])),
        texts=(0, 5),
    )


def _result(shift: DistributionShift) -> str:
    """Return the result of a test."""
    if shift.p_value is None:
        return "not tested"
    return "shifted" if shift.has_shifted else "not significant"


def _shift_figures(drift: Drift) -> list[Figure]:
    """Return the differences of fractions, which share one axis."""
    rows = []
    for name, shift in drift.shifts.items():
        one = shift.difference
        if name.split(" (")[0] in FRACTIONS and one is not None:
            style, label = "neutral", "not significant, or not tested"
            if shift.has_shifted:
                style, label = "wrong", "shifted"
            values = f"{percent(shift.reference)}, now {percent(shift.current)}"
            span = Span(style, one.low, one.value, one.high, label)
            rows.append(SpanRow(f"{name}: {values}", (span,)))
    if not rows:
        return []
    title = "Current minus reference"
    label = "Difference in percentage points"
    chart = span_chart(title, rows, label, lambda value: _change(value).removesuffix(" %"))
    caption = (
        f"Each difference with its {drift.level * 100:.3g} % interval. “Shifted” is "
        "significant after correction for all tests (Holm)."
    )
    return [Figure(title, (chart,), caption)]


def _prior_figures(drift: Drift) -> list[Figure]:
    """Return the class priors of the reference, and those estimated without current labels."""
    if drift.prior is None or drift.reference_prior is None:
        return []
    current, reference = drift.prior, drift.reference_prior
    names = drift.classes or tuple(range(len(current.prior)))
    order = np.argsort(-np.abs(current.prior - reference), kind="stable").tolist()
    table = Table.of(
        "Class priors",
        order,
        ("class", lambda k: str(names[k])),
        ("reference", lambda k: percent(reference[k])),
        ("current, estimated", lambda k: percent(current.prior[k])),
        ("interval", lambda k: f"{percent(current.low[k])} to {percent(current.high[k])}"),
    )
    spans = []
    for k, (name, old, new, _) in zip(order[:MAX_CLASSES], table.rows, strict=False):
        before = Span("before", reference[k], reference[k], reference[k], "reference")
        ends = (current.low[k], current.prior[k], current.high[k])
        after = Span("after", *ends, "current, estimated")
        spans.append(SpanRow(f"{name}: {old}, now {new}", (before, after)))
    caption = "Estimated from the outputs, without current labels, with intervals."
    if len(order) > MAX_CLASSES:
        caption += f" The {MAX_CLASSES} classes with the largest change are shown."
    chart = span_chart("Class priors", spans, "Fraction of rows")
    return [Figure("Class priors", (chart,), caption, table)]

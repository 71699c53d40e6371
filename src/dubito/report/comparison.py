"""Pages that compare models, or two periods of one model."""

from __future__ import annotations

import re

import numpy as np

from dubito.measure.intervals import Interval
from dubito.monitor import Comparison, Difference, DistributionShift, Drift
from dubito.monitor.metrics import TITLES
from dubito.report.blocks import Code, Facts, Figure, Row, Section, Table, Text, Verdict
from dubito.report.figures.canvas import percent
from dubito.report.figures.charts import Span, span_chart
from dubito.report.formatting import ABSENT, chance, figure, share, spaced, with_interval
from dubito.report.page import render
from dubito.report.reports import Report

SHARES = ("confidence", "accuracy", "over-confidence", "ECE")
MOST_CLASSES = 12
JUDGED = {True: "right", False: "wrong", None: "unsure diagonal"}
DIFFERENCES = Text(
    "A model less what it is held to, on the same rows. What is called better or worse is so for "
    "all comparisons together, not one by one."
)


def comparison_report(
    comparison: Comparison, *, title: str = "Models side by side", command: str | None = None
) -> Report:
    """Return a page on models that were compared on the same rows."""
    headline, mood = _comparison_headline(comparison)
    verdict = Verdict(headline, _sentences_of(comparison.verdict), mood)
    charts = Row(tuple(_difference_charts(comparison)))
    sections = [
        Section("differences", "The differences", (DIFFERENCES, charts)),
        Section(
            "figures", "The figures", (_difference_table(comparison), _figure_table(comparison))
        ),
        _computing(
            (
                ("rows", f"{comparison.n_rows:,}"),
                ("without a label, left out", f"{comparison.n_missing:,}"),
                ("best", f"{comparison.best}, by {TITLES[comparison.best_by]}"),
                ("intervals", f"{comparison.level * 100:.3g}\u00a0%, paired bootstrap"),
            ),
            command,
        ),
    ]
    return Report(title, comparison.verdict, render(title, verdict, sections, kicker="comparison"))


def drift_report(drift: Drift, *, title: str = "Two periods", command: str | None = None) -> Report:
    """Return a page on what moved between two periods."""
    headline = f"Moved: {', '.join(drift.moved)}" if drift.moved else "No sign of drift"
    mood = "bad" if drift.has_drifted else "good"
    verdict = Verdict(headline, _sentences_of(drift.verdict), mood)
    # One below the other: a chart of one line beside one of many would leave its card empty.
    charts = (*_shift_figures(drift), *_prior_figures(drift))
    sections = [
        Section("shifts", "What moved", (*charts, _shift_table(drift))),
        _computing(
            (
                ("rows before", f"{drift.n_reference:,}"),
                ("rows now", f"{drift.n_current:,}"),
                ("accuracy that the outputs expect now", share(drift.expected_accuracy)),
                (
                    "false alarms",
                    f"in at most {(1 - drift.level) * 100:.3g}\u00a0% of cases, over all tests "
                    "(Holm)",
                ),
            ),
            command,
        ),
    ]
    return Report(title, drift.verdict, render(title, verdict, sections, kicker="drift"))


def _sentences_of(verdict: str) -> tuple[str, ...]:
    """Return a verdict sentence by sentence.

    >>> _sentences_of("One is 0.5 better. Two is not.")
    ('One is 0.5 better.', 'Two is not.')
    """
    return tuple(spaced(one) for one in re.split(r"(?<=[A-Za-z)%]\.)\s+", verdict) if one)


def _comparison_headline(comparison: Comparison) -> tuple[str, str]:
    """Return what a comparison comes to, and whether that is good for the newcomer."""
    first, *others = comparison.models
    metric = TITLES[comparison.best_by]
    if len(others) > 1:
        return f"Best by {metric}: {comparison.best}", "neutral"
    known = [one for one in comparison.differences if one.metric == comparison.best_by]
    is_better = known[0].is_better if known else None
    if is_better is None:
        return f"No sure difference in {metric}", "neutral"
    word, mood = ("better", "good") if is_better else ("worse", "bad")
    return f"{others[0]} is {word} than {first}, by {metric}", mood


def _difference_charts(comparison: Comparison) -> list[Figure]:
    """Return the differences of each pair of models, as shares of what the baseline has."""
    pairs = dict.fromkeys((one.model, one.baseline) for one in comparison.differences)
    return [
        _difference_chart(comparison, model, baseline, rows)
        for model, baseline in pairs
        if (rows := _difference_rows(comparison, model, baseline))
    ]


def _difference_rows(
    comparison: Comparison, model: str, baseline: str
) -> list[tuple[str, list[Span]]]:
    """Return the differences of two models; a share of what may be 0 says nothing."""
    rows = []
    for one in comparison.differences:
        held_to = comparison.figures[baseline][one.metric]
        if (one.model, one.baseline) == (model, baseline) and held_to.low > 0:
            low, value, high = (
                end / held_to.value
                for end in (one.interval.low, one.interval.value, one.interval.high)
            )
            title = f"{TITLES[one.metric]}: {_change(value)}, {_word(one)}"
            rows.append((title, [Span(JUDGED[one.is_better], low, value, high)]))
    return rows


def _difference_chart(
    comparison: Comparison, model: str, baseline: str, rows: list[tuple[str, list[Span]]]
) -> Figure:
    """Return the differences of two models."""
    label = f"change from {baseline} to {model}"
    return Figure(
        f"{model} less {baseline}",
        (span_chart(f"{model} less {baseline}", rows, label, _change),),
        f"Each difference and its {comparison.level * 100:.3g}\u00a0% interval, as a share of "
        f"what {baseline} has. Left of 0 is less: better of all but accuracy.",
        (("right", "better"), ("wrong", "worse"), ("unsure", "not sure")),
    )


def _change(value: float) -> str:
    r"""Return a change in per cent, with its sign.

    >>> _change(-0.125), change(0)
    ('-12.5\xa0%', '0\xa0%')
    """
    return f"{value * 100:+.3g}\u00a0%" if abs(value) >= 5e-5 else "0\u00a0%"


def _in_points(value: float) -> str:
    """Return a difference of shares in points, with its sign.

    >>> _in_points(-0.125), in_points(0)
    ('-12.5', '0')
    """
    return _change(value).removesuffix("\u00a0%")


def _figure_table(comparison: Comparison) -> Table:
    """Return the figures of each model."""
    metrics = list(dict.fromkeys(name for one in comparison.figures.values() for name in one))
    rows = tuple(
        (TITLES[name], *(_cell(comparison.figures[model].get(name)) for model in comparison.models))
        for name in metrics
    )
    return Table("Each model, with intervals", ("", *comparison.models), rows)


def _difference_table(comparison: Comparison) -> Table:
    """Return the differences, and whether they are sure."""
    columns = ("", "model", "less", "difference", "p-value", "so it is")
    rows = tuple(
        (
            TITLES[one.metric],
            one.model,
            one.baseline,
            _cell(one.interval),
            chance(one.p_value),
            _word(one),
        )
        for one in comparison.differences
    )
    return Table("Differences on the same rows", columns, rows, texts=(0, 1, 2, 5))


def _word(difference: Difference) -> str:
    """Return whether a difference is for the better."""
    if difference.is_better is None:
        return "not sure"
    return "better" if difference.is_better else "worse"


def _shift_table(drift: Drift) -> Table:
    """Return what was looked at in both periods."""
    columns = ("", "before", "now", "difference", "p-value", "so it has")
    rows = tuple(
        (
            name,
            figure(one.reference),
            figure(one.current),
            _cell(one.difference),
            ABSENT if one.p_value is None else chance(one.p_value),
            _moved(one),
        )
        for name, one in drift.shifts.items()
    )
    return Table("Both periods", columns, rows, texts=(0, 5))


def _moved(shift: DistributionShift) -> str:
    """Return whether something moved, in a word."""
    return "not tested" if shift.p_value is None else "moved" if shift.has_moved else "not moved"


def _shift_figures(drift: Drift) -> list[Figure]:
    """Return the differences that are shares, so that they stand on one axis."""
    rows = []
    for name, shift in drift.shifts.items():
        one = shift.difference
        if name.split(" (")[0] in SHARES and one is not None:
            kind = JUDGED[False if shift.has_moved else None]
            title = f"{name}: {share(shift.reference)}, now {share(shift.current)}"
            rows.append((title, [Span(kind, one.low, one.value, one.high)]))
    if not rows:
        return []
    return [
        Figure(
            "Now less before",
            (span_chart("Now less before", rows, "now less before, in points", _in_points),),
            f"Each difference and its {drift.level * 100:.3g}\u00a0% interval. One that holds 0 "
            "may be luck; what is marked as moved is so for all tests together.",
            (("wrong", "moved"), ("unsure", "not moved, or not tested")),
        )
    ]


def _prior_figures(drift: Drift) -> list[Figure]:
    """Return how common classes were, and are by an estimate without labels of this period."""
    if drift.prior is None or drift.reference_prior is None:
        return []
    names = drift.classes or tuple(range(len(drift.prior.prior)))
    found, reference = drift.prior, drift.reference_prior
    order = np.argsort(-np.abs(found.prior - reference), kind="stable")
    columns = (reference, found.prior, found.low, found.high)
    before, now, low, high = (one[order].tolist() for one in columns)
    rows = list(zip([str(names[k]) for k in order], before, now, low, high, strict=True))
    spans = [
        (
            f"{name}: {share(was)}, now {share(is_)}",
            [Span("before", was, was, was), Span("after", least, is_, most)],
        )
        for name, was, is_, least, most in rows[:MOST_CLASSES]
    ]
    table = Table(
        "How common classes are",
        ("class", "before", "now, estimated", "interval"),
        tuple(
            (name, share(was), share(is_), f"{share(least)} to {share(most)}")
            for name, was, is_, least, most in rows
        ),
    )
    caption = "Estimated from the outputs alone, without labels of this period, with intervals."
    if len(rows) > MOST_CLASSES:
        caption += f" The {MOST_CLASSES} classes that changed most."
    chart = span_chart("How common classes are", spans, "share of rows", percent)
    legend = (("before", "before"), ("after", "now, estimated"))
    return [Figure("How common classes are", (chart,), caption, legend, table)]


def _cell(interval: Interval | None) -> str:
    """Return an interval as a table shows it."""
    return ABSENT if interval is None else with_interval(interval.value, interval)


def _computing(pairs: tuple[tuple[str, str], ...], command: str | None) -> Section:
    """Return how it was computed, and the command to repeat it."""
    from dubito import __version__

    facts = Facts((*pairs, ("dubito", __version__)))
    return Section(
        "computing", "How it was computed", (facts,) if command is None else (facts, Code(command))
    )

"""Regressions: coverage, metrics and calibrators, and what a policy decides and reviews."""

from __future__ import annotations

import numpy as np

from dubito.arrays import IntArray
from dubito.decide import RegressionPolicy, RegressionPolicyReport
from dubito.decide.regression.value_decisions import CURRENT, REASON_TEXTS, REASONS
from dubito.formatting import (
    decimal,
    level_percent,
    or_dash,
    percent,
    plain,
    quantity,
    short_percent,
)
from dubito.measure import RegressionAudit, RiskCoverageCurve
from dubito.measure.detection import RankingState
from dubito.measure.regression import point_of_rows, squared_errors, values_of
from dubito.report.chart_builders import (
    Curve,
    nominal_chart,
    pit_histogram,
    risk_chart,
    width_chart,
)
from dubito.report.content import (
    Block,
    Card,
    Cards,
    Figure,
    Row,
    Section,
    Table,
    Text,
    Verdict,
    between,
)
from dubito.report.regression_summary import Candidate, RegressionSummary, target_mean, widths_of
from dubito.report.verdict import split_verdict

N_ROWS = 15
LARGEST = 1e300  # squared errors beyond this are clipped, so that they can be divided
SAME_WIDTH = 1e-6  # relative difference of widths that is rounding


def regression_verdict(summary: RegressionSummary) -> Verdict:
    """Return the verdict of the audit, and what calibration achieves."""
    headline, mood, sentences = split_verdict(summary.whole.verdict)
    if sentences:
        sentences = (f"{sentences[0]} Measured on {summary.whole.n_rows:,} rows.",)
    before, after = summary.before.audit, summary.after.audit
    if mood == "bad" and summary.chosen and before.levels.size:
        k = int(np.argmax(np.abs(before.coverage - before.levels) / before.coverage_deviation))
        level = before.levels[k]
        corrected = (
            f"{summary.after.name} corrects it ({summary.after.summary}): {level_percent(level)} "
            f"intervals then contain {percent(after.coverage[_nearest(after, level)])} of the "
            "targets, out of sample."
        )
        sentences = (*sentences, corrected)
    return Verdict(headline, sentences, mood)


def regression_sections(summary: RegressionSummary) -> list[Section]:
    """Return all sections except how the report was computed."""
    return [
        _coverage_section(summary),
        _metrics_section(summary),
        _calibrators_section(summary),
        _decisions_section(summary),
        _inspection_section(summary),
    ]


def _coverage_section(summary: RegressionSummary) -> Section:
    """Return coverage and width over the nominal coverage, and PIT histograms."""
    shown = [("before", "uncalibrated", summary.before.audit)]
    if summary.chosen:
        shown.append(("after", "calibrated, out of sample", summary.after.audit))
    coverages = [Curve(style, label, one.levels, one.coverage) for style, label, one in shown]
    widths = [Curve(style, label, one.levels, one.width) for style, label, one in shown]
    title = "Observed and nominal coverage"
    coverage = Figure(
        title,
        (nominal_chart("coverage", title, summary.before.audit.n_rows, coverages),),
        "On the dashed line, intervals contain as many targets as they should. Below it they are "
        "too narrow: the model is over-confident.",
        _coverage_table([(label, one) for _, label, one in shown]),
    )
    title = "Sharpness: mean width of intervals"
    sharpness = Figure(
        title,
        (width_chart(title, widths),),
        "Narrow intervals are good only if their coverage is right.",
    )
    pits = tuple(_pit_figure(one, label, style) for style, label, one in shown)
    return Section(
        "coverage",
        "Are the prediction intervals calibrated?",
        (_cards(summary), Row((coverage, sharpness)), Row(pits)),
    )


def _cards(summary: RegressionSummary) -> Cards:
    """Return the key metrics."""
    cards = []
    for name, was, now in summary.metrics[:3]:
        if was is not None and not name.startswith("coverage"):
            note = f"after: {decimal(now.value)}" if now is not None and summary.chosen else ""
            cards.append(Card(name, decimal(was.value), note))
    before, after = summary.before.audit, summary.after.audit
    if before.levels.size:
        k = _nearest(before, 0.9)
        name = f"coverage of {level_percent(before.levels[k])} intervals"
        now = after.coverage[_nearest(after, before.levels[k])]
        note = f"after: {percent(now)}" if summary.chosen else ""
        cards.append(Card(name, percent(before.coverage[k]), note))
    whole = summary.whole
    if whole.aleatoric_std is not None and whole.epistemic_std is not None:
        note = f"epistemic: {decimal(whole.epistemic_std)}"
        cards.append(Card("aleatoric std of the members", decimal(whole.aleatoric_std), note))
    return Cards(tuple(cards))


def _nearest(audit: RegressionAudit, level: float) -> int:
    """Return the place of the nominal coverage that is nearest to `level`."""
    return int(np.argmin(np.abs(audit.levels - level)))


def _coverage_table(audits: list[tuple[str, RegressionAudit]]) -> Table:
    """Return the coverage of intervals, level by level."""
    lines = (
        (label, *line)
        for label, one in audits
        for line in zip(one.levels, one.coverage, one.coverage_deviation, one.width, strict=True)
    )
    return Table.of(
        f"{audits[0][1].n_rows:,} rows",
        lines,
        ("nominal coverage", lambda line: f"{level_percent(line[1])}, {line[0]}"),
        ("observed coverage", lambda line: percent(line[2])),
        ("95 % range", lambda line: f"±\u00a0{percent(1.96 * line[3])}"),
        ("mean width", lambda line: decimal(line[4])),
    )


def _pit_figure(audit: RegressionAudit, label: str, style: str) -> Figure:
    """Return a PIT histogram."""
    pit = audit.pit
    outer = float(pit[0] + pit[-1]) * pit.size / 2
    shape = "about flat" if 0.7 < outer < 1.4 else "high at both ends: intervals are too narrow"
    shape = "low at both ends: intervals are too wide" if outer <= 0.7 else shape
    title = f"PIT histogram, {label}"
    chart = pit_histogram(title, pit, audit.n_rows, style)
    return Figure(title, (chart,), f"Flat is calibrated; this one is {shape}.")


def _metrics_section(summary: RegressionSummary) -> Section:
    """Return the metrics before and after."""
    rows = tuple(
        (
            name,
            or_dash(was),
            or_dash(now if summary.chosen else None),
            f"{float(name.split()[2]) / 100:.3g}" if name.startswith("coverage") else "",
        )
        for name, was, now in summary.metrics
    )
    columns = ("metric", "before", "after, out of sample", "expected if calibrated")
    n_rows = summary.before.audit.n_rows
    caption = f"{n_rows:,} rows; 95 % bootstrap intervals in parentheses"
    blocks: list[Block] = [Text(summary.method), Table(caption, columns, rows)]
    if summary.whole.n_missing:
        blocks.insert(1, Text(f"{quantity(summary.whole.n_missing)} without a target left out."))
    if summary.whole.n_rearranged:
        crossed = quantity(summary.whole.n_rearranged)
        blocks.insert(1, Text(f"{crossed} had quantiles that cross, which were sorted."))
    if summary.whole.groups:
        title = summary.whole.crps_title
        groups = Table.of(
            "Groups",
            summary.whole.groups.items(),
            ("group", lambda item: item[0]),
            ("rows", lambda item: f"{item[1].n_rows:,}"),
            (title, lambda item: decimal(item[1].continuous_ranked_probability_score)),
            ("verdict", lambda item: item[1].verdict),
            texts=(0, 3),
        )
        blocks.append(groups)
    return Section("metrics", "Metrics", tuple(blocks))


def _calibrators_section(summary: RegressionSummary) -> Section:
    """Return the CRPS and coverage of each calibrator."""
    text = (
        f"{summary.selection} The CRPS of quantiles is an average over their levels, which is "
        "slightly lower than that of a density."
    ).lstrip()
    title = summary.before.audit.crps_title
    selected = summary.after

    def crps(one: Candidate) -> str:
        value, kind = decimal(one.audit.continuous_ranked_probability_score), one.audit.crps_title
        return value if kind == title else f"{value} ({kind})"

    def largest_gap(one: Candidate) -> str:
        gaps = np.abs(one.audit.coverage - one.audit.levels)
        return percent(float(gaps.max()) if gaps.size else None)

    table = Table.of(
        "Every metric is out of sample",
        summary.candidates,
        ("calibrator", lambda one: one.name),
        ("summary", lambda one: one.summary),
        (title, crps),
        ("largest coverage gap", largest_gap),
        ("", lambda one: "selected" if one is selected else ""),
        texts=(0, 1, 4),
    )
    return Section("calibrators", "Calibrators", (Text(text), table))


def _decisions_section(summary: RegressionSummary) -> Section:
    """Return the error of the rows accepted by the width of their interval."""
    batch = summary.after.batch
    squares = target_mean(squared_errors(batch.outputs, values_of(batch)))
    squares = np.minimum(squares, LARGEST)
    scale = max(float(squares.max()), 1e-300)
    state = RankingState.of_scores(squares / scale, widths_of(batch), batch.labeled_weight)
    curve = RiskCoverageCurve.of(state)
    errors = np.sqrt(curve.risk * scale)
    label = "Root mean squared error"
    one = Curve("after", "rows accepted by interval width", curve.coverage, errors)
    chart = Figure(
        "Error over coverage",
        (risk_chart("Error over coverage", [one], label, plain),),
        "The error when only the rows with the narrowest intervals are accepted: few on the left, "
        "all on the right. A rising line means that the widths tell where the model errs; a flat "
        "one, that they do not.",
    )
    half = float(np.interp(0.5, curve.coverage, errors))
    text = (
        "For the half of the rows with the narrowest intervals, the root mean squared error is "
        f"{decimal(half)} instead of {decimal(float(errors[-1]))}."
    )
    return Section("decisions", "Which rows need a review?", (Text(text), Row((chart,))))


def _inspection_section(summary: RegressionSummary) -> Section:
    """Return the rows with the widest intervals, unless all are equal, and the largest errors."""
    before = summary.before.batch
    widths = widths_of(summary.after.batch)
    errors = target_mean(np.abs(values_of(before) - point_of_rows(before.outputs)))
    surprise = errors / np.maximum(widths, 1e-300)
    caption = "The most surprising rows: errors far beyond the interval"
    tables = [_rows_table(caption, summary, np.argsort(-surprise, kind="stable"))]
    own = widths_of(before)  # uncalibrated: widths after calibration differ between folds
    if not np.allclose(own, own[0], rtol=SAME_WIDTH, atol=0):
        caption = "The most uncertain rows: the widest intervals"
        tables.insert(0, _rows_table(caption, summary, np.argsort(-widths, kind="stable")))
    return Section("rows", "Rows to inspect", (Row(tuple(tables)),))


def _rows_table(caption: str, summary: RegressionSummary, order: IntArray) -> Table:
    """Return rows with their prediction and target."""
    batch = summary.before.batch
    widths = widths_of(summary.after.batch)
    targets, predicted = target_mean(values_of(batch)), target_mean(point_of_rows(batch.outputs))
    return Table.of(
        caption,
        order[:N_ROWS].tolist(),
        ("id", lambda k: f"row {k:,}" if batch.ids is None else str(batch.ids[k])),
        ("predicted", lambda k: decimal(predicted[k])),
        ("target", lambda k: decimal(targets[k])),
        ("width of the interval", lambda k: decimal(widths[k])),
    )


def value_policy_verdict(figures: RegressionPolicyReport) -> Verdict:
    """Return what decisions cost, compared with the predicted mean, and what is reviewed."""
    lines = figures.lines
    cost, others = lines[0], [one for one in lines[2:-2] if one]
    mood = "good" if figures.mean_saved.low > 0 else "neutral"
    headline = f"Decisions cost {decimal(figures.cost.value)} per row."
    return Verdict(headline, (cost, " ".join(others)), mood)


def value_decisions_section(policy: RegressionPolicy, figures: RegressionPolicyReport) -> Section:
    """Return what is decided and reviewed, its figures, and those of other rules."""
    rules = Text(" ".join(policy.rule_lines))
    blocks: list[Block] = [rules, _policy_cards(figures), _rule_table(figures)]
    if figures.review_rate.value:
        blocks.append(_reason_table(figures))
    notes = [*figures.lines[-2:], *figures.notes]
    return Section("policy", "What is decided?", (*blocks, Text(" ".join(notes))))


def _policy_cards(figures: RegressionPolicyReport) -> Cards:
    """Return the key figures with their intervals."""
    saved, rate = figures.mean_saved, figures.review_rate
    coverage = f"Coverage of {short_percent(figures.level)} intervals"
    cards = [
        Card.of("Cost per row", figures.cost),
        Card(f"Saved over {CURRENT}", f"{saved.value:+.4g}", between(saved)),
        Card.of(coverage, figures.coverage, percent),
    ]
    if rate.value:
        cards.append(Card.of("Rows reviewed", rate, percent))
    return Cards(tuple(cards))


def _rule_table(figures: RegressionPolicyReport) -> Table:
    """Return the cost of the policy beside those of simpler rules."""
    rows = (
        ("this policy", decimal(figures.cost.value)),
        ("optimal decisions on uncalibrated outputs", decimal(figures.uncalibrated_cost)),
        (CURRENT, decimal(figures.mean_cost)),
        (f"always {plain(figures.constant_value)}", decimal(figures.constant_cost)),
    )
    caption = (
        f"Mean cost per row. The policy expected {decimal(figures.expected_cost)}; the best "
        "constant value is found in hindsight."
    )
    return Table(caption, ("rule", "cost per row"), rows)


def _reason_table(figures: RegressionPolicyReport) -> Table:
    """Return why rows are reviewed."""
    pairs = zip(REASONS[1:], REASON_TEXTS[1:], strict=True)
    return Table.of(
        "Why rows are reviewed. Of several reasons one counts: an out-of-distribution input, "
        "otherwise the cost, otherwise the width.",
        [(text, figures.reasons[name]) for name, text in pairs],
        ("reason", lambda one: one[0]),
        ("rows", lambda one: percent(one[1])),
    )

"""The parts of a report of a regression: do intervals hold what they promise, how wide are they?"""

from __future__ import annotations

import numpy as np

from dubito.measure import RegressionAudit, RiskCoverageCurve
from dubito.measure.ranking import RankingState
from dubito.measure.regression import pit_of_rows, point_of_rows, values_of
from dubito.report.blocks import Block, Card, Cards, Figure, Row, Section, Table, Text, Verdict
from dubito.report.figures.charts import coverage_chart, pit_histogram, risk_chart, width_chart
from dubito.report.formatting import ABSENT, counted, figure, share, spaced, with_interval
from dubito.report.regression_summary import RegressionSummary, Tried, widths_of

N_ROWS = 15
SAME_WIDTH = 1e-6  # widths that differ by a smaller share differ by rounding
BAND = np.linspace(0, 1, 41)


def regression_verdict(summary: RegressionSummary) -> Verdict:
    """Return the headline, and what mends it."""
    headline, _, rest = summary.whole.verdict.partition(". ")
    mood = "bad" if headline.endswith("-confident") else "good"
    mood = "neutral" if headline.startswith(("Too few", "No two")) else mood
    sentences = [f"{spaced(rest)} Measured on {summary.whole.n_rows:,} rows."] if rest else []
    before, after = summary.before.audit, summary.after.audit
    if mood == "bad" and summary.chosen and before.levels.size:
        k = int(np.argmax(np.abs(before.coverage - before.levels) / before.coverage_deviation))
        level = float(before.levels[k])
        near = int(np.argmin(np.abs(after.levels - level)))
        sentences.append(
            f"{summary.after.name} mends it ({summary.after.words}): intervals of "
            f"{share(level, 0)} then hold {share(float(after.coverage[near]))}, out of sample."
        )
    return Verdict(f"{headline.rstrip('.')}.", tuple(sentences), mood)


def regression_sections(summary: RegressionSummary) -> list[Section]:
    """Return all parts but how it was computed."""
    return [
        _coverage(summary),
        _figures(summary),
        _leaderboard(summary),
        _deciding(summary),
        _looking(summary),
    ]


def _coverage(summary: RegressionSummary) -> Section:
    """Return coverage against nominal, and where truths lie."""
    before, after = summary.before.audit, summary.after.audit
    margin = 1.96 * np.sqrt(BAND * (1 - BAND) / max(before.n_rows, 1))
    band = (BAND, np.clip(BAND - margin, 0, 1), np.clip(BAND + margin, 0, 1))
    legend = [("before", "as it came")]
    if summary.chosen:
        legend.append(("after", "after recalibration, out of sample"))
    shown = list(zip(legend, (before, after), strict=False))
    curves = [(*key, audit.levels, audit.coverage) for key, audit in shown]
    widths = [(*key, audit.levels, audit.width) for key, audit in shown]
    wide = Figure(
        "Sharpness",
        (width_chart("Mean width of intervals, over what they should hold", widths),),
        "How wide intervals are. Narrow is good only where they hold what they promise: the honest "
        "line is the one whose coverage is right.",
        tuple(legend),
    )
    chart = Figure(
        "Coverage against nominal",
        (
            coverage_chart(
                "Share of truths inside intervals, against what they promise", band, curves
            ),
        ),
        "On the dashed line, intervals hold what they promise. Below it they are too narrow: the "
        "model is over-confident.",
        (*legend, ("band", "where a calibrated model would be, 19 times in 20")),
        _coverage_table(before, after if summary.chosen else None),
    )
    places = [_place(summary.before, "As it came", "before")]
    if summary.chosen:
        places.append(_place(summary.after, "After recalibration", "after"))
    return Section(
        "coverage",
        "Do intervals hold what they promise?",
        (_cards(summary), Row((chart, wide)), Row(tuple(places))),
    )


def _cards(summary: RegressionSummary) -> Cards:
    """Return the figures that matter most."""
    found = []
    for name, was, now in summary.figures[:3]:
        if was is not None:
            note = f"after: {figure(now.value)}" if now is not None and summary.chosen else ""
            found.append(Card(name, figure(was.value), note))
    before, after = summary.before.audit, summary.after.audit
    if before.levels.size:
        k = int(np.argmin(np.abs(before.levels - 0.9)))
        level = f"intervals of {share(float(before.levels[k]), 0)} hold"
        near = int(np.argmin(np.abs(after.levels - before.levels[k])))
        note = f"after: {share(float(after.coverage[near]))}" if summary.chosen else ""
        found.append(Card(level, share(float(before.coverage[k])), note))
    return Cards(tuple(found))


def _coverage_table(before: RegressionAudit, after: RegressionAudit | None) -> Table:
    """Return what intervals hold, level by level."""
    rows = tuple(
        (share(level, 0), share(held), figure(width), share(sure * 1.96))
        for level, held, width, sure in zip(
            before.levels.tolist(),
            before.coverage.tolist(),
            before.width.tolist(),
            before.coverage_deviation.tolist(),
            strict=True,
        )
    )
    if after is not None:
        rows += tuple(
            (f"{share(level, 0)}, after", share(held), figure(width), share(sure * 1.96))
            for level, held, width, sure in zip(
                after.levels.tolist(),
                after.coverage.tolist(),
                after.width.tolist(),
                after.coverage_deviation.tolist(),
                strict=True,
            )
        )
    columns = ("should hold", "holds", "mean width", "chance, ±")
    return Table(f"{before.n_rows:,} rows", columns, rows)


def _place(tried: Tried, title: str, kind: str) -> Figure:
    """Return where truths lie in their predicted distributions."""
    pit = tried.audit.pit
    outer = float(pit[0] + pit[-1]) * pit.size / 2
    shape = (
        "about flat"
        if 0.7 < outer < 1.4
        else "high at both ends: too narrow"
        if outer > 1
        else "low at both ends: too wide"
    )
    return Figure(
        f"{title}: where truths lie (PIT)",
        (pit_histogram(f"Probability integral transform, {title}", pit, tried.audit.n_rows, kind),),
        f"Flat is calibrated; this one is {shape}.",
        (
            (kind, "truths"),
            ("band", "where each bar of a calibrated model would end, 19 times in 20"),
        ),
    )


def _figures(summary: RegressionSummary) -> Section:
    """Return the table of figures before and after."""
    rows = tuple(
        (
            name,
            with_interval(None if was is None else was.value, was),
            with_interval(None if now is None else now.value, now) if summary.chosen else ABSENT,
            name.rsplit(" ", 1)[1] if name.startswith("share") else "",
        )
        for name, was, now in summary.figures
    )
    columns = ("figure", "before", "after, out of sample", "a calibrated model")
    caption = f"{summary.before.audit.n_rows:,} rows; 95 % bootstrap intervals in brackets"
    blocks: list[Block] = [Text(summary.how), Table(caption, columns, rows)]
    if summary.whole.n_missing:
        blocks.insert(1, Text(f"{counted(summary.whole.n_missing)} without a target left out."))
    if summary.whole.groups:
        blocks.append(_groups(summary))
    return Section("figures", "Figures", tuple(blocks))


def _groups(summary: RegressionSummary) -> Table:
    """Return a line a group."""
    rows = tuple(
        (
            name,
            f"{one.n_rows:,}",
            figure(one.continuous_ranked_probability_score),
            spaced(one.verdict),
        )
        for name, one in summary.whole.groups.items()
    )
    return Table("Groups", ("group", "rows", "CRPS", "verdict"), rows, texts=(0, 3))


def _leaderboard(summary: RegressionSummary) -> Section:
    """Return what each way to recalibrate achieved."""
    rows = tuple(
        (
            one.name,
            spaced(one.words),
            figure(one.audit.continuous_ranked_probability_score),
            share(_worst_gap(one.audit)),
            "used" if k == summary.chosen else "",
        )
        for k, one in enumerate(summary.tried)
    )
    columns = ("calibrator", "what it learned", "CRPS", "largest gap of coverage", "")
    words = (
        "One factor is taken unless more freedom lowers CRPS by more than a hundredth. The CRPS of "
        "quantiles is over their levels, which makes it a little lower than that of a density."
    )
    table = Table(
        "Every figure is of rows the calibrator did not see", columns, rows, texts=(0, 1, 4)
    )
    return Section("calibrators", "Calibrators", (Text(words), table))


def _worst_gap(audit: RegressionAudit) -> float | None:
    """Return how far coverage is off at the worst level."""
    return float(np.abs(audit.coverage - audit.levels).max()) if audit.levels.size else None


def _deciding(summary: RegressionSummary) -> Section:
    """Return the error left when the widest rows go to a person."""
    batch = summary.after.batch
    squares = np.square(values_of(batch) - point_of_rows(batch.outputs)).astype(np.float64)
    squares = squares if squares.ndim == 1 else squares.mean(axis=1)
    scale = max(float(squares.max()), 1e-300)
    state = RankingState.of_scores(squares / scale, widths_of(batch), batch.labeled_weight)
    curve = RiskCoverageCurve.of(state)
    errors = np.sqrt(curve.risk * scale)
    chart = Figure(
        "Error over coverage",
        (
            risk_chart(
                "Root mean squared error of rows kept, over the share kept",
                (("after", curve.coverage, errors),),
                "root mean squared error",
            ),
        ),
        "Keeping only the rows of the narrowest intervals, from left to right more of them. A line "
        "that rises says that the model knows where it errs; a flat one that it does not.",
        (("after", "rows kept by the width of their interval"),),
    )
    half = float(np.interp(0.5, curve.coverage, errors))
    words = (
        f"Keeping the half of the rows that it is surest of, the root mean squared error is "
        f"{figure(half)} instead of {figure(float(errors[-1]))}."
    )
    return Section("deciding", "What to do with doubt", (Text(words), Row((chart,))))


def _looking(summary: RegressionSummary) -> Section:
    """Return the widest rows, unless all are as wide, and the most surprising ones."""
    before = summary.before.batch
    widths = widths_of(summary.after.batch)
    places = pit_of_rows(summary.after.batch.outputs, values_of(before))
    places = places if places.ndim == 1 else places.mean(axis=1)
    errors = np.abs(values_of(before) - point_of_rows(before.outputs))
    errors = errors if errors.ndim == 1 else errors.mean(axis=1)
    surprise = errors / np.maximum(widths, 1e-300)
    tables = [
        _rows_table(
            "The most surprising rows: errors far beyond the interval",
            summary,
            np.argsort(-surprise, kind="stable"),
        )
    ]
    own = widths_of(before)  # of the model: those after differ by fold
    if not np.allclose(own, own[0], rtol=SAME_WIDTH, atol=0):
        caption = "The most doubtful rows: the widest intervals"
        tables.insert(0, _rows_table(caption, summary, np.argsort(-widths, kind="stable")))
    return Section("rows", "Rows to look at", (Row(tuple(tables)),))


def _rows_table(
    caption: str, summary: RegressionSummary, order: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> Table:
    """Return rows, each by its id, with what was predicted and what came."""
    batch = summary.before.batch
    widths = widths_of(summary.after.batch)
    y, said = (
        one if one.ndim == 1 else one.mean(axis=1)
        for one in (values_of(batch), point_of_rows(batch.outputs))
    )
    rows = tuple(
        (
            str(batch.ids[k]) if batch.ids is not None else f"row {k:,}",
            figure(float(said[k])),
            figure(float(y[k])),
            figure(float(widths[k])),
        )
        for k in order[:N_ROWS].tolist()
    )
    return Table(caption, ("id", "predicted", "is", "width of the interval"), rows)

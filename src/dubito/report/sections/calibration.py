"""Is the confidence true? Diagrams, figures with intervals, and the calibrators tried."""

from __future__ import annotations

from dubito.measure import Audit, ReliabilityCurve
from dubito.report.blocks import Card, Cards, Choice, Figure, Row, Section, Table, Text
from dubito.report.figures.charts import confidence_histogram, reliability_diagram
from dubito.report.formatting import chance, counted, figure, points, share, with_interval
from dubito.report.summary import Summary, View

LEGEND = (("band", "where a calibrated model would be, 19 times in 20"),)


NEAR_ZERO = (
    "A bootstrap adds chance of its own to that of the rows, so the interval of an ECE near 0 lies "
    "too high. The ECE without the part of chance is the one to read there."
)
REACH = 1.96  # standard errors each way, for an interval of 95 %


def diagrams(summary: Summary) -> Section:
    """Return reliability before and after, of all rows and by choice of some."""
    options = tuple((view.name, _both(view)) for view in summary.views)
    before, after = summary.audit_before, summary.audit_after
    intro = (
        "On the dashed line, confidence is true. Below it, the model says more than it keeps; "
        "above it, less. Each point is the rows of one bin of confidence; point at it for counts. "
        "The gray boxes are how far chance alone would carry a perfectly calibrated model."
    )
    return Section(
        "reliability",
        "Is the confidence true?",
        (
            _cards(before, after),
            Text(intro),
            Choice("Show", options) if len(options) > 1 else options[0][1],
        ),
    )


def _cards(before: Audit, after: Audit) -> Cards:
    """Return the figures that matter most."""
    gap = before.intervals.get("gap")
    ends = f"95 % interval {points(gap.low)} to {points(gap.high)}" if gap else ""
    ideal = f"a calibrated model of this size: {share(before.expected_if_calibrated)}"
    return Cards(
        (
            Card("it says", share(before.confidence), f"after: {share(after.confidence)}"),
            Card("it is right", share(before.accuracy), f"after: {share(after.accuracy)}"),
            Card("gap, in points", points(before.gap), ends),
            Card("calibration error, before", share(before.expected_calibration_error), ideal),
            Card(
                "calibration error, after",
                share(after.expected_calibration_error),
                f"a calibrated model of this size: {share(after.expected_if_calibrated)}",
            ),
        )
    )


def _both(view: View) -> Row:
    """Return the diagrams before and after."""
    return Row(
        (
            _diagram("As it came", view.before, view.name, "before"),
            _diagram("After calibration", view.after, view.name, "after"),
        )
    )


def _diagram(title: str, curve: ReliabilityCurve, of: str, kind: str) -> Figure:
    """Return one diagram with the histogram below it."""
    name = f"{title}, {of}"
    charts = (
        reliability_diagram(curve, f"Reliability diagram: {name}", kind),
        confidence_histogram(curve, f"Histogram of the confidence: {name}", kind),
    )
    lines = zip(
        curve.bins,
        curve.count,
        curve.confidence,
        curve.accuracy,
        curve.low,
        curve.high,
        strict=True,
    )
    rows = tuple(
        (
            f"{curve.edges[k]:.3f} to {curve.edges[k + 1]:.3f}",
            f"{count:,.0f}",
            share(says),
            share(right),
            f"{share(low)} to {share(high)}",
        )
        for k, count, says, right, low, high in lines
    )
    columns = ("bin of confidence", "rows", "says", "is right", "if calibrated")
    legend = (
        (kind, "right rows, and the curve"),
        (f"{kind} faint", "wrong rows"),
        *LEGEND,
    )
    table = Table(f"{name}: {curve.edges.size - 1} bins of equal width", columns, rows)
    return Figure(title, charts, _seen(curve, of), legend, table)


def _seen(curve: ReliabilityCurve, of: str) -> str:
    """Say what a diagram shows."""
    n_rows = curve.count.sum()
    is_off = (curve.accuracy < curve.low) | (curve.accuracy > curve.high)
    where = f"{of[0].upper()}{of[1:]} ({counted(round(n_rows))})"
    if not is_off.any():
        return f"{where}: every bin is where chance may put a calibrated model."
    below = int((curve.accuracy < curve.low).sum())
    above = int(is_off.sum()) - below
    parts = [f"{below} say too much"] * bool(below) + [f"{above} say too little"] * bool(above)
    bins = counted(curve.count.size, "bin")
    return f"{where}: of {bins}, {' and '.join(parts)} by more than chance."


def figures(summary: Summary) -> Section:
    """Return the table of figures before and after, and what a calibrated model would show."""
    before, after = summary.audit_before, summary.audit_after
    bins = f"({before.n_bins} bins of equal width)"
    lines = (
        ("accuracy", "accuracy", ""),
        ("mean confidence", "confidence", figure(after.accuracy)),
        ("confidence less accuracy", "gap", "0"),
        ("log loss", "log_loss", figure(after.entropy)),
        (
            "Brier score",
            "brier_score",
            figure(None if after.sharpness is None else 1 - after.sharpness),
        ),
        (
            f"calibration error, ECE {bins}",
            "expected_calibration_error",
            figure(after.expected_if_calibrated),
        ),
        (f"ECE without the part of chance {bins}", "debiased_calibration_error", "0"),
        ("smooth calibration error", "smooth_calibration_error", ""),
        (f"class-wise calibration error {bins}", "classwise_calibration_error", ""),
        (f"largest gap of any bin {bins}", "maximum_calibration_error", ""),
        ("AURC, mean risk over coverage", "area_under_risk_coverage", ""),
        ("AUGRC", "area_under_generalized_risk_coverage", ""),
        ("AUROC of own errors (0.5 is guessing)", "auroc_of_errors", ""),
    )
    rows = [
        (name, _told(before, key), _told(after, key), ideal)
        for name, key, ideal in lines
        if getattr(before, key) is not None
    ]
    p_values = (chance(before.calibration_p_value), chance(after.calibration_p_value))
    rows.append(("p-value of “the confidence is true”", *p_values, "> 0.05, 19 times in 20"))
    columns = ("figure", "before", "after, out of sample", "a calibrated model")
    caption = f"{before.n_rows:,} rows; 95 % bootstrap intervals in brackets, where there are any"
    notes = [Text(summary.mended.how)]
    if any(_is_near_zero(one) for one in (before, after)):
        notes.append(Text(NEAR_ZERO))
    if before.n_missing:
        notes.append(Text(f"{counted(before.n_missing)} without a label left out."))
    if summary.whole.n_rows != before.n_rows:
        notes.append(
            Text(
                f"The verdict is on all {summary.whole.n_rows:,} rows; everything that needs rows "
                f"is of a seeded sample of {before.n_rows:,} of them."
            )
        )
    return Section("figures", "Figures", (*notes, Table(caption, columns, tuple(rows))))


def _is_near_zero(audit: Audit) -> bool:
    """Return whether the calibration error may be chance alone, which a bootstrap doubles."""
    has_interval = "expected_calibration_error" in audit.intervals
    return has_interval and audit.expected_calibration_error < 2 * audit.expected_if_calibrated


def _told(audit: Audit, key: str) -> str:
    """Return a figure of an audit with its interval; an infinite log loss says why."""
    if key == "log_loss" and audit.n_impossible:
        return f"infinite: {counted(audit.n_impossible)} at probability 0"
    return with_interval(getattr(audit, key), audit.intervals.get(key))


def leaderboard(summary: Summary) -> Section:
    """Return what each calibrator achieved."""
    mended = summary.mended
    if not mended.leaderboard:
        return Section("calibrators", "Calibrators", (Text(mended.how),))
    rows = tuple(
        (
            str(line["name"]),
            figure(line["log_loss"]),
            _between(line["log_loss"], REACH * line["standard_error"]),
            "all of them" if line["weight"] is None else share(line["weight"]),
        )
        for line in mended.leaderboard
    )
    columns = (
        "calibrator",
        "log loss, cross-fitted",
        "95\u00a0% interval",
        "share of what is used",
    )
    words = (
        f"Chosen: {mended.chosen}. Lower log loss is better; “IdentityCalibrator()” is what every calibrator "
        "must beat."
    )
    table = Table("Best first; every log loss is of rows the calibrator did not see", columns, rows)
    return Section("calibrators", "Calibrators", (Text(words), table))


def _between(middle: float, reach: float) -> str:
    """Return an interval by its middle.

    >>> _between(0.5, 0.1)
    '0.4000 to 0.6000'
    """
    return f"{figure(middle - reach)} to {figure(middle + reach)}"

"""An audit as text: the verdict first, then metrics, then a terminal chart."""

from __future__ import annotations

from math import exp, log
from typing import TYPE_CHECKING

from dubito.charts import Axis, Bars, Chart, Line, Points, draw_text
from dubito.measure.calibration_error import ReliabilityCurve

if TYPE_CHECKING:
    from dubito.measure.audit import Audit, ClassReport


MOST_CLASSES = 10
FEWEST_ROWS = 20
CLEAR = 0.001  # p-value below which confidence is called false
LEAST = 1e-12  # probability, so that rounding alone is never evidence


def verdict_on(audit: Audit) -> str:
    """Say in a sentence or two what the figures mean; the calibration test decides."""
    said = f"It says {audit.confidence:.1%} and is right {audit.accuracy:.1%} of the time"
    if audit.n_effective < FEWEST_ROWS:
        return f"Too few rows to tell ({_worth(audit)}). {said}."
    if audit.calibration_p_value >= CLEAR:
        one = class_said_wrongly(audit)
        if one is not None:
            return (
                f"Wrong by class. {said}, but calls {one.probability:.1%} '{one.name}' where "
                f"{one.frequency:.1%} are."
            )
        return f"No sign of false confidence on {_worth(audit)}. {said}."
    if abs(audit.gap) > 2 * audit.gap_if_calibrated:
        is_over = audit.gap > 0
        name, how = ("Over-confident", "sure") if is_over else ("Under-confident", "modest")
        return f"{name}. {said}: {abs(audit.gap) * 100:.1f} points too {how}{_margin(audit)}."
    return (
        f"Wrong in places. {said}, but single confidences are off by "
        f"{audit.expected_calibration_error * 100:.1f} points on average, some too high, "
        "some too low."
    )


def class_said_wrongly(audit: Audit) -> ClassReport | None:
    """Return the class whose mean probability is furthest from its frequency, beyond chance.

    Errors of two classes may cancel in the confidence of top labels; here they do not. Sums of
    independent outcomes stray no further than this bound, however rare a class: Hoeffding, 1963.
    """
    found = []
    for one in audit.classes:
        true, says = one.frequency, min(max(one.probability, LEAST), 1 - LEAST)
        divergence = _relative_entropy(true, says) + _relative_entropy(1 - true, 1 - says)
        if 2 * len(audit.classes) * exp(-audit.n_effective * divergence) < CLEAR:
            found.append((one.probability - one.frequency, one))
    # Of two classes one is said as much too often as the other too rarely: the former is told.
    return max(found, key=lambda pair: (round(abs(pair[0]), 9), pair[0]))[1] if found else None


def _relative_entropy(observed: float, stated: float) -> float:
    """Return one term of the Kullback-Leibler divergence; 0 for a frequency of 0."""
    return observed * log(observed / stated) if observed > 0 else 0.0


def _margin(audit: Audit) -> str:
    """Return the interval of the gap in points, counted in its own direction."""
    between = audit.intervals.get("gap")
    if between is None:
        return ""
    sign = 1 if audit.gap > 0 else -1
    low, high = sorted([sign * between.low * 100, sign * between.high * 100])
    return f" (95 % interval {low:.1f} to {high:.1f})"


def _worth(audit: Audit) -> str:
    """Return how many rows there are, and how many they are worth where weights make it fewer."""
    rows = _count(audit.n_rows, "row")
    if audit.n_effective < 0.95 * audit.n_rows:
        return f"{rows}, worth {audit.n_effective:,.0f} by their weights"
    return rows


def audit_lines(audit: Audit) -> list[str]:
    """Tell an audit line by line, in 80 columns."""
    lines = [*_wrapped(audit.verdict), "", _size(audit), "", *_figure_lines(audit), ""]
    lines += draw_text(reliability_chart(audit.curve))
    if audit.classes:
        lines += ["", *_class_lines(audit)]
    if audit.groups:
        lines += ["", *_group_lines(audit)]
    return lines


def _wrapped(text: str) -> list[str]:
    """Break a text into lines of 80 columns."""
    from textwrap import wrap

    return wrap(text, 80)


def _size(audit: Audit) -> str:
    """Say how much was looked at, and what was left out."""
    classes = "" if audit.n_classes is None else f", {audit.n_classes:,} classes"
    missing = f"; {audit.n_missing:,} more without a label left out" if audit.n_missing else ""
    return f"{_worth(audit)}{classes}{missing}"


def _count(number: int, what: str) -> str:
    """Return a number and what it counts, in the plural where it should be.

    >>> _count(1, "row"), _count(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _figure_lines(audit: Audit) -> list[str]:
    """Tell each known figure, its interval, and what to hold it against."""
    bins = f"({audit.n_bins} uniform bins)"
    if audit.n_impossible:
        loss_note = f"{_count(audit.n_impossible, 'row')} at probability 0"
    elif audit.entropy is not None:
        loss_note = f"{audit.entropy:.4f} if calibrated"
    else:
        loss_note = ""
    brier_note = "" if audit.sharpness is None else f"{1 - audit.sharpness:.4f} if calibrated"
    error_note = f"{audit.expected_if_calibrated:.4f} if calibrated"
    figures: list[tuple[str, str, float | None, str]] = [
        ("accuracy", "accuracy", audit.accuracy, ""),
        ("mean confidence", "confidence", audit.confidence, ""),
        ("log loss", "log_loss", audit.log_loss, loss_note),
        ("Brier score", "brier_score", audit.brier_score, brier_note),
        (f"ECE {bins}", "expected_calibration_error", audit.expected_calibration_error, error_note),
        (
            "  debiased, same bins",
            "debiased_calibration_error",
            audit.debiased_calibration_error,
            "",
        ),
        ("  smooth", "", audit.smooth_calibration_error, ""),
        ("  class-wise, same bins", "", audit.classwise_calibration_error, ""),
        ("  largest, same bins", "", audit.maximum_calibration_error, ""),
        ("p-value, if calibrated", "", audit.calibration_p_value, ""),
        ("AURC", "", audit.area_under_risk_coverage, "mean risk over coverage"),
        ("AUGRC", "", audit.area_under_generalized_risk_coverage, "half the error if guessing"),
        ("AUROC of own errors", "", audit.auroc_of_errors, "0.5 is guessing"),
        ("FPR95 of own errors", "", audit.false_positive_rate_of_errors, "0.95 is guessing"),
    ]
    has_intervals = bool(audit.intervals)
    lines = [f"  {'':<23} {'value':>7}  {'95 % interval' if has_intervals else ''}".rstrip()]
    for name, key, value, note in figures:
        if value is None:
            continue
        between = audit.intervals.get(key)
        interval = f"{between.low:.4f} to {between.high:.4f}" if between else ""
        is_tiny = name.startswith("p-value") and value < 0.00005
        shown = "<0.0001" if is_tiny else f"{value:.4f}"
        columns = f"{interval:<17}  {note}" if has_intervals else note
        lines.append(f"  {name:<23} {shown:>7}  {columns}".rstrip())
    return lines


def reliability_chart(
    curve: ReliabilityCurve,
    title: str = "Reliability diagram",
    style: str = "model",
    label: str = "",
) -> Chart:
    """Return accuracy over confidence per bin, with the range of a calibrated model."""
    hints = tuple(
        f"confidence {100 * confidence:.1f}\u00a0%, accuracy {100 * accuracy:.1f}\u00a0% "
        f"({count:,.0f} rows; calibrated: {100 * low:.1f} to {100 * high:.1f}\u00a0%)"
        for confidence, accuracy, count, low, high in zip(
            curve.confidence, curve.accuracy, curve.count, curve.low, curve.high, strict=True
        )
    )
    band = "95 % range of a calibrated model"
    left, right = curve.edges[curve.bins], curve.edges[curve.bins + 1]
    marks = (
        Bars(left, right, curve.high, "band", band, low=curve.low),
        Line([0.0, 1.0], [0.0, 1.0], "reference", "calibrated"),
        Line(curve.confidence, curve.accuracy, style, label),
        Points(curve.confidence, curve.accuracy, style, count=curve.count, hints=hints),
    )
    return Chart(title, Axis(0, 1, "Confidence"), Axis(0, 1, "Accuracy"), marks)


def _class_lines(audit: Audit) -> list[str]:
    """Tell of each class how often it was said and how often it was, the worst first."""
    ranked = sorted(audit.classes, key=lambda one: one.calibration_error, reverse=True)
    shown = ranked[:MOST_CLASSES]
    title = "class" if len(shown) == len(ranked) else f"class (worst {MOST_CLASSES})"
    lines = [f"  {title:<22} {'says':>7} {'is':>7} {'ECE':>8}  ({audit.n_bins} uniform bins)"]
    for one in shown:
        name = str(one.name)[:22]
        says, true = f"{one.probability:.1%}", f"{one.frequency:.1%}"
        lines.append(f"  {name:<22} {says:>7} {true:>7} {one.calibration_error:>8.4f}")
    return lines


def _group_lines(audit: Audit) -> list[str]:
    """Tell of the worst groups what they say and how often they are right."""
    worst = sorted(audit.groups.items(), key=lambda pair: -abs(pair[1].gap))[:MOST_CLASSES]
    lines = [
        f"  {'group':<22} {'rows':>9} {'says':>7} {'right':>7} {'ECE':>8} {'if calibrated':>14}"
    ]
    for name, one in worst:
        error, expected = one.expected_calibration_error, one.expected_if_calibrated
        lines.append(
            f"  {name[:22]:<22} {one.n_rows:>9,} {one.confidence:>7.1%} {one.accuracy:>7.1%} "
            f"{error:>8.4f} {expected:>14.4f}"
        )
    return lines

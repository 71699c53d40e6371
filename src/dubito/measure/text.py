"""An audit as text: the verdict, the metrics with intervals, and a reliability diagram."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log
from typing import TYPE_CHECKING, Any

from dubito.charts import Axis, Bars, Chart, Line, Points, draw_text
from dubito.formatting import (
    HTMLTable,
    html_view,
    number_format,
    percent,
    printable,
    quantity,
    wrapped,
)
from dubito.measure.calibration_error import ReliabilityCurve
from dubito.measure.groups import AREAS, MIN_ROWS, TITLES, GroupComparison
from dubito.measure.intervals import Interval

if TYPE_CHECKING:
    from dubito.measure.audit import Audit, ClassReport
    from dubito.measure.binary import BinaryAudit


MAX_CLASSES = 10
MAX_GROUPS = 30  # in a notebook
N_COLUMNS = 4
GROUP_HEADS = {  # of the columns, which are narrow; average precision is left out
    **{name: title for name, title in TITLES.items() if name != "average_precision"},
    "false_positive_rate": "FPR",
    "false_negative_rate": "FNR",
    "positive_gap": "gap",
}
ALPHA = 0.001  # p-value below which confidence is called miscalibrated
WEAK = 0.05  # p-value below which there is weak evidence
MIN_PROBABILITY = 1e-12  # so that rounding alone is never evidence


def verdict_on(audit: Audit) -> str:
    """Return the verdict in one sentence; the calibration test decides.

    For two classes, it is about the probability of the positive one.
    """
    if audit.positive is not None:
        return _verdict_on_positives(audit, audit.positive)
    both = f"mean confidence {percent(audit.confidence)}, accuracy {percent(audit.accuracy)}"
    if audit.n_effective < MIN_ROWS:
        return f"Too few rows for a verdict ({_rows(audit)}): {both}."
    if audit.calibration_p_value >= ALPHA:
        one = miscalibrated_class(audit)
        if one is not None:
            return (
                f"Miscalibrated by class: {both}, but class '{one.name}' has mean probability "
                f"{percent(one.probability)} and observed frequency {percent(one.frequency)}."
            )
        return f"{_no_strong_evidence(audit.calibration_p_value)} on {_rows(audit)}: {both}."
    if abs(audit.gap) > 2 * audit.gap_if_calibrated:
        name = "Over-confident" if audit.gap > 0 else "Under-confident"
        return f"{name}: {both}{_gap(audit)}."
    return (
        f"Miscalibrated in places: {both}, but confidence and accuracy differ by "
        f"{audit.expected_calibration_error * 100:.1f} points on average within bins, in both "
        "directions."
    )


def _no_strong_evidence(p_value: float, of: str = "") -> str:
    """Return what a p-value above `ALPHA` says."""
    if p_value < WEAK:
        return f"Weak evidence of miscalibration{of} (p = {p_value:.2g})"
    return f"No sign of miscalibration{of}"


def _verdict_on_positives(audit: Audit, positive: BinaryAudit) -> str:
    """Return the verdict on the probability of the positive class."""
    name = f"P({positive.pos_label})"
    mean, observed = map(_fine_percent, (positive.mean_probability, positive.base_rate))
    both = f"mean {mean}, observed frequency {observed}"
    if audit.n_effective < MIN_ROWS:
        return f"Too few rows for a verdict on {name} ({_rows(audit)}): {both}."
    p_value, gap = positive.calibration_p_value, positive.intervals["gap"]
    shift, slope = (positive.intervals.get(f"calibration_{k}") for k in ("intercept", "slope"))
    if p_value >= ALPHA:
        evidence = _no_strong_evidence(p_value, f" of {name}")
        for one, known, wanted in (("-in-the-large", shift, 0), (" slope", slope, 1)):
            if p_value >= WEAK and known is not None and not known.low <= wanted <= known.high:
                evidence = f"Weak evidence of miscalibration of {name} (calibration{one} "
                evidence += f"{known.value:.2f}, {known.low:.2f} to {known.high:.2f})"
        return f"{evidence} on {_rows(audit)}: {both}."
    if slope is not None and slope.high < 0:
        return (
            f"{name} ranks the classes backwards (calibration slope {slope.value:.2f}). Check that "
            f"the column is {name} and not P({_other_class(audit, positive)})."
        )
    faults = []
    if gap.low > 0 or gap.high < 0:
        faults.append("too high" if gap.low > 0 else "too low")
    steepness = "" if slope is None else f"calibration slope {slope.value:.2f} (1 if calibrated), "
    if slope is None and 0 < positive.base_rate < 1:
        faults.append("not extreme enough")
    elif slope is not None and (slope.high < 1 or slope.low > 1):
        faults.append("too extreme" if slope.high < 1 else "not extreme enough")
    return f"{name} is {' and '.join(faults) or 'miscalibrated'}: {steepness}{both}."


def miscalibrated_class(audit: Audit) -> ClassReport | None:
    """Return the class whose mean probability is furthest from its frequency, beyond chance.

    Errors of two classes may cancel in the top-label confidence, but not here. The bound holds for
    sums of independent outcomes, however rare a class is: Hoeffding, 1963.
    """
    found = []
    for one in audit.classes:
        observed = one.frequency
        stated = min(max(one.probability, MIN_PROBABILITY), 1 - MIN_PROBABILITY)
        divergence = _relative_entropy(observed, stated)
        divergence += _relative_entropy(1 - observed, 1 - stated)
        if 2 * len(audit.classes) * exp(-audit.n_effective * divergence) < ALPHA:
            found.append((one.probability - one.frequency, one))
    # Of two classes, one is predicted as much too often as the other too rarely: take the former.
    return max(found, key=lambda pair: (round(abs(pair[0]), 9), pair[0]))[1] if found else None


def _relative_entropy(observed: float, stated: float) -> float:
    """Return one term of the Kullback-Leibler divergence; 0 for a frequency of 0."""
    return observed * log(observed / stated) if observed > 0 else 0.0


def _gap(audit: Audit) -> str:
    """Return the gap in points with its interval, counted in its own direction."""
    sign = 1 if audit.gap > 0 else -1
    text = f"gap {sign * audit.gap * 100:.1f} points"
    if (interval := audit.intervals.get("gap")) is None:
        return f" ({text})"
    low, high = sorted([sign * interval.low * 100, sign * interval.high * 100])
    return f" ({text}, 95 % interval {low:.1f} to {high:.1f})"


def _rows(audit: Audit) -> str:
    """Return the number of rows, and how many they stand for where weights make a difference."""
    rows = quantity(audit.n_rows, "row")
    if abs(audit.n_effective - audit.n_rows) > 0.05 * audit.n_rows:
        return f"{rows}, effectively {audit.n_effective:,.0f} by weight"
    return rows


def audit_lines(audit: Audit) -> list[str]:
    """Return an audit as lines of at most 80 columns, as far as names allow."""
    lines = [*wrapped(audit.verdict, 80), "", _size(audit), ""]
    if audit.positive is not None:
        lines += _positive_lines(audit.positive, _other_class(audit, audit.positive))
        lines += ["", "  The more probable class of the two:"]
    lines.append(f"  {'':<22} {'value':>7} {'95 % interval' if audit.intervals else ''}".rstrip())
    for name, text, interval, note in _metric_cells(audit):
        columns = f"{interval:<16}  {note}" if audit.intervals else f" {note}"
        lines.append(f"  {name:<22} {text:>7} {columns}".rstrip())
    lines += ["", *draw_text(reliability_chart(audit.curve))]
    if audit.classes:
        lines += ["", *_class_lines(audit)]
    if audit.group_comparison is not None:
        lines += ["", *group_lines(audit, audit.group_comparison)]
    return lines


def audit_html(audit: Audit) -> str:
    """Return an audit for notebooks: the verdict, the metrics, then bins, classes and groups."""
    head = ("value", "95 % interval", "")
    metrics = HTMLTable(("metric", *head), _metric_cells(audit))
    parts: list[str | HTMLTable] = [_size(audit)]
    if (positive := audit.positive) is None:
        parts += [metrics, _bin_table(audit.curve, "confidence", "accuracy")]
    else:
        name = f"P({positive.pos_label})"
        parts += [
            HTMLTable((name, *head), _positive_cells(positive)),
            _confusion_table(positive, _other_class(audit, positive)),
            _bin_table(positive.curve, name, "observed frequency"),
            metrics._replace(folded="The more probable class of the two"),
        ]
    if audit.classes:
        rows, n_classes = _class_cells(audit), len(audit.classes)
        heads = ("class", "mean probability", "frequency", f"ECE ({audit.n_bins} uniform bins)")
        which = "Classes" if len(rows) == n_classes else f"Worst {MAX_CLASSES} of {n_classes:,}"
        parts.append(HTMLTable(heads, rows, f"{which}, by calibration error"))
    parts += group_tables(audit.groups, MAX_GROUPS)
    return html_view(audit.verdict, *parts)


def group_tables(groups: Mapping[str, Any], most: int | None = None) -> list[HTMLTable]:
    """Return a table of the verdict on each group, of at most so many; none without groups."""
    rows = [(name, f"{one.n_rows:,}", one.verdict) for name, one in groups.items()]
    heads = ("group", "rows", "verdict")
    return [HTMLTable(heads, rows[:most], quantity(len(rows), "group"))] if rows else []


def _bin_table(curve: ReliabilityCurve, name: str, observed: str) -> HTMLTable:
    """Return probability and frequency per bin, with the range of a calibrated model."""
    heads = (f"mean {name}", observed, "95 % range if calibrated", "rows")
    return HTMLTable(heads, _bin_cells(curve), "Reliability by bin")


def _bin_cells(curve: ReliabilityCurve) -> list[tuple[str, str, str, str]]:
    """Return probability, frequency, range if calibrated and rows of each bin as text."""
    ends = zip(*(map(_fine_percent, one) for one in (curve.low, curve.high)), strict=True)
    means, seen = (map(_fine_percent, one) for one in (curve.confidence, curve.accuracy))
    columns = (means, seen, map(" to ".join, ends), (f"{n:,.0f}" for n in curve.count))
    return list(zip(*columns, strict=True))


def _confusion_table(positive: BinaryAudit, other: str) -> HTMLTable:
    """Return the confusion matrix at the operating point."""
    point, name = positive.operating_point, str(positive.pos_label)
    rows = [
        (f"true {name}", f"{point.true_positive:,.0f}", f"{point.false_negative:,.0f}"),
        (f"true {other}", f"{point.false_positive:,.0f}", f"{point.true_negative:,.0f}"),
    ]
    heads = ("", f"predicted {name}", f"predicted {other}")
    return HTMLTable(heads, rows, f"Confusion matrix: {prediction_rule(positive)}")


def _other_class(audit: Audit, positive: BinaryAudit) -> str:
    """Return the name of the class that is not positive."""
    names = [str(one.name) for one in audit.classes if one.name != positive.pos_label]
    return names[0] if names else "other"


def _size(audit: Audit) -> str:
    """Return the numbers of rows and classes, and of rows left out."""
    classes = "" if audit.n_classes is None else f", {audit.n_classes:,} classes"
    missing = f"; {quantity(audit.n_missing, 'unlabeled row')} left out" if audit.n_missing else ""
    return f"{_rows(audit)}{classes}{missing}"


def _metric_cells(audit: Audit) -> list[tuple[str, str, str, str]]:
    """Return name, value, interval and reference value of each known metric as text."""
    n_impossible = audit.n_impossible
    loss_note = f"{quantity(n_impossible, 'row')} at probability 0" if n_impossible else ""
    expected = f"{audit.expected_if_calibrated:.4f} expected if calibrated"
    ece, debiased = "expected_calibration_error", "debiased_calibration_error"
    metrics: list[tuple[str, str, float | None, str]] = [
        ("accuracy", "accuracy", audit.accuracy, ""),
        ("mean confidence", "confidence", audit.confidence, ""),
        ("log loss", "log_loss", audit.log_loss, loss_note),
        ("Brier score", "brier_score", audit.brier_score, ""),
        (f"ECE ({audit.n_bins} uniform bins)", ece, audit.expected_calibration_error, expected),
        ("  debiased, same bins", debiased, audit.debiased_calibration_error, ""),
        ("  classwise, same bins", "", audit.classwise_calibration_error, ""),
        ("  maximum, same bins", "", audit.maximum_calibration_error, ""),
        ("  smooth, no bins", "", audit.smooth_calibration_error, ""),
        ("calibration p-value", "", audit.calibration_p_value, ""),
        ("AURC", "", audit.area_under_risk_coverage, "mean risk over coverages"),
        ("AUGRC", "", audit.area_under_generalized_risk_coverage, "error rate / 2 if random"),
        ("error detection AUROC", "", audit.error_detection_auroc, "0.5 if random"),
        ("error detection FPR95", "", audit.error_detection_fpr95, "0.95 if random"),
    ]
    cells = []
    for name, key, value, note in metrics:
        if value is None:
            continue
        is_tiny = name == "calibration p-value" and value < 0.00005
        text = "<0.0001" if is_tiny else f"{value:.4f}"
        cells.append((name, text, ends_text(audit.intervals.get(key)), note))
    return cells


def _positive_cells(positive: BinaryAudit) -> list[tuple[str, str, str, str]]:
    """Return name, value, interval and reference value of each metric of the positive class."""
    n_bins, strategy = positive.curve.bins.size, positive.bin_strategy
    metrics = (
        ("base rate", "base_rate", ""),
        ("mean probability", "mean_probability", ""),
        ("calibration slope", "calibration_slope", "1 if calibrated"),
        ("calibration-in-the-large", "calibration_intercept", "0 if calibrated (slope 1)"),
        ("ROC-AUC", "roc_auc", "0.5 if random"),
        ("average precision", "average_precision", f"{positive.base_rate:.4f} if random"),
        ("Brier skill score", "brier_skill_score", "0 for the base rate alone"),
        (f"ECE ({quantity(n_bins, f'{strategy} bin')})", "expected_calibration_error", ""),
    )
    return [
        (name, f"{value:z.4f}", ends_text(positive.intervals.get(key)), note)
        for name, key, note in metrics
        if (value := getattr(positive, key)) is not None
    ]


def _positive_lines(positive: BinaryAudit, other: str) -> list[str]:
    """Return the metrics of the positive class, its reliability, and its gains by decile."""
    lines = [f"  {f'P({positive.pos_label})'[:24]:<24} {'value':>7} 95 % interval"]
    for name, value, interval, note in _positive_cells(positive):
        lines.append(f"  {name:<24} {value:>7} {interval:<18}  {note}".rstrip())
    if (saturated := positive.saturated_fraction) > 0:
        clipped = "depend on how these are clipped, at 1e-12"
        how, fraction = clipped if saturated == 1 else "leave them out", _fine_percent(saturated)
        note = f"{fraction} of the probabilities are exactly 0 or 1: slope and intercept {how}."
        lines += [f"  {line}" for line in wrapped(f"{note} Write more digits.", 78)]
    lines += ["", *_confusion_lines(positive, other), ""]
    lines.append(f"  {'probability':>11} {'frequency':>10} {'if calibrated':>20} {'rows':>9}")
    curve = positive.curve
    is_inside = (curve.low <= curve.accuracy) & (curve.accuracy <= curve.high)
    for (mean, seen, expected, count), inside in zip(_bin_cells(curve), is_inside, strict=True):
        mark = "" if inside else "  *"
        lines.append(f"  {mean:>11} {seen:>10} {expected:>20} {count:>9}{mark}")
    if any(line.endswith("*") for line in lines):
        lines.append("  * outside the range of a calibrated model, as 1 bin in 20 is by chance")
    if positive.base_rate > 0 and positive.deciles[0].fraction < 1:
        lines += ["", f"  {'top rows':>11} {'p at least':>10} {'recall':>20} {'decile lift':>12}"]
        lines += [
            f"  {percent(one.fraction):>11} {one.threshold:>10.3g} {percent(one.recall):>20} "
            f"{one.lift:>12.2f}"
            for one in positive.deciles
        ]
    return lines


def _fine_percent(value: float) -> str:
    """Return a fraction in percent, with two significant digits if it is small.

    >>> _fine_percent(0.0146), _fine_percent(0.0000123), _fine_percent(0)
    ('1.46 %', '0.0012 %', '0.00 %')
    """
    return f"{value * 100:.2g} %" if 0 < value < 0.0005 else percent(value, 2)


def _confusion_lines(positive: BinaryAudit, other: str) -> list[str]:
    """Return the confusion matrix at the operating point, with precision and recall."""
    point = positive.operating_point
    name, other = (printable(one)[:16] for one in (str(positive.pos_label), other))
    return [
        f"  Confusion matrix, {prediction_rule(positive)}:",
        f"  {'':<21} {f'predicted {name}':>26} {f'predicted {other}':>26}",
        f"  {f'true {name}':<21} {point.true_positive:>26,.0f} {point.false_negative:>26,.0f}",
        f"  {f'true {other}':<21} {point.false_positive:>26,.0f} {point.true_negative:>26,.0f}",
        *(
            f"  {title:<24} {between.value:>z7.4f} {ends_text(between)}"
            for title in ("precision", "recall")
            if (between := positive.intervals.get(title)) is not None
        ),
    ]


def reliability_chart(
    curve: ReliabilityCurve,
    title: str = "Reliability diagram",
    style: str = "model",
    label: str = "",
) -> Chart:
    """Return accuracy over confidence per bin, with the range of a calibrated model."""
    hints = tuple(
        f"confidence {percent(confidence)}, accuracy {percent(accuracy)} "
        f"({count:,.0f} rows; calibrated: {percent(low)} to {percent(high)})"
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


def _class_cells(audit: Audit) -> list[tuple[str, str, str, str]]:
    """Return name, mean probability, frequency and ECE of the worst classes, the worst first."""
    ranked = sorted(audit.classes, key=lambda one: one.calibration_error, reverse=True)
    return [
        (f"{c.name}", percent(c.probability), percent(c.frequency), f"{c.calibration_error:.4f}")
        for c in ranked[:MAX_CLASSES]
    ]


def _class_lines(audit: Audit) -> list[str]:
    """Return mean probability, observed frequency and ECE of each class, the worst first."""
    cells = _class_cells(audit)
    title = "class" if len(cells) == len(audit.classes) else f"class (worst {MAX_CLASSES})"
    lines = [
        f"  {title:<20} {'probability':>11} {'observed frequency':>18} {'ECE':>7}"
        f"  ({audit.n_bins} uniform bins)"
    ]
    return lines + [
        f"  {printable(name)[:20]:<20} {probability:>11} {frequency:>18} {error:>7}"
        for name, probability, frequency, error in cells
    ]


def group_lines(audit: Audit, comparison: GroupComparison) -> list[str]:
    """Return the metrics of groups with intervals, and the largest differences between them."""
    lines = []
    if comparison.metrics:
        n_groups = quantity(len(comparison.metrics), "group")
        about = f"; {prediction_rule(audit.positive)}" if audit.positive is not None else ""
        lines += wrapped(f"Groups{about}; 95 % intervals that hold for {n_groups} at once", 80)
    ranked = sorted(comparison.metrics, key=lambda name: -audit.groups[name].n_effective)
    left_out, shown = len(ranked[MAX_CLASSES:]), ranked[:MAX_CLASSES]
    names = [name for name in GROUP_HEADS if any(name in comparison.metrics[g] for g in shown)]
    for start in range(0, len(names), N_COLUMNS):
        columns = names[start : start + N_COLUMNS]
        lines += ["", f"  {'group':<18}" + "".join(f"{GROUP_HEADS[name]:>15}" for name in columns)]
        for group in shown:
            found = comparison.metrics[group]
            cells = [figure_texts(found[n], n) if n in found else ("-", "") for n in columns]
            values, ends = ("".join(f"{cell[k]:>15}" for cell in cells) for k in (0, 1))
            lines.append(f"  {printable(group)[:18]:<18}{values}")
            rows = quantity(audit.groups[group].n_rows, "row")
            lines.append(f"    {rows:<16}{ends}".rstrip())
    if left_out:
        lines += ["", f"  {quantity(left_out, 'smaller group')} not shown."]
    if comparison.disparities:
        lines += ["", "  Largest differences, with intervals that hold for all pairs at once:"]
        for name, one in comparison.disparities.items():
            value, ends = figure_texts(one.interval, name, "points")
            mark = " *" if one.interval.low > 0 else ""
            pair = f"{printable(one.highest)[:14]} - {printable(one.lowest)[:14]}"
            lines.append(f"  {TITLES[name]:<20}{value:>12} {f'({ends})':<18} {pair}{mark}")
        if any(line.endswith(" *") for line in lines):
            lines.append("  * beyond chance: the interval excludes 0")
    if few := sorted(comparison.too_few_rows):
        names = [printable(name) for name in few[:MAX_CLASSES]] + ["..."] * (len(few) > MAX_CLASSES)
        text = f"  Groups with fewer than {MIN_ROWS} rows, not compared: {', '.join(names)}."
        lines += ["", *wrapped(text, 80)]
    return lines


def prediction_rule(positive: BinaryAudit) -> str:
    """Return where rows are predicted positive."""
    threshold, name = positive.operating_point.threshold, printable(str(positive.pos_label))
    if threshold is not None:
        return f"class {name} predicted where P({name}) >= {threshold:g}"
    if name == "correct":
        return "a row counts as predicted correct if answering has the lowest expected cost"
    return f"class {name} predicted where its action has the lowest expected cost"


def ends_text(interval: Interval | None, spec: str = "z.4f") -> str:
    """Return the ends of an interval as text, empty if there is none."""
    return "" if interval is None else f"{interval.low:{spec}} to {interval.high:{spec}}"


def figure_texts(interval: Interval, name: str, unit: str = "%") -> tuple[str, str]:
    """Return a figure of a group and its interval, most of them in percent.

    >>> figure_texts(Interval(0.25, 0.2, 0.3), "precision")
    ('25.0 %', '20.0 to 30.0')
    """
    value, low, high = interval.value, interval.low, interval.high
    if name in (*AREAS, "mean_cost"):
        is_short = name in AREAS or 0.1 <= max(abs(low), abs(high)) < 10  # to fit in a column
        spec = "z.3f" if is_short else f"z{number_format(value, low, high)}"
        return f"{value:{spec}}", ends_text(interval, spec)
    return f"{value * 100:z.1f} {unit}", f"{low * 100:z.1f} to {high * 100:z.1f}"

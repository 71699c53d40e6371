"""The verdict of a report: how the confidence is off, what corrects it, and what reviews find."""

from __future__ import annotations

import re

import numpy as np

from dubito.decide import CostReport, Policy, PolicyReport
from dubito.decide.actions import action_intervals
from dubito.decide.policy.explanation import typical_policy
from dubito.formatting import decimal, join_words, percent
from dubito.measure import BinaryAudit, RiskCoverageCurve
from dubito.measure.calibration_error import ReliabilityState
from dubito.measure.detection import RankingState
from dubito.measure.text import miscalibrated_class
from dubito.outputs import Logits
from dubito.report.content import Verdict
from dubito.report.sample import class_names
from dubito.report.summary import Summary

ALPHA = 0.001  # p-value below which confidence is called miscalibrated, as in an audit


def classifier_verdict(summary: Summary) -> Verdict:
    """Return the decision and its cost, the verdict of the audit, and what calibration achieves.

    Without costs, the audit comes first, and what reviews find last.
    """
    headline, mood, sentences = split_verdict(summary.whole.verdict)
    if not headline.startswith("Too few"):
        if mood == "bad":
            sentences = (f"{sentences[0]} Measured on {summary.whole.n_rows:,} rows.",)
        more = [_calibration_sentence(summary)]
        if summary.costs is None:
            more.append(_review_sentence(summary))
        sentences = (*sentences, *filter(None, more))
    found = summary.policy_report or (None if summary.costs is None else summary.cost_report)
    if found is None:
        return Verdict(headline, sentences, mood)
    paid = found.cost if isinstance(found, PolicyReport) else found.realized
    decision = _decision_headline(summary) or f"Decisions cost {decimal(paid.value)} per row."
    cost, *_ = decision_lines(found)
    return Verdict(decision, (cost, " ".join([headline, *sentences])), mood)


def decision_lines(report: PolicyReport | CostReport) -> list[str]:
    """Return what decisions cost, as sentences: the cost and what it saves first."""
    if isinstance(report, CostReport):
        cost, expected, saved, *rest = str(report).splitlines()
        return [f"{cost} {saved}", expected, *rest]
    cost, *lines = (line for line in report.lines if not line.startswith(("  ", "Of ")))  # a table
    today = f"{report.current[0].upper()}{report.current[1:]}"
    about = [line for line in lines if line.startswith(today)]
    others = [line for line in lines if line not in about]
    return [" ".join([cost, *about]), *others, *report.notes]


def _decision_headline(summary: Summary) -> str:
    """Return from which probability on each action is taken; nothing unless by thresholds.

    Where costs differ by row, it is about a row with the medians of their columns.
    """
    rows, policy, typical = summary.thresholds, summary.policy, ""
    classes = class_names(summary.after)
    if rows is not None:
        found, positive = action_intervals(rows.costs, rows.column), rows.classes[1]
    elif policy is not None and (median := typical_policy(policy)) is not None:
        found, positive = median.thresholds, classes[median.pos_column]
        medians = policy.provenance["medians"]
        values = [f"{name} {medians[name]:.4g}" for name in policy.costs.columns]
        typical = f"At the median {join_words(values)}: "
    else:
        return ""
    names = [f"predict {one.action}" if one.action in classes else one.action for one in found]
    start = f"at calibrated P({positive}) \N{GREATER-THAN OR EQUAL TO}"
    parts = []
    for name, one in zip(names[:0:-1], found[:0:-1], strict=True):
        parts.append(f"{name} {start} {one.low:.3g}{_uncalibrated(policy, one.low)}")
        start = "from"
    text = typical + ", ".join([*parts, f"{names[0]} below"])
    return f"{text[0].upper()}{text[1:]}."


def _uncalibrated(policy: Policy | None, probability: float) -> str:
    """Return the model's own probability that is calibrated to another, with its interval."""
    uncalibrated = None if policy is None else policy.uncalibrated_probability(probability)
    if policy is None or uncalibrated is None:
        return ""
    known = [
        one
        for one in policy.report.uncalibrated_thresholds
        if one and np.isclose(one.value, uncalibrated)
    ]
    ends = [f", 95 % interval {one.low:.3g} to {one.high:.3g}" for one in known[:1]]
    return f" (uncalibrated {uncalibrated:.3g}{''.join(ends)})"


def split_verdict(text: str) -> tuple[str, str, tuple[str, ...]]:
    r"""Return the headline of an audit's verdict, its mood, and the rest as sentences.

    >>> split_verdict("Over-confident: mean confidence 95.4 %, accuracy 87.1 %.")
    ('Over-confident.', 'bad', ('Mean confidence 95.4 %, accuracy 87.1 %.',))
    """
    headline, *rest = re.split(r"(?:\.|:) ", text, maxsplit=1)
    is_neutral = headline.startswith(("Too few", "No two", "No central", "Weak"))
    mood = "neutral" if is_neutral else "good" if headline.startswith("No ") else "bad"
    sentences = tuple(f"{one[:1].upper()}{one[1:]}" for one in rest)
    return f"{headline.rstrip('.')}.", mood, sentences


def _calibration_sentence(summary: Summary) -> str:
    """Return what temperature scaling and the best calibrator achieve."""
    before, after = summary.audit_before, summary.audit_after
    recalibration = summary.recalibration
    if not recalibration.leaderboard:
        return ""
    if before.positive is not None and after.positive is not None:
        return _positive_sentence(before.positive, after.positive)
    if summary.whole.calibration_p_value >= ALPHA:
        return _classwise_sentence(summary)
    error_before, error_after = (one.expected_calibration_error * 100 for one in (before, after))
    best = (
        f"lowers the ECE from {error_before:.1f} to {error_after:.1f} points, out of sample "
        f"({after.expected_if_calibrated * 100:.1f} expected if calibrated)"
    )
    if recalibration.temperature is None or recalibration.scaled is None:
        return f"Calibration {best}."
    scaled = ReliabilityState.of(recalibration.scaled)
    excess = before.expected_calibration_error - before.expected_if_calibrated
    left = scaled.expected() - scaled.expected_if_calibrated
    corrected = 1 - max(left, 0.0) / max(excess, 1e-12)
    verbs = ((0.9, "corrects it"), (0.5, "corrects most of it"), (0.2, "corrects part of it"))
    verb = next((text for least, text in verbs if corrected >= least), "hardly helps")
    is_logits = isinstance(summary.before.outputs, Logits)
    subject = "Dividing the logits by" if is_logits else "A temperature of"
    return f"{subject} {recalibration.temperature:.2g} {verb}; the best calibrator {best}."


def _positive_sentence(before: BinaryAudit, after: BinaryAudit) -> str:
    """Return what calibration achieves for the probability of the positive class."""
    errors = [one.expected_calibration_error * 100 for one in (before, after)]
    if errors[1] >= errors[0]:
        return ""
    slopes = (before.calibration_slope, after.calibration_slope)
    slope = "" if None in slopes else " and changes the slope from {:.2f} to {:.2f}".format(*slopes)
    return (
        f"Calibration lowers the ECE of P({before.pos_label}) from {errors[0]:.2f} to "
        f"{errors[1]:.2f} points{slope}, out of sample."
    )


def _classwise_sentence(summary: Summary) -> str:
    """Return what calibration achieves where only single classes are miscalibrated."""
    if miscalibrated_class(summary.whole) is None:
        return ""
    before, after = (
        f"{100 * (one.classwise_calibration_error or 0.0):.1f}"
        for one in (summary.audit_before, summary.audit_after)
    )
    return (
        f"The best calibrator lowers the classwise calibration error from {before} to {after} "
        "points, out of sample."
    )


def _review_sentence(summary: Summary) -> str:
    """Return the fraction of rows that must be reviewed to find half of the errors."""
    curve = RiskCoverageCurve.of(RankingState.of(summary.after))
    if not curve.risk[-1] > 0:
        return "No row is wrong, so a review would find nothing."
    fraction = _fraction_to_review(curve)
    if fraction > 0.4:
        return (
            f"Uncertainty hardly finds the errors: {percent(fraction, 0)} of the rows would "
            "have to be reviewed to find half of them."
        )
    least = f"{fraction * 100:.2g} %"
    return f"Reviewing the {least} most uncertain rows finds half of the errors."


def _fraction_to_review(curve: RiskCoverageCurve) -> float:
    """Return the smallest fraction of most uncertain rows that holds half of the errors."""
    left = curve.risk * curve.coverage
    is_enough = left <= left[-1] / 2 + 1e-12
    return 1 - float(np.max(curve.coverage[is_enough], initial=0.0))

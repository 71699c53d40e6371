"""What a report says first: how false the confidence is, what mends it, what doubt is good for."""

from __future__ import annotations

import numpy as np

from dubito.measure import RiskCoverageCurve
from dubito.measure.calibration_error import ReliabilityState
from dubito.measure.ranking import RankingState
from dubito.measure.text import class_said_wrongly
from dubito.outputs import Logits
from dubito.report.blocks import Verdict
from dubito.report.formatting import share as told
from dubito.report.formatting import spaced
from dubito.report.summary import Summary

CLEAR = 0.001  # p-value below which confidence is called false, as in an audit's own verdict


def verdict_on(summary: Summary) -> Verdict:
    """Return the headline, and what to do about it."""
    headline, _, rest = summary.whole.verdict.partition(". ")
    if headline.startswith("Too few"):
        return Verdict(f"{headline}.", (spaced(rest),))
    is_bad = headline.endswith("-confident") or headline.startswith("Wrong")
    said = f"{rest} Measured on {summary.whole.n_rows:,} rows." if is_bad else rest
    sentences = (spaced(said), _mending(summary), _reviewing(summary))
    mood = "bad" if is_bad else "good"
    return Verdict(f"{headline}.", tuple(text for text in sentences if text), mood)


def _mending(summary: Summary) -> str:
    """Say what a temperature mends of a false confidence, and what the best calibrator does."""
    before, after, mended = summary.audit_before, summary.audit_after, summary.mended
    if not mended.leaderboard:
        return ""
    if summary.whole.calibration_p_value >= CLEAR:
        return _mending_of_classes(summary)
    was, now = (one.expected_calibration_error * 100 for one in (before, after))
    best = (
        f"brings the calibration error from {was:.1f} to {now:.1f} points, out of sample "
        f"(a perfectly calibrated model would show {after.expected_if_calibrated * 100:.1f})"
    )
    if mended.temperature is None or mended.tempered is None:
        return f"Calibration {best}."
    single = ReliabilityState.of(mended.tempered)
    excess = before.expected_calibration_error - before.expected_if_calibrated
    left = single.expected() - single.expected_if_calibrated
    share = 1 - max(left, 0.0) / max(excess, 1e-12)
    words = ((0.9, "mends it"), (0.5, "mends most of it"), (0.2, "mends part of it"))
    does = next((text for least, text in words if share >= least), "hardly helps")
    is_logits = isinstance(summary.before.outputs, Logits)
    what = "Dividing logits by" if is_logits else "A temperature of"
    return f"{what} {mended.temperature:.2g} {does}; the best calibrator found {best}."


def _mending_of_classes(summary: Summary) -> str:
    """Say what the best calibrator mends where only classes are said too often or too rarely."""
    if class_said_wrongly(summary.whole) is None:
        return ""
    was, now = (
        one.classwise_calibration_error for one in (summary.audit_before, summary.audit_after)
    )
    assert was is not None
    assert now is not None
    return (
        "The best calibrator found brings the calibration error by class from "
        f"{was * 100:.1f} to {now * 100:.1f} points, out of sample."
    )


def _reviewing(summary: Summary) -> str:
    """Say how many rows a person must see for half of the errors."""
    curve = RiskCoverageCurve.of(RankingState.of(summary.after))
    if not curve.risk[-1] > 0:
        return "No row is wrong, so there is nothing for a person to find."
    share = _share_to_halve(curve)
    if share > 0.4:
        return (
            f"Doubt hardly finds the errors: to halve them, {told(share, 0)} of the rows would "
            "have to go to a person."
        )
    return f"Sending the {share * 100:.2g}\u00a0% most doubtful rows to a person halves the errors."


def _share_to_halve(curve: RiskCoverageCurve) -> float:
    """Return the least share of rows, the most doubtful first, that holds half of the errors."""
    left = curve.risk * curve.coverage
    is_enough = left <= left[-1] / 2 + 1e-12
    kept = float(np.max(curve.coverage[is_enough], initial=0.0))
    return 1 - kept

"""Drift in plain words: what moved and what to do, then the figures."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dubito.monitor.drift import Drift
    from dubito.monitor.shifts import DistributionShift

__all__ = ["drift_lines", "verdict_on"]

WIDTH = 80
FEWEST_ROWS = 20
MOST_CLASSES = 10


def verdict_on(found: Drift) -> str:
    """Say what moved and what to do about it."""
    n_rows = f"{found.n_reference:,} and {found.n_current:,} rows"
    if min(found.n_reference, found.n_current) < FEWEST_ROWS:
        return f"Too few rows to tell ({n_rows})."
    if not found.moved:
        return f"No sign of drift between {n_rows}."
    words = [input_words(found), prior_words(found), confidence_words(found), truth_words(found)]
    return " ".join(filter(None, words))


def input_words(found: Drift) -> str:
    """Say whether inputs are strange."""
    if "strange inputs" not in found.moved:
        return ""
    shift = found.shifts["strange inputs"]
    return (
        f"Inputs are strange: {shift.current:.1%} of them are further out than all but "
        f"{shift.reference:.0%} of known rows. Look at them before anything else."
    )


def prior_words(found: Drift) -> str:
    """Say whether classes are as common as they were."""
    if "labels" in found.shifts:
        has_moved = "labels" in found.moved
        seen = f", by the labels (distance {found.shifts['labels'].distance:.3f})"
    else:
        has_moved = "predicted classes" in found.moved
        seen = f", as far as predictions tell{change_words(found)}"
    if not has_moved:
        if "predicted classes" not in found.moved:
            return ""
        return "Other classes are predicted while labels are as common as before: retrain."
    said = f"The prior moved{seen}: adjust_prior."
    if "strange inputs" in found.moved:
        said += " Only if inputs of a class look as they did: strange ones may not."
    return said


def change_words(found: Drift) -> str:
    """Say which class changed most, where its share could be estimated."""
    if found.prior is None or found.reference_prior is None:
        return ""
    change = np.abs(found.prior.prior - found.reference_prior) * found.prior.is_identified
    k = int(change.argmax())
    if not change[k]:
        return ""
    low, high = found.prior.low[k], found.prior.high[k]
    name = found.classes[k] if found.classes else k
    return (
        f" (class {name} from {found.reference_prior[k]:.1%} to about {found.prior.prior[k]:.1%}, "
        f"{low:.1%} to {high:.1%})"
    )


def confidence_words(found: Drift) -> str:
    """Say whether confidence moved, and whether something else explains it."""
    doubts = [name for name in ("confidence", "entropy", "energy") if name in found.moved]
    if not doubts:
        return ""
    shift = found.shifts["confidence"]
    means = f"mean confidence {shift.reference:.1%}, now {shift.current:.1%}"
    if doubts == ["energy"]:
        return f"The size of logits moved, the confidence did not ({means}): look at the inputs."
    has_prior = "labels" in found.moved or "predicted classes" in found.moved
    if "over-confidence" in found.moved:
        return f"Confidence moved ({means})."
    if "over-confidence" in found.shifts:
        return f"Confidence moved ({means}), and is as true as before: nothing to recalibrate."
    if has_prior or "strange inputs" in found.moved:
        why = "strange inputs" if "strange inputs" in found.moved else "another prior"
        return f"Confidence moved too ({means}), as {why} can make it: look again after that."
    alone = " while the classes predicted did not" if "predicted classes" in found.shifts else ""
    return f"Confidence moved ({means}){alone}: recalibrate."


def truth_words(found: Drift) -> str:
    """Say whether the model is as right as it was."""
    words = []
    if "accuracy" in found.moved:
        shift = found.shifts["accuracy"]
        assert shift.difference is not None
        verb = "fell" if shift.difference.value < 0 else "rose"
        words.append(f"Accuracy {verb} from {shift.reference:.1%} to {shift.current:.1%}.")
        if found.moved == ("accuracy",):
            words.append("Outputs look as before: what labels mean may have changed. Retrain.")
    elif "log loss" in found.moved:
        shift = found.shifts["log loss"]
        words.append(f"Log loss went from {shift.reference:.3g} to {shift.current:.3g}.")
    if "over-confidence" in found.moved:
        shift = found.shifts["over-confidence"]
        words.append(
            f"Confidence less accuracy went from {shift.reference:+.1%} to {shift.current:+.1%}: "
            "recalibrate on rows of this period."
        )
    return " ".join(words)


def drift_lines(found: Drift) -> list[str]:
    """Tell drift line by line, in 80 columns."""
    tested = [shift for shift in found.shifts.values() if shift.p_value is not None]
    note = (
        f"{found.n_reference:,} reference rows, {found.n_current:,} current ones. All "
        f"{len(tested)} tests together raise a false alarm in at most {1 - found.level:.0%} of "
        "cases (Holm)."
    )
    change = f"change ({found.level:.0%})"
    head = f"  {'':<22} {'before':>8} {'now':>8}  {change:<20} {'apart':>5} {'p':>7}"
    lines = [*wrap(found.verdict, WIDTH), "", *wrap(note, WIDTH), "", head]
    lines += [shift_line(name, shift) for name, shift in found.shifts.items()]
    lines += ["", *accuracy_lines(found), *prior_lines(found)]
    return lines


def shift_line(name: str, shift: DistributionShift) -> str:
    """Tell one figure of both periods."""
    before = "" if shift.reference is None else f"{shift.reference:.3g}"
    now = "" if shift.current is None else f"{shift.current:.3g}"
    one = shift.difference
    difference = "" if one is None else f"{one.low:+.2g} to {one.high:+.2g}"
    far = "" if shift.distance is None else f"{shift.distance:.3f}"
    p_value = "" if shift.p_value is None else f"{shift.p_value:.4f}"
    p_value = "<0.0001" if p_value == "0.0000" else p_value
    mark = " *" if shift.has_moved else ""
    line = f"  {name:<22} {before:>8} {now:>8}  {difference:<20} {far:>5} {p_value:>7}{mark}"
    return line.rstrip()


def accuracy_lines(found: Drift) -> list[str]:
    """Tell the accuracy to expect without labels of this period."""
    lines = [f"  accuracy expected if calibrated      {found.expected_accuracy:.1%}"]
    one = found.thresholded_accuracy
    if one is not None:
        between = f"({one.low:.1%} to {one.high:.1%})"
        lines.append(f"  accuracy expected by its threshold   {one.value:.1%} {between}")
    return lines


def prior_lines(found: Drift) -> list[str]:
    """Tell how common classes were and are, those that changed most first."""
    if found.prior is None or found.reference_prior is None:
        return []
    prior, before = found.prior, found.reference_prior
    names = found.classes or range(before.size)
    order = np.argsort(-np.abs(prior.prior - before), kind="stable")[:MOST_CLASSES]
    lines = ["", f"  {'class':<22} {'before':>8} {'now':>8}  (estimated, {prior.method})"]
    for k in order:
        between = f"{prior.low[k]:.1%} to {prior.high[k]:.1%}"
        between = between if prior.is_identified[k] else "not identified"
        name = str(list(names)[k])[:22]
        lines.append(f"  {name:<22} {before[k]:>8.1%} {prior.prior[k]:>8.1%}  {between}")
    return lines

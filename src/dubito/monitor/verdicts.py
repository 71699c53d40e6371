"""The results of comparisons and of drift detection in words, and as printed tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dubito.decide.value import negated
from dubito.formatting import (
    HTMLTable,
    decimal,
    html_view,
    join_words,
    percent,
    points,
    quantity,
    short_percent,
    wrapped,
)
from dubito.monitor.metrics import MIN_ROWS, TITLES, DistributionShift

if TYPE_CHECKING:
    from dubito.monitor.compare import Comparison, Difference
    from dubito.monitor.drift import Drift

MAX_CLASSES_SHOWN = 10
WIDTH = 80  # of printed lines
WORDS = {True: "better", False: "worse", None: ""}
RECALIBRATE = "recalibrate on current rows"
MEANING_CHANGED = "The outputs did not shift: the meaning of the labels may have changed. Retrain."


def comparison_verdict(found: Comparison) -> str:
    """Return the significant differences to the first model, and the best model."""
    if found.n_rows < MIN_ROWS:
        return f"Too few rows to compare models ({found.n_rows:,})."
    first = found.models[0]
    sentences = [_pair_sentence(found, model, first) for model in found.models[1:]]
    if len(found.models) > 2:
        sentences.append(_best_sentence(found))
    losses = {model: one.get("log_loss") for model, one in found.metrics.items()}
    infinite = [model for model, loss in losses.items() if loss and np.isinf(loss.value)]
    if infinite:
        reason = "infinite: a class with probability 0 occurred"
        sentences.append(f"The log loss of {join_words(infinite)} is {reason}.")
    return " ".join(sentences)


def _pair_sentence(found: Comparison, model: str, baseline: str) -> str:
    """Return in which metrics a model differs from a baseline."""
    pair = [d for d in found.differences if (d.model, d.baseline) == (model, baseline)]
    better = [_amount(d) for d in pair if d.is_better]
    worse = [_amount(d) for d in pair if d.is_better is False]
    others = [TITLES[d.metric] for d in pair if d.is_better is None]
    if not better and not worse:
        return f"No significant difference between {model} and {baseline} in {join_words(others)}."
    parts = [f"better than {baseline} in {join_words(better)}"] if better else []
    if worse:
        parts.append(f"worse {'' if better else f'than {baseline} '}in {join_words(worse)}")
    rest = f"; no significant difference in {join_words(others)}" if others else ""
    return f"{model} is {' but '.join(parts)}{rest}."


def _best_sentence(found: Comparison) -> str:
    """Return the best model on these rows, and which others it beats significantly."""
    best = found.best
    beaten = [model for model in found.models if model != best and _is_beaten(found, model)]
    others = [model for model in found.models if model != best and model not in beaten]
    text = f"Best by {TITLES[found.best_by]} on these rows: {best}"
    if beaten:
        text += f", significantly better than {join_words(beaten)}"
    if others:
        text += f", but not than {join_words(others)}" if beaten else ", but not significantly"
    return f"{text}."


def _is_beaten(found: Comparison, model: str) -> bool:
    """Return whether the best model is significantly better than another."""
    for one in found.differences:
        if one.metric == found.best_by and {one.model, one.baseline} == {model, found.best}:
            return one.is_better is (one.model == found.best)
    return False


def _amount(difference: Difference) -> str:
    """Return a metric and the size of its difference."""
    one = difference.interval
    return f"{TITLES[difference.metric]} by {one if one.value >= 0 else negated(one)}"


def comparison_lines(found: Comparison) -> list[str]:
    """Return a comparison as lines of 80 columns."""
    lines = [*wrapped(found.verdict, WIDTH), "", *wrapped(_comparison_note(found), WIDTH)]
    width = max(30, *(len(TITLES[name]) for one in found.metrics.values() for name in one))
    for model in found.models:
        lines += ["", f"  {model[:76]}"]
        metrics = found.metrics[model].items()
        lines += [f"    {TITLES[name]:<{width}} {interval}" for name, interval in metrics]
    for pair in dict.fromkeys((one.model, one.baseline) for one in found.differences):
        lines += ["", f"  {pair[0][:35]} - {pair[1][:35]}"]
        for one in found.differences:
            if (one.model, one.baseline) == pair:
                line = f"    {TITLES[one.metric]:<{width}} {one.interval:+}  {WORDS[one.is_better]}"
                lines.append(line.rstrip())
    return lines


def _comparison_note(found: Comparison) -> str:
    """Return the numbers of rows, and what intervals and significance mean."""
    missing = f"; {found.n_missing:,} more without a label left out" if found.n_missing else ""
    return (
        f"{found.n_rows:,} rows{missing}. {short_percent(found.level)} intervals in parentheses; "
        f"better and worse are significant after correction for {len(found.differences)} "
        "comparisons (Holm)."
    )


def comparison_html(found: Comparison) -> str:
    """Return a comparison for notebooks: the verdict, the differences, then all metrics."""
    changes = [
        (TITLES[one.metric], f"{one.model} - {one.baseline}", f"{one.interval:+}",
         WORDS[one.is_better])
        for one in found.differences
    ]  # fmt: skip
    metrics = [
        (TITLES[name], *(f"{found.metrics[one].get(name, '')}" for one in found.models))
        for name in found.metrics[found.models[0]]
    ]
    return html_view(
        found.verdict,
        _comparison_note(found),
        HTMLTable(("metric", "models", "difference", ""), changes),
        HTMLTable(("metric", *found.models), metrics, "Metrics of each model"),
    )


def drift_verdict(found: Drift) -> str:
    """Return the significant shifts, and what to do about them."""
    n_rows = f"{found.n_reference:,} and {found.n_current:,} rows"
    if min(found.n_reference, found.n_current) < MIN_ROWS:
        return f"Too few rows to detect drift ({n_rows})."
    if not found.shifted:
        return f"No sign of drift between {n_rows}."
    parts = (_input_text, _prior_text, _confidence_text, _accuracy_text)
    if "prediction" in found.shifts:
        parts = (_input_text, _prediction_text, _error_text, _coverage_text)
    return " ".join(filter(None, (part(found) for part in parts)))


def _input_text(found: Drift) -> str:
    """Return whether inputs are out of distribution."""
    shift = _significant(found, "OOD inputs")
    if shift is None:
        return ""
    return (
        f"Inputs are out of distribution: {percent(shift.current)} are beyond the distance that "
        f"{percent(shift.reference, 0)} of reference rows exceed. Inspect them first."
    )


def _prediction_text(found: Drift) -> str:
    """Return whether the predictions of a regression, their spread or the targets shifted."""
    sentences = []
    for name, words in {"prediction": "Predictions", "target": "Targets"}.items():
        if shift := _significant(found, name):
            sentences.append(f"{words} shifted ({_from_to(shift)}).")
    if shift := _significant(found, "interval width"):
        word = "wider" if (shift.current or 0) > (shift.reference or 0) else "narrower"
        sentences.append(f"Intervals are {word} (mean width {_from_to(shift)}).")
    if sentences and "target" not in found.shifts:
        sentences.append("Find targets of some current rows to check bias and coverage.")
    return " ".join(sentences)


def _error_text(found: Drift) -> str:
    """Return whether the errors of a regression shifted."""
    sentences = []
    if shift := _significant(found, "bias"):
        before, now = shift.reference or 0.0, shift.current or 0.0
        advice = f"Predictions are too {'low' if now > 0 else 'high'}: retrain the model"
        advice = "The bias is smaller" if abs(now) < abs(before) else advice
        sentences.append(f"The mean error (target - prediction) went {_from_to(shift)}. {advice}.")
    for name in ("absolute error", "CRPS", "CRPS (from quantiles)"):
        if shift := _significant(found, name):
            verb = "rose" if _has_risen(found, name) else "fell"
            sentences.append(f"The {name} {verb} ({_from_to(shift)}).")
    return " ".join(sentences)


def _coverage_text(found: Drift) -> str:
    """Return whether the intervals of a regression cover as many targets as before."""
    name = next((name for name in found.shifts if name.startswith("coverage")), "")
    if shift := _significant(found, name):
        nominal = float(name.partition("(")[2].partition(" ")[0]) / 100
        gaps = [abs((one or 0) - nominal) for one in (shift.reference, shift.current)]
        advice = "calibration improved" if gaps[1] < gaps[0] else RECALIBRATE
        change = _from_to(shift, percent)
        return f"Coverage of {short_percent(nominal)} intervals went {change}: {advice}."
    if "PIT" in found.shifted and "bias" not in found.shifted:
        return f"The PIT shifted, so calibration changed: {RECALIBRATE}."
    return ""


def _from_to(shift: DistributionShift, shown: Callable[[float | None], str] = decimal) -> str:
    """Return the means of both periods."""
    return f"from {shown(shift.reference)} to {shown(shift.current)}"


def _prior_text(found: Drift) -> str:
    """Return whether the class priors shifted."""
    if "labels" in found.shifts:
        has_shifted = "labels" in found.shifted
        source = f"according to the labels (distance {found.shifts['labels'].distance:.3f})"
    else:
        has_shifted = "predicted classes" in found.shifted
        source = f"according to the predictions{_largest_change(found)}"
    if not has_shifted:
        if "predicted classes" not in found.shifted:
            return ""
        text = "The predicted classes shifted, but the labels did not"
        return f"{text}." if _has_risen(found, "accuracy") else f"{text}: retrain the model."
    text = f"The class priors shifted, {source}: use adjust_prior"
    if "OOD inputs" in found.shifted or "labels" not in found.shifts:
        text += ", if the inputs of each class are still the same"
    return f"{text}."


def _largest_change(found: Drift) -> str:
    """Return the class whose estimated prior changed most, if any is identified."""
    if found.prior is None or found.reference_prior is None:
        return ""
    now, before = found.prior, found.reference_prior
    change = np.abs(now.prior - before) * now.is_identified
    k = int(change.argmax())
    if not change[k]:
        return ""
    ends = f"{percent(now.low[k])} to {percent(now.high[k])}"
    name = found.classes[k] if found.classes else k
    return f" (class {name} from {percent(before[k])} to about {percent(now.prior[k])}, {ends})"


def _confidence_text(found: Drift) -> str:
    """Return whether confidence shifted, and whether another shift explains it."""
    names = [name for name in ("confidence", "entropy", "energy") if name in found.shifted]
    if not names:
        return ""
    shift = found.shifts["confidence"]
    means = f"mean {percent(shift.reference)}, now {percent(shift.current)}"
    if names == ["energy"]:
        text = "The energy of the logits shifted, but the confidence did not"
        return f"{text} ({means}): inspect the inputs."
    if "gap" in found.shifted:
        return f"Confidence shifted ({means})."
    if "gap" in found.shifts:
        text = "no significant change in calibration on the labeled rows"
        return f"Confidence shifted ({means}); {text}."
    has_ood = "OOD inputs" in found.shifted
    if has_ood or "labels" in found.shifted or "predicted classes" in found.shifted:
        cause = "the OOD inputs" if has_ood else "the new priors"
        return f"Confidence shifted too ({means}), perhaps due to {cause}: test again afterwards."
    alone = ", but not the predicted classes" if "predicted classes" in found.shifts else ""
    return f"Confidence shifted ({means}){alone}: label some current rows and check calibration."


def _accuracy_text(found: Drift) -> str:
    """Return whether accuracy or calibration shifted."""
    sentences = []
    if shift := _significant(found, "accuracy"):
        has_risen = _has_risen(found, "accuracy")
        verb = "rose" if has_risen else "fell"
        sentences.append(f"Accuracy {verb} {_from_to(shift, percent)}.")
        if found.shifted == ("accuracy",) and not has_risen:
            sentences.append(MEANING_CHANGED)
    elif shift := _significant(found, "log loss"):
        sentences.append(f"Log loss went {_from_to(shift)}.")
    if shift := _significant(found, "gap"):
        before, now = shift.reference or 0.0, shift.current or 0.0
        # With the other sign, the gap could be as large as before.
        least = abs(before) * (1.0 if before * now >= 0 else 0.5)
        advice = "calibration improved" if abs(now) < least else RECALIBRATE
        change = _from_to(shift, points)
        sentences.append(f"Confidence - accuracy went {change} points: {advice}.")
    return " ".join(sentences)


def _has_risen(found: Drift, name: str) -> bool:
    """Whether a mean is significantly higher than in the reference."""
    shift = _significant(found, name)
    return shift is not None and shift.difference is not None and shift.difference.value > 0


def _significant(found: Drift, name: str) -> DistributionShift | None:
    """Return a shift if it is significant."""
    return found.shifts[name] if name in found.shifted else None


def drift_lines(found: Drift) -> list[str]:
    """Return the result as lines of 80 columns."""
    change = f"change ({short_percent(found.level)})"
    head = f"  {'':<21} {'reference':>9} {'current':>8}  {change:<20} {'dist.':>5} {'p':>7}"
    note = wrapped(_drift_note(found, "*", "dist."), WIDTH)
    lines = [*wrapped(found.verdict, WIDTH), "", *note, "", head]
    for name, shift in found.shifts.items():
        before, now, difference, distance, p_value = _shift_cells(shift)
        mark = " *" if shift.has_shifted else ""
        line = f"  {name:<22} {before:>8} {now:>8}  {difference:<20} {distance:>5} {p_value:>7}"
        lines.append(f"{line}{mark}".rstrip())
    if found.expected_accuracy is None:
        return lines
    return [*lines, "", *_accuracy_lines(found), *_prior_lines(found)]


def drift_html(found: Drift) -> str:
    """Return the result for notebooks: the verdict, the shifts, then accuracy and priors."""
    heads = ("", "reference", "current", f"change ({short_percent(found.level)})", "distance", "p")
    shifts = [
        (name, *_shift_cells(shift), "shifted" if shift.has_shifted else "")
        for name, shift in found.shifts.items()
    ]
    parts: list[str | HTMLTable] = [HTMLTable((*heads, ""), shifts)]
    if found.expected_accuracy is not None:
        parts.append("\n".join(" ".join(line.split()) for line in _accuracy_lines(found)))
    if found.prior is not None and (priors := _prior_cells(found)):
        title = f"Class priors (estimated by {found.prior.method.upper()})"
        parts.append(HTMLTable(("class", "reference", "current", "interval"), priors, title))
    return html_view(found.verdict, *parts, _drift_note(found, "shifted:", "distance"))


def _drift_note(found: Drift, mark: str, distance: str) -> str:
    """Return the numbers of rows, and what the tests are; `mark` stands at significant shifts."""
    tested = [shift for shift in found.shifts.values() if shift.p_value is not None]
    return (
        f"{quantity(found.n_reference, 'reference row')}, "
        f"{quantity(found.n_current, 'current row')}. {mark} significant after Holm correction for "
        f"{quantity(len(tested), 'test')} (family-wise error rate "
        f"{short_percent(1 - found.level)}). {distance}: Kolmogorov-Smirnov distance"
        f"{'' if found.expected_accuracy is None else ', for classes total variation'}."
    )


def _shift_cells(shift: DistributionShift) -> tuple[str, str, str, str, str]:
    """Return both means, the interval of their difference, the distance and the p-value."""
    before, now = ("" if one is None else decimal(one) for one in (shift.reference, shift.current))
    one = shift.difference
    difference = "" if one is None else f"{one:+}".partition("(")[2].removesuffix(")")
    distance = "" if shift.distance is None else f"{shift.distance:.3f}"
    p_value = "" if shift.p_value is None else f"{shift.p_value:.4f}"
    return before, now, difference, distance, p_value.replace("0.0000", "<0.0001")


def _accuracy_lines(found: Drift) -> list[str]:
    """Return the accuracy expected without current labels."""
    expected = percent(found.expected_accuracy)
    lines = [f"  estimated accuracy (mean confidence)                {expected}"]
    one = found.thresholded_accuracy
    if one is not None:
        name = "  estimated accuracy (average thresholded confidence)"
        lines.append(f"{name} {percent(one.value)} ({percent(one.low)} to {percent(one.high)})")
    return lines


def _prior_lines(found: Drift) -> list[str]:
    """Return the priors of both periods as lines."""
    cells = _prior_cells(found)
    if found.prior is None or not cells:
        return []
    method = f"(estimated by {found.prior.method.upper()})"
    lines = [f"  {name[:22]:<22} {before:>8} {now:>8}  {ends}" for name, before, now, ends in cells]
    return ["", f"  {'class':<21} {'reference':>9} {'current':>8}  {method}", *lines]


def _prior_cells(found: Drift) -> list[tuple[str, str, str, str]]:
    """Return class, priors of both periods and interval, the largest change first."""
    if found.prior is None or found.reference_prior is None:
        return []
    prior, before = found.prior, found.reference_prior
    names = list(found.classes or range(before.size))
    order = np.argsort(-np.abs(prior.prior - before), kind="stable")[:MAX_CLASSES_SHOWN]
    cells = []
    for k in order:
        between = f"{percent(prior.low[k])} to {percent(prior.high[k])}"
        between = between if prior.is_identified[k] else "not identified"
        cells.append((str(names[k]), percent(before[k]), percent(prior.prior[k]), between))
    return cells

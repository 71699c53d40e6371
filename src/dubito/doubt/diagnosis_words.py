"""A diagnosis in plain words: what happens, what to do about it, then the figures."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dubito.doubt.diagnosis import OODDiagnosis, Separation

__all__ = ["advice_on", "diagnosis_lines", "verdict_on"]


def verdict_on(found: OODDiagnosis) -> str:
    """Say what happens, in a few sentences."""
    return " ".join([confidence_words(found), *layer_words(found)])


def diagnosis_lines(found: OODDiagnosis) -> list[str]:
    """Tell a diagnosis line by line, in 80 columns."""
    return [*wrap(found.verdict, 80), *wrap(found.advice, 80), "", *figure_lines(found)]


def confidence_words(found: OODDiagnosis) -> str:
    """Say what the confidence of strangers is like."""
    passing = f"{found.share_passing:.1%} of them pass a threshold that 95% of known rows pass"
    area = f"AUROC of least confidence {found.least_confidence.auroc:.3f}"
    if found.kind == "unclear":
        return f"Too few rows to say whether strangers are less confident than known rows ({area})."
    if found.kind == "extrapolation":
        return f"Extrapolation: strangers are more confident than known rows ({area}); {passing}."
    if found.kind == "saturation":
        return f"Saturation: strangers are about as confident as known rows ({area}); {passing}."
    if found.kind == "partial saturation":
        return (
            f"Partial saturation: strangers are less confident than known rows on the whole "
            f"({area}), yet {passing}."
        )
    return f"Separation: strangers are less confident than known rows ({area}); {passing}."


def layer_words(found: OODDiagnosis) -> list[str]:
    """Say whether norms or angles of the features tell strangers apart."""
    norms, angles = found.negative_feature_norm, found.unfamiliarity
    if norms is None:
        return []
    words = [part_words("norms", norms, f"longer{norms_in_words(found)}")]
    if angles is None:
        return words
    words.append(part_words("angles", angles, "closer to some class's weights"))
    parts = (norms, angles)
    if not any(part.tells or part.is_reversed or part.is_unclear for part in parts):
        words.append("They overlap with known rows in the last layer.")
    return words


def part_words(name: str, part: Separation, how: str) -> str:
    """Say whether one part of the features tells strangers apart."""
    area = f"AUROC {part.auroc:.3f}"
    if part.tells:
        return f"{name.capitalize()} tell them apart ({area})."
    if part.is_reversed:
        return f"Their features are {how} than those of known rows, which makes a softmax surer."
    if part.is_unclear:
        return f"Whether {name} tell them apart takes more rows to say ({area})."
    return f"{name.capitalize()} do not tell them apart ({area})."


def norms_in_words(found: OODDiagnosis) -> str:
    """Return the median norms, strangers first."""
    return f" (median norm {found.strange_norm:.3g} against {found.known_norm:.3g})"


def advice_on(found: OODDiagnosis) -> str:
    """Say what to do about it."""
    name, best = next(iter(found.separations.items()))
    words = []
    if best.tells and best.beats(found.least_confidence):
        better = f"{name} (AUROC {best.auroc:.3f})"
        words.append(f"Flag strangers by {better} rather than by confidence.")
    elif found.kind == "unclear":
        words.append("Give more rows of either kind.")
    elif found.kind == "separation":
        words.append("Flag strangers by confidence: nothing measured here does clearly better.")
    else:
        words.append(
            "No doubt measured here does clearly better: try distances in features "
            "(MahalanobisDistance, NearestNeighborDistance), those of an earlier layer, or another model."
        )
    if found.kind not in ("separation", "unclear"):
        words.append("Calibration will not mend this: it only sees known rows.")
    if found.negative_feature_norm is None or found.unfamiliarity is None:
        words.append("Give features and weights to learn whether norms or angles would do.")
    return " ".join(words)


def figure_lines(found: OODDiagnosis) -> list[str]:
    """Tell the figures line by line."""
    head = f"{found.n_strange:,} strangers, {found.n_known:,} known rows"
    lines = [f"  {head:<38} {'known':>9} {'strange':>9}"]
    pairs = [("median confidence", found.known_confidence, found.strange_confidence, ".4f")]
    if found.known_norm is not None and found.strange_norm is not None:
        pairs.append(("median norm", found.known_norm, found.strange_norm, ".4g"))
    lines += [f"  {name:<38} {a:>9{form}} {b:>9{form}}" for name, a, b, form in pairs]
    at_median = "at least the known median's confidence"
    lines.append(f"  {at_median:<38} {'':>9} {found.share_as_confident:>9.1%}")
    lines.append(f"  {'pass where 95 % of known rows do':<38} {'':>9} {found.share_passing:>9.1%}")
    lines += [
        "",
        f"  {'':<18} {'AUROC':>7} {'+-':>7}   (0.5 is guessing, +- a standard error)",
    ]
    for name, one in found.separations.items():
        lines.append(f"  {name:<18} {one.auroc:>7.4f} {one.standard_error:>7.4f}")
    return lines

"""Why confidence does or does not separate out-of-distribution inputs from in-distribution data."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from dubito.arrays import FloatArray, require_rows
from dubito.doubt.activations import as_features, as_layer, familiarity_of, norms_of
from dubito.doubt.scores import UncertaintyScores, output_doubts_of
from dubito.errors import BadValueError
from dubito.measure.detection import roc_auc
from dubito.outputs import BaseClassOutputs, as_outputs


def _verdict_on(found: OODDiagnosis) -> str:
    """Say what happens, in a few sentences."""
    return " ".join([_confidence_words(found), *_layer_words(found)])


def _diagnosis_lines(found: OODDiagnosis) -> list[str]:
    """Tell a diagnosis line by line, in 80 columns."""
    return [*wrap(found.verdict, 80), *wrap(found.advice, 80), "", *_figure_lines(found)]


def _confidence_words(found: OODDiagnosis) -> str:
    """Say what the confidence of strangers is like."""
    passing = f"{found.fpr95:.1%} of them pass a threshold that 95% of known rows pass"
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


def _layer_words(found: OODDiagnosis) -> list[str]:
    """Say whether norms or angles of the features tell strangers apart."""
    norms, angles = found.negative_feature_norm, found.unfamiliarity
    if norms is None:
        return []
    words = [_part_words("norms", norms, f"longer{_norms_in_words(found)}")]
    if angles is None:
        return words
    words.append(_part_words("angles", angles, "closer to some class's weights"))
    parts = (norms, angles)
    if not any(part.tells or part.is_reversed or part.is_unclear for part in parts):
        words.append("They overlap with known rows in the last layer.")
    return words


def _part_words(name: str, part: Separation, how: str) -> str:
    """Say whether one part of the features tells strangers apart."""
    area = f"AUROC {part.auroc:.3f}"
    if part.tells:
        return f"{name.capitalize()} tell them apart ({area})."
    if part.is_reversed:
        return f"Their features are {how} than those of known rows, which makes a softmax surer."
    if part.is_unclear:
        return f"Whether {name} tell them apart takes more rows to say ({area})."
    return f"{name.capitalize()} do not tell them apart ({area})."


def _norms_in_words(found: OODDiagnosis) -> str:
    """Return the median norms, strangers first."""
    return f" (median norm {found.ood_norm:.3g} against {found.id_norm:.3g})"


def _advice_on(found: OODDiagnosis) -> str:
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


def _figure_lines(found: OODDiagnosis) -> list[str]:
    """Tell the figures line by line."""
    head = f"{found.n_ood:,} strangers, {found.n_id:,} known rows"
    lines = [f"  {head:<38} {'known':>9} {'strange':>9}"]
    pairs = [("median confidence", found.id_confidence, found.ood_confidence, ".4f")]
    if found.id_norm is not None and found.ood_norm is not None:
        pairs.append(("median norm", found.id_norm, found.ood_norm, ".4g"))
    lines += [f"  {name:<38} {a:>9{form}} {b:>9{form}}" for name, a, b, form in pairs]
    at_median = "at least the known median's confidence"
    lines.append(f"  {at_median:<38} {'':>9} {found.fraction_as_confident:>9.1%}")
    lines.append(f"  {'pass where 95 % of known rows do':<38} {'':>9} {found.fpr95:>9.1%}")
    lines += [
        "",
        f"  {'':<18} {'AUROC':>7} {'+-':>7}   (0.5 is guessing, +- a standard error)",
    ]
    for name, one in found.separations.items():
        lines.append(f"  {name:<18} {one.auroc:>7.4f} {one.standard_error:>7.4f}")
    return lines


Kind = Literal["extrapolation", "saturation", "partial saturation", "separation", "unclear"]

N_ERRORS = 2  # a difference of so many standard errors is no accident
USEFUL = 0.6  # an AUROC from which on a doubt is said to tell strangers apart
WIDEST = 0.1  # a margin beyond which nothing is said to be alike
KEPT = 0.95  # the share of known rows that the threshold looked at lets pass
CALLER = "diagnose_ood"


@final
@dataclass(frozen=True, slots=True)
class Separation:
    """How well a doubt tells strangers apart: the AUROC, and its standard error (DeLong's).

    `chance_error` is the standard error of a doubt that knows nothing, on so many rows. What is
    said to be clear is so by the larger of both: a few rows in perfect order prove little.
    """

    auroc: float
    standard_error: float
    chance_error: float

    @property
    def margin(self) -> float:
        """How far apart things must be to be no accident."""
        return N_ERRORS * max(self.standard_error, self.chance_error)

    @property
    def tells(self) -> bool:
        """Whether strangers have clearly more doubt."""
        return self.auroc >= USEFUL and self.auroc - self.margin > 0.5

    @property
    def is_reversed(self) -> bool:
        """Whether strangers have clearly less doubt."""
        return self.auroc + self.margin < 0.5

    @property
    def is_unclear(self) -> bool:
        """Whether there are too few rows to say either, or that strangers are alike."""
        return self.margin > WIDEST and not self.tells and not self.is_reversed

    def beats(self, other: Separation) -> bool:
        """Whether this one is clearly the better of two."""
        return bool(self.auroc - other.auroc > np.hypot(self.margin, other.margin))


@final
@dataclass(frozen=True, slots=True)
class OODDiagnosis:
    """What the doubts make of strangers. `print(diagnosis)` tells it in words.

    `fraction_as_confident` of the strangers have at least the median confidence of known rows,
    `fpr95` pass a threshold on the confidence that 95 % of known rows pass. Confidences and
    norms are medians. What was not given, or logits alone can tell, is None.
    """

    kind: Kind
    n_id: int
    n_ood: int
    id_confidence: float
    ood_confidence: float
    fraction_as_confident: float
    fpr95: float
    id_norm: float | None
    ood_norm: float | None
    least_confidence: Separation
    entropy: Separation
    margin_uncertainty: Separation
    energy: Separation | None
    negative_feature_norm: Separation | None
    unfamiliarity: Separation | None

    @property
    def separations(self) -> dict[str, Separation]:
        """Every doubt that was measured, the best first."""
        names = ("least_confidence", "entropy", "margin_uncertainty", "energy")
        every = {
            name: getattr(self, name) for name in (*names, "negative_feature_norm", "unfamiliarity")
        }
        known = {name: found for name, found in every.items() if found is not None}
        return dict(sorted(known.items(), key=lambda pair: -pair[1].auroc))

    @property
    def verdict(self) -> str:
        """What happens, in a few sentences."""
        return _verdict_on(self)

    @property
    def advice(self) -> str:
        """What to do about it."""
        return _advice_on(self)

    def __str__(self) -> str:
        return "\n".join(_diagnosis_lines(self))


def diagnose_ood(
    id_outputs: Any,
    ood_outputs: Any,
    *,
    id_features: Any = None,
    ood_features: Any = None,
    weights: Any = None,
) -> OODDiagnosis:
    """Return why confidence does, or does not, tell strangers from known rows, and what would.

    Saturation: strangers are as confident as known rows; extrapolation: they are more confident.
    With features and weights of the last layer (classes x features) it says whether norms or angles
    tell them apart. Pearce et al., "Understanding softmax confidence and uncertainty", 2021.

    >>> known, strange = [[0.9, 0.1], [0.7, 0.3]] * 50, [[0.99, 0.01], [0.8, 0.2]] * 50
    >>> diagnose_ood(known, strange).kind
    'extrapolation'
    """
    known, strange = _doubts_of_both(id_outputs, ood_outputs)
    known_norms = strange_norms = known_angles = strange_angles = None
    if any(given is not None for given in (id_features, ood_features, weights)):
        known_norms, known_angles = _layer_of("id", id_features, weights, known)
        strange_norms, strange_angles = _layer_of("ood", ood_features, weights, strange)
    a, b = known.least_confidence, strange.least_confidence
    by_confidence = _separation_of(a, b)
    fpr95 = float((b <= np.quantile(a, KEPT, method="higher")).mean())
    return OODDiagnosis(
        kind=_kind_of(by_confidence, fpr95),
        n_id=a.size,
        n_ood=b.size,
        id_confidence=1 - float(np.median(a)),
        ood_confidence=1 - float(np.median(b)),
        fraction_as_confident=float((b <= np.median(a)).mean()),
        fpr95=fpr95,
        id_norm=None if known_norms is None else float(np.median(known_norms)),
        ood_norm=None if strange_norms is None else float(np.median(strange_norms)),
        least_confidence=by_confidence,
        entropy=_separation_of(known.entropy, strange.entropy),
        margin_uncertainty=_separation_of(known.margin_uncertainty, strange.margin_uncertainty),
        energy=_separation_if_known(known.energy, strange.energy),
        negative_feature_norm=_separation_if_known(
            strange_norms, known_norms
        ),  # less is more doubt
        unfamiliarity=_separation_if_known(known_angles, strange_angles),
    )


def _doubts_of_both(
    id_outputs: Any, ood_outputs: Any
) -> tuple[UncertaintyScores, UncertaintyScores]:
    """Return the doubts of known rows and of strangers, outputs of one model."""
    n_classes = None
    found = []
    for outputs, argument in (
        (id_outputs, "id_outputs"),
        (ood_outputs, "ood_outputs"),
    ):
        wrapped = as_outputs(outputs, argument, CALLER)
        found.append(output_doubts_of(wrapped, argument, CALLER))
        assert isinstance(wrapped, BaseClassOutputs)
        if not wrapped.n_rows:
            fix = "rows of both kinds"
            raise BadValueError(argument, CALLER, "1 row or more", "none", fix)
        if n_classes not in (None, wrapped.n_classes):
            rule, fix = f"of {n_classes} classes, like id_outputs", "outputs of one model"
            raise BadValueError(argument, CALLER, rule, f"{wrapped.n_classes}", fix)
        n_classes = wrapped.n_classes
    return found[0], found[1]


def _layer_of(
    which: str, features: Any, weights: Any, doubts: UncertaintyScores
) -> tuple[FloatArray, FloatArray | None]:
    """Return the norms of features and, where weights are known, the unfamiliarities."""
    argument = f"{which}_features"
    if features is None:
        rule, fix = "given with the other features and weights", "all of them, or none"
        raise BadValueError(argument, CALLER, rule, "None", fix)
    if weights is None:
        z, w = as_features(features, argument, CALLER), None
    else:
        z, w = as_layer(features, weights, 1, CALLER, argument)
    require_rows(z, doubts.entropy.size, argument, CALLER, f"{which}_outputs")
    return norms_of(z), None if w is None else 1 - familiarity_of(z, w)


def _separation_if_known(known: FloatArray | None, strange: FloatArray | None) -> Separation | None:
    """Return how well a doubt tells strangers apart, or None where it is not known of both."""
    return None if known is None or strange is None else _separation_of(known, strange)


def _separation_of(known: FloatArray, strange: FloatArray) -> Separation:
    """Return how well a doubt tells strangers apart.

    DeLong et al., "Comparing the areas under two or more correlated ROC curves", 1988.
    """
    is_outlier = np.repeat([False, True], [known.size, strange.size])
    value = roc_auc(is_outlier, np.concatenate([known, strange]))
    parts = (_shares_below(known, strange), _shares_below(strange, known))
    variance = sum(share.var(ddof=1) / share.size for share in parts if share.size > 1)
    by_chance = (known.size + strange.size + 1) / (12 * known.size * strange.size)
    return Separation(value, float(np.sqrt(variance)), float(np.sqrt(by_chance)))


def _shares_below(some: FloatArray, others: FloatArray) -> FloatArray:
    """Return for each of the others the share of `some` below it; a tie counts half."""
    ranked = np.sort(some)
    places = np.searchsorted(ranked, others, "left") + np.searchsorted(ranked, others, "right")
    return places / (2 * some.size)


def _kind_of(by_confidence: Separation, fpr95: float) -> Kind:
    """Name what happens to the confidence of strangers."""
    if by_confidence.is_reversed:
        return "extrapolation"
    if by_confidence.is_unclear:
        return "unclear"
    if not by_confidence.tells:
        return "saturation"
    return "partial saturation" if fpr95 > 0.5 else "separation"

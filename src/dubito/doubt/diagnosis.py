"""Why confidence does or does not separate out-of-distribution inputs from in-distribution data."""

from __future__ import annotations

from dataclasses import dataclass, fields
from textwrap import wrap
from typing import Any, Literal, final

import numpy as np

from dubito.arrays import FloatArray, require_rows
from dubito.doubt.activations import as_layer, max_cosines, norms
from dubito.doubt.features import as_feature_matrix
from dubito.doubt.scores import UncertaintyScores, score_outputs
from dubito.errors import BadValueError
from dubito.measure.detection import roc_auc
from dubito.outputs import BaseClassOutputs, as_outputs

Kind = Literal["extrapolation", "saturation", "partial saturation", "separation", "inconclusive"]

N_ERRORS = 2  # a difference is significant from this many standard errors
USEFUL_AUROC = 0.6  # from which a score is said to separate OOD rows
MAX_MARGIN = 0.1  # with a larger margin of error, no conclusion is drawn
ACCEPTED = 0.95  # the fraction of in-distribution rows that the FPR95 threshold accepts
CALLER = "diagnose_ood"


@final
@dataclass(frozen=True, slots=True)
class Separation:
    """How well a score separates OOD rows from in-distribution rows.

    `standard_error` is DeLong's; `chance_error` is the standard error of an uninformative score
    with as many rows. Conclusions use the larger one: a few rows in perfect order prove little.
    """

    auroc: float
    standard_error: float
    chance_error: float

    @property
    def margin(self) -> float:
        """The margin of error of the AUROC."""
        return N_ERRORS * max(self.standard_error, self.chance_error)

    @property
    def separates(self) -> bool:
        """Whether OOD rows have clearly larger scores."""
        return self.auroc >= USEFUL_AUROC and self.auroc - self.margin > 0.5

    @property
    def is_reversed(self) -> bool:
        """Whether OOD rows have clearly smaller scores."""
        return self.auroc + self.margin < 0.5

    @property
    def is_inconclusive(self) -> bool:
        """Whether there are too few rows for a conclusion."""
        return self.margin > MAX_MARGIN and not self.separates and not self.is_reversed

    def beats(self, other: Separation) -> bool:
        """Return whether this score is clearly better than another."""
        return bool(self.auroc - other.auroc > np.hypot(self.margin, other.margin))


@final
@dataclass(frozen=True, slots=True)
class OODDiagnosis:
    """How uncertainty scores separate OOD inputs. `print(diagnosis)` explains it in words.

    Attributes
    ----------
    kind : str
        "extrapolation" (OOD inputs are more confident), "saturation" (about as confident),
        "partial saturation" (less confident, but most pass a usual threshold), "separation", or
        "inconclusive" (too few rows).
    n_id, n_ood : int
        The numbers of rows.
    id_confidence, ood_confidence : float
        Median confidences.
    fraction_as_confident : float
        The fraction of OOD rows at least as confident as the median in-distribution row.
    fpr95 : float
        The fraction of OOD rows accepted by the confidence threshold that accepts 95 % of
        in-distribution rows.
    id_norm, ood_norm : float or None
        Median feature norms, None without features.
    least_confidence, entropy, margin_uncertainty : Separation
        The AUROC of each score, with standard errors.
    energy, negative_feature_norm, unfamiliarity : Separation or None
        The same; None without logits, features or weights.
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
        """The separation of every score that was measured, the best first."""
        names = [field.name for field in fields(self) if "Separation" in str(field.type)]
        measured = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return dict(sorted(measured.items(), key=lambda pair: -pair[1].auroc))

    @property
    def verdict(self) -> str:
        """What happens, in a few sentences."""
        return " ".join([_confidence_verdict(self), *_feature_verdicts(self)])

    @property
    def advice(self) -> str:
        """What to do about it."""
        return _advice(self)

    def __str__(self) -> str:
        return "\n".join([*wrap(self.verdict, 80), *wrap(self.advice, 80), "", *_table(self)])


def diagnose_ood(
    id_outputs: Any,
    ood_outputs: Any,
    *,
    id_features: Any = None,
    ood_features: Any = None,
    weights: Any = None,
) -> OODDiagnosis:
    """Return why confidence does or does not separate OOD inputs, and which score does.

    Saturation means that OOD inputs are about as confident as in-distribution inputs,
    extrapolation that they are more confident. With features and weights of the last layer, the
    diagnosis says whether feature norms or angles would separate them.

    Parameters
    ----------
    id_outputs, ood_outputs : Logits, Probabilities, Members or array-like
        Outputs of one model for in-distribution and for out-of-distribution rows.
    id_features, ood_features : array-like of shape (n_rows, n_features), optional
        The inputs of the last layer, for both or for neither.
    weights : array-like of shape (n_classes, n_features), optional
        The weights of the last layer.

    Returns
    -------
    OODDiagnosis
        Verdict, advice and figures.

    References
    ----------
    Pearce et al., "Understanding softmax confidence and uncertainty", 2021. Standard errors:
    DeLong et al., "Comparing the areas under two or more correlated ROC curves", 1988.

    Examples
    --------
    >>> known, new = [[0.9, 0.1], [0.7, 0.3]] * 50, [[0.99, 0.01], [0.8, 0.2]] * 50
    >>> diagnose_ood(known, new).kind
    'extrapolation'
    """
    known, ood = _scores_of_both(id_outputs, ood_outputs)
    id_norms = ood_norms = id_angles = ood_angles = None
    if any(given is not None for given in (id_features, ood_features, weights)):
        id_norms, id_angles = _norms_and_angles("id", id_features, weights, known)
        ood_norms, ood_angles = _norms_and_angles("ood", ood_features, weights, ood)
    a, b = known.least_confidence, ood.least_confidence
    by_confidence = _separation(a, b)
    fpr95 = float((b <= np.quantile(a, ACCEPTED, method="higher")).mean())
    return OODDiagnosis(
        kind=_kind(by_confidence, fpr95),
        n_id=a.size,
        n_ood=b.size,
        id_confidence=1 - float(np.median(a)),
        ood_confidence=1 - float(np.median(b)),
        fraction_as_confident=float((b <= np.median(a)).mean()),
        fpr95=fpr95,
        id_norm=None if id_norms is None else float(np.median(id_norms)),
        ood_norm=None if ood_norms is None else float(np.median(ood_norms)),
        least_confidence=by_confidence,
        entropy=_separation(known.entropy, ood.entropy),
        margin_uncertainty=_separation(known.margin_uncertainty, ood.margin_uncertainty),
        energy=_optional_separation(known.energy, ood.energy),
        # Swapped: a smaller norm is more uncertain.
        negative_feature_norm=_optional_separation(ood_norms, id_norms),
        unfamiliarity=_optional_separation(id_angles, ood_angles),
    )


def _scores_of_both(
    id_outputs: Any, ood_outputs: Any
) -> tuple[UncertaintyScores, UncertaintyScores]:
    """Return the scores of both kinds of rows, which must be outputs of one model."""
    n_classes = None
    found = []
    for outputs, argument in ((id_outputs, "id_outputs"), (ood_outputs, "ood_outputs")):
        wrapped = as_outputs(outputs, argument, CALLER)
        found.append(score_outputs(wrapped, argument, CALLER))
        assert isinstance(wrapped, BaseClassOutputs)
        if not wrapped.n_rows:
            rule, fix = "must have at least 1 row", "Pass rows of both kinds"
            raise BadValueError(argument, CALLER, rule, "0", fix)
        if n_classes not in (None, wrapped.n_classes):
            rule = f"must have {n_classes} classes, like `id_outputs`"
            fix = "Pass outputs of one model"
            raise BadValueError(argument, CALLER, rule, f"{wrapped.n_classes}", fix)
        n_classes = wrapped.n_classes
    return found[0], found[1]


def _norms_and_angles(
    which: str, features: Any, weights: Any, scores: UncertaintyScores
) -> tuple[FloatArray, FloatArray | None]:
    """Return feature norms and, if weights are given, unfamiliarities."""
    argument = f"{which}_features"
    if features is None:
        rule, fix = "must be given with the other features and weights", "Pass all of them or none"
        raise BadValueError(argument, CALLER, rule, "None", fix)
    if weights is None:
        z, w = as_feature_matrix(features, CALLER, argument), None
    else:
        z, w = as_layer(features, weights, 1, CALLER, argument)
    require_rows(z, scores.entropy.size, argument, CALLER, f"{which}_outputs")
    return norms(z), None if w is None else 1 - max_cosines(z, w)


def _optional_separation(known: FloatArray | None, ood: FloatArray | None) -> Separation | None:
    """Return how well a score separates OOD rows, None if it is not available for both."""
    return None if known is None or ood is None else _separation(known, ood)


def _separation(known: FloatArray, ood: FloatArray) -> Separation:
    """Return how well a score separates OOD rows, with DeLong's standard error."""
    is_outlier = np.repeat([False, True], [known.size, ood.size])
    auroc = roc_auc(is_outlier, np.concatenate([known, ood]))
    parts = (_fractions_below(known, ood), _fractions_below(ood, known))
    variance = sum(part.var(ddof=1) / part.size for part in parts if part.size > 1)
    by_chance = (known.size + ood.size + 1) / (12 * known.size * ood.size)
    return Separation(auroc, float(np.sqrt(variance)), float(np.sqrt(by_chance)))


def _fractions_below(values: FloatArray, limits: FloatArray) -> FloatArray:
    """Return, for each limit, the fraction of values below it; a tie counts half."""
    ordered = np.sort(values)
    ranks = np.searchsorted(ordered, limits, "left") + np.searchsorted(ordered, limits, "right")
    return ranks / (2 * values.size)


def _kind(by_confidence: Separation, fpr95: float) -> Kind:
    """Return what happens to the confidence of OOD rows."""
    if by_confidence.is_reversed:
        return "extrapolation"
    if by_confidence.is_inconclusive:
        return "inconclusive"
    if not by_confidence.separates:
        return "saturation"
    return "partial saturation" if fpr95 > 0.5 else "separation"


def _confidence_verdict(found: OODDiagnosis) -> str:
    """Return whether confidence separates OOD inputs."""
    auroc = f"AUROC {found.least_confidence.auroc:.3f}"
    accepted = "A threshold that accepts 95 % of in-distribution inputs accepts"
    accepted = f"{accepted} {found.fpr95:.1%} of OOD inputs."
    if found.kind == "inconclusive":
        return (
            f"Inconclusive: too few rows to tell whether confidence separates OOD inputs ({auroc})."
        )
    if found.kind == "separation":
        return f"Separation: confidence separates OOD inputs ({auroc}). {accepted}"
    if found.kind == "partial saturation":
        partly = "Partial saturation: confidence separates OOD inputs only in part"
        return f"{partly} ({auroc}). {accepted}"
    how = "more" if found.kind == "extrapolation" else "about as"
    than = "than" if found.kind == "extrapolation" else "as"
    return (
        f"{found.kind.capitalize()}: confidence does not separate OOD inputs ({auroc}); they are "
        f"{how} confident {than} in-distribution inputs. {accepted}"
    )


def _feature_verdicts(found: OODDiagnosis) -> list[str]:
    """Return whether feature norms and angles separate OOD inputs."""
    by_norm, by_angle = found.negative_feature_norm, found.unfamiliarity
    if by_norm is None:
        return []
    longer = (
        f"have a larger norm (median {found.ood_norm:.3g}, in-distribution {found.id_norm:.3g})"
    )
    sentences = [_feature_verdict("Feature norms", by_norm, longer)]
    if by_angle is None:
        return sentences
    closer = "point closer to the weights of some class"
    sentences.append(_feature_verdict("Feature angles", by_angle, closer))
    parts = (by_norm, by_angle)
    if not any(part.separates or part.is_reversed or part.is_inconclusive for part in parts):
        sentences.append("OOD and in-distribution features overlap in the last layer.")
    return sentences


def _feature_verdict(name: str, part: Separation, reversal: str) -> str:
    """Return whether norms, or angles, separate OOD inputs."""
    auroc = f"AUROC {part.auroc:.3f}"
    if part.separates:
        return f"{name} separate them ({auroc})."
    if part.is_reversed:
        return f"OOD features {reversal}, which increases softmax confidence ({auroc})."
    if part.is_inconclusive:
        return f"{name} are inconclusive with so few rows ({auroc})."
    return f"{name} do not separate them ({auroc})."


def _advice(found: OODDiagnosis) -> str:
    """Return what to do about the diagnosis."""
    name, best = next(iter(found.separations.items()))
    sentences = []
    if best.separates and best.beats(found.least_confidence):
        sentences.append(
            f"Detect OOD inputs with {name} (AUROC {best.auroc:.3f}) instead of confidence."
        )
    elif found.kind == "inconclusive":
        sentences.append("Provide more rows of both kinds.")
    elif found.kind == "separation":
        sentences.append(
            "Detect OOD inputs by confidence: no other score measured here is clearly better."
        )
    else:
        sentences.append(
            "No score measured here is clearly better: try a distance on features "
            "(MahalanobisDistance, NearestNeighborDistance), features of an earlier layer, or "
            "another model."
        )
    if found.kind not in ("separation", "inconclusive"):
        sentences.append("Calibration cannot fix this: it only sees in-distribution data.")
    if found.negative_feature_norm is None or found.unfamiliarity is None:
        sentences.append("Pass features and weights to check feature norms and angles as well.")
    return " ".join(sentences)


def _table(found: OODDiagnosis) -> list[str]:
    """Return the figures as lines of text."""
    lines = [f"  {'':<48} {'in-distr.':>9} {'OOD':>9}"]
    lines.append(f"  {'rows':<48} {found.n_id:>9,} {found.n_ood:>9,}")
    pairs = [("median confidence", found.id_confidence, found.ood_confidence, ".4f")]
    if found.id_norm is not None and found.ood_norm is not None:
        pairs.append(("median feature norm", found.id_norm, found.ood_norm, ".4g"))
    lines += [f"  {name:<48} {a:>9{form}} {b:>9{form}}" for name, a, b, form in pairs]
    name = "at or above the median in-distr. confidence"
    lines.append(f"  {name:<48} {'':>9} {found.fraction_as_confident:>9.1%}")
    name = "accepted at 95% in-distribution acceptance"
    lines.append(f"  {name:<48} {'':>9} {found.fpr95:>9.1%}")
    lines += ["", f"  {'score':<22} {'AUROC':>7} {'+-':>7}   (0.5 is chance; +- standard error)"]
    for name, one in found.separations.items():
        lines.append(f"  {name:<22} {one.auroc:>7.4f} {one.standard_error:>7.4f}")
    return lines

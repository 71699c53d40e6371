"""Why confidence does or does not separate out-of-distribution inputs from in-distribution data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import NormalDist
from typing import Any, Literal, final

import numpy as np

from dubito.arrays import FloatArray, require_rows
from dubito.doubt.activations import as_layer, max_cosines, norms
from dubito.doubt.features import BaseFeatureScore, as_feature_matrix
from dubito.doubt.scores import (
    UncertaintyScores,
    as_scored_outputs,
    generalized_entropy,
    uncertainty_scores,
)
from dubito.errors import BadValueError
from dubito.formatting import HTMLTable, html_view, percent, wrapped
from dubito.measure.detection import roc_auc

SCORE_NOTE = "AUROC 0.5 is chance; gain over least confidence; +- standard error"
Conclusion = Literal["separated", "reversed", "inconclusive", "overlapping"]
Kind = Literal["extrapolation", "saturation", "partial saturation", "separation", "inconclusive"]

NORMAL = NormalDist()
LEVEL = 0.05  # of the test whether a score is better than least confidence
N_ERRORS = 2  # a difference is significant from this many standard errors
USEFUL_AUROC = 0.6  # from which a score is said to separate OOD rows
MAX_MARGIN = 0.1  # with a larger margin of error, no conclusion is drawn
ACCEPTED = 0.95  # the fraction of in-distribution rows that the FPR95 threshold accepts
CALLER = "diagnose_ood"
NOT = "confidence does not separate OOD inputs ({auroc}); they are"
VERDICTS: dict[Kind, str] = {
    "inconclusive": "too few rows to tell whether confidence separates OOD inputs ({auroc}).",
    "separation": "confidence separates OOD inputs ({auroc}).",
    "partial saturation": "confidence separates OOD inputs only in part ({auroc}).",
    "saturation": f"{NOT} about as confident as in-distribution inputs.",
    "extrapolation": f"{NOT} more confident than in-distribution inputs.",
}
KINDS: dict[Conclusion, Kind] = {
    "reversed": "extrapolation",
    "inconclusive": "inconclusive",
    "overlapping": "saturation",
    "separated": "separation",
}
FEATURE_VERDICTS: dict[Conclusion, str] = {
    "separated": "{name} separate them ({auroc}).",
    "reversed": "OOD features {reversal}, which increases softmax confidence ({auroc}).",
    "inconclusive": "{name} are inconclusive with so few rows ({auroc}).",
    "overlapping": "{name} do not separate them ({auroc}).",
}
THRESHOLD = "A threshold that accepts 95 % of in-distribution inputs"
NO_BETTER = "no other score measured here is clearly better"
ADVICE = {
    "inconclusive": "Provide more rows of both kinds.",
    "separation": f"Detect OOD inputs by confidence: {NO_BETTER}.",
}
NO_SCORE = (
    "No score measured here is clearly better: try a distance on features (MahalanobisDistance, "
    "NearestNeighborDistance), features of an earlier layer, or another model."
)
NO_CALIBRATION = "Calibration cannot fix this: it only sees in-distribution data."


@final
@dataclass(frozen=True, slots=True)
class Separation:
    """How well a score separates OOD rows from in-distribution rows.

    `standard_error` is DeLong's; `chance_error` is the standard error of an uninformative score
    with as many rows. Conclusions use the larger one: a few rows in perfect order prove little.
    `gain` is the AUROC above that of least confidence on the same rows, `gain_error` its standard
    error, as the two are correlated.
    """

    roc_auc: float
    standard_error: float
    chance_error: float
    gain: float = 0.0
    gain_error: float = 0.0

    @property
    def margin(self) -> float:
        """The margin of error of the AUROC."""
        return N_ERRORS * max(self.standard_error, self.chance_error)

    @property
    def conclusion(self) -> Conclusion:
        """Whether OOD rows have clearly larger scores, clearly smaller ones, or neither.

        "inconclusive" if there are too few rows to tell.
        """
        if self.roc_auc >= USEFUL_AUROC and self.roc_auc - self.margin > 0.5:
            return "separated"
        if self.roc_auc + self.margin < 0.5:
            return "reversed"
        return "inconclusive" if self.margin > MAX_MARGIN else "overlapping"


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
        in-distribution rows, as papers on OOD detection define it. The FPR95 of an audit and of
        `false_positive_rate_at_recall` has errors or outliers as positives.
    id_norm, ood_norm : float or None
        Median feature norms, None without features.
    least_confidence, entropy, generalized_entropy, margin_uncertainty : Separation
        The AUROC of each score, with standard errors.
    energy, negative_feature_norm, unfamiliarity : Separation or None
        The same; None without logits, features or weights.
    fitted : dict of Separation
        The same for the scores that were passed as `scores`, by name.
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
    generalized_entropy: Separation
    margin_uncertainty: Separation
    energy: Separation | None
    negative_feature_norm: Separation | None
    unfamiliarity: Separation | None
    fitted: dict[str, Separation] = field(default_factory=dict)

    @property
    def separations(self) -> dict[str, Separation]:
        """The separation of every score that was measured, the best first."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        built_in = {name: one for name, one in values.items() if isinstance(one, Separation)}
        return dict(sorted({**built_in, **self.fitted}.items(), key=lambda pair: -pair[1].roc_auc))

    @property
    def recommended(self) -> str:
        """The name of the score to detect such outliers with.

        It has the largest AUROC of all scores measured. If it is not better than least confidence
        by a paired test at the 5 % level, corrected for the number of scores, it is
        "least_confidence".
        """
        measured = self.separations
        name, best = next(iter(measured.items()))
        is_better = best.gain > NORMAL.inv_cdf(1 - LEVEL / (2 * len(measured))) * best.gain_error
        is_useful = best.conclusion == "separated"
        return name if is_useful and is_better else "least_confidence"

    @property
    def verdict(self) -> str:
        """What happens, in a few sentences."""
        auroc = f"AUROC {self.least_confidence.roc_auc:.3f}"
        text = f"{self.kind.capitalize()}: {VERDICTS[self.kind].format(auroc=auroc)}"
        if self.kind != "inconclusive":
            text += f" {THRESHOLD} accepts {percent(self.fpr95)} of OOD inputs."
        return " ".join([text, *_feature_verdicts(self)])

    @property
    def advice(self) -> str:
        """What to do about it."""
        name, sentences = self.recommended, [ADVICE.get(self.kind, NO_SCORE)]
        if name != "least_confidence":
            best = self.separations[name]
            found = f"{name} (AUROC {best.roc_auc:.3f}, {best.gain:.3f} above that of confidence)"
            sentences = [f"Detect OOD inputs with {found}."]
        if self.kind not in ADVICE:
            sentences.append(NO_CALIBRATION)
        if self.negative_feature_norm is None or self.unfamiliarity is None:
            sentences.append("Pass features and weights to check feature norms and angles as well.")
        return " ".join(sentences)

    def _repr_html_(self) -> str:
        head, *figures = _figure_cells(self)
        scores = [
            (name, f"{one.roc_auc:.4f}", f"{one.standard_error:.4f}",
             *(("", "") if name == "least_confidence"
               else (f"{one.gain:+.4f}", f"{one.gain_error:.4f}")))
            for name, one in self.separations.items()
        ]  # fmt: skip
        heads = ("score", "AUROC", "\N{PLUS-MINUS SIGN}", "gain", "\N{PLUS-MINUS SIGN}")
        parts = HTMLTable(heads, scores), SCORE_NOTE, HTMLTable(head, figures)
        return html_view(self.verdict, self.advice, *parts)

    def __str__(self) -> str:
        return "\n".join([*wrapped(self.verdict, 80), *wrapped(self.advice, 80), "", *_table(self)])


def diagnose_ood(
    id_outputs: Any,
    ood_outputs: Any,
    *,
    id_features: Any = None,
    ood_features: Any = None,
    weights: Any = None,
    scores: Mapping[str, BaseFeatureScore] | None = None,
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
    scores : dict of scores fitted on features, optional
        Scores to compare as well, by name; ``{"distance": MahalanobisDistance().fit(...)}``. Fit
        them on other rows than these.

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
    >>> from dubito.doubt import diagnose_ood
    >>> known, new = [[0.9, 0.1], [0.7, 0.3]] * 50, [[0.99, 0.01], [0.8, 0.2]] * 50
    >>> diagnose_ood(known, new).kind
    'extrapolation'
    """
    known, ood = _scores_of_both(id_outputs, ood_outputs)
    id_norms = ood_norms = id_angles = ood_angles = None  # as scores: the negative norms
    if any(given is not None for given in (id_features, ood_features, weights)):
        id_norms, id_angles = _norms_and_angles("id", id_features, weights, known)
        ood_norms, ood_angles = _norms_and_angles("ood", ood_features, weights, ood)
    a, b = known.least_confidence, ood.least_confidence
    by_confidence = _separation(a, b)
    fpr95 = float((b <= np.quantile(a, ACCEPTED, method="higher")).mean())
    kind = KINDS[by_confidence.conclusion]

    def compared(id_scores: FloatArray, ood_scores: FloatArray) -> Separation:
        gain, error = paired_gain((id_scores, a), (ood_scores, b))
        return replace(_separation(id_scores, ood_scores), gain=gain, gain_error=error)

    def available(id_scores: FloatArray | None, ood_scores: FloatArray | None) -> Separation | None:
        if id_scores is None or ood_scores is None:
            return None
        return compared(id_scores, ood_scores)

    if scores and id_norms is None:
        rule, fix = "must be given with scores fitted on features", "Pass those of both kinds"
        raise BadValueError("id_features", CALLER, rule, "None", fix)
    return OODDiagnosis(
        kind="partial saturation" if kind == "separation" and fpr95 > 0.5 else kind,
        n_id=a.size,
        n_ood=b.size,
        id_confidence=1 - float(np.median(a)),
        ood_confidence=1 - float(np.median(b)),
        fraction_as_confident=float((b <= np.median(a)).mean()),
        fpr95=fpr95,
        id_norm=None if id_norms is None else -float(np.median(id_norms)),
        ood_norm=None if ood_norms is None else -float(np.median(ood_norms)),
        least_confidence=by_confidence,
        entropy=compared(known.entropy, ood.entropy),
        generalized_entropy=compared(
            generalized_entropy(id_outputs), generalized_entropy(ood_outputs)
        ),
        margin_uncertainty=compared(known.margin_uncertainty, ood.margin_uncertainty),
        energy=available(known.energy, ood.energy),
        negative_feature_norm=available(id_norms, ood_norms),
        unfamiliarity=available(id_angles, ood_angles),
        fitted={
            name: compared(one.score(id_features), one.score(ood_features))
            for name, one in (scores or {}).items()
        },
    )


def paired_gain(known: Sequence[FloatArray], ood: Sequence[FloatArray]) -> tuple[float, float]:
    """Return the difference of the AUROCs of two scores of the same rows, and its standard error.

    DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated ROC
    curves", 1988.
    """
    above = [_fractions_below(a, b) for a, b in zip(known, ood, strict=True)]
    below = [_fractions_below(b, a) for a, b in zip(known, ood, strict=True)]
    differences = above[0] - above[1], below[1] - below[0]
    variance = sum(one.var(ddof=1) / one.size for one in differences if one.size > 1)
    return float(differences[0].mean()), float(np.sqrt(variance))


def _scores_of_both(
    id_outputs: Any, ood_outputs: Any
) -> tuple[UncertaintyScores, UncertaintyScores]:
    """Return the scores of both kinds of rows, which must be outputs of one model."""
    known = as_scored_outputs(id_outputs, "id_outputs", CALLER)
    ood = as_scored_outputs(ood_outputs, "ood_outputs", CALLER)
    for one, argument in ((known, "id_outputs"), (ood, "ood_outputs")):
        if not one.n_rows:
            rule, fix = "must have at least 1 row", "Pass rows of both kinds"
            raise BadValueError(argument, CALLER, rule, "0", fix)
    if ood.n_classes != known.n_classes:
        rule = f"must have {known.n_classes} classes, like `id_outputs`"
        got, fix = f"{ood.n_classes}", "Pass outputs of one model"
        raise BadValueError("ood_outputs", CALLER, rule, got, fix)
    return uncertainty_scores(known), uncertainty_scores(ood)


def _norms_and_angles(
    which: str, features: Any, weights: Any, scores: UncertaintyScores
) -> tuple[FloatArray, FloatArray | None]:
    """Return negative feature norms and, if weights are given, unfamiliarities."""
    argument = f"{which}_features"
    if features is None:
        rule, fix = "must be given with the other features and weights", "Pass all of them or none"
        raise BadValueError(argument, CALLER, rule, "None", fix)
    if weights is None:
        z, w = as_feature_matrix(features, CALLER, argument), None
    else:
        z, w = as_layer(features, weights, 1, CALLER, argument)
    require_rows(z, scores.entropy.size, argument, CALLER, f"{which}_outputs")
    return -norms(z), None if w is None else 1 - max_cosines(z, w)


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


def _feature_verdicts(found: OODDiagnosis) -> list[str]:
    """Return whether feature norms and angles separate OOD inputs."""
    by_norm, by_angle = found.negative_feature_norm, found.unfamiliarity
    if by_norm is None:
        return []
    medians = f"median {found.ood_norm:.3g}, in-distribution {found.id_norm:.3g}"
    longer = f"have a larger norm ({medians})"
    sentences = [_feature_verdict("Feature norms", by_norm, longer)]
    if by_angle is None:
        return sentences
    closer = "point closer to the weights of some class"
    sentences.append(_feature_verdict("Feature angles", by_angle, closer))
    if by_norm.conclusion == by_angle.conclusion == "overlapping":
        sentences.append("OOD and in-distribution features overlap in the last layer.")
    return sentences


def _feature_verdict(name: str, part: Separation, reversal: str) -> str:
    """Return whether norms, or angles, separate OOD inputs."""
    auroc, verdict = f"AUROC {part.roc_auc:.3f}", FEATURE_VERDICTS[part.conclusion]
    return verdict.format(name=name, auroc=auroc, reversal=reversal)


def _table(found: OODDiagnosis) -> list[str]:
    """Return the figures as lines of text."""
    lines = [f"  {name:<48} {known:>9} {ood:>9}" for name, known, ood in _figure_cells(found)]
    width = max(map(len, found.separations))
    head = f"{'AUROC':>7} {'+-':>7} {'gain':>8} {'+-':>7}"
    lines += ["", f"  {'score':<{width}} {head}"]
    for name, one in found.separations.items():
        figures = f"{one.roc_auc:>7.4f} {one.standard_error:>7.4f}"
        gain = "" if name == "least_confidence" else f" {one.gain:>+8.4f} {one.gain_error:>7.4f}"
        lines.append(f"  {name:<{width}} {figures}{gain}")
    lines.append(f"  ({SCORE_NOTE})")
    return lines


def _figure_cells(found: OODDiagnosis) -> list[tuple[str, str, str]]:
    """Return figures of in-distribution and of OOD rows, below their head."""
    cells = [
        ("", "in-distr.", "OOD"),
        ("rows", f"{found.n_id:,}", f"{found.n_ood:,}"),
        ("median confidence", f"{found.id_confidence:.4f}", f"{found.ood_confidence:.4f}"),
        ("at or above the median in-distr. confidence", "", percent(found.fraction_as_confident)),
        ("accepted at 95 % in-distribution acceptance", "", percent(found.fpr95)),
    ]
    if found.id_norm is not None:
        norms = f"{found.id_norm:.4g}", f"{found.ood_norm:.4g}"
        cells.insert(3, ("median feature norm", *norms))
    return cells

"""Uncertainty section: correct and wrong rows, OOD rows, aleatoric and epistemic parts."""

from __future__ import annotations

import numpy as np

from dubito.arrays import FloatArray
from dubito.formatting import decimal, percent
from dubito.report.charts.builders import (
    Curve,
    Population,
    uncertainty_histogram,
    uncertainty_scatter,
)
from dubito.report.content import Block, Figure, Row, Section, Text
from dubito.report.ood import ALPHA, OODScores
from dubito.report.summary import Summary

MAX_DOTS = 1500


def uncertainty_section(summary: Summary) -> Section:
    """Return how uncertainty is distributed over correct, wrong and OOD rows."""
    figures: list[Block] = [_error_figure(summary)]
    texts = [Text("Uncertainty is useful if wrong and out-of-distribution (OOD) rows have more.")]
    if summary.ood is not None:
        figures += _ood_figures(summary.ood)
        texts += [Text(text) for text in _ood_texts(summary.ood)]
    if summary.uncertainty is not None:
        figures.append(_decomposition_figure(summary))
    title = "Does uncertainty find errors?"
    return Section("uncertainty", title, (*texts, Row(tuple(figures))))


def _error_figure(summary: Summary) -> Figure:
    """Return the uncertainty of correct and of wrong rows."""
    rows, weight = summary.after.rows, summary.after.labeled_weight
    populations = _by_correctness(rows.least_confidence, weight, rows.correct)
    title, label = "Correct and wrong rows", "1 - confidence, calibrated"
    caption = "The further apart, the more errors a threshold finds."
    separation = summary.audit_after.error_separation
    area = ""
    if separation is not None:
        area = (
            f" Error separation: {decimal(separation)}, the probability that an error is less "
            "confident than a correct row (0.5: chance)."
        )
    return _histogram(title, label, populations, f"{caption}{area}")


def _by_correctness(
    scores: FloatArray, weight: FloatArray, correct: FloatArray
) -> list[Population]:
    """Return the scores of correct and of wrong rows; a row with a soft label counts in both."""
    return [
        Population(f"{style} rows", style, scores[part > 0], (weight * part)[part > 0])
        for style, part in (("correct", correct), ("wrong", 1 - correct))
        if (weight * part).sum() > 0
    ]


def _ood_figures(scores: OODScores) -> list[Block]:
    """Return the scores of in-distribution and OOD rows: by confidence, and by distance."""
    figures: list[Block] = []
    caption = "Each kind adds up to 100 %; the last bin includes larger values."
    if scores.ood_doubt is not None:
        populations = [
            _unweighted("in-distribution rows", "known", scores.doubt),
            _unweighted("OOD rows", "ood", scores.ood_doubt),
        ]
        text = f"{caption}{_auroc_text(scores.doubt_auroc)}"
        label = "1 - confidence, uncalibrated"
        figures.append(_histogram("OOD rows by confidence", label, populations, text))
    if scores.distance is not None:
        correct = scores.is_correct.astype(np.float64)
        populations = _by_correctness(scores.distance, scores.weight, correct)
        title = "Distance of the features"
        if scores.ood_distance is not None:
            populations.append(_unweighted("OOD rows", "ood", scores.ood_distance))
            title = "OOD rows by distance"
        text = f"{caption}{_auroc_text(scores.distance_auroc)}"
        figures.append(_histogram(title, "Squared Mahalanobis distance", populations, text))
    return figures


def _unweighted(name: str, style: str, scores: FloatArray) -> Population:
    """Return scores that all have weight 1."""
    return Population(name, style, scores, np.ones(scores.size))


def _histogram(title: str, label: str, populations: list[Population], caption: str) -> Figure:
    """Return the distributions of a score in several kinds of rows."""
    return Figure(title, (uncertainty_histogram(title, label, populations),), caption)


def _auroc_text(area: float | None) -> str:
    """Return an OOD detection AUROC as a sentence, nothing if it is unknown."""
    return "" if area is None else f" OOD detection AUROC: {decimal(area)} (0.5: chance)."


def _ood_texts(scores: OODScores) -> list[str]:
    """Return what the distance was fitted on, and how many OOD rows it detects."""
    texts = []
    if scores.distance is not None:
        center = "nearest class" if scores.is_by_class else "mean of all rows"
        texts.append(
            f"Distances are to the {center}, fitted on the features of {scores.n_fitted:,} rows; "
            f"the other {scores.distance.size:,} rows are shown."
        )
    if scores.detected is not None and scores.ood_distance is not None:
        texts.append(
            f"At a false positive rate of {percent(ALPHA, 0)}, the distance detects "
            f"{percent(scores.detected)} of the {scores.ood_distance.size:,} OOD rows."
        )
    return texts


def _decomposition_figure(summary: Summary) -> Figure:
    """Return epistemic over aleatoric uncertainty, for a sample of rows."""
    parts, correct = summary.uncertainty, summary.before.rows.correct > 0.5
    assert parts is not None
    rows = np.arange(correct.size)
    if rows.size > MAX_DOTS:
        rng = np.random.default_rng(summary.provenance.seed)
        rows = np.sort(rng.choice(rows, MAX_DOTS, replace=False))
    kinds = (("correct", rows[correct[rows]]), ("wrong", rows[~correct[rows]]))
    populations = [
        Curve(style, f"{style} rows", parts.aleatoric[chosen], parts.epistemic[chosen])
        for style, chosen in kinds
    ]
    epistemic = float(parts.epistemic.sum() / max(parts.total.sum(), 1e-300))
    caption = (
        f"{percent(epistemic)} of the uncertainty is epistemic: the members disagree, and more "
        f"data could reduce it. Mean aleatoric uncertainty (noise in the data): "
        f"{decimal(float(parts.aleatoric.mean()))} nats. {rows.size:,} rows are shown."
    )
    title = "Aleatoric and epistemic uncertainty"
    return Figure(title, (uncertainty_scatter(title, populations),), caption)

"""How well an uncertainty score detects outliers or errors: AUROC, AUPR, FPR95."""

from __future__ import annotations

from typing import Any

import numpy as np

from dubito.arrays import as_array, as_fraction, as_fractions, dot, require_rows
from dubito.data.batch import as_weights
from dubito.errors import BadValueError
from dubito.measure.ranking import RankingState, as_scores


def roc_auc(is_outlier: Any, doubt: Any, *, sample_weight: Any = None) -> float:
    """Return the area under the ROC curve of an outlier or error score (AUROC).

    The probability that an outlier scores higher than an inlier; ties count half. 0.5 is random. To
    detect the model's errors, pass `y_true != predicted` as `is_outlier`.

    Parameters
    ----------
    is_outlier : array-like of shape (n_samples,)
        True or 1 for outliers (or errors), False or 0 for inliers.
    doubt : array-like of shape (n_samples,)
        Uncertainty or OOD score per row, higher is more uncertain.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Between 0 and 1; higher is better.

    Examples
    --------
    >>> roc_auc([False, False, True], [0.1, 0.4, 0.4])
    0.75
    """
    return auroc_of(_ranked_scores(is_outlier, doubt, sample_weight, "roc_auc"))


def average_precision(is_outlier: Any, doubt: Any, *, sample_weight: Any = None) -> float:
    """Return the area under the precision-recall curve (AUPR) as average precision.

    A random score reaches the fraction of outliers, so compare only at the same fraction.

    Parameters
    ----------
    is_outlier : array-like of shape (n_samples,)
        True or 1 for outliers (or errors), False or 0 for inliers.
    doubt : array-like of shape (n_samples,)
        Uncertainty or OOD score per row, higher is more uncertain.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Between 0 and 1; higher is better.

    Examples
    --------
    >>> average_precision([False, True, True], [0.1, 0.4, 0.9])
    1.0
    """
    return average_precision_of(
        _ranked_scores(is_outlier, doubt, sample_weight, "average_precision")
    )


def false_positive_rate_at_recall(
    is_outlier: Any, doubt: Any, *, recall: float = 0.95, sample_weight: Any = None
) -> float:
    """Return the fraction of inliers flagged at a given recall of the outliers (FPR95).

    Outliers are the positives here. Papers on OOD detection mostly take the inliers for positives
    and mean by FPR95 the fraction of outliers accepted where 95 % of the inliers are accepted:
    `false_positive_rate_at_recall(~is_outlier, -doubt)`, and `fpr95` of `diagnose_ood`.

    Parameters
    ----------
    is_outlier : array-like of shape (n_samples,)
        True or 1 for outliers (or errors), False or 0 for inliers.
    doubt : array-like of shape (n_samples,)
        Uncertainty or OOD score per row, higher is more uncertain.
    recall : float, default=0.95
        Fraction of the outliers that must be flagged.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Between 0 and 1; lower is better.

    Examples
    --------
    >>> false_positive_rate_at_recall([False, False, True], [0.1, 0.9, 0.4])
    0.5
    """
    caller = "false_positive_rate_at_recall"
    wanted = as_fraction(recall, "recall", caller)
    state = _ranked_scores(is_outlier, doubt, sample_weight, caller)
    return false_positive_rate_of(state, wanted)


def _ranked_scores(is_outlier: Any, doubt: Any, sample_weight: Any, caller: str) -> RankingState:
    """Rank scores; there must be outliers and inliers."""
    scores = as_scores(doubt, caller)
    flags = as_array(is_outlier, "is_outlier", caller)
    if flags.dtype.kind == "b":
        flags = flags.astype(np.float64)
    flags = as_fractions(flags, "is_outlier", caller)
    require_rows(flags, len(scores), "is_outlier", caller)
    weight = as_weights(sample_weight, len(scores), caller)
    state = RankingState.of_scores(flags, scores, weight)
    if not 0 < state.positive.sum() < state.weight.sum():
        kind = "outliers" if state.positive.sum() else "inliers"
        rule = "must hold outliers and inliers"
        fix = "Add rows of the other kind, with positive weight"
        raise BadValueError("is_outlier", caller, rule, f"{kind} only", fix)
    return state


def auroc_of(state: RankingState) -> float:
    """Return the area under the ROC curve of a ranking."""
    negative = state.weight - state.positive
    below = np.cumsum(negative) - negative
    pairs = dot(state.positive, below + negative / 2)
    return float(pairs / (state.positive.sum() * negative.sum()))


def auroc_bounds(state: RankingState) -> tuple[float, float]:
    """Return the range of AUROC over all orders of rows that share a step of the ranking.

    AUGRC is linear in it and has the corresponding bounds.
    """
    negative = state.weight - state.positive
    n_pairs = float(state.positive.sum() * negative.sum())
    doubtful = dot(state.positive, negative) / n_pairs / 2
    middle = auroc_of(state)
    return middle - doubtful, middle + doubtful


def average_precision_of(state: RankingState) -> float:
    """Return the average precision of a ranking."""
    positive, weight = state.positive[::-1], state.weight[::-1]
    precision = np.cumsum(positive) / np.cumsum(weight)
    return dot(positive, precision) / float(positive.sum())


def false_positive_rate_of(state: RankingState, recall: float = 0.95) -> float:
    """Return the fraction of inliers flagged, from the highest score down, at this recall."""
    positive = state.positive[::-1]
    negative = state.weight[::-1] - positive
    caught = np.cumsum(positive) / positive.sum()
    flagged = np.cumsum(negative) / negative.sum()
    # A recall that misses the target only by rounding reaches it.
    return float(flagged[np.argmax(caught >= recall - 1e-12)])

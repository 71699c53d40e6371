"""How well a doubt tells strangers (or errors) from the rest."""

from __future__ import annotations

from typing import Any

import numpy as np

from dubito.arrays import (
    as_array,
    as_finite,
    as_floats,
    as_share,
    as_shares,
    require_dimensions,
    require_rows,
)
from dubito.data.batch import as_weights
from dubito.errors import BadValueError
from dubito.measure.ranking import RankingState


def roc_auc(is_outlier: Any, doubt: Any, *, sample_weight: Any = None) -> float:
    """Return the probability that an outlier has more doubt than a known row; a tie counts half.

    0.5 is guessing, 1 perfect. For the model's own errors give `y_true != predicted` as outliers.

    >>> roc_auc([False, False, True], [0.1, 0.4, 0.4])
    0.75
    """
    return auroc_of(_ranked_scores(is_outlier, doubt, sample_weight, "auroc"))


def average_precision(is_outlier: Any, doubt: Any, *, sample_weight: Any = None) -> float:
    """Return the area under the precision-recall curve (AUPR), as the mean precision over recall.

    A guess shows the share of outliers, so compare on the same share only.

    >>> average_precision([False, True, True], [0.1, 0.4, 0.9])
    1.0
    """
    return average_precision_of(
        _ranked_scores(is_outlier, doubt, sample_weight, "average_precision")
    )


def false_positive_rate_at_recall(
    is_outlier: Any, doubt: Any, *, recall: float = 0.95, sample_weight: Any = None
) -> float:
    """Return the share of known rows flagged when at least `recall` of the outliers are (FPR95).

    >>> false_positive_rate_at_recall([False, False, True], [0.1, 0.9, 0.4])
    0.5
    """
    caller = "false_positive_rate_at_recall"
    wanted = as_share(recall, "recall", caller)
    state = _ranked_scores(is_outlier, doubt, sample_weight, caller)
    return false_positive_rate_of(state, wanted)


def _ranked_scores(is_outlier: Any, doubt: Any, sample_weight: Any, caller: str) -> RankingState:
    """Rank scores, of which some must be outliers and some not."""
    scores = as_finite(as_floats(doubt, "doubt", caller), "doubt", caller)
    require_dimensions(scores, (1,), "doubt", caller, "one number per row")
    flags = as_array(is_outlier, "is_outlier", caller)
    if flags.dtype.kind == "b":
        flags = flags.astype(np.float64)
    flags = as_shares(flags, "is_outlier", caller)
    require_rows(flags, len(scores), "is_outlier", caller)
    weight = as_weights(sample_weight, len(scores), caller)
    state = RankingState.of_scores(flags, scores, weight)
    if not 0 < state.positive.sum() < state.weight.sum():
        kind = "outliers" if state.positive.sum() else "known rows"
        rule, fix = "of both kinds", "rows of both, each with weight"
        raise BadValueError("is_outlier", caller, rule, f"{kind} only", fix)
    return state


def auroc_of(state: RankingState) -> float:
    """Read the area under the ROC curve off a ranking."""
    negative = state.weight - state.positive
    below = np.cumsum(negative) - negative
    pairs = state.positive @ (below + negative / 2)
    return float(pairs / (state.positive.sum() * negative.sum()))


def auroc_bounds(state: RankingState) -> tuple[float, float]:
    """Return between what AUROC lies, whatever the order of rows that share a step of the ranking.

    AUGRC, which is linear in it, lies between what these give.
    """
    negative = state.weight - state.positive
    doubtful = state.positive @ negative / (state.positive.sum() * negative.sum()) / 2
    return float(auroc_of(state) - doubtful), float(auroc_of(state) + doubtful)


def average_precision_of(state: RankingState) -> float:
    """Read the mean precision over recall off a ranking."""
    positive, weight = state.positive[::-1], state.weight[::-1]
    precision = np.cumsum(positive) / np.cumsum(weight)
    return float(positive @ precision / positive.sum())


def false_positive_rate_of(state: RankingState, recall: float = 0.95) -> float:
    """Read the share of known rows flagged off a ranking, flagging from the most doubtful down."""
    positive = state.positive[::-1]
    negative = state.weight[::-1] - positive
    caught = np.cumsum(positive) / positive.sum()
    flagged = np.cumsum(negative) / negative.sum()
    # Shares that equal the wish but for rounding reach it.
    return float(flagged[np.argmax(caught >= recall - 1e-12)])

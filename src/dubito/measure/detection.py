"""Rows ranked by an uncertainty score, and how well it detects outliers or errors: AUROC, FPR95."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Self, final

import numpy as np

from dubito.arrays import (
    FloatArray,
    as_array,
    as_fraction,
    as_fractions,
    as_numbers,
    dot,
    freeze,
    require_rows,
)
from dubito.data.argument_order import are_swapped_labels
from dubito.data.batch import Batch, Ranks, as_weights
from dubito.errors import BadValueError
from dubito.kernels.sums import CUT, HALF, cell_bounds, cell_sums
from dubito.measure.state import State, require_weight, sums_field
from dubito.serialization.array_fields import require_increasing
from dubito.serialization.fields import Entry, schema_of, states
from dubito.serialization.objects import stores_fields

GRID_STEP = 2.0 ** (CUT - 52)  # a grid cell's width, in parts of its uncertainty or its confidence
MAX_CELLS_PER_ROW = 32  # above, it is faster to sort the rows than to go through all cells


def _on_grid(score: FloatArray) -> FloatArray:
    """Return scores between 0 and 1 moved to a fixed grid that keeps their order.

    The grid is relative to the score below 1/2 and to the confidence above: finest near 0, where
    good models are, and near 1, where models of many classes are. Rows that share a cell differ by
    less than one part in 1,024.
    """
    return np.where(score <= 0.5, _shortened(score), 1 - _shortened(1 - score))


def _shortened(values: FloatArray) -> FloatArray:
    """Return numbers truncated to 10 bits after the leading one."""
    bits = values.astype(np.float64).view(np.int64)
    return (bits >> CUT << CUT).view(np.float64)


@states(lambda: schema_of(sums_field(None)))
def _scores_field(value: Any, entry: Entry) -> FloatArray:
    """Check for distinct scores, ascending."""
    found: FloatArray = sums_field(None)(value, entry)
    require_increasing(found, entry)
    return found


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class RankingState(State):
    """For each distinct score, ascending: the weight of its rows, and of the positives.

    Positives are errors or outliers. In memory the scores are exact; streamed, they lie on a fixed
    grid, which bounds their number.

    Attributes
    ----------
    score : array of shape (n_scores,)
        The distinct scores, ascending; larger means more uncertain.
    weight : array of shape (n_scores,)
        Weight of the rows with that score.
    positive : array of shape (n_scores,)
        Weight of the positives among them.
    """

    score: Annotated[FloatArray, _scores_field]
    weight: Annotated[FloatArray, sums_field("score", low=0)]
    positive: Annotated[FloatArray, sums_field("score", low=0)]

    @classmethod
    def of(cls, batch: Batch, *, is_gridded: bool = False) -> Self:
        """Rank the rows of a batch by least confidence; positives are the errors.

        Parameters
        ----------
        batch : Batch
            Rows with labels.
        is_gridded : bool, default=False
            Round scores to a grid, by less than one part in 1,024, which bounds the size of the
            state.

        Returns
        -------
        RankingState
            The ranking of these rows.
        """
        rows, weight = batch.rows, batch.labeled_weight
        if is_gridded and len(batch):
            return cls.of_cells(freeze(rows.least_confidence), freeze(weight), freeze(rows.correct))
        return cls.of_ranks(rows.ranks, weight, weight * (1 - rows.correct))

    @classmethod
    def of_cells(cls, score: FloatArray, weight: FloatArray, correct: FloatArray) -> Self:
        """Sum weights over the cells of the grid.

        Parameters
        ----------
        score : array of shape (n_rows,)
            Scores between 0 and 1.
        weight : array of shape (n_rows,)
            Frequency weights.
        correct : array of shape (n_rows,)
            1 for negatives, 0 for positives, or a fraction.

        Returns
        -------
        RankingState
            The ranking on the grid.
        """
        first, last = cell_bounds(score)
        if last - first > MAX_CELLS_PER_ROW * score.size:
            return cls.of_ranks(Ranks.of(_on_grid(score)), weight, weight * (1 - correct))
        sums = np.zeros((last - first + 1, 2))
        cell_sums(score, weight, correct, first, sums)
        held = np.flatnonzero(sums[:, 0])
        cells = held + first
        near = (np.where(cells <= HALF, cells, 2 * HALF - cells) << CUT).view(np.float64)
        return cls(np.where(cells <= HALF, near, 1 - near), sums[held, 0], sums[held, 1])

    @classmethod
    def of_ranks(cls, ranks: Ranks, weight: FloatArray, positive: FloatArray) -> Self:
        """Sum weights over the ties of a ranking; ties without weight are left out.

        Parameters
        ----------
        ranks : Ranks
            The sorted order of the scores, with their ties.
        weight : array of shape (n_rows,)
            Frequency weights.
        positive : array of shape (n_rows,)
            The part of each weight that is positive.

        Returns
        -------
        RankingState
            The exact ranking.
        """
        total = ranks.sums(weight)
        held = total > 0
        return cls(ranks.values[held], total[held], ranks.sums(positive)[held])

    @classmethod
    def of_scores(cls, is_positive: FloatArray, score: FloatArray, weight: FloatArray) -> Self:
        """Rank any scores; `is_positive` is 0, 1 or a fraction.

        Parameters
        ----------
        is_positive : array of shape (n_rows,)
            Whether each row is an error or an outlier.
        score : array of shape (n_rows,)
            Uncertainty scores.
        weight : array of shape (n_rows,)
            Frequency weights.

        Returns
        -------
        RankingState
            The exact ranking.
        """
        is_plain = score.size > 0 and score.min() >= 0 and score.max() <= 1
        if is_plain and (weight == 1).all() and ((is_positive == 0) | (is_positive == 1)).all():
            return cls._of_rows(is_positive, score)
        return cls.of_ranks(Ranks.of(score), weight, weight * is_positive)

    @classmethod
    def _of_rows(cls, is_positive: FloatArray, score: FloatArray) -> Self:
        """Rank scores between 0 and 1 of rows without weights, sorted together with their labels.

        The bits of such scores are in their order. Below them, a bit holds the label.
        """
        bits = (score.astype(np.float64) + 0.0).view(np.int64)  # 0.0 also for -0.0
        keys = np.sort((bits << 1) | is_positive.astype(np.int64))
        bits = keys >> 1
        starts = np.append(0, np.flatnonzero(bits[1:] != bits[:-1]) + 1)
        count = np.diff(starts, append=bits.size)
        positive = np.add.reduceat(keys & 1, starts)
        return cls(bits[starts].view(np.float64), count * 1.0, positive * 1.0)

    @classmethod
    def pooled(cls, states: Sequence[Self]) -> Self:
        """Add several states at once: sorting them together is faster than one by one.

        Parameters
        ----------
        states : sequence of RankingState
            The states to add.

        Returns
        -------
        RankingState
            Their sum.
        """
        columns = (np.concatenate([getattr(one, f.name) for one in states]) for f in fields(cls))
        return cls.of_ranks(Ranks.of(next(columns)), *columns)

    def __add__(self, other: Self) -> Self:
        return type(self).pooled([self, other])

    @property
    def value(self) -> RankingState:
        """The state itself, from which selective and detection metrics are computed."""
        require_weight(self.weight.size, "A ranking")
        return self


def roc_auc(y_true: Any, y_score: Any, *, sample_weight: Any = None) -> float:
    """Return the area under the ROC curve of an outlier or error score (AUROC).

    The probability that an outlier scores higher than an inlier; ties count half. 0.5 is random. To
    detect the model's errors, pass `labels != predictions` as `y_true`.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True or 1 for outliers (or errors), False or 0 for inliers.
    y_score : array-like of shape (n_samples,)
        Uncertainty or OOD score per row, higher is more uncertain.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Between 0 and 1; higher is better.

    Examples
    --------
    >>> from dubito.measure import roc_auc
    >>> roc_auc([False, False, True], [0.1, 0.4, 0.4])
    0.75
    """
    return auroc_of(_ranked_scores(y_true, y_score, sample_weight, "roc_auc"))


def average_precision(y_true: Any, y_score: Any, *, sample_weight: Any = None) -> float:
    """Return the area under the precision-recall curve (AUPR) as average precision.

    A random score reaches the fraction of outliers, so compare only at the same fraction.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True or 1 for outliers (or errors), False or 0 for inliers.
    y_score : array-like of shape (n_samples,)
        Uncertainty or OOD score per row, higher is more uncertain.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Between 0 and 1; higher is better.

    Examples
    --------
    >>> from dubito.measure import average_precision
    >>> average_precision([False, True, True], [0.1, 0.4, 0.9])
    1.0
    """
    return average_precision_of(_ranked_scores(y_true, y_score, sample_weight, "average_precision"))


def false_positive_rate_at_recall(
    y_true: Any, y_score: Any, *, recall: float = 0.95, sample_weight: Any = None
) -> float:
    """Return the fraction of inliers flagged at a given recall of the outliers (FPR95).

    Outliers are the positives here. Papers on OOD detection mostly take the inliers for positives
    and mean by FPR95 the fraction of outliers accepted where 95 % of the inliers are accepted:
    `false_positive_rate_at_recall(~y_true, -y_score)`, and `fpr95` of `diagnose_ood`.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True or 1 for outliers (or errors), False or 0 for inliers.
    y_score : array-like of shape (n_samples,)
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
    >>> from dubito.measure import false_positive_rate_at_recall
    >>> false_positive_rate_at_recall([False, False, True], [0.1, 0.9, 0.4])
    0.5
    """
    caller = "false_positive_rate_at_recall"
    wanted = as_fraction(recall, "recall", caller)
    state = _ranked_scores(y_true, y_score, sample_weight, caller)
    return false_positive_rate_of(state, wanted)


def _ranked_scores(y_true: Any, y_score: Any, sample_weight: Any, caller: str) -> RankingState:
    """Rank scores; there must be outliers and inliers."""
    scores = as_numbers(y_score, "y_score", caller)
    flags = as_array(y_true, "y_true", caller)
    if are_swapped_labels(flags, as_array(y_score, "y_score", caller)):
        held = "`y_true` holds fractions, `y_score` 0 and 1"
        fix = f"The order is {caller}(y_true, y_score)"
        raise BadValueError("", caller, "got its arguments swapped:", held, fix)
    if flags.dtype.kind == "b":
        flags = flags.astype(np.float64)
    flags = as_fractions(flags, "y_true", caller, "Pass 0 and 1, e.g. y_true == 1")
    require_rows(flags, len(scores), "y_true", caller)
    weight = as_weights(sample_weight, len(scores), caller)
    state = RankingState.of_scores(flags, scores, weight)
    if not 0 < state.positive.sum() < state.weight.sum():
        only = 1 if state.positive.sum() else 0
        rule, fix = "must hold both 0 and 1", f"Add rows of {1 - only}, with positive weight"
        raise BadValueError("y_true", caller, rule, f"only {only}", fix)
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
    ties = dot(state.positive, negative) / n_pairs / 2
    middle = auroc_of(state)
    return middle - ties, middle + ties


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

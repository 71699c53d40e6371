"""F-beta of several labels per row: optimal decisions, and the realized score row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dubito.arrays import BoolArray, FloatArray, contiguous, require_choice
from dubito.errors import BadValueError
from dubito.kernels.blocks import row_blocks, run_in_order
from dubito.kernels.expected_cost import best_sets
from dubito.serialization.fields import Check, declare, number, text
from dubito.serialization.objects import Record

AVERAGES = ("macro", "micro", "samples")
BLOCK_ENTRIES = 1 << 16
LEAST = 1e-12  # threshold: a label of probability 0 is never predicted


@final
@dataclass(frozen=True, slots=True)
class FBeta(Record):
    """The F-beta score as the aim of decisions on several labels per row, instead of costs.

    "macro" is the mean of the scores of labels, "micro" the score of all pairs of row and label,
    "samples" the mean of the scores of rows. For "macro" and "micro" a label is predicted from a
    threshold on, the maximal score divided by 1 + beta^2, which an exact scan over all distinct
    probabilities finds. For "samples" the best set of labels of each row is found exactly, if its
    labels are independent. A row without true and predicted labels has score 1; a label without
    any is left out of the mean.

    Parameters
    ----------
    beta : float, default 1
        How much more recall counts than precision.
    average : {"macro", "micro", "samples"}, default "macro"
        What is averaged.

    References
    ----------
    Waegeman, Dembczynski, Jachnik, Cheng and Hüllermeier, "On the Bayes-optimality of F-measure
    maximizers", JMLR 2014; Lipton, Elkan and Naryanaswamy, "Optimal thresholding of classifiers to
    maximize F1 measure", ECML 2014.

    Examples
    --------
    >>> FBeta(average="samples").best_sets(np.array([[0.4, 0.3, 0.1]])).tolist()
    [[True, True, False]]
    """

    fields: ClassVar[Mapping[str, Check]] = declare(beta=number(1e-3, 1e3), average=text)
    has_header: ClassVar[bool] = False

    beta: float = 1.0
    average: str = "macro"

    def __post_init__(self) -> None:
        beta = self.beta.item() if isinstance(self.beta, np.generic) else self.beta
        is_number = isinstance(beta, int | float) and not isinstance(beta, bool)
        if not is_number or not 1e-3 <= beta <= 1e3:
            rule, fix = "must be a number from 0.001 to 1000", "Pass beta=1"
            raise BadValueError("beta", "FBeta", rule, repr(self.beta), fix)
        require_choice(self.average, AVERAGES, "average", "FBeta")
        object.__setattr__(self, "beta", float(beta))

    def __str__(self) -> str:
        return f"{self.average} F{self.beta:g}"

    def thresholds(self, p: FloatArray, weight: FloatArray) -> FloatArray | None:
        """Return from which calibrated probability on each label is predicted.

        Parameters
        ----------
        p : array, rows x labels
            Calibrated probabilities.
        weight : array
            Weights of the rows.

        Returns
        -------
        array of one per label, or None
            None for "samples", which has no thresholds.
        """
        n_labels = p.shape[1]
        if self.average == "macro":
            return np.array([self._threshold(p[:, k], weight) for k in range(n_labels)])
        if self.average == "micro":
            pooled = self._threshold(p.ravel(), np.repeat(weight, n_labels))
            return np.full(n_labels, pooled)
        return None

    def _threshold(self, p: FloatArray, weight: FloatArray) -> float:
        """Return the threshold of highest expected score, of the sums that it consists of.

        The best score is at a cut where adding a row changes nothing: its probability would be the
        score divided by 1 + beta^2.
        """
        order = np.argsort(-p, kind="stable")
        weight, hits = weight[order], np.cumsum(weight[order] * p[order])
        scores = hits / np.maximum(self.beta**2 * hits[-1] + np.cumsum(weight), 1e-300)
        return max(float(scores.max()), LEAST)

    def best_sets(self, p: FloatArray) -> BoolArray:
        """Return the labels of each row whose expected score is highest, if independent.

        Parameters
        ----------
        p : array, rows x labels
            Calibrated probabilities.

        Returns
        -------
        array of bool, rows x labels
        """
        result = np.empty(p.shape, np.bool_)
        values = np.empty(len(p))

        def fill(rows: slice) -> None:
            best_sets(contiguous(p[rows]), self.beta**2, result[rows], values[rows])

        run_in_order(fill, row_blocks(len(p), p.shape[1], BLOCK_ENTRIES))
        return result

    def row_scores(self, y: FloatArray, is_positive: BoolArray, weight: FloatArray) -> FloatArray:
        """Return one number per row whose weighted mean is the realized score.

        For "samples" these are the scores of rows; otherwise how much each row adds, linearized at
        the score of all rows (the delta method), so that a bootstrap over rows is one over means.

        Parameters
        ----------
        y : array, rows x labels
            0, 1 or probabilities, NaN where unknown.
        is_positive : array of bool, rows x labels
            Which labels are predicted.
        weight : array
            Weights of the rows.

        Returns
        -------
        array of one number per row
        """
        square, is_known = self.beta**2, ~np.isnan(y)
        hits = np.where(is_known, is_positive * y, 0.0)
        sizes = np.where(is_known, square * y + is_positive, 0.0)  # b2 true + predicted
        if self.average == "samples":
            top, bottom = (1 + square) * hits.sum(axis=1), sizes.sum(axis=1)
            return np.asarray(np.divide(top, bottom, out=np.ones(len(y)), where=bottom > 0))
        if self.average == "micro":
            hits, sizes = hits.sum(axis=1, keepdims=True), sizes.sum(axis=1, keepdims=True)
        total = weight.sum()
        top, bottom = weight @ hits / total, weight @ sizes / total
        is_defined = bottom > 0
        hits, sizes = hits[:, is_defined], sizes[:, is_defined]
        top, bottom = top[is_defined], bottom[is_defined]
        if not is_defined.any():
            return np.ones(len(y))
        values = (1 + square) * (top / bottom + hits / bottom - sizes * top / bottom**2)
        return np.asarray(values.mean(axis=1))

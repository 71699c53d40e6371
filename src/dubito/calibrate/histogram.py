"""Histogram binning: what was true of each bin is what it says."""

from __future__ import annotations

from typing import Literal, final

import numpy as np
from scipy.special import expit, logit

from dubito.arrays import FloatArray, IntArray
from dubito.calibrate.binary import BaseBinaryCalibrator, BinaryRows, HeldScores, Scores
from dubito.calibrate.inputs import FLOOR
from dubito.calibrate.isotonic import GRID
from dubito.errors import BadValueError, EmptyStateError
from dubito.measure.calibration_error import assign, uniform_edges
from dubito.serialization.arrays import array, require_increasing
from dubito.serialization.fields import MOST, Entry, declare, number

TIE = 1e-9  # weights this close, as a share of all, are the same but for rounding
LEAST = 1e-9  # nearer to 0 or 1, a probability says less about where its mirror image is
ROUNDING = 1e-12  # a probability at an edge may come back from its log odds this much above it


@final
class HistogramBinning(BaseBinaryCalibrator):
    """Give every row of a bin the share of positives among the bin's rows.

    For two classes and many rows. `strategy` is "uniform" (equal width) or "quantile" (equal mass;
    of a stream, over a grid of log odds 0.014 wide). A bin that is all one class is smoothed by
    1 / (n + 1) towards the prior; an empty one says its middle. `counts_` tells the weight of each
    bin, `n_certain_` that of the smoothed ones. Zadrozny and Elkan 2001.

    >>> bins = HistogramBinning(n_bins=2).fit([0.1, 0.2, 0.3, 0.9, 0.8], [0, 0, 1, 1, 0])
    >>> bins.values_.round(2).tolist()
    [0.33, 0.5]
    """

    edges_: FloatArray
    values_: FloatArray
    counts_: FloatArray
    n_certain_: float

    fitted_fields = declare(
        values_=array(None, low=0, high=1),
        edges_=array(None, low=0, high=1),
        counts_=array("values_", low=0, high=MOST),
        n_certain_=number(0, MOST),
    )

    def __init__(self, n_bins: int = 15, strategy: Literal["uniform", "quantile"] = "uniform"):
        self.n_bins = n_bins
        self.strategy = strategy

    def _check_params(self) -> None:
        uniform_edges(self.n_bins, type(self).__name__)
        if self.strategy not in ("uniform", "quantile"):
            rule, fix = "'uniform' or 'quantile'", "strategy='uniform'"
            raise BadValueError("strategy", type(self).__name__, rule, repr(self.strategy), fix)

    def _check_fitted(self, entry: Entry) -> None:
        edges, place = self.edges_, entry.at("edges_")
        require_increasing(edges, place)
        if edges.size != self.values_.size + 1 or (edges[0], edges[-1]) != (0, 1):
            rule = f"{self.values_.size + 1} numbers from 0 to 1, one more than values_"
            raise place.error(rule, f"{edges.size} from {edges[0]:g} to {edges[-1]:g}")

    def _learn_scores(self, scores: Scores) -> None:
        edges = self._edges(scores)

        def sums(rows: BinaryRows) -> FloatArray:
            bins = _bins_of(rows.scores, edges)
            columns = (rows.weight, rows.weight * rows.targets)
            return np.stack([np.bincount(bins, column, edges.size - 1) for column in columns])

        weight, positive = scores.sum(sums)
        if not weight.sum() > 0:
            raise EmptyStateError("A calibrator")
        prior = (positive.sum() + 0.5) / (weight.sum() + 1)
        is_certain = (weight > 0) & ((positive <= 0) | (positive >= weight))
        smoothed = (positive + prior * is_certain) / np.maximum(weight + is_certain, FLOOR)
        self.edges_, self.counts_ = edges, weight
        self.values_ = np.where(weight > 0, smoothed, (edges[1:] + edges[:-1]) / 2)
        self.n_certain_ = float(weight[is_certain].sum())

    def _edges(self, scores: Scores) -> FloatArray:
        if self.strategy == "uniform":
            return uniform_edges(self.n_bins, type(self).__name__)
        if isinstance(scores, HeldScores):
            return _equal_mass_edges(scores.rows.scores, scores.rows.weight, self.n_bins)
        middles = np.concatenate([[GRID[0]], (GRID[1:] + GRID[:-1]) / 2, [GRID[-1]]])
        weight = scores.sum(
            lambda rows: np.bincount(np.searchsorted(GRID, rows.scores), rows.weight, middles.size)
        )
        return _equal_mass_edges(middles, weight, self.n_bins)

    def _calibrated(self, scores: FloatArray) -> FloatArray:
        values = self.values_[_bins_of(scores, self.edges_)]
        return np.asarray(logit(np.clip(values, FLOOR, 1 - FLOOR)))

    def _words(self) -> str:
        n_bins, n_empty = self.values_.size, int((self.counts_ == 0).sum())
        return (
            f"{n_bins} bins ({n_empty} empty) from {self.values_.min():.3g} to "
            f"{self.values_.max():.3g}; {self.n_certain_:,.0f} rows in bins of one class, smoothed"
        )


def _equal_mass_edges(scores: FloatArray, weight: FloatArray, n_bins: int) -> FloatArray:
    """Return edges, as probabilities, that part scores into bins of about equal weight.

    A cut goes to the middle of the gap that is nearest by weight, of two as near to the wider one,
    and of two as wide to neither: the mirror image of the scores has the mirror image of the cuts.
    """
    values, place = np.unique(scores[weight > 0], return_inverse=True)
    gaps = np.diff(values)
    if not gaps.size:
        return np.array([0.0, 1.0])
    below = np.cumsum(np.bincount(place, weight[weight > 0]))
    wanted = below[-1] * np.arange(1, n_bins) / n_bins
    right = np.clip(np.searchsorted(below, wanted), 0, gaps.size - 1)
    left = np.maximum(right - 1, 0)
    lead = np.abs(below[right] - wanted) - np.abs(below[left] - wanted)  # of the left one
    lead = np.where(np.abs(lead) > TIE * below[-1], lead, gaps[left] - gaps[right])
    nearest = np.where(lead > 0, left, right)[(lead != 0) | (left == right)]
    cuts = expit((values[nearest] + values[nearest + 1]) / 2)
    return np.concatenate([[0.0], np.unique(cuts[(cuts > LEAST) & (cuts < 1 - LEAST)]), [1.0]])


def _bins_of(scores: FloatArray, edges: FloatArray) -> IntArray:
    """Return the bin of each row's probability, told by its log odds."""
    return assign(expit(scores) * (1 - ROUNDING), edges)

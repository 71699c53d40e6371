"""Histogram binning."""

from __future__ import annotations

from typing import Literal, final

import numpy as np
from scipy.special import expit, logit

from dubito.arrays import FloatArray, IntArray, require_choice
from dubito.calibrate.binary import BaseBinaryCalibrator, BinaryRows
from dubito.calibrate.calibrator import FLOOR
from dubito.calibrate.isotonic import GRID
from dubito.data.shards import ArrayShards, Shards
from dubito.errors import EmptyStateError
from dubito.measure.calibration_error import assign, uniform_edges
from dubito.serialization.array_fields import array, require_increasing
from dubito.serialization.fields import MOST, Entry, declare, number

TIE = 1e-9  # weights or gaps that differ by less than this fraction of their sum are equal
MIN_EDGE = 1e-9  # nearer to 0 or 1, rounding would break the symmetry of the classes
ROUNDING = 1e-12  # by which a probability at an edge may exceed it after a trip through log odds


@final
class HistogramBinning(BaseBinaryCalibrator):
    """Replace probabilities by the observed frequency of positives in their bin.

    For two classes and many rows. A bin of a single class is smoothed by 1 / (n + 1) towards the
    prior; an empty bin returns its center.

    Parameters
    ----------
    n_bins : int
        Number of bins.
    strategy : {"uniform", "quantile"}
        Bins of equal width or equal mass. For a stream, equal mass is up to a grid of log odds
        with steps of 0.014.

    Attributes
    ----------
    edges_ : array of shape (n_bins + 1,)
        Bin edges, from 0 to 1.
    values_ : array of shape (n_bins,)
        Calibrated probability of each bin.
    counts_ : array of shape (n_bins,)
        Total weight of each bin.
    n_certain_ : float
        Total weight in bins of a single class, which were smoothed.

    References
    ----------
    Zadrozny and Elkan, "Obtaining calibrated probability estimates from decision trees and naive
    Bayesian classifiers", ICML 2001.

    Examples
    --------
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
        name = type(self).__name__
        uniform_edges(self.n_bins, name)
        require_choice(self.strategy, ("uniform", "quantile"), "strategy", name)

    def _check_fitted(self, entry: Entry) -> None:
        edges, place = self.edges_, entry.at("edges_")
        require_increasing(edges, place)
        if edges.size != self.values_.size + 1 or (edges[0], edges[-1]) != (0, 1):
            rule = f"{self.values_.size + 1} numbers from 0 to 1, one more than values_"
            raise place.error(rule, f"{edges.size} from {edges[0]:g} to {edges[-1]:g}")

    def _learn_scores(self, shards: Shards[BinaryRows]) -> None:
        edges = self._make_edges(shards)

        def sums(rows: BinaryRows) -> FloatArray:
            bins = _assign_bins(rows.scores, edges)
            columns = (rows.weight, rows.weight * rows.targets)
            return np.stack([np.bincount(bins, column, edges.size - 1) for column in columns])

        weight, positive = shards.sum(sums)
        if not weight.sum() > 0:
            raise EmptyStateError("A calibrator")
        prior = (positive.sum() + 0.5) / (weight.sum() + 1)
        is_certain = (weight > 0) & ((positive <= 0) | (positive >= weight))
        smoothed = (positive + prior * is_certain) / np.maximum(weight + is_certain, FLOOR)
        self.edges_, self.counts_ = edges, weight
        self.values_ = np.where(weight > 0, smoothed, (edges[1:] + edges[:-1]) / 2)
        self.n_certain_ = float(weight[is_certain].sum())

    def _make_edges(self, shards: Shards[BinaryRows]) -> FloatArray:
        if self.strategy == "uniform":
            return uniform_edges(self.n_bins, type(self).__name__)
        if isinstance(shards, ArrayShards):
            return _equal_mass_edges(shards.batch.scores, shards.batch.weight, self.n_bins)
        centers = np.concatenate([[GRID[0]], (GRID[1:] + GRID[:-1]) / 2, [GRID[-1]]])

        def weigh(rows: BinaryRows) -> FloatArray:
            cells = np.searchsorted(GRID, rows.scores)
            return np.bincount(cells, rows.weight, centers.size).astype(np.float64)

        weight = shards.sum(weigh)
        return _equal_mass_edges(centers, weight, self.n_bins)

    def _calibrated(self, scores: FloatArray) -> FloatArray:
        values = self.values_[_assign_bins(scores, self.edges_)]
        return np.asarray(logit(np.clip(values, FLOOR, 1 - FLOOR)))

    def _describe(self) -> str:
        n_bins, n_empty = self.values_.size, int((self.counts_ == 0).sum())
        return (
            f"{n_bins} bins ({n_empty} empty) from {self.values_.min():.3g} to "
            f"{self.values_.max():.3g}; {self.n_certain_:,.0f} rows in bins of one class, smoothed"
        )


def _equal_mass_edges(scores: FloatArray, weight: FloatArray, n_bins: int) -> FloatArray:
    """Return edges, as probabilities, between bins of about equal weight.

    A cut is made in the middle of the gap between scores that is nearest by weight, or of the
    wider of two equally near gaps. Two equally wide ones get no cut: swapping the classes mirrors
    the edges.
    """
    values, place = np.unique(scores[weight > 0], return_inverse=True)
    gaps = np.diff(values)
    if not gaps.size:
        return np.array([0.0, 1.0])
    below = np.cumsum(np.bincount(place, weight[weight > 0]))
    wanted = below[-1] * np.arange(1, n_bins) / n_bins
    right = np.clip(np.searchsorted(below, wanted), 0, gaps.size - 1)
    left = np.maximum(right - 1, 0)
    advantage = np.abs(below[right] - wanted) - np.abs(below[left] - wanted)  # of the left gap
    wider = gaps[left] - gaps[right]
    wider[np.abs(wider) <= TIE * (gaps[left] + gaps[right])] = 0
    advantage = np.where(np.abs(advantage) > TIE * below[-1], advantage, wider)
    nearest = np.where(advantage > 0, left, right)[(advantage != 0) | (left == right)]
    cuts = expit((values[nearest] + values[nearest + 1]) / 2)
    inside = np.unique(cuts[(cuts > MIN_EDGE) & (cuts < 1 - MIN_EDGE)])
    return np.concatenate([[0.0], inside, [1.0]])


def _assign_bins(scores: FloatArray, edges: FloatArray) -> IntArray:
    """Return the bin of each row, from its log odds."""
    return assign(expit(scores) * (1 - ROUNDING), edges)

"""Bins of confidence: right-closed (a, b], 0 in the first, 1.0 in the last."""

from __future__ import annotations

from typing import Any

import numpy as np

from dubito.arrays import FloatArray, IntArray, freeze
from dubito.errors import BadValueError
from dubito.kernels.bins import bin_indices

__all__ = ["assign", "quantile_edges", "uniform_edges"]


MOST_BINS = 100_000


def uniform_edges(n_bins: int, caller: str = "uniform_edges") -> FloatArray:
    """Return the edges of bins of equal width over [0, 1].

    >>> uniform_edges(4).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    return np.linspace(0.0, 1.0, as_n_bins(n_bins, caller) + 1)


def quantile_edges(
    values: FloatArray, weight: FloatArray, n_bins: int, caller: str = "quantile_edges"
) -> FloatArray:
    """Return edges between which bins hold equal weight, as far as ties allow.

    A cut inside a tie moves to the tie's end, and cuts that meet become one: there may be fewer
    bins than asked for, and never an empty one.

    >>> quantile_edges(np.array([0.1, 0.1, 0.1, 0.9]), np.ones(4), 2).tolist()
    [0.0, 0.1, 1.0]
    """
    n_bins = as_n_bins(n_bins, caller)
    order = np.argsort(values, kind="stable")
    ranked = values[order][weight[order] > 0]
    if ranked.size == 0:
        return np.array([0.0, 1.0])
    cumulative = np.cumsum(weight[order][weight[order] > 0])
    wanted = cumulative[-1] * np.arange(1, n_bins) / n_bins
    # Rounding must not push a cut past the row that fills a bin exactly.
    cuts = ranked[np.searchsorted(cumulative, wanted * (1 - 1e-12))]
    inner = np.unique(cuts[(cuts > 0) & (cuts < ranked[-1])])
    return np.concatenate([[0.0], inner, [1.0]])


def as_n_bins(n_bins: Any, caller: str) -> int:
    """Return a number of bins that is a whole number from 1 up."""
    is_whole = isinstance(n_bins, int | np.integer) and not isinstance(n_bins, bool)
    if not is_whole or not 1 <= n_bins <= MOST_BINS:
        rule = f"a whole number from 1 to {MOST_BINS:,}"
        raise BadValueError("n_bins", caller, rule, repr(n_bins), "n_bins=15")
    return int(n_bins)


def assign(values: FloatArray, edges: FloatArray) -> IntArray:
    """Return the bin of each value."""
    indices = np.empty(values.size, dtype=np.int64)
    bin_indices(freeze(values), freeze(edges), indices)
    return indices

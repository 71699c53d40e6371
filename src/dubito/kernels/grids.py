"""Sums on fixed fine grids: of doubt, relative to itself, and of confidence, of equal cells.

Doubts share a cell where they agree in all bits but the last 42: in the exponent, and in 10 bits
behind the leading one. Above 1/2 it is the confidence that must. Cells are numbered as doubt rises.
"""

import numpy as np

from dubito.kernels.compile import kernel
from dubito.kernels.elementary import bits_of

__all__ = ["CUT", "HALF", "cell_bounds", "cell_sums", "residual_sums"]

CUT = 42  # bits of a float64 that are cut off
HALF = 1022 << (52 - CUT)  # the cell of a doubt of 1/2


@kernel
def cell_of(doubt):
    """Return the number of a doubt's cell."""
    near = bits_of(min(doubt, 1.0 - doubt)) >> np.int64(CUT)
    return near if doubt <= 0.5 else 2 * HALF - near


@kernel
def cell_bounds(doubt):
    """Return the first and the last cell that doubts lie in."""
    lowest, highest = doubt[0], doubt[0]
    for i in range(doubt.size):
        lowest, highest = min(lowest, doubt[i]), max(highest, doubt[i])
    return cell_of(lowest), cell_of(highest)


@kernel
def cell_sums(doubt, weights, correct, first, sums):
    """Add each row's weight, all of it and what was wrong, to its cell of `sums` (cells x 2)."""
    for i in range(doubt.size):
        cell = np.uint64(cell_of(doubt[i]) - first)
        sums[cell, 0] += weights[i]
        sums[cell, 1] += weights[i] * (1.0 - correct[i])


@kernel
def residual_sums(confidence, correct, weights, sums):
    """Share each residual, correct less confidence, between the two cells of the nearest middles.

    Returns the weight of all rows.
    """
    total = 0.0
    last = sums.size - 1
    for i in range(confidence.size):
        place = min(max(confidence[i] * sums.size - 0.5, 0.0), np.float64(last))
        low = np.uint64(min(int(place), last - 1))
        share = place - low
        residual = weights[i] * (correct[i] - confidence[i])
        sums[low] += residual * (1.0 - share)
        sums[low + np.uint64(1)] += residual * share
        total += weights[i]
    return total

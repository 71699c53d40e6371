"""Bumps: how near rows are to each of some known ones."""

import numpy as np

from dubito.kernels.compile import kernel
from dubito.kernels.elementary import exponential

__all__ = ["bump_rows"]


@kernel
def bump_rows(rows, centers, width, bumps):
    """Fill `bumps` with exp(-d^2 / 2 width^2) of each row's distance d to each center.

    Lanes run over centers, whose numbers are put side by side for it.
    """
    scale = -0.5 / (width * width)
    across = centers.T.copy()
    squares = np.empty(centers.shape[0])
    for i in range(rows.shape[0]):
        for m in range(squares.size):
            squares[m] = 0.0
        for k in range(centers.shape[1]):
            x, numbers = np.float64(rows[i, k]), across[k]
            for m in range(squares.size):
                squares[m] += (x - numbers[m]) * (x - numbers[m])
        for m in range(squares.size):
            bumps[i, m] = exponential(scale * squares[m])

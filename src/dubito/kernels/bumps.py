"""Bumps: how near rows are to each of some known ones."""

import numpy as np

from dubito.kernels.compile import kernel

__all__ = ["bump_rows"]


@kernel
def bump_rows(rows, centres, width, bumps):
    """Fill `bumps` with exp(-d^2 / 2 width^2) of each row's distance d to each centre."""
    scale = -0.5 / (width * width)
    for i in range(rows.shape[0]):
        for m in range(centres.shape[0]):
            total = 0.0
            for k in range(centres.shape[1]):
                gap = rows[i, k] - centres[m, k]
                total += gap * gap
            bumps[i, m] = np.exp(scale * total)

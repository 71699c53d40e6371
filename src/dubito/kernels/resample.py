"""Poisson-bootstrap weights by counting, not by state: row and resample number say it all."""

from math import exp, factorial

import numpy as np

from dubito.kernels.compile import kernel

__all__ = ["poisson_weights"]

# P(a Poisson variable of mean 1 is above j), as thresholds of a 32-bit number, down to 1e-9.
ABOVE = np.array(
    [round((1 - sum(exp(-1) / factorial(i) for i in range(j + 1))) * 2**32) for j in range(12)],
    dtype=np.uint32,
)


@kernel
def poisson_weights(weights, seed, first_row, resampled):
    """Fill `resampled` with each weight times how often its row is drawn in this resample.

    The draw of a row depends on `seed` and its number alone, so that any split of the rows into
    pieces gives the same resample. The mixing is that of SplitMix64.
    """
    for i in range(weights.size):
        x = np.uint64(first_row + i + 1) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        uniform = np.uint32((x ^ (x >> np.uint64(31))) >> np.uint64(32))
        times = 0
        for j in range(ABOVE.size):
            times += uniform < ABOVE[j]
        resampled[i] = weights[i] * times

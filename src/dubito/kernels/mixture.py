"""One step of expectation-maximization for the weights of a mixture."""

import numpy as np

from dubito.kernels.compile import kernel

CHUNK = 512  # rows; intermediate results stay in the L1 cache


@kernel
def mixture_step(parts, weights, shares, explained):
    """Fill `explained` with the weight of the rows that each part explains.

    `parts` has a row for each part of the mixture: what it gives every label.
    """
    explained[:] = 0.0
    buffer = np.empty(CHUNK)
    for low in range(0, weights.size, CHUNK):
        some = weights[low : low + CHUNK]
        scale = buffer[: some.size]
        scale[:] = 0.0
        for m in range(shares.size):
            part = parts[m, low : low + CHUNK]
            for i in range(part.size):
                scale[i] += shares[m] * part[i]
        for i in range(some.size):
            scale[i] = some[i] / scale[i]
        for m in range(shares.size):
            part = parts[m, low : low + CHUNK]
            total = 0.0
            for i in range(part.size):
                total += scale[i] * part[i]
            explained[m] += shares[m] * total

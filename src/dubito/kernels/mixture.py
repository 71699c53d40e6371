"""One step of expectation-maximisation for the weights of a mixture."""

import numpy as np

from dubito.kernels.compile import kernel

__all__ = ["mixture_step"]


@kernel
def mixture_step(likelihoods, weights, shares, responsibilities):
    """Fill `responsibilities` with what each part explains; return the weighted log likelihood."""
    total = 0.0
    responsibilities[:] = 0.0
    for i in range(likelihoods.shape[0]):
        row = likelihoods[i]
        mixed = 0.0
        for m in range(row.size):
            mixed += shares[m] * row[m]
        total += weights[i] * np.log(mixed)
        scale = weights[i] / mixed
        for m in range(row.size):
            responsibilities[m] += scale * shares[m] * row[m]
    return total

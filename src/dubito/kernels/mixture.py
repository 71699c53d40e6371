"""Expectation-maximization for the weights of a mixture."""

import numpy as np

from dubito.kernels.compile import inner, kernel

CHUNK = 512  # rows; intermediate results stay in the L1 cache


@kernel
def mixture_step(parts, weights, shares, explained):
    """Fill `explained` with the weight of the rows that each part explains.

    `parts` has a row for each part of the mixture: what it gives every label.
    """
    _explain(parts, weights, shares, np.empty(CHUNK), explained)


@kernel
def fit_mixture(parts, weights, prior_weight, n_steps, tolerance, shares):
    """Improve `shares` until other ones could gain less than `tolerance` of the log likelihood.

    `prior_weight` pseudo-rows are explained by all parts equally.
    """
    buffer, explained = np.empty(CHUNK), np.empty(shares.size)
    total = prior_weight
    for i in range(weights.size):
        total += weights[i]
    for _ in range(n_steps):
        _explain(parts, weights, shares, buffer, explained)
        highest = 0.0
        for m in range(shares.size):
            explained[m] += prior_weight / shares.size
            highest = max(highest, explained[m] / shares[m] if shares[m] > 0.0 else 0.0)
        if highest - total < tolerance * total:
            break
        for m in range(shares.size):
            shares[m] = explained[m] / total


@inner
def _explain(parts, weights, shares, buffer, explained):
    """Fill `explained` as `mixture_step` does; two parts at a time, after one of an odd number."""
    n_odd = shares.size % 2
    for m in range(shares.size):
        explained[m] = 0.0
    for low in range(0, weights.size, CHUNK):
        some = weights[low : low + CHUNK]
        scale = buffer[: some.size]
        a, part = (shares[0] if n_odd else 0.0), parts[0, low : low + CHUNK]
        for i in range(some.size):
            scale[i] = a * part[i]
        for m in range(n_odd, shares.size, 2):
            a, part = shares[m], parts[m, low : low + CHUNK]
            b, other = shares[m + 1], parts[m + 1, low : low + CHUNK]
            for i in range(some.size):
                scale[i] += a * part[i] + b * other[i]
        for i in range(some.size):
            scale[i] = some[i] / scale[i]
        for m in range(n_odd):
            part, total = parts[m, low : low + CHUNK], 0.0
            for i in range(some.size):
                total += scale[i] * part[i]
            explained[m] += shares[m] * total
        for m in range(n_odd, shares.size, 2):
            part, other = parts[m, low : low + CHUNK], parts[m + 1, low : low + CHUNK]
            first = second = 0.0
            for i in range(some.size):
                first += scale[i] * part[i]
                second += scale[i] * other[i]
            explained[m] += shares[m] * first
            explained[m + 1] += shares[m + 1] * second

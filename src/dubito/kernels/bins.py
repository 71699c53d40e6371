"""Right-closed bins (a, b]: one rule for whoever fits, predicts or measures with bins."""

from dubito.kernels.compile import kernel

__all__ = ["bin_indices", "bin_of", "reliability_sums"]


@kernel
def bin_of(value, edges):
    """Return the bin of a value: 0 belongs to the first, 1.0 to the last."""
    low, high = 0, edges.size - 2
    # Bins of equal width over [0, 1] are guessed: a search mispredicts a branch a step.
    guess = min(max(int(value * (high + 1)), low), high)
    if value > edges[guess] and value <= edges[guess + 1]:
        return guess
    while low < high:  # the first bin whose right edge is not below the value
        middle = (low + high) // 2
        if value <= edges[middle + 1]:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def bin_indices(values, edges, indices):
    """Fill `indices` with the bin of each value."""
    for i in range(values.size):
        indices[i] = bin_of(values[i], edges)


@kernel
def reliability_sums(confidence, doubt, correct, weights, edges, sums):
    """Add each row to its bin of `sums` (sums x bins), all in one pass.

    The sums are: weight, squared weight, confidence, correct, variance if confidence is true, rows.
    """
    for i in range(confidence.size):
        weight = weights[i]
        if weight == 0.0:
            continue
        b = bin_of(confidence[i], edges)
        sums[0, b] += weight
        sums[1, b] += weight * weight
        sums[2, b] += weight * confidence[i]
        sums[3, b] += weight * correct[i]
        sums[4, b] += weight * weight * confidence[i] * doubt[i]
        sums[5, b] += 1.0

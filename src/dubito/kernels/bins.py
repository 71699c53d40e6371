"""Right-closed bins (a, b]: one rule for whoever fits, predicts or measures with bins."""

from dubito.kernels.compile import kernel

__all__ = ["bin_indices", "bin_sums"]


@kernel
def bin_indices(values, edges, indices):
    """Fill `indices` with the bin of each value: 0 belongs to the first, 1.0 to the last."""
    last = edges.size - 2
    for i in range(values.size):
        low, high = 0, last
        while low < high:  # the first bin whose right edge is not below the value
            middle = (low + high) // 2
            if values[i] <= edges[middle + 1]:
                high = middle
            else:
                low = middle + 1
        indices[i] = low


@kernel
def bin_sums(indices, weights, columns, sums):
    """Add weight times each of `columns` (columns x rows) to `sums` (columns x bins)."""
    for i in range(indices.size):
        for j in range(columns.shape[0]):
            sums[j, indices[i]] += weights[i] * columns[j, i]

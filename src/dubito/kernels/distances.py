"""The distance to the k-th nearest of many rows: a matrix product proposes, exact sums decide.

Half of |x - q|^2 is key + |q|^2 / 2 with key = |x|^2 / 2 - q x. Keys come from a product in
float32. Whatever they cannot rule out is measured again, in float64 and by differences: nothing
cancels, and a row is at distance 0 from itself.
"""

import numpy as np

from dubito.kernels.compile import inner, kernel

STRIP = 64  # keys that are looked at together
SMALL, LARGE = 1e-140, 1e140  # entries whose squares can be summed
# What brings others there. Not the largest entry itself: its reciprocal may be infinite.
UP, DOWN = 2.0**960, 2.0**-530


@inner
def _factor_of(largest):
    """Return a scale for entries at which their squares can be summed."""
    if largest < SMALL:
        return UP
    return 1.0 if largest < LARGE else DOWN


@kernel
def unit_rows(array, result):
    """Fill `result` with rows of length 1; a row of zeros stays one."""
    scaled = np.empty(array.shape[1])
    for i in range(array.shape[0]):
        row, out = array[i], result[i]
        largest = 0.0
        for k in range(row.size):
            largest = max(largest, abs(np.float64(row[k])))
        factor = _factor_of(largest)
        for k in range(row.size):
            scaled[k] = row[k] * factor
        total = 0.0
        for k in range(row.size):
            total += scaled[k] * scaled[k]
        length = np.sqrt(total) if total > 0.0 else 1.0
        for k in range(row.size):
            out[k] = scaled[k] / length


@inner
def _distance_between(x, q):
    """Return |x - q|, of whatever size the entries are."""
    total = 0.0
    for k in range(x.size):
        gap = np.float64(x[k]) - q[k]
        total += gap * gap
    if SMALL * SMALL < total < LARGE * LARGE:
        return np.sqrt(total)
    largest = 0.0
    for k in range(x.size):
        largest = max(largest, abs(np.float64(x[k]) - q[k]))
    factor = _factor_of(largest)
    total = 0.0
    for k in range(x.size):
        gap = (np.float64(x[k]) - q[k]) * factor
        total += gap * gap
    return np.sqrt(total) / factor


@inner
def _replace_largest(heap, value):
    """Put `value` in place of the largest entry, which stands first, and restore the heap."""
    place = 0
    while 2 * place + 1 < heap.size:
        child = 2 * place + 1
        if child + 1 < heap.size and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = value


@kernel
def nearest_rows(products, half_squares, known, queries, lengths, slack, scale, heaps):
    """Update the heaps of each query's least distances with some known rows.

    `products`, `half_squares` and `lengths` (|q|) are in units of `scale`. Keys are right to
    `slack`, or, where that is infinite, may be anything at all.
    """
    for i in range(products.shape[0]):
        heap, q = heaps[i], queries[i]
        limit = _limit_of(heap[0], lengths[i], slack[i], scale)
        for low in range(0, half_squares.size, STRIP):
            dots, halves = products[i, low : low + STRIP], half_squares[low : low + STRIP]
            n_beyond = 0
            for j in range(halves.size):
                n_beyond += halves[j] - dots[j] > limit
            if n_beyond == halves.size:
                continue
            for j in range(halves.size):
                if halves[j] - dots[j] > limit:  # never true of NaN
                    continue
                distance = _distance_between(known[low + j], q)
                if distance < heap[0]:
                    _replace_largest(heap, distance)
                    limit = _limit_of(heap[0], lengths[i], slack[i], scale)


@inner
def _limit_of(distance, length, slack, scale):
    """Return the key beyond which no row is nearer than `distance`."""
    far = distance / scale
    limit = np.float32((far - length) * (far + length) / 2.0 + slack)
    return limit if slack < np.inf else np.float32(np.inf)

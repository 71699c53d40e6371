"""Monotone regression: pool adjacent violators, and evaluation of the result."""

import numpy as np

from dubito.kernels.compile import inner, kernel

# Where a search starts: in one of so many equal parts of the range in which log odds lie.
N_PARTS = 1024
REACH = 28.0
index = np.uintp  # unsigned, which spares a test of whether an index counts from the end


@kernel
def pool_neighbors(positive, weight, low, high):
    """Pool neighboring cells in place until their means rise; return how many blocks are left.

    A cell has the weight of its rows, that of the positive ones, and its lowest and highest score.
    Cells without weight are left out.
    """
    n_blocks = 0
    for i in range(weight.size):
        if weight[i] == 0.0:
            continue
        p, w, bottom, top = positive[i], weight[i], low[i], high[i]
        while n_blocks > 0 and positive[n_blocks - 1] * w >= p * weight[n_blocks - 1]:
            n_blocks -= 1
            p += positive[n_blocks]
            w += weight[n_blocks]
            bottom = low[n_blocks]
        positive[n_blocks], weight[n_blocks] = p, w
        low[n_blocks], high[n_blocks] = bottom, top
        n_blocks += 1
    return n_blocks


@inner
def _part_of(score):
    """Return the part of the range in which a score lies; beyond its ends, the outermost one."""
    return min(max(int((score + REACH) * (N_PARTS / (2 * REACH))), 0), N_PARTS - 1)


@inner
def _index_of(rising, offsets):
    """Return where the numbers of each class and part start, and in the end where all end."""
    n_classes = offsets.size - 1
    starts = np.empty(n_classes * N_PARTS + 1, np.int64)
    for k in range(n_classes):
        part = k * N_PARTS
        for at in range(offsets[k], offsets[k + 1]):
            last = k * N_PARTS + _part_of(rising[at])
            starts[part : last + 1] = at
            part = max(part, last + 1)
        starts[part : (k + 1) * N_PARTS] = offsets[k + 1]
    starts[-1] = offsets[-1]
    return starts


@inner
def _first_above(rising, starts, k, score):
    """Return where the first of class k's numbers that is above a score stands."""
    part = index(k * N_PARTS + _part_of(score))
    at, stop = index(starts[part]), index(starts[part + index(1)])
    while at < stop:
        middle = (at + stop) >> index(1)
        is_above = rising[middle] > score
        at, stop = at if is_above else middle + index(1), middle if is_above else stop
    return at


@kernel
def add_to_cells(scores, codes, soft, weights, knots, offsets, cells):
    """Add every entry's weight to its class's cell: from a knot up to the next.

    The knots of class k stand in `knots` from `offsets[k]` to `offsets[k + 1]`, rising; its cells
    from `offsets[k] + k` on are one more, the first is below all knots. A cell is a row of `cells`:
    weight, weight that is positive, lowest and highest score.
    """
    is_soft = soft.shape[0] == scores.shape[0]
    starts = _index_of(knots, offsets)
    for i in range(scores.shape[0]):
        weight = weights[i]
        if weight == 0.0:
            continue
        for k in range(scores.shape[1]):
            score = scores[i, k]
            cell = cells[_first_above(knots, starts, k, score) + k]
            probability = soft[i, k] if is_soft else (1.0 if codes[i] == k else 0.0)
            cell[0] += weight
            cell[1] += weight * probability
            cell[2] = min(cell[2], score)
            cell[3] = max(cell[3], score)


@kernel
def read_knots(scores, x, y, offsets, values):
    """Fill `values` with each class's curve at its scores: linear between knots, level beyond.

    Scores and values are classes x rows.
    """
    starts = _index_of(x, offsets)
    for k in range(scores.shape[0]):
        first, last = index(offsets[k]), index(offsets[k + 1] - 1)
        row, out = scores[k], values[k]
        for i in range(row.size):
            score = min(max(row[i], x[first]), x[last])
            above = _first_above(x, starts, k, score)
            below, above = above - index(1), min(above, last)
            width = x[above] - x[below]
            fraction = (score - x[below]) / width if width > 0 else 0.0
            out[i] = y[below] + fraction * (y[above] - y[below])

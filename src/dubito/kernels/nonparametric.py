"""Nonparametric calibrators: monotone regression, and extremely randomized trees.

A node of a tree is an entry in three arrays. A row goes on to node `child` if its number
`column` is at most `threshold`, else to the one after; where `child` is 0 it is at a leaf.
"""

import numpy as np

from dubito.kernels.compile import inner, kernel
from dubito.kernels.elementary import exponential

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


TILE = 256  # rows that go down a tree together
ALIKE = 1e-9  # relative difference of purities that rounding may make; then the lower threshold


@kernel
def grow_tree(numbers, codes, weights, least, seed, column, threshold, child):
    """Fill the nodes of a tree over columns of numbers and labels; return how many there are.

    A node tries one threshold for each column, a random part of the way from its lowest to its
    highest number, and keeps that which leaves the labels purest. Both sides weigh at least
    `least`. The part is the same for all columns, so that their order makes no difference.
    """
    np.random.seed(seed)
    order, buffer = np.empty(codes.size, np.int64), np.empty(codes.size, np.int64)
    n_codes = 0
    for i in range(codes.size):
        order[i] = i
        n_codes = max(n_codes, codes[i] + 1)
    counts = np.zeros((2, n_codes))  # of a node's labels, and of those on the left
    low, high = np.empty(child.size, np.int64), np.empty(child.size, np.int64)
    low[0], high[0] = 0, codes.size
    n_nodes = 1
    for node in range(child.size):
        if node == n_nodes:
            break
        child[node] = 0
        rows = order[low[node] : high[node]]
        part = np.random.random()
        best_column, cut = _best_cut(rows, numbers, codes, weights, least, part, counts)
        if best_column < 0:
            continue
        n_left = _put_left_first(rows, numbers[best_column], cut, buffer)
        column[node], threshold[node], child[node] = best_column, cut, n_nodes
        low[n_nodes], high[n_nodes] = low[node], low[node] + n_left
        low[n_nodes + 1], high[n_nodes + 1] = low[node] + n_left, high[node]
        n_nodes += 2
    return n_nodes


@inner
def _best_cut(rows, numbers, codes, weights, least, part, counts):
    """Return the column and threshold that leave labels purest, -1 where none makes them purer.

    Purity is the sum of squared counts over the weight, on both sides together. `counts` are zeros
    before and after.
    """
    total = counts[0]
    weight, squares = 0.0, 0.0
    for i in rows:
        weight += weights[i]
        squares += weights[i] * (weights[i] + 2 * total[codes[i]])
        total[codes[i]] += weights[i]
    best, best_column = squares / weight, -1
    best_threshold, best_left = np.float32(np.inf), np.inf
    if weight >= 2 * least and squares < weight * weight * (1 - ALIKE):
        for j in range(numbers.shape[0]):
            values = numbers[j]
            smallest = largest = np.float64(values[rows[0]])
            for i in rows:
                smallest, largest = min(smallest, values[i]), max(largest, values[i])
            if smallest == largest:
                continue
            cut = np.float32(smallest + part * (largest - smallest))
            left_weight, left_squares, right_squares = _squares_beside(
                rows, values, cut, codes, weights, squares, counts
            )
            right_weight = weight - left_weight
            if left_weight < least or right_weight < least:
                continue
            purity = left_squares / left_weight + right_squares / right_weight
            is_better = purity > best * (1 + ALIKE)
            if best_column >= 0 and not is_better and purity > best * (1 - ALIKE):
                is_lower = cut < best_threshold
                is_better = is_lower or (cut == best_threshold and left_weight < best_left)
            if is_better:
                best, best_column, best_threshold, best_left = purity, j, cut, left_weight
    for i in rows:
        total[codes[i]] = 0.0
    return best_column, best_threshold


@inner
def _squares_beside(rows, values, cut, codes, weights, squares, counts):
    """Return the weight on the left of a cut, and the squared label counts on either side.

    `squares` are those of both sides together, `counts[0]` the counts they are of.
    """
    total, left = counts
    left_weight, left_squares, right_squares = 0.0, 0.0, squares
    for i in rows:
        left[codes[i]] += weights[i] * (values[i] <= cut)
    if rows.size >= left.size:
        for k in range(left.size):
            left_weight += left[k]
            left_squares += left[k] * left[k]
            right_squares += left[k] * (left[k] - 2 * total[k])
            left[k] = 0.0
    else:
        for i in rows:
            k = codes[i]
            left_weight += left[k]
            left_squares += left[k] * left[k]
            right_squares += left[k] * (left[k] - 2 * total[k])
            left[k] = 0.0
    return left_weight, left_squares, right_squares


@inner
def _put_left_first(rows, values, cut, buffer):
    """Put the rows on the left of a cut before the others, in order; return how many there are."""
    n_left, n_right = 0, 0
    for i in rows:
        if values[i] <= cut:
            rows[n_left] = i
            n_left += 1
        else:
            buffer[n_right] = i
            n_right += 1
    for m in range(n_right):
        rows[n_left + m] = buffer[m]
    return n_left


@inner
def _leaf_of(row, node, column, threshold, child):
    """Return the leaf in which a row ends that starts at a node."""
    while child[node] > 0:
        node = child[node] + (row[column[node]] > threshold[node])
    return node


@kernel
def leaves_of(numbers, root, column, threshold, child, leaves):
    """Fill `leaves` with the node where each row ends that starts at `root`."""
    for i in range(numbers.shape[0]):
        leaves[i] = _leaf_of(numbers[i], root, column, threshold, child)


@kernel
def add_forest(
    x, prior, roots, column, threshold, child, leaf, start, label, fraction, weight, mixed
):
    """Add the mean over trees of what their leaves give, times a weight, to `mixed`.

    `x` are log probabilities, classes x rows; trees split on them and on their exponentials, in
    float32. Leaf `leaf[node]` has the entries `start[leaf]` to `start[leaf + 1]`: fractions of its
    probability for some labels, where a label beyond the classes means the `prior` probabilities.
    Without `start`, a row of `fraction` has all labels of a leaf.
    """
    n_classes, n_rows = x.shape
    numbers, votes = np.empty((TILE, 2 * n_classes), np.float32), np.empty((TILE, n_classes + 1))
    at, active = np.empty(TILE, np.uint32), np.empty(TILE, np.uint32)
    scale = weight / roots.size
    for low in range(0, n_rows, TILE):
        size = min(TILE, n_rows - low)
        for k in range(n_classes):
            for j in range(size):
                numbers[j, k] = x[k, low + j]
                numbers[j, n_classes + k] = exponential(x[k, low + j])
        votes[:] = 0.0
        for root in roots:
            _walk(numbers, size, root, column, threshold, child, at, active)
            for j in range(size):
                number, row = index(leaf[index(at[j])]), votes[j]
                if start.size == 0:
                    fractions = fraction[number]
                    for k in range(row.size):
                        row[k] += fractions[k]
                else:
                    for m in range(start[number], start[number + 1]):
                        row[index(label[m])] += fraction[0, m]
        for k in range(n_classes):
            out, p = mixed[k, low : low + size], prior[k, low : low + size]
            for j in range(size):
                out[j] += scale * (votes[j, k] + votes[j, n_classes] * p[j])


@inner
def _walk(numbers, size, root, column, threshold, child, at, active):
    """Fill `at` with the leaves of some rows, which go down level by level.

    The steps of different rows do not wait for each other, and rows that have arrived are left out.
    """
    for j in range(size):
        at[j] = root
        active[j] = j
    n_active = index(size if child[root] > 0 else 0)
    while n_active > 0:
        n_left = index(0)
        for m in range(n_active):
            j = index(active[m])
            node = index(at[j])
            is_right = numbers[j, index(column[node])] > threshold[node]
            node = index(child[node]) + index(is_right)
            at[j] = node
            active[n_left] = j
            n_left += index(child[node] > 0)
        n_active = n_left

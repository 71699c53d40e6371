"""Extremely randomised trees: how one grows, and where rows end in it.

A node is an entry of three arrays. A row goes on to node `child` if its number `column` is at most
`threshold`, else to the one after; where `child` is 0 it has arrived at a leaf.
"""

import numpy as np

from dubito.kernels.compile import kernel

__all__ = ["add_forest", "grow_tree", "leaves_of"]

ALIKE = 1e-9  # relative difference of purities that rounding may make; then the lower threshold


@kernel
def grow_tree(numbers, codes, weights, least, seed, column, threshold, child):
    """Fill the nodes of a tree over rows of numbers and labels; return how many there are.

    A node tries one threshold for each column, a random part of the way from its lowest to its
    highest number, and keeps that which leaves the labels purest. Both sides weigh at least
    `least`. The part is the same for all columns, so that their order makes no difference.
    """
    np.random.seed(seed)
    n_rows, n_columns = numbers.shape
    order = np.arange(n_rows)
    buffer = np.empty(n_rows, np.int64)
    n_classes = codes.max() + 1
    total, left = np.zeros(n_classes), np.zeros(n_classes)
    low, high = np.zeros(child.size, np.int64), np.zeros(child.size, np.int64)
    high[0] = n_rows
    n_nodes = 1
    for node in range(child.size):
        if node == n_nodes:
            break
        child[node] = 0
        rows = order[low[node] : high[node]]
        part = np.random.random()
        weight, squares = 0.0, 0.0
        for i in rows:
            weight += weights[i]
            squares += weights[i] * (weights[i] + 2 * total[codes[i]])
            total[codes[i]] += weights[i]
        best = squares / weight
        best_column, best_threshold, best_left = -1, np.inf, np.inf
        if weight >= 2 * least and squares < weight * weight * (1 - ALIKE):
            for j in range(n_columns):
                smallest, largest = np.inf, -np.inf
                for i in rows:
                    smallest, largest = min(smallest, numbers[i, j]), max(largest, numbers[i, j])
                if smallest == largest:
                    continue
                cut = np.float32(smallest + part * (largest - smallest))
                left_weight, left_squares, right_squares = 0.0, 0.0, squares
                for i in rows:
                    if numbers[i, j] <= cut:
                        w, k = weights[i], codes[i]
                        right_squares += w * (w - 2 * (total[k] - left[k]))
                        left_squares += w * (w + 2 * left[k])
                        left_weight += w
                        left[k] += w
                for i in rows:
                    left[codes[i]] = 0.0
                right_weight = weight - left_weight
                if left_weight < least or right_weight < least:
                    continue
                purity = left_squares / left_weight + right_squares / right_weight
                is_better = purity > best * (1 + ALIKE)
                if best_column >= 0 and not is_better and purity > best * (1 - ALIKE):
                    is_lower = cut < best_threshold
                    is_better = is_lower or (cut == best_threshold and left_weight < best_left)
                if is_better:
                    best, best_column = purity, j
                    best_threshold, best_left = cut, left_weight
        for i in rows:
            total[codes[i]] = 0.0
        if best_column < 0:
            continue
        n_left, n_right = 0, 0
        for i in rows:
            if numbers[i, best_column] <= best_threshold:
                rows[n_left] = i
                n_left += 1
            else:
                buffer[n_right] = i
                n_right += 1
        rows[n_left:] = buffer[:n_right]
        column[node], threshold[node], child[node] = best_column, best_threshold, n_nodes
        low[n_nodes], high[n_nodes] = low[node], low[node] + n_left
        low[n_nodes + 1], high[n_nodes + 1] = low[node] + n_left, high[node]
        n_nodes += 2
    return n_nodes


@kernel
def leaves_of(numbers, root, column, threshold, child, leaves):
    """Fill `leaves` with the node where each row ends that starts at `root`."""
    for i in range(numbers.shape[0]):
        node = root
        while child[node] > 0:
            node = child[node] + (numbers[i, column[node]] > threshold[node])
        leaves[i] = node


@kernel
def add_forest(numbers, roots, column, threshold, child, start, label, weight, pull, shares):
    """Turn each row of shares into the mean over trees of what its leaf counted, and of itself.

    The labels and weights of leaf `node` are entries `start[node]` to `start[node + 1]`; the shares
    that were there count as `pull` rows more.
    """
    for i in range(numbers.shape[0]):
        row = shares[i]
        kept = 0.0
        added = np.zeros(row.size)
        for root in roots:
            node = root
            while child[node] > 0:
                node = child[node] + (numbers[i, column[node]] > threshold[node])
            labels, weights = (
                label[start[node] : start[node + 1]],
                weight[start[node] : start[node + 1]],
            )
            total = pull + weights.sum()
            kept += pull / total
            for m in range(labels.size):
                added[labels[m]] += weights[m] / total
        for k in range(row.size):
            row[k] = (kept * row[k] + added[k]) / roots.size

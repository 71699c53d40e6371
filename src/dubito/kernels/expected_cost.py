"""Expected costs of actions and expected F-beta of sets of labels, and the best, row by row.

Shares are taken in float64 whatever the outputs are, tile by tile, so that no copy of the matrix is
ever made, and ties of float32 rows are told as finely as those of float64 ones. With p the
probabilities of a row, the cost of action a is sum_k p_k base_ak plus, for each line (a, k, v) of
`entries`, p_k values_v: the cost of that cell in this row. `values` are kept values x rows.
"""

import numpy as np

from dubito.kernels.compile import inner, kernel
from dubito.kernels.elementary import exponential, highest
from dubito.kernels.row_statistics import fill_tile, fill_tops

# Where each choice and each number of a row stands in the output of `narrow_least`.
ACTION, CLASS = range(2)
COST, EXCESS, PROBABILITY = range(3)

TILE = 256  # rows per tile
TIE = 1e-12  # costs this close, relative to the minimum, and F-betas are equal up to rounding
LOWEST = -1000.0  # probabilities below exp(-1000) are 0 in any precision


@kernel
def share_rows(array, is_logits, result):
    """Fill `result` with probabilities in float64, for rows of many classes."""
    for i in range(array.shape[0]):
        row, out = array[i], result[i]
        if is_logits:
            top = np.float64(highest(row))
            for k in range(row.size):
                out[k] = exponential(max(np.float64(row[k]) - top, LOWEST))
        else:
            for k in range(row.size):
                out[k] = np.float64(row[k])
        total = 0.0
        for k in range(row.size):
            total += out[k]
        for k in range(row.size):
            out[k] /= total


@inner
def _fill_probabilities(rows, is_logits, tile, best, top, total):
    """Fill a tile, classes x rows, with probabilities in float64, and the top class with its own.

    Where rows are probabilities, that one is as it was given.
    """
    size, n_classes = rows.shape
    fill_tile(rows, tile)
    fill_tops(tile, size, top, best)
    total[:size] = 0.0
    for k in range(n_classes):
        column = tile[k]
        if is_logits:
            for j in range(size):
                column[j] = exponential(max(column[j] - top[j], LOWEST))
        for j in range(size):
            total[j] += column[j]
    for j in range(size):
        total[j] = 1.0 / total[j]
    for k in range(n_classes):
        column = tile[k]
        for j in range(size):
            column[j] *= total[j]
    if is_logits:
        for j in range(size):
            top[j] = total[j]


@inner
def _add_costs(tile, size, table, costs):
    """Add the expected costs of a tile, actions x rows.

    Four classes at a time: what a sum costs is the way to memory and back.
    """
    n_actions, n_classes = table.shape
    n_fours = n_classes - n_classes % 4
    for a in range(n_actions):
        cost, weights = costs[a], table[a]
        for k in range(0, n_fours, 4):
            u, v, w, x = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
            p, q, r, s = tile[k], tile[k + 1], tile[k + 2], tile[k + 3]
            for j in range(size):
                cost[j] += u * p[j] + v * q[j] + w * r[j] + x * s[j]
        for k in range(n_fours, n_classes):
            u, p = weights[k], tile[k]
            for j in range(size):
                cost[j] += u * p[j]


@inner
def _fill_costs(rows, is_logits, base, entries, values, low, tile, best, top, total, costs):
    """Fill `costs`, actions x rows, with what each action is expected to cost; lanes are rows.

    `low` is the position of the first row among the values.
    """
    size = rows.shape[0]
    _fill_probabilities(rows, is_logits, tile, best, top, total)
    costs[:, :size] = 0.0
    _add_costs(tile, size, base, costs)
    for e in range(entries.shape[0]):
        cost, p, value = costs[entries[e, 0]], tile[entries[e, 1]], values[entries[e, 2]]
        for j in range(size):
            cost[j] += p[j] * value[low + j]


@kernel
def narrow_costs(array, is_logits, base, entries, values, result):
    """Fill `result`, rows x actions, tile by tile, lanes running over the rows."""
    n_rows, n_classes = array.shape
    tile = np.empty((n_classes, TILE))
    costs = np.empty((base.shape[0], TILE))
    best, top, total = np.empty(TILE, np.int64), np.empty(TILE), np.empty(TILE)
    for low in range(0, n_rows, TILE):
        size = min(TILE, n_rows - low)
        rows = array[low : low + size]
        _fill_costs(rows, is_logits, base, entries, values, low, tile, best, top, total, costs)
        for j in range(size):
            for a in range(base.shape[0]):
                result[low + j, a] = costs[a, j]


@kernel
def narrow_least(array, is_logits, base, entries, values, reject, margin, choices, numbers):
    """Fill the `choices` and `numbers` of each row; lanes run over the rows.

    `base` and `values` are what an action costs above the cheapest one of each class, and for their
    last action what that one costs. The excess is the least of what actions other than `reject`
    cost above the cheapest. `reject` is -1 for none.
    """
    n_rows, n_classes = array.shape
    n_actions = base.shape[0] - 1
    tile = np.empty((n_classes, TILE))
    costs = np.empty((n_actions + 1, TILE))
    best, top, total = np.empty(TILE, np.int64), np.empty(TILE), np.empty(TILE)
    action, excess, lowest = np.empty(TILE, np.int64), np.empty(TILE), np.empty(TILE)
    for low in range(0, n_rows, TILE):
        size = min(TILE, n_rows - low)
        rows = array[low : low + size]
        _fill_costs(rows, is_logits, base, entries, values, low, tile, best, top, total, costs)
        for j in range(size):
            excess[j] = np.inf
        for a in range(n_actions):
            if a != reject:
                cost = costs[a]
                for j in range(size):
                    excess[j] = min(excess[j], cost[j])
        for j in range(size):
            lowest[j] = excess[j] if reject < 0 else min(excess[j], costs[reject, j])
        for a in range(n_actions - 1, -1, -1):
            cost = costs[a]
            for j in range(size):
                action[j] = a if cost[j] <= lowest[j] * (1.0 + TIE) else action[j]
        if reject >= 0:
            cost = costs[reject]
            for j in range(size):
                action[j] = reject if cost[j] <= lowest[j] + margin else action[j]
        for j in range(size):
            choices[ACTION, low + j] = action[j]
            choices[CLASS, low + j] = best[j]
            numbers[COST, low + j] = costs[action[j], j] + costs[n_actions, j]
            numbers[EXCESS, low + j] = excess[j]
            numbers[PROBABILITY, low + j] = top[j]


@inner
def _count_true(p, counts):
    """Fill `counts` with the probability of each number of true labels (Poisson binomial)."""
    counts[:] = 0.0
    counts[0] = 1.0
    for k in range(p.size):
        q = np.float64(p[k])
        for s in range(k + 1, 0, -1):
            counts[s] = counts[s] * (1.0 - q) + counts[s - 1] * q
        counts[0] *= 1.0 - q


@inner
def _add_hits(q, counts, hits):
    """Add, for each number of true labels, the probability of it and that a label is among them.

    The distribution without the label comes from that of all by a division, which starts at the end
    where errors shrink.
    """
    n = counts.size - 1
    rest = 0.0
    if q <= 0.5:
        factor = 1.0 / (1.0 - q)
        for s in range(n):
            rest = (counts[s] - q * rest) * factor
            hits[s + 1] += q * rest
    else:
        factor = 1.0 / q
        for s in range(n - 1, -1, -1):
            rest = (counts[s + 1] - (1.0 - q) * rest) * factor
            hits[s + 1] += q * rest


@kernel
def best_sets(p, square, is_selected, values):
    """Fill the selected labels of each row, and their expected F-beta; `square` is beta squared.

    The best set of k labels holds the k most probable ones. An empty set has F-beta 1 if no label
    is true.
    """
    n_rows, n = p.shape
    order, counts, hits = np.empty(n, np.int64), np.empty(n + 1), np.empty(n + 1)
    for i in range(n_rows):
        for k in range(n):
            place = k
            while place > 0 and p[i, order[place - 1]] < p[i, k]:
                order[place] = order[place - 1]
                place -= 1
            order[place] = k
        _count_true(p[i], counts)
        hits[:] = 0.0
        size, best = 0, counts[0]
        for k in range(n):
            _add_hits(np.float64(p[i, order[k]]), counts, hits)
            value = 0.0
            for s in range(1, n + 1):
                value += hits[s] / (square * s + (k + 1))
            value *= 1.0 + square
            if value > best + TIE:
                size, best = k + 1, value
        for k in range(n):
            is_selected[i, order[k]] = k < size
        values[i] = best

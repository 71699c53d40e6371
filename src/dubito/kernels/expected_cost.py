"""Expected costs of actions, of asking someone first, and expected F-beta of sets, row by row.

Probabilities are in float64 whatever the outputs are, tile by tile: no copy of the matrix is ever
made, and ties of float32 rows are found as exactly as those of float64 ones. With p the
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
def narrow_least(array, is_logits, base, entries, values, rejects, margin, choices, numbers):
    """Fill the `choices` and `numbers` of each row; lanes run over the rows.

    `base` and `values` are what an action costs above the cheapest one of each class, and for their
    last action what that one costs. The excess is the least of what actions that are not among
    `rejects` cost above the cheapest. The first of these wins a tie.
    """
    n_rows, n_classes = array.shape
    n_actions = base.shape[0] - 1
    tile = np.empty((n_classes, TILE))
    costs = np.empty((n_actions + 1, TILE))
    best, top, total = np.empty(TILE, np.int64), np.empty(TILE), np.empty(TILE)
    action, excess, lowest = np.empty(TILE, np.int64), np.empty(TILE), np.empty(TILE)
    is_reject = np.zeros(n_actions, np.bool_)
    for a in rejects:
        is_reject[a] = True
    for low in range(0, n_rows, TILE):
        size = min(TILE, n_rows - low)
        rows = array[low : low + size]
        _fill_costs(rows, is_logits, base, entries, values, low, tile, best, top, total, costs)
        excess[:size] = np.inf
        for a in range(n_actions):
            if not is_reject[a]:
                cost = costs[a]
                for j in range(size):
                    excess[j] = min(excess[j], cost[j])
        lowest[:size] = excess[:size]
        for a in rejects:
            cost = costs[a]
            for j in range(size):
                lowest[j] = min(lowest[j], cost[j])
        for a in range(n_actions - 1, -1, -1):
            cost = costs[a]
            for j in range(size):
                action[j] = a if cost[j] <= lowest[j] * (1.0 + TIE) else action[j]
        for a in rejects[::-1]:
            cost = costs[a]
            for j in range(size):
                action[j] = a if cost[j] <= lowest[j] + margin else action[j]
        for j in range(size):
            choices[ACTION, low + j] = action[j]
            choices[CLASS, low + j] = best[j]
            numbers[COST, low + j] = costs[action[j], j] + costs[n_actions, j]
            numbers[EXCESS, low + j] = excess[j]
            numbers[PROBABILITY, low + j] = top[j]


@inner
def _sums_of_errors(p, misses, table, is_zero_one, sums):
    """Fill, per action, the sum over classes of p_k misses_k times its cost there."""
    if is_zero_one:
        total = 0.0
        for k in range(p.size):
            total += p[k] * misses[k]
        for a in range(p.size):
            sums[a] = max(total - p[a] * misses[a], 0.0)
        return
    for a in range(table.shape[0]):
        total = 0.0
        for k in range(p.size):
            total += p[k] * misses[k] * table[a, k]
        sums[a] = total


@inner
def _two_lowest(sums):
    """Return the positions of the lowest of some numbers, and of the next."""
    first, second = 0, -1
    for a in range(1, sums.size):
        if sums[a] < sums[first]:
            first, second = a, first
        elif second < 0 or sums[a] < sums[second]:
            second = a
    return first, second


@inner
def _act_on_even_errors(p, hits, misses, table, is_zero_one, sums, rule):
    """Fill the best action after each answer where all errors are alike; return the cost.

    The answer j has the likelihood hits_j in class j and misses_k in any other class k. With costs
    of 0 and 1 only two actions can be the best: that of the answer, and the best of the others.
    """
    _sums_of_errors(p, misses, table, is_zero_one, sums)
    first, second = _two_lowest(sums)
    expected = 0.0
    for j in range(p.size):
        more = p[j] * (hits[j] - misses[j])
        if is_zero_one:
            other = first if first != j else second
            is_own = other < 0 or sums[j] <= sums[other] + more
            rule[j] = j if is_own else other
            expected += sums[j] if is_own else sums[other] + more
        else:
            best = sums[0] + more * table[0, j]
            rule[j] = 0
            for a in range(1, table.shape[0]):
                cost = sums[a] + more * table[a, j]
                if cost < best:
                    best, rule[j] = cost, a
            expected += best
    return expected


@inner
def _act_on_answers(p, confusion, table, is_zero_one, joint, rule):
    """Fill the best action after each answer, given a confusion matrix; return the cost."""
    expected = 0.0
    for j in range(confusion.shape[1]):
        total = 0.0
        for k in range(p.size):
            joint[k] = p[k] * confusion[k, j]
            total += joint[k]
        rule[j] = 0
        if is_zero_one:
            for k in range(1, p.size):
                if joint[k] > joint[rule[j]]:
                    rule[j] = k
            expected += total - joint[rule[j]]
        else:
            best = np.inf
            for a in range(table.shape[0]):
                cost = 0.0
                for k in range(p.size):
                    cost += joint[k] * table[a, k]
                if cost < best:
                    best, rule[j] = cost, a
            expected += best
    return expected


@inner
def _cost_in_class(k, hits, misses, confusion, table, is_zero_one, counts, rule):
    """Return what acting on answers costs in one class; `counts` is how many lead to each action.

    Without a confusion matrix all errors are alike.
    """
    cost = 0.0
    if confusion.size:
        for j in range(rule.size):
            cost += confusion[k, j] * table[rule[j], k]
        return cost
    if is_zero_one:
        cost = np.float64(rule.size - counts[k])
    else:
        for a in range(table.shape[0]):
            cost += counts[a] * table[a, k]
    return misses[k] * cost + (hits[k] - misses[k]) * table[rule[k], k]


@kernel
def answer_costs(
    p, base, entries, values, hits, misses, confusion, is_bayes, is_zero_one, expected, by_class
):
    """Fill the expected cost after an answer of someone who errs, per row, and by true class.

    An answer is combined with the probabilities by Bayes (`is_bayes`), or is assumed to be correct.
    `by_class`, rows x classes, may be empty. `confusion`, classes x answers, is empty where the
    answer is right with probability hits_k and any other with misses_k.
    """
    n_rows, n_classes = p.shape
    n_actions = base.shape[0]
    n_answers = confusion.shape[1] if confusion.size else n_classes
    table, joint = base.copy(), np.empty(n_classes)
    sums, rule = np.empty(n_actions), np.zeros(n_answers, np.int64)
    counts = np.zeros(n_actions, np.int64)
    for i in range(n_rows):
        for e in range(entries.shape[0]):
            a, k = entries[e, 0], entries[e, 1]
            table[a, k] = base[a, k] + values[entries[e, 2], i]
        if not is_bayes:
            for j in range(n_answers):
                rule[j] = np.argmin(table[:, j])
        elif confusion.size:
            expected[i] = _act_on_answers(p[i], confusion, table, is_zero_one, joint, rule)
        else:
            expected[i] = _act_on_even_errors(p[i], hits, misses, table, is_zero_one, sums, rule)
        if is_bayes and not by_class.size:
            continue
        counts[:] = 0
        for j in range(n_answers):
            counts[rule[j]] += 1
        total = 0.0
        for k in range(n_classes):
            cost = _cost_in_class(k, hits, misses, confusion, table, is_zero_one, counts, rule)
            total += p[i, k] * cost
            if by_class.size:
                by_class[i, k] = cost
        if not is_bayes:
            expected[i] = total


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


@kernel
def soft_demand(values, prices, temperature, demand):
    """Add how many rows ask each reviewer at some prices, by a soft maximum; return its sum.

    `values`, rows x reviewers, is what a review saves. A row asks no one where none saves more than
    its price.
    """
    n_rows, n_reviewers = values.shape
    weight = np.empty(n_reviewers)
    total = 0.0
    for i in range(n_rows):
        top = 0.0
        for r in range(n_reviewers):
            top = max(top, values[i, r] - prices[r])
        rest = np.exp(-top / temperature)
        norm = rest
        for r in range(n_reviewers):
            weight[r] = np.exp((values[i, r] - prices[r] - top) / temperature)
            norm += weight[r]
        for r in range(n_reviewers):
            demand[r] += weight[r] / norm
        total += top + temperature * np.log(norm)
    return total


@kernel
def best_reviewers(values, prices, choice, regret):
    """Fill the reviewer of highest value net of prices per row, and what the next would lose.

    The choice is -1 where no review saves more than its price.
    """
    for i in range(values.shape[0]):
        first, second, best = 0.0, -np.inf, -1
        for r in range(values.shape[1]):
            net = values[i, r] - prices[r]
            if net > first:
                first, second, best = net, first, r
            elif net > second:
                second = net
        choice[i], regret[i] = best, first - second


@kernel
def assign_in_order(values, prices, order, left, choice):
    """Give each row, in order, its best reviewer with capacity left, if it is worth its price."""
    for i in order:
        best, highest = -1, 0.0
        for r in range(values.shape[1]):
            net = values[i, r] - prices[r]
            if left[r] > 0 and net > highest:
                best, highest = r, net
        choice[i] = best
        if best >= 0:
            left[best] -= 1

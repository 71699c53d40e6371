"""Conformal prediction sets: scores of the labels, and the classes below a threshold, row by row.

The score of a class depends on how its row ranks: the mass of more probable classes, its own, that
of the others, and its rank. Among equally probable classes, the first counts as more probable.
Masses are in float64, whatever the precision of the array, and proportional to probabilities.
"""

from typing import Any

import numpy as np

from dubito.kernels.compile import inner, kernel
from dubito.kernels.elementary import exponential, highest, ordered
from dubito.kernels.row_statistics import sum_of

LAC, APS, RAPS, SAPS = range(4)
LOWEST = -1000.0  # probabilities below exp(-1000) are 0 in any precision
CAP = 690.0  # of log odds: exp(690) is finite, and its inverse a normal number
SLACK = 1e-11  # above the errors of sums in any order: what ties with a threshold is in the set
DEEPEST = -45.0  # the log of the smallest mass, relative to the largest, that is searched for
MAX_STEPS, FEW = 12, 32  # of the search for classes near the threshold; so many are sorted
GOLDEN = 0x9E3779B97F4A7C15  # the increment of SplitMix64

u64 = np.uint64


@inner
def _fill_mass(row, is_logits, mass):
    """Fill the masses of a row, and return their sum."""
    if is_logits:
        top = np.float64(highest(row))
        for k in range(row.size):
            mass[k] = exponential(max(np.float64(row[k]) - top, LOWEST))
    else:
        for k in range(row.size):
            mass[k] = row[k]
    return sum_of(mass)


@inner
def _first_of(mass, value):
    """Return the first class of a mass that occurs."""
    k = 0
    while mass[k] != value:
        k += 1
    return k


@inner
def _log_odds(inside, outside):
    if inside <= 0.0:
        return -CAP
    if outside <= 0.0:
        return CAP
    return min(max(np.log(inside) - np.log(outside), -CAP), CAP)


@inner
def _score(method, before, own, after, rank, total, top, u, settings):
    """Return the score of a class: log odds (LAC, APS), RAPS's minus 1, or SAPS's.

    A score is never computed as 1 - a small number: RAPS's minus 1 is its penalty minus the mass
    outside, which keeps its digits where softmax is saturated.
    """
    if method == LAC:
        return _log_odds(before + after, own)
    if method == APS:
        return _log_odds(before + u * own, after + (1.0 - u) * own)
    if method == RAPS:
        penalty = settings[0] * max(rank - settings[1], 0.0)
        return penalty - (after + (1.0 - u) * own) / total
    return u * top if rank < 1.5 else top + (rank - 2.0 + u) * settings[0]


@inner
def _slack(method, limit, rank, settings):
    """Return what rounding may add to a score near a limit."""
    if method == RAPS:
        return SLACK * (abs(limit) + settings[0] * max(rank - settings[1], 0.0))
    return SLACK * (abs(limit) + 1.0)


@inner
def _split(mass, cut):
    """Return the sums of masses above a cut and of others, and the number above.

    Comparisons of one variable with one number are what LLVM turns into vector instructions.
    """
    above, below, count = 0.0, 0.0, 0.0
    for k in range(mass.size):
        x = mass[k]
        above += x if x > cut else 0.0
        below += x if x <= cut else 0.0
        count += 1.0 if x > cut else 0.0
    return above, below, count


@inner
def _split_with_ties(mass, cut):
    """Return what `_split` does, with ties above."""
    above, below, count = 0.0, 0.0, 0.0
    for k in range(mass.size):
        x = mass[k]
        above += x if x >= cut else 0.0
        below += x if x < cut else 0.0
        count += 1.0 if x >= cut else 0.0
    return above, below, count


@kernel
def score_labels(array, labels, is_logits, method, settings, uniforms, is_filled, scores):
    """Fill the score of each row's label; if `is_filled`, the top class has the lowest possible."""
    mass = np.empty(array.shape[1])
    for i in range(array.shape[0]):
        total = _fill_mass(array[i], is_logits, mass)
        y = labels[i]
        own = mass[y]
        before, after, rank = _split_with_ties(mass[:y], own)
        more, less, n_more = _split(mass[y + 1 :], own)
        top = np.float64(highest(mass)) / total
        rank += n_more + 1.0
        if is_filled and rank == 1.0:
            scores[i] = -CAP
            continue
        scores[i] = _score(
            method, before + more, own, after + less, rank, total, top, uniforms[i], settings
        )


@kernel
def fill_sets(array, is_logits, method, settings, uniforms, limits, group, is_filled, contains):
    """Fill which classes score at most their limit.

    `limits` has one row for all, or one per row; class k has the limit in column `group[k]`. If
    `is_filled`, the most probable class is in every set.
    """
    n_classes = array.shape[1]
    mass, limit, least = np.empty(n_classes), np.empty(n_classes), np.empty(n_classes)
    index, value, rest = np.empty(n_classes, np.int64), np.empty(n_classes), np.empty(n_classes)
    group_least = np.empty(limits.shape[1])
    low, high = 0.0, 0.0
    for i in range(array.shape[0]):
        if i == 0 or limits.shape[0] > 1:
            bound = limits[min(i, limits.shape[0] - 1)]
            low, high = bound[0], bound[0]
            for g in range(bound.size):
                low, high = min(low, bound[g]), max(high, bound[g])
                group_least[g] = _least_probability(bound[g])
            for k in range(n_classes):
                limit[k], least[k] = bound[group[k]], group_least[group[k]]
        out = contains[i]
        total = _fill_mass(array[i], is_logits, mass)
        most = np.float64(highest(mass))
        if method == LAC:
            for k in range(n_classes):
                out[k] = mass[k] >= least[k] * total
            # Of the top class the others' mass, not 1 - p: below a limit of 0 only it can be in.
            best = _first_of(mass, most)
            score = _log_odds(sum_of(mass[:best]) + sum_of(mass[best + 1 :]), most)
            out[best] = score <= limit[best] + _slack(method, limit[best], 1.0, settings)
        elif (method == APS and low >= CAP) or low == np.inf:
            out[:] = True
        else:
            _fill_ranked(
                mass, total, most, method, settings, uniforms[i], limit, low, high, index, value,
                rest, out,
            )  # fmt: skip
        if is_filled:
            out[_first_of(mass, most)] = True


@inner
def _least_probability(limit):
    """Return the lowest probability whose odds against it are at most exp(limit)."""
    if limit >= CAP:
        return 0.0
    odds = exponential(-abs(limit))
    return (odds if limit > 0.0 else 1.0) / (1.0 + odds) * (1.0 - SLACK)


@inner
def _fill_ranked(mass, total, most, method, settings, u, limit, low, high, index, value, rest, out):
    """Fill the classes whose score, which grows with their rank, is at most their limit.

    Masses above `above` are in the set, those up to `below` are not, and what is between is sorted.
    """
    top = most / total
    above, n_above, mass_above = most, 0.0, 0.0
    below, n_below, mass_below = -1.0, np.float64(mass.size), 0.0
    start, stop = DEEPEST, 0.0
    middle = start
    for _ in range(MAX_STEPS):
        cut = most * np.exp(middle)
        inside, outside, count = _split(mass, cut)
        upper = _score(method, inside, 0.0, outside, count, total, top, u, settings)
        lower = _score(method, inside, 0.0, outside, count + 1.0, total, top, u, settings)
        if upper <= low - _slack(method, low, count, settings):
            above, n_above, mass_above = cut, count, inside
            stop = middle
        elif count == mass.size or lower > high + _slack(method, high, count + 1.0, settings):
            below, n_below, mass_below = cut, count, outside
            start = middle
        elif middle > DEEPEST:
            break
        if n_below - n_above <= FEW or stop <= start:
            break
        middle = 0.5 * (start + stop)
    for k in range(mass.size):
        out[k] = mass[k] > above
    n = 0
    for k in range(mass.size):
        if below < mass[k] <= above:
            index[n] = k
            value[n] = mass[k]
            n += 1
    if n <= FEW:
        for i in range(1, n):
            here, at, j = value[i], index[i], i
            while j > 0 and value[j - 1] < here:
                value[j], index[j] = value[j - 1], index[j - 1]
                j -= 1
            value[j], index[j] = here, at
    else:
        order = np.argsort(-value[:n], kind="mergesort")
        value[:n] = value[:n][order]
        index[:n] = index[:n][order]
    after = mass_below
    for i in range(n - 1, -1, -1):
        rest[i] = after
        after += value[i]
    before, rank = mass_above, n_above
    for i in range(n):
        rank += 1.0
        k = index[i]
        score = _score(method, before, value[i], rest[i], rank, total, top, u, settings)
        out[k] = score <= limit[k] + _slack(method, limit[k], rank, settings)
        before += value[i]


@kernel
def row_uniforms(array, is_logits, factors, result):
    """Fill a pseudorandom number from 0 to 1 per row, a hash of its entries.

    Probabilities are normalized and rounded to float32, so that float32 outputs and their float64
    copies have the same number.
    """
    for i in range(array.shape[0]):
        row = array[i]
        bits, total = u64(0), 0.0 if is_logits else sum_of(row)
        for k in range(row.size):
            value = np.float64(row[k])
            if not is_logits:
                value = np.float64(np.float32(value / total))
            word = u64(ordered(value))
            bits += (word ^ (word >> u64(32))) * factors[k]
        bits = (bits ^ (bits >> u64(30))) * u64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> u64(27))) * u64(0x94D049BB133111EB)
        bits = bits ^ (bits >> u64(31))
        result[i] = np.float64(bits >> u64(11)) * 2.0**-53


def hash_factors(n_columns: int, seed: int) -> Any:
    """Return the odd 64-bit factor of each column, from a seed."""
    with np.errstate(over="ignore"):
        steps = np.arange(1, n_columns + 1, dtype=u64) * u64(GOLDEN) + u64(seed)
        steps = (steps ^ (steps >> u64(30))) * u64(0xBF58476D1CE4E5B9)
        steps = (steps ^ (steps >> u64(27))) * u64(0x94D049BB133111EB)
        return (steps ^ (steps >> u64(31))) | u64(1)

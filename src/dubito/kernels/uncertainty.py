"""Uncertainty scores of outputs in one pass: 1 - confidence, entropy, margin, energy."""

import numpy as np

from dubito.kernels.compile import inner, kernel
from dubito.kernels.elementary import exponential, highest, logarithm
from dubito.kernels.row_statistics import fill_tile, top_class

# The position of each score in the output of the kernels.
LEAST_CONFIDENCE, ENTROPY, NARROW_MARGIN, ENERGY = range(4)
N_DOUBTS = 4

TILE = 256  # rows per tile of the narrow kernel
STRIP = 8  # classes of a tile summed in the array's precision before float64 takes over
CHUNK = 256  # classes of a wide row summed in the array's precision before float64 takes over
LOWEST = -1000  # probabilities below exp(-1000) are 0 in any precision; keeps d * e finite


@inner
def _finish_row(i, top, second, rest, spread, is_logits, doubts):
    """Write the scores of row i from its two highest entries and the sums over all but the top."""
    if is_logits:
        gap = max(second - top, LOWEST)
        scale, second_exp, log_scale, highest_logit = np.exp(gap), 1.0, gap, top
    else:
        scale, second_exp, log_scale, highest_logit = 1.0 / top, second, -np.log(top), 0.0
    spread = scale * (spread + log_scale * rest)
    rest, second_exp = scale * rest, scale * second_exp
    total, log_total = 1.0 + rest, np.log1p(rest)
    doubts[LEAST_CONFIDENCE, i] = rest / total
    doubts[ENTROPY, i] = log_total - spread / total
    doubts[NARROW_MARGIN, i] = (rest + second_exp) / total
    doubts[ENERGY, i] = -(highest_logit + log_total)


@inner
def _sum_shares(row, second, is_logits):
    """Return sum e and sum e log e over a part of a row."""
    rest, spread = 0.0, 0.0
    lowest = row.dtype.type(LOWEST)
    for low in range(0, row.size, CHUNK):
        part = row[low : low + CHUNK]
        a = b = second - second
        for k in range(part.size):
            d = max(part[k] - second, lowest) if is_logits else logarithm(part[k])
            e = exponential(d) if is_logits else part[k]
            a += e
            b += d * e
        rest += a
        spread += b
    return rest, spread


@inner
def _second_highest(row, best):
    """Return the highest entry but that at `best`, of a row with two entries or more."""
    if best == 0:
        return highest(row[1:])
    if best == row.size - 1:
        return highest(row[:best])
    return max(highest(row[:best]), highest(row[best + 1 :]))


@kernel
def wide_doubts(array, is_logits, doubts):
    """Fill `doubts` row by row, lanes running over the classes."""
    for i in range(array.shape[0]):
        row = array[i]
        best = top_class(row)
        second = _second_highest(row, best)
        a, b = _sum_shares(row[:best], second, is_logits)
        rest, spread = _sum_shares(row[best + 1 :], second, is_logits)
        top = np.float64(row[best])
        _finish_row(i, top, np.float64(second), a + rest, b + spread, is_logits, doubts)


@kernel
def narrow_doubts(array, is_logits, doubts):
    """Fill `doubts` tile by tile, lanes running over the rows."""
    n_rows, n_classes = array.shape
    tile = np.empty((n_classes, TILE), array.dtype)
    top, second = np.empty(TILE, array.dtype), np.empty(TILE, array.dtype)
    best = np.empty(TILE, np.int32)
    sums, part = np.empty((2, TILE)), np.empty((2, TILE), array.dtype)
    for low in range(0, n_rows, TILE):
        size = min(TILE, n_rows - low)
        fill_tile(array[low : low + size], tile)
        _two_highest(tile, size, top, second, best)
        sums[:, :size] = 0.0
        for first in range(0, n_classes, STRIP):
            _sum_strip(tile[first : first + STRIP], first, size, second, best, is_logits, part)
            for m in range(2):
                for j in range(size):
                    sums[m, j] += part[m, j]
        for j in range(size):
            high, next_high = np.float64(top[j]), np.float64(second[j])
            _finish_row(low + j, high, next_high, sums[0, j], sums[1, j], is_logits, doubts)


@inner
def _two_highest(tile, size, top, second, best):
    """Fill the highest entry, the next one and the place of the first, one row per lane."""
    for j in range(size):
        top[j] = tile[0, j]
    second[:size] = tile.dtype.type(-np.inf)
    best[:size] = 0
    for k in range(1, tile.shape[0]):
        column = tile[k]
        for j in range(size):
            is_higher = column[j] > top[j]
            lower = top[j] if is_higher else column[j]
            second[j] = lower if lower > second[j] else second[j]
            top[j] = column[j] if is_higher else top[j]
            best[j] = np.int32(k) if is_higher else best[j]


@inner
def _sum_strip(strip, first, size, second, best, is_logits, sums):
    """Sum e and e log e over some classes, the top one left out, one row per lane."""
    zero, lowest = second.dtype.type(0), second.dtype.type(LOWEST)
    rest, spread = sums[0], sums[1]
    sums[:, :size] = zero
    for k in range(strip.shape[0]):
        column = strip[k]
        this = np.int32(first + k)
        if is_logits:
            for j in range(size):
                # That of the top class may lie above 0; it is left out.
                d = min(max(column[j] - second[j], lowest), zero)
                e = exponential(d) if best[j] != this else zero
                rest[j] += e
                spread[j] += d * e
        else:
            for j in range(size):
                e = column[j] if best[j] != this else zero
                rest[j] += e
                spread[j] += logarithm(e) * e

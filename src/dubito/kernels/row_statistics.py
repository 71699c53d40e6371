"""The fused row pass: top class, confidence, entropy, losses and more; the first invalid row."""

import numpy as np

from dubito.kernels.compile import inner, kernel
from dubito.kernels.elementary import exponential, logarithm, logarithm_past_1, ordered

# The position of each statistic in the output of the kernels.
CONFIDENCE, UNCERTAINTY, ENTROPY, VARIANCE, SQUARES, LOG_SUM, LOSS, BRIER = range(8)
N_NUMBERS = 8

NARROW = 64  # up to this many classes, SIMD lanes run over rows; above, over classes
TILE = 256  # rows per tile of the narrow kernel
STRIP = 16  # classes of a tile summed in the array's precision before float64 takes over
LOWEST = -1000  # probabilities below exp(-1000) are 0 in any precision; keeps d * e finite
HIGHEST_LOSS = 1e100  # above, the probability was 0; keeps sums of losses finite
CHUNK = 512  # classes summed in the array's precision before float64 takes over


@inner
def top_class(row):
    """Return the first largest entry's index."""
    best = ordered(row[0])
    start = 0
    for low in range(0, row.size, 64):
        part = row[low : low + 64]
        highest = ordered(part[0])
        for k in range(part.size):
            highest = max(highest, ordered(part[k]))
        if highest > best:
            best = highest
            start = low
    while ordered(row[start]) != best:
        start += 1
    return start


@inner
def sum_of(row):
    """Return the sum of a row in float64."""
    total = 0.0
    for k in range(row.size):
        total += row[k]
    return total


@inner
def fill_tile(rows, tile):
    """Fill a tile, classes x rows, with rows of numbers."""
    for j in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            tile[k, j] = rows[j, k]


@inner
def fill_maxima(x, low, size, top):
    """Fill `top` with the highest entry of some rows of an array of classes x rows."""
    for j in range(size):
        top[j] = x[0, low + j]
    for k in range(1, x.shape[0]):
        column = x[k, low : low + size]
        for j in range(size):
            top[j] = column[j] if column[j] > top[j] else top[j]


@inner
def fill_tops(tile, size, top, best):
    """Fill the first highest entry of a tile's rows, and where it is."""
    for j in range(size):
        top[j] = tile[0, j]
        best[j] = 0
    for k in range(1, tile.shape[0]):
        column = tile[k]
        for j in range(size):
            is_higher = column[j] > top[j]
            top[j] = column[j] if is_higher else top[j]
            best[j] = np.int32(k) if is_higher else best[j]


@inner
def _sum_exponentials(row, top, is_logits):
    """Return sum e, sum d e, sum d^2 e and sum e^2 over a part of a row."""
    rest, spread, bends, squares = 0.0, 0.0, 0.0, 0.0
    lowest = row.dtype.type(LOWEST)
    for low in range(0, row.size, CHUNK):
        part = row[low : low + CHUNK]
        a = b = c = f = top - top
        for k in range(part.size):
            d = max(part[k] - top, lowest) if is_logits else logarithm(part[k])
            e = exponential(d) if is_logits else part[k]
            a += e
            b += d * e
            c += d * d * e
            f += e * e
        rest += a
        spread += b
        bends += c
        squares += f
    return rest, spread, bends, squares


@inner
def _finish_row(i, label, predicted, top, sums, at_label, is_logits, numbers):
    """Write the statistics of row i from its sums; a label of -1 leaves loss and Brier at 0."""
    rest, spread, bends, squares = sums
    if is_logits:
        e_top, d_top, total = 1.0, 0.0, 1.0 + rest
        log_total = np.log1p(rest)
        log_sum = top + log_total
    else:
        e_top, d_top, total = top, np.log(top), 1.0
        log_total = 0.0
        log_sum = 0.0
    uncertainty = rest / total
    confidence = e_top / total
    others = squares / (total * total)
    mean = (spread + e_top * d_top) / total
    numbers[CONFIDENCE, i] = confidence
    numbers[UNCERTAINTY, i] = uncertainty
    numbers[ENTROPY, i] = max(log_total - mean, 0.0)
    numbers[VARIANCE, i] = max((bends + e_top * d_top * d_top) / total - mean * mean, 0.0)
    numbers[SQUARES, i] = confidence * confidence + others
    numbers[LOG_SUM, i] = log_sum
    numbers[LOSS, i] = 0.0
    numbers[BRIER, i] = 0.0
    if label < 0:
        return
    if label == predicted:
        numbers[LOSS, i] = log_total - d_top
        numbers[BRIER, i] = uncertainty * uncertainty + others
        return
    if is_logits:
        d_label = at_label - top
        probability = np.exp(d_label) / total
    else:
        d_label = np.log(at_label)
        probability = at_label
    loss = log_total - d_label
    numbers[LOSS, i] = loss if loss < HIGHEST_LOSS else np.inf
    numbers[BRIER, i] = numbers[SQUARES, i] - 2.0 * probability + 1.0


@kernel
def wide_rows(array, labels, is_logits, predicted, numbers):
    """Fill `predicted` and `numbers` row by row, lanes running over the classes."""
    for i in range(array.shape[0]):
        row = array[i]
        best = top_class(row)
        top = row[best]
        a, b, c, f = _sum_exponentials(row[:best], top, is_logits)
        rest, spread, bends, squares = _sum_exponentials(row[best + 1 :], top, is_logits)
        predicted[i] = best
        _finish_row(
            i,
            labels[i],
            best,
            np.float64(top),
            (a + rest, b + spread, c + bends, f + squares),
            np.float64(row[max(labels[i], 0)]),
            is_logits,
            numbers,
        )


@kernel
def narrow_rows(array, labels, is_logits, predicted, numbers):
    """Fill `predicted` and `numbers` tile by tile, lanes running over the rows."""
    n_rows, n_classes = array.shape
    tile = np.empty((n_classes, TILE), array.dtype)
    top = np.empty(TILE, array.dtype)
    best = np.empty(TILE, np.int32)
    sums, part = np.empty((4, TILE)), np.empty((4, TILE), array.dtype)
    at_label, tile_numbers = np.empty(TILE), np.empty((N_NUMBERS, TILE))
    for low in range(0, n_rows, TILE):
        size = min(TILE, n_rows - low)
        fill_tile(array[low : low + size], tile)
        fill_tops(tile, size, top, best)
        sums[:, :size] = 0.0
        for first in range(0, n_classes, STRIP):
            strip = tile[first : first + STRIP]
            _sum_strip(strip, first, size, top, best, is_logits, part)
            for m in range(4):
                for j in range(size):
                    sums[m, j] += part[m, j]
        part_of_labels = labels[low : low + size]
        for j in range(size):
            at_label[j] = tile[max(part_of_labels[j], 0), j]
        for j in range(size):
            predicted[low + j] = best[j]
        if is_logits:
            _finish_tile(part_of_labels, best, top, at_label, sums, tile_numbers)
            for m in range(N_NUMBERS):
                for j in range(size):
                    numbers[m, low + j] = tile_numbers[m, j]
        else:
            for j in range(size):
                parts = (sums[0, j], sums[1, j], sums[2, j], sums[3, j])
                _finish_row(
                    low + j, labels[low + j], best[j], np.float64(top[j]), parts, at_label[j],
                    is_logits, numbers,
                )  # fmt: skip


@inner
def _finish_tile(labels, best, top, at_label, sums, numbers):
    """Write the numbers of some rows of logits from their sums, as `_finish_row` does of one.

    Each loop has few enough arrays for the compiler to see that they are apart.
    """
    rest, spread, bends, squares = sums[0], sums[1], sums[2], sums[3]
    log_total, loss = numbers[LOG_SUM], numbers[LOSS]
    for j in range(labels.size):
        log_total[j] = logarithm_past_1(rest[j])
    for j in range(labels.size):
        at_label[j] -= top[j]
        loss[j] = exponential(at_label[j])
    for j in range(labels.size):
        confidence = 1.0 / (1.0 + rest[j])
        uncertainty = rest[j] * confidence
        others = squares[j] * confidence * confidence
        numbers[CONFIDENCE, j] = confidence
        numbers[UNCERTAINTY, j] = uncertainty
        numbers[SQUARES, j] = confidence * confidence + others
        missed = numbers[SQUARES, j] - 2.0 * loss[j] * confidence + 1.0
        brier = uncertainty * uncertainty + others if labels[j] == best[j] else missed
        numbers[BRIER, j] = 0.0 if labels[j] < 0 else brier
    for j in range(labels.size):
        mean = spread[j] * numbers[CONFIDENCE, j]
        numbers[ENTROPY, j] = max(log_total[j] - mean, 0.0)
        numbers[VARIANCE, j] = max(bends[j] * numbers[CONFIDENCE, j] - mean * mean, 0.0)
    for j in range(labels.size):
        lost = log_total[j] - at_label[j]
        lost = lost if lost < HIGHEST_LOSS else np.inf
        loss[j] = 0.0 if labels[j] < 0 else lost
    for j in range(labels.size):
        log_total[j] += top[j]


@inner
def _sum_strip(strip, first, size, top, best, is_logits, sums):
    """Sum e, d e, d^2 e and e^2 over some classes, the top one left out, one row per lane."""
    zero, lowest = top.dtype.type(0), top.dtype.type(LOWEST)
    rest, spread, bends, squares = sums[0], sums[1], sums[2], sums[3]
    sums[:, :size] = zero
    for k in range(strip.shape[0]):
        column = strip[k]
        this = np.int32(first + k)
        for j in range(size):
            d = max(column[j] - top[j], lowest) if is_logits else logarithm(column[j])
            e = exponential(d) if is_logits else column[j]
            e = e if best[j] != this else zero
            rest[j] += e
            spread[j] += d * e
            bends[j] += d * d * e
            squares[j] += e * e


@kernel
def soft_losses(array, labels, is_logits, log_sum, losses):
    """Fill `losses` with cross-entropy -sum q log p and Brier score sum (q - p)^2 of each row.

    A class that the model rules out (p = 0) though its label does not (q > 0) makes the first
    infinite; where both are 0 it adds nothing.
    """
    for i in range(array.shape[0]):
        cross_entropy, squares = 0.0, 0.0
        for k in range(array.shape[1]):
            q = np.float64(labels[i, k])
            x = np.float64(array[i, k])
            p = np.exp(x - log_sum[i]) if is_logits else x
            squares += (q - p) * (q - p)
            if q > 0.0:
                cross_entropy -= q * (x - log_sum[i] if is_logits else np.log(x))
        losses[0, i] = cross_entropy if cross_entropy < HIGHEST_LOSS else np.inf
        losses[1, i] = squares


FAULTLESS = -1


@kernel
def first_not_finite(flat):
    """Return the index of the first NaN or infinity of a flat array, or -1."""
    for low in range(0, flat.size, CHUNK):
        part = flat[low : low + CHUNK]
        trace = part[0] * 0
        for k in range(part.size):
            trace += part[k] * 0  # 0 for a finite number, NaN for any other
        if trace != 0:
            for k in range(part.size):
                if part[k] * 0 != 0:
                    return low + k
    return FAULTLESS


@kernel
def probability_faults(array, tolerance):
    """Return the first row that is not a distribution (or -1), and the largest deviation from 1.

    A row is refused for a NaN, an infinity, a negative entry, or a sum off 1 by over `tolerance`.
    """
    furthest = 0.0
    for i in range(array.shape[0]):
        row = array[i]
        total, n_negative = 0.0, 0
        for low in range(0, row.size, CHUNK):
            part = row[low : low + CHUNK]
            subtotal = row.dtype.type(0)
            for k in range(part.size):
                subtotal += part[k]
                n_negative += part[k] < 0
            total += subtotal
        distance = abs(total - 1.0)
        if not (distance <= tolerance and n_negative == 0):  # NaN fails every comparison
            return i, furthest
        furthest = max(furthest, distance)
    return FAULTLESS, furthest

"""Rows scaled: softmax, temperature and affine maps, with their losses, and weights of mixtures.

For the temperature, loss, gradient and curvature are summed in one pass over the matrix. With
x = beta (z - z_top) and e = exp(x), the sums s0 = sum e, s1 = sum x e, s2 = sum x^2 e of a row and
its expected x under the label probabilities, t, give the loss, and its first and second derivative
in beta times beta and beta^2:

    loss = log(s0) - t        slope = s1 / s0 - t        bend = s2 / s0 - (s1 / s0)^2

Probabilities stand for their logarithms, floored.
"""

import numpy as np

from dubito.kernels.compile import inner, kernel
from dubito.kernels.elementary import exponential, highest, logarithm
from dubito.kernels.row_statistics import CHUNK, fill_maxima, fill_tile, top_class

LOWEST = -1000  # probabilities below exp(-1000) are 0 in any precision


@kernel
def log_softmax_rows(array, beta, is_logits, floor, result):
    """Fill `result` with the log probabilities at an inverse temperature, in its own precision."""
    kind = result.dtype.type
    b, least, lowest = kind(beta), kind(floor), kind(LOWEST)
    for i in range(array.shape[0]):
        row, out = array[i], result[i]
        top = kind(highest(row))
        if is_logits:
            for k in range(row.size):
                out[k] = b * (kind(row[k]) - top)
        else:
            top = np.log(max(top, least))
            for k in range(row.size):
                out[k] = b * (np.log(max(kind(row[k]), least)) - top)
        total = 0.0
        for low in range(0, row.size, CHUNK):
            part = out[low : low + CHUNK]
            subtotal = kind(0)
            for k in range(part.size):
                subtotal += exponential(max(part[k], lowest))
            total += subtotal
        shift = kind(np.log(total))
        for k in range(row.size):
            out[k] -= shift


@kernel
def softmax_rows(scores, floor, result):
    """Fill `result` with the softmax of scores, none below `floor`.

    The first highest score stays the first highest probability: rounding makes no tie before it.
    """
    zero = result.dtype.type(0)
    least, lowest = result.dtype.type(floor), scores.dtype.type(LOWEST)
    for i in range(scores.shape[0]):
        row, out = scores[i], result[i]
        best = top_class(row)
        top = row[best]
        total = 0.0
        for k in range(row.size):
            total += exponential(max(row[k] - top, lowest))
        scale = 1.0 / total
        for k in range(row.size):
            out[k] = max(exponential(max(row[k] - top, lowest)) * scale, least)
        highest = out[best]
        below = np.nextafter(highest, zero)
        for k in range(best):
            if out[k] >= highest:
                out[k] = below


MIXTURE_ROWS = 512  # rows; intermediate results stay in the L1 cache


@kernel
def mixture_step(parts, weights, part_weights, explained):
    """Fill `explained` with the weight of the rows that each part explains.

    `parts` has a row for each part of the mixture: what it gives every label.
    """
    _explain(parts, weights, part_weights, np.empty(MIXTURE_ROWS), explained)


@kernel
def fit_mixture(parts, weights, prior_weight, n_steps, tolerance, part_weights):
    """Improve `part_weights` until others could gain less than `tolerance` of the log likelihood.

    `prior_weight` pseudo-rows are explained by all parts equally.
    """
    buffer, explained = np.empty(MIXTURE_ROWS), np.empty(part_weights.size)
    total = prior_weight
    for i in range(weights.size):
        total += weights[i]
    for _ in range(n_steps):
        _explain(parts, weights, part_weights, buffer, explained)
        highest = 0.0
        for m in range(part_weights.size):
            explained[m] += prior_weight / part_weights.size
            highest = max(highest, explained[m] / part_weights[m] if part_weights[m] > 0.0 else 0.0)
        if highest - total < tolerance * total:
            break
        for m in range(part_weights.size):
            part_weights[m] = explained[m] / total


@inner
def _explain(parts, weights, part_weights, buffer, explained):
    """Fill `explained` as `mixture_step` does; two parts at a time, after one of an odd number."""
    n_odd = part_weights.size % 2
    for m in range(part_weights.size):
        explained[m] = 0.0
    for low in range(0, weights.size, MIXTURE_ROWS):
        some = weights[low : low + MIXTURE_ROWS]
        scale = buffer[: some.size]
        a, part = (part_weights[0] if n_odd else 0.0), parts[0, low : low + MIXTURE_ROWS]
        for i in range(some.size):
            scale[i] = a * part[i]
        for m in range(n_odd, part_weights.size, 2):
            a, part = part_weights[m], parts[m, low : low + MIXTURE_ROWS]
            b, other = part_weights[m + 1], parts[m + 1, low : low + MIXTURE_ROWS]
            for i in range(some.size):
                scale[i] += a * part[i] + b * other[i]
        for i in range(some.size):
            scale[i] = some[i] / scale[i]
        for m in range(n_odd):
            part, total = parts[m, low : low + MIXTURE_ROWS], 0.0
            for i in range(some.size):
                total += scale[i] * part[i]
            explained[m] += part_weights[m] * total
        for m in range(n_odd, part_weights.size, 2):
            part, other = parts[m, low : low + MIXTURE_ROWS], parts[m + 1, low : low + MIXTURE_ROWS]
            first = second = 0.0
            for i in range(some.size):
                first += scale[i] * part[i]
                second += scale[i] * other[i]
            explained[m] += part_weights[m] * first
            explained[m + 1] += part_weights[m + 1] * second


TILE = 256  # rows per tile of the narrow kernel
STRIP = 16  # classes of a tile summed in the array's precision before float64 takes over


@kernel
def label_scores(array, codes, soft, is_logits, floor, scores):
    """Fill `scores` with the logit of each row's label, or its mean under label probabilities."""
    n_classes = array.shape[1]
    is_soft = soft.shape[0] == array.shape[0]
    for i in range(array.shape[0]):
        total = 0.0
        if is_soft:
            for k in range(n_classes):
                value = np.float64(array[i, k])
                total += soft[i, k] * (value if is_logits else np.log(max(value, floor)))
        else:
            value = np.float64(array[i, max(codes[i], 0)])
            total = value if is_logits else np.log(max(value, floor))
        scores[i] = total


@kernel
def wide_temperature_sums(array, scores, weights, beta, is_logits, floor, sums):
    """Add weight, loss, slope and bend to `sums`, lanes running over the classes."""
    one = array.dtype.type(1)
    b, least = one * array.dtype.type(beta), array.dtype.type(floor)
    lowest = array.dtype.type(LOWEST)
    n_classes = array.shape[1]
    for i in range(array.shape[0]):
        if weights[i] == 0.0:
            continue
        row = array[i]
        top = highest(row)
        if not is_logits:
            top = np.log(max(top, least))
        s0 = s1 = s2 = 0.0
        for low in range(0, n_classes, CHUNK):
            part = row[low : low + CHUNK]
            a = c = f = one - one
            for k in range(part.size):
                value = part[k] if is_logits else logarithm(max(part[k], least))
                x = max((value - top) * b, lowest)
                e = exponential(x)
                a += e
                c += x * e
                f += x * x * e
            s0 += a
            s1 += c
            s2 += f
        _add_row(weights[i], s0, s1, s2, (scores[i] - top) * np.float64(b), sums)


@kernel
def narrow_temperature_sums(array, scores, weights, beta, is_logits, floor, sums):
    """Add weight, loss, slope and bend to `sums`, lanes running over the rows."""
    n_rows, n_classes = array.shape
    zero = array.dtype.type(0)
    b, least, lowest = array.dtype.type(beta), array.dtype.type(floor), array.dtype.type(LOWEST)
    tile = np.empty((n_classes, TILE), array.dtype)
    top = np.empty(TILE, array.dtype)
    sums_of_rows, strip_sums = np.empty((3, TILE)), np.empty((3, TILE), array.dtype)
    s0, s1, s2 = sums_of_rows[0], sums_of_rows[1], sums_of_rows[2]
    a, c, f = strip_sums[0], strip_sums[1], strip_sums[2]
    for low in range(0, n_rows, TILE):
        size = min(TILE, n_rows - low)
        fill_tile(array[low : low + size], tile)
        if not is_logits:
            for k in range(n_classes):
                column = tile[k]
                for j in range(size):
                    column[j] = logarithm(max(column[j], least))
        fill_maxima(tile, 0, size, top)
        sums_of_rows[:, :size] = 0.0
        for first in range(0, n_classes, STRIP):
            strip_sums[:, :size] = zero
            for k in range(first, min(first + STRIP, n_classes)):
                column = tile[k]
                for j in range(size):
                    x = max((column[j] - top[j]) * b, lowest)
                    e = exponential(x)
                    a[j] += e
                    c[j] += x * e
                    f[j] += x * x * e
            for m in range(3):
                for j in range(size):
                    sums_of_rows[m, j] += strip_sums[m, j]
        _add_tile(weights[low : low + size], s0, s1, s2, scores[low : low + size], top, b, sums)


@inner
def _add_tile(weights, s0, s1, s2, scores, top, b, sums):
    """Add the sums of some rows for the inverse temperature, as `_add_row` does of one.

    Each loop has few enough arrays for the compiler to see that they are apart.
    """
    weight = loss = slope = bend = 0.0
    for j in range(weights.size):
        s2[j] = max(s2[j] / s0[j] - (s1[j] / s0[j]) * (s1[j] / s0[j]), 0.0)
    for j in range(weights.size):
        s1[j] /= s0[j]
        s0[j] = logarithm(s0[j])
    for j in range(weights.size):
        t = (scores[j] - top[j]) * np.float64(b)
        weight += weights[j]
        loss += weights[j] * (s0[j] - t)
        slope += weights[j] * (s1[j] - t)
        bend += weights[j] * s2[j]
    sums[0] += weight
    sums[1] += loss
    sums[2] += slope
    sums[3] += bend


@inner
def _add_row(weight, s0, s1, s2, t, sums):
    """Add the sums of one row for the inverse temperature."""
    mean = s1 / s0
    sums[0] += weight
    sums[1] += weight * (np.log(s0) - t)
    sums[2] += weight * (mean - t)
    sums[3] += weight * max(s2 / s0 - mean * mean, 0.0)


@kernel
def temper_rows(array, beta, is_logits, floor, tempered):
    """Fill `tempered` with beta (z - z_top): 0 for the top class, below 0 for what is below it."""
    least, tiny = array.dtype.type(floor), np.nextafter(array.dtype.type(0), array.dtype.type(-1))
    b = array.dtype.type(beta)
    for i in range(array.shape[0]):
        row, out = array[i], tempered[i]
        top = highest(row)
        # Rounding must not make a tie, and with it another class, of a small difference. Two loops:
        # the one without a logarithm is vectorized.
        if is_logits:
            for k in range(row.size):
                scaled = (row[k] - top) * b
                out[k] = min(scaled, tiny) if row[k] < top else scaled
        else:
            most = np.log(max(top, least))
            for k in range(row.size):
                scaled = (np.log(max(row[k], least)) - most) * b
                out[k] = min(scaled, tiny) if row[k] < top else scaled


ROWS = 64  # summed in the precision of x before float64 takes over


@inner
def _softmax_loss(scores, code, soft, probabilities):
    """Fill `probabilities` with the softmax of a row's scores, and return its loss."""
    kind = scores.dtype.type
    lowest = kind(LOWEST)
    top = highest(scores)
    total = 0.0
    for low in range(0, scores.size, CHUNK):
        part, out = scores[low : low + CHUNK], probabilities[low : low + CHUNK]
        for k in range(part.size):
            out[k] = exponential(max(part[k] - top, lowest))
        subtotal = kind(0)
        for k in range(part.size):
            subtotal += out[k]
        total += subtotal
    scale = kind(1.0 / total)
    for k in range(scores.size):
        probabilities[k] *= scale
    if soft.size == 0:
        return np.log(total) + np.float64(top - scores[code])
    expected = 0.0
    for k in range(scores.size):
        expected += soft[k] * np.float64(top - scores[k])
    return np.log(total) + expected


@kernel
def residual_rows(scores, codes, soft, weights):
    """Turn `scores` into weighted residuals w (p - q) in place, and return the weighted loss."""
    loss = 0.0
    kind = scores.dtype.type
    is_soft = soft.shape[0] == scores.shape[0]
    probabilities, no_labels = np.empty(scores.shape[1], scores.dtype), np.empty(0)
    for i in range(scores.shape[0]):
        row, weight = scores[i], kind(weights[i])
        code = max(codes[i], 0)
        if weight == 0:
            row[:] = 0
            continue
        loss += weights[i] * _softmax_loss(
            row, code, soft[i] if is_soft else no_labels, probabilities
        )
        for k in range(row.size):
            row[k] = weight * probabilities[k]
        if is_soft:
            for k in range(row.size):
                row[k] -= weight * kind(soft[i, k])
        else:
            row[code] -= weight
    return loss


@kernel
def vector_sums(x, codes, soft, weights, scale, bias, sums):
    """Add to `sums` r x, r, p (1 - p) x^2, p (1 - p) x and p (1 - p); return the weighted loss.

    The first two are the derivatives in scale and bias, the others their curvature, class by class,
    which is left out where `sums` has but two rows.
    """
    n_classes = x.shape[1]
    loss = 0.0
    kind = x.dtype.type
    is_soft, has_bends = soft.shape[0] == x.shape[0], sums.shape[0] > 2
    scores, probabilities = np.empty(n_classes, x.dtype), np.empty(n_classes, x.dtype)
    residuals, no_labels = np.empty(n_classes, x.dtype), np.empty(0)
    a, b = scale.astype(x.dtype), bias.astype(x.dtype)
    # Some rows at a time in the precision of x, before float64 takes over.
    part = np.zeros(sums.shape, x.dtype)
    for i in range(x.shape[0]):
        row, weight = x[i], kind(weights[i])
        if weight != 0:
            for k in range(n_classes):
                scores[k] = row[k] * a[k] + b[k]
            code = max(codes[i], 0)
            loss += weights[i] * _softmax_loss(
                scores, code, soft[i] if is_soft else no_labels, probabilities
            )
            for k in range(n_classes):
                residuals[k] = probabilities[k]
            if is_soft:
                for k in range(n_classes):
                    residuals[k] -= kind(soft[i, k])
            else:
                residuals[code] -= kind(1)
            for k in range(n_classes):
                r = weight * residuals[k]
                part[0, k] += r * row[k]
                part[1, k] += r
            if has_bends:
                for k in range(n_classes):
                    bend = weight * probabilities[k] * (kind(1) - probabilities[k])
                    part[2, k] += bend * row[k] * row[k]
                    part[3, k] += bend * row[k]
                    part[4, k] += bend
        if i % ROWS == ROWS - 1 or i == x.shape[0] - 1:
            for j in range(sums.shape[0]):
                for k in range(n_classes):
                    sums[j, k] += part[j, k]
                    part[j, k] = 0
    return loss

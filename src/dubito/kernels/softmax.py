"""Conversion between logits, probabilities and log probabilities, row by row."""

import numpy as np

from dubito.kernels.compile import kernel
from dubito.kernels.elementary import exponential, highest
from dubito.kernels.row_statistics import CHUNK, top_class

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

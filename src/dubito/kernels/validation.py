"""Validation: the first invalid entry or row, in one pass."""

from dubito.kernels.compile import kernel
from dubito.kernels.row_statistics import CHUNK

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

"""Numba row kernels: one pass over the matrix, a few numbers per row.

Each kernel runs on one thread and releases the GIL; `blocks` spreads it over row blocks. Inputs are
read-only arrays (`dubito.arrays.freeze`), C-contiguous, float32 or float64, already validated: the
kernels assume finite numbers. The tests compare every kernel with a NumPy reference.
"""

from typing import final


@final
class Workload:
    """About how many kernels this process needs, 0 if unknown: the notice of compilation shows it.

    It is set before any kernel is imported, which takes longer than to show a help text.
    """

    n_kernels = 0

"""Numba row kernels: one pass over the matrix, a handful of numbers a row.

Each kernel runs on one thread and releases the GIL; `blocks` spreads it over row blocks. Inputs are
read-only arrays (`dubito.arrays.freeze`), C-contiguous, float32 or float64, already checked: the
kernels assume finite numbers. Every kernel has a plain NumPy twin in the tests.
"""

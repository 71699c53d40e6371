"""Numba row kernels: one pass over the matrix, a few numbers per row.

Each kernel runs on one thread and releases the GIL; `blocks` spreads it over row blocks. Inputs are
read-only arrays (`dubito.arrays.freeze`), C-contiguous, float32 or float64, already validated: the
kernels assume finite numbers. The tests compare every kernel with a NumPy reference.
"""

"""Losses against label probabilities: votes of several people, or an "uncertain" mark."""

import numpy as np

from dubito.kernels.compile import kernel
from dubito.kernels.rows import HIGHEST_LOSS

__all__ = ["soft_losses"]


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

"""Minkowski losses |r|^p and what they estimate, on skewed noise whose centers are known.

Bishop, "Neural networks for pattern recognition", 1995: the median at p = 1, the mean at 2, and
ever nearer to the midrange, the middle of least and largest, as p grows.
"""

from __future__ import annotations

import numpy as np
from scipy import integrate, optimize, stats
from torch import Tensor

from dubito.arrays import FloatArray

POWERS = (1.0, 1.5, 2.0, 4.0, 16.0)
NOISE = stats.beta(1, 4)  # from 0 to 1: median 0.159, mean 0.2, midrange 0.5


def minkowski_loss(outputs: Tensor, y: Tensor, power: float) -> Tensor:
    """Return the p-norm of the residuals over root p of their number.

    Over the whole of the rows it is least where the mean of |r|^p is, and stays on the residuals'
    scale whatever the power.
    """
    sizes = (y - outputs.squeeze(1)).abs()
    top = sizes.detach().max()
    found: Tensor = top * (sizes / top).pow(power).mean().pow(1 / power)
    return found


def known_center(power: float) -> float:
    """Return what makes the mean of |noise - center|^p least: there its slope is 0."""

    def slope(center: float) -> float:
        below, above = (
            integrate.quad(lambda u: abs(u - center) ** (power - 1) * NOISE.pdf(u), *ends)[0]
            for ends in ((0, center), (center, 1))
        )
        return float(below - above)

    return float(optimize.brentq(slope, 1e-6, 1 - 1e-6))


def skewed_rows(n_rows: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return features, targets, and the sine that the noise was added to."""
    x = rng.uniform(-1, 1, n_rows)
    sine = np.sin(np.pi * x)
    return x[:, np.newaxis], sine + NOISE.rvs(n_rows, random_state=rng), sine

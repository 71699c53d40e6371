"""Smooth calibration error: no bins, so no jumps from one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from scipy.fft import dct, idct

from dubito.arrays import FloatArray, freeze
from dubito.data.batch import Batch
from dubito.errors import EmptyStateError
from dubito.kernels.grids import residual_sums
from dubito.measure.labeled import labeled_batch
from dubito.measure.state import from_plain, pooled, to_plain

__all__ = ["SmoothCalibrationErrorState", "smooth_calibration_error"]

N_CELLS = 1 << 14


@final
@dataclass(frozen=True, slots=True, eq=False)
class SmoothCalibrationErrorState:
    """Residuals (correct less confidence) summed on a fixed fine grid of confidence.

    Each residual is shared between its two nearest grid points in proportion, which keeps the mean
    place of every residual: the error of the grid is of second order, (1 / (16,384 width))^2 of the
    value.
    """

    residual: FloatArray
    weight: float

    @classmethod
    def of(cls, batch: Batch) -> Self:
        # Grid points are the middles of the cells, where the cosine transform takes them to be.
        sums, rows = np.zeros(N_CELLS), batch.rows
        columns = (rows.confidence, rows.correct, batch.labeled_weight)
        return cls(sums, residual_sums(*(freeze(column) for column in columns), sums))

    def __add__(self, other: Self) -> Self:
        return pooled(self, other)

    @property
    def value(self) -> float:
        if not self.weight > 0:
            raise EmptyStateError("Smooth calibration error")
        spectrum = dct(self.residual / self.weight, type=2)
        return fixed_point(lambda width: smoothed_error(spectrum, width))

    def to_dict(self) -> dict[str, Any]:
        return to_plain(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        return from_plain(cls, values)


def smoothed_error(spectrum: FloatArray, width: float) -> float:
    """Return the area of |residuals smoothed by a Gaussian of this width, reflected at 0 and 1|.

    Reflection at both ends is what the cosine transform assumes; a Gaussian damps its terms.
    """
    frequencies = np.pi * np.arange(spectrum.size)
    damped = spectrum * np.exp(-0.5 * (width * frequencies) ** 2)
    return float(np.abs(idct(damped, type=2)).sum())


def fixed_point(error: Callable[[float], float]) -> float:
    """Return the width at which a falling error equals it, by false position (Illinois)."""
    low, high = 0.0, 1.0
    above, below = error(low), error(high) - high
    if above <= 0:
        return 0.0
    for _ in range(60):
        width = (low * below - high * above) / (below - above)
        excess = error(width) - width
        if abs(excess) < 1e-10 or high - low < 1e-10:
            return width
        if excess > 0:
            low, above, below = width, excess, below / 2
        else:
            high, below, above = width, excess, above / 2
    return (low + high) / 2


def smooth_calibration_error(y_true: Any, outputs: Any, *, sample_weight: Any = None) -> float:
    """Return the calibration error of the top label smoothed at its own scale (smECE).

    The width s of the smoothing is the one at which the error is s: no bins to choose.
    Blasiok and Nakkiran, "Smooth ECE: principled reliability diagrams via kernel smoothing", 2023.

    >>> round(smooth_calibration_error([0, 0], [[0.75, 0.25], [0.75, 0.25]]), 3)
    0.25
    """
    batch = labeled_batch(y_true, outputs, sample_weight, "smooth_calibration_error")
    return SmoothCalibrationErrorState.of(batch).value

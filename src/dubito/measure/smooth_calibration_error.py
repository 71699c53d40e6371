"""The smooth calibration error: residuals smoothed by a kernel instead of bins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import FloatArray, freeze
from dubito.data.batch import Batch
from dubito.errors import EmptyStateError
from dubito.kernels.sums import residual_sums
from dubito.measure.state import State, labeled_batch

N_CELLS = 1 << 14


@final
@dataclass(frozen=True, slots=True, eq=False)
class SmoothCalibrationErrorState(State):
    """Residuals (correct minus confidence), summed on a fixed fine grid of confidence.

    Each residual is split between its two nearest grid points so that its mean position is kept:
    the error of the grid is of second order, (1 / (16,384 width))^2 of the value.
    """

    residual: FloatArray
    weight: float

    @classmethod
    def of(cls, batch: Batch) -> Self:
        # Grid points are the middles of the cells, where the cosine transform takes them to be.
        sums, rows = np.zeros(N_CELLS), batch.rows
        columns = (rows.confidence, rows.correct, batch.labeled_weight)
        return cls(sums, residual_sums(*map(freeze, columns), sums))

    @property
    def value(self) -> float:
        if not self.weight > 0:
            raise EmptyStateError("Smooth calibration error")
        spectrum = _cosine_transform(self.residual / self.weight)
        return _fixed_point(lambda width: _smoothed_error(spectrum, width))


def _smoothed_error(spectrum: FloatArray, width: float) -> float:
    """Return the integral of the absolute residuals after Gaussian smoothing of this width.

    Reflection at 0 and 1 is what the cosine transform assumes; a Gaussian damps its coefficients.
    """
    frequencies = np.pi * np.arange(spectrum.size)
    damped = spectrum * np.exp(-0.5 * (width * frequencies) ** 2)
    return float(np.abs(_inverse_cosine_transform(damped)).sum())


def _cosine_transform(values: FloatArray) -> FloatArray:
    """Return the discrete cosine transform (DCT-II) of an even number of values.

    Importing `scipy.fft` takes longer than a whole audit. Makhoul, "A fast cosine transform in one
    and two dimensions", 1980.
    """
    rotated = np.fft.rfft(np.concatenate([values[::2], values[::-2]])) / _phases(values.size)
    return np.concatenate([2 * rotated.real, -2 * rotated.imag[-2:0:-1]])


def _inverse_cosine_transform(spectrum: FloatArray) -> FloatArray:
    """Return the values whose `_cosine_transform` is this spectrum."""
    n = spectrum.size
    half = n // 2 + 1
    mirrored = np.append(0.0, spectrum[: n // 2 - 1 : -1])
    halves = np.fft.irfft(0.5 * (spectrum[:half] - 1j * mirrored) * _phases(n), n)
    values = np.empty(n)
    values[::2], values[::-2] = halves[: n // 2], halves[n // 2 :]
    return values


@lru_cache(maxsize=4)
def _phases(n: int) -> NDArray[np.complex128]:
    """Return the phases by which a Fourier transform of n values becomes a cosine transform."""
    return np.asarray(np.exp(0.5j * np.pi * np.arange(n // 2 + 1) / n))


def _fixed_point(error: Callable[[float], float]) -> float:
    """Return the width that equals the (decreasing) error at this width.

    By false position, where the excess at an end that stays twice is halved (Illinois).
    """
    low, high, moved = 0.0, 1.0, 0
    above, below = error(low), error(high) - high
    if above <= 0:
        return 0.0
    for _ in range(60):
        width = (low * below - high * above) / (below - above)
        excess = error(width) - width
        if abs(excess) < 1e-10 or high - low < 1e-10:
            return width
        if excess > 0:
            low, above, below = width, excess, below / 2 if moved > 0 else below
        else:
            high, below, above = width, excess, above / 2 if moved < 0 else above
        moved = 1 if excess > 0 else -1
    return (low + high) / 2


def smooth_calibration_error(
    y_true: Any, outputs: Any = None, *, sample_weight: Any = None
) -> float:
    """Return the smooth calibration error of the top label (smECE).

    Residuals are smoothed by a Gaussian kernel whose width equals the resulting error: there are no
    bins to choose.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: class names or indices, or label probabilities of shape (n_samples, n_classes).
        Rows whose label is missing are left out, with a warning.
    outputs : array-like, Logits, Probabilities, Members or TopLabel
        Model outputs. A plain array holds probabilities; one column is the positive class.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Lower is better.

    References
    ----------
    Blasiok and Nakkiran, "Smooth ECE: principled reliability diagrams via kernel smoothing", ICLR
    2024.

    Examples
    --------
    >>> round(smooth_calibration_error([0, 0], [[0.75, 0.25], [0.75, 0.25]]), 3)
    0.25
    """
    batch = labeled_batch(y_true, outputs, sample_weight, "smooth_calibration_error")
    return SmoothCalibrationErrorState.of(batch).value

import numpy as np
import pytest

from dubito import TopLabel
from dubito.data import Batch
from dubito.measure import SmoothCalibrationErrorState, smooth_calibration_error
from dubito.measure.calibration_test import _smoothed_error


def plain_smoothed_error(confidence: np.ndarray, correct: np.ndarray, width: float) -> float:
    """Return the area of |smoothed residuals| by summing reflected Gaussians at fine points."""
    points = (np.arange(3000) + 0.5) / 3000
    total = np.zeros_like(points)
    for shift in (-2, 0, 2):
        for images in (shift + confidence, shift - confidence):
            distance = (points[:, np.newaxis] - images) / width
            total += np.exp(-0.5 * distance**2) @ (correct - confidence)
    return float(np.abs(total).mean() / (width * np.sqrt(2 * np.pi)) / confidence.size)


def plain_smooth_error(confidence: np.ndarray, correct: np.ndarray) -> float:
    """Return the width at which the smoothed error equals it, by halving."""
    low, high = 0.0, 1.0
    for _ in range(24):
        middle = (low + high) / 2
        is_below = plain_smoothed_error(confidence, correct, middle) < middle
        low, high = (low, middle) if is_below else (middle, high)
    return (low + high) / 2


@pytest.mark.slow
@pytest.mark.parametrize(("shift", "seed"), [(0.0, 0), (0.1, 1), (-0.15, 2), (0.3, 3)])
def test_smooth_error_equals_direct_kernel_sums(shift: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    confidence = rng.beta(8, 2, 80)
    correct = (rng.random(80) < confidence - shift).astype(float)
    value = smooth_calibration_error(None, TopLabel(confidence, correct))
    assert value == pytest.approx(plain_smooth_error(confidence, correct), abs=1e-6)


def test_confidences_at_both_ends_are_reflected_not_lost() -> None:
    confidence, correct = np.array([1.0, 1.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0, 0.0])
    value = smooth_calibration_error(None, TopLabel(confidence, correct))
    assert value == pytest.approx(0.5, abs=1e-4)


def test_equal_weights_and_repeated_rows_agree() -> None:
    rng = np.random.default_rng(4)
    confidence, weight = rng.random(50), rng.integers(1, 4, 50)
    correct = rng.random(50) < 0.5
    weighted = smooth_calibration_error(None, TopLabel(confidence, correct), sample_weight=weight)
    repeated = TopLabel(np.repeat(confidence, weight), np.repeat(correct, weight))
    assert weighted == pytest.approx(smooth_calibration_error(None, repeated), abs=1e-12)


def test_wider_smoothing_never_shows_more_error() -> None:
    from scipy.fft import dct

    rng = np.random.default_rng(5)
    batch = Batch.of(None, TopLabel(rng.random(100), rng.random(100) < 0.5))
    spectrum = dct(SmoothCalibrationErrorState.of(batch).residual, type=2)
    errors = [_smoothed_error(spectrum, width) for width in (0.01, 0.03, 0.1, 0.3, 1.0)]
    assert errors == sorted(errors, reverse=True)

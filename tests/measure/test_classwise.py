import numpy as np
import pytest

from dubito import Logits, Members, Probabilities, TopLabel
from dubito.data import Batch
from dubito.errors import BadTypeError, StateMismatchError
from dubito.measure import ClasswiseCalibrationState, classwise_calibration_error
from dubito.measure.calibration_error import uniform_edges

RNG = np.random.default_rng(0)


def plain_errors(p: np.ndarray, y: np.ndarray, weight: np.ndarray, n_bins: int) -> list[float]:
    """Return the calibration error of each class, one class and bin at a time."""
    edges = np.linspace(0, 1, n_bins + 1)
    errors = []
    for k in range(p.shape[1]):
        bins = np.clip(np.searchsorted(edges, p[:, k], side="left") - 1, 0, n_bins - 1)
        gaps = [(weight * (p[:, k] - (y == k)))[bins == b].sum() for b in range(n_bins)]
        errors.append(np.abs(gaps).sum() / weight.sum())
    return errors


@pytest.mark.parametrize("n_classes", [2, 3, 70])
@pytest.mark.parametrize("n_bins", [1, 15])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_error_equals_a_loop_over_classes(n_classes: int, n_bins: int, is_weighted: bool) -> None:
    logits, y = RNG.normal(0, 3, (400, n_classes)), RNG.integers(0, n_classes, 400)
    weight = RNG.integers(0, 3, 400).astype(float) if is_weighted else np.ones(400)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = plain_errors(p, y, weight, n_bins)
    for outputs in (Logits(logits), Probabilities(p), Members([p, p])):
        batch = Batch.of(y, outputs, sample_weight=weight)
        state = ClasswiseCalibrationState.of(batch, uniform_edges(n_bins))
        assert state.by_class == pytest.approx(expected)
        value = classwise_calibration_error(y, outputs, n_bins=n_bins, sample_weight=weight)
        assert value == pytest.approx(np.mean(expected))


def test_one_hot_label_probabilities_are_labels() -> None:
    p, y = RNG.dirichlet([1, 1, 1], 200), RNG.integers(0, 3, 200)
    hard, soft = classwise_calibration_error(y, p), classwise_calibration_error(np.eye(3)[y], p)
    assert soft == pytest.approx(hard)


def test_a_hidden_bias_shows_where_the_top_label_is_calibrated() -> None:
    p = np.tile([0.5, 0.4, 0.1], (1000, 1))
    y = np.repeat([0, 1, 2], [500, 100, 400])
    assert classwise_calibration_error(y, p) == pytest.approx((0.3 + 0.3) / 3)


def test_missing_labels_and_float32_are_taken() -> None:
    p = RNG.dirichlet([1, 1], 50).astype(np.float32)
    y = np.where(np.arange(50) < 10, np.nan, RNG.integers(0, 2, 50))
    left_out = classwise_calibration_error(y[10:], p[10:])
    with pytest.warns(UserWarning, match="10 of 50 rows"):
        assert classwise_calibration_error(y, p) == pytest.approx(left_out)


def test_top_labels_and_other_classes_raise() -> None:
    with pytest.raises(BadTypeError, match="must be class probabilities"):
        classwise_calibration_error(None, TopLabel([0.5], [1]))
    two, three = (Batch.of([0], RNG.dirichlet(np.ones(k), 1)) for k in (2, 3))
    with pytest.raises(StateMismatchError):
        _ = ClasswiseCalibrationState.of(two) + ClasswiseCalibrationState.of(three)

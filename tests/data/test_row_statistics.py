"""The numbers a row agree with plain NumPy in float64."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from dubito import Logits, Members, Normal, Probabilities, TopLabel
from dubito.data.batch import RowStatistics, row_statistics
from dubito.data.labels import Labels
from dubito.errors import BadTypeError

N_ROWS = 300
rng = np.random.default_rng(0)
NAMES = [
    "confidence",
    "least_confidence",
    "correct",
    "entropy",
    "varentropy",
    "sum_of_squares",
    "logsumexp",
    "log_loss",
    "brier_score",
]


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    shares = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def rows_by_hand(p: NDArray[np.float64], q: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Return the numbers a row for probabilities and one-hot or soft labels, NaN if missing."""
    predicted = p.argmax(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = np.log(p)
        entropy = -np.where(p > 0, p * log_p, 0).sum(axis=1)
        surprise = np.where(p > 0, p * (log_p + entropy[:, np.newaxis]) ** 2, 0)
        numbers = {
            "confidence": p.max(axis=1),
            "least_confidence": 1 - p.max(axis=1),
            "correct": q[np.arange(len(q)), predicted],
            "entropy": entropy,
            "varentropy": surprise.sum(axis=1),
            "sum_of_squares": (p**2).sum(axis=1),
            "log_loss": -np.where(q > 0, q * log_p, 0).sum(axis=1),
            "brier_score": ((p - q) ** 2).sum(axis=1),
        }
    is_missing = np.isnan(q).any(axis=1)
    for name in ("correct", "log_loss", "brier_score"):
        numbers[name] = np.where(is_missing, 0.0, numbers[name])
    return numbers


def labels_of(kind: str, n_classes: int) -> tuple[Any, NDArray[np.float64]]:
    """Return labels, and the same as rows x classes."""
    codes = rng.integers(0, n_classes, N_ROWS).astype(np.float64)
    one_hot = np.eye(n_classes)[codes.astype(int)]
    if kind == "plain":
        return codes, one_hot
    is_missing = rng.random(N_ROWS) < 0.2
    if kind == "missing":
        gaps = np.where(is_missing, np.nan, codes)
        return gaps, np.where(is_missing[:, None], np.nan, one_hot)
    soft = rng.dirichlet(np.full(n_classes, 0.3), N_ROWS)
    soft[:10] = one_hot[:10]
    soft[is_missing] = np.nan
    return soft, soft


def assert_rows(rows: RowStatistics, expected: dict[str, NDArray[Any]], tolerance: float) -> None:
    for name, values in expected.items():
        assert_allclose(getattr(rows, name), values, rtol=tolerance, atol=tolerance, err_msg=name)


each_width = pytest.mark.parametrize("n_classes", [2, 3, 10, 64, 65, 1000])
each_label = pytest.mark.parametrize("kind", ["plain", "missing", "soft"])
each_type = pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 2e-5), ("float64", 1e-9)], ids=["float32", "float64"]
)


@each_width
@each_label
@each_type
@pytest.mark.parametrize("order", ["C", "F"])
def test_logits(n_classes: int, kind: str, dtype: str, tolerance: float, order: Any) -> None:
    logits = np.asarray(3 * rng.normal(size=(N_ROWS, n_classes)), dtype=dtype, order=order)
    y, q = labels_of(kind, n_classes)
    outputs = Logits(logits)
    rows = row_statistics(outputs, Labels.of(y, outputs))
    expected = rows_by_hand(softmax(logits), q)
    expected["logsumexp"] = np.log(np.exp(logits.astype(np.float64)).sum(axis=1))
    assert_rows(rows, expected, tolerance)
    assert_array_equal(rows.predicted, logits.argmax(axis=1))


@each_width
@each_label
@each_type
@pytest.mark.parametrize("order", ["C", "F"])
def test_probabilities(n_classes: int, kind: str, dtype: str, tolerance: float, order: Any) -> None:
    p = softmax(3 * rng.normal(size=(N_ROWS, n_classes)))
    y, q = labels_of(kind, n_classes)
    outputs = Probabilities(np.asarray(p, dtype=dtype, order=order))
    rows = row_statistics(outputs, Labels.of(y, outputs))
    assert_rows(rows, rows_by_hand(outputs.array.astype(np.float64), q), tolerance)
    assert_array_equal(rows.predicted, outputs.array.argmax(axis=1))


@each_label
def test_members_speak_by_their_mean(kind: str) -> None:
    members = np.stack([softmax(rng.normal(size=(N_ROWS, 5))) for _ in range(4)])
    y, q = labels_of(kind, 5)
    outputs = Members(members)
    rows = row_statistics(outputs, Labels.of(y, outputs))
    assert_rows(rows, rows_by_hand(members.mean(axis=0), q), 1e-9)


def test_top_labels_say_what_they_know() -> None:
    rows = row_statistics(TopLabel([0.75, 0.5], [True, False]), None)
    assert rows.confidence.tolist() == [0.75, 0.5]
    assert rows.least_confidence.tolist() == [0.25, 0.5]
    assert rows.correct.tolist() == [1.0, 0.0]
    for name in ("predicted", *NAMES[3:]):
        assert getattr(rows, name) is None


def test_a_class_of_probability_0_that_happened_costs_infinity() -> None:
    outputs = Probabilities([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    hard = row_statistics(outputs, Labels.of([1, 0, np.nan], outputs))
    soft = row_statistics(outputs, Labels.of([[0.5, 0.5], [1, 0], [np.nan, np.nan]], outputs))
    for rows in (hard, soft):
        assert rows.log_loss is not None
        assert rows.log_loss.tolist() == [np.inf, 0.0, 0.0]


def test_without_labels_nothing_is_right_or_lost() -> None:
    rows = row_statistics(Logits(rng.normal(size=(N_ROWS, 3))), None)
    for numbers in (rows.correct, rows.log_loss, rows.brier_score):
        assert numbers is not None
        assert not numbers.any()


def test_uncertainty_is_not_lost_to_rounding() -> None:
    rows = row_statistics(Logits(np.array([[0.0, 60.0]])), None)
    assert_allclose(rows.least_confidence, np.exp(-60.0), rtol=1e-12)
    assert rows.confidence.tolist() == [1.0]


def test_ranks_are_by_uncertainty_and_made_once() -> None:
    rows = row_statistics(TopLabel([0.5, 1.0, 0.75, 1.0], [True] * 4), None)
    assert rows.ranks is rows.ranks
    assert rows.ranks.order.tolist() == [1, 3, 2, 0]
    assert rows.ranks.values.tolist() == [0.0, 0.25, 0.5]
    assert rows.ranks.sums(np.array([1.0, 2.0, 4.0, 8.0])).tolist() == [10.0, 4.0, 1.0]


def test_ranks_distinguish_saturated_rows() -> None:
    rows = row_statistics(Logits(np.array([[0.0, 60.0], [0.0, 70.0]])), None)
    assert rows.confidence.tolist() == [1.0, 1.0]
    assert rows.ranks.order.tolist() == [1, 0]
    assert rows.ranks.starts.tolist() == [0, 1]


def test_the_log_variance_of_an_even_or_certain_row_is_0() -> None:
    for outputs in (Logits(np.full((1, 4), 3.0)), Probabilities([[1.0, 0.0, 0.0, 0.0]])):
        rows = row_statistics(outputs, None)
        assert rows.varentropy is not None
        assert rows.varentropy.tolist() == [0.0]


def test_blocks_and_threads_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = Logits(rng.normal(size=(N_ROWS, 7)))
    y, _ = labels_of("soft", 7)
    whole = row_statistics(outputs, Labels.of(y, outputs))
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "50")
    for threads in ("1", "2"):
        monkeypatch.setenv("DUBITO_THREADS", threads)
        rows = row_statistics(outputs, Labels.of(y, outputs))
        for name in NAMES:
            assert_array_equal(getattr(rows, name), getattr(whole, name))


def test_no_rows_have_no_numbers() -> None:
    outputs = Logits(np.empty((0, 3)))
    rows = row_statistics(outputs, Labels.of(np.empty(0), outputs))
    for name in NAMES:
        assert getattr(rows, name).shape == (0,)
    assert rows.ranks.order.shape == (0,)


def test_a_regression_has_no_such_rows() -> None:
    with pytest.raises(BadTypeError, match="got Normal"):
        row_statistics(Normal([0.0], [1.0]), None)

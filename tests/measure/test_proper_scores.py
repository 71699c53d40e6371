import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from dubito import Logits, Members, Probabilities, TopLabel
from dubito.arrays import FloatArray
from dubito.errors import BadTypeError, EmptyStateError, InfiniteLossWarning, MissingLabelsWarning
from dubito.measure import accuracy, brier_score, log_loss

RNG = np.random.default_rng(0)


def softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def one_hot(y: np.ndarray, n_classes: int) -> np.ndarray:
    return np.asarray(np.eye(n_classes)[y])


@pytest.mark.parametrize("n_classes", [2, 3, 10, 64, 65, 300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_scores_equal_scikit_learn_and_numpy(
    n_classes: int, dtype: type, is_weighted: bool
) -> None:
    logits: FloatArray = RNG.normal(0, 2, (500, n_classes)).astype(dtype)
    y = RNG.integers(0, n_classes, 500)
    weight = RNG.random(500) if is_weighted else None
    p = softmax(logits)
    expected = {
        accuracy: metrics.accuracy_score(y, p.argmax(axis=1), sample_weight=weight),
        log_loss: metrics.log_loss(y, p, labels=range(n_classes), sample_weight=weight),
        brier_score: np.average(((p - one_hot(y, n_classes)) ** 2).sum(axis=1), weights=weight),
    }
    for metric, value in expected.items():
        assert metric(y, Logits(logits), sample_weight=weight) == pytest.approx(value, abs=1e-6)
        assert metric(y, p, sample_weight=weight) == pytest.approx(value, abs=1e-9)


def test_brier_score_worked_by_hand() -> None:
    # Ten forecasts of rain: the mean of (p - o)^2 is 0.95 / 10, and twice that for two classes.
    p = np.array([0.7, 0.9, 0.8, 0.4, 0.2, 0.0, 0.0, 0.0, 0.0, 0.1])
    rain = np.array([0, 1, 1, 1, 0, 0, 0, 0, 0, 0])
    assert brier_score(rain, p) == pytest.approx(2 * 0.095)


def test_label_probabilities_give_cross_entropy_and_squared_distance() -> None:
    p, q = RNG.dirichlet([1, 2, 3], 50), RNG.dirichlet([1, 1, 1], 50)
    assert log_loss(q, p) == pytest.approx(-(q * np.log(p)).sum(axis=1).mean())
    assert log_loss(q, Logits(np.log(p) + 7)) == pytest.approx(-(q * np.log(p)).sum(axis=1).mean())
    assert brier_score(q, p) == pytest.approx(((p - q) ** 2).sum(axis=1).mean())
    assert accuracy(q, p) == pytest.approx(q[np.arange(50), p.argmax(axis=1)].mean())


def test_members_are_measured_by_their_mean() -> None:
    passes, y = RNG.dirichlet([1, 1, 1], (4, 60)), RNG.integers(0, 3, 60)
    assert log_loss(y, Members(passes)) == pytest.approx(log_loss(y, passes.mean(axis=0)))


def test_one_column_is_the_positive_class() -> None:
    p, y = np.array([0.9, 0.2, 0.6]), [1, 0, 0]
    both = np.stack([1 - p, p], axis=1)
    assert log_loss(y, p) == log_loss(y, p[:, np.newaxis]) == log_loss(y, both)
    odds = np.log(p / (1 - p))
    assert log_loss(y, Logits(odds)) == pytest.approx(log_loss(y, p))


def test_names_are_labels_where_the_classes_have_names() -> None:
    outputs = Probabilities([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], classes=["cat", "dog", "fox"])
    assert accuracy(["cat", "dog"], outputs) == 0.5


def test_an_impossible_event_makes_log_loss_infinite_and_is_counted() -> None:
    p = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    with pytest.warns(InfiniteLossWarning, match="2 of 3 rows have probability 0"):
        assert log_loss([1, 0, 0], p) == np.inf
    assert log_loss([1, 0, 0], p, sample_weight=[0, 1, 0]) == pytest.approx(np.log(2))


def test_logits_too_far_apart_to_be_added_are_impossible_events() -> None:
    with pytest.warns(InfiniteLossWarning, match="100 of 100 rows have probability 0"):
        assert log_loss([1] * 100, Logits([[1e308, 0.0]] * 100)) == np.inf


def test_missing_labels_are_left_out_and_counted() -> None:
    p = RNG.dirichlet([1, 1], 5)
    with pytest.warns(MissingLabelsWarning, match="2 of 5 rows have no label"):
        value = log_loss([0, None, 1, float("nan"), 0], p)
    assert value == pytest.approx(log_loss([0, 1, 0], p[[0, 2, 4]]))


def test_a_class_that_never_occurs_keeps_its_column() -> None:
    p = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    assert log_loss([2, 2], p) == pytest.approx(-np.log([0.5, 0.1]).mean())


def test_top_labels_know_accuracy_only() -> None:
    top = TopLabel([0.9, 0.6], [True, False])
    assert accuracy(None, top) == 0.5
    with pytest.raises(BadTypeError, match=r"got TopLabel\. Use Logits or Probabilities"):
        log_loss(None, top)


def test_no_weight_at_all_is_no_score() -> None:
    with pytest.raises(EmptyStateError):
        accuracy([0, 1], [0.1, 0.9], sample_weight=[0, 0])


@pytest.mark.slow
@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 300),
    n_classes=st.integers(2, 80),
    scale=st.sampled_from([0.0, 1e-3, 1.0, 30.0, 1e4]),
    dtype=st.sampled_from([np.float16, np.float32, np.float64]),
)
def test_scores_are_numbers_whatever_the_logits(
    seed: int, n: int, n_classes: int, scale: float, dtype: type
) -> None:
    rng = np.random.default_rng(seed)
    logits: FloatArray = np.round(rng.normal(0, 1, (n, n_classes)) * scale, 1).astype(dtype)
    before = logits.tobytes()
    y = rng.integers(0, n_classes, n)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = [metric(y, Logits(logits)) for metric in (accuracy, log_loss, brier_score)]
    assert np.isfinite(values).all()
    assert logits.tobytes() == before
    exact = logits.astype(np.float64)
    chosen = exact[np.arange(n), y] - exact.max(axis=1)
    losses = np.log(np.exp(exact - exact.max(axis=1, keepdims=True)).sum(axis=1)) - chosen
    assert values[0] == (exact.argmax(axis=1) == y).mean()
    assert values[1] == pytest.approx(losses.mean(), rel=2e-6, abs=2e-6)

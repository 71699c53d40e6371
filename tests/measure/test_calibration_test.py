import numpy as np
import pytest
from scipy import stats

from dubito import Logits, Probabilities, TopLabel
from dubito.measure import calibration_test


def draw(rng: np.random.Generator, p: np.ndarray) -> np.ndarray:
    """Return labels that come from the stated probabilities."""
    drawn = (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1)
    return np.asarray(np.minimum(drawn, p.shape[1] - 1))


def softmax(logits: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))


def test_statistic_equals_plain_matrix_algebra() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1, 1, 1], 300)
    y, rows = draw(rng, p), np.arange(300)
    entropy, top = stats.entropy(p, axis=1), p.argmax(axis=1)
    # Scores of every class that might have happened, weighted by its probability.
    surprise = -np.log(p) - entropy[:, np.newaxis]
    gap = p.max(axis=1, keepdims=True) - np.eye(4)[top]
    scores = np.array([surprise[rows, y].sum(), gap[rows, y].sum()])
    both = np.stack([surprise, gap])
    covariance = np.einsum("aik,bik,ik->ab", both, both, p)
    expected = scores @ np.linalg.solve(covariance, scores)
    test = calibration_test(y, p)
    assert test.statistic == pytest.approx(expected)
    assert test.p_value == pytest.approx(stats.chi2.sf(expected, 2))
    assert test.surprise == pytest.approx(scores[0] / np.sqrt(covariance[0, 0]))
    assert test.overconfidence == pytest.approx(scores[1] / np.sqrt(covariance[1, 1]))


@pytest.mark.slow
@pytest.mark.parametrize("is_top_only", [False, True])
def test_calibrated_models_are_rejected_in_5_percent_and_sharpened_ones_nearly_always(
    is_top_only: bool,
) -> None:
    rng = np.random.default_rng(1)
    p_values: dict[float, list[float]] = {1.0: [], 1.2: []}
    for _ in range(500):
        logits = rng.normal(0, 4.5, (2000, 10))
        y = draw(rng, softmax(logits))
        for scale, values in p_values.items():
            stated = softmax(scale * logits)
            top = TopLabel(stated.max(axis=1), stated.argmax(axis=1) == y)
            test = calibration_test(None, top) if is_top_only else calibration_test(y, stated)
            values.append(test.p_value)
    assert 0.03 <= np.mean(np.array(p_values[1.0]) < 0.05) <= 0.07
    assert np.mean(np.array(p_values[1.2]) < 0.05) > 0.9


def test_an_impossible_event_has_no_chance() -> None:
    assert calibration_test([1, 0], Probabilities([[1.0, 0.0], [0.5, 0.5]])).p_value == 0


def test_rows_that_are_all_alike_leave_one_score() -> None:
    test = calibration_test([0] * 60 + [1] * 40, [[0.6, 0.4]] * 100)
    assert test.p_value == pytest.approx(1)
    worse = calibration_test([0] * 50 + [1] * 50, [[0.6, 0.4]] * 100)
    assert worse.p_value == pytest.approx(2 * stats.norm.sf(10 / np.sqrt(24)))


def test_certainty_that_is_right_is_calibrated_and_logits_agree_with_probabilities() -> None:
    assert calibration_test([0, 1], [[1.0, 0.0], [0.0, 1.0]]).p_value == 1
    rng = np.random.default_rng(2)
    logits = rng.normal(0, 2, (100, 5))
    y = rng.integers(0, 5, 100)
    a, b = calibration_test(y, Logits(logits)), calibration_test(y, softmax(logits))
    assert a.statistic == pytest.approx(b.statistic)


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.999, 0.9999])
def test_rare_errors_are_judged_by_their_own_law(confidence: float) -> None:
    rng = np.random.default_rng(3)
    stated = np.full(500, confidence)
    p_values = [
        calibration_test(None, TopLabel(stated, rng.random(500) < stated)).p_value
        for _ in range(1000)
    ]
    assert np.mean(np.array(p_values) < 0.05) <= 0.05
    one_error = TopLabel(np.full(1000, 0.99999), np.arange(1000) > 0)
    expected = 2 * stats.poisson.sf(0, 1000 * 1e-5)
    assert calibration_test(None, one_error).p_value == pytest.approx(expected)

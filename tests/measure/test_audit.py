import json

import numpy as np
import pytest
from scipy import stats

from dubito import Logits, TopLabel, audit
from dubito.data import ArrayShards, Batch, load_fashion_mnist
from dubito.errors import BadTypeError, BadValueError
from dubito.measure import (
    Audit,
    accuracy,
    average_precision,
    brier_score,
    expected_calibration_error,
    false_positive_rate_at_recall,
    log_loss,
    maximum_calibration_error,
    roc_auc,
)

RNG = np.random.default_rng(0)


@pytest.mark.slow
def test_an_audit_holds_what_the_functions_return() -> None:
    y, logits = RNG.integers(0, 5, 400), Logits(RNG.normal(0, 2, (400, 5)))
    result = audit(y, logits)
    assert result.accuracy == accuracy(y, logits)
    assert result.log_loss == log_loss(y, logits)
    assert result.brier_score == brier_score(y, logits)
    assert result.expected_calibration_error == expected_calibration_error(y, logits)
    assert result.maximum_calibration_error == maximum_calibration_error(y, logits)
    assert (result.n_rows, result.n_classes, result.n_missing) == (400, 5, 0)


def test_own_errors_are_found_as_any_outliers_are() -> None:
    y, logits = RNG.integers(0, 3, 300), RNG.normal(0, 2, (300, 3))
    result = audit(y, Logits(logits), n_resamples=0)
    uncertainty = Batch.of(y, Logits(logits)).rows.least_confidence
    is_wrong = logits.argmax(axis=1) != y
    assert result.error_detection_auroc == roc_auc(is_wrong, uncertainty)
    assert result.error_detection_average_precision == average_precision(is_wrong, uncertainty)
    rate = false_positive_rate_at_recall(is_wrong, uncertainty)
    assert result.error_detection_fpr95 == rate


@pytest.mark.slow
def test_entropy_and_confidence_equal_scipy() -> None:
    from scipy import special, stats

    logits = RNG.normal(0, 3, (200, 6))
    p = special.softmax(logits, axis=1)
    result = audit(RNG.integers(0, 6, 200), Logits(logits))
    assert result.entropy == pytest.approx(stats.entropy(p, axis=1).mean())
    assert result.confidence == pytest.approx(p.max(axis=1).mean())


@pytest.mark.slow
def test_the_sample_is_over_confident_in_words() -> None:
    sample = load_fashion_mnist()
    result = audit(sample.test_labels, Logits(sample.test_logits))
    assert result.verdict == (
        "Over-confident: mean confidence 95.4 %, accuracy 87.1 % "
        "(gap 8.2 points, 95 % interval 7.4 to 9.2)."
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("confidence", "share_right", "words"),
    [
        (np.full(1000, 0.9), 0.7, "Over-confident"),
        (np.full(1000, 0.6), 0.9, "Under-confident"),
        (np.full(1000, 0.8), 0.8, "No sign of miscalibration"),
        (np.full(1000, 0.8), 0.77, "Weak evidence of miscalibration (p = 0.0"),
    ],
)
def test_verdicts(confidence: np.ndarray, share_right: float, words: str) -> None:
    correct = np.arange(1000) < 1000 * share_right
    assert audit(None, TopLabel(confidence, correct)).verdict.startswith(words)


@pytest.mark.slow
def test_errors_that_cancel_on_average_are_in_the_verdict() -> None:
    confidence = np.repeat([0.9, 0.6], 1000)
    correct = np.concatenate([np.arange(1000) < 750, np.arange(1000) < 750])
    verdict = audit(None, TopLabel(confidence, correct)).verdict
    assert verdict.startswith("Miscalibrated in places:")
    assert "differ by 15.0 points" in verdict


@pytest.mark.slow
def test_ten_rows_prove_nothing() -> None:
    verdict = audit(None, TopLabel(np.full(10, 0.8), [1] * 6 + [0] * 4)).verdict
    both = "mean confidence 80.0 %, accuracy 60.0 %"
    assert verdict == f"Too few rows for a verdict (10 rows): {both}."


@pytest.mark.slow
@pytest.mark.parametrize(("n_rows", "uncertainty"), [(500, 0.1), (200, 0.002), (50, 0.3)])
def test_calibrated_models_are_seldom_called_false(n_rows: int, uncertainty: float) -> None:
    rng = np.random.default_rng(0)
    confidence = np.full(n_rows, 1 - uncertainty)
    verdicts = [
        audit(None, TopLabel(confidence, rng.random(n_rows) >= uncertainty), n_resamples=0).verdict
        for _ in range(400)
    ]
    weak = sum(one.startswith("Weak evidence") for one in verdicts)
    false = sum(not one.startswith(("No sign", "Weak evidence")) for one in verdicts)
    assert false / 400 < 0.02
    assert weak / 400 < 0.08


@pytest.mark.slow
def test_what_is_left_out_is_said() -> None:
    printed = str(audit([1, None, 0], np.array([[1.0, 0.0], [0.5, 0.5], [0.9, 0.1]])))
    assert "2 rows, 2 classes; 1 unlabeled row left out" in printed
    assert "1 row at probability 0" in printed
    assert "15 uniform bins" in printed


@pytest.mark.slow
def test_audits_of_top_labels_print_no_log_loss() -> None:
    printed = str(audit(None, TopLabel([0.9, 0.4], [1, 0])))
    assert "log loss" not in printed
    assert "nan" not in printed.lower()


@pytest.mark.slow
def test_a_dict_is_ready_for_json() -> None:
    values = audit([1, 0], np.array([[1.0, 0.0], [0.5, 0.5]])).to_dict()
    text = json.dumps(values, allow_nan=False)
    assert json.loads(text)["log_loss"] is None
    assert json.loads(text)["n_impossible"] == 1


def test_missing_labels_raise() -> None:
    with pytest.raises(BadTypeError, match="audit: `y_true` must be the labels"):
        audit(None, [[0.5, 0.5]])


@pytest.mark.slow
def test_the_digits_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "1000")
    rng = np.random.default_rng(7)
    batch = Batch.of(rng.integers(0, 9, 2000), Logits(rng.normal(0, 2, (2000, 9))))
    monkeypatch.setenv("DUBITO_THREADS", "1")
    alone = Audit.of(ArrayShards(batch), n_resamples=100).to_dict()
    monkeypatch.setenv("DUBITO_THREADS", "2")
    assert Audit.of(ArrayShards(batch), n_resamples=100).to_dict() == alone


@pytest.mark.slow
def test_accuracy_without_exception_has_an_interval_of_some_width() -> None:
    perfect = audit(None, TopLabel(np.full(60, 0.9), np.ones(60))).intervals["accuracy"]
    assert perfect.low == pytest.approx(stats.beta.ppf(0.025, 60, 1))
    assert perfect.high == 1
    wrong = audit(None, TopLabel(np.full(60, 0.9), np.zeros(60))).intervals["accuracy"]
    assert wrong.high == pytest.approx(stats.beta.ppf(0.975, 1, 60))


@pytest.mark.parametrize("n_resamples", [-1, 5, 1.5])
def test_too_few_resamples_raise(n_resamples: int) -> None:
    with pytest.raises(BadValueError, match="an integer of at least 40"):
        audit([0, 1], [0.2, 0.7], n_resamples=n_resamples)


@pytest.mark.slow
def test_the_interval_of_a_calibration_error_contains_it_and_the_truth() -> None:
    """Resamples of a binned error are biased upwards, so that percentiles would miss both."""
    is_inside, is_covered = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        p = rng.uniform(0.02, 0.98, 300)
        top = TopLabel(p, rng.random(300) < p)  # calibrated: the true error is 0
        found = audit(top, n_resamples=100, random_state=seed)
        interval = found.intervals["expected_calibration_error"]
        is_inside.append(interval.low <= found.expected_calibration_error <= interval.high)
        is_covered.append(interval.low == 0)
    assert all(is_inside)
    assert np.mean(is_covered) >= 0.875  # 95 % of 40, less 2 standard errors
    off = audit(TopLabel(np.full(500, 0.9), np.arange(500) % 2 == 0), n_resamples=200)
    low = off.intervals["expected_calibration_error"].low
    assert 0.3 < low < off.expected_calibration_error

from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from dubito import Logits, Normal, TopLabel
from dubito.data import Batch
from dubito.errors import BadTypeError, BadValueError, DubitoError, InfiniteLossWarning
from dubito.measure import (
    accuracy,
    area_under_risk_coverage,
    brier_score,
    classwise_calibration_error,
    confidence_interval,
    coverage_at_risk,
    expected_calibration_error,
    log_loss,
    negative_log_likelihood,
    paired_difference,
    roc_auc,
)
from dubito.measure.binary import auroc_interval
from dubito.measure.intervals import CATALOG, over_resamples

ECE: Any = expected_calibration_error
RNG = np.random.default_rng(0)
LOGITS, Y = RNG.normal(0, 3, (400, 5)), RNG.integers(0, 5, 400)


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_every_metric_has_an_interval_around_its_value(name: str) -> None:
    settings = {"risk": 0.5} if name == "coverage_at_risk" else {}
    metric = CATALOG[name].function
    interval = confidence_interval(partial(metric, **settings), Y, Logits(LOGITS), n_resamples=60)
    assert interval.value == pytest.approx(metric(Y, Logits(LOGITS), **settings))
    assert interval.low <= interval.high


def test_accuracy_agrees_with_the_binomial_law() -> None:
    interval = confidence_interval(accuracy, Y, Logits(LOGITS))
    deviation = np.sqrt(interval.value * (1 - interval.value) / 400)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * deviation, rel=0.1)


def test_a_name_a_partial_and_any_function_give_the_same_interval() -> None:
    def own(y_true: object, outputs: object, sample_weight: object = None) -> float:
        return log_loss(y_true, outputs, sample_weight=sample_weight)

    of = partial(confidence_interval, y_true=Y, outputs=Logits(LOGITS), n_resamples=50)
    assert of("log_loss") == of(log_loss) == of(partial(log_loss))
    assert of(own).high == pytest.approx(of(log_loss).high)
    ten = of(partial(expected_calibration_error, n_bins=10))
    assert ten.value == expected_calibration_error(Y, Logits(LOGITS), n_bins=10)


def test_an_integer_random_state_is_reproducible() -> None:
    of = partial(confidence_interval, log_loss, Y, Logits(LOGITS), n_resamples=50)
    assert of(random_state=1) == of(random_state=1)
    assert of(random_state=1) != of(random_state=2)


@pytest.mark.slow
def test_intervals_narrow_with_the_level_and_with_rows() -> None:
    of = partial(confidence_interval, brier_score)
    wide, narrow = (of(Y, Logits(LOGITS), level=level) for level in (0.99, 0.5))
    assert wide.low < narrow.low < narrow.high < wide.high
    four = of(np.tile(Y, 4), Logits(np.tile(LOGITS, (4, 1))))
    assert four.high - four.low < 0.7 * (of(Y, Logits(LOGITS)).high - of(Y, Logits(LOGITS)).low)


def test_shards_resample_as_one() -> None:
    batch = Batch.of(Y, Logits(LOGITS))
    parts = [batch.take(slice(0, 150)), batch.take(slice(150, 400))]
    whole = [b.weight for b in over_resamples(batch, lambda b: b, 3, 4)]
    split = [[b.weight for b in over_resamples(part, lambda b: b, 3, 4)] for part in parts]
    for k in range(4):
        assert np.array_equal(whole[k], np.concatenate([split[0][k], split[1][k]]))


@pytest.mark.slow
@pytest.mark.parametrize("metric", [log_loss, brier_score, accuracy])
def test_intervals_hold_the_truth_19_times_in_20(metric: object) -> None:
    rng = np.random.default_rng(1)
    pool = rng.normal(0, 4.5, (200_000, 10))
    p = np.exp(pool - pool.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    y = np.minimum((p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1), 9)
    assert callable(metric)
    truth = metric(y, Logits(pool))
    held = []
    for k in range(100):
        rows = slice(2000 * k, 2000 * (k + 1))
        interval = confidence_interval(metric, y[rows], Logits(pool[rows]), n_resamples=200)
        held.append(interval.low <= truth <= interval.high)
    assert 0.88 <= np.mean(held) <= 1.0


@pytest.mark.slow
def test_a_paired_difference_is_far_narrower_than_two_intervals() -> None:
    a, b = Logits(LOGITS), Logits(1.1 * LOGITS)
    paired = paired_difference(log_loss, Y, a, b)
    assert paired.value == pytest.approx(log_loss(Y, a) - log_loss(Y, b))
    assert paired.low < paired.value < paired.high < 0
    alone = confidence_interval(log_loss, Y, a)
    assert paired.high - paired.low < 0.5 * (alone.high - alone.low)
    same = paired_difference(log_loss, Y, a, a)
    assert (same.value, same.low, same.high) == (0, 0, 0)


def test_top_labels_have_intervals_too() -> None:
    top = TopLabel([0.9, 0.6] * 20, [1, 0] * 20)
    assert confidence_interval(accuracy, None, top).value == 0.5


@pytest.mark.slow
def test_few_rows_and_infinite_losses_have_intervals_without_nan() -> None:
    few = confidence_interval(accuracy, [0, 1], [0.2, 0.4])
    assert (few.value, few.low, few.high) == (0.5, 0.0, 1.0)
    with pytest.warns(InfiniteLossWarning):
        assert log_loss([1, 0], [[1.0, 0.0]] * 2) == np.inf
    infinite = confidence_interval(log_loss, [1, 0] * 9, [[1.0, 0.0]] * 18)
    assert infinite.value == infinite.high == np.inf
    with pytest.raises(BadValueError, match="must be finite for both models"):
        paired_difference(log_loss, [1, 0] * 9, [[1.0, 0.0]] * 18, [[0.5, 0.5]] * 18)


def test_bins_resample_as_rows_do() -> None:
    of = partial(confidence_interval, y_true=Y, outputs=Logits(LOGITS))
    by_bins = of(classwise_calibration_error)
    by_rows = of(lambda *args, **kw: classwise_calibration_error(*args, **kw), n_resamples=300)
    assert by_bins.value == pytest.approx(by_rows.value)
    assert by_bins.low == pytest.approx(by_rows.low, abs=0.01)
    assert by_bins.high == pytest.approx(by_rows.high, abs=0.01)


def test_detection_and_regression_have_intervals_too() -> None:
    is_outlier = RNG.random(300) < 0.3
    uncertainty = RNG.normal(size=300) + 5 * is_outlier
    interval = confidence_interval(roc_auc, is_outlier, uncertainty, n_resamples=50)
    assert interval.low <= interval.value == roc_auc(is_outlier, uncertainty) <= interval.high
    few = confidence_interval(roc_auc, [True, False, False], [3.0, 1.0, 2.0], n_resamples=200)
    assert (few.low, few.high) == (1, 1)
    y = RNG.normal(size=300)
    a, b = Normal(np.zeros(300), np.ones(300)), Normal(np.zeros(300), np.full(300, 2.0))
    assert confidence_interval(negative_log_likelihood, y, a, n_resamples=50).value > 0
    assert paired_difference(negative_log_likelihood, y, a, b, n_resamples=50).high < 0


def test_another_uncertainty_score_has_an_interval_too() -> None:
    uncertainty = RNG.normal(size=400)
    metric = partial(area_under_risk_coverage, uncertainty=uncertainty)
    interval = confidence_interval(metric, Y, Logits(LOGITS), n_resamples=50)
    assert interval.value == metric(Y, Logits(LOGITS))


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (partial(ECE, norm="L1"), "'l1', 'l2' or 'max'"),
        (partial(ECE, bins=3), "must be arguments of expected_calibration_error"),
        (partial(coverage_at_risk, risk=5), "a number between 0 and 1"),
        ("coverage_at_risk", "must be arguments of coverage_at_risk"),
    ],
)
def test_invalid_settings_raise_the_error_of_the_function(metric: object, message: str) -> None:
    with pytest.raises(BadValueError, match=message):
        confidence_interval(metric, Y, Logits(LOGITS))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1, "a", 1.5])
def test_a_random_state_is_none_an_integer_or_a_generator(value: object) -> None:
    with pytest.raises(DubitoError, match="random_state"):
        confidence_interval(log_loss, Y, Logits(LOGITS), random_state=value)
    for valid in (None, np.random.RandomState(0)):
        of = partial(confidence_interval, log_loss, Y, Logits(LOGITS), n_resamples=50)
        assert np.isfinite(of(random_state=valid).low)


@pytest.mark.slow
def test_arguments_that_cannot_be_resampled_raise() -> None:
    outputs = Logits(LOGITS)
    with pytest.raises(BadTypeError, match="must be class probabilities"):
        confidence_interval("log_loss", None, TopLabel([0.5], [1]))
    with pytest.raises(BadTypeError, match="a metric or its name"):
        confidence_interval("ece", Y, outputs)
    with pytest.raises(BadValueError, match="an integer of at least 40"):
        confidence_interval(log_loss, Y, outputs, n_resamples=10)
    with pytest.raises(BadValueError, match="between 0 and 1"):
        confidence_interval(log_loss, Y, outputs, level=95)
    with pytest.raises(BadValueError, match="must have length 10, like the outputs"):
        paired_difference(log_loss, Y, outputs, Logits(LOGITS[:10]))
    with pytest.raises(BadValueError, match="must have the rows of outputs_a"):
        paired_difference(accuracy, None, TopLabel([0.5], [1]), TopLabel([0.5] * 2, [1, 0]))


def test_auroc_intervals_are_those_of_delong() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([1.0, 0.0], [30, 50])
    scores = (y + rng.normal(0, 1, 80)).round(1)  # with ties
    above = (scores[:30, np.newaxis] > scores[30:]) + (scores[:30, np.newaxis] == scores[30:]) / 2
    variance = above.mean(axis=1).var(ddof=1) / 30 + above.mean(axis=0).var(ddof=1) / 50
    margin = NormalDist().inv_cdf(0.975) * np.sqrt(variance)
    expected = above.mean() + margin * np.array([0, -1, 1])
    found = auroc_interval(y, scores, np.ones(80))
    np.testing.assert_allclose([found.value, found.low, found.high], expected)
    # A weight of 2 is the same as two rows.
    twice = auroc_interval(np.tile(y, 2), np.tile(scores, 2), np.ones(160))
    found = auroc_interval(y, scores, np.full(80, 2.0))
    np.testing.assert_allclose([found.low, found.high], [twice.low, twice.high])

"""False alarms are rare, and real shifts are detected, named and explained."""

import json
from dataclasses import replace
from textwrap import wrap
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import softmax

from dubito import (
    Logits,
    Members,
    MultiLabel,
    Normal,
    Probabilities,
    Quantiles,
    Samples,
    TopLabel,
)
from dubito.data import ArrayShards, Batch
from dubito.decide import PriorEstimate, estimate_prior
from dubito.errors import BadTypeError, BadValueError, DubitoError, MissingLabelsWarning
from dubito.measure import Interval, expected_calibration_error, log_loss
from dubito.monitor import DistributionShift, Drift, detect_drift
from dubito.monitor.drift import Period

MEANS = 1.2 * np.random.default_rng(9).normal(size=(3, 4))
ECE = "ECE (15 uniform bins)"
Rows = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


def made(seed: int, n: int, prior: Any = (0.3, 0.3, 0.4), shift: float = 0.0) -> Rows:
    """Return labels, features and the true log posteriors of three Gaussian classes."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n, p=prior)
    x = MEANS[y] + rng.normal(size=(n, 4)) + shift
    z = -0.5 * ((x[:, None] - MEANS) ** 2).sum(axis=2) + np.log([0.3, 0.3, 0.4])
    return y, x, z


def between(
    before: Rows,
    after: Rows,
    scale: float = 1.0,
    labels: bool = False,
    n_permutations: int = 1999,
) -> Drift:
    known: dict[str, Any] = {"y_reference": before[0], "y_current": after[0]} if labels else {}
    return detect_drift(
        Logits(before[2]),
        Logits(scale * after[2]),
        reference_features=before[1],
        current_features=after[1],
        n_resamples=40,
        n_permutations=n_permutations,
        **known,
    )


@pytest.mark.slow
@pytest.mark.parametrize("labels", [False, True])
def test_false_alarms_are_rare(labels: bool) -> None:
    n_runs = 40
    n_alarms = sum(
        between(
            made(2 * seed, 200), made(2 * seed + 1, 150), labels=labels, n_permutations=199
        ).has_drifted
        for seed in range(n_runs)
    )
    assert n_alarms <= n_runs * 0.05 + 2 * np.sqrt(n_runs * 0.05 * 0.95)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("labels", [False, True])
def test_scaled_logits_need_recalibration(seed: int, labels: bool) -> None:
    found = between(made(seed, 600), made(seed + 100, 600), scale=2.0, labels=labels)
    assert {"confidence", "entropy", "energy"} <= set(found.shifted)
    assert "predicted classes" not in found.shifted
    assert "OOD inputs" not in found.shifted
    assert ("recalibrate on current rows" if labels else "check calibration") in found.verdict
    assert "adjust_prior" not in found.verdict
    assert ("gap" in found.shifted) is labels


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("labels", [False, True])
def test_a_shifted_prior_is_estimated(seed: int, labels: bool) -> None:
    prior = np.array([0.65, 0.2, 0.15])
    found = between(made(seed, 800), made(seed + 100, 800, prior), labels=labels)
    assert "predicted classes" in found.shifted
    assert ("labels" in found.shifted) is labels
    assert "OOD inputs" not in found.shifted
    assert "The class priors shifted" in found.verdict
    assert "adjust_prior" in found.verdict
    assert found.prior is not None
    assert found.prior.method == ("bbse" if labels else "em")
    np.testing.assert_allclose(found.prior.prior, prior, atol=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_shifted_inputs_are_out_of_distribution(seed: int) -> None:
    found = between(made(seed, 600), made(seed + 100, 600, shift=1.5), labels=True)
    assert {"OOD inputs", "accuracy", "log loss"} <= set(found.shifted)
    assert found.verdict.startswith("Inputs are out of distribution: ")
    ood = found.shifts["OOD inputs"]
    assert ood.reference == 0.05
    assert ood.current is not None
    assert ood.current > 0.15


def test_labels_that_change_their_meaning_shift_only_labeled_metrics() -> None:
    before, after = made(0, 800), made(1, 800)
    rng = np.random.default_rng(2)
    wrong = np.where(rng.random(800) < 0.3, rng.permutation(after[0]), after[0])
    found = between(before, (wrong, *after[1:]), labels=True)
    assert {"accuracy", "gap", "log loss"} == set(found.shifted)
    assert "recalibrate on current rows" in found.verdict


def test_metrics_are_those_of_both_periods() -> None:
    before, after = made(0, 700), made(1, 600, shift=0.3)
    found = between(before, after, labels=True)
    confidences = [Batch.of(None, Logits(rows[2])).rows.confidence for rows in (before, after)]
    assert found.wasserstein == pytest.approx(stats.wasserstein_distance(*confidences))
    assert found.expected_accuracy == pytest.approx(confidences[1].mean())
    outputs = [Logits(before[2]), Logits(after[2])]
    pairs = list(zip((before[0], after[0]), outputs, strict=True))
    for name, metric in {"log loss": log_loss, ECE: expected_calibration_error}.items():
        shift = found.shifts[name]
        values = [metric(y, one) for y, one in pairs]
        assert [shift.reference, shift.current] == pytest.approx(values)
        assert shift.difference is not None
        assert shift.difference.value == pytest.approx(values[1] - values[0])
        assert shift.difference.low < shift.difference.high
    assert found.shifts[ECE].p_value is None
    right = [one.array.argmax(axis=1) == y for y, one in pairs]
    gap = found.shifts["gap"]
    means = [c.mean() - r.mean() for c, r in zip(confidences, right, strict=True)]
    assert [gap.reference, gap.current] == pytest.approx(means)


def test_p_values_together_are_those_of_holm() -> None:
    before, after = made(0, 700), made(1, 600, shift=0.1)
    found = between(before, after)
    outputs = [Batch.of(None, Logits(rows[2])).rows for rows in (before, after)]
    raw = stats.ks_2samp(*(rows.confidence for rows in outputs), method="asymp").pvalue
    assert found.shifts["confidence"].p_value is not None
    assert found.shifts["confidence"].p_value >= min(raw, 1.0)
    assert len([s for s in found.shifts.values() if s.p_value is not None]) == 5


@pytest.mark.slow
def test_thresholded_accuracy_uses_the_threshold_of_the_reference() -> None:
    before, after = made(0, 700), made(1, 600, shift=0.3)
    found = between(before, after, labels=True).thresholded_accuracy
    a, b = (Batch.of(y, Logits(z)).rows for y, _, z in (before, after))
    n_right = int(a.correct.sum())
    threshold = np.sort(a.confidence)[700 - n_right - 1]
    assert (a.confidence > threshold).sum() == n_right
    assert found is not None
    assert found.value == pytest.approx((b.confidence > threshold).mean())
    assert found.low < found.value < found.high
    unlabeled = between(before, after)
    assert unlabeled.thresholded_accuracy is None
    perfect = detect_drift(TopLabel([0.9] * 30, [1] * 30), TopLabel([0.1] * 30, [0] * 30))
    assert perfect.thresholded_accuracy is not None
    assert perfect.thresholded_accuracy.value == 1.0


def test_the_prior_is_that_of_decide() -> None:
    before, after = made(0, 300), made(1, 300)
    found = detect_drift(Logits(before[2]), Logits(after[2]), y_reference=before[0], n_resamples=40)
    expected = estimate_prior(
        Logits(after[2]),
        method="bbse",
        validation=(before[0], Logits(before[2])),
        n_resamples=40,
    )
    assert found.prior is not None
    np.testing.assert_array_equal(found.prior.prior, expected.prior)
    np.testing.assert_array_equal(found.prior.low, expected.low)
    assert found.reference_prior is not None
    np.testing.assert_allclose(found.reference_prior, np.bincount(before[0]) / 300)


def test_classes_may_have_names_and_labels_be_missing() -> None:
    y, _, z = made(0, 200)
    names = ("cat", "dog", "fox")
    labels = np.array(names, dtype=object)[y]
    labels[:5] = None
    with pytest.warns(MissingLabelsWarning) as caught:
        found = detect_drift(
            Logits(z, names), Logits(z, names), y_reference=labels, y_current=labels
        )
    assert [one.filename for one in caught] == [__file__] * 2
    assert not found.has_drifted
    assert found.classes == names
    assert found.prior is not None
    assert found.prior.method == "bbse"


@pytest.mark.slow
def test_without_hard_labels_of_all_classes_priors_come_from_outputs() -> None:
    y, _, z = made(0, 200)
    soft = np.eye(3)[y] * 0.9 + 0.1 / 3
    found = detect_drift(Logits(z), Logits(z), y_reference=soft, y_current=soft, n_resamples=40)
    assert found.prior is not None
    assert found.prior.method == "em"
    assert "labels" not in found.shifts
    assert "accuracy" in found.shifts
    rare = detect_drift(Logits(z), Logits(z), y_reference=np.minimum(y, 1), n_resamples=40)
    assert rare.prior is not None
    assert rare.prior.method == "em"


def test_of_many_classes_no_prior_is_estimated() -> None:
    z = np.random.default_rng(0).normal(size=(100, 51))
    found = detect_drift(Logits(z), Logits(z))
    assert (found.prior, found.reference_prior) == (None, None)


def test_two_classes_have_no_entropy_and_probabilities_no_energy() -> None:
    p = np.random.default_rng(0).random(100)
    assert set(detect_drift(p, p, n_resamples=40).shifts) == {"confidence", "predicted classes"}
    top = TopLabel(p, p > 0.5)
    assert set(detect_drift(top, top).shifts) == {"confidence", "accuracy", "gap", ECE}


def test_an_infinite_log_loss_is_not_compared() -> None:
    p = np.array([[1.0, 0.0], [0.5, 0.5]] * 50)
    found = detect_drift(p, p, y_reference=[1] * 100, y_current=[1] * 100, n_resamples=40)
    assert "log loss" not in found.shifts
    json.dumps(found.to_dict(), allow_nan=False)


def test_few_rows_are_never_significant() -> None:
    found = detect_drift([[0.9, 0.1]] * 19, [[0.1, 0.9]] * 100, n_resamples=40)
    assert not found.has_drifted
    assert detect_drift([[0.9, 0.1]] * 20, [[0.1, 0.9]] * 100, n_resamples=40).has_drifted


@pytest.mark.slow
def test_shards_and_seeds_give_the_same() -> None:
    before, after = made(0, 300), made(1, 300)
    expected = between(before, after, labels=True).to_dict()
    shards = [ArrayShards(Batch.of(y, Logits(z), features=x)) for y, x, z in (before, after)]
    assert detect_drift(shards[0], shards[1], n_resamples=40).to_dict() == expected


def test_json_round_trip() -> None:
    found = between(made(0, 300), made(1, 300), labels=True)
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values["verdict"] == found.verdict
    assert values["shifted"] == []
    assert values["shifts"]["accuracy"]["reference"] == found.shifts["accuracy"].reference
    assert set(values["prior"]) == {"prior", "low", "high", "is_identified", "method"}
    bare = detect_drift(TopLabel([0.9] * 30, [1] * 30), TopLabel([0.9] * 30, [1] * 30))
    assert json.loads(json.dumps(bare.to_dict()))["prior"] is None


Z = np.random.default_rng(0).normal(size=(30, 3))
P = softmax(Z, axis=1)


@pytest.mark.parametrize("outputs", [P, Normal(Z[:, 0], np.exp(Z[:, 1]))])
def test_the_number_of_permutations_is_checked_for_every_kind(outputs: Any) -> None:
    with pytest.raises(BadValueError, match=r"`n_permutations` must be an integer of at least 1"):
        detect_drift(outputs, outputs, n_permutations=0)


def test_members_are_averaged() -> None:
    period = Period(Batch.of(None, Members([P, P[::-1]])))
    assert period.outputs is not None
    np.testing.assert_allclose(period.outputs.array, (P + P[::-1]) / 2)
    assert period.n_classes == 3


@pytest.mark.parametrize("outputs", [Logits(Z), Probabilities(P)])
def test_mean_probabilities_are_those_of_the_outputs(outputs: Any) -> None:
    found = detect_drift(outputs, outputs, n_resamples=40)
    assert found.reference_prior is not None
    np.testing.assert_allclose(found.reference_prior, P.mean(axis=0))


def test_labeled_rows_are_found() -> None:
    assert Period(Batch.of(None, P)).labeled is None
    assert Period(Batch.of([np.nan] * 30, P)).labeled is None
    some = Period(Batch.of([1.0] * 10 + [np.nan] * 20, P))
    assert some.labeled is not None
    assert len(some.labeled) == 10
    assert some.codes is not None
    assert some.codes.tolist() == [1] * 10 + [-1] * 20
    assert Period(Batch.of(P, P)).codes is None
    top = Period(Batch.of(None, TopLabel([0.5], [1])))
    assert (top.outputs, top.n_classes, top.codes) == (None, 0, None)
    assert top.labeled is top.batch


BAD: list[tuple[Any, type[DubitoError], str]] = [
    (
        lambda: detect_drift(P, Logits(Z)),
        BadValueError,
        r"`current` must hold probabilities of 3 classes, like `reference`, got logits of 3",
    ),
    (
        lambda: detect_drift(P, P[:, :2] / P[:, :2].sum(axis=1, keepdims=True)),
        BadValueError,
        r"`current` must hold probabilities of 3 classes, .* got probabilities of 2 classes\..*one",
    ),
    (
        lambda: detect_drift(P, P, reference_features=Z),
        BadValueError,
        r"`current_features` is needed too, got None\. Pass `current_features` too, or leave both",
    ),
    (
        lambda: detect_drift(MultiLabel([[0.5, 0.2]]), P),
        BadTypeError,
        r"`reference` must be outputs of a classifier or of a regression, got MultiLabel\. Test",
    ),
    (
        lambda: detect_drift(Normal([0.0], [1.0]), P),
        BadValueError,
        r"`current` must hold normal distributions, like `reference`, got probabilities of 3",
    ),
    (
        lambda: detect_drift(
            Normal([[0.0, 1.0]], [[1.0, 1.0]]), Normal([[0.0, 1.0]], [[1.0, 1.0]])
        ),
        BadValueError,
        r"must be of one target, got several targets per row\. Test one target at a time",
    ),
    (
        lambda: detect_drift(
            Quantiles([[0.0, 1.0]], [0.1, 0.9]), Quantiles([[0.0, 1.0]], [0.05, 0.95])
        ),
        BadValueError,
        r"`current` must have the levels of `reference`, got others",
    ),
    (
        lambda: detect_drift(P, P[:0]),
        BadValueError,
        r"`current` must have at least 1 row, got 0\. Pass rows of both periods",
    ),
    (
        lambda: detect_drift(ArrayShards(Batch.of(None, P, sample_weight=[2] * 30)), P),
        BadValueError,
        r"`reference` cannot have weights, got weights\. .*without a weight column",
    ),
    (lambda: detect_drift(P, P, y_current=[0]), BadValueError, r"`y_current`.*30.*1"),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_bad_arguments_raise_an_error(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def regression(
    n_rows: int, *, bias: float = 0.0, noise: float = 1.0, seed: int = 0
) -> tuple[NDArray[Any], Normal]:
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(size=n_rows), rng.uniform(1, 2, n_rows)
    return mean + bias + noise * std * rng.normal(size=n_rows), Normal(mean, std)


def test_drift_of_a_regression_is_tested_as_scipy_does() -> None:
    (y, a), (z, b) = regression(700, seed=1), regression(900, bias=0.4, noise=1.3, seed=2)
    found = detect_drift(a, b, y_reference=y, y_current=z)
    names = ["prediction", "interval width", "target", "bias", "absolute error", "CRPS"]
    assert list(found.shifts) == [*names, "coverage (90 %)", "PIT"]
    distances = {
        "prediction": stats.ks_2samp(a.mean, b.mean).statistic,
        "interval width": stats.ks_2samp(a.std, b.std).statistic,
        "target": stats.ks_2samp(y, z).statistic,
        "PIT": stats.ks_2samp(stats.norm.cdf(y, a.mean, a.std), stats.norm.cdf(z, b.mean, b.std))[
            0
        ],
    }
    for name, distance in distances.items():
        assert found.shifts[name].distance == pytest.approx(distance)
    between = stats.ttest_ind(z - b.mean, y - a.mean, equal_var=False).confidence_interval(0.95)
    bias = found.shifts["bias"].difference
    assert bias is not None
    assert (bias.low, bias.high) == pytest.approx((between.low, between.high))
    inside = [np.abs(t - o.mean) <= stats.norm.ppf(0.95) * o.std for t, o in ((y, a), (z, b))]
    coverage = found.shifts["coverage (90 %)"]
    assert coverage.reference == pytest.approx(inside[0].mean())
    assert coverage.current == pytest.approx(inside[1].mean())
    assert found.wasserstein == pytest.approx(stats.wasserstein_distance(a.mean, b.mean))
    assert {"bias", "absolute error", "CRPS", "coverage (90 %)", "PIT"} <= set(found.shifted)
    assert "Predictions are too low: retrain the model" in found.verdict
    assert "recalibrate on current rows" in found.verdict
    assert json.loads(json.dumps(found.to_dict()))["expected_accuracy"] is None
    assert "estimated accuracy" not in str(found)


def test_a_regression_without_targets_has_its_outputs_tested() -> None:
    (y, a), (_, b) = regression(300, seed=1), regression(300, seed=2)
    wide = Normal(b.mean, 2 * b.std)
    found = detect_drift(a, wide, y_reference=y)
    assert found.shifted == ("interval width",)
    assert "Intervals are wider" in found.verdict
    assert "Find targets" in found.verdict
    features = np.random.default_rng(0).normal(size=(300, 2))
    away = detect_drift(a, b, reference_features=features, current_features=features + 5)
    assert away.shifted == ("OOD inputs",)


@pytest.mark.parametrize("kind", ["quantiles", "samples", "one quantile"])
def test_every_kind_of_regression_is_tested_for_drift(kind: str) -> None:
    (y, a), (z, b) = regression(200, seed=1), regression(200, bias=1, seed=2)
    made: list[Any] = []
    for one in (a, b):
        array = one.mean[:, None] + one.std[:, None] * stats.norm.ppf([0.05, 0.5, 0.95])
        if kind == "one quantile":
            made.append(Quantiles(array[:, 1:2], [0.5]))
        else:
            made.append(
                Samples(array) if kind == "samples" else Quantiles(array, [0.05, 0.5, 0.95])
            )
    found = detect_drift(*made, y_reference=y, y_current=z)
    assert "bias" in found.shifted
    assert ("interval width" in found.shifts) == (kind != "one quantile")


@pytest.mark.slow
def test_stable_regressions_seldom_raise_an_alarm() -> None:
    alarms = 0
    for seed in range(60):
        (y, a), (z, b) = regression(600, seed=2 * seed), regression(600, seed=2 * seed + 1)
        alarms += detect_drift(a, b, y_reference=y, y_current=z).has_drifted
    assert alarms <= 7  # of 3 expected at most


BETWEEN = Interval(-0.05, -0.06, -0.04)
KNOWN = ("confidence", "predicted classes", "entropy", "energy")
LABELED = ("accuracy", "gap", "log loss", "labels")
PRIOR = PriorEstimate(
    prior=np.array([0.6, 0.4]),
    low=np.array([0.55, 0.35]),
    high=np.array([0.65, 0.45]),
    is_identified=np.array([True, False]),
    classes=("cat", "dog"),
    level=0.95,
    method="em",
    n_rows=100,
)


def drift_of(*shifted: str, others: tuple[str, ...] = KNOWN, **known: Any) -> Drift:
    shifts = {
        name: DistributionShift(0.001, 0.125, 0.9, 0.85, BETWEEN, True)
        if name in shifted
        else DistributionShift(0.5, 0.125, 0.9, 0.85, BETWEEN)
        for name in dict.fromkeys([*others, *shifted])
    }
    settings: dict[str, Any] = {
        "n_reference": 1000,
        "n_current": 200,
        "level": 0.95,
        "shifts": shifts,
        "wasserstein": 0.1,
        "expected_accuracy": 0.85,
        "thresholded_accuracy": None,
        "prior": None,
        "reference_prior": None,
        "classes": None,
    }
    return Drift(**{**settings, **known})


CONFIDENCES = "mean 90.0 %, now 85.0 %"
ALL = (*KNOWN, *LABELED)
VERDICTS = [
    (drift_of(), "No sign of drift between 1,000 and 200 rows."),
    (drift_of("confidence", n_current=19), "Too few rows to detect drift (1,000 and 19 rows)."),
    (
        drift_of("confidence", "energy"),
        f"Confidence shifted ({CONFIDENCES}), but not the predicted classes: label some "
        "current rows and check calibration.",
    ),
    (
        drift_of("confidence", others=("confidence",)),
        f"Confidence shifted ({CONFIDENCES}): label some current rows and check calibration.",
    ),
    (
        drift_of("energy"),
        "The energy of the logits shifted, but the confidence did not "
        f"({CONFIDENCES}): inspect the inputs.",
    ),
    (
        drift_of("predicted classes"),
        "The class priors shifted, according to the predictions: use adjust_prior, if the "
        "inputs of each class are still the same.",
    ),
    (
        drift_of(
            "predicted classes",
            "confidence",
            prior=PRIOR,
            reference_prior=np.array([0.3, 0.7]),
            classes=("cat", "dog"),
        ),
        "The class priors shifted, according to the predictions (class cat from 30.0 % to about "
        "60.0 %, 55.0 % to 65.0 %): use adjust_prior, if the inputs of each class are still the "
        "same. Confidence shifted too "
        f"({CONFIDENCES}), perhaps due to the new priors: test again afterwards.",
    ),
    (
        drift_of("OOD inputs", "predicted classes", "entropy"),
        "Inputs are out of distribution: 85.0 % are beyond the distance that 90 % of reference "
        "rows exceed. Inspect them first. The class priors shifted, according to the predictions: "
        "use adjust_prior, if the inputs of each class are still the same. Confidence shifted too "
        f"({CONFIDENCES}), perhaps due to the OOD inputs: test again afterwards.",
    ),
    (
        drift_of("labels", others=ALL),
        "The class priors shifted, according to the labels (distance 0.125): use adjust_prior.",
    ),
    (
        drift_of("predicted classes", others=ALL),
        "The predicted classes shifted, but the labels did not: retrain the model.",
    ),
    (
        drift_of("confidence", others=ALL),
        f"Confidence shifted ({CONFIDENCES}); no significant change in calibration on the labeled "
        "rows.",
    ),
    (
        drift_of("accuracy", others=ALL),
        "Accuracy fell from 90.0 % to 85.0 %. The outputs did not shift: the meaning of the labels "
        "may have changed. Retrain.",
    ),
    (drift_of("log loss", others=ALL), "Log loss went from 0.9000 to 0.8500."),
    (
        drift_of("confidence", "gap", "accuracy", others=ALL),
        f"Confidence shifted ({CONFIDENCES}). Accuracy fell from 90.0 % to 85.0 %. Confidence - "
        "accuracy went from +90.0 to +85.0 points: calibration improved.",
    ),
]


def gap_shift(reference: float, current: float) -> DistributionShift:
    change = current - reference
    interval = Interval(change, change - 0.01, change + 0.01)
    return DistributionShift(0.001, None, reference, current, interval, True)


@pytest.mark.parametrize(
    ("reference", "current", "advice"),
    [
        (0.136, 0.001, "from +13.6 to +0.1 points: calibration improved."),
        (0.136, -0.02, "from +13.6 to -2.0 points: calibration improved."),
        (-0.2, -0.1, "from -20.0 to -10.0 points: calibration improved."),
        (0.05, -0.049, "from +5.0 to -4.9 points: recalibrate on current rows."),
        (0.01, 0.1, "from +1.0 to +10.0 points: recalibrate on current rows."),
        (0.0, -0.1, "from +0.0 to -10.0 points: recalibrate on current rows."),
    ],
)
def test_the_advice_follows_the_direction(reference: float, current: float, advice: str) -> None:
    found = drift_of(others=ALL)
    shifts = found.shifts | {"gap": gap_shift(reference, current)}
    assert replace(found, shifts=shifts).verdict.endswith(advice)


def test_a_higher_accuracy_is_no_reason_to_retrain() -> None:
    found = drift_of(others=ALL)
    better = gap_shift(0.7, 0.8)
    alone = replace(found, shifts=found.shifts | {"accuracy": better})
    assert alone.verdict == "Accuracy rose from 70.0 % to 80.0 %."
    both = {"accuracy": better, "predicted classes": gap_shift(0.0, 0.1)}
    assert replace(found, shifts=found.shifts | both).verdict == (
        "The predicted classes shifted, but the labels did not. Accuracy rose from 70.0 % to "
        "80.0 %."
    )


@pytest.mark.parametrize(("found", "text"), VERDICTS)
def test_the_verdict_names_shifts_and_what_to_do(found: Drift, text: str) -> None:
    assert found.verdict == text


def test_a_prior_that_is_not_identified_is_not_named() -> None:
    found = drift_of(
        "predicted classes", prior=PRIOR, reference_prior=np.array([0.6, 0.4]), classes=None
    )
    assert (
        found.verdict
        == "The class priors shifted, according to the predictions: use adjust_prior, "
        "if the inputs of each class are still the same."
    )


def test_the_text_is_a_table() -> None:
    found = drift_of(
        "confidence",
        others=("confidence", "labels"),
        thresholded_accuracy=Interval(0.8, 0.75, 0.85),
        prior=PRIOR,
        reference_prior=np.array([0.5, 0.5]),
        classes=("cat", "dog"),
    )
    found.shifts["ECE (15 uniform bins)"] = DistributionShift(None, None, 0.01, 0.02, BETWEEN)
    found.shifts["OOD inputs"] = DistributionShift(1e-9, None, 0.05, 0.3)
    n_lines = len(wrap(found.verdict, 80))
    assert str(found).splitlines()[n_lines:] == [
        "",
        "1,000 reference rows, 200 current rows. * significant after Holm correction for",
        "3 tests (family-wise error rate 5 %). dist.: Kolmogorov-Smirnov distance, for",
        "classes total variation.",
        "",
        "                        reference  current  change (95 %)        dist.       p",
        "  confidence               0.9000   0.8500  -0.0600 to -0.0400   0.125  0.0010 *",
        "  labels                   0.9000   0.8500  -0.0600 to -0.0400   0.125  0.5000",
        "  ECE (15 uniform bins)    0.0100   0.0200  -0.0600 to -0.0400",
        "  OOD inputs               0.0500   0.3000                             <0.0001",
        "",
        "  estimated accuracy (mean confidence)                85.0 %",
        "  estimated accuracy (average thresholded confidence) 80.0 % (75.0 % to 85.0 %)",
        "",
        "  class                 reference  current  (estimated by EM)",
        "  cat                      50.0 %   60.0 %  55.0 % to 65.0 %",
        "  dog                      50.0 %   40.0 %  not identified",
    ]
    assert max(map(len, str(found).splitlines())) <= 80

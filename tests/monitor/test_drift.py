"""Nothing is said to have moved by chance, and what moved is found and named."""

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dubito import Logits, TopLabel
from dubito.data import ArrayShards, Batch
from dubito.decide import estimate_prior
from dubito.errors import MissingLabelsWarning
from dubito.measure import expected_calibration_error, log_loss
from dubito.monitor import Drift, detect_drift, shifts

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


def between(before: Rows, after: Rows, scale: float = 1.0, labels: bool = False) -> Drift:
    known: dict[str, Any] = {"y_reference": before[0], "y_current": after[0]} if labels else {}
    return detect_drift(
        Logits(before[2]),
        Logits(scale * after[2]),
        reference_features=before[1],
        current_features=after[1],
        n_resamples=40,
        **known,
    )


@pytest.mark.parametrize("labels", [False, True])
def test_alarms_are_seldom_false(labels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shifts, "N_PERMUTATIONS", 199)
    n_runs = 40
    n_alarms = sum(
        between(made(2 * seed, 200), made(2 * seed + 1, 150), labels=labels).has_drifted
        for seed in range(n_runs)
    )
    assert n_alarms <= n_runs * 0.05 + 2 * np.sqrt(n_runs * 0.05 * 0.95)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("labels", [False, True])
def test_logits_that_were_scaled_ask_for_calibration(seed: int, labels: bool) -> None:
    found = between(made(seed, 600), made(seed + 100, 600), scale=2.0, labels=labels)
    assert {"confidence", "entropy", "energy"} <= set(found.moved)
    assert "predicted classes" not in found.moved
    assert "strange inputs" not in found.moved
    assert "recalibrate" in found.verdict
    assert "adjust_prior" not in found.verdict
    assert ("over-confidence" in found.moved) is labels


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("labels", [False, True])
def test_a_prior_that_moved_is_estimated(seed: int, labels: bool) -> None:
    prior = np.array([0.65, 0.2, 0.15])
    found = between(made(seed, 800), made(seed + 100, 800, prior), labels=labels)
    assert "predicted classes" in found.moved
    assert ("labels" in found.moved) is labels
    assert "strange inputs" not in found.moved
    assert "The prior moved" in found.verdict
    assert "adjust_prior" in found.verdict
    assert found.prior is not None
    assert found.prior.method == ("bbse" if labels else "em")
    np.testing.assert_allclose(found.prior.prior, prior, atol=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_inputs_that_were_shifted_are_strange(seed: int) -> None:
    found = between(made(seed, 600), made(seed + 100, 600, shift=1.5), labels=True)
    assert {"strange inputs", "accuracy", "log loss"} <= set(found.moved)
    assert found.verdict.startswith("Inputs are strange: ")
    strange = found.shifts["strange inputs"]
    assert strange.reference == 0.05
    assert strange.current is not None
    assert strange.current > 0.15


def test_labels_that_change_their_meaning_are_found_by_accuracy_alone() -> None:
    before, after = made(0, 800), made(1, 800)
    rng = np.random.default_rng(2)
    wrong = np.where(rng.random(800) < 0.3, rng.permutation(after[0]), after[0])
    found = between(before, (wrong, *after[1:]), labels=True)
    assert {"accuracy", "over-confidence", "log loss"} == set(found.moved)
    assert "recalibrate on rows of this period" in found.verdict


def test_figures_are_those_of_both_periods() -> None:
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
    gap = found.shifts["over-confidence"]
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


def test_accuracy_is_expected_above_the_threshold_that_the_reference_tells() -> None:
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


def test_soft_labels_and_classes_that_never_happened_leave_the_prior_to_outputs() -> None:
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
    assert set(detect_drift(top, top).shifts) == {"confidence", "accuracy", "over-confidence", ECE}


def test_an_infinite_log_loss_is_not_compared() -> None:
    p = np.array([[1.0, 0.0], [0.5, 0.5]] * 50)
    found = detect_drift(p, p, y_reference=[1] * 100, y_current=[1] * 100, n_resamples=40)
    assert "log loss" not in found.shifts
    json.dumps(found.to_dict(), allow_nan=False)


def test_few_rows_prove_nothing() -> None:
    found = detect_drift([[0.9, 0.1]] * 19, [[0.1, 0.9]] * 100, n_resamples=40)
    assert not found.has_drifted
    assert detect_drift([[0.9, 0.1]] * 20, [[0.1, 0.9]] * 100, n_resamples=40).has_drifted


def test_shards_and_seeds_give_the_same() -> None:
    before, after = made(0, 300), made(1, 300)
    expected = between(before, after, labels=True).to_dict()
    shards = [ArrayShards(Batch.of(y, Logits(z), features=x)) for y, x, z in (before, after)]
    assert detect_drift(shards[0], shards[1], n_resamples=40).to_dict() == expected


def test_it_goes_through_json() -> None:
    found = between(made(0, 300), made(1, 300), labels=True)
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values["verdict"] == found.verdict
    assert values["moved"] == []
    assert values["shifts"]["accuracy"]["reference"] == found.shifts["accuracy"].reference
    assert set(values["prior"]) == {"prior", "low", "high", "is_identified", "method"}
    bare = detect_drift(TopLabel([0.9] * 30, [1] * 30), TopLabel([0.9] * 30, [1] * 30))
    assert json.loads(json.dumps(bare.to_dict()))["prior"] is None

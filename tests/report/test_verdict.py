"""The verdict of a report."""

import numpy as np
import pytest

from dubito import Logits, Probabilities, TopLabel
from dubito.data import ArrayShards, Batch
from dubito.measure import classwise_calibration_error, risk_coverage_curve
from dubito.report.summary import Summary
from dubito.report.verdict import _fraction_to_review, classifier_verdict, split_verdict


def made(n_rows: int, scale: float) -> Batch:
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(n_rows, 3))
    labels = (logits + rng.gumbel(size=(n_rows, 3))).argmax(axis=1)
    return Batch.of(labels, Logits(scale * logits))


def test_over_confidence_is_reported_with_what_corrects_it() -> None:
    verdict = classifier_verdict(Summary.of(ArrayShards(made(600, 3.0))))
    assert (verdict.headline, verdict.mood) == ("Over-confident.", "bad")
    measured, corrected, review = verdict.sentences
    assert measured.endswith("Measured on 600 rows.")
    assert corrected.startswith("Dividing the logits by 3")
    assert "corrects it; the best calibrator lowers the ECE from" in corrected
    assert review.startswith("Reviewing the ")
    assert review.endswith("most uncertain rows finds half of the errors.")


def test_calibrated_confidence_needs_no_correction() -> None:
    verdict = classifier_verdict(Summary.of(ArrayShards(made(600, 1.0))))
    assert verdict.headline.startswith("No sign of ")
    assert verdict.headline.endswith(" on 600 rows.")
    assert verdict.mood == "good"
    assert len(verdict.sentences) == 2


def test_weak_evidence_is_neither_good_nor_bad() -> None:
    text = "Weak evidence of miscalibration (p = 0.014) on 200 rows: mean confidence 80.0 %."
    headline = "Weak evidence of miscalibration (p = 0.014) on 200 rows."
    assert split_verdict(text) == (headline, "neutral", ("Mean confidence 80.0 %.",))


def test_miscalibrated_classes_are_reported_with_what_corrects_them() -> None:
    rng = np.random.default_rng(0)
    score = rng.beta(2, 2, 2000)
    is_bad = rng.uniform(size=2000) < score**1.5
    outputs = Probabilities(np.stack([1 - score, score], axis=1), ("good", "bad"))
    truth = np.where(is_bad, "bad", "good")
    summary = Summary.of(ArrayShards(Batch.of(truth, outputs)))
    verdict = classifier_verdict(summary)
    assert verdict.mood == "bad"
    measured, corrected, _ = verdict.sentences
    for fraction in (score.mean(), is_bad.mean()):
        assert f"{fraction * 100:.1f} %" in measured
    was = classwise_calibration_error(truth, outputs) * 100
    assert f"lowers the classwise calibration error from {was:.1f} to" in corrected


def test_few_rows_have_no_further_sentences() -> None:
    verdict = classifier_verdict(Summary.of(ArrayShards(made(8, 1.0))))
    assert verdict.headline.startswith("Too few rows")
    assert (len(verdict.sentences), verdict.mood) == (1, "neutral")


def test_top_labels_have_no_temperature_and_uncertainty_may_be_useless() -> None:
    rng = np.random.default_rng(0)
    outputs = TopLabel(rng.uniform(0.8, 1.0, 300), rng.uniform(size=300) < 0.5)
    _, corrected, review = classifier_verdict(
        Summary.of(ArrayShards(Batch.of(None, outputs)))
    ).sentences
    assert corrected.startswith("Calibration lowers the ECE from 4")
    assert review.startswith("Uncertainty hardly finds the errors: ")


def test_without_errors_a_review_finds_nothing() -> None:
    logits = 5 * np.eye(2)[[0, 1] * 20]
    verdict = classifier_verdict(Summary.of(ArrayShards(Batch.of([0, 1] * 20, Logits(logits)))))
    assert verdict.sentences[-1].startswith("No row is wrong")


@pytest.mark.parametrize("seed", range(5))
def test_half_of_the_errors_are_in_that_fraction(seed: int) -> None:
    rng = np.random.default_rng(seed)
    confidence = rng.integers(50, 100, 60) / 100
    correct = rng.uniform(size=60) < confidence
    found = _fraction_to_review(risk_coverage_curve(None, TopLabel(confidence, correct)))
    fractions = []
    for threshold in [0.0, *np.unique(confidence)]:
        is_sent = confidence <= threshold
        if (~correct & is_sent).sum() >= (~correct).sum() / 2:
            fractions.append(is_sent.mean())
    assert found == pytest.approx(min(fractions))

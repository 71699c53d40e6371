"""The verdict in words."""

import numpy as np
import pytest

from dubito import Logits, Probabilities, TopLabel
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards
from dubito.measure import classwise_calibration_error, risk_coverage_curve
from dubito.report.summary import Summary
from dubito.report.verdict import _share_to_halve, verdict_on


def made(n_rows: int, scale: float) -> Batch:
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(n_rows, 3))
    labels = (logits + rng.gumbel(size=(n_rows, 3))).argmax(axis=1)
    return Batch.of(labels, Logits(scale * logits))


def test_false_confidence_is_told_with_what_mends_it() -> None:
    verdict = verdict_on(Summary.of(ArrayShards(made(600, 3.0))))
    assert (verdict.headline, verdict.mood) == ("Over-confident.", "bad")
    said, mends, review = verdict.sentences
    assert said.startswith("It says 9")
    assert said.endswith("Measured on 600 rows.")
    assert mends.startswith("Dividing logits by 3")
    assert "mends it; the best calibrator found brings the calibration error from" in mends
    assert review.startswith("Sending the ")
    assert review.endswith("most doubtful rows to a person halves the errors.")


def test_true_confidence_needs_no_mending() -> None:
    verdict = verdict_on(Summary.of(ArrayShards(made(600, 1.0))))
    assert verdict.headline == "No sign of false confidence on 600 rows."
    assert verdict.mood == "good"
    assert len(verdict.sentences) == 2


def test_classes_that_are_said_wrongly_are_told_with_what_mends_them() -> None:
    rng = np.random.default_rng(0)
    score = rng.beta(2, 2, 2000)
    is_bad = rng.uniform(size=2000) < score**1.5
    outputs = Probabilities(np.stack([1 - score, score], axis=1), ("good", "bad"))
    truth = np.where(is_bad, "bad", "good")
    summary = Summary.of(ArrayShards(Batch.of(truth, outputs)))
    verdict = verdict_on(summary)
    assert (verdict.headline, verdict.mood) == ("Wrong by class.", "bad")
    said, mends, _ = verdict.sentences
    assert f"calls {score.mean() * 100:.1f}\u00a0% 'bad' where {is_bad.mean() * 100:.1f}" in said
    was = classwise_calibration_error(truth, outputs) * 100
    assert f"error by class from {was:.1f} to" in mends


def test_few_rows_tell_nothing_more() -> None:
    verdict = verdict_on(Summary.of(ArrayShards(made(8, 1.0))))
    assert verdict.headline == "Too few rows to tell (8 rows)."
    assert (len(verdict.sentences), verdict.mood) == (1, "neutral")


def test_top_labels_have_no_temperature_and_doubt_may_be_of_no_use() -> None:
    rng = np.random.default_rng(0)
    outputs = TopLabel(rng.uniform(0.8, 1.0, 300), rng.uniform(size=300) < 0.5)
    _, mends, review = verdict_on(Summary.of(ArrayShards(Batch.of(None, outputs)))).sentences
    assert mends.startswith("Calibration brings the calibration error from 4")
    assert review.startswith("Doubt hardly finds the errors: to halve them, ")


def test_where_no_row_is_wrong_nobody_needs_to_look() -> None:
    logits = 5 * np.eye(2)[[0, 1] * 20]
    verdict = verdict_on(Summary.of(ArrayShards(Batch.of([0, 1] * 20, Logits(logits)))))
    assert verdict.sentences[-1].startswith("No row is wrong")


@pytest.mark.parametrize("seed", range(5))
def test_half_of_the_errors_are_in_that_share(seed: int) -> None:
    rng = np.random.default_rng(seed)
    confidence = rng.integers(50, 100, 60) / 100
    correct = rng.uniform(size=60) < confidence
    found = _share_to_halve(risk_coverage_curve(None, TopLabel(confidence, correct)))
    shares = []
    for threshold in [0.0, *np.unique(confidence)]:
        is_sent = confidence <= threshold
        if (~correct & is_sent).sum() >= (~correct).sum() / 2:
            shares.append(is_sent.mean())
    assert found == pytest.approx(min(shares))

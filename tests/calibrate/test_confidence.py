"""Scores of any range to P(correct): what is promised for few rows, groups and odd values."""

import json
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy.special import expit, logit

from dubito import ConfidenceCalibrator, CostMatrix, Policy, Scores, TopLabel
from dubito.calibrate import cross_validate_calibrator
from dubito.decide import RiskBound
from dubito.errors import (
    BadTypeError,
    BadValueError,
    DubitoWarning,
    MissingLabelsWarning,
    SingleClassWarning,
)
from dubito.measure import expected_calibration_error

Floats = NDArray[np.float64]


def made(n_rows: int, seed: int = 0) -> tuple[Floats, NDArray[np.bool_]]:
    """Return over-confident probabilities, of which some are exactly 1, and who is correct."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(1, 1.5, n_rows)
    p = expit(2 * odds + 0.5)
    return np.where(p > 0.99, 1.0, p), rng.random(n_rows) < expit(odds)


def test_exact_0_and_1_and_any_range_are_finite_and_monotone() -> None:
    p, correct = made(200)
    found = ConfidenceCalibrator().fit(p, correct)
    grid = found.predict_proba([0.0, 0.3, 0.6, 0.9, 1.0])
    close(grid.sum(axis=1), 1)
    assert (np.diff(grid[:, 1]) > 0).all()
    assert 0.01 < grid[0, 1] < grid[-1, 1] < 0.999
    scaled = ConfidenceCalibrator().fit(-50 + 1e-3 * logit(np.clip(p, 1e-3, 0.999)), correct)
    assert scaled.predict_proba([-50.01, -49.99])[:, 1].round(2).tolist()[0] < 0.5
    assert found.classes_ == ("wrong", "correct")


def test_top_labels_arrays_and_scores_agree() -> None:
    p, correct = made(120)
    expected = ConfidenceCalibrator().fit(p, correct).predict_proba(p)
    for fitted in (
        ConfidenceCalibrator().fit(TopLabel(p, correct)),
        ConfidenceCalibrator().fit(Scores(p, confidence=0), correct.astype(float)),
        ConfidenceCalibrator().fit({"c": p}, np.where(correct, "correct", "wrong")),
    ):
        close(fitted.predict_proba(p), expected)


def test_columns_are_matched_by_name_and_missing_scores_are_handled() -> None:
    p, correct = made(300)
    rng = np.random.default_rng(1)
    judge = np.where(rng.random(300) < 0.2, np.nan, correct + rng.normal(0, 1, 300))
    found = ConfidenceCalibrator().fit({"c": p, "judge": judge}, correct)
    given = found.predict_proba({"judge": judge, "other": p, "c": p})
    close(given, found.predict_proba(np.column_stack([p, judge])))
    with pytest.raises(BadValueError, match="no 'judge'"):
        found.predict_proba({"c": p})
    with pytest.raises(
        BadValueError, match=r"scores\['c'\].*never missing during fit, got nan in row 0"
    ):
        found.predict_proba({"c": [np.nan], "judge": [1.0]})
    with pytest.raises(BadValueError, match="between 0 and 1"):
        found.predict_proba({"c": [80.0], "judge": [1.0]})


def test_bad_input_names_the_remedy() -> None:
    p, correct = made(20)
    with pytest.raises(BadValueError, match="infinite"):
        Scores([0.5, -np.inf])
    with pytest.raises(BadTypeError, match="Scores"):
        ConfidenceCalibrator().fit(TopLabel(p, correct), groups=object())
    with pytest.warns(MissingLabelsWarning):
        ConfidenceCalibrator().fit(p, [None, *correct[1:].astype(float)])


@pytest.mark.slow
def test_a_blank_or_a_percentage_in_one_row_does_not_break_cross_fitting() -> None:
    p, correct = made(40)
    judge = np.where(np.arange(40) == 3, np.nan, p)
    rare = np.where(np.arange(40) == 5, 2.0, np.nan)
    table = {"c": p, "judge": judge, "rare": rare, "odd": np.where(np.arange(40) == 7, 4, p)}
    assert cross_validate_calibrator(ConfidenceCalibrator(), table, correct).n_rows == 40


def test_one_row_is_fitted_and_not_evaluated() -> None:
    found = ConfidenceCalibrator().fit([0.5], [1])
    assert 0.5 < found.predict_proba([0.5])[0, 1] < 0.8
    with pytest.raises(BadValueError, match="`correct` must label at least 2 rows"):
        cross_validate_calibrator(ConfidenceCalibrator(), [0.5], [1])


def test_messages_name_correct_which_is_given_once() -> None:
    p, correct = made(20)
    with pytest.raises(BadTypeError, match="`correct` must hold"):
        ConfidenceCalibrator().fit(p)
    with pytest.raises(BadValueError, match="`correct`"):
        ConfidenceCalibrator().fit(p, correct[:10])
    with pytest.raises(BadTypeError, match="`correct` must be None when `outputs` is a TopLabel"):
        ConfidenceCalibrator().fit(TopLabel(p, correct), ~correct, groups=["a", "b"] * 10)
    with pytest.raises(BadTypeError, match="must be None when `outputs` is a TopLabel"):
        Policy.fit(TopLabel(p, correct), ~correct, costs=CostMatrix.for_answers().with_reject(0.3))
    top = ConfidenceCalibrator().fit(TopLabel(p, correct), groups=["a", "b"] * 10)
    assert top.groups_ == ("a", "b")


def test_rows_without_a_group_are_of_none() -> None:
    p, correct = made(60)
    groups = np.array(["a", None, float("nan")] * 20, dtype=object)
    found = ConfidenceCalibrator().fit(p, correct, groups=groups)
    assert found.groups_ == ("a",)
    close(found.predict_proba([0.7], ["new"]), found.predict_proba([0.7], [None]))


@pytest.mark.slow
def test_intervals_of_small_and_new_groups_cover_p_correct() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b", "c", "d"], [80, 40, 15, 5])
    covered = []
    for _ in range(20):
        effects = dict(zip(["a", "b", "c", "d", "new"], rng.normal(0, 1, 5), strict=True))
        s, grid = rng.normal(size=140), np.linspace(-1.5, 1.5, 7)
        correct = rng.random(140) < expit(1.2 * s + [effects[one] for one in groups])
        found = ConfidenceCalibrator().fit(s, correct, groups=groups)
        for one in ("c", "d", "new"):
            low, high = found.predict_interval(grid, [one] * 7).T
            p = expit(1.2 * grid + effects[one])
            covered.append(((low <= p) & (p <= high)).mean())
    assert np.mean(covered) > 0.9  # a point estimate of the variance gives 0.8


def test_it_survives_json_and_one_outcome() -> None:
    p, _ = made(30)
    with pytest.warns(SingleClassWarning, match="all 30 labeled rows are of one class, 'correct'"):
        found = ConfidenceCalibrator().fit(p, np.ones(30), groups=["a", "b"] * 15)
    again = ConfidenceCalibrator.from_dict(json.loads(json.dumps(found.to_dict())))
    close(again.predict_proba(p, ["a", "new"] * 15), found.predict_proba(p, ["a", "new"] * 15))
    assert 0.8 < found.predict_proba(p)[:, 1].min() < 1


def test_evidence_is_out_of_sample() -> None:
    p, correct = made(400)
    evidence = cross_validate_calibrator(ConfidenceCalibrator(), TopLabel(p, correct))
    floored = np.clip(p, 1e-12, 1 - 1e-12)
    close(
        evidence.log_loss_before, -np.log(np.where(correct, floored, 1 - floored)).mean(), rtol=1e-5
    )
    assert evidence.log_loss_after < evidence.log_loss_before
    # A score that is no probability is compared with the base rate.
    plain = cross_validate_calibrator(ConfidenceCalibrator(), p * 7, correct)
    rate = correct.mean()
    close(plain.log_loss_before, -rate * np.log(rate) - (1 - rate) * np.log(1 - rate))


def test_metrics_of_answers_are_those_of_p_correct() -> None:
    p, correct = made(60)
    found = cross_validate_calibrator(ConfidenceCalibrator(), Scores(p, confidence=0), correct)
    assert found.brier_before == pytest.approx(np.mean((p - correct) ** 2))
    top = TopLabel(p, correct)
    assert found.ece_before == pytest.approx(expected_calibration_error(top))
    found = cross_validate_calibrator(ConfidenceCalibrator(), p, correct)
    assert found.ece_before is None
    assert "ECE (15 uniform bins) 0." in str(found)


def test_useless_scores_are_called_estimated() -> None:
    rng = np.random.default_rng(3)
    scores, correct = rng.normal(size=40), rng.random(40) < 0.5
    costs = CostMatrix.for_answers().with_reject(0.3)
    text = str(Policy.fit(Scores(scores), correct, costs=costs))
    assert "By estimated P(correct)" in text
    assert "calibrated P" not in text
    assert "not better out of sample than the base rate: collect more rows." in text
    assert "uncalibrated outputs" not in text


def test_a_policy_rejects_answers_by_cost_and_by_risk() -> None:
    p, correct = made(600)
    p = np.minimum(p, 0.999)  # the log loss of an exact 1 that is wrong would be infinite
    costs = CostMatrix.for_answers().with_reject(0.2)
    policy = Policy.fit(TopLabel(p, correct), costs=costs)
    decided = policy.decide(Scores(p, confidence=0))
    calibrated = policy.predict_proba(p)[:, 1]
    assert np.array_equal(decided.is_rejected, 1 - calibrated >= 0.2)
    close(decided.review_value[decided.is_rejected], (1 - calibrated)[decided.is_rejected])
    assert policy.report.current == "answering every row"
    bound = Policy.fit(TopLabel(p, correct), costs=costs, risk=RiskBound(0.15))
    answered = ~bound.decide(p).is_rejected
    assert 0 < answered.sum() < (~decided.is_rejected).sum() + 1
    assert 1 - correct[answered].mean() < 0.15


@pytest.mark.slow
def test_a_policy_takes_several_scores_and_groups() -> None:
    p, correct = made(200)
    rng = np.random.default_rng(3)
    groups = rng.choice(["law", "math"], 200)
    scores = Scores({"c": p * 100, "judge": correct + rng.normal(0, 1, 200)}, groups=groups)
    policy = Policy.fit(scores, correct, costs=CostMatrix.for_answers().with_reject(0.2))
    again = Policy.from_dict(json.loads(json.dumps(policy.to_dict())))
    assert np.array_equal(again.decide(scores).action, policy.decide(scores).action)
    # No score is a probability: the report compares with the base rate, and explains no raw one.
    rate = correct.mean()
    assert policy.report.log_loss_before is not None
    close(policy.report.log_loss_before, -rate * np.log(rate) - (1 - rate) * np.log(1 - rate))
    assert "calibrated P(correct)" in policy.explain(scores, row=1)
    assert "The model predicts" not in policy.explain(scores, row=1)


def test_fractions_where_percentages_were_fitted_are_warned_about() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(200)
    found = ConfidenceCalibrator().fit({"verbal": np.round(100 * p)}, rng.random(200) < p)
    with pytest.warns(DubitoWarning, match=r"`scores\['verbal'\]` is between 0 and 1 .* by 100"):
        found.predict_proba({"verbal": [0.2, 0.9]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.predict_proba({"verbal": [0.0, 1.0]})
        found.predict_proba({"verbal": [20.0, 90.0]})

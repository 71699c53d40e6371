"""The study of credit costs: its intervals, its choice, its words and its tables."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from dubito.calibrate import CalibratedClassifier, PlattScaling
from studies import credit_costs as study


def made(n_rows: int = 240, seed: int = 0) -> study.Table:
    features, y = make_classification(
        n_rows, 6, weights=[0.7], class_sep=0.5, random_state=seed, flip_y=0.1
    )
    return features, y.astype(np.int64)


def test_costs_of_a_split_are_those_of_the_errors_by_hand() -> None:
    features, y = made()
    model = LogisticRegression()
    costs = study.costs_of_methods(model, PlattScaling(), (features, y), n_splits=1)
    for number, (fit, rest) in enumerate(study.splits((features, y), 1)):
        raw = model.fit(features[fit], y[fit]).predict_proba(features[rest])[:, 1]
        true_logits = CalibratedClassifier(LogisticRegression(), PlattScaling(), cv=5)
        after = true_logits.fit(features[fit], y[fit]).predict_proba(features[rest])[:, 1]
        is_bad = y[rest] == 1
        taken = {"most probable class": raw > 0.5, "expected cost, raw": raw > 1 / 6}
        taken |= {"calibrated (dubito)": after > 1 / 6}
        for way, is_refused in taken.items():
            expected = 5 * (is_bad & ~is_refused).mean() + (~is_bad & is_refused).mean()
            assert costs[way][number] == pytest.approx(expected)


def test_the_interval_is_students_where_no_rows_are_shared_and_wider_where_they_are() -> None:
    values = np.random.default_rng(0).normal(size=20)
    plain = study.corrected_interval(values, 0.0)
    expected = stats.t.interval(0.95, 19, values.mean(), stats.sem(values))
    assert (plain.low, plain.high) == pytest.approx(expected)
    shared = study.corrected_interval(values, 3 / 7)
    factor = np.sqrt(1 + 20 * 3 / 7)
    assert shared.high - shared.low == pytest.approx(factor * (plain.high - plain.low))


def test_the_choice_is_the_calibrator_of_least_relative_cost() -> None:
    names = list(study.CALIBRATORS)
    first = {name: np.array([1.0 + k, 1.0 + k]) for k, name in enumerate(names)}
    second = {name: np.array([200.0, 200.0]) for name in names} | {names[1]: np.array([100.0] * 2)}
    # The first costs 1 and 2 times the best, the second 2 and 1 times, others more.
    assert study.chosen({"a": first}) == names[0]
    assert study.chosen({"a": first, "b": second, "c": second}) == names[1]


def test_a_loss_beyond_what_is_allowed_is_said() -> None:
    costs = {"tuned threshold": np.array([0.5, 0.6, 0.55]), "most probable class": np.ones(3)}
    near = costs | {study.OURS: costs["tuned threshold"] + [0.01, 0.02, 0.015]}
    far = costs | {study.OURS: costs["tuned threshold"] + 0.03}
    text = study.verdict("forest", near)
    assert text.startswith(
        "forest: dubito costs 0.0150 per row above the best of the others (tuned"
    )
    assert "no significant difference), within the allowance of 0.02" in text
    assert "significant), NOT within the allowance of 0.02" in study.verdict("forest", far)


def test_it_prints_and_writes_the_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, file in enumerate((study.FILE, study.OTHER_FILE)):
        features, y = made(seed=seed)
        np.savez(tmp_path / file, X=features, y=y)
    study.main([str(tmp_path), "--quick", "-o", str(tmp_path / "tables.txt")])
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "tables.txt").read_text()
    assert printed.startswith("240 rows, 2 stratified splits, 30% for testing;")
    assert "The calibrator is " in printed
    assert printed.count("significantly different from AutoCalibrator: ") == 4

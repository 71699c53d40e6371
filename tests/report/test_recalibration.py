"""Calibration out of sample: no row is evaluated by a calibrator fitted on it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, special

from dubito import Logits, Members, TopLabel
from dubito.calibrate import TemperatureScaling, VectorScaling
from dubito.calibrate.cross_validation import make_folds
from dubito.data import Batch
from dubito.outputs import Probabilities
from dubito.report.recalibration import _cross_fitted, as_class_problem, recalibrate


def made(n_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = 4 * rng.normal(size=(n_rows, 3))
    return (logits / 3 + rng.gumbel(size=(n_rows, 3))).argmax(axis=1), logits


def best_temperature(y: np.ndarray, logits: np.ndarray) -> float:
    def loss(log_temperature: float) -> float:
        scores = special.log_softmax(logits / np.exp(log_temperature), axis=1)
        return float(-scores[np.arange(y.size), y].mean())

    return float(np.exp(optimize.minimize_scalar(loss, bounds=(-3, 3), options={"xatol": 1e-9}).x))


def test_each_fold_is_scaled_by_the_temperature_of_the_others() -> None:
    y, logits = made(200)
    batch = Batch.of(y, Logits(logits))
    folds = make_folds(batch, 5, 3)
    found = _cross_fitted(TemperatureScaling(), batch, folds)
    for train, test in folds:
        temperature = best_temperature(y[train], logits[train])
        expected = special.softmax(logits[test] / temperature, axis=1)
        np.testing.assert_allclose(found[test], expected, atol=1e-6)


def test_the_label_of_a_row_never_reaches_its_own_probability() -> None:
    y, logits = made(60)
    batch = Batch.of(y, Logits(logits))
    folds = make_folds(batch, 5, 0)
    before = _cross_fitted(VectorScaling(), batch, folds)
    test = folds[0][1]
    changed = y.copy()
    changed[test] = (y[test] + 1) % 3
    after = _cross_fitted(VectorScaling(), Batch.of(changed, Logits(logits)), folds)
    np.testing.assert_array_equal(before[test], after[test])


def test_a_calibrator_fitted_on_other_rows_is_applied() -> None:
    y, logits = made(80)
    other = Batch.of(*(lambda pair: (pair[0], Logits(pair[1])))(made(150, seed=1)))
    found = recalibrate(Batch.of(y, Logits(logits)), other, 0)
    assert found.method.startswith("The calibrator was selected and fitted on 150 other rows")
    assert found.scaled is not None
    temperature = best_temperature(*made(150, seed=1))
    assert found.temperature == pytest.approx(temperature, rel=1e-5)
    assert isinstance(found.scaled.outputs, Probabilities)
    expected = special.softmax(logits / temperature, axis=1)
    np.testing.assert_allclose(found.scaled.outputs.array, expected, atol=1e-6)


def test_a_fitted_calibrator_is_applied() -> None:
    y, logits = made(80)
    fitted = VectorScaling().fit(Logits(made(150, seed=1)[1]), made(150, seed=1)[0])
    found = recalibrate(Batch.of(y, Logits(logits)), fitted, 0)
    assert isinstance(found.batch.outputs, Probabilities)
    expected = fitted.predict_proba(Logits(logits))
    np.testing.assert_allclose(found.batch.outputs.array, expected)
    assert found.temperature == pytest.approx(best_temperature(y, logits), rel=1e-5)
    assert found.method.startswith("A fitted calibrator was supplied")


def test_top_labels_become_wrong_or_right() -> None:
    batch = Batch.of(None, TopLabel([0.9, 0.4], [1.0, 0.25]))
    rows = as_class_problem(batch)
    assert isinstance(rows.outputs, Probabilities)
    np.testing.assert_allclose(rows.outputs.array, [[0.1, 0.9], [0.6, 0.4]])
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, 300)
    rows = Batch.of(None, TopLabel(confidence, rng.uniform(size=300) < confidence**3))
    found = recalibrate(rows, None, 0)
    assert isinstance(found.batch.outputs, TopLabel)
    assert found.temperature is None
    gap = found.batch.outputs.confidence.mean() - found.batch.outputs.correct.mean()
    assert abs(gap) < 0.03 < confidence.mean() - found.batch.outputs.correct.mean()


def test_members_are_averaged_and_groups_are_dropped() -> None:
    y, logits = made(4)
    members = Members.of([Logits(logits), Logits(2 * logits)])
    rows = as_class_problem(replace(Batch.of(y, members), groups=np.array(list("aabb"))))
    assert isinstance(rows.outputs, Probabilities)
    np.testing.assert_allclose(rows.outputs.array, members.mean.array)
    assert rows.groups is None


def test_too_few_rows_stay_uncalibrated() -> None:
    y, logits = made(9)
    batch = Batch.of(y, Logits(logits))
    found = recalibrate(batch, None, 0)
    assert found.batch is batch
    assert found.method == "9 rows are too few to calibrate: the outputs are unchanged."


def test_many_rows_are_cross_fitted_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    y, logits = made(300)
    batch = Batch.of(y, Logits(logits))
    monkeypatch.setattr("dubito.report.recalibration.FOLDS", {300: 2, 0: 5})
    found = recalibrate(batch, None, 3)
    assert "on these 300 rows" in found.method
    assert "fitted twice on half of the rows" in found.method
    assert found.scaled is not None
    for train, test in make_folds(batch, 2, 3):
        expected = special.softmax(logits[test] / best_temperature(y[train], logits[train]), axis=1)
        np.testing.assert_allclose(found.scaled.take(test).outputs.array, expected, atol=1e-6)  # type: ignore[attr-defined]

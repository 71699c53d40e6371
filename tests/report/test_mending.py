"""Calibrated out of sample: no row is judged by what it taught."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, special

from dubito import Logits, Members, TopLabel
from dubito.calibrate import TemperatureScaling, VectorScaling
from dubito.calibrate.cross_validation import folds_of
from dubito.data.batch import Batch
from dubito.outputs import Probabilities
from dubito.report.recalibration import _cross_fitted, as_question, mended


def made(n_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = 4 * rng.normal(size=(n_rows, 3))
    return (logits / 3 + rng.gumbel(size=(n_rows, 3))).argmax(axis=1), logits


def best_temperature(y: np.ndarray, logits: np.ndarray) -> float:
    def loss(log_temperature: float) -> float:
        scores = special.log_softmax(logits / np.exp(log_temperature), axis=1)
        return float(-scores[np.arange(y.size), y].mean())

    return float(np.exp(optimize.minimize_scalar(loss, bounds=(-3, 3), options={"xatol": 1e-9}).x))


def test_each_fold_is_tempered_by_what_the_others_teach() -> None:
    y, logits = made(200)
    batch = Batch.of(y, Logits(logits))
    folds = folds_of(batch, 5, 3)
    found = _cross_fitted(TemperatureScaling(), batch, folds)
    for train, test in folds:
        temperature = best_temperature(y[train], logits[train])
        expected = special.softmax(logits[test] / temperature, axis=1)
        np.testing.assert_allclose(found[test], expected, atol=1e-6)


def test_the_label_of_a_row_never_reaches_its_own_probability() -> None:
    y, logits = made(60)
    batch = Batch.of(y, Logits(logits))
    folds = folds_of(batch, 5, 0)
    before = _cross_fitted(VectorScaling(), batch, folds)
    test = folds[0][1]
    changed = y.copy()
    changed[test] = (y[test] + 1) % 3
    after = _cross_fitted(VectorScaling(), Batch.of(changed, Logits(logits)), folds)
    np.testing.assert_array_equal(before[test], after[test])


def test_what_other_rows_teach_is_used_as_it_is() -> None:
    y, logits = made(80)
    taught = Batch.of(*(lambda pair: (pair[0], Logits(pair[1])))(made(150, seed=1)))
    found = mended(Batch.of(y, Logits(logits)), taught, 0)
    assert found.how.startswith("The calibrator was chosen and fitted on 150 other rows.")
    assert found.tempered is not None
    temperature = best_temperature(*made(150, seed=1))
    assert found.temperature == pytest.approx(temperature, rel=1e-5)
    assert isinstance(found.tempered.outputs, Probabilities)
    expected = special.softmax(logits / temperature, axis=1)
    np.testing.assert_allclose(found.tempered.outputs.array, expected, atol=1e-6)


def test_a_fitted_calibrator_is_used_as_it_is() -> None:
    y, logits = made(80)
    fitted = VectorScaling().fit(Logits(made(150, seed=1)[1]), made(150, seed=1)[0])
    found = mended(Batch.of(y, Logits(logits)), fitted, 0)
    assert isinstance(found.batch.outputs, Probabilities)
    expected = fitted.predict_proba(Logits(logits))
    np.testing.assert_allclose(found.batch.outputs.array, expected)
    assert found.temperature == pytest.approx(best_temperature(y, logits), rel=1e-5)
    assert found.how.startswith("The calibrator was fitted before")


def test_top_labels_are_asked_whether_they_are_right() -> None:
    batch = Batch.of(None, TopLabel([0.9, 0.4], [1.0, 0.25]))
    asked = as_question(batch)
    assert isinstance(asked.outputs, Probabilities)
    np.testing.assert_allclose(asked.outputs.array, [[0.1, 0.9], [0.6, 0.4]])
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, 300)
    rows = Batch.of(None, TopLabel(confidence, rng.uniform(size=300) < confidence**3))
    found = mended(rows, None, 0)
    assert isinstance(found.batch.outputs, TopLabel)
    assert found.temperature is None
    gap = found.batch.outputs.confidence.mean() - found.batch.outputs.correct.mean()
    assert abs(gap) < 0.03 < confidence.mean() - found.batch.outputs.correct.mean()


def test_members_are_asked_together_and_groups_are_no_folds() -> None:
    y, logits = made(4)
    members = Members.of([Logits(logits), Logits(2 * logits)])
    asked = as_question(replace(Batch.of(y, members), groups=np.array(list("aabb"))))
    assert isinstance(asked.outputs, Probabilities)
    np.testing.assert_allclose(asked.outputs.array, members.mean.array)
    assert asked.groups is None


def test_too_few_rows_stay_as_they_came() -> None:
    y, logits = made(9)
    batch = Batch.of(y, Logits(logits))
    found = mended(batch, None, 0)
    assert found.batch is batch
    assert found.how == "9 rows are too few to calibrate by: all is as it came."

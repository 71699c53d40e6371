"""Figures out of sample: folds that cover every row once, and what is held out stays out."""

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import special
from sklearn.model_selection import KFold

from dubito import Logits
from dubito.calibrate import AutoCalibrator, PlattScaling, TemperatureScaling, VectorScaling
from dubito.calibrate import cross_validation as module
from dubito.calibrate.cross_validation import (
    evidence_of,
    folds_of,
    held_out_likelihoods,
    held_out_logits,
)
from dubito.data import Batch
from dubito.data.labels import Labels
from dubito.errors import BadValueError, MissingLabelsWarning
from dubito.measure import log_loss

Floats = NDArray[np.float64]


def made(n_rows: int, n_classes: int = 3) -> tuple[Floats, NDArray[np.int64]]:
    rng = np.random.default_rng(n_classes)
    honest = rng.normal(0, 1.5, (n_rows, n_classes))
    shares = special.softmax(honest, axis=1).cumsum(axis=1)
    y = (shares < rng.random((n_rows, 1))).sum(axis=1)
    return 2 * honest, np.minimum(y, n_classes - 1)


def batch_of(n_rows: int, n_classes: int = 3, **others: Any) -> Batch:
    logits, y = made(n_rows, n_classes)
    return Batch.of(y, Logits(logits), **others)


def codes(batch: Batch) -> NDArray[np.int64]:
    assert isinstance(batch.labels, Labels)
    return np.asarray(batch.labels.codes)


@pytest.mark.parametrize("n_folds", [2, 5, 7])
def test_folds_hold_every_row_out_once(n_folds: int) -> None:
    batch = batch_of(103)
    folds = folds_of(batch, n_folds)
    assert len(folds) == n_folds
    held_out = np.concatenate([test for _, test in folds])
    assert sorted(held_out.tolist()) == list(range(103))
    for train, test in folds:
        assert sorted([*train.tolist(), *test.tolist()]) == list(range(103))


@pytest.mark.parametrize("n_folds", [2, 5])
def test_folds_are_even_but_classes_fall_as_they_may(n_folds: int) -> None:
    """Class frequencies shared by all folds would flatter whatever fits frequencies."""
    batch = batch_of(200, 4)
    folds = [test for _, test in folds_of(batch, n_folds)]
    assert np.ptp([test.size for test in folds]) <= 1
    counts = [np.bincount(codes(batch)[test], minlength=4) for test in folds]
    assert (np.ptp(counts, axis=0) > 1).any()


def test_a_seed_fixes_the_folds() -> None:
    batch = batch_of(60)
    first, same, other = (folds_of(batch, 5, seed=seed) for seed in (0, 0, 1))
    assert [test.tolist() for _, test in first] == [test.tolist() for _, test in same]
    assert [test.tolist() for _, test in first] != [test.tolist() for _, test in other]


def test_groups_stay_whole() -> None:
    groups = np.arange(120) // 6
    folds = folds_of(batch_of(120, groups=groups), 4)
    assert sum(len(test) for _, test in folds) == 120
    for train, test in folds:
        assert not set(groups[train]) & set(groups[test])


def test_a_splitter_of_scikit_learn_is_taken_as_it_is() -> None:
    splits = folds_of(batch_of(30), KFold(3))
    assert [test.tolist() for _, test in splits] == np.arange(30).reshape(3, 10).tolist()


def test_label_probabilities_count_as_their_most_probable_class() -> None:
    logits, y = made(60)
    soft = 0.8 * np.eye(3)[y] + 0.2 / 3
    plain = folds_of(Batch.of(y, Logits(logits)), 3)
    softly = folds_of(Batch.of(soft, Logits(logits)), 3)
    assert [test.tolist() for _, test in plain] == [test.tolist() for _, test in softly]


@pytest.mark.parametrize("cv", [1, 0, 31])
def test_an_impossible_number_of_folds_is_refused(cv: int) -> None:
    with pytest.raises(BadValueError) as caught:
        folds_of(batch_of(30), cv)
    assert str(caught.value) == (
        "`cv` of AutoCalibrator must be a number of folds from 2 to the 30 rows. "
        f"Got {cv}. Try cv=5."
    )


def test_held_out_rows_are_not_fitted() -> None:
    weight = np.random.default_rng(0).random(90)
    batch = batch_of(90, sample_weight=weight)
    logits, y = made(90)
    folds = folds_of(batch, 3)
    likelihoods, weights, fold_of, row_of = held_out_likelihoods(VectorScaling(), batch, folds)
    expected = []
    for train, test in folds:
        fitted = VectorScaling().fit(Logits(logits[train]), y[train], weight[train])
        expected.append(fitted.predict_proba(Logits(logits[test]))[np.arange(len(test)), y[test]])
    close(likelihoods, np.concatenate(expected), rtol=1e-12)
    close(weights, weight[np.concatenate([test for _, test in folds])])
    assert fold_of.tolist() == np.repeat([0, 1, 2], 30).tolist()
    assert row_of.tolist() == np.concatenate([test for _, test in folds]).tolist()


def test_warnings_of_single_folds_are_not_passed_on() -> None:
    y = np.arange(20) % 2
    # Two rows are wrong, both in one fold: without it, the rest is separable.
    logits = np.stack([1 - y, y], axis=1) * 0.01
    logits[:2] = 0.01 - logits[:2]
    batch = Batch.of(y, Logits(logits))
    rows = np.arange(20)
    folds = [(rows[2:], rows[:2]), (rows[:10], rows[10:])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        likelihoods, *_ = held_out_likelihoods(TemperatureScaling(), batch, folds)
    assert likelihoods[:2].max() < 1e-3 < likelihoods[2:].min()


def test_the_evidence_is_the_loss_before_and_out_of_sample() -> None:
    logits, y = made(200)
    scaling = TemperatureScaling().fit(Logits(logits), y)
    text = evidence_of(scaling)
    total = 0.0
    for train, test in folds_of(Batch.of(y, Logits(logits)), 5):
        fitted = TemperatureScaling().fit(Logits(logits[train]), y[train])
        p = fitted.predict_proba(Logits(logits[test]))
        total -= np.log(p[np.arange(len(test)), y[test]]).sum()
    before = log_loss(y, Logits(logits))
    after = total / 200
    assert text == f"log loss {before:.3f} to {after:.3f}, cross-fitted on 200 rows"


def test_rows_without_a_label_or_weight_are_no_evidence() -> None:
    logits, y = made(200)
    labels = np.where(np.arange(200) < 100, y, np.nan)
    weight = np.where(np.arange(200) < 50, 1.0, 0.0)
    with pytest.warns(MissingLabelsWarning):
        partly = TemperatureScaling().fit(Logits(logits), labels, weight)
    whole = TemperatureScaling().fit(Logits(logits[:50]), y[:50])
    assert evidence_of(partly) == evidence_of(whole)
    assert evidence_of(partly).endswith("on 50 rows")


def test_evidence_is_gathered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, y = made(100)
    scaling = TemperatureScaling().fit(Logits(logits), y)
    text = evidence_of(scaling)
    monkeypatch.setattr(module, "_cross_fitted_losses", None)
    assert evidence_of(scaling) == text
    assert evidence_of(pickle.loads(pickle.dumps(scaling))) == text


def test_a_calibrator_without_its_rows_says_so() -> None:
    logits, y = made(100)
    revived = pickle.loads(pickle.dumps(TemperatureScaling().fit(Logits(logits), y)))
    assert revived.summary().endswith(
        "; what it does to log loss was not asked while its rows were at hand"
    )


def test_one_row_is_too_few() -> None:
    platt = PlattScaling().fit(Logits([[1.0, 0.0]]), [0])
    assert platt.summary().endswith("; too few rows to tell what it does to log loss")


def test_a_large_fit_is_judged_by_a_subsample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 70)
    logits, y = made(200)
    scaling = TemperatureScaling().fit(Logits(logits), y)
    assert scaling.summary().endswith("cross-fitted on 70 rows")


def test_held_out_logits_are_those_of_calibrators_that_did_not_see_them() -> None:
    weight = np.random.default_rng(0).random(90)
    batch = batch_of(90, sample_weight=weight)
    logits, y = made(90)
    folds = folds_of(batch, 3)
    whole = VectorScaling(regularization=2.0).fit(Logits(logits), y, weight)
    kept = whole.to_dict()
    found = held_out_logits(whole, batch, folds)
    for (train, test), ours in zip(folds, found, strict=True):
        fitted = VectorScaling(regularization=2.0).fit(
            Logits(logits[train]), y[train], weight[train]
        )
        close(ours.array, fitted.transform(Logits(logits[test])).array, rtol=1e-12)
    assert whole.to_dict() == kept


def test_what_a_contest_chose_stays_and_is_fitted_anew() -> None:
    logits, y = made(300)
    batch = Batch.of(y, Logits(logits))
    auto = AutoCalibrator().fit(Logits(logits), y)
    folds = folds_of(batch, 4)
    for (train, test), ours in zip(folds, held_out_logits(auto, batch, folds), strict=True):
        mixed = sum(
            share
            * type(one)(**one.get_params(deep=False))
            .fit(Logits(logits[train]), y[train])
            .predict_proba(Logits(logits[test]))
            for share, one in zip(auto.weights_, auto.calibrators_, strict=True)
        )
        close(special.softmax(ours.array, axis=1), mixed, rtol=1e-9)


def test_folds_warn_of_nothing_while_logits_are_held_out() -> None:
    y = np.arange(20) % 2
    logits = np.stack([1 - y, y], axis=1) * 0.01
    logits[:2] = 0.01 - logits[:2]
    rows = np.arange(20)
    whole = TemperatureScaling().fit(Logits(logits), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = held_out_logits(whole, Batch.of(y, Logits(logits)), [(rows[2:], rows[:2])])
    assert [part.array.shape for part in found] == [(2, 2)]

"""Evidence out of sample: folds that cover every row once, and held-out rows stay out."""

import json
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import special
from sklearn.base import clone
from sklearn.model_selection import KFold

from dubito import Logits, Normal
from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
    HistogramBinning,
    IdentityCalibrator,
    OneVsRest,
    PlattScaling,
    TemperatureScaling,
    VarianceScaling,
    VectorScaling,
    cross_validate_calibrator,
)
from dubito.calibrate.cross_validation import held_out_logits, make_folds
from dubito.data import ArrayShards, Batch, Shards
from dubito.data.labels import Labels
from dubito.errors import BadTypeError, BadValueError, MissingLabelsWarning
from dubito.measure import brier_score, expected_calibration_error, log_loss

Floats = NDArray[np.float64]


def made(n_rows: int, n_classes: int = 3) -> tuple[Floats, NDArray[np.int64]]:
    rng = np.random.default_rng(n_classes)
    true_logits = rng.normal(0, 1.5, (n_rows, n_classes))
    shares = special.softmax(true_logits, axis=1).cumsum(axis=1)
    y = (shares < rng.random((n_rows, 1))).sum(axis=1)
    return 2 * true_logits, np.minimum(y, n_classes - 1)


def batch_of(n_rows: int, n_classes: int = 3, **others: Any) -> Batch:
    logits, y = made(n_rows, n_classes)
    return Batch.of(y, Logits(logits), **others)


def codes(batch: Batch) -> NDArray[np.int64]:
    assert isinstance(batch.labels, Labels)
    return np.asarray(batch.labels.codes)


@pytest.mark.parametrize("n_folds", [2, 5, 7])
def test_folds_hold_every_row_out_once(n_folds: int) -> None:
    batch = batch_of(103)
    folds = make_folds(batch, n_folds)
    assert len(folds) == n_folds
    held_out = np.concatenate([test for _, test in folds])
    assert sorted(held_out.tolist()) == list(range(103))
    for train, test in folds:
        assert sorted([*train.tolist(), *test.tolist()]) == list(range(103))


@pytest.mark.parametrize("n_folds", [2, 5])
def test_folds_are_even_but_not_stratified(n_folds: int) -> None:
    """Class frequencies shared by all folds would favor calibrators that fit frequencies."""
    batch = batch_of(200, 4)
    folds = [test for _, test in make_folds(batch, n_folds)]
    assert np.ptp([test.size for test in folds]) <= 1
    counts = [np.bincount(codes(batch)[test], minlength=4) for test in folds]
    assert (np.ptp(counts, axis=0) > 1).any()


def test_a_seed_fixes_the_folds() -> None:
    batch = batch_of(60)
    first, same, other = (make_folds(batch, 5, seed=seed) for seed in (0, 0, 1))
    assert [test.tolist() for _, test in first] == [test.tolist() for _, test in same]
    assert [test.tolist() for _, test in first] != [test.tolist() for _, test in other]


@pytest.mark.slow
def test_groups_stay_whole() -> None:
    groups = np.arange(120) // 6
    folds = make_folds(batch_of(120, groups=groups), 4)
    assert sum(len(test) for _, test in folds) == 120
    for train, test in folds:
        assert not set(groups[train]) & set(groups[test])


def test_scikit_learn_splitters_are_used_unchanged() -> None:
    splits = make_folds(batch_of(30), KFold(3))
    assert [test.tolist() for _, test in splits] == np.arange(30).reshape(3, 10).tolist()


def test_label_probabilities_count_as_their_most_probable_class() -> None:
    logits, y = made(60)
    soft = 0.8 * np.eye(3)[y] + 0.2 / 3
    plain = make_folds(Batch.of(y, Logits(logits)), 3)
    softly = make_folds(Batch.of(soft, Logits(logits)), 3)
    assert [test.tolist() for _, test in plain] == [test.tolist() for _, test in softly]


@pytest.mark.parametrize("cv", [1, 0, 31])
def test_an_impossible_number_of_folds_raises(cv: int) -> None:
    with pytest.raises(BadValueError) as caught:
        make_folds(batch_of(30), cv)
    assert str(caught.value) == (
        "AutoCalibrator: `cv` must be a number of folds from 2 to 30, the number of rows, "
        f"got {cv}. Pass cv=5."
    )


def test_the_evidence_is_before_calibration_and_out_of_sample() -> None:
    logits, y = made(200)
    evidence = cross_validate_calibrator(TemperatureScaling(), Logits(logits), y)
    p = np.empty((200, 3))
    for train, test in make_folds(Batch.of(y, Logits(logits)), 5):
        fitted = TemperatureScaling().fit(Logits(logits[train]), y[train])
        p[test] = fitted.predict_proba(Logits(logits[test]))
    expected = {
        "log_loss_before": log_loss(y, Logits(logits)),
        "log_loss_after": log_loss(y, p),
        "brier_before": brier_score(y, Logits(logits)),
        "brier_after": brier_score(y, p),
        "ece_before": expected_calibration_error(y, Logits(logits)),
        "ece_after": expected_calibration_error(y, p),
    }
    for name, value in expected.items():
        assert getattr(evidence, name) == pytest.approx(value, rel=1e-9), name
    change = -np.log(p) + special.log_softmax(logits, axis=1)
    change = change[np.arange(200), y]
    assert evidence.standard_error == pytest.approx(change.std() / np.sqrt(200), rel=1e-9)
    assert (evidence.n_rows, evidence.n_folds) == (200, 5)
    values = [expected[name] for name in expected]
    assert str(evidence) == (
        "log loss from {:.3f} to {:.3f}, Brier score from {:.3f} to {:.3f}, "
        "ECE (15 uniform bins) from {:.3f} to {:.3f}, cross-fitted on 200 rows".format(*values)
    )


def test_rows_without_a_label_or_weight_are_no_evidence() -> None:
    logits, y = made(200)
    labels = np.where(np.arange(200) < 100, y, np.nan)
    weight = np.where(np.arange(200) < 50, 1.0, 0.0)
    with pytest.warns(
        MissingLabelsWarning, match="cross_validate_calibrator: 100 of 200"
    ) as caught:
        partly = cross_validate_calibrator(
            TemperatureScaling(), Logits(logits), labels, sample_weight=weight
        )
    assert caught[0].filename == __file__
    whole = cross_validate_calibrator(TemperatureScaling(), Logits(logits[:50]), y[:50])
    assert partly == whole
    assert whole.n_rows == 50


@pytest.mark.slow
def test_a_fitted_calibrator_gives_the_evidence_of_an_unfitted_one() -> None:
    logits, y = made(120)
    for calibrator in (VectorScaling(), AutoCalibrator(time_budget=0)):
        fitted = clone(calibrator).fit(Logits(logits), y)
        kept = fitted.to_dict()
        both = [cross_validate_calibrator(one, Logits(logits), y) for one in (fitted, calibrator)]
        assert both[0] == both[1]
        assert fitted.to_dict() == kept


def test_shards_and_arrays_give_the_same_evidence() -> None:
    batch = batch_of(90, groups=np.arange(90) // 3, sample_weight=np.arange(90) % 4)
    logits, y = made(90)
    by_arrays = cross_validate_calibrator(
        VectorScaling(),
        Logits(logits),
        y,
        groups=np.arange(90) // 3,
        sample_weight=np.arange(90) % 4,
    )
    assert cross_validate_calibrator(VectorScaling(), ArrayShards(batch)) == by_arrays


def test_the_identity_changes_no_figure() -> None:
    logits, y = made(50)
    found = cross_validate_calibrator(IdentityCalibrator(), Logits(logits), y)
    assert found.log_loss_after == pytest.approx(found.log_loss_before)
    assert found.ece_after == pytest.approx(found.ece_before)
    assert found.standard_error == pytest.approx(0, abs=1e-12)


def test_soft_labels_weigh_each_class() -> None:
    logits, y = made(60)
    hard = cross_validate_calibrator(TemperatureScaling(), Logits(logits), y)
    soft = cross_validate_calibrator(TemperatureScaling(), Logits(logits), np.eye(3)[y])
    assert soft.log_loss_after == pytest.approx(hard.log_loss_after, rel=1e-6)
    assert soft.standard_error == pytest.approx(hard.standard_error, rel=1e-4)


def test_the_random_state_decides_on_folds() -> None:
    logits, y = made(100)
    first, same, other = (
        cross_validate_calibrator(TemperatureScaling(), Logits(logits), y, random_state=state)
        for state in (0, 0, 1)
    )
    assert first == same
    assert first.log_loss_after != other.log_loss_after


@pytest.mark.parametrize(("cv", "n_folds"), [(3, 3), (KFold(4), 4), (1000, 40)])
def test_folds_are_a_number_or_a_splitter(cv: Any, n_folds: int) -> None:
    logits, y = made(40)
    found = cross_validate_calibrator(TemperatureScaling(), Logits(logits), y, cv=cv)
    assert found.n_folds == n_folds


def test_a_sample_of_many_rows_is_cross_validated() -> None:
    logits, y = made(200)
    found = cross_validate_calibrator(TemperatureScaling(), Logits(logits), y, max_samples=70)
    assert str(found).endswith("cross-fitted on 70 rows")


def test_one_row_is_too_few() -> None:
    with pytest.raises(BadValueError, match=r"`y` must label at least 2 rows, got 1\. Pass more"):
        cross_validate_calibrator(PlattScaling(), Logits([[1.0, 0.0]]), [0])


def test_labels_must_be_given() -> None:
    with pytest.raises(BadTypeError, match=r"`y` must hold the labels, got None\. Pass the"):
        cross_validate_calibrator(PlattScaling(), Logits([[1.0, 0.0]]))


def test_other_estimators_raise() -> None:
    with pytest.raises(BadTypeError, match="must be a calibrator of dubito, got KFold"):
        cross_validate_calibrator(KFold(), Logits([[1.0, 0.0]]), [0])


@pytest.mark.parametrize(
    "calibrator",
    [
        TemperatureScaling(),
        VectorScaling(),
        PlattScaling(),
        HistogramBinning(),
        OneVsRest(HistogramBinning()),
        AutoCalibrator(time_budget=0),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_fitted_calibrator_does_not_grow_with_its_rows(calibrator: BaseCalibrator) -> None:
    sizes = []
    for n_rows in (500, 5000):
        logits, y = made(n_rows, 2)
        fitted = clone(calibrator).fit(Logits(logits), y)
        fitted.summary()
        sizes.append((len(pickle.dumps(fitted)), len(json.dumps(fitted.to_dict()))))
        held = [value for value in vars(fitted).values() if isinstance(value, Batch | Shards)]
        assert not held
    assert sizes[1] == pytest.approx(sizes[0], rel=0.1)


def test_a_fitted_regression_calibrator_does_not_grow_with_its_rows() -> None:
    sizes = []
    for n_rows in (500, 5000):
        y = np.random.default_rng(0).normal(size=n_rows)
        fitted = VarianceScaling().fit(Normal(np.zeros(n_rows), np.ones(n_rows)), y)
        fitted.summary()
        sizes.append((len(pickle.dumps(fitted)), len(json.dumps(fitted.to_dict()))))
    assert sizes[1] == pytest.approx(sizes[0], rel=0.05)


def test_held_out_logits_are_those_of_calibrators_that_did_not_see_them() -> None:
    weight = np.random.default_rng(0).random(90)
    batch = batch_of(90, sample_weight=weight)
    logits, y = made(90)
    folds = make_folds(batch, 3)
    whole = VectorScaling(regularization=2.0).fit(Logits(logits), y, weight)
    kept = whole.to_dict()
    found = held_out_logits(whole, batch, folds)
    for (train, test), ours in zip(folds, found, strict=True):
        fitted = VectorScaling(regularization=2.0).fit(
            Logits(logits[train]), y[train], weight[train]
        )
        close(ours.array, fitted.transform(Logits(logits[test])).array, rtol=1e-12)
    assert whole.to_dict() == kept


@pytest.mark.slow
def test_a_selection_stays_and_its_parts_are_fitted_again() -> None:
    logits, y = made(300)
    batch = Batch.of(y, Logits(logits))
    auto = AutoCalibrator().fit(Logits(logits), y)
    folds = make_folds(batch, 4)
    for (train, test), ours in zip(folds, held_out_logits(auto, batch, folds), strict=True):
        mixed = sum(
            share
            * type(one)(**one.get_params(deep=False))
            .fit(Logits(logits[train]), y[train])
            .predict_proba(Logits(logits[test]))
            for share, one in zip(auto.weights_, auto.calibrators_, strict=True)
        )
        close(special.softmax(ours.array, axis=1), mixed, rtol=1e-9)


def test_fits_on_folds_do_not_warn() -> None:
    y = np.arange(20) % 2
    logits = np.stack([1 - y, y], axis=1) * 0.01
    logits[:2] = 0.01 - logits[:2]
    rows = np.arange(20)
    whole = TemperatureScaling().fit(Logits(logits), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = held_out_logits(whole, Batch.of(y, Logits(logits)), [(rows[2:], rows[:2])])
    assert [part.array.shape for part in found] == [(2, 2)]

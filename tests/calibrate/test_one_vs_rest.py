import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pyarrow import parquet
from scipy.special import expit, softmax
from sklearn.isotonic import IsotonicRegression

from dubito import Logits, Probabilities
from dubito.calibrate import (
    BaseCalibrator,
    BetaCalibration,
    HistogramBinning,
    IsotonicCalibration,
    OneVsRest,
    PlattScaling,
    TemperatureScaling,
)
from dubito.calibrate.one_vs_rest import OneVsRestCounts
from dubito.data import Columns, scan
from dubito.errors import BadTypeError, EmptyStateError, UnfittedError

N_ROWS, N_CLASSES = 600, 5
rng = np.random.default_rng(0)
Z = rng.normal(size=(N_ROWS, N_CLASSES)) * 2
P = softmax(Z, axis=1)
ODDS = np.log(P) - np.log1p(-P)
Y = np.array([rng.choice(N_CLASSES, p=softmax(0.5 * row)) for row in Z])
WEIGHT = rng.integers(0, 4, N_ROWS).astype(float)

ALL = [
    PlattScaling(),
    BetaCalibration(),
    HistogramBinning(),
    HistogramBinning(8, "quantile"),
    IsotonicCalibration(),
]
each = pytest.mark.parametrize("calibrator", ALL, ids=str)


def shares_of(calibrator: Any, targets: Any, weight: Any) -> Any:
    """Return the predictions of a calibrator of each class against the rest, in a loop."""
    columns = []
    for k in range(targets.shape[1]):
        share = targets[:, k]
        one = type(calibrator)(**calibrator.get_params())
        one.fit(Logits(ODDS[:, k]), np.stack([1 - share, share], axis=1), weight)
        columns.append(one.predict_proba(Logits(ODDS[:, k]))[:, 1])
    return np.stack(columns, axis=1)


def renormalized(shares: Any) -> Any:
    return shares / shares.sum(axis=1, keepdims=True)


HARD = np.eye(N_CLASSES)[Y]
SOFT = renormalized(0.8 * HARD + np.where(rng.random(HARD.shape) < 0.3, 0.1, 0.0))


@each
@pytest.mark.parametrize("weight", [np.ones(N_ROWS), WEIGHT], ids=["alike", "weighted"])
@pytest.mark.parametrize("is_soft", [False, True], ids=["labels", "label probabilities"])
@pytest.mark.parametrize("kind", [Logits, Probabilities])
def test_it_is_a_calibrator_a_class_renormalized(
    calibrator: Any, weight: Any, is_soft: bool, kind: Any
) -> None:
    rows = Logits(Z) if kind is Logits else Probabilities(P)
    every = OneVsRest(calibrator).fit(rows, SOFT if is_soft else Y, weight)
    shares = shares_of(calibrator, SOFT if is_soft else HARD, weight)
    assert_allclose(every.predict_proba(rows), renormalized(shares), atol=1e-8)
    assert_allclose(softmax(every.transform(rows).array, axis=1), renormalized(shares), atol=1e-8)
    n_changed = (shares.argmax(axis=1) != Z.argmax(axis=1)).sum()
    assert every.n_changed_ == n_changed > 0
    assert every.n_fell_back_ == 0
    assert every.counts(rows) == OneVsRestCounts(N_ROWS, 0, n_changed)


def test_isotonic_curves_are_scikit_learns_but_for_certain_ends() -> None:
    every = OneVsRest(IsotonicCalibration()).fit(Logits(Z), Y)
    for k, curve in enumerate(every.calibrators_):
        assert isinstance(curve, IsotonicCalibration)
        expected = IsotonicRegression().fit_transform(ODDS[:, k], k == Y)
        is_certain = (expected <= 0) | (expected >= 1)
        found = curve.predict_proba(Logits(ODDS[:, k]))[:, 1]
        is_same = ~np.isin(found.round(9), found[is_certain].round(9))  # not pooled with an end
        assert_allclose(found[is_same], expected[is_same], atol=1e-9)
        assert is_same.mean() > 0.8
        assert curve.n_certain_ == is_certain.sum() > 0


@each
def test_rows_in_many_blocks_are_the_same_rows(
    calibrator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = OneVsRest(calibrator).fit(Logits(Z), Y)
    expected = whole.predict_proba(Logits(Z))
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", str(50 * N_CLASSES))
    parts = OneVsRest(calibrator).fit(Logits(Z), Y)
    assert_allclose(parts.predict_proba(Logits(Z)), expected, atol=1e-12)
    assert (parts.n_changed_, parts.n_fell_back_) == (whole.n_changed_, whole.n_fell_back_)


@each
def test_streamed_is_as_held_but_for_the_grid(calibrator: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    columns = {f"logit_{k}": Z[:, k] for k in range(N_CLASSES)}
    parquet.write_table(pa.table({**columns, "y": Y, "w": WEIGHT}), path)
    shards = scan(path, Columns(label="y", logits="logit_*", weight="w"))
    held = OneVsRest(calibrator).fit(Logits(Z), Y, WEIGHT).predict_proba(Logits(Z))
    streamed = OneVsRest(calibrator).fit(shards).predict_proba(Logits(Z))
    has_grid = isinstance(calibrator, IsotonicCalibration) or calibrator is ALL[3]
    assert np.abs(streamed - held).mean() < (0.01 if has_grid else 1e-9)
    if isinstance(calibrator, IsotonicCalibration):
        width = 56 / 4096
        rounded = (np.floor((ODDS + 28) / width) + 0.5) * width - 28
        is_taught = WEIGHT > 0
        shares = []
        for k in range(N_CLASSES):
            curve = IsotonicCalibration().fit(Logits(rounded[:, k]), k == Y, WEIGHT)
            shares.append(curve.predict_proba(Logits(rounded[:, k]))[is_taught, 1])
        expected = renormalized(np.stack(shares, axis=1))
        assert_allclose(streamed[is_taught], expected, atol=1e-9)


def all_but_silent() -> OneVsRest:
    """Return a calibrator that gives a class below log odds of 1.5 almost no probability."""
    every = OneVsRest(PlattScaling()).fit(Logits(Z), Y)
    for one in every.calibrators_:
        assert isinstance(one, PlattScaling)
        one.slope_, one.intercept_ = 40.0, -90.0
    return every


def test_a_row_to_which_no_class_gives_anything_falls_back() -> None:
    every = all_but_silent()
    shares = expit(40 * ODDS - 90)
    is_silent = shares.sum(axis=1) <= N_CLASSES * 1e-12
    assert 0 < is_silent.sum() < N_ROWS
    expected = np.where(is_silent[:, np.newaxis], P, renormalized(np.maximum(shares, 1e-12)))
    found = every.predict_proba(Logits(Z))
    assert_allclose(found, np.maximum(expected, 1e-12), rtol=1e-6)
    assert_array_equal(found[is_silent].argmax(axis=1), Z[is_silent].argmax(axis=1))
    n_changed = (shares.argmax(axis=1) != Z.argmax(axis=1))[~is_silent].sum()
    assert every.counts(Logits(Z)) == OneVsRestCounts(N_ROWS, is_silent.sum(), n_changed)
    assert every.counts(Probabilities(P)) == every.counts(Logits(Z))


def test_isotonic_curves_that_say_nothing_fall_back_too() -> None:
    every = OneVsRest(IsotonicCalibration()).fit(Logits(Z), Y)
    shares = np.empty(Z.shape)
    for k, one in enumerate(every.calibrators_):
        assert isinstance(one, IsotonicCalibration)
        one.values_ = np.where(one.knots_ < 1.5, 0.0, one.values_)
        shares[:, k] = np.interp(ODDS[:, k], one.knots_, one.values_)
    is_silent = shares.sum(axis=1) <= N_CLASSES * 1e-12
    assert 0 < is_silent.sum() < N_ROWS
    assert every.counts(Logits(Z)).n_fell_back == is_silent.sum()
    assert_allclose(every.predict_proba(Logits(Z))[is_silent], P[is_silent], rtol=1e-9)


@each
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_changed_row_is_one_of_which_another_class_is_predicted(
    calibrator: Any, dtype: Any
) -> None:
    rows = Logits(Z.astype(dtype))
    every = OneVsRest(calibrator).fit(rows, Y)
    n_changed = (every.predict(rows) != rows.array.argmax(axis=1)).sum()
    assert every.n_changed_ == every.counts(rows).n_changed == n_changed > 0


def test_rows_that_fall_back_keep_the_uncalibrated_prediction() -> None:
    every = all_but_silent()
    predicted = every.predict(Logits(Z))
    is_silent = expit(40 * ODDS - 90).sum(axis=1) <= N_CLASSES * 1e-12
    assert_array_equal(predicted[is_silent], Z[is_silent].argmax(axis=1))
    assert every.counts(Logits(Z)).n_changed == (predicted != Z.argmax(axis=1)).sum()


def test_shares_that_are_a_tie_as_probabilities_count_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = OneVsRest(PlattScaling()).fit(Logits(Z), Y)
    above = np.nextafter(0.01, 1)
    assert np.log(above) == np.log(0.01)
    monkeypatch.setattr(
        OneVsRest, "_separate_probabilities", lambda *_: np.array([[0.01, above, 0, 0, 0]]).T
    )
    row = Logits([[0.0, 1.0, 0.0, 0.0, 0.0]])
    assert every.predict(row).tolist() == [0]
    assert every.counts(row) == OneVsRestCounts(1, 0, 1)


def test_rows_that_fall_back_in_the_fit_are_counted() -> None:
    class Silent(PlattScaling):  # type: ignore[misc]
        def _learn_scores(self, scores: Any) -> None:
            self.slope_, self.intercept_ = 40.0, -90.0

    every = OneVsRest(Silent()).fit(Logits(Z), Y)
    counts = all_but_silent().counts(Logits(Z))
    assert (every.n_fell_back_, every.n_changed_) == (counts.n_fell_back, counts.n_changed)
    assert every._describe() == (
        f"Silent for each of 5 classes; the predicted class changed in {counts.n_changed:,} "
        f"training rows; {counts.n_fell_back:,} rows were left uncalibrated"
    )


@each
def test_a_class_without_rows_keeps_its_column(calibrator: Any) -> None:
    labels = np.where(Y == 3, 2, Y)
    every = OneVsRest(calibrator).fit(Logits(Z), labels)
    found = every.predict_proba(Logits(Z))
    assert found.shape == Z.shape
    assert np.isfinite(found).all()
    assert_allclose(found.sum(axis=1), 1)
    assert (found > 0).all()
    assert found[:, 3].mean() < 0.03


@each
def test_two_classes_are_taken_too(calibrator: Any) -> None:
    every = OneVsRest(calibrator).fit(Logits(Z[:, :2]), Y % 2)
    assert every.predict_proba(Logits(Z[:, :2])).shape == (N_ROWS, 2)
    assert len(every.calibrators_) == 2


@each
def test_it_survives_json_and_pickle(calibrator: Any) -> None:
    every = OneVsRest(calibrator).fit(Logits(Z, classes=list("abcde")), np.array(list("abcde"))[Y])
    kept = BaseCalibrator.from_dict(json.loads(json.dumps(every.to_dict())))
    for again in (kept, pickle.loads(pickle.dumps(every))):
        assert_array_equal(again.predict_proba(Logits(Z)), every.predict_proba(Logits(Z)))
        assert again.classes_ == tuple("abcde")
        assert (again.n_changed_, again.n_fell_back_) == (every.n_changed_, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_keep_the_kind_of_number_that_came(dtype: Any) -> None:
    every = OneVsRest(IsotonicCalibration()).fit(Logits(Z.astype(dtype)), Y)
    assert every.predict_proba(Logits(Z.astype(dtype))).dtype == dtype


def test_what_was_given_is_not_taught() -> None:
    given = PlattScaling()
    OneVsRest(given).fit(Logits(Z), Y)
    assert not hasattr(given, "slope_")


@pytest.mark.parametrize(
    "calibrator", [TemperatureScaling(), "isotonic", None, OneVsRest(PlattScaling())]
)
def test_only_calibrators_of_two_classes_are_taken(calibrator: Any) -> None:
    with pytest.raises(BadTypeError) as caught:
        OneVsRest(calibrator).fit(Logits(Z), Y)
    assert str(caught.value) == (
        "OneVsRest: `calibrator` must be a calibrator of two classes, "
        f"got {calibrator!r}. Pass IsotonicCalibration()."
    )


def test_a_class_instead_of_a_calibrator_is_named() -> None:
    with pytest.raises(BadTypeError, match=r"class PlattScaling\. Pass an instance: PlattScaling"):
        OneVsRest(PlattScaling).fit(Logits(Z), Y)  # type: ignore[arg-type]
    with pytest.raises(BadTypeError, match=r"class TemperatureScaling\. Pass IsotonicCalibration"):
        OneVsRest(TemperatureScaling).fit(Logits(Z), Y)  # type: ignore[arg-type]


@each
def test_weights_of_zero_raise(calibrator: Any) -> None:
    with pytest.raises(EmptyStateError, match="A calibrator needs at least 1 labeled row"):
        OneVsRest(calibrator).fit(Logits(Z), Y, np.zeros(N_ROWS))


def test_counts_need_a_fit() -> None:
    with pytest.raises(UnfittedError, match="This OneVsRest is not fitted yet"):
        OneVsRest(PlattScaling()).counts(P)

import json
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from dubito import Logits, MultiLabel
from dubito.arrays import FloatArray
from dubito.calibrate import MultiLabelCalibrator, PlattScaling, cross_validate_calibrator
from dubito.calibrate.multilabel import (
    COMMON_PRECISION,
    RELATIVE_SPREAD,
    _Entries,
    _Fit,
    _fit,
    _Prior,
    _Scale,
)
from dubito.data import ArrayShards, Batch
from dubito.data.shards import CountedShards
from dubito.errors import (
    BadTypeError,
    BadValueError,
    DubitoError,
    DubitoWarning,
    MissingLabelsWarning,
)


def rows(n_rows: int, n_labels: int = 4, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Return over-confident log odds and labels; a shared cause makes labels dependent."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(n_rows, 1))
    odds = rng.normal(size=(n_rows, n_labels)) + shared - np.arange(n_labels) / 4
    y = (rng.random(odds.shape) < expit(odds + 1.5 * shared)).astype(float)
    return 3 * odds + 1.5 * np.arange(n_labels), y


def log_loss(y: FloatArray, p: FloatArray) -> float:
    return float(-np.nanmean(y * np.log(p) + (1 - y) * np.log1p(-p)))


def test_a_fit_is_the_most_probable_one() -> None:
    odds, y = rows(150, 3)
    y[::7, 1] = np.nan
    batch = Batch.of(y, MultiLabel.from_logits(odds), sample_weight=np.arange(150) % 3 + 0.5)
    scale = _Scale.of(MultiLabel.from_logits(odds), batch.weight)
    entries = _Entries.of(scale, batch)
    prior = _Prior("beta", 0.3, 0.1)
    start = _Fit(np.zeros((3, 7)), np.zeros(4))
    found = _fit(entries.derivatives, prior, start, 1e-10)

    p, weight = expit(odds), batch.weight
    columns = [odds, np.ones_like(odds), -np.log(p) - np.log1p(-p), 2 * p - 1]
    own = np.stack([c / s for c, s in zip(columns, scale.norms, strict=True)])
    others = (np.clip(odds, -8, 8) - scale.center) @ scale.directions

    def objective(flat: FloatArray) -> float:
        common, theta = flat[:4], flat[4:].reshape(3, 7)
        z = odds + np.einsum("knl,lk->nl", own, theta[:, :4]) + others @ theta[:, 4:].T
        losses = np.nan_to_num(np.logaddexp(0, z) - y * z) * weight[:, np.newaxis]
        away = ((theta[:, :4] - common) / (0.3 * RELATIVE_SPREAD)) ** 2
        prior_loss = away.sum() + ((theta[:, 4:] / 0.1) ** 2).sum()
        return float(losses.sum() + 0.5 * (prior_loss + COMMON_PRECISION @ common**2))

    reference = minimize(objective, np.zeros(25), method="BFGS", options={"gtol": 1e-5})
    flat = np.concatenate([found.common, found.coefficients.ravel()])
    assert objective(flat) <= reference.fun + 1e-6
    assert flat == pytest.approx(reference.x, abs=2e-3)


def test_labels_get_calibrated_beyond_one_temperature() -> None:
    odds, y = rows(3000)
    outputs, new = MultiLabel.from_logits(odds[:1000]), MultiLabel.from_logits(odds[1000:])
    losses = {}
    for name, one in {
        "temperature": MultiLabelCalibrator(base="temperature", other_labels=False),
        "alone": MultiLabelCalibrator(other_labels=False),
        "auto": MultiLabelCalibrator(),
    }.items():
        losses[name] = log_loss(y[1000:], one.fit(outputs, y[:1000]).predict_proba(new))
    assert losses["auto"] < 0.99 * losses["alone"]
    assert losses["alone"] < 0.99 * losses["temperature"]
    auto = one
    assert "with other labels' log odds (prior sd " in auto.chosen_
    evidence = auto.evidence_
    assert evidence.log_loss_after == pytest.approx(losses["auto"], rel=0.05)
    before = log_loss(y[:1000], np.clip(outputs.array, 1e-12, 1 - 1e-12))
    assert evidence.log_loss_before == pytest.approx(before, rel=1e-3)
    assert f"of {len(auto.leaderboard_)} candidates" in auto.summary()


def test_a_selection_is_cross_validated_as_a_whole() -> None:
    odds, y = rows(300, 3)
    y[::4, 1] = np.nan
    p = expit(odds)
    evidence = cross_validate_calibrator(MultiLabelCalibrator(), MultiLabel(p), y, cv=3)
    assert evidence.log_loss_before == pytest.approx(log_loss(y, np.clip(p, 1e-12, 1 - 1e-12)))
    assert evidence.brier_before == pytest.approx(float(np.nanmean((p - y) ** 2)))
    fitted = MultiLabelCalibrator().fit(MultiLabel(p), y)
    assert evidence.log_loss_after == pytest.approx(fitted.evidence_.log_loss_after, rel=0.05)
    assert (evidence.n_rows, evidence.n_folds) == (300, 3)


def test_calibrated_probabilities_stay_about_the_same() -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(size=(1000, 5))
    y = (rng.random(odds.shape) < expit(odds)).astype(float)
    calibrator = MultiLabelCalibrator().fit(MultiLabel.from_logits(odds), y)
    assert np.abs(calibrator.predict_proba(expit(odds)) - expit(odds)).max() < 0.03


def test_few_positives_are_drawn_to_the_common_map() -> None:
    odds, y = rows(600, 4)
    odds -= 1.5 * np.arange(4)
    y[:, 3] = np.nan
    y[:30, 3] = np.arange(30) % 10 == 0  # whatever the model predicts
    calibrator = MultiLabelCalibrator(base="platt", other_labels=False)
    slopes = calibrator.fit(MultiLabel.from_logits(odds), y).coefficients_[:, 0]
    alone = PlattScaling().fit(expit(odds[:30, 3]), y[:30, 3].astype(int)).slope_
    common = slopes[:3].mean()
    assert abs(slopes[3] - common) < 0.75 * abs(alone - common)


def test_unknown_labels_are_left_out() -> None:
    odds, y = rows(300, 1)
    is_known = np.random.default_rng(1).random(300) < 0.7
    some = np.where(is_known[:, np.newaxis], y, np.nan)
    with pytest.warns(MissingLabelsWarning, match="of 300 rows have no label"):
        first = MultiLabelCalibrator().fit(MultiLabel.from_logits(odds), some)
    second = MultiLabelCalibrator().fit(MultiLabel.from_logits(odds[is_known]), y[is_known])
    assert first.coefficients_ == pytest.approx(second.coefficients_, abs=1e-9)


def test_a_label_that_is_never_known_has_the_common_map() -> None:
    odds, y = rows(400, 4)
    y[:, 1:3] = np.nan
    outputs = MultiLabel.from_logits(odds, ["edema", "mass", "nodule", "fracture"])
    calibrator = MultiLabelCalibrator().fit(outputs, y)
    assert calibrator.unfitted_ == [1, 2]
    assert "only the common map for mass and nodule, unknown in every row" in calibrator.summary()
    assert np.array_equal(
        calibrator.coefficients_[1, [0, 2, 3]], calibrator.coefficients_[2, [0, 2, 3]]
    )
    assert np.isfinite(calibrator.transform(outputs).log_odds).all()


@pytest.mark.parametrize("outcome", [0, 1])
@pytest.mark.parametrize("n_others", [0, 1, 3])
def test_a_label_of_one_outcome_is_calibrated_to_it(n_others: int, outcome: int) -> None:
    odds, y = rows(600, 4)
    y[:, 3] = 1 - outcome
    y[:n_others, 3] = outcome
    outputs = MultiLabel.from_logits(odds)
    calibrator = MultiLabelCalibrator().fit(outputs, y)
    p = calibrator.predict_proba(outputs)[:, 3]
    smoothed = np.full(600, (y[:, 3].sum() + 0.5) / 601)
    assert log_loss(y[:, 3], p) < log_loss(y[:, 3], smoothed) + 0.01
    assert calibrator.unfitted_ == []
    # The evidence covers all labels: the raw probabilities are far off here.
    assert calibrator.evidence_.log_loss_before == pytest.approx(log_loss(y, outputs.array))


def test_without_any_positive_all_probabilities_are_low() -> None:
    odds, y = rows(300, 4)
    p = MultiLabelCalibrator().fit(MultiLabel.from_logits(odds), 0 * y).predict_proba(expit(odds))
    assert 0 < p.mean() < 2 / 300


@pytest.mark.parametrize("y", [np.zeros((50, 3)), np.ones((50, 3)), np.eye(3)[np.arange(50) % 3]])
def test_extreme_rows_give_finite_probabilities(y: Any) -> None:
    p = np.where(np.arange(150).reshape(50, 3) % 2, 1.0, 0.0)
    calibrator = MultiLabelCalibrator().fit(p, y)
    new = calibrator.predict_proba(np.array([[0.0, 1.0, 0.5]], np.float32))
    assert new.dtype == np.float32
    assert ((new >= 1e-12) & (new <= 1)).all()


def test_saturated_scores_are_calibrated_to_the_base_rate() -> None:
    odds = np.full((200, 2), -20.7) * [1, -1]
    odds[:5] = -8
    y = np.repeat(np.arange(200)[:, np.newaxis] % 10 == 0, 2, axis=1).astype(float)
    outputs = MultiLabel.from_logits(odds)
    loss = log_loss(y, MultiLabelCalibrator().fit(outputs, y).predict_proba(outputs))
    assert loss < -(0.1 * np.log(0.1) + 0.9 * np.log(0.9)) + 0.001


def test_few_rows_stay_unchanged() -> None:
    calibrator = MultiLabelCalibrator().fit([[0.3, 0.6]] * 9, [[0, 1]] * 8 + [[1, 0]])
    assert calibrator.summary() == (
        "unchanged probabilities, because 9 rows are too few to select a calibrator"
    )
    assert calibrator.predict_proba([[0.3, 0.6]]) == pytest.approx(np.array([[0.3, 0.6]]))


def test_weights_count_rows() -> None:
    odds, y = rows(200, 3)
    weight = 1 + np.arange(200) % 3
    settings: Any = {"base": "temperature", "other_labels": False}
    weighted = MultiLabelCalibrator(**settings).fit(MultiLabel.from_logits(odds), y, weight)
    index = np.repeat(np.arange(200), weight)
    repeated = MultiLabelCalibrator(**settings).fit(MultiLabel.from_logits(odds[index]), y[index])
    assert weighted.coefficients_ == pytest.approx(repeated.coefficients_, abs=1e-8)


def test_streamed_rows_give_the_same_map() -> None:
    odds, y = rows(300)
    y[::5] = np.nan
    batch = Batch.of(y, MultiLabel.from_logits(odds, [*"abcd"]), groups=np.arange(300) // 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = MultiLabelCalibrator().fit(batch)
        second = MultiLabelCalibrator().fit(CountedShards(ArrayShards(batch, 200)))
    assert second.chosen_ == first.chosen_
    assert second.coefficients_ == pytest.approx(first.coefficients_, abs=1e-9)


def test_json_keeps_everything() -> None:
    odds, y = rows(400)
    outputs = MultiLabel.from_logits(odds, [*"abcd"])
    fitted = MultiLabelCalibrator().fit(outputs, y)
    restored = MultiLabelCalibrator.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert np.array_equal(restored.predict_proba(outputs), fitted.predict_proba(outputs))
    assert (restored.summary(), restored.evidence_) == (fitted.summary(), fitted.evidence_)
    values = fitted.to_dict()
    values["fitted"]["unfitted_"] = [4]
    with pytest.raises(BadValueError, match="label numbers below 4, got 4"):
        MultiLabelCalibrator.from_dict(values)


@pytest.mark.parametrize(
    ("settings", "outputs", "y", "message"),
    [
        ({"base": "isotonic"}, np.full((20, 2), 0.5), np.eye(2)[[0] * 20], "'platt' or 'beta'"),
        ({}, np.full((20, 2), 0.5), np.zeros((20, 3)), "must be rows x 2 labels"),
        ({}, Logits(np.zeros((20, 2))), np.zeros(20), "MultiLabel(array)"),
        ({}, np.full((20, 2), 0.5), None, "must hold the labels"),
        ({}, np.full((20, 2), 0.5), np.full((20, 2), np.nan), "at least 1"),
    ],
)
def test_errors_say_what_to_do(settings: Any, outputs: Any, y: Any, message: str) -> None:
    with pytest.raises(DubitoError) as caught:
        MultiLabelCalibrator(**settings).fit(outputs, y)
    assert message in str(caught.value)


def test_other_labels_than_those_of_the_fit_raise() -> None:
    odds, y = rows(50, 2)
    calibrator = MultiLabelCalibrator().fit(MultiLabel.from_logits(odds, ["a", "b"]), y)
    with pytest.raises(BadValueError, match="must have the 2 labels of the fit, got 3"):
        calibrator.transform(np.full((3, 3), 0.5))
    with pytest.raises(BadValueError, match="got none called 'b'"):
        calibrator.transform(MultiLabel(np.full((3, 2), 0.5), ["c", "a"]))
    for kind in (MultiLabel.from_logits, MultiLabel):  # in another order, by name
        scores = odds if kind != MultiLabel else expit(odds)
        expected = calibrator.predict_proba(kind(scores))
        other = kind(scores[:, ::-1], ["b", "a"])
        np.testing.assert_array_equal(calibrator.predict_proba(other), expected)
        assert calibrator.transform(other).label_names == ("a", "b")
    with pytest.raises(BadTypeError, match="must be MultiLabel"):
        calibrator.transform(Logits(odds))


def test_two_groups_are_cross_validated_one_by_the_other() -> None:
    odds, y = rows(200, 2)
    groups = np.arange(200) % 2
    calibrator = MultiLabelCalibrator(base="temperature", other_labels=False)
    outputs = MultiLabel.from_logits(odds)
    evidence = cross_validate_calibrator(calibrator, outputs, y, groups=groups)
    assert evidence.n_folds == 2
    losses = [
        log_loss(
            y[groups == k],
            calibrator.fit(outputs.take(np.flatnonzero(groups != k)), y[groups != k]).predict_proba(
                outputs.take(np.flatnonzero(groups == k))
            ),
        )
        for k in (0, 1)
    ]
    assert evidence.log_loss_after == pytest.approx(np.mean(losses), abs=1e-9)


def test_labels_instead_of_probabilities_are_warned_about() -> None:
    odds, y = rows(100, 2)
    calibrator = MultiLabelCalibrator(base="temperature").fit(MultiLabel.from_logits(odds), y)
    with pytest.warns(DubitoWarning, match="all outputs are 0 or 1, like labels") as caught:
        calibrator.transform(y)
    assert caught[0].filename == __file__


def test_the_reason_is_the_rule_that_was_applied() -> None:
    reasons = set()
    for seed in range(2):
        odds, y = rows(200, 3, seed)
        fitted = MultiLabelCalibrator(other_labels=False).fit(MultiLabel.from_logits(odds), y)
        is_best = fitted.chosen_ == fitted.leaderboard_[0]["name"]
        reasons.add(is_best)
        what = "its held-out log loss is the lowest" if is_best else "it is the simplest of"
        assert fitted.reason_.startswith(what)
    assert reasons == {True, False}

"""The selection of a calibrator: cross-validated, never worse than no calibration, explained."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.model_selection import (
    GroupKFold,
    PredefinedSplit,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
)

from dubito import Logits
from dubito.arrays import FloatArray, IntArray
from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
    ForestCalibration,
    IdentityCalibrator,
    StructuredMatrixScaling,
    TemperatureScaling,
    VectorScaling,
    cross_validate_calibrator,
)
from dubito.calibrate.auto import _FixedMixture
from dubito.calibrate.cross_validation import HeldOutLabels, make_folds
from dubito.calibrate.selection import (
    Candidate,
    Selection,
    _best_step,
    _cross_validated_likelihoods,
    _is_costly,
    _mixtures,
    _select_among,
    _select_parts,
    _suitable_calibrators,
    constructor_call,
)
from dubito.data import Batch, Columns, scan
from dubito.errors import (
    BadTypeError,
    BadValueError,
    BoundWarning,
    EmptyStateError,
    MissingLabelsWarning,
)
from dubito.measure import log_loss


def overconfident(n_rows: int, n_classes: int, seed: int = 0) -> tuple[FloatArray, IntArray]:
    """Return logits three times too large, and labels drawn from the true ones."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n_rows, n_classes)) * 1.5
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return 3 * logits, y


@pytest.mark.slow
@pytest.mark.parametrize(("n_rows", "n_classes"), [(300, 2), (300, 4), (1200, 2), (1200, 4)])
def test_unseen_rows_are_better_calibrated(n_rows: int, n_classes: int) -> None:
    logits, y = overconfident(2 * n_rows, n_classes)
    auto = AutoCalibrator().fit(Logits(logits[:n_rows]), y[:n_rows])
    unseen = Logits(logits[n_rows:])
    known_best = log_loss(y[n_rows:], Logits(logits[n_rows:] / 3))
    assert log_loss(y[n_rows:], auto.transform(unseen)) < 1.02 * known_best
    assert log_loss(y[n_rows:], unseen) > 1.2 * known_best


@pytest.mark.slow
def test_the_leaderboard_matches_cross_validation_by_hand() -> None:
    logits, y = overconfident(300, 3)
    auto = AutoCalibrator(random_state=3).fit(Logits(logits), y)
    batch = Batch.of(y, Logits(logits))
    folds = make_folds(batch, 5, seed=3)
    shown = {row["name"]: row["log_loss"] for row in auto.leaderboard_}
    candidates = [repr(one) for one in _suitable_calibrators(3, 300)]
    assert set(candidates) == set(shown) - {"mixture"}
    for candidate in _suitable_calibrators(3, 300):
        if _is_costly(candidate):  # dropped after two folds
            continue
        total = 0.0
        for train, test in folds:
            p = candidate.fit(Logits(logits[train]), y[train]).predict_proba(Logits(logits[test]))
            total -= np.log(p[np.arange(len(test)), y[test]]).sum()
        assert shown[repr(candidate)] == pytest.approx(total / 300, abs=1e-4)  # few rounds suffice
    losses = [row["log_loss"] for row in auto.leaderboard_]
    assert losses == sorted(losses)


@pytest.mark.parametrize("seed", range(6))
def test_the_cross_validated_loss_never_increases(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(60, 3))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)  # calibrated already
    auto = AutoCalibrator(random_state=seed).fit(Logits(logits), y)
    shown = {row["name"]: row["log_loss"] for row in auto.leaderboard_}
    assert auto.evidence_.log_loss_after <= shown["IdentityCalibrator()"] + 1e-12
    assert auto.evidence_.log_loss_before == pytest.approx(shown["IdentityCalibrator()"])


@pytest.mark.slow
def test_weights_and_the_selection_are_reported() -> None:
    logits, y = overconfident(1200, 4)
    auto = AutoCalibrator().fit(Logits(logits), y)
    assert auto.weights_.sum() == pytest.approx(1)
    assert len(auto.calibrators_) == auto.weights_.size
    weights = [row["weight"] for row in auto.leaderboard_ if row["name"] != "mixture"]
    assert sum(weights) == pytest.approx(1)
    assert auto.chosen_ in {row["name"] for row in auto.leaderboard_}
    assert "cross-fitted on 1,200 rows" in str(auto.evidence_)


@pytest.mark.slow
def test_the_mixture_is_the_weighted_mean_of_its_parts() -> None:
    logits, y = overconfident(1200, 4)
    crooked = np.where(logits > 0, logits, logits / 3)  # no single map corrects it
    logits = crooked + np.array([0, 1, 2, 0])
    auto = AutoCalibrator(max_parts=None).fit(Logits(logits), y)
    assert auto.chosen_ == "mixture"
    parts = [one.predict_proba(Logits(logits)) for one in auto.calibrators_]
    by_hand = sum(share * part for share, part in zip(auto.weights_, parts, strict=True))
    by_hand = (1 - auto.uniform_weight_) * by_hand + auto.uniform_weight_ / 4
    assert 0 < auto.uniform_weight_ < 0.05
    assert auto.predict_proba(Logits(logits)) == pytest.approx(by_hand, abs=1e-9)


def test_a_clearly_better_candidate_is_taken_alone() -> None:
    logits, _ = overconfident(100, 3)
    with pytest.warns(BoundWarning, match="unrelated to the labels, or contradict them"):
        auto = AutoCalibrator(time_budget=0).fit(Logits(logits), logits.argmin(axis=1))
    assert auto.chosen_ == "TemperatureScaling()"
    assert len(auto.calibrators_) == 1
    assert "T = " in auto.summary()
    shares = {row["name"]: row["weight"] for row in auto.leaderboard_}
    assert shares == {"TemperatureScaling()": 1.0, "IdentityCalibrator()": 0.0}


@pytest.mark.parametrize(
    "cv", [3, StratifiedKFold(3), ShuffleSplit(3, random_state=0), [(range(200), range(200, 300))]]
)
def test_scikit_learn_splitters_are_accepted(cv: Any) -> None:
    logits, y = overconfident(300, 3)
    auto = AutoCalibrator(cv=cv).fit(Logits(logits), y)
    assert auto.evidence_.log_loss_after < auto.evidence_.log_loss_before


@pytest.mark.slow
@pytest.mark.parametrize("cv", [4, GroupKFold(4)])
def test_groups_stay_in_one_fold(cv: Any) -> None:
    groups = np.arange(300) // 10
    logits, y = overconfident(300, 3)
    batch = Batch.of(y, Logits(logits), groups=groups)
    for train, test in make_folds(batch, cv):
        assert not set(groups[train]) & set(groups[test])
    auto = AutoCalibrator(cv=cv).fit(Logits(logits), y, groups=groups)
    without = AutoCalibrator(cv=4).fit(Logits(logits), y)
    assert auto.leaderboard_[0]["log_loss"] != without.leaderboard_[0]["log_loss"]


def test_a_time_budget_of_0_tries_the_first_two_candidates() -> None:
    logits, y = overconfident(300, 3)
    auto = AutoCalibrator(time_budget=0).fit(Logits(logits), y)
    names = {row["name"] for row in auto.leaderboard_} - {"mixture"}
    assert names == {"IdentityCalibrator()", "TemperatureScaling()"}


@pytest.mark.parametrize(("max_samples", "n_fitted"), [(200, 2000), (300, 3000)])
def test_many_rows_are_chosen_on_some_and_fitted_on_ten_times_as_many(
    max_samples: int, n_fitted: int
) -> None:
    logits, y = overconfident(3000, 3)
    auto = AutoCalibrator(max_samples=max_samples, time_budget=0).fit(Logits(logits), y)
    assert auto.evidence_.n_rows == max_samples
    (temperature,) = [one for one in auto.calibrators_ if isinstance(one, TemperatureScaling)]
    rows = np.sort(np.random.default_rng(0).choice(3000, n_fitted, replace=False))
    expected = TemperatureScaling().fit(Logits(logits[rows]), y[rows])
    assert temperature.temperature_ == pytest.approx(expected.temperature_)
    assert auto.summary().endswith(f"; fitted on {n_fitted:,} rows")
    again = AutoCalibrator.from_dict(auto.to_dict())
    assert again.summary() == auto.summary()


@pytest.mark.slow
def test_streams_give_what_arrays_give(tmp_path: Path) -> None:
    logits, y = overconfident(1500, 3)
    columns = {f"logit_{k}": logits[:, k] for k in range(3)}
    pq.write_table(pa.table({**columns, "y": y}), tmp_path / "p.parquet")
    shards = scan(tmp_path / "p.parquet", Columns(label="y", logits="logit_*"))
    streamed = AutoCalibrator(max_samples=500).fit(shards)
    held = AutoCalibrator(max_samples=500).fit(Logits(logits), y)
    assert streamed.chosen_ == held.chosen_
    assert streamed.weights_ == pytest.approx(held.weights_, abs=1e-6)
    assert streamed.predict_proba(Logits(logits)) == pytest.approx(
        held.predict_proba(Logits(logits)), abs=0.01
    )


def test_it_survives_json() -> None:
    logits, y = overconfident(300, 3)
    auto = AutoCalibrator(cv=StratifiedKFold(3)).fit(Logits(logits), y)
    restored = BaseCalibrator.from_dict(json.loads(json.dumps(auto.to_dict())))
    assert isinstance(restored, AutoCalibrator)
    assert restored.predict_proba(Logits(logits)) == pytest.approx(
        auto.predict_proba(Logits(logits))
    )
    assert restored.summary() == auto.summary()
    assert restored.leaderboard_ == auto.leaderboard_


def test_few_rows_leave_probabilities_unchanged() -> None:
    logits, y = overconfident(5, 3)
    auto = AutoCalibrator().fit(Logits(logits), y)
    assert auto.chosen_ == "IdentityCalibrator()"
    assert auto.reason_ == "5 rows are too few to select a calibrator"
    with pytest.raises(EmptyStateError):
        AutoCalibrator().fit(Logits(logits), y, sample_weight=np.zeros(5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"cv": 1},
            "AutoCalibrator: `cv` must be a number of folds from 2 to 300, the number of rows",
        ),
        (
            {"max_samples": 3},
            "AutoCalibrator: `max_samples` must be an integer of at least 10, got 3",
        ),
        (
            {"time_budget": -1},
            "`time_budget` must be None or a non-negative number of seconds, got -1",
        ),
    ],
)
def test_invalid_settings_raise(settings: dict[str, Any], message: str) -> None:
    logits, y = overconfident(300, 3)
    with pytest.raises(BadValueError, match=message):
        AutoCalibrator(**settings).fit(Logits(logits), y)


def test_groups_with_shards_raise(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"p_0": [0.2, 0.8], "p_1": [0.8, 0.2], "y": [0, 1]}), tmp_path / "p.parquet"
    )
    shards = scan(tmp_path / "p.parquet", Columns(label="y", probabilities="p_*"))
    with pytest.raises(
        BadTypeError, match=r"AutoCalibrator: `groups` must be None .* Columns\(group=\.\.\.\)"
    ):
        AutoCalibrator().fit(shards, groups=[0, 1])


@pytest.mark.slow
def test_evidence_holds_on_fresh_rows_with_many_classes() -> None:
    """Stratified folds would favor calibrators that fit class frequencies."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(12_000, 50))
    y = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    auto = AutoCalibrator(time_budget=0.5).fit(Logits(logits[:1000]), y[:1000])
    fresh = log_loss(y[1000:], auto.transform(Logits(logits[1000:])))
    best = log_loss(y[1000:], Logits(logits[1000:] / 2))
    assert fresh < 1.005 * best
    assert auto.evidence_.log_loss_after == pytest.approx(fresh, rel=0.03)


@pytest.mark.filterwarnings("ignore::dubito.errors.BoundWarning")
def test_huge_separable_logits_stay_finite() -> None:
    logits = np.random.default_rng(0).normal(size=(200, 3))
    auto = AutoCalibrator().fit(Logits(1e4 * logits), logits.argmax(axis=1))
    assert np.isfinite(auto.predict_proba(Logits(1e4 * logits))).all()


def test_a_splitter_sees_unlabeled_rows_too() -> None:
    logits, y = overconfident(300, 3)
    partly = np.where(np.arange(300) < 100, np.nan, y)
    batch = Batch.of(partly, Logits(logits))
    ((train, test),) = make_folds(batch, [(np.arange(200), np.arange(200, 300))])
    assert train.tolist() == list(range(100, 200))
    assert test.tolist() == list(range(200, 300))
    with pytest.warns(MissingLabelsWarning):
        auto = AutoCalibrator(cv=PredefinedSplit(np.arange(300) % 5)).fit(Logits(logits), partly)
    assert auto.evidence_.n_rows == 200


def test_unlabeled_rows_do_not_add_candidates() -> None:
    logits, y = overconfident(1100, 3)
    partly = np.where(np.arange(1100) < 800, np.nan, y)
    with pytest.warns(MissingLabelsWarning):
        auto = AutoCalibrator().fit(Logits(logits), partly)
    names = {row["name"] for row in auto.leaderboard_} - {"mixture"}
    assert names == {constructor_call(one) for one in _suitable_calibrators(3, 300)}


@pytest.mark.parametrize("cv", ["five", 5.0, True, GroupKFold(5)])
def test_an_invalid_cv_raises(cv: Any) -> None:
    logits, y = overconfident(300, 3)
    with pytest.raises(
        BadValueError, match="AutoCalibrator: `cv` must be a number of folds, or a scikit-learn"
    ):
        AutoCalibrator(cv=cv).fit(Logits(logits), y)


def test_a_splitter_splits_the_sample() -> None:
    logits, y = overconfident(300, 3)
    groups = np.arange(300) % 7
    for cv, labels in ((StratifiedKFold(3), None), (GroupKFold(3), groups)):
        auto = AutoCalibrator(cv=cv, max_samples=150).fit(Logits(logits), y, groups=labels)
        assert auto.evidence_.n_rows == 150


def test_listed_splits_cannot_split_a_sample() -> None:
    logits, y = overconfident(300, 3)
    splits = [(range(200), range(200, 300))]
    with pytest.raises(BadValueError, match="number of folds or a splitter for more than 100 rows"):
        AutoCalibrator(cv=splits, max_samples=100).fit(Logits(logits), y)


def test_the_evidence_counts_held_out_rows() -> None:
    logits, y = overconfident(400, 3)
    auto = AutoCalibrator(cv=ShuffleSplit(1, test_size=120, random_state=0)).fit(Logits(logits), y)
    assert auto.evidence_.n_rows == 120


@pytest.mark.slow
def test_fewer_groups_than_folds_make_fewer_folds() -> None:
    logits, y = overconfident(300, 3)
    groups = np.arange(300) % 3
    by_number = AutoCalibrator().fit(Logits(logits), y, groups=groups)
    splitter = GroupKFold(3, shuffle=True, random_state=0)
    by_splitter = AutoCalibrator(cv=splitter).fit(Logits(logits), y, groups=groups)
    assert by_number.leaderboard_[0]["log_loss"] == by_splitter.leaderboard_[0]["log_loss"]
    assert "cross-fitted on 300 rows" in str(by_number.evidence_)


def test_few_rows_with_groups_have_evidence() -> None:
    logits, y = overconfident(8, 3)
    few = AutoCalibrator().fit(Logits(logits), y, groups=np.arange(8) % 3)
    assert "on 8 rows" in str(few.evidence_)
    one = AutoCalibrator().fit(Logits(logits), y, groups=np.zeros(8))
    assert one.evidence_.log_loss_before == one.evidence_.log_loss_after
    with pytest.raises(BadValueError, match="at least 2 different values"):
        cross_validate_calibrator(one, Logits(logits), y, groups=np.zeros(8))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.zeros(300), "must have at least 2 different values, got 1. Leave `groups` out."),
        (
            np.where(np.arange(300) == 7, np.nan, np.arange(300) % 9),
            "must have a value for each row, got nan in row 7. Give rows without a group",
        ),
        (
            np.array(["a", "b", None] * 100, dtype=object),
            "must have a value for each row, got None in row 2. Give rows without a group",
        ),
    ],
    ids=["one", "NaN", "None"],
)
def test_groups_that_make_no_folds_raise(groups: Any, message: str) -> None:
    logits, y = overconfident(300, 3)
    with pytest.raises(BadValueError, match=re.escape(f"AutoCalibrator: `groups` {message}")):
        AutoCalibrator().fit(Logits(logits), y, groups=groups)


@pytest.mark.parametrize("seed", [-1, "a", 2**32])
def test_an_invalid_random_state_raises(seed: Any) -> None:
    logits, y = overconfident(40, 3)
    with pytest.raises(
        BadValueError, match="AutoCalibrator: `random_state` must be None, an integer"
    ):
        AutoCalibrator(random_state=seed).fit(Logits(logits), y)


@pytest.mark.slow
def test_a_random_state_is_a_seed_a_generator_or_none() -> None:
    logits, y = overconfident(60, 3)

    def losses(random_state: Any) -> list[float]:
        auto = AutoCalibrator(random_state=random_state).fit(Logits(logits), y)
        return [line["log_loss"] for line in auto.leaderboard_]

    drawn = [losses(np.random.RandomState(seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert losses(None) != losses(None)


def test_soft_labels_count_as_one_row_each() -> None:
    logits, _ = overconfident(40, 3)
    soft = np.exp(logits / 3) / np.exp(logits / 3).sum(axis=1, keepdims=True)
    assert AutoCalibrator().fit(Logits(logits), soft).chosen_ != "mixture"


@pytest.mark.slow
def test_parametric_only_is_serialized() -> None:
    logits, y = overconfident(1000, 2)
    auto = AutoCalibrator(cv=2, parametric_only=True).fit(Logits(logits), y)
    names = {row["name"] for row in auto.leaderboard_}
    assert "IsotonicCalibration()" not in names
    assert "BetaCalibration()" in names
    written = json.loads(json.dumps(auto.to_dict()))
    assert AutoCalibrator.from_dict(written).parametric_only is True
    del written["params"]["parametric_only"]  # as older versions wrote it
    assert AutoCalibrator.from_dict(written).parametric_only is False
    written["params"]["parametric_only"] = "yes"
    with pytest.raises(BadValueError) as caught:
        AutoCalibrator.from_dict(written)
    assert str(caught.value) == (
        "AutoCalibrator.from_dict: `params.parametric_only` must be true or false, got 'yes'. "
        "Restore the values as they were written."
    )
    with pytest.raises(BadTypeError) as mistyped:
        AutoCalibrator(parametric_only="yes").fit(Logits(logits), y)  # type: ignore[arg-type]
    assert str(mistyped.value) == (
        "AutoCalibrator: `parametric_only` must be True or False, got 'yes'. "
        "Use parametric_only=True."
    )


CANDIDATES = [IdentityCalibrator(), TemperatureScaling(), VectorScaling()]


def selected(likelihoods: FloatArray, weights: FloatArray | None = None) -> Selection:
    """Return the selection among as many candidates as columns, in five folds."""
    rows = np.arange(len(likelihoods))
    labels = HeldOutLabels(np.ones(rows.size) if weights is None else weights, rows)
    return _select_among(candidates_with(likelihoods), labels, 5, 3)


def candidates_with(likelihoods: FloatArray) -> list[Candidate]:
    return [Candidate(one, column, 1.0) for one, column in zip(CANDIDATES, likelihoods.T)]  # noqa: B905


def weights_by_name(selection: Selection) -> FloatArray:
    """Return the weights on the leaderboard, in the order of the candidates."""
    weights = {line["name"]: line["weight"] for line in selection.leaderboard}
    return np.array(
        [weights[constructor_call(one)] for one in CANDIDATES if constructor_call(one) in weights]
    )


def test_the_mixture_wins_where_candidates_suit_different_rows() -> None:
    first, second = [0.3, 0.9, 0.1], [0.3, 0.1, 0.9]
    found = selected(np.array([first, second] * 50))
    assert found.chosen == "mixture"
    weights = weights_by_name(found)
    assert weights[1:] == pytest.approx(weights[:0:-1], abs=1e-3)
    assert found.evidence.log_loss_after == pytest.approx(-np.log(0.5), abs=1e-2)


def test_a_candidate_that_is_better_everywhere_wins_alone() -> None:
    rng = np.random.default_rng(0)
    others = rng.uniform(0.1, 0.3, (200, 2))
    likelihoods = np.column_stack([others, others.max(axis=1) + 0.5])
    found = selected(likelihoods)
    losses = -np.log(likelihoods).mean(axis=0)
    assert found.chosen == "VectorScaling()"
    simpler = 1 if losses[1] < losses[0] else 0
    name = "TemperatureScaling() instead" if simpler else "unchanged probabilities"
    assert found.reason == (
        f"no other of 3 candidates lowers the held-out log loss beyond noise; with {name}, the "
        f"held-out log loss would be {100 * (losses[simpler] / losses[2] - 1):.1f} % higher"
    )
    assert weights_by_name(found).tolist() == [0.0, 0.0, 1.0]
    assert [constructor_call(one) for one in found.calibrators] == ["VectorScaling()"]
    assert found.weights.tolist() == [1.0]


@pytest.mark.slow
def test_the_selection_is_never_worse_than_no_calibration() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        found = selected(rng.beta(2, 1, (25, 3)))
        assert found.evidence.log_loss_after <= found.evidence.log_loss_before + 1e-12


def test_weights_count_as_rows_in_the_selection() -> None:
    likelihoods = np.random.default_rng(0).uniform(0.1, 1, (110, 3))
    weights = np.array([2.0] * 5 + [1.0] * 105)
    doubled = np.concatenate([likelihoods, likelihoods[:5]])
    weighted, repeated = selected(likelihoods, weights), selected(doubled)
    losses = [
        {line["name"]: line["log_loss"] for line in one.leaderboard if line["name"] != "mixture"}
        for one in (weighted, repeated)
    ]
    assert losses[0] == pytest.approx(losses[1])
    assert weights_by_name(weighted) == pytest.approx(weights_by_name(repeated), abs=1e-6)


def test_the_leaderboard_lists_each_candidate_and_the_mixture() -> None:
    lines = selected(np.random.default_rng(0).uniform(0.1, 1, (150, 3))).leaderboard
    assert {line["name"] for line in lines} == {*map(constructor_call, CANDIDATES), "mixture"}
    assert [line["log_loss"] for line in lines] == sorted(line["log_loss"] for line in lines)
    assert sum(line["weight"] or 0 for line in lines) == pytest.approx(1)
    (mixture,) = (line for line in lines if line["name"] == "mixture")
    assert mixture["seconds"] == 3.0


def test_a_likelihood_of_0_stays_finite() -> None:
    found = selected(np.array([[0.0, 0.5]] * 20))
    assert np.isfinite(found.evidence.log_loss_after)
    assert np.isfinite([line["log_loss"] for line in found.leaderboard]).all()


def tried_names(n_rows: int, n_classes: int, n_folds: int, **limits: Any) -> list[str]:
    logits = np.random.default_rng(0).normal(size=(n_rows, n_classes))
    batch = Batch.of(logits.argmax(axis=1), Logits(logits))
    calibrators = _suitable_calibrators(n_classes, n_rows, limits.get("parametric_only", False))
    folds = make_folds(batch, n_folds)
    budget = limits.get("time_budget")
    candidates, _ = _cross_validated_likelihoods(calibrators, batch, folds, budget)
    return [constructor_call(one.calibrator) for one in candidates]


def test_no_time_suffices_for_two_candidates() -> None:
    names = tried_names(60, 3, 5, time_budget=0)
    assert names == ["IdentityCalibrator()", "TemperatureScaling()"]


def test_only_parametric_candidates_are_tried_on_request() -> None:
    names = tried_names(1000, 2, 2, parametric_only=True)
    assert "BetaCalibration()" in names
    assert not any("Isotonic" in name or "Forest" in name for name in names)


def test_rows_held_out_twice_count_once() -> None:
    likelihoods = np.random.default_rng(0).uniform(0.1, 1, (120, 2))
    rows = np.arange(120)
    once = HeldOutLabels(np.ones(120), rows)
    twice = HeldOutLabels(np.ones(240), np.tile(rows, 2))
    found = _select_among(candidates_with(np.tile(likelihoods, (2, 1))), twice, 10, 3)
    assert found.evidence.n_rows == twice.n_rows == once.n_rows == 120
    values = likelihoods[:, 0]
    assert twice.standard_error(np.tile(values, 2)) == pytest.approx(once.standard_error(values))


def test_a_single_fold_is_enough() -> None:
    likelihoods = np.random.default_rng(0).uniform(0.1, 1, (120, 2))
    rows = np.arange(120)
    single = HeldOutLabels(np.ones(120), rows)
    found = _select_among(candidates_with(likelihoods), single, 1, 3)
    assert np.isfinite(found.evidence.log_loss_after)


def test_held_out_likelihoods_are_those_of_other_folds() -> None:
    logits, y = overconfident(90, 3)
    weight = np.random.default_rng(0).random(90)
    batch = Batch.of(y, Logits(logits), sample_weight=weight)
    folds = make_folds(batch, 3)
    (candidate,), labels = _cross_validated_likelihoods([TemperatureScaling()], batch, folds)
    order = np.concatenate([test for _, test in folds])
    assert labels.rows.tolist() == order.tolist()
    assert labels.weights.tolist() == weight[order].tolist()
    for train, test in folds:
        fitted = TemperatureScaling().fit(Logits(logits[train]), y[train], weight[train])
        p = fitted.predict_proba(Logits(logits[test]))[np.arange(30), y[test]]
        assert candidate.likelihoods[np.isin(order, test)] == pytest.approx(p, rel=1e-12)


def test_warnings_of_single_folds_are_silenced() -> None:
    y = np.arange(20) % 2
    # Two rows are wrong, both in one fold: without it, the rest is separable.
    logits = np.stack([1 - y, y], axis=1) * 0.01
    logits[:2] = 0.01 - logits[:2]
    rows = np.arange(20)
    folds = [(rows[2:], rows[:2]), (rows[:10], rows[10:])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (candidate,), _ = _cross_validated_likelihoods(
            [TemperatureScaling()], Batch.of(y, Logits(logits)), folds
        )
    assert candidate.likelihoods[:2].max() < 1e-3 < candidate.likelihoods[2:].min()


def test_the_identity_changes_nothing() -> None:
    logits = np.random.default_rng(0).normal(size=(40, 3))
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    fitted = IdentityCalibrator().fit(Logits(logits), np.zeros(40, int))
    assert fitted.predict_proba(Logits(logits)) == pytest.approx(expected, abs=1e-12)
    assert fitted.summary() == "probabilities are unchanged"


@pytest.mark.parametrize("n_classes", [2, 3, 100, 101, 250, 251, 1000])
@pytest.mark.parametrize("n_rows", [10, 999, 1000, 100_000])
def test_the_first_candidates_are_the_identity_and_a_temperature(
    n_classes: int, n_rows: int
) -> None:
    candidates = list(_suitable_calibrators(n_classes, n_rows))
    assert isinstance(candidates[0], IdentityCalibrator)
    assert isinstance(candidates[1], TemperatureScaling)
    assert len({repr(one) for one in candidates}) == len(candidates)


def test_more_rows_allow_more_candidates_and_more_classes_fewer() -> None:
    few, many = (list(_suitable_calibrators(10, n_rows)) for n_rows in (100, 10_000))
    assert len(few) < len(many)
    matrices = {
        n_classes: [
            one
            for one in _suitable_calibrators(n_classes, 10_000)
            if isinstance(one, StructuredMatrixScaling)
        ]
        for n_classes in (10, 150, 1000)
    }
    assert len(matrices[10]) > len(matrices[150]) > len(matrices[1000]) == 0
    assert {one.basis for one in matrices[150]} == {"linear"}


def test_every_candidate_takes_two_classes_or_many() -> None:
    rng = np.random.default_rng(0)
    for n_classes in (2, 4):
        y = rng.integers(0, n_classes, 60)
        logits = Logits(np.eye(n_classes)[y] + rng.normal(size=(60, n_classes)))
        for one in _suitable_calibrators(n_classes, 1000):
            p = one.fit(logits, y).predict_proba(logits)
            assert p.sum(axis=1) == pytest.approx(np.ones(60))


@pytest.mark.parametrize("n_classes", [2, 3, 100, 1000])
def test_parametric_candidates_are_all_but_two_kinds(n_classes: int) -> None:
    every, parametric = (
        [repr(one) for one in _suitable_calibrators(n_classes, 10_000, parametric_only)]
        for parametric_only in (False, True)
    )
    assert parametric == [one for one in every if "Isotonic" not in one and "Forest" not in one]
    assert len(parametric) < len(every)


def test_a_fixed_mixture_is_the_weighted_mean_of_its_parts() -> None:
    logits, y = overconfident(400, 3)
    outputs = Logits(logits)
    parts = [IdentityCalibrator(), TemperatureScaling()]
    mixture = _FixedMixture(parts, np.array([0.25, 0.75]), uniform_weight=0.1)
    found = mixture.fit(outputs, y).predict_proba(outputs)
    parts = [one.fit(outputs, y) for one in (IdentityCalibrator(), TemperatureScaling())]
    expected = 0.25 * parts[0].predict_proba(outputs) + 0.75 * parts[1].predict_proba(outputs)
    np.testing.assert_allclose(found, 0.9 * expected + 0.1 / 3, atol=1e-12)
    assert mixture.summary() == (
        "a mixture of 68 % TemperatureScaling(), 22 % IdentityCalibrator() and 10.0 % uniform "
        "probabilities"
    )


def test_the_unfitted_copy_keeps_the_selection() -> None:
    logits, y = overconfident(400, 3)
    auto = AutoCalibrator().fit(Logits(logits), y)
    again = auto._unfitted_copy().fit(Logits(logits), y)
    found, expected = (one.predict_proba(Logits(logits)) for one in (again, auto))
    np.testing.assert_allclose(found, expected)
    assert isinstance(AutoCalibrator(cv=3)._unfitted_copy(), AutoCalibrator)


def test_the_unfitted_copy_of_a_simple_calibrator_has_its_settings_alone() -> None:
    logits, y = overconfident(400, 3)
    fitted = TemperatureScaling(objective="ece", n_bins=7).fit(Logits(logits), y)
    fresh = fitted._unfitted_copy()
    assert isinstance(fresh, TemperatureScaling)
    assert fresh.get_params() == fitted.get_params()
    assert not hasattr(fresh, "temperature_")


def test_a_part_must_gain_more_than_noise_and_parts_are_limited() -> None:
    rng = np.random.default_rng(0)
    rows = np.arange(600)
    labels = HeldOutLabels(np.ones(600), rows)
    best = rng.uniform(0.4, 0.9, 600)
    alike = best * np.exp(rng.normal(0, 0.001, 600))  # differs by noise only
    both = np.column_stack([best, alike])
    assert _select_parts(both, labels, _mixtures(both, labels, 3), 3) == [0]
    # Each column explains a third of the rows, so that every one of them is needed.
    third = np.where((rows % 3)[:, np.newaxis] == np.arange(3), 0.9, 0.1)
    for max_parts, n_parts in ((1, 1), (2, 2), (3, 3), (7, 3), (None, 3)):
        found = _select_parts(third, labels, _mixtures(third, labels, 3), max_parts)
        assert len(found) == n_parts


def test_the_weight_of_a_further_part_is_that_of_highest_likelihood() -> None:
    rng = np.random.default_rng(1)
    current, other = rng.uniform(0.1, 0.9, (2, 400))
    weights = rng.uniform(0.5, 2, 400)
    step = _best_step(current, other, weights)
    grid = np.linspace(0, 1, 10_001)
    mixed = current[:, np.newaxis] + grid * (other - current)[:, np.newaxis]
    assert step == pytest.approx(grid[(weights @ np.log(mixed)).argmax()], abs=2e-4)


@pytest.mark.slow
def test_one_part_is_a_named_calibrator_and_none_takes_all() -> None:
    logits, y = overconfident(1200, 3)
    logits = np.where(logits > 0, logits, logits / 3) + np.array([0, 1, 2])
    single = AutoCalibrator(max_parts=1).fit(Logits(logits), y)
    assert len(single.calibrators_) == 1
    assert (
        single.chosen_ == single.leaderboard_[0]["name"] == constructor_call(single.calibrators_[0])
    )
    assert "because no other of 9 candidates lowers the held-out log loss beyond noise; with" in (
        single.summary()
    )
    assert single.summary().endswith("% higher")
    every = AutoCalibrator(max_parts=None).fit(Logits(logits), y)
    assert len(every.calibrators_) == len(list(_suitable_calibrators(3, 1200)))
    with pytest.raises(BadValueError, match="`max_parts` must be an integer of at least 1, got 0"):
        AutoCalibrator(max_parts=0).fit(Logits(logits), y)


@pytest.mark.slow
def test_a_costly_candidate_that_cannot_help_is_dropped_after_two_folds() -> None:
    logits, y = overconfident(1500, 3)  # a temperature is all that is needed
    batch = Batch.of(y, Logits(logits))
    folds = make_folds(batch, 5)
    calibrators = [IdentityCalibrator(), TemperatureScaling(), ForestCalibration()]
    candidates, labels = _cross_validated_likelihoods(calibrators, batch, folds)
    assert [one.likelihoods.size for one in candidates] == [1500, 1500, 600]
    found = _select_among(candidates, labels, 5, 3)
    assert [line["weight"] for line in found.leaderboard] == [1.0, 0.0, 0.0]
    every, _ = _cross_validated_likelihoods(calibrators, batch, folds, max_parts=None)
    shown = {line["name"]: line["log_loss"] for line in found.leaderboard}
    whole = labels.mean(-np.log(every[2].likelihoods))
    assert shown["ForestCalibration()"] == pytest.approx(whole, abs=0.01)  # estimated


def test_with_times_later_rows_judge_what_was_fitted_on_earlier_ones() -> None:
    logits, y = overconfident(400, 3)
    shuffled = np.random.default_rng(5).permutation(400)
    dates = np.datetime64("2026-01-01") + np.arange(400)
    timed = AutoCalibrator().fit(Logits(logits[shuffled]), y[shuffled], times=dates[shuffled])
    sorted_rows = AutoCalibrator(cv=TimeSeriesSplit(5)).fit(Logits(logits), y)
    assert timed.cv == 5
    assert timed.evidence_ == sorted_rows.evidence_
    assert timed.evidence_.n_rows == 330  # the first rows are only fitted on
    np.testing.assert_allclose(
        timed.predict_proba(Logits(logits)), sorted_rows.predict_proba(Logits(logits)), atol=1e-9
    )


def test_invalid_times_raise() -> None:
    logits, y = overconfident(60, 3)
    auto, outputs = AutoCalibrator(), Logits(logits)
    times = np.arange(60.0)
    with pytest.raises(BadValueError, match="`times` must be given without `groups`"):
        auto.fit(outputs, y, groups=np.arange(60), times=times)
    with pytest.raises(BadValueError, match="`times` must have length 60"):
        auto.fit(outputs, y, times=times[1:])
    times[7] = np.nan
    with pytest.raises(BadValueError, match=r"`times` must have a value for each row.*7"):
        auto.fit(outputs, y, times=times)


def test_a_mixture_that_is_worse_than_a_candidate_is_not_taken() -> None:
    rng = np.random.default_rng(0)
    for seed in range(40):
        likelihoods = np.random.default_rng(seed).beta(2, 1, (150, 3))
        found = selected(likelihoods)
        best = min(line["log_loss"] for line in found.leaderboard if line["name"] != "mixture")
        if found.chosen == "mixture":
            assert found.evidence.log_loss_after <= best
    # Where it makes no difference, probabilities are left unchanged, however many rows there are.
    for n_rows in (300, 3000):
        alike = rng.uniform(0.3, 0.9, n_rows)
        near = alike[:, np.newaxis] * np.exp(rng.normal(0.0001, 0.01, (n_rows, 3)))
        assert selected(near).chosen == "IdentityCalibrator()"

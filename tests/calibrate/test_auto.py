"""The choice of a calibrator: honest, never worse than nothing, and explained."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.model_selection import GroupKFold, PredefinedSplit, ShuffleSplit, StratifiedKFold

from dubito import Logits
from dubito.arrays import FloatArray, IntArray
from dubito.calibrate import AutoCalibrator, BaseCalibrator, TemperatureScaling
from dubito.calibrate.auto import _candidates
from dubito.calibrate.cross_validation import folds_of, held_out_likelihoods
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


@pytest.mark.parametrize(("n_rows", "n_classes"), [(300, 2), (300, 4), (1200, 2), (1200, 4)])
def test_it_is_better_on_rows_it_has_not_seen(n_rows: int, n_classes: int) -> None:
    logits, y = overconfident(2 * n_rows, n_classes)
    auto = AutoCalibrator().fit(Logits(logits[:n_rows]), y[:n_rows])
    unseen = Logits(logits[n_rows:])
    known_best = log_loss(y[n_rows:], Logits(logits[n_rows:] / 3))
    assert log_loss(y[n_rows:], auto.transform(unseen)) < 1.02 * known_best
    assert log_loss(y[n_rows:], unseen) > 1.2 * known_best


def test_the_leaderboard_is_what_cross_fitting_by_hand_gives() -> None:
    logits, y = overconfident(300, 3)
    auto = AutoCalibrator(random_state=3).fit(Logits(logits), y)
    batch = Batch.of(y, Logits(logits))
    folds = folds_of(batch, 5, seed=3)
    told = {row["name"]: row["log_loss"] for row in auto.leaderboard_}
    assert len(told) == len(list(_candidates(3, 300))) + 1
    for candidate in _candidates(3, 300):
        likelihoods, weights, *_ = held_out_likelihoods(candidate, batch, folds)
        by_hand = -(weights @ np.log(likelihoods)) / weights.sum()
        assert told[repr(candidate)] == pytest.approx(by_hand, rel=1e-9)
    losses = [row["log_loss"] for row in auto.leaderboard_]
    assert losses == sorted(losses)


@pytest.mark.parametrize("seed", range(6))
def test_the_cross_fitted_loss_is_never_above_doing_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(60, 3))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)  # calibrated already
    auto = AutoCalibrator(random_state=seed).fit(Logits(logits), y)
    told = {row["name"]: row["log_loss"] for row in auto.leaderboard_}
    assert auto.evidence_["after"] <= told["IdentityCalibrator()"] + 1e-12
    assert auto.evidence_["before"] == pytest.approx(told["IdentityCalibrator()"])


def test_shares_and_the_chosen_are_told() -> None:
    logits, y = overconfident(1200, 4)
    auto = AutoCalibrator().fit(Logits(logits), y)
    assert auto.weights_.sum() == pytest.approx(1)
    assert len(auto.calibrators_) == auto.weights_.size
    told = [row["weight"] for row in auto.leaderboard_ if row["name"] != "mixture"]
    assert sum(told) == pytest.approx(1)
    assert auto.chosen_ in {row["name"] for row in auto.leaderboard_}
    assert "cross-fitted on 1,200 rows" in auto.summary()


def test_the_mixture_is_the_shares_of_its_parts() -> None:
    logits, y = overconfident(1200, 4)
    crooked = np.where(logits > 0, logits, logits / 3)  # no one map mends it
    logits = crooked + np.array([0, 1, 2, 0])
    auto = AutoCalibrator().fit(Logits(logits), y)
    assert auto.chosen_ == "mixture"
    parts = [one.predict_proba(Logits(logits)) for one in auto.calibrators_]
    by_hand = sum(share * part for share, part in zip(auto.weights_, parts, strict=True))
    assert auto.predict_proba(Logits(logits)) == pytest.approx(by_hand, abs=1e-9)


def test_one_candidate_far_ahead_is_taken_alone() -> None:
    logits, _ = overconfident(100, 3)
    with pytest.warns(BoundWarning, match="say nothing of the labels, or the contrary"):
        auto = AutoCalibrator(time_budget=0).fit(Logits(logits), logits.argmin(axis=1))
    assert auto.chosen_ == "TemperatureScaling()"
    assert len(auto.calibrators_) == 1
    assert "T = " in auto.summary()
    shares = {row["name"]: row["weight"] for row in auto.leaderboard_}
    assert shares == {"TemperatureScaling()": 1.0, "IdentityCalibrator()": 0.0, "mixture": None}


@pytest.mark.parametrize(
    "cv", [3, StratifiedKFold(3), ShuffleSplit(3, random_state=0), [(range(200), range(200, 300))]]
)
def test_any_splitter_of_scikit_learn_will_do(cv: Any) -> None:
    logits, y = overconfident(300, 3)
    auto = AutoCalibrator(cv=cv).fit(Logits(logits), y)
    assert auto.evidence_["after"] < auto.evidence_["before"]


@pytest.mark.parametrize("cv", [4, GroupKFold(4)])
def test_groups_are_never_parted(cv: Any) -> None:
    groups = np.arange(300) // 10
    logits, y = overconfident(300, 3)
    batch = Batch.of(y, Logits(logits), groups=groups)
    for train, test in folds_of(batch, cv):
        assert not set(groups[train]) & set(groups[test])
    auto = AutoCalibrator(cv=cv).fit(Logits(logits), y, groups=groups)
    without = AutoCalibrator(cv=4).fit(Logits(logits), y)
    assert auto.leaderboard_[0]["log_loss"] != without.leaderboard_[0]["log_loss"]


def test_a_budget_of_nothing_still_tries_the_first_two() -> None:
    logits, y = overconfident(300, 3)
    auto = AutoCalibrator(time_budget=0).fit(Logits(logits), y)
    names = {row["name"] for row in auto.leaderboard_}
    assert names == {"IdentityCalibrator()", "TemperatureScaling()", "mixture"}


def test_many_rows_are_chosen_on_some_and_fitted_on_all() -> None:
    logits, y = overconfident(3000, 3)
    auto = AutoCalibrator(max_samples=200, time_budget=0).fit(Logits(logits), y)
    assert auto.evidence_["n_rows"] == 200
    (temperature,) = [one for one in auto.calibrators_ if isinstance(one, TemperatureScaling)]
    on_all = TemperatureScaling().fit(Logits(logits), y)
    assert temperature.temperature_ == pytest.approx(on_all.temperature_)


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
    twin = BaseCalibrator.from_dict(json.loads(json.dumps(auto.to_dict())))
    assert isinstance(twin, AutoCalibrator)
    assert twin.predict_proba(Logits(logits)) == pytest.approx(auto.predict_proba(Logits(logits)))
    assert twin.summary() == auto.summary()
    assert twin.leaderboard_ == auto.leaderboard_


def test_few_rows_are_left_as_they_came() -> None:
    logits, y = overconfident(5, 3)
    auto = AutoCalibrator().fit(Logits(logits), y)
    assert auto.chosen_ == "IdentityCalibrator()"
    assert auto.reason_ == "5 rows are too few to choose by"
    with pytest.raises(EmptyStateError):
        AutoCalibrator().fit(Logits(logits), y, sample_weight=np.zeros(5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cv": 1}, "`cv` of AutoCalibrator must be a number of folds from 2 to the 300 rows"),
        ({"max_samples": 3}, "`max_samples` of AutoCalibrator must be a whole number from 10 up"),
        ({"time_budget": -1}, "`time_budget` of AutoCalibrator must be None, or seconds from 0 up"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    logits, y = overconfident(300, 3)
    with pytest.raises(BadValueError, match=message):
        AutoCalibrator(**settings).fit(Logits(logits), y)


def test_groups_beside_shards_are_refused(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"p_0": [0.2, 0.8], "p_1": [0.8, 0.2], "y": [0, 1]}), tmp_path / "p.parquet"
    )
    shards = scan(tmp_path / "p.parquet", Columns(label="y", probabilities="p_*"))
    with pytest.raises(BadTypeError, match=r"`groups` of AutoCalibrator must be among the columns"):
        AutoCalibrator().fit(shards, groups=[0, 1])


def test_its_claim_holds_on_fresh_rows_where_classes_are_many() -> None:
    """Folds that shared their class frequencies would flatter whatever fits frequencies."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(12_000, 50))
    y = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    auto = AutoCalibrator(time_budget=0.5).fit(Logits(logits[:1000]), y[:1000])
    fresh = log_loss(y[1000:], auto.transform(Logits(logits[1000:])))
    best = log_loss(y[1000:], Logits(logits[1000:] / 2))
    assert fresh < 1.005 * best
    assert auto.evidence_["after"] == pytest.approx(fresh, rel=0.03)


@pytest.mark.filterwarnings("ignore::dubito.errors.BoundWarning")
def test_logits_of_ten_thousand_that_are_always_right_end_finite() -> None:
    logits = np.random.default_rng(0).normal(size=(200, 3))
    auto = AutoCalibrator().fit(Logits(1e4 * logits), logits.argmax(axis=1))
    assert np.isfinite(auto.predict_proba(Logits(1e4 * logits))).all()


def test_a_splitter_sees_all_rows_also_those_without_a_label() -> None:
    logits, y = overconfident(300, 3)
    partly = np.where(np.arange(300) < 100, np.nan, y)
    batch = Batch.of(partly, Logits(logits))
    ((train, test),) = folds_of(batch, [(np.arange(200), np.arange(200, 300))])
    assert train.tolist() == list(range(100, 200))
    assert test.tolist() == list(range(200, 300))
    with pytest.warns(MissingLabelsWarning):
        auto = AutoCalibrator(cv=PredefinedSplit(np.arange(300) % 5)).fit(Logits(logits), partly)
    assert auto.evidence_["n_rows"] == 200


def test_rows_without_a_label_do_not_count_as_many() -> None:
    logits, y = overconfident(1100, 3)
    partly = np.where(np.arange(1100) < 800, np.nan, y)
    with pytest.warns(MissingLabelsWarning):
        auto = AutoCalibrator().fit(Logits(logits), partly)
    assert len(auto.leaderboard_) == len(list(_candidates(3, 300))) + 1


@pytest.mark.parametrize("cv", ["five", 5.0, True, GroupKFold(5)])
def test_what_is_no_splitter_is_refused(cv: Any) -> None:
    logits, y = overconfident(300, 3)
    with pytest.raises(BadValueError, match="`cv` of AutoCalibrator must be a number of folds, or"):
        AutoCalibrator(cv=cv).fit(Logits(logits), y)


def test_a_splitter_splits_the_rows_that_are_chosen_by() -> None:
    logits, y = overconfident(300, 3)
    groups = np.arange(300) % 7
    for cv, labels in ((StratifiedKFold(3), None), (GroupKFold(3), groups)):
        auto = AutoCalibrator(cv=cv, max_samples=150).fit(Logits(logits), y, groups=labels)
        assert auto.evidence_["n_rows"] == 150


def test_rows_by_number_cannot_split_a_sample() -> None:
    logits, y = overconfident(300, 3)
    splits = [(range(200), range(200, 300))]
    with pytest.raises(BadValueError, match="folds or a splitter for more than 100 rows"):
        AutoCalibrator(cv=splits, max_samples=100).fit(Logits(logits), y)


def test_rows_held_out_are_what_the_summary_counts() -> None:
    logits, y = overconfident(400, 3)
    auto = AutoCalibrator(cv=ShuffleSplit(1, test_size=120, random_state=0)).fit(Logits(logits), y)
    assert auto.evidence_["n_rows"] == 120


def test_fewer_groups_than_folds_make_fewer_folds() -> None:
    logits, y = overconfident(300, 3)
    groups = np.arange(300) % 3
    by_number = AutoCalibrator().fit(Logits(logits), y, groups=groups)
    splitter = GroupKFold(3, shuffle=True, random_state=0)
    by_splitter = AutoCalibrator(cv=splitter).fit(Logits(logits), y, groups=groups)
    assert by_number.leaderboard_[0]["log_loss"] == by_splitter.leaderboard_[0]["log_loss"]
    assert "cross-fitted on 300 rows" in by_number.summary()


def test_a_few_rows_of_groups_are_summed_up_too() -> None:
    logits, y = overconfident(8, 3)
    few = AutoCalibrator().fit(Logits(logits), y, groups=np.arange(8) % 3)
    assert "cross-fitted on 8 rows" in few.summary()
    one = AutoCalibrator().fit(Logits(logits), y, groups=np.zeros(8))
    assert one.summary().endswith("cannot be told by rows that are all of one group")


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.zeros(300), "two different ones or more. Got one for all rows. Try leaving them out."),
        (
            np.where(np.arange(300) == 7, np.nan, np.arange(300) % 9),
            "given for each row. Got nan in row 7. "
            "Try a group of their own for rows that have none.",
        ),
        (
            np.array(["a", "b", None] * 100, dtype=object),
            "given for each row. Got None in row 2. "
            "Try a group of their own for rows that have none.",
        ),
    ],
    ids=["one", "NaN", "None"],
)
def test_groups_that_make_no_folds_are_told(groups: Any, message: str) -> None:
    logits, y = overconfident(300, 3)
    with pytest.raises(BadValueError) as caught:
        AutoCalibrator().fit(Logits(logits), y, groups=groups)
    assert str(caught.value) == f"`groups` of AutoCalibrator must be {message}"


@pytest.mark.parametrize("seed", [-1, "a", 2**32])
def test_an_invalid_random_state_is_refused(seed: Any) -> None:
    logits, y = overconfident(40, 3)
    with pytest.raises(
        BadValueError, match="AutoCalibrator: `random_state` must be None, an integer"
    ):
        AutoCalibrator(random_state=seed).fit(Logits(logits), y)


def test_a_random_state_is_a_seed_a_generator_or_none() -> None:
    logits, y = overconfident(60, 3)

    def losses(random_state: Any) -> list[float]:
        auto = AutoCalibrator(random_state=random_state).fit(Logits(logits), y)
        return [line["log_loss"] for line in auto.leaderboard_]

    drawn = [losses(np.random.RandomState(seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert losses(None) != losses(None)


def test_label_probabilities_are_a_row_each() -> None:
    logits, _ = overconfident(40, 3)
    soft = np.exp(logits / 3) / np.exp(logits / 3).sum(axis=1, keepdims=True)
    assert AutoCalibrator().fit(Logits(logits), soft).chosen_ != "mixture"


def test_rows_written_over_since_the_fit_are_noticed() -> None:
    logits, y = overconfident(300, 3)
    fitted = TemperatureScaling().fit(Logits(logits), y)
    logits *= 0
    assert "its rows have changed since the fit" in fitted.summary()


def test_parametric_candidates_alone_are_a_setting_that_is_kept() -> None:
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
    with pytest.raises(BadValueError) as told:
        AutoCalibrator.from_dict(written)
    assert str(told.value) == (
        "AutoCalibrator.from_dict: `params.parametric_only` must be true or false, got 'yes'. "
        "Restore the file as it was written."
    )
    with pytest.raises(BadValueError) as told:
        AutoCalibrator(parametric_only="yes").fit(Logits(logits), y)  # type: ignore[arg-type]
    assert str(told.value) == (
        "`parametric_only` of AutoCalibrator must be True or False. Got 'yes'. "
        "Try parametric_only=True."
    )

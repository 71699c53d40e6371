"""A policy's decisions, recomputed by hand from its temperature, prior, costs, bound and gate."""

import json
import pickle
import re
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pyarrow import parquet
from scipy.special import softmax
from scipy.stats import binomtest

from dubito import Logits, Members, Probabilities
from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
    BetaCalibration,
    EnsembleTemperatureScaling,
    ForestCalibration,
    IdentityCalibrator,
    IsotonicCalibration,
    OneVsRest,
    StructuredMatrixScaling,
    TemperatureScaling,
    VectorScaling,
)
from dubito.data import Batch, Columns, scan
from dubito.decide import (
    CostMatrix,
    Decisions,
    OODGate,
    Policy,
    RiskBound,
    optimal_actions,
    realized_cost,
)
from dubito.doubt import (
    ClassConditionalDensity,
    ConformalOutlierDetector,
    MahalanobisDistance,
    NearestNeighborDistance,
    VirtualLogitMatching,
    energy,
)
from dubito.errors import BadTypeError, BadValueError, DubitoWarning, MissingLabelsWarning
from tests.decide.growing import growing

Array = NDArray[Any]

KEPT = Path(__file__).parent / "policies"
COLUMNS = ("action", "predicted_class", "probability", "expected_cost", "reason", "review_value")
COSTS = CostMatrix([[0, 4, 2], [1, 0, 5], [3, 1, 0]], classes=["ant", "bee", "cat"])
REJECTS = COSTS.with_reject([0.3, 0.5, 0.4])


def made(n_rows: int, n_classes: int = 3, seed: int = 0) -> tuple[Array, Array, Array]:
    """Return over-confident logits, labels, and features that separate the classes."""
    rng = np.random.default_rng(seed)
    logits = 4 * rng.normal(size=(n_rows, n_classes))
    y = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    features = rng.normal(size=(n_rows, 4)) + 2 * y[:, np.newaxis]
    return logits, y, features


Z, Y, X = made(400)
NEW_Z, NEW_Y, NEW_X = made(300, seed=1)


def fitted(**others: Any) -> Policy:
    settings: dict[str, Any] = {"costs": REJECTS, "calibrator": TemperatureScaling()} | others
    return Policy.fit(Logits(Z), Y, **settings)


def bound_at(max_risk: float | None) -> RiskBound | None:
    return None if max_risk is None else RiskBound(max_risk)


def calibrated_by_hand(policy: Policy, z: Array) -> Array:
    calibrator = policy.calibrator
    assert isinstance(calibrator, TemperatureScaling)
    p: Array = softmax(z.astype(np.float64) / calibrator.temperature_, axis=1)
    if policy.deploy_prior is not None:
        p = p * policy.deploy_prior / policy.train_prior
        p /= p.sum(axis=1, keepdims=True)
    return p


def p_values(known: Array, uncertainty: Array) -> Array:
    as_large = (known[np.newaxis] >= uncertainty[:, np.newaxis]).sum(axis=1)
    return np.asarray((1 + as_large) / (1 + known.size))


def decided_by_hand(
    policy: Policy, p: Array, is_ood: Array | None = None, row_costs: Array | None = None
) -> dict[str, Array]:
    """Decide row by row, action by action, class by class."""
    costs, frequencies = policy.costs, policy.train_prior
    if policy.deploy_prior is not None:
        frequencies = policy.deploy_prior
    found: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for i, row in enumerate(p):
        table = costs.at({} if row_costs is None else {"amount": row_costs[i]}).array
        expected = table @ row
        action, reason = int(expected.argmin()), 0
        if costs.reject is not None and expected[costs.reject] <= expected.min() + 1e-9:
            action, reason = costs.reject, 1
        others = [a for a in range(len(table)) if a != costs.reject]
        best = table[others].min(axis=0)
        if reason == 0 and policy.risk is not None:
            wrong = row[table[action] > best].sum()
            reason = 2 if 1 - wrong <= policy.risk.threshold_ + 1e-9 else 0
        if is_ood is not None and is_ood[i]:
            reason = 3
        if reason:
            assert costs.reject is not None
            action = costs.reject
        worth = 0.0
        if action == costs.reject:
            known = frequencies if reason == 3 else row
            worth = (table[others] @ known).min() - best @ known
            if len({str(cell) for cell in costs.texts[costs.reject]}) > 1 or row_costs is not None:
                worth -= table[costs.reject] @ known
        entries = (action, int(row.argmax()), row.max(), expected[action], reason, worth)
        for name, entry in zip(COLUMNS, entries, strict=True):
            found[name].append(entry)
    return {name: np.array(column) for name, column in found.items()}


def agree(decisions: Decisions, expected: dict[str, Array], tolerance: float = 1e-9) -> None:
    for name in ("action", "predicted_class", "reason"):
        assert np.array_equal(getattr(decisions, name), expected[name]), name
        assert getattr(decisions, name).dtype == np.int64
    for name in ("probability", "expected_cost", "review_value"):
        assert getattr(decisions, name) == pytest.approx(expected[name], abs=tolerance), name


def same(one: Decisions, other: Decisions) -> None:
    assert np.array_equal(one.probabilities, other.probabilities)
    for name in COLUMNS:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert (one.actions, one.classes, one.reject) == (other.actions, other.classes, other.reject)


@pytest.mark.slow
@pytest.mark.parametrize("costs", [COSTS, REJECTS, CostMatrix.zero_one(3).with_reject(0.2)])
@pytest.mark.parametrize("prior", [None, [0.6, 0.3, 0.1], [0.0, 0.5, 0.5]])
@pytest.mark.parametrize("max_risk", [None, 0.12])
def test_decisions_are_those_made_by_hand(
    costs: CostMatrix, prior: list[float] | None, max_risk: float | None
) -> None:
    if costs.reject is None and max_risk is not None:
        costs = costs.with_reject(5)
    policy = fitted(costs=costs, deploy_prior=prior, risk=bound_at(max_risk))
    decisions = policy.decide(Logits(NEW_Z))
    agree(decisions, decided_by_hand(policy, calibrated_by_hand(policy, NEW_Z)))
    assert policy.predict_proba(Logits(NEW_Z)) == pytest.approx(calibrated_by_hand(policy, NEW_Z))
    assert decisions.classes == policy.classes
    assert decisions.actions == costs.actions
    if max_risk is not None and prior is None:
        assert 2 in decisions.reason


@pytest.mark.slow
@pytest.mark.parametrize("max_risk", [None, 0.05])
def test_costs_that_grow_with_amounts(max_risk: float | None) -> None:
    rng = np.random.default_rng(5)
    rate = rng.normal(size=(3, 3))
    table = np.vstack([COSTS.array, [0.5, 0.6, 0.7]])
    grows = np.vstack([rate, [0.3, -0.1, 0.2]])  # asking, too, may cost more for larger row_costs
    costs = CostMatrix(growing(table, grows), ["a", "b", "c", "ask"], reject="ask")
    policy = fitted(costs=costs, row_costs=rng.random(400), risk=bound_at(max_risk))
    row_costs = 3 * rng.random(300)
    decisions = policy.decide(Logits(NEW_Z), row_costs=row_costs)
    p = calibrated_by_hand(policy, NEW_Z)
    agree(decisions, decided_by_hand(policy, p, row_costs=row_costs))
    assert (decisions.review_value[decisions.is_rejected] > 0).any()
    assert (2 in decisions.reason) == (max_risk is not None)


@pytest.mark.slow
@pytest.mark.parametrize("prior", [None, [0.6, 0.3, 0.1]])
def test_outliers_are_rejected_by_their_p_values(prior: list[float] | None) -> None:
    policy = fitted(features=X, deploy_prior=prior, ood=OODGate(alpha=0.05), risk=RiskBound(0.2))
    assert policy.ood is not None
    assert isinstance(policy.ood.score_, MahalanobisDistance)
    detector = policy.ood.detector_
    assert isinstance(detector, ConformalOutlierDetector)
    known = np.repeat(detector.scores_, detector.weight_.astype(int))
    assert known.size == 400
    features = NEW_X.copy()
    features[:5] += 50
    uncertainty = MahalanobisDistance().fit(X, Y).score(features)
    is_ood = p_values(known, uncertainty) < 0.05
    assert is_ood[:5].all()
    assert 5 < is_ood.sum() < 60
    decisions = policy.decide(Logits(NEW_Z), features)
    p = calibrated_by_hand(policy, NEW_Z)
    agree(decisions, decided_by_hand(policy, p, is_ood))


@pytest.mark.slow
@pytest.mark.parametrize("uncertainty", ["energy", energy])
def test_a_score_of_outputs_needs_no_features(uncertainty: Any) -> None:
    policy = fitted(ood=OODGate(uncertainty, 0.05))
    assert policy.ood is not None
    known = -np.log(np.exp(Z).sum(axis=1))
    is_ood = p_values(known, -np.log(np.exp(NEW_Z).sum(axis=1))) < 0.05
    assert is_ood.any()
    p = calibrated_by_hand(policy, NEW_Z)
    agree(policy.decide(Logits(NEW_Z)), decided_by_hand(policy, p, is_ood))


@pytest.mark.slow
def test_the_fraction_of_new_in_distribution_rows_flagged_is_about_alpha() -> None:
    z, y, x = made(2000, seed=7)
    costs = CostMatrix.zero_one(3).with_reject(0.3)
    policy = Policy.fit(
        Logits(z),
        y,
        costs=costs,
        calibrator=IdentityCalibrator(),
        features=x,
        ood=OODGate(alpha=0.05),
    )
    new_z, _, new_x = made(20_000, seed=8)
    share = (policy.decide(Logits(new_z), new_x).reason == 3).mean()
    assert 0.035 < share < 0.065


@pytest.mark.slow
def test_the_risk_bound_holds_on_fresh_rows() -> None:
    costs = CostMatrix.zero_one(3).with_reject(0.9)
    new_z, new_y, _ = made(20_000, seed=99)
    risks, coverages = [], []
    for seed in range(8):
        z, y, _ = made(1000, seed=seed)
        scaling = TemperatureScaling()
        policy = Policy.fit(
            Logits(z),
            y,
            costs=costs,
            calibrator=scaling,
            risk=RiskBound(0.1, 0.2),
            random_state=seed,
        )
        decisions = policy.decide(Logits(new_z))
        is_open = ~decisions.is_rejected
        coverages.append(is_open.mean())
        risks.append((decisions.action != new_y)[is_open].mean() if is_open.any() else 0.0)
        assert policy.report.bound_cost is not None
        assert policy.report.bound_cost.value > 0
    # At most a fifth is expected beyond the bound, more than 4 of 8 with a chance of 1 %.
    assert sum(risk > 0.1 for risk in risks) <= 4
    assert max(risks) > 0.05  # a bound that rejects every row would be none
    assert max(coverages) > 0.3


@pytest.mark.slow
def test_float32_and_probabilities_and_one_column() -> None:
    policy = fitted()
    z = NEW_Z.astype(np.float32)
    agree(
        policy.decide(Logits(z)),
        decided_by_hand(policy, calibrated_by_hand(policy, z)),
        tolerance=1e-5,
    )
    p = softmax(NEW_Z, axis=1)
    one = policy.decide(Logits(NEW_Z))
    other = policy.decide(p)
    assert np.array_equal(one.action, other.action)
    assert one.expected_cost == pytest.approx(other.expected_cost, abs=1e-9)
    costs = CostMatrix.from_errors(false_positive=1, false_negative=4).with_reject(0.3)
    odds, y = Z[:, 0] - Z[:, 1], (Y == 0).astype(int)
    binary = Policy.fit(Logits(odds), y, costs=costs, calibrator=TemperatureScaling())
    two = np.column_stack([np.zeros(300), NEW_Z[:, 0]])
    expected = decided_by_hand(binary, calibrated_by_hand(binary, two))
    agree(binary.decide(Logits(NEW_Z[:, 0])), expected)
    agree(binary.decide(1 / (1 + np.exp(-NEW_Z[:, 0]))), expected, 1e-6)


@pytest.mark.slow
def test_members_count_as_their_mean() -> None:
    passes = [softmax(Z + shift, axis=1) for shift in np.random.default_rng(0).normal(size=(3, 3))]
    members, mean = Members(np.stack(passes)), np.mean(passes, axis=0)
    scaling = TemperatureScaling()
    several = Policy.fit(members, Y, costs=REJECTS, calibrator=scaling)
    one = Policy.fit(Probabilities(mean), Y, costs=REJECTS, calibrator=scaling)
    same(several.decide(members), one.decide(Probabilities(mean)))
    assert several.report == one.report


@pytest.mark.slow
def test_blocks_and_threads_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = fitted(features=X, risk=RiskBound(0.2), deploy_prior=[0.2, 0.3, 0.5])
    whole = policy.decide(Logits(NEW_Z), NEW_X)
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "60")
    same(policy.decide(Logits(NEW_Z), NEW_X), whole)
    monkeypatch.setenv("DUBITO_THREADS", "1")
    same(policy.decide(Logits(NEW_Z), NEW_X), whole)


@pytest.mark.slow
def test_no_rows_are_no_decisions() -> None:
    decisions = fitted(features=X, risk=RiskBound(0.2)).decide(Logits(Z[:0]), X[:0])
    assert len(decisions) == 0
    assert decisions.review_order.size == 0
    assert str(decisions) == "0 rows: ant 0.0 %, bee 0.0 %, cat 0.0 %, reject 0.0 %."


@pytest.mark.slow
def test_weights_count_rows() -> None:
    weight = np.random.default_rng(0).integers(0, 3, 400)
    twice = np.repeat(np.arange(400), weight)
    weighted = fitted(sample_weight=weight)
    repeated = Policy.fit(
        Logits(Z[twice]), Y[twice], costs=REJECTS, calibrator=TemperatureScaling()
    )
    assert weighted.train_prior == pytest.approx(repeated.train_prior)
    one, other = weighted.calibrator, repeated.calibrator
    assert isinstance(one, TemperatureScaling)
    assert isinstance(other, TemperatureScaling)
    assert one.temperature_ == pytest.approx(other.temperature_, rel=1e-6)
    assert weighted.report.n_rows == (weight > 0).sum()


@pytest.mark.slow
def test_missing_labels_are_left_out_with_a_warning() -> None:
    labels = np.where(np.arange(400) < 250, Y, np.nan)
    with pytest.warns(MissingLabelsWarning, match=r"Policy\.fit"):
        partly = Policy.fit(
            Logits(Z), labels, costs=REJECTS, calibrator=TemperatureScaling(), features=X
        )
    whole = Policy.fit(
        Logits(Z[:250]), Y[:250], costs=REJECTS, calibrator=TemperatureScaling(), features=X[:250]
    )
    assert partly.report == whole.report
    same(partly.decide(Logits(NEW_Z), NEW_X), whole.decide(Logits(NEW_Z), NEW_X))


@pytest.mark.slow
def test_shares_of_labels_are_labels() -> None:
    hard = fitted()
    soft = Policy.fit(Logits(Z), np.eye(3)[Y], costs=REJECTS, calibrator=TemperatureScaling())
    assert soft.report.cost.value == pytest.approx(hard.report.cost.value)
    assert soft.train_prior == pytest.approx(hard.train_prior)
    votes = 0.9 * np.eye(3)[Y] + 0.1 / 3
    unsure = Policy.fit(Logits(Z), votes, costs=REJECTS, calibrator=TemperatureScaling())
    assert unsure.train_prior == pytest.approx((votes.sum(axis=0) + 1 / 3) / 401)
    assert unsure.report.cost.value > hard.report.cost.value


@pytest.mark.slow
def test_files_give_what_arrays_do(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    row_costs = rng.random(400)
    columns = {f"z_{k}": Z[:, k] for k in range(3)} | {f"x_{k}": X[:, k] for k in range(4)}
    table = pa.table({**columns, "y": Y, "price": row_costs, "w": np.ones(400)})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=100)
    shards = scan(
        tmp_path / "rows.parquet",
        Columns(label="y", logits="z_*", features="x_*", row_costs="price", weight="w"),
    )
    cells = growing(1 - np.eye(3), 1 - np.eye(3), "price")
    costs = CostMatrix(cells).with_reject(0.6)
    settings: dict[str, Any] = {
        "costs": costs,
        "calibrator": TemperatureScaling(),
        "risk": RiskBound(0.2),
    }
    streamed = Policy.fit(shards, **settings)
    held = Policy.fit(Logits(Z), Y, features=X, row_costs=row_costs, **settings)
    one = streamed.decide(Logits(NEW_Z), NEW_X, row_costs[:300])
    other = held.decide(Logits(NEW_Z), NEW_X, row_costs[:300])
    assert np.array_equal(one.action, other.action)
    assert np.array_equal(one.reason, other.reason)
    assert one.expected_cost == pytest.approx(other.expected_cost, rel=1e-9)
    assert streamed.report.cost.value == pytest.approx(held.report.cost.value)
    assert streamed.provenance["n_rows"] == held.provenance["n_rows"] == 400
    same(held.decide(Logits(NEW_Z), NEW_X, row_costs[:300]), other)
    judged = fitted(costs=costs, row_costs=row_costs, features=X, evaluate_on=shards)
    assert judged.report.evaluation == "an evaluation set"
    assert judged.report.n_rows == 400


@pytest.mark.slow
def test_classes_are_found_by_name() -> None:
    names = ["cat", "ant", "bee"]
    order = [2, 0, 1]
    named = Policy.fit(
        Logits(Z[:, order], names),
        np.array(["ant", "bee", "cat"])[Y],
        costs=REJECTS,
        calibrator=TemperatureScaling(),
        deploy_prior={"ant": 0.2, "bee": 0.3, "cat": 0.5},
    )
    plain = fitted(deploy_prior=[0.2, 0.3, 0.5])
    one, other = named.decide(Logits(NEW_Z[:, order], names)), plain.decide(Logits(NEW_Z))
    assert np.array_equal(one.columns()["action"], other.columns()["action"])
    assert np.array_equal(one.columns()["class"], other.columns()["class"])
    assert one.expected_cost == pytest.approx(other.expected_cost)
    assert named.classes == ("cat", "ant", "bee")
    assert fitted(costs=CostMatrix.zero_one(3)).classes == (0, 1, 2)


@pytest.mark.slow
def test_the_callers_arrays_are_untouched() -> None:
    arrays = [Z.copy(), Y.copy(), X.copy(), np.ones(400)]
    policy = Policy.fit(
        Logits(arrays[0]),
        arrays[1],
        costs=REJECTS,
        features=arrays[2],
        sample_weight=arrays[3],
        risk=RiskBound(0.2),
        calibrator=TemperatureScaling(),
    )
    policy.decide(Logits(arrays[0]), arrays[2])
    for array, original in zip(arrays, [Z, Y, X, np.ones(400)], strict=True):
        assert np.array_equal(array, original)
        assert array.flags.writeable


@pytest.mark.slow
def test_a_calibrator_that_was_given_is_left_alone() -> None:
    given_one = TemperatureScaling().fit(Logits(Z[:50]), Y[:50])
    before = given_one.temperature_
    policy = fitted(calibrator=given_one)
    assert given_one.temperature_ == before
    assert policy.calibrator is not given_one


CALIBRATORS: dict[str, BaseCalibrator | str] = {
    "temperature": TemperatureScaling(),
    "vector": VectorScaling(),
    "matrix": StructuredMatrixScaling(),
    "mixture": EnsembleTemperatureScaling(),
    "beta": OneVsRest(BetaCalibration()),
    "isotonic": OneVsRest(IsotonicCalibration()),
    "forest": ForestCalibration(),
    "auto": "auto",
}


@pytest.mark.slow
@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_a_file_decides_to_the_last_digit_as_what_was_saved(
    calibrator: str, tmp_path: Path
) -> None:
    policy = fitted(calibrator=CALIBRATORS[calibrator], deploy_prior=[0.2, 0.3, 0.5])
    again = saved_and_loaded(policy, tmp_path)
    same(again.decide(Logits(NEW_Z)), policy.decide(Logits(NEW_Z)))
    assert np.array_equal(again.predict_proba(Logits(NEW_Z)), policy.predict_proba(Logits(NEW_Z)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "uncertainty", [MahalanobisDistance(), ClassConditionalDensity(), "energy", "entropy"]
)
def test_a_gate_in_a_file_is_the_same(uncertainty: Any, tmp_path: Path) -> None:
    policy = fitted(features=X, ood=OODGate(uncertainty, 0.05), risk=RiskBound(0.15))
    again = saved_and_loaded(policy, tmp_path)
    same(again.decide(Logits(NEW_Z), NEW_X), policy.decide(Logits(NEW_Z), NEW_X))
    assert again.explain(Logits(NEW_Z), NEW_X) == policy.explain(Logits(NEW_Z), NEW_X)


def stored(bound: RiskBound | None) -> Any:
    return None if bound is None else bound.to_dict()


def saved_and_loaded(policy: Policy, folder: Path) -> Policy:
    policy.save(folder / "policy.json")
    again = Policy.load(folder / "policy.json")
    assert str(again) == str(policy)
    assert again.report == policy.report
    assert again.provenance == policy.provenance
    assert stored(again.risk) == stored(policy.risk)
    again.save(folder / "again.json")
    texts = [(folder / name).read_text() for name in ("policy.json", "again.json")]
    assert json.loads(texts[0]) == json.loads(texts[1])
    return again


@pytest.mark.slow
def test_auto_on_many_rows_survives_a_file(tmp_path: Path) -> None:
    z, y, _ = made(1500, seed=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DubitoWarning)
        policy = Policy.fit(Logits(z), y, costs=REJECTS)
    assert isinstance(policy.calibrator, AutoCalibrator)
    again = saved_and_loaded(policy, tmp_path)
    same(again.decide(Logits(NEW_Z)), policy.decide(Logits(NEW_Z)))


@pytest.mark.slow
def test_the_fitted_and_the_loaded_can_be_pickled(tmp_path: Path) -> None:
    policy = fitted(features=X, risk=RiskBound(0.2))
    for one in (policy, saved_and_loaded(policy, tmp_path)):
        restored = pickle.loads(pickle.dumps(one))
        same(restored.decide(Logits(NEW_Z), NEW_X), policy.decide(Logits(NEW_Z), NEW_X))


def test_a_file_of_format_1_stays_readable() -> None:
    policy = Policy.load(KEPT / "format-1.json")
    kept = json.loads((KEPT / "format-1-decisions.json").read_text())
    decisions = policy.decide(Logits(kept["logits"]), kept["features"])
    for name in COLUMNS:
        assert getattr(decisions, name) == pytest.approx(np.array(kept[name]), abs=1e-9), name
    assert set(kept["reason"]) == {0, 1, 2, 3}
    p = calibrated_by_hand(policy, np.array(kept["logits"]))
    assert decisions.probability == pytest.approx(p.max(axis=1), abs=1e-9)
    assert policy.feature_names == ("length", "width")


@pytest.mark.slow
def test_provenance_says_where_it_is_from() -> None:
    one, other = (
        fitted(random_state=3).provenance,
        fitted(sample_weight=np.full(400, 2.0)).provenance,
    )
    assert set(one) == {
        "dubito", "created", "fingerprint", "n_rows", "calibrator", "random_state", "outputs",
    }  # fmt: skip
    assert one["n_rows"] == 400
    assert one["random_state"] == 3
    assert one["fingerprint"] != other["fingerprint"]
    assert one["fingerprint"] == fitted().provenance["fingerprint"]
    assert one["calibrator"].startswith("TemperatureScaling (T = ")
    curves = fitted(calibrator=OneVsRest(IsotonicCalibration())).provenance["calibrator"]
    assert curves.startswith("OneVsRest (")


@pytest.mark.slow
def test_features_of_frames_keep_their_names() -> None:
    names = ["a", "b", "c", "d"]
    frame = pd.DataFrame(X, columns=names)
    policy = fitted(features=frame)
    assert policy.feature_names == tuple(names)
    same(policy.decide(Logits(Z), frame), policy.decide(Logits(Z), X))
    with pytest.raises(BadValueError, match=r"\('a', 'b', 'c', 'd'\), got \('b', .*Order the col"):
        policy.decide(Logits(Z), frame[["b", "a", "c", "d"]])


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"costs": [[0, 1], [1, 0]]}, r"`costs`.* a CostMatrix.* list\. .*CostMatrix\(costs\)"),
    ({"costs": CostMatrix.zero_one(4)}, r"4 classes, got outputs with 3\. .*one cost column"),
    (
        {"costs": CostMatrix([[1, 1, 1]], ["reject"])},
        r"an action that does not reject, got only a reject action\. Use .*with_reject",
    ),
    (
        {"costs": COSTS, "features": X},
        r"`costs` must have a reject action for the OOD gate.* Use costs\.with_reject",
    ),
    (
        {"costs": COSTS, "risk": RiskBound(0.1)},
        r"`costs` must have a reject action for the risk bound.* Use costs\.with_reject",
    ),
    ({"calibrator": "platt"}, r"`calibrator` must be 'auto' or .*got 'platt'\. Use .*Temperature"),
    (
        {"ood": OODGate(MahalanobisDistance())},
        r"`features` must be given.* got None\. Pass features=.*OODGate\('entropy'\)",
    ),
    ({"ood": "energy"}, r"`ood` must be None or OODGate.* got 'energy'\. Use ood=OODGate\("),
    ({"risk": 0.1}, r"`risk` must be None or RiskBound.* got 0\.1\. Use risk=RiskBound\("),
    ({"ood": OODGate(alpha=0), "features": X}, r"`alpha`.* between 0 and 1.* 0\. .*percentages"),
    ({"risk": RiskBound(5)}, r"`max_risk`.* between 0 and 1.* 5\. .*percentages"),
    ({"risk": RiskBound(0.1, 1.0)}, r"`delta`.* between 0 and 1.* 1\.0\. .*percentages"),
    ({"random_state": -1}, r"`random_state` must be None, .* got -1\. Pass random_state=0"),
    ({"row_costs": np.ones(400)}, r"`row_costs`.* ndarray\. .*CostMatrix\(\[\["),
    (
        {"costs": CostMatrix([[0, "fee", 0]] * 3)},
        r"`row_costs` must hold the columns of the costs, 'fee', got None\. .*row_costs=",
    ),
    ({"deploy_prior": [0.5, 0.5]}, r"`deploy_prior`.* 3 .* 2\. .* every"),
]


@pytest.mark.parametrize(("arguments", "text"), MISTAKES)
def test_invalid_arguments_of_a_fit_raise(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises((BadTypeError, BadValueError), match=text):
        fitted(**arguments)


@pytest.mark.slow
def test_invalid_arguments_of_a_decision_raise() -> None:
    gated = fitted(features=X)
    named = fitted()
    calls: list[tuple[Any, str]] = [
        (lambda: gated.decide(Logits(Z)), r"`features` must be given.* None\. Pass the features"),
        (lambda: gated.decide(Logits(Z), X[:5]), r"`features`.* 400.* 5\. .*row order"),
        (
            lambda: named.decide(Logits(Z, ["bee", "ant", "cat"])),
            r"`outputs`.* \('ant', 'bee', 'cat'\), .* got \('bee', 'ant', 'cat'\)\. Pass the col",
        ),
        (
            lambda: named.decide(Logits(Z[:, :2])),
            r"`outputs` must have 3 columns, .* got 2\. Pass",
        ),
        (
            lambda: named.decide(Logits(Z), row_costs=np.ones(400)),
            r"Policy\.decide.* ndarray\. .*CostMatrix\(\[\[",
        ),
        (lambda: named.explain(Logits(Z), row=400), r"`row`.* 0 to 399, got 400\. Use row=0"),
    ]
    for call, text in calls:
        with pytest.raises((BadTypeError, BadValueError), match=text):
            call()


@pytest.mark.slow
@pytest.mark.parametrize(
    "score",
    [
        "energy",
        "entropy",
        "least_confidence",
        "margin_uncertainty",
        MahalanobisDistance(),
        ClassConditionalDensity(),
        NearestNeighborDistance(5, normalize=False),
        VirtualLogitMatching(np.ones((3, X.shape[1])) + np.eye(3, X.shape[1]), np.zeros(3)),
    ],
    ids=str,
)
def test_every_gate_is_saved_loaded_and_saved_again(score: Any, tmp_path: Path) -> None:
    policy = fitted(features=X, ood=OODGate(score, 0.05))
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    policy.save(first)
    loaded = Policy.load(first)
    loaded.save(second)
    assert first.read_text() == second.read_text()
    for new in (NEW_X, NEW_X + 9):
        expected = policy.decide(Logits(NEW_Z), new)
        found = Policy.load(second).decide(Logits(NEW_Z), new)
        assert np.array_equal(found.action, expected.action)
        assert np.array_equal(found.reason, expected.reason)


@pytest.mark.slow
def test_an_evaluation_set_is_what_it_is_judged_on() -> None:
    batch = Batch.of(NEW_Y, Logits(NEW_Z), features=NEW_X)
    policy = fitted(features=X, evaluate_on=batch, risk=RiskBound(0.2))
    decisions = policy.decide(Logits(NEW_Z), NEW_X)
    paid = REJECTS.array[decisions.action, NEW_Y]
    assert policy.report.evaluation == "an evaluation set"
    assert policy.report.n_rows == 300
    assert policy.report.cost.value == pytest.approx(paid.mean())
    assert policy.report.coverage.value == pytest.approx((~decisions.is_rejected).mean())
    same(decisions, fitted(features=X, risk=RiskBound(0.2)).decide(Logits(NEW_Z), NEW_X))


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_extreme_rows_are_decided(data: Any) -> None:
    entries = st.floats(-1e4, 1e4) | st.sampled_from([0.0, 1e30, -1e30, 88.0])
    rows = data.draw(st.lists(st.lists(entries, min_size=3, max_size=3), min_size=1, max_size=4))
    kind = data.draw(st.sampled_from([np.float32, np.float64]))
    decisions = ANY.decide(Logits(np.array(rows, kind)), np.zeros((len(rows), 4)))
    for field in fields(decisions):
        values = getattr(decisions, field.name)
        if isinstance(values, np.ndarray):
            assert np.isfinite(values).all()
    assert np.array_equal(decisions.probabilities, ANY.predict_proba(Logits(np.array(rows, kind))))
    assert (decisions.expected_cost >= 0).all()


ANY = fitted(features=X, risk=RiskBound(0.2), deploy_prior=[0.2, 0.3, 0.5])


def test_labels_that_are_probabilities_bound_no_risk() -> None:
    shares = np.tile([0.55, 0.45], (60, 1))
    costs = CostMatrix.zero_one(2).with_reject(0.48)
    scaling = TemperatureScaling()
    with pytest.raises(BadValueError, match=r"`y`.* label probabilities\. Pass the most probable"):
        Policy.fit(shares, shares, costs=costs, calibrator=scaling, risk=RiskBound(0.1))
    report = Policy.fit(shares, shares, costs=costs, calibrator=IdentityCalibrator()).report
    assert report.risk is not None
    assert report.risk.value == pytest.approx(0.45)


def test_no_errors_among_few_rows_are_no_proof_of_none() -> None:
    z = np.repeat([[9.0, 0.0], [0.0, 9.0]], 10, axis=0)
    report = Policy.fit(Logits(z), np.repeat([0, 1], 10), costs=CostMatrix.zero_one(2),
                        calibrator=IdentityCalibrator()).report  # fmt: skip
    assert report.risk is not None
    assert (report.risk.value, report.risk.low) == (0.0, 0.0)
    assert report.risk.high == pytest.approx(binomtest(0, 20).proportion_ci().high)
    assert "Too few rows for reliable costs." in str(report)


def test_a_prior_must_leave_some_of_the_labels() -> None:
    with pytest.raises(BadValueError, match=r"`deploy_prior`.* 0 for all of them\. Change"):
        Policy.fit(Logits(np.eye(3)[[0, 1] * 20]), [0, 1] * 20, costs=CostMatrix.zero_one(3),
                   calibrator=IdentityCalibrator(), deploy_prior=[0, 0, 1])  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outputs", "features", "words"),
    [
        (np.ones((2, 4)) / 4, X[:2], "Policy.decide: `outputs` must have 3 columns"),
        (np.ones((2, 3)) / 3, X[:2, :1], "Policy.decide: `features` must have 4 columns"),
    ],
)
def test_arguments_that_do_not_fit_raise_in_the_terms_of_the_policy(
    outputs: Array, features: Array, words: str
) -> None:
    policy = fitted(features=X)
    with pytest.raises(BadValueError) as caught:
        policy.decide(outputs, features)
    assert str(caught.value).startswith(words)


def test_rows_to_be_judged_on_need_features_too() -> None:
    with pytest.raises(BadTypeError, match="`evaluate_on` must have features"):
        fitted(features=X, evaluate_on=Batch.of(Y, Logits(Z)))


@pytest.mark.parametrize("row", [1.5, True, "0"])
def test_a_row_to_explain_is_a_number(row: Any) -> None:
    with pytest.raises(BadValueError, match="must be an integer from 0 to"):
        fitted().explain(Logits(Z), row=row)


@pytest.mark.slow
def test_an_edited_policy_says_that_its_figures_are_older(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    fitted().save(path)
    Policy.seal(path)
    assert "edited" not in Policy.load(path).provenance
    document = json.loads(path.read_text())
    document["costs"]["costs"][0][1] = 5000
    path.write_text(json.dumps(document))
    Policy.seal(path)
    again = Policy.load(path)
    assert again.costs.array[0, 1] == 5000
    assert "Edited by hand on 20" in str(again)
    assert "describe the policy before the edit." in str(again)


def test_an_action_that_never_wins_is_warned_about_unless_a_bound_or_gate_takes_it() -> None:
    costs = CostMatrix.zero_one(3).with_reject(0.9, "ask")
    message = "'ask' costs 0.9 and is never chosen: it would have to cost 0.6667 or less."
    with pytest.warns(DubitoWarning, match=re.escape(message)):
        Policy.fit(Logits(Z), Y, costs=costs, calibrator=IdentityCalibrator())
    bound = RiskBound(0.4)
    Policy.fit(Logits(Z), Y, costs=costs, calibrator=IdentityCalibrator(), risk=bound)


def test_two_classes_have_thresholds_and_uncalibrated_ones() -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(-2, 2, 3000)
    y = (rng.random(3000) < 1 / (1 + np.exp(-odds / 2))).astype(int)
    costs = CostMatrix([[0, 20], [1, 0]], ["pass", "block"]).with_reject(0.5, "review")
    outputs = Logits(np.column_stack([np.zeros(3000), odds]))
    policy = Policy.fit(outputs, y, costs=costs, calibrator=TemperatureScaling())
    assert [one.action for one in policy.thresholds] == ["pass", "review", "block"]
    assert policy.thresholds[0].high == pytest.approx(0.025)
    temperature = policy.calibrator.temperature_
    raw = policy.uncalibrated_probability(0.025)
    assert raw is not None
    assert raw == pytest.approx(1 / (1 + (0.975 / 0.025) ** temperature), rel=0.01)
    line = str(policy).splitlines()[0]
    known = policy.report.uncalibrated_thresholds[0]
    assert known is not None
    assert known.value == raw
    assert known.low < 1 / (1 + 39**2) < known.high  # the model's log odds are twice too large
    own = f"uncalibrated {raw:.3g}, 95 % interval {known.low:.3g} to {known.high:.3g}"
    start = f"By calibrated P(1): pass below 0.025 ({own}), review from 0.025 to"
    assert line.startswith(start)
    actions = policy.decide(outputs).action
    p = policy.predict_proba(outputs)[:, 1]
    assert (actions == np.select([p < 0.025, p <= 0.5], [0, 2], 1)).all()
    assert fitted().thresholds == ()
    # The first class may be the positive one: the same decisions, the other way round.
    other = Policy.fit(outputs, y, costs=costs, calibrator=TemperatureScaling(), pos_label=0)
    assert [one.action for one in other.thresholds] == ["block", "review", "pass"]
    assert other.thresholds[-1].low == pytest.approx(0.975)
    assert other.uncalibrated_probability(0.975) == pytest.approx(1 - raw, abs=1e-6)
    assert Policy.from_json(other.to_json()).pos_column == 0
    with pytest.raises(BadValueError, match="`pos_label` must be one of the two classes, got 2"):
        Policy.fit(outputs, y, costs=costs, calibrator=TemperatureScaling(), pos_label=2)
    flipped = other.report.uncalibrated_thresholds[-1]
    assert flipped is not None
    edges = [flipped.value, flipped.high, flipped.low]
    assert edges == pytest.approx([1 - known.value, 1 - known.low, 1 - known.high], abs=1e-4)
    with pytest.warns(DubitoWarning, match=r"Every row is rejected, .*max_risk=0\.2\. Raise it"):
        bound = Policy.fit(
            outputs, y, costs=costs, calibrator=TemperatureScaling(), risk=RiskBound(0.2)
        )
    assert str(bound).startswith("The risk bound rejects every row. Without it, actions depend on")


def rare(n: int, seed: int) -> tuple[Logits, Array]:
    rng = np.random.default_rng(seed)
    odds = rng.normal(-4, 1.7, n)
    y = (rng.random(n) < 1 / (1 + np.exp(-(0.5 + 0.7 * odds)))).astype(int)
    return Logits(np.column_stack([np.zeros(n), odds])), y


@pytest.mark.slow
def test_intervals_of_uncalibrated_thresholds_cover_the_true_one() -> None:
    costs = CostMatrix([[0, 24], [1, 0]], ["pass", "block"])  # blocks from 0.04 on
    true = (np.log(0.04 / 0.96) - 0.5) / 0.7
    found = []
    for seed in range(24):
        outputs, y = rare(2000, seed)
        policy = Policy.fit(outputs, y, costs=costs, calibrator=BetaCalibration())
        interval = policy.report.uncalibrated_thresholds[0]
        assert interval is not None
        found.append(interval.low < 1 / (1 + np.exp(-true)) < interval.high)
    assert np.mean(found) >= 0.83  # 95 % intervals: 1 in 100 such tests finds less


def test_a_policy_is_compared_with_what_is_done_today() -> None:
    outputs, y = rare(1500, 0)
    costs = CostMatrix([[0, 24], [1, 0]], ["pass", "block"]).with_reject(0.6, "review")
    p = 1 / (1 + np.exp(-outputs.array[:, 1]))
    settings: dict[str, Any] = {"costs": costs, "calibrator": TemperatureScaling()}
    for current, taken, name in [
        ("argmax", p > 0.5, "the action for the most probable class (argmax)"),
        (0.03, p >= 0.03, "a threshold of 0.03 on the uncalibrated P(1)"),
        (np.where(p >= 0.2, "block", "pass"), p >= 0.2, "what was done (the current actions)"),
    ]:
        report = Policy.fit(outputs, y, current=current, **settings).report
        paid = realized_cost(y, taken.astype(int), costs)
        assert report.current == name
        assert report.current_cost == pytest.approx(paid, abs=1e-12)
        assert report.current_saved.value == pytest.approx(paid - report.cost.value, abs=1e-12)
        assert report.current_saved.low < report.current_saved.value < report.current_saved.high
    # The positive class may be the first, and rows may hold the actions.
    flipped = Logits(outputs.array[:, ::-1])
    first = Policy.fit(
        flipped,
        1 - y,
        costs=CostMatrix(costs.array[:, ::-1], costs.actions, reject="review"),
        calibrator=TemperatureScaling(),
        current=0.03,
        pos_label=0,
    ).report
    assert first.current == "a threshold of 0.03 on the uncalibrated P(0)"
    assert first.current_cost == pytest.approx(realized_cost(y, (p >= 0.03).astype(int), costs))
    rows = Batch.of(y, outputs, current_actions=["review"] * 1500)
    assert Policy.fit(rows, **settings).report.current_cost == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("current", "message"),
    [
        (1.5, "`current` must be a number between 0 and 1"),
        ("foo", "`current` must be 'argmax', a threshold from 0 to 1, or one action per row"),
        (["pass"] * 1499 + ["stop"], "`current_actions` must be names of actions"),
        (["pass"], "`current_actions`"),
    ],
)
def test_an_invalid_current_rule_raises(current: Any, message: str) -> None:
    outputs, y = rare(1500, 0)
    costs = CostMatrix([[0, 24], [1, 0]], ["pass", "block"])
    with pytest.raises((BadValueError, BadTypeError), match=message):
        Policy.fit(outputs, y, costs=costs, calibrator=TemperatureScaling(), current=current)
    with pytest.raises(BadValueError, match="unless there are two classes"):
        Policy.fit(Logits(Z), Y, costs=CostMatrix.zero_one(3), current=0.5)


def test_odd_costs_are_warned_about_and_noted() -> None:
    outputs, y = rare(1500, 0)
    settings: dict[str, Any] = {"calibrator": TemperatureScaling()}
    zero_one = CostMatrix.zero_one(2)
    cases: list[tuple[CostMatrix, dict[str, Any], str]] = [
        (CostMatrix([[1, 2], [1, 2]]), {}, "All actions cost the same in each class"),
        (zero_one.with_reject(3, "review"), {}, "'review' costs 3 and is never chosen"),
        (
            zero_one.with_reject(0.6),
            {},
            "'reject' costs 0.6 and is never chosen: it would have to cost 0.5 or less.",
        ),
        (
            CostMatrix([[0, 24], [1, 0]]).with_reject(0.1),
            {"max_review_rate": 0.25},
            r"[\d.]+ % of rows are rejected, above the limit of 25.0 %",
        ),
    ]
    for costs, more, message in cases:
        with pytest.warns(DubitoWarning, match=message):
            policy = Policy.fit(outputs, y, costs=costs, **settings, **more)
        assert re.match(message, policy.report.notes[-1])
        assert Policy.from_json(policy.to_json()).report.notes == policy.report.notes
        assert policy.report.notes[-1] in str(policy)
    # The cost of rejecting that the last note names keeps to the limit.
    match = re.search(r"if .reject. costs ([\d.]+) instead of 0.1\.$", policy.report.notes[-1])
    assert match
    costs = CostMatrix([[0, 24], [1, 0]]).with_reject(float(match[1]))
    kept = Policy.fit(outputs, y, costs=costs, **settings, max_review_rate=0.25)
    assert 0.1 < 1 - kept.report.coverage.value <= 0.25


def test_classes_in_pairs_have_thresholds_of_their_own() -> None:
    policy = fitted()
    names = policy.classes
    found = policy.thresholds_between(names[0], names[1])
    edge = np.linspace(0, 1, 401)
    p = np.zeros((401, 3))
    p[:, 0], p[:, 1] = 1 - edge, edge
    actions = np.array(policy.costs.actions)[optimal_actions(p, policy.costs)]
    for one in found:
        inside = (edge > one.low + 1e-6) & (edge < one.high - 1e-6)
        assert set(actions[inside]) == {one.action}
    with pytest.raises(BadValueError, match="must be a class of the policy, got 'dog'"):
        policy.thresholds_between(names[0], "dog")

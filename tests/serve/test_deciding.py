from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dubito import calibrate
from dubito.calibrate import BaseCalibrator, TemperatureScaling
from dubito.decide import CostMatrix, Policy, RiskBound
from dubito.outputs import Logits
from dubito.serve.asking import AskedRows
from dubito.serve.deciding import (
    Question,
    _decide_rows,
    answer_columns,
    answer_of,
    decide_together,
)
from dubito.serve.refusals import RefusedError
from dubito.serve.settings import Settings
from dubito.serve.store import NewDecisions
from tests.serve.conftest import SURE, TORN


def test_what_is_kept_is_what_the_policy_says(policy: Policy) -> None:
    rng = np.random.default_rng(1)
    logits = (3 * rng.normal(size=(400, 3))).astype(np.float32)
    settings = Settings(audit_share=0.25)
    asked = AskedRows.of({"logits": logits}, 3, settings)
    new = _decide_rows(asked, 5, policy, settings, np.random.default_rng(0))
    wanted = policy.decide(Logits(logits))
    for name in ("action", "class_", "probability", "expected_cost", "reason", "review_value"):
        assert new.columns[name] == getattr(wanted, name).tolist()
    shares = np.frombuffer(b"".join(new.columns["probabilities"]), "<f4").reshape(-1, 3)
    assert shares == pytest.approx(policy.predict_proba(Logits(logits)), abs=1e-7)
    assert (
        np.frombuffer(b"".join(new.columns["outputs"]), "<f4").tolist() == logits.ravel().tolist()
    )
    assert new.columns["policy_id"] == [5] * 400
    is_rejected = wanted.is_rejected
    assert 0 < is_rejected.sum() < 400
    assert new.columns["propensity"] == np.where(is_rejected, 1.0, 0.25).tolist()
    drawn = np.random.default_rng(0).random(400) < 0.25
    assert new.columns["is_audit"] == drawn.tolist()


def test_the_answer_names_what_numbers_mean(
    policy: Policy, new: Callable[..., NewDecisions]
) -> None:
    answer = answer_columns(new({"x": SURE, "y": TORN}), {}, lambda _: policy)
    assert answer["action"] == ["a", "reject"]
    assert answer["class"] == ["a", "a"]
    assert answer["reason"] == ["lowest_expected_cost", "reject_costs_less"]


def test_what_was_decided_before_is_answered_as_it_was_then(
    policy: Policy, new: Callable[..., NewDecisions]
) -> None:
    made = new({"x": SURE, "y": TORN})
    before = {
        "id": "y", "policy_id": 7, "action": 1, "class_": 2, "probability": 0.5,
        "expected_cost": 0.25, "reason": 0, "review_value": 0.0,
    }  # fmt: skip
    asked_for = []

    def policies(policy_id: int) -> Policy:
        asked_for.append(policy_id)
        return policy

    answer = answer_columns(made, {"y": before}, policies)
    assert {name: values[1] for name, values in answer.items()} == {
        "id": "y", "policy": 7, "action": "b", "class": "c", "probability": 0.5,
        "expected_cost": 0.25, "reason": "lowest_expected_cost", "review_value": 0.0,
    }  # fmt: skip
    assert answer["id"][0] == "x"
    assert 7 in asked_for
    assert answer_of(before, policies)["policy"] == 7


CALIBRATORS = [
    calibrate.AutoCalibrator(),
    calibrate.ForestCalibration(),
    calibrate.MatrixScaling(),
    calibrate.OneVsRest(calibrate.IsotonicCalibration()),
    calibrate.StructuredMatrixScaling(),
    calibrate.EnsembleTemperatureScaling(),
    calibrate.TemperatureScaling(),
    calibrate.VectorScaling(),
]


def fitted(calibrator: BaseCalibrator, n_classes: int, **wishes: Any) -> Policy:
    rng = np.random.default_rng(0)
    logits = (3 * rng.normal(size=(300, n_classes))).astype(np.float32)
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    costs = wishes.pop("costs", CostMatrix.zero_one(n_classes).with_reject(0.4))
    return Policy.fit(Logits(logits), labels, costs=costs, calibrator=calibrator, **wishes)


def asked_of(n_classes: int, n_rows: int, seed: int, **more: Any) -> AskedRows:
    logits = 3 * np.random.default_rng(seed).normal(size=(n_rows, n_classes))
    return AskedRows.of({"logits": logits.tolist(), **more}, n_classes, Settings())


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("n_classes", [3, 40])
def test_rows_get_the_same_answer_alone_and_together(
    calibrator: BaseCalibrator, n_classes: int
) -> None:
    policy = fitted(calibrator, n_classes)
    links = {"links": ["https://a.org/x.png"]}
    asked = [asked_of(n_classes, n_rows, seed) for seed, n_rows in enumerate([1, 5, 1, 40, 1])]
    asked.append(asked_of(n_classes, 1, 9, **links))
    questions = [Question(one, 5, policy, f"k{k}", bytes([k])) for k, one in enumerate(asked)]
    assert {one.kind for one in questions} == {(5, Logits)}
    parts = decide_together(questions, Settings(audit_share=0.5), np.random.default_rng(0))
    drawing, n_before = np.random.default_rng(0), 0
    for one, part in zip(questions, parts, strict=True):
        settings = Settings(audit_share=0.5)
        alone = _decide_rows(one.asked, 5, policy, settings, drawing, one.key, one.key_digest)
        created = part.columns.pop("created")
        assert len(created) == len(alone.columns.pop("created")) == len(part)
        # Those that are decided together have one time: their order is that of all of them.
        n_before += alone.columns.pop("place")[-1] + 1
        assert part.columns.pop("place")[-1] + 1 == n_before
        assert part.columns == alone.columns
        assert part.is_rejected.tolist() == alone.is_rejected.tolist()
        assert (part.key, part.key_digest) == (one.key, one.key_digest)


def test_rows_whose_last_digit_could_change_are_decided_alone() -> None:
    plain = fitted(TemperatureScaling(), 3)
    features = np.random.default_rng(1).normal(size=(300, 2))
    costs = CostMatrix.zero_one(3).with_reject(0.4)
    rated = CostMatrix(costs.array, costs.actions, costs.classes, rate=np.ones((4, 3)))
    row_costs = np.ones(300)
    row = asked_of(3, 1, 0)
    alone = [
        Question(asked_of(70, 1, 0), 1, fitted(TemperatureScaling(), 70)),
        Question(row, 1, fitted(TemperatureScaling(), 3, risk=RiskBound(0.3))),
        Question(row, 1, fitted(TemperatureScaling(), 3, features=features)),
        Question(row, 1, fitted(TemperatureScaling(), 3, costs=rated, row_costs=row_costs)),
        Question(asked_of(3, 1, 0, features=[[0.5]]), 1, plain),
        Question(asked_of(3, 1, 0, row_costs=[2.0]), 1, plain),
    ]
    assert [one.kind for one in alone] == [None] * 6
    shares = AskedRows.of({"probabilities": [[0.5, 0.25, 0.25]]}, 3, Settings())
    kinds = {Question(row, 1, plain).kind, Question(row, 2, plain).kind}
    assert len({*kinds, Question(shares, 1, plain).kind}) == 3


def test_what_a_policy_needs_and_did_not_get_is_told_as_a_field() -> None:
    costs = CostMatrix([[0, 1], [1, 0]], rate=[[0, 1], [1, 0]])
    shares = np.array([[0.9, 0.1], [0.2, 0.8]])
    policy = Policy.fit(
        shares, [0, 1], costs=costs, calibrator=calibrate.IdentityCalibrator(), row_costs=[1, 2]
    )
    settings = Settings()
    asked = AskedRows.of({"probabilities": [[0.5, 0.5]]}, 2, settings)
    with pytest.raises(RefusedError) as refused:
        _decide_rows(asked, 1, policy, settings, np.random.default_rng(0))
    assert str(refused.value).startswith("`row_costs` must be ")
    assert "Policy" not in str(refused.value)

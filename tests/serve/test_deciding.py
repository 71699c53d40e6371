from collections.abc import Callable

import numpy as np
import pytest

from dubito.decide import Policy
from dubito.outputs import Logits
from dubito.serve.asking import AskedRows
from dubito.serve.deciding import answer_columns, answer_of, decide_rows
from dubito.serve.settings import Settings
from dubito.serve.store import NewDecisions
from tests.serve.conftest import SURE, TORN


def test_what_is_kept_is_what_the_policy_says(policy: Policy) -> None:
    rng = np.random.default_rng(1)
    logits = (3 * rng.normal(size=(400, 3))).astype(np.float32)
    settings = Settings(audit_share=0.25)
    asked = AskedRows.of({"logits": logits}, 3, settings)
    new = decide_rows(asked, 5, policy, settings, np.random.default_rng(0))
    wanted = policy.decide(Logits(logits))
    for name in ("action", "class_", "probability", "expected_cost", "reason", "worth"):
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
    assert answer["reason"] == ["least expected cost", "asking costs less"]


def test_what_was_decided_before_is_answered_as_it_was_then(
    policy: Policy, new: Callable[..., NewDecisions]
) -> None:
    made = new({"x": SURE, "y": TORN})
    before = {
        "id": "y", "policy_id": 7, "action": 1, "class_": 2, "probability": 0.5,
        "expected_cost": 0.25, "reason": 0, "worth": 0.0,
    }  # fmt: skip
    asked_for = []

    def policies(policy_id: int) -> Policy:
        asked_for.append(policy_id)
        return policy

    answer = answer_columns(made, {"y": before}, policies)
    assert {name: values[1] for name, values in answer.items()} == {
        "id": "y", "policy": 7, "action": "b", "class": "c", "probability": 0.5,
        "expected_cost": 0.25, "reason": "least expected cost", "worth": 0.0,
    }  # fmt: skip
    assert answer["id"][0] == "x"
    assert 7 in asked_for
    assert answer_of(before, policies)["policy"] == 7

"""Policies that ask models and reviewers who may err: answers under the same id."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dubito.calibrate import TemperatureScaling
from dubito.decide import CostMatrix, Policy, Reviewer, ReviewTeam, optimal_actions
from dubito.errors import DubitoWarning
from dubito.outputs import Logits
from dubito.serve.service import Settings
from tests.serve.conftest import SURE, TORN, Api, opened, services

NO_AUDIT = Settings(audit_fraction=0.0)
RATE = 0.05


def asking_policy(combine: Any = "bayes", **reviewer: Any) -> Policy:
    """Return a policy that asks a large model, and then a reviewer if that leaves it uncertain."""
    rng = np.random.default_rng(0)
    logits = 4 * rng.normal(size=(1000, 3))
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    costs = CostMatrix.zero_one(list("abc")).with_model(
        "large", cost=0.02, error_rate=RATE, combine=combine
    )
    if reviewer:
        costs = costs.with_review("expert", **reviewer)
    # The reviewer never comes first, which the fit warns about.
    with warnings.catch_warnings(action="ignore", category=DubitoWarning):
        return Policy.fit(Logits(logits), labels, costs=costs, calibrator=TemperatureScaling())


@pytest.fixture(scope="module")
def policy() -> Policy:
    return asking_policy(cost=0.08, error_rate=0.02)


@pytest.fixture(scope="module")
def asking(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    url = f"sqlite:///{tmp_path_factory.mktemp('asking')}/dubito.db"
    with opened(url, policy) as store, services() as started:
        yield started(store, NO_AUDIT)


def decide(api: Api, **body: Any) -> list[dict[str, Any]]:
    answer = api.client.post("/v1/decide", json=body)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["decisions"]
    return found


def posterior(policy: Policy, logits: list[float], code: int) -> Any:
    [p] = policy.predict_proba(Logits(np.array([logits]))).astype(np.float32).astype(float)
    p = p * np.where(np.arange(3) == code, 1 - RATE, RATE / 2)
    return p / p.sum()


def test_a_model_is_asked_and_its_answer_is_combined(asking: Api, policy: Policy) -> None:
    torn, sure = decide(asking, ids=["m1", "m2"], logits=[TORN, SURE])
    assert (torn["action"], torn["next_model"], torn["fallback_action"]) == ("large", "large", "a")
    assert (sure["action"], sure["next_model"]) == ("a", None)
    assert asking.store.queue_length() == 0  # nobody is asked but the model
    assert asking.client.get("/v1/monitor").json()["waiting"] == {"large": 1}
    page = asking.client.get("/monitor").text
    assert "Still waiting for an answer: 1 row for large." in page
    [after] = decide(asking, ids=["m1"], answers={"large": ["b"]})
    p = posterior(policy, TORN, 1)
    assert after["probabilities"] == pytest.approx(p.tolist(), rel=1e-6)
    assert (after["action"], after["class"], after["next_model"]) == ("b", "b", None)
    assert after["expected_cost"] == pytest.approx(1 - p[1], rel=1e-6)
    assert asking.client.get("/v1/monitor").json()["waiting"] == {"large": 0}
    # Both requests can be repeated, and the row has the last decision.
    assert decide(asking, ids=["m1"], answers={"large": ["b"]}) == [after]
    assert decide(asking, ids=["m1"], logits=[TORN]) == [torn]
    stored = asking.client.get("/v1/decisions/m1").json()
    assert (stored["action"], stored["probabilities"]) == ("b", after["probabilities"])
    [given] = stored["model_answers"]
    assert (given["model"], given["label"], given["action"]) == ("large", "b", "b")
    assert asking.store.queue_length() == 0


def test_unrequested_answers_are_rejected(asking: Api) -> None:
    decide(asking, ids=["n1", "n2"], logits=[TORN, SURE])
    decide(asking, ids=["n1"], answers={"large": ["b"]})
    for body, status, message in (
        ({"ids": ["n1"], "answers": {"large": ["a"]}}, 409, "has the answer 'b' of large, got 'a'"),
        ({"ids": ["n2"], "answers": {"large": ["a"]}}, 409, "the answer of large was not asked"),
        ({"ids": ["n3"], "answers": {"large": ["a"]}}, 404, "no decision 'n3'"),
        ({"ids": ["n1"], "answers": {"large": ["x"]}}, 422, "'x' is not a class"),
        ({"ids": ["n1"], "answers": {"large": [None]}}, 422, "the answer of one model, got 0"),
        ({"ids": ["n1"], "answers": {"large": []}}, 422, "one entry per row, got 0 for 1 row"),
        ({"ids": ["n1"], "answers": ["a"]}, 422, "lists by model"),
        ({"ids": ["n1"], "answers": {}, "logits": [TORN]}, 422, "unknown field 'logits'"),
    ):
        answer = asking.client.post("/v1/decide", json=body)
        assert (answer.status_code, message in answer.text) == (status, True), answer.text


def test_what_a_model_leaves_in_doubt_goes_to_review(asking: Api, policy: Policy) -> None:
    doubt = [3.2, 0.0, -9.0]  # the model predicts a, and the large one b
    [first] = decide(asking, ids=["d1"], logits=[doubt])
    assert first["next_model"] == "large"
    [after] = decide(asking, ids=["d1"], answers={"large": ["b"]})
    assert (after["action"], after["next_model"]) == ("expert", None)
    assert after["review_value"] > 0
    item = asking.client.post("/v1/review").json()["item"]
    assert (item["id"], item["action"]) == ("d1", "expert")
    assert item["probabilities"] == pytest.approx(after["probabilities"], rel=1e-5)
    asking.client.post("/v1/review/d1", json={"action": "label", "label": "b"})
    stored = asking.client.get("/v1/decisions/d1").json()
    p = np.array(after["probabilities"]) * [0.01, 0.98, 0.01]
    assert stored["probabilities_after_review"] == pytest.approx((p / p.sum()).tolist(), rel=1e-5)
    assert (stored["action_after_review"], stored["label"]) == ("b", "b")


def test_an_answer_may_replace_the_probabilities(url: str, running: Callable[..., Api]) -> None:
    with opened(url, asking_policy("replace")) as store:
        api = running(store, Settings(audit_fraction=1.0))
        [first] = decide(api, ids=["x"], logits=[TORN])
        assert first["next_model"] == "large"
        assert store.queue_length() == 1  # of the audit: metrics need it
        assert set(store.decisions_since().propensity) == {1.0}
        [after] = decide(api, ids=["x"], answers={"large": ["c"]})
        assert (after["action"], after["probabilities"]) == ("c", [0.0, 0.0, 1.0])


def test_a_team_continues_from_the_answers_of_models(
    tmp_path: Any, running: Callable[..., Api], policy: Policy
) -> None:
    with opened(f"sqlite:///{tmp_path}/dubito.db", policy) as store:
        api = running(store, NO_AUDIT, team=ReviewTeam([Reviewer("ann", 9, 0.02)]))
        doubt = [3.2, 0.0, -9.0]
        decide(api, ids=["d"], logits=[doubt])
        assert api.client.post("/v1/review").json()["item"] is None
        decide(api, ids=["d"], answers={"large": ["b"]})
        assert api.client.post("/v1/review").json()["item"]["id"] == "d"
        api.client.post("/v1/review/d", json={"action": "label", "label": "b"})
        stored = api.client.get("/v1/decisions/d").json()
        p = posterior(policy, doubt, 1) * [0.01, 0.98, 0.01]
        after = stored["probabilities_after_review"]
        assert after == pytest.approx((p / p.sum()).tolist(), rel=1e-5)
        [action] = optimal_actions(np.array([after]), CostMatrix.zero_one(3))
        assert stored["action_after_review"] == "abc"[action]

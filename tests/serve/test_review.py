from collections.abc import Callable

import pytest

from dubito.serve.service import Settings
from dubito.serve.store import Store
from tests.serve.conftest import SURE, TORN, Api


def test_a_reviewer_claims_and_labels(api: Api) -> None:
    api.client.post("/v1/decide", json={"logits": [TORN, TORN, SURE], "ids": ["x", "y", "z"]})
    assert api.client.get("/v1/review").json()["waiting"] == 2
    item = api.client.post("/v1/review").json()["item"]
    assert item["classes"] == ["a", "b", "c"]
    assert item["action"] == "reject"
    assert sum(item["probabilities"]) == pytest.approx(1)
    bob = api.client_of("bob", "review")
    assert bob.get("/v1/review").json()["next"] == sorted({"x", "y"} - {item["id"]})
    taken = bob.post(f"/v1/review/{item['id']}", json={"action": "claim"})
    assert taken.status_code == 409
    assert "is not available to 'bob'" in taken.json()["detail"]
    done = api.client.post(f"/v1/review/{item['id']}", json={"action": "label", "label": "b"})
    assert done.json() == {"action": "label", "item": None}
    assert api.store.get_label(item["id"]) == 1
    other = bob.post("/v1/review").json()["item"]["id"]
    assert bob.post(f"/v1/review/{other}", json={"action": "escalate"}).status_code == 200
    assert bob.post(f"/v1/review/{other}", json={"action": "undo"}).json()["item"]["id"] == other
    assert bob.post(f"/v1/review/{other}", json={"action": "skip"}).status_code == 200
    assert bob.post("/v1/review").json() == {"item": None}
    assert api.client.post(f"/v1/review/{other}", json={"action": "claim"}).status_code == 200


def test_blind_reviewers_see_no_prediction(small_store: Store, running: Callable[..., Api]) -> None:
    api = running(small_store, Settings(blind=True))
    body = {"logits": [TORN], "ids": ["x"], "row_costs": {"fee": [2.0]}, "links": ["https://a.org"]}
    api.client.post("/v1/decide", json=body)
    item = api.client.post("/v1/review").json()["item"]
    assert set(item) == {"id", "lease_until", "created", "row_costs", "link", "classes"}


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (
            {"action": "eat"},
            422,
            "one of claim, label, escalate, skip, undo, got 'eat'. Send one of these.",
        ),
        ({"action": "label"}, 422, 'The action "label", and no other, needs a `label`.'),
        (
            {"action": "skip", "label": "a"},
            422,
            'The action "label", and no other, needs a `label`.',
        ),
        (
            {"action": "label", "label": "z"},
            422,
            "'z' is not a class of the policy. Use one of a, b, c.",
        ),
        ({"action": "label", "label": "a"}, 409, "Id 'x' is not claimed by 'ann'."),
        (
            {"action": ["claim"]},
            422,
            "`action` must be one of",
        ),
        ({}, 422, "The field `action` is missing."),
    ],
)
def test_invalid_actions_are_rejected(
    shared_api: Api, body: object, status: int, words: str
) -> None:
    shared_api.client.post("/v1/decide", json={"logits": [TORN], "ids": ["x"]})
    answer = shared_api.client.post("/v1/review/x", json=body)
    assert answer.status_code == status
    assert words in answer.json()["detail"]
    assert shared_api.counts() == (1, 0)

from collections.abc import Callable

import pytest

from dubito.serve.settings import Settings
from dubito.serve.store import Store
from tests.serve.conftest import SURE, TORN, Api


def test_a_reader_claims_and_settles(api: Api) -> None:
    api.client.post("/v1/decide", json={"logits": [TORN, TORN, SURE], "ids": ["x", "y", "z"]})
    assert api.client.get("/v1/review").json()["waiting"] == 2
    item = api.client.post("/v1/review").json()["item"]
    assert item["classes"] == ["a", "b", "c"]
    assert item["action"] == "reject"
    assert sum(item["probabilities"]) == pytest.approx(1)
    bob = api.client_of("bob", "review")
    assert bob.get("/v1/review").json()["next"] == sorted({"x", "y"} - {item["id"]})
    taken = bob.post(f"/v1/review/{item['id']}", json={"do": "claim"})
    assert taken.status_code == 409
    assert "does not wait for 'bob': settled, held or passed on" in taken.json()["detail"]
    done = api.client.post(f"/v1/review/{item['id']}", json={"do": "settle", "label": "b"})
    assert done.json() == {"done": "settle", "item": None}
    assert api.store.label(item["id"]) == 1
    other = bob.post("/v1/review").json()["item"]["id"]
    assert bob.post(f"/v1/review/{other}", json={"do": "unsure"}).status_code == 200
    assert bob.post(f"/v1/review/{other}", json={"do": "undo"}).json()["item"]["id"] == other
    assert bob.post(f"/v1/review/{other}", json={"do": "skip"}).status_code == 200
    assert bob.post("/v1/review").json() == {"item": None}
    assert api.client.post(f"/v1/review/{other}", json={"do": "claim"}).status_code == 200


def test_blind_readers_see_nothing_of_the_model(
    small_store: Store, running: Callable[..., Api]
) -> None:
    api = running(small_store, Settings(is_blind=True))
    body = {"logits": [TORN], "ids": ["x"], "row_costs": [2.0], "links": ["https://a.org"]}
    api.client.post("/v1/decide", json=body)
    item = api.client.post("/v1/review").json()["item"]
    assert set(item) == {"id", "lease_until", "created", "amount", "link", "classes"}


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"do": "eat"}, 422, "`do` must be one of claim, settle, unsure, skip, undo."),
        ({"do": "settle"}, 422, "`label` must be given to settle, and only then."),
        ({"do": "skip", "label": "a"}, 422, "`label` must be given to settle, and only then."),
        ({"do": "settle", "label": "z"}, 422, "A label must be one of a, b, c. Got 'z'."),
        ({"do": "settle", "label": "a"}, 409, "Id 'x' is not held for 'ann'."),
        ({"do": ["claim"]}, 422, "`do` must be one of"),
        ({}, 422, "The body must have `do`."),
    ],
)
def test_wrong_steps_are_refused(api: Api, body: object, status: int, words: str) -> None:
    api.client.post("/v1/decide", json={"logits": [TORN], "ids": ["x"]})
    answer = api.client.post("/v1/review/x", json=body)
    assert answer.status_code == status
    assert words in answer.json()["detail"]
    assert api.counts() == (1, 0)

import numpy as np
import pytest

from dubito.data.stream import write_stream
from dubito.serve.schemas import ARROW
from tests.serve.conftest import TORN, Api


def test_labels_come_in_any_order_and_twice(api: Api) -> None:
    body = {"ids": ["late", "early", "late"], "labels": ["b", "c", "b"]}
    first = api.client.post("/v1/labels", json=body)
    assert first.json() == {"received": 2, "new": 2, "corrected": 0}
    again = api.client.post("/v1/labels", json=body).json()
    assert again == {"received": 2, "new": 0, "corrected": 0}
    api.client.post("/v1/decide", json={"logits": [TORN], "ids": ["late"]})
    assert api.counts() == (1, 1)
    assert api.store.queue_length() == 0


def test_labels_as_a_stream(api: Api) -> None:
    content = write_stream({"ids": np.array(["x", "y"]), "labels": np.array(["a", "c"])})
    answer = api.client.post("/v1/labels", content=content, headers={"Content-Type": ARROW})
    assert answer.json() == {"received": 2, "new": 2, "corrected": 0}
    assert api.store.get_label("y") == 2


def test_a_label_is_corrected_on_request_and_its_history_kept(api: Api) -> None:
    api.client.post("/v1/decide", json={"logits": [TORN], "ids": ["x"]})
    body = {"ids": ["x", "y"], "labels": ["a", "a"]}
    api.client.post("/v1/labels", json=body)
    other = {"ids": ["x", "y", "z"], "labels": ["b", "a", "c"]}
    rejected = api.client.post("/v1/labels", json=other)
    assert rejected.status_code == 409
    assert rejected.json()["detail"] == (
        "Id 'x' has a different label. Send the same label, or add ?correct=true to replace it."
    )
    assert api.store.get_label("z") is None
    cy = api.client_of("cy", "decide")
    for corrected in (1, 0):
        answer = cy.post("/v1/labels?correct=true", json=other)
        new = 1 if corrected else 0
        assert answer.json() == {"received": 3, "new": new, "corrected": corrected}
    content = write_stream({"ids": np.array(["x"]), "labels": np.array(["c"])})
    headers = {"Content-Type": ARROW}
    answer = api.client.post("/v1/labels?correct=true", content=content, headers=headers)
    assert answer.json() == {"received": 1, "new": 0, "corrected": 1}
    found = api.client.get("/v1/decisions/x").json()
    assert found["label"] == "c"
    before = [(one["label"], one["corrected_by"]) for one in found["previous_labels"]]
    assert before == [("a", "cy"), ("b", "ann")]
    assert api.counts() == (1, 1)
    assert api.client.post("/v1/labels?correct=maybe", json=other).status_code == 422


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (
            {"ids": ["x"], "labels": ["z"]},
            422,
            "'z' is not a class of the policy. Use one of a, b, c.",
        ),
        ({"ids": ["x", "x"], "labels": ["a", "b"]}, 422, "An id is repeated with different"),
        (
            {"ids": ["x"], "labels": ["a", "b"]},
            422,
            "`ids` must have one id per label, got 1 for 2 labels.",
        ),
        ({"ids": ["x"]}, 422, "The field `labels` is missing. Add it."),
        ({"ids": ["known"], "labels": ["b"]}, 409, "Id 'known' has a different label."),
        ({"ids": ["x"] * 50_001, "labels": ["a"]}, 413, "at most 50,000 rows"),
    ],
)
def test_invalid_labels_are_rejected_and_nothing_is_stored(
    shared_api: Api, body: dict[str, list[str]], status: int, words: str
) -> None:
    shared_api.client.post("/v1/labels", json={"ids": ["known"], "labels": ["a"]})
    answer = shared_api.client.post("/v1/labels", json=body)
    assert answer.status_code == status
    assert words in answer.json()["detail"]
    assert shared_api.store.get_label("x") is None

import numpy as np
import pytest

from dubito.data.stream import write_stream
from dubito.serve.api.schemas import ARROW
from tests.serve.conftest import TORN, Api


def test_labels_come_in_any_order_and_twice(api: Api) -> None:
    body = {"ids": ["late", "early", "late"], "labels": ["b", "c", "b"]}
    first = api.client.post("/v1/labels", json=body)
    assert first.json() == {"received": 2, "new": 2}
    assert api.client.post("/v1/labels", json=body).json() == {"received": 2, "new": 0}
    api.client.post("/v1/decide", json={"logits": [TORN], "ids": ["late"]})
    assert api.counts() == (1, 1)
    assert api.store.queue_length() == 0


def test_labels_as_a_stream(api: Api) -> None:
    content = write_stream({"ids": np.array(["x", "y"]), "labels": np.array(["a", "c"])})
    answer = api.client.post("/v1/labels", content=content, headers={"Content-Type": ARROW})
    assert answer.json() == {"received": 2, "new": 2}
    assert api.store.label("y") == 2


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"ids": ["x"], "labels": ["z"]}, 422, "A label must be one of a, b, c. Got 'z'."),
        ({"ids": ["x", "x"], "labels": ["a", "b"]}, 422, "An id comes twice with different"),
        ({"ids": ["x"], "labels": ["a", "b"]}, 422, "`ids` must be as many as the rows, 2. Got 1."),
        ({"ids": ["x"]}, 422, "The body must have `labels`. Try adding it."),
        ({"ids": ["known"], "labels": ["b"]}, 409, "Id 'known' has another label already."),
        ({"ids": ["x"] * 50_001, "labels": ["a"]}, 413, "50,000 rows at most"),
    ],
)
def test_wrong_labels_are_refused_and_nothing_kept(
    api: Api, body: dict[str, list[str]], status: int, words: str
) -> None:
    api.client.post("/v1/labels", json={"ids": ["known"], "labels": ["a"]})
    answer = api.client.post("/v1/labels", json=body)
    assert answer.status_code == status
    assert words in answer.json()["detail"]
    assert api.store.label("x") is None

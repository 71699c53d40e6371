import gzip
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest

from dubito.data.stream import read_stream, write_stream
from dubito.decide import Policy
from dubito.outputs import Logits
from dubito.serve.api.schemas import ARROW
from dubito.serve.settings import Settings
from dubito.serve.store import Store
from tests.serve.conftest import SURE, TORN, Api


def test_the_answer_is_the_policys(api: Api, policy: Policy) -> None:
    body = {"logits": [SURE, TORN], "ids": ["x", "y"]}
    answer = api.client.post("/v1/decide", json=body)
    assert answer.status_code == 200
    wanted = policy.decide(Logits(np.array([SURE, TORN], np.float32)))
    rows = answer.json()["decisions"]
    assert [row["action"] for row in rows] == ["a", "reject"]
    assert [row["probability"] for row in rows] == wanted.probability.tolist()
    assert [row["review_value"] for row in rows] == wanted.review_value.tolist()
    assert list(rows[0]) == [
        "id", "policy", "action", "class", "probability", "expected_cost", "reason", "review_value",
    ]  # fmt: skip
    assert api.counts() == (2, 0)


def test_a_repeated_request_gets_the_first_answer(api: Api) -> None:
    body = {"probabilities": [[0.5, 0.25, 0.25]], "ids": ["x"], "links": ["https://a.org/x.png"]}
    first = api.client.post("/v1/decide", json=body)
    again = api.client.post("/v1/decide", json=body)
    assert again.json() == first.json()
    other = api.client.post("/v1/decide", json={**body, "links": None})
    assert other.status_code == 409
    assert other.json() == {
        "detail": "Id 'x' was decided before with another body. Try another id, or the same body."
    }
    assert api.counts() == (1, 0)


def test_an_idempotency_key_gets_the_first_answer(api: Api) -> None:
    key = {"Idempotency-Key": "k1"}
    first = api.client.post("/v1/decide", json={"logits": [SURE, TORN]}, headers=key)
    again = api.client.post("/v1/decide", json={"logits": [SURE, TORN]}, headers=key)
    assert again.content == first.content
    other = api.client.post("/v1/decide", json={"logits": [SURE]}, headers=key)
    assert other.status_code == 409
    assert "Idempotency key 'k1' came before with another body" in other.json()["detail"]
    assert api.counts() == (2, 0)


def test_the_first_answer_stays_when_the_policy_changes(api: Api) -> None:
    from dubito.serve.store.documents import text_of_policy
    from studies.common.serving import fitted_policy

    body = {"logits": [TORN], "ids": ["x"]}
    first = api.client.post("/v1/decide", json=body).json()
    other = text_of_policy(fitted_policy(reject_cost=0.9))
    number = api.client.post("/v1/policies", content=other).json()["id"]
    assert api.client.post(f"/v1/policies/{number}/activate").json() == {"active": number}
    assert api.client.post("/v1/decide", json=body).json() == first
    fresh = api.client.post("/v1/decide", json={"logits": [TORN]}).json()["decisions"][0]
    assert fresh["action"] == "a"
    assert fresh["policy"] == number


def test_arrow_in_and_out(api: Api, policy: Policy) -> None:
    rng = np.random.default_rng(0)
    logits = (3 * rng.normal(size=(500, 3))).astype(np.float32)
    ids = [f"r{k}" for k in range(500)]
    content = write_stream({"logits": logits, "ids": ids, "row_costs": np.ones(500)})
    answer = api.client.post("/v1/decide", content=content, headers={"Content-Type": ARROW})
    assert answer.headers["content-type"] == ARROW
    found = read_stream(answer.content, max_samples=1000, most_columns=10, most_bytes=1_000_000)
    assert found["id"] == ids
    wanted = policy.decide(Logits(logits))
    assert found["probability"].tolist() == wanted.probability.tolist()
    assert found["action"] == [policy.costs.actions[code] for code in wanted.action]
    assert api.counts() == (500, 0)


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (b'{"logits": [[NaN, 0, 0]]}', 422, "The body holds NaN, which is no number."),
        (b'{"logits": [[1, 2]]}', 422, "A row must have 3 columns, one a class. Got 2."),
        (b'{"logits": [[' + b"1," * 999_999 + b"1]]}", 413, "may have 10,000 columns at most"),
        (b'{"logits": [' + b"[1,2,3]," * 50_000 + b"[1,2,3]]}", 413, "50,000 rows at most"),
        (b" " * 40_000_000, 413, "The body is larger than 33,554,432 bytes."),
        (b'{"logits": [[true, 0.5, 0]]}', 422, "The body holds true or false, which is no number."),
        (b'{"logits": [[1, 2, 3]], "links": ["http://["]}', 422, "`links` must be a list of web"),
        (b'{"logits": [[1, "2", 3]]}', 422, 'Got "2" in row 0, column 1. Try "logits": [[2.5'),
        (b"{", 422, "The body is no JSON"),
        (b"", 422, "The body is no JSON"),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_kept(
    api: Api, content: bytes, status: int, words: str
) -> None:
    answer = api.client.post("/v1/decide", content=content, timeout=30)
    assert answer.status_code == status
    assert words in answer.json()["detail"]
    assert api.counts() == (0, 0)


def test_broken_arrow_is_refused_and_nothing_kept(api: Api) -> None:
    whole = write_stream({"logits": np.zeros((10, 3), np.float32)})
    wide = write_stream({"logits": np.zeros((1, 1_000_000), np.float32)})
    holed = write_stream({"logits": np.array([[np.nan, 0, 0]], np.float32)})
    long = write_stream({"logits": np.zeros((50_001, 3), np.float32)})
    broken = [b"", whole[:-100], b"x" + whole, holed]
    for status, contents in ((422, broken), (413, [wide, long])):
        for content in contents:
            headers = {"Content-Type": ARROW}
            answer = api.client.post("/v1/decide", content=content, headers=headers)
            assert answer.status_code == status
            assert answer.json()["detail"]
    assert api.counts() == (0, 0)


def test_what_is_small_only_as_long_as_it_is_compressed_is_refused(api: Api) -> None:
    zeros = pa.array(np.zeros(30_000_000, np.float32))
    table = pa.table({"logits": pa.FixedSizeListArray.from_arrays(zeros, 3000)})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    content = bytes(sink.getvalue())
    answer = api.client.post("/v1/decide", content=content, headers={"Content-Type": ARROW})
    assert answer.status_code == 413
    assert answer.json()["detail"] == (
        "`bytes` of an Arrow stream must be 33,554,432 at most, uncompressed. "
        "Got 120,000,000 or more. Try fewer rows a stream."
    )
    zipped = gzip.compress(b" " * 40_000_000 + b'{"logits": [[1, 2, 3]]}')
    for path in ("decide", "labels", "policies"):
        headers = {"Content-Encoding": "gzip"}
        answer = api.client.post(f"/v1/{path}", content=zipped, headers=headers)
        assert answer.status_code == 422
        assert answer.json()["detail"] == (
            "The body must come as it is, not compressed. Got 'gzip'. "
            "Try leaving out the header Content-Encoding."
        )
    assert api.counts() == (0, 0)


def test_a_compressed_stream_is_read(api: Api) -> None:
    table = pa.table({"logits": [SURE, TORN], "ids": ["x", "y"]})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    headers = {"Content-Type": ARROW}
    answer = api.client.post("/v1/decide", content=bytes(sink.getvalue()), headers=headers)
    assert answer.status_code == 200
    assert api.counts() == (2, 0)


def test_features_are_kept_as_they_came(api: Api) -> None:
    body = {"logits": [SURE, TORN], "ids": ["x", "y"], "features": [[1.5, 2], [0.1, -3e30]]}
    assert api.client.post("/v1/decide", json=body).status_code == 200
    api.client.post("/v1/decide", json={"logits": [SURE], "ids": ["z"]})
    wide = {"logits": [SURE], "ids": ["w"], "features": [[1, 2, 3]]}
    api.client.post("/v1/decide", json=wide)
    none = {"logits": [SURE], "ids": ["n"], "features": [[]]}
    assert api.client.post("/v1/decide", json=none).status_code == 422
    kept = api.store.features_of(["y", "x"])
    assert kept is not None
    assert kept.tolist() == np.array([[0.1, -3e30], [1.5, 2]], np.float32).tolist()
    for ids in (["x", "z"], ["x", "w"], ["x", "unknown"]):
        assert api.store.features_of(ids) is None


def test_the_share_that_is_drawn_is_kept(small_store: Store, running: Callable[..., Api]) -> None:
    api = running(small_store, Settings(audit_share=0.25))
    rows: list[Any] = [SURE] * 2000
    assert api.client.post("/v1/decide", json={"logits": rows}).status_code == 200
    kept = api.store.rows_for_monitor()
    assert set(kept.propensity.tolist()) == {0.25}
    assert abs(kept.is_audit.mean() - 0.25) < 0.05
    assert api.store.queue_length() == kept.is_audit.sum()


def test_a_decision_is_found_by_its_id(api: Api) -> None:
    body = {"logits": [TORN], "ids": ["x"], "row_costs": [3.0], "links": ["https://a.org"]}
    decided = api.client.post("/v1/decide", json=body).json()["decisions"][0]
    found = api.client.get("/v1/decisions/x").json()
    assert decided.items() <= found.items()
    assert (found["amount"], found["link"], found["label"]) == (3.0, "https://a.org", None)
    api.client.post("/v1/labels", json={"ids": ["x"], "labels": ["c"]})
    found = api.client.get("/v1/decisions/x").json()
    assert (found["label"], found["labels_before"]) == ("c", [])
    missing = api.client.get("/v1/decisions/z")
    assert missing.status_code == 404
    assert missing.json()["detail"] == "There is no decision 'z'. Try an id that was decided."
    assert api.client.get("/v1/decisions/%00").status_code == 422


def test_an_id_may_hold_any_printable_letter(api: Api) -> None:
    names = ["orders/17", "orders/17/", "a?b#c", "é %2F", "a\\b"]
    body = {"logits": [TORN] * len(names), "ids": names}
    assert api.client.post("/v1/decide", json=body).status_code == 200
    for name in names:
        address = quote(name, safe="")
        assert api.client.get(f"/v1/decisions/{address}").json()["id"] == name
        claimed = api.client.post(f"/v1/review/{address}", json={"do": "claim"})
        assert claimed.json()["item"]["id"] == name


def test_ids_of_a_stream_may_be_whole_numbers(api: Api) -> None:
    content = write_stream({"logits": np.array([SURE, TORN]), "ids": np.array([17, 18])})
    answer = api.client.post("/v1/decide", content=content, headers={"Content-Type": ARROW})
    assert answer.status_code == 200
    assert api.client.get("/v1/decisions/17").json()["action"] == "a"


def test_requests_that_come_at_once_do_not_disturb_each_other(api: Api, policy: Policy) -> None:
    rows = (4 * np.random.default_rng(0).normal(size=(60, 3))).astype(np.float32)
    bodies: list[Any] = [{"logits": [row.tolist()], "ids": [f"r{k}"]} for k, row in enumerate(rows)]
    bodies[7], bodies[8] = {"logits": [[1.0, 2.0]]}, {"logits": [[1.0, 2.0, "x"]]}
    bodies[9] = {**bodies[9], "ids": ["r10"]}  # one of the two comes first
    bodies[11] = {"probabilities": [[0.5, 0.25, 0.25]], "ids": ["r11"]}
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda body: api.client.post("/v1/decide", json=body), bodies))
    codes = [answer.status_code for answer in answers]
    assert codes[7:9] == [422, 422]
    assert sorted(codes[9:11]) == [200, 409]
    assert {code for k, code in enumerate(codes) if not 7 <= k < 11} == {200}
    wanted = policy.decide(Logits(rows))
    for k in [*range(7), *range(12, 60)]:
        [row] = answers[k].json()["decisions"]
        assert (row["id"], row["probability"]) == (f"r{k}", wanted.probability[k])
        assert (row["expected_cost"], row["review_value"]) == (
            wanted.expected_cost[k],
            wanted.review_value[k],
        )
    assert api.counts() == (57, 0)

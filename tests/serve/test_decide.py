import asyncio
import gzip
import io
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest

from dubito import calibrate
from dubito.calibrate import (
    BaseCalibrator,
    IdentityCalibrator,
    TemperatureScaling,
)
from dubito.data.stream import read_stream, write_stream
from dubito.decide import CostMatrix, Policy, RiskBound
from dubito.errors import DubitoWarning
from dubito.outputs import Logits, Scores
from dubito.serve.decide import (
    DecisionRequest,
    MicroBatcher,
    _response_columns,
    decide_batch,
)
from dubito.serve.http_errors import HTTPError
from dubito.serve.policies import _refit
from dubito.serve.rows import RequestRows
from dubito.serve.schemas import ARROW
from dubito.serve.service import Settings
from dubito.serve.store import NewDecisions, Store
from dubito.serve.store.decisions import IdempotencyKey
from studies.common.serving import fitted_policy
from tests.serve.conftest import SURE, TORN, Api, opened


def test_the_response_is_that_of_the_policy(api: Api, policy: Policy) -> None:
    body = {"logits": [SURE, TORN], "ids": ["x", "y"]}
    answer = api.client.post("/v1/decide", json=body)
    assert answer.status_code == 200
    wanted = policy.decide(Logits(np.array([SURE, TORN], np.float32)))
    rows = answer.json()["decisions"]
    assert [row["action"] for row in rows] == ["a", "reject"]
    assert [row["probability"] for row in rows] == wanted.probability.tolist()
    assert [row["review_value"] for row in rows] == wanted.review_value.tolist()
    assert list(rows[0]) == [
        "id", "policy", "action", "class", "probability", "probability_positive", "expected_cost",
        "reason", "review_value", "fallback_action", "next_model",
    ]  # fmt: skip
    assert [row["probability_positive"] for row in rows] == [None, None]  # of three classes
    fallback, _ = policy.rule.fallback(wanted, None)
    assert [row["fallback_action"] for row in rows] == [None, wanted.actions[fallback[1]]]
    assert api.counts() == (2, 0)


def test_a_repeated_request_gets_the_first_response(api: Api) -> None:
    body = {"probabilities": [[0.5, 0.25, 0.25]], "ids": ["x"], "links": ["https://a.org/x.png"]}
    first = api.client.post("/v1/decide", json=body)
    again = api.client.post("/v1/decide", json=body)
    assert again.json() == first.json()
    other = api.client.post("/v1/decide", json={**body, "links": None})
    assert other.status_code == 409
    assert other.json() == {
        "detail": "Id 'x' was decided with a different body. Use another id, or send the same body."
    }
    assert api.counts() == (1, 0)


def test_an_idempotency_key_gets_the_first_response(api: Api) -> None:
    key = {"Idempotency-Key": "k1"}
    first = api.client.post("/v1/decide", json={"logits": [SURE, TORN]}, headers=key)
    again = api.client.post("/v1/decide", json={"logits": [SURE, TORN]}, headers=key)
    assert again.content == first.content
    other = api.client.post("/v1/decide", json={"logits": [SURE]}, headers=key)
    assert other.status_code == 409
    assert "Idempotency key 'k1' was used with a different body" in other.json()["detail"]
    assert api.counts() == (2, 0)


def test_an_idempotency_key_belongs_to_its_token(api: Api) -> None:
    key, body = {"Idempotency-Key": "k1"}, {"logits": [SURE, TORN]}
    first = api.client.post("/v1/decide", json=body, headers=key).json()["decisions"]
    other = api.client_of("cy", "decide")
    second = other.post("/v1/decide", json=body, headers=key).json()["decisions"]
    assert not {row["id"] for row in first} & {row["id"] for row in second}
    assert api.counts() == (4, 0)
    third = api.client_of("di", "decide").post("/v1/decide", json={"logits": [TORN]}, headers=key)
    assert third.status_code == 200
    assert other.post("/v1/decide", json=body, headers=key).json()["decisions"] == second


def test_a_large_request_is_answered_like_small_ones(api: Api) -> None:
    ids = [f"r{k}" for k in range(2500)]
    body: dict[str, Any] = {"logits": [SURE, TORN] * 1250, "ids": ids}
    whole = api.client.post("/v1/decide", json=body).json()["decisions"]
    assert [row["id"] for row in whole] == ids
    part = {"logits": [SURE, TORN] * 2, "ids": ids[1998:2002]}
    assert api.client.post("/v1/decide", json=part).json()["decisions"] == whole[1998:2002]
    assert api.client.post("/v1/decide", json=body).json()["decisions"] == whole
    labels = {"ids": ids, "labels": ["a"] * 2500}
    assert api.client.post("/v1/labels", json=labels).json()["new"] == 2500
    more = {"ids": [f"new {name}" for name in ids[:-1]] + ids[-1:], "labels": ["b"] * 2500}
    rejected = api.client.post("/v1/labels", json=more)
    assert rejected.status_code == 409
    assert "Id 'r2499' has a different label" in rejected.json()["detail"]
    assert api.store.get_label("new r0") is None
    corrected = api.client.post("/v1/labels?correct=1", json=more).json()
    assert corrected == {"received": 2500, "new": 2499, "corrected": 1}
    assert api.counts() == (2500, 2500)


def test_the_first_response_stays_when_the_policy_changes(api: Api) -> None:
    body = {"logits": [TORN], "ids": ["x"]}
    first = api.client.post("/v1/decide", json=body).json()
    with pytest.warns(DubitoWarning, match="'reject' costs .* and is never chosen"):
        other = fitted_policy(reject_cost=0.9).to_json()
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
    lists = pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), 3)
    row_costs = pa.StructArray.from_arrays([pa.array(np.arange(500.0))], ["fee"])
    table, sink = pa.table({"logits": lists, "ids": ids, "row_costs": row_costs}), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content = sink.getvalue()
    answer = api.client.post("/v1/decide", content=content, headers={"Content-Type": ARROW})
    assert answer.headers["content-type"] == ARROW
    found = read_stream(answer.content, max_rows=1000, max_columns=10, max_bytes=1_000_000)
    assert found["id"] == ids
    wanted = policy.decide(Logits(logits))
    assert found["probability"].tolist() == wanted.probability.tolist()
    assert found["action"] == [policy.costs.actions[code] for code in wanted.action]
    assert np.isnan(found["probability_positive"]).all()  # of three classes
    assert [one != "" for one in found["fallback_action"]] == wanted.is_rejected.tolist()
    assert api.counts() == (500, 0)
    assert api.store.decisions_since().columns_of(["fee"])["fee"].tolist() == list(range(500))


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (b'{"logits": [[NaN, 0, 0]]}', 422, "The body is not valid JSON"),
        (
            b'{"logits": [[1, 2]]}',
            422,
            "`logits` must have 3 columns, one per class, got 2",
        ),
        (b'{"logits": [[' + b"1," * 99_999 + b"1]]}", 413, "may have at most 10,000 columns"),
        (b'{"logits": [' + b"[]," * 200_000 + b"[]]}", 413, "101,000 lists and objects, got 200"),
        (b'{"logits": [' + b"[1,2,3]," * 50_000 + b"[1,2,3]]}", 413, "at most 50,000 rows"),
        (b" " * 40_000_000, 413, "The body is larger than 33,554,432 bytes."),
        (
            b'{"logits": [[true, 0.5, 0]]}',
            422,
            "The body contains true or false instead of a number.",
        ),
        (b'{"logits": [[1, 2, 3]], "links": ["http://["]}', 422, "`links` must be a list of http"),
        (
            b'{"logits": [[1, "2", 3]]}',
            422,
            'got "2" in row 0, column 1. Send for example "logits": [[2.5',
        ),
        (b"{", 422, "The body is not valid JSON"),
        (b"", 422, "The body is not valid JSON"),
    ],
)
def test_invalid_requests_are_rejected_and_nothing_is_stored(
    shared_api: Api, content: bytes, status: int, words: str
) -> None:
    answer = shared_api.client.post("/v1/decide", content=content, timeout=30)
    assert answer.status_code == status
    assert words in answer.json()["detail"]
    assert shared_api.counts() == (0, 0)


def test_broken_arrow_is_rejected_and_nothing_is_stored(shared_api: Api) -> None:
    whole = write_stream({"logits": np.zeros((10, 3), np.float32)})
    wide = write_stream({"logits": np.zeros((1, 1_000_000), np.float32)})
    holed = write_stream({"logits": np.array([[np.nan, 0, 0]], np.float32)})
    long = write_stream({"logits": np.zeros((50_001, 3), np.float32)})
    broken = [b"", whole[:-100], b"x" + whole, holed]
    for status, contents in ((422, broken), (413, [wide, long])):
        for content in contents:
            headers = {"Content-Type": ARROW}
            answer = shared_api.client.post("/v1/decide", content=content, headers=headers)
            assert answer.status_code == status
            assert answer.json()["detail"]
    assert shared_api.counts() == (0, 0)


def test_decompression_bombs_are_rejected(shared_api: Api) -> None:
    zeros = pa.array(np.zeros(30_000_000, np.float32))
    table = pa.table({"logits": pa.FixedSizeListArray.from_arrays(zeros, 3000)})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    content = bytes(sink.getvalue())
    answer = shared_api.client.post("/v1/decide", content=content, headers={"Content-Type": ARROW})
    assert answer.status_code == 413
    assert answer.json()["detail"] == (
        "Arrow stream: `bytes` must be at most 33,554,432, uncompressed, got 120,000,000 or more. "
        "Send fewer rows per stream."
    )
    zipped = gzip.compress(b" " * 40_000_000 + b'{"logits": [[1, 2, 3]]}')
    for path in ("decide", "labels", "policies"):
        headers = {"Content-Encoding": "gzip"}
        answer = shared_api.client.post(f"/v1/{path}", content=zipped, headers=headers)
        assert answer.status_code == 422
        assert answer.json()["detail"] == (
            "The body must not be compressed, got Content-Encoding 'gzip'. Send it uncompressed."
        )
    assert shared_api.counts() == (0, 0)


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


def test_features_are_stored_unchanged(api: Api) -> None:
    body = {"logits": [SURE, TORN], "ids": ["x", "y"], "features": [[1.5, 2], [0.1, -3e30]]}
    assert api.client.post("/v1/decide", json=body).status_code == 200
    api.client.post("/v1/decide", json={"logits": [SURE], "ids": ["z"]})
    wide = {"logits": [SURE], "ids": ["w"], "features": [[1, 2, 3]]}
    api.client.post("/v1/decide", json=wide)
    none = {"logits": [SURE], "ids": ["n"], "features": [[]]}
    assert api.client.post("/v1/decide", json=none).status_code == 422
    kept = api.store.find_features(["y", "x"])
    assert kept is not None
    assert kept.tolist() == np.array([[0.1, -3e30], [1.5, 2]], np.float32).tolist()
    for ids in (["x", "z"], ["x", "w"], ["x", "unknown"]):
        assert api.store.find_features(ids) is None


def test_the_audit_fraction_is_stored(small_store: Store, running: Callable[..., Api]) -> None:
    api = running(small_store, Settings(audit_fraction=0.25))
    rows: list[Any] = [SURE] * 2000
    assert api.client.post("/v1/decide", json={"logits": rows}).status_code == 200
    kept = api.store.decisions_since()
    assert set(kept.propensity.tolist()) == {0.25}
    assert abs(kept.is_audit.mean() - 0.25) < 0.05
    assert api.store.queue_length() == kept.is_audit.sum()


def test_a_decision_is_found_by_its_id(api: Api) -> None:
    body = {"logits": [TORN], "ids": ["x"], "row_costs": {"fee": [3.0]}, "links": ["https://a.org"]}
    decided = api.client.post("/v1/decide", json=body).json()["decisions"][0]
    found = api.client.get("/v1/decisions/x").json()
    assert decided.items() <= found.items()
    assert (found["link"], found["label"]) == ("https://a.org", None)
    assert found["row_costs"] == {"fee": 3.0}
    api.client.post("/v1/labels", json={"ids": ["x"], "labels": ["c"]})
    found = api.client.get("/v1/decisions/x").json()
    assert (found["label"], found["previous_labels"]) == ("c", [])
    missing = api.client.get("/v1/decisions/z")
    assert missing.status_code == 404
    assert (
        missing.json()["detail"] == "There is no decision 'z'. Use an id sent to POST /v1/decide."
    )
    assert api.client.get("/v1/decisions/%00").status_code == 422


def test_an_id_may_hold_any_printable_letter(api: Api) -> None:
    names = ["orders/17", "orders/17/", "a?b#c", "é %2F", "a\\b"]
    body = {"logits": [TORN] * len(names), "ids": names}
    assert api.client.post("/v1/decide", json=body).status_code == 200
    for name in names:
        address = quote(name, safe="")
        assert api.client.get(f"/v1/decisions/{address}").json()["id"] == name
        claimed = api.client.post(f"/v1/review/{address}", json={"action": "claim"})
        assert claimed.json()["item"]["id"] == name


def test_ids_of_a_stream_may_be_integers(api: Api) -> None:
    content = write_stream({"logits": np.array([SURE, TORN]), "ids": np.array([17, 18])})
    answer = api.client.post("/v1/decide", content=content, headers={"Content-Type": ARROW})
    assert answer.status_code == 200
    assert api.client.get("/v1/decisions/17").json()["action"] == "a"


def test_concurrent_requests_do_not_affect_each_other(api: Api, policy: Policy) -> None:
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


def test_stored_columns_are_those_of_the_policy(policy: Policy) -> None:
    rng = np.random.default_rng(1)
    logits = (3 * rng.normal(size=(400, 3))).astype(np.float32)
    settings = Settings(audit_fraction=0.25)
    rows = RequestRows.of({"logits": logits}, policy, settings)
    request = DecisionRequest(rows, 5, policy)
    [new] = decide_batch([request], settings, np.random.default_rng(0))
    wanted = policy.decide(Logits(logits))
    assert new.columns["predicted_class"] == wanted.predicted_class.tolist()
    for name in ("action", "probability", "expected_cost", "reason"):
        assert new.columns[name] == getattr(wanted, name).tolist()
    assert new.columns["review_value"] == wanted.review_value.tolist()
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


def test_two_classes_have_a_positive_probability_and_costs_by_row_a_fallback() -> None:
    rng = np.random.default_rng(0)
    p, amount = rng.random(200).astype(np.float32), rng.uniform(1, 20, 200)
    y = (rng.random(200) < p) * 1
    costs = CostMatrix([[0, "amount"], [5, 0]], actions=["pass", "block"]).with_reject(1)
    calibrator, named = IdentityCalibrator(), {"amount": amount}
    outputs = np.stack([p, 1 - p], axis=1)
    policy = Policy.fit(
        outputs, 1 - y, costs=costs, calibrator=calibrator, row_costs=named, pos_label=0
    )
    content = {"probabilities": outputs, "row_costs": {"amount": amount}}
    request = DecisionRequest(RequestRows.of(content, policy, Settings()), 1, policy)
    [new] = decide_batch([request], Settings(), rng)
    answer = _response_columns(new.columns, lambda _: policy)
    assert answer["probability_positive"] == pytest.approx(p.tolist(), abs=1e-6)
    wanted = policy.decide(outputs, row_costs=named)
    fallback, _ = policy.rule.fallback(wanted, named)
    assert 0 < wanted.is_rejected.sum() < 200
    assert answer["fallback_action"] == [
        costs.actions[k] if is_rejected else None
        for k, is_rejected in zip(fallback, wanted.is_rejected, strict=True)
    ]


def test_the_response_has_names_instead_of_codes(
    policy: Policy, new: Callable[..., NewDecisions]
) -> None:
    answer = _response_columns(new({"x": SURE, "y": TORN}).columns, lambda _: policy)
    assert answer["action"] == ["a", "reject"]
    assert answer["class"] == ["a", "a"]
    assert answer["reason"] == ["lowest_expected_cost", "reject_costs_less"]


def test_existing_ids_get_their_first_response(
    policy: Policy, new: Callable[..., NewDecisions]
) -> None:
    made = new({"x": SURE, "y": TORN})
    before = {
        "id": "y", "policy_id": 7, "action": 1, "predicted_class": 2, "probability": 0.5,
        "expected_cost": 0.25, "reason": 0, "review_value": 0.0,
    }  # fmt: skip
    requested = []

    def policies(policy_id: int) -> Policy:
        requested.append(policy_id)
        return policy

    answer = _response_columns(made.columns, policies, {"y": before})
    assert {name: values[1] for name, values in answer.items()} == {
        "id": "y", "policy": 7, "action": "b", "class": "c", "probability": 0.5,
        "probability_positive": None, "expected_cost": 0.25, "reason": "lowest_expected_cost",
        "review_value": 0.0, "fallback_action": None, "next_model": None,
    }  # fmt: skip
    assert answer["id"][0] == "x"
    assert 7 in requested


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


def fitted(calibrator: BaseCalibrator, n_classes: int, **options: Any) -> Policy:
    rng = np.random.default_rng(0)
    logits = (3 * rng.normal(size=(300, n_classes))).astype(np.float32)
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    costs = options.pop("costs", CostMatrix.zero_one(n_classes).with_reject(0.4))
    return Policy.fit(Logits(logits), labels, costs=costs, calibrator=calibrator, **options)


def request_rows(n_classes: int, n_rows: int, seed: int, **more: Any) -> RequestRows:
    logits = 3 * np.random.default_rng(seed).normal(size=(n_rows, n_classes))
    policy = fitted_policy(n_classes)
    return RequestRows.of({"logits": logits.tolist(), **more}, policy, Settings())


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("n_classes", [3, 40])
def test_rows_get_the_same_response_alone_and_batched(
    calibrator: BaseCalibrator, n_classes: int
) -> None:
    policy = fitted(calibrator, n_classes)
    links = {"links": ["https://a.org/x.png"]}
    request_parts = [
        request_rows(n_classes, n_rows, seed) for seed, n_rows in enumerate([1, 5, 1, 40, 1])
    ]
    request_parts.append(request_rows(n_classes, 1, 9, **links))
    requests = [
        DecisionRequest(one, 5, policy, IdempotencyKey(f"k{k}", 1, bytes([k])))
        for k, one in enumerate(request_parts)
    ]
    assert {one.batch_kind for one in requests} == {(5, Logits)}
    parts = decide_batch(requests, Settings(audit_fraction=0.5), np.random.default_rng(0))
    rng, n_before = np.random.default_rng(0), 0
    for one, part in zip(requests, parts, strict=True):
        settings = Settings(audit_fraction=0.5)
        [alone] = decide_batch([one], settings, rng)
        created = part.columns.pop("created")
        assert len(created) == len(alone.columns.pop("created")) == len(part)
        # Those that are decided together have one time: their order is that of all of them.
        n_before += alone.columns.pop("position")[-1] + 1
        assert part.columns.pop("position")[-1] + 1 == n_before
        assert part.columns == alone.columns
        assert part.is_rejected.tolist() == alone.is_rejected.tolist()
        assert part.key == one.key


def test_rows_whose_rounding_could_change_are_decided_alone() -> None:
    plain = fitted(TemperatureScaling(), 3)
    features = np.random.default_rng(1).normal(size=(300, 2))
    costs = CostMatrix.zero_one(3).with_reject(0.4)
    rated = CostMatrix([["fee", 1, 1]] * 4, costs.actions)
    row_costs = np.ones(300)
    row = request_rows(3, 1, 0)
    alone = [
        DecisionRequest(request_rows(70, 1, 0), 1, fitted(TemperatureScaling(), 70)),
        DecisionRequest(row, 1, fitted(TemperatureScaling(), 3, risk=RiskBound(0.3))),
        DecisionRequest(row, 1, fitted(TemperatureScaling(), 3, features=features)),
        DecisionRequest(row, 1, fitted(TemperatureScaling(), 3, costs=rated, row_costs=row_costs)),
        DecisionRequest(request_rows(3, 1, 0, features=[[0.5]]), 1, plain),
        DecisionRequest(request_rows(3, 1, 0, row_costs={"fee": [2.0]}), 1, plain),
    ]
    assert [one.batch_kind for one in alone] == [None] * 6
    shares = RequestRows.of({"probabilities": [[0.5, 0.25, 0.25]]}, plain, Settings())
    kinds = {DecisionRequest(row, 1, plain).batch_kind, DecisionRequest(row, 2, plain).batch_kind}
    assert len({*kinds, DecisionRequest(shares, 1, plain).batch_kind}) == 3


def test_a_missing_argument_is_reported_as_a_field() -> None:
    costs = CostMatrix([[0, "amount"], [1, 0]])
    shares = np.array([[0.9, 0.1], [0.2, 0.8]])
    policy = Policy.fit(
        shares, [0, 1], costs=costs, calibrator=calibrate.IdentityCalibrator(), row_costs=[1, 2]
    )
    settings = Settings()
    rows = RequestRows.of({"probabilities": [[0.5, 0.5]]}, policy, settings)
    request = DecisionRequest(rows, 1, policy)
    with pytest.raises(HTTPError) as caught:
        decide_batch([request], settings, np.random.default_rng(0))
    assert str(caught.value) == (
        "`row_costs` must hold the columns of the costs, 'amount', got none. "
        "Send `row_costs` as the policy requires."
    )
    assert "Policy" not in str(caught.value)
    body = {"probabilities": [[0.5, 0.5]] * 2, "row_costs": {"fee": [1, 1], "amount": [0.5, 9]}}
    rows = RequestRows.of(body, policy, settings)
    [new] = decide_batch([DecisionRequest(rows, 1, policy)], settings, np.random.default_rng(0))
    assert new.columns["action"] == [0, 1]
    assert new.columns["expected_cost"] == [0.25, 0.5]
    stored = [json.loads(one) for one in new.columns["row_costs"]]
    assert stored == [{"fee": 1.0, "amount": 0.5}, {"fee": 1.0, "amount": 9.0}]
    body["row_costs"]["amount"] = [1, 1e300]  # type: ignore[index]
    rows = RequestRows.of(body, policy, settings)
    with pytest.raises(HTTPError, match=r"`row_costs` must give a finite cost by .* row 1\. Send"):
        decide_batch([DecisionRequest(rows, 1, policy)], settings, np.random.default_rng(0))


class Halver:
    """Halves even numbers, and records its batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __call__(self, numbers: list[int]) -> list[int]:
        self.batches.append(numbers)
        if odd := [number for number in numbers if number % 2]:
            raise ValueError(f"{odd[0]} is odd")
        return [number // 2 for number in numbers]


async def gathered(batcher: MicroBatcher[int, int], *requests: tuple[str, int]) -> list[Any]:
    request_parts = (batcher.submit(kind, number) for kind, number in requests)
    return await asyncio.gather(*request_parts, return_exceptions=True)


def test_items_of_one_turn_are_processed_together() -> None:
    halver = Halver()
    batcher = MicroBatcher(halver)

    async def turns() -> None:
        assert await gathered(batcher, ("a", 2), ("b", 4), ("a", 6), ("a", 8)) == [1, 2, 3, 4]
        assert halver.batches == [[2, 6, 8], [4]]
        assert await batcher.submit("a", 10) == 5
        assert halver.batches[2:] == [[10]]

    asyncio.run(turns())
    assert not batcher.pending


def test_an_invalid_item_fails_alone() -> None:
    answers = asyncio.run(gathered(MicroBatcher(Halver()), ("a", 2), ("a", 3), ("a", 8), ("b", 5)))
    assert answers[::2] == [1, 4]
    assert [str(error) for error in answers[1::2]] == ["3 is odd", "5 is odd"]


@pytest.mark.parametrize("number", [4, 5])
def test_a_cancelled_item_does_not_affect_others(number: int) -> None:
    halver = Halver()
    batcher = MicroBatcher(halver)

    async def left() -> int:
        leaving = asyncio.create_task(batcher.submit("a", number))
        staying = asyncio.create_task(batcher.submit("a", 2))
        await asyncio.sleep(0)
        leaving.cancel()
        return await staying

    assert asyncio.run(left()) == 1
    assert halver.batches[0] == [number, 2]


@pytest.fixture(scope="module")
def answer_policy() -> Policy:
    """A policy on scores of answers, one of which may be missing."""
    rng = np.random.default_rng(0)
    correct = rng.random(120) < 0.6
    logprob = correct + rng.normal(0, 1, 120) - 4
    judge = np.where(rng.random(120) < 0.2, np.nan, correct + rng.normal(0, 1, 120))
    groups = rng.choice(["law", "math"], 120)
    scores = Scores({"logprob": logprob, "judge": judge}, groups=groups)
    return Policy.fit(scores, correct, costs=CostMatrix.for_answers().with_reject(0.3))


def test_scores_of_answers_are_decided_and_labeled(
    tmp_path: Path, answer_policy: Policy, running: Callable[..., Api]
) -> None:
    with opened(f"sqlite:///{tmp_path}/dubito.db", answer_policy) as store:
        _decide_answers(running(store), answer_policy)


def _decide_answers(api: Api, policy: Policy) -> None:
    scores = {"judge": [2.0, None], "logprob": [-2.0, -6.0]}
    body = {"scores": scores, "groups": ["law", "new"], "ids": ["x", "y"]}
    answer = api.client.post("/v1/decide", json=body)
    assert answer.status_code == 200, answer.text
    rows = answer.json()["decisions"]
    known = Scores({"logprob": [-2.0, -6.0], "judge": [2.0, np.nan]}, groups=["law", "new"])
    p = policy.predict_proba(known)[:, 1]
    np.testing.assert_allclose([row["probability_positive"] for row in rows], p, rtol=1e-6)
    assert [row["action"] for row in rows] == ["answer", "reject"]
    stream = pa.table(
        {
            "ids": ["a", "b"],
            "scores": pa.array([{"logprob": -2.0, "judge": 1.0}] * 2),
            "groups": ["law", ""],
        }
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, stream.schema) as writer:
        writer.write_table(stream)
    headers = {"content-type": ARROW}
    assert api.client.post("/v1/decide", content=sink.getvalue(), headers=headers).is_success
    unknown = [
        api.client.post("/v1/decide", json={**body, "groups": groups, "ids": ids}).json()
        for groups, ids in ((["law", None], ["n1", "n2"]), (["law", ""], ["n3", "n4"]))
    ]
    assert unknown[0]["decisions"][1]["probability"] == unknown[1]["decisions"][1]["probability"]
    # The same id with another group is another row.
    assert api.client.post("/v1/decide", json={**body, "groups": ["law", "law"]}).status_code == 409
    labels = {"ids": ["x", "y"], "labels": ["correct", "wrong"]}
    assert api.client.post("/v1/labels", json=labels).is_success
    assert api.client.get("/v1/decisions/y").json()["label"] == "wrong"
    for wrong in (False, 0, "wrong"):  # all of these are the same label
        same = {"ids": ["x", "y"], "labels": [True, wrong]}
        assert api.client.post("/v1/labels", json=same).json()["corrected"] == 0
    rejected = api.client.post("/v1/labels", json={"ids": ["x"], "labels": [2]})
    assert "true or false, 1 or 0, correct or wrong" in rejected.text
    assert api.client.get("/v1/monitor").is_success
    with pytest.raises(HTTPError, match="dubito fit"):
        _refit(api.store.decisions_since(), policy, api.store.find_features)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"logits": [[1.0, 2.0]]}, "must have `scores`"),
        ({"scores": {"judge": [1.0]}}, "`scores.logprob` must be a list of numbers"),
        (
            {"scores": {"judge": [1.0], "logprob": ["x"]}},
            '`scores.logprob` must be a list of numbers, of at most 3.4e+38 or null, got "x" in',
        ),
        ({"scores": {"judge": [1.0], "logprob": [None]}}, "`scores.logprob` was never missing"),
        ({"scores": {"judge": [1.0], "logprob": [-1.0, -2.0]}}, "the same number of rows"),
        ({"scores": {"judge": [1.0], "logprob": [-1.0]}, "groups": ["a", "b"]}, "number of rows"),
        (
            {"scores": {"judge": [1.0], "logprob": [-1.0]}, "groups": [{}]},
            "`groups[0]` must be a string or a number, got an object",
        ),
    ],
)
def test_invalid_scores_are_rejected_with_422(
    answer_policy: Policy, body: dict[str, Any], message: str
) -> None:
    with pytest.raises(HTTPError, match=re.escape(message)) as raised:
        RequestRows.of(body, answer_policy, Settings())
    assert raised.value.status == 422


def test_scores_for_a_policy_of_classes_are_rejected_with_422(api: Api) -> None:
    rejected = api.client.post("/v1/decide", json={"scores": {"judge": [1.0]}})
    assert rejected.status_code == 422
    assert (
        "`scores` must not be sent to a policy that decides on classes"
        in (rejected.json()["detail"])
    )
    # Answers are those of models that a policy asks; a text of that name is no field.
    known = api.client.post("/v1/decide", json={"logits": [SURE], "ids": ["answers"]})
    assert known.json()["decisions"][0]["next_model"] is None
    body = {"ids": ["answers"], "answers": {"large": ["a"]}}
    rejected = api.client.post("/v1/decide", json=body)
    assert (rejected.status_code, "asks no model" in rejected.text) == (409, True)

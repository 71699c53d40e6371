from collections.abc import Callable
from pathlib import Path

import httpx
from sqlalchemy import text

from dubito.serve.store import Store
from tests.serve.conftest import TORN, Api


def test_it_runs_and_can_decide(api: Api) -> None:
    for path in ("/healthz", "/readyz"):
        answer = httpx.get(api.address + path)
        assert answer.status_code == 200
        assert answer.json() == {"status": "ok"}


def test_it_is_not_ready_without_a_policy_or_a_database(
    tmp_path: Path, running: Callable[..., Api]
) -> None:
    api = running(Store.open(f"sqlite:///{tmp_path}/empty.db"))
    answer = httpx.get(f"{api.address}/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "no policy is in force"}
    refused = api.client.post("/v1/decide", json={"logits": [TORN]})
    assert refused.status_code == 409


def test_a_database_that_fails_is_told_and_nothing_is_answered(api: Api) -> None:
    with api.store.engine.begin() as connection:
        connection.execute(text("DROP TABLE reviews"))
    answer = api.client.post("/v1/decide", json={"logits": [TORN]})
    assert answer.status_code == 503
    assert answer.json() == {
        "detail": "The database does not answer; nothing was kept. Try again later."
    }


def test_counts_for_prometheus(api: Api) -> None:
    api.client.post("/v1/decide", json={"logits": [TORN, TORN], "ids": ["x", "y"]})
    api.client.post("/v1/labels", json={"ids": ["x"], "labels": ["a"]})
    httpx.post(f"{api.address}/v1/decide")
    lines = httpx.get(f"{api.address}/metrics").text.splitlines()
    assert 'dubito_requests_total{route="/v1/decide",status="200"} 1' in lines
    assert 'dubito_requests_total{route="/v1/decide",status="401"} 1' in lines
    assert 'dubito_decisions_total{action="reject"} 2' in lines
    assert "dubito_labels_total 1" in lines
    assert "dubito_review_waiting 1" in lines

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core.result import Ok
from sqlalchemy import event

from dubito.decide import Policy
from dubito.serve import app as serve_app
from dubito.serve.settings import Settings
from dubito.serve.store import NewDecisions, Store
from dubito.serve.store.documents import text_of_policy
from studies.common.serving import fitted_policy
from tests.serve.conftest import TORN, Api


def test_the_document_names_all_routes(api: Api) -> None:
    document = httpx.get(f"{api.address}/v1/openapi.json").json()
    assert set(document["paths"]) == {
        "/healthz", "/metrics", "/readyz", "/v1/decide", "/v1/decisions/{decision_id}",
        "/v1/labels", "/v1/monitor", "/v1/policies", "/v1/policies/rollback",
        "/v1/policies/{policy_id}/activate", "/v1/review", "/v1/review/{item_id}",
    }  # fmt: skip
    body = document["paths"]["/v1/decide"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "application/vnd.apache.arrow.stream"}
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"


def test_nothing_that_the_document_allows_makes_it_fail(store: Store, running: Any) -> None:
    api = running(store)
    document = httpx.get(f"{api.address}/v1/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    authorization = api.client.headers["Authorization"]
    statuses = set()
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()

        @settings(max_examples=12, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def answers(case: Any) -> None:
            answer = case.call(base_url=api.address, headers={"Authorization": authorization})
            statuses.add(answer.status_code)
            assert answer.status_code < 500

        answers()
    assert 200 in statuses
    assert 422 in statuses


def test_another_process_follows_what_is_put_in_force(
    store: Store, url: str, running: Callable[..., Api], policy: Policy
) -> None:
    first, second = running(store), running(Store.open(url))
    number = first.store.add_policy(text_of_policy(fitted_policy(reject_cost=0.9)))
    first.client.post(f"/v1/policies/{number}/activate")
    end = time.monotonic() + 20
    while (
        second.client.post("/v1/decide", json={"logits": [TORN]}).json()["decisions"][0]["policy"]
        != number
    ):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_old_decisions_are_deleted(
    small_store: Store, running: Callable[..., Api], new: Callable[..., NewDecisions]
) -> None:
    small_store.add_decisions(new({"x": TORN}))
    time.sleep(0.02)
    running(small_store, Settings(retention_days=0.01 / 86_400))
    end = time.monotonic() + 20
    while small_store.decision("x") is not None:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_what_was_accepted_is_finished_at_shutdown(
    small_store: Store, running: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = running(small_store)

    def slow(_: Any) -> None:
        time.sleep(0.5)

    api.client.post("/v1/decide", json={"logits": [TORN], "ids": ["first"]})
    event.listen(small_store.engine, "commit", slow)
    url = small_store.engine.url.render_as_string(hide_password=False)
    with ThreadPoolExecutor() as pool:
        body = {"logits": [TORN], "ids": ["last"]}
        answer = pool.submit(api.client.post, "/v1/decide", json=body)
        time.sleep(0.25)
        small_store.close()
        assert answer.result().status_code == 200
    event.remove(small_store.engine, "commit", slow)
    again = Store.open(url)
    assert again.decision("last") is not None
    again.close()


def test_a_database_that_is_away_does_not_end_the_following(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.exc import OperationalError

    monkeypatch.setattr(serve_app, "LOOK_SECONDS", 0.01)
    refresh = api.app.state.service.catalog.refresh

    def away() -> None:
        raise OperationalError("away", None, Exception("away"))

    api.app.state.service.catalog.refresh = away
    time.sleep(1.2)
    api.app.state.service.catalog.refresh = refresh
    assert "the database does not answer" in caplog.text
    assert api.client.get("/readyz").status_code == 200


def test_what_fails_is_answered_with_strict_headers_and_a_number(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Store) -> int:
        raise RuntimeError("told in the log alone")

    monkeypatch.setattr(Store, "queue_length", broken)
    for path in ("/v1/review", "/metrics"):
        answer = api.client.get(path)
        number = answer.headers["x-request-id"]
        assert answer.status_code == 500
        assert answer.json() == {
            "detail": f"The service failed; its log tells more about request {number}."
        }
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["cache-control"] == "no-store"
    assert "told in the log alone" in caplog.text

import asyncio
import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core.result import Ok
from sqlalchemy import event, text

from dubito.decide import Policy
from dubito.errors import BadValueError
from dubito.serve.policies import deploy_policy
from dubito.serve.run import is_loopback, open_socket
from dubito.serve.service import Settings
from dubito.serve.store import NewDecisions, Store
from studies.common.postgres import cluster, new_database
from studies.common.serving import fitted_label_policy, fitted_policy, served, start
from studies.serve_durability import endure
from tests.serve.conftest import TORN, Api, add_newer_policy


def test_the_openapi_document_has_all_routes(shared_api: Api) -> None:
    document = httpx.get(f"{shared_api.address}/v1/openapi.json").json()
    assert set(document["paths"]) == {
        "/healthz", "/metrics", "/readyz", "/v1/decide", "/v1/decisions/{decision_id}",
        "/v1/forecasts", "/v1/forecasts/{forecast_id}", "/v1/labels", "/v1/monitor",
        "/v1/policies", "/v1/policies/rollback", "/v1/policies/{policy_id}/activate",
        "/v1/review", "/v1/review/{item_id}", "/v1/team",
    }  # fmt: skip
    body = document["paths"]["/v1/decide"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "application/vnd.apache.arrow.stream"}
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"


def test_health_and_metrics_are_documented_as_they_are_answered(shared_api: Api) -> None:
    document = httpx.get(f"{shared_api.address}/v1/openapi.json").json()
    for path, kind, schema in (
        ("/metrics", "text/plain", {"type": "string"}),
        ("/healthz", "application/json", {"$ref": "#/components/schemas/HealthResponse"}),
        ("/readyz", "application/json", {"$ref": "#/components/schemas/ReadinessResponse"}),
    ):
        described = document["paths"][path]["get"]["responses"]["200"]["content"]
        assert described == {kind: {"schema": schema}}
        answer = shared_api.client.get(path)
        assert answer.headers["content-type"].partition(";")[0] == kind


@pytest.mark.parametrize(
    ("method", "path", "status", "detail"),
    [
        ("GET", "/none", 404, "There is no path '/none'. See /v1/openapi.json for all paths."),
        ("GET", "/v1/decide", 405, "The path '/v1/decide' does not allow GET. Use POST."),
        ("PUT", "/v1/review", 405, "The path '/v1/review' does not allow PUT. Use GET or POST."),
        (
            "GET",
            "/v1/monitor?days=9999",
            422,
            "`days` in the query must be at most 3650, got '9999'. "
            "Correct `?days=`, or leave it out.",
        ),
        (
            "GET",
            "/v1/monitor?days=few",
            422,
            "`days` in the query must be a number, got 'few'. Correct `?days=`, or leave it out.",
        ),
        (
            "POST",
            "/v1/decide?rearrange=perhaps",
            422,
            "`rearrange` in the query must be true or false, got 'perhaps'. "
            "Correct `?rearrange=`, or leave it out.",
        ),
        (
            "POST",
            "/v1/policies/0/activate",
            422,
            "`policy_id` in the path must be at least 1, got '0'. Correct the path.",
        ),
        (
            "POST",
            "/v1/policies/x/activate",
            422,
            "`policy_id` in the path must be a whole number, got 'x'. Correct the path.",
        ),
    ],
)
def test_what_an_address_has_wrong_is_said_with_a_remedy(
    shared_api: Api, method: str, path: str, status: int, detail: str
) -> None:
    answer = shared_api.client.request(method, path)
    assert (answer.status_code, answer.json()) == (status, {"detail": detail})
    other = shared_api.client.get("/v1/decisions/none")
    assert set(other.headers) <= set(answer.headers)
    if status == 405:
        assert answer.headers["allow"].replace(", ", " or ") in detail


def test_no_documented_request_causes_a_server_error(store: Store, running: Any) -> None:
    send_documented_requests(running(store))


def test_no_documented_request_causes_a_server_error_with_several_labels(
    tmp_path: Path, running: Any
) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/dubito.db")
    deploy_policy(store, fitted_label_policy())
    api = running(store)
    api.client.post("/v1/decide", json={"logits": [[0.0, 0.0, 0.0]]})
    send_documented_requests(api)


def send_documented_requests(api: Api) -> None:
    """Send requests that the OpenAPI document describes, and others."""
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


def test_another_process_follows_an_activation(
    store: Store, url: str, running: Callable[..., Api], policy: Policy
) -> None:
    first, second = running(store), running(Store.open(url))
    number = first.store.add_policy(fitted_policy(reject_cost=0.65).to_json())
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
    while small_store.get_decision("x") is not None:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_accepted_requests_are_finished_at_shutdown(
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
    assert again.get_decision("last") is not None
    again.close()


def test_a_database_failure_does_not_end_the_background_task(
    small_store: Store, running: Callable[..., Api], caplog: pytest.LogCaptureFixture
) -> None:
    from sqlalchemy.exc import OperationalError

    api = running(small_store, Settings(refresh_seconds=0.01))
    refresh = api.app.state.service.catalog.refresh

    def away() -> None:
        raise OperationalError("away", None, Exception("away"))

    api.app.state.service.catalog.refresh = away
    await_that(lambda: "the database does not answer" in caplog.text)
    api.app.state.service.catalog.refresh = refresh
    await_that(lambda: "problems" not in api.client.get("/readyz").json())
    assert api.client.get("/readyz").status_code == 200


def test_a_policy_of_a_newer_format_does_not_end_the_background_tasks(
    small_store: Store,
    running: Callable[..., Api],
    new: Callable[..., NewDecisions],
    caplog: pytest.LogCaptureFixture,
) -> None:
    short = 0.01 / 86_400
    often = Settings(retention_days=short, refresh_seconds=0.02, cleanup_seconds=0.02)
    api = running(small_store, often)
    number = add_newer_policy(small_store)
    small_store.activate(number)
    problem = f"This version of dubito cannot read policy {number}. Upgrade dubito."
    await_that(lambda: api.client.get("/readyz").json().get("problems"))
    answer = api.client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "problems": {"active policy": problem}}
    body = {"logits": [TORN], "ids": ["x"]}
    [decided] = api.client.post("/v1/decide", json=body).json()["decisions"]
    assert decided["policy"] == 1
    await_that(lambda: small_store.get_decision("x") is None)
    assert caplog.text.count(f"active policy: {problem}") == 1
    small_store.roll_back()
    await_that(lambda: "problems" not in api.client.get("/readyz").json())


def await_that(condition: Callable[[], Any]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_failed_retention_is_reported_and_repeated(
    small_store: Store, running: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    delete_before = small_store.delete_before

    def broken(_: float) -> int:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(small_store, "delete_before", broken)
    api = running(small_store, Settings(retention_days=1, refresh_seconds=0.02))
    await_that(lambda: "problems" in api.client.get("/readyz").json())
    assert api.client.get("/readyz").json() == {
        "status": "ok",
        "problems": {"retention": "ZeroDivisionError"},
    }
    monkeypatch.setattr(small_store, "delete_before", delete_before)
    await_that(lambda: api.client.get("/readyz").json() == {"status": "ok"})


def test_it_is_not_ready_while_nothing_can_be_written(
    small_store: Store, running: Callable[..., Api]
) -> None:
    api = running(small_store, Settings(refresh_seconds=0.02))
    assert api.client.get("/readyz").json() == {"status": "ok"}
    n_pages = api.store.read(lambda c: c.exec_driver_sql("PRAGMA page_count").scalar_one())

    def full(connection: Any) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {n_pages}")

    event.listen(api.store.engine, "begin", full)
    await_that(lambda: api.client.get("/readyz").status_code == 503)
    assert api.client.get("/readyz").json()["status"] == "the database cannot be written to"
    event.remove(api.store.engine, "begin", full)
    api.store.engine.dispose()
    await_that(lambda: api.client.get("/readyz").json() == {"status": "ok"})


def test_it_is_not_ready_while_the_writer_is_stuck(
    small_store: Store, running: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = running(small_store, Settings(refresh_seconds=0.02))
    check, may_go = api.store.check_writing, Event()
    monkeypatch.setattr(api.store, "check_writing", lambda: check(0.05))
    held = api.store.submit(lambda _: may_go.wait(30))
    answer = api.client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "writing takes too long"}
    may_go.set()
    assert held.result(30)
    await_that(lambda: api.client.get("/readyz").status_code == 200)


def test_one_write_a_second_tests_readiness(api: Api) -> None:
    commits = []

    def counted(connection: Any) -> None:
        commits.append(connection)

    event.listen(api.store.engine, "commit", counted)
    start = time.monotonic()
    for _ in range(10):
        assert api.client.get("/readyz").status_code == 200
    n_seconds = time.monotonic() - start
    event.remove(api.store.engine, "commit", counted)
    assert 1 <= len(commits) <= 1 + n_seconds


def test_failures_are_answered_with_security_headers_and_a_number(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Store) -> int:
        raise RuntimeError("details for the log")

    monkeypatch.setattr(Store, "queue_length", broken)
    for path in ("/v1/review", "/metrics"):
        answer = api.client.get(path)
        number = answer.headers["x-request-id"]
        assert answer.status_code == 500
        assert answer.json() == {"detail": f"The service failed. See request {number} in its log."}
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["cache-control"] == "no-store"
    assert "details for the log" in caplog.text


def test_a_client_that_leaves_is_no_failure(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    port = int(api.address.rpartition(":")[2])
    with caplog.at_level("INFO"), socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        time.sleep(0.1)
        line.close()
        end = time.monotonic() + 10
        while not caplog.records and time.monotonic() < end:
            time.sleep(0.01)
    [record] = [record for record in caplog.records if record.name == "dubito.serve"]
    assert record.__dict__["fields"]["status"] == 499
    assert record.exc_info is None


def test_a_long_path_fills_no_log(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        assert api.client.get("/" + "a" * 50_000).status_code == 404
        end = time.monotonic() + 10
        while not (found := [one for one in caplog.records if one.name == "dubito.serve"]):
            assert time.monotonic() < end
    assert len(found[0].__dict__["fields"]["path"]) == 500


def test_it_is_healthy_and_ready(shared_api: Api) -> None:
    for path in ("/healthz", "/readyz"):
        answer = httpx.get(shared_api.address + path)
        assert answer.status_code == 200
        assert answer.json() == {"status": "ok"}


def test_it_is_not_ready_without_a_policy_or_a_database(
    tmp_path: Path, running: Callable[..., Api]
) -> None:
    api = running(Store.open(f"sqlite:///{tmp_path}/empty.db"))
    answer = httpx.get(f"{api.address}/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "no policy is active"}
    rejected = api.client.post("/v1/decide", json={"logits": [TORN]})
    assert rejected.status_code == 409


def test_a_database_failure_is_reported(api: Api) -> None:
    with api.store.engine.begin() as connection:
        connection.execute(text("DROP TABLE reviews"))
    answer = api.client.post("/v1/decide", json={"logits": [TORN]})
    assert answer.status_code == 503
    assert answer.json() == {
        "detail": "The database does not answer, and the request was not completed. "
        "Send it again later."
    }


def test_counts_for_prometheus(api: Api) -> None:
    api.client.post("/v1/decide", json={"logits": [TORN, TORN], "ids": ["x", "y"]})
    api.client.post("/v1/labels", json={"ids": ["x"], "labels": ["a"]})
    httpx.post(f"{api.address}/v1/decide")
    lines = httpx.get(f"{api.address}/metrics").text.splitlines()
    assert 'dubito_requests_total{route="/v1/decide",status="200"} 1.0' in lines
    assert 'dubito_requests_total{route="/v1/decide",status="401"} 1.0' in lines
    assert 'dubito_decisions_total{action="reject"} 2.0' in lines
    assert "dubito_labels_total 1.0" in lines
    assert "dubito_review_waiting 1.0" in lines


def test_a_file_is_activated_once(small_store: Store, policy: Policy) -> None:
    newer = small_store.add_policy(fitted_policy(reject_cost=0.1).to_json())
    small_store.activate(newer)
    assert deploy_policy(small_store, policy) == 1
    assert small_store.active_id() == newer
    newest = deploy_policy(small_store, fitted_policy(reject_cost=0.2))
    assert small_store.active_id() == newest


def test_responses_are_sent_without_delay() -> None:
    listener = open_socket("127.0.0.1", 0)
    found: list[int] = []

    def met(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = writer.get_extra_info("socket")
        found.append(line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async def meet() -> None:
        async with await asyncio.start_server(met, sock=listener):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            assert await reader.read() == b""
            writer.close()

    asyncio.run(meet())
    assert found == [1]


def test_a_port_in_use_is_reported() -> None:
    listener = open_socket("127.0.0.1", 0)
    port = listener.getsockname()[1]
    with pytest.raises(BadValueError) as caught:
        open_socket("127.0.0.1", port)
    assert str(caught.value).startswith(
        f"dubito serve: `--host` must be a free address and port, got 127.0.0.1:{port} ("
    )
    listener.close()
    with pytest.raises(BadValueError, match="must be between 0 and 65535, got 99999"):
        open_socket("127.0.0.1", 99_999)


@pytest.mark.parametrize(
    ("host", "is_here"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("a.org", False)],
)
def test_loopback_addresses(host: str, is_here: bool) -> None:
    assert is_loopback(host) == is_here


def early_answers(trace: str) -> tuple[int, int]:
    """Return the number of traced responses, and of those sent before the log was synced."""
    n_answers = n_early = 0
    is_synced = False
    for line in trace.splitlines():
        if line.startswith("received POST /v1/"):
            is_synced = False
        elif line.startswith("synced") and "wal" in line:
            is_synced = True
        elif line.startswith("sent HTTP/1.1 200"):
            n_answers += 1
            n_early += not is_synced
    return n_answers, n_early


def test_an_early_answer_would_be_seen() -> None:
    received, sent = "received POST /v1/decide", "sent HTTP/1.1 200 OK"
    synced, elsewhere = "synced /folder/dubito.db-wal", "synced /folder/dubito.db"
    assert early_answers("\n".join([received, synced, sent])) == (1, 0)
    assert early_answers("\n".join([synced, received, sent])) == (1, 1)
    assert early_answers("\n".join([received, sent, synced])) == (1, 1)
    assert early_answers("\n".join([received, elsewhere, sent])) == (1, 1)


@pytest.fixture
def watching() -> Iterator[tuple[list[str], Path]]:
    """A command prefix that traces a process, and the path of the trace."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # a server of PostgreSQL is another user
        watcher, trace = Path(folder) / "watched.so", Path(folder) / "trace"
        source = Path(__file__).with_name("watched.c")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", watcher, source, "-ldl"], check=True)
        trace.touch()
        trace.chmod(0o666)
        yield ["env", f"LD_PRELOAD={watcher}", f"WATCHED={trace}"], trace


def write_ten(address: str, token: str) -> None:
    """Send ten decisions and their labels, one after the other."""
    headers, query = {"Authorization": f"Bearer {token}"}, {"token": token}
    with httpx.Client(base_url=address, headers=headers, params=query, timeout=60) as client:
        for number in range(10):
            ids = [f"row-{number}"]
            client.post("/v1/decide", json={"logits": [TORN], "ids": ids}).raise_for_status()
            client.post("/v1/labels", json={"ids": ids, "labels": ["a"]}).raise_for_status()


def test_a_process_syncs_before_it_answers_and_stops_on_sigterm(
    policy_file: Path, tmp_path: Path, watching: tuple[list[str], Path]
) -> None:
    url, log = f"sqlite:///{tmp_path}/dubito.db", tmp_path / "log"
    under, trace = watching
    process, address = start(policy_file, url, log, under=under)
    assert address.startswith("http://127.0.0.1:")
    store = Store.open(url)
    token = store.create_token("ann", ["decide"])
    write_ten(address, token)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert early_answers(trace.read_text()) == (20, 0)
    assert len(store.decisions_since()) == 10
    store.close()
    lines = [line for line in log.read_text().splitlines() if not line.startswith("dubito: ")]
    events = [json.loads(line)["event"] for line in lines]  # without notes about kernels
    assert events[0] == "started"
    assert events.count("request") == 20
    assert events[-1].startswith("Finished server process")
    assert token not in log.read_text()


@pytest.mark.slow
@pytest.mark.postgres
def test_postgresql_syncs_its_log_before_the_service_answers(
    policy_file: Path, tmp_path: Path, watching: tuple[list[str], Path]
) -> None:
    under, trace = watching
    with cluster(under) as server:
        url = new_database(server, "dubito")
        process, address = start(policy_file, url, tmp_path / "log", under=under)
        store = Store.open(url)
        token = store.create_token("ann", ["decide"])
        write_ten(address, token)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert len(store.decisions_since()) == 10
        store.close()
    assert early_answers(trace.read_text()) == (20, 0)


def read_all(address: str, token: str, held: list[str], holding: dict[str, str]) -> None:
    """Claim and label rows until none waits; a row that two reviewers hold is an error."""
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=address, headers=headers, timeout=60) as client:
        while (item := client.post("/v1/review").raise_for_status().json()["item"]) is not None:
            name = item["id"]
            assert holding.setdefault(name, token) == token
            held.append(name)
            body = {"action": "label", "label": "b"}
            client.post(f"/v1/review/{name}", json=body).raise_for_status()


def test_two_processes_and_32_reviewers_never_hold_the_same_row(
    policy_file: Path, tmp_path: Path, empty_postgres: str
) -> None:
    log, names = tmp_path / "log", [f"r{k}" for k in range(96)]
    with (
        served(policy_file, empty_postgres, log) as first,
        served(policy_file, empty_postgres, log) as second,
    ):
        store = Store.open(empty_postgres)
        writer = {"Authorization": f"Bearer {store.create_token('client', ['decide'])}"}
        body = {"logits": [TORN] * 96, "ids": names}
        httpx.post(f"{first}/v1/decide", json=body, headers=writer).raise_for_status()
        tokens = [store.create_token(f"reviewer {k}", ["review"]) for k in range(32)]
        held: list[str] = []
        holding: dict[str, str] = {}
        with ThreadPoolExecutor(32) as reviewers:
            reads = [
                reviewers.submit(read_all, (first, second)[k % 2], token, held, holding)
                for k, token in enumerate(tokens)
            ]
            for read in reads:
                read.result()
        assert sorted(held) == sorted(names)
        assert len(set(holding.values())) > 1
        rows = store.decisions_since()
        assert (rows.label >= 0).all()
        assert set(rows.label.tolist()) == {1}
        store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_acknowledged_writes_survive_a_kill(
    kind: str, policy_file: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/dubito.db"
    if kind == "postgresql":
        url = request.getfixturevalue("empty_postgres")
    found = endure(url, policy_file, tmp_path / "log", n_rounds=1, n_writes=40, seed=1)
    assert found.wrong == []
    assert (found.n_decisions, found.n_labels) == (20, 20)
    assert str(found).startswith(
        "1 round of 40 writes, the service killed (SIGKILL) at a random moment of each: "
        "20 decisions and 20 labels acknowledged, "
    )

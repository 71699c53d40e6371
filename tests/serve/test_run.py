"""Limits of connections, tried with plain sockets: no client library would send these requests."""

import json
import resource
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import event

from dubito.decide import Policy
from dubito.serve.run import Limits
from dubito.serve.store import Store
from studies.common.serving import start
from tests.serve.conftest import SURE, Api, opened, services

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
SIGN_IN = b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
HASTY = Limits(
    head_seconds=0.1, transfer_seconds=0.1, bytes_per_second=1e9, idle_seconds=0.1, connections=50
)


@pytest.fixture(scope="module")
def hasty(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service with little patience."""
    url = f"sqlite:///{tmp_path_factory.mktemp('hasty')}/dubito.db"
    with opened(url, policy) as store, services() as started:
        yield started(store, None, HASTY)


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    """Yield a connection to a service."""
    with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 20) as line:
        yield line


def read_all(line: socket.socket) -> bytes:
    """Return what is received until the service closes the connection."""
    received = b""
    try:
        while part := line.recv(65_536):
            received += part
    except ConnectionResetError:
        pass
    return received


def send_until_closed(line: socket.socket, data: bytes, n_times: int, pause: float = 0.0) -> int:
    """Return how often data could be sent before the service closed the connection."""
    for number in range(n_times):
        try:
            line.sendall(data)
        except ConnectionError:
            return number
        time.sleep(pause)
    pytest.fail("The service did not close the connection.")


def detail_of(answer: bytes) -> str:
    """Return the message of a single response."""
    assert answer.count(b"\r\n\r\n") == 1
    return str(json.loads(answer.partition(b"\r\n\r\n")[2])["detail"])


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + b"a" * 70_000,
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        GET + b"X-Long: " + b"a" * 70_000,
        GET + b"X-Long: " + b"a" * 70_000 + b"\r\n\r\n",
        GET + b"a: b\r\n" * 200,
        GET + b"a: b\r\n" * 200 + b"\r\n",
        b"\r\n" * 70_000,
        SIGN_IN + CHUNKED + b"1\r\na\r\n" * 10_000,
        SIGN_IN + CHUNKED + b"0\r\nX-Long: " + b"a" * 30_000,
    ],
    ids=[
        "endless path", "path", "endless header", "header", "endless headers", "headers",
        "blank lines", "tiny chunks", "trailer",
    ],
)  # fmt: skip
def test_a_request_with_a_large_head_is_rejected_with_431(shared_api: Api, request_: bytes) -> None:
    with connected(shared_api.address) as line:
        line.sendall(request_)
        answer = read_all(line)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert detail_of(answer) == (
        "The path and headers exceed 65,536 bytes and 100 headers. Send shorter or fewer ones."
    )
    assert shared_api.client.get("/healthz").status_code == 200


def test_an_endless_header_in_small_parts_closes_the_connection(shared_api: Api) -> None:
    with connected(shared_api.address) as line:
        line.sendall(GET + b"X-Long: ")
        assert send_until_closed(line, b"a" * 1000, 5000) > 65


@pytest.mark.slow
def test_large_requests_within_the_limits_are_answered(shared_api: Api) -> None:
    long = shared_api.client.get("/healthz", headers={"X-Long": "a" * 65_000})
    assert long.status_code == 200
    body = json.dumps({"logits": [SURE] * 20_000}).encode()
    assert shared_api.client.post("/v1/decide", content=body).status_code == 200
    parts = (body[k : k + 20] for k in range(0, 30_000, 20))  # chunks of 20 bytes
    chunked = shared_api.client.post("/v1/decide", content=parts)
    assert chunked.status_code == 422
    assert "not valid JSON" in chunked.json()["detail"]


def test_invalid_http_is_rejected_with_400(shared_api: Api) -> None:
    with connected(shared_api.address) as line:
        line.sendall(b"hello\r\n\r\n")
        answer = read_all(line)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert detail_of(answer) == "This is not a valid HTTP/1.1 request."


@pytest.mark.parametrize(
    ("start", "part"),
    [(GET, "headers"), (SIGN_IN + b"Content-Length: 1000\r\n\r\nab", "body")],
)
def test_a_request_that_does_not_arrive_is_rejected_with_408(
    hasty: Api, start: bytes, part: str
) -> None:
    with connected(hasty.address) as line:
        line.sendall(start)
        answer = read_all(line)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert detail_of(answer) == (
        f"The {part} of the request did not arrive in time. Send it again."
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [
        GET + b"X-Slow: ",
        SIGN_IN + b"Content-Length: 60000\r\n\r\n",
        # The response comes at once, and the body never ends.
        b"POST /v1/decide HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
    ids=["head", "body", "body after the response", "upgrade"],
)
def test_slow_drips_do_not_keep_a_connection_open(hasty: Api, start: bytes) -> None:
    with connected(hasty.address) as line:
        line.sendall(start)
        send_until_closed(line, b"a", 200, pause=0.05)


def test_idle_connections_are_closed(hasty: Api) -> None:
    with connected(hasty.address) as silent, connected(hasty.address) as idle:
        idle.sendall(GET + b"\r\n")
        assert read_all(idle).endswith(b'{"status":"ok"}')
        assert read_all(silent) == b""


@pytest.mark.slow
def test_a_client_that_reads_nothing_is_closed(hasty: Api) -> None:
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", int(hasty.address.rpartition(":")[2])))
        line.settimeout(20)
        # Requests go on until the responses fill all buffers.
        request = b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        send_until_closed(line, request, 500, pause=0.01)


def test_unauthenticated_connections_displace_only_each_other(
    small_store: Store, running: Callable[..., Api]
) -> None:
    api = running(small_store, None, Limits(connections=8))
    answer = api.client.post("/v1/decide", json={"logits": [SURE]})
    port = answer.extensions["network_stream"].get_extra_info("client_addr")[1]
    with ExitStack() as stack:
        lines = [stack.enter_context(connected(api.address)) for _ in range(20)]
        for line in lines:
            line.sendall(GET)
        assert httpx.get(f"{api.address}/healthz").status_code == 200
        assert httpx.get(f"{api.address}/readyz").status_code == 200
        again = api.client.post("/v1/decide", json={"logits": [SURE]})
        assert again.status_code == 200
        assert again.extensions["network_stream"].get_extra_info("client_addr")[1] == port
        assert read_all(lines[0]) == b""  # the oldest
        lines[-1].sendall(b"\r\n")  # the newest is still there
        assert lines[-1].recv(15) == b"HTTP/1.1 200 OK"


def fill_buffers(api: Api, line: socket.socket) -> None:
    """Ask for responses without reading them, until the service cannot send any more."""
    request = b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    counter = api.app.state.service.metrics.requests.labels("none", 200)  # no route of ours
    for _ in range(100):
        n_sent, until = counter._value.get(), time.monotonic() + 1
        line.sendall(8 * request)
        while counter._value.get() < n_sent + 8:
            if time.monotonic() > until:
                return
            time.sleep(0.002)
    pytest.fail("The buffers are never full.")


def test_clients_that_read_nothing_leave_room_for_others(
    small_store: Store, running: Callable[..., Api]
) -> None:
    api = running(small_store, None, Limits(connections=2))
    with ExitStack() as stack:
        for _ in range(2):
            line = stack.enter_context(socket.socket())
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.connect(("127.0.0.1", int(api.address.rpartition(":")[2])))
            fill_buffers(api, line)
        assert httpx.get(f"{api.address}/healthz").status_code == 200


def test_a_service_that_is_busy_says_so(small_store: Store, running: Callable[..., Api]) -> None:
    api = running(small_store, None, Limits(connections=2))
    api.client.post("/v1/decide", json={"logits": [SURE]})

    def slow(_: Any) -> None:
        time.sleep(0.3)

    event.listen(small_store.engine, "commit", slow)
    with ThreadPoolExecutor() as pool, ExitStack() as stack:
        body = {"logits": [SURE]}
        answers = [pool.submit(api.client.post, "/v1/decide", json=body) for _ in range(2)]
        time.sleep(0.15)
        rejected = read_all(stack.enter_context(connected(api.address)))
        assert [answer.result().status_code for answer in answers] == [200, 200]
    event.remove(small_store.engine, "commit", slow)
    assert rejected.startswith(b"HTTP/1.1 503 ")
    assert detail_of(rejected) == "All connections are in use. Try again."


def test_few_requests_are_taken_ahead_of_their_responses(shared_api: Api) -> None:
    with connected(shared_api.address) as line:
        line.sendall((GET + b"\r\n") * 10)
        received = b""
        while received.count(b'{"status":"ok"}') < 10:
            received += line.recv(65_536)
    with connected(shared_api.address) as line:
        line.sendall((GET + b"\r\n") * 1000)
        assert read_all(line).count(b"HTTP/1.1 200") < 10


@pytest.mark.slow
def test_it_stops_without_waiting_for_half_a_request(policy_file: Path, tmp_path: Path) -> None:
    process, address = start(policy_file, f"sqlite:///{tmp_path}/dubito.db", tmp_path / "log")
    with connected(address) as head, connected(address) as body:
        head.sendall(GET)
        body.sendall(SIGN_IN + b"Content-Length: 1000\r\n\r\n")
        time.sleep(0.2)
        process.terminate()
        process.communicate(timeout=10)  # a graceful stop may take 30 seconds


@pytest.mark.slow
def test_300_half_requests_leave_room_for_others(policy_file: Path, tmp_path: Path) -> None:
    under = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh"]
    database, log = f"sqlite:///{tmp_path}/dubito.db", tmp_path / "log"
    process, address = start(policy_file, database, log, under=under)
    try:
        with ExitStack() as stack:
            for number in range(300):
                line = stack.enter_context(connected(address))
                line.sendall(GET if number % 2 else SIGN_IN + b"Content-Length: 1000\r\n\r\n")
            for path in ("/healthz", "/readyz"):
                assert httpx.get(address + path, timeout=10).status_code == 200
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert "Traceback" not in log.read_text()


def test_connections_take_half_of_the_file_descriptors() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    for n_files, n_connections in ((256, 128), (1024, 512), (before[1], min(1000, before[1] // 2))):
        resource.setrlimit(resource.RLIMIT_NOFILE, (n_files, before[1]))
        try:
            assert Limits().connections == n_connections
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)

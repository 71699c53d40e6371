import asyncio
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from starlette.responses import JSONResponse

from dubito.errors import BadValueError
from dubito.serve.auth import Authenticator, HostCheck, Sessions
from dubito.serve.service import Settings
from dubito.serve.store import Store
from dubito.serve.store.tokens import Token
from tests.serve.conftest import SURE, TORN, Api

BODY = {"logits": [TORN], "ids": ["x"]}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (None, "The request has no token. Send the header `Authorization: Bearer TOKEN`."),
        ("Bearer", "The request has no token."),
        ("Basic abc", "The request has no token."),
        (
            "Bearer dubito_wrong",
            "The token is unknown, expired or revoked. Create one with `dubito token",
        ),
        ("Bearer é", "The token is unknown, expired or revoked."),
    ],
)
def test_without_a_token_nothing_is_stored(shared_api: Api, header: str | None, words: str) -> None:
    headers = {} if header is None else {b"Authorization": header.encode()}
    answer = httpx.post(f"{shared_api.address}/v1/decide", json=BODY, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert words in answer.json()["detail"]
    assert shared_api.counts() == (0, 0)


def test_expired_and_revoked_tokens_are_rejected(api: Api) -> None:
    address = f"{api.address}/v1/decide"
    long = {"Authorization": f"Bearer {api.store.create_token('cy', ['decide'])}"}
    assert httpx.post(address, json=BODY, headers=long).status_code == 200  # compiles kernels
    token = api.store.create_token("bob", ["decide"], lifetime=3.0)
    brief = {"Authorization": f"Bearer {token}"}
    assert httpx.post(address, json=BODY, headers=brief).status_code == 200
    time.sleep(3.1)
    assert httpx.post(address, json=BODY, headers=brief).status_code == 401
    assert httpx.post(address, json=BODY, headers=long).status_code == 200
    [number] = [one.id for one in api.store.list_tokens() if one.name == "cy"]
    api.store.revoke_token(number)
    time.sleep(1.1)  # as long as a token is cached
    assert httpx.post(address, json=BODY, headers=long).status_code == 401


@pytest.mark.parametrize(
    ("scope", "method", "path"),
    [
        ("review", "POST", "/v1/decide"),
        ("review", "POST", "/v1/labels"),
        ("review", "GET", "/v1/decisions/x"),
        ("review", "POST", "/v1/policies"),
        ("decide", "GET", "/v1/review"),
        ("decide", "POST", "/v1/review"),
        ("decide", "POST", "/v1/review/x"),
        ("decide", "GET", "/v1/policies"),
        ("decide", "POST", "/v1/policies/rollback"),
        ("decide", "POST", "/v1/policies/1/activate"),
        ("decide", "GET", "/v1/monitor"),
        ("admin", "POST", "/v1/decide"),
        ("admin", "POST", "/v1/review"),
    ],
)
def test_another_scope_is_not_enough(shared_api: Api, scope: str, method: str, path: str) -> None:
    answer = shared_api.client_of(f"{scope} {method} {path}", scope).request(
        method, path, json=BODY
    )
    assert answer.status_code == 403
    assert answer.json()["detail"].startswith("The token needs the scope ")
    assert shared_api.counts() == (0, 0)


def session_of(api: Api, token: str) -> tuple[str, str]:
    """Return the cookie of a session and its CSRF token."""
    authenticator: Authenticator = api.app.state.authenticator
    found = api.store.find_token(token)
    assert found is not None
    text = authenticator.sessions.create(found)
    return text, authenticator.sessions.csrf_token(text)


def test_a_cookie_needs_a_csrf_token(api: Api) -> None:
    session, csrf = session_of(api, api.store.create_token("bob", ["review", "decide"]))
    browser = httpx.Client(base_url=api.address, cookies={"dubito_session": session})
    assert browser.get("/v1/review").status_code == 200
    rejected = browser.post("/v1/decide", json=BODY)
    assert rejected.status_code == 403
    assert rejected.json()["detail"] == (
        "The request does not come from a page of this service. Reload the page and try again."
    )
    proof = {"X-CSRF-Token": csrf}
    elsewhere = {**proof, "Origin": "https://evil.example"}
    assert browser.post("/v1/decide", json=BODY, headers=elsewhere).status_code == 403
    ours = {**proof, "Origin": api.address}
    assert browser.post("/v1/decide", json=BODY, headers=ours).status_code == 200
    other, _ = session_of(api, api.store.create_token("eve", ["review", "decide"]))
    browser.cookies.set("dubito_session", other)
    assert browser.post("/v1/decide", json=BODY, headers=ours).status_code == 403
    browser.close()


def test_a_session_is_no_token_and_a_token_no_session(shared_api: Api) -> None:
    token = shared_api.store.create_token("bob", ["review"])
    session, _ = session_of(shared_api, token)
    assert token not in session
    address = f"{shared_api.address}/v1/review"
    headers = {"Authorization": f"Bearer {session}"}
    assert httpx.get(address, headers=headers).status_code == 401
    # The last character of a signature has bits that mean nothing: another one is changed.
    other = f"{session[:-3]}{'0' if session[-3] != '0' else '1'}{session[-2:]}"
    for forged in (token, other, "1.9999999999.a.b"):
        with httpx.Client(cookies={"dubito_session": forged}) as browser:
            assert browser.get(address).status_code == 401


def test_a_session_ends_with_its_token(api: Api) -> None:
    token = api.store.create_token("bob", ["review"])
    session, _ = session_of(api, token)
    found = api.store.find_token(token)
    assert found is not None
    with httpx.Client(base_url=api.address, cookies={"dubito_session": session}) as browser:
        assert browser.get("/v1/review").status_code == 200
        api.store.revoke_token(found.id)
        time.sleep(1.1)  # as long as a token is cached
        assert browser.get("/v1/review").status_code == 401
    brief, _ = session_of(api, api.store.create_token("cy", ["review"], lifetime=1.0))
    with httpx.Client(base_url=api.address, cookies={"dubito_session": brief}) as browser:
        time.sleep(1.1)
        assert browser.get("/v1/review").status_code == 401


def test_a_deleted_key_is_replaced_and_ends_all_sessions(small_store: Store) -> None:
    token = small_store.create_token("bob", ["review"])
    found = small_store.find_token(token)
    assert found is not None
    before = Authenticator(small_store).sessions
    cookie = before.create(found)
    assert Authenticator(small_store).sessions.read(cookie) is not None
    small_store.write(lambda connection: connection.execute(text("DELETE FROM secrets")).rowcount)
    assert Authenticator(small_store).sessions.read(cookie) is None


def test_responses_have_security_headers(shared_api: Api) -> None:
    for path in ("/healthz", "/v1/review", "/sign-in"):
        headers = shared_api.client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"


PATHS = ("/sign-in", "/review", "/v1/review", "/v1/openapi.json", "/metrics", "/none")


def host_status(api: Api, path: str, *hosts: str) -> int:
    """Return the status of a request with some Host headers."""
    port = int(api.address.rpartition(":")[2])
    lines = "".join(f"Host: {host}\r\n" for host in hosts)
    with socket.create_connection(("127.0.0.1", port), 20) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
        return int(line.recv(12)[9:])


def test_another_host_is_rejected_with_400_except_on_health_checks(shared_api: Api) -> None:
    for path in PATHS:
        answer = shared_api.client.get(path, headers={"Host": "evil.example:8000"})
        assert answer.status_code == 400
        assert answer.json()["detail"] == (
            "This service does not answer to the host 'evil.example:8000'. If that is its name, "
            "start it with `dubito serve --allowed-host NAME`."
        )
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    for path in ("/healthz", "/readyz"):
        assert shared_api.client.get(path, headers={"Host": "10.0.0.7"}).status_code == 200
    sign_in = {"Host": "evil.example", "Origin": "http://evil.example"}
    assert shared_api.client.post("/sign-in", headers=sign_in).status_code == 400


def test_known_hosts(small_store: Store, running: Callable[..., Api]) -> None:
    allowed = ["decisions.example", "2001:db8::1"]
    api = running(small_store, Settings(allowed_hosts=allowed))
    for host in (
        "localhost", "LocalHost:1234", "127.0.0.1:8000", "[::1]:8000", "decisions.example",
        "Decisions.Example:443", "[2001:db8::1]",
    ):  # fmt: skip
        assert host_status(api, "/sign-in", host) == 200
    for host in (
        "127.0.0.1.evil.example", "localhost.evil.example", "evil.decisions.example",
        "[::1]evil.example", "localhost@evil.example", "10.0.0.7", "",
    ):  # fmt: skip
        assert host_status(api, "/sign-in", host) == 400
    assert host_status(api, "/sign-in") == 400
    assert host_status(api, "/sign-in", "localhost", "evil.example") == 400


def test_the_address_of_the_connection_is_a_known_host() -> None:
    async def status(server: tuple[str, int] | None, host: str) -> int:
        sent: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await JSONResponse({})(scope, receive, send)

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", host.encode())]
        scope = {"type": "http", "path": "/", "headers": headers, "server": server}
        await HostCheck(app)(scope, send, send)
        return int(sent[0]["status"])

    assert asyncio.run(status(("192.168.1.5", 80), "192.168.1.5:80")) == 200
    assert asyncio.run(status(("::ffff:192.168.1.5", 80), "192.168.1.5")) == 200
    assert asyncio.run(status(("2001:db8::2", 80), "[2001:db8::2]")) == 200
    assert asyncio.run(status(("192.168.1.5", 80), "192.168.1.6")) == 400
    assert asyncio.run(status(None, "")) == 400


def test_an_allowed_host_is_a_name() -> None:
    for wrong in ("http://example.org", "a b", ""):
        with pytest.raises(BadValueError) as caught:
            Settings(allowed_hosts=[wrong])
        assert str(caught.value) == (
            "dubito serve: `--allowed-host` must be a host name or address, "
            f"got {wrong!r}. Use --allowed-host example.org."
        )


def events(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "dubito.serve"]


def test_no_token_is_in_the_logs(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    token = api.store.create_token("bob", ["decide"])
    headers = {"Authorization": f"Bearer {token}"}
    with caplog.at_level("INFO"):
        httpx.post(f"{api.address}/v1/decide?token={token}", json=BODY, headers=headers)
        httpx.get(f"{api.address}/v1/review", headers={"Authorization": f"Bearer {token}x"})
        end = time.monotonic() + 10  # a request is written down after its answer
        while len(records := events(caplog)) < 2 and time.monotonic() < end:
            time.sleep(0.01)
    records.sort(key=lambda record: record.__dict__["fields"]["status"])
    assert [record.__dict__["fields"]["status"] for record in records] == [200, 401]
    assert records[0].__dict__["fields"]["user"] == "bob"
    assert all(token not in repr(record.__dict__) for record in records)


def test_the_cache_is_cleared_before_it_grows_too_large(api: Api) -> None:
    authenticator: Authenticator = api.app.state.authenticator
    authenticator.max_cached = 2
    for number in range(5):
        client = api.client_of(f"r{number}", "decide")
        assert client.post("/v1/decide", json={"logits": [SURE]}).status_code == 200
    assert len(authenticator.cache) <= 2


OURS = Sessions(b"x" * 32)
ANN = Token(12, "ann", frozenset({"review"}), 0.0, None, None)
TEXT = OURS.create(ANN)


def token_id(sessions: Sessions, text: str) -> int | None:
    found = sessions.read(text)
    return None if found is None else found.token_id


def test_a_session_names_its_token_and_no_other_secret_reads_it() -> None:
    assert token_id(OURS, TEXT) == 12
    assert token_id(Sessions(b"y" * 32), TEXT) is None
    other = OURS.create(ANN)
    assert other != TEXT
    first, second = OURS.read(TEXT), OURS.read(other)
    assert first is not None
    assert second is not None
    assert first.id != second.id


def test_a_session_ends_with_its_token_or_after_half_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    brief = OURS.create(replace(ANN, expires=now + 60))
    for later, has_brief, has_long in ((30, 12, 12), (61, None, 12), (12 * 3600 + 1, None, None)):
        monkeypatch.setattr(time, "time", lambda later=later: now + later)
        assert token_id(OURS, brief) == has_brief
        assert token_id(OURS, TEXT) == has_long


def test_a_changed_cookie_is_invalid() -> None:
    # Every place and letter: base64 reads "/" and "_" alike, and some last letters.
    for place, letter in product(range(len(TEXT)), map(chr, range(256))):
        forged = TEXT[:place] + letter + TEXT[place + 1 :]
        assert token_id(OURS, forged) == (12 if forged == TEXT else None)


@given(st.text(st.characters(max_codepoint=255)))
def test_random_text_is_not_a_session(text: str) -> None:
    assert token_id(OURS, text) is None


def test_a_csrf_token_does_not_sign_a_session() -> None:
    payload = TEXT.rpartition(".")[0]
    assert token_id(OURS, f"{payload}.{OURS.csrf_token(payload)}") is None
    assert OURS.csrf_token(TEXT) != OURS.csrf_token(OURS.create(ANN))

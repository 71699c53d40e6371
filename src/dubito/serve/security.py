"""Who may ask: tokens and their scopes, sessions of browsers, and headers that allow little."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256
from typing import Any, final
from urllib.parse import parse_qs

from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool

from dubito.serve.bodies import read_body
from dubito.serve.refusals import FORBIDDEN, UNKNOWN, WRONG, RefusedError
from dubito.serve.sessions import Sessions
from dubito.serve.store import Store
from dubito.serve.store.tokens import Token

SESSION = "dubito_session"
REMEMBERED_SECONDS = 1.0  # so long a revoked token may still be let in
MOST_REMEMBERED = 10_000
MOST_FORM_BYTES = 64 * 1024
SAFE = ("GET", "HEAD", "OPTIONS")


@final
class Authenticator:
    """Knows tokens by their hashes, and remembers the valid ones for a second."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.sessions = Sessions(store.session_secret())
        self.remembered: dict[str, tuple[float, Token]] = {}

    async def token(self, text: str) -> Token | None:
        """Return a token that is valid, or None."""
        key = sha256(text.encode("utf-8", "replace")).hexdigest()
        return await self.known(key, partial(self.store.find_token, text))

    async def session(self, text: str) -> Token | None:
        """Return the token that began a session, if both are valid, or None."""
        session = self.sessions.read(text)
        if session is None:
            return None
        find = partial(self.store.token_of_session, session.id, session.token_id)
        return await self.known(session.id, find)

    async def end(self, text: str) -> None:
        """End a session: here at once, in other processes within a second."""
        session = self.sessions.read(text)
        if session is not None:
            await run_in_threadpool(self.store.end_session, session.id, session.until)
            self.remembered.pop(session.id, None)

    async def known(self, key: str, find: Callable[[], Token | None]) -> Token | None:
        """Return a token that is valid, looked for at most once a second."""
        now = time.monotonic()
        since, token = self.remembered.get(key, (0.0, None))
        if token is None or now - since > REMEMBERED_SECONDS:
            token = await run_in_threadpool(find)
            if token is not None:
                if len(self.remembered) >= MOST_REMEMBERED:
                    self.remembered.clear()
                self.remembered[key] = (now, token)
        return token if token is not None and token.is_valid else None


def admitted(*scopes: str) -> Callable[[Request], Awaitable[Token]]:
    """Return what lets in a request whose token has one of some scopes.

    The token is in the header `Authorization: Bearer ...`, or in the cookie of a session, whose
    requests that change something must prove that they come from our own pages.
    """

    async def let_in(request: Request) -> Token:
        text, is_session = _token_text(request)
        if text is None:
            raise RefusedError(UNKNOWN, "A token is missing", "the header `Authorization: Bearer`")
        keeper = doorkeeper_of(request)
        token = await (keeper.session(text) if is_session else keeper.token(text))
        if token is None:
            problem = "The token is unknown, expired or revoked"
            raise RefusedError(UNKNOWN, problem, "`dubito token create`")
        if not token.scopes & set(scopes):
            problem = f"The token needs the scope {' or '.join(scopes)}"
            raise RefusedError(FORBIDDEN, problem, f"`dubito token create --scope {scopes[0]}`")
        if is_session and request.method not in SAFE:
            await require_csrf(request)
        request.state.reader = token.name
        return token

    return let_in


def doorkeeper_of(request: Request) -> Authenticator:
    """Return who lets a request in."""
    keeper: Authenticator = request.app.state.doorkeeper
    return keeper


def _token_text(request: Request) -> tuple[str | None, bool]:
    """Return the token that a request shows, or its session, and whether it is the latter."""
    kind, _, text = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and text.strip():
        return text.strip(), False
    return request.cookies.get(SESSION), True


def csrf_of(request: Request) -> str:
    """Return what forms of a session must send along; who has no session cannot know it."""
    return doorkeeper_of(request).sessions.csrf(request.cookies.get(SESSION, ""))


async def require_csrf(request: Request) -> None:
    """Raise unless a request of a session comes from our own page."""
    origin = request.headers.get("origin")
    is_elsewhere = origin is not None and origin.partition("://")[2] != request.headers.get("host")
    sent = request.headers.get("x-csrf-token") or (await form_of(request)).get("csrf", "")
    wanted = csrf_of(request)
    if is_elsewhere or not secrets.compare_digest(sent.encode(), wanted.encode()):
        problem = "The request does not come from a page of this service"
        raise RefusedError(FORBIDDEN, problem, "loading the page again")


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form of bounded size, the last of each name."""
    if not hasattr(request.state, "form"):
        body = await read_body(request, MOST_FORM_BYTES)
        try:
            fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, max_num_fields=100)
        except ValueError as error:
            raise RefusedError(WRONG, "The form cannot be read", "the page's own form") from error
        request.state.form = {name: values[-1] for name, values in fields.items()}
    form: dict[str, str] = request.state.form
    return form


def sign_in(request: Request, response: Response, token: Token) -> None:
    """Begin a session: the browser keeps it, no script can read it, and it holds no token."""
    text = doorkeeper_of(request).sessions.begin(token)
    is_secure = request.url.scheme == "https"
    response.set_cookie(SESSION, text, httponly=True, samesite="strict", secure=is_secure, path="/")


async def sign_out(request: Request, response: Response) -> None:
    """End a session: who kept a copy of it gets in no more."""
    await doorkeeper_of(request).end(request.cookies.get(SESSION, ""))
    response.delete_cookie(SESSION, path="/")


@final
class SecureHeaders:
    """Adds headers that allow pages nothing but their own parts; `request.state.nonce` is theirs.

    Styles and scripts in a page need `nonce="{{ request.state.nonce }}"`.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = OF_ANSWERS
        if not scope["path"].startswith("/v1/"):
            nonce = secrets.token_urlsafe(16)
            scope.setdefault("state", {})["nonce"] = nonce
            headers = _headers_of(_page_policy(nonce))

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        await self.app(scope, receive, send_with_headers)


def _page_policy(nonce: str) -> str:
    """Return what a page may load: its own parts, and pictures from anywhere."""
    return (
        f"default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'nonce-{nonce}'; "
        "img-src 'self' data: https: http:; font-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )


def _headers_of(policy: str) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer, whose content may do what the policy allows."""
    headers = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-store",
    }
    return [(name.encode(), value.encode()) for name, value in headers.items()]


OF_ANSWERS = _headers_of("default-src 'none'; frame-ancestors 'none'")

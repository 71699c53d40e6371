"""Authentication: tokens with scopes, signed browser sessions, CSRF, and security headers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, final
from urllib.parse import parse_qs

from fastapi import Depends, Request, Response
from itsdangerous import BadData, Signer, URLSafeTimedSerializer
from itsdangerous.encoding import base64_decode, base64_encode
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from dubito.serve.http_errors import FORBIDDEN, INVALID, UNAUTHORIZED, HTTPError
from dubito.serve.schemas import read_body
from dubito.serve.service import host_name
from dubito.serve.store import Store, Token

SESSION_COOKIE = "dubito_session"
SESSION_SECONDS = 12 * 3600
CACHE_SECONDS = 1.0  # so long a revoked token may still be accepted
MAX_CACHED = 10_000
MAX_FORM_BYTES, MAX_FORM_FIELDS = 256 * 1024, 11_000  # one per label of a row under review
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
HEALTH_CHECKS = ("/healthz", "/readyz")  # load balancers send any host
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


@final
@dataclass(frozen=True, slots=True)
class Session:
    """A session with a valid signature: its token, and when it expires."""

    id: str
    token_id: int
    until: float


@final
class Sessions:
    """Creates and reads signed session cookies, which contain the id of a token but not the token.

    Examples
    --------
    >>> sessions = Sessions(b"a secret of the service")
    >>> ann = Token(7, "ann", frozenset({"review"}), 0.0, None, None)
    >>> sessions.read(sessions.create(ann)).token_id, sessions.read("forged")
    (7, None)
    """

    def __init__(self, secret: bytes) -> None:
        options = {"key_derivation": "hmac", "digest_method": sha256}
        self.serializer = URLSafeTimedSerializer(secret, salt="session", signer_kwargs=options)
        self.csrf_signer = Signer(secret, salt="csrf", key_derivation="hmac", digest_method=sha256)

    def create(self, token: Token) -> str:
        """Return the cookie of a new session; it expires after 12 hours, or with its token."""
        until = time.time() + SESSION_SECONDS
        if token.expires is not None:
            until = min(until, token.expires)
        return self.serializer.dumps([secrets.token_hex(12), token.id, until])

    def read(self, cookie: str) -> Session | None:
        """Return the session of a cookie, or None if it is expired or not authentic."""
        signature = cookie.rpartition(".")[2]
        try:
            session = Session(*self.serializer.loads(cookie, max_age=SESSION_SECONDS))
            # Base64 has several spellings of the same bytes; `create` writes only one of them.
            is_canonical = base64_encode(base64_decode(signature)).decode() == signature
        except (BadData, UnicodeError):
            return None
        return session if is_canonical and session.until > time.time() else None

    def csrf_token(self, cookie: str) -> str:
        """Return the token that forms of a session must send."""
        return self.csrf_signer.get_signature(cookie.encode("utf-8", "replace")).decode()


@final
class Authenticator:
    """Validates tokens and sessions, and caches valid ones for a second."""

    def __init__(self, store: Store, max_cached: int = MAX_CACHED) -> None:
        self.store, self.max_cached = store, max_cached
        self.sessions = Sessions(store.session_secret())
        self.cache: dict[str, tuple[float, Token]] = {}

    async def check_token(self, text: str) -> Token | None:
        """Return a token if it is valid, or None."""
        key = sha256(text.encode("utf-8", "replace")).hexdigest()
        return await self._cached(key, partial(self.store.find_token, text))

    async def check_session(self, cookie: str) -> Token | None:
        """Return the token of a session if both are valid, or None."""
        session = self.sessions.read(cookie)
        if session is None:
            return None
        find = partial(self.store.session_token, session.id, session.token_id)
        return await self._cached(session.id, find)

    async def end_session(self, cookie: str) -> None:
        """End a session: in this process at once, in others within a second."""
        session = self.sessions.read(cookie)
        if session is not None:
            await run_in_threadpool(self.store.end_session, session.id, session.until)
            self.cache.pop(session.id, None)

    async def _cached(self, key: str, find: Callable[[], Token | None]) -> Token | None:
        """Return a token if it is valid, read from the store at most once a second."""
        now = time.monotonic()
        since, token = self.cache.get(key, (0.0, None))
        if token is None or now - since > CACHE_SECONDS:
            token = await run_in_threadpool(find)
            if token is not None:
                if len(self.cache) >= self.max_cached:
                    self.cache.clear()
                self.cache[key] = (now, token)
        return token if token is not None and token.is_valid else None


def get_authenticator(request: Request) -> Authenticator:
    """Return the authenticator of a request."""
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator


def _require_scope(*scopes: str) -> Callable[[Request], Awaitable[Token]]:
    """Return a dependency that requires a token with one of some scopes.

    The token comes in the header `Authorization: Bearer ...`, or by the session cookie. Requests
    with a cookie that change something need a CSRF token.

    Parameters
    ----------
    *scopes : {"decide", "review", "admin"}
        One of them is enough.

    Returns
    -------
    callable
        For `fastapi.Depends`; returns the token.
    """

    async def authenticate(request: Request) -> Token:
        kind, _, text = request.headers.get("authorization", "").partition(" ")
        bearer = text.strip() if kind.lower() == "bearer" else ""
        cookie = request.cookies.get(SESSION_COOKIE)
        authenticator = get_authenticator(request)
        if bearer:
            token = await authenticator.check_token(bearer)
        elif cookie is not None:
            token = await authenticator.check_session(cookie)
        else:
            fix = "Send the header `Authorization: Bearer TOKEN`"
            raise HTTPError(UNAUTHORIZED, "The request has no token", fix)
        if token is None:
            problem = "The token is unknown, expired or revoked"
            raise HTTPError(UNAUTHORIZED, problem, "Create one with `dubito token create`")
        if not token.scopes & set(scopes):
            problem = f"The token needs the scope {' or '.join(scopes)}"
            fix = f"Create one with `dubito token create --scope {scopes[0]}`"
            raise HTTPError(FORBIDDEN, problem, fix)
        if not bearer and request.method not in SAFE_METHODS:
            await require_csrf(request)
        request.state.user = token.name
        return token

    return authenticate


DecideToken = Annotated[Token, Depends(_require_scope("decide"))]
LookupToken = Annotated[Token, Depends(_require_scope("decide", "admin"))]
ReviewToken = Annotated[Token, Depends(_require_scope("review"))]
MonitorToken = Annotated[Token, Depends(_require_scope("review", "admin"))]
AdminToken = Annotated[Token, Depends(_require_scope("admin"))]


def csrf_token(request: Request) -> str:
    """Return the CSRF token of a session, which forms must send."""
    cookie = request.cookies.get(SESSION_COOKIE, "")
    return get_authenticator(request).sessions.csrf_token(cookie)


async def require_csrf(request: Request) -> None:
    """Raise unless a request comes from a page of this service."""
    origin = request.headers.get("origin")
    is_foreign = origin is not None and origin.partition("://")[2] != request.headers.get("host")
    sent = request.headers.get("x-csrf-token") or (await read_form(request)).get("csrf", "")
    expected = csrf_token(request)
    if is_foreign or not secrets.compare_digest(sent.encode(), expected.encode()):
        problem = "The request does not come from a page of this service"
        raise HTTPError(FORBIDDEN, problem, "Reload the page and try again")


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form of limited size; the last value of a name counts."""
    if not hasattr(request.state, "form"):
        body = await read_body(request, MAX_FORM_BYTES)
        try:
            fields = parse_qs(
                body.decode("utf-8"), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS
            )
        except ValueError as error:
            problem = "The form cannot be read"
            raise HTTPError(INVALID, problem, "Use the form of the page") from error
        request.state.form = {name: values[-1] for name, values in fields.items()}
    form: dict[str, str] = request.state.form
    return form


Form = Annotated[dict[str, str], Depends(read_form)]


def start_session(request: Request, response: Response, token: Token) -> None:
    """Set the cookie of a new session; scripts cannot read it, and it contains no token."""
    cookie = get_authenticator(request).sessions.create(token)
    response.set_cookie(
        SESSION_COOKIE,
        cookie,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path="/",
    )


async def end_session(request: Request, response: Response) -> None:
    """End the session of a request; copies of its cookie become invalid too."""
    await get_authenticator(request).end_session(request.cookies.get(SESSION_COOKIE, ""))
    response.delete_cookie(SESSION_COOKIE, path="/")


@final
class HostCheck:
    """Middleware that answers only requests to a known host, so that no other name leads here.

    A page whose name is made to point to this machine (DNS rebinding) sends that name. An address
    cannot be rebound: that of the connection is always known. Health checks may use any host.

    Parameters
    ----------
    app : callable
        The application.
    allowed_hosts : iterable of str
        Names besides localhost and the addresses of this machine.
    """

    def __init__(self, app: Any, allowed_hosts: Iterable[str] = ()) -> None:
        self.app = app
        self.allowed = {host_name(one) for one in (*LOCAL_HOSTS, *allowed_hosts)}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] in HEALTH_CHECKS:
            await self.app(scope, receive, send)
            return
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        name = host_name(hosts[0]) if len(hosts) == 1 else ""
        address = scope["server"][0].removeprefix("::ffff:") if scope.get("server") else ""
        if name and (name in self.allowed or name == address):
            await self.app(scope, receive, send)
            return
        got = ", ".join(hosts)[:100]
        detail = (
            f"This service does not answer to the host {got!r}. If that is its name, start it with "
            "`dubito serve --allowed-host NAME`."
        )
        await JSONResponse({"detail": detail}, 400)(scope, receive, send)


@final
class SecurityHeaders:
    """Middleware that adds security headers.

    Inline styles and scripts of a page need `nonce="{{ request.state.nonce }}"`.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = API_HEADERS
        if not scope["path"].startswith("/v1/"):
            nonce = secrets.token_urlsafe(16)
            scope.setdefault("state", {})["nonce"] = nonce
            headers = _security_headers(
                f"default-src 'none'; script-src 'self' 'nonce-{nonce}'; "
                f"style-src 'self' 'nonce-{nonce}'; img-src 'self' data: https: http:; "
                "font-src 'self' data:; connect-src 'self'; form-action 'self'; "
                "frame-ancestors 'none'; base-uri 'none'"
            )

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        await self.app(scope, receive, send_with_headers)


def _security_headers(content_policy: str) -> list[tuple[bytes, bytes]]:
    """Return the security headers of a response with a content security policy."""
    headers = {
        "content-security-policy": content_policy,
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-store",
    }
    return [(name.encode(), value.encode()) for name, value in headers.items()]


API_HEADERS = _security_headers("default-src 'none'; frame-ancestors 'none'")

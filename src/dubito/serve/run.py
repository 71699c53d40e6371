"""Run the service with uvicorn until SIGTERM or SIGINT, with limits on every connection."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from math import ceil, inf
from time import monotonic
from typing import Any, Literal, cast, final

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dubito.decide import ReviewTeam
from dubito.errors import BadValueError
from dubito.serve.app import create_app
from dubito.serve.service import Settings, configure_logging, log_event
from dubito.serve.store import Store

SHUTDOWN_SECONDS = 30
BACKLOG = 2048
MAX_CONNECTIONS = 1000
PIECE = 16 * 1024  # bytes that are parsed before the limits are checked again
FRAME_BYTES = 4096  # of chunked bodies
TICKS = 5  # tenths of a second between two checks of the time limits


def open_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Parameters
    ----------
    host : str
        An address of this machine.
    port : int
        0 takes any free port.

    Returns
    -------
    socket
        Connections wait until the server is up.
    """
    if not 0 <= port <= 65535:
        rule = "must be between 0 and 65535"
        raise BadValueError("--port", "dubito serve", rule, f"{port}", "Use --port 8000")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is named.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)  # early connections wait until the server is up
    except (OSError, OverflowError) as error:
        listener.close()
        rule, got = "must be a free address and port", f"{host}:{port} ({error})"
        raise BadValueError("--host", "dubito serve", rule, got, "Use another --port") from error
    return listener


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _max_connections() -> int:
    """Return how many connections may be open: half of the file descriptors, at most 1,000."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    import resource

    n_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_bounded = n_files != resource.RLIM_INFINITY
    return min(MAX_CONNECTIONS, n_files // 2) if is_bounded else MAX_CONNECTIONS


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """What a connection may cost before its request is authenticated.

    Parameters
    ----------
    connections : int
        Open connections; by default half of the file descriptors of the process, at most 1,000.
    head_bytes, headers : int
        Size and number of the headers of a request, its path included.
    pipelined : int
        Requests that are sent ahead of the responses.
    head_seconds : float
        Until the headers are complete.
    transfer_seconds, bytes_per_second : float
        Until a body is received or a response is read: so long, and longer by its size.
    idle_seconds : float
        Between two requests.
    linger_seconds, linger_bytes : float, int
        How long a refused request is still read, so that its sender can read why.
    """

    connections: int = field(default_factory=_max_connections)
    head_bytes: int = 64 * 1024
    headers: int = 100
    pipelined: int = 16
    head_seconds: float = 10.0
    transfer_seconds: float = 20.0
    bytes_per_second: float = 64 * 1024
    idle_seconds: float = 60.0
    linger_seconds: float = 1.0
    linger_bytes: int = 1024 * 1024


class _RefusedError(Exception):
    """Stops the parser in the middle of a request."""


@final
class LimitedProtocol(HttpToolsProtocol):
    """HTTP/1.1 with limits on the size and the time of a request, and on open connections.

    A connection beyond the limit closes the one that has waited longest for its client, first among
    those without an authenticated request: so clients without a token close only each other's
    connections.
    """

    def __init__(self, *args: Any, limits: Limits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limits = limits
        self.reading: Literal["head", "body"] | None = "head"  # None between two requests
        self.since = monotonic()  # start of the current state
        self.spare = limits.head_bytes  # how many more bytes may come that are not of a body
        self.n_piece = 0  # bytes that are being parsed
        self.n_body = 0  # bytes of the body; after a refusal, of what is discarded
        self.is_refused = False
        self.unsent_until = inf

    @property
    def has_request(self) -> bool:
        """Whether a complete request waits for the end of its response."""
        cycle = self.cycle
        return bool(self.pipeline) or (
            cycle is not None and not cycle.response_complete and not cycle.more_body
        )

    @property
    def is_busy(self) -> bool:
        """Whether the client waits for the service, and not the service for the client."""
        return self.has_request and not self.flow.write_paused

    @property
    def is_known(self) -> bool:
        """Whether the last request was authenticated."""
        return self.cycle is not None and "user" in self.cycle.scope["state"]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            others = cast("set[LimitedProtocol]", self.connections) - {self}
            waiting = [one for one in others if not one.is_busy]
            if waiting:
                min(waiting, key=lambda one: (one.is_known, one.since)).drop()
            else:
                self.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "All connections are in use. Try again")

    def data_received(self, data: bytes) -> None:
        if self.is_refused:
            self.n_body += len(data)
            if self.n_body > self.limits.linger_bytes:
                self.drop()
            return
        if self.reading is None:
            self._enter("head")
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            self.n_piece = len(piece)
            self.spare -= self.n_piece
            super().data_received(piece)
            if self.is_refused or self.transport.is_closing():
                return
            n_headers = len(self.headers or ())
            if self.reading and (self.spare < 0 or n_headers > self.limits.headers):
                self._refuse_head()
                return

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.spare, self.n_body = self.limits.head_bytes - self.n_piece, 0

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > self.limits.head_bytes or len(self.headers) > self.limits.headers:
            self._refuse_head()
        elif len(self.pipeline) >= self.limits.pipelined:
            self.drop()
        else:
            super().on_headers_complete()
            self._enter("body")
            self.spare = FRAME_BYTES
            return
        raise _RefusedError

    def on_body(self, body: bytes) -> None:
        self.n_body += len(body)
        # A chunk may come in a frame of its own size; frames and trailers without chunks are few.
        self.spare = min(self.spare + 2 * len(body), FRAME_BYTES)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._enter(None)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.reading is None:
            self._enter(None)

    def _enter(self, reading: Literal["head", "body"] | None) -> None:
        """Note what is read from now on."""
        self.reading, self.since = reading, monotonic()

    def send_400_response(self, msg: str) -> None:
        self.refuse(HTTPStatus.BAD_REQUEST, "This is not a valid HTTP/1.1 request")

    def _refuse_head(self) -> None:
        """Refuse a request with too long or too many headers."""
        limit = f"{self.limits.head_bytes:,} bytes and {self.limits.headers} headers"
        detail = f"The path and headers exceed {limit}. Send shorter or fewer ones"
        self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, detail)

    def refuse(self, status: HTTPStatus, detail: str) -> None:
        """Answer with an error and close; only close where an earlier response is not complete."""
        if self.is_refused or self.transport.is_closing():
            return
        log_event("connection refused", status=status.value, reason=detail)
        is_reading_body = self.reading == "body"
        if self.has_request or (is_reading_body and self.cycle.response_started):
            self.drop()
            return
        if is_reading_body:  # the application gets no more of it
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        content = json.dumps({"detail": f"{detail}."})
        self.transport.write(
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n{content}".encode()
        )
        self.transport.write_eof()  # not close: that would discard an answer not yet read
        self.is_refused, self.n_body, self.since = True, 0, monotonic()

    def drop(self) -> None:
        """Close the connection at once."""
        self.connections.discard(self)
        self.transport.abort()

    def check_time(self, now: float) -> None:
        """Close the connection if its client is too slow."""
        unsent = self.transport.get_write_buffer_size()
        if not unsent:
            self.unsent_until = inf
        elif self.unsent_until == inf:
            self.unsent_until = now + self._transfer_seconds(unsent)
        if now > self.unsent_until:
            self.drop()
        elif not unsent and not self.is_busy and now - self.since > self._waiting_seconds():
            if self.is_refused or self.reading is None or self.scope is None:
                self.drop()
            else:
                part = "headers" if self.reading == "head" else "body"
                detail = f"The {part} of the request did not arrive in time. Send it again"
                self.refuse(HTTPStatus.REQUEST_TIMEOUT, detail)

    def _waiting_seconds(self) -> float:
        """Return how long the service may wait for the next bytes of the client."""
        if self.is_refused:
            return self.limits.linger_seconds
        if self.reading == "body":
            return self._transfer_seconds(self.n_body)
        return self.limits.idle_seconds if self.reading is None else self.limits.head_seconds

    def _transfer_seconds(self, n_bytes: int) -> float:
        """Return how long the transfer of some bytes may take."""
        return self.limits.transfer_seconds + n_bytes / self.limits.bytes_per_second

    def shutdown(self) -> None:
        is_unauthenticated = self.reading == "body" and not self.has_request and not self.is_known
        if is_unauthenticated or self.is_refused:  # nobody waits for them
            self.drop()
        else:
            super().shutdown()


@final
class Server(uvicorn.Server):
    """A server that checks the time limits of its connections twice a second."""

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            now = monotonic()
            for connection in list(self.server_state.connections):
                cast("LimitedProtocol", connection).check_time(now)
        return await super().on_tick(counter)


def _make_server(app: FastAPI, limits: Limits | None = None) -> Server:
    """Return a server of an application, to be run with `run(sockets=[...])`.

    Parameters
    ----------
    app : FastAPI
        From `create_app`.
    limits : Limits or None
        Limits of its connections.
    """
    limits = limits or Limits()
    protocol = partial(LimitedProtocol, limits=limits)
    config = uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", protocol),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=ceil(limits.idle_seconds),
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    return Server(config)


def run(
    store: Store,
    settings: Settings,
    listener: socket.socket,
    reviewers: ReviewTeam | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; accepted requests are finished, then the store is closed.

    Parameters
    ----------
    store : Store
        The database.
    settings : Settings
        Limits and review settings.
    listener : socket
        From `open_socket`.
    reviewers : ReviewTeam or None
        The team that reviews rows.
    """
    configure_logging()
    app = create_app(store, settings, reviewers)
    app.openapi()  # now, and not while all requests wait for it
    server = _make_server(app)
    log_event("started", address=listener.getsockname()[:2], database=store.dialect)
    server.run(sockets=[listener])

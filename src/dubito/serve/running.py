"""Running the service until it is told to stop; what was accepted is finished first."""

from __future__ import annotations

import socket
from ipaddress import ip_address

import uvicorn

from dubito.decide import Policy
from dubito.errors import BadValueError
from dubito.serve.app import create_app
from dubito.serve.logs import log_event, set_up_logs
from dubito.serve.settings import Settings
from dubito.serve.store import Store
from dubito.serve.store.documents import text_of_policy

GRACE_SECONDS = 30
BACKLOG = 2048


def put_in_force(store: Store, policy: Policy) -> int:
    """Keep a policy, and put it in force if the store has not seen it before; return its id.

    A service that is started again with an older file goes on with what was put in force since.
    """
    known = {one.id for one in store.policies().all}
    policy_id = store.add_policy(text_of_policy(policy))
    if policy_id not in known:
        store.activate(policy_id)
    return policy_id


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol by name: only then asyncio sends each part of an answer at once (TCP_NODELAY).
    taken = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((host, port))
        taken.listen(BACKLOG)  # who comes before the server is up waits for it
    except (OSError, OverflowError) as error:
        taken.close()
        rule, got = "an address and a port that are free", f"{host}:{port} ({error})"
        fix = "another --port"
        raise BadValueError("--host", "dubito serve", rule, got, fix) from error
    return taken


def is_loopback(host: str) -> bool:
    """Tell addresses that only this machine can reach.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def run(store: Store, settings: Settings, taken: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT; then finish what was accepted, and close the store."""
    set_up_logs()
    config = uvicorn.Config(
        create_app(store, settings),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    log_event("started", address=taken.getsockname()[:2], database=store.engine.dialect.name)
    uvicorn.Server(config).run(sockets=[taken])

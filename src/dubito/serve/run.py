"""Run the service with uvicorn until SIGTERM or SIGINT."""

from __future__ import annotations

import socket
from ipaddress import ip_address

import uvicorn

from dubito.errors import BadValueError
from dubito.serve.app import create_app
from dubito.serve.service import Settings, configure_logging, log_event
from dubito.serve.store import Store

SHUTDOWN_SECONDS = 30
BACKLOG = 2048


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


def run(store: Store, settings: Settings, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT; accepted requests are finished, then the store is closed.

    Parameters
    ----------
    store : Store
        The database.
    settings : Settings
        Limits and review settings.
    listener : socket
        From `open_socket`.
    """
    configure_logging()
    config = uvicorn.Config(
        create_app(store, settings),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    log_event("started", address=listener.getsockname()[:2], database=store.engine.dialect.name)
    uvicorn.Server(config).run(sockets=[listener])

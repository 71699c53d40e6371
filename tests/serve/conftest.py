"""Stores on both databases, and the service on a socket."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import Mock

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from sqlalchemy import text

from dubito.decide import Policy, ReviewTeam
from dubito.decide.policy.loading import AnyPolicy
from dubito.serve import app as serve_app
from dubito.serve.app import create_app
from dubito.serve.decide import DecisionRequest, decide_batch
from dubito.serve.policies import deploy_policy
from dubito.serve.rows import RequestRows
from dubito.serve.run import Limits, _make_server, open_socket
from dubito.serve.service import Settings
from dubito.serve.store import NewDecisions, Store
from dubito.serve.store.decisions import IdempotencyKey
from dubito.serve.store.policies import insert_policy
from dubito.serve.store.store import _open_engine
from studies.common.postgres import cluster, new_database
from studies.common.serving import fitted_policy

SURE, TORN = [9.0, 0.0, 0.0], [0.1, 0.0, 0.0]  # decided, and rejected


@pytest.fixture(scope="session")
def policy() -> Policy:
    """A policy over classes a, b and c that rejects uncertain rows."""
    return fitted_policy()


@pytest.fixture(scope="session")
def policy_file(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same policy as a file."""
    path = tmp_path_factory.mktemp("policy") / "policy.json"
    policy.save(path)
    return path


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A database on a temporary PostgreSQL server."""
    with cluster() as server:
        yield new_database(server, "dubito")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/dubito.db"
    address: str = request.getfixturevalue("empty_postgres")
    return address


@pytest.fixture
def empty_postgres(postgres: str) -> str:
    """The same database, without its tables."""
    engine = _open_engine(postgres)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    return postgres


@contextmanager
def opened(url: str, policy: AnyPolicy) -> Iterator[Store]:
    """Open a store with a policy active, and close it in the end."""
    store = Store.open(url)
    deploy_policy(store, policy)
    yield store
    store.close()


@pytest.fixture
def store(url: str, policy: Policy) -> Iterator[Store]:
    """A store of either kind, with a policy active."""
    with opened(url, policy) as store:
        yield store


@pytest.fixture
def small_store(tmp_path: Path, policy: Policy) -> Iterator[Store]:
    """A store on SQLite, with a policy active."""
    with opened(f"sqlite:///{tmp_path}/dubito.db", policy) as store:
        yield store


def add_newer_policy(store: Store) -> int:
    """Store a policy of a format that this version cannot read, as a newer process would."""
    values = {"document": '{"format": 99}', "digest": "newer", "trained_until": None}
    number = store.write(partial(insert_policy, values=values, oldest=1))
    assert number is not None
    return number


@pytest.fixture
def new(policy: Policy) -> Callable[..., NewDecisions]:
    """Make decisions of some rows of logits: `new({"a": TORN, "b": SURE})`."""

    def decide(
        rows: dict[str, list[float]],
        *,
        key: str = "",
        audit_fraction: float = 0.0,
        **more: Any,
    ) -> NewDecisions:
        settings = Settings(audit_fraction=audit_fraction)
        body = {"logits": list(rows.values()), "ids": list(rows), **more}
        request = DecisionRequest(
            rows=RequestRows.of(body, policy, settings),
            policy_id=1,
            policy=policy,
            key=IdempotencyKey(key, 1, repr(body).encode()[:16]) if key else None,
        )
        [made] = decide_batch([request], settings, np.random.default_rng(0))
        return made

    return decide


@dataclass
class Api:
    """A running service, and clients with tokens of all scopes."""

    store: Store
    app: FastAPI
    address: str
    client: httpx.Client
    clients: list[httpx.Client]

    def client_of(self, name: str, *scopes: str) -> httpx.Client:
        """Return a client with a token of its own."""
        token = self.store.create_token(name, scopes)
        headers = {"Authorization": f"Bearer {token}"}
        self.clients.append(httpx.Client(base_url=self.address, headers=headers, timeout=60))
        return self.clients[-1]

    def counts(self) -> tuple[int, int]:
        """Return the number of decisions and labels."""
        rows = self.store.decisions_since()
        return len(rows), int((rows.label >= 0).sum())


@contextmanager
def services() -> Iterator[Callable[..., Api]]:
    """Yield a function that starts services, which are stopped in the end."""
    ends: list[Callable[[], None]] = []
    stores: list[Store] = []

    def started(
        store: Store,
        settings: Settings | None = None,
        limits: Limits | None = None,
        team: ReviewTeam | None = None,
    ) -> Api:
        app = create_app(store, Settings() if settings is None else settings, team)
        listener = open_socket("127.0.0.1", 0)
        server = _make_server(app, limits)
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()

        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        clients = [httpx.Client(base_url=address)]

        def end() -> None:
            for client in clients:
                client.close()
            server.should_exit = True
            thread.join()
            listener.close()

        ends.append(end)
        stores.append(store)
        api = Api(store, app, address, clients[0], clients)
        name = "ann" if len(ends) == 1 else f"ann {len(ends)}"
        api.client = api.client_of(name, "decide", "review", "admin")
        return api

    with pytest.MonkeyPatch.context() as patch:
        # The objects of all tests are not those of a service: to collect them takes half a second.
        patch.setattr(serve_app, "gc", Mock())
        yield started
        for end in ends:
            end()
        for store in stores:
            store.engine.dispose()  # what a service opened after its store was closed


@pytest.fixture
def running() -> Iterator[Callable[..., Api]]:
    """Start services: `running(store, Settings(...), Limits(...))`."""
    with services() as started:
        yield started


@pytest.fixture
def api(small_store: Store, running: Callable[..., Api]) -> Api:
    """A service on SQLite."""
    return running(small_store)


@pytest.fixture(scope="module")
def shared_api(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service for all tests of a module that leave nothing behind which others would notice."""
    url = f"sqlite:///{tmp_path_factory.mktemp('shared')}/dubito.db"
    with opened(url, policy) as store, services() as started:
        yield started(store)

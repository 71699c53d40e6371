"""A service with a policy and a few rows, and signed-in clients."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode

import numpy as np
import pytest

from dubito import Logits
from dubito.decide import Policy
from dubito.serve.app import create_app
from dubito.serve.policies import deploy_policy
from dubito.serve.service import Settings
from dubito.serve.store import NewDecisions, Store
from tests.serve.stored import fitted_policy

LOGITS = np.array(
    [[9, 0, 0], [1, 0.5, 0], [0.2, 0, 0.1], [0, 9, 0], [0, 0.4, 0.8]], dtype=np.float32
)
NAMES = ["a", "b", "c", "d<b>", "e"]  # b, c and e are rejected; c has the highest review value


@pytest.fixture(scope="session")
def policy() -> Policy:
    return fitted_policy()


@pytest.fixture
def store(policy: Policy, tmp_path: Path) -> Iterator[Store]:
    store = Store.open(f"sqlite:///{tmp_path}/dubito.db")
    policy_id = deploy_policy(store, policy)
    outputs = Logits(LOGITS)
    links = ["https://example.org/a?x=1&y=2", "javascript:alert(1)", None, "folder/d.png", None]
    store.add_decisions(
        NewDecisions.of(
            policy_id,
            NAMES,
            policy.decide(outputs),
            LOGITS,
            digests=[bytes([k]) * 16 for k in range(5)],
            is_audit=np.array([False, False, False, True, False]),
            audit_probability=0.5,
            links=links,
        )
    )
    yield store
    store.close()


@dataclass(frozen=True)
class Answer:
    """What the service answered."""

    status: int
    headers: dict[str, str]
    text: str


class Person:
    """A user of the pages, without a browser."""

    def __init__(
        self, store: Store, name: str, scopes: list[str], scheme: str = "http", **settings: Any
    ) -> None:
        self.scheme = scheme
        self.app = create_app(store, Settings(**settings))
        self.token = store.create_token(name, scopes)
        self.cookie = ""

    def ask(self, method: str, address: str, form: Any = None, origin: str = "") -> Answer:
        """Send a request, and keep the cookie of the response."""
        path, _, query = address.partition("?")
        body = urlencode(form or {}).encode()
        headers = {"host": "dubito", "cookie": self.cookie, "origin": origin}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": self.scheme,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(k.encode(), v.encode()) for k, v in headers.items() if v],
            "server": ("dubito", 80),
            "client": ("127.0.0.1", 1),
            "state": {},
        }
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        found = {k.decode().lower(): v.decode() for k, v in sent[0]["headers"]}
        if "set-cookie" in found:
            self.cookie = found["set-cookie"].partition(";")[0]
        content = b"".join(message.get("body", b"") for message in sent[1:])
        return Answer(sent[0]["status"], found, content.decode())

    def get(self, address: str) -> str:
        """Return a page that must exist."""
        answer = self.ask("GET", address)
        assert answer.status == 200
        return answer.text

    def csrf(self) -> str:
        """Return the CSRF token of the forms."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.get("/sign-in"))
        assert found is not None
        return found[1]

    def post(self, address: str, **fields: str) -> Answer:
        """Send a form of the page."""
        return self.ask("POST", address, {"csrf": self.csrf(), **fields}, f"{self.scheme}://dubito")

    def sign_in(self) -> "Person":
        """Begin a session."""
        assert self.post("/sign-in", token=self.token).status == 303
        return self


@pytest.fixture
def anna(store: Store) -> Person:
    return Person(store, "anna", ["review", "admin"]).sign_in()

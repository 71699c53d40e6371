"""`Store`: the one door to what is kept."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Self, TypeVar, final

from sqlalchemy import Connection, Engine, text

from dubito.arrays import FloatArray
from dubito.serve.store import (
    deciding,
    labeling,
    policies,
    reading,
    reviewing,
    tokens,
)
from dubito.serve.store.committer import Committer
from dubito.serve.store.labeling import Correction, NewLabels
from dubito.serve.store.opening import hold_alone, open_engine, prepare, writing
from dubito.serve.store.records import History, NewDecisions, Policies, ReviewItem, StoredRows
from dubito.serve.store.tokens import Token

LEASE_SECONDS = 600.0
Result = TypeVar("Result")


@final
class Store:
    """Decisions, labels, reviews, policies and tokens in one database.

    Made by `Store.open`. What writes returns when it is on the disk; `submit` returns the answer
    to come instead.

    >>> import tempfile
    >>> store = Store.open(f"sqlite:///{tempfile.mkdtemp()}/dubito.db")
    >>> store.add_labels(["a"], [1]).n_new, store.add_labels(["a"], [1]).n_new
    (1, 0)
    >>> store.close()
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.committer = Committer(writing(engine))
        self.held: sqlite3.Connection | None = None

    @classmethod
    def open(cls, url: str) -> Self:
        """Open a database by its address, and bring its schema up to date."""
        engine = open_engine(url)
        try:
            prepare(engine)
        except Exception:
            engine.dispose()
            raise
        return cls(engine)

    def close(self) -> None:
        """Write what was accepted, and let the database go."""
        self.committer.close()
        self.engine.dispose()
        if self.held is not None:
            self.held.close()

    def hold(self) -> None:
        """Raise where another process serves the same SQLite file; none may until this closes."""
        self.held = hold_alone(self.engine)

    def submit(self, work: NewDecisions | Callable[[Connection], Any]) -> Future[Any]:
        """Hand something over to be written; the answer comes after its commit."""
        return self.committer.submit(work)

    def write(self, work: Callable[[Connection], Result]) -> Result:
        """Write something, and return when it is on the disk."""
        result: Result = self.submit(work).result()
        return result

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """Read something that was written."""
        with self.engine.connect() as connection:
            return work(connection)

    def require_ready(self) -> None:
        """Raise unless the database answers."""
        self.read(lambda connection: connection.execute(text("SELECT 1")).scalar_one())

    def add_decisions(self, new: NewDecisions) -> dict[str, dict[str, Any]]:
        """Keep decisions; return, by id, those that were there before."""
        found: dict[str, dict[str, Any]] = self.submit(new).result()
        return found

    def decision(self, decision_id: str) -> dict[str, Any] | None:
        """Return one decision, or None."""
        found = self.read(partial(deciding.stored_rows, ids=[decision_id]))
        return found.get(decision_id)

    def label(self, decision_id: str) -> int | None:
        """Return the label of a decision, or None."""
        return self.read(partial(labeling.labels_of, ids=[decision_id])).get(decision_id)

    def add_labels(
        self, ids: Sequence[str], codes: Sequence[int], corrected_by: str | None = None
    ) -> NewLabels:
        """Keep labels; those that are there already must be the same, unless one corrects them."""
        return self.write(lambda c: labeling.add_labels(c, ids, codes, None, corrected_by))

    def corrections(self, decision_id: str) -> list[Correction]:
        """Return the labels that a decision had before its last one, oldest first."""
        return self.read(partial(labeling.corrections_of, decision_id=decision_id))

    def next_review(
        self,
        reader: str,
        now: float | None = None,
        lease_seconds: float = LEASE_SECONDS,
        item_id: str | None = None,
    ) -> ReviewItem | None:
        """Claim for a reader the row where a look is worth most, or a given one."""
        at = time.time() if now is None else now
        return self.write(lambda c: reviewing.claim_next(c, reader, at, lease_seconds, item_id))

    def next_ids(self, reader: str, most: int = 50) -> list[str]:
        """Return the rows that a reader may claim, those first where a look is worth most."""
        return self.read(lambda c: reviewing.next_ids(c, reader, time.time(), most))

    def settle(self, item_id: str, reader: str, label: int) -> None:
        """Keep what a reader says a row is."""
        self.write(lambda c: reviewing.settle(c, item_id, reader, label))

    def unsure(self, item_id: str, reader: str) -> None:
        """Ask a second reader."""
        self.write(lambda c: reviewing.pass_on(c, item_id, reader, "unsure"))

    def skip(self, item_id: str, reader: str) -> None:
        """Leave a row to others."""
        self.write(lambda c: reviewing.pass_on(c, item_id, reader, "skip"))

    def undo(self, item_id: str, reader: str, lease_seconds: float = LEASE_SECONDS) -> ReviewItem:
        """Take back what a reader did last with a row, and hold it for them again."""
        return self.write(lambda c: reviewing.undo(c, item_id, reader, lease_seconds))

    def queue_length(self) -> int:
        """Return how many rows wait for a reader, held or not."""
        return self.read(reviewing.queue_length)

    def rows_for_monitor(self, since: float = 0.0) -> StoredRows:
        """Return all decisions made at or after a time, with what is known of their truth."""
        return self.read(lambda c: reading.rows_since(c, since))

    def history_of(self, policy_id: int) -> History:
        """Return what alarms look at, of all rows that a policy decided."""
        return self.read(lambda c: reading.history_of(c, policy_id))

    def features_of(self, ids: Sequence[str]) -> FloatArray | None:
        """Return the features of some decisions, None where one of them came without or fewer."""
        return self.read(partial(reading.features_of, ids=ids))

    def forget(self, before: float) -> int:
        """Delete all decisions made before a time, and all about them; return how many."""
        return self.write(lambda c: reading.forget(c, before))

    def add_policy(self, document: str, learned_until: float | None = None) -> int:
        """Keep a policy, given as the text of its file; return its id."""
        return self.write(lambda c: policies.add_policy(c, document, learned_until))

    def policies(self) -> Policies:
        """Return all policies, oldest first."""
        return self.read(policies.all_policies)

    def active_id(self) -> int | None:
        """Return the id of the policy in force, or None."""
        return self.read(policies.active_id)

    def activate(self, policy_id: int) -> None:
        """Put a policy in force."""
        self.write(lambda c: policies.activate(c, policy_id))

    def roll_back(self) -> int:
        """Put in force the policy before; return its id."""
        return self.write(policies.roll_back)

    def create_token(self, name: str, scopes: Iterable[str], lifetime: float | None = None) -> str:
        """Return a new token, valid for so many seconds or for good; only its hash is kept.

        No other valid token may have its name, as readers are told apart by it.
        """
        return self.write(lambda c: tokens.create_token(c, name, scopes, lifetime))

    def session_secret(self) -> bytes:
        """Return what sessions are signed with: the same in all processes."""
        return self.write(tokens.session_secret)

    def token_of_session(self, session_id: str, token_id: int) -> Token | None:
        """Return what is known of the token that began a session, None where someone ended it."""
        return self.read(lambda c: tokens.token_of_session(c, session_id, token_id))

    def end_session(self, session_id: str, until: float) -> None:
        """End a session that would have lasted until a time."""
        self.write(lambda c: tokens.end_session(c, session_id, until))

    def find_token(self, token: str) -> Token | None:
        """Return what is known of a token, valid or not, or None."""
        return self.read(lambda c: tokens.find_token(c, token))

    def tokens(self) -> list[Token]:
        """Return all tokens, oldest first."""
        return self.read(tokens.all_tokens)

    def revoke_token(self, token_id: int) -> None:
        """Make a token invalid for good."""
        self.write(lambda c: tokens.revoke_token(c, token_id))

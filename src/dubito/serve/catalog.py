"""The policies that a process knows, and which of them is in force."""

from __future__ import annotations

from typing import final

from dubito.decide import Policy
from dubito.serve.refusals import CONFLICT, RefusedError
from dubito.serve.store import Store


@final
class Catalog:
    """Loads policies from the store once, and follows what other processes put in force."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.known: dict[int, Policy] = {}
        self.active_id: int | None = None
        self.refresh()

    def refresh(self) -> None:
        """Look which policy is in force by now."""
        active = self.store.active_id()
        if active is not None:
            self.policy(active)
        self.active_id = active

    def policy(self, policy_id: int) -> Policy:
        """Return a policy by its id."""
        if policy_id not in self.known:
            self.known.update({one.id: one.policy for one in self.store.policies().all})
        return self.known[policy_id]

    @property
    def active(self) -> tuple[int, Policy]:
        """The policy in force, and its id."""
        if self.active_id is None:
            problem = "No policy is in force yet"
            raise RefusedError(CONFLICT, problem, "POST /v1/policies and activating it")
        return self.active_id, self.known[self.active_id]

"""What a reader did last, which they may take back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from sqlalchemy import Connection, select

from dubito.serve.store.tables import review_events


@final
@dataclass(frozen=True, slots=True)
class LastAnswer:
    """A row, and what was done with it: settled as a class, handed on or skipped."""

    item_id: str
    kind: str
    label: int | None

    def words(self, classes: Sequence[Any]) -> str:
        """Say what was done.

        >>> LastAnswer("a", "settle", 1).words(["cat", "dog"])
        'Row a is settled: dog.'
        """
        if self.kind == "settle" and self.label is not None:
            return f"Row {self.item_id} is settled: {classes[self.label]}."
        if self.kind == "unsure":
            return f"Row {self.item_id} goes to a second reader."
        return f"Row {self.item_id} is left to others."


def last_answer(connection: Connection, reader: str) -> LastAnswer | None:
    """Return what a reader did last and did not take back, or None."""
    wanted = (
        select(review_events.c.decision_id, review_events.c.kind, review_events.c.label)
        .where(review_events.c.reader == reader, ~review_events.c.is_undone)
        .order_by(review_events.c.id.desc())
        .limit(1)
    )
    found = connection.execute(wanted).first()
    return None if found is None else LastAnswer(*found)

"""A metric is a small immutable state that can be added."""

from __future__ import annotations

from typing import Any, Protocol, Self

from dubito.data.batch import Batch

__all__ = ["State"]


class State(Protocol):
    """Sums that determine a metric. Adding two states pools their rows, exactly up to rounding.

    The state of no rows is neutral; any split of the rows gives the state of the whole; a state
    goes through JSON and comes back the same.
    """

    @classmethod
    def of(cls, batch: Batch) -> Self:
        """Return the state of a batch."""
        ...

    def __add__(self, other: Self) -> Self: ...

    @property
    def value(self) -> Any:
        """The metric; raises `EmptyStateError` for no rows."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists, ready for JSON."""
        ...

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the state that `to_dict` wrote."""
        ...

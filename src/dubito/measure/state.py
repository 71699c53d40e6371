"""A metric is a small immutable state that can be added."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from dubito.data.batch import Batch
from dubito.errors import BadValueError, StateMismatchError

__all__ = ["State", "from_plain", "pooled", "to_plain"]


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


Kind = TypeVar("Kind")


def pooled(left: Kind, right: Any, *, shared: str = "") -> Kind:
    """Add two states field by field; the `shared` one, such as bin edges, must be the same."""
    if type(left) is not type(right):
        raise StateMismatchError("kinds", type(left).__name__, type(right).__name__)
    sums: dict[str, Any] = {}
    for field in fields(left):  # type: ignore[arg-type]
        a, b = getattr(left, field.name), getattr(right, field.name)
        is_shared = field.name == shared
        is_same_shape = (a is None) == (b is None) and np.shape(a) == np.shape(b)
        if not is_same_shape or (is_shared and not np.array_equal(a, b)):
            raise StateMismatchError(field.name.replace("_", " "), shown(a), shown(b))
        sums[field.name] = a if is_shared or a is None else a + b
    return type(left)(**sums)


def shown(value: Any) -> Any:
    """Return a value as an error shows it: an array by its shape, if it is large."""
    return value.tolist() if np.size(value) <= 20 and hasattr(value, "tolist") else np.shape(value)


def to_plain(state: Any) -> dict[str, Any]:
    """Return the fields of a state as numbers and lists."""
    values = {field.name: getattr(state, field.name) for field in fields(state)}
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in values.items()}


def from_plain(kind: type[Kind], values: dict[str, Any]) -> Kind:
    """Make a state of numbers and lists."""
    arrays = {
        k: np.array(v, dtype=np.float64) if isinstance(v, list) else v for k, v in values.items()
    }
    try:
        return kind(**arrays)
    except TypeError as error:
        rule, fix = f"the fields of {kind.__name__}", "what `to_dict` of the same version wrote"
        got = ", ".join(map(str, values)) or "none"
        raise BadValueError("values", "from_dict", rule, got, fix) from error

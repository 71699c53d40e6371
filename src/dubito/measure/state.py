"""Metrics as small immutable states that can be added, also per group."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from operator import add
from typing import (
    Any,
    ClassVar,
    Generic,
    Self,
    TypeVar,
    final,
)

import numpy as np

from dubito.arrays import FloatArray, IntArray
from dubito.data.batch import Batch, make_batch, require_labels
from dubito.data.labels import is_absent
from dubito.errors import EmptyStateError, MissingLabelsWarning, StateMismatchError
from dubito.serialization.array_fields import array, require_each
from dubito.serialization.fields import (
    MAX_FLOAT,
    Check,
    Entry,
    integer,
    number,
    optional,
    schema_of,
    states,
)
from dubito.serialization.objects import Record

_sum = number(-MAX_FLOAT, MAX_FLOAT)
WEIGHT = number(0, MAX_FLOAT)


@dataclass(frozen=True, slots=True, eq=False)
class State(Record):
    """Sums that determine a metric; adding two states pools their rows, exactly up to rounding.

    The state of no rows is neutral, any split of the rows adds up to the state of the whole, and a
    state survives JSON unchanged. A subclass declares its sums as fields, with the checks that
    reading them needs (see `stores_fields`), and implements `of` and `value`. The
    `shared` fields, such as bin edges, must be equal in states that are added.
    """

    has_header: ClassVar[bool] = False
    type_checks: ClassVar[Mapping[Any, Check]] = {
        int: integer(),
        float: _sum,
        float | None: optional(_sum),
    }
    shared: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, batch: Batch) -> Self:
        """Return the state of a batch.

        Parameters
        ----------
        batch : Batch
            Some rows.

        Returns
        -------
        State
            The sums of these rows.
        """
        raise NotImplementedError

    @property
    def value(self) -> Any:
        """The metric; raises `EmptyStateError` for no rows."""
        raise NotImplementedError

    def __add__(self, other: Self) -> Self:
        if type(self) is not type(other):
            raise StateMismatchError("kinds", type(self).__name__, type(other).__name__)
        sums: dict[str, Any] = {}
        for field in fields(self):
            a, b = getattr(self, field.name), getattr(other, field.name)
            is_shared = field.name in self.shared
            if not is_shared and isinstance(a, int | float) and isinstance(b, int | float):
                sums[field.name] = a + b  # quick, as most are
                continue
            is_same_shape = (a is None) == (b is None) and np.shape(a) == np.shape(b)
            if not is_same_shape or (is_shared and not np.array_equal(a, b)):
                raise StateMismatchError(field.name.replace("_", " "), _shown(a), _shown(b))
            if is_shared or a is None:
                sums[field.name] = a
            else:
                sums[field.name] = tuple(map(add, a, b)) if isinstance(a, tuple) else a + b
        return type(self)(**sums)


def _shown(value: Any) -> Any:
    """Return a value as an error shows it: a large array by its shape."""
    if np.size(value) > 20:
        return np.shape(value)
    return value.tolist() if isinstance(value, np.ndarray) else value


def per_bin(*shape: int | str | None, low: float = -MAX_FLOAT) -> Check:
    """Check for an array with a dimension "bins": those between `edges`, which come before."""

    def sized(n_bins: int | None) -> Check:
        sizes = (n_bins if one == "bins" else one for one in shape)
        return array(*sizes, low=low, high=MAX_FLOAT)

    @states(lambda: schema_of(sized(None)))
    def check(value: Any, entry: Entry) -> Any:
        return sized(len(entry.beside["edges"]) - 1)(value, entry)

    return check


@states(lambda: schema_of(array(None, low=0.0, high=1.0)))
def edges_field(value: Any, entry: Entry) -> FloatArray:
    """Check for the edges of bins of probabilities, in ascending order."""
    found: FloatArray = array(None, low=0.0, high=1.0)(value, entry)
    if found.size < 2:
        raise entry.error("a list of at least 2 edges", "1")
    require_each(np.append(True, np.diff(found) >= 0), found, entry, "ascending")
    return found


def sums_field(*shape: int | str | None, low: float = -MAX_FLOAT) -> Check:
    """Check for an array of sums, empty where there are no rows."""
    return array(*shape, low=low, high=MAX_FLOAT, is_empty_allowed=True)


def _json_ready(value: Any) -> Any:
    """Return a result as numbers, strings and lists: no states, and None for what is not finite."""
    if isinstance(value, State):  # may have as many numbers as rows: the figures are made of it
        return None
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, dict):
        return {name: _json_ready(inner) for name, inner in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _json_ready(value.tolist())
    if isinstance(value, tuple | list):
        return [_json_ready(inner) for inner in value]
    if is_dataclass(value):
        return json_fields(value)
    return None if isinstance(value, float) and not np.isfinite(value) else value


def json_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON-ready values."""
    return {field.name: _json_ready(getattr(value, field.name)) for field in fields(value)}


def labeled_batch(
    y_true: Any,
    outputs: Any,
    sample_weight: Any,
    caller: str,
    stacklevel: int = 4,
    argument: str = "y_true",
) -> Batch:
    """Return a batch with labels, and warn about missing ones; `outputs` may be the batch."""
    if isinstance(outputs, Batch):
        return outputs
    batch = make_batch(
        y_true, outputs, sample_weight=sample_weight, caller=caller, argument=argument
    )
    require_labels(batch, caller)
    warn_of_missing(batch.n_missing, len(batch), caller, stacklevel)
    return batch


def warn_of_missing(n_missing: int, n_rows: int, caller: str, stacklevel: int) -> None:
    """Warn how many rows have no label and are left out."""
    if n_missing:
        text = f"{caller}: {n_missing:,} of {n_rows:,} rows have no label and were left out."
        warnings.warn(text, MissingLabelsWarning, stacklevel)


def require_weight(total: float, what: str) -> None:
    """Raise unless the rows of a metric or fit have any weight."""
    if not total > 0:
        raise EmptyStateError(what)


Inner = TypeVar("Inner")


@final
@dataclass(frozen=True, slots=True, eq=False)
class GroupedState(Generic[Inner]):
    """A state per group; a batch without groups has none.

    Attributes
    ----------
    states : dict of str to State
        The state of each group by its name.

    Examples
    --------
    >>> from dubito.data import Batch
    >>> from dubito.measure import GroupedState
    >>> from dubito.measure import AuditState
    >>> batch = Batch.of([0, 1], [0.1, 0.8], groups=["a", "b"])
    >>> list(GroupedState.of(batch, of=AuditState.of).states)
    ['a', 'b']
    """

    states: dict[str, Inner]

    @classmethod
    def of(cls, batch: Batch, *, of: Callable[[Batch], Inner]) -> Self:
        """Return the state of each group of a batch, in the order of their names.

        Parameters
        ----------
        batch : Batch
            Rows with groups.
        of : callable
            Takes a batch and returns its state, e.g. `AuditState.of`.

        Returns
        -------
        GroupedState
            Empty if the batch has no groups.
        """
        return cls({name: of(batch.take(rows)) for name, rows in rows_of_groups(batch).items()})

    def __add__(self, other: Self) -> Self:
        merged: dict[str, Any] = dict(self.states)
        for name, state in other.states.items():
            merged[name] = merged[name] + state if name in merged else state
        return type(self)(dict(sorted(merged.items())))

    @property
    def value(self) -> dict[str, Inner]:
        """The states of the groups with any weight."""
        return {name: state for name, state in self.states.items() if _has_value(state)}


def rows_of_groups(batch: Batch) -> dict[str, IntArray]:
    """Return the rows of each group of a batch, in the order of their names."""
    if batch.groups is None:
        return {}
    names = np.array(["(missing)" if is_absent(n) else str(n) for n in batch.groups.tolist()])
    different, positions = np.unique(names, return_inverse=True)
    order = np.argsort(positions, kind="stable")
    ends = np.cumsum(np.bincount(positions, minlength=different.size))
    return dict(zip(different.tolist(), np.split(order, ends[:-1]), strict=True))


def _has_value(state: Any) -> bool:
    """Return whether a state holds any labeled row of positive weight."""
    try:
        _ = state.value
    except EmptyStateError:
        return False
    return True

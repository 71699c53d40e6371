"""Any state, group by group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar, final

import numpy as np

from dubito.data.batch import Batch
from dubito.data.codes import is_absent
from dubito.errors import EmptyStateError

__all__ = ["GroupedState"]

Inner = TypeVar("Inner")


@final
@dataclass(frozen=True, slots=True, eq=False)
class GroupedState(Generic[Inner]):
    """A state for each group that occurs; a batch without groups has none."""

    states: dict[str, Inner]

    @classmethod
    def of(cls, batch: Batch, *, of: Callable[[Batch], Inner]) -> Self:
        """Take a state of each group of a batch, in the order of their names."""
        if batch.groups is None:
            return cls({})
        names = np.array(["(missing)" if is_absent(n) else str(n) for n in batch.groups.tolist()])
        different, positions = np.unique(names, return_inverse=True)
        order = np.argsort(positions, kind="stable")
        ends = np.cumsum(np.bincount(positions, minlength=different.size))
        parts = np.split(order, ends[:-1])
        pairs = zip(different.tolist(), parts, strict=True)
        return cls({name: of(batch.take(part)) for name, part in pairs})

    def __add__(self, other: Self) -> Self:
        merged: dict[str, Any] = dict(self.states)
        for name, state in other.states.items():
            merged[name] = merged[name] + state if name in merged else state
        return type(self)(dict(sorted(merged.items())))

    @property
    def value(self) -> dict[str, Inner]:
        """The state of each group that has any weight."""
        return {name: state for name, state in self.states.items() if has_value(state)}


def has_value(state: Any) -> bool:
    """Whether a state holds any labeled row of positive weight."""
    try:
        _ = state.value
    except EmptyStateError:
        return False
    return True

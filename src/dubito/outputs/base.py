"""The base class of all model outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self, TypeVar

import numpy as np

from dubito.arrays import IntArray, freeze


class BaseOutputs(ABC):
    """Outputs of a model for a number of rows."""

    __slots__ = ()

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """The number of rows."""

    @abstractmethod
    def take(self, rows: slice | IntArray) -> Self:
        """Return the outputs of some rows, without validating them again.

        Parameters
        ----------
        rows : slice or array of int
            A slice gives a view, indices give a copy.
        """

    def __len__(self) -> int:
        return self.n_rows

    def __reduce__(self) -> tuple[Any, ...]:
        # NumPy does not pickle that an array is read-only; `unchecked` restores it.
        names: tuple[str, ...] = self.__slots__
        return unchecked, (type(self), {name: getattr(self, name) for name in names})


def set_field(outputs: BaseOutputs, name: str, value: Any) -> None:
    """Set a field of frozen outputs during construction."""
    object.__setattr__(outputs, name, value)


Kind = TypeVar("Kind", bound=BaseOutputs)


def unchecked(kind: type[Kind], fields: dict[str, Any]) -> Kind:
    """Return outputs of fields that were validated before."""
    outputs = object.__new__(kind)
    for name, value in fields.items():
        set_field(outputs, name, freeze(value) if isinstance(value, np.ndarray) else value)
    return outputs

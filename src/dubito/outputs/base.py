"""The base class of all model outputs."""

from __future__ import annotations

from abc import ABC
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import IntArray, freeze

# Fields without one entry per row.
OF_ALL_ROWS = ("classes", "family", "levels", "label_names", "names", "confidence_column")


class BaseOutputs(ABC):
    """Outputs of a model for a number of rows. The first field is an array.

    `origin` is what it was read from, if that was a tensor or a data frame; parts have none.
    """

    __slots__ = ("origin",)

    axes: ClassVar[tuple[str, ...]]  # of the first field
    remedy: ClassVar[str] = ""  # what to pass to a function that does not take such outputs

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self._first_array().shape[self.axes.index("row")])

    @property
    def n_entries(self) -> int:
        """The number of entries per row of the first field, which sets the size of blocks."""
        return self._first_array().size // max(self.n_rows, 1)

    def take(self, rows: slice | IntArray) -> Self:
        """Return the outputs of some rows, without validating them again.

        Parameters
        ----------
        rows : slice or array of int
            A slice gives a view, indices give a copy.

        Returns
        -------
        BaseOutputs
            Outputs of the same class, with the same names of columns.
        """
        index = (slice(None),) * self.axes.index("row") + (rows,)
        fields = {
            name: field if name in OF_ALL_ROWS or field is None else field[index]
            for name, field in self._fields().items()
        }
        return unchecked(type(self), fields)

    def _fields(self) -> dict[str, Any]:
        """Return the fields by name."""
        names: tuple[str, ...] = self.__slots__
        return {name: getattr(self, name) for name in names}

    def _first_array(self) -> NDArray[Any]:
        """Return the first field."""
        return next(iter(self._fields().values()))

    def __repr__(self) -> str:
        array = self._first_array()
        sizes = (_counted(n, axis) for n, axis in zip(array.shape, self.axes, strict=False))
        return f"{type(self).__name__}({' x '.join(sizes)}, {array.dtype})"

    def __len__(self) -> int:
        return self.n_rows

    def __reduce__(self) -> tuple[Any, ...]:
        # NumPy does not pickle that an array is read-only; `unchecked` restores it.
        return unchecked, (type(self), self._fields())


def _counted(count: int, noun: str) -> str:
    """Return a number of things.

    >>> _counted(1, "row"), _counted(10, "class")
    ('1 row', '10 classes')
    """
    return f"{count} {noun}{'' if count == 1 else 'es' if noun.endswith('s') else 's'}"


def set_fields(outputs: BaseOutputs, **fields: Any) -> None:
    """Set fields of frozen outputs during construction."""
    for name, value in fields.items():
        object.__setattr__(outputs, name, value)


Kind = TypeVar("Kind", bound=BaseOutputs)


def unchecked(kind: type[Kind], fields: dict[str, Any]) -> Kind:
    """Return outputs of fields that were validated before.

    Parameters
    ----------
    kind : type
        The class of the outputs, such as `Logits`.
    fields : dict of str to any
        Its fields by name. Arrays are made read-only, without a copy.

    Returns
    -------
    BaseOutputs
        An instance of `kind`. For results that are valid by construction; the constructor
        validates.
    """
    outputs = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(outputs, name, freeze(value) if isinstance(value, np.ndarray) else value)
    return outputs

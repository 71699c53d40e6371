"""Several binary labels per row: probabilities that need not sum to 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from dubito.arrays import (
    PERCENTAGES,
    FloatArray,
    as_finite,
    as_floats,
    own,
    require_dimensions,
    require_everywhere,
)
from dubito.outputs.base import BaseOutputs, set_field
from dubito.outputs.classification import Members, Probabilities


class BaseMultiLabel(BaseOutputs):
    """Probabilities of several binary labels, with the labels on the last axis."""

    __slots__ = ()

    remedy: ClassVar[str] = "Pass its .label(k), one label at a time"
    array: FloatArray

    def __init__(self, array: Any) -> None:
        caller = type(self).__name__
        floats = as_finite(as_floats(array, "array", caller), "array", caller)
        shape = " x ".join(f"{axis}{'es' if axis == 'pass' else 's'}" for axis in self.axes)
        require_dimensions(floats, (len(self.axes),), "array", caller, shape)
        is_share = (floats >= 0) & (floats <= 1)
        rule = "must be between 0 and 1"
        require_everywhere(is_share, floats, "array", caller, rule, PERCENTAGES)
        set_field(self, "array", own(floats, array))

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        return int(self.array.shape[-1])

    def _both_classes(self, label: int) -> FloatArray:
        """Return the probabilities of 0 and of 1 for one label, on the last axis."""
        positive = self.array[..., label]
        return np.stack([1 - positive, positive], axis=-1)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class MultiLabel(BaseMultiLabel):
    """Probabilities of several binary labels per row, none of which excludes another.

    Parameters
    ----------
    array : array of shape (n_rows, n_labels)
        The probability that each label is 1.

    Examples
    --------
    >>> MultiLabel([[0.9, 0.5, 0.2]]).label(0).array.round(1).tolist()
    [[0.1, 0.9]]
    """

    axes: ClassVar[tuple[str, ...]] = ("row", "label")
    array: FloatArray

    def label(self, label: int) -> Probabilities:
        """Return the probabilities of one label, for metrics and decisions.

        Parameters
        ----------
        label : int
            The column of the label.

        Returns
        -------
        Probabilities
            The probabilities of 0 and 1.
        """
        return Probabilities(self._both_classes(label))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class MultiLabelMembers(BaseMultiLabel):
    """Probabilities of several binary labels, of an ensemble or several stochastic passes.

    Parameters
    ----------
    array : array of shape (n_passes, n_rows, n_labels)
        The probability of each member that each label is 1.

    Examples
    --------
    >>> MultiLabelMembers([[[0.9, 0.5]], [[0.7, 0.1]]]).mean.array.round(1).tolist()
    [[0.8, 0.3]]
    """

    axes: ClassVar[tuple[str, ...]] = ("pass", "row", "label")
    array: FloatArray

    @property
    def n_passes(self) -> int:
        """The number of passes."""
        return len(self.array)

    @property
    def mean(self) -> MultiLabel:
        """The mean probabilities over the passes."""
        return MultiLabel(self.array.mean(axis=0))

    def label(self, label: int) -> Members:
        """Return the members' probabilities of one label, for metrics and decisions.

        Parameters
        ----------
        label : int
            The column of the label.

        Returns
        -------
        Members
            The probabilities of 0 and 1.
        """
        return Members(self._both_classes(label))

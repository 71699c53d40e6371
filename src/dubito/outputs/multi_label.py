"""Several binary labels per row: probabilities that need not sum to 1."""

from __future__ import annotations

from collections.abc import Iterable
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
from dubito.errors import BadTypeError, BadValueError
from dubito.outputs.base import BaseOutputs, set_field, unchecked
from dubito.outputs.classification import ClassName, Members, Probabilities, as_names

LOGITS = "Use MultiLabel.from_logits(array) for logits"


class BaseMultiLabel(BaseOutputs):
    """Probabilities of several binary labels, with the labels on the last axis."""

    __slots__ = ()

    remedy: ClassVar[str] = "Pass its .label(k), one label at a time"
    array: FloatArray
    label_names: tuple[ClassName, ...] | None

    def __init__(self, array: Any, label_names: Iterable[ClassName] | None = None) -> None:
        caller = type(self).__name__
        floats = as_finite(as_floats(array, "array", caller), "array", caller)
        shape = " x ".join(f"{axis}{'es' if axis == 'pass' else 's'}" for axis in self.axes)
        require_dimensions(floats, (len(self.axes),), "array", caller, shape)
        is_share = (floats >= 0) & (floats <= 1)
        rule = "must be between 0 and 1"
        fix = LOGITS if (floats < 0).any() else PERCENTAGES
        require_everywhere(is_share, floats, "array", caller, rule, fix)
        set_field(self, "array", own(floats, array))
        names = _as_label_names(label_names, array, self.n_labels, caller)
        set_field(self, "label_names", names)

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        return int(self.array.shape[-1])

    @property
    def names(self) -> tuple[ClassName, ...]:
        """The names of the labels, or their column numbers."""
        return self.label_names or tuple(range(self.n_labels))

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
        The probability that each label is 1. `MultiLabel.from_logits` takes log odds.
    label_names : sequence of str or number, optional
        The names of the labels; by default the columns of a data frame.

    Attributes
    ----------
    odds : array of shape (n_rows, n_labels) or None
        The log odds that the outputs were made from, which probabilities near 1 would round.

    Examples
    --------
    >>> MultiLabel([[0.9, 0.5, 0.2]]).label(0).array.round(1).tolist()
    [[0.1, 0.9]]
    """

    axes: ClassVar[tuple[str, ...]] = ("row", "label")
    array: FloatArray
    label_names: tuple[ClassName, ...] | None
    odds: FloatArray | None

    def __init__(self, array: Any, label_names: Iterable[ClassName] | None = None) -> None:
        super(MultiLabel, self).__init__(array, label_names)
        set_field(self, "odds", None)

    @classmethod
    def from_logits(cls, logits: Any, label_names: Iterable[ClassName] | None = None) -> MultiLabel:
        """Return the probabilities of logits: one sigmoid per label.

        Parameters
        ----------
        logits : array of shape (n_rows, n_labels)
            The log odds of each label.
        label_names : sequence of str or number, optional
            The names of the labels; by default the columns of a data frame.

        Returns
        -------
        MultiLabel

        Examples
        --------
        >>> MultiLabel.from_logits([[0.0, 2.0]], ["cough", "fever"]).array.round(2).tolist()
        [[0.5, 0.88]]
        """
        caller = "MultiLabel.from_logits"
        odds = as_finite(as_floats(logits, "logits", caller), "logits", caller)
        require_dimensions(odds, (2,), "logits", caller, "rows x labels")
        names = _as_label_names(label_names, logits, odds.shape[1], caller)
        p = np.exp(-np.logaddexp(0, -odds))
        return unchecked(cls, {"array": p, "label_names": names, "odds": own(odds, logits)})

    @property
    def log_odds(self) -> FloatArray:
        """The log odds of each label, infinite for probabilities of 0 and 1."""
        if self.odds is not None:
            return self.odds
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.array) - np.log1p(-self.array))

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
    label_names : sequence of str or number, optional
        The names of the labels.

    Examples
    --------
    >>> MultiLabelMembers([[[0.9, 0.5]], [[0.7, 0.1]]]).mean.array.round(1).tolist()
    [[0.8, 0.3]]
    """

    axes: ClassVar[tuple[str, ...]] = ("pass", "row", "label")
    array: FloatArray
    label_names: tuple[ClassName, ...] | None

    @property
    def n_passes(self) -> int:
        """The number of passes."""
        return len(self.array)

    @property
    def mean(self) -> MultiLabel:
        """The mean probabilities over the passes."""
        return MultiLabel(self.array.mean(axis=0), self.label_names)

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


def as_multilabel(outputs: Any, caller: str) -> MultiLabel:
    """Return outputs of several labels per row: the mean of members, arrays as probabilities."""
    if isinstance(outputs, MultiLabelMembers):
        return outputs.mean
    if isinstance(outputs, BaseOutputs) and not isinstance(outputs, MultiLabel):
        rule, fix = "must be MultiLabel", "Wrap the probabilities of labels: MultiLabel(array)"
        raise BadTypeError("outputs", caller, rule, type(outputs).__name__, fix)
    return outputs if isinstance(outputs, MultiLabel) else MultiLabel(outputs)


def in_fitted_order(
    outputs: MultiLabel, n_labels: int, names: tuple[ClassName, ...] | None, caller: str
) -> MultiLabel:
    """Return outputs with their labels in the order of a fit, by position if either has no names.

    Raise if they have other labels.
    """
    rule, fix = f"must have the {n_labels} labels of the fit", "Pass these, and no others"
    found = outputs.label_names
    if found is not None and names is not None and found != names:
        missing = [name for name in names if name not in found]
        others = [name for name in found if name not in names]
        if missing or others:
            got = f"none called {missing[0]!r}" if missing else f"also {others[0]!r}"
            raise BadValueError("outputs", caller, rule, got, fix)
        order = [found.index(name) for name in names]
        odds = None if outputs.odds is None else outputs.odds[:, order]
        fields = {"array": outputs.array[:, order], "label_names": names, "odds": odds}
        return unchecked(MultiLabel, fields)
    if outputs.n_labels != n_labels:
        raise BadValueError("outputs", caller, rule, f"{outputs.n_labels}", fix)
    return outputs


def column_names(table: Any) -> tuple[str, ...] | None:
    """Return the names of the columns of a data frame, None for other values or names.

    >>> import pandas as pd
    >>> column_names(pd.DataFrame({"cough": [1], "fever": [0]})), column_names([[1, 0]])
    (('cough', 'fever'), None)
    """
    names = tuple(getattr(table, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None


def _as_label_names(
    names: Iterable[ClassName] | None, given: Any, n_labels: int, caller: str
) -> tuple[ClassName, ...] | None:
    """Return the names of labels, by default those of the columns of a data frame, or None."""
    names = column_names(given) if names is None else names
    if names is None:
        return None
    fix = "Name each label once"
    return as_names(names, n_labels, "label_names", "label", caller, fix)

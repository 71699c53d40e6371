"""Outputs of classifiers: one distribution over classes per row, or the top label alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from dubito.arrays import (
    USE_FRACTIONS,
    FloatArray,
    as_array,
    as_distributions,
    as_finite,
    as_floats,
    as_fractions,
    as_list,
    as_normalized,
    either,
    freeze,
    own,
    require_bool,
    require_dimensions,
    require_rows,
)
from dubito.errors import BadTypeError, BadValueError
from dubito.formatting import quantity
from dubito.outputs.base import BaseOutputs, set_field, unchecked

ClassName = str | int | float | bool
USE_LOGITS = "Use Logits(...) for logits"


class BaseClassOutputs(BaseOutputs):
    """Outputs over classes: the columns of a matrix, optionally named."""

    __slots__ = ()

    axes: ClassVar[tuple[str, ...]] = ("row", "class")
    array: FloatArray
    classes: tuple[ClassName, ...] | None

    @property
    def n_classes(self) -> int:
        """The number of classes: of columns, never of the labels that happen to occur."""
        return int(self.array.shape[-1])


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Logits(BaseClassOutputs):
    """Logits: unnormalized log probabilities.

    Parameters
    ----------
    array : array of shape (n_rows, n_classes) or (n_rows,)
        Finite logits. One dimension is one number per row, the log odds of the positive class of
        two, as `decision_function` of a binary classifier returns it; pass a single row of several
        classes as `array[np.newaxis]`. Arrays of up to 64 MB are copied.
    classes : sequence of str or number, optional
        The names of the columns. Labels are then names, otherwise column numbers.

    Examples
    --------
    >>> Logits([[2.0, 0.0, -1.0]], classes=["cat", "dog", "fox"]).n_classes
    3
    """

    array: FloatArray
    classes: tuple[ClassName, ...] | None

    def __init__(self, array: Any, classes: Iterable[ClassName] | None = None) -> None:
        fix = "Drop such rows, or use -10000 for a masked class"
        logits = as_finite(_as_matrix(array, "array", "Logits"), "array", "Logits", fix)
        if logits.shape[1] == 1:
            logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        set_field(self, "array", own(logits, array))
        set_field(self, "classes", _as_classes(classes, self.n_classes, "Logits"))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Probabilities(BaseClassOutputs):
    """Class probabilities.

    Parameters
    ----------
    array : array of shape (n_rows, n_classes), (n_rows, 1) or (n_rows,)
        Probabilities. Rows whose sum differs from 1 by more than 1e-3 raise an error, others are
        renormalized. One column, or one dimension, is the probability of the positive class of two;
        pass a single row of several classes as `array[np.newaxis]`. Arrays of up to
        64 MB are copied.
    classes : sequence of str or number, optional
        The names of the columns. Labels are then names, otherwise column numbers.
    normalize : bool, default=False
        Divide each row by its sum, whatever it is: for probabilities that were rounded.

    Examples
    --------
    >>> Probabilities([0.75, 0.5]).array.tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    >>> Probabilities([[0.33, 0.33, 0.32]], normalize=True).array.round(3).tolist()
    [[0.337, 0.337, 0.327]]
    """

    array: FloatArray
    classes: tuple[ClassName, ...] | None

    def __init__(
        self, array: Any, classes: Iterable[ClassName] | None = None, *, normalize: bool = False
    ) -> None:
        require_bool(normalize, "normalize", "Probabilities")
        matrix = _as_matrix(array, "array", "Probabilities")
        if normalize and matrix.shape[1] > 1:
            matrix = as_normalized(matrix, "array", "Probabilities")
        probabilities = _as_probabilities(matrix, "array", "Probabilities")
        set_field(self, "array", own(probabilities, array))
        set_field(self, "classes", _as_classes(classes, self.n_classes, "Probabilities"))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Members(BaseClassOutputs):
    """Class probabilities of an ensemble, or of several stochastic forward passes.

    Parameters
    ----------
    array : array of shape (n_passes, n_rows, n_classes)
        Probabilities of each member; `Members.of` stacks single outputs.
    classes : sequence of str or number, optional
        The names of the columns.
    certainty : array of shape (n_passes, n_rows), optional
        The certainty that each pass predicts for itself, such as an inverse variance.

    Examples
    --------
    >>> Members([[[0.9, 0.1]], [[0.5, 0.5]]]).mean.array.tolist()
    [[0.7, 0.3]]
    """

    axes = ("pass", "row", "class")
    array: FloatArray
    classes: tuple[ClassName, ...] | None
    certainty: FloatArray | None

    def __init__(
        self, array: Any, classes: Iterable[ClassName] | None = None, certainty: Any = None
    ) -> None:
        floats = as_floats(array, "array", "Members")
        if floats.ndim != 3:
            rule, fix = "must be passes x rows x classes", "Use Members.of([pass_1, pass_2, ...])"
            raise BadValueError("array", "Members", rule, f"shape {floats.shape}", fix)
        _require_passes(floats.shape[0], "array", "Members")
        passes = list(floats)
        logits = "Use Members.of([Logits(one), ...]) for logits"
        checked = [
            _as_probabilities(one, f"array[{i}]", "Members", logits) for i, one in enumerate(passes)
        ]
        is_unchanged = all(new is old for new, old in zip(checked, passes, strict=True))
        set_field(self, "array", own(floats if is_unchanged else np.stack(checked), array))
        set_field(self, "classes", _as_classes(classes, self.n_classes, "Members"))
        set_field(self, "certainty", _as_certainty(certainty, floats.shape[:2]))

    @classmethod
    def of(cls, passes: Iterable[Any], *, certainty: Any = None) -> Members:
        """Return the outputs of several passes as one.

        Parameters
        ----------
        passes : iterable of Logits, Probabilities or array
            The outputs of each pass for the same rows; a plain array is probabilities.
        certainty : array of shape (n_passes, n_rows), optional
            The certainty that each pass predicts for itself.
        """
        rule = "must be a list with the outputs of each pass"
        fix = "Use Members.of([pass_1, pass_2, ...])"
        listed = as_list(passes, "passes", "Members.of", rule, fix)
        _require_passes(len(listed), "passes", "Members.of")
        wrapped = [_as_pass(one, f"passes[{i}]") for i, one in enumerate(listed)]
        first = wrapped[0]
        for i, one in enumerate(wrapped):
            if one.array.shape != first.array.shape or one.classes != first.classes:
                rule = f"must match passes[0] (shape {first.array.shape}, classes {first.classes})"
                got = f"shape {one.array.shape}, classes {one.classes}"
                fix = "Stack passes over the same rows, with columns in the same order"
                raise BadValueError(f"passes[{i}]", "Members.of", rule, got, fix)
        stack = np.stack([_softmax(o.array) if isinstance(o, Logits) else o.array for o in wrapped])
        return cls(freeze(stack), first.classes, certainty)

    @property
    def n_passes(self) -> int:
        """The number of passes."""
        return int(self.array.shape[0])

    @property
    def mean(self) -> Probabilities:
        """The mean probabilities over the passes."""
        return Probabilities(freeze(self.array.mean(axis=0)), self.classes)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TopLabel(BaseOutputs):
    """The confidence in the predicted class, and whether it was correct.

    For files that hold nothing else. Metrics take it alone: `audit(TopLabel(...))`.

    Parameters
    ----------
    confidence : array of shape (n_rows,)
        The probability of the predicted class.
    correct : array of shape (n_rows,)
        Booleans, or numbers between 0 and 1.

    Examples
    --------
    >>> TopLabel([0.9, 0.6], [True, False]).n_rows
    2
    """

    axes = ("row",)
    confidence: FloatArray
    correct: FloatArray

    def __init__(self, confidence: Any, correct: Any) -> None:
        top = as_fractions(confidence, "confidence", "TopLabel")
        hits = as_array(correct, "correct", "TopLabel")
        if hits.dtype.kind == "b":
            hits = hits.astype(np.float64)
        hits = as_fractions(hits, "correct", "TopLabel", "Use 1 for correct and 0 for wrong")
        require_rows(hits, top.shape[0], "correct", "TopLabel", "the confidence")
        set_field(self, "confidence", freeze(top.astype(np.float64)))
        set_field(self, "correct", freeze(hits.astype(np.float64)))


def as_outputs(outputs: Any, argument: str, caller: str) -> BaseOutputs:
    """Return outputs unchanged, and a plain array as probabilities."""
    if isinstance(outputs, BaseOutputs):
        return outputs
    array = freeze(_as_probabilities(outputs, argument, caller))
    return unchecked(Probabilities, {"array": array, "classes": None})


def as_class_matrix(
    outputs: Any, argument: str, caller: str, fix: str = "Pass a classifier's outputs"
) -> Logits | Probabilities:
    """Return outputs as one matrix, rows x classes; members are averaged."""
    wrapped = as_outputs(outputs, argument, caller)
    if isinstance(wrapped, Members):
        return wrapped.mean
    if not isinstance(wrapped, Logits | Probabilities):
        rule = "must be Logits, Probabilities, Members or an array of probabilities"
        raise BadTypeError(argument, caller, rule, type(wrapped).__name__, wrapped.remedy or fix)
    return wrapped


def require_classes(
    outputs: BaseClassOutputs, n_classes: int, classes: tuple[ClassName, ...] | None, caller: str
) -> None:
    """Raise unless outputs have the classes of a fit; either may be without names."""
    fix = "Pass the columns of the fit, in the same order"
    if outputs.n_classes != n_classes:
        rule = f"must have {n_classes} columns, as during fit"
        if outputs.n_classes == 2:
            fix += "; one dimension is a single column, so pass one row as array[np.newaxis]"
        raise BadValueError("outputs", caller, rule, f"{outputs.n_classes}", fix)
    if None not in (outputs.classes, classes) and outputs.classes != classes:
        rule = f"must have the classes {classes}, as during fit"
        raise BadValueError("outputs", caller, rule, f"{outputs.classes}", fix)


def _as_pass(outputs: Any, argument: str) -> Logits | Probabilities:
    """Return the outputs of one pass of several."""
    wrapped = as_outputs(outputs, argument, "Members.of")
    if not isinstance(wrapped, Logits | Probabilities):
        rule, fix = "must be Logits, Probabilities or an array", "Pass one matrix per pass"
        raise BadTypeError(argument, "Members.of", rule, type(wrapped).__name__, fix)
    return wrapped


def _as_matrix(value: Any, argument: str, caller: str) -> FloatArray:
    """Return rows x columns of floats, not validated further."""
    array = as_floats(value, argument, caller)
    array = array[:, np.newaxis] if array.ndim == 1 else array
    fix = "Use Members.of([pass_1, ...]) for passes, or `.reshape(-1, n_classes)` for pixels"
    require_dimensions(array, (2,), argument, caller, "rows x classes", fix)
    return array


def _as_probabilities(
    value: Any, argument: str, caller: str, alternative: str = USE_LOGITS
) -> FloatArray:
    """Return rows x classes that sum to 1; the negative class is added to a single column."""
    array = _as_matrix(value, argument, caller)
    if array.shape[1] > 1:
        return as_distributions(array, argument, caller, alternative)
    positive = as_fractions(array[:, 0], argument, caller, either(alternative, USE_FRACTIONS))
    return np.stack([1 - positive, positive], axis=1)


def _as_classes(names: Any, n_classes: int, caller: str) -> tuple[ClassName, ...] | None:
    """Return the names of the columns as plain Python values, or None."""
    fix = "Give each class a name of its own, such as ['cat', 'dog']"
    return None if names is None else as_names(names, n_classes, "classes", "class", caller, fix)


def as_names(
    names: Any, n_names: int, argument: str, of_what: str, caller: str, fix: str
) -> tuple[ClassName, ...]:
    """Return distinct names of classes or actions as plain Python values.

    Names must differ as text too: 1 and "1" would be one class in a file.
    """
    kinds = "strings" if of_what == "action" else "strings or numbers"
    types = str if of_what == "action" else str | int | float | bool
    rule = f"must be a list of {kinds}, one per {of_what}"
    if isinstance(names, str | set | frozenset):
        raise BadTypeError(argument, caller, rule, repr(names), fix)
    listed = as_list(names, argument, caller, rule, fix)
    plain = tuple(name.item() if isinstance(name, np.generic) else name for name in listed)
    for name in plain:
        if not isinstance(name, types):
            raise BadTypeError(argument, caller, rule, f"a {type(name).__name__}", fix)
    if len(plain) != n_names:
        rule = f"must have {quantity(n_names, 'name')}, one per {of_what}"
        raise BadValueError(argument, caller, rule, f"{len(plain)}", fix)
    if min(len(set(plain)), len(set(map(str, plain)))) < len(plain):
        pairs = ((one, other) for k, other in enumerate(plain) for one in plain[:k])
        one, other = next(
            pair for pair in pairs if pair[0] == pair[1] or len({*map(str, pair)}) < 2
        )
        got = f"{one!r} twice" if repr(one) == repr(other) else f"{one!r} and {other!r}"
        raise BadValueError(argument, caller, "must be distinct, also as text", got, fix)
    return plain


def _as_certainty(value: Any, shape: tuple[int, ...]) -> FloatArray | None:
    """Return the certainty of each pass, passes x rows, or None."""
    if value is None:
        return None
    certainty = as_finite(as_floats(value, "certainty", "Members"), "certainty", "Members")
    if certainty.shape != shape:
        rule, fix = f"must be passes x rows, {shape}", "Pass one number for each pass and row"
        raise BadValueError("certainty", "Members", rule, f"shape {certainty.shape}", fix)
    return own(certainty, value)


def _require_passes(n_passes: int, argument: str, caller: str) -> None:
    """Raise unless there is a pass."""
    if n_passes < 1:
        raise BadValueError(argument, caller, "must have at least 1 pass", "0", "Add a pass")


def _softmax(logits: FloatArray) -> FloatArray:
    """Return the softmax of logits."""
    with np.errstate(over="ignore"):  # an overflowing distance is a probability of 0
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))

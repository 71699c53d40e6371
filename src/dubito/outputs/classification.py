"""Outputs of classifiers: a distribution over classes, the top label alone, or several labels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import (
    PERCENTAGES,
    USE_CLIP,
    USE_FRACTIONS,
    FloatArray,
    Origin,
    as_array,
    as_distributions,
    as_finite,
    as_floats,
    as_fractions,
    as_list,
    as_normalized,
    as_numbers,
    column_names_of,
    either,
    freeze,
    own,
    require_bool,
    require_dimensions,
    require_everywhere,
    require_rows,
)
from dubito.errors import BadTypeError, BadValueError
from dubito.formatting import quantity
from dubito.outputs.base import BaseOutputs, set_fields, unchecked

ClassName = str | int | float | bool
USE_LOGITS = "Use Logits(...) for logits"
YES = ("yes", "y", "true", "t", "1", "correct", "right", "ok")  # as text


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

    def _set(self, array: FloatArray, given: Any, classes: Any) -> None:
        """Set the validated array, what it was read from, and the names of its columns."""
        if classes is not None:
            fix, name = (
                "Give each class a name of its own, such as ['cat', 'dog']",
                type(self).__name__,
            )
            classes = as_names(classes, array.shape[-1], "classes", "class", name, fix)
        set_fields(self, array=array, origin=Origin.of(given), classes=classes)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Logits(BaseClassOutputs):
    """Logits: unnormalized log probabilities.

    Parameters
    ----------
    array : array of shape (n_rows, n_classes) or (n_rows,)
        Finite logits. One dimension is one number per row, the log odds of the positive class of
        two, as `decision_function` of a binary classifier returns it; pass a single row of several
        classes as `array[np.newaxis]`. Arrays of up to 4 MB are copied.
    classes : sequence of str or number, optional
        The names of the columns. Labels are then names, otherwise column numbers.

    Examples
    --------
    >>> from dubito import Logits
    >>> Logits([[2.0, 0.0, -1.0]], classes=["cat", "dog", "fox"]).n_classes
    3
    """

    array: FloatArray
    classes: tuple[ClassName, ...] | None

    def __init__(self, array: Any, classes: Iterable[ClassName] | None = None) -> None:
        fix = "Drop invalid rows, or use -10000 for a masked class"
        logits = as_finite(_as_matrix(array, "array", "Logits"), "array", "Logits", fix)
        if logits.shape[1] == 1:
            logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        self._set(own(logits, array), array, classes)


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
        4 MB are copied.
    classes : sequence of str or number, optional
        The names of the columns. Labels are then names, otherwise column numbers.
    normalize : bool, default=False
        Divide each row by its sum, whatever it is: for probabilities that were rounded.

    Examples
    --------
    >>> from dubito import Probabilities
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
        self._set(own(probabilities, array), array, classes)


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
    >>> from dubito import Members
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
        fix = "Use Members.of([Logits(one), ...]) for logits"
        checked = [
            _as_probabilities(one, f"array[{i}]", "Members", fix) for i, one in enumerate(passes)
        ]
        is_unchanged = all(new is old for new, old in zip(checked, passes, strict=True))
        self._set(own(floats if is_unchanged else np.stack(checked), array), array, classes)
        set_fields(self, certainty=_as_certainty(certainty, floats.shape[:2]))

    @classmethod
    def of(cls, passes: Iterable[Any], *, certainty: Any = None) -> Members:
        """Return the outputs of several passes as one.

        Parameters
        ----------
        passes : iterable of Logits, Probabilities or array
            The outputs of each pass for the same rows; a plain array is probabilities.
        certainty : array of shape (n_passes, n_rows), optional
            The certainty that each pass predicts for itself.

        Returns
        -------
        Members
            Probabilities of shape (n_passes, n_rows, n_classes).
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
    >>> from dubito import TopLabel
    >>> TopLabel([0.9, 0.6], [True, False]).n_rows
    2
    """

    axes = ("row",)
    confidence: FloatArray
    correct: FloatArray

    def __init__(self, confidence: Any, correct: Any) -> None:
        scores = "Use Scores(...) for scores of another range"
        top = as_fractions(confidence, "confidence", "TopLabel", other_range=scores)
        hits = as_array(correct, "correct", "TopLabel")
        if hits.dtype.kind == "b":
            hits = hits.astype(np.float64)
        if hits.dtype.kind == "U":
            words = hits.ravel().tolist()
            shown = next((one for one in words if one.lower() in YES), words[0])
            fix, got = f"Pass np.asarray(correct) == {shown!r}", f"text such as {shown!r}"
            raise BadTypeError("correct", "TopLabel", "must be booleans or numbers", got, fix)
        hits = as_fractions(hits, "correct", "TopLabel", "Use 1 for correct and 0 for wrong")
        require_rows(hits, top.shape[0], "correct", "TopLabel", "the confidence")
        confidence, correct = (freeze(one.astype(np.float64)) for one in (top, hits))
        set_fields(self, confidence=confidence, correct=correct)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Scores(BaseClassOutputs):
    """Scores that tell how likely an answer is correct, of any range: two classes, wrong, correct.

    For language models: a sequence log-probability, a verbalized 0-100, the agreement of several
    samples, a judge's grade. `ConfidenceCalibrator` turns them into P(correct), and a policy that
    is fitted on them decides which answers to reject.

    Parameters
    ----------
    array : array of shape (n_rows,) or (n_rows, n_scores), dict or data frame
        One or several scores. With several, some may be missing (NaN).
    names : sequence of str, optional
        The names of the scores; by default the columns of a data frame or dict.
    groups : array of shape (n_rows,), optional
        The group of each row, such as the subject of a question, for partial pooling.
    confidence : str or int, optional
        The name or the column of the score that is the model's own probability of being correct:
        what "uncalibrated" is.

    Examples
    --------
    >>> from dubito import Scores
    >>> Scores({"logprob": [-3.0, -0.5], "judge": [2, 5]}).names
    ('logprob', 'judge')
    >>> Scores([0.75, 0.5], confidence=0).probabilities("me").array.tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    """

    axes = ("row", "score")
    remedy = "Use ConfidenceCalibrator, or name the score that is a probability: confidence=0"
    array: FloatArray
    names: tuple[str, ...] | None
    groups: NDArray[Any] | None
    confidence_column: int | None
    classes: tuple[ClassName, ...] | None

    def __init__(
        self,
        array: Any,
        names: Iterable[str] | None = None,
        groups: Any = None,
        confidence: str | int | None = None,
    ) -> None:
        names = column_names_of(array) if names is None else names
        listed = None if names is None else tuple(map(str, names))
        origin = Origin.of(array)
        if listed is not None and not isinstance(array, np.ndarray | list | tuple):
            array = np.column_stack(_score_columns(array, listed))
        matrix = _as_matrix(array, "array", "Scores").astype(np.float64)
        _require_scores(matrix, listed)
        if groups is not None:
            groups = freeze(as_array(groups, "groups", "Scores"))
            require_dimensions(groups, (1,), "groups", "Scores", "one value per row")
            require_rows(groups, len(matrix), "groups", "Scores")
        column = _score_column(confidence, matrix, listed)
        set_fields(self, array=freeze(matrix), origin=origin, names=listed, groups=groups)
        set_fields(self, confidence_column=column, classes=("wrong", "correct"))

    @property
    def n_classes(self) -> int:
        """Two: wrong and correct."""
        return 2

    @property
    def n_scores(self) -> int:
        """The number of scores."""
        return int(self.array.shape[1])

    def probabilities(self, caller: str) -> Probabilities:
        """Return the uncalibrated probabilities of wrong and correct, or raise if there are none.

        Parameters
        ----------
        caller : str
            The function that needs them, for the error message.

        Returns
        -------
        Probabilities
            Two columns: the probability of being wrong, and of being correct.
        """
        if self.confidence_column is None:
            rule = "must hold a probability of being correct"
            raise BadTypeError("outputs", caller, rule, "scores alone", self.remedy)
        p = self.array[:, self.confidence_column]
        return Probabilities(np.column_stack([1 - p, p]), self.classes)


def _score_columns(table: Any, names: Iterable[str]) -> list[FloatArray]:
    """Return the columns of scores of a table, which must have equally many rows."""
    columns = {name: as_floats(table[name], name, "Scores") for name in names}
    if not columns:
        raise BadValueError("array", "Scores", "must have at least 1 score", "0", "Add a column")
    (first, wanted), *others = [(name, len(column)) for name, column in columns.items()]
    for name, n_rows in others:
        if n_rows != wanted:
            rule = f"must have {quantity(wanted, 'row')}, like `{first}`"
            fix = "Pass one value per row for each score"
            raise BadValueError(name, "Scores", rule, f"{n_rows}", fix)
    return list(columns.values())


def _require_scores(matrix: FloatArray, names: tuple[str, ...] | None) -> None:
    """Raise unless each row has a finite score, and each column a name of its own."""
    n_scores = matrix.shape[1]
    if names is not None:
        as_names(names, n_scores, "names", "score", "Scores", "Give each score a name of its own")
    is_known = np.isfinite(matrix) | (np.isnan(matrix) & (n_scores > 1))
    rule = "must be finite" + (", or NaN where it is missing" if n_scores > 1 else "")
    fix = "Replace an infinite score by the lowest or highest finite one"
    if n_scores == 1:
        fix += ", and leave out rows without a score"
    require_everywhere(is_known, matrix, "array", "Scores", rule, fix)
    has_any = np.asarray(~np.isnan(matrix).all(axis=1))
    rule, fix = "must have a score in each row", "Leave such rows out"
    require_everywhere(has_any, matrix[:, 0], "array", "Scores", rule, fix)


def _score_column(
    confidence: str | int | None, matrix: FloatArray, names: tuple[str, ...] | None
) -> int | None:
    """Return the column of the score that is a probability, or None."""
    if confidence is None:
        return None
    known: tuple[str | int, ...] = (*(names or ()), *range(matrix.shape[1]))
    if confidence not in known:
        fix = f"Pass one of {', '.join(map(repr, known[:5]))}"
        rule = "must be the name or the number of a score"
        raise BadValueError("confidence", "Scores", rule, repr(confidence), fix)
    column = known.index(confidence) % matrix.shape[1]
    as_fractions(matrix[:, column], str(confidence), "Scores")
    return int(column)


def as_outputs(outputs: Any, argument: str, caller: str) -> BaseOutputs:
    """Return outputs unchanged, and a plain array as probabilities.

    Parameters
    ----------
    outputs : BaseOutputs or array
        Model outputs.
    argument : str
        The name of the argument, for error messages.
    caller : str
        The public function that was called, for error messages.

    Returns
    -------
    BaseOutputs
        `outputs` itself, or `Probabilities` without class names.
    """
    if isinstance(outputs, BaseOutputs):
        return outputs
    array = freeze(_as_probabilities(outputs, argument, caller))
    return unchecked(Probabilities, {"array": array, "classes": None})


def as_class_matrix(
    outputs: Any, argument: str, caller: str, fix: str = "Pass a classifier's outputs"
) -> Logits | Probabilities:
    """Return outputs as one matrix, rows x classes; members are averaged.

    Parameters
    ----------
    outputs : Logits, Probabilities, Members, Scores or array
        Model outputs; a plain array is probabilities. Scores need a column of probabilities.
    argument : str
        The name of the argument, for error messages.
    caller : str
        The public function that was called, for error messages.
    fix : str, optional
        The remedy that the error states for other kinds of outputs.

    Returns
    -------
    Logits or Probabilities
        One row per sample, one column per class.
    """
    wrapped = as_outputs(outputs, argument, caller)
    if isinstance(wrapped, Members):
        return wrapped.mean
    if isinstance(wrapped, Scores):
        return wrapped.probabilities(caller)
    if not isinstance(wrapped, Logits | Probabilities):
        rule = "must be Logits, Probabilities, Members or an array of probabilities"
        raise BadTypeError(argument, caller, rule, type(wrapped).__name__, wrapped.remedy or fix)
    return wrapped


def require_classes(
    outputs: BaseClassOutputs, n_classes: int, classes: tuple[ClassName, ...] | None, caller: str
) -> None:
    """Raise unless outputs have the classes of a fit; either may be without names.

    Parameters
    ----------
    outputs : Logits, Probabilities or other outputs over classes
        Outputs for a fitted object.
    n_classes : int
        The number of classes of the fit.
    classes : tuple of str or number, or None
        Their names, if the fit had any.
    caller : str
        The public function that was called, for error messages.
    """
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
    has_low, has_high = (array[:, 0] < 0).any(), (array[:, 0] > 1).any()
    fix = either(alternative, USE_CLIP if has_low else USE_FRACTIONS)
    if has_low and has_high and alternative:
        fix = alternative
    positive = as_fractions(array[:, 0], argument, caller, fix)
    return np.stack([1 - positive, positive], axis=1)


def as_names(
    names: Any, n_names: int, argument: str, of_what: str, caller: str, fix: str
) -> tuple[ClassName, ...]:
    """Return distinct names of classes or actions as plain Python values.

    Names must differ as text too: 1 and "1" would be one class in a file.

    Parameters
    ----------
    names : iterable of str or number
        The names, in the order of the columns.
    n_names : int
        How many there must be.
    argument : str
        The name of the argument, for error messages.
    of_what : str
        What is named: "class", "label" or "action". Actions must be strings.
    caller : str
        The public function that was called, for error messages.
    fix : str
        The remedy that errors state.

    Returns
    -------
    tuple of str or number
        The names; NumPy scalars become plain Python values.
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
        one, other = next((a, b) for a, b in pairs if a == b or str(a) == str(b))
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


LOGITS = "Use MultiLabel.from_logits(array) for logits"


class BaseMultiLabel(BaseOutputs):
    """Probabilities of several binary labels, with the labels on the last axis."""

    __slots__ = ()

    remedy: ClassVar[str] = "Pass its .label(k), one label at a time"
    array: FloatArray
    label_names: tuple[ClassName, ...] | None

    def __init__(self, array: Any, label_names: Iterable[ClassName] | None = None) -> None:
        caller = type(self).__name__
        shape = " x ".join(f"{axis}{'es' if axis == 'pass' else 's'}" for axis in self.axes)
        dimensions = (len(self.axes),)
        floats = as_numbers(array, "array", caller, shape=shape, dimensions=dimensions)
        is_fraction = (floats >= 0) & (floats <= 1)
        rule = "must be between 0 and 1"
        fix = LOGITS if (floats < 0).any() else PERCENTAGES
        require_everywhere(is_fraction, floats, "array", caller, rule, fix)
        names = _as_label_names(label_names, array, floats.shape[-1], caller)
        set_fields(self, array=own(floats, array), origin=Origin.of(array), label_names=names)

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
    >>> from dubito import MultiLabel
    >>> MultiLabel([[0.9, 0.5, 0.2]]).label(0).array.round(1).tolist()
    [[0.1, 0.9]]
    """

    axes: ClassVar[tuple[str, ...]] = ("row", "label")
    array: FloatArray
    label_names: tuple[ClassName, ...] | None
    odds: FloatArray | None

    def __init__(self, array: Any, label_names: Iterable[ClassName] | None = None) -> None:
        super(MultiLabel, self).__init__(array, label_names)
        set_fields(self, odds=None)

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
        >>> from dubito import MultiLabel
        >>> MultiLabel.from_logits([[0.0, 2.0]], ["cough", "fever"]).array.round(2).tolist()
        [[0.5, 0.88]]
        """
        caller = "MultiLabel.from_logits"
        shape = "rows x labels"
        odds = as_numbers(logits, "logits", caller, shape=shape, dimensions=(2,))
        names = _as_label_names(label_names, logits, odds.shape[1], caller)
        p = np.exp(-np.logaddexp(0, -odds))
        fields = {"array": p, "label_names": names, "odds": own(odds, logits)}
        return unchecked(cls, {**fields, "origin": Origin.of(logits)})

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
    >>> from dubito import MultiLabelMembers
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
    """Return outputs of several labels per row: the mean of members, arrays as probabilities.

    Parameters
    ----------
    outputs : MultiLabel, MultiLabelMembers or array
        Probabilities of labels, rows x labels.
    caller : str
        The public function that was called, for error messages.

    Returns
    -------
    MultiLabel
        One probability per row and label.
    """
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

    Parameters
    ----------
    outputs : MultiLabel
        Outputs for a fitted object.
    n_labels : int
        The number of labels of the fit.
    names : tuple of str or number, or None
        Their names in order, if the fit had any.
    caller : str
        The public function that was called, for error messages.

    Returns
    -------
    MultiLabel
        The same outputs, with columns in the order of `names`.
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

    Parameters
    ----------
    table : any
        A data frame, or any other value.

    Returns
    -------
    tuple of str or None
        The names, if all of them are strings.

    Examples
    --------
    >>> from dubito.outputs import column_names
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
    return as_names(names, n_labels, "label_names", "label", caller, "Name each label once")

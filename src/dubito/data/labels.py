"""Labels of classes, as column numbers or several per row, and targets of regressions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    as_array,
    as_distributions,
    as_finite,
    as_floats,
    freeze,
    own,
    require_dimensions,
    require_everywhere,
    require_rows,
)
from dubito.data.parsing import mark
from dubito.errors import BadTypeError, BadValueError
from dubito.formatting import join_words
from dubito.outputs import BaseClassOutputs, ClassName, MultiLabel, Scores, TopLabel, column_names

MISSING = -1
UNCERTAIN = -1.0  # the mark of a label that is neither 0 nor 1
FEW_ROWS = 1000
MIN_SUSPECT = 50  # known labels; fewer may look like outputs by chance
POLICIES = ("ignore", "multi-class", "zeros", "ones", "soft")
UncertainPolicy = Literal["ignore", "multi-class", "zeros", "ones", "soft"] | float


def as_label_column(y: Any, argument: str, caller: str) -> NDArray[Any]:
    """Return labels as an array, in which numbers and NaN among names are not text."""
    array = as_array(y, argument, caller)
    is_mixed = array.dtype.kind == "U" and isinstance(y, list | tuple)
    return np.array(y, dtype=object) if is_mixed else array


def codes_of(y: NDArray[Any], outputs: BaseClassOutputs, argument: str, caller: str) -> IntArray:
    """Return the column number of each label, -1 where it is None, NaN or pandas' NA."""
    if y.dtype.kind in "biuf" and _is_numbered(outputs):
        is_fine = (y >= 0) & (y < outputs.n_classes)
        codes = y
        if y.dtype.kind == "f":
            is_missing = np.isnan(y)
            is_fine = (is_fine & (y == np.floor(y))) | is_missing
            codes = np.where(is_missing, MISSING, y)
        if not is_fine.all():
            row = int(np.argmin(is_fine))
            raise _no_class(y[row].item(), row, outputs, argument, caller)
        return codes.astype(np.int64)
    try:
        values, positions = distinct(y)
    except TypeError as error:
        rule, fix = "must have one label per row", "Use a class name or a column number"
        raise BadTypeError(argument, caller, rule, str(error), fix) from error
    return codes_of_values(values, positions, outputs, argument, caller)


def codes_of_values(
    values: Sequence[Any],
    positions: IntArray,
    outputs: BaseClassOutputs,
    argument: str,
    caller: str,
) -> IntArray:
    """Return the codes of labels given as distinct values and the position of each row's value."""
    code_of = {name: code for code, name in enumerate(names_of(outputs))}
    found = [MISSING if is_absent(value) else code_of.get(value) for value in values]
    is_fine = np.array([code is not None for code in found], dtype=bool)[positions]
    if not is_fine.all():
        row = int(np.argmin(is_fine))
        raise _no_class(values[int(positions[row])], row, outputs, argument, caller, values)
    codes = np.array([MISSING if code is None else code for code in found], dtype=np.int64)
    return np.asarray(codes[positions])


def _no_class(
    value: Any,
    row: int,
    outputs: BaseClassOutputs,
    argument: str,
    caller: str,
    values: Sequence[Any] = (),
) -> BadValueError:
    """Return the error for a label that is not a class; `values` are all distinct labels."""
    names = names_of(outputs)
    value = value.item() if isinstance(value, np.generic) else value
    if not _is_numbered(outputs):
        shown = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
        rule = f"must be one of the classes ({shown})"
        fix = "Spell labels like the classes, or use None for a missing label"
        is_number = isinstance(value, int | float) or str(value).isdecimal()
        if is_number and all(isinstance(name, str) and not name.isdecimal() for name in names):
            kind, shown = type(outputs).__name__, "'0', '1'" if isinstance(value, str) else "0, 1"
            fix = f"Pass {kind}(array, classes=[{shown}, ...]), or map the labels to these names"
        return BadValueError(argument, caller, rule, repr(value), fix, row)
    rule = f"must be class indices from 0 to {len(names) - 1}"
    if not isinstance(value, int | float):
        # Not a call to be copied: the labels are not known to be in the order of the columns.
        known = sorted((one for one in values if not is_absent(one)), key=str)
        is_full = len(known) == len(names)
        shown = join_words([repr(one) for one in known], 10) if is_full else f"{value!r}, ..."
        call = f"Pass {type(outputs).__name__}(array, classes=[...])"
        fix = f"{call} with the names {shown}, in the order of the columns"
        if len(names) == 2:
            fix = f"{call.replace('...', 'negative, positive')} with the names {shown}: the second "
            fix += "is the one whose probability a single column holds"
    elif value < 0:
        fix = "Use NaN or None for a missing label"
        if len(names) == 2 and value == -1:
            fix += ", or map -1 and 1 to 0 and 1"
    elif not np.isfinite(value):
        fix = "Use a finite number, or NaN for a missing label"
    elif value < len(names):
        fix = f"Pass integers, or label probabilities as an array of rows x {len(names)} classes"
    else:
        fix = f"Labels start at 0, and outputs need one column per class (there are {len(names)})"
    return BadValueError(argument, caller, rule, repr(value), fix, row)


def names_of(outputs: BaseClassOutputs) -> tuple[ClassName, ...]:
    """Return the names of the classes; unnamed classes are called by their column numbers."""
    return tuple(range(outputs.n_classes)) if outputs.classes is None else outputs.classes


def _is_numbered(outputs: BaseClassOutputs) -> bool:
    """Whether classes have no names, or their column numbers as names."""
    return outputs.classes in (None, tuple(range(outputs.n_classes)))


def distinct(y: NDArray[Any]) -> tuple[list[Any], IntArray]:
    """Return the distinct entries as Python values, and the position of each row's entry."""
    if y.dtype.kind in "biuf":
        values, positions = np.unique(y, return_inverse=True)
        return values.tolist(), positions
    seen: dict[Any, int] = {}
    keys = (None if is_absent(value) else value for value in y.tolist())
    positions = np.fromiter((seen.setdefault(key, len(seen)) for key in keys), np.int64, y.size)
    return list(seen), positions


def is_absent(value: Any) -> bool:
    """Whether a value is None, NaN, or pandas' NA or NaT."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def require_no_labels(y: Any, outputs: Any, argument: str, caller: str) -> None:
    """Raise if labels were passed beside a `TopLabel`, which holds whether it is correct."""
    if isinstance(outputs, TopLabel) and y is not None:
        rule = "must be None when `outputs` is a TopLabel, which already holds `correct`"
        raise BadTypeError(argument, caller, rule, type(y).__name__, f"Leave `{argument}` out")


class BaseLabels(ABC):
    """What is known of each row; all fields have an entry per row."""

    __slots__ = ()

    @property
    @abstractmethod
    def is_missing(self) -> BoolArray:
        """Which rows have no label."""

    @property
    def n_missing(self) -> int:
        """The number of rows without a label."""
        return int(np.count_nonzero(self.is_missing))

    def take(self, rows: slice | IntArray) -> Self:
        """Return the labels of some rows.

        Parameters
        ----------
        rows : slice or array of int
            The rows, counted from 0.

        Returns
        -------
        BaseLabels
            Their labels, of the same class.
        """
        names: tuple[str, ...] = self.__slots__
        fields = (getattr(self, name) for name in names)
        return type(self)(*(None if one is None else one[rows] for one in fields))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Labels(BaseLabels):
    """The label of each row: a column number, or a distribution over the classes.

    Parameters
    ----------
    codes : array of int, shape (n_rows,)
        Column numbers, -1 for a missing label. With `probabilities`, 0 for a labeled row.
    probabilities : array of shape (n_rows, n_classes), optional
        Label probabilities (soft labels).

    Examples
    --------
    >>> from dubito import Probabilities
    >>> pets = Probabilities([[0.8, 0.2], [0.3, 0.7]], classes=["cat", "dog"])
    >>> Labels.of(["dog", None], pets).codes.tolist()
    [1, -1]
    """

    codes: IntArray
    probabilities: FloatArray | None = None

    def __post_init__(self) -> None:
        # Kernels look up columns by codes, which nobody may change once they are validated.
        object.__setattr__(self, "codes", own(self.codes, self.codes, np.inf))

    @classmethod
    def of(
        cls, y: Any, outputs: BaseClassOutputs, argument: str = "y_true", caller: str = "Labels"
    ) -> Labels:
        """Return labels read from column numbers, class names or label probabilities.

        Parameters
        ----------
        y : array of shape (n_rows,) or (n_rows, n_classes)
            Names if the classes of `outputs` have names, otherwise column numbers; or label
            probabilities. None and NaN are missing.
        outputs : BaseClassOutputs
            The outputs of the same rows.
        argument, caller : str
            The names for error messages.
        """
        array = as_label_column(y, argument, caller)
        fix = "Align both in the same row order"
        if array.shape[0] == 1 and outputs.n_classes == 2:
            fix += "; one dimension is a single column, so pass one row as array[np.newaxis]"
        require_rows(array, outputs.n_rows, argument, caller, fix=fix)
        if array.ndim == 2 and array.shape[1] == outputs.n_classes:
            return cls.of_probabilities(array, argument, caller)
        rule = f"one label per row, or rows x {outputs.n_classes} label probabilities"
        require_dimensions(array, (1,), argument, caller, rule)
        if isinstance(outputs, Scores) and not _has_text(array):
            return cls._of_correct(array, argument, caller)
        return cls(freeze(codes_of(array, outputs, argument, caller)))

    @classmethod
    def _of_correct(cls, array: NDArray[Any], argument: str, caller: str) -> Labels:
        """Return the labels of answers that are correct (1), wrong (0) or anything between."""
        if array.dtype.kind == "O":
            array = np.array([np.nan if is_absent(one) else one for one in array.tolist()])
        values = array if array.dtype.kind == "b" else as_floats(array, argument, caller)
        values = values.astype(np.float64)
        is_missing = np.isnan(values)
        known = np.where(is_missing, 0.0, values)
        is_fraction = (known >= 0) & (known <= 1)
        fix = "Use 1 for correct and 0 for wrong"
        require_everywhere(is_fraction, array, argument, caller, "must be between 0 and 1", fix)
        if np.isin(known, (0.0, 1.0)).all():
            return cls(freeze(np.where(is_missing, MISSING, known).astype(np.int64)))
        return cls.of_probabilities(np.column_stack([1 - values, values]), argument, caller)

    @classmethod
    def of_probabilities(cls, array: NDArray[Any], argument: str, caller: str) -> Labels:
        """Return labels of rows x classes probabilities; a row of NaN is a missing label."""
        if array.dtype.kind == "b":
            array = array.astype(np.float64)
        floats = as_floats(array, argument, caller).astype(np.float64)
        is_missing = np.isnan(floats).all(axis=1)
        floats[is_missing] = 1 / floats.shape[1]
        probabilities = as_distributions(floats, argument, caller)
        return cls(freeze(np.where(is_missing, MISSING, 0)), freeze(probabilities))

    @property
    def is_missing(self) -> BoolArray:
        """Which rows have no label."""
        return np.asarray(self.codes == MISSING)

    def __repr__(self) -> str:
        return f"Labels({len(self.codes)} rows, {self.n_missing} missing)"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Targets(BaseLabels):
    """The targets of a regression, rows or rows x targets; NaN is a missing target."""

    values: FloatArray

    @classmethod
    def of(cls, y: Any, n_rows: int, argument: str = "y_true", caller: str = "Targets") -> Targets:
        """Return validated targets; infinity raises an error."""
        values = as_floats(y, argument, caller)
        require_rows(values, n_rows, argument, caller)
        require_dimensions(values, (1, 2), argument, caller, "rows, or rows x targets")
        as_finite(np.where(np.isnan(values), 0, values), argument, caller)
        return cls(freeze(values))

    @property
    def is_missing(self) -> BoolArray:
        """Which rows lack at least one target."""
        missing = np.isnan(self.values)
        return np.asarray(missing if missing.ndim == 1 else missing.any(axis=1))

    def __repr__(self) -> str:
        return f"Targets({len(self.values)} rows, {self.n_missing} missing)"


@final
@dataclass(frozen=True, slots=True, eq=False)
class LabelMatrix(BaseLabels):
    """Several binary labels per row: rows x labels of probabilities, NaN where unknown.

    Parameters
    ----------
    values : array of float, shape (n_rows, n_labels)
        Between 0 and 1.

    Examples
    --------
    >>> from dubito.data import LabelMatrix
    >>> from dubito import MultiLabel
    >>> findings = MultiLabel([[0.9, 0.2], [0.4, 0.6]])
    >>> LabelMatrix.of([[1, 0], [-1, None]], findings, uncertain="ignore").values.tolist()
    [[1.0, 0.0], [nan, nan]]
    """

    values: FloatArray

    @classmethod
    def of(
        cls,
        y: Any,
        outputs: MultiLabel,
        *,
        uncertain: UncertainPolicy | None = None,
    ) -> LabelMatrix:
        """Return validated labels of several binary outcomes.

        Parameters
        ----------
        y : array of shape (n_rows, n_labels)
            0 and 1, or probabilities; None, NaN or masked where unknown. -1 or "u" marks an
            uncertain label. The columns of a data frame are matched to named outputs by name, with
            or without what all names begin with (`p_`, `y_`); otherwise by position.
        outputs : MultiLabel
            The outputs of the same rows.
        uncertain : {"ignore", "zeros", "ones", "soft", "multi-class"} or float, optional
            How uncertain labels are treated (Irvin et al., 2019): unknown, 0, 1, the frequency
            of 1 among the certain ones of the same label, or a probability of your own. With
            "multi-class", uncertain is a third class in training only (`learn.Bernoulli`), and
            unknown here. None raises an error.

        Returns
        -------
        LabelMatrix
        """
        return make_label_matrix(y, outputs, "y_true", "LabelMatrix", uncertain)

    @property
    def is_missing(self) -> BoolArray:
        """Which rows have no known label."""
        return np.asarray(np.isnan(self.values).all(axis=1))

    def __repr__(self) -> str:
        n_rows, n_labels = self.values.shape
        return f"LabelMatrix({n_rows} rows x {n_labels} labels, {self.n_missing} rows missing)"


def make_label_matrix(
    y: Any,
    outputs: MultiLabel,
    argument: str,
    caller: str,
    uncertain: UncertainPolicy | None = None,
) -> LabelMatrix:
    """Return labels, as `LabelMatrix.of`; errors name the caller and its argument for them."""
    if uncertain is not None:
        require_policy(uncertain, caller, POLICIES)
    if not isinstance(outputs, MultiLabel):
        rule, fix = "needs MultiLabel outputs", "Pass MultiLabel(array), rows x labels"
        raise BadTypeError("", f"{caller}.of", rule, type(outputs).__name__, fix)
    if isinstance(y, np.ma.MaskedArray):
        y = np.ma.filled(y.astype(np.float64), np.nan)
    given = array = as_array(y, argument, caller)
    if array.dtype.kind in "OU":
        array = _numbers_of_marks(array, argument, caller)
    values = array if array.dtype.kind == "b" else as_floats(array, argument, caller)
    values = values.astype(np.float64)
    require_rows(values, outputs.n_rows, argument, caller)
    shape = f"rows x {outputs.n_labels} labels"
    several = "Pass one column per label; for one class per row, use Probabilities(...)"
    fix = several if values.ndim == 1 and outputs.n_labels > 1 else None
    require_dimensions(values, (2,), argument, caller, shape, fix)
    if values.shape[1] != outputs.n_labels:
        rule, fix = f"must be {shape}", "Pass one column per label"
        raise BadValueError(argument, caller, rule, f"{values.shape[1]} labels", fix)
    columns = _label_columns(column_names(y), outputs, argument, caller)
    values, given = values[:, columns], given[:, columns]
    is_uncertain = values == UNCERTAIN
    fix = "Use NaN or None for an unknown label"
    if uncertain is None:
        policy = "uncertain='ignore'"
        if caller not in ("", "LabelMatrix"):  # neither a file nor called directly
            policy = f"LabelMatrix.of(y, outputs, {policy})"
        fix += f", or pass {policy} if -1 or u marks uncertain ones"
    else:
        values[is_uncertain] = np.nan
    is_fine = np.isnan(values) | ((values >= 0) & (values <= 1))
    require_everywhere(is_fine, given, argument, caller, "must be between 0 and 1", fix)
    if uncertain in ("zeros", "ones"):
        values[is_uncertain] = float(uncertain == "ones")
    elif isinstance(uncertain, int | float):
        values[is_uncertain] = uncertain
    elif uncertain == "soft":
        frequency = np.nansum(values, axis=0) / np.maximum((~np.isnan(values)).sum(axis=0), 1)
        values[is_uncertain] = np.broadcast_to(frequency, values.shape)[is_uncertain]
    return LabelMatrix(freeze(values))


def _numbers_of_marks(array: NDArray[Any], argument: str, caller: str) -> NDArray[Any]:
    """Return labels given as objects or text as numbers: NaN where unknown, -1 where uncertain."""

    def number(value: Any) -> Any:
        if is_absent(value):
            return np.nan
        return mark(value) if isinstance(value, str) else value

    numbers = np.frompyfunc(number, 1, 1)(array)
    is_number = np.frompyfunc(lambda one: one is not None, 1, 1)(numbers).astype(bool)
    rule, fix = "must be numbers, or 'u' where uncertain", "Use NaN or None for an unknown label"
    require_everywhere(is_number, array, argument, caller, rule, fix)
    return np.array(numbers.tolist())


def _label_columns(
    columns: tuple[str, ...] | None, outputs: MultiLabel, argument: str, caller: str
) -> slice | list[int]:
    """Return which column of a data frame holds each label."""
    names = tuple(map(str, outputs.label_names or ()))
    if columns is None or not names or columns == names:
        return slice(None)
    for found, wanted in ((columns, names), (_without_prefix(columns), _without_prefix(names))):
        if set(found) == set(wanted):
            return [found.index(name) for name in wanted]
    missing = [name for name in names if name not in columns]
    if len(missing) < len(names):
        rule, got = "must have a column for each label", f"none called {missing[0]!r}"
        raise BadValueError(argument, caller, rule, got, "Name its columns like the outputs")
    return slice(None)


def _without_prefix(names: Sequence[str]) -> list[str]:
    """Return names without a part up to an underscore that all of them begin with."""
    prefix = names[0].partition("_")[0] + "_"
    has_prefix = all(name.startswith(prefix) for name in names)
    return [name.removeprefix(prefix) if has_prefix else name for name in names]


def require_policy(value: Any, caller: str, names: Sequence[str] = POLICIES[:-1]) -> None:
    """Raise unless a policy for uncertain labels is one of some names, or a probability.

    By default "soft" is none of them: the frequency of a label is unknown before all rows are.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value in names or (is_number and 0 <= value <= 1):
        return
    rule = f"must be {', '.join(map(repr, names))} or a probability"
    fix = "Use uncertain='ignore'"
    if value == "soft":
        fix = (
            "Give the probability itself, e.g. uncertain=0.5. For the frequency of each label, "
            "which takes all rows, use LabelMatrix.of(y, outputs, uncertain='soft')"
        )
    raise BadValueError("uncertain", caller, rule, repr(value), fix)


def as_label_matrix(labels: Any, caller: str) -> LabelMatrix:
    """Return the labels of a batch of several labels per row, or raise."""
    if not isinstance(labels, LabelMatrix):
        fix = "Pass y, rows x labels, or shards with label columns"
        got = "None" if labels is None else type(labels).__name__
        raise BadTypeError("y", caller, "must hold the labels, rows x labels", got, fix)
    return labels


def look_like_labels(outputs: MultiLabel) -> bool:
    """Whether outputs are all 0 or 1, judged by their first rows."""
    p = outputs.array[:FEW_ROWS]
    return p.size >= MIN_SUSPECT and bool(((p == 0) | (p == 1)).all())


def require_own_places(
    outputs: MultiLabel, labels: LabelMatrix, argument: str, caller: str
) -> None:
    """Raise if labels and their probabilities are exchanged, or all are the same columns."""
    for n_rows in (FEW_ROWS, outputs.n_rows):  # most inputs are fine by their first rows
        p, y = outputs.array[:n_rows], labels.values[:n_rows]
        is_known, is_soft = ~np.isnan(y), (y > 0) & (y < 1)
        is_hard = ((p == 0) | (p == 1)).all(axis=0)
        n_known, n_soft = is_known.sum(axis=0), is_soft.sum(axis=0)
        is_swapped = is_hard & (n_soft > n_known / 2) & (n_known >= MIN_SUSPECT)
        if is_hard.all() and n_soft.sum() > n_known.sum() / 2:
            is_swapped = n_soft > 0
        is_same = bool(((p == y) | ~is_known).all() and n_known.sum() >= MIN_SUSPECT)
        if not (is_swapped.any() or is_same):
            return
    if is_swapped.any():
        label = int(np.argmax(is_swapped))
        name = outputs.names[label]
        which, fix = f"the outputs of {name!r}", f"Exchange the two columns of {name!r}"
        if is_hard.all():
            which, fix = "the outputs", "Exchange labels and outputs"
        rule = f"must hold the labels: {which} are all 0 or 1, like labels"
        got = f"probabilities such as {y[is_soft[:, label], label][0]:g}"
    else:
        rule, got = "must differ from the outputs", "the same numbers in every row"
        fix = "Pass the probabilities of the model as outputs, and the true labels"
    raise BadValueError(argument, caller, rule, got, fix)


def _has_text(array: NDArray[Any]) -> bool:
    """Whether labels are names: text, or objects with text among them."""
    if array.dtype.kind == "O":
        return any(isinstance(one, str) for one in array.tolist())
    return array.dtype.kind in "UST"

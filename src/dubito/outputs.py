"""What a model put out, declared and never guessed.

A plain array is probabilities, everywhere. Whatever else it is, its wrapper says so. Each wrapper
checks its array once and keeps float32 or float64 as it came, as a read-only view of the caller's
array.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self, TypeVar, final

import numpy as np

from dubito.arrays import (
    PERCENTAGES,
    FloatArray,
    IntArray,
    as_array,
    as_distributions,
    as_finite,
    as_floats,
    as_list,
    as_shares,
    freeze,
    require_dimensions,
    require_everywhere,
    require_rows,
)
from dubito.errors import BadTypeError, BadValueError

ClassName = str | int | float | bool


class BaseOutputs(ABC):
    """Outputs of a model, one entry a row."""

    __slots__ = ()

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """How many rows there are."""

    @abstractmethod
    def take(self, rows: slice | IntArray) -> Self:
        """Return the outputs of some rows, a range as a view; nothing is checked again."""

    def __len__(self) -> int:
        return self.n_rows

    def __reduce__(self) -> tuple[Any, ...]:
        # NumPy does not pickle that an array is read-only; `unchecked` makes it so again.
        names: tuple[str, ...] = self.__slots__
        return unchecked, (type(self), {name: getattr(self, name) for name in names})


class BaseClassOutputs(BaseOutputs):
    """Outputs that spread over classes: columns of a matrix, optionally named."""

    __slots__ = ()

    array: FloatArray
    classes: tuple[ClassName, ...] | None

    @property
    def n_rows(self) -> int:
        return int(self.array.shape[-2])

    @property
    def n_classes(self) -> int:
        """How many classes there are: the columns, never the labels that happen to occur."""
        return int(self.array.shape[-1])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Logits(BaseClassOutputs):
    """Unnormalized log probabilities, rows x classes; 1-D is the log odds of the positive class.

    >>> Logits([[2.0, 0.0, -1.0]], classes=["cat", "dog", "fox"]).n_classes
    3
    """

    array: FloatArray
    classes: tuple[ClassName, ...] | None

    def __init__(self, array: Any, classes: Iterable[ClassName] | None = None) -> None:
        fix = "leaving such rows out, or -10000 for a class that is masked out"
        logits = as_finite(_as_matrix(array, "array", "Logits"), "array", "Logits", fix)
        if logits.shape[1] == 1:
            logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        _set_field(self, "array", freeze(logits))
        _set_field(self, "classes", _as_classes(classes, self.n_classes, "Logits"))

    def take(self, rows: slice | IntArray) -> Logits:
        return unchecked(Logits, {"array": self.array[rows], "classes": self.classes})


@final
@dataclass(frozen=True, slots=True, eq=False)
class Probabilities(BaseClassOutputs):
    """Probabilities, rows x classes; one column or 1-D is the positive class of two.

    Rows off 1 by more than 1e-3 are refused, closer ones are renormalized.

    >>> Probabilities([0.75, 0.5]).array.tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    """

    array: FloatArray
    classes: tuple[ClassName, ...] | None

    def __init__(self, array: Any, classes: Iterable[ClassName] | None = None) -> None:
        probabilities = _as_probabilities(array, "array", "Probabilities")
        _set_field(self, "array", freeze(probabilities))
        _set_field(self, "classes", _as_classes(classes, self.n_classes, "Probabilities"))

    def take(self, rows: slice | IntArray) -> Probabilities:
        return unchecked(Probabilities, {"array": self.array[rows], "classes": self.classes})


@final
@dataclass(frozen=True, slots=True, eq=False)
class Members(BaseClassOutputs):
    """Probabilities of several passes or models over the same rows, passes x rows x classes.

    `certainty` (passes x rows) is what a pass says of its own trust, where it says so.

    >>> Members([[[0.9, 0.1]], [[0.5, 0.5]]]).mean.array.tolist()
    [[0.7, 0.3]]
    """

    array: FloatArray
    classes: tuple[ClassName, ...] | None
    certainty: FloatArray | None

    def __init__(
        self, array: Any, classes: Iterable[ClassName] | None = None, certainty: Any = None
    ) -> None:
        floats = as_floats(array, "array", "Members")
        if floats.ndim != 3:
            rule, fix = "3-D, passes x rows x classes", "Members.of([pass_1, pass_2, ...])"
            raise BadValueError("array", "Members", rule, f"shape {floats.shape}", fix)
        _require_passes(floats.shape[0], "array", "Members")
        passes = list(floats)
        logits = "Members.of([Logits(one), ...]) if these are logits, or "
        checked = [
            _as_probabilities(one, f"array[{i}]", "Members", logits) for i, one in enumerate(passes)
        ]
        is_as_it_came = all(new is old for new, old in zip(checked, passes, strict=True))
        _set_field(self, "array", freeze(floats if is_as_it_came else np.stack(checked)))
        _set_field(self, "classes", _as_classes(classes, self.n_classes, "Members"))
        _set_field(self, "certainty", _as_certainty(certainty, floats.shape[:2]))

    @classmethod
    def of(cls, passes: Iterable[Any], *, certainty: Any = None) -> Members:
        """Stack the outputs of several passes: `Logits`, `Probabilities` or plain probabilities."""
        rule, fix = "a list of outputs, one a pass", "Members.of([pass_1, pass_2, ...])"
        listed = as_list(passes, "passes", "Members.of", rule, fix)
        _require_passes(len(listed), "passes", "Members.of")
        wrapped = [_as_pass(one, f"passes[{i}]") for i, one in enumerate(listed)]
        first = wrapped[0]
        for i, one in enumerate(wrapped):
            if one.array.shape != first.array.shape or one.classes != first.classes:
                raise BadValueError(
                    f"passes[{i}]",
                    "Members.of",
                    f"like the first pass, shape {first.array.shape}, classes {first.classes}",
                    f"shape {one.array.shape}, classes {one.classes}",
                    "passes over the same rows, columns in the same order",
                )
        stack = np.stack([_softmax(o.array) if isinstance(o, Logits) else o.array for o in wrapped])
        return cls(stack, first.classes, certainty)

    @property
    def n_passes(self) -> int:
        """How many passes there are."""
        return int(self.array.shape[0])

    @property
    def mean(self) -> Probabilities:
        """The members' mean probability: what they say together."""
        return Probabilities(self.array.mean(axis=0), self.classes)

    def take(self, rows: slice | IntArray) -> Members:
        array, classes = self.array[:, rows], self.classes
        certainty = None if self.certainty is None else self.certainty[:, rows]
        return unchecked(Members, {"array": array, "classes": classes, "certainty": certainty})


@final
@dataclass(frozen=True, slots=True, eq=False)
class TopLabel(BaseOutputs):
    """The confidence in the predicted class and whether it was right: all that some files hold.

    `correct` holds booleans, or 0 and 1, or a share between them. Metrics take `y_true=None` with
    it.

    >>> TopLabel([0.9, 0.6], [True, False]).n_rows
    2
    """

    confidence: FloatArray
    correct: FloatArray

    def __init__(self, confidence: Any, correct: Any) -> None:
        says = as_shares(confidence, "confidence", "TopLabel")
        right = as_array(correct, "correct", "TopLabel")
        if right.dtype.kind == "b":
            right = right.astype(np.float64)
        right = as_shares(right, "correct", "TopLabel", "1 for right and 0 for wrong")
        require_rows(right, says.shape[0], "correct", "TopLabel", "the confidence")
        _set_field(self, "confidence", freeze(says.astype(np.float64)))
        _set_field(self, "correct", freeze(right.astype(np.float64)))

    @property
    def n_rows(self) -> int:
        return int(self.confidence.shape[0])

    def take(self, rows: slice | IntArray) -> TopLabel:
        confidence, correct = self.confidence[rows], self.correct[rows]
        return unchecked(TopLabel, {"confidence": confidence, "correct": correct})


@final
@dataclass(frozen=True, slots=True, eq=False)
class Normal(BaseOutputs):
    """A normal distribution a row: mean and standard deviation, rows or rows x targets.

    >>> Normal(mean=[1.0, 2.0], std=[0.5, 0.1]).n_rows
    2
    """

    mean: FloatArray
    std: FloatArray

    def __init__(self, mean: Any, std: Any) -> None:
        means = as_finite(as_floats(mean, "mean", "Normal"), "mean", "Normal")
        stds = as_finite(as_floats(std, "std", "Normal"), "std", "Normal")
        require_dimensions(means, (1, 2), "mean", "Normal", "rows, or rows x targets")
        if stds.shape != means.shape:
            rule, fix = f"of the mean's shape {means.shape}", "np.broadcast_to(std, mean.shape)"
            raise BadValueError("std", "Normal", rule, f"shape {stds.shape}", fix)
        require_everywhere(stds > 0, stds, "std", "Normal", "above 0", "a floor, say 1e-6")
        _set_field(self, "mean", freeze(means))
        _set_field(self, "std", freeze(stds))

    @property
    def n_rows(self) -> int:
        return int(self.mean.shape[0])

    def take(self, rows: slice | IntArray) -> Normal:
        return unchecked(Normal, {"mean": self.mean[rows], "std": self.std[rows]})


@final
@dataclass(frozen=True, slots=True, eq=False)
class Samples(BaseOutputs):
    """Draws from each row's distribution, rows x draws or rows x draws x targets.

    >>> Samples([[1.0, 1.2, 0.9], [3.0, 2.5, 2.8]]).n_rows
    2
    """

    array: FloatArray

    def __init__(self, array: Any) -> None:
        draws = as_finite(as_floats(array, "array", "Samples"), "array", "Samples")
        require_dimensions(draws, (2, 3), "array", "Samples", "rows x draws (x targets)")
        _set_field(self, "array", freeze(draws))

    @property
    def n_rows(self) -> int:
        return int(self.array.shape[0])

    def take(self, rows: slice | IntArray) -> Samples:
        return unchecked(Samples, {"array": self.array[rows]})


@final
@dataclass(frozen=True, slots=True, eq=False)
class Quantiles(BaseOutputs):
    """Quantiles of each row's distribution, rows x levels or rows x levels x targets.

    >>> Quantiles([[1.0, 2.0, 4.0]], levels=[0.1, 0.5, 0.9]).n_rows
    1
    """

    array: FloatArray
    levels: FloatArray

    def __init__(self, array: Any, levels: Any) -> None:
        values = as_finite(as_floats(array, "array", "Quantiles"), "array", "Quantiles")
        require_dimensions(values, (2, 3), "array", "Quantiles", "rows x levels (x targets)")
        _set_field(self, "levels", freeze(_as_levels(levels, values.shape[1])))
        is_sorted = np.ones(values.shape, dtype=bool)
        is_sorted[:, 1:] = values[:, 1:] >= values[:, :-1]
        rule, fix = "non-decreasing along its levels", "np.sort(array, axis=1)"
        require_everywhere(is_sorted, values, "array", "Quantiles", rule, fix)
        _set_field(self, "array", freeze(values))

    @property
    def n_rows(self) -> int:
        return int(self.array.shape[0])

    def take(self, rows: slice | IntArray) -> Quantiles:
        return unchecked(Quantiles, {"array": self.array[rows], "levels": self.levels})


def as_outputs(outputs: Any, argument: str, caller: str) -> BaseOutputs:
    """Return wrapped outputs as they are, and a plain array as probabilities."""
    if isinstance(outputs, BaseOutputs):
        return outputs
    array = freeze(_as_probabilities(outputs, argument, caller))
    return unchecked(Probabilities, {"array": array, "classes": None})


def _as_pass(outputs: Any, argument: str) -> Logits | Probabilities:
    """Return the outputs of one pass of several."""
    wrapped = as_outputs(outputs, argument, "Members.of")
    if not isinstance(wrapped, Logits | Probabilities):
        rule, fix = "Logits, Probabilities or an array", "one matrix a pass"
        raise BadTypeError(argument, "Members.of", rule, type(wrapped).__name__, fix)
    return wrapped


def _as_matrix(value: Any, argument: str, caller: str) -> FloatArray:
    """Return rows x columns of floats, not yet checked for what they mean."""
    array = as_floats(value, argument, caller)
    array = array[:, np.newaxis] if array.ndim == 1 else array
    fix = "Members.of([pass_1, pass_2, ...]) for passes, or `.reshape(-1, n_classes)` for pixels"
    require_dimensions(array, (2,), argument, caller, "rows x classes", fix)
    return array


def _as_probabilities(
    value: Any, argument: str, caller: str, or_else: str = "`Logits` if these are logits, or "
) -> FloatArray:
    """Return rows x classes that sum to 1; the negative class is added where only one came."""
    array = _as_matrix(value, argument, caller)
    if array.shape[1] > 1:
        return as_distributions(array, argument, caller, or_else)
    positive = as_shares(array[:, 0], argument, caller, f"{or_else}{PERCENTAGES}")
    return np.stack([1 - positive, positive], axis=1)


def _as_classes(names: Any, n_classes: int, caller: str) -> tuple[ClassName, ...] | None:
    """Return the names of the columns as plain Python values, or None."""
    if names is None:
        return None
    fix = "one different name a class, such as ['cat', 'dog']"
    rule = "a list of names in the order of the columns"
    if isinstance(names, str | set | frozenset):
        raise BadTypeError("classes", caller, rule, repr(names), fix)
    listed = as_list(names, "classes", caller, rule, fix)
    plain = tuple(name.item() if isinstance(name, np.generic) else name for name in listed)
    for name in plain:
        if not isinstance(name, str | int | float | bool):
            raise BadTypeError("classes", caller, "text or numbers", type(name).__name__, fix)
    if len(plain) != n_classes:
        rule = f"{n_classes} names, one a class"
        raise BadValueError("classes", caller, rule, f"{len(plain)}", fix)
    if len(set(plain)) != len(plain):
        twice = next(name for name in plain if plain.count(name) > 1)
        raise BadValueError("classes", caller, "all different", f"{twice!r} twice", fix)
    return plain


def _as_certainty(value: Any, shape: tuple[int, ...]) -> FloatArray | None:
    """Return what each pass says of its own trust, passes x rows, or None."""
    if value is None:
        return None
    certainty = as_finite(as_floats(value, "certainty", "Members"), "certainty", "Members")
    if certainty.shape != shape:
        raise BadValueError(
            "certainty",
            "Members",
            f"passes x rows, {shape}",
            f"shape {certainty.shape}",
            "one number a pass and row",
        )
    return freeze(certainty)


def _as_levels(value: Any, n_columns: int) -> FloatArray:
    """Return the levels of quantiles: one a column, rising between 0 and 1."""
    levels = as_finite(as_floats(value, "levels", "Quantiles"), "levels", "Quantiles")
    require_dimensions(levels, (1,), "levels", "Quantiles", "one number a column")
    is_rising = (levels > np.append(0.0, levels[:-1])) & (levels < 1)
    if not is_rising.all():
        rule, fix = "rising between 0 and 1", "levels such as [0.1, 0.5, 0.9]"
        raise BadValueError("levels", "Quantiles", rule, f"{levels.tolist()}", fix)
    if levels.size != n_columns:
        rule, fix = f"as many as the columns ({n_columns})", "one level a column"
        raise BadValueError("levels", "Quantiles", rule, f"{levels.size}", fix)
    return levels


def _require_passes(n_passes: int, argument: str, caller: str) -> None:
    """Raise unless there is a pass."""
    if n_passes < 1:
        raise BadValueError(argument, caller, "1 pass or more", "none", "at least one pass")


def _softmax(logits: FloatArray) -> FloatArray:
    """Return the probabilities that logits stand for."""
    with np.errstate(over="ignore"):  # a distance beyond the largest float is a share of 0
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _set_field(outputs: BaseOutputs, name: str, value: Any) -> None:
    """Fill a field of a frozen wrapper while it is being made."""
    object.__setattr__(outputs, name, value)


Kind = TypeVar("Kind", bound=BaseOutputs)


def unchecked(kind: type[Kind], fields: dict[str, Any]) -> Kind:
    """Make a wrapper of parts that were checked before."""
    outputs = object.__new__(kind)
    for name, value in fields.items():
        _set_field(outputs, name, freeze(value) if isinstance(value, np.ndarray) else value)
    return outputs

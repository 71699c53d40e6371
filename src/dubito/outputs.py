"""What a model put out, declared and never guessed.

A plain array is probabilities, everywhere. Whatever else it is, its wrapper says so. Each wrapper
checks its array once and keeps float32 or float64 as it came, as a read-only view of the caller's
array.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar, final

import numpy as np

from dubito.arrays import (
    FloatArray,
    as_array,
    as_distributions,
    as_finite,
    as_floats,
    as_shares,
    freeze,
    require_dimensions,
    require_everywhere,
    require_rows,
)
from dubito.errors import BadTypeError, BadValueError

__all__ = [
    "AbstractClassOutputs",
    "AbstractOutputs",
    "ClassName",
    "Logits",
    "Members",
    "Normal",
    "Probabilities",
    "Quantiles",
    "Samples",
    "TopLabel",
    "as_outputs",
]

ClassName = str | int | float | bool


class AbstractOutputs(ABC):
    """Outputs of a model, one entry a row."""

    __slots__ = ()

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """How many rows there are."""

    @abstractmethod
    def take(self, rows: slice) -> Self:
        """Return the outputs of a range of rows, as a view that is not checked again."""

    def __len__(self) -> int:
        return self.n_rows


class AbstractClassOutputs(AbstractOutputs):
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
class Logits(AbstractClassOutputs):
    """Unnormalised log probabilities, rows x classes; 1-D is the log odds of the positive class.

    >>> Logits([[2.0, 0.0, -1.0]], classes=["cat", "dog", "fox"]).n_classes
    3
    """

    array: FloatArray
    classes: tuple[ClassName, ...] | None = None

    def __post_init__(self) -> None:
        array = as_finite(as_matrix(self.array, "Logits"), "array", "Logits")
        if array.shape[1] == 1:
            array = np.concatenate([np.zeros_like(array), array], axis=1)
        set_field(self, "array", freeze(array))
        set_field(self, "classes", as_classes(self.classes, self.n_classes, "Logits"))

    def take(self, rows: slice) -> Logits:
        return unchecked(Logits, array=self.array[rows], classes=self.classes)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Probabilities(AbstractClassOutputs):
    """Probabilities, rows x classes; one column or 1-D is the positive class of two.

    Rows off 1 by more than 1e-3 are refused, closer ones are renormalised.

    >>> Probabilities([0.75, 0.5]).array.tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    """

    array: FloatArray
    classes: tuple[ClassName, ...] | None = None

    def __post_init__(self) -> None:
        array = with_negative_class(as_matrix(self.array, "Probabilities"))
        set_field(self, "array", freeze(as_distributions(array, "array", "Probabilities")))
        set_field(self, "classes", as_classes(self.classes, self.n_classes, "Probabilities"))

    def take(self, rows: slice) -> Probabilities:
        return unchecked(Probabilities, array=self.array[rows], classes=self.classes)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Members(AbstractClassOutputs):
    """Probabilities of several passes or models over the same rows, passes x rows x classes.

    `certainty` (passes x rows) is what a pass says of its own trust, where it says so.

    >>> Members([[[0.9, 0.1]], [[0.5, 0.5]]]).mean.array.tolist()
    [[0.7, 0.3]]
    """

    array: FloatArray
    classes: tuple[ClassName, ...] | None = None
    certainty: FloatArray | None = None

    def __post_init__(self) -> None:
        array = as_floats(self.array, "array", "Members")
        if array.ndim != 3:
            raise BadValueError(
                "array",
                "Members",
                "3-D, passes x rows x classes",
                f"shape {array.shape}",
                "Members.of([pass_1, pass_2, ...])",
            )
        if array.shape[0] < 1:
            raise BadValueError(
                "array", "Members", "of 1 pass or more", "none", "at least one pass"
            )
        flat = with_negative_class(as_matrix(array.reshape(-1, array.shape[2]), "Members"))
        flat = as_distributions(flat, "array", "Members")
        set_field(self, "array", freeze(flat.reshape(*array.shape[:2], flat.shape[1])))
        set_field(self, "classes", as_classes(self.classes, self.n_classes, "Members"))
        if self.certainty is not None:
            set_field(self, "certainty", as_certainty(self.certainty, array.shape[:2]))

    @classmethod
    def of(cls, passes: Sequence[Any], *, certainty: Any = None) -> Members:
        """Stack the outputs of several passes: `Logits`, `Probabilities` or plain probabilities."""
        if not len(passes):
            raise BadValueError(
                "passes", "Members.of", "1 pass or more", "none", "a list of outputs"
            )
        wrapped = [as_pass(one, f"passes[{i}]") for i, one in enumerate(passes)]
        first = wrapped[0]
        for i, one in enumerate(wrapped):
            if one.array.shape != first.array.shape or one.classes != first.classes:
                raise BadValueError(
                    f"passes[{i}]",
                    "Members.of",
                    "of the same rows and classes as the first pass",
                    f"shape {one.array.shape}, classes {one.classes}",
                    "passes over the same rows, columns in the same order",
                )
        stack = np.stack([softmax(o.array) if isinstance(o, Logits) else o.array for o in wrapped])
        return cls(stack, first.classes, certainty)

    @property
    def n_passes(self) -> int:
        """How many passes there are."""
        return int(self.array.shape[0])

    @property
    def mean(self) -> Probabilities:
        """The members' mean probability: what they say together."""
        return Probabilities(self.array.mean(axis=0), self.classes)

    def take(self, rows: slice) -> Members:
        certainty = None if self.certainty is None else self.certainty[:, rows]
        return unchecked(
            Members, array=self.array[:, rows], classes=self.classes, certainty=certainty
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class TopLabel(AbstractOutputs):
    """The confidence in the predicted class and whether it was right: all that some files hold.

    `correct` holds booleans, or 0 and 1, or a share between them. Metrics take `y_true=None` with
    it.

    >>> TopLabel([0.9, 0.6], [True, False]).n_rows
    2
    """

    confidence: FloatArray
    correct: FloatArray

    def __post_init__(self) -> None:
        confidence = as_shares(self.confidence, "confidence", "TopLabel")
        correct = as_array(self.correct, "correct", "TopLabel")
        if correct.dtype.kind == "b":
            correct = correct.astype(np.float64)
        correct = as_shares(correct, "correct", "TopLabel")
        require_rows(correct, confidence.shape[0], "correct", "TopLabel")
        set_field(self, "confidence", freeze(confidence.astype(np.float64)))
        set_field(self, "correct", freeze(correct.astype(np.float64)))

    @property
    def n_rows(self) -> int:
        return int(self.confidence.shape[0])

    def take(self, rows: slice) -> TopLabel:
        return unchecked(TopLabel, confidence=self.confidence[rows], correct=self.correct[rows])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Normal(AbstractOutputs):
    """A normal distribution a row: mean and standard deviation, rows or rows x targets.

    >>> Normal(mean=[1.0, 2.0], std=[0.5, 0.1]).n_rows
    2
    """

    mean: FloatArray
    std: FloatArray

    def __post_init__(self) -> None:
        mean = as_finite(as_floats(self.mean, "mean", "Normal"), "mean", "Normal")
        std = as_finite(as_floats(self.std, "std", "Normal"), "std", "Normal")
        require_dimensions(mean, (1, 2), "mean", "Normal", "rows, or rows x targets")
        if std.shape != mean.shape:
            raise BadValueError(
                "std",
                "Normal",
                f"of the mean's shape {mean.shape}",
                f"shape {std.shape}",
                "np.broadcast_to(std, mean.shape)",
            )
        require_everywhere(std > 0, std, "std", "Normal", "above 0", "a floor, say 1e-6")
        set_field(self, "mean", freeze(mean))
        set_field(self, "std", freeze(std))

    @property
    def n_rows(self) -> int:
        return int(self.mean.shape[0])

    def take(self, rows: slice) -> Normal:
        return unchecked(Normal, mean=self.mean[rows], std=self.std[rows])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Samples(AbstractOutputs):
    """Draws from each row's distribution, rows x draws or rows x draws x targets.

    >>> Samples([[1.0, 1.2, 0.9], [3.0, 2.5, 2.8]]).n_rows
    2
    """

    array: FloatArray

    def __post_init__(self) -> None:
        array = as_finite(as_floats(self.array, "array", "Samples"), "array", "Samples")
        require_dimensions(array, (2, 3), "array", "Samples", "rows x draws (x targets)")
        set_field(self, "array", freeze(array))

    @property
    def n_rows(self) -> int:
        return int(self.array.shape[0])

    def take(self, rows: slice) -> Samples:
        return unchecked(Samples, array=self.array[rows])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Quantiles(AbstractOutputs):
    """Quantiles of each row's distribution, rows x levels or rows x levels x targets.

    >>> Quantiles([[1.0, 2.0, 4.0]], levels=[0.1, 0.5, 0.9]).n_rows
    1
    """

    array: FloatArray
    levels: FloatArray

    def __post_init__(self) -> None:
        array = as_finite(as_floats(self.array, "array", "Quantiles"), "array", "Quantiles")
        require_dimensions(array, (2, 3), "array", "Quantiles", "rows x levels (x targets)")
        levels = as_finite(as_floats(self.levels, "levels", "Quantiles"), "levels", "Quantiles")
        fix = "levels such as [0.1, 0.5, 0.9]"
        require_dimensions(levels, (1,), "levels", "Quantiles", "a list")
        is_rising = np.diff(levels, prepend=0.0) > 0
        require_everywhere(
            is_rising & (levels < 1), levels, "levels", "Quantiles", "rising between 0 and 1", fix
        )
        if array.shape[1] != levels.size:
            raise BadValueError(
                "array",
                "Quantiles",
                f"as wide as levels ({levels.size})",
                f"{array.shape[1]} columns",
                fix,
            )
        is_sorted = np.diff(array, axis=1) >= 0
        require_everywhere(
            is_sorted,
            array[:, 1:],
            "array",
            "Quantiles",
            "non-decreasing",
            "np.sort(array, axis=1)",
        )
        set_field(self, "array", freeze(array))
        set_field(self, "levels", freeze(levels))

    @property
    def n_rows(self) -> int:
        return int(self.array.shape[0])

    def take(self, rows: slice) -> Quantiles:
        return unchecked(Quantiles, array=self.array[rows], levels=self.levels)


def as_outputs(outputs: Any, argument: str, caller: str) -> AbstractOutputs:
    """Return wrapped outputs as they are, and a plain array as probabilities."""
    if isinstance(outputs, AbstractOutputs):
        return outputs
    array = as_floats(outputs, argument, caller)
    if array.ndim > 2:
        raise BadValueError(
            argument,
            caller,
            "rows x classes",
            f"shape {array.shape}",
            "Members(array) for passes x rows x classes",
        )
    return Probabilities(array)


def as_pass(outputs: Any, argument: str) -> Logits | Probabilities:
    """Return the outputs of one pass of several."""
    wrapped = as_outputs(outputs, argument, "Members.of")
    if not isinstance(wrapped, Logits | Probabilities):
        rule, fix = "Logits, Probabilities or an array", "one matrix a pass"
        raise BadTypeError(argument, "Members.of", rule, type(wrapped).__name__, fix)
    return wrapped


def as_matrix(value: Any, caller: str) -> FloatArray:
    """Return rows x columns of floats, not yet checked for what they mean."""
    array = as_floats(value, "array", caller)
    array = array[:, np.newaxis] if array.ndim == 1 else array
    require_dimensions(array, (2,), "array", caller, "rows x classes")
    return array


def with_negative_class(probabilities: FloatArray) -> FloatArray:
    """Return both columns where only the positive class came; it must lie between 0 and 1."""
    if probabilities.shape[1] > 1:
        return probabilities
    positive = as_shares(probabilities[:, 0], "array", "Probabilities")
    return np.stack([1 - positive, positive], axis=1)


def as_classes(names: Any, n_classes: int, caller: str) -> tuple[ClassName, ...] | None:
    """Return the names of the columns as plain Python values, or None."""
    if names is None:
        return None
    fix = "one different name a column, such as ['cat', 'dog']"
    if isinstance(names, str):
        raise BadTypeError("classes", caller, "a list of names", repr(names), fix)
    plain = tuple(name.item() if isinstance(name, np.generic) else name for name in names)
    for name in plain:
        if not isinstance(name, str | int | float | bool):
            raise BadTypeError("classes", caller, "text or numbers", type(name).__name__, fix)
    if len(plain) != n_classes:
        rule = f"as many as the columns ({n_classes})"
        raise BadValueError("classes", caller, rule, f"{len(plain)} names", fix)
    if len(set(plain)) != len(plain):
        twice = next(name for name in plain if plain.count(name) > 1)
        raise BadValueError("classes", caller, "all different", f"{twice!r} twice", fix)
    return plain


def as_certainty(value: Any, shape: tuple[int, ...]) -> FloatArray:
    """Return what each pass says of its own trust, passes x rows."""
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


def softmax(logits: FloatArray) -> FloatArray:
    """Return the probabilities that logits stand for."""
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def set_field(outputs: AbstractOutputs, name: str, value: Any) -> None:
    """Fill a field of a frozen wrapper while it is being made."""
    object.__setattr__(outputs, name, value)


Kind = TypeVar("Kind", bound=AbstractOutputs)


def unchecked(kind: type[Kind], **fields: Any) -> Kind:
    """Make a wrapper of parts that were checked before."""
    outputs = object.__new__(kind)
    for name, value in fields.items():
        set_field(outputs, name, value)
    return outputs

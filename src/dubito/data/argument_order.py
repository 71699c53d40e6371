"""Labels and outputs that were passed in the wrong order.

Metrics take `(y_true, outputs)` and estimators `(outputs, y)`, as in scikit-learn, so that the two
are easily exchanged; and 0 and 1 are valid probabilities, so that nothing else would notice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import as_array
from dubito.data.labels import MIN_SUSPECT, BaseLabels, is_absent
from dubito.errors import BadTypeError, BadValueError, DubitoError
from dubito.outputs import BaseClassOutputs, BaseOutputs, MultiLabel, TopLabel, as_outputs

Outputs = TypeVar("Outputs", bound=BaseOutputs)


def as_any_outputs(outputs: Any, caller: str) -> BaseOutputs:
    """Return outputs of any kind unchanged, and a plain array as probabilities."""
    return as_outputs(outputs, "outputs", caller)


def convert_in_order(
    y: Any,
    outputs: Any,
    convert: Callable[[Any, str], Outputs],
    caller: str,
    argument: str = "y_true",
    outputs_argument: str = "outputs",
) -> Outputs:
    """Return converted outputs, or raise if labels and outputs are certainly exchanged.

    Declared outputs are never doubted, nor are hard probabilities (all 0 or 1) beside labels of one
    class per row or one-hot labels. Integers, booleans or text beside a matrix of fractions are
    swapped: wrap hard probabilities in `Probabilities` to compare them with soft labels.

    Parameters
    ----------
    y : any
        What was passed as labels.
    outputs : any
        What was passed as outputs.
    convert : callable
        Takes the outputs and the caller, and returns declared outputs or raises.
    caller : str
        The public function or class that was called.
    argument, outputs_argument : str
        Its names for labels and outputs. With `y_true` labels come first, otherwise outputs.
    """
    require_order(y, outputs, caller, argument, outputs_argument)
    if y is None or isinstance(outputs, BaseOutputs):
        return convert(outputs, caller)
    names = (caller, argument, outputs_argument)
    try:
        wrapped = convert(outputs, caller)
    except BadValueError:
        _require_array_order(y, outputs, *names)
        raise
    except BadTypeError:
        if _are_no_numbers(_read(outputs)):
            _require_array_order(y, outputs, *names)
        raise
    if isinstance(wrapped, BaseClassOutputs):
        _require_array_order(y, outputs, *names)
    if isinstance(wrapped, MultiLabel) and are_swapped_labels(_read(y), _read(outputs)):
        raise _swapped(*names, "probabilities", wrapped.array.shape)
    return wrapped


def require_order(
    y: Any, outputs: Any, caller: str, argument: str = "y_true", outputs_argument: str = "outputs"
) -> None:
    """Raise if declared outputs were passed as labels, or validated labels as outputs.

    Parameters
    ----------
    y, outputs : any
        What was passed as labels and as outputs.
    caller : str
        The public function or class that was called.
    argument, outputs_argument : str
        Its names for them. With `y_true` labels come first, otherwise outputs.
    """
    if y is None or outputs is None or isinstance(outputs, BaseOutputs):
        return
    if isinstance(y, BaseOutputs) or isinstance(outputs, BaseLabels):
        fix = _remedy(caller, argument, outputs_argument)
        if isinstance(y, TopLabel):
            fix = "Leave the labels out: the TopLabel already holds `correct`"
        kinds = type(y).__name__, type(outputs).__name__
        held = f"`{argument}` is {kinds[0]} and `{outputs_argument}` is {kinds[1]}"
        raise BadTypeError("", caller, "got its arguments swapped:", held, fix)


def _require_array_order(
    y: Any, outputs: Any, caller: str, argument: str, outputs_argument: str
) -> None:
    """Raise if arrays are certainly exchanged, known to be of a classifier or to be invalid."""
    found = _swapped_outputs(y, outputs)
    if found is not None:
        what = "probabilities" if _are_fractions(found) else "numbers"
        raise _swapped(caller, argument, outputs_argument, what, found.shape)


def _swapped(
    caller: str, argument: str, outputs_argument: str, what: str, shape: tuple[int, ...]
) -> BadValueError:
    """Return the error for arrays that were exchanged."""
    size = " x ".join(map(str, shape))
    held = f"`{argument}` holds {what} ({size}) and `{outputs_argument}` holds labels"
    fix = _remedy(caller, argument, outputs_argument)
    return BadValueError("", caller, "got its arguments swapped:", held, fix)


def _remedy(caller: str, argument: str, outputs_argument: str) -> str:
    """Return the right order of the arguments.

    >>> _remedy("audit", "y_true", "outputs")
    'The order is audit(y_true, outputs)'
    >>> _remedy("PlattScaling", "y", "outputs")
    'The order is PlattScaling.fit(outputs, y)'
    """
    if argument not in ("y", "y_true"):
        return f"Exchange `{argument}` and `{outputs_argument}`"
    method = ""
    if caller[:1].isupper() and "." not in caller:
        method = ".of" if caller == "Batch" else ".fit"
    names = [outputs_argument.partition("[")[0], argument]
    if argument == "y_true":
        names.reverse()
    return f"The order is {caller}{method}({', '.join(names)})"


def _swapped_outputs(y: Any, outputs: Any) -> NDArray[Any] | None:
    """Return what was passed as labels if it holds outputs, and the outputs hold labels."""
    second = _read(outputs)
    if second is None or not _is_one_column(second) or not second.size:
        return None
    is_float = second.dtype.kind == "f"
    if not (is_float or _are_discrete(second)):
        return None
    first = _read(y)
    if first is None or first.dtype.kind != "f" or first.ndim not in (1, 2, 3):
        return None
    is_soft = _is_soft(first)
    if _is_one_column(first):
        is_likely = _are_fractions(first) and (_are_no_numbers(second) or bool((second <= 1).all()))
        return first if is_likely and is_soft.any() and not is_float else None
    if is_float:  # labels with gaps, or of a binary cross-entropy; a few may be so by chance
        is_hard = np.isnan(second) | (second == np.floor(second))
        is_many = is_soft.size >= MIN_SUSPECT and is_soft.sum() > is_soft.size / 2
        return first if is_many and is_hard.all() else None
    return first if is_soft.any() or _are_no_numbers(second) else None


def are_swapped_labels(y: NDArray[Any] | None, outputs: NDArray[Any] | None) -> bool:
    """Whether integers or booleans are the outputs, and fractions most of the labels."""
    if y is None or outputs is None or y.dtype.kind != "f" or y.shape != outputs.shape:
        return False
    is_known = np.isfinite(y)
    is_soft = is_known & (y != np.floor(y))
    return outputs.dtype.kind in "biu" and bool(is_soft.sum() > is_known.sum() / 2)


def _are_no_numbers(array: NDArray[Any] | None) -> TypeGuard[NDArray[Any]]:
    """Whether entries are booleans, text or objects, which no outputs are."""
    return array is not None and array.dtype.kind in "bUO"


def _read(values: Any) -> NDArray[Any] | None:
    """Return an array; None of what cannot be one, which is reported where it is validated."""
    try:
        return as_array(values, "", "")
    except DubitoError:
        return None


def _is_one_column(array: NDArray[Any]) -> bool:
    """Whether an array has one dimension, or one column."""
    return array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1)


def _are_discrete(array: NDArray[Any]) -> bool:
    """Whether entries are integers, booleans or text, possibly with gaps."""
    if array.dtype.kind != "O":
        return array.dtype.kind in "biuU"
    kinds = (str, int, np.integer, np.bool_)
    return all(isinstance(one, kinds) or is_absent(one) for one in array.ravel().tolist())


def _is_soft(array: NDArray[Any]) -> NDArray[Any]:
    """Return which rows hold a number that is not whole."""
    is_soft = np.isfinite(array) & (array != np.floor(array))
    rows = is_soft.reshape(len(is_soft), -1)
    return np.asarray(rows.any(axis=1))


def _are_fractions(array: NDArray[Any]) -> bool:
    """Whether all numbers are between 0 and 1."""
    return bool(((array >= 0) & (array <= 1)).all())

"""Validation: from anything array-like to a checked NumPy array."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dubito.errors import BadTypeError, BadValueError
from dubito.kernels.blocks import map_in_order, row_blocks, run_in_order
from dubito.kernels.row_statistics import FAULTLESS, first_not_finite, probability_faults

FloatArray = NDArray[np.floating[Any]]
RandomState = int | np.random.RandomState | None
IntArray = NDArray[np.integer[Any]]
BoolArray = NDArray[np.bool_]

KINDS = {"b": "booleans", "c": "complex numbers", "U": "text", "S": "bytes", "O": "objects"}

FIX = "Drop invalid rows, or fix what produced them"
PERCENTAGES = "Divide percentages by 100"
USE_CLIP = "Apply `.clip(0)` if rounding made it negative"
USE_FRACTIONS = "Use Probabilities(array / 100) for percentages"

MAX_COPIED_BYTES = 1 << 22  # copying more would take longer than a metric of it

MAX_SUMS = 1000  # rows whose sums decide what a wrong sum is due to
SUM_TOLERANCE = 1e-3  # rows further from 1 are refused, others are renormalized
ROUNDING = {"float32": 1e-6, "float64": 1e-12}  # sums this close to 1 are left unchanged


class ArrayResult:
    """A dataclass of arrays that shows their shape and means instead of their entries."""

    __slots__ = ()

    def __repr__(self) -> str:
        names: tuple[str, ...] = self.__slots__
        fields = {name: getattr(self, name) for name in names}
        arrays = {name: one for name, one in fields.items() if isinstance(one, np.ndarray)}
        parts = [f"shape {next(iter(arrays.values())).shape}"]
        parts += [
            f"mean {name} {array.mean():.4g}"
            for name, array in arrays.items()
            if array.dtype.kind in "bf" and array.size
        ]
        return f"{type(self).__name__}({', '.join(parts)})"


def as_array(value: Any, argument: str, caller: str) -> NDArray[Any]:
    """Return `value` as a NumPy array, without copying where that can be avoided."""
    try:
        array = _as_numpy(value)
    except Exception as error:  # torch and others raise types of their own
        _require_even(value, argument, caller)
        reason = str(error).partition("\n")[0].rstrip(".")
        rule, got = "must be readable as a NumPy array", f"{type(value).__name__} ({reason})"
        fix = "Pass rows of equal length, or `.detach().cpu().numpy()` of a tensor"
        raise BadTypeError(argument, caller, rule, got, fix) from error
    if array.ndim == 0:
        rule = "must be an array with one entry per row"
        got = "None" if value is None else f"a single {type(value).__name__}"
        fix = "Pass a list or a NumPy array, or `.toarray()` of a sparse matrix"
        raise BadTypeError(argument, caller, rule, got, fix)
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        row = int(np.argwhere(np.ma.getmaskarray(value))[0][0])
        rule, fix = "must not have masked entries", "Drop the masked rows"
        raise BadValueError(argument, caller, rule, "one", fix, row)
    return array


def _require_even(value: Any, argument: str, caller: str) -> None:
    """Raise for nested lists whose rows have different lengths."""
    lists = value if isinstance(value, list | tuple) else ()
    if not all(isinstance(row, list | tuple) for row in lists):
        return
    row = next((k for k, one in enumerate(lists) if len(one) != len(lists[0])), None)
    if row is not None:
        rule = "has rows of different lengths:"
        got = f"row 0 has {len(value[0])}, row {row} has {len(value[row])}"
        raise BadValueError(argument, caller, rule, got, "Pass rows of equal length")


def _as_numpy(value: Any) -> NDArray[Any]:
    """Return `value` as a NumPy array; tensors on any device, with or without gradients."""
    try:
        array = np.asarray(value)
    except Exception:
        if not hasattr(value, "__dlpack__"):
            raise
    else:
        if array.ndim or not hasattr(value, "__dlpack__"):
            return array
    # Where NumPy cannot read a tensor itself: one that records gradients, or is on a GPU.
    for method in ("detach", "cpu", "resolve_conj", "resolve_neg"):
        value = getattr(value, method, lambda value=value: value)()
    if str(getattr(value, "dtype", "")).endswith("bfloat16"):  # which NumPy does not know
        value = value.float()
    return np.from_dlpack(value)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """What an array was read from, to return results in the same kind.

    Attributes
    ----------
    library : module or None
        The array API namespace, or the library that reads DLPack; None for a data frame.
    device : Any
        Where the array was.
    index : Any
        The index of a pandas data frame.
    columns : tuple of str or None
        The columns of a data frame.
    """

    library: Any = None
    device: Any = None
    index: Any = None
    columns: tuple[str, ...] | None = None

    @classmethod
    def of(cls, value: Any) -> "Origin | None":
        """Return where an array or outputs came from; None for NumPy arrays and lists."""
        if isinstance(value, np.ndarray | list | tuple) or value is None:
            return None
        known = getattr(value, "origin", None)
        if isinstance(known, Origin):
            return known
        columns = getattr(value, "columns", None)
        if columns is not None and hasattr(value, "shape"):
            return cls(index=getattr(value, "index", None), columns=tuple(map(str, columns)))
        if hasattr(value, "__array_namespace__"):
            return cls(value.__array_namespace__(), getattr(value, "device", None))
        if hasattr(value, "__dlpack__"):
            library = sys.modules.get(type(value).__module__.partition(".")[0])
            if hasattr(library, "from_dlpack"):
                return cls(library, getattr(value, "device", None))
        return None

    def restored(self, array: NDArray[Any]) -> Any:
        """Return a NumPy array in the library and on the device of what it was computed from."""
        if self.library is None:
            return array
        if hasattr(self.library, "Tensor"):  # PyTorch
            return self.library.from_dlpack(array).to(self.device)
        return self.library.asarray(array, device=self.device)


def restored(array: NDArray[Any], given: Any) -> Any:
    """Return results as the kind of array that they were computed from: a tensor for a tensor.

    Data frames and lists give NumPy arrays.
    """
    origin = Origin.of(given)
    return array if origin is None else origin.restored(array)


def column_names_of(table: Any) -> tuple[str, ...] | None:
    """Return the names of the columns of a dict, data frame or structured array, or None."""
    if isinstance(table, Mapping):
        return tuple(map(str, table))
    columns = getattr(table, "column_names", getattr(table, "columns", None))
    if columns is None:
        columns = getattr(getattr(table, "dtype", None), "names", None)
    return None if columns is None else tuple(map(str, columns))


def as_frame(array: NDArray[Any], library: str, columns: Iterable[str], index: Any = None) -> Any:
    """Return a matrix as a data frame of pandas (with an index, if given) or polars."""
    if library == "polars":
        import polars

        return polars.DataFrame(array, schema=list(columns), orient="row")
    import pandas

    return pandas.DataFrame(array, index=index, columns=list(columns))


def as_floats(value: Any, argument: str, caller: str) -> FloatArray:
    """Return `value` as float32 or float64: float16 becomes float32, integers float64."""
    array = as_array(value, argument, caller)
    if array.dtype.kind not in "fiu":
        rule, fix = "must be an array of real numbers", "Convert it with `.astype(float)`"
        got = f"{KINDS.get(array.dtype.kind, 'another type')} (dtype {array.dtype})"
        raise BadTypeError(argument, caller, rule, got, fix)
    if array.dtype in (np.float32, np.float64):
        return array
    is_small = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    with np.errstate(over="ignore"):  # overflow gives infinity, which is reported
        return array.astype(np.float32 if is_small else np.float64)


def as_numbers(
    value: Any,
    argument: str,
    caller: str,
    n_rows: int | None = None,
    like: str = "the outputs",
    shape: str = "one number per row",
    *,
    dimensions: tuple[int, ...] = (1,),
    fix: str | None = None,
) -> FloatArray:
    """Return an array of finite numbers, flat by default, of so many rows if `n_rows` is given.

    `shape` describes the dimensions that are allowed, such as "rows x classes".
    """
    array = as_finite(as_floats(value, argument, caller), argument, caller)
    require_dimensions(array, dimensions, argument, caller, shape, fix)
    if n_rows is not None:
        require_rows(array, n_rows, argument, caller, like)
    return array


def as_list(value: Any, argument: str, caller: str, rule: str, fix: str) -> list[Any]:
    """Return the entries of an iterable as a list."""
    try:
        return list(value)
    except TypeError as error:
        raise BadTypeError(argument, caller, rule, type(value).__name__, fix) from error


def freeze(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view, which protects the caller's array from being changed."""
    view = array.view()
    view.flags.writeable = False
    return view


def dot(a: FloatArray, b: FloatArray) -> float:
    """Return the sum of products, without BLAS: its threads wait longer than a vector takes.

    >>> dot(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    11.0
    """
    return float((a * b).sum())


def own(array: NDArray[Any], given: Any, max_bytes: float = MAX_COPIED_BYTES) -> NDArray[Any]:
    """Return a read-only array that holds what `given` held when it was validated.

    It is a copy if the caller could still change it. An array above `max_bytes`, a read-only array
    and a memory map are shared instead, and take no further memory.

    >>> numbers = np.zeros(3)
    >>> np.shares_memory(own(numbers, numbers), numbers)
    False
    """
    is_new = isinstance(given, list | tuple) or not np.may_share_memory(array, _as_numpy(given))
    # A data frame may lend a read-only view of what it can still change.
    is_changeable = array.flags.writeable or not isinstance(given, np.ndarray)
    is_copied = is_changeable and not is_new and array.nbytes <= max_bytes
    return freeze(array.copy() if is_copied else array)


def contiguous(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only array in C order, as kernels expect it; copied only if necessary."""
    return freeze(np.ascontiguousarray(array))


def as_finite(array: FloatArray, argument: str, caller: str, fix: str = FIX) -> FloatArray:
    """Return `array`, or raise at its first NaN or infinity."""
    n_columns = array[0].size if array.shape[0] else 1

    def check(rows: slice) -> None:
        index = first_not_finite(contiguous(array[rows]).reshape(-1))
        if index != FAULTLESS:
            place = np.unravel_index(rows.start * n_columns + index, array.shape)
            raise _fault_at(place, array, argument, caller, "must be finite", fix)

    run_in_order(check, row_blocks(array.shape[0], n_columns))
    return array


def as_normalized(array: FloatArray, argument: str, caller: str) -> FloatArray:
    """Return rows of non-negative numbers divided by their sums."""
    as_finite(array, argument, caller)
    require_everywhere(array >= 0, array, argument, caller, "must be non-negative", FIX)
    sums: FloatArray = array.sum(axis=1, dtype=np.float64)
    rule = "must have rows with a positive sum"
    require_everywhere(sums > 0, sums, argument, caller, rule, "Drop these rows")
    return np.divide(array, sums[:, np.newaxis].astype(array.dtype))


def as_distributions(
    array: FloatArray, argument: str, caller: str, alternative: str = ""
) -> FloatArray:
    """Return rows that sum to 1: unchanged if they do up to rounding, renormalized if nearly.

    `alternative` is a remedy that errors name first, such as "Use Logits(...) for logits".
    """

    def furthest(rows: slice) -> float:
        row, distance = probability_faults(contiguous(array[rows]), SUM_TOLERANCE)
        if row != FAULTLESS:
            raise _fault_of(array, rows.start + row, argument, caller, alternative)
        return float(distance)

    distances = map_in_order(furthest, row_blocks(*array.shape))
    if max(distances, default=0.0) <= ROUNDING[array.dtype.name]:
        return array
    # Only rows that need it: what is done to a row must not depend on its neighbors.
    sums: FloatArray = array.sum(axis=1, keepdims=True, dtype=np.float64)
    sums = np.where(np.abs(sums - 1) <= ROUNDING[array.dtype.name], 1.0, sums)
    return np.divide(array, sums.astype(array.dtype))


def _fault_of(
    array: FloatArray, row: int, argument: str, caller: str, alternative: str
) -> BadValueError:
    """Return the error for a row that is not a distribution."""
    probabilities = array[row]
    clip = either(alternative, USE_CLIP)
    checks = [
        (np.isfinite(probabilities), "must be finite", FIX),
        (probabilities >= 0, "must be non-negative", clip),
    ]
    for is_fine, rule, fix in checks:
        if not is_fine.all():
            place = row, int(np.argmin(is_fine))
            return _fault_at(place, array, argument, caller, rule, fix)
    total = sum(probabilities.tolist())
    if len(array) == 1 and not alternative:  # a single distribution
        fix = "Divide it by its sum"
        return BadValueError(argument, caller, "must sum to 1", f"{total:.6g}", fix)
    rule, got = "must have rows that sum to 1", f"a sum of {total:.6g}"
    # Rounding changes all sums a little; sigmoids happen to sum to about 1 in some rows.
    is_near = bool((np.abs(array[:MAX_SUMS].sum(axis=1) - 1) < 0.101).all())
    fix = _sum_remedy(total, alternative, is_near, is_within=bool(probabilities.max() <= 1))
    return BadValueError(argument, caller, rule, got, fix, row)


def _sum_remedy(total: float, alternative: str, is_near: bool, *, is_within: bool) -> str:
    """Return what to do about a row of probabilities whose sum is not 1."""
    if not alternative:
        return "Divide each row by its sum"
    if 0.9 <= total <= 1.1 and is_near:
        return "Use Probabilities(array, normalize=True) if rounding changed the sums"
    if 90 <= total <= 110:
        return USE_FRACTIONS
    multi_label = "Use MultiLabel(array) if several labels may apply to a row (multilabel)"
    if is_within:  # no logits
        alternative = "Use Probabilities(array, normalize=True) to divide each row by its sum"
    return either(alternative, multi_label)


def either(alternative: str, fix: str) -> str:
    """Return two remedies as one sentence, or the second where the first is empty.

    >>> either("Use Logits(...) for logits", "Divide each row by its sum")
    'Use Logits(...) for logits, or divide each row by its sum'
    """
    return f"{alternative}, or {fix[0].lower()}{fix[1:]}" if alternative else fix


def _fault_at(
    place: Iterable[Any], array: NDArray[Any], argument: str, caller: str, rule: str, fix: str
) -> BadValueError:
    """Return the error for one entry of an array."""
    row, *columns = indices = tuple(int(index) for index in place)
    column = columns[0] if len(columns) == 1 else str(tuple(columns)) if columns else None
    return BadValueError(argument, caller, rule, f"{array[indices]}", fix, row, column)


def as_fractions(
    value: Any, argument: str, caller: str, fix: str = PERCENTAGES, other_range: str = ""
) -> FloatArray:
    """Return numbers between 0 and 1; `other_range` is the remedy for what is no percentage."""
    array = as_numbers(value, argument, caller)
    is_fraction = (array >= 0) & (array <= 1)
    if other_range and ((array < 0) | (array > 100)).any():
        fix = other_range
    require_everywhere(is_fraction, array, argument, caller, "must be between 0 and 1", fix)
    return array


def as_fraction(
    value: Any, argument: str, caller: str, *, is_open: bool = False, fix: str = PERCENTAGES
) -> float:
    """Return a number between 0 and 1, exclusive of both if `is_open`."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    is_fine = is_number and (0 < value < 1 if is_open else 0 <= value <= 1)
    if not is_fine:
        rule = f"must be a number {'strictly ' * is_open}between 0 and 1"
        remedy = PERCENTAGES if is_number and 1 < value <= 100 else fix
        raise BadValueError(argument, caller, rule, repr(value), remedy)
    return float(value)


def as_number(
    value: Any,
    argument: str,
    caller: str,
    low: float = -np.inf,
    most: float = np.inf,
    *,
    fix: str,
    is_open: bool = False,
) -> float:
    """Return a finite number of at least `low`, or above it if `is_open`, and of at most `most`."""
    plain = value.item() if isinstance(value, np.number) else value
    is_number = isinstance(plain, int | float) and not isinstance(plain, bool)
    is_within = is_number and low <= plain <= most and -np.inf < plain < np.inf
    if not is_within or (is_open and plain == low):
        bound = f" {'above' if is_open else 'of at least'} {low:g}" if low > -np.inf else ""
        bound += f" and at most {most:g}" if most < np.inf else ""
        rule = f"must be a finite number{bound}"
        if -np.inf < low == -most:
            rule = f"must be a number of at most {most:g} in absolute value"
        raise BadValueError(argument, caller, rule, repr(value), fix)
    return float(plain)


def as_count(
    value: Any,
    argument: str,
    caller: str,
    least: int = 1,
    most: int | None = None,
    *,
    example: int | None = None,
) -> int:
    """Return an integer of at least `least`, and at most `most` if there is such a bound."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (is_integer and least <= value and (most is None or value <= most)):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most:,}"
        fix = f"Use {argument}={least if example is None else example}"
        raise BadValueError(argument, caller, f"must be an integer {bounds}", repr(value), fix)
    return int(value)


def require_choice(value: Any, choices: tuple[str, ...], argument: str, caller: str) -> None:
    """Raise unless an option is one of its choices."""
    if not (isinstance(value, str) and value in choices):
        *others, last = map(repr, choices)
        rule, fix = f"must be {', '.join(others)} or {last}", f"Use {argument}={choices[0]!r}"
        raise BadValueError(argument, caller, rule, repr(value), fix)


def require_bool(value: Any, argument: str, caller: str) -> None:
    """Raise unless an option is True or False."""
    if not isinstance(value, bool | np.bool_):
        fix = f"Use {argument}=True"
        raise BadTypeError(argument, caller, "must be True or False", repr(value), fix)


def require_random_state(value: Any, caller: str) -> None:
    """Raise unless `value` is a `random_state` as scikit-learn takes it."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    is_seed = is_whole and 0 <= value < 2**32
    if not (value is None or is_seed or isinstance(value, np.random.RandomState)):
        rule = "must be None, an integer from 0 to 2**32 - 1 or a numpy RandomState"
        raise BadValueError("random_state", caller, rule, repr(value), "Pass random_state=0")


def draw_seed(random_state: Any, caller: str) -> int:
    """Return the seed that `random_state` stands for: an integer itself, otherwise a drawn one.

    >>> draw_seed(3, "f"), draw_seed(np.random.RandomState(0), "f")
    (3, 2357136044)
    """
    require_random_state(random_state, caller)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**32, dtype=np.uint32))
    entropy = np.random.SeedSequence().generate_state(1)[0]
    return int(entropy if random_state is None else random_state)


def require_rows(
    array: NDArray[Any],
    n_rows: int,
    argument: str,
    caller: str,
    like: str = "the outputs",
    fix: str = "Align both in the same row order",
) -> None:
    """Raise unless `array` has `n_rows` rows."""
    if array.shape[0] != n_rows:
        rule, got = f"must have length {n_rows}, like {like}", f"length {array.shape[0]}"
        raise BadValueError(argument, caller, rule, got, fix)


def require_dimensions(
    array: NDArray[Any],
    allowed: tuple[int, ...],
    argument: str,
    caller: str,
    shape: str,
    fix: str | None = None,
) -> None:
    """Raise unless `array` has one of the allowed numbers of dimensions and no empty axis.

    `shape` describes what is allowed, such as "rows x classes".
    """
    if array.ndim in allowed and 0 not in array.shape[1:]:
        return
    if 0 in array.shape[1:]:
        fix = "Provide at least one column"
    elif fix is None:
        is_flat = array.ndim < min(allowed)
        fix = f"Use `{'.reshape(-1, 1)' if is_flat else '.ravel()'}` for a single column"
    raise BadValueError(argument, caller, f"must be {shape}", f"shape {array.shape}", fix)


def require_everywhere(
    is_fine: BoolArray, array: NDArray[Any], argument: str, caller: str, rule: str, fix: str
) -> None:
    """Raise for the first entry that is not fine."""
    if not is_fine.all():
        raise _fault_at(np.argwhere(~is_fine)[0], array, argument, caller, rule, fix)

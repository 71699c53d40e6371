"""Numbers in requests and responses: predictive distributions, decided values, and true values.

Numbers are stored in double precision, as pairs of the single-precision numbers of other outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import FloatArray, as_floats
from dubito.decide.regression.estimates import minkowski_estimate
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.decide.regression.value_decisions import ACTIONS, REASONS, RegressionDecisions
from dubito.errors import BadTypeError, BadValueError
from dubito.formatting import quantity
from dubito.outputs import Normal, Quantiles, Samples
from dubito.serve.http_errors import INVALID, HTTPError, is_number, show_json

if TYPE_CHECKING:
    from dubito.serve.store import ReviewItem

Regression = Normal | Samples | Quantiles

MAX_VALUE = 1e100  # whose square is still a number
MAX_FLOAT64 = float(np.finfo(np.float64).max)
FIELDS = {"Normal": ("mean", "std"), "Quantiles": ("quantiles",), "Samples": ("samples",)}
MAX_SHOWN = 9  # numbers of an example


class StoredValues(NamedTuple):
    """Stored columns of decided rows: value and interval, calibrated median and mean."""

    value: FloatArray
    low: FloatArray
    high: FloatArray
    median: FloatArray
    mean: FloatArray

    @classmethod
    def of(cls, rows: NDArray[np.float32]) -> StoredValues:
        """Return the numbers of stored rows."""
        if not rows.size:
            return cls(*np.zeros((5, 0)))
        return cls(*_doubles(rows).T)

    def is_inside(self, y: FloatArray) -> FloatArray:
        """Return 1 where a true value is in its interval, else 0."""
        return ((self.low <= y) & (y <= self.high)).astype(np.float64)

    def below(self, y: FloatArray, end: FloatArray) -> FloatArray:
        """Return 1 where a true value is below a number, half on a tie, else 0."""
        return np.where(y == end, 0.5, (y < end).astype(np.float64))


def value_matrix(decided: RegressionDecisions) -> NDArray[np.float32]:
    """Return what is stored of decisions: see `StoredValues`."""
    calibrated = decided.calibrated
    columns = [decided.value, decided.low, decided.high]
    columns += [minkowski_estimate(calibrated, q) for q in (1, 2)]
    return _singles(np.column_stack(columns))


def _singles(array: FloatArray) -> NDArray[np.float32]:
    """Return doubles as pairs of singles, bit by bit.

    >>> _doubles(_singles(np.array([[0.1, 1e300]]))).tolist()
    [[0.1, 1e+300]]
    """
    return np.ascontiguousarray(array, "<f8").view("<f4")


def float_matrix(rows: Sequence[bytes]) -> NDArray[np.float32]:
    """Return rows of float32 bytes as a matrix."""
    whole = np.frombuffer(b"".join(rows), "<f4")
    return whole.reshape(len(rows), -1) if rows else whole.reshape(0, 0)


def _doubles(rows: NDArray[np.float32]) -> FloatArray:
    """Return pairs of singles as the doubles that they stand for."""
    return np.ascontiguousarray(rows, "<f4").view("<f8").astype(np.float64)


def sent_matrix(outputs: Regression) -> NDArray[np.float32]:
    """Return the numbers that were sent, as they are stored."""
    if isinstance(outputs, Normal):
        return _singles(np.column_stack([outputs.mean, outputs.std]))
    return _singles(outputs.array)


def outputs_of(rows: NDArray[np.float32], policy: RegressionPolicy) -> Regression:
    """Return stored numbers as outputs of the kind of a policy."""
    numbers = _doubles(rows)
    if policy.kind == "Normal":
        return Normal(*numbers.T)
    if policy.levels is None:
        return Samples(numbers)
    return Quantiles(numbers, policy.levels, policy.rearrange)


def read_outputs(fields: Any, policy: RegressionPolicy, *, rearrange: bool = False) -> Regression:
    """Return the predictive distributions of a request.

    Parameters
    ----------
    fields : DecideRequest
        The fields of the body.
    policy : RegressionPolicy
        Says which of them are needed, and how many numbers per row.
    rearrange : bool, default False
        Whether quantiles that cross are sorted, also if the fit of the policy did not do it.

    Returns
    -------
    Normal, Samples or Quantiles
        In double precision.
    """
    wanted, fix = FIELDS[policy.kind], f"Send for example {_example(policy)}"
    others = {"logits", "probabilities", "row_costs", *sum(FIELDS.values(), ())} - {*wanted}
    others |= {"levels"} if policy.levels is None else set()
    is_complete = all(getattr(fields, name) is not None for name in wanted)
    if not is_complete or any(getattr(fields, name) is not None for name in others):
        names = " and ".join(f"`{name}`" for name in wanted)
        raise HTTPError(INVALID, f"The body must have {names}, and no other outputs", fix)
    _require_levels(fields.levels, policy)
    width = policy.n_columns
    given = (read_numbers(getattr(fields, name), name, width, fix) for name in wanted)
    arrays = [one.astype(np.float64) for one in given]
    try:
        if policy.kind == "Normal":
            return Normal(*arrays)
        if policy.levels is None:
            return Samples(arrays[0])
        return Quantiles(arrays[0], policy.levels, policy.rearrange or rearrange)
    except BadValueError as error:
        name = "quantiles" if policy.kind == "Quantiles" else error.argument
        if "rearrange" in error.fix:
            fix = "Send it with ?rearrange=true to sort them, or serve a policy fitted with "
            fix += "--rearrange"
        raise HTTPError(INVALID, f"`{name}` {error.moved(column=None).problem}", fix) from error


def _require_levels(levels: Any, policy: RegressionPolicy) -> None:
    """Raise unless the levels of quantiles are those of the fit, if they are sent."""
    if levels is None or policy.levels is None:
        return
    sent = levels.tolist() if isinstance(levels, np.ndarray) else levels
    wanted = list(policy.levels)
    is_list = isinstance(sent, list) and all(map(is_number, sent)) and len(sent) == len(wanted)
    if not is_list or not np.allclose(sent, wanted, rtol=0, atol=1e-6):
        got = repr(sent)[:80]
        problem = f"`levels` must be those that the policy was fitted on, {wanted}, got {got}"
        raise HTTPError(INVALID, problem, "Send quantiles at these levels")


def _example(policy: RegressionPolicy) -> str:
    """Return a body with as many numbers as the policy takes, of many the first ones."""
    if policy.kind == "Normal":
        return '{"mean": [12.5], "std": [2.0]}'
    width = policy.n_columns or 2
    shown = [f"{9.0 + k}" for k in range(min(width, MAX_SHOWN))]
    shown += ["..."] * (width > MAX_SHOWN)
    [name] = FIELDS[policy.kind]
    return f'{{"{name}": [[{", ".join(shown)}]]}}'


def read_numbers(
    value: Any,
    place: str,
    width: int | None,
    fix: str,
    *,
    form: str = "",
    limit: float = MAX_VALUE,
    has_gaps: bool = False,
) -> FloatArray:
    """Return a list of numbers, or a matrix, of a body; raise with the first fault.

    Parameters
    ----------
    value : any
        JSON, or a column of an Arrow stream.
    place : str
        What messages call it.
    width : int or None
        The numbers of a row: None if the rows are numbers, 0 if any number of them will do.
    fix : str
        The remedy.
    form : str
        What messages say it must be; by default according to `width`.
    limit : float
        The largest absolute value.
    has_gaps : bool
        Whether null stands for NaN; only in a list of numbers.
    """
    rows = value
    if has_gaps and isinstance(value, list):
        rows = [np.nan if one is None else one for one in value]
    with suppress(BadTypeError, BadValueError):
        array = as_floats(rows, place, "")
        is_shaped = array.ndim == 1 if width is None else array.ndim == 2
        is_shaped = is_shaped and array.size > 0 and width in (None, 0, array.shape[-1])
        n_fine = np.count_nonzero(np.abs(array) <= min(limit, float(np.finfo(array.dtype).max)))
        n_gaps = value.count(None) if rows is not value else 0
        if is_shaped and n_fine + n_gaps == array.size:
            return array
    got = _first_fault(value, width, limit, has_gaps)
    if not got:  # integers of more than 64 bits
        return np.array(rows, np.float64)
    if not form:
        shape = f"rows of {width or 'equally many'} numbers"
        form = "one number per row" if width is None else shape
    form += f", of at most {limit:.2g}" * (limit < MAX_FLOAT64) + " or null" * has_gaps
    raise HTTPError(INVALID, f"`{place}` must be {form}, got {got}", fix)


def _first_fault(value: Any, width: int | None, limit: float, has_gaps: bool) -> str:
    """Return what is wrong with a list of numbers or a matrix, and where; nothing if all is fine.

    >>> _first_fault([[1, 2], [3]], 0, MAX_VALUE, False)
    '1 number in row 1, 2 in row 0'
    >>> _first_fault([1, "x"], None, MAX_VALUE, False)
    '"x" in row 1'
    """
    rows = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(rows, list):
        return show_json(rows)
    for row, entries in enumerate(rows):
        if width is not None and not isinstance(entries, list):
            return f"{show_json(entries)} in row {row}"
        for column, one in enumerate([entries] if width is None else entries):
            is_fine = is_number(one) and abs(one) <= limit
            if not is_fine and not (has_gaps and one is None):
                where = f"row {row}" if width is None else f"row {row}, column {column}"
                return f"{show_json(one)} in {where}"
        if width is not None and len(entries) != (width or len(rows[0])):
            beside = "" if width else f", {len(rows[0])} in row 0"
            return f"{quantity(len(entries), 'number')} in row {row}{beside}"
        if width == 0 and not entries:
            return "empty rows"
    return "" if rows else "no rows"


def confidences(decided: RegressionDecisions, policy: RegressionPolicy) -> FloatArray:
    """Return a confidence of each row from 0 to 1: one half for an interval of the mean width."""
    usual = policy.report.mean_width or 1.0
    with np.errstate(over="ignore"):
        return np.asarray(usual / (usual + np.maximum(decided.high - decided.low, 0.0)))


def encode_targets(labels: Sequence[Any], place: str = "labels[{}]") -> list[str]:
    """Return true values as they are stored.

    >>> encode_targets([12, 0.5])
    ['12.0', '0.5']
    """
    result = []
    for row, value in enumerate(labels):
        if not (is_number(value) and abs(value) <= MAX_VALUE):
            got = show_json(value)
            problem = f"`{place.format(row)}` must be the true value, a number, got {got}"
            raise HTTPError(INVALID, problem, "Send for example 12.5")
        result.append(repr(float(value)))
    return result


def read_number(text: str) -> str:
    """Return the true value that a reviewer typed, as it is stored.

    >>> read_number(" 12.50 ")
    '12.5'
    """
    try:
        return encode_targets([float(text)], "number")[0]
    except ValueError as error:
        problem = f"{text[:50]!r} is not a number"
        raise HTTPError(INVALID, problem, "Write for example 12.5") from error


def targets(answers: Sequence[str | None]) -> FloatArray:
    """Return stored true values, NaN where unknown."""
    return np.array([np.nan if one is None else float(one) for one in answers], np.float64)


def response_columns(columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Return decided values as the columns of a response; an infinite bound is None."""
    found = StoredValues.of(float_matrix(columns["probabilities"]))
    return {
        "id": columns["id"],
        "policy": columns["policy_id"],
        "action": [ACTIONS[code] for code in columns["action"]],
        "value": found.value.tolist(),
        "low": finite(found.low),
        "high": finite(found.high),
        "expected_cost": columns["expected_cost"],
        "reason": [REASONS[code] for code in columns["reason"]],
        "review_value": columns["review_value"],
    }


def finite(numbers: FloatArray) -> list[float | None]:
    """Return numbers, None for those that are infinite or NaN."""
    return [one if isfinite(one) else None for one in numbers.tolist()]


def flat_columns(columns: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Return a response as columns of one type each: infinite bounds, as in files of decisions."""
    ends = {"low": -np.inf, "high": np.inf}
    typed = {
        name: np.array([end if x is None else x for x in columns[name]])
        for name, end in ends.items()
    }
    return {**columns, **typed}


def describe_row(item: ReviewItem) -> dict[str, Any]:
    """Return the decided value and interval of a row for its reviewer, and why it was decided."""
    found = StoredValues.of(item.probabilities[np.newaxis])
    return {
        **{name: finite(getattr(found, name))[0] for name in ("value", "low", "high")},
        "action": ACTIONS[item.action],
        "reason": REASONS[item.reason],
    }

"""Conformal prediction intervals for regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from dubito.arrays import (
    FloatArray,
    as_finite,
    as_floats,
    as_share,
    freeze,
    require_dimensions,
)
from dubito.data.batch import Batch
from dubito.data.labels import Targets
from dubito.doubt.conformal.scores import BaseConformal
from dubito.doubt.ensembles import moments_of
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.measure.regression import central_interval, point_of_rows, values_of
from dubito.measure.state import warn_of_missing
from dubito.outputs import BaseOutputs, Normal, Quantiles, Samples, unchecked
from dubito.serialization.fields import Entry, declare, number, one_of

Method = Literal["absolute", "normalized", "quantiles"]
Regression = Normal | Samples | Quantiles

POINTS = "array"  # the kind of plain predictions
DEFAULTS: dict[str, Method] = {
    POINTS: "absolute",
    "Normal": "normalized",
    "Samples": "quantiles",
    "Quantiles": "quantiles",
}
METHODS: dict[str, tuple[Method, ...]] = {
    POINTS: ("absolute",),
    "Normal": ("absolute", "normalized", "quantiles"),
    "Samples": ("absolute", "normalized", "quantiles"),
    "Quantiles": ("absolute", "quantiles"),
}
WORDS = {POINTS: "predictions without a spread"}
# Some units of rounding: a truth whose score is the threshold itself is in its interval.
ROUNDING = 4 * float(np.finfo(np.float64).eps)


@final
class ConformalRegressor(BaseConformal):
    """Give each row an interval that holds the truth with chance `level`.

    The guarantee holds for any model and any n, if the rows of the fit were not trained on and are
    exchangeable with those to come. `method` says what is widened by the threshold: "absolute" the
    predicted mean (of `Quantiles` the median), as much for each row; "normalized" the mean, in
    units of the row's std; "quantiles" the row's own central interval of that level, which may also
    shrink (Romano, Patterson and Candès, "Conformalized quantile regression", 2019). By default it
    follows from the kind of outputs: "absolute" for a plain array of predictions, "normalized" for
    `Normal`, "quantiles" for `Quantiles` and `Samples`.

    >>> intervals = ConformalRegressor(level=0.8).fit(np.zeros(9), np.arange(1.0, 10.0))
    >>> intervals.thresholds_, intervals.predict(np.array([5.0])).high.round(6).tolist()
    ({'all': 8.0}, [13.0])
    """

    kind_: str  # of outputs, by name
    method_: Method
    level_: float

    fitted_fields = declare(
        kind_=one_of(*METHODS),
        method_=one_of("absolute", "normalized", "quantiles"),
        level_=number(0, 1),
    )

    unbounded = "their intervals are infinite"

    def __init__(self, level: float = 0.9, method: Method | None = None) -> None:
        self.level = level
        self.method = method

    def predict(self, outputs: Any, groups: Any = None) -> PredictionIntervals:
        """Return the interval of each row, by the threshold of its group if the fit had groups.

        Ends are float64, and infinite where the fit had too few rows. Where a negative threshold
        leaves nothing of an interval, its middle remains.
        """
        self._require_fitted("predict")
        caller = f"{type(self).__name__}.predict"
        known = self._as_known(outputs, caller)
        kind = _kind_of(known)
        if kind != self.kind_:
            fix = "a fit on outputs of this kind"
            raise BadTypeError("outputs", caller, f"{self.kind_}, as in the fit", kind, fix)
        reach = self._reach(groups, known.n_rows, "predict")
        low, high = np.empty(known.n_rows), np.empty(known.n_rows)

        def fill(rows: slice) -> None:
            parts = _spread_of(known.take(rows), self.method_, self.level_, caller)
            low[rows], high[rows] = _widened(*parts, reach[rows])

        for _ in map_in_order(fill, row_blocks(known.n_rows, _n_entries(known))):
            pass
        return PredictionIntervals(freeze(low), freeze(high))

    def _check_params(self) -> None:
        super()._check_params()
        if self.method not in (None, "absolute", "normalized", "quantiles"):
            rule, fix = "'absolute', 'normalized', 'quantiles' or None", "method=None"
            raise BadValueError("method", type(self).__name__, rule, repr(self.method), fix)

    def _check_fitted(self, entry: Entry) -> None:
        super()._check_fitted(entry)
        as_share(self.level_, entry.at("level_").name, entry.caller, is_open=True)
        if self.method_ not in METHODS[self.kind_]:
            rule = f"one of {METHODS[self.kind_]} for {self.kind_}"
            raise entry.at("method_").error(rule, repr(self.method_))
        for group, found in self.thresholds_.items():
            if found is not None and found < 0 and self.method_ != "quantiles":
                rule = f"0 or above where method_ is {self.method_!r}"
                raise entry.at(f"thresholds_.{group}").error(rule, f"{found:g}")

    def _as_known(self, outputs: Any, caller: str) -> Regression:
        if not isinstance(outputs, BaseOutputs):
            points = as_floats(outputs, "outputs", caller)
            require_dimensions(points, (1,), "outputs", caller, "one number per row")
            as_finite(points, "outputs", caller)
            return unchecked(Samples, {"array": points[:, np.newaxis]})
        if not isinstance(outputs, Normal | Samples | Quantiles):
            rule = "Normal, Samples, Quantiles or an array of predictions"
            fix = "wrapping them, say Normal(mean, std), or ConformalClassifier for classes"
            raise BadTypeError("outputs", caller, rule, type(outputs).__name__, fix)
        shape = _array_of(outputs).shape
        if len(shape) > (1 if isinstance(outputs, Normal) else 2):
            rule, fix = "of one number a row", "a fit for each target"
            raise BadValueError("outputs", caller, rule, f"{shape[-1]} targets", fix)
        return outputs

    def _facts(self, batch: Batch) -> dict[str, Any]:
        name = type(self).__name__
        kind = _kind_of(self._as_known(batch.outputs, name))
        method = self.method or DEFAULTS[kind]
        if method not in METHODS[kind]:
            rule = " or ".join(map(repr, METHODS[kind])) + f" for {WORDS.get(kind, kind)}"
            raise BadValueError("method", name, rule, repr(method), "method=None")
        _require_numbers(batch, name)
        return {"kind_": kind, "method_": method, "level_": float(self.level)}

    def _scores(self, batch: Batch) -> FloatArray:
        name = type(self).__name__
        outputs, y = self._as_known(batch.outputs, name), values_of(batch)
        method = self.method or DEFAULTS[_kind_of(outputs)]

        def of(rows: slice) -> FloatArray:
            low, high, scale = _spread_of(outputs.take(rows), method, self.level, name)
            with np.errstate(over="ignore"):
                beyond = np.maximum(low - y[rows], y[rows] - high)
                is_off = (scale == 0) & (beyond > 0)
                ratio = beyond / np.where(scale == 0, 1.0, scale)
            return np.where(is_off, np.inf, ratio)

        blocks = row_blocks(outputs.n_rows, _n_entries(outputs)) or [slice(0, 0)]
        return np.concatenate(list(map_in_order(of, blocks)))


@final
@dataclass(frozen=True, slots=True, eq=False)
class PredictionIntervals:
    """An interval a row, both ends belonging to it.

    >>> PredictionIntervals(np.array([0.0, 1.0]), np.array([2.0, 5.0])).coverage([2.0, 0.5])
    0.5
    """

    low: FloatArray
    high: FloatArray

    @property
    def width(self) -> FloatArray:
        """How wide each interval is."""
        return np.asarray(self.high - self.low)

    def coverage(self, y: Any) -> float:
        """Return the share of rows whose truth is in their interval; NaN rows are left out."""
        caller = "Intervals.coverage"
        targets = Targets.of(y, len(self.low), "y", caller)
        require_dimensions(targets.values, (1,), "y", caller, "one number per row")
        warn_of_missing(targets.n_missing, len(self.low), caller, stacklevel=3)
        truth = targets.values[~targets.is_missing]
        if not truth.size:
            raise EmptyStateError("Coverage")
        low, high = self.low[~targets.is_missing], self.high[~targets.is_missing]
        return float(((low <= truth) & (truth <= high)).mean())


def _spread_of(
    outputs: Regression, method: Method, level: float, caller: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return, in float64, both ends of what is widened, and the unit in which it is."""
    one = np.ones(outputs.n_rows)
    with np.errstate(over="ignore"):  # beyond the largest float is infinite, and covers
        if method == "quantiles":
            low, high = central_interval(outputs, level, caller)
            return low.astype(np.float64), high.astype(np.float64), one
        if isinstance(outputs, Samples):
            point, scale = moments_of(outputs)
        else:
            point = point_of_rows(outputs).astype(np.float64)
            scale = outputs.std.astype(np.float64) if isinstance(outputs, Normal) else one
    return point, point, one if method == "absolute" else scale


def _widened(
    low: FloatArray, high: FloatArray, scale: FloatArray, reach: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the ends moved out by a threshold in some unit, the middle where they would cross."""
    is_endless = np.isinf(reach)
    with np.errstate(over="ignore"):
        step = np.where(is_endless, np.inf, np.where(is_endless, 0.0, reach) * scale)
        step = step + ROUNDING * (np.maximum(np.abs(low), np.abs(high)) + np.abs(step))
        ends = low - step, high + step
    is_crossed = ends[0] > ends[1]
    middle = low / 2 + high / 2
    return np.where(is_crossed, middle, ends[0]), np.where(is_crossed, middle, ends[1])


def _require_numbers(batch: Batch, caller: str) -> None:
    """Raise unless there is a target a row."""
    if batch.labels is None:
        raise BadTypeError("y", caller, "the targets", "None", "one number a row")
    shape = values_of(batch).shape
    if len(shape) > 1:
        raise BadValueError("y", caller, "one number a row", f"shape {shape}", "`.ravel()`")


def _kind_of(outputs: Regression) -> str:
    """Return the kind of outputs by name; one draw a row is a prediction without a spread."""
    is_point = isinstance(outputs, Samples) and outputs.array.shape[1] == 1
    return POINTS if is_point else type(outputs).__name__


def _array_of(outputs: Regression) -> FloatArray:
    """Return the array that says how many numbers a row has."""
    return outputs.mean if isinstance(outputs, Normal) else outputs.array


def _n_entries(outputs: Regression) -> int:
    """Return how many numbers a row has."""
    return int(np.prod(_array_of(outputs).shape[1:]))

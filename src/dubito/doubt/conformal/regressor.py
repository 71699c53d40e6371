"""Conformal prediction intervals for regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from dubito.arrays import (
    ArrayResult,
    FloatArray,
    as_finite,
    as_floats,
    as_fraction,
    freeze,
    require_dimensions,
)
from dubito.data.batch import Batch
from dubito.data.labels import Targets
from dubito.doubt.conformal.predictor import BaseConformalPredictor
from dubito.doubt.ensembles import mean_and_std
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.kernels.blocks import row_blocks, run_in_order
from dubito.measure.regression import central_interval, point_of_rows, values_of
from dubito.measure.state import warn_of_missing
from dubito.outputs import BaseOutputs, Normal, Quantiles, Samples, unchecked
from dubito.serialization.fields import Entry, declare, number, one_of

Method = Literal["absolute", "normalized", "quantiles"]
Regression = Normal | Samples | Quantiles

POINTS = "array"  # the kind of plain predictions
# Supported methods by kind of outputs, the default first.
METHODS: dict[str, tuple[Method, ...]] = {
    POINTS: ("absolute",),
    "Normal": ("normalized", "absolute", "quantiles"),
    "Samples": ("quantiles", "absolute", "normalized"),
    "Quantiles": ("quantiles", "absolute"),
}
# Some units of rounding, so that a target whose score is the threshold is inside its interval.
ROUNDING = 4 * float(np.finfo(np.float64).eps)


@final
class ConformalRegressor(BaseConformalPredictor):
    """Prediction intervals that contain the target with probability at least `level`.

    The guarantee holds for any model and any number of calibration rows, if these were not
    trained on and are exchangeable with new rows.

    Parameters
    ----------
    level : float, default=0.9
        The coverage, above 0 and below 1.
    method : {"absolute", "normalized", "quantiles"}, optional
        What is widened by the threshold. "absolute": the predicted mean (the median of
        `Quantiles`), by the same amount for all rows. "normalized": the mean, in units of the
        row's standard deviation. "quantiles": the row's own central interval of that level, which
        may also shrink. The default depends on the outputs: "absolute" for an array of
        predictions, "normalized" for `Normal`, "quantiles" for `Quantiles` and `Samples`.

    Attributes
    ----------
    thresholds_ : dict
        The threshold by group ("all" without groups), None if there are too few rows.
    n_rows_ : dict
        The number (or weight) of calibration rows by group.
    is_grouped_ : bool
        Whether the fit had groups.
    kind_, method_, level_ : str, str, float
        The kind of outputs, the method and the level in the fit.

    References
    ----------
    Lei et al., "Distribution-free predictive inference for regression", 2018; Romano, Patterson
    and Candès, "Conformalized quantile regression", 2019.

    Examples
    --------
    >>> regressor = ConformalRegressor(level=0.8).fit(np.zeros(9), np.arange(1.0, 10.0))
    >>> regressor.thresholds_, regressor.predict(np.array([5.0])).high.round(6).tolist()
    ({'all': 8.0}, [13.0])
    """

    kind_: str
    method_: Method
    level_: float

    fitted_fields = declare(
        kind_=one_of(*METHODS),
        method_=one_of("absolute", "normalized", "quantiles"),
        level_=number(0, 1),
    )

    unbounded = "intervals are infinite"

    def __init__(self, level: float = 0.9, method: Method | None = None) -> None:
        self.level = level
        self.method = method

    def predict(
        self, outputs: Any, groups: Any = None, density_ratio: Any = None
    ) -> PredictionIntervals:
        """Return the prediction interval of each row.

        Parameters
        ----------
        outputs : Normal, Samples, Quantiles or array-like of shape (n_rows,)
            Outputs of the kind of the fit.
        groups : array-like of shape (n_rows,), optional
            The group of each row, if the fit had groups.
        density_ratio : array-like of shape (n_rows,), optional
            The density ratio of each row, if the fit had it.

        Returns
        -------
        PredictionIntervals
            Bounds in float64, infinite if there were too few calibration rows. Where a negative
            threshold would cross the bounds, both are the center.
        """
        self._require_fitted("predict")
        caller = f"{type(self).__name__}.predict"
        wrapped = self._as_outputs(outputs, caller)
        kind = _kind(wrapped)
        if kind != self.kind_:
            rule, fix = f"must be {self.kind_}, as during fit", "Fit on outputs of this kind"
            raise BadTypeError("outputs", caller, rule, kind, fix)
        thresholds = self._row_thresholds(groups, wrapped.n_rows, "predict", density_ratio)
        low, high = np.empty(wrapped.n_rows), np.empty(wrapped.n_rows)

        def fill(rows: slice) -> None:
            parts = _bounds_and_scale(wrapped.take(rows), self.method_, self.level_, caller)
            low[rows], high[rows] = _widened(*parts, thresholds[rows])

        run_in_order(fill, row_blocks(wrapped.n_rows, wrapped.n_entries))
        return PredictionIntervals(freeze(low), freeze(high))

    def _check_params(self) -> None:
        super()._check_params()
        if self.method not in (None, "absolute", "normalized", "quantiles"):
            rule = "must be 'absolute', 'normalized', 'quantiles' or None"
            name = type(self).__name__
            raise BadValueError("method", name, rule, repr(self.method), "Use method=None")

    def _check_fitted(self, entry: Entry) -> None:
        super()._check_fitted(entry)
        as_fraction(self.level_, entry.at("level_").name, entry.caller, is_open=True)
        if self.method_ not in METHODS[self.kind_]:
            rule = f"one of {METHODS[self.kind_]} for {self.kind_}"
            raise entry.at("method_").error(rule, repr(self.method_))
        for group, threshold in self.thresholds_.items():
            if threshold is not None and threshold < 0 and self.method_ != "quantiles":
                rule = f"0 or above where method_ is {self.method_!r}"
                raise entry.at(f"thresholds_.{group}").error(rule, f"{threshold:g}")

    def _as_outputs(self, outputs: Any, caller: str) -> Regression:
        if not isinstance(outputs, BaseOutputs):
            points = as_floats(outputs, "outputs", caller)
            require_dimensions(points, (1,), "outputs", caller, "one number per row")
            as_finite(points, "outputs", caller)
            return unchecked(Samples, {"array": points[:, np.newaxis]})
        if not isinstance(outputs, Normal | Samples | Quantiles):
            rule = "must be Normal, Samples, Quantiles or an array of predictions"
            fix = outputs.remedy or "Use ConformalClassifier for classes"
            raise BadTypeError("outputs", caller, rule, type(outputs).__name__, fix)
        shape = outputs.mean.shape if isinstance(outputs, Normal) else outputs.array.shape
        if len(shape) == len(outputs.axes):
            rule, fix = "must have one target", "Fit one ConformalRegressor per target"
            raise BadValueError("outputs", caller, rule, f"{shape[-1]} targets", fix)
        return outputs

    def _facts(self, batch: Batch) -> dict[str, Any]:
        name = type(self).__name__
        kind = _kind(batch.outputs)
        method = self.method or METHODS[kind][0]
        if method not in METHODS[kind]:
            supported = " or ".join(map(repr, sorted(METHODS[kind])))
            outputs = "predictions without a spread" if kind == POINTS else kind
            rule = f"must be {supported} for {outputs}"
            raise BadValueError("method", name, rule, repr(method), "Use method=None")
        if batch.labels is None:
            raise BadTypeError("y", name, "must hold the targets", "None", "Pass y")
        shape = values_of(batch).shape
        if len(shape) > 1:
            rule, fix = "must hold one number per row", "Use y.ravel()"
            raise BadValueError("y", name, rule, f"shape {shape}", fix)
        return {"kind_": kind, "method_": method, "level_": float(self.level)}

    def _scores(self, batch: Batch) -> FloatArray:
        method, y = self.method or METHODS[_kind(batch.outputs)][0], values_of(batch)
        low, high, scale = _bounds_and_scale(batch.outputs, method, self.level, type(self).__name__)
        with np.errstate(over="ignore"):
            outside = np.maximum(low - y, y - high)
            is_infinite = (scale == 0) & (outside > 0)
            ratio = outside / np.where(scale == 0, 1.0, scale)
        return np.where(is_infinite, np.inf, ratio)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PredictionIntervals(ArrayResult):
    """A closed prediction interval per row.

    Attributes
    ----------
    low, high : ndarray of shape (n_rows,)
        The bounds.

    Examples
    --------
    >>> PredictionIntervals(np.array([0.0, 1.0]), np.array([2.0, 5.0])).coverage([2.0, 0.5])
    0.5
    """

    low: FloatArray
    high: FloatArray

    @property
    def width(self) -> FloatArray:
        """The width of each interval."""
        return np.asarray(self.high - self.low)

    def coverage(self, y: Any) -> float:
        """Return the fraction of rows whose target is in its interval.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            The targets. Rows where it is missing (NaN) are ignored with a warning.

        Returns
        -------
        float
            The empirical coverage.
        """
        caller = "PredictionIntervals.coverage"
        targets = Targets.of(y, len(self.low), "y", caller)
        require_dimensions(targets.values, (1,), "y", caller, "one number per row")
        warn_of_missing(targets.n_missing, len(self.low), caller, stacklevel=3)
        values = targets.values[~targets.is_missing]
        if not values.size:
            raise EmptyStateError("Coverage")
        low, high = self.low[~targets.is_missing], self.high[~targets.is_missing]
        return float(((low <= values) & (values <= high)).mean())


def _bounds_and_scale(
    outputs: BaseOutputs, method: Method, level: float, caller: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the bounds that are widened, and the unit in which they are, in float64."""
    one = np.ones(outputs.n_rows)
    with np.errstate(over="ignore"):  # an infinite bound covers
        if method == "quantiles":
            low, high = central_interval(outputs, level, caller)
            return low.astype(np.float64), high.astype(np.float64), one
        if isinstance(outputs, Samples):
            point, scale = mean_and_std(outputs)
        else:
            point = point_of_rows(outputs).astype(np.float64)
            scale = outputs.std.astype(np.float64) if isinstance(outputs, Normal) else one
    return point, point, one if method == "absolute" else scale


def _widened(
    low: FloatArray, high: FloatArray, scale: FloatArray, thresholds: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return bounds moved out by threshold x scale; the center where they would cross."""
    is_infinite = np.isinf(thresholds)
    with np.errstate(over="ignore"):
        step = np.where(is_infinite, np.inf, np.where(is_infinite, 0.0, thresholds) * scale)
        step = step + ROUNDING * (np.maximum(np.abs(low), np.abs(high)) + np.abs(step))
        bounds = low - step, high + step
    is_crossed = bounds[0] > bounds[1]
    center = low / 2 + high / 2
    return np.where(is_crossed, center, bounds[0]), np.where(is_crossed, center, bounds[1])


def _kind(outputs: BaseOutputs) -> str:
    """Return the kind of outputs; one sample per row is a plain prediction."""
    is_point = isinstance(outputs, Samples) and outputs.array.shape[1] == 1
    return POINTS if is_point else type(outputs).__name__

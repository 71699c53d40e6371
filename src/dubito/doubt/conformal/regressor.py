"""Conformal prediction intervals for regression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, final

import numpy as np

from dubito.arrays import (
    ArrayResult,
    BoolArray,
    FloatArray,
    IntArray,
    RandomState,
    as_count,
    as_fraction,
    as_numbers,
    draw_seed,
    freeze,
    require_bool,
    require_choice,
    require_dimensions,
    require_random_state,
)
from dubito.data.batch import Batch, make_batch
from dubito.data.labels import Targets
from dubito.data.shards import ArrayShards, Shards
from dubito.doubt.conformal.local_scale import LocalScale, Spread, stated_spread, weighted_quantile
from dubito.doubt.conformal.predictor import (
    READ_ROWS,
    BaseConformalPredictor,
    require_as_fitted,
    rows_needed,
)
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.formatting import html_rows, html_view, quantity
from dubito.kernels.blocks import row_blocks, run_in_order
from dubito.measure.regression import Regression, central_interval, interval_scores, values_of
from dubito.measure.state import warn_of_missing
from dubito.outputs import BaseOutputs, Normal, Quantiles, Samples, unchecked
from dubito.outputs.regression import require_one_target
from dubito.serialization.array_fields import array, require_increasing
from dubito.serialization.fields import (
    MAX_FLOAT,
    Entry,
    boolean,
    fitted,
    list_of,
    number,
    one_of,
    optional,
)
from dubito.serialization.objects import clone, record_of

Method = Literal["absolute", "normalized", "quantiles", "adaptive"]

POINTS = "array"  # the kind of plain predictions
# Supported methods by kind of outputs: the default for few or streamed rows first.
METHODS: dict[str, tuple[Method, ...]] = {
    POINTS: ("absolute", "adaptive"),
    "Normal": ("normalized", "absolute", "quantiles", "adaptive"),
    "Samples": ("quantiles", "absolute", "normalized", "adaptive"),
    "Quantiles": ("quantiles", "absolute", "normalized", "adaptive"),
}
NAMES = ("absolute", "normalized", "quantiles", "adaptive")
LOWER, UPPER = "lower", "upper"  # the names of thresholds of one end
MIN_ROWS = 100  # of each group, from which the default learns a scale
MIN_TAIL_ROWS = 4  # expected outside the intervals, from which the default learns a scale
BIN_TAIL_ROWS = 20  # expected outside the intervals of an automatic bin
MAX_BINS = 10
N_FOLDS = 5  # of the choice of a method
# Some units of rounding, so that a target whose score is the threshold is inside its interval.
ROUNDING = 4 * float(np.finfo(np.float64).eps)


class BaseConformalRegression(BaseConformalPredictor):
    """Base class of conformal predictors of one target: kinds of outputs, and their methods.

    Attributes
    ----------
    kind_, method_ : str
        The kind of outputs and the method in the fit.
    levels_ : tuple of float or None
        The levels of `Quantiles` in the fit.
    local_scale_ : LocalScale or None
        The learned center and scale.
    """

    kind_: str = fitted(one_of(*METHODS))
    levels_: tuple[float, ...] | None = fitted(optional(list_of(number(0, 1))))
    local_scale_: LocalScale | None = fitted(optional(record_of(LocalScale)))

    method_names: ClassVar[tuple[str, ...]]
    methods: ClassVar[Mapping[str, tuple[Any, ...]]]  # by kind of outputs, the default first
    learned: ClassVar[tuple[str, ...]]  # attributes that `_prepare` sets

    def _check_params(self) -> None:
        super()._check_params()
        name = type(self).__name__
        if self.method is not None and self.method not in self.method_names:
            rule = f"must be {', '.join(map(repr, self.method_names))} or None"
            raise BadValueError("method", name, rule, repr(self.method), "Use method=None")
        require_random_state(self.random_state, name)

    def _check_fitted(self, entry: Entry) -> None:
        super()._check_fitted(entry)
        levels, place = self.levels_, entry.at("levels_")
        if (levels is not None) != (self.kind_ == "Quantiles"):
            raise place.error("given for Quantiles only", "otherwise")
        if levels is not None:
            if not (np.diff([0.0, *levels, 1.0]) > 0).all():
                raise place.error("increasing between 0 and 1", "others")
            self.levels_ = tuple(levels)
        if self.method_ not in self.methods[self.kind_]:
            rule = f"one of {self.methods[self.kind_]} for {self.kind_}"
            raise entry.at("method_").error(rule, repr(self.method_))

    def _as_outputs(self, outputs: Any, caller: str) -> Regression:
        return _as_regression(outputs, caller)

    def _checked_outputs(self, outputs: Any, caller: str) -> Regression:
        """Return outputs of the kind of the fit, quantiles at its levels."""
        self._require_fitted("predict")
        known = _as_regression(outputs, caller)
        got = kind_of(known)
        if got != self.kind_:
            rule, fix = f"must be {self.kind_}, as during fit", "Fit on outputs of this kind"
            raise BadTypeError("outputs", caller, rule, got, fix)
        given, levels = _levels_of(known) or (), self.levels_ or ()
        if len(given) != len(levels) or not np.allclose(given, levels, rtol=0, atol=1e-6):
            got, shown = (", ".join(f"{one:g}" for one in each) for each in (given, levels))
            rule, fix = f"must have the levels {shown}, as during fit", "Pass the levels of the fit"
            raise BadValueError("outputs", caller, rule, got, fix)
        return known

    def _checked_rows(self, batch: Batch) -> tuple[Batch, IntArray]:
        """Return the rows of a fit, and which of them have a target and a weight."""
        batch = replace(batch, outputs=_as_regression(batch.outputs, type(self).__name__))
        self._require_rows(batch)
        return batch, np.flatnonzero(batch.labeled_weight > 0)

    def _require_rows(self, batch: Batch) -> None:
        """Raise unless there is one target per row, and the method suits the outputs."""
        kind, name = kind_of(batch.outputs), type(self).__name__
        if self.method is not None and self.method not in self.methods[kind]:
            supported = " or ".join(map(repr, sorted(self.methods[kind])))
            outputs = "predictions without a spread" if kind == POINTS else kind
            rule = f"must be {supported} for {outputs}"
            raise BadValueError("method", name, rule, repr(self.method), "Use method=None")
        if batch.labels is None:
            raise BadTypeError("y", name, "must hold the targets", "None", "Pass y")
        shape = values_of(batch).shape
        if len(shape) > 1:
            rule, fix = "must hold one number per row", "Use y.ravel()"
            raise BadValueError("y", name, rule, f"shape {shape}", fix)

    def _learn_scale(self, batch: Batch) -> None:
        """Set the center and the scale that are learned from some rows."""
        y, level = values_of(batch), float(self.level)
        self.local_scale_ = LocalScale.learn(batch.outputs, y, batch.weight, level)

    def _facts(self, batch: Batch) -> dict[str, Any]:
        facts = {"kind_": kind_of(batch.outputs), "levels_": _levels_of(batch.outputs)}
        return {**facts, **{name: getattr(self, name) for name in self.learned}}


@final
class ConformalRegressor(BaseConformalRegression):
    """Prediction intervals that contain the target with probability at least `level`.

    The guarantee holds for any model and any number of calibration rows, if these were not
    trained on and are exchangeable with new rows. The number of covered rows follows an exact law:
    of k = ceil((n + 1) level) in n calibration rows, that of Beta(k, n + 1 - k). Rows that a
    method learns from do not calibrate: n is then the number of the others (`n_rows_`).

    Parameters
    ----------
    level : float, default=0.9
        The coverage, above 0 and below 1.
    method : {"absolute", "normalized", "quantiles", "adaptive"}, optional
        What is widened by the threshold. "absolute": the predicted mean (the median of
        `Quantiles`), by the same amount for all rows. "normalized": the mean, in units of the
        row's standard deviation (for `Quantiles` the median, in units of the width of the central
        interval). "quantiles": the row's own central interval of that level, which may also
        shrink (conformalized quantile regression). "adaptive": a center and a scale, different
        below and above it, that are learned from a random half of the rows as functions of what
        the outputs state; the other half calibrates.

        By default, if each group has at least 100 rows in memory (400 for a level of 0.99), the
        method with the lowest interval score on a random half of the rows, by cross-validation;
        the other half calibrates. Otherwise "absolute" for an array of predictions, "normalized"
        for `Normal`, and "quantiles" for `Quantiles` and `Samples`.
    symmetric : bool, default=True
        If False, each end has its own threshold and misses at most (1 - level) / 2 of the rows.
        Intervals are a little wider for it, as both hold.
    n_bins : int or "auto", optional
        The number of bins of rows with a threshold each (Mondrian), so that the guarantee holds
        in each of them. "auto" takes as many, up to 10, as have 20 rows outside their intervals.
        Bins depend on outputs alone; rows at their edges do not calibrate.
    bin_by : {"width", "mean"}, default="width"
        What bins are of: the scale or the center of the row.
    random_state : int, RandomState or None, default=0
        The seed of the rows that a method is learned or chosen on.

    Attributes
    ----------
    thresholds_ : dict
        The threshold by group or bin ("all" without either), None if there are too few rows. With
        `symmetric=False` those of "lower" and "upper", of each group.
    n_rows_ : dict
        The number (or weight) of rows that calibrated each threshold.
    is_grouped_ : bool
        Whether there are several thresholds.
    level_ : float
        The level of each threshold: (1 + level) / 2 with `symmetric=False`.
    kind_, method_, symmetric_, bin_by_ : str, str, bool, str
        The kind of outputs and the settings in the fit.
    levels_ : tuple of float or None
        The levels of `Quantiles` in the fit.
    bin_edges_ : array or None
        Where bins end.
    local_scale_ : LocalScale or None
        The learned center and scale.

    References
    ----------
    Lei et al., "Distribution-free predictive inference for regression", 2018; Romano, Patterson
    and Candès, "Conformalized quantile regression", 2019; Vovk et al., "Algorithmic learning in a
    random world", 2005 (Mondrian predictors).

    Examples
    --------
    >>> import numpy as np
    >>> from dubito import ConformalRegressor
    >>> regressor = ConformalRegressor(level=0.8).fit(np.zeros(9), np.arange(1.0, 10.0))
    >>> regressor.thresholds_, regressor.predict(np.array([5.0])).high.round(6).tolist()
    ({'all': 8.0}, [13.0])
    """

    method_: Method = fitted(one_of(*NAMES))
    symmetric_: bool = fitted(boolean)
    bin_by_: str = fitted(one_of("width", "mean"))
    bin_edges_: FloatArray | None = fitted(
        optional(array(None, low=-MAX_FLOAT, high=MAX_FLOAT, is_empty_allowed=True))
    )

    method_names = NAMES
    methods = METHODS
    learned = ("method_", "symmetric_", "bin_by_", "bin_edges_", "local_scale_")
    unbounded = "intervals are infinite"

    def __init__(
        self,
        level: float = 0.9,
        method: Method | None = None,
        symmetric: bool = True,
        n_bins: int | Literal["auto"] | None = None,
        bin_by: Literal["width", "mean"] = "width",
        random_state: RandomState = 0,
    ) -> None:
        self.level = level
        self.method = method
        self.symmetric = symmetric
        self.n_bins = n_bins
        self.bin_by = bin_by
        self.random_state = random_state

    def predict(
        self, outputs: Any, groups: Any = None, density_ratio: Any = None
    ) -> PredictionIntervals:
        """Return the prediction interval of each row.

        Parameters
        ----------
        outputs : Normal, Samples, Quantiles or array-like of shape (n_rows,)
            Outputs of the kind of the fit, `Quantiles` at its levels.
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
        caller = f"{type(self).__name__}.predict"
        wrapped = self._checked_outputs(outputs, caller)
        n_rows = wrapped.n_rows
        bands = _Bands(*np.empty((4, n_rows)))

        def fill(rows: slice) -> None:
            for part, values in zip(bands, self._bands(wrapped.take(rows), caller), strict=True):
                part[rows] = values

        run_in_order(fill, row_blocks(n_rows, wrapped.n_entries))
        if self.bin_edges_ is not None:
            require_as_fitted("groups", groups is not None, False, caller)
            groups = _bins(bands, self.bin_by_, self.bin_edges_)
        columns = self._threshold_names(groups, n_rows, caller)
        lower = upper = self._row_thresholds(columns[0], n_rows, caller, density_ratio)
        if len(columns) > 1:
            upper = self._row_thresholds(columns[1], n_rows, caller, density_ratio)
        return PredictionIntervals(*map(freeze, _widened(bands, lower, upper)))

    def _threshold_names(self, groups: Any, n_rows: int, caller: str) -> list[Any]:
        """Return the group of each row: once for both ends, or for each of them."""
        if self.symmetric_:
            return [groups]
        was_grouped = set(self.thresholds_) != {LOWER, UPPER}
        require_as_fitted("groups", groups is not None, was_grouped, caller)
        column = None
        if groups is not None:
            empty = unchecked(Samples, {"array": np.zeros((n_rows, 1))})
            column = self._group_column(make_batch(None, empty, groups=groups, caller=caller))
        return [_end_names(column, n_rows, end) for end in (LOWER, UPPER)]

    def _check_params(self) -> None:
        super()._check_params()
        name = type(self).__name__
        require_bool(self.symmetric, "symmetric", name)
        require_choice(self.bin_by, ("width", "mean"), "bin_by", name)
        if self.n_bins is not None and self.n_bins != "auto":
            as_count(self.n_bins, "n_bins", name, example=5)

    def _check_fitted(self, entry: Entry) -> None:
        super()._check_fitted(entry)
        if not self.symmetric_ and self.level_ <= 0.5:
            raise entry.at("level_").error("above 0.5 without symmetry", f"{self.level_:g}")
        if self.bin_edges_ is not None:
            require_increasing(self.bin_edges_, entry.at("bin_edges_"))
            wanted = [str(k) for k in range(self.bin_edges_.size + 1)]
            if not self.symmetric_:
                wanted = [f"{k}, {end}" for k in wanted for end in (LOWER, UPPER)]
            if not self.is_grouped_ or sorted(self.thresholds_) != sorted(wanted):
                raise entry.at("thresholds_").error("one per bin", "others")
        for group, threshold in self.thresholds_.items():
            is_negative = threshold is not None and threshold < 0
            if is_negative and self.method_ != "quantiles" and self.symmetric_:
                rule = f"0 or above where method_ is {self.method_!r}"
                raise entry.at(f"thresholds_.{group}").error(rule, f"{threshold:g}")

    def _threshold_level(self) -> float:
        return float(self.level) if self.symmetric else (1 + float(self.level)) / 2

    def _prepare(
        self, shards: Shards, ratio: FloatArray | None
    ) -> tuple[Self, Shards, FloatArray | None]:
        scorer, name = clone(self), type(self).__name__
        scorer.random_state = draw_seed(self.random_state, name)
        scorer.bin_edges_ = scorer.local_scale_ = None
        scorer.symmetric_, scorer.level_ = bool(self.symmetric), self._threshold_level()
        scorer.bin_by_ = self.bin_by
        if shards.in_memory is None:
            needs = {
                "method='adaptive'": self.method == "adaptive",
                "symmetric=False": not self.symmetric,
                "n_bins": self.n_bins is not None,
            }
            for setting in (one for one, is_set in needs.items() if is_set):
                rule = f"must be in memory with {setting}"
                raise BadTypeError("outputs", name, rule, "a stream", READ_ROWS)
            return scorer, shards, ratio
        batch, used = self._checked_rows(shards.in_memory)
        scorer.method_ = scorer._chosen_method(batch.take(used))
        is_changed = scorer.method_ == "adaptive" or not self.symmetric or self.n_bins is not None
        if not is_changed or not used.size:
            return scorer, shards, ratio
        warn_of_missing(batch.n_missing, len(batch), name, stacklevel=4)
        if scorer.method_ == "adaptive":
            shuffled = np.random.default_rng(scorer.random_state).permutation(used)
            rows, used = batch.take(shuffled[: used.size // 2]), shuffled[used.size // 2 :]
            if self.method is None:
                scorer.method_ = scorer._lowest_interval_score(rows)
            if scorer.method_ == "adaptive":
                scorer._learn_scale(rows)
        if self.n_bins is not None:
            used = scorer._bin_rows(batch, used)
        batch, ratio = batch.take(used), None if ratio is None else ratio[used]
        if scorer.bin_edges_ is not None:
            bands = scorer._bands(batch.outputs, name)
            batch = replace(batch, groups=_bins(bands, self.bin_by, scorer.bin_edges_))
        if not self.symmetric:
            names = None if batch.groups is None else scorer._group_column(batch)
            ends = [_end_names(names, len(batch), end) for end in (LOWER, UPPER)]
            batch = batch.take(np.tile(np.arange(len(batch)), 2))
            batch = replace(batch, groups=np.concatenate(ends))
            ratio = None if ratio is None else np.tile(ratio, 2)
        return scorer, ArrayShards(batch), ratio

    def _chosen_method(self, batch: Batch) -> Method:
        """Return the method of the fit; by default "adaptive" if there are enough rows."""
        if self.method is not None:
            return self.method
        _, positions = self._row_groups(batch)
        least = max(MIN_ROWS, MIN_TAIL_ROWS / (1 - float(self.level)))
        is_enough = len(batch) > 0 and np.bincount(positions).min() >= least
        return "adaptive" if is_enough else METHODS[kind_of(batch.outputs)][0]

    def _lowest_interval_score(self, batch: Batch) -> Method:
        """Return the method with the lowest interval score on rows that it did not learn from.

        Thresholds are those of the rows that are scored, as they are for every method.
        """
        trial, sums = clone(self), dict[Method, float]()
        trial.symmetric_, trial.level_ = True, float(self.level)
        for method in METHODS[kind_of(batch.outputs)]:
            trial.method_, trial.local_scale_, total = method, None, 0.0
            for fold in range(N_FOLDS):
                is_held = np.arange(len(batch)) % N_FOLDS == fold
                if method == "adaptive":
                    trial._learn_scale(batch.take(np.flatnonzero(~is_held)))
                try:
                    total += trial._own_interval_score(batch.take(np.flatnonzero(is_held)))
                except BadValueError:  # quantiles of this level are not known
                    break
            else:
                sums[method] = total
        return min(sums, key=lambda method: sums[method])

    def _own_interval_score(self, batch: Batch) -> float:
        """Return the weighted sum of interval scores at the threshold of the same rows."""
        bands = self._bands(batch.outputs, type(self).__name__)
        y, weight = values_of(batch), batch.weight
        reach = np.full(len(batch), weighted_quantile(self._scores(batch), weight, self.level_))
        low, high = _widened(bands, reach, reach)
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(weight @ interval_scores(y, low, high, self.level_))
        return total if np.isfinite(total) else np.inf

    def _bin_rows(self, batch: Batch, used: Any) -> Any:
        """Set the edges of bins, and return the rows that are not at an edge.

        Given the edges, the other rows of a bin are exchangeable with a new row of it.
        """
        name = type(self).__name__
        if batch.groups is not None:
            fix = "Use n_bins=None with groups"
            raise BadTypeError("groups", name, "must be None with n_bins", "groups", fix)
        values = _binned(self._bands(batch.take(used).outputs, name), self.bin_by)
        n_bins = self.n_bins
        if n_bins == "auto":
            n_bins = int(np.clip(used.size * (1 - self.level) / BIN_TAIL_ROWS + 1e-9, 1, MAX_BINS))
        assert isinstance(n_bins, int | np.integer)
        order = np.argsort(values, kind="stable")
        places = np.arange(1, n_bins) * used.size // n_bins
        edges, first = np.unique(values[order[places]], return_index=True)
        # The last value is no edge: nothing lies beyond it.
        is_inside = edges < values.max()
        self.bin_edges_ = freeze(edges[is_inside])
        at_edges = order[places[first[is_inside]]]
        counts = np.bincount(
            np.searchsorted(self.bin_edges_, np.delete(values, at_edges)),
            minlength=self.bin_edges_.size + 1,
        )
        if not counts.all():
            possible = min(used.size // (rows_needed(self.level_) + 1), int(n_bins) - 1)
            rule = f"must leave rows in each bin; {used.size:,} rows calibrate"
            fix = f"Use n_bins={possible}" if possible > 1 else "Use n_bins=None"
            raise BadValueError("n_bins", name, rule, f"{n_bins}", fix)
        return np.sort(np.delete(used, at_edges))

    def _group_column(self, batch: Batch) -> Any:
        """Return the name of each row's group."""
        names, positions = self._row_groups(batch)
        return np.array(names)[positions]

    def _facts(self, batch: Batch) -> dict[str, Any]:
        self._require_rows(batch)
        if "method_" not in vars(self):
            self.method_ = self.method or METHODS[kind_of(batch.outputs)][0]
        return super()._facts(batch)

    def _scores(self, batch: Batch) -> FloatArray:
        y = values_of(batch)
        low, high, below, above = self._bands(batch.outputs, type(self).__name__)
        with np.errstate(over="ignore", invalid="ignore"):
            under, over = _ratio(low - y, below), _ratio(y - high, above)
        if self.symmetric_:
            return np.maximum(under, over)
        assert batch.groups is not None
        return np.where(np.char.endswith(batch.groups, LOWER), under, over)

    def _bands(self, outputs: BaseOutputs, caller: str) -> _Bands:
        """Return the bounds that are widened, and the units below and above, in float64."""
        level = self.level_ if self.symmetric_ else 2 * self.level_ - 1
        one = np.ones(outputs.n_rows)
        if self.method_ == "quantiles":
            with np.errstate(over="ignore"):  # an infinite bound covers
                low, high = central_interval(outputs, level, caller)
                return _Bands(low.astype(np.float64), high.astype(np.float64), one, one)
        stated = stated_spread(outputs, level)
        if self.method_ == "absolute":
            return _Bands(stated.center, stated.center, one, one)
        if self.local_scale_ is not None:
            stated = self.local_scale_.apply(stated)
        elif self.method_ == "normalized" and stated.is_skewed:
            width = stated.below + stated.above
            stated = Spread(stated.center, width, width, False)
        return _Bands(stated.center, *stated[:3])


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
    >>> import numpy as np
    >>> from dubito.doubt import PredictionIntervals
    >>> intervals = PredictionIntervals(np.array([0.0, 1.0]), np.array([2.0, 5.0]))
    >>> intervals.coverage([2.0, 0.5]), intervals.interval_score([2.0, 0.5], level=0.9)
    (0.5, 8.0)
    """

    low: FloatArray
    high: FloatArray

    def _repr_html_(self) -> str:
        width = f", mean width {self.width.mean():.4g}" if self.low.size else ""
        verdict = f"Prediction intervals of {quantity(self.low.size)}{width}."
        columns = {"low": self.low, "high": self.high, "width": self.width}
        return html_view(verdict, html_rows(columns, self.low.size))

    @property
    def width(self) -> FloatArray:
        """The width of each interval."""
        return np.asarray(self.high - self.low)

    def contains(self, y: Any) -> BoolArray:
        """Return whether each target is in its interval.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            The targets; none may be missing.

        Returns
        -------
        ndarray of bool, shape (n_rows,)
        """
        values = as_numbers(y, "y", "PredictionIntervals.contains")
        return np.asarray((self.low <= values) & (values <= self.high))

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
        low, high, values = self._known(y, "coverage")
        return float(((low <= values) & (values <= high)).mean())

    def interval_score(self, y: Any, level: float = 0.9) -> float:
        """Return the mean interval score (Winkler score): width plus a penalty for each miss.

        The penalty is 2 / (1 - level) times the distance to the interval. Expected scores are
        lowest for the true central interval.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            The targets. Rows where it is missing (NaN) are ignored with a warning.
        level : float, default=0.9
            The nominal coverage of the intervals.

        Returns
        -------
        float
            In the unit of the target; lower is better.

        References
        ----------
        Gneiting and Raftery, "Strictly proper scoring rules, prediction, and estimation", 2007.
        """
        nominal = as_fraction(level, "level", "PredictionIntervals.interval_score", is_open=True)
        low, high, values = self._known(y, "interval_score")
        return float(interval_scores(values, low, high, nominal).mean())

    def _known(self, y: Any, method: str) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return bounds and targets of the rows with a target, and warn about the others."""
        caller = f"PredictionIntervals.{method}"
        targets = Targets.of(y, len(self.low), "y", caller)
        require_dimensions(targets.values, (1,), "y", caller, "one number per row")
        warn_of_missing(targets.n_missing, len(self.low), caller, stacklevel=4)
        is_known = ~targets.is_missing
        if not is_known.any():
            raise EmptyStateError("Coverage" if method == "coverage" else "An interval score")
        return self.low[is_known], self.high[is_known], targets.values[is_known]


class _Bands(NamedTuple):
    """Bounds that are widened, and the units below and above."""

    low: FloatArray
    high: FloatArray
    below: FloatArray
    above: FloatArray


def _ratio(distance: FloatArray, unit: FloatArray) -> FloatArray:
    """Return distances in units; in a unit of 0, anything outside is infinitely far away."""
    ratio = distance / np.where(unit == 0, 1.0, unit)
    return np.where((unit == 0) & (distance > 0), np.inf, ratio)


def _binned(bands: _Bands, bin_by: str) -> FloatArray:
    """Return what bins are of, in each row."""
    with np.errstate(over="ignore"):
        if bin_by == "mean":
            return np.asarray(bands.low / 2 + bands.high / 2)
        return np.nan_to_num((bands.high - bands.low) + (bands.below + bands.above))


def _bins(bands: _Bands, bin_by: str, edges: FloatArray) -> Any:
    """Return the number of each row's bin."""
    return np.searchsorted(edges, _binned(bands, bin_by))


def _end_names(groups: Any, n_rows: int, end: str) -> Any:
    """Return the name of the threshold of each row at one end."""
    if groups is None:
        return np.full(n_rows, end)
    return np.char.add(np.asarray(groups).astype(str), f", {end}")


def _widened(bands: _Bands, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return bounds moved out by threshold x unit; the center where they would cross."""
    bounds = []
    largest = np.maximum(np.abs(bands.low), np.abs(bands.high))
    for sign, bound, unit, thresholds in (
        (-1, bands.low, bands.below, lower),
        (1, bands.high, bands.above, upper),
    ):
        is_infinite = np.isinf(thresholds)
        with np.errstate(over="ignore"):
            step = np.where(is_infinite, np.inf, np.where(is_infinite, 0.0, thresholds) * unit)
            step = step + ROUNDING * (largest + np.abs(step))
            bounds.append(bound + sign * step)
    return uncrossed(*bounds)


def uncrossed(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return bounds, both of them the center where they cross."""
    is_crossed = low > high
    with np.errstate(over="ignore", invalid="ignore"):
        center = low / 2 + high / 2
    return np.where(is_crossed, center, low), np.where(is_crossed, center, high)


def _as_regression(outputs: Any, caller: str) -> Regression:
    """Return outputs of one target per row; an array of predictions becomes one draw each."""
    if not isinstance(outputs, BaseOutputs):
        points = as_numbers(outputs, "outputs", caller)
        return unchecked(Samples, {"array": points[:, np.newaxis]})
    if not isinstance(outputs, Normal | Samples | Quantiles):
        rule = "must be Normal, Samples, Quantiles or an array of predictions"
        fix = outputs.remedy or "Use ConformalClassifier for classes"
        raise BadTypeError("outputs", caller, rule, type(outputs).__name__, fix)
    require_one_target(outputs, caller, "Fit one predictor per target")
    return outputs


def kind_of(outputs: BaseOutputs) -> str:
    """Return the kind of outputs; one sample per row is a plain prediction."""
    is_point = isinstance(outputs, Samples) and outputs.array.shape[1] == 1
    return POINTS if is_point else type(outputs).__name__


def _levels_of(outputs: BaseOutputs) -> tuple[float, ...] | None:
    """Return the levels of quantiles, None for other outputs."""
    if not isinstance(outputs, Quantiles):
        return None
    return tuple(outputs.levels.astype(np.float64).tolist())

"""Conformal prediction over time: intervals and sets that adapt as the truth arrives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import (
    FloatArray,
    IntArray,
    as_count,
    as_finite,
    as_floats,
    as_fraction,
    as_number,
    freeze,
    require_choice,
    require_dimensions,
    require_everywhere,
)
from dubito.data.batch import as_column
from dubito.data.labels import Labels, Targets
from dubito.doubt.conformal.classifier import PredictionSets
from dubito.doubt.conformal.regressor import PredictionIntervals
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels.online_updates import (
    ACI,
    HUGE,
    IDENTITY,
    LOG,
    LOG1P,
    N_BINS,
    ONE_SIDED,
    PI,
    POINTS,
    SPREAD,
    SQRT,
    TRACKING,
    OnlineState,
    run_online,
    settle_online,
)
from dubito.measure.regression import central_interval
from dubito.outputs import BaseOutputs, Logits, Normal, Probabilities, Quantiles, Samples
from dubito.outputs.classification import as_class_matrix, require_classes
from dubito.serialization.array_fields import array
from dubito.serialization.fields import (
    MOST,
    Entry,
    class_names,
    declare,
    integer,
    list_of,
    number,
    one_of,
    optional,
    text,
)
from dubito.serialization.objects import Serializable

METHODS = {"aci": ACI, "tracking": TRACKING, "pi": PI}
TRANSFORMS = {"identity": IDENTITY, "log1p": LOG1P, "sqrt": SQRT, "log": LOG}
AUTO_TRANSFORMS = ("identity", "log1p")
RATES = {"aci": 0.01, "tracking": 0.2, "pi": 0.2}
CANDIDATES = (  # sides, method and rate
    (1, "aci", 0.01),
    (1, "tracking", 0.2),
    (2, "tracking", 0.2),
    (2, "pi", 0.6),
)
KINDS = {"points": POINTS, "spread": SPREAD, "classes": ONE_SIDED}
MAX_SPAN = 1_000_000  # of integers that are counted rather than sorted
BLOCK = 16_384  # rows that are held with what every candidate issued for them
UNKNOWN = MOST  # the truth that is not known yet, and the time at which it will be
LEAST_PROBABILITY = 1e-12
ALL = "all"  # the name of the only series where rows have none
DAY = np.timedelta64(1, "D")
MIN_GAPS = 5  # of a series, below which its step is no shorter than that of the others
LONG_GAP = 1.2  # steps; from here on the truth of several steps ahead may be unknown
MAX_LONG = 0.15  # of the gaps

Method = Literal["auto", "aci", "tracking", "pi"]
Transform = Literal["auto", "identity", "log1p", "sqrt", "log"]


@final
class OnlineConformal(Serializable):
    """Prediction intervals, or sets of classes, for forecasts over time.

    It needs forecasts alone, no model. `predict` returns an interval for each; `update` learns
    from the truth whenever it arrives, be it weeks later and in another order. Coverage is kept by
    feedback, not by assumptions: after misses intervals widen, so that the long-run coverage is
    `level` for drifting and even adversarial series. A series whose noise differs from that of the
    others, or doubles, gets there slowly.

    Series are pooled by horizon: a series starts at the threshold of its pool and moves towards its
    own with the number of its rows, n / (n + 20).

    Parameters
    ----------
    level : float, default=0.9
        The coverage, above 0 and below 1.
    method : {"auto", "aci", "tracking", "pi"}, default="auto"
        How the threshold moves with an error rate of `alpha = 1 - level`. "aci": it is the
        `1 - alpha_t` quantile of past scores, where `alpha_t` moves by `rate * (alpha - error)`.
        "tracking": the threshold itself moves by `rate * (error - alpha)`, in units of the mean
        score. "pi": "tracking" plus a term that grows with the sum of past errors. "auto": the
        mean of all, weighted by their past interval score, with a small correction that keeps the
        coverage of the mean.
    transform : {"auto", "identity", "log1p", "sqrt", "log"}, default="auto"
        The scale on which errors are alike. "log1p" and "sqrt" keep the sign of a number; "log"
        needs positive ones. "auto" weighs "identity" and "log1p" with method="auto", and is
        "identity" with another method.
    rate : float, optional
        The learning rate of a single method. Default: 0.01 for "aci", otherwise 0.2. It is divided
        by the horizon plus 1, the number of steps until the truth is known.
    max_waiting : int, default=100000
        The number of forecasts that may wait for their truth. Beyond it the oldest are given up
        and counted in `n_dropped_`.

    Attributes
    ----------
    kind_ : {"points", "spread", "classes"}
        What is widened: a point forecast by the mean error of its series, the central interval of
        `Normal`, `Quantiles` or `Samples` by its own width, or a set of classes.
    series_, horizons_ : list
        The names of the series and the horizons so far.
    time_ : float or None
        The last time.
    steps_ : list of float or None
        The time between two steps of each series, None where it has one forecast so far.
    n_dropped_ : int
        Forecasts whose truth never arrived.
    n_truths_, n_covered_ : int
        Truths learned from after the warm-up, and those inside the interval issued for them.

    Notes
    -----
    A forecast is widened only after a warm-up: 15 rows of a single series of point forecasts (until
    then its intervals are infinite), or 10 rows with a spread (until then it is unchanged), and at
    least one row per series. With method="aci" and one series, the error rate after T more rows is
    within `(max(alpha, 1 - alpha) + rate) / (rate * T)` of alpha, whatever the truth; intervals are
    infinite where `alpha_t` is negative.

    References
    ----------
    Gibbs and Candès, "Adaptive conformal inference under distribution shift", 2021 (ACI);
    Angelopoulos, Candès and Tibshirani, "Conformal PID control for time series prediction", 2023
    (quantile tracking, PI).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> forecasts = np.full(300, 20.0)
    >>> online = OnlineConformal(level=0.9)
    >>> past = online.replay(forecasts, forecasts + rng.normal(size=300))
    >>> interval = online.predict([20.0])
    >>> online.update([21.0]).n_waiting
    0
    """

    kind_: str
    n_classes_: int | None
    classes_: tuple[Any, ...] | None
    series_: list[str]
    horizons_: list[int]
    time_: float | None
    steps_: list[float | None]
    n_dropped_: int
    n_truths_: int
    n_covered_: int
    cell_series_: IntArray
    cell_pools_: IntArray
    cell_times_: FloatArray
    cells_: FloatArray
    pools_: FloatArray
    trees_: FloatArray
    choice_: FloatArray
    waiting_ids_: list[str | None]
    waiting_cells_: IntArray
    waiting_known_: FloatArray
    waiting_truth_: FloatArray
    waiting_: FloatArray
    waiting_scores_: FloatArray

    fitted_fields = declare(
        kind_=one_of(*KINDS),
        n_classes_=optional(integer(2)),
        classes_=class_names("n_classes_"),
        series_=list_of(text),
        horizons_=list_of(integer(0)),
        time_=optional(number(-MOST, MOST)),
        steps_=list_of(optional(number(0, MOST))),
        n_dropped_=integer(0),
        n_truths_=integer(0),
        n_covered_=integer(0),
        cell_series_=array(None, low=0, is_whole=True),
        cell_pools_=array("cell_series_", low=0, is_whole=True),
        cell_times_=array("cell_series_", low=-MOST, high=MOST),
        cells_=array("cell_series_", None, low=-MOST, high=MOST),
        pools_=array("horizons_", None, low=-MOST, high=MOST),
        trees_=array("horizons_", None, N_BINS, low=0),
        choice_=array(None, low=0, high=MOST),
        waiting_ids_=list_of(optional(text)),
        waiting_cells_=array("waiting_ids_", low=0, is_whole=True, is_empty_allowed=True),
        waiting_known_=array("waiting_ids_", low=-MOST, high=MOST, is_empty_allowed=True),
        waiting_truth_=array("waiting_ids_", low=-MOST, high=MOST, is_empty_allowed=True),
        waiting_=array("waiting_ids_", None, low=-MOST, high=MOST, is_empty_allowed=True),
        waiting_scores_=array("waiting_ids_", None, low=0, is_empty_allowed=True),
    )

    def __init__(
        self,
        level: float = 0.9,
        method: Method = "auto",
        transform: Transform = "auto",
        rate: float | None = None,
        max_waiting: int = 100_000,
    ) -> None:
        self.level = level
        self.method = method
        self.transform = transform
        self.rate = rate
        self.max_waiting = max_waiting

    @property
    def n_waiting(self) -> int:
        """The number of forecasts that wait for their truth."""
        return len(self.waiting_ids_) if self.__sklearn_is_fitted__() else 0

    @property
    def choice(self) -> dict[str, float]:
        """The weight of each candidate, by its transform, number of sides and method."""
        self._require_fitted("choice")
        names = [f"{t} {m}" + " (two-sided)" * (n > 1) for t, n, m, _ in self._candidates()]
        return dict(zip(names, self.choice_[-len(names) :].tolist(), strict=True))

    def predict(
        self, outputs: Any, *, series: Any = None, horizon: Any = 0, ids: Any = None
    ) -> PredictionIntervals | PredictionSets:
        """Return the interval, or the set of classes, of each forecast, which then waits.

        Truths that `replay` was given are learned from first.

        Parameters
        ----------
        outputs : Normal, Samples, Quantiles, class outputs, or array-like of shape (n_rows,)
            Forecasts, of the same kind in every call; numbers are point forecasts. Probabilities
            of classes are passed as `Probabilities` or `Logits`.
        series : array-like of shape (n_rows,), optional
            The name of each row's series. Default: all rows are one series.
        horizon : int or array-like of shape (n_rows,), default=0
            The number of steps ahead, from 0: the truth is known `horizon + 1` steps later.
        ids : array-like of shape (n_rows,), optional
            An identifier by which `update` finds the forecast; needed if the truths of a series
            arrive out of order.

        Returns
        -------
        PredictionIntervals or PredictionSets
            Bounds are infinite, and sets hold every class, during the warm-up.
        """
        caller = "OnlineConformal.predict"
        with self._unchanged_by_errors():
            rows = self._rows(outputs, series, horizon, ids, caller)
        n = len(rows["ids"])
        rows |= {"known": np.full(n, UNKNOWN), "truth": np.full(n, UNKNOWN)}
        return self._result(self._process(rows, np.full(n, UNKNOWN / 2)), outputs, caller)

    def update(
        self, y: Any, *, series: Any = None, horizon: Any = 0, ids: Any = None
    ) -> OnlineConformal:
        """Learn from truths, in the order given; each belongs to a forecast that waits.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            The truths. Where one is missing (NaN or None), its forecast is given up.
        series, horizon : array-like of shape (n_rows,), optional
            As in `predict`: without `ids`, a truth belongs to the oldest forecast of its series and
            horizon that waits.
        ids : array-like of shape (n_rows,), optional
            The identifiers of the forecasts.

        Returns
        -------
        self
            With what was learned.
        """
        caller = "OnlineConformal.update"
        self._require_fitted("update")
        n = _n_truths(y, caller)
        rows = self._waiting_rows(series, horizon, ids, n, caller)
        truth = self._truths(y, self.waiting_scores_[rows], caller)
        is_known = truth != UNKNOWN
        self.n_dropped_ += int(n - np.count_nonzero(is_known))
        chosen = rows[is_known]
        cells, out = self.waiting_cells_[chosen], self.waiting_[chosen]
        pools = self.cell_pools_[cells]
        delays = np.array(self.horizons_, dtype=np.float64)[pools] + 1
        state = self._state()
        self._count(truth[is_known], out)
        settle_online(
            state, KINDS[self.kind_], self._alpha, cells, pools, delays, truth[is_known], out
        )
        self._keep_waiting(np.setdiff1d(np.arange(self.n_waiting), rows))
        return self

    def schedule(self, y: Any, *, ids: Any) -> OnlineConformal:
        """Give truths of forecasts of a replay that wait, to be learned from once they are known.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            The truths, NaN or None where still unknown.
        ids : array-like of shape (n_rows,)
            The identifiers of the forecasts.

        Returns
        -------
        self
            With the truths.
        """
        caller = "OnlineConformal.schedule"
        self._require_fitted("schedule")
        rows = self._waiting_rows(None, 0, ids, _n_truths(y, caller), caller)
        self.waiting_truth_[rows] = self._truths(y, self.waiting_scores_[rows], caller)
        return self

    def waiting(self, ids: Any) -> tuple[NDArray[np.bool_], FloatArray, PredictionIntervals]:
        """Return what is known of forecasts that wait.

        Parameters
        ----------
        ids : array-like of shape (n_rows,)
            Their identifiers.

        Returns
        -------
        has_truth : ndarray of shape (n_rows,)
            Whether `schedule` or `replay` was given the truth.
        forecasts : ndarray of shape (n_rows, 2)
            The bounds as forecast.
        intervals : PredictionIntervals
            As issued.
        """
        caller = "OnlineConformal.waiting"
        rows = self._waiting_rows(None, 0, ids, len(ids), caller)
        out = self.waiting_[rows]
        found = PredictionIntervals(*(freeze(one) for one in _unbounded(out[:, 4:6]).T))
        return self.waiting_truth_[rows] != UNKNOWN, out[:, :2], found

    def replay(
        self,
        outputs: Any,
        y: Any,
        *,
        time: Any = None,
        series: Any = None,
        horizon: Any = 0,
        known: Any = None,
        ids: Any = None,
    ) -> PredictionIntervals | PredictionSets:
        """Return what would have been predicted at the time, and learn from a history.

        Each forecast uses only truths that were known by its time. History may be passed in parts
        of any size, in order of time, with the same result; truths known after the last forecast
        are used by the next call.

        Parameters
        ----------
        outputs : as in `predict`
            Forecasts.
        y : array-like of shape (n_rows,)
            The truths, NaN or None where still unknown.
        time : array-like of shape (n_rows,), optional
            When each forecast was made: numbers or dates. Default: one step per row.
        series, horizon, ids : array-like, optional
            As in `predict`.
        known : array-like of shape (n_rows,), optional
            When the truth was known, after `time`. Default: `horizon + 1` steps later, where a step
            is the usual time between two forecasts of the series (31 days for months). It must be
            given if times vary so much that a truth could be used too early.

        Returns
        -------
        PredictionIntervals or PredictionSets
            In the order of the rows.
        """
        caller = "OnlineConformal.replay"
        with self._unchanged_by_errors():
            rows = self._rows(outputs, series, horizon, ids, caller)
            n = len(rows["ids"])
            rows["truth"] = self._truths(y, rows["scores"], caller, outputs)
            times = self._times(time, n, caller)
            if known is None:
                steps = self._find_steps(times, rows["cells"], time is None, caller)
                rows["known"] = times + rows["delays"] * steps
            else:
                rows["known"] = _as_times(known, n, "known", caller)
                rule, fix = "must be after `time`", "Pass when the truth was known"
                require_everywhere(rows["known"] > times, rows["known"], "known", caller, rule, fix)
        order = None if (times[1:] >= times[:-1]).all() else np.argsort(times, kind="stable")
        bounds = np.empty((n, 2))
        for start in range(0, n, BLOCK):
            some = slice(start, start + BLOCK)
            chosen = some if order is None else order[some]
            part = {name: _take(column, chosen) for name, column in rows.items()}
            bounds[chosen] = self._process(part, times[chosen])
        if n:
            self.time_ = float(times.max())
            np.maximum.at(self.cell_times_, rows["cells"], times)
        return self._result(bounds, outputs, caller)

    @contextmanager
    def _unchanged_by_errors(self) -> Iterator[None]:
        """Leave the state as it was if an argument is invalid."""
        before = {k: list(v) if isinstance(v, list) else v for k, v in vars(self).items()}
        try:
            yield
        except Exception:
            vars(self).clear()
            vars(self).update(before)
            raise

    @property
    def _alpha(self) -> float:
        return 1.0 - float(self.level)

    def _check_params(self) -> None:
        name = type(self).__name__
        as_fraction(self.level, "level", name, is_open=True)
        require_choice(self.method, ("auto", *METHODS), "method", name)
        require_choice(self.transform, ("auto", *TRANSFORMS), "transform", name)
        as_count(self.max_waiting, "max_waiting", name, example=100_000)
        if self.rate is not None:
            as_number(self.rate, "rate", name, 0.0, fix="Use rate=0.05", is_open=True)
            if self.method == "auto":
                rule, fix = "needs a single method", "Pass method='aci', or leave rate out"
                raise BadValueError("rate", name, rule, f"{self.rate:g} and method='auto'", fix)

    def _check_fitted(self, entry: Entry) -> None:
        sizes = self._sizes()
        for name, size in sizes.items():
            found = getattr(self, name)
            if name == "choice_":
                continue
            if not len(found):
                setattr(self, name, found.reshape(0, size))
            elif found.shape[1] != size:
                raise entry.at(name).error(f"must have {size} columns", f"{found.shape[1]}")
        if self.choice_.size != sizes["choice_"]:
            raise entry.at("choice_").error(f"a list of {sizes['choice_']}", f"{self.choice_.size}")
        limits = {
            "cell_series_": len(self.series_),
            "cell_pools_": len(self.horizons_),
            "waiting_cells_": len(self.cell_series_),
        }
        for name, limit in limits.items():
            found = getattr(self, name)
            if len(found) and found.max() >= limit:
                raise entry.at(name).error(f"below {limit}", f"{found.max()}")

    def _transforms(self) -> tuple[str, ...]:
        if self.kind_ == "classes":
            return ("identity",)
        if self.transform != "auto":
            return (self.transform,)
        return AUTO_TRANSFORMS if self.method == "auto" else ("identity",)

    def _candidates(self) -> list[tuple[str, int, str, float]]:
        """Return the transform, the number of sides, the method and the rate of each candidate."""
        if self.method != "auto":
            rate = RATES[self.method] if self.rate is None else float(self.rate)
            return [(self._transforms()[0], 1, self.method, rate)]
        return [
            (transform, n_sides, method, rate)
            for transform in self._transforms()
            for n_sides, method, rate in CANDIDATES
            if n_sides == 1 or self.kind_ != "classes"
        ]

    def _begin(self, kind: str, n_classes: int | None, classes: Any) -> None:
        """Set up an empty state for a kind of forecasts."""
        self._check_params()
        self.kind_, self.n_classes_, self.classes_ = kind, n_classes, classes
        self.series_, self.horizons_ = [], []
        self.time_, self.steps_ = None, []
        self.n_dropped_ = self.n_truths_ = self.n_covered_ = 0
        sizes, empty = self._sizes(), np.zeros(0, dtype=np.int64)
        self.cell_series_, self.cell_pools_, self.waiting_cells_ = empty, empty, empty
        self.cell_times_ = np.zeros(0)
        self.cells_, self.pools_ = np.zeros((0, sizes["cells_"])), np.zeros((0, sizes["pools_"]))
        self.trees_ = np.zeros((0, sizes["trees_"], N_BINS))
        self.choice_ = np.zeros(sizes["choice_"])
        self.choice_[2] = 1.0  # the weights are out of date
        self.waiting_ids_, self.waiting_known_, self.waiting_truth_ = [], *np.zeros((2, 0))
        self.waiting_ = np.zeros((0, sizes["waiting_"]))
        self.waiting_scores_ = np.zeros((0, sizes["waiting_scores_"]))

    def _sizes(self) -> dict[str, int]:
        """Return the number of columns of each array."""
        n_units, n_candidates = len(self._transforms()), len(self._candidates())
        n_trackers = sum(n for _, n, _, _ in self._candidates()) + 1
        return {
            "cells_": 2 + n_units + 2 * n_trackers,
            "pools_": 7 + 3 * n_units + 3 * n_trackers,
            "trees_": n_units,
            "choice_": 3 + 3 * n_candidates,
            "waiting_": 6 + n_units + 2 * n_candidates,
            "waiting_scores_": self.n_classes_ or 0,
        }

    def _state(self) -> OnlineState:
        """Return what kernels read and change in place."""
        names = self._transforms()
        table, first = [], 0
        for transform, n_sides, method, _ in self._candidates():
            table.append([names.index(transform), n_sides, METHODS[method], first])
            first += n_sides
        return OnlineState(
            n_units=len(names),
            n_trackers=first + 1,
            transforms=np.array([TRANSFORMS[name] for name in names]),
            candidates=np.array(table),
            rates=np.array([rate for *_, rate in self._candidates()]),
            cells=self.cells_,
            pools=self.pools_,
            trees=self.trees_,
            choice=self.choice_,
        )

    def _rows(
        self, outputs: Any, series: Any, horizon: Any, ids: Any, caller: str
    ) -> dict[str, Any]:
        """Return forecasts as columns; new series and horizons are added to the state."""
        kind, low, high, scores, classes = _forecasts(outputs, self.level, caller)
        n = len(low)
        if not self.__sklearn_is_fitted__():
            self._check_params()
            self._begin(kind, scores.shape[1] or None, classes)
        elif kind != self.kind_:
            rule, fix = (
                f"must be {NOUNS[self.kind_]}, as before",
                "Use one OnlineConformal per kind",
            )
            raise BadTypeError("outputs", caller, rule, NOUNS[kind], fix)
        elif kind == "classes":
            require_classes(outputs, self.n_classes_ or 0, self.classes_, caller)
        if self.transform == "log" and kind != "classes":
            rule, fix = "must be positive for transform='log'", "Use transform='log1p'"
            require_everywhere(low > 0, low, "outputs", caller, rule, fix)
        cells, delays = self._cells(series, horizon, n, caller)
        names = self._ids(ids, n, caller)
        return {
            "cells": cells,
            "delays": delays,
            "low": low,
            "high": high,
            "scores": scores,
            "ids": names,
        }

    def _ids(self, ids: Any, n: int, caller: str) -> list[str | None]:
        column = as_column(ids, n, "ids", caller)
        if column is None:
            return [None] * n
        names = [str(one) for one in column.tolist()]
        seen = {one for one in self.waiting_ids_ if one is not None}
        for row, one in enumerate(names):
            if one in seen:
                rule, fix = "must be of no forecast that waits", "Pass its truth to update() first"
                raise BadValueError("ids", caller, rule, repr(one), fix, row)
            seen.add(one)
        return list(names)

    def _cells(self, series: Any, horizon: Any, n: int, caller: str) -> tuple[IntArray, FloatArray]:
        """Return the cell of each row, and its horizon plus 1; new ones are added."""
        steps, step_codes = _horizons(horizon, n, caller)
        names, name_codes = _series_names(as_column(series, n, "series", caller), n)
        pairs: Any = range(len(names))
        codes = name_codes
        if len(steps) != 1 or not n:
            pairs, codes = _distinct(name_codes * len(steps) + step_codes)
        known = self._lookup()
        for name, step in ((names[one // len(steps)], steps[one % len(steps)]) for one in pairs):
            if (name, step) not in known:
                known[name, step] = len(known)
                self._add_cell(name, step)
        table = [known[names[one // len(steps)], steps[one % len(steps)]] for one in pairs]
        cells = np.array(table, dtype=np.int64)[codes] if n else np.zeros(0, dtype=np.int64)
        return cells, np.array(steps, dtype=np.float64)[step_codes] + 1

    def _lookup(self) -> dict[tuple[str, int], int]:
        """Return the cell of each series and horizon."""
        pairs = zip(self.cell_series_.tolist(), self.cell_pools_.tolist(), strict=True)
        return {(self.series_[s], self.horizons_[p]): i for i, (s, p) in enumerate(pairs)}

    def _add_cell(self, name: str, step: int) -> None:
        if step not in self.horizons_:
            self.horizons_.append(step)
            self.pools_, self.trees_ = _with_row(self.pools_), _with_row(self.trees_)
            self.pools_[-1, 4] = 1.0  # the weight of a new score
        if name not in self.series_:
            self.series_.append(name)
            self.steps_.append(None)
        series, pool = self.series_.index(name), self.horizons_.index(step)
        self.cell_series_ = np.append(self.cell_series_, series)
        self.cell_pools_ = np.append(self.cell_pools_, pool)
        self.cell_times_ = np.append(self.cell_times_, -MOST)
        self.cells_ = _with_row(self.cells_)

    def _truths(self, y: Any, scores: FloatArray, caller: str, outputs: Any = None) -> FloatArray:
        """Return targets, or the scores of labels; UNKNOWN where they are missing."""
        if self.kind_ == "classes":
            if outputs is None:
                blank = np.full((len(scores), self.n_classes_ or 2), 1 / (self.n_classes_ or 2))
                outputs = Probabilities(blank, self.classes_)
            codes = Labels.of(y, as_class_matrix(outputs, "outputs", caller), "y", caller).codes
            found = np.take_along_axis(scores, np.maximum(codes, 0)[:, np.newaxis], axis=1)[:, 0]
            return np.where(codes < 0, UNKNOWN, found)
        values = Targets.of(_without_none(y), len(scores), "y", caller).values.astype(np.float64)
        require_dimensions(values, (1,), "y", caller, "one number per row")
        is_missing = np.isnan(values)
        if self.transform == "log":
            rule, fix = "must be positive for transform='log'", "Use transform='log1p'"
            require_everywhere((values > 0) | is_missing, values, "y", caller, rule, fix)
        return np.where(is_missing, UNKNOWN, values)

    def _times(self, time: Any, n: int, caller: str) -> FloatArray:
        if time is None:
            start = 0.0 if self.time_ is None else self.time_ + 1
            return start + np.arange(n, dtype=np.float64)
        times = _as_times(time, n, "time", caller)
        if self.time_ is not None:
            rule = f"must be at least {self.time_:g}, the time of the last forecast"
            fix = "Pass rows in order of time, and each only once"
            require_everywhere(times >= self.time_, times, "time", caller, rule, fix)
        return times

    def _find_steps(
        self, times: FloatArray, cells: IntArray, is_counted: bool, caller: str
    ) -> FloatArray:
        """Return the time between two steps of each row's series, and remember it."""
        steps = np.array([np.nan if one is None else one for one in self.steps_])
        series = self.cell_series_[cells]
        if is_counted:
            steps[np.isnan(steps)] = 1.0
        elif np.isnan(steps[series]).any():
            order = np.argsort(times, kind="stable")  # fast where they are in order
            order = order[_stable_order(cells[order])]
            gaps, sorted_cells = np.diff(times[order]), cells[order]
            is_gap = (sorted_cells[1:] == sorted_cells[:-1]) & (gaps > 0)
            gaps, sorted_cells = gaps[is_gap], sorted_cells[1:][is_gap]
            if not gaps.size and np.isnan(steps).all():
                rule, fix = "must be given for forecasts of one time", "Pass when truths are known"
                raise BadValueError("known", caller, rule, "None", fix)
            of = self.cell_series_[sorted_cells]
            parts = np.split(gaps[_stable_order(of)], np.cumsum(np.bincount(of))[:-1])
            for one, part in enumerate(parts):
                if part.size and np.isnan(steps[one]):
                    steps[one] = _usual_gap(part)
                    if part.size < MIN_GAPS:
                        steps[one] = max(steps[one], _usual_gap(gaps))
            self._require_even_steps(gaps, steps[of], sorted_cells, caller)
        self.steps_ = [None if np.isnan(one) else float(one) for one in steps]
        return np.where(np.isnan(steps), np.nanmax(steps), steps)[series] if times.size else times

    def _require_even_steps(
        self, gaps: FloatArray, steps: FloatArray, cells: IntArray, caller: str
    ) -> None:
        """Raise where several steps may take longer than as many usual ones."""
        is_ahead = np.array(self.horizons_)[self.cell_pools_[cells]] > 0
        is_long = is_ahead & (gaps > LONG_GAP * steps)
        if is_long.sum() > MAX_LONG * is_ahead.sum():
            row = int(np.argmax(is_long))
            name = self.series_[self.cell_series_[cells[row]]]
            rule = "must be given, because the time between forecasts varies"
            got = f"steps of {steps[row]:g} and {gaps[row]:g} in series {name!r}"
            raise BadValueError("known", caller, rule, got, "Pass when truths are known")

    def _process(self, rows: dict[str, Any], times: FloatArray) -> FloatArray:
        """Issue rows in order of time, learn from truths known by then; return the bounds."""
        n_before, n = self.n_waiting, len(times)
        cells = np.concatenate([self.waiting_cells_, rows["cells"]])
        pools = self.cell_pools_[cells]
        known = np.concatenate([self.waiting_known_, rows["known"]])
        truth = np.concatenate([self.waiting_truth_, rows["truth"]])
        blank = np.zeros(n_before)
        out = np.empty((n_before + n, self.waiting_.shape[1]))
        out[:n_before] = self.waiting_
        scheduled = np.flatnonzero(truth != UNKNOWN)
        order = scheduled[np.argsort(known[scheduled], kind="stable")]
        n_settled = run_online(
            self._state(),
            KINDS[self.kind_],
            self._alpha,
            cells,
            pools,
            np.array(self.horizons_, dtype=np.float64)[pools] + 1,
            times.copy(),  # writable, as all others: for read-only arrays it would be compiled anew
            np.concatenate([blank, rows["low"]]),
            np.concatenate([blank, rows["high"]]),
            known,
            truth,
            order,
            out,
        )
        issued = out[n_before:, 4:6].copy()
        self._count(truth[order[:n_settled]], out[order[:n_settled]])
        is_waiting = np.ones(len(cells), dtype=bool)
        is_waiting[order[:n_settled]] = False
        self.waiting_ids_ = [*self.waiting_ids_, *rows["ids"]]
        self.waiting_cells_, self.waiting_known_, self.waiting_truth_ = cells, known, truth
        self.waiting_ = out
        self.waiting_scores_ = np.concatenate([self.waiting_scores_, rows["scores"]])
        left = np.flatnonzero(is_waiting)
        n_spare = max(left.size - int(self.max_waiting), 0)
        self.n_dropped_ += n_spare
        self._keep_waiting(left[n_spare:])
        self.waiting_ = np.clip(self.waiting_, -MOST, MOST)
        return issued

    def _count(self, truth: FloatArray, out: FloatArray) -> None:
        """Count truths, and those inside; without forecasts that were not corrected yet."""
        low, high = out[:, 4], out[:, 5]
        is_judged = (np.abs(high) < HUGE) & ((low != out[:, 0]) | (high != out[:, 1]))
        is_inside = truth <= high
        if self.kind_ != "classes":
            is_inside &= truth >= low
        self.n_truths_ += int(is_judged.sum())
        self.n_covered_ += int((is_judged & is_inside).sum())

    def _keep_waiting(self, rows: IntArray) -> None:
        """Keep only some of the forecasts that wait."""
        self.waiting_ids_ = [self.waiting_ids_[row] for row in rows]
        for name in (
            "waiting_cells_",
            "waiting_known_",
            "waiting_truth_",
            "waiting_",
            "waiting_scores_",
        ):
            setattr(self, name, getattr(self, name)[rows])

    def _waiting_rows(self, series: Any, horizon: Any, ids: Any, n: int, caller: str) -> IntArray:
        """Return the forecast that waits for each truth."""
        places: dict[Any, list[int]] = {}
        column = as_column(ids, n, "ids", caller)
        if column is not None:
            for row, one in enumerate(self.waiting_ids_):
                places.setdefault(one, []).append(row)
            keys: list[Any] = [str(one) for one in column.tolist()]
            shown = [repr(one) for one in keys]
        else:
            steps, step_codes = _horizons(horizon, n, caller)
            names, codes = _series_names(as_column(series, n, "series", caller), n)
            lookup = self._lookup()
            pairs = [(names[i], steps[j]) for i, j in zip(codes, step_codes, strict=True)]
            keys = [lookup.get(pair, -1) for pair in pairs]
            shown = [f"series {name!r}, horizon {step}" for name, step in pairs]
            for row, (cell, truth) in enumerate(
                zip(self.waiting_cells_.tolist(), self.waiting_truth_.tolist(), strict=True)
            ):
                if truth == UNKNOWN:
                    places.setdefault(cell, []).append(row)
        found = []
        for row, key in enumerate(keys):
            if not places.get(key):
                rule = "must belong to a forecast that waits for its truth"
                fix = "Call predict() for it first, and pass each truth once"
                raise BadValueError(
                    "y" if ids is None else "ids", caller, rule, shown[row], fix, row
                )
            found.append(places[key].pop(0))
        return np.array(found, dtype=np.int64)

    def _result(
        self, bounds: FloatArray, outputs: Any, caller: str
    ) -> PredictionIntervals | PredictionSets:
        bounds = _unbounded(bounds)
        if self.kind_ != "classes":
            return PredictionIntervals(freeze(bounds[:, 0].copy()), freeze(bounds[:, 1].copy()))
        scores = _class_scores(as_class_matrix(outputs, "outputs", caller))
        return PredictionSets(freeze(scores <= bounds[:, 1:]), self.classes_, level=self.level)


NOUNS = {
    "points": "point forecasts",
    "spread": "forecasts with a spread",
    "classes": "class probabilities",
}


def _forecasts(
    outputs: Any, level: float, caller: str
) -> tuple[str, FloatArray, FloatArray, FloatArray, Any]:
    """Return the kind of forecasts, their bounds, the scores of classes and their names."""
    if isinstance(outputs, Normal | Samples | Quantiles):
        shape = outputs.mean.shape if isinstance(outputs, Normal) else outputs.array.shape
        if len(shape) == len(outputs.axes):
            rule, fix = "must have one target", "Use one OnlineConformal per target"
            raise BadValueError("outputs", caller, rule, f"{shape[-1]} targets", fix)
        low, high = (
            np.array(end, dtype=np.float64) for end in central_interval(outputs, level, caller)
        )
        return "spread", low, high, np.zeros((len(low), 0)), None
    if isinstance(outputs, BaseOutputs):
        wrapped = as_class_matrix(outputs, "outputs", caller)
        zeros = np.zeros(wrapped.n_rows)
        return "classes", zeros, zeros, _class_scores(wrapped), wrapped.classes
    points = as_finite(as_floats(outputs, "outputs", caller), "outputs", caller)
    fix = "Use Probabilities(array) for classes, Quantiles(array, levels) for quantiles"
    require_dimensions(points, (1,), "outputs", caller, "one number per row", fix)
    points = points.astype(np.float64)
    return "points", points, points, np.zeros((len(points), 0)), None


def _class_scores(outputs: Logits | Probabilities) -> FloatArray:
    """Return -log p of each class, at least 0."""
    entries = outputs.array.astype(np.float64)
    if isinstance(outputs, Logits):
        entries = np.exp(entries - entries.max(axis=1, keepdims=True))
    entries = entries / entries.sum(axis=1, keepdims=True)
    return np.asarray(np.maximum(-np.log(np.maximum(entries, LEAST_PROBABILITY)), 0.0))


def _horizons(horizon: Any, n: int, caller: str) -> tuple[list[int], IntArray]:
    """Return the distinct horizons, and the index of each row's."""
    steps = np.asarray(horizon)
    if steps.dtype.kind not in "iu" or steps.ndim > 1 or (steps < 0).any():
        rule, fix = "must be 0 or a larger integer", "Count steps ahead from 0"
        got = repr(horizon) if steps.ndim == 0 else f"an array of {steps.dtype}"
        raise BadValueError("horizon", caller, rule, got, fix)
    if steps.ndim == 0:
        return [int(steps)], np.zeros(n, dtype=np.int64)
    distinct, codes = _distinct(np.asarray(as_column(steps, n, "horizon", caller)))
    return [int(one) for one in distinct], codes


def _series_names(series: NDArray[Any] | None, n: int) -> tuple[list[str], IntArray]:
    """Return the names of the series in the rows, and the index of each row's."""
    if series is None:
        return [ALL], np.zeros(n, dtype=np.int64)
    keys = series if series.dtype.kind in "iuU" else np.array([str(one) for one in series.tolist()])
    distinct, codes = _distinct(keys)
    return [str(one) for one in distinct.tolist()], codes


def _distinct(keys: NDArray[Any]) -> tuple[NDArray[Any], IntArray]:
    """Return the distinct keys in order, and the index of each; integers need no sorting."""
    if keys.dtype.kind in "iu" and keys.size:
        low, high = int(keys.min()), int(keys.max())
        if high - low < MAX_SPAN:
            is_there = np.zeros(high - low + 1, dtype=bool)
            is_there[keys - low] = True
            index = np.cumsum(is_there) - 1
            return np.flatnonzero(is_there) + low, index[keys - low]
    return np.unique(keys, return_inverse=True)


def _as_times(value: Any, n: int, argument: str, caller: str) -> FloatArray:
    """Return times as numbers; dates as days."""
    found = np.asarray(value)
    if found.dtype.kind == "M":
        found = (found - np.datetime64(0, "D")) / DAY
    elif found.dtype.kind in "OSU":
        rule, fix = "must be numbers or datetime64", "Convert dates to datetime64, in UTC"
        raise BadTypeError(argument, caller, rule, f"an array of {found.dtype}", fix)
    times = as_finite(as_floats(found, argument, caller), argument, caller)
    column = as_column(times, n, argument, caller)
    return np.asarray(column, dtype=np.float64)


def _unbounded(bounds: FloatArray) -> FloatArray:
    """Return bounds with infinity for the largest."""
    return np.where(np.abs(bounds) >= HUGE, np.copysign(np.inf, bounds), bounds)


def _usual_gap(gaps: FloatArray) -> float:
    """Return the 80 % quantile of gaps, without the long ones: 31 days for months."""
    median = np.partition(gaps, gaps.size // 2)[gaps.size // 2]
    usual = gaps[gaps <= LONG_GAP * median]
    place = usual.size * 4 // 5
    return float(np.partition(usual, place)[place])


def _stable_order(codes: IntArray) -> IntArray:
    """Return the order of codes; few of them take linear time."""
    dtype = np.min_scalar_type(int(codes.max())) if codes.size else codes.dtype
    return np.argsort(codes.astype(dtype), kind="stable")


def _n_truths(y: Any, caller: str) -> int:
    if np.ndim(y) == 0:
        rule, fix = "must be a list of truths", "Pass a list, one truth per forecast"
        raise BadTypeError("y", caller, rule, repr(y), fix)
    return len(y)


def _without_none(y: Any) -> Any:
    """Return targets with NaN for None."""
    return [np.nan if one is None else one for one in y] if isinstance(y, list | tuple) else y


def _with_row(values: FloatArray) -> FloatArray:
    """Return an array with one more row of zeros."""
    return np.concatenate([values, np.zeros((1, *values.shape[1:]))])


def _take(column: Any, rows: Any) -> Any:
    """Return some rows of an array or a list."""
    if isinstance(column, list):
        return column[rows] if isinstance(rows, slice) else [column[row] for row in rows]
    return column[rows]

"""Conformal prediction over time: intervals and sets that adapt as outcomes arrive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    as_count,
    as_fraction,
    as_number,
    freeze,
    require_choice,
    require_dimensions,
    require_everywhere,
)
from dubito.data.batch import as_column
from dubito.data.labels import Labels, Targets
from dubito.data.times import duration, time_text
from dubito.doubt.conformal import panel
from dubito.doubt.conformal.classifier import PredictionSets
from dubito.doubt.conformal.regressor import PredictionIntervals
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels import online_updates as kernels
from dubito.outputs import Probabilities
from dubito.outputs.classification import as_class_matrix, require_classes
from dubito.serialization.array_fields import array
from dubito.serialization.fields import (
    MAX_FLOAT,
    Entry,
    class_names,
    fitted,
    integer,
    list_of,
    number,
    one_of,
    optional,
    text,
)
from dubito.serialization.objects import Serializable

METHODS = {"aci": kernels.ACI, "tracking": kernels.TRACKING, "pi": kernels.PI}
TRANSFORMS = {
    "identity": kernels.IDENTITY,
    "log1p": kernels.LOG1P,
    "sqrt": kernels.SQRT,
    "log": kernels.LOG,
}
AUTO_TRANSFORMS = ("identity", "log1p")
RATES = {"aci": 0.01, "tracking": 0.2, "pi": 0.2}
CANDIDATES = (  # sides, method and rate
    (1, "aci", 0.01),
    (1, "tracking", 0.2),
    (2, "tracking", 0.2),
    (2, "pi", 0.6),
)
KINDS = {"points": kernels.POINTS, "spread": kernels.SPREAD, "classes": kernels.ONE_SIDED}
BLOCK = 16_384  # rows that are held with what every candidate issued for them
UNKNOWN = MAX_FLOAT  # the outcome that is not known yet, and the time at which it will be
LATER = MAX_FLOAT / 4  # when outcomes are known, as long as no step is
MAX_LONG = 0.15  # of the gaps
SAME = 1e-6  # the relative difference of forecasts that count as the same
_WAITING = partial(array, "waiting_ids_", is_empty_allowed=True)  # of forecasts without outcome
WAITING = ("waiting_cells_", "waiting_known_", "waiting_truth_", "waiting_", "waiting_scores_")

Method = Literal["auto", "aci", "tracking", "pi"]
Transform = Literal["auto", "identity", "log1p", "sqrt", "log"]


@final
class OnlineConformal(Serializable):
    """Prediction intervals, or sets of classes, for forecasts over time.

    It needs forecasts alone, no model. `predict` returns an interval for each; `update` learns
    from outcomes whenever they arrive, even weeks later and in another order. Coverage is kept by
    feedback, not by assumptions: after misses intervals widen, so that the long-run coverage is
    `level` for drifting and even adversarial series. Where the noise doubles, that takes about 50
    rows of each series.

    Series are pooled by horizon: a series starts at the threshold of its pool and moves towards its
    own with the number of its rows, n / (n + 20). Intervals of a series whose errors are larger or
    smaller than those of the others are scaled by their ratio, shrunk towards 1 by n / (n + v / t),
    where t is the variance between series, estimated from what past ratios said of later rows, and
    v that of a single row (Bühlmann's credibility). The mean error of a series, by which point
    forecasts are widened, is pooled in the same way on a log scale, so that series in other units
    do not affect each other.

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
        by the horizon plus 1, the number of steps until the outcome is known.
    max_waiting : int, default=100000
        The number of forecasts that may wait for their outcome. Beyond it the oldest are given up
        and counted in `n_dropped_`.

    Attributes
    ----------
    kind_ : {"points", "spread", "classes"}
        What is widened: a point forecast by the mean error of its series, the central interval of
        `Normal`, `Quantiles` or `Samples` by its own width, or a set of classes.
    series_, horizons_ : list
        The names of the series and the horizons so far.
    time_ : float or None
        The last time; dates are days since 1970.
    time_kind_ : {"dates", "numbers"} or None
        What times are; None before the first replay.
    steps_ : list of float or None
        The time between two steps of each series, None where it has one forecast so far; 365.2425
        / 12 days stand for calendar months.
    n_dropped_ : int
        Forecasts whose outcome never arrived.
    n_truths_, n_covered_ : int
        Outcomes learned from after the warm-up, and those inside the interval issued for them.
    n_classes_, classes_ : int or None, tuple or None
        The number of classes and their names, for sets of classes.
    cell_series_, cell_pools_, cell_starts_, cell_times_, gap_cells_, gaps_, cells_ : array
        The state of each series at each horizon: its pool, times, recent gaps between forecasts,
        and thresholds. Kept for `to_dict`; not meant to be read.
    pools_, trees_, choice_ : array
        The state of each pool: thresholds, the distribution of past scores, and the weights of
        candidates.
    waiting_ids_, waiting_cells_, waiting_known_, waiting_truth_, waiting_, waiting_scores_ : array
        Forecasts whose outcome is not known yet, or not yet learned from.

    Notes
    -----
    A forecast is widened only after a warm-up: 15 rows of a single series of point forecasts (until
    then its intervals are infinite), or 10 rows with a spread (until then it is unchanged), and at
    least one row per series. With method="aci" and one series, the error rate after T more rows is
    within `(max(alpha, 1 - alpha) + rate) / (rate * T)` of alpha, for any outcomes; intervals are
    infinite where `alpha_t` is negative. Scores are errors in units of the mean error of the series
    (point forecasts) or of the width of the forecast, and their quantile is interpolated in bins
    that are 5 % wide (below a score of 0.1, 0.0025 wide) and discount old scores slowly, so
    that thresholds differ slightly from those of a sorted list.

    References
    ----------
    Gibbs and Candès, "Adaptive conformal inference under distribution shift", 2021 (ACI);
    Angelopoulos, Candès and Tibshirani, "Conformal PID control for time series prediction", 2023
    (quantile tracking, PI).

    Examples
    --------
    >>> import numpy as np
    >>> from dubito import OnlineConformal
    >>> rng = np.random.default_rng(0)
    >>> forecasts = np.full(300, 20.0)
    >>> online = OnlineConformal(level=0.9)
    >>> past = online.replay(forecasts, forecasts + rng.normal(size=300))
    >>> interval = online.predict([20.0])
    >>> online.update([21.0]).n_waiting
    0
    """

    kind_: str = fitted(one_of(*KINDS))
    n_classes_: int | None = fitted(optional(integer(2)))
    classes_: tuple[Any, ...] | None = fitted(class_names("n_classes_"))
    series_: list[str] = fitted(list_of(text))
    horizons_: list[int] = fitted(list_of(integer(0)))
    time_: float | None = fitted(optional(number(-MAX_FLOAT, MAX_FLOAT)))
    time_kind_: str | None = fitted(optional(one_of("dates", "numbers")))
    steps_: list[float | None] = fitted(list_of(optional(number(0, MAX_FLOAT))))
    n_dropped_: int = fitted(integer(0))
    n_truths_: int = fitted(integer(0))
    n_covered_: int = fitted(integer(0))
    cell_series_: IntArray = fitted(array(None, low=0, is_whole=True))
    cell_pools_: IntArray = fitted(array("cell_series_", low=0, is_whole=True))
    cell_starts_: FloatArray = fitted(array("cell_series_", low=-MAX_FLOAT, high=MAX_FLOAT))
    cell_times_: FloatArray = fitted(array("cell_series_", low=-MAX_FLOAT, high=MAX_FLOAT))
    gap_cells_: IntArray = fitted(array(None, low=0, is_whole=True, is_empty_allowed=True))
    gaps_: FloatArray = fitted(
        array("gap_cells_", None, low=-MAX_FLOAT, high=MAX_FLOAT, is_empty_allowed=True)
    )
    cells_: FloatArray = fitted(array("cell_series_", None, low=-MAX_FLOAT, high=MAX_FLOAT))
    pools_: FloatArray = fitted(array("horizons_", None, low=-MAX_FLOAT, high=MAX_FLOAT))
    trees_: FloatArray = fitted(array("horizons_", None, kernels.N_BINS, low=0))
    choice_: FloatArray = fitted(array(None, low=0, high=MAX_FLOAT))
    waiting_ids_: list[str | None] = fitted(list_of(optional(text)))
    waiting_cells_: IntArray = fitted(_WAITING(low=0, is_whole=True))
    waiting_known_: FloatArray = fitted(_WAITING(low=-MAX_FLOAT, high=MAX_FLOAT))
    waiting_truth_: FloatArray = fitted(_WAITING(low=-MAX_FLOAT, high=MAX_FLOAT))
    waiting_: FloatArray = fitted(_WAITING(None, low=-MAX_FLOAT, high=MAX_FLOAT))
    waiting_scores_: FloatArray = fitted(_WAITING(None, low=0))

    first_method = "predict"

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
        """The number of forecasts that wait for their outcome."""
        return len(self.waiting_ids_) if self.__sklearn_is_fitted__() else 0

    @property
    def truth_counts(self) -> tuple[int, int]:
        """The number of outcomes so far, and of those inside, also before they are learned from."""
        self._require_fitted("truth_counts")
        has_truth = self.waiting_truth_ != UNKNOWN
        more = self._judge(self.waiting_truth_, self.waiting_, np.flatnonzero(has_truth))
        return self.n_truths_ + more[0], self.n_covered_ + more[1]

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

        Outcomes that `replay` was given are learned from first.

        Parameters
        ----------
        outputs : Normal, Samples, Quantiles, class outputs, or array-like of shape (n_rows,)
            Forecasts, of the same kind in every call; numbers are point forecasts. Probabilities
            of classes are passed as `Probabilities` or `Logits`.
        series : array-like of shape (n_rows,), optional
            The name of each row's series. Default: all rows are one series.
        horizon : int or array-like of shape (n_rows,), default=0
            The number of steps ahead, from 0: the outcome is known `horizon + 1` steps later.
        ids : array-like of shape (n_rows,), optional
            An identifier by which `update` finds the forecast; needed if the outcomes of a series
            arrive out of order.

        Returns
        -------
        PredictionIntervals or PredictionSets
            Bounds are infinite, and sets contain every class, during the warm-up.
        """
        caller = "OnlineConformal.predict"
        with self._unchanged_by_errors():
            rows = self._rows(outputs, series, horizon, ids, caller)
        unknown = np.full(len(rows["cells"]), UNKNOWN)
        rows |= {"known": unknown, "truth": unknown}
        return self._result(self._process(rows, unknown / 2), rows["scores"])

    def update(
        self, y: Any, *, series: Any = None, horizon: Any = 0, ids: Any = None
    ) -> OnlineConformal:
        """Learn from outcomes, in the order given; each belongs to a forecast that waits.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            The outcomes. Where one is missing (NaN or None), its forecast is given up.
        series, horizon : array-like of shape (n_rows,), optional
            As in `predict`: without `ids`, an outcome belongs to the oldest forecast of its series
            and horizon that waits.
        ids : array-like of shape (n_rows,), optional
            The identifiers of the forecasts.

        Returns
        -------
        self
            With what was learned.
        """
        caller = self._require_fitted("update")
        n = _n_truths(y, caller)
        rows = self._waiting_rows(series, horizon, ids, n, caller)
        truth = self._truths(y, self.waiting_scores_[rows], caller)
        is_known = truth != UNKNOWN
        self.n_dropped_ += int(n - np.count_nonzero(is_known))
        truth, chosen = truth[is_known], rows[is_known]
        cells, out = self.waiting_cells_[chosen], self.waiting_[chosen]
        self._count(truth, out, np.arange(len(out)))
        fixed = self._state(), KINDS[self.kind_], self._alpha
        pools, delays = self.cell_pools_[cells], self._delays(cells)
        kernels.settle_online(*fixed, cells, pools, delays, truth, out)
        self._keep_waiting(np.delete(np.arange(self.n_waiting), rows))
        return self

    def schedule(self, y: Any, *, ids: Any) -> OnlineConformal:
        """Give outcomes of forecasts of a replay that wait, to be learned from once they are known.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            The outcomes, NaN or None where still unknown.
        ids : array-like of shape (n_rows,)
            The identifiers of the forecasts.

        Returns
        -------
        self
            With the outcomes.
        """
        caller = self._require_fitted("schedule")
        rows = self._waiting_rows(None, 0, ids, _n_truths(y, caller), caller)
        self.waiting_truth_[rows] = self._truths(y, self.waiting_scores_[rows], caller)
        return self

    def waiting(
        self, ids: Any
    ) -> tuple[BoolArray, FloatArray, PredictionIntervals | PredictionSets]:
        """Return what is known of forecasts that wait.

        Parameters
        ----------
        ids : array-like of shape (n_rows,)
            Their identifiers.

        Returns
        -------
        has_truth : ndarray of shape (n_rows,)
            Whether `schedule` or `replay` was given the outcome.
        forecasts : ndarray of shape (n_rows, 2)
            The uncorrected bounds; 0 for classes.
        issued : PredictionIntervals or PredictionSets
            The intervals or sets as issued.
        """
        rows = self._waiting_rows(None, 0, ids, len(ids), self._require_fitted("waiting"))
        out = self.waiting_[rows]
        issued = self._result(out[:, 4:6], self.waiting_scores_[rows])
        return self.waiting_truth_[rows] != UNKNOWN, out[:, :2], issued

    def find_changed(self, outputs: Any, y: Any, *, ids: Any) -> tuple[BoolArray, BoolArray]:
        """Return which forecasts that wait differ from these, and which of their outcomes.

        Parameters
        ----------
        outputs : as in `predict`, or None
            Forecasts; None compares outcomes alone.
        y : array-like of shape (n_rows,)
            The outcomes, NaN or None where unknown.
        ids : array-like of shape (n_rows,)
            The identifiers of the forecasts.

        Returns
        -------
        is_other_forecast, is_other_truth : ndarray of shape (n_rows,)
            Outcomes differ where `schedule` or `replay` was given another one.
        """
        caller = self._require_fitted("find_changed")
        rows = self._waiting_rows(None, 0, ids, len(ids), caller)
        is_other = np.zeros(rows.size, dtype=bool)
        if outputs is not None:
            _, low, high, scores, _ = panel.read_forecasts(outputs, self.level, caller)
            given = scores if self.kind_ == "classes" else np.column_stack([low, high])
            held = self.waiting_scores_ if self.kind_ == "classes" else self.waiting_[:, :2]
            scale = np.abs(held[rows]).max(axis=1, keepdims=True)
            is_other = (np.abs(given - held[rows]) > SAME * np.maximum(scale, SAME)).any(axis=1)
        before = self.waiting_truth_[rows]
        truth = self._truths(y, self.waiting_scores_[rows], caller)
        return is_other, (truth != before) & (truth != UNKNOWN) & (before != UNKNOWN)

    def find_late(
        self, time: Any, *, series: Any = None, horizon: Any = 0, known: Any = None
    ) -> tuple[BoolArray, BoolArray]:
        """Return which forecasts are older than the last one and were never issued.

        Replays remember this of forecasts with `ids`.

        Parameters
        ----------
        time, series, horizon, known : array-like
            As in `replay`.

        Returns
        -------
        can_be_issued : ndarray of shape (n_rows,)
            Those whose outcome is still unknown at the time of the last forecast: `replay` issues
            them with what is known by then.
        is_too_late : ndarray of shape (n_rows,)
            The others.
        """
        caller = self._require_fitted("find_late")
        n = len(time)
        times = panel.read_times(time, n, "time", caller)
        lookup, pairs = self._lookup(), _read_pairs(series, horizon, n, caller)
        cells = [lookup.get(pair, -1) for pair in pairs]
        rows = zip(cells, times.tolist(), strict=True)
        is_missing = np.array([not self._was_issued(*row) for row in rows], dtype=bool)
        is_missing &= times < (-MAX_FLOAT if self.time_ is None else self.time_)
        if known is None:
            own = np.array([self.cell_series_[one] if one >= 0 else -1 for one in cells], np.int64)
            longest = max((one for one in self.steps_ if one is not None), default=0.0)
            found = np.where(own >= 0, self._row_steps(own), longest)
            until = panel.times_after(times, np.array([step + 1.0 for _, step in pairs]), found)
        else:
            until = panel.read_times(known, n, "known", caller)
        can_be_issued = is_missing & (until > (self.time_ or 0.0))
        return can_be_issued, is_missing & ~can_be_issued

    def _was_issued(self, cell: int, time: float) -> bool:
        """Whether a forecast of a time up to the last was issued, as far as replays remember."""
        if cell < 0 or not self.cell_starts_[cell] <= time <= self.cell_times_[cell]:
            return False
        return not self._gap_around(cell, time).size

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

        Each forecast uses only outcomes that were known by its time. History may be passed in parts
        of any size, in order of time, with the same result; outcomes known after the last forecast
        are used by the next call. A forecast that is older than those of earlier calls is issued
        at the time of the last one, unless its outcome is known by then.

        Parameters
        ----------
        outputs : as in `predict`
            Forecasts.
        y : array-like of shape (n_rows,)
            The outcomes, NaN or None where still unknown.
        time : array-like of shape (n_rows,), optional
            When each forecast was made: numbers or dates. Default: one step per row.
        series, horizon, ids : array-like, optional
            As in `predict`.
        known : array-like of shape (n_rows,), optional
            When the outcome was known, after `time`. Default: `horizon + 1` steps later, where a
            step is the usual time between two forecasts of the series, or a calendar month. It must
            be given if times vary so much that an outcome could be used too early. With `ids`, the
            first forecasts may be of one time: then their outcomes wait until there is a step.

        Returns
        -------
        PredictionIntervals or PredictionSets
            In the order of the rows.
        """
        caller = "OnlineConformal.replay"
        with self._unchanged_by_errors():
            rows = self._rows(outputs, series, horizon, ids, caller)
            n = len(rows["cells"])
            rows["truth"] = self._truths(y, rows["scores"], caller, outputs)
            start = 0.0 if self.time_ is None else self.time_ + 1
            made: FloatArray = start + np.arange(n, dtype=np.float64)
            if time is not None:
                made = panel.read_times(time, n, "time", caller)
            kind = "numbers" if time is None else panel.time_kind(time)
            self._set_time_kind(kind, "time", caller)
            if known is None or ids is not None:
                steps = self._find_steps(
                    made,
                    rows["cells"],
                    is_counted=time is None,
                    is_needed=known is None,
                    can_wait=ids is not None,
                    caller=caller,
                )
                self._find_known()
            if known is None:
                later = panel.times_after(made, rows["delays"], steps)
                rows["known"] = later if self._has_steps else np.full(n, LATER)
            else:
                self._set_time_kind(panel.time_kind(known), "known", caller)
                rows["known"] = panel.read_times(known, n, "known", caller)
                rule, fix = "must be after `time`", "Pass when the outcome was known"
                require_everywhere(rows["known"] > made, rows["known"], "known", caller, rule, fix)
            times = made
            if self.time_ is not None and n and made.min() < self.time_:
                times = np.maximum(made, self.time_)  # when late forecasts are issued
                shown = time_text(self.time_, self.time_kind_ or "numbers")
                last = f"{shown}, the time of the last forecast"
                rule = f"must be at least {last}, where the outcome is known by then"
                fix = "Pass rows in order of time, and each only once"
                require_everywhere(rows["known"] > times, made, "time", caller, rule, fix)
        order = None if panel.is_sorted(times) else np.argsort(times, kind="stable")
        bounds = np.empty((2, n)).T  # each bound in one piece
        for start in range(0, n, BLOCK):
            some = slice(start, start + BLOCK)
            chosen = some if order is None else order[some]
            part = {name: column[chosen] for name, column in rows.items()}
            bounds[chosen] = self._process(part, times[chosen])
        if n:
            self.time_ = float(times.max())
            if ids is not None:
                self._note_gaps(made, rows["cells"])
        return self._result(bounds, rows["scores"])

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
        n_choices = sizes.pop("choice_")
        for name, size in sizes.items():
            found = getattr(self, name)
            if not len(found):
                setattr(self, name, found.reshape(0, size))
            elif found.shape[1] != size:
                raise entry.at(name).error(f"must have {size} columns", f"{found.shape[1]}")
        if self.choice_.size != n_choices:
            raise entry.at("choice_").error(f"a list of {n_choices}", f"{self.choice_.size}")
        for name, numbered in (
            ("cell_series_", self.series_),
            ("cell_pools_", self.horizons_),
            ("waiting_cells_", self.cell_series_),
            ("gap_cells_", self.cell_series_),
        ):
            highest = getattr(self, name).max(initial=-1)
            if highest >= len(numbered):
                raise entry.at(name).error(f"below {len(numbered)}", f"{highest}")

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
        self.time_, self.time_kind_, self.steps_ = None, None, []
        self.n_dropped_ = self.n_truths_ = self.n_covered_ = 0
        sizes, empty = self._sizes(), np.zeros(0, dtype=np.int64)
        for name, size in sizes.items():
            setattr(self, name, np.zeros((0, size)))
        self.trees_ = np.zeros((0, sizes["trees_"], kernels.N_BINS))
        self.choice_ = np.zeros(sizes["choice_"])
        self.choice_[2] = 1.0  # the weights are out of date
        self.cell_series_ = self.cell_pools_ = self.gap_cells_ = self.waiting_cells_ = empty
        self.cell_starts_, self.cell_times_ = np.zeros((2, 0))
        self.waiting_ids_, self.waiting_known_, self.waiting_truth_ = [], *np.zeros((2, 0))

    def _sizes(self) -> dict[str, int]:
        """Return the number of columns of each array."""
        n_units, n_candidates = len(self._transforms()), len(self._candidates())
        n_trackers = sum(n for _, n, _, _ in self._candidates()) + 1
        n_own = n_units if self.kind_ == "spread" else 0  # of the errors in units of the forecast
        return {
            "cells_": 3 + 2 * n_units + 2 * n_trackers + n_own,
            "pools_": 11 + 7 * n_units + 3 * n_trackers + 4 * n_own,
            "trees_": n_units,
            "choice_": 3 + 3 * n_candidates,
            "waiting_": 6 + n_units + 2 * n_candidates + (n_own and 1 + 2 * n_own),
            "waiting_scores_": self.n_classes_ or 0,
            "gaps_": 2,
        }

    def _state(self) -> kernels.OnlineState:
        """Return what kernels read and change in place."""
        names = self._transforms()
        table, first = [], 0
        for transform, n_sides, method, _ in self._candidates():
            table.append([names.index(transform), n_sides, METHODS[method], first])
            first += n_sides
        return kernels.OnlineState(
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
        kind, low, high, scores, classes = panel.read_forecasts(outputs, self.level, caller)
        n = len(low)
        if not self.__sklearn_is_fitted__():
            self._check_params()
            self._begin(kind, scores.shape[1] or None, classes)
        elif kind != self.kind_:
            rule = f"must be {panel.NOUNS[self.kind_]}, as before"
            fix = "Use one OnlineConformal per kind"
            raise BadTypeError("outputs", caller, rule, panel.NOUNS[kind], fix)
        elif kind == "classes":
            require_classes(outputs, self.n_classes_ or 0, self.classes_, caller)
        if self.transform == "log" and kind != "classes":
            rule, fix = "must be positive for transform='log'", "Use transform='log1p'"
            require_everywhere(low > 0, low, "outputs", caller, rule, fix)
        cells, delays = self._cells(series, horizon, n, caller)
        columns = {"low": low, "high": high, "scores": scores, "ids": self._ids(ids, n, caller)}
        return {"cells": cells, "delays": delays, **columns}

    def _ids(self, ids: Any, n: int, caller: str) -> NDArray[Any]:
        """Return the identifiers of forecasts as text, None where there are none."""
        column = as_column(ids, n, "ids", caller)
        if column is None:
            return np.full(n, None)
        names = [str(one) for one in column.tolist()]
        waiting, seen = set(self.waiting_ids_), dict[str, int]()
        for row, one in enumerate(names):
            if one in waiting:
                rule, fix = "must be of no forecast that waits", "Call update() first"
                raise BadValueError("ids", caller, rule, repr(one), fix, row)
            if (first := seen.setdefault(one, row)) != row:
                rule, fix = f"must not repeat: row {first} has the same id", "Pass one id per row"
                raise BadValueError("ids", caller, rule, repr(one), fix, row)
        return np.array(names, dtype=object)

    def _cells(self, series: Any, horizon: Any, n: int, caller: str) -> tuple[IntArray, FloatArray]:
        """Return the cell of each row, and its horizon plus 1; new ones are added."""
        steps, step_codes = panel.read_horizons(horizon, n, caller)
        names, name_codes = panel.read_series(as_column(series, n, "series", caller), n)
        numbers: Any = range(len(names))
        codes = name_codes
        if len(steps) != 1 or not n:
            numbers, codes = panel.distinct_keys(name_codes * len(steps) + step_codes)
        known = self._lookup()
        pairs = [(names[one // len(steps)], steps[one % len(steps)]) for one in numbers]
        for name, step in pairs:
            if (name, step) not in known:
                known[name, step] = len(known)
                self._add_cell(name, step)
        table = np.array([known[pair] for pair in pairs], dtype=np.int64)
        cells = codes if np.array_equal(table, np.arange(table.size)) else table[codes]
        delays = np.array(steps, dtype=np.float64) + 1
        return cells, np.broadcast_to(delays, n) if delays.size == 1 else delays[step_codes]

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
        self.cell_starts_ = np.append(self.cell_starts_, MAX_FLOAT)
        self.cell_times_ = np.append(self.cell_times_, -MAX_FLOAT)
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
        if isinstance(y, list | tuple):
            y = [np.nan if one is None else one for one in y]
        values = Targets.of(y, len(scores), "y", caller).values.astype(np.float64)
        require_dimensions(values, (1,), "y", caller, "one number per row")
        is_missing = np.isnan(values)
        if self.transform == "log":
            rule, fix = "must be positive for transform='log'", "Use transform='log1p'"
            require_everywhere((values > 0) | is_missing, values, "y", caller, rule, fix)
        return np.where(is_missing, UNKNOWN, values)

    def _set_time_kind(self, kind: str, argument: str, caller: str) -> None:
        """Remember what times are, or raise if they were of the other kind."""
        if self.time_kind_ not in (None, kind):
            rule, fix = f"must be {self.time_kind_}, as before", f"Pass {self.time_kind_}"
            raise BadTypeError(argument, caller, rule, kind, fix)
        self.time_kind_ = kind

    def _gaps(self, times: FloatArray, cells: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return the gaps between forecasts, and between these and the last before them."""
        if (self.cell_times_ == -MAX_FLOAT).all():
            return panel.find_gaps(times, cells)
        seen = np.unique(cells)
        seen = seen[self.cell_times_[seen] > -MAX_FLOAT]
        is_new = times >= self.cell_times_[cells]
        return panel.find_gaps(
            np.concatenate([self.cell_times_[seen], times[is_new]]),
            np.concatenate([seen, cells[is_new]]),
        )

    def _find_steps(
        self,
        times: FloatArray,
        cells: IntArray,
        *,
        is_counted: bool,
        is_needed: bool,
        can_wait: bool,
        caller: str,
    ) -> FloatArray:
        """Return the time between two steps of each row's series, and remember it."""
        steps = self._known_steps()
        is_new, series = np.isnan(steps), self._series_of(cells)
        if is_counted:
            steps[is_new] = 1.0
        elif series.size and (is_new.all() or (is_new.any() and is_new[series].any())):
            starts, ends, gap_cells = self._gaps(times, cells)
            if is_needed and not can_wait and not starts.size and np.isnan(steps).all():
                rule = "must be given if forecasts share a time"
                raise BadValueError("known", caller, rule, "None", "Pass when outcomes are known")
            own, is_dates = self._series_of(gap_cells), self.time_kind_ == "dates"
            steps = panel.find_steps(steps, starts, ends, own, is_dates)
            if is_needed and any(self.horizons_):  # one step is known whatever its length
                self._require_even_steps(*panel.find_gaps(times, cells), steps, caller)
        self.steps_ = [None if np.isnan(one) else float(one) for one in steps]
        return self._row_steps(series)

    @property
    def _has_steps(self) -> bool:
        return any(one is not None for one in self.steps_)

    def _known_steps(self) -> FloatArray:
        """Return the step of each series, NaN where it is not known yet."""
        return np.array([np.nan if one is None else one for one in self.steps_], np.float64)

    def _find_known(self) -> None:
        """Find when outcomes are known whose forecasts came before the first step."""
        is_waiting = self.waiting_known_ == LATER
        if is_waiting.any() and self._has_steps:
            cells = self.waiting_cells_[is_waiting]
            later = self._delays(cells), self._row_steps(self.cell_series_[cells])
            self.waiting_known_ = self.waiting_known_.copy()
            self.waiting_known_[is_waiting] = panel.times_after(self.cell_times_[cells], *later)

    def _delays(self, cells: IntArray) -> FloatArray:
        """Return the horizon of each row plus 1: the steps until its outcome is known."""
        return np.array(self.horizons_, dtype=np.float64)[self.cell_pools_[cells]] + 1

    def _series_of(self, cells: IntArray) -> IntArray:
        """Return the series of each row; with one horizon, cells and series are the same."""
        is_same = np.array_equal(self.cell_series_, np.arange(self.cell_series_.size))
        return cells if is_same else self.cell_series_[cells]

    def _row_steps(self, series: IntArray) -> FloatArray:
        """Return the step of each row's series, the longest where it is not known yet."""
        steps = self._known_steps()
        if np.isnan(steps).all():
            return np.zeros(len(series))
        steps = np.where(np.isnan(steps), np.nanmax(steps), steps)
        if (steps == steps[0]).all():
            return np.broadcast_to(steps[:1], len(series))
        return np.asarray(steps[series])

    def _require_even_steps(
        self,
        starts: FloatArray,
        ends: FloatArray,
        cells: IntArray,
        of_series: FloatArray,
        caller: str,
    ) -> None:
        """Raise where several steps may take longer than as many usual ones."""
        gaps, steps = ends - starts, of_series[self.cell_series_[cells]]
        is_ahead = np.array(self.horizons_)[self.cell_pools_[cells]] > 0
        is_long = is_ahead & (gaps > panel.LONG_GAP * steps)
        if is_long.sum() > MAX_LONG * is_ahead.sum():
            row = int(np.argmax(is_long))
            name = self.series_[self.cell_series_[cells[row]]]
            rule = "must be given, because the time between forecasts varies"
            both = [steps[row], gaps[row]]
            shown = [duration(one) if self.time_kind_ == "dates" else f"{one:g}" for one in both]
            got = f"steps of {' and '.join(shown)} in series {name!r}"
            raise BadValueError("known", caller, rule, got, "Pass when outcomes are known")

    def _note_gaps(self, times: FloatArray, cells: IntArray) -> None:
        """Remember the first and last time of each cell, and longer times without a forecast."""
        is_late = times < self.cell_times_[cells]
        for cell, time in zip(cells[is_late].tolist(), times[is_late].tolist(), strict=True):
            around = self._gap_around(cell, time)
            if around.size:  # it becomes two
                self._add_gaps([time], self.gaps_[around, 1], [cell])
                self.gaps_[around, 1] = time
        self._add_gaps(*self._gaps(times, cells))
        steps = self._row_steps(self.cell_series_[self.gap_cells_])
        is_long = np.diff(self.gaps_, axis=1)[:, 0] > panel.LONG_GAP * steps
        self.gap_cells_, self.gaps_ = self.gap_cells_[is_long], self.gaps_[is_long]
        np.minimum.at(self.cell_starts_, cells, times)
        np.maximum.at(self.cell_times_, cells, times)

    def _add_gaps(self, starts: Any, ends: Any, cells: Any) -> None:
        made = np.stack([starts, ends], axis=1)
        self.gap_cells_ = np.concatenate([self.gap_cells_, cells]).astype(np.int64)
        self.gaps_ = np.concatenate([self.gaps_, made])

    def _gap_around(self, cell: int, time: float) -> IntArray:
        """Return the index of the gap in which a time lies, if any."""
        low, high = self.gaps_.T
        return np.flatnonzero((self.gap_cells_ == cell) & (low < time) & (time < high))

    def _process(self, rows: dict[str, Any], times: FloatArray) -> FloatArray:
        """Issue rows in order of time, learn from outcomes known by then; return the bounds."""
        n_before = self.n_waiting
        cells = np.concatenate([self.waiting_cells_, rows["cells"]])
        known = np.concatenate([self.waiting_known_, rows["known"]])
        truth = np.concatenate([self.waiting_truth_, rows["truth"]])
        blank = np.zeros(n_before)
        out = np.empty((len(cells), self.waiting_.shape[1]))
        out[:n_before] = self.waiting_
        order = np.flatnonzero(truth != UNKNOWN)
        if not panel.is_sorted(known[order]):
            order = order[np.argsort(known[order], kind="stable")]
        n_settled = kernels.run_online(
            self._state(),
            KINDS[self.kind_],
            self._alpha,
            cells,
            self.cell_pools_[cells],
            self._delays(cells),
            times.copy(),  # writable, as all others: for read-only arrays it would be compiled anew
            np.concatenate([blank, rows["low"]]),
            np.concatenate([blank, rows["high"]]),
            known,
            truth,
            order,
            out,
        )
        issued = out[n_before:, 4:6].copy()
        self._count(truth, out, order[:n_settled])
        remaining = np.delete(np.arange(len(cells)), order[:n_settled])
        self.waiting_ids_ = [*self.waiting_ids_, *rows["ids"].tolist()]
        self.waiting_cells_, self.waiting_known_, self.waiting_truth_ = cells, known, truth
        self.waiting_ = out
        self.waiting_scores_ = np.concatenate([self.waiting_scores_, rows["scores"]])
        n_spare = max(remaining.size - int(self.max_waiting), 0)
        self.n_dropped_ += n_spare
        self._keep_waiting(remaining[n_spare:])
        self.waiting_ = np.clip(self.waiting_, -MAX_FLOAT, MAX_FLOAT)
        return issued

    def _count(self, truth: FloatArray, out: FloatArray, rows: IntArray) -> None:
        """Count outcomes that are learned from, and those inside."""
        n_truths, n_covered = self._judge(truth, out, rows)
        self.n_truths_ += n_truths
        self.n_covered_ += n_covered

    def _judge(self, truth: FloatArray, out: FloatArray, rows: IntArray) -> tuple[int, int]:
        """Return the number of outcomes whose forecasts were corrected, and of those inside."""
        before, after = out[:, :2].take(rows, axis=0), out[:, 4:6].take(rows, axis=0)
        high, chosen = after[:, 1], truth.take(rows)
        is_judged = (np.abs(high) < kernels.HUGE) & (after != before).any(axis=1)
        is_inside = chosen <= high
        if self.kind_ != "classes":
            is_inside &= chosen >= after[:, 0]
        return int(np.count_nonzero(is_judged)), int(np.count_nonzero(is_judged & is_inside))

    def _keep_waiting(self, rows: IntArray) -> None:
        """Keep only some of the forecasts that wait."""
        self.waiting_ids_ = [self.waiting_ids_[row] for row in rows.tolist()]
        for name in WAITING:
            setattr(self, name, getattr(self, name)[rows])

    def _waiting_rows(self, series: Any, horizon: Any, ids: Any, n: int, caller: str) -> IntArray:
        """Return the forecast that waits for each outcome."""
        places: dict[Any, list[int]] = {}
        column = as_column(ids, n, "ids", caller)
        if column is not None:
            for row, one in enumerate(self.waiting_ids_):
                places.setdefault(one, []).append(row)
            keys: list[Any] = [str(one) for one in column.tolist()]
            shown = [repr(one) for one in keys]
        else:
            lookup, pairs = self._lookup(), _read_pairs(series, horizon, n, caller)
            keys = [lookup.get(pair, -1) for pair in pairs]
            shown = [f"series {name!r}, horizon {step}" for name, step in pairs]
            for row in np.flatnonzero(self.waiting_truth_ == UNKNOWN).tolist():
                places.setdefault(int(self.waiting_cells_[row]), []).append(row)
        found = []
        for row, key in enumerate(keys):
            if not places.get(key):
                rule = "must belong to a forecast that waits for its outcome"
                fix = "Call predict() for it first, and pass each outcome once"
                argument = "y" if ids is None else "ids"
                raise BadValueError(argument, caller, rule, shown[row], fix, row)
            found.append(places[key].pop(0))
        return np.array(found, dtype=np.int64)

    def _result(
        self, bounds: FloatArray, scores: FloatArray
    ) -> PredictionIntervals | PredictionSets:
        """Return intervals, or sets of classes, with infinity for the largest bounds."""
        if bounds.size and not (bounds.min() > -kernels.HUGE and bounds.max() < kernels.HUGE):
            bounds = bounds.copy(order="K")
            np.copyto(bounds, np.inf, where=bounds >= kernels.HUGE)
            np.copyto(bounds, -np.inf, where=bounds <= -kernels.HUGE)
        low, high = (freeze(np.ascontiguousarray(one)) for one in bounds.T)
        if self.kind_ != "classes":
            return PredictionIntervals(low, high)
        return PredictionSets(freeze(scores <= bounds[:, 1:]), self.classes_, self.level, high)


def _read_pairs(series: Any, horizon: Any, n: int, caller: str) -> list[tuple[str, int]]:
    """Return the name of each row's series, and its horizon."""
    steps, step_codes = panel.read_horizons(horizon, n, caller)
    names, codes = panel.read_series(as_column(series, n, "series", caller), n)
    pairs = zip(codes.tolist(), step_codes.tolist(), strict=True)
    return [(names[i], steps[j]) for i, j in pairs]


def _n_truths(y: Any, caller: str) -> int:
    if np.ndim(y) == 0:
        rule, fix = "must be a list of outcomes", "Pass a list, one outcome per forecast"
        raise BadTypeError("y", caller, rule, repr(y), fix)
    return len(y)


def _with_row(values: FloatArray) -> FloatArray:
    """Return an array with one more row of zeros."""
    return np.concatenate([values, np.zeros((1, *values.shape[1:]))])

"""Estimates from labeled rows: inverse-propensity weights, windows, reliability and shifts.

Rows are reviewed because the model is uncertain, so labeled rows are not a random sample. Audited
rows are, and of the rejected rows all are reviewed sooner or later. Where the labels of all rows
arrive, those that are old enough represent all.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.data.batch import Batch
from dubito.decide import PriorEstimate, estimate_prior
from dubito.decide.value import MeanInterval
from dubito.errors import DubitoWarning
from dubito.formatting import duration, percent, quantity
from dubito.measure import Interval, confidence_interval
from dubito.measure.binary import wilson_interval
from dubito.measure.calibration_error import ReliabilityState, expected_gaps, uniform_edges
from dubito.measure.intervals import CATALOG
from dubito.monitor.metrics import DistributionShift, distribution_shift, mean_with_error
from dubito.monitor.sequential import SequentialAlarm
from dubito.outputs import Probabilities
from dubito.serve.service import DAY, Service
from dubito.serve.store import StoredRows
from dubito.serve.store.decisions import LabelDelay

MIN_LABELS = 20  # effective number of labels below which metrics are withheld
NO_ROWS = "No rows have been decided yet."
MAX_UNRESOLVED = 0.02  # fraction by weight; an error rate would be off by no more


@final
@dataclass(frozen=True, slots=True, eq=False)
class WeightedSample:
    """Labeled rows that represent all rows.

    Attributes
    ----------
    rows, weight : array of int, array of float
        Row numbers, and how many rows each of them represents.
    unavailable : str
        Why metrics are withheld; empty if they are not.
    note : str
        Which rows are not represented.
    """

    rows: IntArray
    weight: FloatArray
    unavailable: str = ""
    note: str = ""

    @property
    def frequency(self) -> FloatArray:
        """The weights, scaled to sum to the effective number of rows (Kish, 1965)."""
        scale = _effective_size(self.weight) / max(float(self.weight.sum()), 1.0)
        return np.asarray(self.weight * scale)

    @property
    def is_available(self) -> bool:
        """Whether the sample represents all rows."""
        return not self.unavailable


def propensity_weights(rows: StoredRows) -> WeightedSample:
    """Return labeled rows weighted by the inverse of their probability of being reviewed.

    Weights are normalized separately for accepted and rejected rows, so that labels still to come
    do not matter. Rejected rows all count once each has been reviewed; until then only audited
    ones, because the others are reviewed in order of their review value. Labels that were not
    requested count only if the row was audited. Rows that reviewers could not resolve are not a
    random sample: if they exceed 2 % by weight, metrics are withheld.

    If the labels of all rows are expected (`rows.delay`), each row older than their usual delay
    counts once: early labels may differ from late ones. If more than 2 % of these are missing,
    metrics are withheld. If labels stopped arriving, those of the rows before still count.

    Parameters
    ----------
    rows : StoredRows
        All rows of a period, oldest first.

    Returns
    -------
    WeightedSample
        The labeled rows with their weights, or why metrics are withheld.

    References
    ----------
    Horvitz and Thompson (1952), A generalization of sampling without replacement from a finite
    universe. Kish (1965), Survey Sampling, for the effective sample size.
    """
    empty = np.empty(0, np.int64), np.empty(0)
    if not len(rows):
        return WeightedSample(*empty, NO_ROWS)
    if rows.delay is not None:
        return _due_rows(rows, rows.delay)
    first = _first_audited(rows)
    if first == len(rows):
        return WeightedSample(*empty, _not_audited(rows))
    since = rows.take(slice(first, None))
    is_labeled = since.label >= 0
    weight, unavailable = _weigh(since, is_labeled | since.is_unresolved)
    is_unresolved = (since.label < 0) & (weight > 0)
    n_rows, n_unresolved = int((weight > 0).sum()), int(is_unresolved.sum())
    fraction = float(weight[is_unresolved].sum() / max(weight.sum(), 1.0))
    unresolved = f"{n_unresolved:,} of {quantity(n_rows)} ({percent(fraction)} by weight)"
    if fraction > MAX_UNRESOLVED:
        limit = f"above {percent(MAX_UNRESOLVED, 0)}, metrics are withheld"
        reason = f"Reviewers escalated or skipped {unresolved} without a label: {limit}."
        unavailable = unavailable or reason
    notes = []
    if first:
        which = f"{quantity(len(since))} decided since {_at(float(since.created[0]))}"
        notes.append(f"All metrics but coverage are of the {which}: no earlier row was audited.")
    if n_unresolved:
        notes.append(f"Reviewers could not resolve {unresolved}; these are left out.")
    weight, missing = _weigh(since, is_labeled)
    unavailable, found = unavailable or missing, np.flatnonzero(weight)
    unavailable = unavailable or _too_few(quantity(found.size, "label"), weight)
    return WeightedSample(first + found, weight[found], unavailable, " ".join(notes))


def _due_rows(rows: StoredRows, delay: LabelDelay) -> WeightedSample:
    """Return the labeled rows that are older than the usual delay of labels, equally weighted."""
    is_expected = _is_expected(rows)
    first = 0 if is_expected.all() else int(np.flatnonzero(~is_expected).max()) + 1
    is_due = (np.arange(len(rows)) >= first) & (rows.created <= delay.due)
    found = np.flatnonzero(is_due & (rows.label >= 0))
    n_due, n_missing = int(is_due.sum()), int((is_due & (rows.label < 0)).sum())
    missing = f"{n_missing:,} of {quantity(n_due)} ({percent(n_missing / max(n_due, 1))})"
    notes = []
    if not delay.n_rows:
        unavailable = "No row has been decided with --labels all yet."
    elif delay.seconds is None:
        unavailable = (
            f"{delay.n_missing:,} of {quantity(delay.n_rows)} have no label yet, the oldest for "
            f"{duration(delay.oldest)}: metrics need 98 % of the labels of older rows."
        )
    else:
        usual, unavailable = usual_delay(delay.seconds), ""
        if not n_due and delay.missing_since is not None:
            unavailable = f"Labels of rows decided since {_at(delay.missing_since)} are missing."
        elif not n_due:
            unavailable = f"No row is older than {usual}, within which 98 % of labels arrive."
        elif n_missing > MAX_UNRESOLVED * n_due:
            limit = f"above {percent(MAX_UNRESOLVED, 0)}, metrics are withheld"
            unavailable = f"{missing} older than {usual}, the usual delay, have no label: {limit}."
        elif found.size < MIN_LABELS:
            number = quantity(found.size, "label")
            unavailable = f"{number} of rows older than {usual}: at least {MIN_LABELS} are needed."
        notes.append(
            f"All metrics but coverage are of the {quantity(n_due)} whose labels are due: 98 % of "
            f"labels arrive within {usual} of the decision."
        )
        if delay.missing_since is not None:
            notes.append(
                f"Rows decided since {_at(delay.missing_since)} are left out, as most of their "
                "labels are missing."
            )
        if n_missing:
            notes.append(f"{missing} have no label all the same; these are left out.")
    return WeightedSample(found, np.ones(found.size), unavailable, " ".join(notes))


def usual_delay(seconds: float) -> str:
    """Return the usual delay of labels in words.

    >>> usual_delay(0.2), usual_delay(90)
    ('a second', '90 seconds')
    """
    return "a second" if seconds < 1.5 else duration(seconds)


def _at(time: float) -> str:
    """Return a time in words."""
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M} UTC"


def _is_expected(rows: StoredRows) -> BoolArray:
    """Return the rows that were decided when the labels of all rows were expected."""
    return np.asarray((rows.audit_probability >= 1) & ~rows.is_audit)


def _first_audited(rows: StoredRows) -> int:
    """Return the first row since which unreviewed rows had a chance to be audited."""
    is_unaudited = (rows.audit_probability <= 0) | (_is_expected(rows) & (rows.label < 0))
    if not (is_unaudited & ((rows.propensity < 1) | _is_waiting(rows))).any():
        return 0
    # Rejected or not: to begin after the last accepted one would leave only rejected rows.
    return int(np.flatnonzero(is_unaudited).max()) + 1


def _is_waiting(rows: StoredRows) -> BoolArray:
    """Return which rejected rows no reviewer has answered."""
    return np.asarray((rows.propensity >= 1) & (rows.label < 0) & ~rows.is_unresolved)


def _weigh(rows: StoredRows, is_reviewed: BoolArray) -> tuple[FloatArray, str]:
    """Return the weights of reviewed rows, and which rows none of them represents."""
    is_rejected = rows.propensity >= 1
    is_complete = is_rejected & (not _is_waiting(rows).any())
    is_audited = rows.is_audit & (rows.audit_probability > 0)
    probability = np.where(is_complete, 1.0, rows.audit_probability)
    weight, unavailable = np.zeros(len(rows)), ""
    for is_here in (~is_rejected, is_rejected):
        n_rows, used = int(is_here.sum()), is_here & is_reviewed & (is_complete | is_audited)
        if used.any():
            weight[used] = 1 / probability[used]
            weight[used] *= n_rows / weight[used].sum()
        elif n_rows:
            unavailable = unavailable or _no_label(n_rows, bool(is_here[is_rejected].any()))
    return weight, unavailable


def _not_audited(rows: StoredRows) -> str:
    """Return which rows were decided without an audit."""
    n_accepted = int(((rows.audit_probability <= 0) & (rows.propensity < 1)).sum())
    if n_accepted:
        were = "was" if n_accepted == 1 else "were"
        return f"{quantity(n_accepted)} {were} accepted without any being drawn for the audit."
    return _no_label(int((rows.propensity >= 1).sum()), is_rejected=True)


def _no_label(n_rows: int, is_rejected: bool) -> str:
    """Return which rows have no usable label."""
    if is_rejected:
        some = f"Some of {quantity(n_rows, 'rejected row')} still wait for review"
        return f"{some}, and no audited one has a label yet."
    return f"No audited row of {quantity(n_rows, 'accepted row')} has a label yet."


def _effective_size(weight: FloatArray) -> float:
    """Return the effective sample size of weighted rows (Kish, 1965)."""
    squares = float(weight @ weight)
    return float(weight.sum()) ** 2 / squares if squares else 0.0


def _too_few(labels: str, weight: FloatArray) -> str:
    """Return that some labels are too few by their weights; empty if they are not."""
    if (n_effective := _effective_size(weight)) >= MIN_LABELS:
        return ""
    equal = f"equivalent to {n_effective:.0f} of a random sample"
    return f"{labels}, {equal}: at least {MIN_LABELS} are needed."


def sample_by_weight(weight: FloatArray) -> IntArray:
    """Return row numbers drawn in proportion to the weights: an unweighted sample of all rows.

    Parameters
    ----------
    weight : array of float
        Weights of the rows.

    Returns
    -------
    array of int
        Row numbers in increasing order.

    Examples
    --------
    >>> sample_by_weight(np.array([100.0, 1.0, 100.0, 1.0])).tolist()
    [0, 2]
    """
    draws = np.random.default_rng(SEED).random(weight.size)
    return np.flatnonzero(draws * weight.max(initial=0.0) < weight)


CALLER = "monitor"
MONITOR_DAYS, FORECAST_DAYS = 30.0, 365.0
LEVEL, N_RESAMPLES, SEED = 0.95, 200, 0
MAX_WINDOWS, MIN_ROWS = 8, 100  # rows per window
REFERENCE_ROWS, RECENT_ROWS = 1000, 2000
MAX_CLASSES = 50  # with more, hardly any class prior would be identified
TOLERANCE = 0.02  # smaller deviations raise no alarm
N_BINS, MIN_PER_BIN = 10, 10  # of a reliability curve
N_ERROR_BINS = 15  # of a calibration error


def recent_rows(service: Service, days: float = MONITOR_DAYS) -> StoredRows:
    """Return the rows of the last days; where all labels are expected, the days before the delay.

    So labels that take months give metrics as well.
    """
    now = time.time()
    if service.settings.labels == "audited":
        return service.store.decisions_since(now - days * DAY)
    delay = service.store.label_delay(now)
    rows = service.store.decisions_since(now - days * DAY - (delay.seconds or 0.0))
    return replace(rows, delay=delay)


@final
@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric with its confidence interval, or None and why it is unavailable."""

    interval: Interval | None
    unavailable: str = ""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """Observed frequencies over stated probabilities, with 95 % intervals (Wilson).

    `n_labels` counts the labels of each point. With unequal weights, intervals are those of the
    effective number of labels (Kish, 1965).
    """

    stated: FloatArray
    observed: FloatArray
    low: FloatArray
    high: FloatArray
    n_labels: IntArray

    @classmethod
    def of_bins(cls, stated: FloatArray, is_true: FloatArray, weight: FloatArray) -> Reliability:
        """Return the means of bins of about equally many labels; equal probabilities share one."""
        n_bins = int(np.clip(stated.size // MIN_PER_BIN, 1, N_BINS))
        inner = np.quantile(stated, np.arange(1, n_bins) / n_bins, method="lower")
        bins = np.searchsorted(np.unique(inner), stated, side="left")
        groups = [bins == k for k in np.unique(bins)]
        means = [float(np.average(stated[one], weights=weight[one])) for one in groups]
        return cls.of(np.array(means), [(is_true[one], weight[one]) for one in groups])

    @classmethod
    def of(
        cls, stated: FloatArray, samples: Sequence[tuple[FloatArray, FloatArray]]
    ) -> Reliability:
        """Return the weighted frequency of each sample, given as truths and weights."""
        found = [
            wilson_interval(float(np.average(y, weights=w)), _effective_size(w)) for y, w in samples
        ]
        return cls(
            stated=stated,
            observed=np.array([one.value for one in found]),
            low=np.array([one.low for one in found]),
            high=np.array([one.high for one in found]),
            n_labels=np.array([y.size for y, _ in samples]),
        )

    @property
    def rows(self) -> list[tuple[float, float, float, float, int]]:
        """A tuple per point."""
        columns = (self.stated, self.observed, self.low, self.high, self.n_labels)
        return list(zip(*(one.tolist() for one in columns), strict=True))


def metric_estimate(metric: str, batch: Batch, weight: FloatArray) -> Estimate:
    """Return a metric of all rows, estimated from the weighted sample."""

    def metric_of(_: None, rows: Batch, *, sample_weight: FloatArray) -> float:
        # A label stands for many rows, but was drawn once.
        return CATALOG[metric].function(None, rows.reweighted(sample_weight * weight))

    found = confidence_interval(
        metric_of, None, batch, level=LEVEL, random_state=SEED, n_resamples=N_RESAMPLES
    )
    if np.isfinite(found.value) and np.isfinite(found.high):
        # Resampling biases a binned error upwards: all resamples may lie above a small one.
        low, high = min(found.low, found.value), max(found.high, found.value)
        return Estimate(Interval(found.value, low, high))
    return Estimate(None, "It is infinite: a class with probability 0 occurred.")


def expected_error(batch: Batch, weight: FloatArray) -> float:
    """Return the calibration error that a calibrated model would have on these labels."""
    # A label with weight w varies as one label: its variance grows with the square of w.
    states = [
        ReliabilityState.of(batch.reweighted(one), uniform_edges(N_ERROR_BINS))
        for one in (weight, weight**2)
    ]
    used = states[0].weight > 0
    row_weight = states[1].weight[used] / states[0].weight[used]
    gaps = expected_gaps(states[1].variance[used], row_weight)
    return float(gaps.sum() / weight.sum())


def window_rows(n_rows: int) -> list[NDArray[np.int64]]:
    """Return the rows of each window."""
    n_windows = int(np.clip(n_rows // MIN_ROWS, 1, MAX_WINDOWS))
    return np.array_split(np.arange(n_rows), n_windows)


def uncertainty_shift(confidence: NDArray[np.float32]) -> DistributionShift | None:
    """Compare 1 - confidence of the first rows with the last; None if there are too few."""
    uncertainty = np.clip(1.0 - confidence.astype(np.float64), 0.0, 1.0)
    n_first = min(REFERENCE_ROWS, uncertainty.size // 2)
    if n_first < MIN_ROWS:
        return None
    return distribution_shift(uncertainty[:n_first], uncertainty[n_first:][-RECENT_ROWS:], LEVEL)


def uncertainty_alarm(uncertainty: FloatArray) -> SequentialAlarm:
    """Bet against the mean uncertainty of the first rows, within its standard error."""
    first, later = uncertainty[:REFERENCE_ROWS], uncertainty[REFERENCE_ROWS:]
    if not later.size:
        return SequentialAlarm(tolerance=TOLERANCE)
    mean, error = mean_with_error(first)
    alarm = SequentialAlarm(tolerance=min(TOLERANCE + 3 * error, 1.0))
    return alarm.update(np.full(later.size, mean), later)


def mean_estimate(values: FloatArray, weight: FloatArray | float = 1.0) -> Estimate:
    """Return the mean of a number per row; a label with a weight stands for so many rows."""
    mean = MeanInterval.of(LEVEL, SEED, N_RESAMPLES, CALLER)
    return Estimate(mean(values, np.ones(values.size), importance=weight))


def fraction_estimate(is_so: BoolArray) -> Estimate:
    """Return the fraction of rows of which something is true."""
    if not is_so.size:
        return Estimate(None, NO_ROWS)
    return mean_estimate(is_so.astype(np.float64))


def accuracy_estimate(is_correct: BoolArray, weight: FloatArray) -> Estimate:
    """Return how many answers are correct, with an interval of the effective number of labels."""
    if reason := _too_few(f"{is_correct.size:,} labels of answers", weight):
        return Estimate(None, reason)
    value = float(np.average(is_correct, weights=weight))
    return Estimate(wilson_interval(value, _effective_size(weight)))


def recent_prior(probabilities: NDArray[np.float32], prior: FloatArray) -> PriorEstimate | None:
    """Return the class priors of the last rows; None if there are too few."""
    recent = probabilities[-RECENT_ROWS:]
    if len(recent) < MIN_ROWS or prior.size > MAX_CLASSES:
        return None
    # The estimate has `is_identified`.
    with warnings.catch_warnings(action="ignore", category=DubitoWarning):
        return estimate_prior(
            Probabilities(recent), prior, level=LEVEL, n_resamples=N_RESAMPLES, random_state=SEED
        )

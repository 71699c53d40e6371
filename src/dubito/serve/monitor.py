"""How a policy does as truth arrives: figures over time, shifts without labels, and alarms."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import final

import numpy as np

from dubito.arrays import FloatArray
from dubito.data.batch import Batch
from dubito.data.labels import Labels
from dubito.decide import CostMatrix, Policy, PriorEstimate, estimate_prior
from dubito.decide.realized import costs_of_actions
from dubito.decide.value import MeanInterval
from dubito.errors import DubitoWarning
from dubito.measure import Interval, confidence_interval
from dubito.measure.calibration_error import ReliabilityState, uniform_edges
from dubito.monitor.sequential import SequentialAlarm
from dubito.monitor.shifts import DistributionShift, distribution_shift, mean_with_error
from dubito.outputs import Probabilities
from dubito.serve.standing import Standing, rows_taken, standing_for
from dubito.serve.store.records import History, StoredRows

CALLER = "monitor_figures"
WINDOW_DAYS, DAY = 30.0, 86_400.0
LEVEL, N_RESAMPLES, N_BINS = 0.95, 200, 15
N_WINDOWS, FEWEST_ROWS = 8, 100  # rows of a window
REFERENCE_ROWS, RECENT_ROWS = 1000, 2000
MOST_CLASSES = 50  # beyond, hardly any share of a class would be identified
TOLERANCE = 0.02  # off by less, nobody wants to be woken


@final
@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with its interval, or None and why it is unknown."""

    interval: Interval | None
    unknown: str = ""


@final
@dataclass(frozen=True, slots=True)
class Window:
    """Rows decided between two times, and the figures of all of them.

    `n_labels` are the labels that stand for all rows, and `note` says which rows they do not stand
    for; `if_calibrated` is the calibration error that a calibrated model would show on so few.
    """

    start: float
    end: float
    n_rows: int
    n_labels: int
    note: str
    coverage: Figure
    calibration_error: Figure
    log_loss: Figure
    cost: Figure
    if_calibrated: float | None


@final
@dataclass(frozen=True, slots=True, eq=False)
class MonitorFigures:
    """All that is watched of one policy.

    `alarms` look after every row: "calibration" at labels of rows drawn at random, as they came,
    "doubt" at the outputs of all rows after the first thousand. `doubt` compares the first rows
    with the last, `prior` says how common classes are among the last, beside `usual_prior`; neither
    needs labels.
    """

    whole: Window
    windows: tuple[Window, ...]
    alarms: dict[str, SequentialAlarm]
    doubt: DistributionShift | None
    prior: PriorEstimate | None
    usual_prior: FloatArray


def monitor_figures(
    rows: StoredRows, policy: Policy, history: History, *, seed: int = 0
) -> MonitorFigures:
    """Return what is known of a policy from the rows that it decided lately, oldest first.

    Alarms look at its whole history: what they saw once stays seen, as they stay valid under
    continuous looking only if later rows come after earlier ones.
    """
    n_windows = int(np.clip(len(rows) // FEWEST_ROWS, 1, N_WINDOWS))
    parts = np.array_split(np.arange(len(rows)), n_windows)
    costs = policy.costs
    usual = policy.train_prior if policy.deploy_prior is None else policy.deploy_prior
    return MonitorFigures(
        whole=_window_of(rows, costs, seed),
        windows=tuple(_window_of(rows_taken(rows, part), costs, seed) for part in parts),
        alarms={
            "calibration": _calibration_alarm(history),
            "doubt": _doubt_alarm(history.doubt),
        },
        doubt=_doubt_shift(_doubt_of(rows)),
        prior=_recent_prior(rows, usual, seed),
        usual_prior=usual,
    )


def _doubt_of(rows: StoredRows) -> FloatArray:
    """Return how far each row's largest probability is from 1."""
    top = rows.probabilities.max(axis=1, initial=0.0).astype(np.float64)
    return np.asarray(np.clip(1.0 - top, 0.0, 1.0))


def _doubt_shift(doubt: FloatArray) -> DistributionShift | None:
    """Compare the first rows with the last, None where these are too few."""
    n_first = min(REFERENCE_ROWS, doubt.size // 2)
    if n_first < FEWEST_ROWS:
        return None
    return distribution_shift(doubt[:n_first], doubt[n_first:][-RECENT_ROWS:], LEVEL)


def _window_of(rows: StoredRows, costs: CostMatrix, seed: int) -> Window:
    """Return the figures of some rows."""
    standing = standing_for(rows)
    mean = MeanInterval.of(LEVEL, seed, N_RESAMPLES, CALLER)
    is_decided = (rows.action != (-1 if costs.reject is None else costs.reject)).astype(np.float64)
    coverage = Figure(None, standing.unknown)
    if len(rows):
        coverage = Figure(mean(is_decided, np.ones(len(rows))))
    seen = rows_taken(rows, standing.rows)
    return Window(
        start=float(rows.created[0]) if len(rows) else 0.0,
        end=float(rows.created[-1]) if len(rows) else 0.0,
        n_rows=len(rows),
        n_labels=standing.rows.size,
        note=standing.note,
        coverage=coverage,
        calibration_error=_measured("expected_calibration_error", seen, standing, seed),
        log_loss=_measured("log_loss", seen, standing, seed),
        cost=_cost_of(seen, standing, costs, mean),
        if_calibrated=_error_if_calibrated(seen, standing),
    )


def _error_if_calibrated(seen: StoredRows, standing: Standing) -> float | None:
    """Return the calibration error that chance alone makes of so few labels."""
    if not standing.is_known:
        return None
    outputs = Probabilities(seen.probabilities)
    batch = Batch.of(seen.label, outputs, sample_weight=standing.weight, caller=CALLER)
    return ReliabilityState.of(batch, uniform_edges(N_BINS)).expected_if_calibrated


def _measured(metric: str, seen: StoredRows, standing: Standing, seed: int) -> Figure:
    """Return a metric of all rows, by those that stand for them."""
    if not standing.is_known:
        return Figure(None, standing.unknown)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DubitoWarning)  # what is infinite is told below
        found = confidence_interval(
            metric,
            seen.label,
            Probabilities(seen.probabilities),
            level=LEVEL,
            seed=seed,
            n_resamples=N_RESAMPLES,
            sample_weight=standing.weight,
        )
    if np.isfinite(found.value) and np.isfinite(found.high):
        # Resamples of a binned error lie above it: of a small one, all of them may.
        low, high = min(found.low, found.value), max(found.high, found.value)
        return Figure(Interval(found.value, low, high))
    return Figure(None, "It is infinite: a class that was given probability 0 happened.")


def _cost_of(seen: StoredRows, standing: Standing, costs: CostMatrix, mean: MeanInterval) -> Figure:
    """Return what a row cost on average, by rows that stand for all."""
    if not standing.is_known:
        return Figure(None, standing.unknown)
    grows = costs.rate is not None
    if grows and np.isnan(seen.amount).any():
        return Figure(None, "Costs depend on row costs, and some rows came without.")
    if seen.action.max() >= costs.n_actions:
        return Figure(None, "Some rows were decided by another policy, with other actions.")
    labels = Labels.of(seen.label, Probabilities(seen.probabilities), "label", CALLER)
    by_action = costs_of_actions(costs, labels, seen.amount if grows else np.empty(0))
    paid = by_action[np.arange(len(seen)), seen.action]
    return Figure(mean(np.asarray(paid), standing.weight))


def _calibration_alarm(history: History) -> SequentialAlarm:
    """Bet against stated confidence, on labels of rows that chance drew: they stand for all."""
    alarm = SequentialAlarm(tolerance=TOLERANCE)
    return alarm.update(history.confidence, history.is_right)


def _doubt_alarm(doubt: FloatArray) -> SequentialAlarm:
    """Bet against the mean doubt of the first rows, always the same ones, as far as these tell."""
    first, later = doubt[:REFERENCE_ROWS], doubt[REFERENCE_ROWS:]
    if not later.size:
        return SequentialAlarm(tolerance=TOLERANCE)
    mean, error = mean_with_error(first)
    alarm = SequentialAlarm(tolerance=min(TOLERANCE + 3 * error, 1.0))
    return alarm.update(np.full(later.size, mean), later)


def _recent_prior(rows: StoredRows, usual: FloatArray, seed: int) -> PriorEstimate | None:
    """Return how common classes are among the last rows, None where these are too few."""
    recent = rows.probabilities[-RECENT_ROWS:]
    if len(recent) < FEWEST_ROWS or usual.size > MOST_CLASSES:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DubitoWarning)  # the estimate says what is not identified
        return estimate_prior(
            Probabilities(recent), usual, level=LEVEL, n_resamples=N_RESAMPLES, seed=seed
        )

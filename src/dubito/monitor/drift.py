"""Two periods of one model: have confidence, classes, doubt or inputs moved, and what to do?"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields, replace
from typing import Any, TypeGuard, final

import numpy as np
from scipy.special import ndtri
from scipy.stats import wasserstein_distance

from dubito.arrays import FloatArray, as_share
from dubito.data.batch import Batch
from dubito.data.codes import names_of
from dubito.decide import PriorEstimate, estimate_prior
from dubito.doubt import ConformalOutlierDetector, MahalanobisDistance, uncertainty_scores
from dubito.errors import DubitoWarning
from dubito.measure.binning import uniform_edges
from dubito.measure.calibration_error import ReliabilityState
from dubito.measure.intervals import Interval, as_n_resamples, interval_of, over_resamples
from dubito.monitor.claims import holm, plain
from dubito.monitor.drift_words import drift_lines, verdict_on
from dubito.monitor.figures import N_BINS, TITLES
from dubito.monitor.periods import CALLER, Period, both_periods
from dubito.monitor.shifts import (
    DistributionShift,
    distribution_shift,
    mean_shift,
    mean_with_error,
    share_shift,
    strange_shift,
)
from dubito.outputs import ClassName

__all__ = ["Drift", "detect_drift"]

EPSILON = 0.05  # of known rows are as strange as what is called strange
FEWEST_ROWS = 20  # of either period, below which nothing is said to have moved
MOST_CLASSES = 50  # beyond, hardly any share of a class would be identified


@final
@dataclass(frozen=True, slots=True, eq=False)
class Drift:
    """What moved between two periods. `print(drift)` tells it in words.

    `shifts` are by name; those without a p-value are told, not tested. All tested ones together
    raise a false alarm in at most 1 - `level` of all cases (Holm). `prior` is how common classes
    are now, estimated without labels of this period, beside `reference_prior`. `expected_accuracy`
    is what the outputs of this period say themselves, true if calibrated; `thresholded_accuracy`
    the share of rows above the confidence that as many reference rows exceed as were right.
    """

    n_reference: int
    n_current: int
    level: float
    shifts: dict[str, DistributionShift]
    wasserstein: float
    expected_accuracy: float
    thresholded_accuracy: Interval | None
    prior: PriorEstimate | None
    reference_prior: FloatArray | None
    classes: tuple[ClassName, ...] | None

    @property
    def moved(self) -> tuple[str, ...]:
        """The names of what has moved."""
        return tuple(name for name, shift in self.shifts.items() if shift.has_moved)

    @property
    def has_drifted(self) -> bool:
        """Whether anything has moved."""
        return bool(self.moved)

    @property
    def verdict(self) -> str:
        """What moved, and what to do about it."""
        return verdict_on(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, texts and lists, ready for JSON."""
        values = {f.name: plain(getattr(self, f.name)) for f in fields(self)}
        values["shifts"] = {
            name: {f.name: plain(getattr(shift, f.name)) for f in fields(shift)}
            for name, shift in self.shifts.items()
        }
        if self.prior is not None:
            kept = ("prior", "low", "high", "is_identified", "method")
            values["prior"] = {name: plain(getattr(self.prior, name)) for name in kept}
        return {**values, "moved": list(self.moved), "verdict": self.verdict}

    def __str__(self) -> str:
        return "\n".join(drift_lines(self))


def detect_drift(
    reference: Any,
    current: Any,
    *,
    y_reference: Any = None,
    y_current: Any = None,
    reference_features: Any = None,
    current_features: Any = None,
    level: float = 0.95,
    seed: int = 0,
    n_resamples: int = 200,
) -> Drift:
    """Return what moved between outputs of one model on two periods, with or without labels.

    Rows of either period are taken as independent draws; of shards, 100,000 are drawn by `seed`.
    Features tell strange inputs, by a `MahalanobisDistance` fitted on half of the reference.
    Thresholded accuracy is after Garg et al., "Leveraging unlabeled data to predict
    out-of-distribution performance", 2022.

    >>> before, after = [[0.9, 0.1], [0.2, 0.8]] * 100, [[0.6, 0.4], [0.4, 0.6]] * 100
    >>> detect_drift(before, after).moved
    ('confidence',)
    """
    share = as_share(level, "level", CALLER, is_open=True)
    n_draws = as_n_resamples(n_resamples, CALLER)
    features = reference_features, current_features
    labels = y_reference, y_current
    before, after = both_periods(reference, current, labels, features, seed)
    shifts = {
        **output_shifts(before, after, share),
        **feature_shifts(before, after, seed),
        **labeled_shifts(before, after, share, seed, n_draws),
    }
    prior, reference_prior = priors_of(before, after, share, seed, n_draws)
    a, b = before.batch.rows, after.batch.rows
    return Drift(
        n_reference=len(before),
        n_current=len(after),
        level=share,
        shifts=judged(shifts, share, min(len(before), len(after))),
        wasserstein=float(wasserstein_distance(a.confidence, b.confidence)),
        expected_accuracy=float(b.confidence.mean()),
        thresholded_accuracy=thresholded_accuracy(before, after, share),
        prior=prior,
        reference_prior=reference_prior,
        classes=None if after.outputs is None else after.outputs.classes,
    )


def output_shifts(before: Period, after: Period, level: float) -> dict[str, DistributionShift]:
    """Return whether outputs moved: what can be asked without labels."""
    a, b = before.batch.rows, after.batch.rows
    shifts = {"confidence": distribution_shift(a.confidence, b.confidence, level)}
    if before.outputs is None or after.outputs is None:
        return shifts
    assert a.predicted is not None
    assert b.predicted is not None
    shifts["predicted classes"] = share_shift(a.predicted, b.predicted, before.n_classes)
    first, second = uncertainty_scores(before.outputs), uncertainty_scores(after.outputs)
    if before.n_classes > 2:  # of two classes the entropy is the confidence, told otherwise
        shifts["entropy"] = distribution_shift(first.entropy, second.entropy, level)
    if first.energy is not None and second.energy is not None:
        shifts["energy"] = distribution_shift(first.energy, second.energy, level)
    return shifts


def feature_shifts(before: Period, after: Period, seed: int) -> dict[str, DistributionShift]:
    """Return whether more inputs are strange than among rows of the reference held back."""
    known, new = before.batch.features, after.batch.features
    if known is None or new is None or len(known) < 2 * FEWEST_ROWS:
        return {}
    order = np.random.default_rng(seed).permutation(len(known))
    fitted, held = order[: len(order) // 2], order[len(order) // 2 :]
    codes = before.codes
    if codes is not None and (codes[fitted] >= 0).any():
        fitted = fitted[codes[fitted] >= 0]
        distance = MahalanobisDistance().fit(known[fitted], codes[fitted])
    else:
        distance = MahalanobisDistance().fit(known[fitted])
    region = ConformalOutlierDetector(EPSILON).fit(distance.score(known[held]))
    n_strange = int(region.contains(distance.score(new)).sum())
    return {"strange inputs": strange_shift(held.size, len(new), n_strange, EPSILON)}


def labeled_shifts(
    before: Period, after: Period, level: float, seed: int, n_resamples: int
) -> dict[str, DistributionShift]:
    """Return whether the model is as right as it was; nothing without labels of both periods."""
    first, second = before.labeled, after.labeled
    if first is None or second is None or min(len(first), len(second)) < FEWEST_ROWS:
        return {}
    a, b = first.rows, second.rows
    gaps = [rows.confidence - rows.correct for rows in (a, b)]
    shifts = {
        "accuracy": mean_shift(a.correct, b.correct, level, seed),
        "over-confidence": mean_shift(gaps[0], gaps[1], level, seed),
    }
    if is_finite(a.log_loss) and is_finite(b.log_loss):
        shifts["log loss"] = mean_shift(a.log_loss, b.log_loss, level, seed)
    if before.codes is not None and after.codes is not None:
        codes = before.codes[before.codes >= 0], after.codes[after.codes >= 0]
        shifts["labels"] = share_shift(*codes, before.n_classes)
    shifts[TITLES["expected_calibration_error"]] = error_shift(
        first, second, level, seed, n_resamples
    )
    return shifts


def is_finite(losses: FloatArray | None) -> TypeGuard[FloatArray]:
    """Whether losses are known and none is infinite."""
    return losses is not None and bool(np.isfinite(losses).all())


def error_shift(
    first: Batch, second: Batch, level: float, seed: int, n_resamples: int
) -> DistributionShift:
    """Return the calibration errors of both periods; not tested, as few rows alone raise one."""
    edges = uniform_edges(N_BINS)

    def error(batch: Batch) -> float:
        return ReliabilityState.of(batch, edges).expected()

    # Seeds of their own: the rows of both periods are drawn independently.
    old = np.array(list(over_resamples(first, error, 2 * seed, n_resamples)))
    new = np.array(list(over_resamples(second, error, 2 * seed + 1, n_resamples)))
    before, after = error(first), error(second)
    return DistributionShift(
        None, None, before, after, interval_of(after - before, new - old, level, CALLER)
    )


def judged(
    shifts: dict[str, DistributionShift], level: float, n_rows: int
) -> dict[str, DistributionShift]:
    """Return shifts with adjusted p-values, and which of them are no accident."""
    tested = [name for name, shift in shifts.items() if shift.p_value is not None]
    raw = [shifts[name].p_value or 0.0 for name in tested]
    adjusted = holm(raw) if n_rows >= FEWEST_ROWS else np.ones(len(raw))
    found = dict(zip(tested, adjusted.tolist(), strict=True))
    return {
        name: replace(shift, p_value=found[name], has_moved=found[name] < 1 - level)
        if name in found
        else shift
        for name, shift in shifts.items()
    }


def priors_of(
    before: Period, after: Period, level: float, seed: int, n_resamples: int
) -> tuple[PriorEstimate | None, FloatArray | None]:
    """Return how common classes are now and were, as far as outputs tell.

    By the confusion matrix where all classes have labels in the reference, else by the likelihood.
    """
    if before.outputs is None or after.outputs is None or before.n_classes > MOST_CLASSES:
        return None, None
    codes = np.array([], dtype=np.int64) if before.codes is None else before.codes
    labeled = np.flatnonzero(codes >= 0)
    counts = np.bincount(codes[labeled], minlength=before.n_classes)
    settings: dict[str, Any] = {"level": level, "seed": seed, "n_resamples": n_resamples}
    if counts.all():
        seen = before.outputs.take(labeled)
        names = np.asarray(names_of(seen), dtype=object)
        settings |= {"method": "bbse", "validation": (names[codes[labeled]], seen)}
        prior = counts / counts.sum()
    else:
        prior = np.maximum(before.mean_probability, 1e-12)
        prior /= prior.sum()
        settings["train_prior"] = prior
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DubitoWarning)  # the estimate says what is not identified
        return estimate_prior(after.outputs, **settings), prior


def thresholded_accuracy(before: Period, after: Period, level: float) -> Interval | None:
    """Return the accuracy that confidence lets expect, where the reference has labels."""
    if before.labeled is None:
        return None
    rows, confidence = before.labeled.rows, after.batch.rows.confidence
    n_right = round(float(rows.correct.sum()))
    ranked = np.sort(rows.confidence)[::-1]
    threshold = ranked[n_right] if n_right < ranked.size else -np.inf
    value, error = mean_with_error((confidence > threshold).astype(np.float64))
    errors = error, mean_with_error(rows.correct)[1]
    reach = float(ndtri((1 + level) / 2) * np.hypot(*errors))
    return Interval(value, max(value - reach, 0.0), min(value + reach, 1.0))

"""The results of a report on a regression model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from dubito.arrays import FloatArray
from dubito.calibrate import QuantileRecalibration, VarianceScaling
from dubito.calibrate.cross_validation import RegressionEvidence, make_folds, rows_to_fit
from dubito.calibrate.quantile_recalibration import (
    DRAW_LEVELS,
    regression_candidates,
    select_regression_calibrator,
)
from dubito.calibrate.regression import as_predictive
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards, joined, sample_rows
from dubito.decide import RegressionPolicy
from dubito.decide.regression.value_decisions import ValueEvidence
from dubito.decide.value import MeanInterval
from dubito.errors import DubitoError, DubitoWarning, EmptyStateError
from dubito.formatting import sentence
from dubito.measure import Interval, RegressionAudit
from dubito.measure.regression import (
    central_interval,
    crps_of_rows,
    crps_title,
    has_median,
    interval_scores,
    nll_of_rows,
    squared_errors,
    values_of,
)
from dubito.outputs import Normal, Quantiles, Samples
from dubito.report.summary import MAX_ROWS_MEASURED, Provenance
from dubito.serialization.objects import clone

N_FOLDS = 5
MIN_ROWS = 10
N_RESAMPLES = 500
UNCALIBRATED = "uncalibrated", "unchanged"
BY_COST = (
    "Selected is what the policy takes: with “auto” the calibrator whose decisions cost least on "
    "held-out rows, which need not be the one with the lowest CRPS."
)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A calibrator, a summary of its parameters, and the rows calibrated out of sample.

    `uncalibrated` are the same rows before calibration, in the form of those after it.
    """

    name: str
    summary: str
    batch: Batch
    audit: RegressionAudit
    uncalibrated: Batch

    @classmethod
    def of(cls, name: str, summary: str, batch: Batch, before: Batch | None = None) -> Candidate:
        """Audit the rows of a candidate."""
        audit = RegressionAudit.of(ArrayShards(batch))
        return cls(name, summary, batch, audit, batch if before is None else before)

    @property
    def evidence(self) -> RegressionEvidence:
        """The audits of the rows before and after calibration."""
        before = RegressionAudit.of(ArrayShards(self.uncalibrated))
        return RegressionEvidence(before, self.audit, len(self.batch), N_FOLDS)


@final
@dataclass(frozen=True, eq=False)
class RegressionSummary:
    """The results of a report on a regression model.

    `whole` audits all rows. The first of `candidates` has the uncalibrated rows, a sample if there
    are more than 40,000; the candidate number `chosen` is shown as “after”, and `selection` says
    why it is that one.
    """

    whole: RegressionAudit
    candidates: tuple[Candidate, ...]
    chosen: int
    method: str
    provenance: Provenance
    selection: str

    @classmethod
    def of(
        cls,
        shards: Shards,
        *,
        calibration: Batch | None = None,
        command: str | None = None,
        audit: RegressionAudit | None = None,
        seed: int = 0,
    ) -> RegressionSummary:
        """Audit the rows unless that was done, and recalibrate them out of sample."""
        whole = RegressionAudit.of(shards) if audit is None else audit
        rows = sample_rows(shards, MAX_ROWS_MEASURED, seed, is_labeled=True)
        if not len(rows):
            raise EmptyStateError("A report")
        candidates = [Candidate.of(*UNCALIBRATED, rows)]
        if len(rows if calibration is None else calibration) >= MIN_ROWS:
            candidates += _recalibrated(rows, calibration, seed)
        provenance = Provenance.of([rows, calibration], seed, command)
        method = _method(len(rows), calibration, len(candidates) > 1)
        names = {type(one).__name__ for one in regression_candidates(rows.outputs)}
        evidence = {one.name: one.evidence for one in candidates if one.name in names}
        name, reason = select_regression_calibrator(evidence) if evidence else (UNCALIBRATED[0], "")
        chosen = [one.name for one in candidates].index(name)
        if isinstance(rows.outputs, Samples):  # in the form that draws become by calibration
            candidates[0] = Candidate.of(*UNCALIBRATED, candidates[chosen].uncalibrated)
        reason = f"{name} is {reason}" if len(evidence) == 1 else reason
        return cls(whole, tuple(candidates), chosen, method, provenance, sentence(reason))

    @classmethod
    def of_policy(
        cls,
        policy: RegressionPolicy,
        evidence: ValueEvidence,
        *,
        members: RegressionAudit | None = None,
        command: str | None = None,
        seed: int = 0,
    ) -> RegressionSummary:
        """Audit the rows that a policy decided, before and after its own calibrator.

        `members` is the audit of an ensemble, if the policy was fitted on one: its two parts of the
        variance are shown.
        """
        batch = replace(evidence.batch, outputs=evidence.uncalibrated)
        whole = RegressionAudit.of(ArrayShards(batch))
        if members is not None:
            parts = {name: getattr(members, name) for name in ("aleatoric_std", "epistemic_std")}
            whole = replace(whole, **parts)
        used = np.flatnonzero(batch.labeled_weight > 0)
        if used.size > MAX_ROWS_MEASURED:
            used = np.sort(
                np.random.default_rng(seed).choice(used, MAX_ROWS_MEASURED, replace=False)
            )
        rows = batch.take(used)
        candidates, name = [Candidate.of(*UNCALIBRATED, rows)], ""
        if policy.calibrator is not None:
            name = type(policy.calibrator).__name__
            summary = policy.calibrator.summary().partition(";")[0]
            after = replace(rows, outputs=evidence.decisions.calibrated.take(used))
            candidates.append(Candidate.of(name, summary, after))
        if len(rows) >= MIN_ROWS:
            candidates += [one for one in _recalibrated(rows, None, seed) if one.name != name]
        method = "The policy takes the outputs uncalibrated. Its report is about the same rows"
        if name:
            method = f"The calibrator is that of the policy: {name}. Every metric “after” is about "
            method += "the distributions behind its report"
        return cls(
            whole,
            tuple(candidates),
            int(bool(name)),
            f"{method}: {len(rows):,} rows, {evidence.evaluation}.",
            Provenance.of([rows], seed, command),
            BY_COST,
        )

    @property
    def before(self) -> Candidate:
        """The uncalibrated rows."""
        return self.candidates[0]

    @property
    def after(self) -> Candidate:
        """The rows after the chosen calibrator."""
        return self.candidates[self.chosen]

    @cached_property
    def metrics(self) -> tuple[tuple[str, Interval | None, Interval | None], ...]:
        """The name of each metric, and its interval before and after."""
        both = [_metrics_of(one.batch, self.provenance.seed) for one in (self.before, self.after)]
        return tuple((name, both[0][name], both[1].get(name)) for name in both[0])


def _recalibrated(rows: Batch, calibration: Batch | None, seed: int) -> list[Candidate]:
    """Return the rows after each calibrator, fitted on other rows."""
    found, outputs = (
        [],
        rows.outputs,
    )  # quantiles stay at their levels, so that scores can be compared
    levels = outputs.levels.tolist() if isinstance(outputs, Quantiles) else DRAW_LEVELS
    fitted_on = ArrayShards(rows if calibration is None else calibration)
    for calibrator in (VarianceScaling(), QuantileRecalibration(levels)):
        # About bounds: the metrics show the effect.
        with warnings.catch_warnings(action="ignore", category=DubitoWarning):
            try:
                whole = clone(calibrator).fit(fitted_on)
                before = whole._uncalibrated(as_predictive(outputs, "make_report"))
                if calibration is None:
                    after = _cross_fitted(calibrator, rows, seed)
                else:
                    after = replace(rows, outputs=whole.transform(outputs))
            except DubitoError:
                continue  # outputs without a spread, such as a single quantile
        name, summary = type(calibrator).__name__, whole.summary().partition(";")[0]
        found.append(Candidate.of(name, summary, after, replace(rows, outputs=before)))
    return found


def _cross_fitted(
    calibrator: VarianceScaling | QuantileRecalibration, rows: Batch, seed: int
) -> Batch:
    """Return rows after a calibrator fitted on the other folds."""
    rows = rows_to_fit(rows, np.arange(len(rows)))
    folds, parts = make_folds(rows, N_FOLDS, seed), []
    for train, test in folds:
        fitted = clone(calibrator).fit(ArrayShards(rows.take(train)))
        held_out = rows.take(test)
        parts.append(replace(held_out, outputs=fitted.transform(held_out.outputs)))
    return joined(parts).take(np.argsort(np.concatenate([test for _, test in folds])))


def _method(n_rows: int, calibration: Batch | None, is_done: bool) -> str:
    """Return a description of how the calibrated rows were obtained."""
    if not is_done:
        return "Nothing was recalibrated: there are too few rows, or the outputs have no spread."
    if calibration is not None:
        return f"The calibrators were fitted on {len(calibration):,} other rows."
    return (
        f"The calibrators were cross-fitted on the {n_rows:,} rows; every metric “after” is "
        "measured on rows held out of the fit."
    )


def _metrics_of(batch: Batch, seed: int) -> dict[str, Interval]:
    """Return the metrics that are means over rows, with intervals."""
    outputs, y, weight = batch.outputs, values_of(batch), batch.labeled_weight
    interval = MeanInterval.of(0.95, seed, N_RESAMPLES, "make_report")

    def mean(values: object) -> Interval:
        return interval(target_mean(values), weight)

    found = {crps_title(outputs): mean(crps_of_rows(outputs, y))}
    if isinstance(outputs, Normal):
        found["negative log-likelihood"] = mean(nll_of_rows(outputs, y))
    if has_median(outputs):
        squares = mean(squared_errors(outputs, y))
        roots = (float(np.sqrt(value)) for value in (squares.value, squares.low, squares.high))
        found["root mean squared error"] = Interval(*roots)
    for level in RegressionAudit.of(ArrayShards(batch)).levels.tolist():
        low, high = central_interval(outputs, level, "make_report")
        name = f"of {level * 100:.3g} % intervals"
        found[f"coverage {name}"] = mean((low <= y) & (y <= high))
        found[f"mean width {name}"] = mean(high - low)
        found[f"interval score {name}"] = mean(interval_scores(y, low, high, level))
    return found


def widths_of(batch: Batch) -> FloatArray:
    """Return the width of each interval at the level nearest to 0.9; 0 without levels."""
    levels = RegressionAudit.of(ArrayShards(batch)).levels
    if not levels.size:
        return np.zeros(len(batch))
    level = float(levels[int(np.argmin(np.abs(levels - 0.9)))])
    low, high = central_interval(batch.outputs, level, "make_report")
    return target_mean(high - low)


def target_mean(values: object) -> FloatArray:
    """Return float64 values, averaged over the coordinates of vector targets."""
    array = np.asarray(values, dtype=np.float64)
    return array if array.ndim == 1 else np.asarray(array.mean(axis=1))

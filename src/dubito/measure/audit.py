"""`audit`: all figures of a model's confidence at once, in plain words first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, final, overload

import numpy as np
from numpy.typing import ArrayLike

from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards
from dubito.measure.audit_state import AuditState, BootstrapState
from dubito.measure.calibration_error import ReliabilityCurve
from dubito.measure.classwise import ClasswiseCalibrationState
from dubito.measure.detection import (
    auroc_bounds,
    auroc_of,
    average_precision_of,
    false_positive_rate_of,
)
from dubito.measure.intervals import Interval, as_n_resamples, interval_of
from dubito.measure.regression_audit import RegressionAudit
from dubito.measure.selective import RiskCoverageCurve, area_bounds
from dubito.measure.state import GroupedState
from dubito.measure.text import audit_lines, verdict_on
from dubito.outputs import BaseClassOutputs, ClassName, Normal, Quantiles, Samples, TopLabel

LEVEL = 0.95
ROW_RESAMPLES = 50_000_000  # as many rows are redrawn by default: about a second


@final
@dataclass(frozen=True, slots=True)
class ClassReport:
    """One class: how often it happened, how probable it was said to be, its calibration error."""

    name: ClassName
    frequency: float
    probability: float
    calibration_error: float


@final
@dataclass(frozen=True, slots=True, eq=False)
class Audit:
    """What a model's confidence is worth. `print(audit)` tells it in words.

    `expected_if_calibrated` is the calibration error, and `gap_if_calibrated` the standard
    deviation of the gap between confidence and accuracy, that a perfectly calibrated model would
    show on so many rows. `n_rows` counts those with a label and a weight, `n_effective` what they
    are worth by their weights. What top labels alone cannot tell is None. `intervals` hold the
    truth in 19 cases of 20, but for `expected_calibration_error` near 0: see `confidence_interval`.
    The figures "of errors" say how well doubt finds the model's own errors, the false positive rate
    at a recall of 95 %. `risk_coverage_bounds` and `auroc_bounds` are between what AURC and AUROC
    lie whatever the order of rows of equal doubt: the bounds of the fixed grid when streamed.
    """

    n_rows: int
    n_effective: float
    n_missing: int
    n_impossible: int
    n_classes: int | None
    n_bins: int
    accuracy: float
    confidence: float
    gap: float
    log_loss: float | None
    brier_score: float | None
    entropy: float | None
    sharpness: float | None
    expected_calibration_error: float
    maximum_calibration_error: float
    debiased_calibration_error: float
    smooth_calibration_error: float
    classwise_calibration_error: float | None
    expected_if_calibrated: float
    gap_if_calibrated: float
    calibration_p_value: float
    area_under_risk_coverage: float
    excess_area_under_risk_coverage: float
    area_under_generalized_risk_coverage: float
    risk_coverage_bounds: tuple[float, float]
    auroc_of_errors: float | None
    auroc_bounds: tuple[float, float] | None
    average_precision_of_errors: float | None
    false_positive_rate_of_errors: float | None
    curve: ReliabilityCurve
    selective: RiskCoverageCurve
    classes: tuple[ClassReport, ...] = ()
    intervals: dict[str, Interval] = field(default_factory=dict)
    groups: dict[str, Audit] = field(default_factory=dict)

    @classmethod
    def of(
        cls, shards: Shards, *, n_bins: int = 15, n_resamples: int | None = None, seed: int = 0
    ) -> Audit:
        """Audit rows wherever they are: exactly in memory, as `audit` does; streamed otherwise.

        Streamed, rankings are taken on a fixed fine grid, and intervals and groups take a pass of
        their own.
        """
        if isinstance(shards, ArrayShards):
            return _audit_batch(shards.batch, n_bins, n_resamples, seed)
        has_groups = next(shards.batches()).groups is not None
        settings = Settings(n_bins, n_resamples, seed, has_groups, is_gridded=True)
        return _audited(shards.sum, settings)

    @property
    def verdict(self) -> str:
        """What the figures mean, in a sentence or two."""
        return verdict_on(self)

    @property
    def figures(self) -> dict[str, float]:
        """All single numbers that are known, flat, as experiment trackers take them."""
        flat = {f.name: getattr(self, f.name) for f in fields(self)}
        numbers = {k: v for k, v in flat.items() if isinstance(v, int | float) and np.isfinite(v)}
        for name, interval in self.intervals.items():
            numbers |= {f"{name}/low": interval.low, f"{name}/high": interval.high}
        for group, inner in self.groups.items():
            numbers |= {f"groups/{group}/{k}": v for k, v in inner.figures.items()}
        return numbers

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, texts and lists, ready for JSON; an infinite log loss is None."""
        values = {f.name: _plain(getattr(self, f.name)) for f in fields(self)}
        return {**values, "verdict": self.verdict}

    def __str__(self) -> str:
        return "\n".join(audit_lines(self))

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


@overload
def audit(
    y_true: Any,
    outputs: Normal | Samples | Quantiles,
    *,
    sample_weight: Any = None,
    groups: Any = None,
) -> RegressionAudit: ...


@overload
def audit(
    y_true: Any,
    outputs: ArrayLike | BaseClassOutputs | TopLabel,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    n_bins: int = 15,
    n_resamples: int | None = None,
    seed: int = 0,
) -> Audit: ...


def audit(
    y_true: Any,
    outputs: Any,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    n_bins: int = 15,
    n_resamples: int | None = None,
    seed: int = 0,
) -> Audit | RegressionAudit:
    """Return all figures of a model's confidence, taken in one pass over its outputs.

    `outputs` are wrapped (`Logits`, `Members`, `TopLabel` with `y_true=None`; for regression
    `Normal`, `Samples`, `Quantiles`) or plain probabilities. `groups` has one name a row.
    `n_resamples=0` leaves out the intervals; by default there are 1,000, fewer above 50,000 rows.

    >>> print(audit([0, 0, 0, 1] * 30, [[0.75, 0.25]] * 120).verdict)
    No sign of miscalibration on 120 rows: mean confidence 75.0 %, accuracy 75.0 %.
    """
    batch = Batch.of(y_true, outputs, sample_weight=sample_weight, groups=groups, caller="audit")
    if isinstance(batch.outputs, Normal | Samples | Quantiles):
        return RegressionAudit.of(ArrayShards(batch))
    return _audit_batch(batch, n_bins, n_resamples, seed)


def _audit_batch(batch: Batch, n_bins: int, n_resamples: int | None, seed: int) -> Audit:
    """Audit rows in memory, with exact rankings."""
    settings = Settings(n_bins, n_resamples, seed, batch.groups is not None, is_gridded=False)
    return _audited(lambda function: function(batch), settings)


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """How an audit is to be made."""

    n_bins: int
    n_resamples: int | None
    seed: int
    has_groups: bool
    is_gridded: bool


def _audited(total: Callable[[Callable[[Batch], Any]], Any], settings: Settings) -> Audit:
    """Make an audit of rows over which `total` sums any state."""
    n_bins = settings.n_bins
    of = partial(AuditState.of, n_bins=n_bins, is_gridded=settings.is_gridded)
    result = _read(total(of))
    groups = total(partial(GroupedState.of, of=of)).value if settings.has_groups else {}
    audits = {name: _read(state) for name, state in groups.items()}
    n_resamples = settings.n_resamples
    n_resamples = _default_resamples(result.n_rows) if n_resamples is None else n_resamples
    if n_resamples:
        n_resamples = as_n_resamples(n_resamples, "audit")
        draw = partial(
            BootstrapState.of, n_bins=n_bins, n_resamples=n_resamples, seed=settings.seed
        )
        result = _with_intervals(result, total(draw))
        if audits:
            drawn = total(partial(GroupedState.of, of=draw)).states
            audits = {name: _with_intervals(one, drawn[name]) for name, one in audits.items()}
    return replace(result, groups=audits)


def _default_resamples(n_rows: int) -> int:
    """Return how many resamples to draw if nobody says: 1,000, or as many as a second allows."""
    return int(np.clip(ROW_RESAMPLES // max(n_rows, 1), 100, 1000))


def _read(state: AuditState) -> Audit:
    """Read all figures off their sums."""
    scores, bins = state.value.scores.value, state.reliability
    selective = RiskCoverageCurve.of(state.ranked)
    wrong, weight = state.ranked.positive.sum(), state.ranked.weight.sum()
    by_class = state.by_class
    return Audit(
        n_rows=int(bins.count.sum()),
        n_effective=float(bins.weight.sum() ** 2 / bins.squared_weight.sum()),
        n_missing=state.scores.n_missing,
        n_impossible=state.scores.n_impossible,
        n_classes=None if by_class is None else len(by_class.weight),
        n_bins=bins.edges.size - 1,
        accuracy=scores.accuracy,
        confidence=scores.confidence,
        gap=scores.gap,
        log_loss=scores.log_loss,
        brier_score=scores.brier_score,
        entropy=scores.entropy,
        sharpness=scores.sharpness,
        expected_calibration_error=bins.expected(),
        maximum_calibration_error=bins.expected("max"),
        debiased_calibration_error=bins.debiased,
        smooth_calibration_error=state.smooth.value,
        classwise_calibration_error=None if by_class is None else by_class.value,
        expected_if_calibrated=bins.expected_if_calibrated,
        gap_if_calibrated=float(np.sqrt(bins.variance.sum()) / bins.weight.sum()),
        calibration_p_value=state.test.value.p_value,
        area_under_risk_coverage=selective.area,
        excess_area_under_risk_coverage=selective.excess_area,
        area_under_generalized_risk_coverage=selective.generalized_area,
        risk_coverage_bounds=area_bounds(state.ranked),
        auroc_of_errors=auroc_of(state.ranked) if 0 < wrong < weight else None,
        auroc_bounds=auroc_bounds(state.ranked) if 0 < wrong < weight else None,
        average_precision_of_errors=average_precision_of(state.ranked) if wrong > 0 else None,
        false_positive_rate_of_errors=(
            false_positive_rate_of(state.ranked) if 0 < wrong < weight else None
        ),
        curve=bins.value,
        selective=selective,
        classes=() if by_class is None else _class_reports(by_class, state.classes),
    )


def _class_reports(
    by_class: ClasswiseCalibrationState, names: Iterable[ClassName] | None
) -> tuple[ClassReport, ...]:
    """Return a line a class."""
    total = by_class.weight.sum(axis=1)
    frequency = by_class.true.sum(axis=1) / total
    probability = by_class.probability.sum(axis=1) / total
    labels = range(total.size) if names is None else names
    columns = (frequency.tolist(), probability.tolist(), by_class.by_class.tolist())
    return tuple(ClassReport(*line) for line in zip(labels, *columns, strict=True))


def _with_intervals(result: Audit, resamples: BootstrapState) -> Audit:
    """Return an audit with the intervals that its resamples show."""
    intervals = {
        name: interval_of(getattr(result, name), values, LEVEL, "audit")
        for name, values in resamples.value.items()
    }
    if result.n_impossible:
        intervals.pop("log_loss", None)
    if result.accuracy in (0, 1):  # no resample differs: what n rows without an exception tell
        least = ((1 - LEVEL) / 2) ** (1 / result.n_effective)
        ends = (least, 1.0) if result.accuracy == 1 else (0.0, 1 - least)
        intervals["accuracy"] = Interval(result.accuracy, *ends)
    return replace(result, intervals=intervals)


def _plain(value: Any) -> Any:
    """Return a value as JSON takes it: a number that is none is None."""
    if isinstance(value, Audit):
        return value.to_dict()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple | np.ndarray):
        return [_plain(inner) for inner in (value.tolist() if hasattr(value, "tolist") else value)]
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    return None if isinstance(value, float) and not np.isfinite(value) else value

"""The sums of every metric in an audit, computed in one pass over the rows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self, final

import numpy as np

from dubito.data.batch import Batch
from dubito.errors import BadValueError
from dubito.measure.calibration_error import ReliabilityState, uniform_edges
from dubito.measure.calibration_test import CalibrationTestState
from dubito.measure.classwise import ClasswiseCalibrationState
from dubito.measure.intervals import over_resamples
from dubito.measure.proper_scores import ProperScoresState
from dubito.measure.ranking import RankingState
from dubito.measure.smooth_calibration_error import SmoothCalibrationErrorState
from dubito.measure.state import State
from dubito.outputs import BaseClassOutputs, ClassName


@final
@dataclass(frozen=True, slots=True, eq=False)
class AuditState(State):
    """Sums of every metric in an audit; `by_class` is None for `TopLabel` outputs.

    Adding two states pools their rows: use it to audit data that arrives in parts.

    Examples
    --------
    >>> from dubito.data import Batch
    >>> state = AuditState.of(Batch.of([0], [0.1])) + AuditState.of(Batch.of([1], [0.8]))
    >>> state.value.scores.value.accuracy
    1.0
    """

    scores: ProperScoresState
    reliability: ReliabilityState
    test: CalibrationTestState
    ranked: RankingState
    smooth: SmoothCalibrationErrorState
    by_class: ClasswiseCalibrationState | None
    classes: tuple[ClassName, ...] | None
    shared = "classes"

    @classmethod
    def of(cls, batch: Batch, *, n_bins: int = 15, is_gridded: bool = False) -> Self:
        """Return the sums of a batch; with `is_gridded`, rankings of many batches stay small."""
        batch.require_labels("audit")
        edges = uniform_edges(n_bins, "audit")
        outputs = batch.outputs
        has_classes = isinstance(outputs, BaseClassOutputs)
        return cls(
            ProperScoresState.of(batch),
            ReliabilityState.of(batch, edges),
            CalibrationTestState.of(batch),
            RankingState.of(batch, is_gridded=is_gridded),
            SmoothCalibrationErrorState.of(batch),
            ClasswiseCalibrationState.of(batch, edges) if has_classes else None,
            outputs.classes if isinstance(outputs, BaseClassOutputs) else None,
        )

    @property
    def value(self) -> Self:
        """The state itself, from which `Audit` is computed; raises for no rows."""
        _ = self.scores.value
        return self

    def to_dict(self) -> dict[str, Any]:
        parts = {f.name: getattr(self, f.name) for f in fields(self)[:-1]}
        states = {name: None if part is None else part.to_dict() for name, part in parts.items()}
        return {**states, "classes": None if self.classes is None else list(self.classes)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        if missing := {f.name for f in fields(cls)} - set(values):
            rule, fix = (
                "must hold all parts of an audit",
                "Pass what `to_dict` of the same version returned",
            )
            got = f"none of {', '.join(sorted(missing))}"
            raise BadValueError("values", "AuditState.from_dict", rule, got, fix)
        by_class, classes = values["by_class"], values["classes"]
        return cls(
            ProperScoresState.from_dict(values["scores"]),
            ReliabilityState.from_dict(values["reliability"]),
            CalibrationTestState.from_dict(values["test"]),
            RankingState.from_dict(values["ranked"]),
            SmoothCalibrationErrorState.from_dict(values["smooth"]),
            None if by_class is None else ClasswiseCalibrationState.from_dict(by_class),
            None if classes is None else tuple(classes),
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class BootstrapState(State):
    """Proper scores and reliability bins of many Poisson bootstrap resamples.

    A row's draw depends on its number in the whole data set, so that any split into shards gives
    the same resamples.
    """

    scores: tuple[ProperScoresState, ...]
    reliability: tuple[ReliabilityState, ...]

    @classmethod
    def of(cls, batch: Batch, *, n_bins: int = 15, n_resamples: int = 100, seed: int = 0) -> Self:
        edges = uniform_edges(n_bins, "audit")

        def both(resample: Batch) -> tuple[ProperScoresState, ReliabilityState]:
            return ProperScoresState.of(resample), ReliabilityState.of(resample, edges)

        pairs = list(over_resamples(batch, both, seed, n_resamples))
        return cls(tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))

    def __add__(self, other: Self) -> Self:
        return type(self)(
            tuple(a + b for a, b in zip(self.scores, other.scores, strict=True)),
            tuple(a + b for a, b in zip(self.reliability, other.reliability, strict=True)),
        )

    @property
    def value(self) -> dict[str, list[float]]:
        """The values of each metric over the resamples; unknown or infinite ones are left out."""
        values: dict[str, list[float]] = {}
        for scores, bins in zip(self.scores, self.reliability, strict=True):
            if not scores.weight > 0:
                continue  # a resample of few rows may draw none of them
            figures = {
                "accuracy": scores.value.accuracy,
                "confidence": scores.value.confidence,
                "gap": scores.value.gap,
                "log_loss": scores.value.log_loss,
                "brier_score": scores.value.brier_score,
                "expected_calibration_error": bins.expected(),
                "debiased_calibration_error": bins.debiased,
            }
            for name, figure in figures.items():
                if figure is not None and np.isfinite(figure):
                    values.setdefault(name, []).append(figure)
        return values

    def to_dict(self) -> dict[str, Any]:
        return {f.name: [s.to_dict() for s in getattr(self, f.name)] for f in fields(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        return cls(
            tuple(ProperScoresState.from_dict(state) for state in values["scores"]),
            tuple(ReliabilityState.from_dict(state) for state in values["reliability"]),
        )

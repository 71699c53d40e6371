"""What is left of the errors when the most doubtful rows are sent away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import (
    FloatArray,
    as_finite,
    as_floats,
    as_share,
    require_dimensions,
    require_rows,
)
from dubito.data.batch import Batch
from dubito.measure.ranking import RankingState
from dubito.measure.state import labeled_batch


@final
@dataclass(frozen=True, slots=True, eq=False)
class RiskCoverageCurve:
    """Keeping rows of doubt up to `doubt` keeps the share `coverage`, of which `risk` is wrong.

    One step for each different doubt, from the least doubtful rows to all of them.
    """

    doubt: FloatArray
    coverage: FloatArray
    risk: FloatArray

    @classmethod
    def of(cls, state: RankingState) -> RiskCoverageCurve:
        """Read the curve off a ranking."""
        kept = np.cumsum(state.value.weight)
        return cls(state.doubt, kept / kept[-1], np.cumsum(state.positive) / kept)

    @property
    def area(self) -> float:
        """The mean risk over ranks, a tie being one step (AURC)."""
        return float(np.diff(self.coverage, prepend=0.0) @ self.risk)

    @property
    def generalized_area(self) -> float:
        """The mean over coverages of the share of all rows that is kept and wrong (AUGRC)."""
        coverage = np.concatenate([[0.0], self.coverage])
        joint = np.concatenate([[0.0], self.risk * self.coverage])
        return float(np.trapezoid(joint, coverage))

    @property
    def excess_area(self) -> float:
        """The area above that of the best ranking at this error rate (E-AURC)."""
        error = float(self.risk[-1])
        best = error + (1 - error) * np.log1p(-error) if error < 1 else 1.0
        return float(self.area - best)

    def coverage_at(self, risk: float) -> float:
        """Return the largest share that can be kept with at most this risk; 0 if none."""
        risk = as_share(risk, "risk", "coverage_at_risk")
        return float(self.coverage[self.risk <= risk].max(initial=0.0))


def area_bounds(state: RankingState) -> tuple[float, float]:
    """Return between what AURC lies, whatever the order of rows that share a step of the ranking.

    On the streamed grid these bound the exact figure: inside a step, the least risk comes with all
    right rows first, the most with all wrong ones first.
    """
    kept, wrong = np.cumsum(state.value.weight), np.cumsum(state.positive)
    kept_before, wrong_before = kept - state.weight, wrong - state.positive
    tiny = np.finfo(np.float64).tiny  # nothing before the first step: its risk is 0, not 0 / 0
    least = wrong_before / np.maximum(kept - state.positive, tiny)
    most = wrong / np.maximum(kept_before + state.positive, tiny)
    return float(state.weight @ least / kept[-1]), float(state.weight @ most / kept[-1])


def _ranked(y_true: Any, outputs: Any, doubt: Any, sample_weight: Any, caller: str) -> RankingState:
    """Rank rows in memory by least confidence, or by another doubt."""
    return ranked_by(doubt, labeled_batch(y_true, outputs, sample_weight, caller), caller)


def ranked_by(doubt: Any, batch: Batch, caller: str) -> RankingState:
    """Rank the rows of a batch by least confidence, or by another doubt."""
    if doubt is None:
        return RankingState.of(batch)
    scores = as_finite(as_floats(doubt, "doubt", caller), "doubt", caller)
    require_dimensions(scores, (1,), "doubt", caller, "one number per row")
    require_rows(scores, len(batch), "doubt", caller)
    return RankingState.of_scores(1 - batch.rows.correct, scores, batch.labeled_weight)


def risk_coverage_curve(
    y_true: Any, outputs: Any, *, doubt: Any = None, sample_weight: Any = None
) -> RiskCoverageCurve:
    """Return the share of errors among the rows kept, for every share that can be kept.

    Rows are sent away by `doubt`, one number a row, larger first; without it, by least confidence.
    Rows of equal doubt go together, so that the order of rows does not matter.

    >>> risk_coverage_curve([0, 0], [[0.9, 0.1], [0.4, 0.6]]).risk.tolist()
    [0.0, 0.5]
    """
    state = _ranked(y_true, outputs, doubt, sample_weight, "risk_coverage_curve")
    return RiskCoverageCurve.of(state)


def area_under_risk_coverage(
    y_true: Any, outputs: Any, *, doubt: Any = None, sample_weight: Any = None
) -> float:
    """Return the mean selective risk over all ranks, a tie being one step (AURC): lower is better.

    Geifman, Uziel and El-Yaniv, "Bias-reduced uncertainty estimation for deep neural classifiers",
    2019.

    >>> area_under_risk_coverage([0, 0], [[0.9, 0.1], [0.4, 0.6]])
    0.25
    """
    state = _ranked(y_true, outputs, doubt, sample_weight, "area_under_risk_coverage")
    return RiskCoverageCurve.of(state).area


def excess_area_under_risk_coverage(
    y_true: Any, outputs: Any, *, doubt: Any = None, sample_weight: Any = None
) -> float:
    """Return AURC less that of the best ranking at this error rate (E-AURC).

    With error rate r, the best ranking's area is r + (1 - r) log(1 - r). Geifman, Uziel and
    El-Yaniv, "Bias-reduced uncertainty estimation for deep neural classifiers", 2019.
    """
    state = _ranked(y_true, outputs, doubt, sample_weight, "excess_area_under_risk_coverage")
    return RiskCoverageCurve.of(state).excess_area


def area_under_generalized_risk_coverage(
    y_true: Any, outputs: Any, *, doubt: Any = None, sample_weight: Any = None
) -> float:
    """Return the mean, over coverages, of the share of all rows kept and wrong (AUGRC).

    It is (1 - AUROC of doubt for errors) x accuracy x error + error^2 / 2. Traub et al.,
    "Overcoming common flaws in the evaluation of selective classification systems", 2024.

    >>> area_under_generalized_risk_coverage([0, 0], [[0.9, 0.1], [0.4, 0.6]])
    0.125
    """
    state = _ranked(y_true, outputs, doubt, sample_weight, "area_under_generalized_risk_coverage")
    return RiskCoverageCurve.of(state).generalized_area


def coverage_at_risk(
    y_true: Any, outputs: Any, *, risk: float, doubt: Any = None, sample_weight: Any = None
) -> float:
    """Return the largest share of rows that can be kept with at most this share of them wrong.

    Measured on these rows: no promise about new ones.

    >>> coverage_at_risk([0, 0], [[0.9, 0.1], [0.4, 0.6]], risk=0.1)
    0.5
    """
    state = _ranked(y_true, outputs, doubt, sample_weight, "coverage_at_risk")
    return RiskCoverageCurve.of(state).coverage_at(risk)

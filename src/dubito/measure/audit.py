"""`audit`: all figures of a model's confidence at once, in plain words first."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Self, final

import numpy as np

from dubito.data.batch import Batch
from dubito.data.shards import Shards
from dubito.errors import BadTypeError
from dubito.measure.binning import uniform_edges
from dubito.measure.calibration_error import ReliabilityCurve, ReliabilityState
from dubito.measure.proper_scores import ProperScoresState
from dubito.outputs import TopLabel

__all__ = ["Audit", "AuditState", "audit"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class AuditState:
    """The states of every figure in an audit, taken in one pass over the rows."""

    scores: ProperScoresState
    reliability: ReliabilityState
    n_classes: int | None

    @classmethod
    def of(cls, batch: Batch, n_bins: int = 15) -> Self:
        if batch.truth is None and not isinstance(batch.outputs, TopLabel):
            fix = "the true labels, or TopLabel(confidence, correct)"
            raise BadTypeError("y_true", "audit", "the labels", "None", fix)
        n_classes = getattr(batch.outputs, "n_classes", None)
        reliability = ReliabilityState.of(batch, uniform_edges(n_bins, "audit"))
        return cls(ProperScoresState.of(batch), reliability, n_classes)

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.scores + other.scores, self.reliability + other.reliability, self.n_classes
        )

    @property
    def value(self) -> Audit:
        scores, bins = self.scores.value, self.reliability
        return Audit(
            n_rows=self.scores.n_rows,
            n_missing=self.scores.n_missing,
            n_impossible=self.scores.n_impossible,
            n_classes=self.n_classes,
            n_bins=bins.edges.size - 1,
            accuracy=scores.accuracy,
            confidence=scores.confidence,
            log_loss=scores.log_loss,
            brier_score=scores.brier_score,
            entropy=scores.entropy,
            expected_calibration_error=bins.expected(),
            maximum_calibration_error=bins.maximum,
            expected_if_calibrated=bins.expected_if_calibrated,
            gap_if_calibrated=float(np.sqrt(bins.variance.sum()) / bins.weight.sum()),
            curve=bins.value,
        )

    def to_dict(self) -> dict[str, Any]:
        parts = {"scores": self.scores.to_dict(), "reliability": self.reliability.to_dict()}
        return {**parts, "n_classes": self.n_classes}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        return cls(
            ProperScoresState.from_dict(values["scores"]),
            ReliabilityState.from_dict(values["reliability"]),
            values["n_classes"],
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class Audit:
    """What a model's confidence is worth. `print(audit)` tells it in words.

    `expected_if_calibrated` is the calibration error, and `gap_if_calibrated` the standard
    deviation of the gap between confidence and accuracy, that a perfectly calibrated model would
    show on so many rows.
    """

    n_rows: int
    n_missing: int
    n_impossible: int
    n_classes: int | None
    n_bins: int
    accuracy: float
    confidence: float
    log_loss: float | None
    brier_score: float | None
    entropy: float | None
    expected_calibration_error: float
    maximum_calibration_error: float
    expected_if_calibrated: float
    gap_if_calibrated: float
    curve: ReliabilityCurve

    @classmethod
    def of(cls, shards: Shards, *, n_bins: int = 15) -> Audit:
        """Audit rows wherever they are, in one pass."""
        return shards.sum(partial(AuditState.of, n_bins=n_bins)).value

    @property
    def gap(self) -> float:
        """Confidence less accuracy: above 0 is over-confident."""
        return self.confidence - self.accuracy

    @property
    def verdict(self) -> str:
        """What the figures mean, in a sentence or two."""
        said = f"It says {self.confidence:.1%} and is right {self.accuracy:.1%} of the time"
        points = f"{abs(self.gap) * 100:.1f} points"
        error = f"{self.expected_calibration_error * 100:.1f}"
        if abs(self.gap) > 3 * self.gap_if_calibrated:
            name, how = (
                ("Over-confident", "sure") if self.gap > 0 else ("Under-confident", "modest")
            )
            return f"{name}. {said}: {points} too {how}."
        if self.expected_calibration_error > 2 * self.expected_if_calibrated:
            return (
                f"Right on average, wrong in places. {said}, yet single confidences are off by "
                f"{error} points on average: too high here, too low there."
            )
        return f"No sign of false confidence on {self.n_rows:,} rows. {said}."

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists, ready for JSON; an infinite log loss is None."""
        values = asdict(self)
        values["curve"] = {name: array.tolist() for name, array in values["curve"].items()}
        if self.n_impossible:
            values["log_loss"] = None
        return {**values, "gap": self.gap, "verdict": self.verdict}

    def __str__(self) -> str:
        bins = f"({self.n_bins} uniform bins)"
        figures: list[tuple[str, float | None, str]] = [
            ("accuracy", self.accuracy, ""),
            ("mean confidence", self.confidence, ""),
            ("log loss", self.log_loss, self.note_on_log_loss),
            ("Brier score", self.brier_score, ""),
            ("entropy", self.entropy, ""),
            (
                f"ECE {bins}",
                self.expected_calibration_error,
                f"a calibrated model of this size: {self.expected_if_calibrated:.4f}",
            ),
            (f"MCE {bins}", self.maximum_calibration_error, ""),
        ]
        lines = [self.verdict, "", self.size, ""]
        lines += [f"  {n:<22} {v:>8.4f}  {t}".rstrip() for n, v, t in figures if v is not None]
        return "\n".join([*lines, "", *curve_lines(self.curve)])

    @property
    def size(self) -> str:
        """How much was looked at, and what was left out."""
        classes = "" if self.n_classes is None else f", {self.n_classes:,} classes"
        missing = f"; {self.n_missing:,} more without a label left out" if self.n_missing else ""
        return f"{self.n_rows:,} rows{classes}{missing}"

    @property
    def note_on_log_loss(self) -> str:
        """Why log loss is infinite, where it is."""
        return f"{self.n_impossible:,} rows were given probability 0" if self.n_impossible else ""


def curve_lines(curve: ReliabilityCurve) -> list[str]:
    """Draw the reliability curve for a terminal: a bar of what was right, `|` at what it says."""
    width = 30
    lines = [f"  {'says':>6} {'right':>7} {'rows':>9}   (| marks what it says)"]
    for says, right, count in zip(curve.confidence, curve.accuracy, curve.count, strict=True):
        bar = list(("#" * round(right * width)).ljust(width + 1))
        bar[round(says * width)] = "|"
        lines.append(f"  {says:>6.1%} {right:>7.1%} {count:>9,.0f}   {''.join(bar).rstrip()}")
    return lines


def audit(y_true: Any, outputs: Any, *, sample_weight: Any = None, n_bins: int = 15) -> Audit:
    """Return all figures of a model's confidence, taken in one pass over its outputs.

    `outputs` are wrapped (`Logits`, `Members`, `TopLabel` with `y_true=None`) or plain
    probabilities.

    >>> print(audit([0, 1, 1, 1], [[0.8, 0.2], [0.4, 0.6], [0.3, 0.7], [0.1, 0.9]]).verdict)
    No sign of false confidence on 4 rows. It says 75.0% and is right 100.0% of the time.
    """
    batch = Batch.of(y_true, outputs, sample_weight=sample_weight, caller="audit")
    return AuditState.of(batch, n_bins).value

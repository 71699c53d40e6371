"""Cross-fitted P(correct) of scored answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np

from dubito.arrays import FloatArray
from dubito.calibrate.calibrator import correct_answers
from dubito.calibrate.confidence import ConfidenceCalibrator
from dubito.calibrate.cross_validation import (
    MAX_SAMPLES,
    N_FOLDS,
    answers_of,
    draw_folds,
    held_out_logits,
)
from dubito.data.batch import Batch
from dubito.data.shards import Shards
from dubito.formatting import align_table, quantity
from dubito.measure.binary import auroc_interval
from dubito.measure.intervals import Interval
from dubito.outputs import Scores

P_CORRECT = "P(correct)"


class Separation(NamedTuple):
    """How well a score separates correct from wrong answers; `roc_auc` is None without both."""

    name: str
    n_rows: int
    roc_auc: Interval | None


@final
@dataclass(frozen=True, slots=True, eq=False)
class HeldOutAnswers:
    """Labeled rows with their scores, and P(correct) of each by a fit on other rows."""

    batch: Batch
    p_correct: FloatArray
    evaluation: str

    @classmethod
    def cross_fit(cls, shards: Shards, seed: int, caller: str) -> HeldOutAnswers:
        """Fit `ConfidenceCalibrator` without each fold; of more than 20,000 rows on a sample."""
        batch, folds = draw_folds(shards, N_FOLDS, seed, "correct", caller)
        parts = held_out_logits(ConfidenceCalibrator(), batch, folds)
        odds = np.concatenate([part.array[:, 1] - part.array[:, 0] for part in parts])
        p = np.empty(len(odds))
        p[folds.order] = 1 / (1 + np.exp(-odds))
        n_rows = shards.sum(len) if len(batch) == MAX_SAMPLES else 0
        some = f" on a random sample of {len(batch):,} rows" if n_rows > len(batch) else ""
        return cls(batch, p, f"{folds.evaluation}{some}")

    @property
    def scores(self) -> Scores:
        """The scores."""
        assert isinstance(self.batch.outputs, Scores)
        return self.batch.outputs

    @property
    def correct(self) -> FloatArray:
        """1 for correct answers and 0 for wrong ones, or the probability of being correct."""
        return correct_answers(self.batch)

    @property
    def calibrated(self) -> Batch:
        """The rows with P(correct) as the confidence in the answer, by group if there are any."""
        return self._with_confidence(self.p_correct)

    @property
    def uncalibrated(self) -> Batch | None:
        """The rows with the model's own confidence, None if no score is declared to be that."""
        column = self.scores.confidence_column
        return None if column is None else self._with_confidence(self.scores.array[:, column])

    def _with_confidence(self, p: FloatArray) -> Batch:
        """Return the rows as top labels."""
        return replace(answers_of(self.batch, p), groups=self.scores.groups)

    def separations(self) -> Iterator[Separation]:
        """Yield how well each score alone separates the answers, and P(correct) last."""
        names = self.scores.names or tuple(f"score {k}" for k in range(self.scores.n_scores))
        columns = dict(zip(names, self.scores.array.T, strict=True))
        for name, column in {**columns, P_CORRECT: self.p_correct}.items():
            known = np.flatnonzero(~np.isnan(column))
            correct, weight = self.correct[known], self.batch.weight[known]
            has_both = 0 < float(weight @ correct) < float(weight.sum())
            found = auroc_interval(correct, column[known], weight) if has_both else None
            yield Separation(name, known.size, found)

    def separation_lines(self) -> list[str]:
        """Return the AUROC of each score as a table of text."""
        table = [("score", "rows", "AUROC", "95 % interval")]
        for name, n_rows, area in self.separations():
            value = "-" if area is None else f"{area.value:.3f}"
            ends = "-" if area is None else f"{area.low:.3f} to {area.high:.3f}"
            table.append((name, f"{n_rows:,}", value, ends))
        about = "Correct answers score higher than wrong ones (AUROC, 0.5 if random):"
        return [about, "", *(f"  {line}".rstrip() for line in align_table(table))]

    @property
    def title(self) -> str:
        """What P(correct) is computed from, and how rows were held out."""
        names = self.scores.names
        listed = "" if names is None else f" ({', '.join(names)})"
        pooled = "" if self.scores.groups is None else ", groups partially pooled"
        of_what = f"{quantity(self.scores.n_scores, 'score')}{listed}{pooled}"
        return f"{P_CORRECT} from {of_what}, {self.evaluation}: no row is in its own fit."

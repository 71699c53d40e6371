"""Decisions and reviews of several labels per row, and their results on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.calibrate.cross_validation import label_losses
from dubito.data.batch import Batch
from dubito.data.labels import LabelMatrix
from dubito.decide.multilabel.label_costs import TIE, FBeta, LabelCosts
from dubito.decide.policy.decide import BaseDecisions
from dubito.decide.policy.report import (
    UNCALIBRATED,
    BaseCostReport,
    BaseEvidence,
    Baseline,
    calibration_effect,
    cost_difference,
    cost_figures,
    percents,
    proportion,
)
from dubito.decide.value import mean_of
from dubito.formatting import ABSENT, HTMLTable, decimal, html_rows, html_view, percent, quantity
from dubito.measure.intervals import Interval
from dubito.outputs import ClassName, as_multilabel
from dubito.serialization.fields import Entry
from dubito.serialization.objects import stores_fields

ACTIONS = ("negative", "positive", "review")
NEGATIVE, POSITIVE, REVIEW = range(3)
ROW_ACTIONS = ("automatic", "review labels", "review row")
MAX_SHOWN = 20  # labels and columns in a notebook
AUTOMATIC, REVIEW_LABELS, REVIEW_ROW = range(3)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MultiLabelDecisions(BaseDecisions):
    """What is decided for each label of each row, and which are reviewed by a person.

    Returned by `MultiLabelPolicy.decide`.

    Attributes
    ----------
    action : array of int, rows x labels
        Index into `actions`: 0 "negative", 1 "positive", 2 "review". All labels of a row that is
        reviewed as a whole are 2.
    review_row : array of bool
        Which rows are reviewed as a whole.
    fallback : array of int, rows x labels
        What would be decided without any review, 0 or 1.
    probabilities : array of float, rows x labels
        The calibrated probabilities, as `MultiLabelPolicy.predict_proba` returns them.
    expected_cost : array of float
        The expected cost of each row, reviews included.
    review_value : array of float
        The expected cost that the reviews of a row save, less what they cost; 0 without any.
    label_names : tuple
        The names of the labels.
    """

    action: IntArray
    review_row: BoolArray
    fallback: IntArray
    probabilities: FloatArray
    expected_cost: FloatArray
    review_value: FloatArray
    label_names: tuple[ClassName, ...]

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of the actions for a label."""
        return ACTIONS

    @property
    def row_action(self) -> IntArray:
        """What is done with each row: an index into `ROW_ACTIONS`."""
        is_any = (self.action == REVIEW).any(axis=1)
        found = np.where(self.review_row, REVIEW_ROW, np.where(is_any, REVIEW_LABELS, AUTOMATIC))
        return np.asarray(found)

    @property
    def _is_for_review(self) -> BoolArray:
        return np.asarray(self.row_action != AUTOMATIC)

    @property
    def _columns(self) -> dict[str, Any]:
        by_label = self._by_label(self.action.astype(np.int64))
        return {
            "action": (self.row_action, ROW_ACTIONS),
            **{f"decision_{name}": (codes, ACTIONS) for name, codes in by_label},
            **{f"probability_{name}": p for name, p in self._by_label(self.probabilities)},
            "expected_cost": self.expected_cost,
            "review_value": self.review_value,
        }

    def _by_label(self, values: NDArray[Any]) -> list[tuple[ClassName, NDArray[Any]]]:
        """Return the column of each label."""
        return list(zip(self.label_names, np.ascontiguousarray(values.T), strict=True))

    def __str__(self) -> str:
        counts = np.bincount(self.action.ravel(), minlength=len(ACTIONS)) / max(self.action.size, 1)
        pairs = zip(ACTIONS, counts, strict=True)
        taken = ", ".join(f"{name} {percent(part)}" for name, part in pairs)
        rows = np.bincount(self.row_action, minlength=len(ROW_ACTIONS))
        text = f"{quantity(len(self))} x {quantity(len(self.label_names), 'label')}: {taken}."
        if not rows[1:].any():
            return text
        return f"{text} Reviewed: {quantity(rows[2])} as a whole, labels of {rows[1]:,} others."

    def _repr_html_(self) -> str:
        counts = [np.bincount(one, minlength=len(ACTIONS)) for one in self.action.T]
        pairs = list(zip(self.label_names, counts, strict=True))[:MAX_SHOWN]
        labels = [(f"{name}", *(f"{n:,}" for n in taken)) for name, taken in pairs]
        left_out = len(self.label_names) - len(labels)
        more = f"and {quantity(left_out, 'more label')}" if left_out else ""
        columns = dict(list(self.columns().items())[:MAX_SHOWN])
        first = html_rows(columns, len(self))._replace(folded="The first rows")
        return html_view(f"{self}", HTMLTable(("label", *ACTIONS), labels), more, first)


@final
@dataclass(frozen=True, slots=True, eq=False)
class LabelRule:
    """What turns calibrated probabilities into decisions: costs, or F-beta with its thresholds."""

    costs: LabelCosts  # one per label
    f_beta: FBeta | None
    thresholds: FloatArray | None
    names: tuple[ClassName, ...]

    def with_thresholds(self, probabilities: FloatArray, weight: FloatArray) -> LabelRule:
        """Return the rule with the thresholds of F-beta for some rows, if it has any."""
        if self.f_beta is None:
            return self
        thresholds = self.f_beta.thresholds(probabilities.astype(np.float64), weight)
        return replace(self, thresholds=thresholds)

    def decide(self, probabilities: FloatArray) -> MultiLabelDecisions:
        """Decide rows by their calibrated probabilities."""
        costs, p = self.costs.arrays, probabilities.astype(np.float64)
        if self.f_beta is None:
            is_positive = costs.is_positive(p)
        elif self.thresholds is None:
            is_positive = self.f_beta.best_sets(p)
        else:
            is_positive = p >= self.thresholds
        decided = costs.of_errors(p, is_positive)
        is_reviewed = costs.is_reviewed(decided)
        cost = np.where(is_reviewed, costs.review, decided)
        total, least = cost.sum(axis=1), decided.sum(axis=1)
        is_row = costs.review_row < total * (1 - TIE)
        fallback = is_positive.astype(np.int8)
        saved = np.where(is_reviewed, decided - costs.review, 0.0).sum(axis=1)
        value = np.where(is_row, least - costs.review_row, saved)
        return MultiLabelDecisions(
            action=np.where(is_row[:, np.newaxis] | is_reviewed, np.int8(REVIEW), fallback),
            review_row=is_row,
            fallback=fallback,
            probabilities=probabilities,
            expected_cost=np.where(is_row, costs.review_row, total),
            review_value=np.maximum(value, 0.0),
            label_names=self.names,
        )


CURRENT = "a threshold of 0.5 for every label"
THRESHOLD = 0.5  # on uncalibrated probabilities, which the policy is compared with
CONFUSION = ("true_positive", "false_positive", "false_negative", "true_negative", "review")


@final
@dataclass(frozen=True, slots=True, eq=False)
class LabelEvidence(BaseEvidence):
    """Decided rows that a policy did not learn from."""

    batch: Batch
    decisions: MultiLabelDecisions
    evaluation: str
    warnings: tuple[str, ...] = ()

    @property
    def y(self) -> FloatArray:
        """The labels, rows x labels, NaN where unknown."""
        assert isinstance(self.batch.labels, LabelMatrix)
        return self.batch.labels.values

    @property
    def uncalibrated(self) -> FloatArray:
        """The uncalibrated probabilities."""
        return as_multilabel(self.batch.outputs, "MultiLabelPolicy.fit").array


@final
@stores_fields
@dataclass(frozen=True, slots=True)
class MultiLabelPolicyReport(BaseCostReport):
    """Results of a policy on rows that it was not fitted on, with 95 % intervals.

    Costs are means per row, those of its labels added up. Unknown labels are left out: the cost of
    a label is the mean over the rows in which it is known.

    Attributes
    ----------
    evaluation : str
        How the rows were held out.
    n_rows : int
        Rows with a known label and a positive weight.
    cost : Interval
        The realized cost, reviews included. With `FBeta`, the number of wrong labels.
    expected_cost : float
        The cost that the policy expected.
    gap : Interval
        Expected minus realized cost.
    uncalibrated_cost : float
        The cost of optimal decisions with uncalibrated outputs.
    saved : Interval
        What the policy saves over uncalibrated outputs.
    current_cost : float
        The cost of predicting each label from an uncalibrated probability of 0.5 on.
    current_saved : Interval
        What the policy saves over that.
    row_review_rate : Interval
        The fraction of rows that are reviewed as a whole.
    label_review_rate : float
        The fraction of labels, over all rows, that are reviewed one by one.
    n_known : dict
        The weight of the rows in which each label is known; labels without any are left out.
    confusion : dict
        By label, the fraction of these rows by outcome: "true_positive", "false_positive",
        "false_negative", "true_negative" and "review".
    label_costs, current_label_costs : dict
        The mean cost of each label, except reviews of whole rows: of the policy, and at 0.5.
    score_name : str
        What the score is, e.g. "macro F1"; "" without `FBeta`.
    score, current_score : float or None
        The realized F-beta, and that of each label at 0.5; None without `FBeta`.
    score_gained : Interval or None
        Their difference.
    log_loss_before, log_loss_after : float
        Mean over known labels before and after calibration, probabilities floored at 1e-12.
    notes : tuple of str
        Remarks.
    """

    current_cost: float
    current_saved: Interval
    row_review_rate: Interval
    label_review_rate: float
    n_known: dict[str, float]
    confusion: dict[str, dict[str, float]]
    label_costs: dict[str, float]
    current_label_costs: dict[str, float]
    log_loss_before: float
    log_loss_after: float
    score_name: str = ""
    score: float | None = None
    current_score: float | None = None
    score_gained: Interval | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, evidence: LabelEvidence, rule: LabelRule, seed: int = 0) -> MultiLabelPolicyReport:
        """Return the figures of decided rows with labels.

        Parameters
        ----------
        evidence : LabelEvidence
            Held-out rows, their labels and decisions.
        rule : LabelRule
            Costs, thresholds and names of the labels.
        seed : int, default 0
            Seed of the bootstrap.

        Returns
        -------
        MultiLabelPolicyReport
            Costs with intervals, overall and per label.
        """
        y, weight, decisions = evidence.y, evidence.batch.labeled_weight, evidence.decisions
        uncalibrated = rule.with_thresholds(evidence.uncalibrated, weight).decide(
            evidence.uncalibrated
        )
        known = _KnownLabels.of(y, weight)
        is_current = evidence.uncalibrated >= THRESHOLD
        by_label = _paid(rule, decisions, y)
        current_by_label = rule.costs.arrays.of_errors(y, is_current)
        p = decisions.probabilities.astype(np.float64)
        paid, by_uncalibrated, expected = (
            known.row_costs(rule, one, truth)
            for one, truth in ((decisions, y), (uncalibrated, y), (decisions, p))
        )
        current = known.row_sums(current_by_label)
        others = [current - paid]
        scores: dict[str, Any] = {}
        if rule.f_beta is not None:
            score = rule.f_beta.row_scores(y, decisions.fallback == POSITIVE, weight)
            current_score = rule.f_beta.row_scores(y, is_current, weight)
            others.append(score - current_score)
            scores = {"score_name": str(rule.f_beta), "score": mean_of(score, weight)}
            scores["current_score"] = mean_of(current_score, weight)
        figures, found = cost_figures(
            evidence, weight, [paid, expected, by_uncalibrated], others, seed
        )
        if scores:
            scores["score_gained"] = found.pop()
        is_row = decisions.review_row
        names = [str(name) for name in decisions.label_names]
        return cls(
            **figures,
            current_cost=mean_of(current, weight),
            current_saved=found[0],
            row_review_rate=proportion(is_row, weight, weight),
            label_review_rate=mean_of(_is_alone(decisions).mean(axis=1), weight),
            n_known=known.named(names, known.weight),
            confusion=_confusion(known, decisions, y, names),
            label_costs=known.named(names, known.means(np.where(is_row[:, None], 0.0, by_label))),
            current_label_costs=known.named(names, known.means(current_by_label)),
            log_loss_before=_log_loss(y, evidence.uncalibrated.astype(np.float64), weight),
            log_loss_after=_log_loss(y, p, weight),
            **scores,
            notes=evidence.warnings,
        )

    @classmethod
    def _from_values(cls, values: dict[str, Any], entry: Entry) -> MultiLabelPolicyReport:
        for name in ("confusion", "label_costs", "current_label_costs"):
            if [*values[name]] != [*values["n_known"]]:
                raise entry.at(name).error("must have the labels of `n_known`", "others")
        if any(tuple(row) != CONFUSION for row in values["confusion"].values()):
            raise entry.at("confusion").error(f"must have the keys {CONFUSION}", "others")
        return cls(**values)

    def outcomes(self, label: str) -> tuple[str, ...]:
        """Return recall and precision of what is decided, the reviews and the cost of a label.

        Parameters
        ----------
        label : str
            The name of a label.

        Returns
        -------
        tuple of four str
            Recall, precision, fraction reviewed and cost, as text; a dash where the label was never
            known.
        """
        if label not in self.confusion:
            return (ABSENT,) * 4
        hit, false, missed, _, review = self.confusion[label].values()
        recall = f"{hit / (hit + missed):.3f}" if hit + missed > 0 else ABSENT
        precision = f"{hit / (hit + false):.3f}" if hit + false > 0 else ABSENT
        return recall, precision, percent(review), f"{self.label_costs[label]:.3g}"

    @property
    def _unit(self) -> str:
        return "mean cost" if self.score is None else "wrong labels"

    @property
    def _baselines(self) -> list[Baseline]:
        return [
            (CURRENT, self.current_cost, self.current_saved),
            (UNCALIBRATED, self.uncalibrated_cost, self.saved),
        ]

    @property
    def lines(self) -> list[str]:
        """The figures as sentences."""
        difference = cost_difference(self.current_saved, CURRENT)
        lines = [
            f"{self._unit.capitalize()} per row: {self.cost}, {difference}.",
            self._expected_line(
                f"{decimal(self.current_cost)} with {CURRENT}",
                f"{decimal(self.uncalibrated_cost)} with {UNCALIBRATED}",
                what="cost" if self.score is None else "number",
            ),
        ]
        if self.score is not None:
            before = f"{self.current_score:.4f} with {CURRENT}"
            gained = f"a difference of {self.score_gained:+}"
            name = self.score_name[:1].upper() + self.score_name[1:]
            lines.insert(0, f"{name}: {self.score:.4f}, and {before}: {gained}.")
        rows = self.row_review_rate
        if rows.value or self.label_review_rate:
            parts = [percents(rows, "of rows as a whole")] if rows.value else []
            parts.append(f"{percent(self.label_review_rate)} of all labels one by one")
            lines.append(f"Reviewed: {', and '.join(parts)}.")
        losses = f"{self.log_loss_before:.4f}", f"{self.log_loss_after:.4f}"
        return [*lines, calibration_effect({"log loss": losses}), self._rows_line]


@final
@dataclass(frozen=True, slots=True, eq=False)
class _KnownLabels:
    """A mask of the known labels, and sums over them as if all were known.

    A known label stands for as many rows as the label has over those in which it is known.
    """

    is_known: BoolArray
    row_weight: FloatArray
    weight: FloatArray  # of each label

    @classmethod
    def of(cls, y: FloatArray, row_weight: FloatArray) -> _KnownLabels:
        is_known = ~np.isnan(y)
        return cls(is_known, row_weight, row_weight @ is_known)

    def row_sums(self, values: FloatArray) -> FloatArray:
        """Return the sum over the labels of each row; its mean is that of the labels' means."""
        factor = self.row_weight.sum() / np.where(self.weight > 0, self.weight, np.inf)
        return np.asarray(np.where(self.is_known, values * factor, 0.0).sum(axis=1))

    def row_costs(
        self, rule: LabelRule, decisions: MultiLabelDecisions, y: FloatArray
    ) -> FloatArray:
        """Return the costs of rows by their truth or its probability, reviews included."""
        by_label = self.row_sums(_paid(rule, decisions, y))
        return np.where(decisions.review_row, rule.costs.arrays.review_row, by_label)

    def means(self, values: FloatArray) -> FloatArray:
        """Return the mean of each label over the rows in which it is known."""
        sums = self.row_weight @ np.where(self.is_known, values, 0.0)
        return np.asarray(sums / np.maximum(self.weight, 1e-300))

    def named(self, names: list[str], values: FloatArray) -> dict[str, float]:
        """Return the value of each label by its name, without labels that are never known."""
        pairs = zip(names, values.tolist(), self.weight, strict=True)
        return {name: value for name, value, weight in pairs if weight > 0}


def _paid(rule: LabelRule, decisions: MultiLabelDecisions, y: FloatArray) -> FloatArray:
    """Return the cost of each label of each row, by its truth or its probability.

    For a row that is reviewed as a whole, it is the cost of the decision without a review.
    """
    costs = rule.costs.arrays
    errors = costs.of_errors(y, decisions.fallback == POSITIVE)
    return np.where(_is_alone(decisions), costs.review, errors)


def _is_alone(decisions: MultiLabelDecisions) -> BoolArray:
    """Return which labels are reviewed one by one."""
    return np.asarray((decisions.action == REVIEW) & ~decisions.review_row[:, np.newaxis])


def _confusion(
    known: _KnownLabels, decisions: MultiLabelDecisions, y: FloatArray, names: list[str]
) -> dict[str, dict[str, float]]:
    """Return the fraction of the rows of each label by outcome."""
    is_positive, is_review = decisions.action == POSITIVE, decisions.action == REVIEW
    is_negative = ~(is_positive | is_review)
    outcomes = (is_positive * y, is_positive * (1 - y), is_negative * y, is_negative * (1 - y))
    parts = [np.clip(known.means(one), 0.0, 1.0) for one in (*outcomes, is_review * 1.0)]
    rows = [dict(zip(CONFUSION, one, strict=True)) for one in np.transpose(parts).tolist()]
    return {name: row for name, row, n in zip(names, rows, known.weight, strict=True) if n > 0}


def _log_loss(y: FloatArray, p: FloatArray, weight: FloatArray) -> float:
    """Return the mean log loss of known labels."""
    is_known = ~np.isnan(y)
    losses = np.where(is_known, label_losses(y, p), 0.0)
    return float(weight @ losses.sum(axis=1) / (weight @ is_known.sum(axis=1)))

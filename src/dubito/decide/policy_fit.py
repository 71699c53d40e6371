"""Fitting a policy: each part on all rows, and judged on rows that it did not see."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from dubito.arrays import BoolArray, FloatArray, IntArray, freeze
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.cross_fit import folds_of, held_out_logits, labeled_only
from dubito.calibrate.rows import as_class_outputs, class_weights
from dubito.data.batch import Batch
from dubito.data.sampling import sample_rows
from dubito.data.shards import Shards
from dubito.data.truth import Labels
from dubito.decide.actions import as_amounts
from dubito.decide.costs import CostMatrix
from dubito.decide.decisions import LEAST_COST, Decisions
from dubito.decide.gate import OODGate, Score
from dubito.decide.policy_report import Evidence, PolicyReport
from dubito.decide.priors import adjust_prior
from dubito.decide.reject import ThresholdChoice, choose_threshold
from dubito.decide.rules import Rules, of_rows, shares_of, wrong_chances, wrong_shares
from dubito.doubt.region import ConformalOutlierDetector
from dubito.errors import BadTypeError, BadValueError, DubitoWarning
from dubito.outputs import Logits, Probabilities, TopLabel, unchecked

__all__ = [
    "PolicyConfig",
    "PolicyParts",
    "PriorShift",
    "RiskBound",
    "fit_parts",
    "train_prior",
]

N_FOLDS = 5
MOST_ROWS = 20_000  # of more, a seeded sample of so many rows is cross-fitted
KNOT_BOUND = 1e-4  # no calibrated probability moves by more where curves lose knots
NAME = "Policy.fit"


@final
@dataclass(frozen=True, slots=True, eq=False)
class PriorShift:
    """How common classes were where the policy learned, and how common they are where it works."""

    train: FloatArray
    deploy: FloatArray

    def applied(self, outputs: Logits | Probabilities) -> Probabilities:
        """Return posteriors under the prior of deployment."""
        return adjust_prior(outputs, self.train, self.deploy)


@final
@dataclass(frozen=True, slots=True)
class RiskBound:
    """At most `max_risk` of decided rows are wrong, with a chance of 1 - `delta`."""

    max_risk: float
    delta: float
    threshold: float
    words: str


@final
@dataclass(frozen=True, slots=True, eq=False)
class PolicyConfig:
    """What a policy is to be made of."""

    costs: CostMatrix
    calibrator: BaseCalibrator
    prior: PriorShift | None
    score: Score | None
    epsilon: float
    max_risk: float | None
    delta: float
    seed: int


@final
@dataclass(frozen=True, slots=True, eq=False)
class PolicyParts:
    """What was fitted, and the report on it."""

    calibrator: BaseCalibrator
    gate: OODGate | None
    bound: RiskBound | None
    report: PolicyReport


def fit_parts(
    shards: Shards, train: FloatArray, wishes: PolicyConfig, evaluation: Shards | None
) -> PolicyParts:
    """Fit calibrator, gate and bound, and report on rows that were held out."""
    fitted = wishes.calibrator.fit(shards)
    fitted.summary()  # cross-fits its evidence while the rows are at hand
    calibrator = fitted.thinned(KNOT_BOUND)
    held = HeldOutRows.of(shards, calibrator, wishes)
    frequencies = train if wishes.prior is None else wishes.prior.deploy
    rules = Rules(wishes.costs, frequencies)
    choice = None if wishes.max_risk is None else held.choice(rules, held.all_rows)
    bound = None
    if choice is not None:
        assert wishes.max_risk is not None
        bound = RiskBound(wishes.max_risk, wishes.delta, choice.threshold, choice.words)
    if evaluation is not None:
        final = Rules(wishes.costs, frequencies, None if bound is None else bound.threshold)
        evidence = evidence_of(evaluation, calibrator, held.gate, final, wishes)
    else:
        evidence = held.evidence(rules)
    notes = (
        () if bound is None else (f"Risk bound, among rows that costs would decide: {bound.words}",)
    )
    report = PolicyReport.of(evidence, rules, notes, wishes.seed)
    return PolicyParts(calibrator, held.gate, bound, report)


@final
@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """Rows in the order of the folds that held them out, and what others taught about them."""

    batch: Batch
    fold_of: IntArray
    honest: Logits | Probabilities
    gate: OODGate | None
    doubt: FloatArray
    wishes: PolicyConfig

    @classmethod
    def of(cls, shards: Shards, calibrator: BaseCalibrator, wishes: PolicyConfig) -> HeldOutRows:
        """Fit everything again without each fold."""
        batch = labeled_only(sample_rows(shards, MOST_ROWS, wishes.seed, is_labeled=True))
        if len(batch) < 2:
            rule, got = "2 labeled rows or more", f"{len(batch)}"
            raise BadValueError("outputs", NAME, rule, got, "rows with labels")
        folds = folds_of(batch, min(N_FOLDS, len(batch)), wishes.seed)
        parts = held_out_logits(calibrator, batch, folds)
        logits = np.concatenate([part.array for part in parts])
        honest: Logits | Probabilities = unchecked(
            Logits, {"array": logits, "classes": parts[0].classes}
        )
        if wishes.prior is not None:
            honest = wishes.prior.applied(honest)
        gate: OODGate | None = None
        doubt: FloatArray = np.empty(0)
        order = np.concatenate([test for _, test in folds])
        if wishes.score is not None:
            gate, doubt = OODGate.fit(wishes.score, shards, batch, folds, wishes.epsilon)
            doubt = doubt[order]
        fold_of = np.repeat(np.arange(len(folds)), [test.size for _, test in folds])
        return cls(batch.take(order), fold_of, honest, gate, doubt, wishes)

    @property
    def all_rows(self) -> IntArray:
        """The numbers of all rows."""
        return np.arange(len(self.batch))

    @cached_property
    def amounts(self) -> FloatArray:
        """One amount a row, none where costs do not grow."""
        return as_amounts(self.batch.amounts, self.wishes.costs, len(self.batch), NAME)

    @cached_property
    def weight(self) -> FloatArray:
        """What rows count where the policy works: their classes may be more or less common."""
        weight = deployed_weight(self.batch, self.wishes.prior)
        if not weight.sum() > 0:
            rule, fix = "above 0 for a class that occurs among the labels", "other shares"
            raise BadValueError("deploy_prior", NAME, rule, "0 for all of them", fix)
        return weight

    @cached_property
    def is_strange(self) -> BoolArray | None:
        """Which rows are strange beside the doubts of other folds."""
        if self.gate is None:
            return None
        result = np.zeros(len(self.batch), np.bool_)
        for fold in np.unique(self.fold_of):
            is_here = self.fold_of == fold
            with warnings.catch_warnings():  # what all rows are too few for, their own fit told
                warnings.simplefilter("ignore", DubitoWarning)
                region = ConformalOutlierDetector(self.wishes.epsilon).fit(self.doubt[~is_here])
            result[is_here] = region.contains(self.doubt[is_here])
        return result

    def decide(self, rules: Rules, rows: IntArray) -> Decisions:
        """Decide some rows."""
        is_strange = None if self.is_strange is None else self.is_strange[rows]
        amounts = of_rows(self.amounts, rows) if self.amounts.size else None
        return rules.decide(self.honest.take(rows), is_strange, amounts)

    def choice(self, rules: Rules, rows: IntArray) -> ThresholdChoice:
        """Choose how sure a decision must be for the risk to stay below its bound.

        Rows are drawn by their weights, so that they stand for what the policy will meet.
        """
        weight = self.weight[rows]
        luck = np.random.default_rng(self.wishes.seed).random(rows.size)
        rows = rows[luck * weight.max() < weight]
        decisions = self.decide(rules, rows)
        is_open = decisions.reason == LEAST_COST
        kept, action = rows[is_open], decisions.action[is_open]
        if not kept.size:
            words = "every row is handed over by its costs alone."
            return ThresholdChoice(1.0, 0.0, 0.0, 1.0, rows.size, False, words)
        amounts, costs = of_rows(self.amounts, kept), rules.costs
        wrong = wrong_chances(shares_of(self.honest, kept), action, costs, amounts)
        labels = self.batch.truth
        assert isinstance(labels, Labels)
        right = 1 - wrong_shares(labels.take(kept), action, costs, amounts)
        judged = TopLabel(np.clip(1 - wrong, 0, 1), right)
        wishes = self.wishes
        return choose_threshold(None, judged, risk=wishes.max_risk, delta=wishes.delta)

    def evidence(self, rules: Rules) -> Evidence:
        """Decide every row by what the other folds taught, the risk bound included."""
        unbound = self.decide(rules, self.all_rows)
        decisions = unbound
        if self.wishes.max_risk is not None:
            parts = []
            for fold in np.unique(self.fold_of):
                is_here = self.fold_of == fold
                threshold = self.choice(rules, np.flatnonzero(~is_here)).threshold
                bounded = Rules(rules.costs, rules.frequencies, threshold)
                parts.append(self.decide(bounded, np.flatnonzero(is_here)))
            decisions = Decisions.joined(parts, len(self.batch))
        return Evidence(
            batch=self.batch,
            raw=as_class_outputs(self.batch.outputs, NAME),
            honest=self.honest,
            decisions=decisions,
            unbound=None if decisions is unbound else unbound,
            amounts=self.amounts,
            weight=self.weight,
            how=f"cross-fitted in {self.fold_of.max() + 1} folds",
        )


def evidence_of(
    evaluation: Shards,
    calibrator: BaseCalibrator,
    gate: OODGate | None,
    rules: Rules,
    wishes: PolicyConfig,
) -> Evidence:
    """Decide rows that were given to be judged on, by what all others taught."""
    batch = labeled_only(sample_rows(evaluation, MOST_ROWS, wishes.seed, is_labeled=True))
    raw = as_class_outputs(batch.outputs, NAME)
    honest: Logits | Probabilities = calibrator.transform(raw)
    if wishes.prior is not None:
        honest = wishes.prior.applied(honest)
    is_strange = None
    if gate is not None:
        if gate.needs_features and batch.features is None:
            rule = "with features, as the policy looks for strange inputs"
            fix = "Batch.of(y, outputs, features=...)"
            raise BadTypeError("evaluation", NAME, rule, "none", fix)
        is_strange = gate.contains(raw, batch.features)
    decisions = rules.decide(honest, is_strange, batch.amounts)
    unbound = Rules(rules.costs, rules.frequencies).decide(honest, is_strange, batch.amounts)
    return Evidence(
        batch=batch,
        raw=raw,
        honest=honest,
        decisions=decisions,
        unbound=None if rules.threshold is None else unbound,
        amounts=as_amounts(batch.amounts, rules.costs, len(batch), NAME),
        weight=deployed_weight(batch, wishes.prior),
        how="an evaluation set",
    )


def train_prior(shards: Shards) -> FloatArray:
    """Return the frequencies of labels, as if one more row had had all classes alike."""
    weights = class_weights(shards)
    return freeze((weights + 1 / weights.size) / (weights.sum() + 1))


def deployed_weight(batch: Batch, prior: PriorShift | None) -> FloatArray:
    """Return the weight of each row, times how much more common its class is in deployment."""
    if prior is None:
        return batch.labeled_weight
    labels = batch.truth
    assert isinstance(labels, Labels)
    ratio = prior.deploy / prior.train
    soft = labels.probabilities
    times = ratio[labels.codes] if soft is None else soft @ ratio
    return np.asarray(batch.labeled_weight * times)

"""Fitting a policy: each part on all rows, evaluated on rows it did not see."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from sklearn.base import clone

from dubito.arrays import BoolArray, FloatArray, IntArray, freeze
from dubito.calibrate.auto import AutoCalibrator
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.cross_validation import folds_of, held_out_logits, labeled_only
from dubito.calibrate.inputs import as_class_outputs, class_weights
from dubito.data.batch import Batch
from dubito.data.labels import Labels
from dubito.data.shards import ArrayShards, Shards, sample_rows
from dubito.decide.actions import as_amounts
from dubito.decide.costs import CostMatrix
from dubito.decide.policy.decide import (
    LEAST_COST,
    Decisions,
    Rules,
    of_rows,
    shares_of,
    wrong_chances,
    wrong_shares,
)
from dubito.decide.policy.gate import OODGate, Score, as_score
from dubito.decide.policy.report import Evidence, PolicyReport
from dubito.decide.priors import adjust_prior
from dubito.decide.reject import ThresholdChoice, choose_threshold
from dubito.doubt.mahalanobis import MahalanobisDistance
from dubito.doubt.outliers import ConformalOutlierDetector
from dubito.errors import BadTypeError, BadValueError, DubitoWarning
from dubito.outputs import Logits, Probabilities, TopLabel, unchecked


def fresh_calibrator(calibrator: Any) -> BaseCalibrator:
    """Return a calibrator that knows nothing yet."""
    if isinstance(calibrator, str) and calibrator == "auto":
        return AutoCalibrator()
    if not isinstance(calibrator, BaseCalibrator):
        rule, fix = "'auto' or a calibrator of dubito", "calibrator=TemperatureScaling()"
        raise BadTypeError("calibrator", "Policy.fit", rule, repr(calibrator), fix)
    twin: BaseCalibrator = clone(calibrator)
    return twin


def as_score_or_none(doubt: Any, has_features: bool) -> Score | None:
    """Return the doubt of the gate, None where there is none."""
    if doubt is None:
        return MahalanobisDistance() if has_features else None
    score = as_score(doubt, "Policy.fit")
    if not isinstance(score, str) and not has_features:
        rule, fix = "given beside a doubt of features", "features=..., or doubt='entropy'"
        raise BadTypeError("features", "Policy.fit", rule, "None", fix)
    return score


def require_reject(costs: CostMatrix, has_gate: bool, has_bound: bool) -> None:
    """Raise where rows may have to be handed over and there is nobody to take them."""
    if costs.n_actions == 1 and costs.reject is not None:
        rule, fix = "with an action that decides rows", "CostMatrix.zero_one(3).with_reject(0.3)"
        raise BadValueError("costs", "Policy.fit", rule, "one that hands them over alone", fix)
    if costs.reject is None and (has_gate or has_bound):
        why = "strange inputs are handed over" if has_gate else "`max_risk` hands rows over"
        rule = f"with an action that hands rows over, as {why}"
        fix = "costs.with_reject(0.3)"
        raise BadValueError("costs", "Policy.fit", rule, "none of that kind", fix)


def require_plain_labels(batch: Batch, caller: str) -> None:
    """Raise where labels are probabilities, of which nobody can count the errors."""
    if isinstance(batch.labels, Labels) and batch.labels.probabilities is not None:
        rule, got = "plain labels, one a row, beside `max_risk`", "label probabilities"
        raise BadValueError("y", caller, rule, got, "the most probable label of each row")


def evaluation_shards(evaluation: Any) -> Shards | None:
    """Return rows to be judged on as shards, None for folds of the rows of the fit."""
    if isinstance(evaluation, Batch):
        return ArrayShards(evaluation)
    if not isinstance(evaluation, Shards) and evaluation != "cross-fit":
        rule, fix = "'cross-fit', a Batch or Shards", "Batch.of(y, outputs, features=...)"
        raise BadTypeError("evaluation", "Policy.fit", rule, repr(evaluation)[:60], fix)
    return evaluation if isinstance(evaluation, Shards) else None


def as_feature_names(names: Any, features: Any, first: Batch) -> tuple[str, ...] | None:
    """Return what features are called: as told, or as the columns of a frame are."""
    if first.features is None:
        return None
    found = column_names(features) if names is None else tuple(str(name) for name in names)
    if found is not None and len(found) != first.features.shape[1]:
        rule, fix = f"{first.features.shape[1]} names, one a feature", "a name for every column"
        raise BadValueError("feature_names", "Policy.fit", rule, f"{len(found)}", fix)
    return found


def column_names(features: Any) -> tuple[str, ...] | None:
    """Return the names of a frame's columns, None for a plain array."""
    columns = getattr(features, "column_names", getattr(features, "columns", None))
    return None if columns is None else tuple(str(name) for name in columns)


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
        evidence = _evidence_of(evaluation, calibrator, held.gate, final, wishes)
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
        weight = _deployed_weight(self.batch, self.wishes.prior)
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
            result[is_here] = region.predict(self.doubt[is_here])
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
        labels = self.batch.labels
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


def _evidence_of(
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
        weight=_deployed_weight(batch, wishes.prior),
        how="an evaluation set",
    )


def train_prior(shards: Shards) -> FloatArray:
    """Return the frequencies of labels, as if one more row had had all classes alike."""
    weights = class_weights(shards)
    return freeze((weights + 1 / weights.size) / (weights.sum() + 1))


def _deployed_weight(batch: Batch, prior: PriorShift | None) -> FloatArray:
    """Return the weight of each row, times how much more common its class is in deployment."""
    if prior is None:
        return batch.labeled_weight
    labels = batch.labels
    assert isinstance(labels, Labels)
    ratio = prior.deploy / prior.train
    soft = labels.probabilities
    times = ratio[labels.codes] if soft is None else soft @ ratio
    return np.asarray(batch.labeled_weight * times)

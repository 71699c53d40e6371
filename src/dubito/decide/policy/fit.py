"""Fitting a policy: each part on all rows, evaluated on rows it did not see."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast, final

import numpy as np
from scipy.special import expit

from dubito import calibrate
from dubito.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    as_fraction,
    column_names_of,
    draw_seed,
    freeze,
)
from dubito.calibrate.auto import AutoCalibrator
from dubito.calibrate.calibrator import (
    BaseCalibrator,
    as_class_outputs,
    class_weights,
    drop_unlabeled,
    labeled_outputs,
)
from dubito.calibrate.confidence import BASE_RATE, ConfidenceCalibrator, no_better
from dubito.calibrate.cross_validation import (
    MAX_SAMPLES,
    N_FOLDS,
    Folds,
    held_out_logits,
    make_folds,
)
from dubito.data.batch import Batch
from dubito.data.labels import Labels, names_of
from dubito.data.shards import ArrayShards, Shards, sample_rows
from dubito.decide.actions import SMALLEST, action_intervals, cost_warnings, too_costly
from dubito.decide.costs import CostMatrix, as_costs
from dubito.decide.policy.decide import (
    LOWEST_COST,
    RISK_BOUND,
    CalibrationCurve,
    DecisionRule,
    Decisions,
    cost_range,
    decision_errors,
    has_curve,
    scaled_costs,
)
from dubito.decide.policy.gate import OODGate, RiskBound, resolved_gate
from dubito.decide.policy.report import ARGMAX, CurrentRule, Evidence, PolicyReport
from dubito.decide.priors import adjust_prior, as_prior, log_posteriors, posteriors
from dubito.decide.reject import ERRORS, LossUnit, RankedLosses, ThresholdChoice, threshold_at_risk
from dubito.decide.row_costs import RowCosts
from dubito.decide.value import mean_of
from dubito.errors import BadTypeError, BadValueError
from dubito.formatting import percent, quantity
from dubito.measure.binary import positive_column
from dubito.measure.intervals import Interval
from dubito.outputs import (
    BaseClassOutputs,
    BaseOutputs,
    ClassName,
    Logits,
    MultiLabel,
    MultiLabelMembers,
    Probabilities,
    Scores,
    TopLabel,
    unchecked,
)
from dubito.serialization.objects import clone

CALLER = "Policy.fit"
EVALUATION_SET = "an evaluation set"  # as a report names it
PASS_BATCH = "Pass Batch.of(y, outputs, features=...)"
Z = 1.96  # standard errors to each side of a 95 % interval
KNOT_BOUND = 1e-4  # no calibrated probability moves by more when curves lose knots


@final
@dataclass(frozen=True, slots=True, eq=False)
class PolicyConfig:
    """The checked arguments of `Policy.fit`: which parts to fit, and how."""

    costs: CostMatrix
    calibrator: BaseCalibrator
    train_prior: FloatArray
    deploy_prior: FloatArray | None
    ood: OODGate | None
    risk: RiskBound | None
    seed: int
    current: CurrentRule = ARGMAX
    pos_column: int = 1
    max_review_rate: float | None = None

    @classmethod
    def checked(
        cls,
        shards: Shards,
        *,
        costs: Any,
        calibrator: Any,
        deploy_prior: Any,
        ood: Any,
        risk: Any,
        random_state: Any,
        current: Any = "argmax",
        pos_label: ClassName | None = None,
        max_review_rate: Any = None,
    ) -> PolicyConfig:
        """Check the arguments of a fit against each other and against the first rows."""
        first = next(shards.batches())
        known = labeled_outputs(first, CALLER, as_decidable)
        table = as_costs(costs, "costs", CALLER).for_classes(known.classes, known.n_classes)
        if deploy_prior is not None:
            deploy_prior = as_prior(deploy_prior, known, "deploy_prior", CALLER)
        RowCosts.of(first.row_costs, table, len(first), CALLER)
        gate = resolved_gate(ood, first.features, CALLER)
        if risk is not None and not isinstance(risk, RiskBound):
            rule, fix = "must be None or RiskBound(...)", "Use risk=RiskBound(0.05)"
            raise BadTypeError("risk", CALLER, rule, repr(risk)[:60], fix)
        _require_reject(table, gate, risk)
        if risk is not None:
            risk._check_params()
            risk.require_bounded(table)
            if risk.max_cost is None and getattr(first.labels, "probabilities", None) is not None:
                rule = "must be one label per row for a risk bound"
                fix = "Pass the most probable label"
                raise BadValueError("y", CALLER, rule, "label probabilities", fix)
        column = 1
        if pos_label is not None:
            column = positive_column(first.outputs, pos_label, CALLER) or 0
        if max_review_rate is not None:
            max_review_rate = as_fraction(max_review_rate, "max_review_rate", CALLER)
        return cls(
            costs=table,
            calibrator=_fresh_calibrator(calibrator, known),
            train_prior=_train_prior(shards),
            deploy_prior=deploy_prior,
            ood=gate,
            risk=risk,
            seed=draw_seed(random_state, CALLER),
            current=CurrentRule.of(current, first, column),
            pos_column=column,
            max_review_rate=max_review_rate,
        )

    def rule(self, threshold: float | None = None) -> DecisionRule:
        """Return the rule that decides, with or without a risk bound."""
        frequencies = self.train_prior if self.deploy_prior is None else self.deploy_prior
        bounds_cost = self.risk is not None and self.risk.max_cost is not None
        return DecisionRule(self.costs, frequencies, threshold, bounds_cost)

    def adapted(self, outputs: Logits | Probabilities) -> Logits | Probabilities:
        """Return calibrated outputs under the prior of deployment, if there is one."""
        if self.deploy_prior is None:
            return outputs
        return adjust_prior(outputs, self.train_prior, self.deploy_prior)

    def evidence(
        self, batch: Batch, decisions: Decisions, unbound: Decisions, evaluation: str
    ) -> Evidence:
        """Return decided rows, with what would be decided without a risk bound."""
        return Evidence(
            batch=batch,
            uncalibrated=self.calibrator._uncalibrated(batch),
            decisions=decisions,
            unbound=None if unbound is decisions else unbound,
            row_costs=RowCosts.of(batch.row_costs, self.costs, len(batch), CALLER),
            weight=self.deployed_weight(batch),
            evaluation=evaluation,
            current=self.current,
            pos_column=self.pos_column,
        )

    def deployed_weight(self, batch: Batch) -> FloatArray:
        """Return the weight of each row, times how much more common its class is in deployment."""
        if self.deploy_prior is None:
            return batch.labeled_weight
        ratio = self.deploy_prior / self.train_prior
        labels, soft = batch.class_labels, batch.class_labels.probabilities
        weight = batch.labeled_weight * (ratio[labels.codes] if soft is None else soft @ ratio)
        if not weight.sum() > 0:
            rule = "must be above 0 for a class that occurs among the labels"
            got, fix = "0 for all of them", "Change the prior"
            raise BadValueError("deploy_prior", CALLER, rule, got, fix)
        return np.asarray(weight)


def fit_parts(
    shards: Shards, config: PolicyConfig, evaluate_on: Any = "cross-fit"
) -> tuple[dict[str, Any], Evidence]:
    """Return the fitted parts of a policy by name, with its report, and the held-out rows."""
    others = evaluation_batch(evaluate_on, config.seed, CALLER)
    config = replace(config, calibrator=config.calibrator.fit(shards).reduce_knots(KNOT_BOUND))
    calibrator = config.calibrator
    held_out = HeldOutRows.of(shards, calibrator, config)
    risk, notes = None, list[str]()
    if config.risk is not None:
        choice = held_out.choose_threshold(held_out.all_rows)
        risk = config.risk.with_threshold(choice.threshold, choice.summary)
        notes = [f"Risk bound on the rows that costs do not reject: {choice.summary}"]
    scores = held_out.batch.outputs
    if isinstance(scores, Scores) and scores.confidence_column is None:
        notes.append(BASE_RATE)
    if others is None:
        evidence = held_out.evidence()
    else:
        rule = config.rule(None if risk is None else risk.threshold_)
        evidence = _evidence_on(others, held_out.ood, rule, config)
    found = (*_cost_warnings(evidence, config), *_review_warnings(evidence, config))
    evidence = replace(
        evidence,
        uncalibrated_thresholds=held_out.uncalibrated_thresholds(calibrator),
        warnings=found,
    )
    # Warnings point at the caller of `Policy.fit`, four calls up.
    report = PolicyReport.of(evidence, config.rule(), config.seed, (*notes, *found), stacklevel=5)
    if isinstance(scores, Scores) and not report.is_better:
        report = replace(report, notes=(no_better(report.has_uncalibrated), *report.notes))
    parts = {"calibrator": calibrator, "ood": held_out.ood, "risk": risk, "report": report}
    return parts, evidence


def _require_two_classes(batch: Batch) -> None:
    """Raise an error if all labels are of one class, which says nothing about the others."""
    labels = batch.class_labels
    codes = labels.codes[batch.labeled_weight > 0]
    if labels.probabilities is None and codes.size > 1 and (codes == codes[0]).all():
        got = f"{names_of(labeled_outputs(batch, CALLER, as_decidable))[codes[0]]!r} in every row"
        fix = "Add rows of other classes"
        raise BadValueError("y", CALLER, "must hold labels of two classes or more", got, fix)


@final
@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """Rows in the order of the folds that held them out, with their out-of-fold results."""

    batch: Batch
    folds: Folds
    calibrated: Logits | Probabilities
    ood: OODGate | None
    ood_scores: FloatArray
    config: PolicyConfig

    @classmethod
    def of(cls, shards: Shards, calibrator: BaseCalibrator, config: PolicyConfig) -> HeldOutRows:
        """Fit again without each fold: five folds, or two random halves if there are many rows."""
        batch, folds = sample_folds(shards, config.seed, CALLER)
        parts = held_out_logits(calibrator, batch, folds)
        logits = np.concatenate([part.array for part in parts])
        calibrated = unchecked(Logits, {"array": logits, "classes": parts[0].classes})
        gate, scores = None, cast(FloatArray, np.empty(len(batch)))
        if config.ood is not None:
            gate, scores = config.ood.cross_fit(shards, batch, folds)
        rows, adapted = batch.take(folds.order), config.adapted(calibrated)
        return cls(rows, folds, adapted, gate, scores[folds.order], config)

    @property
    def all_rows(self) -> IntArray:
        """The indices of all rows."""
        return np.arange(len(self.batch))

    @cached_property
    def row_costs(self) -> RowCosts:
        """The costs of each row."""
        found = RowCosts.of(self.batch.row_costs, self.config.costs, len(self.batch), CALLER)
        return found.answered(self.calibrated)

    @cached_property
    def weight(self) -> FloatArray:
        """The weight of each row in deployment, where classes may be more or less common."""
        return self.config.deployed_weight(self.batch)

    @cached_property
    def is_ood(self) -> BoolArray | None:
        """Which rows are out-of-distribution by the OOD scores of the other folds."""
        gate = self.config.ood
        return None if gate is None else gate.held_out_flags(self.ood_scores, self.folds.fold_of)

    def uncalibrated_thresholds(self, calibrator: BaseCalibrator) -> tuple[Interval | None, ...]:
        """Return at which uncalibrated probability of the positive class each action ends.

        Intervals are those of a parabola fitted to the log odds of the held-out rows, which is
        how much a smooth correction of the calibrated log odds could still move there.
        """
        config, column = self.config, self.config.pos_column
        is_curve = config.costs.n_classes == 2 and self.row_costs.is_constant
        if not (is_curve and has_curve(calibrator)):
            return ()
        logs = log_posteriors(self.calibrated)
        odds, p = logs[:, column] - logs[:, 1 - column], np.exp(logs[:, column])
        if config.deploy_prior is not None:  # as common as among the rows
            ratio = config.deploy_prior / config.train_prior
            moved = np.exp(odds) * ratio[1 - column] / ratio[column]
            p = moved / (1 + moved)
        columns = np.stack([odds**power for power in range(3)])
        columns *= np.sqrt(self.batch.labeled_weight * p * (1 - p))
        covariance = np.linalg.pinv(columns @ columns.T)
        curve = CalibrationCurve.of(
            lambda rows: config.adapted(calibrator.apply(rows)), config.costs.classes, column
        )
        result: list[Interval | None] = []
        for one in action_intervals(config.costs, column)[:-1]:
            at = np.log(one.high) - np.log1p(-one.high)
            powers = np.array([1.0, at, at**2])
            reach = Z * np.sqrt(powers @ covariance @ powers)
            value, low, high = map(
                curve.uncalibrated_probability, expit([at, at - reach, at + reach])
            )
            ends = low or 0.0, 1.0 if high is None else high
            result.append(None if value is None else Interval(value, *ends))
        return tuple(result)

    def decide(self, rule: DecisionRule, rows: IntArray) -> Decisions:
        """Decide some rows."""
        is_ood = None if self.is_ood is None else self.is_ood[rows]
        return rule.decide(self.calibrated.take(rows), is_ood, self.row_costs.take(rows))

    def choose_threshold(self, rows: IntArray) -> ThresholdChoice:
        """Choose how probable it must be that a decision is right for the risk bound to hold.

        Or how low its expected cost must be. Rows are counted by their frequency weights, and
        drawn as often as their classes occur in deployment.
        """
        risk, costs = self.config.risk, self.config.costs
        assert risk is not None
        rule = self.config.rule()
        decisions = self.decide(rule, rows)
        is_open = decisions.reason == LOWEST_COST
        accepted, action = rows[is_open], decisions.action[is_open]
        row_costs = self.row_costs.take(accepted)
        expected = rule.expected_loss(posteriors(self.calibrated, accepted), action, row_costs)
        labels = self.batch.class_labels.take(accepted)
        # Drawn in proportion to how much more common a class is in deployment.
        frequency, ratio = self.batch.labeled_weight[rows], self.weight[rows]
        ratio = ratio / np.where(frequency > 0, frequency, 1.0)
        uniform = np.random.default_rng(self.config.seed).random(rows.size)
        weight = (frequency * (uniform * ratio.max() < ratio))[is_open]
        unit, limit = ERRORS, risk.max_risk
        if risk.max_cost is None:
            loss = decision_errors(labels, action, row_costs)
        else:
            unit = LossUnit(*cost_range(costs), is_cost=True)
            limit = (risk.max_cost - unit.low) / ((unit.high - unit.low) or 1.0)
            loss = scaled_costs(row_costs.paid(labels, action), costs)
        ranked = RankedLosses.of(expected, loss, weight, is_binary=risk.max_cost is None)
        if not ranked.n_rows:
            summary = "every row is rejected because of its costs."
            return ThresholdChoice(1.0, 0.0, 0.0, 1.0, rows.size, False, summary)
        return threshold_at_risk(ranked, float(limit or 0.0), risk.delta, unit)

    def evidence(self) -> Evidence:
        """Decide every row by what the other folds learned, the risk bound included."""
        unbound = self.decide(self.config.rule(), self.all_rows)
        decisions = unbound
        if self.config.risk is not None:
            parts, fold_of = [], self.folds.fold_of
            for fold in np.unique(fold_of):
                is_here = fold_of == fold
                threshold = self.choose_threshold(np.flatnonzero(~is_here)).threshold
                parts.append(self.decide(self.config.rule(threshold), np.flatnonzero(is_here)))
            decisions = Decisions.joined(parts, len(self.batch))
        return self.config.evidence(self.batch, decisions, unbound, self.folds.evaluation)


def sample_folds(shards: Shards, seed: int, caller: str) -> tuple[Batch, Folds]:
    """Return labeled rows to cross-fit on, and folds: five, or of many rows two random halves."""
    n_folds, n_rows = 2, 2 * MAX_SAMPLES
    batch = drop_unlabeled(sample_rows(shards, n_rows, seed, is_labeled=True))
    if len(batch) < n_rows:
        if isinstance(batch.labels, Labels):
            _require_two_classes(batch)
        n_folds, batch = N_FOLDS, sample_rows(ArrayShards(batch), MAX_SAMPLES, seed)
    _require_labeled_rows(batch, 2, "outputs", caller)
    return batch, make_folds(batch, min(n_folds, len(batch)), seed)


def _require_labeled_rows(batch: Batch, least: int, argument: str, caller: str) -> None:
    """Raise where fewer rows have a label than are needed."""
    if len(batch) < least:
        rule = f"must have at least {quantity(least, 'labeled row')}"
        raise BadValueError(argument, caller, rule, f"{len(batch)}", "Pass more rows with labels")


def _evidence_on(
    batch: Batch, gate: OODGate | None, rule: DecisionRule, config: PolicyConfig
) -> Evidence:
    """Decide the rows of an evaluation set by what all training rows taught."""
    calibrated = config.adapted(config.calibrator._transform(batch.outputs))
    is_ood = evaluation_flags(gate, config.calibrator._uncalibrated(batch), batch, CALLER)
    unbound = decisions = rule.decide(calibrated, is_ood, batch.row_costs)
    if rule.threshold is not None:
        unbound = config.rule().decide(calibrated, is_ood, batch.row_costs)
    return config.evidence(batch, decisions, unbound, EVALUATION_SET)


def _cost_warnings(evidence: Evidence, config: PolicyConfig) -> list[str]:
    """Return what is odd about the costs; if they differ by row, actions optimal for no row."""
    costs, by_row = config.costs, evidence.row_costs
    may_reject = config.risk is not None or config.ood is not None
    if by_row.is_constant and not costs.reviews:
        return cost_warnings(costs, may_reject=may_reject)
    p = posteriors(evidence.decisions.calibrated)
    expected = by_row.terms().expected(p)[evidence.weight > 0]
    excess = (expected - expected.min(axis=1, keepdims=True)).min(axis=0)
    for class_ in range(costs.n_classes):  # an action for a class that is certain is not odd
        known = by_row.in_class(class_)
        excess[(known <= known.min(axis=0)).any(axis=1)] = 0.0
    sentences = []
    for k in np.flatnonzero(excess > SMALLEST * np.abs(expected).max()).tolist():
        if k != costs.reject or not may_reject:
            problem = f"'{costs.actions[k]}' is optimal for none of the {len(expected):,} rows"
            price = None if k in costs.rejecting and costs.reviews else by_row.constant_cost(k)
            sentences.append(too_costly(problem, float(excess[k]), price))
    return sentences


def _review_warnings(evidence: Evidence, config: PolicyConfig) -> list[str]:
    """Return a sentence if more rows are rejected than can be reviewed."""
    limit, decisions, reject = config.max_review_rate, evidence.decisions, config.costs.reject
    if reject is None:
        return []
    rate = mean_of(decisions.is_rejected, evidence.weight)
    if rate == 1 and config.risk is not None and (decisions.reason == RISK_BOUND).any():
        bound = "max_cost" if config.risk.max_risk is None else "max_risk"
        return [
            f"Every row is rejected, because of the bound {bound}="
            f"{getattr(config.risk, bound):g}. Raise it, or fit on more rows."
        ]
    if limit is None or rate <= limit:
        return []
    name = "', '".join(config.costs.actions[k] for k in config.costs.rejecting)
    taken = "rejected" if name == "reject" else f"sent to '{name}'"
    sentence = f"{percent(rate)} of rows are {taken}, above the limit of {percent(limit)}"
    by_row, now = evidence.row_costs, evidence.row_costs.constant_cost(reject)
    is_simple = config.ood is None and config.risk is None and not config.costs.reviews
    if is_simple and now is not None:
        # A row is rejected where any other action is expected to cost more than to reject it.
        others = by_row.without_reject().terms()
        least = others.expected(posteriors(decisions.calibrated)).min(axis=1)
        order = np.argsort(-least)
        weights = np.cumsum(evidence.weight[order])
        rank = np.searchsorted(weights, limit * weights[-1])
        cost = least[order][min(rank, order.size - 1)]
        digit = 10.0 ** (np.floor(np.log10(cost)) - 2)  # rounded up, so that it is enough
        cost = np.ceil(cost / digit) * digit
        sentence += f"; that limit is met if '{name}' costs {cost:.3g} instead of {now:.3g}"
    return [f"{sentence}."]


def evaluation_batch(evaluate_on: Any, seed: int, caller: str) -> Batch | None:
    """Return the labeled rows of an evaluation set, of many a random sample.

    None for cross-fitting.
    """
    if isinstance(evaluate_on, str) and evaluate_on == "cross-fit":
        return None
    if isinstance(evaluate_on, Batch):
        evaluate_on = ArrayShards(evaluate_on)
    if not isinstance(evaluate_on, Shards):
        rule, got = "must be 'cross-fit', a Batch or Shards", f"a {type(evaluate_on).__name__}"
        if evaluate_on is None or isinstance(evaluate_on, str):
            got = repr(evaluate_on)
        raise BadTypeError("evaluate_on", caller, rule, got, PASS_BATCH)
    first = next(evaluate_on.batches())
    if first.labels is None and not isinstance(first.outputs, TopLabel):
        rule, fix = "must have labels", "Pass Batch.of(y, outputs)"
        raise BadTypeError("evaluate_on", caller, rule, "none", fix)
    batch = drop_unlabeled(sample_rows(evaluate_on, MAX_SAMPLES, seed, is_labeled=True))
    _require_labeled_rows(batch, 1, "evaluate_on", caller)
    return batch


def evaluation_flags(
    gate: OODGate | None, outputs: Any, batch: Batch, caller: str
) -> BoolArray | None:
    """Return which rows of an evaluation set are out-of-distribution, None without a gate."""
    if gate is None:
        return None
    if gate.needs_features and batch.features is None:
        need = "must have features for the OOD gate"
        raise BadTypeError("evaluate_on", caller, need, "none", PASS_BATCH)
    return gate.predict(outputs, batch.features)


def as_feature_names(
    names: Any, features: Any, first: Batch, caller: str
) -> tuple[str, ...] | None:
    """Return the names of features: as given, or those of a data frame's columns."""
    if first.features is None:
        return None
    found = column_names_of(features) if names is None else tuple(str(name) for name in names)
    n_features = first.features.shape[1]
    if found is not None and len(found) != n_features:
        rule, fix = f"must have {n_features} names, one per feature", "Name every column"
        raise BadValueError("feature_names", caller, rule, f"{len(found)}", fix)
    return found


def _train_prior(shards: Shards) -> FloatArray:
    """Return the label frequencies, smoothed by one more row spread evenly over the classes."""
    weights = class_weights(shards)
    return freeze((weights + 1 / weights.size) / (weights.sum() + 1))


def as_decidable(outputs: Any, caller: str) -> Logits | Probabilities | Scores:
    """Return outputs that a policy can be fitted to: over classes, or scores of answers."""
    if isinstance(outputs, Scores | TopLabel):
        return ConfidenceCalibrator()._as_outputs(outputs, caller)
    if isinstance(outputs, BaseOutputs) and not isinstance(outputs, BaseClassOutputs):
        kind = "MultiLabel" if isinstance(outputs, MultiLabel | MultiLabelMembers) else "Regression"
        rule, fix = "must be over classes", f"Use {kind}Policy.fit"
        raise BadTypeError("outputs", caller, rule, type(outputs).__name__, fix)
    return as_class_outputs(outputs, caller)


def _fresh_calibrator(calibrator: Any, outputs: BaseClassOutputs) -> BaseCalibrator:
    """Return an unfitted copy."""
    if isinstance(calibrator, str) and calibrator == "auto":
        return ConfidenceCalibrator() if isinstance(outputs, Scores) else AutoCalibrator()
    if not isinstance(calibrator, BaseCalibrator):
        call = "TemperatureScaling()"
        if isinstance(calibrator, str):  # as on the command line
            call = f"{calibrator}()" if calibrator in calibrate.__all__ else call
            call = "AutoCalibrator(max_parts=1)" if calibrator == "simple" else call
        rule, fix = "must be 'auto' or a dubito calibrator", f"Use calibrator={call}"
        raise BadTypeError("calibrator", CALLER, rule, repr(calibrator), fix)
    twin: BaseCalibrator = clone(calibrator)
    return twin


def _require_reject(costs: CostMatrix, gate: OODGate | None, risk: RiskBound | None) -> None:
    """Raise where rows may have to be rejected and no action does that."""
    if not costs.deciding:
        rule = "must have an action that does not reject"
        fix = "Use CostMatrix.zero_one(3).with_reject(0.3)"
        raise BadValueError("costs", CALLER, rule, "only a reject action", fix)
    if costs.reject is None and (gate is not None or risk is not None):
        what = "OOD gate" if gate is not None else "risk bound"
        rule, fix = f"must have a reject action for the {what}", "Use costs.with_reject(0.3)"
        raise BadValueError("costs", CALLER, rule, "none", fix)

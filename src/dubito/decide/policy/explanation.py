"""A policy in sentences: the thresholds of its actions, and why a row is decided as it is."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import floor, log10
from typing import TYPE_CHECKING, Any

import numpy as np

from dubito.arrays import FloatArray
from dubito.calibrate.confidence import ConfidenceCalibrator
from dubito.decide.actions import expected_costs
from dubito.decide.policy.decide import Decisions, cost_range
from dubito.decide.policy.gate import OODGate
from dubito.decide.priors import posteriors
from dubito.decide.reject import ERRORS, LossUnit, uncertainty_limit
from dubito.decide.row_costs import RowCosts
from dubito.errors import BadValueError
from dubito.formatting import join_words, percent, short_percent
from dubito.outputs import ClassName, Logits, Probabilities, Scores

if TYPE_CHECKING:
    from dubito.decide.policy.policy import Policy

MAX_PAIRED = 4  # classes whose pairs have their thresholds printed
MAX_ACTIONS = 5  # whose expected costs an explanation shows
REASON_CLAUSES = (  # in the order of REASONS
    "it has the lowest expected cost",
    "rejecting costs less than any other action",
    "no other action is certain enough for the risk bound",
    "the input is out-of-distribution",
)


def threshold_lines(policy: Policy) -> list[str]:
    """Return from which probabilities on each action is taken: of two classes, or of each pair."""
    parts = {"the risk bound": policy.risk, "the OOD gate": policy.ood}
    rejecting = [name for name, one in parts.items() if one is not None]
    lines: list[str] = []
    costs = policy.costs
    if policy.thresholds:
        lines.append(f"By {_threshold_line(policy)}")
    elif (typical := typical_policy(policy)) is not None:
        medians = policy.provenance["medians"]
        values = join_words([f"{name} {medians[name]:.4g}" for name in policy.costs.columns])
        which = "the median" if len(policy.costs.columns) == 1 else "the medians"
        lines.append(f"For a row with {values} ({which}), by {_threshold_line(typical)}")
    elif "row_costs" in policy.provenance:
        return ["The costs of each row were given (row_costs): there are no common thresholds."]
    elif 2 < len(policy.classes) <= MAX_PAIRED and not (costs.columns or costs.reviews):
        pairs = list(combinations(policy.classes, 2))
        names = {_pair_line(policy, pair, ("A", "B")) for pair in pairs}
        if len(names) == 1 and len(pairs) > 1:  # the same between any two
            lines += [f"Between any two classes A and B{names.pop()}"]
        else:
            lines += [f"Between {a} and {b}{_pair_line(policy, (a, b), (a, b))}" for a, b in pairs]
    risk = policy.risk
    if lines and risk is not None and risk.max_risk is not None and risk.threshold_ == 1:
        lines.insert(0, "The risk bound rejects every row. Without it, actions depend on costs.")
    elif lines and rejecting:
        lines.append(f"In addition, {' and '.join(rejecting)} may reject rows.")
    return lines


def _pair_line(
    policy: Policy, pair: tuple[ClassName, ClassName], names: tuple[ClassName, ClassName]
) -> str:
    """Return the thresholds between two classes, whose own actions get the given names."""
    shown = {str(old): str(new) for old, new in zip(pair, names, strict=True)}
    *firsts, last = policy.thresholds_between(*pair)
    parts = [f"{shown.get(one.action, one.action)} up to {one.high:.3g}, " for one in firsts]
    end = f"{shown.get(last.action, last.action)} {'above' if firsts else 'always'}"
    return f", by calibrated P({names[1]}): {''.join(parts)}{end}."


def _threshold_line(policy: Policy) -> str:
    """Return from which probability of the positive class on each action is taken."""
    parts = []
    *firsts, last = policy.thresholds
    start = ""  # where the interval of an action starts, without its uncalibrated probability
    known = [one for one in policy.report.uncalibrated_thresholds if one is not None]
    for one in firsts:
        limit, uncalibrated = f"{one.high:.3g}", policy.uncalibrated_probability(one.high)
        if uncalibrated is not None:
            ends = [
                f", 95 % interval {k.low:.3g} to {k.high:.3g}"
                for k in known
                if np.isclose(k.value, uncalibrated)
            ]
            limit += f" (uncalibrated {uncalibrated:.3g}{''.join(ends[:1])})"
        parts.append(f"{one.action} {f'from {start} to' if start else 'below'} {limit}")
        start = f"{one.high:.3g}"
    parts.append(f"{last.action} {f'from {start} on' if start else 'always'}")
    return f"{_word(policy)} P({policy.classes[policy.pos_column]}): {', '.join(parts)}."


def _word(policy: Policy) -> str:
    """Return what P(correct) is called: not calibrated where held-out rows do not show it."""
    is_scored = isinstance(policy.calibrator, ConfidenceCalibrator)
    return "estimated" if is_scored and not policy.report.is_calibrated else "calibrated"


def typical_policy(policy: Policy) -> Policy | None:
    """Return the policy with the costs of a row of median columns, if it can be stated so."""
    medians, columns = policy.provenance.get("medians", {}), set(policy.costs.columns)
    if len(policy.classes) != 2 or not columns or not columns <= medians.keys():
        return None
    try:
        return replace(policy, costs=policy.costs.at(medians))
    except BadValueError:  # no cost is defined there
        return None


def explain_row(
    policy: Policy, outputs: Logits | Probabilities, features: Any, row_costs: RowCosts
) -> str:
    """Return some lines on one row: the action, probabilities, costs, the bound and the gate."""
    decisions = policy.decide(outputs, features, row_costs)
    action = policy.costs.actions[decisions.action[0]]
    clause = REASON_CLAUSES[decisions.reason[0]]
    costs = expected_costs(decisions.calibrated, policy.costs, row_costs)[0]
    lines = [
        f"Action: {action}, because {clause}.",
        _probability_line(policy, outputs, decisions),
        _cost_line(policy, costs),
        *_row_lines(policy, row_costs),
        *_answer_lines(policy, decisions, row_costs),
    ]
    if policy.risk is not None:
        lines.append(_risk_line(policy, decisions, costs, row_costs))
    if policy.ood is not None:
        lines.append(_ood_line(policy.ood, outputs, features))
    return "\n".join(lines)


def _probability_line(
    policy: Policy, outputs: Logits | Probabilities | Scores, decisions: Decisions
) -> str:
    """Return the top class before and after calibration, of two classes the positive one."""

    def top(probabilities: FloatArray) -> str:
        if probabilities.size == 2:
            k = policy.pos_column
            return f"P({policy.classes[k]}) = {_exact_percent(float(probabilities[k]))}"
        k = int(probabilities.argmax())
        return f"{policy.classes[k]!r} at {percent(probabilities[k])}"

    calibrated = top(policy.calibrator._predict_proba(outputs)[0])
    if isinstance(outputs, Scores) and outputs.confidence_column is None:
        line = f"From its scores, {_word(policy)} {calibrated}"
    else:
        known = outputs.probabilities("explain") if isinstance(outputs, Scores) else outputs
        uncalibrated = top(posteriors(known)[0])
        line = f"The model predicts {uncalibrated}; {_word(policy)}, {calibrated}"
    if policy.deploy_prior is None:
        return f"{line}."
    return f"{line}; under the deployment prior, {top(decisions.probabilities[0])}."


def _exact_percent(p: float) -> str:
    """Return a probability in percent with two decimals, or two digits of what is near 0 or 1.

    >>> _exact_percent(0.25), _exact_percent(0.000046), _exact_percent(0.999954)
    ('25.00 %', '0.0046 %', '99.9954 %')
    """
    rest = min(p, 1 - p)
    is_usual = rest >= 0.0005 or rest <= 0
    return percent(p, 2 if is_usual else min(-floor(log10(rest)) - 1, 10))


def _row_lines(policy: Policy, row_costs: RowCosts) -> list[str]:
    """Return the expressions in the costs of one row, and the thresholds of two classes."""
    lines = []
    if policy.costs.columns and row_costs.entries is policy.costs.entries:
        pairs = zip(policy.costs.expressions, row_costs.values[:, 0], strict=True)
        shown = [f"{one} = {value:.6g}" for one, value in pairs]
        lines.append(f"In the costs of this row, {join_words(shown)}.")
    if len(policy.classes) == 2:
        table = np.column_stack([row_costs.in_class(k)[:, 0] for k in (0, 1)])
        origin = {k: v for k, v in policy.provenance.items() if k != "row_costs"}
        asked = [one for one in policy.costs.reviews if one.needs_posterior]
        reviews = [] if row_costs.is_answered else asked
        costs = policy.costs._with(costs=table, reviews=reviews)
        same = replace(policy, costs=costs, provenance=origin)
        lines.append(f"Thresholds of {_threshold_line(same)}")
    return lines


def _answer_lines(policy: Policy, decisions: Decisions, row_costs: RowCosts) -> list[str]:
    """Return what is done after each answer, where the action of the row is to ask someone."""
    name = policy.costs.actions[decisions.action[0]]
    asked = next((one for one in policy.costs.reviews if one.name == name), None)
    if asked is None or len(policy.classes) > MAX_ACTIONS:
        return []
    others = row_costs.without_reject()
    if others.costs.n_actions == 1 and asked.n_classes == 2:
        return [f"Ask {asked}: take the answer of {asked.name} where it differs."]
    n_classes = len(policy.classes)
    p = np.repeat(posteriors(decisions.calibrated), n_classes, axis=0)
    after = asked.updated(p, np.arange(n_classes))
    table = np.column_stack([others.in_class(k)[:, 0] for k in range(n_classes)])
    taken = (after @ table.T).argmin(axis=1)
    answers = [
        f"{others.costs.actions[action]} after {class_!r}"
        for class_, action in zip(policy.classes, taken.tolist(), strict=True)
    ]
    return [f"Ask {asked}: {join_words(answers)}."]


def _cost_line(policy: Policy, costs: FloatArray) -> str:
    """Return the expected cost of each action, the cheapest first."""
    order = np.argsort(costs, kind="stable")[:MAX_ACTIONS]
    shown = ", ".join(f"{policy.costs.actions[number]} {costs[number]:.4g}" for number in order)
    more = costs.size - order.size
    return f"Expected costs: {shown}{f' and {more} more' if more else ''}."


def _risk_line(policy: Policy, decisions: Decisions, costs: FloatArray, row_costs: RowCosts) -> str:
    """Return the error probability of the best action that does not reject, and its limit.

    If the bound is on the cost, it is the expected cost.
    """
    assert policy.risk is not None
    others = costs.copy()
    others[list(policy.costs.rejecting)] = np.inf
    action = np.array([others.argmin()])
    p = posteriors(decisions.calibrated)
    loss = policy.rule.expected_loss(p, action, row_costs)[0]
    limit = max(0.0, uncertainty_limit(policy.risk.threshold_))
    if policy.risk.max_risk is not None:
        unit, name = ERRORS, "Error probability"
        most = f"at most {short_percent(policy.risk.max_risk)} errors among decided rows"
    else:
        unit, name = LossUnit(*cost_range(policy.costs), is_cost=True), "Expected cost"
        most = f"a mean cost of at most {policy.risk.max_cost:.6g} among decided rows"
    line = f"{name} of the best non-reject action: {unit.text(loss, '.2f')}"
    if limit >= 1 - 1e-6:
        return f"{line}; the risk bound rejects no further rows."
    where = f"{'below' if loss < limit else 'above'} the limit of {unit.text(limit, '.2f')}"
    return f"{line}, {where} set by the risk bound ({most})."


def _ood_line(gate: OODGate, outputs: Logits | Probabilities, features: Any) -> str:
    """Return how unusual the row is among known rows."""
    [scores], [p_value] = gate.ood_scores(outputs, features), gate.p_value(outputs, features)
    if scores.size == 1:
        line = f"OOD score ({gate.name}) {scores[0]:.4g}, p-value {p_value:.4g}"
    else:
        line = f"{scores.size} OOD scores ({gate.name}), p-value {p_value:.4g}"
    is_ood = p_value < gate.alpha
    return (
        f"{line}: {'below' if is_ood else 'at or above'} alpha {gate.alpha:g}, so the input is "
        f"{'out-of-distribution' if is_ood else 'in-distribution'}."
    )

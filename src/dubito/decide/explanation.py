"""Why a policy does what it does with a row, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dubito.arrays import FloatArray
from dubito.decide.actions import expected_costs
from dubito.decide.gate import OODGate
from dubito.decide.reject import accepted_below
from dubito.decide.rules import shares_of, wrong_chances
from dubito.outputs import Logits, Probabilities

if TYPE_CHECKING:
    from dubito.decide.policy import Policy

__all__ = ["explanation"]

MOST_ACTIONS = 5  # whose costs are told
WHY = (  # one for each of REASONS
    "it costs least",
    "asking costs less",
    "no other is sure enough for the risk bound",
    "it is a strange input",
)


def explanation(
    policy: Policy, outputs: Logits | Probabilities, features: Any, amounts: FloatArray | None
) -> str:
    """Return some lines on one row: the action, probabilities, costs, and what else spoke."""
    decisions = policy.decide(outputs, features, amounts)
    action = policy.costs.actions[decisions.action[0]]
    why = WHY[decisions.reason[0]]
    lines = [f"Action: {action}, as {why}.", probability_line(policy, outputs)]
    honest = policy.honest(outputs)
    costs = expected_costs(honest, policy.costs, amounts)[0]
    lines.append(cost_line(policy, costs))
    if policy.bound is not None:
        lines.append(bound_line(policy, honest, costs, amounts))
    if policy.gate is not None:
        lines.append(gate_line(policy.gate, outputs, features))
    return "\n".join(lines)


def probability_line(policy: Policy, outputs: Logits | Probabilities) -> str:
    """Say what the model says, and what that is worth."""
    names = policy.classes
    raw = shares_of(outputs, slice(None))[0]
    calibrated = policy.calibrator.predict_proba(outputs)[0]
    said, meant = int(raw.argmax()), int(calibrated.argmax())
    line = f"The model says {names[said]!r} at {raw[said]:.1%}; "
    line += f"calibrated it is {names[meant]!r} at {calibrated[meant]:.1%}"
    if policy.deploy_prior is None:
        return f"{line}."
    shifted = policy.predict_proba(outputs)[0]
    found = int(shifted.argmax())
    return f"{line}, and {names[found]!r} at {shifted[found]:.1%} with the classes of deployment."


def cost_line(policy: Policy, costs: FloatArray) -> str:
    """Say what each action is expected to cost, the cheapest first."""
    order = np.argsort(costs, kind="stable")[:MOST_ACTIONS]
    told = ", ".join(f"{policy.costs.actions[number]} {costs[number]:.4g}" for number in order)
    more = costs.size - order.size
    return f"Expected costs: {told}{f' and {more} more' if more else ''}."


def bound_line(
    policy: Policy,
    honest: Logits | Probabilities,
    costs: FloatArray,
    amounts: FloatArray | None,
) -> str:
    """Say how likely the best action is wrong, and how likely it may be."""
    assert policy.bound is not None
    others = costs.copy()
    others[policy.costs.reject] = np.inf
    action = np.array([others.argmin()])
    sizes = np.empty(0) if amounts is None else amounts
    wrong = wrong_chances(shares_of(honest, slice(None)), action, policy.costs, sizes)[0]
    limit = max(0.0, accepted_below(policy.bound.threshold))
    allowed = f"below {limit:.2%} it may be taken" if limit < 1 - 1e-6 else "it may be taken"
    return (
        f"The best action without asking is wrong with a chance of {wrong:.2%}; {allowed}, so that "
        f"at most {policy.bound.max_risk:.2%} of decided rows are wrong."
    )


def gate_line(gate: OODGate, outputs: Logits | Probabilities, features: Any) -> str:
    """Say how strange the row is beside known ones."""
    doubt = gate.doubt(outputs, features)
    p_value = gate.region.p_value(doubt)[0]
    is_strange = gate.region.contains(doubt)[0]
    return (
        f"Its doubt ({gate.name}) of {doubt[0]:.4g} is reached by {p_value:.2%} of known rows; "
        f"{'strange, as that is' if is_strange else 'it would be strange'} below "
        f"{gate.region.epsilon:.2%}."
    )

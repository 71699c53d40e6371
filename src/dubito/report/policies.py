"""What a fitted policy does with the rows of a report, in the library's own figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dubito.arrays import IntArray
from dubito.calibrate.rows import as_class_outputs
from dubito.data.batch import Batch
from dubito.decide import Policy, PolicyReport
from dubito.decide.policy_report import Evidence

__all__ = ["Decided", "decided_by"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """The action that a policy takes on each row, and the figures of that."""

    action: IntArray
    report: PolicyReport


def decided_by(policy: Policy, batch: Batch, seed: int) -> Decided:
    """Let a policy decide labeled rows, by their features and amounts where it needs them."""
    raw = as_class_outputs(batch.outputs, "report")
    decisions = policy.decide(raw, batch.features, batch.amounts)
    evidence = Evidence(
        batch=batch,
        raw=raw,
        honest=policy.honest(raw),
        decisions=decisions,
        unbound=None,
        amounts=np.empty(0) if batch.amounts is None else batch.amounts,
        weight=batch.labeled_weight,
        how="the rows of the report",
    )
    return Decided(decisions.action, PolicyReport.of(evidence, policy.rules, seed=seed))

"""A candidate policy from the labels so far, beside the active one on the same rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards
from dubito.decide import Policy
from dubito.decide.policy_report import Evidence, PolicyReport
from dubito.errors import DubitoWarning
from dubito.outputs import Logits, Probabilities
from dubito.serve.refusals import CONFLICT, RefusedError
from dubito.serve.standing import rows_taken, standing_for
from dubito.serve.store.records import StoredRows

__all__ = ["Candidate", "active_report", "refit", "report_on"]

NOTE = "Strange inputs are told as before: their features are not kept."


@final
@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A policy that may be activated, and what the active one does on the rows it learnt from.

    The report of the candidate itself is on held-out folds of these rows.
    """

    policy: Policy
    active: PolicyReport


@final
@dataclass(frozen=True, slots=True, eq=False)
class KnownRows:
    """Raw outputs of rows that stand for all, with labels and weights."""

    outputs: Logits | Probabilities
    batch: Batch

    @classmethod
    def of(cls, rows: StoredRows, policy: Policy) -> KnownRows:
        """Take what a policy can be judged and fitted on, or refuse where there is nothing."""
        if policy.costs.rate is not None:
            problem = "Costs grow with amounts, which are not kept for a refit"
            raise RefusedError(CONFLICT, problem, "`dubito fit` on a file of your own")
        alike = rows_taken(rows, rows.is_logits == bool(rows.is_logits[-1:].any()))
        standing = standing_for(alike)
        if not standing.is_known:
            fix = "an audit share above 0, and labels of the rows that it draws"
            raise RefusedError(CONFLICT, standing.unknown.rstrip("."), fix)
        seen = rows_taken(alike, standing.rows)
        kind = Logits if seen.is_logits.any() else Probabilities
        outputs = kind(seen.outputs, classes=policy.classes)
        labels = np.array(policy.classes, dtype=object)[seen.label]
        return cls(
            outputs, Batch.of(labels, outputs, sample_weight=standing.weight, caller="refit")
        )


def refit(rows: StoredRows, policy: Policy, *, seed: int = 0) -> Candidate:
    """Return a candidate with the same costs, calibrator and wishes, fitted to labels so far.

    Rows are weighted so that they stand for all; where they do not, there is no candidate.
    """
    known = KnownRows.of(rows, policy)
    gate, bound = policy.gate, policy.bound
    wishes: dict[str, Any] = {}
    if gate is not None and not gate.needs_features:
        wishes |= {"doubt": gate.score, "epsilon": gate.region.epsilon}
    if bound is not None:
        wishes |= {"max_risk": bound.max_risk, "delta": bound.delta}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DubitoWarning)  # the report has what it is worth
        fitted = Policy.fit(
            ArrayShards(known.batch),
            costs=policy.costs,
            calibrator=policy.calibrator,
            seed=seed,
            **wishes,
        )
    if gate is not None and gate.needs_features:
        noted = replace(fitted.report, notes=(*fitted.report.notes, NOTE))
        fitted = replace(fitted, gate=gate, feature_names=policy.feature_names, report=noted)
    return Candidate(fitted, report_on(policy, known.batch, known.outputs))


def active_report(rows: StoredRows, policy: Policy) -> PolicyReport:
    """Return what a policy does on labels so far, weighted so that they stand for all rows."""
    known = KnownRows.of(rows, policy)
    return report_on(policy, known.batch, known.outputs)


def report_on(policy: Policy, batch: Batch, outputs: Logits | Probabilities) -> PolicyReport:
    """Return what a policy does on rows with labels; strange ones only if outputs tell them."""
    honest, gate = policy.honest(outputs), policy.gate
    is_strange = None
    if gate is not None and not gate.needs_features:
        is_strange = gate.contains(outputs, None)
    evidence = Evidence(
        batch=batch,
        raw=outputs,
        honest=honest,
        decisions=policy.rules.decide(honest, is_strange),
        unbound=None,
        amounts=np.empty(0),
        weight=batch.labelled_weight,
        how="labels so far",
    )
    return PolicyReport.of(evidence, policy.rules)

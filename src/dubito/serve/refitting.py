"""A candidate policy from the labels so far, beside the active one on the same rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from dubito.arrays import FloatArray
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards
from dubito.decide import Policy
from dubito.decide.actions import as_amounts
from dubito.decide.gate import DoubtGate
from dubito.decide.policy_report import Evidence, PolicyReport
from dubito.errors import DubitoWarning
from dubito.outputs import Logits, Probabilities
from dubito.serve.refusals import CONFLICT, RefusedError
from dubito.serve.standing import drawn_by_weight, rows_taken, standing_for
from dubito.serve.store.records import StoredRows

__all__ = ["Candidate", "active_report", "refit", "report_on"]

CALLER = "refit"
NO_FEATURES = "Strange inputs are told as before: some rows came without their features."
TOO_FEW = "Strange inputs are told as before: {:,} rows or more are needed to tell anew. Got {:,}."
FeaturesOf = Callable[[Sequence[str]], FloatArray | None]


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
    """Raw outputs of rows that stand for all, with labels and weights.

    `note` says why strange rows cannot be told anew; where they can, rows have equal weights.
    """

    outputs: Logits | Probabilities
    batch: Batch
    note: str

    @classmethod
    def of(cls, rows: StoredRows, policy: Policy, features_of: FeaturesOf) -> KnownRows:
        """Take what a policy can be judged and fitted on, or refuse where there is nothing."""
        alike = rows_taken(rows, rows.is_logits == bool(rows.is_logits[-1:].any()))
        standing = standing_for(alike)
        if not standing.is_known:
            fix = "an audit share above 0, and labels of the rows that it draws"
            raise RefusedError(CONFLICT, standing.unknown.rstrip("."), fix)
        seen, weight = rows_taken(alike, standing.rows), standing.weight
        features, note = None, ""
        if policy.gate is not None:
            # What is strange is told by ranks, which know no weights.
            plain = drawn_by_weight(weight)
            features, note = features_for(policy.gate, seen.id[plain].tolist(), features_of)
            if not note:
                seen, weight = rows_taken(seen, plain), np.ones(plain.size)
        kind = Logits if seen.is_logits.any() else Probabilities
        outputs = kind(seen.outputs, classes=policy.classes)
        labels = np.array(policy.classes, dtype=object)[seen.label]
        batch = Batch.of(
            labels,
            outputs,
            sample_weight=weight,
            features=features,
            amounts=None if policy.costs.rate is None else amounts_of(seen),
            caller=CALLER,
        )
        return cls(outputs, batch, note)


def features_for(
    gate: DoubtGate, ids: Sequence[str], features_of: FeaturesOf
) -> tuple[FloatArray | None, str]:
    """Return what a gate looks at, and why it cannot be fitted again if it cannot."""
    fewest = int(np.ceil(1 / gate.region.epsilon))
    if len(ids) < fewest:
        return None, TOO_FEW.format(fewest, len(ids))
    if not gate.needs_features:
        return None, ""
    features = features_of(ids)
    if features is None or features.shape[1] != gate.n_features:
        return None, NO_FEATURES
    return features, ""


def amounts_of(seen: StoredRows) -> FloatArray:
    """Return the amounts of rows, or refuse where one came without."""
    if n_without := int(np.isnan(seen.amount).sum()):
        problem = f"Costs grow with amounts, and {n_without:,} rows came without"
        raise RefusedError(CONFLICT, problem, "`dubito fit` on a file of your own")
    return seen.amount


def refit(rows: StoredRows, policy: Policy, features_of: FeaturesOf, *, seed: int = 0) -> Candidate:
    """Return a candidate with the same costs, calibrator and wishes, fitted to labels so far.

    Rows are weighted so that they stand for all; where they do not, there is no candidate.
    `features_of` returns the features of rows by their ids, None where they are not all kept.
    """
    known = KnownRows.of(rows, policy, features_of)
    gate, bound = policy.gate, policy.bound
    wishes: dict[str, Any] = {}
    if gate is not None and not known.note:
        wishes |= {"doubt": gate.score, "epsilon": gate.region.epsilon}
        wishes |= {"feature_names": policy.feature_names}
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
    if known.note:
        noted = replace(fitted.report, notes=(*fitted.report.notes, known.note))
        fitted = replace(fitted, gate=gate, feature_names=policy.feature_names, report=noted)
    return Candidate(fitted, report_on(policy, known))


def active_report(rows: StoredRows, policy: Policy, features_of: FeaturesOf) -> PolicyReport:
    """Return what a policy does on labels so far, weighted so that they stand for all rows."""
    return report_on(policy, KnownRows.of(rows, policy, features_of))


def report_on(policy: Policy, known: KnownRows) -> PolicyReport:
    """Return what a policy does on rows with labels; strange ones where they can be told."""
    honest, batch, gate = policy.honest(known.outputs), known.batch, policy.gate
    is_strange = None
    if gate is not None and not known.note:
        is_strange = gate.contains(known.outputs, batch.features)
    amounts = as_amounts(batch.amounts, policy.costs, len(batch), CALLER)
    evidence = Evidence(
        batch=batch,
        raw=known.outputs,
        honest=honest,
        decisions=policy.rules.decide(honest, is_strange, amounts if amounts.size else None),
        unbound=None,
        amounts=amounts,
        weight=batch.labelled_weight,
        how="labels so far",
    )
    return PolicyReport.of(evidence, policy.rules)

"""A candidate policy from the labels so far, and what policies do on the same rows."""

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
from dubito.decide.actions import as_row_costs
from dubito.decide.policy.gate import OODGate, RiskBound
from dubito.decide.policy.report import Evidence, PolicyReport
from dubito.errors import DubitoWarning
from dubito.outputs import Logits, Probabilities
from dubito.serve.refusals import CONFLICT, RefusedError
from dubito.serve.standing import drawn_by_weight, rows_taken, standing_for
from dubito.serve.store.records import StoredRows

CALLER = "refit"
NO_FEATURES = "Strange inputs are told as before: some rows came without their features."
TOO_FEW = "Strange inputs are told as before: {:,} rows or more are needed to tell anew. Got {:,}."
FeaturesOf = Callable[[Sequence[str]], FloatArray | None]


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
    def of(cls, rows: StoredRows, policies: Sequence[Policy], features_of: FeaturesOf) -> KnownRows:
        """Take what policies can be judged and fitted on, or refuse where there is nothing."""
        alike = rows_taken(rows, rows.is_logits == bool(rows.is_logits[-1:].any()))
        standing = standing_for(alike)
        if not standing.is_known:
            fix = "an audit share above 0, and labels of the rows that it draws"
            raise RefusedError(CONFLICT, standing.unknown.rstrip("."), fix)
        seen, weight = rows_taken(alike, standing.rows), standing.weight
        features, note = None, ""
        gates = [policy.ood for policy in policies if policy.ood is not None]
        if gates:
            # What is strange is told by ranks, which know no weights.
            plain = drawn_by_weight(weight)
            features, note = _features_for(gates, seen.id[plain].tolist(), features_of)
            if not note:
                seen, weight = rows_taken(seen, plain), np.ones(plain.size)
        kind = Logits if seen.is_logits.any() else Probabilities
        classes = policies[0].classes
        outputs = kind(seen.outputs, classes=classes)
        labels = np.array(classes, dtype=object)[seen.label]
        grows = any(policy.costs.rate is not None for policy in policies)
        batch = Batch.of(
            labels,
            outputs,
            sample_weight=weight,
            features=features,
            row_costs=_row_costs_of(seen) if grows else None,
            caller=CALLER,
        )
        return cls(outputs, batch, note)


def _features_for(
    gates: Sequence[OODGate], ids: Sequence[str], features_of: FeaturesOf
) -> tuple[FloatArray | None, str]:
    """Return what gates look at, and why one cannot be fitted again or judged if it cannot."""
    fewest = max(int(np.ceil(1 / gate.alpha)) for gate in gates)
    if len(ids) < fewest:
        return None, TOO_FEW.format(fewest, len(ids))
    widths = {gate.n_features for gate in gates if gate.needs_features}
    if not widths:
        return None, ""
    features = features_of(ids)
    if features is None or {features.shape[1]} != widths:
        return None, NO_FEATURES
    return features, ""


def _row_costs_of(seen: StoredRows) -> FloatArray:
    """Return the row costs of rows, or refuse where one came without."""
    if n_without := int(np.isnan(seen.amount).sum()):
        problem = f"Costs depend on row costs, and {n_without:,} rows came without"
        raise RefusedError(CONFLICT, problem, "`dubito fit` on a file of your own")
    return seen.amount


def refit(rows: StoredRows, policy: Policy, features_of: FeaturesOf, *, seed: int = 0) -> Policy:
    """Return a candidate with the same costs, calibrator and wishes, fitted to labels so far.

    Rows are weighted so that they stand for all; where they do not, there is no candidate.
    `features_of` returns the features of rows by their ids, None where they are not all kept.
    """
    known = KnownRows.of(rows, [policy], features_of)
    gate, risk = policy.ood, policy.risk
    wishes: dict[str, Any] = {}
    if gate is not None and not known.note:
        wishes |= {"ood": OODGate(gate.score_, gate.alpha)}
        wishes |= {"feature_names": policy.feature_names}
    if risk is not None:
        wishes |= {"risk": RiskBound(risk.max_risk, risk.delta)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DubitoWarning)  # the report has what it is worth
        fitted = Policy.fit(
            ArrayShards(known.batch),
            costs=policy.costs,
            calibrator=policy.calibrator,
            random_state=seed,
            **wishes,
        )
    if known.note:
        noted = replace(fitted.report, notes=(*fitted.report.notes, known.note))
        fitted = replace(fitted, ood=gate, feature_names=policy.feature_names, report=noted)
    return fitted


def reports_on(
    rows: StoredRows, policies: Sequence[Policy], features_of: FeaturesOf, how: str
) -> list[PolicyReport]:
    """Return what each policy does on the same labels, weighted so that they stand for all rows."""
    known = KnownRows.of(rows, policies, features_of)
    return [_report_on(policy, known, how) for policy in policies]


def _report_on(policy: Policy, known: KnownRows, how: str) -> PolicyReport:
    """Return what a policy does on rows with labels; strange ones where they can be told."""
    calibrated, batch, gate = policy.calibrated(known.outputs), known.batch, policy.ood
    is_ood = None
    if gate is not None and not known.note:
        is_ood = gate.predict(known.outputs, batch.features)
    given = None if policy.costs.rate is None else batch.row_costs
    row_costs = as_row_costs(given, policy.costs, len(batch), CALLER)
    evidence = Evidence(
        batch=batch,
        raw=known.outputs,
        decisions=policy.rule.decide(calibrated, is_ood, row_costs if row_costs.size else None),
        unbound=None,
        row_costs=row_costs,
        weight=batch.labeled_weight,
        how=how,
    )
    return PolicyReport.of(evidence, policy.rule)

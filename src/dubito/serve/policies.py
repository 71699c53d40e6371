"""`/v1/policies`: list, upload, activate, roll back; refits as candidates, and comparisons."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, TypeVar, final

import numpy as np
from fastapi import APIRouter, Path, Request
from starlette.concurrency import run_in_threadpool

from dubito.arrays import FloatArray
from dubito.calibrate import ConfidenceCalibrator
from dubito.data.batch import Batch, make_batch
from dubito.data.shards import ArrayShards
from dubito.decide import Policy
from dubito.decide.multilabel.label_decisions import (
    REVIEW_ROW,
    MultiLabelPolicyReport,
)
from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.policy.gate import OODGate
from dubito.decide.policy.loading import AnyPolicy
from dubito.decide.policy.report import PolicyReport
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.decide.regression.value_decisions import RegressionPolicyReport
from dubito.errors import DubitoWarning
from dubito.outputs import Logits, MultiLabel, Probabilities
from dubito.serve import schemas
from dubito.serve.auth import AdminToken
from dubito.serve.http_errors import CONFLICT, INVALID, HTTPError
from dubito.serve.label_sets import answer_matrix
from dubito.serve.service import DAY, Service, get_service, log_event
from dubito.serve.store import Store, StoredPolicy, StoredRows, Token
from dubito.serve.store.decisions import LabelDelay
from dubito.serve.store.policies import ServedPolicy, policy_content
from dubito.serve.value_rows import outputs_of, targets
from dubito.serve.weighted_estimates import (
    MONITOR_DAYS,
    propensity_weights,
    recent_rows,
    sample_by_weight,
)

CALLER = "refit"
MIN_NEW_LABELS = 100  # of rows decided since a refit, to compare on them instead of its folds
NO_FEATURES = "The OOD gate is unchanged: some rows have no features."
TOO_FEW = "The OOD gate is unchanged: refitting it needs at least {:,} rows, got {:,}."
UPLOADED = "Policy {} was uploaded: if it was fitted to these rows, its metrics are optimistic."
OTHER_COSTS = "Their costs differ: each policy is evaluated with its own."
AnyPolicyReport = PolicyReport | MultiLabelPolicyReport | RegressionPolicyReport
OPTIONS: dict[type[Any], tuple[str, ...]] = {  # of the fit, which a refit keeps
    Policy: ("costs", "calibrator"),
    MultiLabelPolicy: ("costs", "calibrator", "f_beta"),
    RegressionPolicy: (
        "costs", "calibrator", "interval", "review_cost", "max_width", "max_relative_width",
    ),
}  # fmt: skip
Fitted = TypeVar("Fitted", bound=AnyPolicy)
FindFeatures = Callable[[Sequence[str]], FloatArray | None]


@final
@dataclass(frozen=True, slots=True, eq=False)
class PolicyComparison:
    """Reports of two policies on the same rows, a description of these, and caveats."""

    active: AnyPolicyReport
    candidate: AnyPolicyReport
    rows: str
    notes: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class RefitSample:
    """A weighted sample of all rows: raw outputs, labels and weights.

    `note` says why OOD gates cannot be refitted; if they can, the rows have equal weights.
    """

    batch: Batch
    note: str

    @classmethod
    def of(
        cls, rows: StoredRows, policies: Sequence[AnyPolicy], find_features: FindFeatures
    ) -> RefitSample:
        """Select the rows to evaluate or fit policies on, or raise if metrics are withheld.

        All policies are of one kind, as those of a database.
        """
        if any(isinstance(one.calibrator, ConfidenceCalibrator) for one in policies):
            problem = "A policy on scores of answers is not refitted here"
            raise HTTPError(CONFLICT, problem, "Run `dubito fit` on a file, and upload the policy")
        if isinstance(policies[0], MultiLabelPolicy):
            rows = _reviewed_wholly(rows)
        rows = rows.take(rows.is_logits == bool(rows.is_logits[-1:].any()))  # as sent last
        sample = propensity_weights(rows)
        if not sample.is_available:
            fix = "Use an audit fraction above 0, and label the rows that it draws"
            if rows.delay is not None:
                fix = "Send the labels of all rows to POST /v1/labels"
            raise HTTPError(CONFLICT, sample.unavailable.rstrip("."), fix)
        labeled, weight = rows.take(sample.rows), sample.frequency
        features, note = None, ""
        gates = [gate for one in policies if (gate := getattr(one, "ood", None)) is not None]
        if gates:
            # A gate is calibrated by ranks, which have no weights.
            drawn = sample_by_weight(weight)
            features, note = _gate_features(gates, labeled.id[drawn].tolist(), find_features)
            if not note:
                labeled, weight = labeled.take(drawn), np.ones(drawn.size)
        y, outputs = _labels_and_outputs(labeled, policies[0])
        batch = make_batch(
            y,
            outputs,
            sample_weight=weight,
            features=features,
            row_costs=_cost_columns(labeled, policies),
            caller=CALLER,
        )
        return cls(batch, note)


def _reviewed_wholly(rows: StoredRows) -> StoredRows:
    """Return rows of several labels as accepted unless they are reviewed as a whole.

    If labels of a row are reviewed one by one, only these are known, unless it is audited.
    """
    is_whole = rows.action == REVIEW_ROW
    return replace(rows, propensity=np.where(is_whole, 1.0, rows.audit_probability))


def _labels_and_outputs(labeled: StoredRows, policy: AnyPolicy) -> tuple[Any, Any]:
    """Return the labels or true values of rows, and the outputs that were sent."""
    is_logits = labeled.is_logits.any()
    if isinstance(policy, MultiLabelPolicy):
        make = MultiLabel.from_logits if is_logits else MultiLabel
        names, answers = policy.label_names, labeled.answers.tolist()
        return answer_matrix(answers, len(names)), make(labeled.outputs, names)
    if isinstance(policy, RegressionPolicy):
        return targets(labeled.answers.tolist()), outputs_of(labeled.outputs, policy)
    kind, classes = Logits if is_logits else Probabilities, policy.classes
    y = np.array(classes, dtype=object)[labeled.label]
    return y, kind(labeled.outputs, classes=classes)


def _cost_columns(
    labeled: StoredRows, policies: Sequence[AnyPolicy]
) -> dict[str, FloatArray] | None:
    """Return the columns that costs depend on, or raise if some rows have none."""
    names = [name for one in policies if isinstance(one, Policy) for name in one.costs.columns]
    columns = labeled.columns_of(names) if names else {}
    for name, values in columns.items():
        if n_missing := int(np.isnan(values).sum()):
            problem = f"The costs depend on `{name}`, and {n_missing:,} rows have none"
            raise HTTPError(CONFLICT, problem, "Run `dubito fit` on a file that has them")
    return columns or None


def _gate_features(
    gates: Sequence[OODGate], ids: Sequence[str], find_features: FindFeatures
) -> tuple[FloatArray | None, str]:
    """Return the features that OOD gates need, and why they cannot be refitted, if so."""
    n_required = max(gate.n_required for gate in gates)
    if len(ids) < n_required:
        return None, TOO_FEW.format(n_required, len(ids))
    widths = {gate.n_features for gate in gates if gate.needs_features}
    if not widths:
        return None, ""
    features = find_features(ids)
    if features is None or {features.shape[1]} != widths:
        return None, NO_FEATURES
    return features, ""


def _refit(rows: StoredRows, policy: Fitted, find_features: FindFeatures) -> Fitted:
    """Return a candidate of the same configuration, fitted to the labels so far.

    Rows are weighted so that they represent all rows; if they do not, there is no candidate.

    Parameters
    ----------
    rows : StoredRows
        Recent rows, oldest first.
    policy : Policy, MultiLabelPolicy or RegressionPolicy
        The active policy.
    find_features : callable
        Returns the features of rows by their ids, or None if some are missing.

    Returns
    -------
    Policy, MultiLabelPolicy or RegressionPolicy
        The candidate. If its OOD gate cannot be refitted, it keeps that of the active policy, and
        its report says so.
    """
    known = RefitSample.of(rows, [policy], find_features)
    batch, gate, names = known.batch, getattr(policy, "ood", None), OPTIONS[type(policy)]
    options: dict[str, Any] = {name: getattr(policy, name) for name in names}
    if isinstance(policy, MultiLabelPolicy) and policy.f_beta is not None:
        options["costs"] = None
    if gate is not None and not known.note:
        options |= {"ood": OODGate(gate.score_, gate.alpha)}
        options |= {"feature_names": getattr(policy, "feature_names", None)}
    if isinstance(policy, Policy) and policy.risk is not None:
        options |= {"risk": policy.risk}
        drawn = sample_by_weight(batch.weight)  # the bound would count weights as rows
        batch = batch.take(drawn).reweighted(np.ones(drawn.size))
    # The report has the evidence.
    with warnings.catch_warnings(action="ignore", category=DubitoWarning):
        shards = ArrayShards(batch)
        if isinstance(policy, RegressionPolicy):
            fitted: Any = RegressionPolicy.fit_shards(shards, **options)[0]
        else:
            fitted = type(policy).fit(shards, **options)
    if known.note and not isinstance(policy, MultiLabelPolicy):
        report = replace(fitted.report, notes=(*fitted.report.notes, known.note))
        fitted = replace(fitted, ood=gate, feature_names=policy.feature_names, report=report)
    refitted: Fitted = fitted
    return refitted


def _evaluate_policies(
    rows: StoredRows, policies: Sequence[AnyPolicy], find_features: FindFeatures, evidence: str
) -> list[Any]:
    """Return a report per policy on the same labels, weighted to represent all rows."""
    known = RefitSample.of(rows, policies, find_features)
    return [_evaluate(policy, known, evidence) for policy in policies]


def _evaluate(policy: AnyPolicy, known: RefitSample, evidence: str) -> Any:
    """Return the report of a policy on labeled rows; the OOD gate applies if it can."""
    batch = known.batch
    if isinstance(policy, Policy) and not policy.costs.columns:  # another one needs them
        batch = replace(batch, row_costs=None)
    if known.note and not isinstance(policy, MultiLabelPolicy):
        policy = replace(policy, ood=None)
    return policy.report_on(policy.evidence_on(batch, evidence))


def compare_policies(
    store: Store, rows: StoredRows, active: StoredPolicy, candidate: StoredPolicy
) -> PolicyComparison:
    """Compare two policies on recent labels, or raise if metrics are withheld.

    A refitted policy is evaluated on rows decided since. While these have few labels, it is
    evaluated by cross-validation on the rows that it was fitted to.

    Parameters
    ----------
    store : Store
        Has the features of rows, and older rows.
    rows : StoredRows
        Rows of the last 30 days.
    active, candidate : StoredPolicy
        The policies to compare.

    Returns
    -------
    PolicyComparison
        A report per policy on the same rows.
    """
    notes = [UPLOADED.format(candidate.id)] if candidate.trained_until is None else []
    if active.policy.costs.to_dict() != candidate.policy.costs.to_dict():
        notes.append(OTHER_COSTS)
    until = max(active.trained_until or 0.0, candidate.trained_until or 0.0)
    new = rows.take(rows.created > until)
    by_row = _reviewed_wholly(new) if isinstance(active.policy, MultiLabelPolicy) else new
    has_few = propensity_weights(by_row).rows.size < MIN_NEW_LABELS
    if candidate.trained_until is not None and has_few:
        start = candidate.trained_until - MONITOR_DAYS * DAY
        if active.trained_until is None or active.trained_until < start:
            return _compare_in_folds(store, rows.delay, active, candidate, tuple(notes))
    which = f"rows of the last {MONITOR_DAYS:.0f} days"
    if until > 0:
        which = "rows decided since the last refit, which neither was fitted to"
    both = [active.policy, candidate.policy]
    try:
        before, after = _evaluate_policies(new, both, store.find_features, "labels so far")
    except HTTPError as error:
        raise HTTPError(error.status, f"On {which}: {error.problem}", error.fix) from error
    return PolicyComparison(before, after, which, tuple(notes))


def _compare_in_folds(
    store: Store,
    delay: LabelDelay | None,
    active: StoredPolicy,
    candidate: StoredPolicy,
    notes: tuple[str, ...],
) -> PolicyComparison:
    """Compare a cross-validated candidate with the active policy on the rows of the refit."""
    until = candidate.trained_until or 0.0
    late = 0.0 if delay is None else delay.seconds or 0.0
    rows = store.decisions_since(until - late - MONITOR_DAYS * DAY)
    rows = rows.take(rows.created <= until)
    is_then = rows.labeled <= until
    then = replace(
        rows,
        label=np.where(is_then, rows.label, -1),
        answers=np.where(is_then, rows.answers, np.array(None, np.object_)),
        delay=delay and replace(delay, now=until),
    )
    evidence = "labels at the refit"
    [report] = _evaluate_policies(then, [active.policy], store.find_features, evidence)
    which = "rows that the candidate was fitted to, by cross-validation"
    return PolicyComparison(report, candidate.policy.report, which, notes)


router = APIRouter(prefix="/v1", tags=["policies"])
FILE: dict[str, Any] = {
    "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}}
}


def deploy_policy(store: Store, policy: ServedPolicy) -> int:
    """Store a policy, and activate it if the store has not seen it before.

    A service that is restarted with an older file keeps what was activated since.

    Parameters
    ----------
    store : Store
        The database.
    policy : Policy, MultiLabelPolicy, RegressionPolicy or Cascade
        The policy of the file.

    Returns
    -------
    int
        The id of the policy.
    """
    known = {one.id for one in store.list_policies()}
    policy_id = store.add_policy(policy.to_json())
    if policy_id not in known:
        store.activate(policy_id)
    return policy_id


def activate_policy(service: Service, token: Token, policy_id: int | None) -> int | None:
    """Activate a policy, or with None the previous one, in this process at once; return its id."""
    previous = [one.id for one in service.store.list_policies() if one.is_previous]
    for wanted in previous if policy_id is None else [policy_id]:
        service.catalog.served(wanted)  # nothing is activated that this process cannot read
    if policy_id is None:
        event, policy_id = "policy rolled back", service.store.roll_back()
    else:
        event = "policy activated"
        service.store.activate(policy_id)
    service.catalog.refresh()
    log_event(event, policy=policy_id, user=token.name)
    return service.catalog.active_id


def add_candidate(service: Service) -> int:
    """Refit the active policy, store the candidate unless it exists, and return its id."""
    if service.catalog.active_cascade is not None:
        problem = "A cascade is fitted on rows for which all models were called, not on labels here"
        fix = "Fit it again with `dubito cascade fit`, and upload the file"
        raise HTTPError(CONFLICT, problem, fix)
    _, policy = service.catalog.active
    store, now = service.store, time.time()
    rows = recent_rows(service)
    document = _refit(rows, policy, store.find_features).to_json()
    content = policy_content(document)
    for one in store.list_policies():
        if policy_content(one.document) == content:
            if one.was_active:
                problem = f"The labels so far give policy {one.id} again, which is or was active"
                fix = "Wait for more labels, or activate it by its id"
                raise HTTPError(CONFLICT, problem, fix)
            return one.id
    return store.add_policy(document, trained_until=now)


@router.get("/policies", response_model=schemas.PoliciesResponse)
def list_policies(request: Request, token: AdminToken) -> dict[str, Any]:
    """Return all policies, oldest first, and which one is active."""
    service = get_service(request)
    summaries = []
    for one in service.store.list_policies():
        policy, error = service.catalog.find(one.id), service.catalog.unreadable.get(one.id)
        provenance = dict(policy.provenance) if policy else {"error": str(error)}
        summaries.append({**asdict(one), "provenance": provenance})
    return {"policies": summaries}


@router.post("/policies", status_code=201, openapi_extra=FILE)
async def upload_policy(request: Request, token: AdminToken) -> schemas.UploadResponse:
    """Store a policy file written by `dubito fit`; it is not active yet."""
    service = get_service(request)
    body = await schemas.read_body(request, service.settings.max_bytes)
    async with service.bulk:
        policy_id = await run_in_threadpool(_add_document, service, body)
    log_event("policy uploaded", policy=policy_id, user=token.name)
    return schemas.UploadResponse(id=policy_id)


def _add_document(service: Service, body: bytes) -> int:
    """Store the policy of a body and return its id."""
    schemas.require_bounded(body, service.settings)
    try:
        return service.store.add_policy(body.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        problem = "The policy is not UTF-8"
        raise HTTPError(INVALID, problem, "Send the file as `dubito fit` wrote it") from error


@router.post("/policies/{policy_id}/activate")
def activate(
    request: Request, token: AdminToken, policy_id: Annotated[int, Path(ge=1, le=2**31 - 1)]
) -> schemas.ActiveResponse:
    """Activate a policy: in this process at once, in others within a second."""
    return schemas.ActiveResponse(active=activate_policy(get_service(request), token, policy_id))


@router.post("/policies/rollback")
def roll_back(request: Request, token: AdminToken) -> schemas.ActiveResponse:
    """Activate the previously active policy again."""
    return schemas.ActiveResponse(active=activate_policy(get_service(request), token, None))

"""`POST /v1/decide` and `GET /v1/decisions/{id}`: decisions with micro-batching."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, Generic, TypeVar, final

import numpy as np
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from dubito.calibrate import ConfidenceCalibrator
from dubito.data.stream import read_stream, write_stream
from dubito.decide import Decisions, Policy, optimal_actions
from dubito.decide.multilabel.label_decisions import MultiLabelDecisions
from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.policy.decide import REASONS
from dubito.decide.policy.loading import AnyPolicy
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.decide.regression.value_decisions import RegressionDecisions
from dubito.decide.row_costs import without_reject
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels.blocks import kept_threads
from dubito.kernels.row_statistics import NARROW
from dubito.outputs import Probabilities, unchecked
from dubito.serve import cascades, label_sets, model_answers, schemas, value_rows
from dubito.serve.auth import DecideToken, LookupToken
from dubito.serve.http_errors import INVALID, HTTPError, no_decision
from dubito.serve.rows import RequestRows, as_http_error
from dubito.serve.service import INLINE_BYTES, Service, Settings, get_service
from dubito.serve.store import NewDecisions
from dubito.serve.store.decisions import IdempotencyKey
from dubito.serve.store.tables import MAX_ID_LENGTH

router = APIRouter(prefix="/v1", tags=["decide"])
INLINE_ROWS = 100  # fewer are decided faster than a thread is found for them
BLOCK_ROWS = 1000
Item = TypeVar("Item")
Result = TypeVar("Result")
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH},
    "description": "A repeated request with the same key gets the first response.",
}


@final
class MicroBatcher(Generic[Item, Result]):
    """Processes the items that arrive in one turn of the event loop together, by kind.

    If a batch fails, its items are processed one by one, so that none fails because of another.

    Examples
    --------
    >>> batcher = MicroBatcher(lambda items: [sum(items)] * len(items))
    >>> async def submit_three() -> list[int]:
    ...     return await asyncio.gather(*(batcher.submit("sum", number) for number in (1, 2, 3)))
    >>> asyncio.run(submit_three())
    [6, 6, 6]
    """

    def __init__(self, process: Callable[[list[Item]], list[Result]]) -> None:
        self.process = process
        self.pending: dict[Hashable, list[tuple[Item, asyncio.Future[Result]]]] = defaultdict(list)

    async def submit(self, kind: Hashable, item: Item) -> Result:
        """Return the result of an item, which is processed with others of its kind."""
        loop = asyncio.get_running_loop()
        if not self.pending:
            loop.call_soon(self._flush)
        future: asyncio.Future[Result] = loop.create_future()
        self.pending[kind].append((item, future))
        return await future

    def _flush(self) -> None:
        """Process everything that is pending."""
        groups = list(self.pending.values())
        self.pending.clear()
        for group in groups:
            self._process_group(group)

    def _process_group(self, group: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        """Process items of one kind."""
        try:
            results = self.process([item for item, _ in group])
        except Exception as error:
            if len(group) > 1:
                for one in group:
                    self._process_group([one])
            elif not group[0][1].done():
                group[0][1].set_exception(error)
            return
        for (_, future), result in zip(group, results, strict=True):
            if not future.done():  # a request that was cancelled
                future.set_result(result)


@final
@dataclass(frozen=True, slots=True, eq=False)
class DecisionRequest:
    """The rows of a request, the policy that was active when it came, and its idempotency key."""

    rows: RequestRows
    policy_id: int
    policy: AnyPolicy
    key: IdempotencyKey | None = None
    n_rearranged: int | None = None  # rows whose quantiles were sorted, if that was asked for

    @property
    def batch_kind(self) -> Hashable | None:
        """The kind of requests it may be batched with, or None.

        The result of a row must not depend on the batch to the last digit. So only requests are
        batched that kernels for few classes process row by row: the rounding of a matrix product
        depends on the number of rows.
        """
        policy, batch = self.policy, self.rows.batch
        # Sums over labels, quantiles or draws, and maps of scores are matrix products, too.
        if not isinstance(policy, Policy) or isinstance(policy.calibrator, ConfidenceCalibrator):
            return None
        is_simple = policy.ood is None and policy.risk is None and not policy.costs.columns
        has_outputs_only = batch.features is None and batch.row_costs is None
        if is_simple and has_outputs_only and policy.costs.n_classes <= NARROW:
            return self.policy_id, type(self.rows.outputs)
        return None


def decide_batch(
    requests: Sequence[DecisionRequest], settings: Settings, rng: np.random.Generator
) -> list[NewDecisions]:
    """Decide the rows of several requests of one kind, and draw the rows to audit.

    Parameters
    ----------
    requests : sequence of DecisionRequest
        Requests with the same `batch_kind`, or a single one.
    settings : Settings
        The audit fraction.
    rng : Generator
        Draws the audited rows.

    Returns
    -------
    list of NewDecisions
        One per request, to be stored.
    """
    first = requests[0]
    rows, policy = RequestRows.concatenate([one.rows for one in requests]), first.policy
    row_costs = rows.batch.row_costs
    decided: Decisions | MultiLabelDecisions | RegressionDecisions
    confidence, is_asked, features = None, None, rows.batch.features
    with kept_threads():
        try:
            if isinstance(policy, MultiLabelPolicy):
                decided = policy.decide(rows.outputs)
            elif isinstance(policy, RegressionPolicy):
                decided = policy.decide(rows.outputs, features)
                confidence = value_rows.confidences(decided, policy)
            else:
                needed = row_costs if policy.costs.columns else None
                decided = policy.decide(rows.outputs, features, needed)
                if policy.costs.reviews:
                    is_asked = np.isin(decided.action, list(model_answers.model_actions(policy)))
        except (BadTypeError, BadValueError) as error:
            fix = f"Send `{error.argument}` as the policy requires"
            raise as_http_error(error, error.argument, fix) from error
    decisions = NewDecisions.of(
        first.policy_id,
        rows.ids,
        decided,
        rows.sent,
        confidence=confidence,
        digests=rows.digests,
        is_logits=rows.is_logits,
        is_asked=is_asked,
        is_audit=settings.draw_audit(rng, len(decided)),
        audit_probability=settings.audit_probability,
        row_costs=row_costs,
        links=rows.links,
        features=features,
    )
    ends = np.cumsum([len(one.rows.ids) for one in requests]).tolist()
    return [
        decisions.part(slice(end - len(one.rows.ids), end), one.key)
        for one, end in zip(requests, ends, strict=True)
    ]


@router.post(
    "/decide",
    openapi_extra={
        **schemas.request_body(
            schemas.DecideRequest, schemas.AnswersRequest, schemas.CascadeRequest, or_arrow=True
        ),
        "parameters": [IDEMPOTENCY_KEY],
    },
    responses={200: {"model": schemas.DecideResponse}},
)
async def decide(request: Request, token: DecideToken, rearrange: bool = False) -> Response:
    """Decide rows and store the decisions; the response is sent once they are on disk.

    A cascade answers which model to call next, and takes its output under the same id. So does a
    policy that asks a model, for the class that it answers. With `rearrange`, quantiles that cross
    are sorted and counted.
    """
    service = get_service(request)
    body = await schemas.read_body(request, service.settings.max_bytes)
    key, is_arrow, steps = None, has_arrow_body(request), None
    if (text := request.headers.get("idempotency-key")) is not None:
        name = schemas.check_name(text, "The header Idempotency-Key")
        key = IdempotencyKey(name, token.id, blake2b(body, digest_size=16).digest())
    if (cascade := service.catalog.active_cascade) is not None:
        if is_arrow:
            raise HTTPError(INVALID, "A cascade takes no Arrow streams", "Send the rows as JSON")
        steps = await cascades.decide_rows(service, cascade, body, key)
    elif not is_arrow and b'"answers"' in body:
        steps = await model_answers.decide_answers(service, body, key)
    parse = partial(_parse_request, service, body, is_arrow, key, rearrange)
    if steps is not None:
        columns = {name: [one[name] for one in steps] for name in steps[0]}
        content = _as_json(columns)
    elif is_arrow or len(body) > INLINE_BYTES or body.count(b"[") > INLINE_ROWS:
        async with service.bulk:
            columns, content = await run_in_threadpool(_decide_bulk, service, parse, is_arrow)
    else:
        parsed = parse()
        kind = parsed.batch_kind or object()  # equal to no other: decided alone
        new = await service.batcher.submit(kind, parsed)
        found = await asyncio.wrap_future(service.store.submit(new))
        respond = partial(_response_columns, new.columns, service.catalog.policy, found)
        # Decisions that exist may be of policies that are still to be read.
        columns = await run_in_threadpool(respond) if found else respond()
        content = _as_json(columns, parsed.n_rearranged)
    for action, n_rows in Counter(columns["action"]).items():
        service.metrics.decisions.labels(action).inc(n_rows)
    request.state.n_rows = len(columns["id"])
    return Response(content, media_type=schemas.ARROW if is_arrow else "application/json")


def _decide_bulk(
    service: Service, parse: Callable[[], DecisionRequest], is_arrow: bool
) -> tuple[dict[str, list[Any]], bytes]:
    """Decide and store the rows of a large request; return the response as columns and bytes."""
    parsed = parse()
    [new] = decide_batch([parsed], service.settings, service.rng)
    found = service.store.add_decisions(new, are_known_new=parsed.rows.has_new_ids)
    columns = _response_columns(new.columns, service.catalog.policy, found)
    return columns, _as_stream(columns) if is_arrow else _as_json(columns, parsed.n_rearranged)


def _as_stream(columns: dict[str, list[Any]]) -> bytes:
    """Return decisions as an Arrow stream."""
    if "labels" in columns:
        return write_stream(label_sets.flat_columns(columns))
    if "value" in columns:
        return write_stream(value_rows.flat_columns(columns))
    # Columns of a stream have one type, also where all values are missing.
    typed = {
        "class": list(map(str, columns["class"])),
        "probability_positive": np.array(columns["probability_positive"], np.float64),
        "fallback_action": [one or "" for one in columns["fallback_action"]],
        "next_model": [one or "" for one in columns["next_model"]],
    }
    return write_stream({**columns, **typed})


def _as_json(columns: dict[str, list[Any]], n_rearranged: int | None = None) -> bytes:
    """Return decisions as JSON, block by block: other threads wait while a block is encoded."""
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    n_labels = len(columns["labels"][0]) if "labels" in columns else 0
    size = max(BLOCK_ROWS // (1 + n_labels // 4), 1)
    starts = range(0, len(rows), size)
    blocks = (json.dumps(rows[start : start + size])[1:-1] for start in starts)
    more = "" if n_rearranged is None else f', "n_rearranged": {n_rearranged}'
    return f'{{"decisions": [{", ".join(blocks)}]{more}}}'.encode()


def has_arrow_body(request: Request) -> bool:
    """Return whether the body of a request is an Arrow stream."""
    return request.headers.get("content-type", "").partition(";")[0].strip() == schemas.ARROW


def _parse_request(
    service: Service, body: bytes, is_arrow: bool, key: IdempotencyKey | None, rearrange: bool
) -> DecisionRequest:
    """Return the validated rows of a body with the active policy."""
    settings = service.settings
    policy_id, policy = service.catalog.active
    content = parse_arrow(body, settings) if is_arrow else schemas.parse_json(body, settings)
    rows = RequestRows.of(content, policy, settings, key and key.id, rearrange=rearrange)
    n_rearranged = rows.outputs.n_rearranged if rearrange else None
    return DecisionRequest(rows, policy_id, policy, key, n_rearranged)


def parse_arrow(
    body: bytes, settings: Settings, max_columns: int | None = None, *, has_gaps: bool = False
) -> dict[str, Any]:
    """Return the columns of an Arrow stream within the limits of a request."""
    return read_stream(
        body,
        max_rows=settings.max_rows,
        max_columns=max_columns or settings.max_columns,
        max_bytes=settings.max_bytes,
        has_gaps=has_gaps,
    )


def _response_columns(
    columns: dict[str, list[Any]],
    find_policy: Callable[[int], AnyPolicy],
    found: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, list[Any]]:
    """Return the response as columns, with names; ids that existed get their first response."""
    if found:
        known = [found.get(name, {}) for name in columns["id"]]
        columns = {
            name: [row.get(name, value) for row, value in zip(known, values, strict=True)]
            for name, values in columns.items()
        }
    ids = columns["policy_id"]
    policies: dict[int, Any] = {policy_id: find_policy(policy_id) for policy_id in set(ids)}
    kind = type(next(iter(policies.values())))  # all policies of a database are of one kind
    if kind is MultiLabelPolicy:
        return label_sets.response_columns(columns, policies)
    if kind is RegressionPolicy:
        return value_rows.response_columns(columns)
    actions = {k: policy.costs.actions for k, policy in policies.items()}
    classes = {k: policy.classes for k, policy in policies.items()}
    models = {k: model_answers.model_actions(policy) for k, policy in policies.items()}
    asked = {k: [models[k].get(code) for code in range(len(actions[k]))] for k in policies}
    return {
        "id": columns["id"],
        "policy": ids,
        "action": _named(columns["action"], ids, actions),
        "class": _named(columns["predicted_class"], ids, classes),
        "probability": columns["probability"],
        "probability_positive": _positive_probabilities(columns, policies),
        "expected_cost": columns["expected_cost"],
        "reason": [REASONS[code] for code in columns["reason"]],
        "review_value": columns["review_value"],
        "fallback_action": _fallback_actions(columns, policies),
        "next_model": _named(columns["action"], ids, asked),
    }


def _named(
    codes: Sequence[int], ids: Sequence[int], names: Mapping[int, Sequence[Any]]
) -> list[Any]:
    """Return the name of each code in the policy that decided its row."""
    if len(names) == 1:  # nearly always, and twice as fast
        [only] = names.values()
        return [only[code] for code in codes]
    return [names[k][code] for k, code in zip(ids, codes, strict=True)]


def _positive_probabilities(
    columns: Mapping[str, Sequence[Any]], policies: Mapping[int, Policy]
) -> list[float | None]:
    """Return the calibrated probability of the positive class of each row, None unless of two."""
    first = next(iter(policies.values()))  # all have the same classes
    if len(first.classes) != 2:
        return [None] * len(columns["id"])
    positive = {policy_id: policy.pos_column for policy_id, policy in policies.items()}
    rows = zip(
        columns["policy_id"], columns["predicted_class"], columns["probability"], strict=True
    )
    return [p if code == positive[k] else 1 - p for k, code, p in rows]


def _fallback_actions(
    columns: Mapping[str, Sequence[Any]], policies: Mapping[int, Policy]
) -> list[str | None]:
    """Return what each rejected row would get without a review, None for the others."""
    result: list[str | None] = [None] * len(columns["id"])
    ids = columns["policy_id"]
    for policy_id, policy in policies.items():
        costs = policy.costs
        rejecting = set(costs.rejecting)
        rejected = [k for k, code in enumerate(columns["action"]) if code in rejecting]
        rows = [k for k in rejected if ids[k] == policy_id]
        if not rows:
            continue
        p = value_rows.float_matrix([columns["probabilities"][k] for k in rows])
        others = without_reject(costs)
        by_name = model_answers.cost_columns(others, [columns["row_costs"][k] for k in rows])
        outputs = unchecked(Probabilities, {"array": p, "classes": others.classes})
        for k, code in zip(rows, optimal_actions(outputs, others, by_name), strict=True):
            result[k] = others.actions[code]
    return result


@router.get(
    "/decisions/{decision_id:path}",
    response_model=(
        schemas.StoredDecision
        | schemas.StoredMultiLabelDecision
        | schemas.StoredValueDecision
        | schemas.StoredCascadeDecision
    ),
)
def get_decision(request: Request, decision_id: str, token: LookupToken) -> dict[str, Any]:
    """Return a stored decision, its label if known, the labels it had before, and the answers.

    With a review team, or an action that asks a reviewer, also what the answers lead to:
    probabilities, and the action of lowest cost.
    """
    service = get_service(request)
    store, name = service.store, schemas.check_name(decision_id, "The id")
    if service.catalog.active_cascade is not None:
        return cascades.describe_stored(store, name)
    row = store.get_decision(name)
    if row is None:
        raise no_decision(name)
    whole = {name: [value] for name, value in row.items()}
    response = _response_columns(whole, service.catalog.policy)
    facts = {name: value for name, [value] in response.items()}
    facts |= {name: row[name] for name in ("created", "link")}
    policy = service.catalog.policy(row["policy_id"])
    if isinstance(policy, MultiLabelPolicy):
        decode = partial(label_sets.decode_answers, names=policy.label_names)
        history = store.label_history(name, decode)
        previous = [{**one, "answers": one["label"]} for one in history["previous_labels"]]
        return facts | {"answers": history["label"], "previous_answers": previous}
    if isinstance(policy, RegressionPolicy):
        return facts | store.label_history(name, float)
    classes = policy.classes
    given, asked = store.answers_of(name), store.find_model_answers([name])[name]
    facts |= model_answers.describe_answers(asked, policy)
    after = None
    if given and service.team is not None:
        after = service.team.outcome(row, [(reviewer, code) for reviewer, code, _ in given])
    elif given:
        _, code, _ = given[-1]
        after = model_answers.review_outcome(policy, row, asked, facts["action"], code)
    return facts | {
        "reviewer_answers": [
            {"reviewer": reviewer, "label": classes[code], "created": created}
            for reviewer, code, created in given
        ],
        "probabilities_after_review": None if after is None else after.probabilities,
        "action_after_review": None if after is None else after.action,
        "row_costs": None if row["row_costs"] is None else json.loads(row["row_costs"]),
        **store.label_history(name, classes.__getitem__),
    }

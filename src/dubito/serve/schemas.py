"""Requests and responses as pydantic models, which also make the OpenAPI document.

Matrices are not validated by pydantic, element by element, but by numpy: see `rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, final

import numpy as np
from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import from_json

from dubito.outputs import ClassName
from dubito.serve.http_errors import INVALID, MAX_SHOWN, TOO_LARGE, HTTPError, is_number, show_json
from dubito.serve.service import Settings
from dubito.serve.store.tables import MAX_ID_LENGTH

ARROW = "application/vnd.apache.arrow.stream"
BEARER = Depends(HTTPBearer(auto_error=False, description="Created by `dubito token create`."))
MAX_LINK_LENGTH = 2000
DEFAULTS = Settings()
OUTPUT_FIELDS = (
    ("logits",), ("probabilities",), ("scores",), ("mean", "std"), ("quantiles",), ("samples",)
)  # fmt: skip


def check_name(value: Any, what: str) -> str:
    """Return an id, a key or a reviewer's name that every database can store."""
    if _is_name(value):
        return str(value)
    problem = f"{what} must be 1 to {MAX_ID_LENGTH} printable characters, got {_show(value)}"
    raise HTTPError(INVALID, problem, "Use letters, digits and dashes")


def _is_name(value: Any) -> bool:
    """Return whether a value is a name that every database can store."""
    return isinstance(value, str) and 0 < len(value) <= MAX_ID_LENGTH and value.isprintable()


def _show(value: Any) -> str:
    """Return a value of a request for a message, cut if it is long.

    >>> _show("settle"), _show(None), _show([1])
    ("'settle'", 'null', 'a list')
    """
    return repr(value[:MAX_SHOWN]) if isinstance(value, str) else show_json(value)


def _as_list(value: Any) -> Any:
    """Return a column of an Arrow stream as a list, and any other value unchanged."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def _check_ids(value: Any) -> list[str] | None:
    """Return ids as strings; integers are converted."""
    value = _as_list(value)
    if value is not None and not isinstance(value, list):
        problem = f"`ids` must be a list, got {_show(value)}"
        raise HTTPError(INVALID, problem, "Send one id per row")
    ids = value and [str(x) if type(x) is int else x for x in value]
    for row, one in enumerate(ids or ()):
        if not _is_name(one):
            check_name(one, f"`ids[{row}]`")
    return ids


def _as_rows(value: Any) -> Any:
    """Return labels by name of an Arrow stream row by row, and any other value as a list."""
    if isinstance(value, dict) and any(isinstance(one, np.ndarray) for one in value.values()):
        columns = {name: _as_list(column) for name, column in value.items()}
        rows = zip(*columns.values(), strict=True)
        # A number that differs from itself is NaN: in a stream, an unknown label.
        return [
            {k: None if x != x else x for k, x in zip(columns, row, strict=True)} for row in rows
        ]
    return _as_list(value)


def _array(items: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a list that is not empty."""
    return {"type": "array", "items": items, "minItems": 1}


def _by_name(items: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an object that is not empty."""
    return {"type": "object", "minProperties": 1, "additionalProperties": items}


Ids = Annotated[
    list[str],
    BeforeValidator(_check_ids),
    WithJsonSchema(_array({"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH})),
]
Numbers = Annotated[Any, WithJsonSchema(_array({"type": "number"}))]
Matrix = Annotated[Any, WithJsonSchema(_array(_array({"type": "number"})))]
RowCosts = Annotated[Any, WithJsonSchema(_by_name(_array({"type": "number"})))]
AnswerScores = Annotated[Any, WithJsonSchema(_by_name(_array({"type": ["number", "null"]})))]
Links = Annotated[
    Any, WithJsonSchema(_array({"type": ["string", "null"], "maxLength": MAX_LINK_LENGTH}))
]
ANSWERS_SCHEMA = _by_name({"enum": [0, 1, None]})
Answers = Annotated[dict[str, Any], WithJsonSchema(ANSWERS_SCHEMA)]
Label = str | int | float
Times = Annotated[
    list[Label], WithJsonSchema(_array({"type": ["string", "number"], "format": "date-time"}))
]
Names = Annotated[list[Label], WithJsonSchema(_array({"type": ["string", "integer"]}))]


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """What an entry of a list by model must be, unless it is null: its schema, check and message.

    Parameters
    ----------
    limit : float
        The largest number, or the length of a string.
    fix : str
        The remedy for one that is not valid.
    is_text : bool
        Whether it is a string; otherwise a number of at least 0.
    """

    limit: float
    fix: str
    is_text: bool = False

    def is_valid(self, value: Any) -> bool:
        """Return whether a value, which is not null, is as declared."""
        if self.is_text:
            return isinstance(value, str) and len(value) <= self.limit
        return is_number(value) and 0 <= value <= self.limit

    @property
    def rule(self) -> str:
        """The rule that messages state: what a value must be."""
        if self.is_text:
            return f"a string of at most {self.limit:,} characters, or null"
        return f"a number from 0 to {f'{self.limit:g}'.replace('e+', 'e')}, or null"

    @property
    def schema(self) -> dict[str, Any]:
        """Its JSON schema."""
        if self.is_text:
            return {"type": ["string", "null"], "maxLength": self.limit}
        return {"type": ["number", "null"], "minimum": 0, "maximum": self.limit}


ENTRIES = {
    "confidences": Entry(
        1, "Send a fraction, such as 0.7 for 70 %, or null if the model was not called"
    ),
    "costs": Entry(1e12, "Send the cost of the call, or null for the mean cost in the fit"),
    "answers": Entry(10_000, "Send a shorter string, or null", is_text=True),
}


def _by_model(items: dict[str, Any]) -> WithJsonSchema:
    """Return the JSON schema of lists by model."""
    return WithJsonSchema({"type": "object", "additionalProperties": _array(items)})


# These are checked by `cascades.values_by_model`, without a model per entry.
Confidences = Annotated[Any, _by_model(ENTRIES["confidences"].schema)]
Costs = Annotated[Any, _by_model(ENTRIES["costs"].schema)]
Texts = Annotated[Any, _by_model(ENTRIES["answers"].schema)]
ClassAnswers = Annotated[Any, _by_model({"type": ["string", "number", "null"]})]
MAX_HORIZON = 10_000
Horizons = Annotated[
    Any, WithJsonSchema(_array({"type": "integer", "minimum": 0, "maximum": MAX_HORIZON}))
]


class RequestModel(BaseModel):
    """A request body without unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True)


class DecideRequest(RequestModel):
    """Model outputs, and optionally ids, features, row_costs and links, one per row.

    A regression policy takes `mean` and `std`, `quantiles` or `samples`, as in its fit; `levels` of
    quantiles are compared with those of the fit, if they are sent. A policy that was fitted on
    scores of answers takes `scores`, lists by name, and their `groups`.

    `row_costs` are the columns that the costs of the policy depend on, by name.
    """

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": [*names]} for names in OUTPUT_FIELDS]}
    )

    logits: Matrix = None
    probabilities: Matrix = None
    scores: AnswerScores = None
    groups: Annotated[list[Label | None] | None, BeforeValidator(_as_list)] = None
    mean: Numbers = None
    std: Numbers = None
    quantiles: Matrix = None
    levels: Numbers = None
    samples: Matrix = None
    ids: Ids | None = None
    features: Matrix = None
    row_costs: RowCosts = None
    links: Links = None


class AnswersRequest(RequestModel):
    """The answers of models that decisions named as `next_model`, under the ids of the rows.

    By model: each row has the class that one model answered, and null for the others.
    """

    ids: Ids
    answers: ClassAnswers


class CascadeRequest(RequestModel):
    """What the models of a cascade returned, by model, one entry per row; null if not called.

    A later request with the same ids adds the output of the next model. `costs` are those of calls
    where they differ from row to row, and `answers` is what the models said, for reviewers.
    """

    ids: Ids | None = None
    confidences: Confidences = None
    costs: Costs = None
    answers: Texts = None
    links: Links = None


class ForecastsRequest(RequestModel):
    """Forecasts of the kind that the state holds, with the time at which each was made.

    These are `points`, `mean` and `std`, `quantiles` with their `levels`, `samples`, or
    `probabilities` or `logits` of classes. Missing `ids` are "series, horizon, time".
    """

    time: Times
    series: Names | None = None
    horizon: Horizons = None
    ids: Ids | None = None
    points: Numbers = None
    mean: Numbers = None
    std: Numbers = None
    quantiles: Matrix = None
    levels: Numbers = None
    samples: Matrix = None
    probabilities: Matrix = None
    logits: Matrix = None


class LabelsRequest(RequestModel):
    """Labels by the ids of their decisions; for several labels per row, 0, 1 or null by name.

    For forecasts, labels are the outcomes; for a cascade, whether the last answer is correct.
    """

    ids: Ids
    labels: Annotated[
        list[Any],
        BeforeValidator(_as_rows),
        WithJsonSchema(
            _array({"anyOf": [{"type": ["string", "number", "boolean"]}, ANSWERS_SCHEMA]})
        ),
    ]


class ReviewRequest(RequestModel):
    """What a reviewer does with a row; a label is given with the action "label" only.

    It is a `label`, or with several labels per row `labels`, 0, 1 or null by name. For a cascade,
    it says whether the last answer is correct.
    """

    action: Literal["claim", "label", "escalate", "skip", "undo"]
    label: Label | bool | None = None
    labels: Answers | None = None


class ErrorResponse(BaseModel):
    """Why a request failed, and what to do about it."""

    detail: str


class HealthResponse(BaseModel):
    """That the process runs."""

    status: Literal["ok"]


class ReadinessResponse(BaseModel):
    """Whether the service can decide, "ok" or why not, and which background tasks fail."""

    status: str
    problems: dict[str, str] | None = None


class DecidedRow(BaseModel):
    """Fields that every decision has."""

    id: str
    policy: int
    expected_cost: float
    reason: str
    review_value: float


class Decision(DecidedRow):
    """The decision for one row.

    `probability` is that of `class`, the most probable one, and `probability_positive` that of the
    positive of two classes. `fallback_action` is what a rejected row would get without a review.
    `next_model` is the model whose answer the row waits for: send it as `answers` under the same
    id. The response to that has the `probabilities` of all classes.
    """

    action: str | int
    class_: Label = Field(alias="class")
    probability: float
    probability_positive: float | None
    fallback_action: str | int | None
    next_model: str | None
    probabilities: list[float] | None = None


class LabelDecision(BaseModel):
    """The decision on one of several labels; `fallback_action` without its review, if any."""

    action: Literal["negative", "positive", "review"]
    probability: float
    fallback_action: Literal["negative", "positive"] | None


class MultiLabelDecision(DecidedRow):
    """The decision for one row of several labels, with the calibrated probability of each.

    `action` says what is done with the row: nothing, a review of some labels, or of all of them.
    """

    action: Literal["automatic", "review labels", "review row"]
    labels: dict[str, LabelDecision]


class ValueDecision(DecidedRow):
    """The value decided for one row; for a reviewed row, that without the review.

    `low` and `high` are its prediction interval, null where that is infinite.
    """

    action: Literal["automatic", "review"]
    value: float
    low: float | None
    high: float | None


class CascadeStep(BaseModel):
    """What to do next with a row: call `next_model`, or null if the row is decided.

    `action` is "call NAME", "answer NAME", "review" or "abstain". `p_correct` is the probability
    that the last answer is correct, null before the first call; `expected_costs` are those from
    here on, by action.
    """

    action: str
    next_model: str | None
    p_correct: float | None
    expected_cost: float
    expected_costs: dict[str, float]


class CascadeDecision(CascadeStep):
    """The step of one row."""

    id: str
    policy: int


class DecideResponse(BaseModel):
    """One decision per row, in the order of the request.

    With `?rearrange=true`, `n_rearranged` counts the rows whose quantiles were sorted.
    """

    decisions: (
        list[Decision] | list[MultiLabelDecision] | list[ValueDecision] | list[CascadeDecision]
    )
    n_rearranged: int | None = None


class Correction(BaseModel):
    """A label or correction: by whom it was given, and when."""

    reviewer: str | None
    created: float
    corrected: float
    corrected_by: str


class PreviousLabel(Correction):
    """A label that was corrected."""

    label: Label


class ReviewerAnswer(BaseModel):
    """An answer of a reviewer."""

    reviewer: str
    label: Label
    created: float


class GivenAnswer(BaseModel):
    """What a model answered that the policy asked, and what was decided then."""

    model: str
    label: Label
    created: float
    action: str | int
    probabilities: list[float]


class StoredDecision(Decision):
    """A stored decision with its label, the labels it had before, and the answers of reviewers.

    With a review team, or if the action asks a reviewer who may err, the probabilities after review
    combine model and answers, in the order of the classes; the action after review has the lowest
    expected cost by these. After `model_answers` the decision is the one that they led to.
    """

    created: float
    row_costs: dict[str, float] | None
    link: str | None
    label: Label | None
    previous_labels: list[PreviousLabel]
    reviewer_answers: list[ReviewerAnswer]
    model_answers: list[GivenAnswer]
    probabilities_after_review: list[float] | None
    action_after_review: str | None


class PreviousAnswers(Correction):
    """Answers that were corrected."""

    answers: dict[str, int | None]


class StoredMultiLabelDecision(MultiLabelDecision):
    """A stored decision with its true labels, null where unknown, and those it had before."""

    created: float
    link: str | None
    answers: dict[str, int | None] | None
    previous_answers: list[PreviousAnswers]


class StoredValueDecision(ValueDecision):
    """A stored decision with the true value, and those it had before."""

    created: float
    link: str | None
    label: float | None
    previous_labels: list[PreviousLabel]


class CascadeStage(CascadeStep):
    """A request about a row, with what it added, and what it was answered."""

    policy: int
    created: float
    confidences: dict[str, float]
    costs: dict[str, float]
    answers: dict[str, str]


class PreviousVerdict(PreviousLabel):
    """Whether an answer was correct, before this was corrected."""

    label: bool


class StoredCascadeDecision(CascadeDecision):
    """The last step of a row, all stages, and whether the last answer is correct, if known."""

    created: float
    link: str | None
    stages: list[CascadeStage]
    label: bool | None
    previous_labels: list[PreviousVerdict]


class LabelsResponse(BaseModel):
    """How many labels were received, new, and corrected."""

    received: int
    new: int
    corrected: int


class ForecastInterval(BaseModel):
    """The interval of a forecast; a bound is null where it is infinite, during the warm-up."""

    id: str
    low: float | None
    high: float | None


class ForecastSet(BaseModel):
    """The set of classes of a forecast."""

    id: str
    classes: list[Label]


class ForecastsResponse(BaseModel):
    """One interval or set per forecast, in the order of the request.

    `n_rearranged` counts rows whose quantiles were sorted.
    """

    forecasts: list[ForecastInterval] | list[ForecastSet]
    n_rearranged: int = 0


class StoredForecast(BaseModel):
    """A stored forecast with its outcome, and those it had before; an interval or a set."""

    id: str
    created: float
    series: str
    horizon: int
    time: str
    low: float | None = None
    high: float | None = None
    classes: list[Label] | None = None
    label: Label | None
    previous_labels: list[PreviousLabel]


class QueueResponse(BaseModel):
    """How many rows wait for review, and the ids that come next."""

    waiting: int
    next: list[str]


class ClaimedRow(BaseModel):
    """Fields that every claimed row has; in blind mode without predictions of the model."""

    id: str
    lease_until: float
    created: float
    link: str | None
    review_value: float | None = None
    is_audit: bool | None = None
    n_escalations: int | None = None


class ReviewRow(ClaimedRow):
    """A claimed row; in blind mode nothing of what the model predicts.

    `review_value` is that of the decision. With a team, `value_with_reviewer` is what the answer of
    this reviewer is expected to save, given how often they err, what they cost, and other answers.
    """

    row_costs: dict[str, float] | None
    classes: list[Label]
    is_second_opinion: bool | None = None
    action: str | int | None = None
    class_: Label | None = Field(None, alias="class")
    probability: float | None = None
    probabilities: list[float] | None = None
    reason: str | None = None
    value_with_reviewer: float | None = None


class ReviewLabel(BaseModel):
    """One of several labels of a claimed row; in blind mode nothing of what the model predicts."""

    name: str
    is_required: bool
    action: str | None = None
    probability: float | None = None
    fallback_action: str | None = None
    expected_cost: float | None = None


class MultiLabelReviewRow(ClaimedRow):
    """A claimed row of several labels, the most important ones first."""

    labels: list[ReviewLabel]
    action: str | None = None
    reason: str | None = None


class ValueReviewRow(ClaimedRow):
    """A claimed row whose true value, a number, is wanted; in blind mode nothing else."""

    answer: Literal["number"]
    value: float | None = None
    low: float | None = None
    high: float | None = None
    action: str | None = None
    reason: str | None = None


class ModelAnswer(BaseModel):
    """What a model of a cascade answered; in blind mode without its confidence."""

    model: str
    answer: str | None
    confidence: float | None = None


class CascadeReviewRow(ClaimedRow):
    """A claimed row of a cascade: is the last answer correct?"""

    models: list[ModelAnswer]
    is_second_opinion: bool | None = None
    action: str | None = None
    p_correct: float | None = None
    value_with_reviewer: float | None = None


class ClaimResponse(BaseModel):
    """The claimed row, or null if none waits; for a team, `note` says why there is none."""

    note: str | None = None
    item: ReviewRow | MultiLabelReviewRow | ValueReviewRow | CascadeReviewRow | None


class ReviewResponse(ClaimResponse):
    """The action that was done, and the row if the reviewer holds it now."""

    action: str


class PolicySummary(BaseModel):
    """A stored policy."""

    id: int
    created: float
    is_active: bool
    provenance: dict[str, Any]


class PoliciesResponse(BaseModel):
    """All policies, oldest first."""

    policies: list[PolicySummary]


class UploadResponse(BaseModel):
    """The id of a stored policy."""

    id: int


class ActiveResponse(BaseModel):
    """The id of the active policy."""

    active: int | None


class MonitorResponse(BaseModel):
    """Metrics, alarms and shifts of the active policy.

    Policies with one class per row have class priors, those with several labels have `labels`. For
    regression, `coverage` is that of the prediction intervals. With `--labels all`, `delay` says
    after how many seconds 98 % of labels arrive, and how many are missing. For a cascade, `waiting`
    counts the rows that wait for the output of each model.
    """

    policy: int
    days: float
    n_rows: int
    overall: dict[str, Any]
    windows: list[dict[str, Any]]
    alarms: dict[str, dict[str, Any]]
    uncertainty: dict[str, Any] | None
    prior: dict[str, Any] | None = None
    reference_prior: list[float] | None = None
    labels: dict[str, dict[str, Any]] | None = None
    delay: dict[str, Any] | None = None
    reliability: dict[str, Any] | None = None
    waiting: dict[str, int] | None = None


class ForecastMonitorResponse(BaseModel):
    """Coverage of forecasts over time, of each series and horizon, and the current adaptation.

    `width` is that of intervals, or the number of classes in a set, `widening` the width of the
    last interval divided by that of its forecast. `method_weights` are those of the online state,
    which waits for `n_waiting` outcomes and gave up on `n_dropped`.
    """

    days: float
    kind: str
    level: float
    n_forecasts: int
    n_warm_up: int
    n_waiting: int
    n_dropped: int
    method_weights: dict[str, float]
    overall: dict[str, Any]
    windows: list[dict[str, Any]]
    cells: list[dict[str, Any]]


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse} for status in (401, 403, 404, 409, TOO_LARGE, INVALID)
}


def request_body(*models: type[BaseModel], or_arrow: bool = False) -> dict[str, Any]:
    """Return the OpenAPI description of a body that is read and validated by `parse_body`."""
    kinds = [model.model_json_schema() for model in models]
    schema = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    if or_arrow:
        content[ARROW] = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": content}}


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body of a request, or raise as soon as it is too large."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        problem = f"The body must not be compressed, got Content-Encoding {encoding[:50]!r}"
        raise HTTPError(INVALID, problem, "Send it uncompressed")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            problem = f"The body is larger than {max_bytes:,} bytes"
            raise HTTPError(TOO_LARGE, problem, "Send fewer rows per request")
        parts.append(part)
    return b"".join(parts)


def require_bounded(body: bytes, settings: Settings = DEFAULTS) -> None:
    """Raise if a JSON body has too many values: no other thread runs while they are parsed.

    Brackets, quotes and commas are counted, those in strings as well.

    >>> require_bounded(b"[[1, 2], [3]]")
    """
    text, n_objects = np.frombuffer(body, np.uint8), 2 * settings.max_rows + 1000
    for marks, what, per_value, limit in (
        (b"[{", "lists and objects", 1, n_objects),
        (b'"', "strings", 2, n_objects),
        (b",", "values", 1, settings.max_values),
    ):
        if len(body) > limit:
            n_values = sum(int(np.count_nonzero(text == mark)) for mark in marks) // per_value
            if n_values > limit:
                problem = f"A JSON body may have at most {limit:,} {what}, got {n_values:,}"
                raise HTTPError(TOO_LARGE, problem, "Send fewer rows, or an Arrow stream")


def parse_json(body: bytes, settings: Settings = DEFAULTS, *, allow_booleans: bool = False) -> Any:
    """Return the content of a JSON body of bounded size without NaN, infinity, true and false."""
    require_bounded(body, settings)
    try:
        content = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        fix = "Send JSON in UTF-8 with finite numbers"
        raise HTTPError(INVALID, f"The body is not valid JSON ({error})", fix) from error
    # numpy would take true for 1. Few bodies contain these letters, and only those are searched.
    has_words = not allow_booleans and (b"true" in body or b"false" in body)
    if has_words and _has_boolean(content):
        problem = "The body contains true or false instead of a number"
        raise HTTPError(INVALID, problem, "Use 1 or 0")
    return content


def _has_boolean(value: Any) -> bool:
    """Return whether there is a boolean at any depth."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, bool):
            return True
        if isinstance(one, dict | list):
            pending += one.values() if isinstance(one, dict) else one
    return False


Model = TypeVar("Model", bound=BaseModel)


def validate(model: type[Model], content: Any) -> Model:
    """Return the content of a body as a model, or raise with the first problem."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        faults = error.errors(include_url=False)
    first, names = faults[0], ", ".join(model.model_fields)
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, HTTPError):
        raise cause
    name = ".".join(map(str, first["loc"]))
    match first["type"]:
        case "model_type" | "model_attributes_type":
            problem = f"The body must be a JSON object, got {_show(first['input'])}"
            raise HTTPError(INVALID, problem, f"Send the fields {names}")
        case "extra_forbidden":
            problem = f"The body has an unknown field {name[:MAX_SHOWN]!r}"
            raise HTTPError(INVALID, problem, f"Use only {names}")
        case "missing":
            raise HTTPError(INVALID, f"The field `{name}` is missing", "Add it")
    optional = {name for name, field in model.model_fields.items() if not field.is_required()}
    raise _fault_error(faults, optional=optional)


def parameter_error(faults: Sequence[Any]) -> HTTPError:
    """Return the error of a path or query parameter, of what FastAPI found wrong."""
    place, name = str(faults[0]["loc"][0]), ".".join(map(str, faults[0]["loc"][1:]))
    where = f"`{name}` in the {place}"
    if faults[0]["type"] == "missing":
        return HTTPError(INVALID, f"{where} is missing", "Add it")
    error = _fault_error(faults, where)
    fix = f"Correct `?{name}=`, or leave it out" if place == "query" else "Correct the path"
    return HTTPError(INVALID, error.problem, fix)


SCALARS = {
    "string_type": "a string",
    "int_type": "a number",
    "float_type": "a number",
    "bool_type": "true or false",
}
RULES = {
    **SCALARS,
    "list_type": "a list",
    "dict_type": "an object",
    "invalid_key": "an object whose keys are strings",
    "literal_error": "one of {expected}",
    "string_unicode": "a string of valid Unicode",
    "bool_parsing": "true or false",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "greater_than": "above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "below {lt:g}",
    "less_than_equal": "at most {le:g}",
}
FIXES = {
    "list_type": "Send one value per row",
    "dict_type": 'Send values by name, such as {"fever": 1}',
    "literal_error": "Send one of these",
}


def _fault_error(
    faults: Sequence[Any], where: str = "", optional: AbstractSet[str] = frozenset()
) -> HTTPError:
    """Return the error of a value that pydantic rejects: its place, the rule and the value.

    Of a value of several types, pydantic reports each of them, by its own name.
    """
    first = faults[0]
    kind, path, context = first["type"], first["loc"], dict(first.get("ctx", {}))
    if "expected" in context:  # as in "'claim', 'skip' or 'undo'"
        context["expected"] = context["expected"].replace(" or ", ", ").replace("'", "")
    rule = RULES.get(kind, "as in the schema").format(**context)
    fix = FIXES.get(kind, f"Send {rule}")
    if kind not in RULES:
        fix = "See /v1/openapi.json for the schema"
    if kind in SCALARS and path[-1] in ("str", "int", "float", "bool"):
        path = path[:-1]
        kinds = [one["type"] for one in faults if one["loc"][:-1] == path]
        words = dict.fromkeys(SCALARS[one] for one in kinds if one in SCALARS)
        rule = (", " if SCALARS["bool_type"] in words else " or ").join(words)
        fix = f"Send {rule}" + f", or leave `{path[0]}` out" * (path[0] in optional)
    name = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in path)
    where = where or f"`{name.removeprefix('.')[:MAX_SHOWN]}`"
    return HTTPError(INVALID, f"{where} must be {rule}, got {_show(first['input'])}", fix)


def encode_labels(labels: Any, classes: Sequence[ClassName]) -> list[int]:
    """Return the positions of labels among the classes.

    >>> encode_labels(["dog", "cat"], ["cat", "dog"])
    [1, 0]
    """
    known = {str(name): code for code, name in enumerate(classes)}
    codes = [known.get(str(x)) if type(x) in (str, int, float) else None for x in labels]
    found = [code for code in codes if code is not None]
    if len(found) < len(codes):
        wrong = labels[codes.index(None)]
        got = repr(wrong)[:50] if isinstance(wrong, str | int | float) else type(wrong).__name__
        names = ", ".join(list(known)[:20])
        raise HTTPError(INVALID, f"{got} is not a class of the policy", f"Use one of {names}")
    return found

"""`/review`: the review queue, one row at a time: a key per class, labels one by one, a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from dubito.decide.cascade import Cascade
from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.policy.decide import REASON_TEXTS
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.decide.regression.value_decisions import REASON_TEXTS as VALUE_REASON_TEXTS
from dubito.serve.auth import Form, ReviewToken
from dubito.serve.cascades import VERDICTS
from dubito.serve.http_errors import CONFLICT, INVALID, HTTPError
from dubito.serve.label_sets import encode_answers
from dubito.serve.labels import apply_action, claim_row, describe_item
from dubito.serve.pages.rendering import PageRoute, redirect, render
from dubito.serve.schemas import check_name
from dubito.serve.service import Service, get_service
from dubito.serve.store import ReviewItem, Token
from dubito.serve.store.decisions import Label, label_of
from dubito.serve.store.policies import ServedPolicy
from dubito.serve.value_rows import read_number

router = APIRouter(route_class=PageRoute, include_in_schema=False)
KEYS = "1234567890abcdfghijklmnopqrtuvwxy"  # e, s and z belong to other buttons
MAX_DIGITS = 6
UNKNOWN_ANSWER = HTTPError(INVALID, "The page sent an unknown answer", "Reload the page")
HIDDEN = {"action": None, "probability": None, "fallback_action": None}  # from blind reviewers
CHOICES: dict[str, int | None] = {"yes": 1, "no": 0, "unknown": None}


@router.get("/review")
def show_next(request: Request, token: ReviewToken, item: str | None = None) -> Response:
    """Show the row with the highest review value, or a given one; forecasts have no reviews."""
    if get_service(request).forecaster is not None:
        return redirect("/monitor")
    team = get_service(request).team
    if team is not None and not team.has(token.name):
        error = team.not_on_team(token.name)
        return render(request, "error.html.j2", error.status, error=error, user=token)
    return _show(request, token, None if item is None else check_name(item, "The id"))


@router.post("/review")
def answer(request: Request, token: ReviewToken, form: Form) -> Response:
    """Label, escalate or skip a row."""
    return _apply(request, token, form, form.get("answer", ""), "/review")


@router.post("/review/undo")
def undo(request: Request, token: ReviewToken, form: Form) -> Response:
    """Undo the last answer for a row, and show the row again."""
    item = quote(form.get("item", ""), safe="")
    return _apply(request, token, form, "undo", f"/review?item={item}")


def _apply(
    request: Request, token: Token, form: dict[str, str], answer: str, address: str
) -> Response:
    """Apply the action of a button and redirect, or show the page with the error."""
    service = get_service(request)
    action, _, text = answer.partition(":")
    try:
        item_id, label = check_name(form.get("item"), "The id"), None
        if action not in ("escalate", "skip", "undo"):
            label = _read_label(service.catalog.active_served[1], action, text, form)
        apply_action(service, item_id, token.name, action, label)
    except HTTPError as error:
        return _show(request, token, None, error)
    return redirect(address)


def _read_label(policy: ServedPolicy, action: str, text: str, form: dict[str, str]) -> Label:
    """Return the label that a form has: a class, the answers of several labels, or a number."""
    if action != "label":
        raise UNKNOWN_ANSWER
    if isinstance(policy, RegressionPolicy):
        return read_number(form.get("number", ""))
    if isinstance(policy, MultiLabelPolicy):
        names = policy.label_names
        given = [form.get(f"label:{k}", "unknown") for k in range(len(names))]
        if not set(given) <= set(CHOICES):
            raise UNKNOWN_ANSWER
        if set(given) == {"unknown"}:
            problem = "All labels are unknown"
            raise HTTPError(INVALID, problem, "Escalate or skip the row instead")
        values = {str(name): CHOICES[one] for name, one in zip(names, given, strict=True)}
        return encode_answers([values], names)[0]
    is_code = text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
    if not is_code or int(text) >= len(_names(policy)):
        raise UNKNOWN_ANSWER
    return int(text)


def _show(
    request: Request, token: Token, item_id: str | None, error: HTTPError | None = None
) -> Response:
    """Return the page of the next row, with the error of the last answer, if any."""
    values = _page_values(get_service(request), token, item_id)
    status, problem = (200, "") if error is None else (error.status, str(error))
    if error is not None and status == CONFLICT:
        problem = f"Nothing was changed: {error.problem[0].lower()}{error.problem[1:]}."
    return render(request, "review.html.j2", status, user=token, problem=problem, **values)


def _page_values(service: Service, token: Token, item_id: str | None) -> dict[str, Any]:
    """Return the content of the page."""
    store, seconds = service.store, service.settings.lease_seconds
    item, away, team = None, None, service.team
    try:
        if item_id is not None:
            item = claim_row(service, token.name, item_id)
        item = item or claim_row(service, token.name)
    except HTTPError as error:
        if error.retry_after is None:
            raise
        away = ("That is all for now", str(error))
    if team is not None and item is None and away is None:
        away = ("No row for you now", team.waits(token.name))
    last = store.last_review(token.name)
    return {
        "away": away,
        "capacity": team and team.status(token.name),
        "row": item and _describe(item, service),
        "n_waiting": store.queue_length(),
        "last": last,
        "last_text": last and _describe_answer(last, _names(service.catalog.active_served[1])),
        "blind": service.settings.blind,
        "minutes": max(round(seconds / 60), 1),
    }


def _names(policy: ServedPolicy) -> Sequence[Any]:
    """Return the names of the classes or labels; a number has none."""
    if isinstance(policy, Cascade):
        return VERDICTS
    if isinstance(policy, RegressionPolicy):
        return ()
    return policy.label_names if isinstance(policy, MultiLabelPolicy) else policy.classes


def _describe_answer(last: Mapping[str, Any], names: Sequence[Any]) -> str:
    """Return a reviewer's last answer as a sentence.

    >>> last = {"decision_id": "a", "kind": "label", "label": 1, "answers": None}
    >>> _describe_answer(last, ["cat", "dog"])
    'Row a was labeled dog.'
    >>> _describe_answer({**last, "answers": "ny?"}, ["cough", "fever", "rash"])
    'Row a was labeled: 1 yes, 1 no, 1 unknown.'
    >>> _describe_answer({**last, "answers": "12.5"}, [])
    'Row a was labeled 12.5.'
    """
    name = last["decision_id"]
    if last["kind"] == "label":
        label = label_of(last)
        if isinstance(label, str) and not names:
            return f"Row {name} was labeled {label.removesuffix('.0')}."
        if isinstance(label, str):
            counts = [label.count(mark) for mark in "yn?"]
            pairs = zip(counts, CHOICES, strict=True)
            return f"Row {name} was labeled: {', '.join(f'{n} {word}' for n, word in pairs)}."
        return f"Row {name} was labeled {names[label]}."
    if last["kind"] == "escalate":
        return f"Row {name} was escalated to a second reviewer."
    return f"Row {name} was skipped."


def _describe(item: ReviewItem, service: Service) -> dict[str, Any]:
    """Return what a reviewer may see of a row, with a choice per class."""
    policy = service.catalog.served(item.policy_id)
    facts: dict[str, Any] = {"labels": [], "row_costs": None, **describe_item(item, service)}
    facts |= {
        "is_web": item.link is not None and item.link.startswith(("https://", "http://")),
        "n_escalations": item.n_escalations,
        "is_second": item.n_answers > 0,
    }
    if isinstance(policy, MultiLabelPolicy):
        codes = {str(name): code for code, name in enumerate(policy.label_names)}
        labels = [{**HIDDEN, **one, "code": codes[one["name"]]} for one in facts["labels"]]
        return facts | {
            "labels": labels,
            "n_optional": sum(not one["is_required"] for one in labels),
            "reason": str(facts.get("reason", "")).replace("_", " "),
        }
    if isinstance(policy, RegressionPolicy):
        reason = None if service.settings.blind else VALUE_REASON_TEXTS[item.reason]
        return {**facts, "reason": reason}
    if isinstance(policy, Cascade):
        return facts | _describe_answers(facts)
    classes = policy.classes
    probabilities = facts.get("probabilities", [None] * len(classes))
    choices = [
        {"code": code, "name": str(name), "key": KEYS[code : code + 1], "probability": probability}
        for code, (name, probability) in enumerate(zip(classes, probabilities, strict=True))
    ]
    return facts | {
        "choices": choices,
        "has_search": len(choices) > len(KEYS),
        "reason": None if service.settings.blind else REASON_TEXTS[item.reason],
    }


def _describe_answers(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers of the models of a cascade, and whether the last one is correct."""
    models = facts["models"]
    model_answers = {}
    for one in models:
        sure = f" (confidence {one['confidence']:.3g})" if "confidence" in one else ""
        model_answers[f"Answer of {one['model']}"] = f"{one['answer'] or 'not sent'}{sure}"
    p = facts.get("p_correct")
    verdicts = [(1, "Correct", "c", p), (0, "Wrong", "w", None if p is None else 1 - p)]
    question = f"Is the answer of {models[-1]['model']} correct?" if models else "No model answered"
    return {
        "model_answers": model_answers,
        "question": question,
        "choices": [
            {"code": code, "name": name, "key": key, "probability": probability}
            for code, name, key, probability in (verdicts if models else [(0, "Done", "d", None)])
        ],
        "has_search": False,
        "reason": "lowest expected cost",
    }

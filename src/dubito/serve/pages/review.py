"""`/review`: the review queue, one row at a time, with a key per class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response

from dubito.decide.policy.decide import REASON_TEXTS
from dubito.serve.auth import read_form, require_scope
from dubito.serve.http_errors import CONFLICT, INVALID, HTTPError
from dubito.serve.pages.rendering import PageRoute, redirect, render
from dubito.serve.review import apply_action, describe_item
from dubito.serve.schemas import check_name
from dubito.serve.service import Service, get_service
from dubito.serve.store import ReviewItem, Token

router = APIRouter(route_class=PageRoute, include_in_schema=False)
Reviewer = Annotated[Token, Depends(require_scope("review"))]
Form = Annotated[dict[str, str], Depends(read_form)]
KEYS = "1234567890abcdfghijklmnopqrtuvwxy"  # e, s and z belong to other buttons
MAX_DIGITS = 6


@router.get("/review")
def show_next(request: Request, token: Reviewer, item: str | None = None) -> Response:
    """Show the row with the highest review value, or a given one."""
    return _show(request, token, None if item is None else check_name(item, "The id"))


@router.post("/review")
def answer(request: Request, token: Reviewer, form: Form) -> Response:
    """Label, escalate or skip a row."""
    return _apply(request, token, form, form.get("answer", ""), "/review")


@router.post("/review/undo")
def undo(request: Request, token: Reviewer, form: Form) -> Response:
    """Undo the last answer for a row, and show the row again."""
    item = quote(form.get("item", ""), safe="")
    return _apply(request, token, form, "undo", f"/review?item={item}")


def _apply(
    request: Request, token: Token, form: dict[str, str], answer: str, address: str
) -> Response:
    """Apply the action of a button and redirect, or show the page with the error."""
    service = get_service(request)
    action, _, text = answer.partition(":")
    is_code = text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
    code = int(text) if action == "label" and is_code else None
    try:
        item_id = check_name(form.get("item"), "The id")
        if action not in ("escalate", "skip", "undo") and (
            code is None or code >= len(service.catalog.active[1].classes)
        ):
            raise HTTPError(INVALID, "The page sent an unknown answer", "Reload the page")
        apply_action(service, item_id, token.name, action, code)
    except HTTPError as error:
        return _show(request, token, None, error)
    return redirect(address)


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
    item = None
    if item_id is not None:
        item = store.claim_review(token.name, item_id, lease_seconds=seconds)
    if item is None:
        item = store.claim_review(token.name, lease_seconds=seconds)
    last = store.last_review(token.name)
    return {
        "row": item and _describe(item, service),
        "n_waiting": store.queue_length(),
        "last": last,
        "last_text": last and _describe_answer(last, service.catalog.active[1].classes),
        "blind": service.settings.blind,
        "minutes": max(round(seconds / 60), 1),
    }


def _describe_answer(last: Mapping[str, Any], classes: Sequence[Any]) -> str:
    """Return a reviewer's last answer as a sentence.

    >>> _describe_answer({"decision_id": "a", "kind": "label", "label": 1}, ["cat", "dog"])
    'Row a was labeled dog.'
    """
    name = last["decision_id"]
    if last["kind"] == "label":
        return f"Row {name} was labeled {classes[last['label']]}."
    if last["kind"] == "escalate":
        return f"Row {name} was escalated to a second reviewer."
    return f"Row {name} was skipped."


def _describe(item: ReviewItem, service: Service) -> dict[str, Any]:
    """Return what a reviewer may see of a row, with a choice per class."""
    classes = service.catalog.policy(item.policy_id).classes
    facts = describe_item(item, service)
    probabilities = facts.get("probabilities", [None] * len(classes))
    choices = [
        {"code": code, "name": str(name), "key": KEYS[code : code + 1], "probability": probability}
        for code, (name, probability) in enumerate(zip(classes, probabilities, strict=True))
    ]
    return {
        **facts,
        "choices": choices,
        "has_search": len(choices) > len(KEYS),
        "is_web": item.link is not None and item.link.startswith(("https://", "http://")),
        "n_escalations": item.n_escalations,
        "reason": None if service.settings.blind else REASON_TEXTS[item.reason],
    }

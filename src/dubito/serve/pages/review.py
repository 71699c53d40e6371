"""`/review`: one row at a time, settled by one key."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from dubito.decide.policy.decide import REASON_TEXTS
from dubito.serve.bodies import as_name
from dubito.serve.pages.last_answer import last_answer
from dubito.serve.pages.rendering import PageRoute, page, see
from dubito.serve.refusals import CONFLICT, WRONG, RefusedError
from dubito.serve.security import admitted, form_of
from dubito.serve.service import Service, service_of
from dubito.serve.store import ReviewItem
from dubito.serve.store.tokens import Token

router = APIRouter(route_class=PageRoute, include_in_schema=False)
Reader = Annotated[Token, Depends(admitted("review"))]
KEYS = "1234567890abcdefghijklmnopqrtvwxy"  # s, u and z are of other buttons
MOST_DIGITS = 6


@router.get("/review")
async def show(request: Request, token: Reader, item: str | None = None) -> Response:
    """Show the row where a look is worth most, or the one that was taken back."""
    return await _shown(request, token, None if item is None else as_name(item, "The id"))


@router.post("/review")
async def answer(request: Request, token: Reader) -> Response:
    """Settle a row, hand it to a second reader, or skip it."""
    form, service = await form_of(request), service_of(request)
    try:
        await run_in_threadpool(_answered, service, form, token.name)
    except RefusedError as error:
        return await _shown(request, token, None, error)
    return see("/review")


@router.post("/review/undo")
async def undo(request: Request, token: Reader) -> Response:
    """Take back what was done last with a row, and show it again."""
    service = service_of(request)
    item_id = as_name((await form_of(request)).get("item"), "The id")
    take_back = partial(service.store.undo, lease_seconds=service.settings.lease_seconds)
    try:
        await run_in_threadpool(take_back, item_id, token.name)
    except RefusedError as error:
        return await _shown(request, token, None, error)
    return see(f"/review?item={quote(item_id, safe='')}")


def _answered(service: Service, form: dict[str, str], reader: str) -> None:
    """Do what a button says."""
    item_id = as_name(form.get("item"), "The id")
    kind, _, code = form.get("answer", "").partition(":")
    is_code = code.isascii() and code.isdigit() and len(code) <= MOST_DIGITS
    n_classes = len(service.catalog.active[1].classes)
    if kind == "unsure":
        service.store.unsure(item_id, reader)
    elif kind == "skip":
        service.store.skip(item_id, reader)
    elif kind == "settle" and is_code and int(code) < n_classes:
        service.store.settle(item_id, reader, int(code))
    else:
        raise RefusedError(WRONG, "The page sent no answer that is known", "loading it again")


async def _shown(
    request: Request, token: Token, item_id: str | None, error: RefusedError | None = None
) -> Response:
    """Return the page of the next row, with what went wrong before, if anything did."""
    service = service_of(request)
    values = await run_in_threadpool(_values_for, service, token, item_id)
    status = 200 if error is None else error.status
    problem = "" if error is None else _problem_words(error)
    return page(request, "review.html.j2", status, reader=token, problem=problem, **values)


def _problem_words(error: RefusedError) -> str:
    """Say what went wrong as a reader needs it."""
    if error.status == CONFLICT:
        return f"Nothing was changed: {error.problem[0].lower()}{error.problem[1:]}."
    return str(error)


def _values_for(service: Service, token: Token, item_id: str | None) -> dict[str, Any]:
    """Return what the page shows."""
    store, seconds = service.store, service.settings.lease_seconds
    item = None
    if item_id is not None:
        item = store.next_review(token.name, None, seconds, item_id)
    if item is None:
        item = store.next_review(token.name, None, seconds)
    last = store.read(partial(last_answer, reader=token.name))
    classes = service.catalog.active[1].classes
    return {
        "row": None if item is None else _row_of(item, service),
        "n_waiting": store.queue_length(),
        "last": last,
        "last_words": "" if last is None else last.words(classes),
        "is_blind": service.settings.is_blind,
        "minutes": max(round(seconds / 60), 1),
    }


def _row_of(item: ReviewItem, service: Service) -> dict[str, Any]:
    """Return what a reader may see of a row: in blind mode, nothing of what the model thinks."""
    policy, is_blind = service.catalog.policy(item.policy_id), service.settings.is_blind
    shares = [None] * len(policy.classes) if is_blind else item.probabilities.tolist()
    choices = [
        {"code": code, "name": str(name), "key": KEYS[code : code + 1], "share": share}
        for code, (name, share) in enumerate(zip(policy.classes, shares, strict=True))
    ]
    facts = {"id": item.id, "choices": choices, "created": item.created, "amount": item.amount}
    facts["is_long"] = len(choices) > len(KEYS)
    link = item.link
    is_web = link is not None and link.startswith(("https://", "http://"))
    facts |= {"link": link, "is_web": is_web, "n_unsure": item.n_unsure}
    if is_blind:
        return facts
    return facts | {
        "action": policy.costs.actions[item.action],
        "reason": REASON_TEXTS[item.reason],
        "is_audit": item.is_audit,
        "review_value": item.review_value,
    }

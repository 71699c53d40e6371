"""`/sign-in` and `/sign-out`: a token begins a session, a button ends it."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from dubito.serve import security
from dubito.serve.pages.rendering import PageRoute, page, see
from dubito.serve.refusals import UNKNOWN
from dubito.serve.security import doorkeeper_of, form_of, require_csrf

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/")
async def start() -> Response:
    """Begin with what waits."""
    return see("/review")


@router.get("/sign-in")
async def ask(request: Request) -> Response:
    """Ask for a token."""
    return page(request, "sign_in.html.j2", problem="")


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Begin a session if the token is valid."""
    await require_csrf(request)
    text = (await form_of(request)).get("token", "").strip()
    token = await doorkeeper_of(request).token(text)
    if token is None:
        problem = "This token is unknown, expired or revoked."
        return page(request, "sign_in.html.j2", UNKNOWN, problem=problem)
    response = see("/review" if "review" in token.scopes else "/monitor")
    security.sign_in(request, response, token)
    return response


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """End the session."""
    await require_csrf(request)
    response = see("/sign-in")
    await security.sign_out(request, response)
    return response

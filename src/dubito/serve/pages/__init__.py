"""Web pages: sign-in, review and monitor."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from dubito.serve import auth
from dubito.serve.http_errors import UNAUTHORIZED
from dubito.serve.pages import monitor_page, rendering, review
from dubito.serve.pages.rendering import PageRoute, redirect, render
from dubito.serve.service import get_service

__all__ = ["router"]

router = APIRouter(route_class=PageRoute, include_in_schema=False)
for part in (rendering, review, monitor_page):
    router.include_router(part.router)


@router.get("/")
async def start() -> Response:
    """Redirect to the review page."""
    return redirect("/review")


@router.get("/sign-in")
async def show_form(request: Request) -> Response:
    """Show the sign-in form."""
    return render(request, "sign_in.html.j2", problem="")


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Start a session if the token is valid."""
    await auth.require_csrf(request)
    text = (await auth.read_form(request)).get("token", "").strip()
    token = await auth.get_authenticator(request).check_token(text)
    if token is None:
        problem = "This token is unknown, expired or revoked."
        return render(request, "sign_in.html.j2", UNAUTHORIZED, problem=problem)
    team = get_service(request).team
    is_reviewer = "review" in token.scopes and (team is None or team.has(token.name))
    response = redirect("/review" if is_reviewer else "/monitor")
    auth.start_session(request, response, token)
    return response


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """End the session."""
    await auth.require_csrf(request)
    response = redirect("/sign-in")
    await auth.end_session(request, response)
    return response

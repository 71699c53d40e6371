"""Templates, static files, and error pages."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from importlib import resources
from typing import Any, final

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute

from dubito.report.content import environment
from dubito.serve.auth import csrf_token
from dubito.serve.http_errors import UNAUTHORIZED, HTTPError

router = APIRouter(prefix="/pages", include_in_schema=False)
SEE_OTHER = 303
_TEMPLATES = environment("dubito.serve.pages", "dubito.report")


def render(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page; its forms send the CSRF token of the session."""
    known: dict[str, Any] = {"csrf": csrf_token(request), "path": request.url.path, "user": None}
    known |= {"is_forecast": False, **values}
    return HTMLResponse(_TEMPLATES.get_template(template).render(known), status)


def redirect(address: str) -> RedirectResponse:
    """Return a redirect after a form, so that a reload does not send it again."""
    return RedirectResponse(address, SEE_OTHER)


@final
class PageRoute(APIRoute):
    """A route that answers errors with a page, and missing tokens with the sign-in page."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route with error handling."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except HTTPError as error:
                if error.status == UNAUTHORIZED:
                    return redirect("/sign-in")
                return render(request, "error.html.j2", error.status, error=error)

        return handle


@router.get("/style.css")
def get_stylesheet() -> Response:
    """Return the stylesheet of reports with the additions for pages."""
    parts = _read("dubito.report", "style.css"), _read("dubito.serve.pages", "pages.css")
    return Response("\n".join(parts), media_type="text/css")


@router.get("/review.js")
def get_script() -> Response:
    """Return the script for the keyboard shortcuts of the review page."""
    return Response(_read("dubito.serve.pages", "review.js"), media_type="text/javascript")


def _read(package: str, name: str) -> str:
    """Return a file from the templates of a package."""
    folder = resources.files(package).joinpath("templates")
    return folder.joinpath(name).read_text(encoding="utf-8")

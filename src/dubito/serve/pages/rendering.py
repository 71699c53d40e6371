"""From templates to pages, and from refusals to pages too."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cache
from importlib import resources
from typing import Any, final

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from dubito.serve.refusals import UNKNOWN, RefusedError
from dubito.serve.security import csrf_of

SEE_OTHER = 303


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page; its forms send along what proves that they are ours."""
    known = {"csrf": csrf_of(request), "path": request.url.path, "reader": None, **values}
    return HTMLResponse(_environment().get_template(template).render(known), status)


def see(address: str) -> RedirectResponse:
    """Return where to look after something was done, so that a reload does not do it again."""
    return RedirectResponse(address, SEE_OTHER)


@final
class PageRoute(APIRoute):
    """Answers what is refused with a page rather than JSON, and strangers with the way in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route, within our own."""
        handler = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await handler(request)
            except RefusedError as error:
                if error.status == UNKNOWN:
                    return see("/sign-in")
                return page(request, "refused.html.j2", error.status, error=error)

        return answered


def text_of(package: str, name: str) -> str:
    """Return the text of a file beside the templates of a package."""
    folder = resources.files(package).joinpath("templates")
    return folder.joinpath(name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    """Return our templates and those of reports; values are escaped, and none may be missing."""
    homes = [PackageLoader(home, "templates") for home in ("dubito.serve.pages", "dubito.report")]
    return Environment(
        loader=ChoiceLoader(homes),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

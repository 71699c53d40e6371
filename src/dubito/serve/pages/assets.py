"""The stylesheet and the script of the pages, served by ourselves."""

from __future__ import annotations

from fastapi import APIRouter, Response

from dubito.serve.pages.rendering import text_of

router = APIRouter(prefix="/pages", include_in_schema=False)


@router.get("/style.css")
def style() -> Response:
    """Return the stylesheet of reports, and what pages add to it."""
    parts = text_of("dubito.report", "style.css"), text_of("dubito.serve.pages", "pages.css")
    return Response("\n".join(parts), media_type="text/css")


@router.get("/review.js")
def script() -> Response:
    """Return the script that turns keys into the buttons they stand for."""
    return Response(text_of("dubito.serve.pages", "review.js"), media_type="text/javascript")

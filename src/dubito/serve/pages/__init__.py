"""Web pages: sign-in, review and monitor."""

from fastapi import APIRouter

from dubito.serve.pages import monitor_page, rendering, review, sign_in

__all__ = ["router"]

router = APIRouter()
for part in (rendering, sign_in, review, monitor_page):
    router.include_router(part.router)

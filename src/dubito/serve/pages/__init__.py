"""Web pages: sign-in, review and monitor."""

from fastapi import APIRouter

from dubito.serve.pages import monitor, rendering, review, sign_in

__all__ = ["router"]

router = APIRouter()
for part in (rendering, sign_in, review, monitor):
    router.include_router(part.router)

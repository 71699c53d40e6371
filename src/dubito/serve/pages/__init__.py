"""Pages for people: signing in, reviewing, and watching."""

from fastapi import APIRouter

from dubito.serve.pages import assets, monitor, review, sign_in

__all__ = ["router"]

router = APIRouter()
for part in (assets, sign_in, review, monitor):
    router.include_router(part.router)

"""`/healthz`, `/readyz` and `/metrics`: for those who watch over the process. No token needed."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from dubito.serve.service import service_of

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Say that the process runs."""
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(request: Request, response: Response) -> dict[str, str]:
    """Say whether it can decide: the database answers, and a policy is in force."""
    service = service_of(request)
    try:
        await run_in_threadpool(service.store.require_ready)
    except SQLAlchemyError:
        response.status_code = 503
        return {"status": "the database does not answer"}
    if service.catalog.active_id is None:
        response.status_code = 503
        return {"status": "no policy is in force"}
    return {"status": "ok"}


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Return counts as Prometheus reads them."""
    service = service_of(request)
    waiting = await run_in_threadpool(service.store.queue_length)
    gauges = {
        "dubito_review_waiting": waiting,
        "dubito_policy_active": service.catalog.active_id or 0,
    }
    return Response(service.metrics.text(gauges), media_type="text/plain; version=0.0.4")

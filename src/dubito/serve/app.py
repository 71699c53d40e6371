"""`create_app`: the service as an application for any ASGI server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import getrandbits
from typing import Any, final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from dubito import __version__
from dubito.errors import DubitoError, TooLargeError
from dubito.kernels.blocks import kept_threads
from dubito.serve import api
from dubito.serve.catalog import Catalog
from dubito.serve.logs import log_event
from dubito.serve.metrics import Metrics
from dubito.serve.pages import router as pages
from dubito.serve.refusals import TOO_LARGE, WRONG, RefusedError
from dubito.serve.security import Authenticator, SecureHeaders
from dubito.serve.service import Service
from dubito.serve.settings import Settings
from dubito.serve.store import Store

LOOK_SECONDS = 1.0  # between looks which policy is in force
FORGET_SECONDS = 3600.0
DAY = 86_400.0


def create_app(store: Store, settings: Settings) -> FastAPI:
    """Return the service on a store; the store is closed when the server shuts down."""
    service = Service(store, settings, Catalog(store))
    app = FastAPI(
        title="dubito",
        version=__version__,
        summary="Decisions by least expected cost, and a review of what was rejected.",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=_living,
    )
    app.state.service, app.state.store, app.state.settings = service, store, settings
    app.state.doorkeeper = Authenticator(store)
    for router in (
        api.health, api.deciding, api.labeling, api.reviewing, api.monitoring, api.policies, pages
    ):  # fmt: skip
        app.include_router(router)
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(DubitoError, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(SQLAlchemyError, _unavailable)
    app.add_middleware(Noted, metrics=service.metrics)
    app.add_middleware(SecureHeaders)  # outermost: an answer that something failed has them too
    return app


@asynccontextmanager
async def _living(app: FastAPI) -> AsyncIterator[None]:
    """Follow the policy in force and forget what is old, as long as the server runs."""
    service: Service = app.state.service
    following = asyncio.create_task(_follow(service))
    try:
        with kept_threads():  # or each request would set how many threads products have, and back
            yield
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        await run_in_threadpool(service.store.close)


async def _follow(service: Service) -> None:
    """Look again and again which policy is in force, and now and then for what is too old."""
    forgotten = -FORGET_SECONDS
    while True:
        try:
            await run_in_threadpool(service.catalog.refresh)
            days = service.settings.retention_days
            if days is not None and time.monotonic() - forgotten > FORGET_SECONDS:
                forgotten = time.monotonic()
                n_rows = await run_in_threadpool(service.store.forget, time.time() - days * DAY)
                log_event("old decisions deleted", rows=n_rows)
        except SQLAlchemyError as error:
            log_event("the database does not answer", trace=error)
        await asyncio.sleep(LOOK_SECONDS)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    """Answer with what is wrong and what to try."""
    status = TOO_LARGE if isinstance(error, TooLargeError) else WRONG
    if isinstance(error, RefusedError):
        status = error.status
    headers = {"www-authenticate": "Bearer"} if status == 401 else None
    return JSONResponse({"detail": str(error)}, status, headers)


async def _malformed(request: Request, error: Exception) -> JSONResponse:
    """Answer with what is wrong with a part of the address."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return JSONResponse({"detail": f"`{where}`: {first['msg']}."}, WRONG)


async def _unavailable(request: Request, error: Exception) -> JSONResponse:
    """Answer that nothing was kept, as the database did not."""
    log_event("the database failed", path=request.url.path, trace=error)
    detail = "The database does not answer; nothing was kept. Try again later."
    return JSONResponse({"detail": detail}, 503, {"retry-after": "1"})


@final
class Noted:
    """Counts every request, and writes it down: its path, never its headers or query.

    What failed is answered here, with the number under which the log tells more.
    """

    def __init__(self, app: Any, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, number = time.perf_counter(), 0, f"{getrandbits(64):016x}"

        async def send_noted(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"x-request-id", number.encode()))
            await send(message)

        try:
            await self.app(scope, receive, send_noted)
        except Exception as error:
            log_event("failed", path=scope["path"], request=number, trace=error)
            if status:  # an answer has begun already, and must not look whole
                raise
            detail = f"The service failed; its log tells more about request {number}."
            await JSONResponse({"detail": detail}, 500)(scope, receive, send_noted)
        finally:
            self.note(scope, status, number, time.perf_counter() - start)

    def note(self, scope: Any, status: int, number: str, seconds: float) -> None:
        """Count and write down a request."""
        route = getattr(scope.get("route"), "path", "none")
        self.metrics.count("dubito_requests_total", route=route, status=status)
        self.metrics.took(seconds)
        known = scope.get("state", {})
        log_event(
            "request",
            method=scope["method"],
            path=scope["path"],
            status=status,
            seconds=round(seconds, 6),
            rows=known.get("n_rows"),
            reader=known.get("reader"),
            request=number,
        )

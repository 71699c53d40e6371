"""The service as an ASGI application: routes, background task, errors, request log, health."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import getrandbits
from typing import Any, final

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from dubito import __version__
from dubito.errors import DubitoError, TooLargeError
from dubito.kernels.blocks import kept_threads
from dubito.serve import decide, labels, monitor, pages, policies, review, schemas
from dubito.serve.auth import Authenticator, HostCheck, SecurityHeaders
from dubito.serve.http_errors import INVALID, TOO_LARGE, HTTPError
from dubito.serve.service import (
    DAY,
    Metrics,
    PolicyCatalog,
    Service,
    Settings,
    get_service,
    log_event,
)
from dubito.serve.store import Store

REFRESH_SECONDS = 1.0  # between checks of which policy is active
MAX_LOGGED = 500  # characters of a path
CLIENT_GONE = 499  # in log and metrics, for a client that left before the response
RETENTION_SECONDS = 3600.0  # between deletions of old decisions
health = APIRouter(tags=["health"])


def create_app(store: Store, settings: Settings) -> FastAPI:
    """Return the service as an ASGI application.

    Parameters
    ----------
    store : Store
        The database; it is closed when the server shuts down.
    settings : Settings
        Limits and review settings.
    """
    service = Service(store, settings, PolicyCatalog(store))
    service.batcher = decide.MicroBatcher(
        lambda requests: decide.decide_batch(requests, settings, service.rng)
    )
    app = FastAPI(
        title="dubito",
        version=__version__,
        summary="Decisions of lowest expected cost, and a review queue for rejected rows.",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
    )
    app.state.service, app.state.authenticator = service, Authenticator(store)
    bearer, errors = [schemas.BEARER], schemas.ERRORS
    for module in (decide, labels, review, monitor, policies):
        app.include_router(module.router, dependencies=bearer, responses=errors)
    app.include_router(pages.router)
    app.include_router(health)
    app.add_exception_handler(DubitoError, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_bad_parameter)
    app.add_exception_handler(SQLAlchemyError, _answer_unavailable)
    app.add_middleware(HostCheck, allowed_hosts=settings.allowed_hosts)
    app.add_middleware(RequestLog, metrics=service.metrics)
    app.add_middleware(SecurityHeaders)  # outermost: responses to failures have them too
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run the background task while the server runs, then close the store."""
    service: Service = app.state.service
    background = asyncio.create_task(_run_background(service))
    try:
        with kept_threads():  # otherwise each request would set the thread limits, and reset them
            yield
    finally:
        background.cancel()
        with suppress(asyncio.CancelledError):
            await background
        await run_in_threadpool(service.store.close)


async def _run_background(service: Service) -> None:
    """Follow the active policy, and delete decisions beyond the retention period."""
    last_deletion = -RETENTION_SECONDS
    while True:
        try:
            await run_in_threadpool(service.catalog.refresh)
            days = service.settings.retention_days
            if days is not None and time.monotonic() - last_deletion > RETENTION_SECONDS:
                last_deletion = time.monotonic()
                before = time.time() - days * DAY
                n_rows = await run_in_threadpool(service.store.delete_before, before)
                log_event("old decisions deleted", rows=n_rows)
        except SQLAlchemyError as error:
            log_event("the database does not answer", trace=error)
        await asyncio.sleep(REFRESH_SECONDS)


async def _answer_error(request: Request, error: Exception) -> JSONResponse:
    """Answer with the problem and its remedy."""
    status = TOO_LARGE if isinstance(error, TooLargeError) else INVALID
    if isinstance(error, HTTPError):
        status = error.status
    headers = {"www-authenticate": "Bearer"} if status == 401 else None
    return JSONResponse({"detail": str(error)}, status, headers)


async def _answer_bad_parameter(request: Request, error: Exception) -> JSONResponse:
    """Answer with the problem of a path or query parameter."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    return JSONResponse({"detail": f"`{name}`: {first['msg']}."}, INVALID)


async def _answer_unavailable(request: Request, error: Exception) -> JSONResponse:
    """Answer that the database failed and nothing was stored."""
    log_event("the database failed", path=request.url.path, trace=error)
    detail = "The database does not answer; nothing was stored. Try again later."
    return JSONResponse({"detail": detail}, 503, {"retry-after": "1"})


@final
class RequestLog:
    """Middleware that counts and logs every request: the path, never headers or the query.

    An unexpected exception is answered with the number under which the log has the details.
    """

    def __init__(self, app: Any, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, number = time.perf_counter(), 0, f"{getrandbits(64):016x}"

        async def send_with_number(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"x-request-id", number.encode()))
            await send(message)

        try:
            await self.app(scope, receive, send_with_number)
        except ClientDisconnect:
            status = status or CLIENT_GONE
        except Exception as error:
            path = scope["path"][:MAX_LOGGED]
            log_event("request failed", path=path, request=number, trace=error)
            if status:  # the response has begun, and must not look complete
                raise
            detail = f"The service failed. See request {number} in its log."
            await JSONResponse({"detail": detail}, 500)(scope, receive, send_with_number)
        finally:
            self._record(scope, status, number, time.perf_counter() - start)

    def _record(self, scope: Any, status: int, number: str, seconds: float) -> None:
        """Count and log a request."""
        route = getattr(scope.get("route"), "path", "none")
        self.metrics.requests.labels(route, status).inc()
        self.metrics.seconds.observe(seconds)
        state = scope.get("state", {})
        log_event(
            "request",
            method=scope["method"],
            path=scope["path"][:MAX_LOGGED],
            status=status,
            seconds=round(seconds, 6),
            rows=state.get("n_rows"),
            user=state.get("user"),
            request=number,
        )


@health.get("/healthz")
async def check_health() -> dict[str, str]:
    """Return that the process runs."""
    return {"status": "ok"}


@health.get("/readyz")
def check_readiness(request: Request, response: Response) -> dict[str, str]:
    """Return whether the service can decide: the database answers and a policy is active."""
    service = get_service(request)
    status = "ok" if service.catalog.active_id is not None else "no policy is active"
    try:
        service.store.ping()
    except SQLAlchemyError:
        status = "the database does not answer"
    response.status_code = 200 if status == "ok" else 503
    return {"status": status}


@health.get("/metrics")
def get_metrics(request: Request) -> Response:
    """Return the metrics in the Prometheus text format."""
    service = get_service(request)
    service.metrics.waiting.set(service.store.queue_length())
    service.metrics.active_policy.set(service.catalog.active_id or 0)
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

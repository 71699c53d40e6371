"""The service as an ASGI application: routes, background task, errors, request log, health."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import getrandbits
from typing import Any, final

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Match

from dubito import __version__
from dubito.decide import ReviewTeam
from dubito.errors import DubitoError, TooLargeError
from dubito.kernels.blocks import kept_threads
from dubito.serve import decide, forecasts, labels, monitor, pages, policies, schemas, team
from dubito.serve.auth import Authenticator, HostCheck, SecurityHeaders
from dubito.serve.http_errors import (
    INVALID,
    MAX_SHOWN,
    NOT_ALLOWED,
    NOT_FOUND,
    TOO_LARGE,
    UNAVAILABLE,
    HTTPError,
)
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

METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
MAX_LOGGED = 500  # characters of a path
CLIENT_GONE = 499  # in log and metrics, for a client that left before the response
health = APIRouter(tags=["health"])


def create_app(store: Store, settings: Settings, reviewers: ReviewTeam | None = None) -> FastAPI:
    """Return the service as an ASGI application.

    Parameters
    ----------
    store : Store
        The database; it is closed when the server shuts down.
    settings : Settings
        Limits and review settings.
    reviewers : ReviewTeam or None
        The team that reviews rows, within its capacity. None lets anyone review.
    """
    service = Service(store, settings, PolicyCatalog(store))
    service.batcher = decide.MicroBatcher(
        lambda requests: decide.decide_batch(requests, settings, service.rng)
    )
    if store.has_forecasts():
        service.forecaster = forecasts.Forecaster(store)
    if reviewers is not None:
        service.team = team.TeamQueue.open(reviewers, store, service.catalog, settings)
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
    for module in (decide, forecasts, labels, team, monitor, policies):
        app.include_router(module.router, dependencies=bearer, responses=errors)
    app.include_router(pages.router)
    app.include_router(health)
    app.add_exception_handler(DubitoError, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_bad_parameter)
    app.add_exception_handler(HTTPException, _answer_no_route)
    app.add_exception_handler(SQLAlchemyError, _answer_unavailable)
    app.add_middleware(HostCheck, allowed_hosts=settings.allowed_hosts)
    app.add_middleware(RequestLog, metrics=service.metrics)
    app.add_middleware(SecurityHeaders)  # outermost: responses to failures have them too
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run the background tasks while the server runs, then close the store."""
    service: Service = app.state.service
    jobs = {"active policy": _follow_policy, "retention": _delete_old}
    tasks = [asyncio.create_task(_repeat(service, *one)) for one in jobs.items()]
    gc.collect()
    gc.freeze()  # what is loaded now stays: a collection would search it while all requests wait
    try:
        with kept_threads():  # otherwise each request would set the thread limits, and reset them
            yield
    finally:
        for task in tasks:
            task.cancel()
        gc.unfreeze()
        await asyncio.gather(*tasks, return_exceptions=True)
        await run_in_threadpool(service.store.close)


async def _repeat(service: Service, name: str, task: Callable[[Service], float]) -> None:
    """Run a task again and again, after the seconds that it returns; no failure ends it.

    The last failure is in `service.problems` until the task succeeds, and is logged once.
    """
    while True:
        try:
            seconds = await run_in_threadpool(task, service)
            service.problems.pop(name, None)
        except Exception as error:
            seconds = service.settings.refresh_seconds
            problem = "the database does not answer"
            if not isinstance(error, SQLAlchemyError):
                problem = f"{error}" if isinstance(error, DubitoError) else type(error).__name__
            if service.problems.get(name) != problem:
                log_event(f"{name}: {problem}", trace=error)
            service.problems[name] = problem
        await asyncio.sleep(seconds)


def _follow_policy(service: Service) -> float:
    """Load the policy that is active now; while it cannot be read, the last one stays in use."""
    service.catalog.refresh()
    return service.settings.refresh_seconds


def _delete_old(service: Service) -> float:
    """Delete decisions beyond the retention period."""
    days = service.settings.retention_days
    if days is not None:
        if service.forecaster is not None:
            service.store.write(service.forecaster.compact)  # the log has none that are older
        n_rows = service.store.delete_before(time.time() - days * DAY)
        log_event("old decisions deleted", rows=n_rows)
    return service.settings.cleanup_seconds


async def _answer_error(request: Request, error: Exception) -> JSONResponse:
    """Answer with the problem and its remedy."""
    status, headers = TOO_LARGE if isinstance(error, TooLargeError) else INVALID, {}
    if isinstance(error, HTTPError):
        status, headers = error.status, error.headers
    return JSONResponse({"detail": str(error)}, status, headers)


async def _answer_bad_parameter(request: Request, error: Exception) -> JSONResponse:
    """Answer with the problem of a path or query parameter."""
    assert isinstance(error, RequestValidationError)
    return await _answer_error(request, schemas.parameter_error(error.errors()))


async def _answer_no_route(request: Request, error: Exception) -> JSONResponse:
    """Answer that a path is unknown, or which methods it allows."""
    assert isinstance(error, HTTPException)
    path, headers = (
        request.url.path[:MAX_SHOWN],
        {k.lower(): v for k, v in (error.headers or {}).items()},
    )
    detail = f"{error.detail}."
    if error.status_code == NOT_FOUND:
        detail = f"There is no path {path!r}. See /v1/openapi.json for all paths."
    elif error.status_code == NOT_ALLOWED:
        methods = _allowed_methods(request)
        detail = f"The path {path!r} does not allow {request.method[:MAX_SHOWN]}. "
        detail += f"Use {' or '.join(methods)}."
        headers["allow"] = ", ".join(methods)
    return JSONResponse({"detail": detail}, error.status_code, headers)


def _allowed_methods(request: Request) -> list[str]:
    """Return the methods of all routes of a path; a route alone knows its own."""
    scopes = {name: {**request.scope, "method": name} for name in METHODS}
    routes = request.app.routes
    return [
        name
        for name, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in routes)
    ]


async def _answer_unavailable(request: Request, error: Exception) -> JSONResponse:
    """Answer that the database failed: a small request was not stored, a large one not wholly."""
    log_event("the database failed", path=request.url.path, trace=error)
    detail = "The database does not answer, and the request was not completed. Send it again later."
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
async def check_health() -> schemas.HealthResponse:
    """Return that the process runs."""
    return schemas.HealthResponse(status="ok")


@health.get(
    "/readyz",
    response_model_exclude_none=True,
    responses={UNAVAILABLE: {"model": schemas.ReadinessResponse}},
)
async def check_readiness(request: Request, response: Response) -> schemas.ReadinessResponse:
    """Return whether the service can decide: a policy is active, and decisions can be stored.

    `problems` says why background tasks fail: another policy is active but cannot be read, or old
    decisions cannot be deleted. The service decides nevertheless.
    """
    service = get_service(request)
    async with service.readiness_lock:  # anyone may ask: one write per second is enough
        if time.monotonic() - service.written_at > service.settings.refresh_seconds:
            service.write_problem = await run_in_threadpool(_check_writing, service)
            service.written_at = time.monotonic()
    status = service.write_problem
    if service.catalog.active_id is None and service.forecaster is None:
        status = status or "no policy is active"
    response.status_code = UNAVAILABLE if status else 200
    problems = dict(service.problems) or None
    return schemas.ReadinessResponse(status=status or "ok", problems=problems)


def _check_writing(service: Service) -> str:
    """Return why nothing can be written; empty if it can."""
    try:
        service.store.check_writing()
    except TimeoutError:
        return "writing takes too long"
    except SQLAlchemyError as error:
        log_event("nothing can be written", trace=error)
        return "the database cannot be written to"
    return ""


@health.get("/metrics", response_class=PlainTextResponse)
def get_metrics(request: Request) -> Response:
    """Return the metrics in the Prometheus text format."""
    service = get_service(request)
    service.metrics.waiting.set(service.store.queue_length())
    service.metrics.active_policy.set(service.catalog.active_id or 0)
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

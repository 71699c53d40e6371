"""The state of a service process: settings, policies, metrics and logs."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, final

import numpy as np
from fastapi import Request
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dubito.arrays import BoolArray, as_fraction
from dubito.decide.cascade import Cascade
from dubito.decide.policy.loading import AnyPolicy, policy_or_cascade_from_json
from dubito.errors import BadValueError, DubitoError
from dubito.serve.http_errors import CONFLICT, NOT_FOUND, UNAVAILABLE, HTTPError
from dubito.serve.store import Store
from dubito.serve.store.policies import FILE, ServedPolicy

if TYPE_CHECKING:
    from dubito.serve.decide import MicroBatcher
    from dubito.serve.forecasts import Forecaster
    from dubito.serve.team import TeamQueue

LOGGER = logging.getLogger("dubito.serve")
DAY = 86_400.0
LABELS = ("audited", "all")
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:/\[\]]+)(?::\d*)?")
INLINE_BYTES = 64_000  # of a small request
MAX_BULK = 2  # large requests at a time: one is parsed while another one is written
LATENCY_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


def host_name(host: str) -> str:
    """Return a host in lower case, without port and brackets; empty if it is none.

    >>> host_name("LOCALHOST:8000"), host_name("[::1]:8000"), host_name("::1"), host_name("a/b")
    ('localhost', '::1', '::1', '')
    """
    text = f"[{host}]" if host.count(":") > 1 and "[" not in host else host
    found = HOST.fullmatch(text.lower())
    return found[1].strip("[]") if found else ""


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """Limits and review settings of the service.

    Parameters
    ----------
    audit_fraction : float
        Fraction of all rows sent to review at random, whatever was decided. Metrics need it.
    labels : {"audited", "all"}
        Which labels metrics, alarms and refits rest on: those of audited and rejected rows, or
        those of all rows, which arrive sooner or later. Then no rows are audited.
    blind : bool
        Hide the model's prediction from reviewers.
    retention_days : float or None
        Delete decisions that are older; None keeps all.
    lease_seconds : float
        How long a reviewer holds a claimed row.
    refresh_seconds : float
        Time between checks of which policy is active; as long, the result of a test write is valid.
    cleanup_seconds : float
        Time between deletions of old decisions.
    max_bytes, max_rows, max_columns : int
        Limits of a request.
    max_values : int
        Limit of the numbers, strings, lists and objects in a JSON body; Arrow streams have none.
    allowed_hosts : sequence of str
        Host names that clients use, besides localhost and the addresses of this machine.

    Examples
    --------
    >>> Settings(audit_fraction=0.05).audit_fraction
    0.05
    """

    audit_fraction: float = 0.01
    labels: str = "audited"
    blind: bool = False
    retention_days: float | None = None
    lease_seconds: float = 600.0
    refresh_seconds: float = 1.0
    cleanup_seconds: float = 3600.0
    max_bytes: int = 32 * 1024 * 1024
    max_rows: int = 50_000
    max_columns: int = 10_000
    max_values: int = 600_000
    allowed_hosts: Sequence[str] = ()

    @property
    def audit_probability(self) -> float:
        """The probability that the label of a row is wanted: 1 if those of all rows are."""
        return 1.0 if self.labels == "all" else self.audit_fraction

    def draw_audit(self, rng: np.random.Generator, n_rows: int) -> BoolArray:
        """Return which rows are drawn for the audit: none if the labels of all are expected."""
        fraction = 0.0 if self.labels == "all" else self.audit_fraction
        return rng.random(n_rows) < fraction

    def __post_init__(self) -> None:
        as_fraction(self.audit_fraction, "audit_fraction", "Settings")
        if self.labels not in LABELS:
            rule, fix = "must be audited or all", "Pass --labels all"
            raise BadValueError("--labels", "dubito serve", rule, repr(self.labels), fix)
        times = ("retention_days", "lease_seconds", "refresh_seconds", "cleanup_seconds")
        for name in (*times, "max_bytes", "max_rows", "max_columns", "max_values"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                rule, fix = "must be a number above 0", f"Use {name}=30"
                raise BadValueError(name, "Settings", rule, f"{value!r}", fix)
        for host in self.allowed_hosts:
            if not host_name(host):
                rule, fix = "must be a host name or address", "Use --allowed-host example.org"
                raise BadValueError("--allowed-host", "dubito serve", rule, repr(host), fix)


@final
class PolicyCatalog:
    """The policies that this process has loaded, and the active one."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.known: dict[int, ServedPolicy] = {}
        self.unreadable: dict[int, HTTPError] = {}
        self.active_id: int | None = None
        self.refresh()

    def refresh(self) -> None:
        """Read which policy is active: other processes may have activated another one."""
        active = self.store.active_id()
        if active is not None:
            self.served(active)
        self.active_id = active

    def policy(self, policy_id: int) -> AnyPolicy:
        """Return a policy by its id, or raise as `served` does, or if it is a cascade."""
        return _require_policy(self.served(policy_id))

    def served(self, policy_id: int) -> ServedPolicy:
        """Return a policy or cascade, or raise if it does not exist or is of a newer format."""
        if policy_id in self.unreadable:
            raise self.unreadable[policy_id]
        if policy_id not in self.known:
            found = self.store.find_document(policy_id)
            if found is None:
                problem = f"There is no policy {policy_id}"
                raise HTTPError(NOT_FOUND, problem, "Use an id from GET /v1/policies")
            try:
                self.known[policy_id] = policy_or_cascade_from_json(found[1], FILE)
            except DubitoError as error:
                problem = f"This version of dubito cannot read policy {policy_id}"
                self.unreadable[policy_id] = HTTPError(UNAVAILABLE, problem, "Upgrade dubito")
                raise self.unreadable[policy_id] from error
        return self.known[policy_id]

    def find(self, policy_id: int) -> ServedPolicy | None:
        """Return a policy or cascade by its id, or None if it cannot be read."""
        with suppress(HTTPError):
            return self.served(policy_id)
        return None

    @property
    def active(self) -> tuple[int, AnyPolicy]:
        """The id of the active policy, and the policy, which is no cascade."""
        policy_id, policy = self.active_served
        return policy_id, _require_policy(policy)

    @property
    def active_cascade(self) -> tuple[int, Cascade] | None:
        """The id of the active cascade, and the cascade; None if something else is served."""
        if (active := self.active_id) is None:  # another thread may change it
            return None
        found = self.known[active]
        return (active, found) if isinstance(found, Cascade) else None

    @property
    def active_served(self) -> tuple[int, ServedPolicy]:
        """The id of the active policy, and the policy or cascade."""
        if (active := self.active_id) is not None:  # another thread may change it
            return active, self.known[active]
        if self.store.has_forecasts():
            problem = "This service has forecasts, and no policy"
            raise HTTPError(CONFLICT, problem, "Use POST /v1/forecasts")
        fix = "Upload one with POST /v1/policies and activate it"
        raise HTTPError(CONFLICT, "No policy is active", fix)


def _require_policy(policy: ServedPolicy) -> AnyPolicy:
    """Return a policy, or raise if it is a cascade."""
    if isinstance(policy, Cascade):
        problem = "The active policy is a cascade, and this needs a policy of another kind"
        raise HTTPError(CONFLICT, problem, "Serve a policy written by `dubito fit`")
    return policy


@final
class Metrics:
    """Prometheus metrics of one application.

    Examples
    --------
    >>> metrics = Metrics()
    >>> metrics.labels.inc(2)
    >>> [line for line in metrics.text().splitlines() if line.startswith("dubito_labels_total")]
    ['dubito_labels_total 2.0']
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        seconds = partial(Histogram, registry=self.registry, buckets=LATENCY_BUCKETS)
        labels = ["route", "status"]
        self.requests = counter("dubito_requests", "Requests by route and status.", labels)
        self.seconds = seconds("dubito_request_seconds", "Duration of requests.")
        self.decisions = counter("dubito_decisions", "Decided rows by action.", ["action"])
        self.labels = counter("dubito_labels", "New labels.")
        self.waiting = gauge("dubito_review_waiting", "Rows that wait for review.")
        self.active_policy = gauge("dubito_policy_active", "Id of the active policy.")

    def text(self) -> str:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry).decode()


@final
@dataclass(slots=True, eq=False)
class Service:
    """The state of one application.

    `rng` draws the rows to audit; it is seeded by the operating system, so nobody can predict them.
    `bulk` is held by large requests, so that only a few at a time compete with small ones.
    `problems` says why background tasks fail, by task. `forecaster` has the state of forecasts,
    if these are served and not a policy; `team` the queue of a review team, if there is one.
    """

    store: Store
    settings: Settings
    catalog: PolicyCatalog
    metrics: Metrics = field(default_factory=Metrics)
    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    batcher: MicroBatcher[Any, Any] = field(init=False)
    forecaster: Forecaster | None = None
    team: TeamQueue | None = None
    bulk: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_BULK))
    problems: dict[str, str] = field(default_factory=dict)
    readiness_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    written_at: float = -inf
    write_problem: str = ""

    def turn(self, body: bytes) -> AbstractAsyncContextManager[None]:
        """Return what a request waits for before its body is parsed: nothing if it is small."""
        return self.bulk if len(body) > INLINE_BYTES else nullcontext()


def get_service(request: Request) -> Service:
    """Return the service of a request."""
    service: Service = request.app.state.service
    return service


@final
class JSONFormatter(logging.Formatter):
    """Formats a log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def configure_logging() -> None:
    """Send the logs of the service and of uvicorn to stderr as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONFormatter())
    for name in ("dubito.serve", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    # The access log of uvicorn would contain query strings.
    logging.getLogger("uvicorn.access").disabled = True


def log_event(event: str, *, trace: BaseException | None = None, **fields: Any) -> None:
    """Log an event with named fields; never pass headers, queries or bodies."""
    level = logging.INFO if trace is None else logging.ERROR
    LOGGER.log(level, event, extra={"fields": fields}, exc_info=trace)

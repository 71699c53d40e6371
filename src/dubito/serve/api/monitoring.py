"""`GET /v1/monitor`: whether confidence still means what it says."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool

from dubito.serve.api.schemas import BEARER, REFUSALS
from dubito.serve.monitor import DAY, monitor_figures
from dubito.serve.security import admitted
from dubito.serve.service import Service, service_of
from dubito.serve.standing import rows_taken
from dubito.serve.store.tokens import Token

router = APIRouter(prefix="/v1", dependencies=[BEARER], responses=REFUSALS, tags=["monitor"])


@router.get("/monitor")
async def monitor(
    request: Request,
    token: Annotated[Token, Depends(admitted("review", "admin"))],
    days: Annotated[float, Query(gt=0, le=3650)] = 30.0,
) -> dict[str, Any]:
    """Return figures of the active policy over the last days, from labels so far.

    Alarms look at all rows that it decided, as they would not stay valid if old ones were dropped.
    """
    return await run_in_threadpool(_figures, service_of(request), days)


def _figures(service: Service, days: float) -> dict[str, Any]:
    """Return the figures as plain numbers."""
    policy_id, policy = service.catalog.active
    rows = service.store.rows_for_monitor(time.time() - days * DAY)
    mine = rows_taken(rows, rows.policy_id == policy_id)
    found = monitor_figures(mine, policy, service.store.history_of(policy_id))
    told = _plain(asdict(found))
    return {"policy": policy_id, "days": days, "n_rows": found.whole.n_rows, **told}


def _plain(value: Any) -> Any:
    """Return figures as JSON holds them; what is no finite number is null."""
    if isinstance(value, dict):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value

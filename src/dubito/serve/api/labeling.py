"""`POST /v1/labels`: truth that arrives later."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool

from dubito.data.stream import read_stream
from dubito.serve.api.schemas import ARROW, BEARER, REFUSALS, body_of, list_of, text_of
from dubito.serve.bodies import as_codes, as_fields, as_ids, as_json, read_body
from dubito.serve.logs import log_event
from dubito.serve.refusals import TOO_LARGE, WRONG, RefusedError
from dubito.serve.security import admitted
from dubito.serve.service import Service, service_of
from dubito.serve.store import labeling
from dubito.serve.store.tables import LONGEST_ID
from dubito.serve.store.tokens import Token

router = APIRouter(prefix="/v1", dependencies=[BEARER], responses=REFUSALS, tags=["labels"])
BODY = body_of(
    {
        "ids": list_of(text_of(LONGEST_ID)),
        "labels": list_of({"type": ["string", "integer", "number"]}),
    },
    ["ids", "labels"],
    or_arrow=True,
)


@router.post("/labels", openapi_extra=BODY)
async def labels(
    request: Request,
    token: Annotated[Token, Depends(admitted("decide"))],
    correct: Annotated[bool, Query(description="Take the place of labels that differ.")] = False,
) -> dict[str, int]:
    """Keep labels, before or after their decisions; those that came before are not kept twice.

    A label that differs from the one before is refused, unless the request corrects: then the last
    one counts, and what was there before stays on record.
    """
    service = service_of(request)
    body = await read_body(request, service.settings.most_bytes)
    is_arrow = request.headers.get("content-type", "").partition(";")[0].strip() == ARROW
    codes = await run_in_threadpool(_codes_by_id, service, body, is_arrow)
    work = partial(
        labeling.add_labels,
        ids=list(codes),
        codes=list(codes.values()),
        corrected_by=token.name if correct else None,
    )
    kept = await asyncio.wrap_future(service.store.submit(work))
    service.metrics.count("dubito_labels_total", kept.n_new)
    if kept.n_corrected:
        log_event("labels corrected", rows=kept.n_corrected, reader=token.name)
    request.state.n_rows = len(codes)
    return {"received": len(codes), "new": kept.n_new, "corrected": kept.n_corrected}


def _codes_by_id(service: Service, body: bytes, is_arrow: bool) -> dict[str, int]:
    """Return the class number that each id is said to be of."""
    most = service.settings.max_samples
    if is_arrow:
        limits = {"max_samples": most, "most_columns": 1, "most_bytes": service.settings.most_bytes}
        sent: Any = read_stream(body, **limits)
        sent = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in sent.items()}
    else:
        sent = as_json(body)
    fields = as_fields(sent, ("ids", "labels"), ("ids", "labels"))
    if isinstance(fields["ids"], list) and len(fields["ids"]) > most:
        raise RefusedError(TOO_LARGE, f"A request may have {most:,} rows at most", "fewer rows")
    _, policy = service.catalog.active
    codes = as_codes(fields["labels"], policy.classes)
    ids = as_ids(fields["ids"], len(codes))
    found = dict(zip(ids, codes, strict=True))
    if any(found[name] != code for name, code in zip(ids, codes, strict=True)):
        raise RefusedError(WRONG, "An id comes twice with different labels", "one label an id")
    return found

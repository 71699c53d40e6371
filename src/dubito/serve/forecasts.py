"""`/v1/forecasts`: intervals or sets of forecasts over time, which adapt as outcomes arrive.

The online state is that of a log in the database: a state, and the forecasts and outcomes since, in
the order in which they were committed. Each process applies them in this order, so that all have
the same state, and that after a restart is the one before, to the last bit.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from math import ceil, isfinite
from os import PathLike, fspath
from typing import Any, final
from uuid import uuid4

import numpy as np
from fastapi import APIRouter, Request
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool

from dubito.arrays import FloatArray
from dubito.doubt import OnlineConformal
from dubito.doubt.conformal.panel import read_forecasts
from dubito.errors import BadTypeError, BadValueError
from dubito.formatting import short_percent
from dubito.measure.regression import central_interval
from dubito.outputs import Logits, Normal, Probabilities, Quantiles, Samples
from dubito.serialization.documents import decode_document, encode_document, read_text
from dubito.serve import schemas
from dubito.serve.auth import DecideToken, LookupToken
from dubito.serve.forecast_metrics import ForecastReport, StoredForecasts
from dubito.serve.http_errors import CONFLICT, INVALID, NOT_FOUND, HTTPError
from dubito.serve.rows import as_http_error, require_few
from dubito.serve.service import DAY, Service, get_service
from dubito.serve.store import Store
from dubito.serve.store.decisions import Label, digest_of
from dubito.serve.store.labels import LabelCounts, add_labels, find_labels
from dubito.serve.store.policies import (
    checksum,
    find_forecasts,
    insert_forecasts,
    lock_log,
    log_events,
    write_event,
)
from dubito.serve.store.writer import PART_ROWS
from dubito.serve.value_rows import encode_targets, finite, read_numbers

router = APIRouter(prefix="/v1", tags=["forecasts"])
CALLER = "POST /v1/forecasts"
FILE = "file"  # the key of the checksum of the file that a state began with
STATE = "state"  # of the digest of a forecast of which the state has the bounds alone
MAX_EVENTS = 256  # after which the log begins with a new state
FIELDS = {
    "points": (("points",),),
    "spread": (("mean", "std"), ("quantiles", "levels"), ("samples",)),
    "classes": (("probabilities",), ("logits",)),
}
EXAMPLES = {
    "points": '{"points": [120.0], "time": ["2024-11-23"]}',
    "spread": '{"mean": [120.0], "std": [8.0], "time": ["2024-11-23"]}',
    "classes": '{"probabilities": [[0.7, 0.3]], "time": ["2024-11-23"]}',
}
KINDS: dict[tuple[str, ...], Callable[..., Any]] = {
    ("mean", "std"): Normal,
    ("quantiles", "levels"): Quantiles,
    ("samples",): Samples,
    ("probabilities", "classes"): Probabilities,
    ("logits", "classes"): Logits,
}
OUTPUTS = [name for forms in FIELDS.values() for names in forms for name in names]


@final
class Forecaster:
    """The online state of this process, which follows the log of the database.

    Only the writer thread of the store uses it.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.number, self.tag = 0, ""  # of the last event in the state; no event has this tag
        self.online = OnlineConformal()
        store.write(self._catch_up)
        self.kind, self.level = self.online.kind_, float(self.online.level)
        self.time_kind = self.online.time_kind_
        self.classes: tuple[Any, ...] = ()
        if self.online.n_classes_ is not None:
            self.classes = tuple(self.online.classes_ or range(self.online.n_classes_))

    def _catch_up(self, connection: Connection) -> None:
        """Apply what other processes wrote, and keep them from writing until the commit.

        What this process applied without a commit is in no log: then the state is read anew.
        """
        lock_log(connection)
        found = log_events(connection, self.number)
        if not found or found[0].tag != self.tag:
            found = log_events(connection)
            self.online = OnlineConformal.from_dict(_read_state(found[0].content)[0])
        self.tag = ""
        for event in found[1:]:
            _apply(self.online, json.loads(event.content))
        self.number, self.tag = found[-1].number, found[-1].tag

    def _record(self, connection: Connection, content: Mapping[str, Any]) -> Any:
        """Apply an event and write it to the log; return what was issued."""
        self.tag = ""  # until all is written
        issued = _apply(self.online, content)
        write_event(connection, self.number + 1, tag := uuid4().hex, json.dumps(content))
        self.number, self.tag = self.number + 1, tag
        if self.number % MAX_EVENTS == 0:
            self.compact(connection)
        return issued

    def compact(self, connection: Connection) -> None:
        """Begin the log with the current state."""
        self._catch_up(connection)
        file = _file_checksum(connection)
        self.number, self.tag = self.number + 1, uuid4().hex
        content = _state_content(self.online, file)
        write_event(connection, self.number, self.tag, content, is_first=True)

    def add_forecasts(
        self, connection: Connection, rows: ForecastRequest
    ) -> dict[str, Mapping[str, Any]]:
        """Issue and store what is new; return the columns of all rows by id."""
        self._catch_up(connection)
        found = find_forecasts(connection, rows.ids)
        rows.require_same(found, self.level)
        new = rows.take([row for row, name in enumerate(rows.ids) if name not in found])
        if new.ids:
            try:
                issued = self._record(connection, new.event)
            except (BadTypeError, BadValueError) as error:
                raise as_http_error(error, error.argument, error.fix) from error
            outputs, ends = _outputs(new.outputs), None  # sets have no uncorrected intervals
            if not self.classes:
                ends = outputs, outputs
            if self.kind == "spread":
                ends = central_interval(outputs, self.level, CALLER)
            insert_forecasts(connection, new.columns | _issued_columns(ends, issued))
            found |= find_forecasts(connection, new.ids)
        return found

    def add_truths(
        self,
        connection: Connection,
        ids: Sequence[str],
        codes: Sequence[Label],
        corrected_by: str | None = None,
    ) -> LabelCounts:
        """Store outcomes and learn from those that are new; a correction is not learned from."""
        self._catch_up(connection)
        known = find_labels(connection, ids)
        counts = add_labels(connection, ids, codes, corrected_by)
        waiting = set(self.online.waiting_ids_)  # without those that were given up
        pairs = zip(ids, codes, strict=True)
        new = [one for one in pairs if one[0] not in known and one[0] in waiting]
        if new:
            given = [self.truth_of(code) for _, code in new]
            self._record(connection, {"ids": [name for name, _ in new], "labels": given})
        return counts

    def encode_truths(self, ids: Sequence[str], given: Sequence[Any]) -> Sequence[Label]:
        """Return outcomes as they are stored, or raise if a forecast does not exist."""
        codes = (
            schemas.encode_labels(given, self.classes) if self.classes else encode_targets(given)
        )
        found = self.store.find_forecasts(ids)
        for name in ids:
            if name not in found:
                raise _no_forecast(name, "Send it to POST /v1/forecasts before its outcome")
        return codes

    def truth_of(self, label: Label) -> Any:
        """Return a stored outcome: a class or a number."""
        return self.classes[int(label)] if self.classes else float(label)

    def describe(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the interval or set of a stored forecast."""
        if not self.classes:
            return {"id": row["id"], "low": row["low"], "high": row["high"]}
        members = zip(self.classes, row["members"], strict=True)
        return {"id": row["id"], "classes": [name for name, is_member in members if is_member]}

    def report(self, days: float) -> ForecastReport:
        """Return the metrics of the forecasts that were stored in the last days."""
        stored = self.store.forecasts_since(time.time() - days * DAY)
        rows = StoredForecasts.of(stored, self.level, len(self.classes))
        judged = rows.take(np.flatnonzero(rows.is_judged))

        def summary(connection: Connection) -> tuple[int, int, dict[str, float]]:
            self._catch_up(connection)
            return self.online.n_waiting, self.online.n_dropped_, self.online.choice

        n_waiting, n_dropped, weights = self.store.write(summary)
        return ForecastReport(
            kind=self.kind,
            level=self.level,
            n_forecasts=len(rows.inside),
            n_warm_up=int((rows.has_outcome & ~rows.is_judged).sum()),
            n_waiting=n_waiting,
            n_dropped=n_dropped,
            method_weights=weights,
            overall=judged.metrics(),
            windows=judged.windows(),
            cells=rows.cells(),
        )


def load_state(path: str | PathLike[str]) -> OnlineConformal | None:
    """Return the online state in a file; None if it is a document of another kind.

    Parameters
    ----------
    path : str or path
        What `dubito forecast --state` wrote, or `OnlineConformal.to_dict` as JSON.
    """
    document, _ = decode_document(read_text(path), fspath(path))
    is_state = document.get("class") == OnlineConformal.__name__
    return OnlineConformal.from_dict(document) if is_state else None


def deploy_state(store: Store, online: OnlineConformal, name: str) -> None:
    """Begin the log of a database with an online state; a log that exists goes on.

    Parameters
    ----------
    store : Store
        The database, which must have no policies.
    online : OnlineConformal
        The state; forecasts that wait in it can get their outcome by their ids.
    name : str
        What error messages call it.
    """
    if store.find_document() is not None:
        problem = f"The database has policies, and {name} is a state of forecasts"
        raise HTTPError(CONFLICT, problem, "Use another --database")
    file = checksum(_encoded(online.to_dict()))
    store.write(partial(_begin_log, online=online, file=file, name=name))


def _begin_log(connection: Connection, online: OnlineConformal, file: str, name: str) -> None:
    """Write the first state, with the forecasts that wait in it for their outcome."""
    lock_log(connection)
    existing = _file_checksum(connection)
    if existing is not None:
        if existing != file:
            problem = f"The database continues another state than that of {name}"
            fix = "Pass the file that it began with, or another --database"
            raise HTTPError(CONFLICT, problem, fix)
        return
    write_event(connection, 1, uuid4().hex, _state_content(online, file))
    named = [row for row, one in enumerate(online.waiting_ids_) if one is not None]
    ids = [schemas.check_name(online.waiting_ids_[row], "The id of each forecast") for row in named]
    if not named:
        return
    has_outcome, raw, issued = online.waiting(ids)
    cells = online.waiting_cells_[named]
    series = [online.series_[k] for k in online.cell_series_[cells]]
    horizon = [online.horizons_[k] for k in online.cell_pools_[cells]]
    places = [f"{one}, {step}, " for one, step in zip(series, horizon, strict=True)]
    pairs = zip(ids, places, strict=True)  # the ids of `dubito forecast` end with the time
    times = [one.removeprefix(at) if one.startswith(at) else "" for one, at in pairs]
    values = online.waiting_scores_[named] if online.kind_ == "classes" else raw
    columns: dict[str, list[Any]] = {
        "id": ids,
        "digest": _state_digests(series, horizon, values),
        "series": series,
        "horizon": horizon,
        "time": times,
        "moment": [_moment(one) for one in times],
    }
    if online.kind_ == "classes":
        columns |= _issued_columns(None, issued)
    else:
        columns |= _issued_columns((raw[:, 0], raw[:, 1]), issued)
        given = [repr(float(one)) for one in online.waiting_truth_[named][has_outcome]]
        add_labels(connection, [ids[k] for k in np.flatnonzero(has_outcome)], given)
    insert_forecasts(connection, columns)


def _encoded(document: dict[str, Any]) -> str:
    """Return a state as text, of whatever size."""
    return encode_document(document, "dubito serve", max_bytes=2**40)


def _state_content(online: OnlineConformal, file: str | None) -> str:
    """Return a state as an event."""
    return _encoded({**online.to_dict(), FILE: file})


def _file_checksum(connection: Connection) -> str | None:
    """Return the checksum of the file that the log began with; None if there is no log."""
    found = log_events(connection, limit=1)
    return _read_state(found[0].content)[1] if found else None


def _read_state(content: str) -> tuple[dict[str, Any], str]:
    """Return the state of an event, and the checksum of the file that the log began with."""
    document, _ = decode_document(content, "The state in the database")
    return document, str(document.pop(FILE))


def _apply(online: OnlineConformal, content: Mapping[str, Any]) -> Any:
    """Apply forecasts or outcomes to a state; return what was issued."""
    if "labels" in content:
        return online.update(content["labels"], ids=content["ids"])
    places = {name: content[name] for name in ("series", "horizon", "ids")}
    return online.predict(_outputs(content), **places)


def _outputs(content: Mapping[str, Any]) -> Any:
    """Return the forecasts of an event, or raise if they are invalid."""
    for names, kind in KINDS.items():
        if names[0] in content:
            return kind(*(content[name] for name in names))
    return np.array(content["points"], np.float64)


@final
@dataclass(frozen=True, slots=True)
class ForecastRequest:
    """The forecasts of a request by field, and the other columns of the table."""

    outputs: dict[str, Any]
    columns: dict[str, list[Any]]
    n_rearranged: int = 0

    @classmethod
    def of(
        cls, content: Any, forecaster: Forecaster, max_rows: int, *, rearrange: bool = False
    ) -> ForecastRequest:
        """Validate a body; if `rearrange`, quantiles that cross are sorted."""
        sent = schemas.validate(schemas.ForecastsRequest, content)
        n_rows = len(sent.time)
        require_few(n_rows, max_rows)
        n_rearranged = _rearrange(sent) if rearrange else 0
        outputs = _read_outputs(sent, forecaster, n_rows)
        series = _per_row(sent.series, "series", n_rows, "all")
        names = [schemas.check_name(str(one), "Each series") for one in series]
        horizon = _per_row(sent.horizon, "horizon", n_rows, 0)
        moments = [_moment(one) for one in sent.time]
        for row, (step, moment) in enumerate(zip(horizon, moments, strict=True)):
            if type(step) is not int or not 0 <= step <= schemas.MAX_HORIZON:
                limit = f"{schemas.MAX_HORIZON:,}"
                problem = f"`horizon[{row}]` must be a whole number from 0 to {limit}"
                raise HTTPError(INVALID, f"{problem}, got {step!r}", "Count steps ahead from 0")
            if moment is None:
                got = f"`time[{row}]` must be a date or a number, got {str(sent.time[row])[:50]!r}"
                raise HTTPError(INVALID, got, "Send for example 2024-11-23, or 17")
            _require_time_kind(sent.time[row], row, forecaster.time_kind)
        times = [schemas.check_name(str(one), "Each time") for one in sent.time]
        keys = list(zip(names, horizon, times, strict=True))
        ids = sent.ids or [f"{name}, {step}, {one}" for name, step, one in keys]
        ids = [schemas.check_name(one, "Each id") for one in _per_row(ids, "ids", n_rows)]
        if len(set(ids)) < n_rows:
            what = "series, horizon and time" if sent.ids is None else "id"
            problem = f"There must be one forecast per {what}"
            raise HTTPError(INVALID, problem, "Leave out what is repeated, or send other `ids`")
        given = [_take(outputs, [row]) for row in range(n_rows)]
        texts = [json.dumps(pair) for pair in zip(keys, given, strict=True)]
        columns: dict[str, list[Any]] = {
            "id": ids,
            "digest": [digest_of(json.dumps([one])) for one in texts],
            "series": names,
            "horizon": horizon,
            "time": times,
            "moment": moments,
        }
        return cls(outputs, columns, n_rearranged)

    @property
    def ids(self) -> list[Any]:
        """The ids of the forecasts."""
        return self.columns["id"]

    @property
    def event(self) -> dict[str, Any]:
        """The forecasts as an event of the log."""
        places = {name: self.columns[name] for name in ("series", "horizon")}
        return {**self.outputs, **places, "ids": self.ids}

    def take(self, rows: Sequence[int]) -> ForecastRequest:
        """Return some of the forecasts."""
        return ForecastRequest(_take(self.outputs, rows), _take(self.columns, rows))

    def require_same(self, found: Mapping[str, Mapping[str, Any]], level: float) -> None:
        """Raise if a forecast that exists had another body, or other bounds in the state."""
        known = [row for row, name in enumerate(self.ids) if name in found]
        if not known:
            return
        some = self.take(known)
        _, low, high, scores, _ = read_forecasts(_outputs(some.outputs), level, CALLER)
        values = scores if scores.size else np.column_stack([low, high])
        in_state = _state_digests(some.columns["series"], some.columns["horizon"], values)
        for name, *digests in zip(some.ids, some.columns["digest"], in_state, strict=True):
            if found[name]["digest"] not in digests:
                problem = f"Id {name!r} was forecast with a different body"
                raise HTTPError(CONFLICT, problem, "Use another id, or send the same body")


def _state_digests(
    series: Sequence[str], horizon: Sequence[int], values: FloatArray
) -> list[bytes]:
    """Return what tells forecasts of which a state has the bounds or scores alone.

    Numbers have the digits that a file of 32-bit floats has, too.
    """
    rows = zip(series, horizon, values.tolist(), strict=True)
    parts = [(STATE, one, step, *(f"{x + 0.0:.6g}" for x in row)) for one, step, row in rows]
    return [digest_of(json.dumps(one)) for one in parts]


def _rearrange(sent: schemas.ForecastsRequest) -> int:
    """Sort quantiles along their levels where they cross; return the number of such rows."""
    if sent.quantiles is None or sent.levels is None:
        problem = "?rearrange=true is for quantiles, and the body has none"
        raise HTTPError(INVALID, problem, "Leave it out")
    try:
        found = Quantiles(sent.quantiles, sent.levels, rearrange=True)
    except (BadTypeError, BadValueError):
        return 0  # which is reported with the name of the field
    sent.quantiles = found.array.tolist()
    sent.levels = found.levels.tolist()
    return found.n_rearranged


def _require_time_kind(value: str | float, row: int, kind: str | None) -> None:
    """Raise unless a time is a date or a number, as in the state."""
    try:
        found = "numbers" if isfinite(float(value)) else "dates"
    except ValueError:
        found = "dates"
    if kind not in (None, found):
        example = "2024-11-23" if kind == "dates" else "17"
        problem = f"`time[{row}]` must be one of the {kind} that the state has, got {value!r}"
        raise HTTPError(INVALID, problem, f"Send for example {example}")


def _take(columns: Mapping[str, list[Any]], rows: Sequence[int]) -> dict[str, list[Any]]:
    """Return some rows of columns; levels and classes are of all rows."""
    whole = ("levels", "classes")
    return {k: one if k in whole else [one[row] for row in rows] for k, one in columns.items()}


def _read_outputs(
    sent: schemas.ForecastsRequest, forecaster: Forecaster, n_rows: int
) -> dict[str, Any]:
    """Return the fields with forecasts, or raise unless these are of the kind of the state."""
    given = {name: one for name in OUTPUTS if (one := getattr(sent, name)) is not None}
    forms, fix = FIELDS[forecaster.kind], f"Send for example {EXAMPLES[forecaster.kind]}"
    if set(given) not in [set(names) for names in forms]:
        wanted = ", or ".join(" and ".join(f"`{one}`" for one in names) for names in forms)
        raise HTTPError(INVALID, f"The body must have {wanted}, and no other forecasts", fix)
    first = next(iter(given))
    for name, values in given.items():
        if name == "levels":
            read_numbers(values, name, None, fix, form="a list of numbers")
        else:
            is_list = name in ("points", "mean", "std")
            read_numbers(_per_row(values, name, n_rows), name, None if is_list else 0, fix)
    if forecaster.classes:
        n_classes, n_columns = len(forecaster.classes), len(given[first][0])
        if n_columns != n_classes:
            problem = f"`{first}` must have {n_classes} columns, one per class"
            problem += f", got {n_columns} in row 0"
            raise HTTPError(INVALID, problem, "Send the classes of the state, in its order")
        given["classes"] = list(forecaster.classes)
    try:
        outputs = _outputs(given)
        if forecaster.kind == "spread":
            central_interval(outputs, forecaster.level, CALLER)
    except (BadTypeError, BadValueError) as error:
        if error.argument == "level":  # that of the state, which no forecast changes
            raise _too_few_for_level(outputs, forecaster.level) from error
        name = first if error.argument == "array" else error.argument
        fix = "Correct them in the model that forecasts"
        if "rearrange" in error.fix:
            fix = "Send it with ?rearrange=true to sort them, or correct the model"
        raise as_http_error(error, name, fix) from error
    return given


def _too_few_for_level(outputs: Any, level: float) -> HTTPError:
    """Return the error of quantiles or draws that determine no interval at the level of a state."""
    intervals = f"for prediction intervals at {short_percent(level)}"
    if isinstance(outputs, Quantiles):
        ends = f"{(1 - level) / 2:g} and {(1 + level) / 2:g}"
        got = ", ".join(f"{one:g}" for one in outputs.levels)
        problem = f"`levels` must include {ends} {intervals}, got {got}"
        return HTTPError(INVALID, problem, "Send the quantiles at these two levels as well")
    n_draws, n_required = outputs.array.shape[1], ceil((1 + level) / (1 - level) - 1e-6)
    problem = f"`samples` must have at least {n_required:,} draws per row {intervals}"
    return HTTPError(INVALID, f"{problem}, got {n_draws:,}", "Send more draws")


def _per_row(values: Any, name: str, n_rows: int, default: Any = None) -> list[Any]:
    """Return one value per row."""
    if values is None:
        return [default] * n_rows
    if not isinstance(values, list) or len(values) != n_rows:
        got = len(values) if isinstance(values, list) else type(values).__name__
        problem = f"`{name}` must be a list with one value per forecast, got {got} for {n_rows}"
        raise HTTPError(INVALID, problem, "Send as many values as `time` has")
    return values


def _moment(value: str | int | float) -> float | None:
    """Return a time as a number, and a date as days since 1970 in UTC; None if it is neither.

    >>> _moment("1970-01-02T12:00:00Z"), _moment("7"), _moment(2.5), _moment("May")
    (1.5, 7.0, 2.5, None)
    """
    try:
        found = float(value)
    except ValueError:
        try:
            date = datetime.fromisoformat(str(value))
        except ValueError:
            return None
        found = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() / DAY
    return found if isfinite(found) else None


def _issued_columns(
    uncorrected: tuple[FloatArray, FloatArray] | None, issued: Any
) -> dict[str, list[Any]]:
    """Return intervals, or sets with the threshold of each, as columns of the table."""
    if uncorrected is None:
        members = [row.tobytes() for row in issued.contains.astype(np.uint8)]
        return {"members": members, "high": finite(issued.thresholds)}
    names = ("raw_low", "raw_high", "low", "high")
    ends = (*uncorrected, issued.low, issued.high)
    return {name: finite(end) for name, end in zip(names, ends, strict=True)}


def _no_forecast(name: str, fix: str) -> HTTPError:
    """Return the error of an id that no forecast has."""
    return HTTPError(NOT_FOUND, f"There is no forecast {name!r}", fix)


def _get_forecaster(service: Service) -> Forecaster:
    """Return the online state, or raise where the service has a policy."""
    if service.forecaster is None:
        problem = "This service decides by a policy and does not take forecasts"
        fix = "Use POST /v1/decide, or run `dubito serve` with a file of `dubito forecast --state`"
        raise HTTPError(CONFLICT, problem, fix)
    return service.forecaster


@router.post("/forecasts", openapi_extra=schemas.request_body(schemas.ForecastsRequest))
async def post_forecasts(
    request: Request, token: DecideToken, rearrange: bool = False
) -> schemas.ForecastsResponse:
    """Return the interval or the set of each forecast, once they are on disk.

    A forecast that is repeated, by its id, gets the first response. With `rearrange`, quantiles
    that cross are sorted.
    """
    service = get_service(request)
    forecaster = _get_forecaster(service)
    body = await schemas.read_body(request, service.settings.max_bytes)

    def parse() -> ForecastRequest:
        content, limit = schemas.parse_json(body, service.settings), service.settings.max_rows
        return ForecastRequest.of(content, forecaster, limit, rearrange=rearrange)

    async with service.turn(body):
        rows = await run_in_threadpool(parse)
        n_rows = len(rows.ids)
        found: dict[str, Mapping[str, Any]] = {}
        if n_rows > PART_ROWS:  # nothing is stored if one differs
            known = await run_in_threadpool(service.store.find_forecasts, rows.ids)
            rows.require_same(known, forecaster.level)
        for start in range(0, n_rows, PART_ROWS):  # others write in between
            part = rows.take(range(start, min(start + PART_ROWS, n_rows)))
            work = partial(forecaster.add_forecasts, rows=part)
            found |= await asyncio.wrap_future(service.store.submit(work))
    service.metrics.decisions.labels("forecast").inc(n_rows)
    request.state.n_rows = n_rows
    issued = [forecaster.describe(found[name]) for name in rows.ids]
    content = {"forecasts": issued, "n_rearranged": rows.n_rearranged}
    return schemas.ForecastsResponse.model_validate(content)


@router.get(
    "/forecasts/{forecast_id:path}",
    response_model=schemas.StoredForecast,
    response_model_exclude_unset=True,
)
def get_forecast(request: Request, forecast_id: str, token: LookupToken) -> dict[str, Any]:
    """Return a stored forecast, its outcome if known, and the outcomes it had before."""
    service = get_service(request)
    forecaster, store = _get_forecaster(service), service.store
    name = schemas.check_name(forecast_id, "The id")
    row = store.find_forecasts([name]).get(name)
    if row is None:
        raise _no_forecast(name, "Use the id of a forecast")
    return {
        **{one: row[one] for one in ("created", "series", "horizon", "time")},
        **forecaster.describe(row),
        **store.label_history(name, forecaster.truth_of),
    }

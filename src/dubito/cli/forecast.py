"""`dubito forecast FILE`: intervals of forecasts over time that keep their coverage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubito.cli.columns import MULTILABEL, ColumnOptions, with_columns
from dubito.errors import BadValueError

if TYPE_CHECKING:
    from dubito.arrays import FloatArray
    from dubito.data import Batch
    from dubito.doubt import OnlineConformal, PredictionIntervals
    from dubito.monitor import ForecastCoverage

CLASSES = ("logits", "probabilities", "probability", "confidence", "correct", "positive", "classes")


@with_columns(
    *("features", "weight", "group", "id", "normalize", "percent"), hidden=(*MULTILABEL, *CLASSES)
)
def forecast(
    file: Annotated[str, typer.Argument(help="Forecasts: a Parquet, CSV, Arrow or NPZ file.")],
    options: ColumnOptions,
    time: Annotated[
        str, typer.Option(help="Column of when forecasts were made: dates or numbers.")
    ],
    series: Annotated[str | None, typer.Option(help="Column of the series. Default: one.")] = None,
    horizon: Annotated[
        str | None,
        typer.Option(
            help="Column of steps ahead, from 0: the truth of 0 is known one step later. With "
            "horizons from 1, pass --known as well."
        ),
    ] = None,
    known: Annotated[
        str | None,
        typer.Option(help="Column of when the truth was known. Default: horizon + 1 steps later."),
    ] = None,
    forecast: Annotated[str | None, typer.Option(help="Column of point forecasts.")] = None,
    level: Annotated[float, typer.Option(help="Coverage of the intervals.")] = 0.9,
    state: Annotated[
        Path | None,
        typer.Option(help="Resume from this JSON file if it exists, and write it in the end."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the intervals, e.g. intervals.csv.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Correct the intervals of forecasts by past truths, as it would have been done at the time.

    Example: dubito forecast flu.csv --time date --series place --horizon h --quantiles 'q_*'
    """
    from dubito.cli.printing import say, say_json, say_note, typed
    from dubito.cli.reading import require_output_paths
    from dubito.formatting import percent
    from dubito.measure.regression import central_interval

    endings = {"--report": (".html",), "--state": (".json",)}
    require_output_paths(
        {"--output": output, "--report": report, "--state": state}, [file], endings
    )
    if not 0 < level < 1:
        fix = f"Pass --level {level / 100 if 1 < level < 100 else 0.9:g}"
        rule = "must be strictly between 0 and 1"
        raise BadValueError("--level", "dubito forecast", rule, f"{level:g}", fix)
    online = _open_state(state, level)
    names = {"--time": time, "--series": series, "--horizon": horizon, "--known": known}
    batch = _read(file, options, names, forecast, is_resumed=online.__sklearn_is_fitted__())
    rows = _Rows(batch, file, time, series, horizon, known)
    chosen, arrived, late = rows.resume(online)
    judged: list[Any] = []
    if arrived.size:
        _, bounds, issued = online.waiting(rows.ids[arrived])
        judged.append((arrived, None if forecast else bounds.T, issued))
        online.schedule(rows.y[arrived], ids=rows.ids[arrived])
    if chosen.size:
        outputs: Any = batch.outputs.take(chosen)
        if forecast is not None:
            outputs = outputs.array[:, 0]
        found = online.replay(
            outputs,
            rows.y[chosen],
            time=rows.times[chosen],
            series=rows.series[chosen],
            horizon=rows.horizons[chosen],
            known=None if rows.known is None else rows.known[chosen],
            ids=rows.ids[chosen],
        )
        raw = None if forecast else central_interval(outputs, level, "dubito forecast")
        judged.append((chosen, raw, found))
    if late.size:
        say_note(
            f"{late.size:,} forecasts are older than the last one in {state} and came too late for "
            f"an interval, e.g. that of series, horizon, time {rows.ids[late[0]]} (row {late[0]})."
        )
    if not judged:
        say(f"{file} has no forecasts after those in {state}.")
        return
    coverage = _coverage(rows, judged, level, None if forecast else batch.outputs)
    if output is not None and chosen.size:
        _write(output, rows, chosen, judged[-1][-1])
    if state is not None:
        _save_state(online, state)
    if report is not None:
        from dubito.report import forecast_report

        forecast_report(coverage, command=typed()).save(report)
    if as_json:
        say_json({**coverage.to_dict(), "n_arrived": arrived.size, "n_late": late.size})
        return
    _print(coverage)
    if arrived.size:
        say(f"\n{arrived.size:,} of the truths belong to forecasts of earlier runs.")
        if online.n_truths_:
            so_far = percent(online.n_covered_ / online.n_truths_)
            say(f"In all runs, intervals covered {so_far} of {online.n_truths_:,} truths.")
    if not chosen.size:
        say(f"{file} has no new forecasts.")
    elif known is None:
        _print_steps(online, rows.unit)
    if output is not None and chosen.size:
        say(f"\n{chosen.size:,} intervals are in {output}.")
    for what, place in (("The report", report), ("The state", state)):
        if place is not None:
            say(f"{what} is in {place}.")


def _read(
    file: str,
    options: ColumnOptions,
    names: dict[str, str | None],
    forecast: str | None,
    *,
    is_resumed: bool,
) -> Batch:
    """Return all rows, with the columns of times, series and horizons kept."""
    from dubito.cli.printing import say_note
    from dubito.data import read
    from dubito.data.sources import open_source

    caller, fix = "dubito forecast", "Pass --quantiles 'q_*', --mean and --std, or --forecast"
    if options.is_regression == (forecast is not None):
        got = "--forecast and others" if forecast else "none"
        raise BadValueError("", caller, "needs one kind of forecasts", got, fix)
    columns = open_source(file).schema.names
    for option, name in names.items():
        if name is not None and name not in columns:
            got, fix = f"columns {', '.join(columns)}", f"Pass {option} with one of them"
            raise BadValueError("", file, f"has no column {name!r} for {option}", got, fix)
    if forecast is not None:
        options = replace(options, samples=forecast)
    if is_resumed and options.label is not None and options.label not in columns:
        say_note(f"{file} has no column {options.label}: no truths there.")
        options = replace(options, label=None)
    (one,) = options.open(file, label="optional" if is_resumed else "required")
    return read(
        one.source, replace(one.columns, keep={name: None for name in names.values() if name})
    )


class _Rows:
    """The columns of a file, as arrays."""

    def __init__(
        self,
        batch: Batch,
        file: str,
        time: str,
        series: str | None,
        horizon: str | None,
        known: str | None,
    ) -> None:
        import numpy as np

        from dubito.data.labels import Targets

        table: Any = batch.kept
        n = len(batch)
        labels = batch.labels
        self.y = np.full(n, np.nan)
        if isinstance(labels, Targets):
            self.y = labels.values.astype(np.float64)
        self.times = _times(table[time], time, file)
        self.labels = [str(one) for one in table[time].to_pylist()]
        is_dated = not all(isinstance(one, int | float) for one in table[time].to_pylist())
        self.unit = " days" if is_dated else ""
        self.known = None if known is None else _times(table[known], known, file)
        names = ["all"] * n if series is None else table[series].to_pylist()
        for row, name in enumerate(names):
            if name is None or not str(name).strip():
                rule, fix = (
                    "must name the series of each row",
                    "Fill in the cell or leave out the row",
                )
                raise BadValueError(f"{series}", file, rule, "a blank cell", fix, row)
        self.series = np.array([str(name) for name in names])
        steps = [0] * n if horizon is None else table[horizon].to_pylist()
        places = enumerate(steps)
        self.horizons = np.array([_horizon(one, row, f"{horizon}", file) for row, one in places])
        keys = zip(self.series.tolist(), self.horizons.tolist(), self.labels, strict=True)
        self.ids = np.array(
            [f"{name}, {step}, {label}" for name, step, label in keys], dtype=object
        )
        first: dict[str, int] = {}
        for row, key in enumerate(self.ids):
            if first.setdefault(key, row) != row:
                what = f"series {str(self.series[row])!r}, horizon {self.horizons[row]}"
                got = f"two of {what}, {self.labels[row]} (rows {first[key]} and {row})"
                left = [("--horizon", horizon), ("--series", series)]
                spare = [option for option, given in left if given is None]
                fix = f"Pass {' or '.join(spare)}, or remove one" if spare else "Remove one"
                raise BadValueError(
                    "", file, "must have one forecast per series, horizon and time", got, fix
                )
        self.months = np.array([label[:7] if "-" in label else "all" for label in self.labels])

    def resume(self, online: OnlineConformal) -> tuple[Any, Any, Any]:
        """Return new rows, those with truths of forecasts that wait, and those that came too late.

        A row is late if the state has later forecasts, but none as late of its series and horizon.
        """
        import numpy as np

        none = np.zeros(0, dtype=np.int64)
        last = online.time_ if online.__sklearn_is_fitted__() else None
        if last is None:
            return np.arange(len(self.y)), none, none
        waiting = set(online.waiting_ids_)
        is_waiting = np.array([one in waiting for one in self.ids], dtype=bool)
        arrived = np.flatnonzero(is_waiting & ~np.isnan(self.y))
        if arrived.size:
            arrived = arrived[~online.waiting(self.ids[arrived])[0]]
        is_new = ~is_waiting & (self.times >= last)
        pairs = zip(online.cell_series_.tolist(), online.cell_pools_.tolist(), strict=True)
        names = [(online.series_[i], online.horizons_[j]) for i, j in pairs]
        ends = dict(zip(names, online.cell_times_.tolist(), strict=True))
        keys = zip(self.series.tolist(), self.horizons.tolist(), strict=True)
        is_later = self.times > np.array([ends.get(key, -np.inf) for key in keys])
        return np.flatnonzero(is_new), arrived, np.flatnonzero(is_later & ~is_new & ~is_waiting)


def _horizon(cell: Any, row: int, name: str, file: str) -> int:
    """Return a cell as a whole number; 1.0 is 1."""
    try:
        value = float(cell)
    except (TypeError, ValueError):
        value = -1.0
    if not (value >= 0 and value.is_integer()):
        got = "a blank cell" if cell is None or cell == "" else repr(cell)
        rule, fix = "must hold whole numbers of at least 0", "Fix the cell, or leave out the row"
        raise BadValueError(name, file, rule, got, fix, row)
    return int(value)


def _coverage(rows: _Rows, judged: list[Any], level: float, outputs: Any) -> ForecastCoverage:
    """Return what the intervals of rows covered: each part has rows, forecasts and intervals."""
    import numpy as np

    from dubito.monitor import forecast_coverage

    chosen = np.concatenate([one for one, _, _ in judged])
    low, high = (
        np.concatenate([getattr(one, end) for *_, one in judged]) for end in ("low", "high")
    )
    raw = None
    if judged[0][1] is not None:
        ends = [np.asarray(one, dtype=np.float64) for _, one, _ in judged]
        raw = np.concatenate([one[0] for one in ends]), np.concatenate([one[1] for one in ends])
    return forecast_coverage(
        rows.y[chosen],
        raw,
        (low, high),
        level=level,
        series=rows.series[chosen].tolist(),
        horizon=rows.horizons[chosen].tolist(),
        month=rows.months[chosen].tolist(),
        time=rows.times[chosen],
        outputs=None if outputs is None else outputs.take(chosen),
    )


def _print_steps(online: OnlineConformal, unit: str) -> None:
    """Print when truths count as known."""
    from dubito.cli.printing import say

    steps = sorted({one for one in online.steps_ if one is not None})
    if not steps:
        return
    span = f"{steps[0]:g}" if len(steps) == 1 else f"{steps[0]:g} to {steps[-1]:g}, by series"
    later = ", that of horizon 1 after twice that" * (max(online.horizons_) > 0)
    say(
        f"\nThe truth of horizon 0 counts as known {span}{unit} after its forecast"
        f"{later} (--known says otherwise)."
    )


def _times(column: Any, name: str, file: str) -> FloatArray:
    """Return times as numbers; dates as days."""
    import numpy as np

    values = column.to_pylist()
    try:
        if all(isinstance(one, int | float) for one in values):
            return np.array(values, dtype=np.float64)
        blank = [row for row, one in enumerate(values) if one is None or one == ""]
        if blank:
            rule, fix = "must hold a time in each row", "Fill in the cell, or leave out the row"
            raise BadValueError(f"{name}", file, rule, "a blank cell", fix, blank[0])
        days = np.array([_in_utc(str(one)) for one in values], dtype="datetime64[us]")
    except ValueError as error:
        if isinstance(error, BadValueError):
            raise
        rule, fix = "must hold dates such as 2024-11-23, or numbers", "Fix the column"
        raise BadValueError(f"{name}", file, rule, str(error), fix) from error
    return np.asarray((days - np.datetime64(0, "us")) / np.timedelta64(1, "D"))


def _in_utc(text: str) -> str:
    """Return a time without its zone, in UTC."""
    from datetime import UTC, datetime

    has_zone = text.endswith("Z") or "+" in text or text.count("-") > 2
    if not has_zone:
        return text
    return datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None).isoformat()


def _open_state(path: Path | None, level: float) -> OnlineConformal:
    """Return the state of a file, or a new one."""
    from dubito.doubt import OnlineConformal
    from dubito.serialization.documents import decode_document, read_text

    if path is None or not path.exists():
        return OnlineConformal(level)
    online = OnlineConformal.from_dict(decode_document(read_text(path), str(path))[0])
    if online.level != level:
        rule, fix = f"must be {online.level:g}, as in {path}", f"Pass --level {online.level:g}"
        raise BadValueError("--level", "dubito forecast", rule, f"{level:g}", fix)
    return online


def _save_state(online: OnlineConformal, path: Path) -> None:
    from dubito.serialization.documents import encode_document

    part = path.with_suffix(".part")
    part.write_text(encode_document(online.to_dict(), "dubito forecast"))
    part.replace(path)


def _write(output: Path, rows: _Rows, chosen: Any, found: PredictionIntervals) -> None:
    """Write the interval of each forecast."""
    from dubito.data import Sink

    with Sink(output) as sink:
        sink.write(
            {
                "time": [rows.labels[row] for row in chosen],
                "series": rows.series[chosen].tolist(),
                "horizon": rows.horizons[chosen],
                "low": found.low,
                "high": found.high,
            }
        )


def _print(coverage: ForecastCoverage) -> None:
    """Print the verdict, and tables by horizon, series and month."""
    from dubito.cli.printing import say, show_table
    from dubito.formatting import percent

    say(coverage.verdict)
    parts = [("horizon", coverage.by_horizon), ("worst series", coverage.worst_series)]
    for title, rows in [*parts, ("month", coverage.by_month)]:
        if len(rows) < 2:
            continue
        say()
        show_table(
            (title, "truths", "as forecast", "corrected", "width", "score / raw"),
            [
                (
                    one.name,
                    f"{one.n_rows:,}",
                    "-" if one.raw is None else percent(one.raw),
                    percent(one.corrected),
                    f"{one.width:.4g}",
                    "-" if one.score_ratio is None else f"{one.score_ratio:.3f}",
                )
                for one in rows
            ],
        )
    if coverage.n_future:
        say(f"\n{coverage.n_future:,} forecasts have no truth yet.")
    if coverage.n_warm_up:
        say(f"{coverage.n_warm_up:,} truths came before the first correction.")

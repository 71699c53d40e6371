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
    from dubito.doubt import OnlineConformal
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
        typer.Option(help="Column of steps ahead; the truth of 0 is known one step later."),
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
    import numpy as np

    from dubito.cli.printing import say, say_json, typed
    from dubito.cli.reading import require_output_paths
    from dubito.doubt import PredictionIntervals
    from dubito.measure.regression import central_interval
    from dubito.monitor import forecast_coverage

    endings = {"--report": (".html",), "--state": (".json",)}
    require_output_paths(
        {"--output": output, "--report": report, "--state": state}, [file], endings
    )
    batch = _read(file, options, (time, series, horizon, known), forecast)
    rows = _Rows(batch, file, time, series, horizon, known)
    online = _open_state(state, level)
    chosen = rows.resume(online)
    if not chosen.size:
        say(f"{file} has no forecasts after those in {state}.")
        return
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
    assert isinstance(found, PredictionIntervals)
    raw = None
    if forecast is None:
        low, high = central_interval(outputs, level, "dubito forecast")
        raw = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    coverage = forecast_coverage(
        rows.y[chosen],
        raw,
        (found.low, found.high),
        level=level,
        series=rows.series[chosen].tolist(),
        horizon=rows.horizons[chosen].tolist(),
        month=rows.months[chosen].tolist(),
        time=rows.times[chosen],
        outputs=None if forecast is not None else outputs,
    )
    if output is not None:
        _write(output, rows, chosen, found.low, found.high)
    if state is not None:
        _save_state(online, state)
    if report is not None:
        from dubito.report import forecast_report

        forecast_report(coverage, command=typed()).save(report)
    if as_json:
        say_json(coverage.to_dict())
        return
    _print(coverage)
    if output is not None:
        say(f"\n{chosen.size:,} intervals are in {output}.")
    for what, place in (("The report", report), ("The state", state)):
        if place is not None:
            say(f"{what} is in {place}.")


def _read(
    file: str, options: ColumnOptions, names: tuple[str | None, ...], forecast: str | None
) -> Batch:
    """Return all rows, with the columns of times, series and horizons kept."""
    from dubito.data import Columns, read
    from dubito.data.sources import open_source

    kept = {name: None for name in names if name is not None}
    if forecast is not None:
        source = open_source(file)
        columns: Any = Columns(label=options.label or "y", samples=[forecast], keep=kept)
        return read(source, columns)
    if not options.is_regression:
        rule, fix = "needs forecasts", "Pass --quantiles 'q_*', --mean and --std, or --forecast"
        raise BadValueError("", "dubito forecast", rule, "none", fix)
    (one,) = options.open(file)
    return read(one.source, replace(one.columns, keep=kept))


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
        assert isinstance(batch.labels, Targets)
        self.y = batch.labels.values.astype(np.float64)
        self.times = _times(table[time], time, file)
        self.labels = [str(one) for one in table[time].to_pylist()]
        self.known = None if known is None else _times(table[known], known, file)
        names = ["all"] * n if series is None else map(str, table[series].to_pylist())
        self.series = np.array(list(names))
        steps = np.zeros(n) if horizon is None else table[horizon].to_pylist()
        self.horizons = np.array([int(one) for one in steps], dtype=np.int64)
        keys = zip(self.series.tolist(), self.horizons.tolist(), self.labels, strict=True)
        self.ids = np.array(
            [f"{name}, {step}, {label}" for name, step, label in keys], dtype=object
        )
        self.months = np.array([label[:7] if "-" in label else "all" for label in self.labels])

    def resume(self, online: OnlineConformal) -> Any:
        """Return the rows that are new; truths of forecasts that wait are passed on."""
        import numpy as np

        last = getattr(online, "time_", None) if online.__sklearn_is_fitted__() else None
        if last is None:
            return np.arange(len(self.y))
        waiting = set(online.waiting_ids_)
        is_waiting = np.array([one in waiting for one in self.ids], dtype=bool)
        is_told = is_waiting & ~np.isnan(self.y)
        if is_told.any():
            online.schedule(self.y[is_told], ids=self.ids[is_told])
        return np.flatnonzero(~is_waiting & (self.times > last))


def _times(column: Any, name: str, file: str) -> FloatArray:
    """Return times as numbers; dates as days."""
    import numpy as np

    values = column.to_pylist()
    try:
        if all(isinstance(one, int | float) for one in values):
            return np.array(values, dtype=np.float64)
        days = np.array([str(one) for one in values], dtype="datetime64[us]")
    except ValueError as error:
        rule, fix = "must hold dates such as 2024-11-23, or numbers", "Fix the column"
        raise BadValueError(f"{name}", file, rule, str(error), fix) from error
    return np.asarray((days - np.datetime64(0, "us")) / np.timedelta64(1, "D"))


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


def _write(output: Path, rows: _Rows, chosen: Any, low: FloatArray, high: FloatArray) -> None:
    """Write the interval of each forecast."""
    from dubito.data import Sink

    with Sink(output) as sink:
        sink.write(
            {
                "time": [rows.labels[row] for row in chosen],
                "series": rows.series[chosen].tolist(),
                "horizon": rows.horizons[chosen],
                "low": low,
                "high": high,
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
        say(f"{coverage.n_warm_up:,} truths came before the first interval.")

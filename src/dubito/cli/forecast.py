"""`dubito forecast FILE`: intervals of forecasts over time that keep their coverage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dubito.cli.columns import MULTILABEL, ColumnOptions
from dubito.cli.options import command
from dubito.cli.printing import (
    say,
    say_bad_rows,
    say_json,
    say_note,
    say_rearranged,
    show_table,
    typed,
)
from dubito.cli.reading import require_output_paths
from dubito.errors import BadFileError, BadTypeError, BadValueError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dubito.arrays import IntArray
    from dubito.cli.forecast_rows import ForecastRows, Resumed
    from dubito.doubt import OnlineConformal, PredictionIntervals, PredictionSets
    from dubito.monitor import ForecastCoverage
    from dubito.monitor.forecasts import CoverageRow
    from dubito.report import Report

CALLER = "dubito forecast"
MAX_ROWS = 12  # of a table that are printed


@command(
    *("features", "weight", "group", "id", "scores"), hidden=(*MULTILABEL, "confidence", "correct")
)
def forecast(
    file: str,
    *,
    time: str,
    options: ColumnOptions,
    series: str | None = None,
    horizon: str | None = None,
    horizon_from: int = 0,
    known: str | None = None,
    time_format: str | None = None,
    forecast: str | None = None,
    level: float = 0.9,
    state: Path | None = None,
    output: Path | None = None,
    bad_rows: Path | None = None,
    report: Path | None = None,
) -> None:
    """Adapt prediction intervals or sets to past outcomes, replayed in time order.

    This is online conformal prediction: each interval uses only outcomes known at its time.

    Example: dubito forecast flu.csv --time date --series place --quantiles 'q_*'

    Example: dubito forecast weather.csv --time date --probabilities 'p_*'

    Options
    -------
    label
        Column of true values. Default: label, y or target.
    logits
        Columns of logits of classes, e.g. 'z_*', or one list column.
    probabilities
        Columns of class probabilities, e.g. 'p_*', or one list column.
    probability
        Single column: P(positive class).
    file
        Forecasts, or with --state outcomes alone: a Parquet, CSV, Arrow or NPZ file.
    time
        Column with the time of each forecast: dates or numbers.
    series
        Column of the series. Default: a single series.
    horizon
        Column of steps ahead, from 0; horizon 0 is known one step later.
    horizon_from
        The horizon of the next step, 0 or 1.
    known
        Column with the time at which the outcome was known. Default: horizon + 1 steps later.
    time_format
        Format of dates, e.g. '%d.%m.%Y'. Default: 2025-01-31 or 20250131.
    forecast
        Column of point forecasts.
    level
        Coverage of the intervals or sets; with --quantiles, both ends must be among the levels.
    state
        Resume from this JSON file if it exists, and update it at the end.
    output
        Write the intervals (low, high) or sets (prediction_set, set_size) beside the input
        columns.
    bad_rows
        Write rows with invalid forecasts to this CSV or TSV and continue.
    report
        Write an HTML report.
    """
    from dubito.cli.forecast_rows import PlaceOptions, read_forecast_rows
    from dubito.data.sink import write_atomic
    from dubito.data.sources.opening import TEXTS
    from dubito.serialization.documents import encode_document

    endings = {"--report": (".html",), "--state": (".json",), "--bad-rows": TEXTS}
    paths = {"--output": output, "--report": report, "--state": state, "--bad-rows": bad_rows}
    require_output_paths(paths, [file], endings)
    if horizon_from not in (0, 1):
        rule, fix = "must be 0 or 1", "Pass --horizon-from 1"
        raise BadValueError("", "--horizon-from", rule, f"{horizon_from}", fix)
    online = _open_state(state, level)
    places = PlaceOptions(time, series, horizon, known, time_format, horizon_from)
    rows = read_forecast_rows(
        file,
        options,
        places,
        forecast=forecast,
        online=online,
        has_state=state is not None,
        output=output,
        bad_rows=bad_rows,
    )
    rows.require_fits(online, state)
    for note in rows.times.notes:
        say_note(note)
    found = rows.resume(online)
    judged = _issue(online, rows, found, level)
    _warn(rows, found, state, horizon)
    output = None if rows.kept is None else output  # without forecasts, nothing is written
    if output is not None:
        _write(output, rows, found.chosen, judged[-1][-1] if found.chosen.size else None)
    counts = {**found.counts, "n_rearranged": rows.n_rearranged, "n_bad_rows": rows.n_bad}
    if not judged:
        say_json(counts)
        none = f"{file} has no forecasts after those in {state}."
        say(f"Nothing in {file} could be issued or learned from." if found.too_late.size else none)
        if output is not None:
            say(f"{output} has no rows.")
        return
    coverage, arguments = _coverage(online, rows, judged, level)
    if state is not None:
        write_atomic(state, encode_document(online.to_dict(), CALLER))
    if report is not None:
        _report(online, rows, coverage, arguments).save(report)
    if say_json({**coverage.to_dict(), **counts}):
        return
    _print(coverage)
    _print_counts(online, rows, found, state, bad_rows)
    if not found.chosen.size:
        say(f"{file} has no new forecasts.")
    if output is not None:
        n = f"{found.chosen.size:,} {rows.nouns} are" if found.chosen.size else "No rows are"
        say(f"\n{n} in {output}.")
    for what, place in (("The report", report), ("The state", state)):
        if place is not None:
            say(f"{what} is in {place}.")


def _issue(online: OnlineConformal, rows: ForecastRows, found: Resumed, level: float) -> list[Any]:
    """Give all to the state; return rows, uncorrected bounds, and what was issued."""
    from dubito.measure.regression import central_interval
    from dubito.measure.regression_audit import interval_levels

    judged: list[Any] = []
    arrived, chosen = found.arrived, found.chosen
    if arrived.size:
        _, bounds, issued = online.waiting(rows.ids[arrived])
        judged.append((arrived, bounds.T, issued))
        online.schedule(rows.truths(arrived), ids=rows.ids[arrived])
    if not chosen.size:
        return judged
    outputs = rows.outputs_of(chosen)
    try:
        issued = online.replay(
            outputs,
            rows.truths(chosen),
            time=rows.times.values[chosen],
            series=rows.series[chosen],
            horizon=rows.horizons[chosen],
            known=None if rows.known is None else rows.known.values[chosen],
            ids=rows.ids[chosen],
        )
    except (BadTypeError, BadValueError) as error:
        if error.argument == "level":
            levels = " or ".join(f"{one:g}" for one in interval_levels(outputs))
            fix = f"Pass --level {levels}" if levels else "Add quantiles"
            raise error.moved(argument="", caller="--level", fix=fix) from error
        name = "--known" if error.argument == "known" else error.argument
        row = None if error.row is None else int(chosen[error.row])
        raise error.moved(argument=name, caller=rows.file, row=row) from error
    raw = central_interval(outputs, level, CALLER) if online.kind_ == "spread" else None
    judged.append((chosen, raw, issued))
    return judged


def _warn(rows: ForecastRows, found: Resumed, state: Path | None, horizon: str | None) -> None:
    """Print what was not done as one might expect."""
    from dubito.formatting import quantity

    def note(some: IntArray, noun: str, verb: str, text: str, remedy: str = "") -> None:
        if some.size:
            example = f"e.g. that of {rows.described(some[0])}"
            say_note(f"{quantity(some.size, noun, verb)} {text}, {example}.{remedy}")

    text = f"too late for {rows.nouns}: older than the last one in {state}, with an outcome that "
    note(found.too_late, "forecast", "is", f"{text}counts as known by then")
    text = f"from what {state} issued {rows.nouns} for, which stay as they are"
    note(found.changed, "forecast", "differs", text)
    text = "given before with another value, which is kept"
    note(found.other_truths, "outcome", "was", text)
    if not (found.chosen.size or found.arrived.size):
        text = "learned from in earlier runs and ignored now, also if the value is another one"
        note(found.learned, "outcome", "was", text)
    text, remedy = f"of no forecast in {state} and ignored", " Check the series, horizon and time."
    note(found.unmatched, "outcome", "was", text, remedy)
    steps = rows.horizons if horizon is not None else ()
    if len(steps) and min(steps) == 1 and rows.known is None:
        say_note(
            f"The smallest value of `{horizon}` is 1, where horizons count from 0: each outcome "
            "counts as known one step late if 1 is the next step. Pass --horizon-from 1 then."
        )


def _print_counts(
    online: OnlineConformal,
    rows: ForecastRows,
    found: Resumed,
    state: Path | None,
    bad_rows: Path | None,
) -> None:
    """Print what became of rows, and when outcomes count as known."""
    from dubito.formatting import percent, quantity

    if found.arrived.size:
        say(f"\n{found.arrived.size:,} of the outcomes belong to forecasts of earlier runs.")
        n_truths, n_covered = online.truth_counts
        if n_truths:
            covered = f"covered {percent(n_covered / n_truths)} of {n_truths:,} outcomes"
            say(f"In all runs, {rows.nouns} {covered}.")
    if found.learned.size and (found.chosen.size or found.arrived.size):
        say(f"\n{quantity(found.learned.size, 'outcome', 'was')} learned from in earlier runs.")
    if found.late.size:
        are = quantity(found.late.size, "forecast", "is")
        say(
            f"\n{are} older than the last one in {state}, with {rows.nouns} that use what is known "
            f"by then, e.g. that of {rows.described(found.late[0])}."
        )
    say_rearranged(rows.n_rearranged)
    if bad_rows is not None and rows.n_bad:
        say()
        say_bad_rows(rows.n_bad, bad_rows)
    if found.chosen.size and rows.known is None:
        _print_steps(online, rows.options.horizon_from)


def _coverage(
    online: OnlineConformal, rows: ForecastRows, judged: list[Any], level: float
) -> tuple[ForecastCoverage, dict[str, Any]]:
    """Return what was covered, and the columns that this is about.

    Each part has rows, uncorrected bounds, and what was issued.
    """
    import numpy as np

    from dubito.doubt import PredictionSets
    from dubito.monitor import forecast_coverage

    def joined(name: str) -> Any:
        return np.concatenate([getattr(one, name) for *_, one in judged])

    chosen, raw = np.concatenate([one for one, _, _ in judged]), None
    if online.kind_ == "spread":
        low, high = np.concatenate([one for _, one, _ in judged], axis=1, dtype=np.float64)
        raw = low, high
    issued: Any
    if rows.classes is None:
        issued = joined("low"), joined("high")
    else:
        issued = PredictionSets(joined("contains"), thresholds=joined("thresholds"))
    outputs = rows.outputs_of(chosen)
    arguments = {
        "series": rows.series[chosen].tolist(),
        "horizon": (rows.horizons[chosen] + rows.options.horizon_from).tolist(),
        "time": rows.times.numbers[chosen],
    }
    months, spread = rows.times.months[chosen].tolist(), None if rows.is_point else outputs
    found = forecast_coverage(
        rows.y[chosen], raw, issued, level=level, month=months, outputs=spread, **arguments
    )
    return found, {**arguments, "y": rows.y[chosen], "corrected": issued, "outputs": outputs}


def _report(
    online: OnlineConformal,
    rows: ForecastRows,
    coverage: ForecastCoverage,
    arguments: dict[str, Any],
) -> Report:
    """Return the report, with a few series drawn; sets have none."""
    from dubito.measure.regression import has_median, point_of_rows
    from dubito.monitor.forecasts import ForecastTrace, forecast_traces
    from dubito.report import forecast_report

    outputs, traces = arguments.pop("outputs"), tuple[ForecastTrace, ...]()
    if coverage.kind != "sets":
        center = outputs if rows.is_point else None
        if not rows.is_point and outputs is not None and has_median(outputs):
            center = point_of_rows(outputs)
        traces = forecast_traces(coverage, center=center, **arguments)
    return forecast_report(
        coverage,
        command=typed(),
        traces=traces,
        is_dated=rows.times.kind == "dates",
        facts=_facts(online, rows),
    )


def _facts(online: OnlineConformal, rows: ForecastRows) -> list[tuple[str, str]]:
    """Return where the results come from."""
    from dubito.data import ArrayShards
    from dubito.data.shards import fingerprint
    from dubito.formatting import percent, short_percent

    order = rows.times.numbers.argsort()
    first, last = (rows.times.texts[row] for row in order[[0, -1]])
    weights = sorted(online.choice.items(), key=lambda one: -one[1])
    shown = ", ".join(f"{name} {percent(weight)}" for name, weight in weights if weight > 0.0005)
    known = "not found yet"
    if rows.known is not None:
        known = f"as column {rows.options.known} says"
    elif steps := _steps(online):
        known = f"{steps} after the forecast, times the horizon + 1"
    facts = [
        ("File", rows.file),
        ("Times", f"{first} to {last}"),
        ("Nominal coverage", short_percent(online.level)),
        ("Outcomes count as known", known),
        ("Weights of methods now", shown or "none yet"),
    ]
    if rows.batch is not None:
        digest = fingerprint(ArrayShards(rows.batch))
        facts.append(("Fingerprint of forecasts and outcomes", digest))
    return facts


def _steps(online: OnlineConformal) -> str:
    """Return the time between two steps, of all series."""
    from dubito.data.times import duration

    steps = sorted({one for one in online.steps_ if one is not None})
    shown = [duration(one) if online.time_kind_ == "dates" else f"{one:g}" for one in steps]
    return f"{shown[0]} to {shown[-1]}, by series," if len(shown) > 1 else "".join(shown)


def _print_steps(online: OnlineConformal, first: int) -> None:
    """Print when outcomes count as known; `first` is the horizon of the next step."""
    span = _steps(online)
    if not span:
        text = "All forecasts are of one time: how long it takes until an outcome is known is the "
        text += "time until the next forecasts"
    elif min(online.horizons_) > 0:
        times = "times the horizon" if first else "times the horizon + 1"
        text = f"Outcomes count as known {span} after their forecast, {times}"
    else:
        text = f"The outcome of horizon {first} counts as known {span} after its forecast"
        if max(online.horizons_) > 0:
            text += f", that of horizon {first + 1} after twice that"
    say(f"\n{text} (set with --known).")


def _open_state(path: Path | None, level: float) -> OnlineConformal:
    """Return the state of a file, or a new one for this level."""
    from dubito.doubt import OnlineConformal
    from dubito.formatting import printable
    from dubito.serialization.documents import decode_document, read_text

    if not 0 < level < 1:
        rule, meant = "must be strictly between 0 and 1", level / 100 if 1 < level < 100 else 0.9
        raise BadValueError("", "--level", rule, f"{level:g}", f"Pass --level {meant:g}")
    if path is None or not path.exists():
        return OnlineConformal(level)
    document = decode_document(read_text(path), str(path))[0]
    kind = document.get("class")
    if kind != "OnlineConformal":
        problem, fix = "it is not a state of forecasts", "Pass another --state"
        if isinstance(kind, str) and (kind.endswith("Policy") or kind == "Cascade"):
            problem = f"it is a policy ({kind}), not a state of forecasts"
            command = "cascade decide" if kind == "Cascade" else "decide"
            fix = f"Pass another --state, or use `dubito {command} {path}`"
        elif isinstance(kind, str):
            problem = f"{problem} (its class is {printable(kind[:50])})"
        raise BadFileError(str(path), problem, fix)
    online = OnlineConformal.from_dict(document)
    if online.level != level:
        rule, fix = f"must be {online.level:g}, as in {path}", f"Pass --level {online.level:g}"
        raise BadValueError("", "--level", rule, f"{level:g}", fix)
    return online


def _write(
    output: Path,
    rows: ForecastRows,
    chosen: IntArray,
    found: PredictionIntervals | PredictionSets | None,
) -> None:
    """Write the interval or set of each forecast beside its columns, in the order of the file."""
    import numpy as np

    from dubito.data import Sink
    from dubito.doubt import PredictionSets

    assert rows.kept is not None
    assert rows.batch is not None
    assert rows.batch.kept is not None
    order = np.argsort(chosen)
    table = rows.batch.kept.select(list(rows.kept.names)).take(rows.places[chosen[order]])
    inputs = dict(zip(rows.kept.names.values(), table.columns, strict=True))
    results: dict[str, Any] = {"low": np.zeros(0), "high": np.zeros(0)}
    if rows.classes is not None:
        results = {"prediction_set": np.zeros(0, dtype=str), "set_size": np.zeros(0, np.int64)}
    if isinstance(found, PredictionSets):
        members = [{*found.names(row)} for row in order]
        names = [", ".join(str(one) for one in rows.class_order if one in own) for own in members]
        results = {"prediction_set": names, "set_size": found.sizes[order]}
    elif found is not None:
        results = {"low": found.low[order], "high": found.high[order]}
    with Sink(output) as sink:
        sink.write({**inputs, **results})


def _print(coverage: ForecastCoverage) -> None:
    """Print the verdict, and tables by horizon, series and month."""
    from dubito.formatting import percent, quantity
    from dubito.monitor.forecasts import in_percent

    say(coverage.verdict)
    width = "width" if coverage.kind == "intervals" else "size"
    columns: dict[str, Callable[[CoverageRow], str]] = {
        "outcomes": lambda one: f"{one.n_rows:,}",
        "uncorrected": lambda one: percent(one.raw),
        "corrected": lambda one: percent(one.corrected),
        "95 % interval": lambda one: in_percent(one.interval),
        width: lambda one: f"{one.width:.4g}",
        "score / raw": lambda one: "-" if one.score_ratio is None else f"{one.score_ratio:.3f}",
    }
    is_whole = coverage.n_series == len(coverage.worst_series)
    series = "series" if is_whole else f"lowest {len(coverage.worst_series)} series"
    if coverage.total.raw is None:
        del columns["uncorrected"]
    if coverage.total.raw is None or coverage.kind == "sets":
        del columns["score / raw"]
    for title, rows in (
        ("horizon", coverage.by_horizon[:MAX_ROWS]),
        (series, coverage.worst_series),
        ("month", coverage.by_month[-MAX_ROWS:]),
    ):
        if len(rows) > 1:
            say()
            cells = [[one.name, *(cell(one) for cell in columns.values())] for one in rows]
            show_table([title, *columns], cells)
    hidden = {"later horizon": coverage.by_horizon, "earlier month": coverage.by_month}
    for what, all_rows in hidden.items():
        if (count := len(all_rows) - MAX_ROWS) > 0:
            say(f"{quantity(count, what, 'is')} in --report and --json.")
    if "score / raw" in columns and coverage.total.n_rows:
        say("\nscore / raw is the interval score divided by the uncorrected one: lower is better.")
    if coverage.n_future:
        say(f"\n{quantity(coverage.n_future, 'forecast', 'has')} no outcome yet.")
    if coverage.n_warm_up:
        say(f"{quantity(coverage.n_warm_up, 'outcome')} came before the first correction.")

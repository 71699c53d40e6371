"""The rows of a file of forecasts: places in time, outcomes, and forecasts where there are any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.cli.columns import ColumnOptions
from dubito.cli.forecast import CALLER
from dubito.cli.printing import say_note
from dubito.cli.reading import Predictions, open_input
from dubito.cli.writing import KeptColumns, bad_rows_remedy
from dubito.data import BadRows, Batch, Sink, parsing, read
from dubito.data.files import read_cells
from dubito.data.labels import Labels, Targets, names_of
from dubito.data.patterns import missing_column
from dubito.data.times import Times, parse_times
from dubito.errors import BadValueError
from dubito.measure.regression import moment_matched
from dubito.outputs import BaseClassOutputs, Probabilities

if TYPE_CHECKING:
    from dubito.doubt import OnlineConformal

RESULTS = ("low", "high", "prediction_set", "set_size")
FORECASTS = (
    "Pass --quantiles 'q_*', --mean and --std, --samples 's_*', --probabilities 'p_*', --logits "
    "'z_*', or --forecast"
)
KINDS = {
    "points": ("point forecasts", "--forecast"),
    "spread": ("intervals", "--quantiles, --mean and --std, or --samples"),
    "classes": ("class probabilities", "--probabilities or --logits"),
}


@final
@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """The options that say of when and what a row is."""

    time: str
    series: str | None
    horizon: str | None
    known: str | None
    time_format: str | None = None
    horizon_from: int = 0

    @property
    def columns(self) -> dict[str, str]:
        """The columns that were named, by option."""
        pairs = ((role, getattr(self, role)) for role in ("time", "series", "horizon", "known"))
        return {f"--{role}": name for role, name in pairs if name is not None}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Resumed:
    """The rows of a file by what a state does with them.

    `chosen` are issued, `late` ones among them at the time of the last forecast; those `too_late`
    are not. Outcomes `arrived` for forecasts of earlier runs. Forecasts that wait are `changed` if
    they were others, and have `other_truths` if they got another one before. Those `learned` had
    their outcome in an earlier run, and those `unmatched` have an outcome and no forecast.
    """

    chosen: IntArray
    arrived: IntArray
    late: IntArray
    too_late: IntArray
    changed: IntArray
    other_truths: IntArray
    learned: IntArray
    unmatched: IntArray

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of rows, for JSON."""
        names = ("arrived", "late", "too_late", "changed", "other_truths", "learned", "unmatched")
        return {f"n_{name}": int(getattr(self, name).size) for name in names}


@final
@dataclass(frozen=True, eq=False)
class ForecastRows:
    """The rows of a file, without those that were set aside.

    `places` holds the number of each row's forecast among the outputs, -1 where it has none;
    horizons count from 0, and are shown as in the file.
    """

    file: str
    options: PlaceOptions
    times: Times
    known: Times | None
    series: NDArray[Any]
    horizons: IntArray
    y: FloatArray
    classes: tuple[Any, ...] | None
    places: IntArray
    outputs: Any  # None without forecasts
    batch: Batch | None
    kept: KeptColumns | None
    n_bad: int
    class_order: tuple[Any, ...]  # that of the columns of the file

    @cached_property
    def ids(self) -> NDArray[Any]:
        """The identifier of each row, by series, horizon and time."""
        keys = zip(self.series.tolist(), self.horizons.tolist(), self.times.texts, strict=True)
        return np.array([f"{name}, {step}, {text}" for name, step, text in keys], dtype=object)

    @property
    def n_rearranged(self) -> int:
        """The number of rows whose crossing quantiles were sorted."""
        return 0 if self.batch is None else getattr(self.batch.outputs, "n_rearranged", 0)

    @property
    def nouns(self) -> str:
        """What is issued."""
        return "intervals" if self.classes is None else "sets"

    def truths(self, rows: IntArray) -> Any:
        """Return the outcomes of some rows as `OnlineConformal` takes them."""
        if self.classes is None:
            return self.y[rows]
        return [None if one != one else self.classes[int(one)] for one in self.y[rows].tolist()]

    def outputs_of(self, rows: IntArray) -> Any:
        """Return the forecasts of some rows; None if one has none."""
        places = self.places[rows]
        if self.outputs is None or (places < 0).any():
            return None
        return self.outputs[places] if self.is_point else self.outputs.take(places)

    @property
    def is_point(self) -> bool:
        """Whether forecasts are points."""
        return isinstance(self.outputs, np.ndarray)

    def described(self, row: int) -> str:
        """Return the series, horizon, time and number of a row."""
        horizon = self.horizons[row] + self.options.horizon_from
        place = f"series {str(self.series[row])!r}, horizon {horizon}"
        return f"{place}, {self.times.texts[row]}"

    def require_fits(self, online: OnlineConformal, state: Path | None) -> None:
        """Raise unless times and forecasts are of the kind of a state."""
        if not online.__sklearn_is_fitted__():
            return
        if online.time_kind_ not in (None, self.times.kind):
            rule = f"must hold {online.time_kind_}, as in {state}"
            got = f"{self.times.kind} such as {self.times.texts[0]}"
            form = "dates such as 2025-01-31" if online.time_kind_ == "dates" else "numbers"
            fix = f"Write {form}, or pass another --state"
            raise BadValueError(self.options.time, self.file, rule, got, fix, 0)
        kind = "points" if self.is_point else "spread" if self.classes is None else "classes"
        if self.outputs is not None and kind != online.kind_:
            (wanted, flags), got = KINDS[online.kind_], KINDS[kind][0]
            rule = f"must hold {wanted}, as before in {state}"
            raise BadValueError("", self.file, rule, got, f"Pass {flags}, or another --state")

    def resume(self, online: OnlineConformal) -> Resumed:
        """Sort rows by what is to be done with them."""
        times, has_forecast, has_truth = self.times.numbers, self.places >= 0, ~np.isnan(self.y)
        none = np.zeros(0, dtype=np.int64)
        if not online.__sklearn_is_fitted__():
            return Resumed(self._in_order(np.arange(len(self.y))), *[none] * 7)
        last = -np.inf if online.time_ is None else online.time_
        waiting = set(online.waiting_ids_)
        is_waiting = np.array([one in waiting for one in self.ids], dtype=bool)
        found = np.flatnonzero(is_waiting)
        arrived = changed = other = none
        if found.size:
            is_known = online.waiting(self.ids[found])[0]
            arrived = found[has_truth[found] & ~is_known]
            other = found[online.find_changed(None, self.truths(found), ids=self.ids[found])[1]]
            sent = found[has_forecast[found]]
            if sent.size:
                given = self.outputs_of(sent), self.truths(sent)
                changed = sent[online.find_changed(*given, ids=self.ids[sent])[0]]
        known = None if self.known is None else self.known.values
        is_late, is_lost = online.find_late(
            self.times.values, series=self.series, horizon=self.horizons, known=known
        )
        is_missing = ~is_waiting & ((times >= last) | is_late | is_lost)
        is_issued = is_missing & has_forecast & ~is_lost
        parts = (
            is_issued & is_late,
            is_missing & has_forecast & is_lost,
            has_truth & ~is_waiting & ~is_missing,
            has_truth & is_missing & ~has_forecast,
        )
        late, lost, learned, unmatched = (np.flatnonzero(one) for one in parts)
        chosen = self._in_order(np.flatnonzero(is_issued))
        return Resumed(chosen, arrived, late, lost, changed, other, learned, unmatched)

    def _in_order(self, rows: IntArray) -> IntArray:
        """Return rows in order of time, series and horizon: that of a file does not matter."""
        keys = (self.horizons[rows], self.series[rows], self.times.numbers[rows])
        return np.asarray(rows[np.lexsort(keys)])


def read_forecast_rows(
    file: str,
    options: ColumnOptions,
    places: PlaceOptions,
    *,
    forecast: str | None,
    online: OnlineConformal,
    has_state: bool,
    output: Path | None,
    bad_rows: Path | None,
) -> ForecastRows:
    """Read a file of forecasts, with a state also without outcomes; once it exists, of outcomes."""
    is_resumed = online.__sklearn_is_fitted__()
    source = open_input(file)
    names = source.schema.names
    options = _with_forecast(options, forecast, is_resumed=is_resumed)
    new = {} if forecast is None or is_resumed else {"--forecast": forecast}
    for option, name in (places.columns | new).items():
        if name not in names:
            raise missing_column(name, names, option, file)
    if has_state and options.label is not None and options.label not in names:
        say_note(f"{file} has no column {options.label}: no outcomes there.")
        options = replace(options, label=None)
    wanted = list(dict.fromkeys(places.columns.values()))
    read_texts = read_cells(source, wanted, wanted)
    cells = {name: one.array.to_pylist() for name, one in read_texts.items()}
    n = len(cells[places.time])
    one, is_blank, is_kept = None, np.ones(n, dtype=bool), np.ones(n, dtype=bool)
    if options.has_outputs(names) or not is_resumed:
        [one] = options.open(file, label="optional" if has_state else "required")
        is_blank = _blank_rows(one) if is_resumed else np.zeros(n, dtype=bool)
    y, numbers = np.full(n, np.nan), np.full(n, -1)
    outputs: Any = None
    batch = kept = classes = None
    if is_resumed and online.kind_ == "classes":
        classes = online.classes_ or tuple(range(online.n_classes_ or 2))
    order = classes or ()
    if one is not None and not is_blank.all():
        bad = BadRows()
        batch, kept = _read_batch(one, is_blank, output, bad_rows, bad)
        rows = np.arange(n) if batch.ids is None else np.asarray(batch.ids, dtype=np.int64)
        numbers[rows] = np.arange(rows.size)
        is_kept[[each.row for each in bad]] = False
        is_kept |= is_blank
        outputs, classes, order = batch.outputs, None, ()
        if isinstance(outputs, BaseClassOutputs):  # also if a state has none: see `require_fits`
            classes = tuple(names_of(outputs))
            order = _in_file_order(classes, one, names)
        if isinstance(batch.labels, Labels):
            y[rows] = np.where(batch.labels.codes < 0, np.nan, batch.labels.codes)
        elif isinstance(batch.labels, Targets):
            y[rows] = batch.labels.values.astype(np.float64)
        if forecast is not None:
            outputs = outputs.array[:, 0]
    if is_blank.any():
        y[is_blank] = _read_truths(file, options.find_label(names, file), classes)[is_blank]
    rows = np.flatnonzero(is_kept)
    known_cells = {name: [column[row] for row in rows] for name, column in cells.items()}
    found = ForecastRows(
        file,
        places,
        *_placed(file, places, known_cells, rows),
        y=y[rows],
        classes=classes,
        places=numbers[rows],
        outputs=outputs,
        batch=batch,
        kept=kept,
        n_bad=n - rows.size,
        class_order=order,
    )
    _require_single(found, rows)
    return found


def _in_file_order(classes: tuple[Any, ...], one: Predictions, names: list[str]) -> tuple[Any, ...]:
    """Return classes in the order of their columns."""
    bound = one.columns.bind(names, one.file)
    columns = bound.found[bound.kind]
    if len(columns) != len(classes):
        return classes
    places = {name: names.index(column) for name, column in zip(classes, columns, strict=True)}
    return tuple(sorted(classes, key=lambda name: places[name]))


def _with_forecast(
    options: ColumnOptions, forecast: str | None, *, is_resumed: bool
) -> ColumnOptions:
    """Return options in which point forecasts are draws; raise unless there is one kind."""
    options.require_single_label("forecast")
    given = options.kinds
    if (given and forecast is not None) or not (given or forecast or is_resumed):
        got = f"--forecast and --{given[0]}" if forecast else "none"
        raise BadValueError("", CALLER, "needs forecasts of one kind", got, FORECASTS)
    if given == ["confidence"]:
        rule = "needs the probability of each class"
        raise BadValueError("", CALLER, rule, given[0], "Pass --probabilities 'p_*'")
    return options if forecast is None else replace(options, samples=forecast)


def _blank_rows(one: Predictions) -> BoolArray:
    """Return which rows have no forecast: all of its cells are blank."""
    bound = one.columns.bind(one.source.schema.names, one.file)
    names = [*bound.found[bound.kind], *bound.found.get("std", ())]
    cells = read_cells(one.source, names, names).values()
    is_blank: BoolArray = np.all([column.is_blank for column in cells], axis=0)
    return is_blank


def _read_batch(
    one: Predictions,
    is_blank: BoolArray,
    output: Path | None,
    bad_rows: Path | None,
    bad: BadRows,
) -> tuple[Batch, KeptColumns | None]:
    """Read the rows with a forecast; write those that are invalid to a file, or raise."""
    kept = None if output is None else KeptColumns.of([one], None, None, RESULTS, str(output))
    columns = replace(one.columns, keep=kept.types if kept else {})
    is_filtered = bad_rows is not None or bool(is_blank.any())
    with bad_rows_remedy(bad_rows, keep_others=True):
        batch = read(one.source, columns, bad_rows=bad if is_filtered else None)
        for each in bad:
            if is_blank[each.row]:
                del bad.found[each.file, each.row]
            elif bad_rows is None:
                fix = "Fix the cell, or drop the row"
                raise BadValueError(each.column, one.file, each.reason, each.value, fix, each.row)
    if bad_rows is not None:
        with Sink(bad_rows) as sink:
            sink.write(bad.columns)
    return moment_matched(batch), kept


def _read_truths(file: str, label: str, classes: tuple[Any, ...] | None) -> FloatArray:
    """Return the outcomes of all rows: numbers, or the columns of classes."""
    cells = read_cells(open_input(file), [label], [label])[label]
    if classes is None:
        return cells.numbers(has_gaps=True).astype(np.float64)
    values = parsing.labels(cells.values().tolist(), classes)
    blank = Probabilities(np.full((len(values), len(classes)), 1 / len(classes)), classes)
    codes = Labels.of(values, blank, label, file).codes
    return np.where(codes < 0, np.nan, codes)


def _placed(
    file: str, options: PlaceOptions, cells: Mapping[str, list[Any]], numbers: IntArray
) -> tuple[Times, Times | None, NDArray[Any], IntArray]:
    """Return times, when outcomes were known, series and horizons; raise for a wrong cell."""

    def times_of(name: str) -> Times:
        is_local = options.known is None
        return parse_times(cells[name], name, file, form=options.time_format, is_local=is_local)

    n = len(numbers)
    try:
        times, known = times_of(options.time), None
        if options.known is not None:
            known = times_of(options.known)
            _require_later(times, known, options, file)
        names = ["all"] * n if options.series is None else cells[options.series]
        for row, name in enumerate(names):
            if name is None or not str(name).strip():
                rule, fix = "must name the series of each row", "Fill in the cell or drop the row"
                raise BadValueError(f"{options.series}", file, rule, "a blank cell", fix, row)
        steps = [options.horizon_from] * n if options.horizon is None else cells[options.horizon]
        counted = [_horizon(one, row, options, file) for row, one in enumerate(steps)]
    except BadValueError as error:
        if error.row is None:
            raise
        raise error.moved(row=int(numbers[error.row])) from error
    return times, known, np.array(list(map(str, names))), np.array(counted, dtype=np.int64)


def _require_later(times: Times, known: Times, places: PlaceOptions, file: str) -> None:
    """Raise unless outcomes were known after their forecasts."""
    if times.kind != known.kind:
        rule, got = f"must hold {times.kind}, as `{places.time}`", f"{known.texts[0]}"
        raise BadValueError(f"{places.known}", file, rule, got, "Pass another --known", 0)
    is_early = known.values <= times.values
    if is_early.any():
        row = int(is_early.argmax())
        rule = f"must be after `{places.time}` ({times.texts[row]})"
        fix = "Fix the cell, or pass another --known"
        raise BadValueError(f"{places.known}", file, rule, known.texts[row], fix, row)


def _horizon(cell: Any, row: int, places: PlaceOptions, file: str) -> int:
    """Return a cell as a whole number, counted from 0; 1.0 is 1."""
    least = places.horizon_from
    try:
        value = float(cell)
    except (TypeError, ValueError):
        value = -1.0
    if not (value >= least and value.is_integer()):
        got = "a blank cell" if cell is None or cell == "" else repr(cell)
        rule = f"must hold whole numbers of at least {least}"
        fix = "Fix the cell, or leave out the row"
        raise BadValueError(f"{places.horizon}", file, rule, got, fix, row)
    return int(value) - least


def _require_single(rows: ForecastRows, numbers: IntArray) -> None:
    """Raise if there are two forecasts of one series, horizon and time."""
    first: dict[str, int] = {}
    for row, key in enumerate(rows.ids):
        if (other := first.setdefault(key, row)) != row:
            got = f"two of {rows.described(row)} (rows {numbers[other]} and {numbers[row]})"
            spare = [one for one in ("--horizon", "--series") if one not in rows.options.columns]
            fix = f"Pass {' or '.join(spare)}, or remove one" if spare else "Remove one"
            rule = "must have one forecast per series, horizon and time"
            raise BadValueError("", rows.file, rule, got, fix)

"""Inputs of commands: rows in memory, streamed or on a Dask cluster; and output paths."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from enum import StrEnum
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, final

from dubito.cli.options import OptionGroup, first_few, join_choices
from dubito.cli.printing import say_note
from dubito.errors import BadFileError, BadValueError, BaseRuleError, DubitoError

if TYPE_CHECKING:
    from dubito.cli.columns import ColumnOptions
    from dubito.data import BadRows, Columns, DaskShards, FileShards, Shards
    from dubito.data.sources import BaseSource

MAX_MEMORY = "1GB"
MIN_ANSWERS = 50  # that a fit should have
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.IGNORECASE)
MAX_KEPT = 32  # input files that a command keeps open: a process may open some hundred
BYTES_PER_FILE_BYTE = 4  # numbers as float64, per byte of a file whose row count is unknown


_INPUTS: ContextVar[dict[str, BaseSource] | None] = ContextVar("inputs", default=None)


@contextmanager
def inputs_kept_open() -> Iterator[None]:
    """Keep input files open until a command ends, so that all of its passes open them once."""
    inputs: dict[str, BaseSource] = {}
    before = _INPUTS.set(inputs)
    try:
        yield
    finally:
        _INPUTS.reset(before)
        for source in inputs.values():
            source.close()


def open_input(file: str) -> BaseSource:
    """Open an input of a command: one source, however often the command asks for it."""
    from dubito.data.sources import open_source

    inputs = _INPUTS.get()
    if inputs is None:
        return open_source(file)
    if file not in inputs:
        inputs[file] = open_source(file, is_kept=len(inputs) < MAX_KEPT)
    return inputs[file]


@final
class Engine(StrEnum):
    """Where rows are processed."""

    LOCAL = "local"
    DASK = "dask"


class Predictions(NamedTuple):
    """An opened file of predictions and its columns; `file` is the name that the user typed."""

    file: str
    source: BaseSource
    columns: Columns


@final
class Reader(OptionGroup):
    """Reads predictions on an engine; a Dask cluster is connected to when first needed.

    Options
    -------
    engine
        local or dask (a cluster on this machine unless --scheduler is given).
    scheduler
        Address of a Dask scheduler, e.g. tcp://10.0.0.1:8786.
    max_memory
        Load files up to this size into memory, e.g. 500MB; stream larger ones.
    """

    def __init__(
        self,
        engine: Engine = Engine.LOCAL,
        scheduler: str | None = None,
        max_memory: str = MAX_MEMORY,
    ) -> None:
        if scheduler is not None and engine != Engine.DASK:
            rule, fix = "must be used with --engine dask", "Pass --engine dask as well"
            raise BadValueError("", "--scheduler", rule, f"{scheduler} alone", fix)
        self.is_dask = engine == Engine.DASK
        self.scheduler = scheduler
        self.max_memory = max_memory
        self.max_bytes = _as_bytes(max_memory)
        self.opened = ExitStack()
        self.files: list[str] = []  # that were sent to workers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.opened.close()
        if isinstance(error, DubitoError) and self.files:
            shorten = typed_names(*self.files)
            renamed = [shorten(one) if isinstance(one, str) else one for one in error.args]
            if renamed != list(error.args):
                raise type(error)(*renamed) from error

    @cached_property
    def client(self) -> Any:
        """The client of the Dask cluster, with its logging silenced: errors are raised anyway."""
        from dubito.data.dask import connected, extra

        extra()  # importing it sets log levels, also of child loggers
        for name in sorted({"asyncio", "distributed", "tornado", *logging.root.manager.loggerDict}):
            if name.partition(".")[0] in ("asyncio", "distributed", "tornado"):
                logger = logging.getLogger(name)
                self.opened.callback(logger.setLevel, logger.level)
                logger.setLevel(logging.CRITICAL + 1)
        return self.opened.enter_context(connected(self.scheduler))

    def rows(self, predictions: Predictions, bad_rows: BadRows | None = None) -> Shards:
        """Return rows in memory, where metrics are exact, or streamed if they are too large.

        Invalid rows raise an error, unless there is a place for them.
        """
        from dubito.data import ArrayShards, read, scan

        if self.is_dask:
            return self.on_workers(predictions, bad_rows)
        file, source, columns = predictions
        shards = scan(source, columns, bad_rows=bad_rows)
        if _memory_needed(shards, self.max_bytes) <= self.max_bytes:
            batch = read(source, columns, bad_rows=bad_rows)
            source.close()  # others may replace the file while its rows are processed
            return ArrayShards(batch)

        is_ranked = not {"mean", "quantiles", "samples"}.intersection([shards.columns.kind])
        rest = ": metrics that rank rows come from a fine grid" if is_ranked else ""
        say_note(f"{file} exceeds --max-memory {self.max_memory} and is streamed{rest}.")
        return shards

    def streamed(self, predictions: Predictions, bad_rows: BadRows | None) -> Shards:
        """Return rows streamed from files, never all in memory at once."""
        from dubito.data import scan

        if self.is_dask:
            return self.on_workers(predictions, bad_rows)
        return scan(predictions.source, predictions.columns, bad_rows=bad_rows)

    @contextmanager
    def held_out(self, fitted: Predictions, file: str | None) -> Iterator[Any]:
        """Yield the rows to evaluate on: folds, or a file with the columns of the fit.

        What a fit within finds wrong with them is reported by the name of the file.
        """
        if file is None:
            yield "cross-fit"
            return
        try:
            yield self.rows(Predictions(file, open_input(file), fitted.columns))
        except BaseRuleError as error:
            lacks = error.caller == file and error.rule.startswith("has no column")
            if error.argument != "evaluate_on" and not lacks:
                raise
            fix = f"Pass --evaluate-on a labeled file with the columns of {fitted.file}"
            raise error.moved(argument="", caller=file, fix=fix) from error

    def on_workers(self, predictions: Predictions, bad_rows: BadRows | None = None) -> DaskShards:
        """Return rows read by the workers of the cluster, whatever their working directory."""
        from dubito.data import DaskShards
        from dubito.data.sources.locations import is_url

        file = predictions.file
        predictions.source.close()  # the workers open it themselves
        self.files.append(file)
        path = file if is_url(file) else os.path.abspath(file)
        return DaskShards(self.client, path, predictions.columns, bad_rows=bad_rows)


def count_rearranged(*files: Shards) -> int:
    """Return the number of rows in which quantiles crossed and were sorted."""
    return sum(rows.sum(lambda batch: getattr(batch.outputs, "n_rearranged", 0)) for rows in files)


def _as_bytes(size: str) -> int:
    """Return a size in bytes.

    >>> _as_bytes("500MB"), _as_bytes("2GB")
    (500000000, 2000000000)
    """
    match = SIZE.fullmatch(size.strip())
    if match is None:
        rule, fix = "must be a size such as 500MB or 2GB", "Pass --max-memory 2GB"
        raise BadValueError("", "--max-memory", rule, repr(size), fix)
    return int(float(match[1]) * 1000 ** " KMGT".index(match[2].upper() or " "))


def _memory_needed(shards: FileShards, max_bytes: int) -> int:
    """Return an estimate of the memory that the numbers of files take, in bytes."""
    from dubito.data.sources.locations import files_under, size_of
    from dubito.data.table_queries import row_count

    source = shards.source
    files = files_under(source.name)
    upper = BYTES_PER_FILE_BYTE * sum(map(size_of, [source.name] if files is None else files))
    if not source.has_types and upper <= max_bytes:
        return upper  # a small text file: no need to count its lines
    n_rows = row_count(source)
    return upper if n_rows is None else 8 * n_rows * shards.columns.n_entries


def typed_names(*files: str) -> Callable[[str], str]:
    """Return a function that replaces absolute paths in a text by the names the user typed."""
    from dubito.data.sources.locations import folder_of, is_url

    typed = [folder_of(file) for file in files if not is_url(file)]
    names = {os.path.join(os.path.abspath(one), ""): os.path.join(one, "") for one in typed}
    names |= {os.path.abspath(one): os.path.normpath(one) for one in typed if one}
    return lambda text: reduce(lambda short, pair: short.replace(*pair), names.items(), text)


@contextmanager
def policy_first(command: str, policy: str | Path, files: Sequence[str]) -> Iterator[None]:
    """Explain the order of the arguments where a policy cannot be read and a file may be one."""
    try:
        yield
    except BadFileError as error:
        is_json = str(policy).lower().endswith(".json")
        if is_json or not ("JSON" in error.problem or "UTF-8" in error.problem):
            raise
        swapped = next((one for one in files if one.lower().endswith(".json")), None)
        order = f"{swapped} {policy}" if swapped else f"policy.json {files[0]}"
        fix = f"The policy comes first: {command} {order}"
        raise BadFileError(error.path, error.problem, fix) from error


def nearest_first(name: str, known: Sequence[str]) -> list[str]:
    """Return known names, those that are spelled like a name first.

    >>> nearest_first("PlatScaling", ["MatrixScaling", "BetaCalibration", "PlattScaling"])
    ['PlattScaling', 'MatrixScaling', 'BetaCalibration']
    """
    from difflib import get_close_matches

    spelled = {one.lower(): one for one in known}
    near = [spelled[one] for one in get_close_matches(name.lower(), spelled, n=3)]
    return [*near, *(one for one in known if one not in near)]


def check_rows(
    rows: Shards, file: str, options: ColumnOptions, *, is_single_error: bool = False
) -> None:
    """Raise for another positive class, and note labels that say too little to learn from."""
    from dubito.outputs import Scores, TopLabel

    outputs = next(rows.batches()).outputs
    require_positive(options.positive, outputs, file)
    _note_single_class(rows, file, is_error=is_single_error)
    if isinstance(outputs, Scores):
        _note_scores(rows, file)
    elif isinstance(outputs, TopLabel) and options.weight is None:
        _note_unknown_answers(rows, file)


def require_positive(positive: str | None, outputs: Any, file: str) -> None:
    """Raise unless the positive class is one of two, where it was given."""
    names = [str(name) for name in getattr(outputs, "classes", None) or ("0", "1")]
    if positive is None or (len(names) == 2 and positive in names):
        return
    if len(names) == 2:
        rule, fix = (
            f"is not a class of {file}, which has {' and '.join(names)}",
            positive_choices(names),
        )
    else:
        rule = f"applies to two classes; {file} has {len(names)}: {first_few(names)}"
        fix = "Leave out --positive"
    raise BadValueError("", f"--positive {positive}", rule, "", fix)


def _note_single_class(rows: Shards, file: str, *, is_error: bool) -> None:
    """Print a note if all labels are of one class, or raise; reading stops at the second class."""
    from dubito.data.labels import Labels, names_of
    from dubito.outputs import BaseClassOutputs, Scores

    found: set[int] = set()
    outputs: Any
    for batch in rows.batches():
        labels, outputs = batch.labels, batch.outputs
        if not (isinstance(labels, Labels) and isinstance(outputs, BaseClassOutputs)):
            return
        found |= set(labels.codes[batch.labeled_weight > 0].tolist())
        if len(found) > 1 or labels.probabilities is not None:
            return
    for code in found:
        names = [str(name) for name in names_of(outputs)]
        where = "--correct" if isinstance(outputs, Scores) else "--label"
        if is_error:
            rule, got = "must hold labels of two classes or more", f"'{names[code]}' in every row"
            fix = f"Check {where}, or add rows of other classes"
            if where == "--correct":
                fix = f"Check --correct, or add rows whose answer is {names[1 - code]}"
            raise BadValueError("", file, rule, got, fix)
        say_note(
            f"All labels in {file} are '{names[code]}', so nothing is known about "
            f"{first_few(names[:code] + names[code + 1 :])}: calibrated probabilities and costs "
            "are unreliable there, and metrics that compare classes are missing. Check "
            f"{where}, or add rows."
        )


def _note_unknown_answers(rows: Shards, file: str) -> None:
    """Print a note on rows with a confidence, but without `correct`: they have no weight."""
    import numpy as np

    from dubito.formatting import quantity

    n_rows = n_known = 0
    for batch in rows.batches():
        n_rows += len(batch)
        n_known += int(np.count_nonzero(batch.weight))
    if not n_known:
        rule, fix = "must be known in some rows", "Enter 1 for correct and 0 for wrong answers"
        raise BadValueError("", f"{file}: --correct", rule, "blanks only", fix)
    if n_rows > n_known:
        say_note(f"{quantity(n_rows - n_known)} of {file} left out: --correct is blank there.")


def _note_scores(rows: Shards, file: str) -> None:
    """Print a note on scores that are constant, on rows without `correct`, and on too few rows."""
    import numpy as np

    from dubito.formatting import quantity

    n_rows = n_missing = 0
    ranges: dict[str, tuple[float, float]] = {}
    for batch in rows.batches():
        n_rows, n_missing = n_rows + len(batch), n_missing + batch.n_missing
        scores: Any = batch.outputs
        for name, column in zip(scores.names, scores.array.T, strict=True):
            known = np.append(column[~np.isnan(column)], ranges.get(name, ()))
            if known.size:
                ranges[name] = float(known.min()), float(known.max())
    n_known = n_rows - n_missing
    if n_known < 2:
        rule = "must have at least 2 answers that are known to be correct or wrong"
        raise BadValueError("", file, rule, f"{n_known}", f"Add rows: use {MIN_ANSWERS} or more")
    for name, (low, high) in ranges.items():
        if low == high:
            say_note(f"`{name}` is {low:g} in every row of {file}, so it carries no information.")
    if n_missing:
        say_note(f"{quantity(n_missing)} of {file} left out: --correct is blank there.")
    if n_known < MIN_ANSWERS:
        say_note(
            f"{file} has {quantity(n_known, 'answer')} that are known to be correct or "
            f"wrong: too few to rely on P(correct). Use {MIN_ANSWERS} or more."
        )


def positive_choices(names: Sequence[str]) -> str:
    """Return the remedy that lists the possible positive classes.

    >>> positive_choices(["fraud", "ok"])
    'Pass --positive fraud or --positive ok'
    """
    return f"Pass {' or '.join(f'--positive {name}' for name in names[:4])}"


def is_number_text(text: str) -> bool:
    """Whether a text is a number, not a name."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def require_output_paths(
    paths: Mapping[str, str | Path | None],
    inputs: Sequence[str | Path],
    endings: Mapping[str, tuple[str, ...]] | None = None,
) -> None:
    """Raise before any work is done unless the file of each option can be written.

    `endings` are the file name endings that options require. URLs are not checked before they are
    written.

    >>> require_output_paths({"--output": "report.html"}, ["predictions.csv"])
    """
    from dubito.data.sources.locations import is_url

    taken = set(map(resolved, inputs))
    for option, place in paths.items():
        if place is None:
            continue
        path = Path(place)
        if resolved(place) in taken:
            rule = "must not be an input or another output"
            fix = f"Pass {option} other{path.suffix}"
            raise BadValueError("", option, rule, str(place), fix)
        if not is_url(str(place)):
            _require_directory(option, path, [Path(one) for one in taken])
        allowed = (endings or {}).get(option, (path.suffix.lower(),))
        if path.suffix.lower() not in allowed:
            rule = f"must end in {join_choices(allowed)}"
            fix = f"Pass {option} {path.stem}{allowed[0]}"
            raise BadValueError("", option, rule, str(place), fix)
        taken.add(resolved(place))


def resolved(place: str | Path) -> str:
    """Return a path in absolute form, and a URL unchanged."""
    from dubito.data.sources.locations import is_url

    return str(place) if is_url(str(place)) else os.path.realpath(place)  # also of a link to itself


def _require_directory(option: str, place: Path, taken: list[Path]) -> None:
    """Raise unless the directory of a file exists and is not an input of the next run."""
    if not place.parent.is_dir():
        rule, fix = "must be in an existing directory", f"Run mkdir -p {place.parent} first"
        raise BadValueError("", option, rule, str(place), fix)
    is_table = place.suffix.lower() not in (".html", ".json")
    target = Path(os.path.realpath(place))
    if is_table and any(one.is_dir() and target.is_relative_to(one) for one in taken):
        rule, fix = "must be outside the input directories", f"Pass {option} ../{place.name}"
        raise BadValueError("", option, rule, str(place), fix)

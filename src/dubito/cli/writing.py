"""Results for each row of files, written beside the columns of the input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path, PurePath
from typing import Any, final

from dubito import arrays
from dubito.cli.columns import FEATURES, PREFIXES
from dubito.cli.printing import progress, say_note
from dubito.cli.reading import Predictions, Reader, count_rearranged, typed_names
from dubito.data import BadRows, Batch, DirectorySink, FileShards, Sink, scan
from dubito.data.cells import FIX
from dubito.data.columns import BoundColumns
from dubito.data.directory_sink import key_of, settings_of
from dubito.data.files import without_rows
from dubito.data.patterns import matching
from dubito.data.sink import WRITERS
from dubito.data.sources.opening import TEXTS
from dubito.data.table_queries import (
    common_columns,
    files_of,
    kept_types,
    nested_columns,
    row_count,
)
from dubito.errors import BadTypeError, BadValueError

MAX_FAMILY = 20  # columns of outputs or features that are kept without being named
SETTING = "input columns"  # of a directory: what is kept in its parts, by type
DIGITS = 9  # of results in text files
ColumnsOf = Callable[[Batch, str | None], Mapping[str, Any]]


@final
@dataclass(frozen=True)
class KeptColumns:
    """The input columns to keep, their types (None: as they are), and their names in the output."""

    types: dict[str, Any]
    names: dict[str, str]

    @classmethod
    def of(
        cls,
        predictions: list[Predictions],
        wanted: str | None,
        id_column: str | None,
        taken: Iterable[str],
        output: str,
    ) -> KeptColumns:
        """Choose the columns, and report those that are left out or renamed.

        All files must have them. The column of ids is written as `id`; other columns whose names
        are `taken` by results get the prefix `input_`.
        """
        shards = [scan(one.source, one.columns) for one in predictions]
        common = common_columns(shards)
        ending = PurePath(output).suffix.lower()
        if wanted is None:
            left_out = _wide_families(common, shards[0].columns) | nested_columns(shards, common)
            chosen = [name for name in common if name not in left_out]
            if left_out:
                some = [name for name in common if name in left_out]
                say_note(f"Left out of {output}: {_few(some)}. Pass --columns to keep some.")
        else:
            chosen = [name.strip() for name in wanted.split(",") if name.strip()]
        ids = id_column or ("id" if "id" in common else None)
        chosen = list(dict.fromkeys([*([] if ids is None else [ids]), *chosen]))
        for name in chosen:
            _require_kept(name, common, shards)
        if ending in TEXTS and (nested := nested_columns(shards, chosen)):
            rule, fix = "must not hold lists in a text file", "Write a .parquet file, or drop it"
            raise BadValueError(min(nested), output, rule, "lists", fix)
        known = settings_of(output).get(SETTING) if is_directory(output) else None
        types = kept_types(shards, chosen, has_numbers=ending not in TEXTS, known=known)
        names = _output_names(chosen, ids, {*taken})
        renamed = [name for name, new in names.items() if name not in (new, ids)]
        if renamed:
            say_note(f"Input columns named like results become input_NAME: {_few(renamed)}.")
        return cls(types, names)

    def renamed(self, batch: Batch) -> Batch:
        """Return a batch whose kept columns have their names in the output."""
        if batch.kept is None:
            return batch
        return replace(batch, kept=batch.kept.rename_columns(list(self.names.values())))


def _few(names: list[str]) -> str:
    """Return some of many names.

    >>> _few([f"logit_{k}" for k in range(100)])
    'logit_0, logit_1, ..., logit_99'
    """
    return ", ".join(names if len(names) < 4 else [*names[:2], "...", names[-1]])


def _require_kept(name: str, common: list[str], shards: list[FileShards]) -> None:
    """Raise unless all files have a column, once and with one value per row."""
    if name in common:
        return
    for file in (file for one in shards for file in files_of(one.source)):
        if name not in file.schema.names:
            matching(name.replace("*", ""), file.schema.names, "--columns", file.name)
    rule, fix = "must be a column with one value per row", "Leave it out"
    raise BadValueError("", f"{shards[0].source.name}: --columns", rule, name, fix)


def _wide_families(names: list[str], roles: BoundColumns) -> set[str]:
    """Return the logits, probabilities and features that are too many to keep."""
    families = [list(roles.found.get(role, ())) for role in (roles.kind, "features")]
    families += [
        [name for name in names if name.startswith(prefix)] for prefix in (*PREFIXES, FEATURES)
    ]
    return {name for family in families if len(family) > MAX_FAMILY for name in family}


def _output_names(chosen: list[str], ids: str | None, taken: set[str]) -> dict[str, str]:
    """Return the output name of each input column; results keep their names.

    >>> _output_names(["txn", "action", "p"], "txn", {"action"})
    {'txn': 'id', 'action': 'input_action', 'p': 'p'}
    """
    names: dict[str, str] = {}
    for name in chosen:
        new = "id" if name == ids else name
        while name != ids and (new in {*taken, "id"} or (new != name and new in chosen)):
            new = f"input_{new}"
        names[name] = new
    return names


@contextmanager
def bad_rows_remedy(bad_rows: Path | None, *, keep_others: bool = False) -> Iterator[None]:
    """Suggest --bad-rows in errors about a single row of a file.

    With `keep_others` only in place of "Fix the cell", and not of options such as --percent.
    """
    try:
        yield
    except (BadValueError, BadTypeError) as error:
        if error.row is None or bad_rows is not None:
            raise
        if "rearrange" in error.fix:
            first = "Pass --rearrange to sort them"
        elif "Spell labels" in error.fix:
            first = "Correct the label"
        elif keep_others and error.fix not in (FIX, arrays.FIX):
            raise
        elif "percentages" in error.fix:
            first = "Pass --percent for percentages"
        else:
            first = error.fix if "fractions" in error.fix else "Fix the cell"
        also = "--bad-rows bad.csv to set invalid rows aside"
        fix = f"{first}, or {'' if first.startswith('Pass') else 'pass '}{also}"
        raise error.moved(fix=fix) from error


def is_directory(output: str) -> bool:
    """Whether results go to a directory of parts; raise for a file of an unknown kind."""
    ending = PurePath(output).suffix.lower()
    if output.endswith("/") or Path(output).is_dir() or not ending:
        return True
    if ending not in WRITERS:
        rule, fix = f"must end in one of {', '.join(WRITERS)}", "Pass --output NAME.parquet"
        raise BadValueError("", "--output", rule, output, fix)
    return False


@final
class RowRun:
    """Results for each row of files, written to one file or to a directory that resumes.

    `columns_of` takes a batch and the name of its file, None if there is only one, and returns the
    columns named `results`; input columns are written beside them. Results in a directory were all
    made with the same `settings`.
    """

    def __init__(
        self,
        columns_of: ColumnsOf,
        predictions: list[Predictions],
        output: str,
        reader: Reader,
        *,
        verb: str,
        results: Iterable[str],
        settings: Mapping[str, Any],
        id_column: str | None = None,
        wanted: str | None = None,
        bad_rows_file: Path | None = None,
    ) -> None:
        is_many = is_directory(output) or len(predictions) > 1
        taken = {*results, *(["file"] if is_many else [])}
        kept = KeptColumns.of(predictions, wanted, id_column, taken, output)
        self.columns_of: ColumnsOf = lambda batch, source: columns_of(kept.renamed(batch), source)
        self.opened = predictions
        self.predictions = [
            one._replace(columns=replace(one.columns, id=None, keep=kept.types))
            for one in predictions
        ]
        self.settings = {
            **settings,
            SETTING: {name: f"{kind or ''}" for name, kind in kept.types.items()},
            "skips bad rows": bad_rows_file is not None,
            "one part per": "task" if reader.is_dask else "file",
        }
        self.output, self.reader, self.verb = output, reader, verb
        self.bad_rows_file = bad_rows_file
        self.bad_rows = None if bad_rows_file is None else BadRows()

    def write(self) -> dict[str, int]:
        """Write all results; return the files written and their numbers of rows."""
        return self.to_directory() if is_directory(self.output) else self.to_file()

    def count_rearranged(self) -> int:
        """Return the number of rows whose crossing quantiles are sorted, in one more pass.

        Not counted while results are made: that may happen in threads or on workers, and not at
        all for parts that are finished already.
        """
        sorting = [one for one in self.opened if one.columns.rearrange]
        bad_rows = None if self.bad_rows is None else BadRows()
        return count_rearranged(*(self.reader.streamed(one, bad_rows) for one in sorting))

    def to_file(self) -> dict[str, int]:
        """Write all results to one file; return its name and number of rows."""
        with Sink(self.output, DIGITS) as sink, progress(self.verb, self.n_rows) as show:
            for one in self.predictions:
                shards = self.reader.streamed(one, self.bad_rows)
                source = one.file if len(self.predictions) > 1 else None
                shards.write(self.columns_of_file(source), sink, on_progress=show)
                one.source.close()  # before the output is moved to its place
            self.write_bad_rows()
        return {self.output: sink.n_rows}

    def to_directory(self) -> dict[str, int]:
        """Write the missing parts to a directory; return all parts and their numbers of rows."""
        with (
            DirectorySink(self.output, self.settings).exclusive() as directory,
            progress(self.verb, self.n_rows) as show,
        ):
            for one in self.predictions:
                write = self.write_task_parts if self.reader.is_dask else self.write_file_parts
                write(directory, one, show)
        self.write_bad_rows()
        inputs = {
            key_of(source.name) for one in self.predictions for source in files_of(one.source)
        }
        parts = sorted(directory.parts.values(), key=itemgetter("file"))
        return {
            f"{directory.name}/{part['file']}": part["n_rows"]
            for part in parts
            if part["input"]["path"] in inputs
        }

    def write_task_parts(
        self, directory: DirectorySink, predictions: Predictions, show: Callable[[int], None]
    ) -> None:
        """Let the workers of a cluster write the results, one part per task."""
        shorten, columns_of = typed_names(predictions.file), self.columns_of
        shards = self.reader.on_workers(predictions, self.bad_rows)
        shards.write_parts(
            lambda batch, path: columns_of(batch, shorten(path)), directory, on_progress=show
        )

    def write_file_parts(
        self, directory: DirectorySink, predictions: Predictions, show: Callable[[int], None]
    ) -> None:
        """Write the results, one part per file, except for parts that are already finished."""
        sources = files_of(predictions.source)
        directory.drop_stale({source.name: [""] for source in sources})
        for source in sources:
            if directory.is_finished(source.name):
                self.recall_bad_rows(directory, source.name)
                continue
            shards = scan(source, predictions.columns, bad_rows=self.bad_rows)
            # A file among many may be empty.
            shards = replace(shards, is_some=source is not predictions.source)
            if next(shards.parts(), None) is None:
                continue
            report = partial(_show_total, show, directory.n_rows)
            with directory.part(source.name, self.bad_rows) as sink:
                shards.write(self.columns_of_file(source.name), sink, on_progress=report)
                source.close()  # before the part is moved to its place
        if not any(directory.is_finished(source.name) for source in sources):
            raise without_rows(predictions.file)

    def columns_of_file(self, source: str | None) -> Callable[[Batch], Mapping[str, Any]]:
        """Return the function that makes the columns of one file."""
        columns_of = self.columns_of  # without these shards' reader, which stays on this machine
        return lambda batch: columns_of(batch, source)

    def n_rows(self) -> int | None:
        """Return the number of rows of all files, if it is quick to find out."""
        counts = [row_count(one.source) for one in self.predictions]
        return None if None in counts else sum(filter(None, counts))

    def recall_bad_rows(self, directory: DirectorySink, source: str) -> None:
        """Add the bad rows of a part that an earlier run finished."""
        if self.bad_rows is not None:
            for bad in directory.bad_rows(source):
                self.bad_rows.add(bad)

    def write_bad_rows(self) -> None:
        """Write the bad rows, with files named as the user typed them."""
        if self.bad_rows_file is None or self.bad_rows is None:
            return
        columns = self.bad_rows.columns
        if self.reader.is_dask:
            shorten = typed_names(*(one.file for one in self.predictions))
            columns["file"][:] = [shorten(file) for file in columns["file"]]
        with Sink(self.bad_rows_file) as sink:
            sink.write(columns)


def _show_total(show: Callable[[int], None], n_before: int, n_done: int) -> None:
    """Show the rows done, including those of the parts before."""
    show(n_before + n_done)

"""`dubito decide POLICY FILES...`: actions for new predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from operator import itemgetter
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, final

import typer

from dubito.cli.columns import NOT_CLASSIFICATION, ColumnOptions, with_columns
from dubito.cli.reading import Predictions, Reader, require_output_paths, typed_names
from dubito.errors import BadTypeError, BadValueError

if TYPE_CHECKING:
    from dubito.data import BadRows, Batch, DirectorySink, Shards, Sink
    from dubito.data.sources import BaseSource
    from dubito.decide import Policy


@with_columns("label", "weight", "group", *NOT_CLASSIFICATION)
def decide(
    policy: Annotated[Path, typer.Argument(help="Policy file written by `dubito fit`.")],
    files: Annotated[
        list[str],
        typer.Argument(help="New predictions: one or more files, directories, globs or URLs."),
    ],
    options: ColumnOptions,
    reader: Reader,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="Output file; or a directory (ending in /) or URL, for resumable runs.",
        ),
    ] = "decisions.parquet",
    review: Annotated[
        Path | None,
        typer.Option(
            help="CSV or TSV of rejected rows for human review, highest review value first. Text "
            "that a spreadsheet would evaluate gets a leading single quote, in every CSV and TSV."
        ),
    ] = None,
    bad_rows: Annotated[
        Path | None, typer.Option(help="Write invalid rows to this CSV or TSV and continue.")
    ] = None,
    with_probabilities: Annotated[
        bool,
        typer.Option(
            "--with-probabilities", help="Also write the calibrated probability of each class."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Choose an action for each row of new predictions.

    Example: dubito decide policy.json new.csv -o decisions.parquet --review review.csv
    """
    from dubito.cli.printing import say, say_json
    from dubito.data.sink import TEXTS, WRITERS
    from dubito.decide import Policy

    paths = {"--output": output, "--review": review, "--bad-rows": bad_rows}
    require_output_paths(paths, [policy, *files], {"--review": TEXTS, "--bad-rows": TEXTS})
    loaded = Policy.load(policy)
    if review is not None and loaded.costs.reject is None:
        rule, fix = "needs a policy with a reject action", "Run dubito fit with --reject-cost 0.3"
        raise BadValueError("--review", "dubito decide", rule, f"{policy} without one", fix)
    is_directory = output.endswith("/") or Path(output).is_dir() or not PurePath(output).suffix
    if not is_directory and PurePath(output).suffix.lower() not in WRITERS:
        rule, fix = f"must end in one of {', '.join(WRITERS)}", "Pass --output decisions.parquet"
        raise BadValueError("", "--output", rule, output, fix)
    with _bad_rows_remedy(bad_rows):
        run = DecisionRun.open(loaded, policy, files, options, bad_rows, reader, with_probabilities)
        parts = run.to_directory(output) if is_directory else run.to_file(output)
    counts = {"rows": sum(parts.values()), "files": len(run.predictions)}
    if review is not None:
        texts = ("file", "class", "reason", *([] if options.id is None else ["id"]))
        counts["for_review"] = _write_review(list(parts), review, loaded, texts)
    if run.bad_rows is not None:
        counts["bad_rows"] = len(run.bad_rows)
    if as_json:
        say_json({**counts, "output": output})
        return
    where = f"{counts['files']:,} files" if counts["files"] > 1 else files[0]
    say(f"Decided {counts['rows']:,} rows of {where}; the decisions are in {output}.")
    if review is not None:
        say(
            f"{counts['for_review']:,} rows were rejected and sent to human review: {review} lists "
            "them, highest review value first."
        )
    if bad_rows is not None:
        rows = "row was" if counts["bad_rows"] == 1 else "rows were"
        say(f"{counts['bad_rows']:,} invalid {rows} set aside in {bad_rows}.")


@contextmanager
def _bad_rows_remedy(bad_rows: Path | None) -> Iterator[None]:
    """Suggest --bad-rows in errors about a single row of a file."""
    try:
        yield
    except (BadValueError, BadTypeError) as error:
        if error.row is None or bad_rows is not None:
            raise
        fix = "Fix the cell, or pass --bad-rows bad.csv to set such rows aside"
        values = (error.argument, error.caller, error.rule, error.got, fix, error.row, error.column)
        raise type(error)(*values) from error


def _write_review(decided: list[str], review: Path, policy: Policy, texts: tuple[str, ...]) -> int:
    """Write the rejected rows, highest review value first; return how many there are.

    Columns other than `texts` hold numbers, which text files of decisions do not tell.
    """
    import numpy as np

    from dubito.data import Sink
    from dubito.data.table_queries import rows_where

    assert policy.costs.reject is not None
    name = policy.costs.actions[policy.costs.reject]
    parts = [rows_where(path, "action", name) for path in decided]
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    del columns["action"]
    for key in columns.keys() - set(texts):
        columns[key] = columns[key].astype(np.int64 if key == "id" else np.float64)
    order = np.argsort(-columns["review_value"], kind="stable")
    with Sink(review) as sink:
        sink.write({key: values[order] for key, values in columns.items()})
    return int(order.size)


@final
@dataclass(frozen=True, eq=False)
class DecisionRun:
    """Decisions of one policy for files, written to one file or to a directory that resumes."""

    policy: Policy
    settings: dict[str, Any]  # decisions in a directory were all made with the same settings
    predictions: list[Predictions]
    bad_rows_file: Path | None
    bad_rows: BadRows | None
    reader: Reader
    has_probabilities: bool

    @classmethod
    def open(
        cls,
        policy: Policy,
        path: Path,
        files: list[str],
        options: ColumnOptions,
        bad_rows_file: Path | None,
        reader: Reader,
        has_probabilities: bool,
    ) -> DecisionRun:
        """Open all files and find their columns before any decision is made."""
        from dubito.data import BadRows

        has_features = policy.ood is not None and policy.ood.needs_features
        predictions = options.open(
            *dict.fromkeys(files),
            label="unused",
            has_features=has_features,
            classes=policy.costs.classes,
        )
        settings = {
            "policy": sha256(path.read_bytes()).hexdigest(),
            "columns": options.given,
            "skips bad rows": bad_rows_file is not None,
            "one part per": "task" if reader.is_dask else "file",
            **({"with probabilities": True} if has_probabilities else {}),
        }
        bad_rows = None if bad_rows_file is None else BadRows()
        return cls(
            policy, settings, predictions, bad_rows_file, bad_rows, reader, has_probabilities
        )

    def to_file(self, output: str) -> dict[str, int]:
        """Write all decisions to one file; return its name and number of rows."""
        from dubito.cli.printing import progress
        from dubito.data import Sink

        with Sink(output) as sink, progress("deciding", self.n_rows) as show:
            for one in self.predictions:
                shards = self.reader.streamed(one, self.bad_rows)
                source = one.file if len(self.predictions) > 1 else None
                self.write(shards, sink, source, show)
            self.write_bad_rows()
        return {output: sink.n_rows}

    def to_directory(self, output: str) -> dict[str, int]:
        """Write the missing parts to a directory; return all parts and their numbers of rows."""
        from dubito.cli.printing import progress
        from dubito.data import DirectorySink
        from dubito.data.directory_sink import key_of

        with (
            DirectorySink(output, self.settings).exclusive() as directory,
            progress("deciding", self.n_rows) as show,
        ):
            for one in self.predictions:
                write = self.write_task_parts if self.reader.is_dask else self.write_file_parts
                write(directory, one, show)
        self.write_bad_rows()
        inputs = {key_of(source.name) for one in self.predictions for source in _files_of(one)}
        parts = sorted(directory.parts.values(), key=itemgetter("file"))
        return {
            f"{directory.name}/{part['file']}": part["n_rows"]
            for part in parts
            if part["input"]["path"] in inputs
        }

    def write_task_parts(
        self, directory: DirectorySink, predictions: Predictions, show: Callable[[int], None]
    ) -> None:
        """Let the workers of a cluster write the decisions, one part per task."""
        from dubito.decide.policy.policy import decision_columns

        shorten, policy = typed_names(predictions.file), self.policy
        has_probabilities = self.has_probabilities

        def columns_of(batch: Batch, path: str) -> dict[str, Any]:
            return decision_columns(policy, batch, shorten(path), has_probabilities)

        shards = self.reader.on_workers(predictions, self.bad_rows)
        shards.write_parts(columns_of, directory, on_progress=show)

    def write_file_parts(
        self, directory: DirectorySink, predictions: Predictions, show: Callable[[int], None]
    ) -> None:
        """Write the decisions, one part per file, except for parts that are already finished."""
        from dubito.data import scan
        from dubito.data.files import without_rows

        sources = _files_of(predictions)
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
                self.write(shards, sink, source.name, report)
        if not any(directory.is_finished(source.name) for source in sources):
            raise without_rows(predictions.file)

    def write(
        self, shards: Shards, sink: Sink, source: str | None, show: Callable[[int], None]
    ) -> None:
        """Write the decisions of some rows."""
        from dubito.decide import write_decisions

        write_decisions(
            self.policy,
            shards,
            sink,
            source=source,
            has_probabilities=self.has_probabilities,
            on_progress=show,
        )

    def n_rows(self) -> int | None:
        """Return the number of rows of all files, if it is quick to find out."""
        from dubito.data.table_queries import row_count

        counts = [row_count(one.source) for one in self.predictions]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def recall_bad_rows(self, directory: DirectorySink, source: str) -> None:
        """Add the bad rows of a part that an earlier run finished."""
        if self.bad_rows is not None:
            for bad in directory.bad_rows(source):
                self.bad_rows.add(bad)

    def write_bad_rows(self) -> None:
        """Write the bad rows, with files named as the user typed them."""
        from dubito.data import Sink

        if self.bad_rows_file is None or self.bad_rows is None:
            return
        columns = self.bad_rows.columns
        if self.reader.is_dask:
            shorten = typed_names(*(one.file for one in self.predictions))
            columns["file"][:] = [shorten(file) for file in columns["file"]]
        with Sink(self.bad_rows_file) as sink:
            sink.write(columns)


def _files_of(predictions: Predictions) -> tuple[BaseSource, ...]:
    """Return the files of a directory or glob, or the one file."""
    from dubito.data.sources.datasets import DatasetSource

    source = predictions.source
    return source.files if isinstance(source, DatasetSource) else (source,)


def _show_total(show: Callable[[int], None], n_before: int, n_done: int) -> None:
    """Show the rows done, including those of the parts before."""
    show(n_before + n_done)

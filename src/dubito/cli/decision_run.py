"""Decisions for files by one policy: to one file, or to a directory where an interrupted run resumes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from typing import Any, Self, final

from dubito.cli.columns import Given
from dubito.cli.printing import progress
from dubito.cli.reading import Reader, as_typed
from dubito.data import BadRows, Batch, Columns, DirectorySink, Sink, scan
from dubito.data.directory_sink import key_of
from dubito.data.files import without_rows
from dubito.data.sources import BaseSource, open_source
from dubito.data.sources.datasets import DatasetSource
from dubito.data.tables import row_count
from dubito.decide import Policy
from dubito.decide.policy.policy import decision_columns, write_decisions


@final
@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A policy, the files that it is to decide, where they are read, and where bad rows go."""

    policy: Policy
    settings: dict[str, Any]  # what decisions in a folder hang on
    columns: dict[str, Columns]  # by file, folder, pattern or URL
    errors: Path | None
    bad_rows: BadRows | None
    reader: Reader

    @classmethod
    def of(
        cls,
        policy: Policy,
        path: Path,
        files: list[str],
        given: Given,
        errors: Path | None,
        reader: Reader,
    ) -> Self:
        """Return the run, once the columns of all files are known."""
        has_features = policy.ood is not None and policy.ood.needs_features
        columns = given.columns(
            *files, label="unused", has_features=has_features, classes=policy.costs.classes
        )
        settings = {
            "policy": sha256(path.read_bytes()).hexdigest(),
            "columns": given.said,
            "skips bad rows": errors is not None,
            "a part is of": "a task" if reader.is_dask else "a file",
        }
        bad_rows = None if errors is None else BadRows()
        named = dict(zip(files, columns, strict=True))
        return cls(policy, settings, named, errors, bad_rows, reader)

    def to_file(self, output: str) -> dict[str, int]:
        """Write all decisions to one file; return it and how many rows it has."""
        with Sink(output) as sink, progress("deciding", self.n_rows) as show:
            for file, columns in self.columns.items():
                shards = self.reader.streamed(file, columns, self.bad_rows)
                source = file if len(self.columns) > 1 else None
                write_decisions(self.policy, shards, sink, source=source, on_progress=show)
            self.write_errors()
        return {output: sink.n_rows}

    def to_folder(self, output: str) -> dict[str, int]:
        """Write parts to a folder, where they are not there yet; return parts and rows."""
        with (
            DirectorySink(output, self.settings).alone() as folder,
            progress("deciding", self.n_rows) as show,
        ):
            for file, columns in self.columns.items():
                if self.reader.is_dask:
                    self.have_written(folder, file, columns, show)
                else:
                    self.write_parts(folder, file, columns, show)
        self.write_errors()
        return self.parts_in(folder)

    def have_written(
        self, folder: DirectorySink, file: str, columns: Columns, show: Callable[[int], None]
    ) -> None:
        """Have the workers of a cluster write the decisions of files, a part a task."""
        name, policy = as_typed(file), self.policy

        def decided(batch: Batch, place: str) -> dict[str, Any]:
            return decision_columns(policy, batch, name(place))

        shards = self.reader.on_workers(file, columns, self.bad_rows)
        shards.write_parts(decided, folder, on_progress=show)

    def write_parts(
        self, folder: DirectorySink, file: str, columns: Columns, show: Callable[[int], None]
    ) -> None:
        """Write the decisions of files, a part a file."""
        sources = _sources_of(file)
        folder.drop_stale({source.name: [""] for source in sources})
        for source in sources:
            if folder.is_finished(source.name):
                self.recall(folder, source.name)
                continue
            whole = scan(source, columns, bad_rows=self.bad_rows)
            shards = replace(whole, is_some=source.name != file)  # of many, one may be empty
            if next(shards.parts(), None) is None:
                continue
            done = partial(_total_with, show, folder.n_rows)
            with folder.part(source.name, self.bad_rows) as sink:
                write_decisions(self.policy, shards, sink, source=source.name, on_progress=done)
        if not any(folder.is_finished(source.name) for source in sources):
            raise without_rows(file)

    def parts_in(self, folder: DirectorySink) -> dict[str, int]:
        """Return the parts of these very files, in order, and how many rows they have."""
        read = {key_of(source.name) for file in self.columns for source in _sources_of(file)}
        parts = sorted(folder.parts.values(), key=itemgetter("file"))
        return {
            f"{folder.name}/{part['file']}": part["n_rows"]
            for part in parts
            if part["input"]["path"] in read
        }

    def n_rows(self) -> int | None:
        """Return how many rows all files have, where that is quick to tell."""
        counts = [row_count(file) for file in self.columns]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def recall(self, folder: DirectorySink, source: str) -> None:
        """Take up the bad rows of a part that an earlier run finished."""
        if self.bad_rows is not None:
            for bad in folder.bad_rows(source):
                self.bad_rows.add(bad)

    def write_errors(self) -> None:
        """Write the bad rows, named by the files as they were typed."""
        if self.errors is None or self.bad_rows is None:
            return
        columns = self.bad_rows.columns
        if self.reader.is_dask:
            name = as_typed(*self.columns)
            columns["file"][:] = [name(file) for file in columns["file"]]
        with Sink(self.errors) as sink:
            sink.write(columns)


def _sources_of(file: str) -> tuple[BaseSource, ...]:
    """Return the files that a folder or pattern means, each by itself; or the one file."""
    opened = open_source(file)
    return opened.files if isinstance(opened, DatasetSource) else (opened,)


def _total_with(show: Callable[[int], None], n_before: int, n_done: int) -> None:
    """Show how many rows are done with those of the parts before."""
    show(n_before + n_done)

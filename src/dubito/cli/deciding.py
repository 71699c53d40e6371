"""Decisions of files by one policy: to a file, or to a folder where a stopped run goes on."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, final

from dubito.cli.columns import Given
from dubito.cli.printing import progress
from dubito.data import BadRow, BadRows, Columns, FolderSink, Sink, scan
from dubito.data.tables import row_count
from dubito.decide import Policy
from dubito.decide.deciding import write_decisions

__all__ = ["Run"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A policy, the files that it is to decide, and where their bad rows go."""

    policy: Policy
    settings: dict[str, Any]  # what decisions in a folder hang on
    columns: dict[Path, Columns]
    errors: Path | None
    bad_rows: BadRows | None

    @classmethod
    def of(
        cls, policy: Policy, path: Path, files: list[Path], given: Given, errors: Path | None
    ) -> Self:
        """Return the run, once the columns of all files are known."""
        has_features = policy.gate is not None and policy.gate.needs_features
        columns = given.columns(
            *files, label="unused", has_features=has_features, classes=policy.costs.classes
        )
        seal = sha256(path.read_bytes()).hexdigest()
        settings = {"policy": seal, "columns": given.said, "skips bad rows": errors is not None}
        bad_rows = None if errors is None else BadRows()
        return cls(policy, settings, dict(zip(files, columns, strict=True)), errors, bad_rows)

    def to_file(self, output: Path) -> dict[Path, int]:
        """Write all decisions to one file; return it and how many rows it has."""
        counts = [row_count(file) for file in self.columns]
        total = None if None in counts else sum(count or 0 for count in counts)
        with Sink(output) as sink, progress("deciding", total) as show:
            for file in self.columns:
                self.decide(file, sink, str(file) if len(self.columns) > 1 else None, show)
            self.write_errors()
        return {output: sink.n_rows}

    def to_folder(self, output: Path) -> dict[Path, int]:
        """Write a part a file to a folder, where it is not there yet; return parts and rows."""
        folder = FolderSink(output, self.settings)
        waiting = folder.unfinished(self.columns)
        self.recall({str(file) for file in self.columns if file not in waiting})
        for file in waiting:
            with folder.part(file) as sink, progress(file.name, row_count(file)) as show:
                self.decide(file, sink, str(file), show)
                self.write_errors()
        parts = [folder.parts[os.path.realpath(file)] for file in self.columns]
        return {output / part["file"]: part["n_rows"] for part in parts}

    def decide(
        self, file: Path, sink: Sink, source: str | None, show: Callable[[int], None]
    ) -> None:
        """Decide the rows of a file."""
        shards = scan(file, self.columns[file], bad_rows=self.bad_rows)
        write_decisions(self.policy, shards, sink, source=source, on_progress=show)

    def recall(self, finished: set[str]) -> None:
        """Take up the bad rows of parts that an earlier run finished."""
        if self.errors is None or self.bad_rows is None or not self.errors.exists():
            return
        with self.errors.open(encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                if line["file"] in finished:
                    row = int(line.pop("row"))
                    self.bad_rows.add(BadRow(row=row, **line))

    def write_errors(self) -> None:
        """Write the bad rows so far."""
        if self.errors is None or self.bad_rows is None:
            return
        with Sink(self.errors) as sink:
            sink.write(self.bad_rows.columns)

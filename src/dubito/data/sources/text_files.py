"""CSV and TSV, plain or compressed. Types are never inferred: columns are numbers or text."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

import pyarrow as pa
from pyarrow import csv as arrow_csv

from dubito.data import parsing
from dubito.data.cells import Cells
from dubito.data.sources.locations import open_stream
from dubito.data.sources.source import BaseSource
from dubito.errors import BadFileError

COMPRESSIONS = {".bz2": "bz2", ".gz": "gzip", ".zst": "zstd"}
SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
BLOCK_BYTES = 1 << 23  # a row must fit into one: half a million numbers do


@final
@dataclass(frozen=True, slots=True, eq=False)
class TextSource(BaseSource):
    """A text file with one row per line; quoted text may contain line breaks."""

    separator: str

    @property
    def has_types(self) -> bool:
        return False

    def batches(
        self, columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        try:
            with self.reader(columns, texts) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):  # a header without a line break
                return
            self.raise_at_first_bad_row(columns, texts)
            raise

    @contextmanager
    def reader(
        self,
        columns: Sequence[str],
        texts: Sequence[str],
        on_bad_row: Callable[[arrow_csv.InvalidRow], str] | None = None,
    ) -> Iterator[arrow_csv.CSVStreamingReader]:
        """Open the file. The number of a bad row is known only with a single thread."""
        reading = arrow_csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=on_bad_row is None)
        parse_options = arrow_csv.ParseOptions(
            delimiter=self.separator, newlines_in_values=True, invalid_row_handler=on_bad_row
        )
        types = {name: pa.string() if name in texts else pa.float64() for name in columns}
        converting = arrow_csv.ConvertOptions(
            column_types=types, include_columns=list(columns), null_values=list(parsing.GAPS)
        )
        with (
            _byte_stream(self.name) as stream,
            arrow_csv.open_csv(stream, reading, parse_options, converting) as reader,
        ):
            yield reader

    def raise_at_first_bad_row(self, columns: Sequence[str], texts: Sequence[str]) -> None:
        """Read the file again as text, to find the first bad row."""
        bad_rows: list[arrow_csv.InvalidRow] = []

        def note(row: arrow_csv.InvalidRow) -> str:
            bad_rows.append(row)
            return "error"

        first_row = 0
        try:
            with self.reader(columns, columns, note) as reader:
                for batch in reader:
                    for name in (name for name in columns if name not in texts):
                        Cells(batch.column(name), name, self.name).parsed_numbers(first_row)
                    first_row += batch.num_rows
        except pa.ArrowInvalid as error:
            if not bad_rows:
                raise
            bad = bad_rows[0]
            found = f"row {bad.number - 2} has {bad.actual_columns} cells"
            problem = f"{found}, the header has {bad.expected_columns}"
            fix = "Complete the row, or quote text that contains the separator"
            raise BadFileError(self.name, problem, fix) from error


def open_text(name: str, separator: str) -> TextSource:
    """Open a text file whose columns are separated by a character."""
    with _byte_stream(name) as stream:
        lines = csv.reader(io.TextIOWrapper(stream, "utf-8-sig", newline=""), delimiter=separator)
        names = next((line for line in lines if line), None)
    if names is None:
        raise BadFileError(name, "it has no header", "Name the columns in the first line")
    others = [other for other in SEPARATORS if other in names[0]] if len(names) == 1 else []
    if others:
        problem = (
            f"its columns are separated by {SEPARATORS[others[0]]}, not {SEPARATORS[separator]}"
        )
        fix = "Save it with commas as .csv, or with tabs as .tsv"
        raise BadFileError(name, problem, fix)
    return TextSource(name, pa.schema([(name, pa.null()) for name in names]), separator)


def _byte_stream(name: str) -> pa.NativeFile:
    """Open a file, decompressed by its extension."""
    return open_stream(name, COMPRESSIONS.get(Path(name).suffix.lower()))

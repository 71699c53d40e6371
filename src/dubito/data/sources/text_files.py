"""CSV and TSV, plain or compressed. Types are never inferred: columns are numbers or text."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
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
SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "vertical bars"}
BLOCK_BYTES = 1 << 23  # a row must fit into one: half a million numbers do


@final
@dataclass(frozen=True, slots=True, eq=False)
class TextSource(BaseSource):
    """A text file with one row per line; quoted text may contain line breaks."""

    delimiter: str

    @property
    def separator(self) -> str:
        return self.delimiter

    def batches(
        self, columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        try:
            with self.reader(columns, texts) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):  # a header without a line break
                return
            if "straddl" in str(error):  # two blocks
                raise _too_long(self.name, "a row") from error
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
            delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=on_bad_row
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
    """Open a text file; its header shows whether a character other than `separator` is used."""
    with _byte_stream(name) as stream:
        read = io.TextIOWrapper(stream, "utf-8-sig", newline="")
        lines: list[str] = []
        _first_cells(_noted(read, lines, name), separator)
    separator = separator_of(lines, separator)
    names = _first_cells(lines, separator)
    if not names:
        raise BadFileError(name, "it has no header", "Name the columns in the first line")
    return TextSource(name, pa.schema([(name, pa.null()) for name in names]), separator)


def separator_of(lines: Sequence[str], expected: str = ",") -> str:
    """Return the character between the cells of a header: another than expected if that has none.

    >>> separator_of(["label;p_cat;p_dog", "cat;0,75;0,25"])
    ';'
    """
    if len(_first_cells(lines, expected)) > 1:
        return expected
    return max((expected, *SEPARATORS), key=lambda other: len(_first_cells(lines, other)))


def _first_cells(lines: Iterable[str], separator: str) -> list[str]:
    """Return the cells of the first line that is not blank, none if there is no such line."""
    return next((cells for cells in csv.reader(lines, delimiter=separator) if cells), [])


def _noted(read: io.TextIOWrapper, lines: list[str], name: str) -> Iterator[str]:
    """Yield lines and note them, up to a block: a compressed line may expand without end."""
    n_left = BLOCK_BYTES
    while line := read.readline(n_left):
        n_left -= len(line)
        if n_left <= 0:
            raise _too_long(name, "its header")
        lines.append(line)
        yield line


def _too_long(name: str, what: str) -> BadFileError:
    """Return the error for a line that does not fit into a block."""
    problem = f"{what} has more than {BLOCK_BYTES >> 20} MB"
    return BadFileError(name, problem, "Check that it is a table with one row per line")


def _byte_stream(name: str) -> pa.NativeFile:
    """Open a file, decompressed by its extension."""
    return open_stream(name, COMPRESSIONS.get(Path(name).suffix.lower()))

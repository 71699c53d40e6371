"""A source: a table that can be read repeatedly, piece by piece."""

from __future__ import annotations

import csv
import errno
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from dubito.errors import BadFileError, DubitoError

# What readers raise for a file that is damaged or of another format.
BROKEN = (
    pa.ArrowException,
    OSError,
    EOFError,
    ValueError,
    csv.Error,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True, slots=True, eq=False)
class BaseSource(ABC):
    """Columns by name, and a stream of their rows.

    `name` is the path of a file, or the name of a table in error messages. A type of null in
    `schema` means that the type is not known yet.
    """

    name: str
    schema: pa.Schema

    @property
    def separator(self) -> str | None:
        """The character between the cells of a text file; None for files that have types."""
        return None

    @property
    def has_types(self) -> bool:
        """Whether nulls are nulls; if not, text such as NA denotes a missing value."""
        return self.separator is None

    @abstractmethod
    def batches(
        self, columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield these columns of all rows, in order.

        The columns in `texts` are read as text if the file has no types. `n_rows` is the number of
        rows to decode at once, where that can be chosen.
        """

    def columns_like(self, column: str) -> list[str]:
        """Return the columns with one value for each row of a column."""
        return list(self.schema.names)

    def place(self, row: int) -> tuple[str, int]:
        """Return the file of a row that was read, and its number in the file."""
        return self.name, row

    def spans(self, n_rows: int) -> list[Span]:
        """Return parts of about `n_rows` rows, in order, if rows can be read independently.

        No part spans two files.
        """
        return [Span(self)]


class Span(NamedTuple):
    """A part of a file as a source, with its first row and, if known, its number of rows."""

    source: BaseSource
    first_row: int = 0
    n_rows: int | None = None


@contextmanager
def file_errors(name: str) -> Iterator[None]:
    """Convert what readers raise for a broken file into a BadFileError that names it."""
    try:
        yield
    except DubitoError:
        raise
    except UnicodeDecodeError as error:
        raise _not_utf8(name) from error
    except MemoryError as error:
        fix = "Check that it is what it should be, or convert it to Parquet"
        raise BadFileError(name, "reading it takes more memory than there is", fix) from error
    except BROKEN as error:
        if "invalid UTF8" in str(error):
            raise _not_utf8(name) from error
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            raise BadFileError(name, "its symbolic links form a loop", "Fix the link") from error
        text = str(error).strip().partition("\n")[0].rstrip(".")
        problem = "".join(filter(str.isprintable, text)) or "it is broken"
        fix = "Write the file again: it may be truncated or damaged"
        raise BadFileError(name, problem, fix) from error


def _not_utf8(name: str) -> BadFileError:
    """Return the error for a file in another encoding."""
    return BadFileError(name, "its text is not UTF-8", "Save it as UTF-8")

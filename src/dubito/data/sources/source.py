"""A source: a table that can be read again and again, piece by piece."""

from __future__ import annotations

import csv
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from dubito.errors import BadFileError, DubitoError

# What the readers of files raise over one that is damaged, or is something else altogether.
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

    `name` is the path of a file, or what errors call a table. A type of null in `schema` says that
    the type is not known yet.
    """

    name: str
    schema: pa.Schema

    @property
    def has_types(self) -> bool:
        """Whether gaps are gaps; if not, texts such as NA stand for them."""
        return True

    @abstractmethod
    def batches(
        self, columns: Sequence[str], texts: Sequence[str], n_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield these columns of all rows, in order.

        The columns in `texts` are read as text where the file has no types. `n_rows` is how many
        rows to decode at once, where that can be chosen.
        """

    def place(self, row: int) -> tuple[str, int]:
        """Return the file of a row that was read, and the row's number in it."""
        return self.name, row

    def spans(self, n_rows: int) -> list[Span]:
        """Return runs of rows of about `n_rows` or fewer, where rows can be reached so; in order.

        No span is of two files.
        """
        return [Span(self)]


class Span(NamedTuple):
    """Some rows of a file as a source: which is the first in the file, and how many if known."""

    source: BaseSource
    first_row: int = 0
    n_rows: int | None = None


@contextmanager
def named_if_broken(name: str) -> Iterator[None]:
    """Turn what readers raise over a broken file into an error that names the file."""
    try:
        yield
    except DubitoError:
        raise
    except UnicodeDecodeError as error:
        raise _not_utf8(name) from error
    except BROKEN as error:
        if "invalid UTF8" in str(error):
            raise _not_utf8(name) from error
        told = str(error).strip().partition("\n")[0].rstrip(".")
        problem = "".join(filter(str.isprintable, told)) or "it is broken"
        fix = "Write the file again: it may be truncated or damaged"
        raise BadFileError(name, problem, fix) from error


def _not_utf8(name: str) -> BadFileError:
    """Say that a file is in another encoding."""
    return BadFileError(name, "its text is not UTF-8", "Save it as UTF-8")

"""Columns written to a file batch by batch, and text files; both atomic: complete or absent."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from stat import S_IMODE
from typing import Any, BinaryIO, Self, final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import ipc, parquet

from dubito.arrays import IntArray, as_count
from dubito.data.cells import is_text, plain_type, whole
from dubito.data.sources.locations import is_url, send
from dubito.data.sources.opening import TEXTS
from dubito.errors import BadTypeError, BadValueError

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # of cells that a spreadsheet evaluates
NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf|nan)$"
# Text that is written without quotes; leading zeros and more than 15 digits are of identifiers.
UNQUOTED = r"^-?((0|[1-9]\d{0,14})(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?$"
MIN_DECIMALS = 3  # of rounded numbers
POWERS = np.array([float(f"1e{k}") for k in range(23)])  # of ten that are exact
GROUP_ROWS = 1 << 16  # rows written at once, which a Parquet reader decodes at once


def _parquet_writer(file: BinaryIO, schema: pa.Schema) -> Any:
    """Return a writer that dictionary-encodes names only: numbers hardly repeat."""
    names = [one.name for one in schema if is_text(one.type) or pa.types.is_dictionary(one.type)]
    return parquet.ParquetWriter(file, schema, use_dictionary=names)


@dataclass(frozen=True, slots=True)
class _TextWriter:
    """A CSV or TSV file: text in quotes, unless it is a number."""

    file: BinaryIO
    schema: pa.Schema
    delimiter: str = ","

    def __post_init__(self) -> None:
        names = _in_quotes(pa.array(self.schema.names, pa.string())).to_pylist()
        self.file.write(f"{self.delimiter.join(names)}\n".encode())

    def write_table(self, table: pa.Table, n_rows: int) -> None:
        """Write rows, so many at a time; missing values become empty cells."""
        for batch in table.to_batches(max_chunksize=n_rows):
            cells = [self._cells(column) for column in batch.columns]
            cells[-1] = pc.binary_join_element_wise(cells[-1], "\n", "")
            lines = pc.binary_join_element_wise(*cells, self.delimiter)
            size = pc.sum(pc.binary_length(lines)).as_py() or 0
            self.file.write(memoryview(lines.buffers()[2])[:size] if size else b"")

    @staticmethod
    def _cells(column: pa.Array) -> pa.Array:
        """Return the cells of a column as they are written."""
        texts = column.cast(pa.string())
        if is_text(plain_type(column.type)):
            is_number = pc.match_substring_regex(texts, UNQUOTED)
            texts = pc.if_else(is_number, texts, _in_quotes(texts))
        return texts.fill_null("")

    def close(self) -> None:
        """Do nothing: the file is closed by the one who opened it."""


def _in_quotes(texts: pa.Array) -> pa.Array:
    """Return text in double quotes, those within it doubled."""
    return pc.binary_join_element_wise('"', pc.replace_substring(texts, '"', '""'), '"', "")


WRITERS: dict[str, Callable[[BinaryIO, pa.Schema], Any]] = {
    ".arrow": ipc.new_file,
    ".csv": _TextWriter,
    ".feather": ipc.new_file,
    ".ipc": ipc.new_file,
    ".parquet": _parquet_writer,
    ".pq": _parquet_writer,
    ".tsv": lambda file, schema: _TextWriter(file, schema, "\t"),
}


@final
@dataclass(frozen=True, slots=True, eq=False)
class EncodedLabels:
    """A column of few distinct names, as integer codes.

    Parameters
    ----------
    codes : array of int
        The number of each row's name, -1 for a missing value.
    names : tuple of str
        The names.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito.data import EncodedLabels
    >>> EncodedLabels(np.array([1, 0, -1]), ("accept", "review")).array.to_pylist()
    ['review', 'accept', None]
    """

    codes: IntArray
    names: tuple[str, ...]

    @property
    def array(self) -> pa.Array:
        """The column as an Arrow dictionary array."""
        codes = pa.array(self.codes, pa.int32(), mask=np.asarray(self.codes) < 0)
        return pa.DictionaryArray.from_arrays(codes, pa.array(self.names, pa.string()))


@final
class Sink:
    """A Parquet, Arrow, CSV or TSV file, by its extension, written batch by batch.

    The write is atomic: the file is written under a temporary name and renamed, or uploaded to its
    URL, when it is complete. An error or an interrupt leaves nothing behind, and an existing file
    unchanged. The first batch determines the columns and their types. In CSV and TSV, a text that a
    spreadsheet would evaluate (one that starts with =, +, -, @, a tab or a carriage return and is
    not a number) is prefixed by a single quote.

    Parameters
    ----------
    path : path or URL
        The file; its directory must exist.
    digits : int, optional
        Round NumPy floats to so many significant digits in CSV and TSV, but to no fewer than three
        decimals; Arrow columns stay as they are. By default all digits are written.
    group_rows : int, default 65,536
        Rows are buffered until there are so many: those of a row group of a Parquet file.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from dubito.data import Sink
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "decisions.csv"
    >>> with Sink(path, digits=9) as sink:
    ...     sink.write({"id": np.array(["a", "b"]), "cost": np.array([0.1 + 0.2, 2.0])})
    >>> path.read_text().split()
    ['"id","cost"', '"a",0.3', '"b",2']
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        digits: int | None = None,
        group_rows: int = GROUP_ROWS,
    ) -> None:
        self.digits = digits
        self.group_rows = as_count(group_rows, "group_rows", "Sink", example=GROUP_ROWS)
        self.name = os.fspath(path) if is_url(os.fspath(path)) else os.path.realpath(path)
        self.n_rows = 0
        target = PurePath(self.name)
        if target.suffix.lower() not in WRITERS:
            rule = f"must end in one of {', '.join(WRITERS)}"
            raise BadValueError("path", "Sink", rule, repr(target.name), "Use a .parquet path")
        self.open_writer = WRITERS[target.suffix.lower()]
        self.opened = ExitStack()
        self.file: BinaryIO | None = None
        self.writer: Any = None
        self.schema: pa.Schema = None
        self.names: dict[str, tuple[str, ...]] = {}
        self.waiting: list[pa.Table] = []

    def __enter__(self) -> Self:
        if not (is_url(self.name) or Path(self.name).parent.is_dir()):
            rule, fix = "must be in an existing directory", "Create the directory first"
            raise BadValueError("path", "Sink", rule, repr(self.name), fix)
        self.file = self.opened.enter_context(_atomic_file(self.name))
        self.opened.push(self.finish)
        return self

    def write(self, columns: Mapping[str, Any] | None) -> None:
        """Write rows.

        Parameters
        ----------
        columns : mapping or None
            NumPy or Arrow arrays of one length, each of one type, or `EncodedLabels`; a single text
            is repeated in all rows. Masked entries of NumPy arrays are missing. None or no columns
            writes nothing.
        """
        if self.file is None:
            rule, fix = "must be open", "Use `with Sink(path) as sink:`"
            raise BadTypeError("sink", "write", rule, "a closed one", fix)
        if not columns:
            return
        table = _table_of(columns, self.name, self.digits)
        encoded = {name: c for name, c in columns.items() if isinstance(c, EncodedLabels)}
        names = {name: tuple(column.names) for name, column in encoded.items()}
        if self.writer is None:
            self.schema, self.names = table.schema, names
            self.writer = self.open_writer(self.file, table.schema)
        self.waiting.append(self.like_the_first(table, names))
        self.n_rows += table.num_rows
        if sum(one.num_rows for one in self.waiting) >= self.group_rows:
            self.flush()

    def like_the_first(self, table: pa.Table, names: dict[str, tuple[str, ...]]) -> pa.Table:
        """Return a table with the columns of the first one, or raise.

        Parameters
        ----------
        table : pyarrow.Table
            The rows to write.
        names : dict of str to tuple of str
            The names of the components of list columns.

        Returns
        -------
        pyarrow.Table
            The table, with the types of the first one.
        """
        where, wanted = self.name, self.schema.names
        if table.column_names != wanted:
            rule, got = f"must be {', '.join(wanted)}, as in the first batch", table.column_names
            fix = "Write the same columns in every batch"
            raise BadValueError("columns", where, rule, ", ".join(got), fix)
        for field, kind in zip(self.schema, table.schema.types, strict=True):
            fix, before = "Write one type in every batch", self.names.get(field.name)
            if kind != field.type and not pa.types.is_null(kind):
                rule = f"must have type {field.type}, as in the first batch"
                raise BadValueError(field.name, where, rule, f"{kind}", fix)
            if field.name in names and names[field.name] != before:
                rule = f"must have the names {before}, as in the first batch"
                fix = "Write the same names in every batch"
                raise BadValueError(field.name, where, rule, f"{names[field.name]}", fix)
        return table.cast(self.schema)

    def flush(self) -> None:
        """Write the buffered rows."""
        if self.writer is None:
            rule = "must be given by at least one batch"
            fix = "Write columns of length 0 if there are no rows"
            raise BadValueError("columns", self.name, rule, "none", fix)
        if self.waiting:
            table = pa.concat_tables(self.waiting).combine_chunks()
            self.waiting = []
            self.writer.write_table(table, self.group_rows)

    def __exit__(self, *failure: Any) -> None:
        try:
            self.opened.__exit__(*failure)
        finally:
            self.file = None

    def finish(self, kind: object, *_: object) -> None:
        """Write the buffered rows; after an error of a kind, they are discarded with the file.

        Parameters
        ----------
        kind : type or None
            The class of the exception that ended the block, None if there was none.
        """
        try:
            if kind is None:
                self.flush()
                self.writer.close()
                self.writer = None
        finally:
            if self.writer is not None:
                with suppress(OSError):
                    self.writer.close()


@contextmanager
def _atomic_file(name: str) -> Iterator[BinaryIO]:
    """Yield a file that gets its name, or goes to its URL, if the block ends without an error.

    A file that exists keeps its permissions, a new one gets those of the umask.
    """
    target = Path(tempfile.gettempdir(), "dubito") if is_url(name) else Path(os.path.realpath(name))
    partial = target.with_name(f"{target.name}.{uuid4().hex[:8]}.partial")
    is_known = not is_url(name) and target.is_file()
    mode = 0o600 if is_url(name) else 0o666  # others can read the temporary directory
    if is_known:
        mode = S_IMODE(target.stat().st_mode)
    if not target.parent.is_dir():
        rule, fix = "must be in a directory that exists", "Create the directory first"
        raise BadValueError("", name, rule, f"{target.parent}", fix)
    try:
        with open(partial, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as file:
            if is_known:  # whatever the umask
                with suppress(OSError):
                    partial.chmod(mode)
            yield file
            if is_url(name):
                file.close()
                send(partial, name)
            else:
                _rename_synced(file, partial, target)
    finally:
        partial.unlink(missing_ok=True)


def _rename_synced(file: BinaryIO, partial: Path, path: Path) -> None:
    """Rename a temporary file once it is synced to the disk."""
    file.flush()
    os.fsync(file.fileno())
    file.close()
    partial.replace(path)
    if hasattr(os, "O_DIRECTORY"):  # sync the name itself too, where directories can be synced
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _table_of(columns: Mapping[str, Any], where: str, digits: int | None) -> pa.Table:
    """Return columns as an Arrow table, or raise and name the invalid one."""
    is_text_file = where.lower().endswith(TEXTS)
    if is_text_file and digits is not None:
        columns = {name: _rounded(values, digits) for name, values in columns.items()}
    arrays = {
        name: _column_of(name, values, where)
        for name, values in columns.items()
        if not isinstance(values, str)
    }
    if not arrays:
        rule, fix = "must have one value per row in at least one column", "Use a list of the text"
        raise BadTypeError(", ".join(columns), where, rule, "one text each", fix)
    first, n_rows = next((name, len(array)) for name, array in arrays.items())
    for name, array in arrays.items():
        if len(array) != n_rows:
            rule, fix = f"must be as long as `{first}` ({n_rows} rows)", "Provide one value per row"
            raise BadValueError(name, where, rule, f"{len(array)} rows", fix)
    ordered = {
        name: arrays[name] if name in arrays else pa.repeat(text, n_rows)
        for name, text in columns.items()
    }
    if is_text_file:
        ordered = {quoted_formula(name): _quoted(array) for name, array in ordered.items()}
    return pa.table(ordered)


def _rounded(values: Any, digits: int) -> Any:
    """Return NumPy floats rounded to significant digits, and anything else unchanged.

    Large numbers keep three decimals.

    >>> _rounded(np.array([0.1 + 0.2, 1e-12 / 3, 1234567890.1234]), 9).tolist()
    [0.3, 3.33333333e-13, 1234567890.123]
    """
    if not isinstance(values, np.ndarray) or values.dtype != np.float64:
        return values
    with np.errstate(divide="ignore", invalid="ignore"):
        places = np.maximum(digits - 1 - np.floor(np.log10(np.abs(values))), MIN_DECIMALS)
        scale = POWERS[np.nan_to_num(places, nan=0).clip(0, POWERS.size - 1).astype(int)]
        rounded = np.where(np.isfinite(values), np.rint(values * scale) / scale, values)
    return np.ma.array(rounded, mask=values.mask) if np.ma.isMA(values) else rounded


def _quoted(array: pa.Array) -> pa.Array:
    """Return text whose formulas are prefixed by a single quote, and other columns unchanged."""
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(array.indices, _quoted(array.dictionary))
    if not is_text(array.type):
        return array
    starts = pa.array(FORMULA_STARTS, array.type)
    is_formula = pc.is_in(pc.utf8_slice_codeunits(array, 0, 1), starts)
    suspects = array.filter(is_formula)
    quote, nothing = (pa.scalar(text, array.type) for text in ("'", ""))
    quoted = pc.binary_join_element_wise(quote, suspects, nothing)
    is_number = pc.match_substring_regex(suspects, NUMBER)
    return pc.replace_with_mask(array, is_formula, pc.if_else(is_number, suspects, quoted))


def quoted_formula(text: str) -> str:
    """Return a text as CSV and TSV files hold it: a formula is prefixed by a single quote.

    >>> quoted_formula("=SUM(A1)"), quoted_formula("-0.5"), quoted_formula("accept")
    ("'=SUM(A1)", '-0.5', 'accept')
    """
    [quoted] = _quoted(pa.array([text])).to_pylist()
    return str(quoted)


def _column_of(name: str, values: Any, where: str) -> pa.Array:
    """Return a column as an Arrow array."""
    if isinstance(values, EncodedLabels):
        return values.array
    if isinstance(values, pa.ChunkedArray):
        return whole(values)
    if isinstance(values, pa.Array):
        return values
    array: NDArray[Any] = np.asanyarray(values)  # masked entries become empty cells
    try:
        made = pa.array(values if array.dtype.kind == "O" else array)
    except (pa.ArrowException, TypeError) as error:
        rule = "must be numbers, text or booleans, one per row"
        got, fix = f"shape {array.shape} of {array.dtype}", "Use one column for each kind of value"
        raise BadTypeError(name, where, rule, got, fix) from error
    return whole(made) if isinstance(made, pa.ChunkedArray) else made  # many texts are chunked


def class_columns(
    prefix: str, probabilities: NDArray[Any], classes: Sequence[object], first: int = 0
) -> dict[str, NDArray[Any]]:
    """Return the probabilities of each class as a column; of two classes, `first` comes first.

    >>> list(class_columns("probability_", np.array([[0.9, 0.1]]), ("ok", "fraud"), 1))
    ['probability_fraud', 'probability_ok']
    """
    columns = np.ascontiguousarray(probabilities.T)
    order = [first, 1 - first] if len(classes) == 2 else range(len(classes))
    return {f"{prefix}{classes[k]}": columns[k] for k in order}


def write_atomic(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically, to a path or a URL.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "policy.json"
    >>> write_atomic(path, "{}")
    >>> path.read_text()
    '{}'
    """
    with _atomic_file(os.fspath(path)) as file:
        file.write(text.encode())

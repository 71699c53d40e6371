"""Many rows into a table at once: all of them, or those whose key is not there already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Dialect, Table
from sqlalchemy.exc import DBAPIError, IntegrityError

CHUNKS = (512, 64, 8, 1)  # of some 20 columns: SQLite takes 32,766 values a statement


def insert_rows(connection: Connection, table: Table, columns: Mapping[str, list[Any]]) -> int:
    """Insert columns of one length; return how many rows are new.

    Names come from the table alone, values go in as bound parameters: some rows a statement for
    SQLite, a binary array a column for PostgreSQL.
    """
    names = _names_of(table, columns)
    values = [columns[name] for name in names]
    if not values[0]:
        return 0
    into = f"INSERT INTO {table.name} ({', '.join(names)})"
    if connection.dialect.name == "postgresql":
        arrays = ", ".join(f"%b::{kind}[]" for kind in _kinds_of(table, names, connection.dialect))
        statement = f"{into} SELECT * FROM unnest({arrays}) ON CONFLICT DO NOTHING"
        return int(connection.exec_driver_sql(statement, tuple(values)).rowcount)
    marks = f"({', '.join('?' * len(names))})"
    rows = list(zip(*values, strict=True))
    n_new = 0
    for some in _in_chunks(rows):
        statement = f"{into} VALUES {', '.join([marks] * len(some))} ON CONFLICT DO NOTHING"
        flat = tuple(chain.from_iterable(some))
        n_new += int(connection.exec_driver_sql(statement, flat).rowcount)
    return n_new


def insert_all(connection: Connection, table: Table, columns: Mapping[str, list[Any]]) -> bool:
    """Insert columns of one length; tell whether all rows are new.

    If one is not, the caller has to roll back: PostgreSQL, which copies rows far sooner than it
    inserts them, does nothing else before.
    """
    n_rows = len(next(iter(columns.values())))
    if connection.dialect.name != "postgresql" or not n_rows:
        return insert_rows(connection, table, columns) == n_rows
    try:
        _copy_rows(connection, table, columns)
    except IntegrityError:
        return False
    return True


def _copy_rows(connection: Connection, table: Table, columns: Mapping[str, list[Any]]) -> None:
    """Copy columns into PostgreSQL; errors are those of any other statement."""
    names = _names_of(table, columns)
    rows = zip(*(columns[name] for name in names), strict=True)
    statement = f"COPY {table.name} ({', '.join(names)}) FROM STDIN (FORMAT BINARY)"
    driver = connection.dialect.loaded_dbapi
    cursor: Any = connection.connection.cursor()
    try:
        with cursor, cursor.copy(statement) as into:
            into.set_types(_kinds_of(table, names, connection.dialect))
            for row in rows:
                into.write_row(row)
    except driver.Error as error:
        told = DBAPIError.instance(statement, None, error, driver.Error, dialect=connection.dialect)
        raise told from error


def _names_of(table: Table, columns: Mapping[str, list[Any]]) -> tuple[str, ...]:
    """Return the names of columns as the table has them, in its order."""
    return tuple(column.name for column in table.columns if column.name in columns)


@lru_cache(maxsize=64)
def _kinds_of(table: Table, names: tuple[str, ...], dialect: Dialect) -> list[str]:
    """Return what PostgreSQL calls the types of columns, lengths left out."""
    kinds = [table.columns[name].type.compile(dialect) for name in names]
    return [kind.partition("(")[0].lower() for kind in kinds]


def _in_chunks(rows: list[Any]) -> Iterator[list[Any]]:
    """Yield rows in chunks of few sizes, so that few statements are compiled.

    Python's lock is let go once a statement: with one statement a row, each row would wait for it.
    """
    at = 0
    while at < len(rows):
        size = next(size for size in CHUNKS if size <= len(rows) - at)
        yield rows[at : at + size]
        at += size

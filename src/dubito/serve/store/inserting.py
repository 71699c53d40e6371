"""Many rows into a table at once, leaving out those whose key is there already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Table

__all__ = ["insert_rows"]

CHUNKS = (512, 64, 8, 1)  # of 17 columns: SQLite takes 32,766 values a statement


def insert_rows(connection: Connection, table: Table, columns: Mapping[str, list[Any]]) -> int:
    """Insert columns of one length; return how many rows are new.

    Names come from the table alone, values go in as bound parameters: some rows a statement for
    SQLite, a binary array a column for PostgreSQL.
    """
    names = [column.name for column in table.columns if column.name in columns]
    values = [columns[name] for name in names]
    if not values[0]:
        return 0
    into = f"INSERT INTO {table.name} ({', '.join(names)})"
    if connection.dialect.name == "postgresql":
        kinds = [table.columns[name].type.compile(connection.dialect) for name in names]
        arrays = ", ".join(f"%b::{kind}[]" for kind in kinds)
        statement = f"{into} SELECT * FROM unnest({arrays}) ON CONFLICT DO NOTHING"
        return int(connection.exec_driver_sql(statement, tuple(values)).rowcount)
    marks = f"({', '.join('?' * len(names))})"
    rows = list(zip(*values, strict=True))
    n_new = 0
    for some in in_chunks(rows):
        statement = f"{into} VALUES {', '.join([marks] * len(some))} ON CONFLICT DO NOTHING"
        flat = tuple(chain.from_iterable(some))
        n_new += int(connection.exec_driver_sql(statement, flat).rowcount)
    return n_new


def in_chunks(rows: list[Any]) -> Iterator[list[Any]]:
    """Yield rows in chunks of few sizes, so that few statements are compiled.

    Python's lock is let go once a statement: with one statement a row, each row would wait for it.
    """
    at = 0
    while at < len(rows):
        size = next(size for size in CHUNKS if size <= len(rows) - at)
        yield rows[at : at + size]
        at += size

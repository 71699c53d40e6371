"""Costs from files that people write: a CSV table with names, or JSON."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, final

from dubito.errors import BadFileError

__all__ = ["CostTable", "read_cost_json", "read_cost_table", "text_of"]

MOST_BYTES = 64 * 1024 * 1024


@final
@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs as a file holds them, turned to actions x classes."""

    costs: list[list[float]]
    actions: list[str]
    classes: list[str]


def read_cost_table(path: str | PathLike[str]) -> CostTable:
    """Return the table of a CSV file whose corner cell says what rows are: `action` or `truth`."""
    lines = csv.reader(text_of(path).splitlines())
    try:
        table = [[cell.strip() for cell in line] for line in lines if any(map(str.strip, line))]
    except csv.Error as error:
        raise BadFileError(fspath(path), f"it is no CSV ({error})", "one row a line") from error
    corner = table[0][0].lower() if table else ""
    if corner not in ("action", "truth"):
        problem = f"its corner cell must be `action` or `truth`, what rows are, and is {corner!r}"
        fix = "a first line such as action,well,ill"
        raise BadFileError(fspath(path), problem, fix)
    columns, rows = table[0][1:], [line[0] for line in table[1:]]
    costs = [numbers_of(line, len(columns), path) for line in table[1:]]
    if not rows or not columns:
        problem = "it holds no costs"
        raise BadFileError(fspath(path), problem, "one row of numbers below the names")
    if corner == "action":
        return CostTable(costs, rows, columns)
    return CostTable([list(column) for column in zip(*costs, strict=True)], columns, rows)


def numbers_of(line: list[str], n_columns: int, path: str | PathLike[str]) -> list[float]:
    """Return the costs of a row, whose first cell is its name."""
    name, *cells = line
    if len(cells) != n_columns:
        problem = f"row {name!r} has {len(cells)} costs instead of {n_columns}"
        raise BadFileError(fspath(path), problem, "one cost a column")
    try:
        return [float(cell) for cell in cells]
    except ValueError as error:
        problem = f"row {name!r} holds what is no number ({error})"
        raise BadFileError(fspath(path), problem, "numbers such as 0.5") from error


def read_cost_json(path: str | PathLike[str]) -> Any:
    """Return what a JSON file holds, not yet checked."""
    try:
        return json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        problem = f"it is no JSON ({error})"
        raise BadFileError(fspath(path), problem, "a file with what `to_dict` gave") from error


def text_of(path: str | PathLike[str]) -> str:
    """Return the text of a file of bounded size."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # a path may hold what no path can
        reason = getattr(error, "strerror", None) or error
        raise BadFileError(fspath(path), f"{reason}", "the path of a file") from error
    if len(content) > MOST_BYTES:
        raise BadFileError(fspath(path), "it is larger than 64 MB", "a table of costs")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFileError(fspath(path), f"it is no UTF-8 ({error})", "UTF-8") from error

"""Opening of sources: a file by its extension, many files as one, a table by its type."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

from dubito.data.sources import locations
from dubito.data.sources.arrow_files import open_arrow, open_parquet
from dubito.data.sources.datasets import counted_files, dataset_of
from dubito.data.sources.frames import open_table
from dubito.data.sources.locations import base_of, is_url, size_of
from dubito.data.sources.numpy_files import open_npy, open_npz
from dubito.data.sources.source import BaseSource, file_errors
from dubito.data.sources.text_files import COMPRESSIONS, open_text
from dubito.errors import BadFileError
from dubito.kernels.blocks import map_in_order

OPENERS: dict[str, Callable[[str], BaseSource]] = {
    ".arrow": open_arrow,
    ".csv": partial(open_text, separator=","),
    ".feather": open_arrow,
    ".ipc": open_arrow,
    ".npy": lambda name: open_npy(Path(name)),
    ".npz": lambda name: open_npz(Path(name)),
    ".parquet": open_parquet,
    ".pq": open_parquet,
    ".tsv": partial(open_text, separator="\t"),
}
TEXTS = (".csv", ".tsv")
ARRAYS = (".npy", ".npz")  # of which one file or directory is a table by itself


def open_source(source: Any) -> BaseSource:
    """Open a path or a table, by its extension or its type."""
    if isinstance(source, BaseSource):
        return source
    if not isinstance(source, str | PathLike):
        return open_table(source)
    name = str(Path(source)) if not is_url(os.fspath(source)) else str(source)
    with file_errors(name):
        files = locations.files_under(name)
        if files is None:
            return _open_one(name)
        if not is_url(name) and Path(name).is_dir() and any(Path(name).glob("*.npy")):
            return open_npy(Path(name))
        return _open_many(name, files)


def _open_one(name: str) -> BaseSource:
    """Open a file by its extension."""
    opener = _opener_of(name)
    if size_of(name) == 0:
        raise BadFileError(name, "it is empty", "Write the file again")
    with file_errors(name):
        return opener(name)


def _open_many(name: str, files: list[str]) -> BaseSource:
    """Open the tables of a directory or pattern as one; other files are ignored.

    An empty text file is a table without rows, as some writers leave them.
    """
    counted = files if locations.is_pattern(name) else counted_files(files, base_of(name))
    tables = {file: _extension_of(file) for file in counted if _extension_of(file) in OPENERS}
    kinds = sorted(set(tables.values()) - set(ARRAYS))
    if not kinds:
        fix = (
            "Use a directory or pattern of Parquet, Arrow or CSV files, or a directory of NPY files"
        )
        raise BadFileError(name, "it contains no tables", fix)
    if len(kinds) > 1:
        fix = f"Use a pattern such as {locations.folder_of(name)}/*{kinds[-1]}"
        raise BadFileError(name, f"it contains files of several kinds: {', '.join(kinds)}", fix)
    wanted = [file for file, kind in tables.items() if kind == kinds[0]]
    is_text = kinds[0] in TEXTS
    filled = [file for file in wanted if not (is_text and size_of(file) == 0)]
    if not filled:
        raise BadFileError(name, "all of its files are empty", "Write the files again")
    return dataset_of(name, list(map_in_order(_open_one, filled)), base_of(name))


def _extension_of(name: str) -> str:
    """Return the extension of a file, without that of its compression."""
    *_, before, last = ["", "", *(suffix.lower() for suffix in PurePosixPath(name).suffixes)]
    return before if last in COMPRESSIONS else last


def _opener_of(name: str) -> Callable[[str], BaseSource]:
    """Return the function that opens a file; text files may be compressed."""
    ending, last = _extension_of(name), PurePosixPath(name).suffix.lower()
    if ending not in OPENERS:
        problem = f"its extension is none of {', '.join(OPENERS)}"
        if not locations.is_there(name):
            raise BadFileError(name, f"{problem}, and there is no such directory", "Check the path")
        raise BadFileError(name, problem, "Convert it to Parquet or CSV")
    if ending != last and ending not in TEXTS:
        problem = f"only .csv and .tsv can be compressed as {last}"
        raise BadFileError(name, problem, "Decompress it first")
    if ending in ARRAYS and is_url(name):
        problem = f"{ending} can be read from this machine only"
        raise BadFileError(name, problem, "Copy it to this machine, or convert it to Parquet")
    return OPENERS[ending]

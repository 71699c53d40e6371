"""Anything with columns, opened: a file by its ending, a table by its type."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from dubito.data.sources.arrow_files import open_arrow, open_parquet
from dubito.data.sources.frames import open_table
from dubito.data.sources.numpy_files import open_npy, open_npz
from dubito.data.sources.source import AbstractSource, named_if_broken
from dubito.data.sources.text_files import COMPRESSIONS, open_text
from dubito.errors import BadFileError

__all__ = ["open_source"]

OPENERS: dict[str, Callable[[Path], AbstractSource]] = {
    ".arrow": open_arrow,
    ".csv": partial(open_text, separator=","),
    ".feather": open_arrow,
    ".ipc": open_arrow,
    ".npy": open_npy,
    ".npz": open_npz,
    ".parquet": open_parquet,
    ".pq": open_parquet,
    ".tsv": partial(open_text, separator="\t"),
}


def open_source(source: Any) -> AbstractSource:
    """Open a path or a table; what neither its ending nor its type tells is refused."""
    if not isinstance(source, str | PathLike):
        return open_table(source)
    path = Path(source)
    with named_if_broken(str(path)):
        if path.is_dir():
            return open_folder(path)
        opener = opener_of(path)
        if not path.exists():
            raise BadFileError(str(path), "there is no such file", "checking the path")
        if path.stat().st_size == 0:
            raise BadFileError(str(path), "it is empty", "writing the file again")
        return opener(path)


def open_folder(path: Path) -> AbstractSource:
    """Open a folder of arrays."""
    if not any(path.glob("*.npy")):
        problem = "it is a folder, with no .npy file in it"
        raise BadFileError(str(path), problem, "one file, or a folder of NPY files")
    with named_if_broken(str(path)):
        return open_npy(path)


def opener_of(path: Path) -> Callable[[Path], AbstractSource]:
    """Return what opens a file of this ending; text files may be compressed."""
    *_, before, last = ["", "", *(suffix.lower() for suffix in path.suffixes)]
    is_packed = last in COMPRESSIONS
    ending = before if is_packed else last
    if ending not in OPENERS:
        problem = f"its ending is none of {', '.join(OPENERS)}"
        raise BadFileError(str(path), problem, "converting it to Parquet or CSV")
    if is_packed and ending not in (".csv", ".tsv"):
        problem = f"only .csv and .tsv are read when packed as {last}"
        raise BadFileError(str(path), problem, "unpacking it first")
    return OPENERS[ending]

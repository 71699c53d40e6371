"""Files on this machine by path, or elsewhere by URL through fsspec."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Any, final

import pyarrow as pa
from pyarrow import fs

from dubito.data.patterns import natural_order
from dubito.errors import BadFileError, MissingExtraError

END = 1 << 62  # beyond the last byte of any file, also of one that grows
HIDDEN = ("_", ".")  # prefixes of names that are not part of a dataset, such as _SUCCESS


def is_url(name: str) -> bool:
    """Whether a name is a URL, such as s3://bucket/predictions.parquet."""
    return "://" in name


def is_pattern(name: str) -> bool:
    """Whether a name is a pattern: *, ? and [...], ** for directories."""
    return glob.has_magic(name) and not (not is_url(name) and os.path.lexists(name))


class _MissingPackageError(MissingExtraError):
    """The package for a kind of URL is not installed; the argument `extra` is its name."""

    @property
    def fix(self) -> str:
        """The remedy."""
        return f"Run pip install {self.extra}"


def _reach(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path there."""
    scheme = f"{url.partition('://')[0]}://"
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtraError(f"Reaching {url}", "dask", "fsspec") from error
    try:
        system, path = url_to_fs(url)
    except ImportError as error:
        missing = getattr(error, "name", None) or getattr(error.__cause__, "name", None)
        package = (missing or f"fsspec[{scheme[:-3]}]").partition(".")[0]
        raise _MissingPackageError(
            f"A URL of {scheme}", package, f"the package {package}"
        ) from error
    except ValueError as error:
        problem, fix = f"URLs of {scheme} are not supported", "Use a path, https:// or s3://"
        raise BadFileError(url, problem, fix) from error
    return system, path


@final
class KeptFile:
    """A file on this machine that stays open between passes, until it is closed.

    A pass opens it by its name, as if it had not been kept, once it was changed, replaced or
    closed, and in another process. Passes do not share a position: several may read it at once.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = Lock()
        self.is_closed = False
        self.file: pa.NativeFile | None = None
        self.mark: tuple[int, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _closed_file, (self.name,)

    def current(self) -> pa.NativeFile | None:
        """Return the open file, None if it must be opened by its name."""
        with self.lock:
            if self.is_closed:
                return None
            mark = _version_of(self.name)
            if self.file is None:
                self.file, self.mark = pa.OSFile(self.name), mark
            return self.file if self.mark == mark else None

    def close(self) -> None:
        """Close the file; later passes open it by its name."""
        with self.lock:
            self.is_closed = True
            if self.file is not None:
                self.file.close()


def _closed_file(name: str) -> KeptFile:
    """Return a file that is opened by its name in every pass."""
    file = KeptFile(name)
    file.close()
    return file


def _version_of(name: str) -> tuple[int, ...]:
    """Return what differs once a file is written again or replaced."""
    found = os.stat(name)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def open_file(name: str, kept: KeptFile | None = None) -> AbstractContextManager[Any]:
    """Open a file for random access, or use the one that was kept open.

    Its position is shared by all who read it: read at offsets, or from its streams.
    """
    if kept is not None and (file := kept.current()) is not None:
        return nullcontext(file)
    opened: AbstractContextManager[Any]
    if not is_url(name):
        opened = pa.OSFile(name)
    else:
        system, path = _reach(name)
        opened = fs.PyFileSystem(fs.FSSpecHandler(system)).open_input_file(path)
    return opened


def open_stream(name: str, compression: str | None, kept: KeptFile | None = None) -> pa.NativeFile:
    """Open a file, or use the one kept open, to read it in order and decompressed."""
    if kept is not None and (file := kept.current()) is not None:
        return pa.input_stream(file.get_stream(0, END), compression)
    if not is_url(name):
        return pa.input_stream(name, compression)
    system, path = _reach(name)
    there = fs.PyFileSystem(fs.FSSpecHandler(system))
    return there.open_input_stream(path, compression=compression)


def size_of(name: str) -> int:
    """Return the size of a file in bytes; raise if it does not exist."""
    try:
        if not is_url(name):
            return Path(name).stat().st_size
        system, path = _reach(name)
        return int(system.info(path)["size"] or 0)
    except FileNotFoundError as error:
        raise BadFileError(name, "there is no such file", "Check the path") from error


def is_there(name: str) -> bool:
    """Whether a file exists."""
    if not is_url(name):
        return os.path.exists(name)
    system, path = _reach(name)
    return bool(system.exists(path))


def send(local: Path, url: str) -> None:
    """Upload a file to a URL; object stores make this atomic."""
    system, path = _reach(url)
    system.makedirs(path.rpartition("/")[0], exist_ok=True)
    system.put_file(str(local), path)


def remove(name: str) -> None:
    """Remove a file if it exists."""
    if not is_url(name):
        Path(name).unlink(missing_ok=True)
        return
    system, path = _reach(name)
    if system.exists(path):
        system.rm_file(path)


def mark_of(url: str) -> str:
    """Return a version marker of a remote file, which changes when the file does."""
    system, path = _reach(url)
    return str(system.ukey(path))


def files_under(name: str) -> list[str] | None:
    """Return the files of a directory or pattern in natural order; None for a single file.

    Files and directories whose names start with _ or . are ignored.
    """
    found = _remote_files(name) if is_url(name) else _local_files(name)
    if found is None:
        return None
    base = base_of(name)
    # A pattern may match a file and its directory.
    kept = {file for file in found if not _is_hidden(file, base)}
    return sorted(kept, key=natural_order)


def _local_files(name: str) -> list[str] | None:
    """Return the local files of a directory or pattern, in any order."""
    if is_pattern(name):
        matched = glob.glob(name, recursive=True)
        found = (_local_files(match) for match in matched)
        return [
            os.path.normpath(file)
            for match, files in zip(matched, found, strict=True)
            for file in ([match] if files is None else files)
        ]
    return list(_walked(name)) if os.path.isdir(name) else None


def _walked(folder: str) -> Iterator[str]:
    """Yield all files below a directory, following links; each directory once."""
    seen: set[str] = set()
    waiting = [folder]
    while waiting:
        links: list[str] = []
        for place, folders, names in (entry for start in waiting for entry in os.walk(start)):
            real = os.path.realpath(place)
            if real in seen:
                folders.clear()
                continue
            seen.add(real)
            yield from (os.path.join(place, name) for name in names)
            links += filter(os.path.islink, (os.path.join(place, name) for name in folders))
        waiting = sorted(links)


def _remote_files(url: str) -> list[str] | None:
    """Return the remote files of a directory or pattern, in any order."""
    system, path = _reach(url)
    if is_pattern(url):
        matched = [
            file
            for match, info in system.glob(path, detail=True).items()
            for file in (system.find(match) if info["type"] == "directory" else [match])
        ]
    elif system.isdir(path):
        matched = system.find(path)
    else:
        return None
    return [str(system.unstrip_protocol(match)) for match in matched]


def folder_of(name: str) -> str:
    """Return the directory below which all files of a directory or pattern are.

    >>> folder_of("data/day=*/part.parquet")
    'data'
    """
    if not is_pattern(name):
        return name
    parts = name.split("/")
    first = next(k for k, part in enumerate(parts) if glob.has_magic(part))
    return "/".join(parts[:first])


def base_of(name: str) -> str:
    """Return that directory as the prefix of the names from `files_under`."""
    folder = folder_of(name)
    if not is_url(folder):
        return folder
    system, path = _reach(folder)
    return str(system.unstrip_protocol(path))


def _is_hidden(file: str, base: str) -> bool:
    """Whether a file, or a directory between it and the base, is hidden."""
    below = PurePosixPath(file.replace(os.sep, "/")[len(base) :].lstrip("/"))
    return any(part.startswith(HIDDEN) and "=" not in part for part in below.parts)

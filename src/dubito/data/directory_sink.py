"""A directory of results: one part per input file, written under a lock, resumable."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count
from pathlib import Path, PurePath
from time import monotonic
from typing import Any, NamedTuple, Self, TypeVar, final
from uuid import uuid4

from dubito.data.files import BadRow, BadRows
from dubito.data.sink import Sink, write_atomic
from dubito.data.sources import locations
from dubito.data.sources.locations import is_there, is_url
from dubito.data.sources.opening import MANIFEST, Manifest, line_of, read_manifest, text_of
from dubito.errors import BadFileError, BadTypeError, BadValueError


class WriteLock(NamedTuple):
    """An advisory lock for an output directory.

    A worker of a cluster may continue to write a part after its run has failed. It checks the lock
    before the part gets its name, which another run may be using by then.

    >>> import tempfile
    >>> lock = WriteLock.acquire(f"{tempfile.mkdtemp()}/_lock")
    >>> lock.require()
    >>> lock.release()
    """

    place: str
    mark: str

    @classmethod
    def acquire(cls, place: str) -> Self:
        """Take the lock over from any other run, by a token in a file or at a URL."""
        lock = cls(place, uuid4().hex)
        write_atomic(place, lock.mark)
        return lock

    def require(self) -> None:
        """Raise if the lock is no longer held."""
        if not self.is_held():
            folder = self.place.rpartition("/")[0]
            problem = "the run that writes this part has ended, or another run has started"
            raise BadFileError(folder, problem, "Run one at a time")

    def is_held(self) -> bool:
        """Whether the token is still there."""
        if not is_there(self.place):
            return False
        with locations.open_file(self.place) as file:
            return bytes(file.read()) == self.mark.encode()

    def release(self) -> None:
        """Release the lock, unless another run holds it."""
        if self.is_held():
            locations.remove(self.place)


LOCK_FILE = "_lock"  # the file with the token of the run that may write
PAUSE = 5.0  # seconds between two uploads of the manifest to a URL
Location = TypeVar("Location", str, os.PathLike[str], Path)


class Slot(NamedTuple):
    """A part to be written: its input, its file, and the state of the input."""

    key: str
    file: str
    identity: dict[str, Any]


@final
class DirectorySink:
    """A directory of parts, `part-00000.parquet` and so on: one per input file, each atomic.

    `_manifest.jsonl` records the input (path, size, modification time) of each finished part and
    the `settings` of the run. A second run skips finished parts, and raises an error if the
    settings differ. At a URL, a part counts once the manifest lists it, so nothing is renamed. Bad
    rows that were set aside are stored with their part. `exclusive` locks out other runs.

    Parameters
    ----------
    path : path or URL
        The directory, created if it does not exist.
    settings : mapping
        JSON values that the results depend on, such as the version of a policy.
    ending : str, default=".parquet"
        The format of the parts.

    Examples
    --------
    >>> from dubito.data import DirectorySink
    >>> import tempfile
    >>> folder = DirectorySink(tempfile.mkdtemp(), settings={"policy": "v1"})
    >>> for path in folder.unfinished([__file__]):
    ...     with folder.part(path) as sink:
    ...         sink.write({"cost": [0.5, 2.0]})
    >>> folder.n_rows, folder.unfinished([__file__])
    (2, [])
    """

    def __init__(
        self, path: str | os.PathLike[str], settings: Mapping[str, Any], *, ending: str = ".parquet"
    ) -> None:
        name = os.fspath(path)
        self.name = name.rstrip("/") if is_url(name) else str(Path(name))
        self.ending = ending
        self.settings = _as_settings({**settings, "ending": ending})
        self.manifest = self.place(MANIFEST)
        if not is_url(self.name):
            Path(self.name).mkdir(parents=True, exist_ok=True)
        self.parts: dict[str, dict[str, Any]] = {}  # by the path of the input
        self.opened: dict[str, str] = {}  # files of parts that are or were being written
        self.taken: set[str] = set()  # files of all of these
        self.first_free = 0  # all lower numbers are taken
        self.write_lock: WriteLock | None = None  # while other runs are kept off
        self.is_behind = False
        self.saved_at = -PAUSE
        self.load()

    def place(self, file: str) -> str:
        """Return the path or URL of a file of the directory.

        Parameters
        ----------
        file : str
            The name of a file in the directory.

        Returns
        -------
        str
            An absolute path, or a URL.
        """
        folder = self.name if is_url(self.name) else os.path.abspath(self.name)
        return f"{folder}/{file}"

    def load(self) -> None:
        """Load the finished parts from the manifest, or raise if their settings differ."""
        fix = "Use an empty directory"
        if not is_there(self.manifest):
            files = locations.files_under(self.name) or ()
            if any(PurePath(file).name.startswith("part-") for file in files):
                raise BadFileError(self.name, f"it has parts but no {MANIFEST}", fix)
            return
        try:
            known = read_manifest(self.manifest)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadFileError(self.manifest, "it is not a manifest", fix) from error
        if known.parts and known.settings != self.settings:
            rule, fix = "must be those of the existing parts", "Use another directory"
            got = _differences(known.settings, self.settings)
            raise BadValueError("settings", self.name, rule, got, fix)
        self.parts, self.first_free = known.parts, 0
        self.taken = {part["file"] for part in known.parts.values()} | set(self.opened.values())
        if known.settings != self.settings:
            self.save_manifest()

    @contextmanager
    def exclusive(self) -> Iterator[Self]:
        """Lock out other runs, load what they finished, and remove what they left behind.

        Excludes runs on this machine, and on others if the file system supports locks; a lock ends
        with its process. At a URL, the run that started last continues and others stop.

        Yields
        ------
        DirectorySink
            The sink itself, locked until the block ends.
        """
        if self.write_lock is not None:
            yield self
            return
        with _locked(self.name):
            self.write_lock = WriteLock.acquire(self.place(LOCK_FILE))
            try:
                self.load()
                self.sweep()
                yield self
            finally:
                if self.is_behind and self.write_lock.is_held():
                    self.save_manifest()
                self.write_lock.release()
                self.write_lock = None

    def is_finished(self, source: str | os.PathLike[str], label: str = "") -> bool:
        """Whether the part of this input exists and the input is unchanged.

        Parameters
        ----------
        source : str or path
            The input of the part.
        label : str, default=""
            Identifies the rows, if the input has several parts.

        Returns
        -------
        bool
            False as well if the input has changed since, by size or modification time.
        """
        key, identity = key_of(source, label), _identity_of(source)
        part = self.parts.get(key, {"input": None})
        return bool(part["input"] == identity and is_there(self.place(part["file"])))

    def unfinished(self, sources: Iterable[Location]) -> list[Location]:
        """Return the inputs whose parts are not finished, in order.

        Parameters
        ----------
        sources : iterable of str or path
            All inputs.

        Returns
        -------
        list of str or path
            Those that still have to be processed.
        """
        return [source for source in sources if not self.is_finished(source)]

    def bad_rows(self, source: str | os.PathLike[str], label: str = "") -> list[BadRow]:
        """Return the bad rows of the input of a finished part.

        Parameters
        ----------
        source : str or path
            The input of the part.
        label : str, default=""
            Identifies the rows, if the input has several parts.

        Returns
        -------
        list of BadRow
            The rows that were left out of the part.
        """
        kept = self.parts[key_of(source, label)].get("bad_rows", [])
        return [BadRow(**values) for values in kept]

    @contextmanager
    def part(
        self, source: str | os.PathLike[str], bad_rows: BadRows | None = None
    ) -> Iterator[Sink]:
        """Open the part of an input; it is finished when the block ends without an error.

        `bad_rows` collects those of this input inside the block.

        Parameters
        ----------
        source : str or path
            The input of the part.
        bad_rows : BadRows, optional
            Collects the bad rows of this input inside the block.

        Yields
        ------
        Sink
            Where to write the results of this input.
        """
        slot, before = self.slot(source), set(bad_rows or ())
        with Sink(self.place(slot.file)) as sink:
            yield sink
            self.require_write_lock()
        self.finish(slot, sink.n_rows, [bad for bad in bad_rows or () if bad not in before])

    def slot(self, source: str | os.PathLike[str], label: str = "") -> Slot:
        """Return the part of an input, or of the rows of it that `label` identifies.

        Parameters
        ----------
        source : str or path
            The input.
        label : str, default=""
            Identifies the rows, if the input has several parts.

        Returns
        -------
        Slot
            The key and file name of the part, and the identity of the input.
        """
        if not is_there(self.manifest):
            self.save_manifest()  # before any part, so that the directory is recognized
        key = key_of(source, label)
        known = self.parts.get(key)
        file = known["file"] if known else self.opened.get(key) or self.free_name()
        self.opened[key] = file
        return Slot(key, file, _identity_of(source))  # the input as it was before it was read

    def free_name(self) -> str:
        """Return the first unused name of a part.

        Returns
        -------
        str
            Such as "part-00003.parquet".
        """
        numbered = ((k, f"part-{k:05d}{self.ending}") for k in count(self.first_free))
        number, name = next(one for one in numbered if one[1] not in self.taken)
        self.first_free = number + 1
        self.taken.add(name)
        return name

    def require_write_lock(self) -> None:
        """Raise if other runs are locked out, and one has started anyway."""
        if self.write_lock is not None:
            self.write_lock.require()

    def finish(self, slot: Slot, n_rows: int, bad: Sequence[BadRow] = ()) -> None:
        """Record a part that is written: from now on it counts.

        Parameters
        ----------
        slot : Slot
            The place of the part, from `slot`.
        n_rows : int
            The number of rows written.
        bad : sequence of BadRow, default=()
            The rows of the input that were left out.
        """
        self.require_write_lock()
        part = {"key": slot.key, "file": slot.file, "input": slot.identity, "n_rows": n_rows}
        if bad:
            part["bad_rows"] = list(map(asdict, bad))
        self.parts[slot.key] = part
        if is_url(self.name):
            self.is_behind = True
            if self.write_lock is None or monotonic() - self.saved_at > PAUSE:
                self.save_manifest()
            return
        with open(self.manifest, "ab") as file:
            file.write(line_of(part).encode())
            file.flush()
            os.fsync(file.fileno())

    def drop_stale(self, inputs: Mapping[str, Collection[str]]) -> None:
        """Drop the parts of inputs that have changed, or of rows that no label identifies.

        Parameters
        ----------
        inputs : dict of str to collection of str
            The labels of the parts of each input; "" stands for the whole input.
        """
        known = {
            identity["path"]: (identity, {key_of(source, label) for label in labels})
            for source, labels in inputs.items()
            for identity in [_identity_of(source)]
        }
        stale: set[str] = set()
        for key, part in self.parts.items():
            identity, keys = known.get(part["input"]["path"], (part["input"], {key}))
            if part["input"] != identity or key not in keys:
                stale.add(key)
        dropped = [self.parts.pop(key)["file"] for key in stale]
        if not dropped:
            return
        self.opened = {key: file for key, file in self.opened.items() if key not in stale}
        self.taken -= set(dropped)
        self.first_free = 0
        self.save_manifest()  # first, so that no part that counts is missing
        for file in dropped:
            locations.remove(self.place(file))

    def sweep(self) -> None:
        """Remove parts that are not in the manifest, left by writers that died or were too late."""
        kept = {part["file"] for part in self.parts.values()}
        ours = re.compile(rf"part-\d+{re.escape(self.ending)}(\.\w+\.partial)?")
        for name in {PurePath(file).name for file in locations.files_under(self.name) or ()} - kept:
            if ours.fullmatch(name):
                locations.remove(self.place(name))

    @property
    def n_rows(self) -> int:
        """The number of rows of all finished parts."""
        return sum(part["n_rows"] for part in self.parts.values())

    def save_manifest(self) -> None:
        """Write the manifest atomically."""
        text = text_of(Manifest(self.settings, self.parts))
        self.is_behind, self.saved_at = False, monotonic()
        write_atomic(self.manifest, text)


def settings_of(folder: str) -> dict[str, Any]:
    """Return the settings of the parts of a directory, none if it has no manifest."""
    place = f"{folder.rstrip('/')}/{MANIFEST}"
    try:
        return read_manifest(place).settings if is_there(place) else {}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Lock a directory, where the file system supports it."""
    if is_url(folder) or not hasattr(os, "O_DIRECTORY"):
        yield
        return
    import fcntl  # not available on all platforms

    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(held)
        rule = "must be written by one run at a time"
        got = f"{folder}, which another run is writing"
        fix = "Use another directory, or wait until it ends"
        raise BadValueError("path", "DirectorySink", rule, got, fix) from error
    except OSError:
        pass  # a file system without locks
    try:
        yield
    finally:
        os.close(held)


def _as_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings after a round trip through JSON, or raise."""
    try:
        return dict(json.loads(json.dumps(dict(settings), allow_nan=False)))
    except (TypeError, ValueError) as error:
        rule, fix = "must be JSON values", "Use numbers, text, lists and dicts"
        raise BadTypeError("settings", "DirectorySink", rule, str(error), fix) from error


def key_of(source: str | os.PathLike[str], label: str = "") -> str:
    """Return the key of an input, or of some of its rows."""
    name = os.fspath(source)
    path = name if is_url(name) else os.path.realpath(name)
    return f"{path} {label}" if label else path


def _identity_of(source: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the path, size and modification time of an input file."""
    name = os.fspath(source)
    if is_url(name):
        return {"path": name, "size": locations.size_of(name), "changed": locations.mark_of(name)}
    path = os.path.realpath(name)
    try:
        found = os.stat(path)
    except OSError as error:
        raise BadFileError(str(source), "there is no such file", "Check the path") from error
    return {"path": path, "size": found.st_size, "changed": found.st_mtime_ns}


def _differences(before: Any, now: dict[str, Any]) -> str:
    """Return the settings that differ, with both values."""
    old = before if isinstance(before, dict) else {}
    names = sorted(name for name in {*old, *now} if old.get(name) != now.get(name))
    texts = [f"{name} {now.get(name)!r} (was {old.get(name)!r})" for name in names]
    return ", ".join(texts) or "none"

"""A directory of results, one part per input file, with an advisory lock; an interrupted run resumes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path, PurePath
from time import monotonic
from typing import Any, NamedTuple, Self, TypeVar, final
from uuid import uuid4

from dubito.data.bad_rows import BadRow, BadRows
from dubito.data.sink import Sink, write_whole
from dubito.data.sources.datasets import MANIFEST, Manifest, line_of, read_manifest, text_of
from dubito.data.sources.locations import (
    files_under,
    is_there,
    is_url,
    mark_of,
    open_file,
    remove,
    size_of,
)
from dubito.errors import BadFileError, BadTypeError, BadValueError


class Turn(NamedTuple):
    """The right to add parts to a folder, until it ends or another one begins.

    A worker of a cluster goes on with a part after the run that asked for it has failed. It looks
    here before the part takes its name, which may be that of another part by now.

    >>> import tempfile
    >>> turn = Turn.begin(f"{tempfile.mkdtemp()}/_turn")
    >>> turn.require()
    >>> turn.end()
    """

    place: str
    mark: str

    @classmethod
    def begin(cls, place: str) -> Self:
        """Take the turn, from whoever has it, by a mark in a file or at a URL."""
        turn = cls(place, uuid4().hex)
        write_whole(place, turn.mark)
        return turn

    def require(self) -> None:
        """Raise if the turn is over."""
        if not self.is_on():
            folder = self.place.rpartition("/")[0]
            problem = "the run that writes this part has ended, or another run has started"
            raise BadFileError(folder, problem, "Run one at a time")

    def is_on(self) -> bool:
        """Whether the mark is still there."""
        if not is_there(self.place):
            return False
        with open_file(self.place) as file:
            return bytes(file.read()) == self.mark.encode()

    def end(self) -> None:
        """Give the turn up, unless another one has begun."""
        if self.is_on():
            remove(self.place)


TURN = "_turn"  # the file that says whose turn it is to write
PAUSE = 5.0  # seconds between two manifests at a URL, where each is sent whole
Location = TypeVar("Location", str, os.PathLike[str], Path)


class Slot(NamedTuple):
    """The place of a part: which input it is of, its file, and what tells if the input changes."""

    key: str
    file: str
    identity: dict[str, Any]


@final
class DirectorySink:
    """A folder of parts, `part-00000.parquet` and so on: one an input file, each whole or absent.

    `_manifest.jsonl` says of which input (path, size, time of change) each finished part is, and by
    which `settings` it was made: anything JSON holds that the results hang on, such as a policy's
    version. A second run skips finished parts; other settings are refused. The folder may be a
    URL: a part counts once the manifest has it, so that nothing need be renamed. Bad rows that
    were set aside are kept with the part that lacks them. `alone` keeps other runs off.

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
        self.turn: Turn | None = None  # while other runs are kept off
        self.is_behind = False
        self.kept_at = -PAUSE
        self.load()

    def place(self, file: str) -> str:
        """Return the path or URL of a file of the folder."""
        folder = self.name if is_url(self.name) else os.path.abspath(self.name)
        return f"{folder}/{file}"

    def load(self) -> None:
        """Take up the finished parts of the manifest, or raise if they were made otherwise."""
        fix = "Use an empty directory"
        if not is_there(self.manifest):
            files = files_under(self.name) or ()
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
            self.keep()

    @contextmanager
    def alone(self) -> Iterator[Self]:
        """Keep other runs off the folder, take up what they did, and remove what they left.

        Those of this machine, and of others where its file system knows locks; a lock ends with its
        process, however that ends. At a URL, the run that began last goes on, and others stop.
        """
        if self.turn is not None:
            yield self
            return
        with _locked(self.name):
            self.turn = Turn.begin(self.place(TURN))
            try:
                self.load()
                self.sweep()
                yield self
            finally:
                if self.is_behind and self.turn.is_on():
                    self.keep()
                self.turn.end()
                self.turn = None

    def is_finished(self, source: str | os.PathLike[str], label: str = "") -> bool:
        """Whether the part of this very input, unchanged since, is there."""
        key, identity = key_of(source, label), _identity_of(source)
        part = self.parts.get(key, {"input": None})
        return bool(part["input"] == identity and is_there(self.place(part["file"])))

    def unfinished(self, sources: Iterable[Location]) -> list[Location]:
        """Return the inputs whose parts are still to be written, in order."""
        return [source for source in sources if not self.is_finished(source)]

    def bad_rows(self, source: str | os.PathLike[str], label: str = "") -> list[BadRow]:
        """Return the bad rows of the input of a finished part, which are not in it."""
        kept = self.parts[key_of(source, label)].get("bad_rows", [])
        return [BadRow(**values) for values in kept]

    @contextmanager
    def part(
        self, source: str | os.PathLike[str], bad_rows: BadRows | None = None
    ) -> Iterator[Sink]:
        """Open the part of an input; it is finished when the block ends without an error.

        `bad_rows` takes those of this input inside the block.
        """
        slot, before = self.slot(source), set(bad_rows or ())
        with Sink(self.place(slot.file)) as sink:
            yield sink
            self.require_turn()
        self.finish(slot, sink.n_rows, [bad for bad in bad_rows or () if bad not in before])

    def slot(self, source: str | os.PathLike[str], label: str = "") -> Slot:
        """Return the place of the part of an input, or of those of its rows that `label` names."""
        if not is_there(self.manifest):
            self.keep()  # before any part, so that the folder is known as ours from the start
        key = key_of(source, label)
        known = self.parts.get(key)
        file = known["file"] if known else self.opened.get(key) or self.free_name()
        self.opened[key] = file
        return Slot(key, file, _identity_of(source))  # the input as it was before it was read

    def free_name(self) -> str:
        """Return the first name that no part has."""
        numbered = ((k, f"part-{k:05d}{self.ending}") for k in count(self.first_free))
        number, name = next(one for one in numbered if one[1] not in self.taken)
        self.first_free = number + 1
        self.taken.add(name)
        return name

    def require_turn(self) -> None:
        """Raise where other runs should be kept off, and one has begun."""
        if self.turn is not None:
            self.turn.require()

    def finish(self, slot: Slot, n_rows: int, bad: Sequence[BadRow] = ()) -> None:
        """Take up a part that is written: from now on it is one of the folder's."""
        self.require_turn()
        part = {"key": slot.key, "file": slot.file, "input": slot.identity, "n_rows": n_rows}
        if bad:
            part["bad_rows"] = list(map(asdict, bad))
        self.parts[slot.key] = part
        if is_url(self.name):
            self.is_behind = True
            if self.turn is None or monotonic() - self.kept_at > PAUSE:
                self.keep()
            return
        with open(self.manifest, "ab") as file:
            file.write(line_of(part).encode())
            file.flush()
            os.fsync(file.fileno())

    def drop_stale(self, inputs: Mapping[str, Collection[str]]) -> None:
        """Drop the parts of inputs that have changed since, or of rows that no label names now."""
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
        self.keep()  # first, so that none is missing that counts
        for file in dropped:
            remove(self.place(file))

    def sweep(self) -> None:
        """Remove what writers have left that died or came too late: parts no manifest has."""
        kept = {part["file"] for part in self.parts.values()}
        ours = re.compile(rf"part-\d+{re.escape(self.ending)}(\.\w+\.partial)?")
        for name in {PurePath(file).name for file in files_under(self.name) or ()} - kept:
            if ours.fullmatch(name):
                remove(self.place(name))

    @property
    def n_rows(self) -> int:
        """How many rows all finished parts have."""
        return sum(part["n_rows"] for part in self.parts.values())

    def keep(self) -> None:
        """Write the manifest, whole."""
        text = text_of(Manifest(self.settings, self.parts))
        self.is_behind, self.kept_at = False, monotonic()
        write_whole(self.manifest, text)


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Hold a folder, where there are locks."""
    if is_url(folder) or not hasattr(os, "O_DIRECTORY"):
        yield
        return
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # of a file system without locks
            _require_lock(held, folder)
        yield
    finally:
        os.close(held)


def _require_lock(held: int, folder: str) -> None:
    """Lock a folder that is open, or raise if another run has."""
    import fcntl  # is not everywhere

    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        rule, fix = (
            "must be written by one run at a time",
            "Use another directory, or wait until it ends",
        )
        got = f"{folder}, which another run is writing"
        raise BadValueError("path", "DirectorySink", rule, got, fix) from error


def _as_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as they come back from JSON, or raise."""
    try:
        return dict(json.loads(json.dumps(dict(settings), allow_nan=False)))
    except (TypeError, ValueError) as error:
        rule, fix = "must be JSON values", "Use numbers, text, lists and dicts"
        raise BadTypeError("settings", "DirectorySink", rule, str(error), fix) from error


def key_of(source: str | os.PathLike[str], label: str = "") -> str:
    """Return the name of an input, or of some of its rows."""
    name = os.fspath(source)
    path = name if is_url(name) else os.path.realpath(name)
    return f"{path} {label}" if label else path


def _identity_of(source: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what tells an input file from what it may become."""
    name = os.fspath(source)
    if is_url(name):
        return {"path": name, "size": size_of(name), "changed": mark_of(name)}
    path = os.path.realpath(name)
    try:
        found = os.stat(path)
    except OSError as error:
        raise BadFileError(str(source), "there is no such file", "Check the path") from error
    return {"path": path, "size": found.st_size, "changed": found.st_mtime_ns}


def _differences(before: Any, now: dict[str, Any]) -> str:
    """Return the settings that are not the same, as they were and as they are."""
    old = before if isinstance(before, dict) else {}
    names = sorted(name for name in {*old, *now} if old.get(name) != now.get(name))
    return (
        ", ".join(f"{name} {now.get(name)!r} (was {old.get(name)!r})" for name in names) or "none"
    )

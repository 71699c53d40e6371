"""A folder of results, a part an input file: a run that was stopped goes on where it was."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypeVar, final

from dubito.data.bad_rows import BadRow, BadRows
from dubito.data.sink import Sink
from dubito.data.sources.locations import (
    files_under,
    is_there,
    is_url,
    mark_of,
    open_file,
    send,
    size_of,
)
from dubito.data.sources.manifests import MANIFEST
from dubito.data.whole_text import write_whole
from dubito.errors import BadFileError, BadTypeError, BadValueError

__all__ = ["FolderSink", "Slot", "key_of"]

FORMAT = 1
Location = TypeVar("Location", str, os.PathLike[str], Path)


class Slot(NamedTuple):
    """The place of a part: which input it is of, its file, and what tells if the input changes."""

    key: str
    file: str
    identity: dict[str, Any]


@final
class FolderSink:
    """A folder of parts, `part-00000.parquet` and so on: one an input file, each whole or absent.

    `manifest.json` says of which input (path, size, time of change) each finished part is, and by
    which `settings` it was made: anything JSON holds that the results hang on, such as a policy's
    version. A second run skips finished parts; other settings are refused. One run at a time. The
    folder may be a URL: a part counts once the manifest has it, so that nothing need be renamed.
    Bad rows that were set aside are kept with the part that lacks them.

    >>> import tempfile
    >>> folder = FolderSink(tempfile.mkdtemp(), settings={"policy": "v1"})
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
        self.settings = as_settings({**settings, "ending": ending})
        self.manifest = self.place(MANIFEST)
        if not is_url(self.name):
            Path(self.name).mkdir(parents=True, exist_ok=True)
        self.parts: dict[str, dict[str, Any]] = {}  # by the path of the input
        self.opened: dict[str, str] = {}  # files of parts that are or were being written
        if is_there(self.manifest):
            self.parts = self.known_parts()
        elif any(PurePath(file).name.startswith("part-") for file in files_under(self.name) or ()):
            fix = "an empty folder"
            raise BadFileError(self.name, f"it has parts but no {MANIFEST}", fix)

    def place(self, file: str) -> str:
        """Return the path or URL of a file of the folder."""
        folder = self.name if is_url(self.name) else os.path.abspath(self.name)
        return f"{folder}/{file}"

    def known_parts(self) -> dict[str, dict[str, Any]]:
        """Return the finished parts of the manifest, or raise if they were made otherwise."""
        try:
            with open_file(self.manifest) as file:
                known = json.loads(file.read())
            found, settings = known["parts"], known["settings"]
            is_ours = known["format"] == FORMAT and isinstance(found, dict)
        except (ValueError, KeyError, TypeError) as error:
            fix = "an empty folder"
            raise BadFileError(self.manifest, "it is no manifest", fix) from error
        if not is_ours or settings != self.settings:
            rule, fix = "those that the folder's parts were made by", "another folder"
            got = differences(settings, self.settings)
            raise BadValueError("settings", self.name, rule, got, fix)
        return dict(found)

    def is_finished(self, source: str | os.PathLike[str], label: str = "") -> bool:
        """Whether the part of this very input, unchanged since, is there."""
        key, identity = key_of(source, label), identity_of(source)
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
        self.finish(slot, sink.n_rows, [bad for bad in bad_rows or () if bad not in before])

    def slot(self, source: str | os.PathLike[str], label: str = "") -> Slot:
        """Return the place of the part of an input, or of those of its rows that `label` names."""
        key = key_of(source, label)
        known = self.parts.get(key)
        file = known["file"] if known else self.opened.get(key) or self.free_name()
        self.opened[key] = file
        return Slot(key, file, identity_of(source))  # the input as it was before it was read

    def free_name(self) -> str:
        """Return the first name that no part has."""
        taken = {part["file"] for part in self.parts.values()} | set(self.opened.values())
        names = (f"part-{number:05d}{self.ending}" for number in count())
        return next(name for name in names if name not in taken)

    def finish(self, slot: Slot, n_rows: int, bad: Sequence[BadRow] = ()) -> None:
        """Take up a part that is written: from now on it is one of the folder's."""
        part = {"file": slot.file, "input": slot.identity, "n_rows": n_rows}
        self.parts[slot.key] = {**part, "bad_rows": list(map(asdict, bad))} if bad else part
        self.keep()

    def sweep(self) -> None:
        """Remove what writers that died have left."""
        if is_url(self.name):
            return  # there a part is sent whole: what is left is in the writer's own folder
        for left in Path(self.name).glob(f"part-*{self.ending}.*.partial"):
            left.unlink(missing_ok=True)

    @property
    def n_rows(self) -> int:
        """How many rows all finished parts have."""
        return sum(part["n_rows"] for part in self.parts.values())

    def keep(self) -> None:
        """Write the manifest, whole."""
        values = {"format": FORMAT, "settings": self.settings, "parts": self.parts}
        text = json.dumps(values, indent=2)
        if not is_url(self.name):
            write_whole(self.manifest, text)
            return
        with tempfile.TemporaryDirectory() as aside:
            write_whole(Path(aside, MANIFEST), text)
            send(Path(aside, MANIFEST), self.manifest)


def as_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as they come back from JSON, or raise."""
    try:
        return dict(json.loads(json.dumps(dict(settings), allow_nan=False)))
    except (TypeError, ValueError) as error:
        rule, fix = "what JSON holds", "numbers, texts, lists and dicts of them"
        raise BadTypeError("settings", "FolderSink", rule, str(error), fix) from error


def key_of(source: str | os.PathLike[str], label: str = "") -> str:
    """Return the name of an input, or of some of its rows."""
    name = os.fspath(source)
    path = name if is_url(name) else os.path.realpath(name)
    return f"{path} {label}" if label else path


def identity_of(source: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what tells an input file from what it may become."""
    name = os.fspath(source)
    if is_url(name):
        return {"path": name, "size": size_of(name), "changed": mark_of(name)}
    path = os.path.realpath(name)
    try:
        found = os.stat(path)
    except OSError as error:
        raise BadFileError(str(source), "there is no such file", "checking the path") from error
    return {"path": path, "size": found.st_size, "changed": found.st_mtime_ns}


def differences(before: Any, now: dict[str, Any]) -> str:
    """Return the settings that are not the same, as they were and as they are."""
    old = before if isinstance(before, dict) else {}
    names = sorted(name for name in {*old, *now} if old.get(name) != now.get(name))
    return (
        ", ".join(f"{name} {now.get(name)!r} (was {old.get(name)!r})" for name in names) or "none"
    )

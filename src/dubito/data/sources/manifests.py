"""Folders of results say which of their files count."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dubito.data.sources.locations import is_there, open_file

__all__ = ["MANIFEST", "Manifest", "counted_files", "line_of", "read_manifest", "text_of"]

MANIFEST = "_manifest.jsonl"  # readers of datasets skip names that begin with _
FORMAT = 2


class Manifest(NamedTuple):
    """By which settings a folder's parts were made, and what is known of each, by its input."""

    settings: dict[str, Any]
    parts: dict[str, dict[str, Any]]


def text_of(manifest: Manifest) -> str:
    """Return a manifest as text: a line of settings, then a line a part."""
    head = json.dumps({"format": FORMAT, "settings": manifest.settings})
    return head + "".join(map(line_of, manifest.parts.values()))


def line_of(part: Mapping[str, Any]) -> str:
    """Return the line of a part as it is added: it stands by itself, whatever was cut off before.

    >>> line_of({"key": "a.csv", "n_rows": 3}).strip()
    '{"key": "a.csv", "n_rows": 3}'
    """
    return f"\n{json.dumps(part)}"


def read_manifest(place: str) -> Manifest:
    """Return a manifest, or raise what its parts raise where it is none of ours.

    A line that a writer could not finish is of a part that does not count yet.
    """
    with open_file(place) as file:
        head, *lines = bytes(file.read()).decode().split("\n")
    known = json.loads(head)
    if known["format"] != FORMAT:
        raise ValueError(known["format"])
    parts = {part["key"]: part for line in lines if (part := whole_part(line)) is not None}
    return Manifest(dict(known["settings"]), parts)


def whole_part(line: str) -> dict[str, Any] | None:
    """Return what a line says of a part, None if it was cut off."""
    try:
        return dict(json.loads(line))
    except ValueError:
        return None


def counted_files(files: Sequence[str], folder: str) -> list[str]:
    """Return the files of a folder that its manifest lists, or all where it has none of ours.

    What a run that was stopped has left is in no manifest.
    """
    place = f"{folder.rstrip('/')}/{MANIFEST}"
    if not is_there(place):
        return list(files)
    try:
        listed = {part["file"] for part in read_manifest(place).parts.values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return list(files)  # a file of that name, for something else
    return [file for file in files if file.rpartition("/")[2] in listed]

"""Folders of results say which of their files count."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dubito.data.sources.locations import open_file

__all__ = ["MANIFEST", "counted_files"]

MANIFEST = "manifest.json"


def counted_files(files: Sequence[str], folder: str) -> list[str]:
    """Return the files of a folder that its manifest lists, or all where it has none of ours.

    What a run that was stopped has left is in no manifest.
    """
    place = f"{folder.rstrip('/')}/{MANIFEST}"
    if not any(file.endswith(f"/{MANIFEST}") for file in files):
        return list(files)
    try:
        with open_file(place) as file:
            listed = {part["file"] for part in json.loads(file.read())["parts"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return list(files)  # a file of that name, for something else
    return [file for file in files if file.rpartition("/")[2] in listed]

"""A text file that is there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from uuid import uuid4

from dubito.data.sink import replace_whole
from dubito.data.sources.locations import is_url, send

__all__ = ["write_whole"]


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a text aside, and give it its name, or send it to its URL, when all of it is there.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "policy.json"
    >>> write_whole(path, "{}")
    >>> path.read_text()
    '{}'
    """
    name = os.fspath(path)
    if is_url(name):
        with tempfile.TemporaryDirectory() as folder:
            aside = Path(folder, "text")
            aside.write_bytes(text.encode())
            send(aside, name)
        return
    target = Path(os.path.realpath(name))
    partial = target.with_name(f"{target.name}.{uuid4().hex[:8]}.partial")
    try:
        with partial.open("wb") as file:
            file.write(text.encode())
            replace_whole(file, partial, target)
    finally:
        partial.unlink(missing_ok=True)

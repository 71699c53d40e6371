"""A text file that is there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

from dubito.data.sink import replace_whole

__all__ = ["write_whole"]


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a text aside, and give it its name when all of it is on the disk.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "policy.json"
    >>> write_whole(path, "{}")
    >>> path.read_text()
    '{}'
    """
    target = Path(os.path.realpath(path))
    partial = target.with_name(f"{target.name}.{uuid4().hex[:8]}.partial")
    try:
        with partial.open("wb") as file:
            file.write(text.encode())
            replace_whole(file, partial, target)
    finally:
        partial.unlink(missing_ok=True)

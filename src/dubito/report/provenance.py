"""How a report came about: what it was made of, by what, and how to make it again."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from typing import final

from dubito import __version__
from dubito.data.batch import Batch
from dubito.data.fingerprint import fingerprint
from dubito.data.shards import ArrayShards

__all__ = ["Provenance"]

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")


@final
@dataclass(frozen=True, slots=True)
class Provenance:
    """What a report was made of, and by what."""

    fingerprint: str
    seed: int
    command: str | None
    versions: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, batches: Iterable[Batch | None], seed: int, command: str | None) -> Provenance:
        """Take the fingerprints of all rows, and the versions at work."""
        own = [("dubito", __version__), ("Python", platform.python_version())]
        others = [(name, version(name)) for name in PACKAGES]
        marks = [fingerprint(ArrayShards(batch)) for batch in batches if batch is not None]
        return cls(", ".join(marks), seed, command, (*own, *others))

"""Which rows were these? A digest of all that a fit or a report looked at."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubito.data.batch import Batch
from dubito.data.shards import Shards

__all__ = ["fingerprint"]


def fingerprint(shards: Shards) -> str:
    """Return a digest of all that shards hold, in the order of rows (SHA-256).

    The same rows from the same kind of place give the same digest, whatever the machine.

    >>> from dubito.data.shards import ArrayShards
    >>> fingerprint(ArrayShards(Batch.of([1, 0], [0.8, 0.4])))[:16]
    'sha256:dbb5149f7'
    """
    digests = shards.sum(lambda batch: [digest(batch)])
    return f"sha256:{sha256(b''.join(digests)).hexdigest()}"


def digest(batch: Batch) -> bytes:
    """Return the digest of a batch."""
    whole = sha256()
    for name, array in arrays_of(batch):
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        whole.update(f"{name} {little.dtype.str} {little.shape};".encode())
        whole.update(little.tobytes())
    return whole.digest()


def arrays_of(batch: Batch) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the name and the entries of everything a batch holds."""
    for part in (batch.outputs, batch.truth):
        names: tuple[str, ...] = () if part is None else type(part).__slots__
        for name in names:
            yield from plain(f"{type(part).__name__}.{name}", getattr(part, name))
    for name in ("weight", "features", "ids", "groups", "amounts"):
        yield from plain(name, getattr(batch, name))


def plain(name: str, value: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield numbers and texts as they are, other entries as Python writes them, None not at all."""
    if value is None:
        return
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
        yield name, value
    else:
        yield name, np.array([repr(entry) for entry in value])

"""`Shards`: the single abstraction over where rows are; samples and digests of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from hashlib import sha256
from operator import add
from typing import Any, Generic, Protocol, Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import IntArray
from dubito.data.batch import Batch
from dubito.data.labels import Labels, Targets
from dubito.data.progress import started
from dubito.data.sink import Sink
from dubito.errors import EmptyStateError
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.outputs import BaseClassOutputs, BaseOutputs, Members, unchecked


class Summable(Protocol):
    """Whatever pools with its like by `+`."""

    def __add__(self, other: Self) -> Self: ...


Sum = TypeVar("Sum", bound=Summable)
Result = TypeVar("Result")


class Shards(ABC):
    """Rows in batches of bounded size, wherever they are.

    The batches depend on the data alone, never on the number of threads, and are added in their
    order: the same rows give the same digits every time.
    """

    @property
    def told_as(self) -> str | None:
        """What a watcher is told that a pass is over; None where it is over in a moment."""
        return None

    @abstractmethod
    def parts(self) -> Iterator[Callable[[], Batch]]:
        """Yield, in order, what makes each batch: called in the thread that uses it."""

    def batches(self) -> Iterator[Batch]:
        """Yield the rows, batch by batch, in order."""
        return (make() for make in self.parts())

    def map(self, function: Callable[[int, Batch], Result]) -> Iterator[Result]:
        """Yield `function` of each batch's number and the batch, in order, over threads.

        It runs where the rows are; what it returns should be small beside them.
        """
        tell = started(self.told_as)

        def of_part(part: tuple[int, Callable[[], Batch]]) -> Result:
            batch = part[1]()
            found = function(part[0], batch)
            tell(len(batch))
            return found

        return map_in_order(of_part, enumerate(self.parts()))

    def sum(self, function: Callable[[Batch], Sum]) -> Sum:
        """Return the sum of `function` over all batches, over threads."""
        sums = self.map(lambda _, batch: function(batch))
        try:
            first = next(sums)
        except StopIteration:
            raise EmptyStateError("A sum over shards") from None
        return reduce(add, sums, first)

    def write(
        self,
        function: Callable[[Batch], Mapping[str, Any] | None],
        sink: Sink,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> int:
        """Write the columns that `function` makes of each batch, in order; return how many rows.

        Batches are computed over threads, a few at a time. None, or no columns, writes nothing;
        `on_progress` is told after each batch how many rows were written so far.
        """
        for columns in self.map(lambda _, batch: function(batch)):
            sink.write(columns)
            if on_progress is not None:
                on_progress(sink.n_rows)
        return sink.n_rows


@final
@dataclass(frozen=True, slots=True, eq=False)
class ArrayShards(Shards):
    """A batch in memory, split into row blocks. No rows at all is one empty batch.

    `block_entries` is how large blocks are, where work an entry is unlike that of a plain sum.

    >>> ArrayShards(Batch.of([1, 0], [0.8, 0.4])).sum(len)
    2
    """

    batch: Batch
    block_entries: int | None = None

    def parts(self) -> Iterator[Callable[[], Batch]]:
        outputs = self.batch.outputs
        n_columns = outputs.n_classes if isinstance(outputs, BaseClassOutputs) else 1
        blocks = row_blocks(len(self.batch), n_columns, self.block_entries) or [slice(0, 0)]
        return (partial(self.batch.take, rows) for rows in blocks)


@final
class CountedShards(Shards):
    """Other shards, whose rows are counted while they are read for whatever else.

    >>> counted = CountedShards(ArrayShards(Batch.of([1, None], [0.8, 0.4])))
    >>> counted.n_missing_and_rows()
    (1, 2)
    """

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.n_missing = self.n_rows = 0
        self.is_counted = False

    def parts(self) -> Iterator[Callable[[], Batch]]:
        return self.shards.parts()

    def map(self, function: Callable[[int, Batch], Result]) -> Iterator[Result]:
        return self.shards.map(function)

    def sum(self, function: Callable[[Batch], Sum]) -> Sum:
        # The function may travel to where the rows are: these shards need not go with it.
        found = self.shards.sum(lambda batch: Tally(function(batch), batch.n_missing, len(batch)))
        self.n_missing, self.n_rows, self.is_counted = found.n_missing, found.n_rows, True
        return found.value

    def n_missing_and_rows(self) -> tuple[int, int]:
        """Return how many rows have no truth, and how many there are; read them if none did yet."""
        if not self.is_counted:
            self.sum(len)
        return self.n_missing, self.n_rows


@final
@dataclass(frozen=True, slots=True, eq=False)
class Tally(Generic[Sum]):
    """What some rows add up to, how many of them have no truth, and how many there are."""

    value: Sum
    n_missing: int
    n_rows: int

    def __add__(self, other: Tally[Sum]) -> Tally[Sum]:
        return Tally(
            self.value + other.value,
            self.n_missing + other.n_missing,
            self.n_rows + other.n_rows,
        )


OF_ALL_ROWS = ("classes", "levels")  # fields of outputs that have no entry a row


def sample_rows(shards: Shards, n_rows: int, seed: int = 0, *, is_labeled: bool = False) -> Batch:
    """Return all rows as one batch, or a seeded sample in order where there are over `n_rows`.

    `is_labeled` is for rows with truth and weight alone: the others are neither drawn nor counted.
    The sample is the same wherever the rows are.
    """

    def n_in(batch: Batch) -> int:
        return int(np.count_nonzero(batch.labeled_weight)) if is_labeled else len(batch)

    def taken(batch: Batch, wanted: IntArray) -> Batch:
        if wanted.size == len(batch):
            return batch
        return batch.take(np.flatnonzero(batch.labeled_weight)[wanted] if is_labeled else wanted)

    def part(number: int, batch: Batch) -> Batch:
        low, high = np.searchsorted(chosen, ends[number : number + 2])
        return taken(batch, chosen[low:high] - ends[number])

    if isinstance(shards, ArrayShards):
        return taken(shards.batch, _choice(n_in(shards.batch), n_rows, seed))
    ends = np.cumsum([0, *shards.sum(lambda batch: [n_in(batch)])]).tolist()
    chosen = _choice(ends[-1], n_rows, seed)
    return joined(list(shards.map(part)))


def _choice(total: int, n_rows: int, seed: int) -> IntArray:
    """Return the numbers of the rows that are taken, in order."""
    if total <= n_rows:
        return np.arange(total)
    return np.sort(np.random.default_rng(seed).choice(total, n_rows, replace=False))


def joined(batches: Sequence[Batch]) -> Batch:
    """Return the rows of batches that are alike as one."""

    def column(name: str) -> Any:
        return _concatenated([getattr(batch, name) for batch in batches])

    return Batch(
        outputs=_joined_outputs([batch.outputs for batch in batches]),
        truth=_joined_truth([batch.truth for batch in batches]),
        weight=column("weight"),
        features=column("features"),
        ids=column("ids"),
        groups=column("groups"),
        amounts=column("amounts"),
    )


def _joined_outputs(parts: Sequence[BaseOutputs]) -> BaseOutputs:
    """Return outputs of one kind as one."""
    first = parts[0]
    axis = 1 if isinstance(first, Members) else 0
    names: tuple[str, ...] = first.__slots__
    columns = {name: [getattr(part, name) for part in parts] for name in names}
    fields = {
        name: column[0] if name in OF_ALL_ROWS else _concatenated(column, axis)
        for name, column in columns.items()
    }
    return unchecked(type(first), fields)


def _joined_truth(parts: Sequence[Labels | Targets | None]) -> Labels | Targets | None:
    """Return labels or targets as one."""
    if isinstance(parts[0], Targets):
        return Targets(_concatenated([part.values for part in parts if isinstance(part, Targets)]))
    labels = [part for part in parts if isinstance(part, Labels)]
    if not labels:
        return None
    return Labels(
        _concatenated([part.codes for part in labels]),
        _concatenated([part.probabilities for part in labels]),
    )


def _concatenated(parts: Sequence[Any], axis: int = 0) -> Any:
    """Return arrays as one, None if there are none."""
    return None if parts[0] is None else np.concatenate(parts, axis=axis)


def fingerprint(shards: Shards) -> str:
    """Return a digest of all that shards hold, in the order of rows (SHA-256).

    The same rows from the same kind of place give the same digest, whatever the machine.

    >>> from dubito.data.shards import ArrayShards
    >>> fingerprint(ArrayShards(Batch.of([1, 0], [0.8, 0.4])))[:16]
    'sha256:dbb5149f7'
    """
    digests = shards.sum(lambda batch: [_digest(batch)])
    return f"sha256:{sha256(b''.join(digests)).hexdigest()}"


def _digest(batch: Batch) -> bytes:
    """Return the digest of a batch."""
    whole = sha256()
    for name, array in _arrays_of(batch):
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        whole.update(f"{name} {little.dtype.str} {little.shape};".encode())
        whole.update(little.tobytes())
    return whole.digest()


def _arrays_of(batch: Batch) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the name and the entries of everything a batch holds."""
    for part in (batch.outputs, batch.truth):
        names: tuple[str, ...] = () if part is None else type(part).__slots__
        for name in names:
            yield from _plain(f"{type(part).__name__}.{name}", getattr(part, name))
    for name in ("weight", "features", "ids", "groups", "amounts"):
        yield from _plain(name, getattr(batch, name))


def _plain(name: str, value: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield numbers and texts as they are, other entries as Python writes them, None not at all."""
    if value is None:
        return
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
        yield name, value
    else:
        yield name, np.array([repr(entry) for entry in value])

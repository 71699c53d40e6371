"""`Shards`: the one seam between a sum and where its rows are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Protocol, Self, TypeVar, final

from dubito.data.batch import Batch
from dubito.errors import EmptyStateError
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.outputs import AbstractClassOutputs

__all__ = ["ArrayShards", "CountedShards", "Shards", "Sum"]


class Summable(Protocol):
    """Whatever pools with its like by `+`."""

    def __add__(self, other: Self) -> Self: ...


Sum = TypeVar("Sum", bound=Summable)


class Shards(ABC):
    """Rows in batches of bounded size, wherever they are.

    The batches depend on the data alone, never on the number of threads, and are added in their
    order: the same rows give the same digits every time.
    """

    @abstractmethod
    def parts(self) -> Iterator[Callable[[], Batch]]:
        """Yield, in order, what makes each batch: called in the thread that uses it."""

    def batches(self) -> Iterator[Batch]:
        """Yield the rows, batch by batch, in order."""
        return (make() for make in self.parts())

    def sum(self, function: Callable[[Batch], Sum]) -> Sum:
        """Return the sum of `function` over all batches, over threads."""
        sums = map_in_order(lambda make: function(make()), self.parts())
        try:
            first = next(sums)
        except StopIteration:
            raise EmptyStateError("A sum over shards") from None
        return reduce(add, sums, first)


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
        n_columns = outputs.n_classes if isinstance(outputs, AbstractClassOutputs) else 1
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
        self.counts: dict[int, tuple[int, int]] = {}  # by batch: read again, it counts once
        self.n_batches: int | None = None  # known when they were read to the end

    def parts(self) -> Iterator[Callable[[], Batch]]:
        n_batches = 0
        for make in self.shards.parts():
            yield partial(self.counted, n_batches, make)
            n_batches += 1
        self.n_batches = n_batches

    def counted(self, number: int, make: Callable[[], Batch]) -> Batch:
        """Make a batch and count its rows."""
        batch = make()
        self.counts[number] = batch.n_missing, len(batch)
        return batch

    def n_missing_and_rows(self) -> tuple[int, int]:
        """Return how many rows have no truth, and how many there are; read any not read yet."""
        if len(self.counts) != self.n_batches:
            self.sum(len)
        missing, rows = zip(*self.counts.values(), strict=True)
        return sum(missing), sum(rows)

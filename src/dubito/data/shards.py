"""`Shards`: the one seam between a sum and where its rows are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any, Generic, Protocol, Self, TypeVar, final

from dubito.data.batch import Batch
from dubito.data.sink import Sink
from dubito.data.watching import started
from dubito.errors import EmptyStateError
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.outputs import BaseClassOutputs

__all__ = ["ArrayShards", "CountedShards", "Result", "Shards", "Sum"]


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

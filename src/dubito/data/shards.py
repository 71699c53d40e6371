"""`Shards`: the single abstraction over where rows are stored; samples and digests of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from functools import partial, reduce
from hashlib import sha256
from itertools import chain
from operator import add
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, cast, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dubito.arrays import IntArray
from dubito.data.argument_order import as_any_outputs, convert_in_order
from dubito.data.batch import COLUMNS, Batch, make_batch
from dubito.data.progress import ignore, started
from dubito.data.sink import Sink
from dubito.errors import BadTypeError, EmptyStateError
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.outputs import BaseOutputs, unchecked
from dubito.outputs.base import OF_ALL_ROWS


class Summable(Protocol):
    """A value that pools with another of its type by `+`."""

    def __add__(self, other: Self) -> Self: ...


class RowBlock(Protocol):
    """Rows in memory that can be cut into smaller blocks."""

    @property
    def n_columns(self) -> int: ...
    def __len__(self) -> int: ...
    def take(self, rows: slice, /) -> Self: ...


Sum = TypeVar("Sum", bound=Summable)
Result = TypeVar("Result")
Other = TypeVar("Other")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    Item = DefaultTypeVar("Item", default=Batch)
    Block = DefaultTypeVar("Block", bound=RowBlock, default=Batch)
else:
    Item, Block = TypeVar("Item"), TypeVar("Block")


class Shards(ABC, Generic[Item]):
    """Rows in batches of bounded size, wherever they are stored.

    Batches depend on the data only, never on the number of threads, and are added in order: the
    same rows give bit-identical results every time. `Shards` without a parameter holds `Batch`es;
    `map` gives shards of anything computed from them.
    """

    @property
    def progress_name(self) -> str | None:
        """The name under which progress of a pass is reported; None reports nothing."""
        return None

    @abstractmethod
    def parts(self) -> Iterator[Callable[[], Item]]:
        """Yield, in order, a function that makes each batch, to be called in a worker thread.

        Yields
        ------
        callable
            Takes no argument and returns a batch.
        """

    def batches(self) -> Iterator[Item]:
        """Yield the batches in order.

        Yields
        ------
        Batch
            The next batch.
        """
        return (make() for make in self.parts())

    def map(self, function: Callable[[Item], Result]) -> Shards[Result]:
        """Return shards of `function(batch)`, computed anew in every pass, where the rows are.

        Parameters
        ----------
        function : callable
            Takes a batch.

        Returns
        -------
        Shards
            Lazy: nothing is computed before a pass.

        Examples
        --------
        >>> from dubito.data import ArrayShards, Batch
        >>> shards = ArrayShards(Batch.of([1, 0], [0.8, 0.4]))
        >>> shards.map(lambda batch: batch.weight).sum(lambda weight: weight.sum())
        np.float64(2.0)
        """
        return MappedShards(self, function)

    @property
    def in_memory(self) -> Item | None:
        """All rows as one batch if they are held in memory, None if they are streamed."""
        return None

    def convert(self, function: Callable[[Item], Result]) -> Shards[Result]:
        """Return shards of `function(batch)`; rows in memory are converted at once, and held.

        Parameters
        ----------
        function : callable
            Takes a batch, of which rows are independent, and returns rows that can be cut again.

        Returns
        -------
        Shards
            In memory if these are, otherwise lazy as from `map`.
        """
        return self.map(function)

    def pool(self, function: Callable[[Item], Sum]) -> Sum:
        """Return `function` of all rows at once if they are in memory, else its sum over batches.

        For states that are exact on rows in memory, such as rankings.

        Parameters
        ----------
        function : callable
            Takes a batch and returns what can be added.

        Returns
        -------
        object
            What the function returned, or the sum in the order of the batches.
        """
        return self.sum(function)

    def apply(self, function: Callable[[int, Item], Result]) -> Iterator[Result]:
        """Yield `function(number, batch)` for each batch, in order, using threads.

        The function runs where the rows are, so its result should be small compared to them.

        Parameters
        ----------
        function : callable
            Takes the number of a batch, from 0, and the batch.

        Yields
        ------
        object
            The next result.
        """
        report = started(self.progress_name)

        def run(part: tuple[int, Callable[[], Item]]) -> Result:
            batch = part[1]()
            result = function(part[0], batch)
            if report is not ignore:
                report(len(cast(Sized, batch)))
            return result

        return map_in_order(run, enumerate(self.parts()))

    def sum(self, function: Callable[[Item], Sum]) -> Sum:
        """Return the sum of `function(batch)` over all batches, using threads.

        Parameters
        ----------
        function : callable
            Takes a batch and returns what can be added: a number, an array, or a `State`.

        Returns
        -------
        object
            The sum, in the order of the batches.
        """
        sums = self.apply(lambda _, batch: function(batch))
        try:
            first = next(sums)
        except StopIteration:
            raise EmptyStateError("A sum over shards") from None
        return reduce(add, sums, first)

    def write(
        self,
        function: Callable[[Item], Mapping[str, Any] | None],
        sink: Sink,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> int:
        """Write the columns that `function` returns for each batch, in order.

        Parameters
        ----------
        function : callable
            Takes a batch and returns its output columns; None or no columns writes nothing.
        sink : Sink
            Where the columns go. Batches are computed in threads, a few at a time.
        on_progress : callable, optional
            Called after each batch with the number of rows written so far.

        Returns
        -------
        int
            The number of rows written.
        """
        for columns in self.apply(lambda _, batch: function(batch)):
            sink.write(columns)
            (on_progress or ignore)(sink.n_rows)
        return sink.n_rows


@final
@dataclass(frozen=True, slots=True, eq=False)
class MappedShards(Shards[Result], Generic[Result, Item]):
    """A function of the batches of other shards, evaluated in every pass."""

    source: Shards[Item]
    function: Callable[[Item], Result]

    def parts(self) -> Iterator[Callable[[], Result]]:
        return (partial(_composed, self.function, make) for make in self.source.parts())

    # The lambdas below hold the function alone: the source cannot travel to a cluster's workers.
    def apply(self, function: Callable[[int, Result], Other]) -> Iterator[Other]:
        inner = self.function
        return self.source.apply(lambda number, batch: function(number, inner(batch)))

    def sum(self, function: Callable[[Result], Sum]) -> Sum:
        inner = self.function
        return self.source.sum(lambda batch: function(inner(batch)))


def _composed(function: Callable[[Item], Result], make: Callable[[], Item]) -> Result:
    """Make a batch and return a function of it."""
    return function(make())


@final
@dataclass(frozen=True, slots=True, eq=False)
class ArrayShards(Shards[Block]):
    """Rows in memory, split into blocks. No rows at all make one empty block.

    Parameters
    ----------
    batch : Batch
        The rows, or anything else with `n_columns`, `len` and `take(slice)`.
    block_entries : int, optional
        The number of matrix entries per block, where the default for plain sums does not suit.

    Examples
    --------
    >>> from dubito.data import ArrayShards, Batch
    >>> ArrayShards(Batch.of([1, 0], [0.8, 0.4])).sum(len)
    2
    """

    batch: Block
    block_entries: int | None = None

    def parts(self) -> Iterator[Callable[[], Block]]:
        batch = self.batch
        blocks = row_blocks(len(batch), batch.n_columns, self.block_entries) or [slice(0, 0)]
        return (partial(batch.take, rows) for rows in blocks)

    @property
    def in_memory(self) -> Block:
        return self.batch

    def convert(self, function: Callable[[Block], Any]) -> Shards[Any]:
        return ArrayShards(function(self.batch))

    def pool(self, function: Callable[[Block], Sum]) -> Sum:
        return function(self.batch)


# The column of a file that holds what an argument would.
COLUMN_ROLES = {
    "sample_weight": "weight",
    "groups": "group",
    "features": "features",
    "ids": "id",
    "row_costs": "row_costs",
    "current_actions": "current_action",
}


def as_shards(
    outputs: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    features: Any = None,
    ids: Any = None,
    row_costs: Any = None,
    current_actions: Any = None,
) -> Shards:
    """Return arrays, a batch or shards as shards.

    Parameters
    ----------
    outputs : BaseOutputs, array, Batch or Shards
        Model outputs of rows in memory, or rows that hold everything known about them already.
    y : array, optional
        Labels or targets, with `outputs` in memory.
    sample_weight, groups, features, ids, row_costs, current_actions : array, optional
        Further columns of the same rows, with `outputs` in memory.

    Returns
    -------
    Shards
        `outputs` itself if it is shards, otherwise `ArrayShards`.

    Raises
    ------
    BadTypeError
        If `outputs` is a batch or shards and another column is given as well.

    Examples
    --------
    >>> from dubito.data import as_shards
    >>> as_shards([[0.2, 0.8], [0.7, 0.3]], [1, 0]).sum(len)
    2
    """
    others = {"features": features, "row_costs": row_costs, "current_actions": current_actions}
    columns = {"sample_weight": sample_weight, "groups": groups, "ids": ids, **others}
    return make_shards(outputs, y, caller="as_shards", **columns)


def make_shards(
    outputs: Any,
    y: Any = None,
    *,
    caller: str,
    argument: str = "outputs",
    label_argument: str = "y",
    convert: Callable[[Any, str], BaseOutputs] | None = None,
    **columns: Any,
) -> Shards:
    """Return arrays, a batch or shards as shards, as `as_shards`.

    Every function that accepts "arrays or shards" goes through here. Errors name the caller, and
    what it calls `outputs` and `y`; `convert` takes arrays and the caller and returns the outputs
    that it supports, or raises.
    """
    if not isinstance(outputs, Shards | Batch):
        converter = convert or as_any_outputs
        wrapped = convert_in_order(y, outputs, converter, caller, label_argument, argument)
        batch = make_batch(y, wrapped, caller=caller, argument=label_argument, **columns)
        return ArrayShards(batch)
    kind = "a batch" if isinstance(outputs, Batch) else "shards"
    for name, value in {label_argument: y, **columns}.items():
        if value is not None:
            rule = f"must be None when `{argument}` is {kind}"
            fix = f"Hold it in the shards instead: Columns({COLUMN_ROLES.get(name, 'label')}=...)"
            if isinstance(outputs, Batch):
                fix = "Pass it to Batch.of(...) instead"
            raise BadTypeError(name, caller, rule, type(value).__name__, fix)
    return ArrayShards(outputs) if isinstance(outputs, Batch) else outputs


def require_shards(rows: Any, caller: str, fix: str) -> Shards:
    """Return shards unchanged and a batch as shards, or raise for anything else."""
    if not isinstance(rows, Shards | Batch):
        raise BadTypeError("", caller, "needs a Batch or shards", type(rows).__name__, fix)
    return ArrayShards(rows) if isinstance(rows, Batch) else rows


@final
class CountedShards(Shards):
    """Other shards, whose rows are counted during each sum.

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

    def apply(self, function: Callable[[int, Batch], Result]) -> Iterator[Result]:
        return self.shards.apply(function)

    def sum(self, function: Callable[[Batch], Sum]) -> Sum:
        # The function may be sent to where the rows are, but not these shards.
        found = self.shards.sum(lambda batch: Tally(function(batch), batch.n_missing, len(batch)))
        self.n_missing, self.n_rows, self.is_counted = found.n_missing, found.n_rows, True
        return found.value

    def n_missing_and_rows(self) -> tuple[int, int]:
        """Return the number of unlabeled rows and of all rows; reads them if nothing did yet."""
        if not self.is_counted:
            self.sum(len)
        return self.n_missing, self.n_rows


@final
@dataclass(frozen=True, slots=True, eq=False)
class Tally(Generic[Sum]):
    """A sum over rows, with the number of unlabeled rows and of all rows."""

    value: Sum
    n_missing: int
    n_rows: int

    def __add__(self, other: Tally[Sum]) -> Tally[Sum]:
        return Tally(
            self.value + other.value,
            self.n_missing + other.n_missing,
            self.n_rows + other.n_rows,
        )


SAMPLE_ROWS = 100_000  # of streamed rows, where all must be in memory at once


def sample_rows(shards: Shards, n_rows: int, seed: int = 0, *, is_labeled: bool = False) -> Batch:
    """Return all rows as one batch, or a random sample in order if there are over `n_rows`.

    `is_labeled` samples only rows with a label and a weight. The sample depends on the rows and the
    seed only, not on where they are stored.
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

    if (held := shards.in_memory) is not None:
        return taken(held, sample_of(n_in(held), n_rows, seed))
    ends = np.cumsum([0, *shards.sum(lambda batch: [n_in(batch)])]).tolist()
    chosen = sample_of(ends[-1], n_rows, seed)
    return joined(list(shards.apply(part)))


def load_rows(shards: Shards, n_rows: int = SAMPLE_ROWS, seed: int = 0) -> Batch:
    """Return rows in memory unchanged, and of any others a random sample of at most `n_rows`."""
    held = shards.in_memory
    return sample_rows(shards, n_rows, seed) if held is None else held


def sample_of(total: int, n_rows: int, seed: int) -> IntArray:
    """Return the numbers of `n_rows` random rows of all, in order; of fewer rows, all."""
    if total <= n_rows:
        return np.arange(total)
    return np.sort(np.random.default_rng(seed).choice(total, n_rows, replace=False))


def joined(batches: Iterable[Batch], n_rows: int | None = None) -> Batch:
    """Return batches of the same kind as one.

    If `n_rows` is known, at most so many rows are copied as they arrive, and never held twice.
    """
    stream = iter(batches)
    first = next(stream)
    columns: dict[tuple[str, str], _Column] = {}
    kept = []
    for batch in chain([first], stream):
        kept += [] if batch.kept is None else [batch.kept]
        for key, array in _arrays_by_row(batch):
            axis = batch.outputs.axes.index("row") if key[0] == "outputs" else 0
            columns.setdefault(key, _Column(axis, n_rows)).add(array)

    def whole(name: str) -> Any:
        part = getattr(first, name)
        names: tuple[str, ...] = () if part is None else type(part).__slots__
        found = {one: columns[name, one].whole for one in names if (name, one) in columns}
        fields = {one: found.get(one, getattr(part, one)) for one in names}
        return None if part is None else unchecked(type(part), fields)

    others: dict[str, Any] = {
        name: columns[name, ""].whole for name in COLUMNS if (name, "") in columns
    }
    others["kept"] = pa.concat_tables(kept) if kept else None
    return Batch(outputs=whole("outputs"), labels=whole("labels"), **others)


def _arrays_by_row(batch: Batch) -> Iterator[tuple[tuple[str, str], NDArray[Any]]]:
    """Yield the arrays of a batch that have an entry per row, by what they are called."""
    for name in ("outputs", "labels"):
        part = getattr(batch, name)
        for inner in () if part is None else type(part).__slots__:
            if inner not in OF_ALL_ROWS and getattr(part, inner) is not None:
                yield (name, inner), getattr(part, inner)
    for name in COLUMNS:
        if getattr(batch, name) is not None:
            yield (name, ""), getattr(batch, name)


@final
class _Column:
    """An array that arrives in parts: numbers fill an array of known length, others are kept."""

    def __init__(self, axis: int, n_rows: int | None) -> None:
        self.axis = axis
        self.n_rows = n_rows
        self.n_filled = 0
        self.room: NDArray[Any] | None = None
        self.parts: list[NDArray[Any]] = []

    def add(self, part: NDArray[Any]) -> None:
        """Add the next part."""
        end = self.n_filled + part.shape[self.axis]
        if self.n_rows is not None and self.room is None and not self.parts:
            shape = (*part.shape[: self.axis], self.n_rows, *part.shape[self.axis + 1 :])
            self.room = np.empty(shape, part.dtype)
        if self.room is None or part.dtype != self.room.dtype or end > self.room.shape[self.axis]:
            self.parts = [self.whole, part] if self.room is not None else [*self.parts, part]
            self.room = None
        else:
            self.room[(slice(None),) * self.axis + (slice(self.n_filled, end),)] = part
        self.n_filled = end

    @property
    def whole(self) -> NDArray[Any]:
        """All parts as one array."""
        if self.room is None:
            return np.concatenate(self.parts, axis=self.axis)
        return self.room[(slice(None),) * self.axis + (slice(self.n_filled),)]


def fingerprint(shards: Shards) -> str:
    """Return a SHA-256 digest of everything that shards hold, in the order of rows.

    It is the same on every machine for the same rows from the same kind of source.

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
    """Yield the name and the entries of each array of a batch."""
    for part in (batch.outputs, batch.labels):
        names: tuple[str, ...] = () if part is None else type(part).__slots__
        for name in names:
            yield from _as_digestible(f"{type(part).__name__}.{name}", getattr(part, name))
    for name in COLUMNS:
        yield from _as_digestible(name, getattr(batch, name))


def _as_digestible(name: str, value: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield numbers and text unchanged, other entries by their repr, and None not at all."""
    if value is None:
        return
    if isinstance(value, np.ndarray) and value.dtype.names is not None:
        for field in value.dtype.names:
            yield f"{name}.{field}", value[field]
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
        yield name, value
    else:
        entries = [value] if isinstance(value, int) else value
        yield name, np.array([repr(entry) for entry in entries])

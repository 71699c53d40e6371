"""Sums over shards do not depend on how rows are split, and stop at the first error."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from dubito import Logits, Members, TopLabel
from dubito.data import ArrayShards, Batch, Shards, as_shards
from dubito.data.shards import CountedShards, Sum, make_shards
from dubito.errors import BadTypeError, EmptyStateError
from dubito.measure import AuditState

rng = np.random.default_rng(0)


def batch_of(n_rows: int) -> Batch:
    return Batch.of(rng.integers(0, 3, n_rows), Logits(rng.normal(size=(n_rows, 3))))


@given(st.integers(0, 50), st.integers(1, 200))
def test_blocks_hold_every_row_once_and_in_order(n_rows: int, n_entries: int) -> None:
    batch = batch_of(n_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUBITO_BLOCK_ENTRIES", str(n_entries))
        parts = [part.outputs for part in ArrayShards(batch).batches()]
    arrays = [part.array for part in parts if isinstance(part, Logits)]
    assert isinstance(batch.outputs, Logits)
    np.testing.assert_array_equal(np.concatenate(arrays), batch.outputs.array)
    assert max(len(array) for array in arrays) <= max(1, n_entries // 3)


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_digits_do_not_depend_on_threads(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "100")
    shards = ArrayShards(batch_of(1000))
    monkeypatch.setenv("DUBITO_THREADS", "3")
    expected = shards.sum(AuditState.of).to_dict()
    monkeypatch.setenv("DUBITO_THREADS", threads)
    assert shards.sum(AuditState.of).to_dict() == expected


@pytest.mark.parametrize(
    "outputs", [TopLabel([0.5] * 9, [1] * 9), Members(np.full((5, 9, 4), 0.25))]
)
def test_all_outputs_can_be_split(outputs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "8")
    sizes = [len(part) for part in ArrayShards(Batch.of(None, outputs)).batches()]
    assert sum(sizes) == 9
    assert len(sizes) > 1


def test_only_rows_in_memory_are_at_hand_as_one_batch() -> None:
    batch = batch_of(20)
    assert ArrayShards(batch).in_memory is batch
    assert ArrayShards(batch).map(lambda part: part).in_memory is None


def test_rows_in_memory_are_pooled_and_converted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "30")
    held, streamed = ArrayShards(batch_of(20)), ArrayShards(batch_of(20)).map(lambda part: part)
    assert held.pool(lambda part: [len(part)]) == [20]
    assert streamed.pool(lambda part: [len(part)]) == [10, 10]
    converted = held.convert(lambda part: part.take(np.arange(12)))
    assert converted.in_memory is not None
    assert [len(part) for part in converted.batches()] == [10, 2]
    assert [len(part) for part in streamed.convert(lambda part: part).batches()] == [10, 10]


def test_no_rows_are_one_empty_batch() -> None:
    assert ArrayShards(batch_of(0)).sum(len) == 0


class Failing(Shards):
    """Shards whose batches fail from the third on."""

    def parts(self) -> Iterator[Callable[[], Batch]]:
        return (partial(self.make, i) for i in range(100))

    def make(self, i: int) -> Batch:
        if i >= 2:
            raise ValueError(f"batch {i}")
        return batch_of(1)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_the_first_error_in_order_is_the_one_that_is_raised(
    threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_THREADS", threads)
    with pytest.raises(ValueError, match="batch 2"):
        Failing().sum(len)


class Empty(Shards):
    """No shards at all."""

    def parts(self) -> Iterator[Callable[[], Batch]]:
        return iter(())


def test_a_sum_over_no_batches_raises() -> None:
    with pytest.raises(EmptyStateError, match="A sum over shards"):
        Empty().sum(len)


class Read(Shards):
    """Shards of two rows each, that know which batches were made of them."""

    def __init__(self, n_batches: int) -> None:
        self.n_batches = n_batches
        self.made: list[int] = []

    def parts(self) -> Iterator[Callable[[], Batch]]:
        return (partial(self.make, i) for i in range(self.n_batches))

    def make(self, i: int) -> Batch:
        self.made.append(i)
        return Batch.of([i % 2, None if i % 3 == 0 else 1], [0.3, 0.6])


@pytest.mark.parametrize("n_batches", [1, 2, 7, 40])
@pytest.mark.parametrize("n_passes", [1, 3])
def test_rows_are_counted_while_they_are_read(n_batches: int, n_passes: int) -> None:
    shards = Read(n_batches)
    counted = CountedShards(shards)
    for _ in range(n_passes):
        assert counted.sum(len) == 2 * n_batches
    assert counted.n_missing_and_rows() == (-(-n_batches // 3), 2 * n_batches)
    assert len(shards.made) == n_passes * n_batches


@pytest.mark.parametrize("n_read", [0, 1, 3])
def test_rows_that_nobody_read_to_the_end_are_read_to_be_counted(n_read: int) -> None:
    shards = Read(7)
    counted = CountedShards(shards)
    batches = counted.batches()
    for _ in range(n_read):
        next(batches)
    assert counted.n_missing_and_rows() == (3, 14)
    assert len(shards.made) == n_read + 7


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_map_knows_the_number_of_each_batch(
    threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_THREADS", threads)
    for shards in (Read(9), CountedShards(Read(9))):
        assert list(shards.apply(lambda number, batch: (number, len(batch)))) == [
            (number, 2) for number in range(9)
        ]


class Remote(Read):
    """Shards that add up their rows by themselves, and let no batch out."""

    def parts(self) -> Iterator[Callable[[], Batch]]:
        raise AssertionError

    def sum(self, function: Callable[[Batch], Sum]) -> Sum:
        return Read(self.n_batches).sum(function)


def test_rows_elsewhere_are_counted_there() -> None:
    counted = CountedShards(Remote(7))
    assert counted.sum(lambda batch: [len(batch)]) == [2] * 7
    assert counted.n_missing_and_rows() == (3, 14)


def test_rows_without_any_truth_are_not_missing_some() -> None:
    shards = ArrayShards(Batch.of(None, [0.3, 0.6]))
    assert CountedShards(shards).n_missing_and_rows() == (0, 2)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_mapped_shards_hold_a_function_of_each_batch(
    threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_THREADS", threads)
    source = Read(9)
    mapped = source.map(lambda batch: batch.weight).map(np.sum)
    assert source.made == []  # lazy
    assert mapped.sum(float) == 18.0
    assert list(mapped.apply(lambda number, total: (number, float(total)))) == [
        (number, 2.0) for number in range(9)
    ]
    assert [float(total) for total in mapped.batches()] == [2.0] * 9
    assert len(source.made) == 3 * 9  # each pass reads the rows again


def test_mapped_shards_sum_where_the_rows_are() -> None:
    assert Remote(7).map(len).sum(lambda n_rows: [n_rows]) == [2] * 7
    counted = CountedShards(Read(7))
    counted.map(len).sum(int)
    assert counted.is_counted


def test_anything_that_can_be_cut_into_blocks_makes_shards() -> None:
    class Column:
        n_columns = 1

        def __init__(self, values: list[int]) -> None:
            self.values = values

        def __len__(self) -> int:
            return len(self.values)

        def take(self, rows: slice) -> "Column":
            return Column(self.values[rows])

    shards = ArrayShards(Column([1, 2, 3, 4, 5]), block_entries=2)
    assert [block.values for block in shards.batches()] == [[1, 2], [3, 4], [5]]
    assert shards.sum(lambda block: sum(block.values)) == 15


def test_arrays_become_shards_with_everything_known_about_the_rows() -> None:
    shards = as_shards(
        [[0.2, 0.8], [0.7, 0.3]],
        [1, 0],
        sample_weight=[1, 2],
        groups=["a", "b"],
        features=[[0.0], [1.0]],
        ids=[7, 8],
        row_costs=[5, 6],
    )
    assert isinstance(shards, ArrayShards)
    batch = shards.batch
    assert batch.weight.tolist() == [1, 2]
    assert batch.row_costs is not None
    assert batch.row_costs.tolist() == [5, 6]
    assert [batch.groups is None, batch.features is None, batch.ids is None] == [False] * 3


def test_shards_and_batches_are_taken_as_they_are() -> None:
    shards, batch = Read(2), batch_of(3)
    assert as_shards(shards) is shards
    wrapped = as_shards(batch)
    assert isinstance(wrapped, ArrayShards)
    assert wrapped.batch is batch


def test_arrays_are_converted_to_what_the_caller_supports() -> None:
    shards = make_shards([[0.0, 1.0]], caller="test", convert=lambda array, _: Logits(array))
    assert isinstance(next(shards.batches()).outputs, Logits)


@pytest.mark.parametrize(
    ("columns", "argument", "role"),
    [
        ({"y": [0]}, "y_true", "label"),
        ({"sample_weight": [1]}, "sample_weight", "weight"),
        ({"groups": ["a"]}, "groups", "group"),
        ({"features": [[1]]}, "features", "features"),
        ({"ids": [1]}, "ids", "id"),
        ({"row_costs": [1]}, "row_costs", "row_costs"),
    ],
)
def test_shards_hold_their_own_columns(columns: Any, argument: str, role: str) -> None:
    with pytest.raises(BadTypeError) as caught:
        make_shards(Read(1), caller="test", label_argument="y_true", **columns)
    assert str(caught.value) == (
        f"test: `{argument}` must be None when `outputs` is shards, got list. "
        f"Hold it in the shards instead: Columns({role}=...)."
    )
    with pytest.raises(BadTypeError, match=r"is a batch, got list\. Pass it to Batch"):
        make_shards(batch_of(1), caller="test", **columns)

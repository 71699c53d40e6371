"""Rows of shards as one batch: none lost, in order, and the same sample wherever they are."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from dubito import Logits, Members, Normal, Probabilities, Quantiles, Samples, TopLabel
from dubito.data import ArrayShards, Batch, Shards
from dubito.data.labels import Labels, Targets
from dubito.data.shards import joined, load_rows, sample_rows
from dubito.outputs import BaseOutputs

N = 100
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, N)
P = RNG.dirichlet(np.ones(3), N)
DRAWS = np.sort(RNG.normal(size=(N, 2, 4)), axis=1)
NAMES = ("cat", "dog", "fox")
OUTPUTS: list[tuple[BaseOutputs, Any]] = [
    (Logits(np.log(P), NAMES), np.array(NAMES)[Y]),
    (Probabilities(P.astype(np.float32)), Y),
    (Probabilities(P), np.eye(3)[Y]),
    (Probabilities(P), None),
    (Members([P, P[::-1]], NAMES), np.array(NAMES)[Y]),
    (Members([P, P[::-1]], certainty=RNG.random((2, N))), Y),
    (TopLabel(P.max(axis=1), Y == 0), None),
    (Normal(DRAWS[:, 0], DRAWS[:, 1] - DRAWS[:, 0] + 1), DRAWS[:, 0]),
    (Samples(DRAWS[:, :, 0].astype(np.float32)), DRAWS[:, 0, 0]),
    (Quantiles(DRAWS, [0.2, 0.7]), DRAWS[:, 1]),
]
each = pytest.mark.parametrize(("outputs", "truth"), OUTPUTS)


@dataclass(frozen=True)
class Pieces(Shards):
    """A batch, cut as a file would be, or in numbered rows that do not know where they began."""

    batch: Batch
    n_rows: int
    is_placed: bool = True

    def parts(self) -> Iterator[Callable[[], Batch]]:
        for low in range(0, len(self.batch), self.n_rows):
            rows = slice(low, low + self.n_rows)
            yield partial(
                self.batch.take, rows if self.is_placed else np.arange(len(self.batch))[rows]
            )


def made(outputs: Any = OUTPUTS[1][0], truth: Any = Y, weight: Any = np.arange(float(N))) -> Batch:  # noqa: B008
    known: dict[str, Any] = {"groups": np.arange(N) // 4, "ids": [f"row {i}" for i in range(N)]}
    known["row_costs"] = np.arange(N)
    return Batch.of(truth, outputs, sample_weight=weight, features=DRAWS[:, 0], **known)


def columns(batch: Batch) -> dict[str, Any]:
    """Return all that a batch holds of its rows, by name."""
    slots: tuple[str, ...] = batch.outputs.__slots__
    result = {name: getattr(batch.outputs, name) for name in slots}
    if isinstance(batch.labels, Labels):
        result |= {"codes": batch.labels.codes, "soft": batch.labels.probabilities}
    if isinstance(batch.labels, Targets):
        result["values"] = batch.labels.values
    return result | {
        k: getattr(batch, k) for k in ("weight", "features", "ids", "groups", "row_costs")
    }


def assert_same(found: Batch, expected: Batch) -> None:
    assert type(found.outputs) is type(expected.outputs)
    assert type(found.labels) is type(expected.labels)
    for name, column in columns(expected).items():
        got = columns(found)[name]
        if not isinstance(column, np.ndarray):
            assert got == column
        else:
            assert_array_equal(got, column)
            assert got.dtype == column.dtype


def drawn(total: int, n_rows: int, seed: int) -> NDArray[np.int64]:
    return np.sort(np.random.default_rng(seed).choice(total, n_rows, replace=False))


@each
def test_joined_pieces_are_the_whole(outputs: BaseOutputs, truth: Any) -> None:
    whole = made(outputs, truth)
    assert_same(joined([whole]), whole)
    cuts = (slice(0, 0), slice(0, 99), np.array([99]))
    for n_rows in (None, N, N + 7, N - 7):
        assert_same(joined((whole.take(rows) for rows in cuts), n_rows), whole)


def test_a_type_that_changes_between_pieces_loses_no_digit() -> None:
    single, double = (Batch.of(Y, Logits(P.astype(kind))) for kind in (np.float32, np.float64))
    outputs = joined([single, double], 2 * N).outputs
    assert isinstance(outputs, Logits)
    assert_array_equal(outputs.array[N:], P)


def test_what_no_piece_has_the_whole_has_not() -> None:
    whole = Batch.of(Y, P)
    again = joined([whole.take(slice(0, 40)), whole.take(slice(40, N))])
    assert again.features is again.ids is again.groups is again.row_costs is None


@each
@pytest.mark.parametrize("is_placed", [True, False])
def test_all_rows_come_in_order(outputs: BaseOutputs, truth: Any, is_placed: bool) -> None:
    whole = made(outputs, truth)
    assert sample_rows(ArrayShards(whole), N) is whole
    assert_same(sample_rows(Pieces(whole, 17, is_placed), N), whole)


@each
@pytest.mark.parametrize("seed", [0, 1])
def test_a_sample_is_drawn_by_its_seed_wherever_rows_are(
    outputs: BaseOutputs, truth: Any, seed: int
) -> None:
    whole = made(outputs, truth)
    expected = whole.take(drawn(N, 30, seed))
    assert_same(sample_rows(ArrayShards(whole), 30, seed), expected)
    assert_same(sample_rows(Pieces(whole, 17), 30, seed), expected)
    assert_same(sample_rows(Pieces(whole, 7, is_placed=False), 30, seed), expected)


@pytest.mark.parametrize("n_rows", [2, 30, 60, 1000])
def test_rows_that_do_not_count_are_not_drawn(n_rows: int) -> None:
    weight = np.where(np.arange(N) % 5 == 0, 0.0, 1.0)
    labels = np.where(np.arange(N) % 7 == 3, np.nan, Y)
    whole = made(truth=labels, weight=weight)
    rows = np.flatnonzero((weight > 0) & ~np.isnan(labels))
    expected = whole.take(rows[drawn(rows.size, n_rows, 0)] if n_rows < rows.size else rows)
    for shards in (ArrayShards(whole), Pieces(whole, 17), Pieces(whole, 1)):
        assert_same(sample_rows(shards, n_rows, is_labeled=True), expected)
    assert len(sample_rows(ArrayShards(whole), n_rows)) == min(n_rows, N)


@pytest.mark.parametrize("is_labeled", [False, True])
def test_no_rows_that_count_are_an_empty_batch(is_labeled: bool) -> None:
    whole = made(weight=np.zeros(N))
    for shards in (ArrayShards(whole), Pieces(whole, 17)):
        assert len(sample_rows(shards, N, is_labeled=is_labeled)) == (0 if is_labeled else N)


def test_rows_in_memory_are_loaded_as_they_are_and_others_are_sampled() -> None:
    batch = made()
    assert load_rows(ArrayShards(batch), 10) is batch
    first, again, other = (load_rows(Pieces(batch, 30), 10, seed) for seed in (0, 0, 1))
    assert len(first) == 10
    assert_array_equal(first.rows.confidence, again.rows.confidence)
    assert not np.array_equal(first.rows.confidence, other.rows.confidence)

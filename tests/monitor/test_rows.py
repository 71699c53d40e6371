"""Arrays are taken whole, shards by a seeded sample, and never both at once."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from dubito.data import ArrayShards, Batch, Shards
from dubito.errors import BadTypeError
from dubito.monitor import rows as module
from dubito.monitor.rows import rows_in_memory

P = np.random.default_rng(0).dirichlet([1, 1], 50)
BATCH = Batch.of(P.argmax(axis=1), P)


class Halves(Shards):
    """A batch in two parts."""

    def parts(self) -> Iterator[Callable[[], Batch]]:
        yield lambda: BATCH.take(slice(0, 25))
        yield lambda: BATCH.take(slice(25, 50))


def test_arrays_and_batches_in_memory_are_taken_whole() -> None:
    batch = rows_in_memory([0] * 50, P, 0, "outputs", "test", amounts=np.ones(50))
    assert len(batch) == 50
    assert batch.amounts is not None
    assert rows_in_memory(None, ArrayShards(BATCH), 0, "outputs", "test") is BATCH


def test_of_shards_a_sample_is_drawn_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLE_ROWS", 10)
    first = rows_in_memory(None, Halves(), 0, "outputs", "test")
    again = rows_in_memory(None, Halves(), 0, "outputs", "test", features=None)
    other = rows_in_memory(None, Halves(), 1, "outputs", "test")
    assert len(first) == 10
    np.testing.assert_array_equal(first.rows.confidence, again.rows.confidence)
    assert not np.array_equal(first.rows.confidence, other.rows.confidence)


def test_shards_hold_all_that_is_known_themselves() -> None:
    with pytest.raises(BadTypeError) as caught:
        rows_in_memory([0], Halves(), 0, "reference", "test")
    assert str(caught.value) == (
        "`reference` of test must be arrays beside labels, weights, features or amounts. "
        "Got shards beside labels. Try columns of the shards for all that is known of their rows."
    )

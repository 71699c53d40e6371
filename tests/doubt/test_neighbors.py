"""The distance to the k-th nearest row, exactly, however unkind the rows are."""

import json
import pickle
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.neighbors import NearestNeighbors

from dubito.data import ArrayShards, Batch, Shards
from dubito.doubt import NearestNeighborDistance
from dubito.doubt.feature_distances import SearchRows
from dubito.errors import BadValueError, DubitoError, UnfittedError

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]

each_precision = pytest.mark.parametrize("dtype", [np.float32, np.float64])


class Parts(Shards):
    """A batch cut into parts, as if it were streamed."""

    def __init__(self, batch: Batch, n_parts: int) -> None:
        self.batches_of = [batch.take(rows) for rows in np.array_split(range(len(batch)), n_parts)]

    def parts(self) -> Iterator[Callable[[], Batch]]:
        return (partial(self.batches_of.__getitem__, i) for i in range(len(self.batches_of)))


def streamed(features: Floats, n_parts: int) -> Parts:
    outputs = np.full((len(features), 2), 0.5)
    return Parts(Batch.of(None, outputs, features=features), n_parts)


def made(n_rows: int, n_features: int, dtype: Precision = np.float64, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return rng.normal(0.3, 1, (n_rows, n_features)).astype(dtype)


def units(features: Floats) -> Floats:
    norms = np.linalg.norm(features.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(features / np.where(norms > 0, norms, 1))


def reference(known: Floats, queries: Floats, k: int) -> Floats:
    distances = cdist(queries.astype(np.float64), known.astype(np.float64))
    return np.asarray(np.sort(distances, axis=1)[:, k - 1])


@each_precision
@pytest.mark.parametrize("n_features", [1, 2, 17, 130])
@pytest.mark.parametrize("k", [1, 2, 50, 300])
def test_distances_are_those_of_all_pairs_sorted(dtype: Precision, n_features: int, k: int) -> None:
    known, queries = made(300, n_features, dtype), made(90, n_features, dtype, seed=1)
    found = NearestNeighborDistance(k, normalize=False).fit(known).score(queries)
    assert found.dtype == np.float64
    close(found, reference(known, queries, k), rtol=1e-12)
    found = NearestNeighborDistance(k).fit(known).score(queries)
    atol = 1e-14 if dtype is np.float64 else 3e-7  # directions are rounded to float32 too
    close(found, reference(units(known), units(queries), k), rtol=1e-12, atol=atol)


@each_precision
def test_distances_are_those_of_scikit_learn(dtype: Precision) -> None:
    known, queries = units(made(3000, 40, dtype)), units(made(700, 40, dtype, seed=1))
    peer = NearestNeighbors(n_neighbors=7, algorithm="brute").fit(known)
    expected = peer.kneighbors(queries)[0][:, -1]
    close(NearestNeighborDistance(7).fit(known).score(queries), expected, rtol=1e-6)


@each_precision
@pytest.mark.parametrize("normalize", [True, False])
def test_a_known_row_is_at_distance_0_from_itself(dtype: Precision, normalize: bool) -> None:
    known = made(500, 33, dtype) * 1e3 + 1e4
    uncertainty = NearestNeighborDistance(1, normalize=normalize).fit(known)
    assert (uncertainty.score(known) == 0).all()
    assert (uncertainty.score(known[7:8]) == 0).all()


@each_precision
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, -1e9])
def test_rows_far_from_0_lose_no_digits(dtype: Precision, offset: float) -> None:
    known = (made(400, 20) + offset).astype(dtype)
    queries = (made(60, 20, seed=1) + offset).astype(dtype)
    found = NearestNeighborDistance(5, normalize=False).fit(known).score(queries)
    close(found, reference(known, queries, 5), rtol=1e-12)


@pytest.mark.parametrize("k", [1, 3, 40])
def test_neighbors_below_the_precision_of_float32_are_distinguished(k: int) -> None:
    rng = np.random.default_rng(0)
    known = 1 + rng.normal(0, 1e-9, (400, 8))
    known[::2] += 5.0
    queries = 1 + rng.normal(0, 1e-9, (30, 8))
    found = NearestNeighborDistance(k, normalize=False).fit(known).score(queries)
    close(found, reference(known, queries, k), rtol=1e-6)
    assert (found < 1e-7).all()
    found = NearestNeighborDistance(k).fit(known).score(queries)
    # Directions are known to 1e-16, and differ by 1e-9.
    close(found, reference(units(known), units(queries), k), rtol=1e-6)


@pytest.mark.parametrize("distance", [1e3, 1e8, 1e20, 1e60])
def test_queries_far_from_all_known_rows_are_measured_too(distance: float) -> None:
    known = made(300, 10)
    queries = made(20, 10, seed=1) * distance
    found = NearestNeighborDistance(4, normalize=False).fit(known).score(queries)
    close(found, reference(known, queries, 4), rtol=1e-12)


def test_rows_at_nearly_the_same_distance_of_a_far_query_are_reported_apart() -> None:
    rng = np.random.default_rng(0)
    known, queries = rng.normal(0, 1, (3000, 64)), np.zeros((40, 64))
    known[:, 0] = 0
    known /= np.linalg.norm(known, axis=1, keepdims=True)
    known[:, 0] = rng.normal(0, 1e-7, 3000)  # all by which they differ
    queries[:, 0] = np.linspace(1e4, 3e4, 40)
    turn = np.linalg.qr(rng.normal(0, 1, (64, 64)))[0]
    known, queries = known @ turn, queries @ turn
    for k in (1, 50, 1500):
        found = NearestNeighborDistance(k, normalize=False).fit(known).score(queries)
        close(found, reference(known, queries, k), rtol=3e-15)


def test_what_keys_may_be_off_hangs_on_the_spread_of_rows_and_not_on_where_they_are() -> None:
    known, lengths, near = made(100, 8), np.ones(1), np.zeros(1)
    here = SearchRows.of(known, is_unit=False).slack(lengths, near)
    there = SearchRows.of(known + 1e6, is_unit=False).slack(lengths, near + 1e6)
    close(there, here, rtol=0.1)
    assert (here > 0).all()
    assert (here < 1e-4).all()


@st.composite
def nasty_rows(draw: Any) -> tuple[Floats, Floats]:
    dtype: Precision = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    n_features = draw(st.integers(1, 5))
    special = [0.0, -0.0, 1.0, -1.0, 1e-3, 6e4, -6e4, 1.001, float(np.finfo(dtype).tiny)]
    if dtype is np.float64:
        special += [1e100, -1e100, 1e-160, 1e-300, 1e16]
    elements = st.sampled_from([float(dtype(value)) for value in special])
    rows = hnp.arrays(dtype, st.tuples(st.integers(1, 12), st.just(n_features)), elements=elements)
    return draw(rows), draw(rows)


@pytest.mark.slow
@settings(max_examples=150)
@given(nasty_rows(), st.data())
def test_ties_repeats_and_extremes_are_measured_exactly(
    rows: tuple[Floats, Floats], data: Any
) -> None:
    known, queries = rows
    k = data.draw(st.integers(1, len(known)))
    found = NearestNeighborDistance(k, normalize=False).fit(known).score(queries)
    expected = [
        sorted(np.hypot.reduce(np.append(gaps, 0.0)) for gaps in known.astype(np.float64) - query)
        for query in queries.astype(np.float64)
    ]
    close(found, [row[k - 1] for row in expected], rtol=1e-12, atol=1e-320)
    found = NearestNeighborDistance(k).fit(known).score(queries)
    assert ((found >= 0) & (found <= 2 + 1e-6)).all()
    own = NearestNeighborDistance(1).fit(known).score(known)
    assert (own == 0).all()


def test_distances_that_cannot_be_held_are_the_largest_number() -> None:
    known = np.array([[1e308, 1e308], [-1e308, -1e308]])
    uncertainty = NearestNeighborDistance(2, normalize=False).fit(known)
    assert uncertainty.score(known).tolist() == [np.finfo(np.float64).max] * 2
    nearest = NearestNeighborDistance(1, normalize=False).fit(known)
    close(nearest.score([[0.9e308, 1e308], [-1e308, -1e308]]), [1e307, 0], rtol=1e-12)
    assert (NearestNeighborDistance(1).fit(known).score(known * 1e-300) == 0).all()


def test_rows_of_zeros_have_no_direction() -> None:
    uncertainty = NearestNeighborDistance(1).fit([[3.0, 4.0], [0.0, -2.0]])
    assert uncertainty.score([[0.0, 0.0]]).tolist() == [1.0]
    close(uncertainty.score([[6.0, 8.0], [0.0, 9.0]]), [0, np.sqrt(0.4)], atol=1e-15)


def test_the_length_of_features_counts_only_if_not_normalized() -> None:
    known, queries = made(50, 4), made(9, 4, seed=1)
    uncertainty = NearestNeighborDistance(3).fit(known)
    close(uncertainty.score(queries * 1e-200), uncertainty.score(queries), rtol=1e-12)
    close(
        NearestNeighborDistance(3).fit(known * 1e200).score(queries),
        uncertainty.score(queries),
        rtol=1e-12,
    )


@pytest.mark.parametrize("n_parts", [1, 2, 7])
@pytest.mark.parametrize("max_samples", [None, 40, 100, 1000])
def test_streams_give_what_arrays_give(n_parts: int, max_samples: int | None) -> None:
    known, queries = made(100, 6), made(20, 6, seed=1)
    expected = NearestNeighborDistance(5, max_samples=max_samples, random_state=3).fit(known)
    found = NearestNeighborDistance(5, max_samples=max_samples, random_state=3).fit(
        streamed(known, n_parts)
    )
    assert (found.reference_ == expected.reference_).all()
    assert (found.score(queries) == expected.score(queries)).all()


def test_a_sample_is_of_distinct_rows_and_hangs_on_the_seed() -> None:
    known = made(200, 3)
    taken = [
        NearestNeighborDistance(1, False, max_samples=30, random_state=seed).fit(known).reference_
        for seed in (0, 0, 1)
    ]
    assert taken[0].shape == (30, 3)
    assert len({tuple(row) for row in taken[0]} & {tuple(row) for row in known}) == 30
    assert (taken[0] == taken[1]).all()
    assert (taken[0] != taken[2]).any()


def test_blocks_and_threads_leave_every_digit_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    known, queries = made(700, 12, np.float32), made(600, 12, np.float32, seed=1)
    uncertainty = NearestNeighborDistance(9).fit(known)
    expected = uncertainty.score(queries)
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "333")
    assert (uncertainty.score(queries) == expected).all()
    monkeypatch.setenv("DUBITO_THREADS", "1")
    assert (uncertainty.score(queries) == expected).all()


def test_only_rows_with_weight_are_known() -> None:
    known, weight = made(60, 4), np.arange(60) % 3.0
    found = NearestNeighborDistance(2, False).fit(known, sample_weight=weight)
    assert (found.reference_ == known[weight > 0]).all()


def test_the_callers_rows_are_left_alone() -> None:
    known = made(60, 4)
    before = known.copy()
    uncertainty = NearestNeighborDistance(2, normalize=False).fit(known)
    expected = uncertainty.score(before)
    assert (known == before).all()
    known[:] = 0
    assert (uncertainty.score(before) == expected).all()


@each_precision
@pytest.mark.parametrize("normalize", [True, False])
def test_it_is_the_same_after_json_pickle_and_clone(dtype: Precision, normalize: bool) -> None:
    known, queries = made(80, 5, dtype), made(30, 5, dtype, seed=1)
    uncertainty = NearestNeighborDistance(3, normalize).fit(known)
    expected = uncertainty.score(queries)
    kept = NearestNeighborDistance.from_dict(json.loads(json.dumps(uncertainty.to_dict())))
    assert (kept.score(queries) == expected).all()
    assert (pickle.loads(pickle.dumps(uncertainty)).score(queries) == expected).all()
    assert (clone(uncertainty).fit(known).score(queries) == expected).all()
    assert (
        len(pickle.dumps(uncertainty)) < 1.5 * known.nbytes + 2000
    )  # what is searched is not kept


def test_a_new_fit_forgets_the_last() -> None:
    uncertainty = NearestNeighborDistance(1, normalize=False).fit([[0.0], [1.0]])
    assert uncertainty.score([[5.0]]).tolist() == [4.0]
    assert uncertainty.fit([[9.0], [8.0]]).score([[5.0]]).tolist() == [3.0]


def test_no_rows_are_no_numbers() -> None:
    assert NearestNeighborDistance(1).fit([[1.0, 2.0]]).score(np.empty((0, 2))).shape == (0,)


def error_of(uncertainty: NearestNeighborDistance, known: Any) -> str:
    with pytest.raises(DubitoError) as caught:
        uncertainty.fit(known)
    return str(caught.value)


def test_invalid_settings_raise() -> None:
    known = made(9, 2)
    assert re.search(
        r"`features` .*, got 9\. Lower n_neighbors", error_of(NearestNeighborDistance(10), known)
    )
    wrong: Any
    for wrong in (0, 2.0, True, None):
        assert re.search(
            re.escape(f"got {wrong!r}. Use n_neighbors=1."),
            error_of(NearestNeighborDistance(wrong), known),
        )
    assert re.search(
        r"`max_samples` .*, got 4\. Use max_samples=5",
        error_of(NearestNeighborDistance(5, max_samples=4), known),
    )
    assert re.search(
        r"`random_state` .*, got -1\. Pass random_state=0",
        error_of(NearestNeighborDistance(5, random_state=-1), known),
    )
    wrong = "l2"
    assert re.search(
        r"`normalize` must be True or False, got 'l2'\. Use normalize=True",
        error_of(NearestNeighborDistance(5, wrong), known),
    )


def test_scores_need_a_fit_and_as_many_features() -> None:
    with pytest.raises(UnfittedError):
        NearestNeighborDistance(1).score([[1.0]])
    with pytest.raises(
        BadValueError, match=r"`features` .*, got 1\. Pass the same features as during fit"
    ):
        NearestNeighborDistance(1).fit([[1.0, 2.0]]).score([[1.0]])


@pytest.mark.parametrize("y", [[None] * 30 + [1] * 30, [-1.5] * 60, [object()] * 60])
def test_labels_are_not_even_read(y: Any) -> None:
    known = made(60, 4)
    found = NearestNeighborDistance(2).fit(known, y)
    assert found.classes_ is None
    assert (found.reference_ == NearestNeighborDistance(2).fit(known).reference_).all()


def test_streamed_rows_without_labels_are_known_too() -> None:
    known, y = made(60, 4), [None, 0, 1] * 20
    batch = Batch.of(y, np.full((60, 2), 0.5), features=known)
    expected = NearestNeighborDistance(2).fit(known).reference_
    for shards in (Parts(batch, 4), ArrayShards(batch)):
        assert (NearestNeighborDistance(2).fit(shards).reference_ == expected).all()


def test_settings_count_at_the_next_fit_only() -> None:
    known, new = made(60, 4), made(9, 4, seed=1)
    found = NearestNeighborDistance(2).fit(known)
    expected = found.score(new)
    found.set_params(n_neighbors=100, normalize=False)
    assert (found.score(new) == expected).all()
    assert (NearestNeighborDistance.from_dict(found.to_dict()).score(new) == expected).all()

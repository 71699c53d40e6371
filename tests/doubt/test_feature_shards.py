"""Rows of features, in memory and streamed: the same rows, in the same order."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal as same

from dubito import Normal, Probabilities
from dubito.data import ArrayShards, Batch, Shards
from dubito.doubt.features import FeatureRows, FeatureShards, feature_shards
from dubito.errors import BadTypeError, BadValueError, EmptyStateError, StateMismatchError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3000, 700)).astype(np.float32)  # two blocks and a bit
Y = RNG.integers(0, 4, 3000)
OUTPUTS = Probabilities(np.full((3000, 4), 0.25))


class Parts(Shards):
    """Batches as if they were streamed."""

    def __init__(self, *batches: Batch) -> None:
        self.given = batches

    def parts(self) -> Iterator[Callable[[], Batch]]:
        return (partial(lambda batch: batch, batch) for batch in self.given)


def streamed(batch: Batch, n_parts: int = 3) -> Parts:
    return Parts(*(batch.take(rows) for rows in np.array_split(np.arange(len(batch)), n_parts)))


def moments(rows: FeatureRows) -> Any:
    return np.concatenate(
        [rows.weight @ rows.features.astype(np.float64), [rows.codes @ rows.weight, len(rows)]]
    )


def whole(shards: FeatureShards) -> FeatureRows:
    blocks = list(shards.shards.batches())
    return FeatureRows(
        *(np.concatenate([getattr(b, name) for b in blocks]) for name in FeatureRows.__slots__)
    )


def test_blocks_are_bounded_and_make_up_the_rows() -> None:
    shards = feature_shards(X, Y, None, "caller")
    assert max(block.features.size for block in shards.shards.batches()) <= 1 << 20
    assert len(list(shards.shards.batches())) == 3
    rows = whole(shards)
    same(rows.features, X)
    same(rows.codes, Y)
    assert rows.features.dtype == np.float32
    assert (shards.n_features, shards.n_rows, shards.n_missing) == (700, 3000, 0)
    same(shards.weights, np.bincount(Y))


def test_digits_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = []
    for threads in ("1", "3"):
        monkeypatch.setenv("DUBITO_THREADS", threads)
        sums.append(feature_shards(X, Y, None, "caller").sum(moments))
    same(*sums)


def test_streams_and_arrays_hold_the_same_rows() -> None:
    y = np.where(np.arange(3000) % 10 == 0, np.nan, Y)
    weight = np.where(np.arange(3000) % 7 == 0, 0.0, 2.0)
    batch = Batch.of(y, OUTPUTS, sample_weight=weight, features=X)
    kept = (weight > 0) & ~np.isnan(y)
    for source in (streamed(batch), ArrayShards(batch)):
        shards = feature_shards(source, None, None, "caller")
        rows = whole(shards)
        same(rows.features, X[kept])
        same(rows.codes, y[kept])
        same(rows.weight, weight[kept])
        assert (shards.n_rows, shards.n_missing, shards.classes) == (3000, 300, (0, 1, 2, 3))
    same(
        feature_shards(X, y, weight, "caller").sum(moments),
        feature_shards(ArrayShards(batch), None, None, "caller").sum(moments),
    )


def test_classes_that_do_not_occur_or_weigh_nothing_have_no_number() -> None:
    pets = Probabilities(np.full((4, 3), 1 / 3), classes=["cat", "dog", "fox"])
    x, weight = np.arange(4.0)[:, None], [1, 1, 0, 3]
    y = ["cat", "fox", "dog", "fox"]
    batch = Batch.of(y, pets, sample_weight=weight, features=x)
    for shards in (
        feature_shards(ArrayShards(batch), None, None, "caller"),
        feature_shards(x, y, weight, "caller"),
    ):
        assert shards.classes == ("cat", "fox")
        assert shards.weights.tolist() == [1, 4]
        assert whole(shards).codes.tolist() == [0, 1, 1]


def test_rows_without_labels_are_one_class() -> None:
    batch = Batch.of(None, OUTPUTS, features=X)
    for source in (X, ArrayShards(batch), streamed(batch)):
        shards = feature_shards(source, None, None, "caller")
        assert (shards.classes, shards.n_classes) == (None, 1)
        same(whole(shards).features, X)


def test_features_go_through_a_function_block_by_block() -> None:
    shards = feature_shards(X, Y, None, "caller").map_features(np.square)
    same(whole(shards).features, np.square(X))
    same(whole(shards).codes, Y)


def batch_of(n_features: int) -> Batch:
    return Batch.of([0, 1], [[0.5, 0.5]] * 2, features=np.ones((2, n_features)))


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (
            lambda: feature_shards([1.0, 2.0], None, None, "caller"),
            BadValueError,
            r"`features` .*, got shape \(2,\)\. Use `\.reshape\(-1, 1\)` for a single column",
        ),
        (
            lambda: feature_shards([[1.0], [np.nan]], None, None, "caller"),
            BadValueError,
            r"`features` .*, got nan in row 1, column 0\. Drop invalid rows, or fix what "
            "produced them",
        ),
        (
            lambda: feature_shards(np.empty((0, 2)), None, None, "caller"),
            EmptyStateError,
            r"caller needs at least 1 row of positive weight, got 0\. Pass at least one row "
            "with a positive weight",
        ),
        (
            lambda: feature_shards([[1.0]], [None], None, "caller"),
            EmptyStateError,
            r"caller needs at least 1 labeled row of positive weight, got 0\. Pass at least one "
            "labeled row with a positive weight",
        ),
        (
            lambda: feature_shards(Parts(), None, None, "caller"),
            EmptyStateError,
            r"caller needs at least 1 row of positive weight, got 0\. Pass at least one row "
            "with a positive weight",
        ),
        (
            lambda: feature_shards(ArrayShards(Batch.of([0], [[1, 0]])), None, None, "caller"),
            BadTypeError,
            r"`features` .*, got shards without them\. Name the feature columns: "
            r"Columns\(features=\.\.\.\)",
        ),
        (
            lambda: feature_shards(
                ArrayShards(Batch.of([[0.5, 0.5]], [[1, 0]], features=[[1.0]])),
                None,
                None,
                "caller",
            ),
            BadTypeError,
            r"`features` .*, got label probabilities\. Pass class labels, or no labels",
        ),
        (
            lambda: feature_shards(
                ArrayShards(Batch.of([0.5], Normal([1.0], [1.0]), features=[[1.0]])),
                None,
                None,
                "caller",
            ),
            BadTypeError,
            r"`features` .*, got regression targets\. Pass class labels, or no labels",
        ),
        (
            lambda: feature_shards(ArrayShards(batch_of(1)), [0, 1], None, "caller"),
            BadTypeError,
            r"`y` .*, got list\. Hold it in the shards instead: Columns\(label=\.\.\.\)",
        ),
        (
            lambda: feature_shards(ArrayShards(batch_of(1)), None, [1, 1], "caller"),
            BadTypeError,
            r"`sample_weight` .*, got list\. Hold it in the shards .*: Columns\(weight=\.\.\.\)",
        ),
        (
            lambda: feature_shards(Parts(batch_of(1), batch_of(2)), None, None, "caller"),
            StateMismatchError,
            "numbers of features.*1 and 2",
        ),
    ],
)
def test_invalid_rows_raise(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()

"""Scores of the last layer and relative distances, against the papers' formulas in plain loops."""

import json
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from sklearn.base import clone

from dubito import Logits
from dubito.data import Batch, Shards
from dubito.doubt import (
    SCALE,
    DecisionBoundaryDistance,
    MahalanobisDistance,
    ReAct,
    generalized_entropy,
)
from dubito.errors import BadTypeError, BadValueError

Floats = NDArray[np.floating[Any]]


def made(dtype: Any = np.float64) -> tuple[Floats, NDArray[np.int64], Floats, Floats]:
    """Return features after a ReLU, labels, and a last layer."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 4, 120)
    centers = rng.normal(0, 2, (4, 9))
    features = np.maximum(rng.normal(size=(120, 9)) + centers[y], 0)
    weights, bias = centers + rng.normal(0, 0.3, (4, 9)), rng.normal(size=4)
    return features.astype(dtype), y, weights.astype(dtype), bias.astype(dtype)


def energies(rows: Floats, weights: Floats, bias: Floats) -> Floats:
    found = []
    for z in rows:
        logits = [w @ z + b for w, b in zip(weights, bias, strict=True)]
        found.append(-max(logits) - np.log(sum(np.exp(one - max(logits)) for one in logits)))
    return np.array(found)


def react(known: Floats, rows: Floats, w: Floats, b: Floats, weight: Any = 1) -> Floats:
    pooled = np.sort(np.repeat(known, weight, axis=0).ravel())
    limit = next(v for n, v in enumerate(pooled, 1) if 10 * n >= 9 * pooled.size)
    return energies(np.where(rows > limit, limit, rows), w, b)


def scale(known: Floats, rows: Floats, w: Floats, b: Floats, weight: Any = 1) -> Floats:
    scaled = []
    for z in rows:
        largest = sorted(z)[round(0.85 * z.size) :]
        scaled.append(z * np.exp(sum(z) / sum(largest)))
    return energies(np.array(scaled), w, b)


def boundary(known: Floats, rows: Floats, w: Floats, b: Floats, weight: Any = 1) -> Floats:
    center, found = np.repeat(known, weight, axis=0).mean(axis=0), []
    for z in rows:
        p = int(np.argmax([w[k] @ z + b[k] for k in range(len(w))]))
        distances = [
            abs((w[p] - w[k]) @ z + b[p] - b[k]) / np.sqrt(((w[p] - w[k]) ** 2).sum())
            for k in range(len(w))
            if k != p
        ]
        found.append(-np.mean(distances) / np.sqrt(((z - center) ** 2).sum()))
    return np.array(found)


SCORES: list[tuple[Any, Callable[..., Floats]]] = [
    (ReAct, react),
    (SCALE, scale),
    (DecisionBoundaryDistance, boundary),
]
each_score = pytest.mark.parametrize(("kind", "reference"), SCORES)


class Parts(Shards):
    """A batch cut into parts, as if it were streamed."""

    def __init__(self, batch: Batch, n_parts: int) -> None:
        self.batches_of = [batch.take(rows) for rows in np.array_split(range(len(batch)), n_parts)]

    def parts(self) -> Iterator[Callable[[], Batch]]:
        return (partial(self.batches_of.__getitem__, i) for i in range(len(self.batches_of)))


@each_score
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_are_those_of_the_paper(
    kind: Any, reference: Callable[..., Floats], dtype: Any
) -> None:
    known, _, w, b = made(dtype)
    queries = np.concatenate([known[:20], 2 * known[20:40]])
    found = kind(w, b).fit(known).score(queries)
    wide = [one.astype(np.float64) for one in (known, queries, w, b)]
    assert found.dtype == np.float64
    close(found, reference(*wide), rtol=1e-9, atol=1e-9)


@each_score
def test_weights_of_rows_count_as_repeats(kind: Any, reference: Callable[..., Floats]) -> None:
    known, _, w, b = made()
    repeats = np.arange(120) % 3
    found = kind(w, b).fit(known, sample_weight=repeats).score(known)
    close(found, reference(known, known, w, b, repeats), rtol=1e-9)


@each_score
def test_streams_files_and_copies_give_the_same(
    kind: Any, reference: Callable[..., Floats]
) -> None:
    known, _, w, b = made()
    score = kind(w, b).fit(known)
    expected = score.score(known)
    batch = Batch.of(None, np.full((120, 2), 0.5), features=known)
    close(kind(w, b).fit(Parts(batch, 5)).score(known), expected, rtol=1e-12)
    assert (kind.from_dict(json.loads(json.dumps(score.to_dict()))).score(known) == expected).all()
    assert (pickle.loads(pickle.dumps(score)).score(known) == expected).all()
    assert (clone(score).fit(known).score(known) == expected).all()
    score.set_params(weights=None, bias=None)
    assert (score.score(known) == expected).all()
    assert repr(clone(score)).startswith(f"{kind.__name__}(weights of shape None")


@each_score
def test_no_score_is_other_than_a_number(kind: Any, reference: Callable[..., Floats]) -> None:
    known, _, w, b = made()
    score = kind(w, b).fit(known)
    outliers = np.stack([np.zeros(9), known.mean(axis=0), -known[0], known[0] * 1e300, -known[0]])
    outliers[4] *= 1e300
    if kind is SCALE:  # takes no negative activations
        outliers = np.abs(outliers)
    assert np.isfinite(score.score(outliers)).all()


@each_score
def test_a_layer_is_required(kind: Any, reference: Callable[..., Floats]) -> None:
    with pytest.raises(BadTypeError, match=rf"`weights` .* got None\. Use {kind.__name__}\(weigh"):
        kind().fit([[1.0, 2.0]])


def test_the_mean_is_as_typical_as_can_be() -> None:
    score = DecisionBoundaryDistance([[1.0, 0.0], [-1.0, 0.0]]).fit([[1.0, 0.0], [3.0, 2.0]])
    assert score.score([[2.0, 1.0]])[0] == -np.finfo(np.float64).max
    # Also if it is on a boundary: 0 / 0 there, but a finite score on every way to it.
    tied = DecisionBoundaryDistance([[1.0, 0.0], [-1.0, 0.0]]).fit([[2.0, 0.0], [-2.0, 0.0]])
    assert tied.score([[0.0, 0.0]])[0] == -np.finfo(np.float64).max


@pytest.mark.parametrize("quantile", [0.0, 1.0, 85, None])
@pytest.mark.parametrize("kind", [ReAct, SCALE])
def test_a_quantile_is_between_0_and_1(kind: Any, quantile: Any) -> None:
    fix = "Divide percentages by 100" if quantile == 85 else "Use quantile=0"
    with pytest.raises(BadValueError, match=rf"`quantile`.*{quantile!r}\. {fix}"):
        kind(np.eye(2), quantile=quantile).fit(np.ones((3, 2)))


def test_negative_activations_raise() -> None:
    with pytest.raises(BadValueError, match=r"`features` must not be negative.*got 2 neg.*ReAct"):
        SCALE(np.eye(2)).fit([[1.0, -1.0], [-2.0, 1.0]])
    score = SCALE(np.eye(2)).fit(np.eye(2))
    with pytest.raises(BadValueError, match=r"SCALE.score: .*got -2\.0 in row 1, column 0\. Use R"):
        score.score([[1.0, 0.0], [-2.0, 1.0]])


def test_boundaries_need_two_classes_that_differ() -> None:
    with pytest.raises(BadValueError, match=r"`weights` must have at least 2 classes, got 1"):
        DecisionBoundaryDistance([[1.0, 0.0]]).fit([[1.0, 2.0]])
    with pytest.raises(BadValueError, match=r"`weights` must differ .*, got classes with the same"):
        DecisionBoundaryDistance([[1.0, 0.0], [1.0, 0.0]], [0.0, 1.0]).fit([[1.0, 2.0]])


def relative_distances(known: Floats, y: Any, rows: Floats) -> Floats:
    """Return the relative distances of Ren et al. 2021 with the maximum likelihood covariances."""
    means = np.array([known[y == k].mean(axis=0) for k in range(4)])
    within = sum(np.outer(z - means[k], z - means[k]) for z, k in zip(known, y, strict=True))
    whole = sum(np.outer(z - known.mean(axis=0), z - known.mean(axis=0)) for z in known)
    inner, outer = (np.linalg.inv(one / len(known)) for one in (within, whole))
    found = []
    for z in rows:
        background = (z - known.mean(axis=0)) @ outer @ (z - known.mean(axis=0))
        found.append(min((z - m) @ inner @ (z - m) - background for m in means))
    return np.array(found)


def test_relative_distances_are_those_of_the_paper() -> None:
    known, y, _, _ = made()
    score = MahalanobisDistance(relative=True, shrinkage=0.0).fit(known, y)
    queries = np.concatenate([known[:20], 2 * known[20:40]])
    expected = relative_distances(known, y, queries)
    close(score.score(queries), expected, rtol=1e-9, atol=1e-9)
    again = MahalanobisDistance.from_dict(json.loads(json.dumps(score.to_dict())))
    assert (again.score(queries) == score.score(queries)).all()
    batch = Batch.of(y, np.full((120, 4), 0.25), features=known)
    streamed = MahalanobisDistance(relative=True, shrinkage=0.0).fit(Parts(batch, 5))
    close(streamed.score(queries), expected, rtol=1e-9, atol=1e-9)
    plain = MahalanobisDistance(shrinkage=0.0).fit(known, y)
    assert plain.mean_ is None
    assert (plain.score(queries) > score.score(queries)).all()


def test_relative_distances_need_classes() -> None:
    with pytest.raises(BadValueError, match=r"`y` must have at least 2 classes .*, got 1\. Pass l"):
        MahalanobisDistance(relative=True).fit(made()[0])


@pytest.mark.parametrize("gamma", [0.1, 0.5])
@pytest.mark.parametrize("max_classes", [1, 3, 100])
def test_generalized_entropy_is_that_of_the_paper(gamma: float, max_classes: int) -> None:
    logits = np.random.default_rng(0).normal(0, 3, (50, 7))
    expected = []
    for row in logits:
        p = np.exp(row) / np.exp(row).sum()
        top = sorted(p, reverse=True)[:max_classes]
        expected.append(sum(one**gamma * (1 - one) ** gamma for one in top))
    found = generalized_entropy(Logits(logits), gamma, max_classes)
    close(found, expected, rtol=1e-9)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    close(generalized_entropy(p, gamma, max_classes), expected, rtol=1e-9)


def test_generalized_entropy_of_saturated_rows_still_differs() -> None:
    # p (1 - p) is exp(-lead) for both classes, far below the rounding of 1 - p.
    leads = np.array([50.0, 60.0, 700.0])
    found = generalized_entropy(Logits(np.column_stack([leads, 0 * leads])))
    close(found, 2 * np.exp(-0.1 * leads), rtol=1e-12)
    one_hot, single = [[1.0, 0.0, 0.0]], np.ones((2, 1))
    assert generalized_entropy(one_hot).tolist() == [0.0]
    assert generalized_entropy(single).tolist() == [0.0, 0.0]
    huge = np.array([[1e308, -1e308, 0.0]])
    assert generalized_entropy(Logits(huge)).tolist() == [0.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 1.0}, r"`gamma` .*between 0 and 1, got 1\.0\. Use gamma=0\.1"),
        ({"gamma": 10}, r"`gamma` .*between 0 and 1, got 10\. Divide percentages by 100"),
        ({"max_classes": 0}, "`max_classes`"),
    ],
)
def test_options_of_generalized_entropy_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValueError, match=message):
        generalized_entropy([[0.5, 0.5]], **options)

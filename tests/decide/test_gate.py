"""The gate: doubts of rows that a fold held out make its region, and files are read with care."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dubito import Logits
from dubito.calibrate.cross_validation import make_folds
from dubito.data import Batch
from dubito.data.shards import ArrayShards
from dubito.decide import OODGate
from dubito.doubt import (
    MahalanobisDistance,
    NearestNeighborDistance,
    energy,
    entropy,
    least_confidence,
    margin_uncertainty,
)
from dubito.errors import BadTypeError, BadValueError, DubitoError

Array = NDArray[Any]


def batch_of(n_rows: int = 200) -> Batch:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n_rows)
    features = rng.normal(size=(n_rows, 3)) + 3 * y[:, np.newaxis]
    return Batch.of(y, Logits(rng.normal(size=(n_rows, 2))), features=features)


def fitted(batch: Batch, score: Any) -> tuple[OODGate, Array]:
    gate = OODGate(score, alpha=0.1).resolved(has_features=True)
    return gate.cross_fit(ArrayShards(batch), batch, make_folds(batch, 5))


def distances(known: Array, y: Array, new: Array) -> Array:
    """Return the least squared distance to a class's mean, in the shared covariance."""
    means = np.stack([known[y == k].mean(axis=0) for k in (0, 1)])
    inverse = np.linalg.inv(np.cov((known - means[y]).T, bias=True))
    apart = new[:, np.newaxis] - means
    return np.asarray(np.einsum("nki,ij,nkj->nk", apart, inverse, apart).min(axis=1))


def test_the_region_is_made_of_doubts_that_were_held_out() -> None:
    batch = batch_of()
    folds = make_folds(batch, 5)
    gate, doubt = fitted(batch, MahalanobisDistance())
    x, truth = np.asarray(batch.features), batch.labels
    y = np.asarray(getattr(truth, "codes"))  # noqa: B009
    for train, test in folds:
        expected = MahalanobisDistance().fit(x[train], y[train]).score(x[test])
        assert np.array_equal(doubt[test], expected)
        # The order is that of plain distances, but for how a covariance is shrunk.
        rank = stats.spearmanr(expected, distances(x[train], y[train], x[test])).statistic
        assert rank > 0.98
    assert np.array_equal(
        np.repeat(gate.detector_.scores_, gate.detector_.weight_.astype(int)), np.sort(doubt)
    )
    assert gate.alpha == 0.1
    whole = MahalanobisDistance().fit(x, y).score(x)
    assert np.array_equal(gate.ood_scores(None, x), whole)
    assert np.array_equal(gate.predict(None, x), gate.detector_.p_value(whole) < 0.1)


def test_a_doubt_of_outputs_is_known_by_its_name() -> None:
    batch = batch_of()
    gate, doubt = fitted(batch, "energy")
    assert isinstance(batch.outputs, Logits)
    assert np.array_equal(doubt, energy(batch.outputs))
    assert (gate.name, gate.needs_features, gate.n_features) == ("energy", False, None)
    assert gate.predict(batch.outputs, None).mean() < 0.1
    other, _ = fitted(batch, MahalanobisDistance())
    assert (other.name, other.needs_features, other.n_features) == ("MahalanobisDistance", True, 3)


@pytest.mark.parametrize("function", [energy, entropy, least_confidence, margin_uncertainty])
def test_a_function_is_known_by_its_name(function: Any) -> None:
    assert OODGate(function).resolved(has_features=False).score == function.__name__
    assert OODGate(function.__name__).resolved(has_features=False).score == function.__name__


@pytest.mark.parametrize("score", [NearestNeighborDistance(7), MahalanobisDistance()])
def test_a_score_of_features_is_copied_unfitted(score: Any) -> None:
    found = OODGate(score).resolved(has_features=True).score
    assert found is not score
    assert found.get_params() == score.get_params()


@pytest.mark.parametrize("score", [5, len, MahalanobisDistance])
def test_an_object_that_is_no_score_is_refused(score: Any) -> None:
    with pytest.raises(
        BadTypeError, match=r"`score` must be an OOD score.*OODGate\(Mahalanobis"
    ) as caught:
        OODGate(score).resolved(has_features=True)
    assert f"got {type(score).__name__}" in str(caught.value)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(BadValueError, match=r"or one of energy, .*got 'surprise'.*'energy'"):
        OODGate("surprise").resolved(has_features=False)


@pytest.mark.parametrize("alpha", [0, 1, 5, "x", None])
def test_alpha_is_a_number_between_0_and_1(alpha: Any) -> None:
    with pytest.raises(BadValueError, match=f"`alpha`.*{alpha!r}"):
        OODGate("energy", alpha).resolved(has_features=False)


def test_a_gate_survives_its_dict() -> None:
    batch = batch_of()
    for score in (MahalanobisDistance(), "entropy"):
        gate, _ = fitted(batch, score)
        again = OODGate.from_dict(gate.to_dict())
        expected = gate.ood_scores(batch.outputs, batch.features)
        assert np.array_equal(again.ood_scores(batch.outputs, batch.features), expected)
        assert np.array_equal(again.detector_.p_value(expected), gate.detector_.p_value(expected))
        assert again.to_dict() == gate.to_dict()


@pytest.mark.parametrize("values", [None, [], {}, {"score": "energy"}, "energy", 5])
def test_values_that_are_no_gate_are_refused(values: Any) -> None:
    with pytest.raises(BadTypeError, match=r"OODGate\.from_dict.*to_dict"):
        OODGate.from_dict(values)


@pytest.mark.parametrize("score", [None, 5, "x", {}, [], {"kind": "NearestNeighborDistance"}])
def test_values_that_are_no_score_are_refused(score: Any) -> None:
    gate, _ = fitted(batch_of(), "energy")
    values = gate.to_dict()
    values["fitted"]["score_"] = score
    with pytest.raises(DubitoError):
        OODGate.from_dict(values)

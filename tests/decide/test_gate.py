"""The gate: doubts of rows that a fold held out make its region, and files are read with care."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dubito import Logits
from dubito.calibrate.cross_validation import folds_of
from dubito.data import Batch
from dubito.data.shards import ArrayShards
from dubito.decide.policy.gate import OODGate, as_score
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


def distances(known: Array, y: Array, new: Array) -> Array:
    """Return the least squared distance to a class's mean, in the shared covariance."""
    means = np.stack([known[y == k].mean(axis=0) for k in (0, 1)])
    inverse = np.linalg.inv(np.cov((known - means[y]).T, bias=True))
    apart = new[:, np.newaxis] - means
    return np.asarray(np.einsum("nki,ij,nkj->nk", apart, inverse, apart).min(axis=1))


def test_the_region_is_made_of_doubts_that_were_held_out() -> None:
    batch = batch_of()
    folds = folds_of(batch, 5)
    gate, doubt = OODGate.fit(MahalanobisDistance(), ArrayShards(batch), batch, folds, epsilon=0.1)
    x, truth = np.asarray(batch.features), batch.labels
    y = np.asarray(getattr(truth, "codes"))  # noqa: B009
    for train, test in folds:
        expected = MahalanobisDistance().fit(x[train], y[train]).score(x[test])
        assert np.array_equal(doubt[test], expected)
        # The order is that of plain distances, but for how a covariance is shrunk.
        rank = stats.spearmanr(expected, distances(x[train], y[train], x[test])).statistic
        assert rank > 0.98
    assert np.array_equal(
        np.repeat(gate.region.scores_, gate.region.weight_.astype(int)), np.sort(doubt)
    )
    assert gate.region.alpha == 0.1
    whole = MahalanobisDistance().fit(x, y).score(x)
    assert np.array_equal(gate.doubt(None, x), whole)
    assert np.array_equal(gate.contains(None, x), gate.region.p_value(whole) < 0.1)


def test_a_doubt_of_outputs_is_known_by_its_name() -> None:
    batch = batch_of()
    gate, doubt = OODGate.fit("energy", ArrayShards(batch), batch, folds_of(batch, 5), 0.1)
    assert isinstance(batch.outputs, Logits)
    assert np.array_equal(doubt, energy(batch.outputs))
    assert (gate.name, gate.needs_features, gate.n_features) == ("energy", False, None)
    assert gate.contains(batch.outputs, None).mean() < 0.1
    fitted = MahalanobisDistance().fit(np.asarray(batch.features))
    other = OODGate(fitted, gate.region)
    assert (other.name, other.needs_features, other.n_features) == ("MahalanobisDistance", True, 3)


@pytest.mark.parametrize("function", [energy, entropy, least_confidence, margin_uncertainty])
def test_functions_have_names(function: Any) -> None:
    assert as_score(function, "f") == function.__name__
    assert as_score(function.__name__, "f") == function.__name__


@pytest.mark.parametrize("score", [NearestNeighborDistance(), MahalanobisDistance()])
def test_scores_stay_scores(score: Any) -> None:
    assert as_score(score, "f") is score


@pytest.mark.parametrize("score", [5, None, len, MahalanobisDistance])
def test_what_is_no_doubt_is_refused(score: Any) -> None:
    with pytest.raises(BadTypeError) as caught:
        as_score(score, "Policy.fit")
    assert str(caught.value) == (
        "`doubt` of Policy.fit must be a score of `dubito.doubt`, or one of energy, entropy, "
        f"least_confidence, margin_uncertainty. Got {type(score).__name__}. "
        "Try doubt=MahalanobisDistance(), with features."
    )


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(BadValueError) as caught:
        as_score("surprise", "Policy.fit")
    assert str(caught.value) == (
        "`doubt` of Policy.fit must be one of energy, entropy, least_confidence, margin_uncertainty. "
        "Got 'surprise'. Try doubt='energy' beside logits."
    )


def test_a_gate_is_kept_but_neighbors_are_not() -> None:
    batch = batch_of()
    folds = folds_of(batch, 5)
    for score in (MahalanobisDistance(), "entropy"):
        gate, _ = OODGate.fit(score, ArrayShards(batch), batch, folds, 0.1)
        gate.require_storable()
        again = OODGate.from_dict(gate.to_dict())
        expected = gate.doubt(batch.outputs, batch.features)
        assert np.array_equal(again.doubt(batch.outputs, batch.features), expected)
        assert np.array_equal(again.region.p_value(expected), gate.region.p_value(expected))
    near, _ = OODGate.fit(NearestNeighborDistance(5), ArrayShards(batch), batch, folds, 0.1)
    with pytest.raises(BadTypeError) as caught:
        near.require_storable()
    assert str(caught.value) == (
        "`doubt` of Policy.save must be a doubt that can be kept in a file. "
        "Got NearestNeighborDistance. Try MahalanobisDistance()."
    )


@pytest.mark.parametrize("values", [None, [], {}, {"score": "energy"}, "energy", 5])
def test_what_is_no_gate_is_refused(values: Any) -> None:
    with pytest.raises(BadTypeError) as caught:
        OODGate.from_dict(values)
    assert str(caught.value) == (
        "`gate` of Policy.load must be a dict with the keys score, region. "
        f"Got {type(values).__name__}. Try the file as `dubito fit` or `Policy.save` wrote it."
    )


@pytest.mark.parametrize("score", [None, 5, "x", {}, [], {"kind": "NearestNeighborDistance"}])
def test_what_is_no_score_is_refused(score: Any) -> None:
    batch = batch_of()
    gate, _ = OODGate.fit("energy", ArrayShards(batch), batch, folds_of(batch, 5), 0.1)
    with pytest.raises(DubitoError):
        OODGate.from_dict({**gate.to_dict(), "score": score})

"""The gate: it is calibrated on out-of-fold OOD scores, and files are validated."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dubito import Logits
from dubito.calibrate.cross_validation import make_folds
from dubito.data import ArrayShards, Batch
from dubito.decide import OODGate
from dubito.doubt import (
    ConformalOutlierDetector,
    MahalanobisDistance,
    NearestNeighborDistance,
    energy,
    entropy,
    generalized_entropy,
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
    gate, scores = gate.cross_fit(ArrayShards(batch), batch, make_folds(batch, 5))
    return gate, scores if isinstance(score, list) else scores[:, 0]


def distances(known: Array, y: Array, new: Array) -> Array:
    """Return the least squared distance to a class's mean, in the shared covariance."""
    means = np.stack([known[y == k].mean(axis=0) for k in (0, 1)])
    inverse = np.linalg.inv(np.cov((known - means[y]).T, bias=True))
    apart = new[:, np.newaxis] - means
    return np.asarray(np.einsum("nki,ij,nkj->nk", apart, inverse, apart).min(axis=1))


def test_the_detector_is_fitted_on_out_of_fold_scores() -> None:
    batch = batch_of()
    folds = make_folds(batch, 5)
    gate, uncertainty = fitted(batch, MahalanobisDistance())
    x, truth = np.asarray(batch.features), batch.labels
    y = np.asarray(getattr(truth, "codes"))  # noqa: B009
    for train, test in folds:
        expected = MahalanobisDistance().fit(x[train], y[train]).score(x[test])
        assert np.array_equal(uncertainty[test], expected)
        # The order is that of plain distances, but for how a covariance is shrunk.
        rank = stats.spearmanr(expected, distances(x[train], y[train], x[test])).statistic
        assert rank > 0.98
    detector = gate.detector_
    assert isinstance(detector, ConformalOutlierDetector)
    assert np.array_equal(
        np.repeat(detector.scores_, detector.weight_.astype(int)), np.sort(uncertainty)
    )
    assert gate.alpha == 0.1
    whole = MahalanobisDistance().fit(x, y).score(x)
    assert np.array_equal(gate.ood_scores(None, x), whole[:, np.newaxis])
    assert np.array_equal(gate.predict(None, x), detector.p_value(whole) < 0.1)


def test_a_score_of_outputs_is_given_by_its_name() -> None:
    batch = batch_of()
    gate, uncertainty = fitted(batch, "energy")
    assert isinstance(batch.outputs, Logits)
    assert np.array_equal(uncertainty, energy(batch.outputs))
    assert (gate.name, gate.needs_features, gate.n_features) == ("energy", False, None)
    assert gate.predict(batch.outputs, None).mean() < 0.1
    other, _ = fitted(batch, MahalanobisDistance())
    assert (other.name, other.needs_features, other.n_features) == ("MahalanobisDistance", True, 3)


@pytest.mark.parametrize(
    "function", [energy, entropy, generalized_entropy, least_confidence, margin_uncertainty]
)
def test_a_function_is_known_by_its_name(function: Any) -> None:
    assert OODGate(function).resolved(has_features=False).score == function.__name__
    assert OODGate(function.__name__).resolved(has_features=False).score == function.__name__


@pytest.mark.parametrize("score", [NearestNeighborDistance(7), MahalanobisDistance()])
def test_a_score_of_features_is_copied_unfitted(score: Any) -> None:
    found = OODGate(score).resolved(has_features=True).score
    assert found is not score
    assert found.get_params() == score.get_params()


@pytest.mark.parametrize("score", [5, len, MahalanobisDistance])
def test_an_object_that_is_no_score_raises(score: Any) -> None:
    with pytest.raises(
        BadTypeError, match=r"`score` must be an OOD score.*OODGate\(Mahalanobis"
    ) as caught:
        OODGate(score).resolved(has_features=True)
    assert f"got {type(score).__name__}" in str(caught.value)


def test_an_unknown_name_raises() -> None:
    with pytest.raises(BadValueError, match=r"or one of energy, .*got 'surprise'.*'energy'"):
        OODGate("surprise").resolved(has_features=False)


@pytest.mark.parametrize("alpha", [0, 1, 5, "x", None])
def test_alpha_is_a_number_between_0_and_1(alpha: Any) -> None:
    with pytest.raises(BadValueError, match=f"`alpha`.*{alpha!r}"):
        OODGate("energy", alpha).resolved(has_features=False)


def test_a_gate_survives_its_dict() -> None:
    batch = batch_of()
    for score in (MahalanobisDistance(), "entropy", ["entropy", MahalanobisDistance()]):
        gate, _ = fitted(batch, score)
        again = OODGate.from_dict(gate.to_dict())
        expected = gate.ood_scores(batch.outputs, batch.features)
        assert np.array_equal(again.ood_scores(batch.outputs, batch.features), expected)
        p_values = gate.p_value(batch.outputs, batch.features)
        assert np.array_equal(again.p_value(batch.outputs, batch.features), p_values)
        assert again.to_dict() == gate.to_dict()


@pytest.mark.parametrize("values", [None, [], {}, {"score": "energy"}, "energy", 5])
def test_values_that_are_no_gate_raise(values: Any) -> None:
    with pytest.raises(BadTypeError, match=r"OODGate\.from_dict.*to_dict"):
        OODGate.from_dict(values)


@pytest.mark.parametrize("score", [None, 5, "x", {}, [], {"kind": "NearestNeighborDistance"}])
def test_values_that_are_no_score_raise(score: Any) -> None:
    gate, _ = fitted(batch_of(), "energy")
    values = gate.to_dict()
    values["fitted"]["score_"] = score
    with pytest.raises(DubitoError):
        OODGate.from_dict(values)


def test_several_scores_share_alpha() -> None:
    batch = batch_of()
    gate, scores = fitted(batch, ["energy", MahalanobisDistance(), "margin_uncertainty"])
    assert (gate.name, gate.n_features) == ("energy + MahalanobisDistance + margin_uncertainty", 3)
    assert gate.n_required == 30
    new = batch_of(40)
    found = gate.ood_scores(new.outputs, new.features)
    expected = []
    for row in found:
        # Of each score: how many held-out rows, and the row itself, are at least as unusual.
        p_values = [
            (1 + sum(scores[:, k] >= value)) / (1 + len(scores)) for k, value in enumerate(row)
        ]
        expected.append(min(1, 3 * min(p_values)))
    assert gate.p_value(new.outputs, new.features) == pytest.approx(expected, abs=1e-12)
    is_ood = gate.predict(new.outputs, new.features)
    assert np.array_equal(is_ood, np.array(expected) < 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("is_same", [True, False])
def test_the_false_alarm_rate_of_several_scores_is_at_most_alpha(is_same: bool) -> None:
    rng = np.random.default_rng(0)
    gate = OODGate(["energy"] * 4, alpha=0.1)
    n_draws, n_flagged = 2000, 0
    for _ in range(n_draws):
        scores = rng.normal(size=(121, 1 if is_same else 4)) * np.ones(4)
        n_flagged += gate.held_out_flags(scores, np.repeat([0, 1], [120, 1]))[-1]
    rate, error = n_flagged / n_draws, np.sqrt(0.1 * 0.9 / n_draws)
    assert rate < 0.1 + 3 * error
    # Independent scores use up most of alpha, identical ones a quarter of it.
    assert rate > (0.01 if is_same else 0.06)


def test_a_combined_gate_detects_what_each_score_detects() -> None:
    batch = batch_of()
    gate, _ = fitted(batch, ["energy", MahalanobisDistance()])
    flat, far = Logits([[-9.0, -9.0]]), [[50.0, -50.0, 0.0]]
    usual = Logits([[2.0, -1.0]])
    assert gate.predict(flat, [[0.0, 0.0, 0.0]]).all()
    assert gate.predict(usual, far).all()
    assert not gate.predict(usual, [[0.0, 0.0, 0.0]]).any()


def test_lists_of_scores_are_checked() -> None:
    with pytest.raises(BadValueError, match=r"`score` must name at least one score, got an empty"):
        OODGate([]).resolved(has_features=True)
    with pytest.raises(BadTypeError, match="`features` must be given"):
        OODGate(["energy", MahalanobisDistance()]).resolved(has_features=False)
    gate, _ = fitted(batch_of(), ["energy", "entropy"])
    values = gate.to_dict()
    values["fitted"]["detector_"].pop()
    with pytest.raises(BadValueError, match="one detector for each score, got 1 for 2"):
        OODGate.from_dict(values)
    both, _ = fitted(batch_of(), [MahalanobisDistance(), MahalanobisDistance()])
    narrow = batch_of()
    narrow = Batch.of(narrow.labels.codes, narrow.outputs, features=narrow.features[:, :2])  # type: ignore[union-attr,index]
    other, _ = fitted(narrow, [MahalanobisDistance(), "energy"])
    values = both.to_dict()
    values["fitted"]["score_"][1] = other.to_dict()["fitted"]["score_"][0]
    with pytest.raises(BadValueError, match=r"scores of the same features, got \[2, 3\]"):
        OODGate.from_dict(values)

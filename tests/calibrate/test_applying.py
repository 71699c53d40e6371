"""Applying calibrators, alone and in mixtures, beside plain NumPy; and what must not matter."""

import json
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.special import expit, log_softmax, logit, softmax

from dubito import Logits, Probabilities
from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
    BetaCalibration,
    EnsembleTemperatureScaling,
    ForestCalibration,
    IdentityCalibrator,
    IsotonicCalibration,
    OneVsRest,
    StructuredMatrixScaling,
    TemperatureScaling,
    VectorScaling,
)
from dubito.calibrate.affine import MIN_RBF_LOG_PROBA, SPLINE_KNOTS
from dubito.calibrate.auto import _FixedMixture
from dubito.decide import CostMatrix, Policy

Floats = NDArray[np.float64]
N_CLASSES = 4
RNG = np.random.default_rng(0)
Z = RNG.normal(0, 4, (1500, N_CLASSES)).astype(np.float32)
Y = (Z / 3 + RNG.gumbel(size=Z.shape) + [0, 1, 0, 0]).argmax(axis=1)
KNOWN, NEW = Logits(Z[:500]), Z[500:]
PARTS: dict[str, BaseCalibrator] = {
    "identity": IdentityCalibrator(),
    "temperature": TemperatureScaling(),
    "ensemble temperature": EnsembleTemperatureScaling(),
    "vector": VectorScaling(regularization=1.0, input="log_proba"),
    "linear": StructuredMatrixScaling(),
    "spline": StructuredMatrixScaling(regularization=0.1, basis="spline"),
    "rbf": StructuredMatrixScaling(regularization=0.01, basis="rbf"),
    "isotonic": OneVsRest(IsotonicCalibration()),
    "beta": OneVsRest(BetaCalibration()),
    "forest": ForestCalibration(n_estimators=5, min_samples_leaf=4),
}
WEIGHTS = np.arange(1.0, 1 + len(PARTS)) / np.arange(1, 1 + len(PARTS)).sum()


@pytest.fixture(scope="module")
def fitted() -> dict[str, BaseCalibrator]:
    return {name: one.fit(KNOWN, Y[:500]) for name, one in PARTS.items()}


def mixture_of(parts: list[BaseCalibrator], weights: Any, uniform: float) -> AutoCalibrator:
    """Return a default calibrator as if it had chosen some parts, saved and loaded again."""
    auto = AutoCalibrator().fit(KNOWN.take(slice(9)), Y[:9])  # too few rows to choose anything
    auto.calibrators_, auto.weights_ = parts, np.array(weights)
    auto.uniform_weight_ = uniform
    return AutoCalibrator.from_dict(json.loads(json.dumps(auto.to_dict())))


@pytest.fixture(scope="module")
def mixture(fitted: dict[str, BaseCalibrator]) -> AutoCalibrator:
    return mixture_of(list(fitted.values()), WEIGHTS, 0.02)


def reference(one: Any, z: Floats) -> Any:
    """Return the probabilities of a fitted calibrator, by its definition."""
    match one:
        case IdentityCalibrator():
            return softmax(z, axis=1)
        case TemperatureScaling():
            return softmax(z / one.temperature_, axis=1)
        case EnsembleTemperatureScaling():
            scaled, unchanged, uniform = one.weights_
            scaled_part = scaled * softmax(z / one.temperature_, axis=1)
            return scaled_part + unchanged * softmax(z, axis=1) + uniform / N_CLASSES
        case VectorScaling():
            x = log_softmax(z / one.temperature_, axis=1)
            return softmax(x * one.weight_ + one.bias_, axis=1)
        case StructuredMatrixScaling():
            x = log_softmax(z / one.temperature_, axis=1)
            features = [x]
            if one.basis != "linear":
                features += [np.exp(x), *(np.maximum(x - knot, 0) for knot in SPLINE_KNOTS)]
            if one.basis == "rbf":
                squares = cdist(np.maximum(x, MIN_RBF_LOG_PROBA), one.centers_, "sqeuclidean")
                features.append(np.exp(-squares / (2 * one.width_**2)))
            return softmax(np.column_stack(features) @ one.weight_.T + one.bias_, axis=1)
        case OneVsRest():
            odds = logit(softmax(z, axis=1))
            separate = np.column_stack(
                [against_rest(each, odds[:, k]) for k, each in enumerate(one.calibrators_)]
            )
            return np.asarray(separate / separate.sum(axis=1, keepdims=True))
        case ForestCalibration():
            return forest_reference(one, z)
    raise AssertionError(one)


def against_rest(one: Any, odds: Floats) -> Floats:
    if isinstance(one, IsotonicCalibration):
        return np.interp(odds, one.knots_, one.values_)
    a, b, c = one.coefficients_
    return np.asarray(expit(a * np.log(expit(odds)) - b * np.log(expit(-odds)) + c))


def forest_reference(forest: ForestCalibration, z: Floats) -> Floats:
    x = log_softmax(z, axis=1)
    rows = np.column_stack([x, np.exp(x)]).astype(np.float32)
    prior = reference(forest.prior_, z)
    ends = [*forest.roots_[1:], forest.column_.size]
    starts = np.concatenate([[0], np.cumsum(forest.n_labels_)])
    threshold = np.zeros(forest.column_.size)
    threshold[forest.column_ >= 0] = forest.threshold_
    result = np.zeros(z.shape)
    for root, end in zip(forest.roots_, ends, strict=True):
        column = forest.column_[root:end]
        child = 1 + 2 * (np.cumsum(column >= 0) - 1)
        for i, row in enumerate(rows):
            node = 0
            while column[node] >= 0:
                node = child[node] + (row[column[node]] > threshold[root + node])
            some = slice(*starts[root + node : root + node + 2])
            counts = np.bincount(forest.labels_[some], forest.weights_[some], N_CLASSES)
            total = counts.sum() + forest.prior_weight
            result[i] += (counts + forest.prior_weight * prior[i]) / total / len(ends)
    return result


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parts_are_their_definition(
    fitted: dict[str, BaseCalibrator], name: str, dtype: Any
) -> None:
    one, expected = fitted[name], reference(fitted[name], NEW.astype(np.float64))
    tolerance = 1e-6 if dtype is np.float32 else 1e-9
    for outputs in (Logits(NEW.astype(dtype)), Probabilities(softmax(NEW.astype(dtype), axis=1))):
        is_exact = name != "forest" or isinstance(outputs, Logits)
        if is_exact:  # the logs of probabilities may fall on the other side of a threshold
            close(one.predict_proba(outputs), expected, atol=tolerance)
            close(mixture_of([one], [1.0], 0.0).predict_proba(outputs), expected, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_mixture_is_the_weighted_mean_of_its_parts(
    mixture: AutoCalibrator, fitted: dict[str, BaseCalibrator], dtype: Any
) -> None:
    z = NEW.astype(np.float64)
    parts = [reference(one, z) for one in fitted.values()]
    expected = 0.98 * np.tensordot(WEIGHTS, parts, axes=1) + 0.02 / N_CLASSES
    outputs = Logits(NEW.astype(dtype))
    tolerance = 1e-6 if dtype is np.float32 else 1e-9
    found = mixture.predict_proba(outputs)
    assert found.dtype == dtype
    close(found, expected, atol=tolerance)
    close(softmax(mixture.transform(outputs).array, axis=1), expected, atol=tolerance)
    assert mixture.apply(outputs).array.tolist() == found.tolist()
    assert mixture.predict(outputs).tolist() == expected.argmax(axis=1).tolist()


def test_a_saved_mixture_takes_float32_as_float64(mixture: AutoCalibrator) -> None:
    narrow = mixture.predict_proba(Logits(NEW))
    close(narrow, mixture.predict_proba(Logits(NEW.astype(np.float64))), atol=1e-7)


def test_the_order_of_rows_makes_no_difference(mixture: AutoCalibrator) -> None:
    z, order = NEW.astype(np.float64), RNG.permutation(len(NEW))
    whole = mixture.predict_proba(Logits(z))
    close(mixture.predict_proba(Logits(z[order])), whole[order], rtol=0, atol=1e-13)
    alone = [mixture.predict_proba(Logits(row[np.newaxis]))[0] for row in z[:50]]
    close(alone, whole[:50], rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_and_threads_make_no_difference(
    mixture: AutoCalibrator, monkeypatch: pytest.MonkeyPatch, dtype: Any
) -> None:
    outputs = Logits(NEW.astype(dtype))
    whole = mixture.predict_proba(outputs)
    for entries in (1000, 60_000):
        monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", str(entries))
        for n_threads in ("1", "2", "3"):
            monkeypatch.setenv("DUBITO_THREADS", n_threads)
            close(mixture.predict_proba(outputs), whole, rtol=0, atol=1e-13)


def test_permuted_classes_have_permuted_probabilities() -> None:
    parts = [PARTS[name] for name in ("spline", "rbf", "isotonic", "forest")]
    order = np.array([2, 0, 3, 1])
    found = []
    for columns in (np.arange(N_CLASSES), order):
        mixed = _FixedMixture(parts, np.array([0.1, 0.2, 0.3, 0.4]), 0.02)
        labels = np.argsort(columns)[Y[:500]]
        mixed.fit(Logits(Z[:500][:, columns]), labels)
        saved = mixture_of(mixed.calibrators_, mixed.weights_, mixed.uniform_weight_)
        found.append(saved.predict_proba(Logits(NEW[:, columns])))
    close(found[1], found[0][:, order], atol=1e-6)


def test_a_policy_decides_on_what_the_mixture_returns(mixture: AutoCalibrator) -> None:
    costs = CostMatrix.zero_one(N_CLASSES).with_reject(0.3)
    policy = Policy.fit(KNOWN, Y[:500], costs=costs, calibrator=TemperatureScaling())
    with_mixture = Policy.from_dict({**policy.to_dict(), "calibrator": mixture.to_dict()})
    decisions = with_mixture.decide(Logits(NEW))
    p = mixture.predict_proba(Logits(NEW))
    assert decisions.probabilities.tolist() == p.tolist()
    close(decisions.probability, p.max(axis=1), rtol=1e-6)
    assert decisions.is_rejected.tolist() == (1 - p.max(axis=1, initial=0) >= 0.3).tolist()

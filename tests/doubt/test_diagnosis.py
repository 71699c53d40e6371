"""A diagnosis names what happens, with numbers that plain counting confirms."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from dubito import Logits, Members, Probabilities, TopLabel
from dubito.data import load_fashion_mnist
from dubito.doubt import (
    MahalanobisDistance,
    OODDiagnosis,
    diagnose_ood,
    generalized_entropy,
    negative_feature_norm,
    uncertainty_scores,
    unfamiliarity,
)
from dubito.doubt.diagnosis import Separation, _separation, paired_gain
from dubito.errors import BadTypeError, BadValueError

Floats = NDArray[np.floating[Any]]


def rows(n_rows: int, lead: float, seed: int) -> Floats:
    """Return logits of rows whose top class leads by about so much."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n_rows, 4))
    logits[np.arange(n_rows), rng.integers(0, 4, n_rows)] += lead
    return logits


@pytest.mark.parametrize(
    ("lead", "n_ood", "kind"),
    [
        (8.0, 400, "extrapolation"),
        (5.0, 400, "saturation"),
        (4.0, 400, "partial saturation"),
        (1.0, 400, "separation"),
        (5.0, 5, "inconclusive"),
    ],
)
def test_each_kind_is_named(lead: float, n_ood: int, kind: str) -> None:
    known, outliers = Logits(rows(400, 5.0, 0)), Logits(rows(n_ood, lead, 1))
    assert diagnose_ood(known, outliers).kind == kind


def test_a_few_rows_in_perfect_order_prove_little() -> None:
    sure, unsure = [[0.99, 0.01]] * 2, [[0.6, 0.4]] * 2
    assert diagnose_ood(sure, unsure).least_confidence.roc_auc == 1
    assert diagnose_ood(sure, unsure).kind == diagnose_ood(unsure, sure).kind == "inconclusive"
    assert (
        diagnose_ood(sure, sure).kind == diagnose_ood(sure[:1], unsure[:1]).kind == "inconclusive"
    )


def test_rows_that_are_all_saturated_are_as_confident_as_each_other() -> None:
    sure = Logits(np.tile([1e4, 0.0, -1e4], (200, 1)))
    found = diagnose_ood(sure, sure)
    assert found.kind == "saturation"
    assert found.fraction_as_confident == found.fpr95 == 1
    assert found.least_confidence.roc_auc == 0.5


def sample_diagnosis(name: str) -> tuple[OODDiagnosis, dict[str, tuple[Floats, Floats]]]:
    """Return a diagnosis of the shipped sample, and the scores of in-distribution and OOD rows."""
    sample = load_fashion_mnist()
    logits, features = getattr(sample, f"{name}_logits"), getattr(sample, f"{name}_features")
    found = diagnose_ood(
        Logits(sample.test_logits),
        Logits(logits),
        id_features=sample.test_features,
        ood_features=features,
        weights=sample.weight,
    )
    known, outliers = (
        uncertainty_scores(Logits(sample.test_logits)),
        uncertainty_scores(Logits(logits)),
    )
    pairs = {
        field: (getattr(known, field), getattr(outliers, field))
        for field in ("least_confidence", "entropy", "margin_uncertainty", "energy")
    }
    pairs["generalized_entropy"] = (
        generalized_entropy(Logits(sample.test_logits)),
        generalized_entropy(Logits(logits)),
    )
    z, s, w = sample.test_features, features, sample.weight
    pairs["negative_feature_norm"] = negative_feature_norm(z), negative_feature_norm(s)
    pairs["unfamiliarity"] = unfamiliarity(z, w), unfamiliarity(s, w)
    return found, pairs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unseen_classes", "digits", "corrupted"])
def test_the_figures_of_the_sample_by_plain_counting(name: str) -> None:
    found, pairs = sample_diagnosis(name)
    known, outliers = pairs["least_confidence"]
    assert (found.n_id, found.n_ood) == (4000, 1000)
    assert found.kind == "partial saturation"
    assert found.id_confidence == pytest.approx(1 - np.median(known))
    assert found.ood_confidence == pytest.approx(1 - np.median(outliers))
    assert found.fraction_as_confident == np.mean([one <= np.median(known) for one in outliers])
    threshold = np.sort(known)[int(np.ceil(0.95 * 3999))]
    assert found.fpr95 == np.mean(outliers <= threshold)
    assert 0.95 <= np.mean(known <= threshold) < 0.952
    assert found.id_norm == pytest.approx(-np.median(pairs["negative_feature_norm"][0]))
    assert found.ood_norm == pytest.approx(-np.median(pairs["negative_feature_norm"][1]))
    assert found.separations.keys() == pairs.keys()
    flags = np.repeat([0, 1], [4000, 1000])
    for field, (of_known, of_outliers) in pairs.items():
        expected = roc_auc_score(flags, np.concatenate([of_known, of_outliers]))
        assert getattr(found, field).roc_auc == pytest.approx(expected, abs=1e-12)
        assert found.separations[field] is getattr(found, field)
    areas = [one.roc_auc for one in found.separations.values()]
    assert areas == sorted(areas, reverse=True)


@pytest.mark.slow
def test_which_scores_separate_ood_inputs_in_the_sample() -> None:
    unseen, digits = sample_diagnosis("unseen_classes")[0], sample_diagnosis("digits")[0]
    assert next(iter(unseen.separations)) == "unfamiliarity"
    assert unseen.negative_feature_norm is not None
    assert unseen.negative_feature_norm.conclusion not in ("separated", "reversed")
    assert next(iter(digits.separations)) == "energy"
    assert digits.negative_feature_norm is not None
    assert digits.negative_feature_norm.conclusion == "separated"


def plain_separation(known: Floats, outliers: Floats) -> tuple[float, float]:
    """Return AUROC and DeLong's standard error over all pairs."""
    wins = (outliers[:, np.newaxis] > known) + 0.5 * (outliers[:, np.newaxis] == known)
    of_outliers, of_known = wins.mean(axis=1), wins.mean(axis=0)
    variance = of_outliers.var(ddof=1) / len(outliers) + of_known.var(ddof=1) / len(known)
    return float(wins.mean()), float(np.sqrt(variance))


@pytest.mark.slow
@given(
    hnp.arrays(np.float64, st.integers(2, 9), elements=st.sampled_from([0.0, 1e-300, 0.5, 1.0])),
    hnp.arrays(np.float64, st.integers(2, 9), elements=st.sampled_from([0.0, 1e-300, 0.5, 1.0])),
)
def test_a_separation_against_all_pairs(known: Floats, outliers: Floats) -> None:
    found = _separation(known, outliers)
    close([found.roc_auc, found.standard_error], plain_separation(known, outliers), atol=1e-12)
    turned = _separation(outliers, known)
    close(
        [turned.roc_auc, turned.standard_error],
        [1 - found.roc_auc, found.standard_error],
        atol=1e-9,
    )


@pytest.mark.slow
def test_the_standard_errors_are_those_of_many_draws() -> None:
    rng = np.random.default_rng(0)
    draws = [
        _separation(rng.normal(size=60), rng.normal(shift, 1, 40))
        for shift in (0.0, 1.0)
        for _ in range(1500)
    ]
    chance, shifted = draws[:1500], draws[1500:]
    spread = np.std([one.roc_auc for one in chance])
    assert chance[0].chance_error == pytest.approx(spread, rel=0.06)
    assert np.mean([one.standard_error for one in chance]) == pytest.approx(spread, rel=0.06)
    spread = np.std([one.roc_auc for one in shifted])
    assert np.mean([one.standard_error for one in shifted]) == pytest.approx(spread, rel=0.06)


def plain_gain(known: Sequence[Floats], outliers: Sequence[Floats]) -> tuple[float, float]:
    """Return the difference of two AUROCs over all pairs, and DeLong's standard error."""
    wins = [
        (b[:, np.newaxis] > a) + 0.5 * (b[:, np.newaxis] == a)
        for a, b in zip(known, outliers, strict=True)
    ]
    gain = wins[0] - wins[1]
    variance = gain.mean(axis=1).var(ddof=1) / len(gain)
    variance += gain.mean(axis=0).var(ddof=1) / gain.shape[1]
    return float(gain.mean()), float(np.sqrt(variance))


def test_the_paired_standard_error_is_that_of_all_pairs_and_of_resampling() -> None:
    rng = np.random.default_rng(0)
    base, more = rng.normal(size=200).round(1), rng.normal(size=150).round(1) + 1
    known = [base, base + rng.normal(size=200)]
    outliers = [more, more + rng.normal(size=150)]
    gain, error = paired_gain(known, outliers)
    close([gain, error], plain_gain(known, outliers), atol=1e-12)
    draws = []
    for _ in range(200):
        rows, found = rng.integers(0, 200, 200), rng.integers(0, 150, 150)
        draws.append(paired_gain([a[rows] for a in known], [b[found] for b in outliers])[0])
    assert gain == pytest.approx(np.mean(draws), abs=0.01)
    assert error == pytest.approx(np.std(draws), rel=0.2)


def test_a_fitted_score_is_recommended_if_it_is_better_on_the_same_rows() -> None:
    rng = np.random.default_rng(0)
    train, known = rng.normal(size=(300, 4)), rng.normal(size=(200, 4))
    outliers = rng.normal(2, 1, (100, 4))
    logits = Logits(rng.normal(size=(200, 3))), Logits(rng.normal(size=(100, 3)))
    score = MahalanobisDistance().fit(train)
    options: dict[str, Any] = {"id_features": known, "ood_features": outliers}
    found = diagnose_ood(*logits, **options, scores={"distance": score})
    assert found.recommended == "distance"
    assert next(iter(found.separations)) == "distance"
    part = found.separations["distance"]
    a, b = (uncertainty_scores(one).least_confidence for one in logits)
    expected = plain_gain([score.score(known), a], [score.score(outliers), b])
    close([part.gain, part.gain_error], expected, atol=1e-12)
    assert "Detect OOD inputs with distance (AUROC 0.9" in found.advice
    # Without the distance, nothing separates these rows.
    assert diagnose_ood(*logits).recommended == "least_confidence"
    with pytest.raises(BadValueError, match="`id_features` must be given with scores"):
        diagnose_ood(*logits, scores={"distance": score})


def test_one_row_of_each_has_the_error_of_chance_only() -> None:
    found = _separation(np.array([0.0]), np.array([1.0]))
    assert found == Separation(1.0, 0.0, 0.5)


def test_what_is_clear_is_so_by_the_larger_error() -> None:
    assert Separation(0.7, 0.05, 0.09).conclusion == "separated"
    assert Separation(0.7, 0.05, 0.11).conclusion == "inconclusive"
    assert Separation(0.59, 0.01, 0.01).conclusion == "overlapping"
    assert Separation(0.3, 0.09, 0.05).conclusion == "reversed"
    assert Separation(0.3, 0.11, 0.05).conclusion == "inconclusive"


def test_longer_features_are_reported() -> None:
    rng = np.random.default_rng(0)
    z, w = rng.normal(size=(300, 5)), rng.normal(size=(3, 5))
    found = diagnose_ood(
        Logits(z @ w.T),
        Logits(5 * z @ w.T),
        id_features=z,
        ood_features=5 * z,
        weights=w,
    )
    assert found.kind == "extrapolation"
    assert found.negative_feature_norm is not None
    assert found.negative_feature_norm.conclusion == "reversed"
    assert found.unfamiliarity is not None
    assert found.unfamiliarity.roc_auc == pytest.approx(0.5, abs=1e-3)
    assert found.ood_norm == pytest.approx(5 * (found.id_norm or 0))


def test_what_is_not_known_is_none() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(3), (2, 50))
    found = diagnose_ood(p[0], Probabilities(p[1]))
    assert found.energy is found.negative_feature_norm is found.unfamiliarity is None
    assert found.id_norm is found.ood_norm is None
    mixed = diagnose_ood(Logits(np.log(p[0])), Members(p[1:]), id_features=p[0], ood_features=p[1])
    assert mixed.energy is mixed.unfamiliarity is None
    assert mixed.negative_feature_norm is not None
    assert mixed.least_confidence.roc_auc == pytest.approx(found.least_confidence.roc_auc)


@pytest.mark.parametrize("which", ["id", "ood"])
@pytest.mark.parametrize("has_weights", [True, False])
def test_features_come_together(which: str, has_weights: bool) -> None:
    given_one: dict[str, Any] = {"id_features" if which == "ood" else "ood_features": [[1.0]]}
    weights = [[1.0], [2.0]] if has_weights else None
    with pytest.raises(
        BadValueError,
        match=f"`{which}_features` .*, got None. Pass all of them or none",
    ):
        diagnose_ood([[0.5, 0.5]], [[0.5, 0.5]], weights=weights, **given_one)


def test_weights_without_features_raise() -> None:
    with pytest.raises(
        BadValueError,
        match="`id_features` must be given with the other "
        r"features and weights, got None\. Pass all of "
        "them or none",
    ):
        diagnose_ood([[0.5, 0.5]], [[0.5, 0.5]], weights=[[1.0], [2.0]])


def test_features_of_other_rows_raise() -> None:
    p = [[0.5, 0.5]]
    with pytest.raises(
        BadValueError,
        match=r"`ood_features` .*, got length 2\. Align both in "
        "the same row order",
    ):
        diagnose_ood(p, p, id_features=[[1.0]], ood_features=[[1.0], [2.0]])


def test_weights_of_another_shape_raise() -> None:
    p = [[0.5, 0.5]]
    with pytest.raises(
        BadValueError,
        match=r"`weights` .*, got shape \(2, 3\)\. Pass the features that the layer takes",
    ):
        diagnose_ood(p, p, id_features=[[1.0]], ood_features=[[1.0]], weights=np.ones((2, 3)))


def test_outputs_of_two_models_raise() -> None:
    with pytest.raises(BadValueError, match=r"`ood_outputs` .*, got 3\. Pass outputs of one model"):
        diagnose_ood([[0.5, 0.5]], [[0.5, 0.25, 0.25]])


@pytest.mark.parametrize("which", ["id", "ood"])
def test_no_rows_raise(which: str) -> None:
    some, none = np.full((3, 2), 0.5), np.empty((0, 2))
    with pytest.raises(
        BadValueError,
        match=f"`{which}_outputs` must have at least 1 row, got 0. Pass rows of both kinds",
    ):
        diagnose_ood(*((none, some) if which == "id" else (some, none)))


def test_top_labels_raise() -> None:
    with pytest.raises(
        BadTypeError, match=r"`id_outputs` .*, got TopLabel\. Use least_confidence for TopLabel"
    ):
        diagnose_ood(TopLabel([0.5], [1]), [[0.5, 0.5]])

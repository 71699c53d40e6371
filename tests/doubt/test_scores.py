"""Uncertainty scores agree with SciPy, and keep their digits where a model is nearly certain."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import special, stats

from dubito import (
    Logits,
    Members,
    MultiLabel,
    MultiLabelMembers,
    Normal,
    Probabilities,
    TopLabel,
)
from dubito.doubt import (
    ConformalOutlierDetector,
    energy,
    entropy,
    label_uncertainty,
    least_confidence,
    margin_uncertainty,
    uncertainty_scores,
)
from dubito.errors import BadTypeError, BadValueError
from dubito.outputs import unchecked

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]
Doubt = Callable[[Any], Floats]

FROM_PROBABILITIES: list[Doubt] = [least_confidence, entropy, margin_uncertainty]
TOLERANCE = {np.float16: 1e-6, np.float32: 1e-6, np.float64: 1e-12}

each_precision = pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
each_width = pytest.mark.parametrize("n_classes", [2, 8, 64, 65, 300])


def some_logits(n_rows: int, n_classes: int, dtype: Precision) -> Floats:
    rng = np.random.default_rng(n_classes)
    return rng.normal(0, 2, (n_rows, n_classes)).astype(dtype)


def reference(p: Floats) -> list[Floats]:
    """Return 1 - confidence, entropy and 1 - margin the plain way, accurate for uncertain rows."""
    ranked = np.sort(p, axis=1)
    margin = ranked[:, -1] - ranked[:, -2]
    return [1 - ranked[:, -1], stats.entropy(p, axis=1), 1 - margin]


@each_precision
@each_width
def test_logits_against_scipy(dtype: Precision, n_classes: int) -> None:
    logits = some_logits(500, n_classes, dtype)
    wide = logits.astype(np.float64)
    for uncertainty, expected in zip(
        FROM_PROBABILITIES, reference(special.softmax(wide, axis=1)), strict=True
    ):
        found = uncertainty(Logits(logits))
        assert found.dtype == np.float64
        close(found, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    close(energy(Logits(logits)), -special.logsumexp(wide, axis=1), rtol=TOLERANCE[dtype])


@each_width
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_against_scipy(dtype: Precision, n_classes: int) -> None:
    p = special.softmax(some_logits(500, n_classes, np.float64), axis=1).astype(dtype)
    expected = reference(p.astype(np.float64))
    for uncertainty, numbers in zip(FROM_PROBABILITIES, expected, strict=True):
        close(uncertainty(p), numbers, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
        assert (uncertainty(Probabilities(p)) == uncertainty(p)).all()


@pytest.mark.parametrize("n_classes", [2, 5, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_logits", [True, False])
def test_a_row_that_is_sure_to_1e_12_keeps_its_digits(
    n_classes: int, dtype: Precision, is_logits: bool
) -> None:
    others = np.full(n_classes - 1, 1e-12 / (n_classes - 1))
    shares = np.append(others, 1 - 1e-12)[np.newaxis]
    outputs: Any = Logits(np.log(shares).astype(dtype)) if is_logits else shares.astype(dtype)
    # What the outputs hold after rounding, in more digits than they have.
    held = outputs.array if is_logits else outputs
    kept = np.exp(held.astype(np.longdouble)) if is_logits else held.astype(np.longdouble)
    kept /= kept[0, -1]
    rest = kept[0, :-1].sum()
    total = 1 + rest
    expected = np.log1p(rest) - (kept * np.log(kept)).sum() / total
    close(entropy(outputs), float(expected), rtol=1e-6)
    close(least_confidence(outputs), float(rest / total), rtol=1e-6)
    close(margin_uncertainty(outputs), float((rest + kept[0, 0]) / total), rtol=1e-6)
    # And what was meant, but for the rounding of the outputs themselves.
    close(least_confidence(outputs), 1e-12, rtol=1e-5)
    close(entropy(outputs), -(others * np.log(others)).sum() + 1e-12, rtol=1e-5)


def test_all_at_once_are_the_same_as_one_by_one() -> None:
    logits = Logits(some_logits(100, 10, np.float32))
    together = uncertainty_scores(logits)
    assert (together.least_confidence == least_confidence(logits)).all()
    assert (together.entropy == entropy(logits)).all()
    assert (together.margin_uncertainty == margin_uncertainty(logits)).all()
    assert together.energy is not None
    assert (together.energy == energy(logits)).all()
    with pytest.raises(FrozenInstanceError):
        together.energy = None  # type: ignore[misc]


def test_probabilities_have_no_energy() -> None:
    assert uncertainty_scores([[0.5, 0.5]]).energy is None


def test_many_blocks_over_threads_are_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = Logits(some_logits(1_000, 30, np.float32))
    whole = uncertainty_scores(logits).entropy
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "700")
    monkeypatch.setenv("DUBITO_THREADS", "3")
    assert (uncertainty_scores(logits).entropy == whole).all()


@pytest.mark.parametrize("uncertainty", FROM_PROBABILITIES)
def test_scores_of_members_are_those_of_their_mean(uncertainty: Doubt) -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(4), (3, 20))
    close(uncertainty(Members(p)), uncertainty(p.mean(axis=0)), rtol=1e-12)


def test_a_top_label_has_a_least_confidence() -> None:
    assert least_confidence(TopLabel([0.75, 1.0], [1, 1])).tolist() == [0.25, 0.0]


def test_one_column_is_the_positive_class_of_two() -> None:
    assert least_confidence([0.75, 0.5]).tolist() == [0.25, 0.5]
    close(margin_uncertainty(Logits([0.0, np.log(3)])), [1.0, 0.5])


def test_no_rows_have_no_scores() -> None:
    assert least_confidence(Logits(np.empty((0, 3)))).shape == (0,)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_callers_array_stays_as_it_is(order: Any) -> None:
    logits = np.array(some_logits(50, 6, np.float32), order=order)
    before = logits.copy()
    uncertainty_scores(Logits(logits))
    assert (logits == before).all()
    assert logits.flags.writeable


@pytest.mark.slow
@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 5), st.sampled_from([2, 3, 70])),
        elements=st.floats(0, 1) | st.sampled_from([0.0, 1e-300, 1e-30, 1.0]),
    )
)
def test_scores_of_any_probabilities_stay_in_their_ranges(shares: Floats) -> None:
    shares = shares + (shares.sum(axis=1, keepdims=True) == 0)
    p = shares / shares.sum(axis=1, keepdims=True)
    found = uncertainty_scores(p)
    n_classes = p.shape[1]
    assert (found.least_confidence >= 0).all()
    assert (found.least_confidence <= 1 - 1 / n_classes + 1e-12).all()
    assert (found.margin_uncertainty >= found.least_confidence).all()
    assert (found.margin_uncertainty <= 1).all()
    assert (found.entropy >= 0).all()
    assert (found.entropy <= np.log(n_classes) + 1e-12).all()


@settings(max_examples=50)
@given(hnp.arrays(np.float64, (3, 4), elements=st.floats(-50, 50)), st.floats(-100, 100, width=16))
def test_a_shift_of_all_logits_is_seen_by_the_energy_only(logits: Floats, shift: float) -> None:
    before, after = uncertainty_scores(Logits(logits)), uncertainty_scores(Logits(logits + shift))
    close(after.least_confidence, before.least_confidence, rtol=1e-9)
    close(after.entropy, before.entropy, rtol=1e-9)
    close(after.margin_uncertainty, before.margin_uncertainty, rtol=1e-9)
    assert before.energy is not None
    assert after.energy is not None
    close(after.energy, before.energy - shift, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("outputs", "kind"),
    [
        ([[0.5, 0.5]], "list"),
        (Probabilities([[0.5, 0.5]]), "Probabilities"),
        (Members([[[0.5, 0.5]]]), "Members"),
        (TopLabel([0.5], [1]), "TopLabel"),
    ],
)
def test_the_energy_of_anything_but_logits_raises(outputs: Any, kind: str) -> None:
    with pytest.raises(
        BadTypeError,
        match=f"`outputs` must be Logits, got {kind}. Wrap the logits: the energy of "
        "probabilities is "
        "always 0",
    ):
        energy(outputs)


@pytest.mark.parametrize("uncertainty", [entropy, margin_uncertainty, uncertainty_scores])
def test_top_labels_raise_for_scores_of_whole_distributions(uncertainty: Doubt) -> None:
    with pytest.raises(
        BadTypeError,
        match=r"`outputs` .*, got TopLabel\. Use least_confidence for TopLabel",
    ):
        uncertainty(TopLabel([0.5], [1]))


@pytest.mark.parametrize("uncertainty", [*FROM_PROBABILITIES, uncertainty_scores])
def test_a_regression_has_none_of_these_scores(uncertainty: Doubt) -> None:
    with pytest.raises(
        BadTypeError,
        match=r"`outputs` .*, got Normal\. Pass a classifier's outputs",
    ):
        uncertainty(Normal([0.0], [1.0]))


@pytest.mark.parametrize("uncertainty", [*FROM_PROBABILITIES, uncertainty_scores])
def test_logits_in_a_plain_array_raise(uncertainty: Doubt) -> None:
    with pytest.raises(
        BadValueError,
        match=r"`outputs` .*, got a sum of 4 in row 0\. Use Logits\(\.\.\.\) for logits, or "
        r"use MultiLabel\(array\) if several labels may apply",
    ):
        uncertainty([[3.0, 1.0]])


@pytest.mark.parametrize("kind", [Logits, Probabilities])
def test_a_single_class_has_no_margin_uncertainty(kind: Any) -> None:
    outputs = unchecked(kind, {"array": np.ones((3, 1)), "classes": ("only",)})
    assert margin_uncertainty(outputs).tolist() == [0.0] * 3
    assert entropy(outputs).tolist() == [0.0] * 3
    assert least_confidence(outputs).tolist() == [0.0] * 3


def test_labels_have_the_uncertainty_of_two_classes() -> None:
    odds = np.random.default_rng(0).normal(0, 4, (50, 3))
    found = label_uncertainty(MultiLabel.from_logits(odds))
    for k in range(3):
        both = Logits(np.column_stack([np.zeros(50), odds[:, k]]))
        assert found.least_confidence[:, k] == pytest.approx(least_confidence(both))
        assert found.entropy[:, k] == pytest.approx(entropy(both))
    every = np.array(list(product([0, 1], repeat=3)))  # the outcomes of a row
    p = 1 / (1 + np.exp(-odds[0]))
    chances = np.where(every == 1, p, 1 - p).prod(axis=1)
    assert found.joint_entropy[0] == pytest.approx(-(chances * np.log(chances)).sum())
    assert label_uncertainty([[0.0, 1.0]]).joint_entropy.tolist() == [0.0]
    extreme = label_uncertainty(MultiLabel.from_logits([[50.0, 60.0]])).least_confidence[0]
    assert 0 < extreme[1] < extreme[0] < 1e-20


def test_labels_have_energies_from_logits_only() -> None:
    odds = np.random.default_rng(0).normal(0, 4, (50, 3))
    outputs = MultiLabel.from_logits(odds.astype(np.float32))
    expected = -np.log1p(np.exp(odds.astype(np.float32).astype(float))).sum(axis=1)
    np.testing.assert_allclose(energy(outputs), expected, rtol=1e-12)
    found = label_uncertainty(outputs)
    assert found.joint_energy is not None
    assert found.max_logit is not None
    np.testing.assert_array_equal(found.joint_energy, energy(outputs))
    np.testing.assert_allclose(found.max_logit, -odds.max(axis=1), rtol=1e-6)
    assert energy(MultiLabel.from_logits([[900.0, -900.0]])).tolist() == [-900.0]
    assert label_uncertainty(outputs.array).joint_energy is None
    with pytest.raises(BadTypeError, match=r"made from logits.*MultiLabel\.from_logits"):
        energy(MultiLabel([[0.5, 0.9]]))
    far = energy(MultiLabel.from_logits(np.full((5, 3), -9.0)))  # no label at all: an outlier
    detector = ConformalOutlierDetector(alpha=0.1).fit(energy(outputs))
    assert detector.predict(far).all()


@pytest.mark.parametrize(
    "score", [least_confidence, entropy, margin_uncertainty, uncertainty_scores]
)
def test_several_labels_have_scores_of_their_own(score: Any) -> None:
    for outputs in (MultiLabel([[0.2, 0.9]]), MultiLabelMembers([[[0.2, 0.9]]])):
        with pytest.raises(BadTypeError, match=r"Use label_uncertainty\(outputs\), or pass one"):
            score(outputs)

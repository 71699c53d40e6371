from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize, special

from dubito import Logits, Members, Normal, Probabilities, TopLabel
from dubito.calibrate import TemperatureScaling, decompose_loss
from dubito.errors import BadTypeError, BadValueError, EmptyStateError, MissingLabelsWarning
from dubito.measure import brier_score, log_loss


def made(n_rows: int, n_classes: int, sharper: float = 3.0) -> tuple[Any, NDArray[Any]]:
    """Return labels, and logits that are too sharp by a factor."""
    rng = np.random.default_rng(n_classes)
    calibrated = rng.normal(0, 1.5, (n_rows, n_classes))
    shares = special.softmax(calibrated, axis=1)
    y = (shares.cumsum(axis=1) < rng.random((n_rows, 1))).sum(axis=1)
    return y, sharper * calibrated


def loss_at(beta: float, y: Any, logits: NDArray[Any], weight: NDArray[Any]) -> NDArray[Any]:
    picked = special.log_softmax(beta * logits, axis=1)[np.arange(len(y)), y]
    return np.asarray(-weight * picked)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_split_equals_folds_by_hand(n_classes: int) -> None:
    y, logits = made(200, n_classes)
    weight = np.random.default_rng(0).random(200) + 0.1
    split = decompose_loss(y, Logits(logits), cv=4, random_state=3, sample_weight=weight)
    order, total = np.random.default_rng(3).permutation(200), 0.0
    for fold in np.array_split(order, 4):
        others = np.setdiff1d(order, fold)

        def loss(log_beta: float, others: Any = others) -> float:
            return float(loss_at(np.exp(log_beta), y[others], logits[others], weight[others]).sum())

        best = optimize.minimize_scalar(loss, bounds=(-5, 3), method="bounded").x
        total += loss_at(float(np.exp(best)), y[fold], logits[fold], weight[fold]).sum()
    assert split.refinement == pytest.approx(total / weight.sum(), abs=1e-6)
    assert split.score == pytest.approx(log_loss(y, Logits(logits), sample_weight=weight))
    assert split.calibration == pytest.approx(split.score - split.refinement)
    assert (split.name, split.n_rows, split.n_folds) == ("log_loss", 200, 4)


def test_refinement_is_the_same_however_sharp_the_outputs_are() -> None:
    scores = [decompose_loss(*wrapped(made(2000, 3, sharper))) for sharper in (0.5, 1.0, 6.0)]
    found = [one.recalibrated for one in scores]
    assert found == pytest.approx([found[0]] * 3, abs=1e-6)
    assert scores[1].calibration < 0.002 < scores[0].calibration < scores[2].calibration


def wrapped(rows: tuple[Any, NDArray[Any]]) -> tuple[Any, Logits]:
    return rows[0], Logits(rows[1])


def test_brier_score_and_another_calibrator() -> None:
    y, logits = made(500, 3)
    split = decompose_loss(y, Logits(logits), score="brier_score")
    assert split.score == pytest.approx(brier_score(y, Logits(logits)))
    assert 0 < split.refinement < split.score
    coarse = TemperatureScaling(objective="ece")
    other = decompose_loss(y, Logits(logits), score="brier_score", calibrator=coarse)
    assert other.refinement != split.refinement
    assert not hasattr(coarse, "temperature_")


def test_where_recalibration_only_adds_noise_nothing_is_taken_away() -> None:
    y, logits = made(12, 3, sharper=1.0)
    split = decompose_loss(y, Logits(logits))
    assert split.recalibrated > split.score
    assert (split.calibration, split.refinement) == (0.0, split.score)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_an_infinite_log_loss_is_all_calibration_but_for_a_finite_rest(kind: Any) -> None:
    says = np.array([0.0, 0.8, 1.0, 0.2, 0.7, 0.1] * 5, dtype=kind)
    y = np.array([1, 1, 1, 0, 0, 0] * 5)
    split = decompose_loss(y, says)
    assert (split.score, split.calibration) == (np.inf, np.inf)
    assert 0 < split.refinement == split.recalibrated < np.inf
    assert str(split).startswith("log_loss inf = calibration inf + refinement ")
    assert decompose_loss(y, says, score="brier_score").score < np.inf


def test_the_seed_decides() -> None:
    y, logits = made(100, 3)
    first, again, other = (decompose_loss(y, Logits(logits), random_state=s) for s in (0, 0, 1))
    assert first == again
    assert first.refinement != other.refinement


def test_members_and_soft_labels() -> None:
    y, logits = made(60, 3)
    shares = special.softmax(logits, axis=1)
    members = Members(np.stack([shares, shares]))
    expected = decompose_loss(y, Probabilities(shares))
    assert decompose_loss(y, members) == expected
    soft = decompose_loss(np.eye(3)[y], Probabilities(shares))
    assert soft.refinement == pytest.approx(expected.refinement)


def test_rows_without_a_label_or_weight_are_left_out() -> None:
    y, logits = made(50, 3)
    weight = np.where(np.arange(50) < 40, 1.0, 0.0)
    expected = decompose_loss(y[5:40], Logits(logits[5:40]))
    labels = np.where(np.arange(50) < 5, np.nan, y)
    with pytest.warns(MissingLabelsWarning, match="decompose_loss: 5 of 50 rows") as caught:
        split = decompose_loss(labels, Logits(logits), sample_weight=weight)
    assert caught[0].filename == __file__
    assert split == expected


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1)), min_size=2, max_size=9),
    st.integers(2, 12),
    st.sampled_from(["log_loss", "brier_score"]),
)
def test_both_parts_are_there_whatever_the_rows(
    rows: list[tuple[int, int]], cv: int, score: Any
) -> None:
    quarters, y = (np.array(column) for column in zip(*rows, strict=True))
    split = decompose_loss(y, quarters / 4, cv=cv, score=score)
    assert split.calibration >= 0
    assert 0 <= split.refinement < np.inf
    assert split.n_folds == min(cv, len(rows))
    assert split.calibration + split.refinement == pytest.approx(split.score)


def test_words() -> None:
    y = [0, 0, 0, 1] * 10 + [1, 1, 1, 0] * 10
    split = decompose_loss(y, [0.01] * 40 + [0.99] * 40)
    words = f"calibration {split.calibration:.4g} + refinement {split.refinement:.4g}"
    assert str(split) == f"log_loss 1.159 = {words} (80 rows, 5 folds)"


def test_arguments_that_cannot_be_decomposed_raise() -> None:
    def message(y: Any = (0, 1), outputs: Any = (0.2, 0.8), **settings: Any) -> str:
        with pytest.raises((BadTypeError, BadValueError)) as caught:
            decompose_loss(y, outputs, **settings)
        return str(caught.value)

    assert message(score="accuracy") == (
        "decompose_loss: `score` must be 'log_loss' or 'brier_score', got 'accuracy'. "
        "Use score='log_loss'."
    )
    assert message(calibrator="temperature") == (
        "decompose_loss: `calibrator` must be a calibrator of classes, got 'temperature'. "
        "Pass calibrator=TemperatureScaling()."
    )
    for cv in (1, 2.5, True):
        assert message(cv=cv) == (
            f"decompose_loss: `cv` must be an integer of at least 2, got {cv!r}. Use cv=5."
        )
    assert message([0], [0.2]) == (
        "decompose_loss: `y_true` must label at least 2 rows, got 1. "
        "Pass more rows: at least one to fit on and one to evaluate."
    )
    assert message(None).startswith("decompose_loss: `y_true` must be the labels, got None.")
    for outputs in (TopLabel([0.5], [1]), Normal([0.5], [1.0])):
        assert message(None, outputs).startswith("decompose_loss: `outputs` must be Logits")
    with pytest.raises(EmptyStateError, match="decompose_loss needs at least 1 labeled row"):
        decompose_loss([0, 1], [0.2, 0.8], sample_weight=[0, 0])

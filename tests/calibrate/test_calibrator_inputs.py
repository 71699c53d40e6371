import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import special

from dubito import Logits, Members, Normal, Probabilities, TopLabel
from dubito.calibrate import AutoCalibrator, IdentityCalibrator, TemperatureScaling
from dubito.calibrate.calibrator import (
    FLOOR,
    LabeledRows,
    as_class_outputs,
    as_penalty,
    class_weights,
    labeled_outputs,
    labeled_shards,
    log_odds,
    log_probabilities,
)
from dubito.data import ArrayShards, Batch, Columns, scan
from dubito.errors import (
    BadTypeError,
    BadValueError,
    DubitoWarning,
    MissingLabelsWarning,
    SingleClassWarning,
)

P = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.2, 0.5, 0.3]])
SOFT = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.2, 0.3, 0.5]])


def test_rows_without_a_label_weigh_nothing() -> None:
    rows = LabeledRows.of(Batch.of([2, np.nan, 0], Logits(P), sample_weight=[1.0, 2.0, 0.5]))
    assert rows.labels.tolist() == [2, -1, 0]
    assert rows.weight.tolist() == [1.0, 0.0, 0.5]
    assert rows.soft_labels.shape == (0, 3)
    assert rows.is_logits
    assert not LabeledRows.of(Batch.of([2, 1, 0], P)).is_logits


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_matrix_is_a_view_of_the_outputs(dtype: type) -> None:
    array: NDArray[Any] = np.zeros((4, 3), dtype)
    outputs = Logits(array)
    rows = LabeledRows.of(Batch.of([0, 1, 2, 0], outputs))
    assert np.shares_memory(rows.array, outputs.array)
    assert not rows.array.flags.writeable
    assert array.flags.writeable


def test_label_probabilities_are_kept_beside_the_codes() -> None:
    rows = LabeledRows.of(Batch.of(SOFT, P))
    close(rows.soft_labels, SOFT)
    assert rows.weight.tolist() == [1, 1, 1]


def test_likelihoods_of_plain_labels_are_a_row_a_labeled_row() -> None:
    rows = LabeledRows.of(Batch.of([2, np.nan, 0], P, sample_weight=[1.0, 2.0, 0.5]))
    likelihoods, weights, _ = rows.label_likelihoods([P, np.full((3, 3), 1 / 3)])
    close(likelihoods, [[0.1, 1 / 3], [0.2, 1 / 3]])
    assert weights.tolist() == [1.0, 0.5]


def test_likelihoods_of_label_probabilities_are_a_row_a_class_that_has_some() -> None:
    weight = np.array([1.0, 2.0, 0.0])
    rows = LabeledRows.of(Batch.of(SOFT, P, sample_weight=weight))
    likelihoods, weights, held = rows.label_likelihoods([P])
    assert held.tolist() == [0, 0, 1]
    close(likelihoods[:, 0], [0.7, 0.2, 0.6])
    close(weights, [0.5, 0.5, 2.0])
    whole = -(weight[:, np.newaxis] * SOFT * np.log(P)).sum()
    assert -weights @ np.log(likelihoods[:, 0]) == pytest.approx(whole)


@pytest.mark.parametrize("value", [0, 0.0, 1, 2.5, np.float32(0.5), np.int64(3)])
def test_a_penalty_is_a_number_from_0_up(value: Any) -> None:
    assert as_penalty(value, "regularization", "VectorScaling") == value


@pytest.mark.parametrize("value", [-1, np.nan, np.inf, True, "1", None, [1.0]])
def test_an_invalid_penalty_raises(value: Any) -> None:
    with pytest.raises(BadValueError) as caught:
        as_penalty(value, "regularization", "VectorScaling")
    assert str(caught.value) == (
        f"VectorScaling: `regularization` must be a finite number of at least 0, got {value!r}. "
        "Pass regularization=1.0."
    )


def test_class_outputs_are_one_matrix() -> None:
    logits = Logits(P)
    assert as_class_outputs(logits, "x") is logits
    assert isinstance(as_class_outputs(P, "x"), Probabilities)
    mean = as_class_outputs(Members([P, P[::-1]]), "x")
    close(mean.array, (P + P[::-1]) / 2)


@pytest.mark.parametrize("outputs", [TopLabel([0.9], [True]), Normal([0.0], [1.0])])
def test_outputs_without_classes_raise(outputs: Any) -> None:
    with pytest.raises(BadTypeError) as caught:
        as_class_outputs(outputs, "VectorScaling")
    assert str(caught.value) == (
        "VectorScaling: `outputs` must be Logits, Probabilities, Members or an array of "
        f"probabilities, got {type(outputs).__name__}. Pass the whole distribution over classes, "
        "or use VarianceScaling for regression."
    )


def test_labeled_outputs_are_one_matrix_and_need_labels() -> None:
    logits = Logits(P)
    assert labeled_outputs(Batch.of([0, 1, 2], logits), "VectorScaling") is logits
    with pytest.raises(BadTypeError) as caught:
        labeled_outputs(Batch.of(None, logits), "VectorScaling")
    assert str(caught.value) == (
        "VectorScaling: `y` must hold the labels, got None. "
        "Pass the labels, or shards with a label column."
    )


def test_members_become_their_mean_once() -> None:
    shards = labeled_shards(Members([P, P[::-1]]), [0, 1, 2], None, "VectorScaling")
    assert isinstance(shards, ArrayShards)
    assert isinstance(shards.batch.outputs, Probabilities)
    close(shards.batch.outputs.array, (P + P[::-1]) / 2)


def test_arrays_become_shards_and_shards_stay() -> None:
    shards = labeled_shards(P, [0, 1, 2], None, "VectorScaling")
    assert isinstance(shards, ArrayShards)
    assert len(shards.batch) == 3
    assert labeled_shards(shards, None, None, "VectorScaling") is shards


@pytest.mark.parametrize(
    ("y", "weight", "argument"), [([0, 1, 2], None, "y"), (None, [1, 1, 1], "sample_weight")]
)
def test_labels_or_weights_passed_with_shards_raise(y: Any, weight: Any, argument: str) -> None:
    shards = labeled_shards(P, [0, 1, 2], None, "VectorScaling")
    message = f"VectorScaling: `{argument}` must be None when `outputs` is shards, got list"
    with pytest.raises(BadTypeError, match=message):
        labeled_shards(shards, y, weight, "VectorScaling")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("beta", [0.3, 1.0, 5.0])
def test_log_probabilities_are_float64_at_any_temperature(dtype: type, beta: float) -> None:
    array: NDArray[Any] = np.random.default_rng(0).normal(0, 5, (20, 4)).astype(dtype)
    got = log_probabilities(Logits(array), beta)
    assert got.dtype == np.float64
    close(got, special.log_softmax(beta * array.astype(np.float64), axis=1), rtol=1e-12, atol=1e-14)
    p = special.softmax(array.astype(np.float64), axis=1)
    close(log_probabilities(Probabilities(p), beta), got, rtol=1e-9, atol=1e-14)


def test_a_probability_of_0_is_read_as_the_floor() -> None:
    certain = Probabilities([[1.0, 0.0]])
    close(log_probabilities(certain)[0, 1], np.log(FLOOR), rtol=1e-12)
    close(log_odds(certain)[0], [-special.logit(FLOOR), special.logit(FLOOR)], rtol=1e-12)


def test_log_odds_of_two_classes_are_their_difference() -> None:
    logits = np.random.default_rng(0).normal(0, 5, (20, 2))
    difference = logits[:, 1] - logits[:, 0]
    close(log_odds(Logits(logits)), np.stack([-difference, difference], axis=1), rtol=1e-12)


def test_class_weights_sum_plain_labels() -> None:
    with pytest.warns(MissingLabelsWarning):
        shards = labeled_shards(P, [2, np.nan, 2], [1.0, 2.0, 0.5], "VectorScaling")
    assert class_weights(shards).tolist() == [0.0, 0.0, 1.5]


def test_class_weights_sum_label_probabilities() -> None:
    shards = labeled_shards(P, SOFT, [1.0, 2.0, 0.5], "VectorScaling")
    close(class_weights(shards), [0.6, 0.65, 2.25])


def test_weights_that_sum_to_few_rows_warn() -> None:
    y = np.arange(50) % 3
    logits = np.eye(3)[y] + np.random.default_rng(0).normal(size=(50, 3))
    with pytest.warns(DubitoWarning) as caught:
        TemperatureScaling().fit(Logits(logits), y, np.full(50, 1 / 50))
    assert [str(one.message) for one in caught] == [
        "TemperatureScaling: the weights of 50 rows sum to 1, and frequency weights count as that "
        "many rows. Rescale them to a mean of 1."
    ]
    assert caught[0].filename == __file__
    weight = np.where(np.arange(50) < 4, 1.0, 0.0)
    TemperatureScaling().fit(Logits(logits), y, weight)  # rows left out are no slip


RANDOM = Probabilities(np.random.default_rng(0).dirichlet([1, 1, 1], 40), ["cat", "dog", "owl"])


@pytest.mark.parametrize("calibrator", [TemperatureScaling(), AutoCalibrator()])
@pytest.mark.parametrize("y", [["dog"] * 40, np.tile([0.0, 1.0, 0.0], (40, 1))])
def test_labels_of_one_class_are_warned_about_once(calibrator: Any, y: Any) -> None:
    with pytest.warns(DubitoWarning) as caught:
        calibrator.fit(RANDOM, y)
    found = [one for one in caught if issubclass(one.category, SingleClassWarning)]
    assert len(found) == 1
    name = type(calibrator).__name__
    assert f"{found[0].message}" == (
        f"{name}: all 40 labeled rows are of one class, 'dog'. Nothing can be learned about the "
        "others: their calibrated probabilities are too low. Fit on rows of several classes."
    )
    assert found[0].filename == __file__


@pytest.mark.filterwarnings("ignore::dubito.errors.BoundWarning")
def test_a_stream_that_is_sorted_by_class_is_not_one_class(tmp_path: Path) -> None:
    for k in (0, 1):
        rows = [f"{k},{0.4 + k / 10},{0.6 - k / 10}"] * 3
        (tmp_path / f"{k}.csv").write_text("\n".join(["y,p_0,p_1", *rows]))
    columns = Columns(label="y", probabilities="p_*")
    TemperatureScaling().fit(scan(tmp_path / "*.csv", columns))
    with pytest.warns(SingleClassWarning, match="all 3 labeled rows are of one class, 0"):
        TemperatureScaling().fit(scan(tmp_path / "0.csv", columns))


def test_one_row_or_nothing_to_learn_is_no_single_class() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        IdentityCalibrator().fit(RANDOM, ["dog"] * 40)
        TemperatureScaling().fit([[0.5, 0.5]], [1])
    assert not caught

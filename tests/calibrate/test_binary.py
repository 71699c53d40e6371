from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, log_expit

from dubito import Logits, Members, Probabilities
from dubito.calibrate import BetaCalibration, HistogramBinning, IsotonicCalibration, PlattScaling
from dubito.calibrate.binary import (
    BaseBinaryCalibrator,
    BinaryRows,
    one_vs_rest_shards,
)
from dubito.calibrate.calibrator import labeled_shards
from dubito.data import ArrayShards, Columns, FileShards, scan
from dubito.data.shards import MappedShards
from dubito.errors import BadValueError, EmptyStateError, MissingLabelsWarning

rng = np.random.default_rng(0)
SCORES = rng.normal(size=300) * 2
Y = (rng.random(300) < expit(0.7 * SCORES - 0.4)).astype(int)
WEIGHT = rng.integers(0, 4, 300).astype(float)

ALL = [PlattScaling, BetaCalibration, HistogramBinning, IsotonicCalibration]
each = pytest.mark.parametrize("kind", ALL)


def said(calibrator: BaseBinaryCalibrator) -> Any:
    return calibrator.predict_proba(Logits(SCORES))


def streamed(folder: Path, **columns: Any) -> FileShards:
    path = folder / "rows.parquet"
    pd.DataFrame({"logit": SCORES, "y": Y, "w": WEIGHT}).to_parquet(path)
    return scan(path, Columns(label="y", logits="logit", **columns))


@each
def test_more_than_two_classes_raise(kind: Any) -> None:
    with pytest.raises(BadValueError) as caught:
        kind().fit([[0.2, 0.3, 0.5]], [1])
    assert str(caught.value) == (
        f"{kind.__name__} supports exactly 2 classes, got 3. Use OneVsRest({kind.__name__}())."
    )


@each
def test_both_columns_are_one_function_of_the_log_odds(kind: Any) -> None:
    calibrator = kind().fit(Logits(SCORES), Y)
    odds = calibrator._calibrated(SCORES)
    assert_allclose(said(calibrator), np.stack([expit(-odds), expit(odds)], axis=1), atol=1e-12)
    logits = calibrator.transform(Logits(SCORES)).array
    assert_allclose(logits, np.stack([log_expit(-odds), log_expit(odds)], axis=1), atol=1e-12)


@each
def test_logits_and_their_probabilities_are_the_same_rows(kind: Any) -> None:
    logits = np.stack([np.full(300, 5.0), SCORES + 5], axis=1)
    p = np.stack([expit(-SCORES), expit(SCORES)], axis=1)
    fits = [kind().fit(rows, Y) for rows in (Logits(logits), Probabilities(p), Members([p, p]))]
    for other in fits:
        assert_allclose(said(other), said(fits[0]), atol=1e-8)


@each
def test_a_weight_counts_as_so_many_rows(kind: Any) -> None:
    weighted = kind().fit(Logits(SCORES), Y, sample_weight=WEIGHT)
    rows = np.repeat(np.arange(300), WEIGHT.astype(int))
    repeated = kind().fit(Logits(SCORES[rows]), Y[rows])
    assert_allclose(said(weighted), said(repeated), atol=1e-9)


@each
def test_label_probabilities_count_as_rows_of_both_classes(kind: Any) -> None:
    shares = rng.choice([0.0, 0.25, 0.5, 1.0], 300)
    soft = kind().fit(Logits(SCORES), np.stack([1 - shares, shares], axis=1))
    twice, labels = np.tile(SCORES, 2), np.repeat([0, 1], 300)
    split = kind().fit(Logits(twice), labels, np.append(1 - shares, shares))
    assert_allclose(said(soft), said(split), atol=1e-9)


@each
def test_rows_without_a_label_teach_nothing(kind: Any) -> None:
    labels = np.where(SCORES > 2.5, np.nan, Y)
    with pytest.warns(MissingLabelsWarning):
        some = kind().fit(Logits(SCORES), labels)
    fewer = kind().fit(Logits(SCORES[SCORES <= 2.5]), Y[SCORES <= 2.5])
    assert_allclose(said(some), said(fewer), atol=1e-12)


@each
def test_streamed_is_as_held_but_for_the_grid(tmp_path: Path, kind: Any) -> None:
    held = kind().fit(Logits(SCORES), Y, WEIGHT)
    found = kind().fit(streamed(tmp_path, weight="w"))
    if kind is IsotonicCalibration:
        cells = np.floor((SCORES + 28) / 56 * 4096)
        held = kind().fit(Logits((cells + 0.5) / 4096 * 56 - 28), Y, WEIGHT)
        rounded = Logits((cells + 0.5) / 4096 * 56 - 28)
        is_taught = WEIGHT > 0
        expected = held.predict_proba(rounded)[is_taught]
        assert_allclose(said(found)[is_taught], expected, atol=1e-9)
    else:
        assert_allclose(said(found), said(held), atol=1e-9)


@pytest.mark.filterwarnings("ignore::dubito.errors.SingleClassWarning")
@each
@pytest.mark.parametrize("label", [0, 1])
def test_rows_of_one_class_alone_give_neither_0_nor_1(kind: Any, label: int) -> None:
    calibrator = kind().fit(Logits(SCORES), np.full(300, label))
    p = said(calibrator)[:, label]
    assert (p > 0.9).all()
    assert (p < 1).all()


@each
def test_weights_of_zero_raise(kind: Any) -> None:
    with pytest.raises(EmptyStateError, match="A calibrator needs at least 1 labeled row"):
        kind().fit(Logits(SCORES), Y, np.zeros(300))


@each
def test_learned_parameters_survive_json_and_are_in_the_summary(kind: Any) -> None:
    calibrator = kind().fit(Logits(SCORES), Y)
    again = kind.from_dict(calibrator.to_dict())
    assert_array_equal(said(again), said(calibrator))
    assert calibrator._describe() in calibrator.summary()


def test_rows_are_in_memory_or_streamed(tmp_path: Path) -> None:
    def total(rows: BinaryRows) -> Any:
        return np.array([rows.scores.sum(), rows.targets.sum(), rows.weight.sum()])

    (held,) = one_vs_rest_shards(labeled_shards(Logits(SCORES), Y, None, "test"), range(1, 2))
    first, second = one_vs_rest_shards(streamed(tmp_path), range(2))
    assert isinstance(held, ArrayShards)
    assert isinstance(second, MappedShards)
    assert_allclose(held.sum(total), [SCORES.sum(), Y.sum(), 300])
    assert_allclose(second.sum(total), held.sum(total))
    assert_allclose(first.sum(total), [-SCORES.sum(), 300 - Y.sum(), 300])

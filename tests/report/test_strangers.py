"""Distances of rows that taught nothing, and how well they tell strangers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dubito import Logits
from dubito.data.batch import Batch
from dubito.report.ood import _distance_from, strangeness


def made(n_rows: int = 200, shift: float = 0.0, is_labeled: bool = True) -> Batch:
    rng = np.random.default_rng(int(shift))
    labels = rng.integers(0, 3, n_rows)
    features = rng.normal(size=(n_rows, 5)) + 3 * np.eye(5)[labels]
    features[:, 4] += shift
    logits = Logits(3 * np.eye(3)[labels] + rng.normal(size=(n_rows, 3)))
    return Batch.of(labels if is_labeled else None, logits, features=features)


def test_areas_and_finds_are_those_of_plain_references() -> None:
    known, strange = made(), made(80, shift=4.0, is_labeled=False)
    found = strangeness(known, strange, 1)
    assert found is not None
    assert found.distance is not None
    assert found.strange_distance is not None
    assert found.strange_doubt is not None
    assert (found.n_taught, found.distance.size, found.is_by_class) == (100, 100, True)
    is_strange = np.repeat([0, 1], [100, 80])
    for area, a, b in (
        (found.area_of_distance, found.distance, found.strange_distance),
        (found.area_of_doubt, found.doubt, found.strange_doubt),
    ):
        assert area == pytest.approx(roc_auc_score(is_strange, np.concatenate([a, b])))
    n_above = (found.distance >= found.strange_distance[:, np.newaxis]).sum(axis=1)
    assert found.found == pytest.approx(((1 + n_above) / 101 < 0.05).mean())


def test_rows_that_taught_are_not_judged() -> None:
    known = made()
    found = strangeness(known, None, 1)
    assert found is not None
    order = np.random.default_rng(1).permutation(200)
    taught, judged = np.sort(order[:100]), np.sort(order[100:])
    fitted = _distance_from(known, taught)
    assert known.features is not None
    np.testing.assert_array_equal(found.distance, fitted.score(known.features[judged]))
    np.testing.assert_array_equal(found.is_right, known.rows.correct[judged] == 1)
    assert found.strange_doubt is None


def test_without_features_only_confidence_is_asked() -> None:
    bare: Any = replace(made(), features=None)
    found = strangeness(bare, made(30, shift=2.0, is_labeled=False), 0)
    assert found is not None
    assert (found.distance, found.found, found.n_taught) == (None, None, 0)
    assert found.area_of_doubt is not None
    assert strangeness(bare, None, 0) is None
    assert strangeness(made(39), None, 0) is None


def test_classes_of_one_row_are_taken_together() -> None:
    rng = np.random.default_rng(0)
    batch = Batch.of(
        np.arange(60), Logits(rng.normal(size=(60, 60))), features=rng.normal(size=(60, 2))
    )
    found = strangeness(batch, None, 0)
    assert found is not None
    assert not found.is_by_class

"""OOD scores are held out, and their AUROCs are those of scikit-learn."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dubito import Logits
from dubito.data import Batch
from dubito.report.summary import _fit_distance, _ood_scores


def made(n_rows: int = 200, shift: float = 0.0, is_labeled: bool = True) -> Batch:
    rng = np.random.default_rng(int(shift))
    labels = rng.integers(0, 3, n_rows)
    features = rng.normal(size=(n_rows, 5)) + 3 * np.eye(5)[labels]
    features[:, 4] += shift
    logits = Logits(3 * np.eye(3)[labels] + rng.normal(size=(n_rows, 3)))
    return Batch.of(labels if is_labeled else None, logits, features=features)


def test_aurocs_and_detections_match_plain_references() -> None:
    known, ood = made(), made(80, shift=4.0, is_labeled=False)
    found = _ood_scores(known, ood, 1)
    assert found is not None
    assert found.distance is not None
    assert found.ood_distance is not None
    assert found.ood_uncertainty is not None
    assert (found.n_fitted, found.distance.size, found.is_by_class) == (100, 100, True)
    is_ood = np.repeat([0, 1], [100, 80])
    for area, a, b in (
        (found.distance_roc_auc, found.distance, found.ood_distance),
        (found.confidence_roc_auc, found.uncertainty, found.ood_uncertainty),
    ):
        assert area == pytest.approx(roc_auc_score(is_ood, np.concatenate([a, b])))
    n_above = (found.distance >= found.ood_distance[:, np.newaxis]).sum(axis=1)
    assert found.detected == pytest.approx(((1 + n_above) / 101 < 0.05).mean())


def test_rows_used_for_fitting_are_not_scored() -> None:
    known = made()
    found = _ood_scores(known, None, 1)
    assert found is not None
    order = np.random.default_rng(1).permutation(200)
    fitted_on, scored = np.sort(order[:100]), np.sort(order[100:])
    fitted = _fit_distance(known, fitted_on)
    assert known.features is not None
    np.testing.assert_array_equal(found.distance, fitted.score(known.features[scored]))
    np.testing.assert_array_equal(found.is_correct, known.rows.correct[scored] == 1)
    assert found.ood_uncertainty is None


def test_without_features_only_confidence_is_used() -> None:
    bare: Any = replace(made(), features=None)
    found = _ood_scores(bare, made(30, shift=2.0, is_labeled=False), 0)
    assert found is not None
    assert (found.distance, found.detected, found.n_fitted) == (None, None, 0)
    assert found.confidence_roc_auc is not None
    assert _ood_scores(bare, None, 0) is None
    assert _ood_scores(made(39), None, 0) is None


def test_classes_of_one_row_are_pooled() -> None:
    rng = np.random.default_rng(0)
    batch = Batch.of(
        np.arange(60), Logits(rng.normal(size=(60, 60))), features=rng.normal(size=(60, 2))
    )
    found = _ood_scores(batch, None, 0)
    assert found is not None
    assert not found.is_by_class

"""Out-of-distribution rows: how well confidence and feature distance detect them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import final

import numpy as np

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.data.batch import Batch, row_statistics
from dubito.data.labels import Labels
from dubito.doubt import ConformalOutlierDetector, MahalanobisDistance
from dubito.errors import BadValueError, DubitoWarning
from dubito.measure import roc_auc

ALPHA = 0.05
MIN_ROWS = 40


@final
@dataclass(frozen=True, slots=True, eq=False)
class OODScores:
    """Uncertainty scores of held-out in-distribution rows, and of OOD rows where given.

    `distance` is the Mahalanobis distance of the features, None without features; `doubt` is
    1 - confidence. `detected` is the fraction of OOD rows beyond the distance that 5 % of
    in-distribution rows exceed. The areas are OOD detection AUROCs.
    """

    n_fitted: int
    is_by_class: bool
    is_correct: BoolArray
    weight: FloatArray
    distance: FloatArray | None
    doubt: FloatArray
    ood_distance: FloatArray | None
    ood_doubt: FloatArray | None
    detected: float | None
    distance_auroc: float | None
    doubt_auroc: float | None


def ood_scores(batch: Batch, ood: Batch | None, seed: int) -> OODScores | None:
    """Fit the distance on half of the rows, and score the other half and the OOD rows.

    None without both features and OOD rows, or with too few rows.
    """
    has_features = batch.features is not None and len(batch) >= MIN_ROWS
    if not has_features and ood is None:
        return None
    fitted_on, scored = np.empty(0, np.int64), np.arange(len(batch))
    distance = ood_distance = detected = None
    is_by_class = False
    if batch.features is not None and has_features:
        order = np.random.default_rng(seed).permutation(len(batch))
        fitted_on, scored = np.sort(order[: len(batch) // 2]), np.sort(order[len(batch) // 2 :])
        fitted = _fit_distance(batch, fitted_on)
        is_by_class = fitted.classes_ is not None
        distance = fitted.score(batch.features[scored])
        if ood is not None and ood.features is not None:
            ood_distance = fitted.score(ood.features)
            # Few rows: nothing is detected.
            with warnings.catch_warnings(action="ignore", category=DubitoWarning):
                detector = ConformalOutlierDetector(ALPHA).fit(distance, batch.weight[scored])
            detected = float(detector.predict(ood_distance).mean())
    doubt = batch.rows.least_confidence[scored]
    ood_doubt = None if ood is None else row_statistics(ood.outputs, None).least_confidence
    return OODScores(
        fitted_on.size,
        is_by_class,
        batch.rows.correct[scored] > 0.5,
        batch.weight[scored],
        distance,
        doubt,
        ood_distance,
        ood_doubt,
        detected,
        _detection_auroc(distance, ood_distance),
        _detection_auroc(doubt, ood_doubt),
    )


def _fit_distance(batch: Batch, rows: IntArray) -> MahalanobisDistance:
    """Fit the distance to the nearest class, or to all rows where classes have too few."""
    assert batch.features is not None
    features, labels = batch.features[rows], batch.labels
    distance = MahalanobisDistance(normalize=True)
    if isinstance(labels, Labels) and labels.probabilities is None:
        try:
            return distance.fit(features, labels.codes[rows])
        except BadValueError:
            pass  # rows do not differ within their classes
    return distance.fit(features)


def _detection_auroc(known: FloatArray | None, ood: FloatArray | None) -> float | None:
    """Return how well a score separates OOD rows from in-distribution rows."""
    if known is None or ood is None or not (known.size and ood.size):
        return None
    is_ood = np.repeat([False, True], [known.size, ood.size])
    return roc_auc(is_ood, np.concatenate([known, ood]))

"""Distances of rows from the training features, and which rows are out of distribution."""

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

EPSILON = 0.05
FEWEST_ROWS = 40


@final
@dataclass(frozen=True, slots=True, eq=False)
class Strangeness:
    """Doubts of known rows that no distance was learned from, and of strange ones, if any are given.

    `distance` is by features, None where there are none; `doubt` is least confidence. `found` is
    the share of strange rows in the region that 5 % of known rows fall into. The areas tell strange
    from known rows: 0.5 is guessing.
    """

    n_taught: int
    is_by_class: bool
    is_right: BoolArray
    weight: FloatArray
    distance: FloatArray | None
    doubt: FloatArray
    strange_distance: FloatArray | None
    strange_doubt: FloatArray | None
    found: float | None
    area_of_distance: float | None
    area_of_doubt: float | None


def strangeness(batch: Batch, strange: Batch | None, seed: int) -> Strangeness | None:
    """Learn the distance from half of the rows, and score the other half and strangers.

    None where there are neither features nor strangers, or too few rows.
    """
    is_enough = len(batch) >= FEWEST_ROWS
    if (batch.features is None or not is_enough) and strange is None:
        return None
    taught, judged = np.empty(0, np.int64), np.arange(len(batch))
    distance = strange_distance = found = None
    is_by_class = False
    if batch.features is not None and is_enough:
        order = np.random.default_rng(seed).permutation(len(batch))
        taught, judged = np.sort(order[: len(batch) // 2]), np.sort(order[len(batch) // 2 :])
        fitted = _distance_from(batch, taught)
        is_by_class = fitted.classes_ is not None
        known = distance = fitted.score(batch.features[judged])
        if strange is not None and strange.features is not None:
            strange_distance = fitted.score(strange.features)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DubitoWarning)  # of few rows: nothing is found
                region = ConformalOutlierDetector(EPSILON).fit(known, batch.weight[judged])
            found = float(region.predict(strange_distance).mean())
    doubt = batch.rows.least_confidence[judged]
    strange_doubt = (
        None if strange is None else row_statistics(strange.outputs, None).least_confidence
    )
    return Strangeness(
        taught.size,
        is_by_class,
        batch.rows.correct[judged] > 0.5,
        batch.weight[judged],
        distance,
        doubt,
        strange_distance,
        strange_doubt,
        found,
        _area_of(distance, strange_distance),
        _area_of(doubt, strange_doubt),
    )


def _distance_from(batch: Batch, taught: IntArray) -> MahalanobisDistance:
    """Learn the distance to the nearest class, or to all rows where classes have too few."""
    assert batch.features is not None
    features, labels = batch.features[taught], batch.labels
    distance = MahalanobisDistance(normalize=True)
    if isinstance(labels, Labels) and labels.probabilities is None:
        try:
            return distance.fit(features, labels.codes[taught])
        except BadValueError:
            pass  # of rows that do not differ within their classes
    return distance.fit(features)


def _area_of(known: FloatArray | None, strange: FloatArray | None) -> float | None:
    """Return how well a doubt tells strange rows from known ones."""
    if known is None or strange is None or not (known.size and strange.size):
        return None
    is_strange = np.repeat([False, True], [known.size, strange.size])
    return roc_auc(is_strange, np.concatenate([known, strange]))

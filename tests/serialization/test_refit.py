"""A second fit replaces the first one, also where the first one was used."""

import numpy as np
import pytest

from dubito.calibrate import ForestCalibration
from dubito.doubt import ClassConditionalDensity, MahalanobisDistance, NearestNeighborDistance


@pytest.mark.parametrize(
    "score", [MahalanobisDistance, ClassConditionalDensity, NearestNeighborDistance]
)
def test_a_score_can_be_fitted_again(score: type) -> None:
    rows = np.random.default_rng(0).normal(size=(100, 3))
    used = score().fit(rows)
    used.score(rows)
    assert (
        used.fit(2 * rows + 5).score(rows).tolist()
        == score().fit(2 * rows + 5).score(rows).tolist()
    )


def test_a_forest_can_be_fitted_again() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(500)
    first, second = (rng.random(500) < p**power for power in (1, 3))
    used = ForestCalibration(n_estimators=5).fit(p, first)
    used.predict_proba(p)
    fresh = ForestCalibration(n_estimators=5).fit(p, second)
    assert used.fit(p, second).predict_proba(p).tolist() == fresh.predict_proba(p).tolist()

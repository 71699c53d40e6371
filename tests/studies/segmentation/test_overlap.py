"""Overlaps are those of scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics

from studies.segmentation.overlap import overlap


def test_overlap_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth, said = rng.integers(0, 4, (2, 3, 8, 8))
    pair = truth.ravel(), said.ravel()
    found = overlap(truth, said, 4)
    shapes = {"labels": [1, 2, 3], "average": "macro"}
    assert found.dice == pytest.approx(metrics.f1_score(*pair, **shapes))
    assert found.iou == pytest.approx(metrics.jaccard_score(*pair, **shapes))
    assert overlap(truth * 0, truth * 0, 4) == (1.0, 1.0)

"""Adding a number to all logits of a row changes nothing, however large the number."""

from typing import Any

import numpy as np
import pytest

from dubito import Logits
from dubito.calibrate import (
    AutoCalibrator,
    ForestCalibration,
    HistogramBinning,
    IsotonicCalibration,
    OneVsRest,
    StructuredMatrixScaling,
    TemperatureScaling,
)
from dubito.doubt import generalized_entropy, least_confidence

RNG = np.random.default_rng(0)
Z = 3 * RNG.normal(size=(200, 3))
Y = (Z / 2 + RNG.gumbel(size=Z.shape)).argmax(axis=1)
OFFSETS = [1e12, 1e16, 1e30, -1e30]


@pytest.mark.parametrize(
    "calibrator",
    [
        AutoCalibrator(max_parts=None),
        ForestCalibration(n_estimators=5),
        OneVsRest(HistogramBinning()),
        OneVsRest(IsotonicCalibration()),
        StructuredMatrixScaling(),
        TemperatureScaling(),
    ],
    ids=lambda one: str(one),
)
@pytest.mark.slow
def test_calibrated_probabilities_do_not_depend_on_row_offsets(calibrator: Any) -> None:
    fitted = calibrator.fit(Logits(Z), Y)
    wanted = fitted.predict_proba(Logits(np.zeros((1, 3))))
    for offset in OFFSETS:
        found = fitted.predict_proba(Logits(np.full((1, 3), offset)))
        np.testing.assert_allclose(found, wanted, atol=1e-12, err_msg=f"{offset:g}")


@pytest.mark.parametrize("score", [generalized_entropy, least_confidence])
def test_scores_do_not_depend_on_row_offsets(score: Any) -> None:
    wanted = score(Logits(np.zeros((1, 3))))
    for offset in OFFSETS:
        np.testing.assert_allclose(score(Logits(np.full((1, 3), offset))), wanted, rtol=1e-12)

"""A mixture whose parts and shares are settled."""

import numpy as np

from dubito import Logits
from dubito.calibrate import AutoCalibrator, IdentityCalibrator, TemperatureScaling
from dubito.calibrate.auto import FixedMixture


def rows_of(seed: int, n_rows: int = 400) -> tuple[Logits, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = 3 * rng.normal(size=(n_rows, 3))
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return Logits(logits), labels


def test_it_is_the_mean_of_its_parts_by_their_shares() -> None:
    outputs, labels = rows_of(0)
    mixture = FixedMixture([IdentityCalibrator(), TemperatureScaling()], np.array([0.25, 0.75]))
    found = mixture.fit(outputs, labels).predict_proba(outputs)
    parts = [one.fit(outputs, labels) for one in (IdentityCalibrator(), TemperatureScaling())]
    wanted = 0.25 * parts[0].predict_proba(outputs) + 0.75 * parts[1].predict_proba(outputs)
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    assert mixture.summary().startswith("a mixture of 2 calibrators; log loss")


def test_on_all_rows_it_says_what_the_contest_chose() -> None:
    outputs, labels = rows_of(1)
    auto = AutoCalibrator().fit(outputs, labels)
    again = auto.for_folds().fit(outputs, labels)
    np.testing.assert_allclose(again.predict_proba(outputs), auto.predict_proba(outputs))


def test_what_is_fitted_to_folds_knows_nothing_of_all_rows() -> None:
    outputs, labels = rows_of(2)
    fitted = TemperatureScaling(objective="ece", n_bins=7).fit(outputs, labels)
    fresh = fitted.for_folds()
    assert isinstance(fresh, TemperatureScaling)
    assert fresh.get_params() == fitted.get_params()
    assert not hasattr(fresh, "temperature_")

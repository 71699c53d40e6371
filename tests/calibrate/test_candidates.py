import numpy as np
import pytest

from dubito import Logits
from dubito.calibrate import IdentityCalibrator, StructuredMatrixScaling, TemperatureScaling
from dubito.calibrate.auto import _candidates

LOGITS = np.random.default_rng(0).normal(size=(40, 3))


def test_as_it_came_changes_nothing() -> None:
    shares = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    fitted = IdentityCalibrator().fit(Logits(LOGITS), np.zeros(40, int))
    assert fitted.predict_proba(Logits(LOGITS)) == pytest.approx(shares, abs=1e-12)
    assert "left as they came" in fitted.summary()


@pytest.mark.parametrize("n_classes", [2, 3, 100, 101, 250, 251, 1000])
@pytest.mark.parametrize("n_rows", [10, 999, 1000, 100_000])
def test_the_first_two_are_doing_nothing_and_the_simplest(n_classes: int, n_rows: int) -> None:
    tried = list(_candidates(n_classes, n_rows))
    assert isinstance(tried[0], IdentityCalibrator)
    assert isinstance(tried[1], TemperatureScaling)
    assert len({repr(one) for one in tried}) == len(tried)


def test_more_rows_allow_more_and_more_classes_less() -> None:
    few, many = (list(_candidates(10, n_rows)) for n_rows in (100, 10_000))
    assert {repr(one) for one in few} < {repr(one) for one in many}
    matrices = {
        n_classes: [one for one in _candidates(n_classes, 10_000) if is_matrix(one)]
        for n_classes in (10, 150, 1000)
    }
    assert len(matrices[10]) > len(matrices[150]) > len(matrices[1000]) == 0
    assert {one.basis for one in matrices[150]} == {"linear"}


def is_matrix(calibrator: object) -> bool:
    return isinstance(calibrator, StructuredMatrixScaling)


def test_every_candidate_takes_two_classes_or_many() -> None:
    rng = np.random.default_rng(0)
    for n_classes in (2, 4):
        y = rng.integers(0, n_classes, 60)
        logits = Logits(np.eye(n_classes)[y] + rng.normal(size=(60, n_classes)))
        for one in _candidates(n_classes, 1000):
            p = one.fit(logits, y).predict_proba(logits)
            assert p.sum(axis=1) == pytest.approx(np.ones(60))


@pytest.mark.parametrize("n_classes", [2, 3, 100, 1000])
def test_parametric_candidates_are_all_but_two_kinds(n_classes: int) -> None:
    every, parametric = (
        [repr(one) for one in _candidates(n_classes, 10_000, parametric_only)]
        for parametric_only in (False, True)
    )
    assert parametric == [one for one in every if "Isotonic" not in one and "Forest" not in one]
    assert len(parametric) < len(every)

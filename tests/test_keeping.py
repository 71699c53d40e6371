"""What is kept comes back the same, and what cannot be read says so."""

import json
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import KFold

from dubito import Logits, Normal
from dubito.calibrate import (
    AbstractCalibrator,
    AutoCalibrator,
    OneVsRest,
    PlattScaling,
    QuantileRecalibration,
    TemperatureScaling,
    VarianceScaling,
)
from dubito.errors import BadTypeError, BadValueError, UnfittedError
from dubito.keeping import revived, to_plain

EMPTY: dict[str, Any] = {"format": 1, "settings": {}, "learned": {}}
LABELS = np.arange(30) % 3
LOGITS = np.eye(3)[LABELS] + np.random.default_rng(0).normal(size=(30, 3))


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 0.5, "name", [], [1.0, 2.0], [[1.0], [2.0, 3.0]], [{"a": [1.0]}], {"b": None}],
)
def test_plain_things_survive(value: Any) -> None:
    assert to_plain(revived(json.loads(json.dumps(to_plain(value))))) == value


def test_a_calibrator_inside_a_calibrator_survives_fitted_or_not() -> None:
    fitted = OneVsRest(PlattScaling()).fit(Logits(LOGITS), LABELS)
    kept = json.loads(json.dumps(fitted.to_dict()))
    assert kept["settings"]["calibrator"]["learned"] == {}
    twin = AbstractCalibrator.from_dict(kept)
    assert isinstance(twin, OneVsRest)
    assert [type(one) for one in twin.calibrators_] == [PlattScaling] * 3
    with pytest.raises(UnfittedError):
        twin.calibrator.to_dict()


def test_names_of_classes_come_back_as_they_were() -> None:
    for names in (("a", "b", "c"), (10, 20, 30), (True, "x", 1.5)):
        fitted = TemperatureScaling().fit(Logits(LOGITS, names), [names[k] for k in LABELS])
        twin = TemperatureScaling.from_dict(json.loads(json.dumps(fitted.to_dict())))
        assert twin.classes_ == names
        assert twin.n_classes_ == 3


def test_a_splitter_is_not_kept() -> None:
    fitted = AutoCalibrator(cv=KFold(3), time_budget=0).fit(Logits(LOGITS), LABELS)
    assert "cv" not in fitted.to_dict()["settings"]
    assert AutoCalibrator.from_dict(fitted.to_dict()).cv == 5


def test_regressions_are_kept_too() -> None:
    rng = np.random.default_rng(0)
    outputs, y = Normal(np.zeros((50, 2)), np.ones((50, 2))), rng.normal(size=(50, 2))
    for kind in (VarianceScaling, QuantileRecalibration):
        fitted = kind().fit(outputs, y)
        twin = kind.from_dict(json.loads(json.dumps(fitted.to_dict())))
        first, second = fitted.transform(outputs), twin.transform(outputs)
        for name in ("mean", "std", "array"):
            if hasattr(first, name):
                assert np.array_equal(getattr(first, name), getattr(second, name))


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([1], BadTypeError, "must be what `to_dict` wrote. Got a list."),
        ({}, BadTypeError, "must be what `to_dict` wrote. Got a dict."),
        ({"format": 2}, BadTypeError, "Got format 2. Try the version of dubito that wrote it."),
        ({"format": 1}, BadTypeError, "Got a dict."),
        ({**EMPTY, "kind": "Guess"}, BadValueError, "Got 'Guess'."),
        ({**EMPTY, "kind": "PlattScaling"}, BadValueError, "Got 'PlattScaling'."),
    ],
)
def test_what_cannot_be_read_says_so(values: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        TemperatureScaling.from_dict(values)
    assert message in str(caught.value)

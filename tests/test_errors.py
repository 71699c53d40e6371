"""Errors belong to one tree, name place and problem, and survive a trip between processes."""

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from dubito import errors
from dubito.calibrate import CalibratedClassifier, TemperatureScaling
from dubito.decide import CostMatrix, CostSensitiveClassifier
from dubito.errors import (
    BadFileError,
    BadTypeError,
    BadValueError,
    BoundWarning,
    DubitoError,
    DubitoWarning,
    EmptyStateError,
    InfiniteLossWarning,
    MissingExtraError,
    MissingLabelsWarning,
    SingleClassWarning,
    StateMismatchError,
    TooLargeError,
    UnfittedError,
)

RULE = ("array", "Logits", "must be finite", "nan", "Drop invalid rows")

EXAMPLES: list[Exception] = [
    BadValueError(*RULE, 3, "dog"),
    TooLargeError(*RULE),
    BadTypeError(*RULE),
    BadFileError("a.csv", "it is empty", "Pass another file"),
    EmptyStateError("Accuracy"),
    StateMismatchError("bin edges", [0.0, 1.0], [0.0, 0.5, 1.0]),
    MissingExtraError("Training", "torch"),
    UnfittedError("TemperatureScaling", "predict_proba"),
    BoundWarning("bound"),
    InfiniteLossWarning("infinite"),
    MissingLabelsWarning("missing"),
    SingleClassWarning("single"),
]

each_example = pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            BadValueError(*RULE),
            "Logits: `array` must be finite, got nan. Drop invalid rows.",
        ),
        (
            BadValueError(*RULE, 3),
            "Logits: `array` must be finite, got nan in row 3. Drop invalid rows.",
        ),
        (
            BadValueError(*RULE, 0, 0),
            "Logits: `array` must be finite, got nan in row 0, column 0. Drop invalid rows.",
        ),
        (
            BadTypeError(*RULE, column="dog"),
            "Logits: `array` must be finite, got nan in column dog. Drop invalid rows.",
        ),
        (
            BadFileError("a.csv", "it is empty", "Pass another file"),
            "a.csv cannot be read: it is empty. Pass another file.",
        ),
        (
            EmptyStateError("Accuracy"),
            "Accuracy needs at least 1 labeled row of positive weight, got 0. Pass at least one "
            "labeled row with a positive weight.",
        ),
        (
            EmptyStateError("ConformalOutlierDetector", is_labeled=False),
            "ConformalOutlierDetector needs at least 1 row of positive weight, got 0. Pass at "
            "least one row with a positive weight.",
        ),
        (
            StateMismatchError("bin edges", [0, 1], [0, 0.5, 1]),
            "States can be added only if their bin edges are equal, got [0, 1] and [0, 0.5, 1]. "
            "Make both with the same settings.",
        ),
        (
            MissingExtraError("Training", "torch"),
            "Training needs PyTorch, which is not installed. Run `pip install 'dubito[torch]'`.",
        ),
        (
            MissingExtraError("Reading", "dask", "fsspec"),
            "Reading needs fsspec, which is not installed. Run `pip install 'dubito[dask]'`.",
        ),
    ],
)
def test_message(error: DubitoError, message: str) -> None:
    assert str(error) == message


def test_a_broken_rule_is_known_part_by_part() -> None:
    error = BadValueError(*RULE, 3, "dog")
    assert (error.argument, error.caller, error.rule, error.got, error.fix) == RULE
    assert (error.row, error.column) == (3, "dog")


@each_example
@pytest.mark.parametrize(
    "duplicate",
    [
        pytest.param(lambda error: pickle.loads(pickle.dumps(error)), id="pickle"),
        copy.copy,
        copy.deepcopy,
    ],
)
def test_errors_round_trip(error: Exception, duplicate: Callable[[Any], Any]) -> None:
    restored = duplicate(error)
    assert type(restored) is type(error)
    assert str(restored) == str(error)
    assert vars(restored) == vars(error)


@each_example
def test_every_error_and_warning_is_also_one_of_pythons_own(error: Exception) -> None:
    if isinstance(error, Warning):
        assert isinstance(error, DubitoWarning)
        assert isinstance(error, UserWarning)
    else:
        assert isinstance(error, DubitoError)
        assert isinstance(error, ValueError | TypeError | ImportError)


def test_examples_are_all_there_are() -> None:
    roots = {"DubitoError", "DubitoWarning"}
    assert {type(error).__name__ for error in EXAMPLES} | roots == set(errors.__all__)


def test_the_tree_is_drawn_as_it_grows() -> None:
    drawn = re.findall(r"[├└]── (\w+) *(?:\((\w+)\))?", errors.__doc__ or "")
    assert sorted(name for name, _ in drawn) == errors.__all__
    for name, parent in drawn:
        assert parent in ("", *(base.__name__ for base in getattr(errors, name).__bases__))


def test_unfitted_estimators_raise_an_error_that_scikit_learn_knows() -> None:
    unfitted = (
        TemperatureScaling(),
        CalibratedClassifier(LogisticRegression()),
        CostSensitiveClassifier(LogisticRegression(), CostMatrix.zero_one(2)),
    )
    for one in unfitted:
        with pytest.raises(NotFittedError, match=f"This {type(one).__name__} .* before") as caught:
            one.predict_proba([[0.5, 0.5]])
        assert isinstance(caught.value, errors.UnfittedError)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)

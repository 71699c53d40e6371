"""Labels and targets: missing and invalid ones, and ranges of rows."""

from typing import Any

import numpy as np
import pytest

from dubito import Logits, Members, Probabilities
from dubito.data.labels import Labels, Targets
from dubito.errors import BadTypeError, BadValueError

OUTPUTS = Logits(np.zeros((3, 2)))
VOTES = np.array([[0.25, 0.75], [np.nan, np.nan], [1.0, 0.0]])


@pytest.mark.parametrize(
    "outputs", [OUTPUTS, Probabilities([0.5] * 3), Members(np.full((4, 3, 2), 0.5))]
)
def test_rows_and_classes_are_those_of_the_outputs(outputs: Any) -> None:
    labels = Labels.of([1, np.nan, 0], outputs)
    assert labels.codes.tolist() == [1, -1, 0]
    assert labels.is_missing.tolist() == [False, True, False]
    assert labels.n_missing == 1
    assert labels.probabilities is None


def test_label_probabilities_are_kept_in_float64() -> None:
    labels = Labels.of(VOTES.astype(np.float32), OUTPUTS)
    assert labels.probabilities is not None
    assert labels.probabilities.dtype == np.float64
    assert labels.probabilities[[0, 2]].tolist() == [[0.25, 0.75], [1.0, 0.0]]
    assert labels.is_missing.tolist() == [False, True, False]


def test_label_probabilities_are_left_unchanged() -> None:
    votes = VOTES.copy()
    Labels.of(votes, OUTPUTS)
    np.testing.assert_array_equal(votes, VOTES)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([[0.5, 0.5], [0.2, 0.2], [1, 0]], "rows that sum to 1, got a sum of 0.4 in row 1"),
        ([[0.5, 0.5], [1, 0], [np.nan, 1]], "finite, got nan in row 2, column 0"),
        (
            [[0], [1], [0]],
            r"one label per row, or rows x 2 label probabilities, got shape \(3, 1\)",
        ),
        ([0, 1], "must have length 3"),
    ],
)
def test_what_labels_cannot_be(y: Any, words: str) -> None:
    with pytest.raises(BadValueError, match=words):
        Labels.of(y, OUTPUTS)


def test_targets_may_be_missing_one_by_one() -> None:
    one, two = Targets.of([1.0, np.nan], 2), Targets.of([[1.0, 2.0], [3.0, np.nan]], 2)
    for targets in (one, two):
        assert targets.is_missing.tolist() == [False, True]
        assert targets.n_missing == 1


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([1.0, np.inf], "finite, got inf in row 1"),
        ([1.0], "must have length 2"),
        (np.zeros((2, 1, 1)), "rows, or rows x targets"),
    ],
)
def test_what_targets_cannot_be(y: Any, words: str) -> None:
    with pytest.raises(BadValueError, match=words):
        Targets.of(y, 2)


def test_targets_are_numbers() -> None:
    with pytest.raises(BadTypeError, match="numbers"):
        Targets.of(["high", "low"], 2)


def test_a_range_of_rows_is_a_view() -> None:
    labels, targets = Labels.of(VOTES, OUTPUTS), Targets.of([1.0, 2.0, 3.0], 3)
    part = labels.take(slice(1, 3))
    assert part.codes.tolist() == [-1, 0]
    assert labels.probabilities is not None
    assert part.probabilities is not None
    assert np.shares_memory(part.probabilities, labels.probabilities)
    assert targets.take(slice(1, 2)).values.tolist() == [2.0]
    assert Labels.of([0, 1, 1], OUTPUTS).take(slice(1, 3)).probabilities is None


def test_nothing_can_be_written_to() -> None:
    labels, targets = Labels.of(VOTES, OUTPUTS), Targets.of([1.0, 2.0, 3.0], 3)
    for array in (labels.codes, labels.probabilities, targets.values):
        assert array is not None
        assert not array.flags.writeable


def test_the_first_bad_row_is_reported_however_labels_sort() -> None:
    with pytest.raises(BadValueError, match="got 99 in row 1"):
        Labels.of([10, 99, 5], Probabilities([[0.5, 0.5]] * 3, classes=[10, 20]))


def test_lists_of_names_and_gaps_are_taken_as_they_are() -> None:
    named = Probabilities([[0.5, 0.5]] * 3, classes=["cat", 7])
    assert Labels.of(["cat", float("nan"), 7], named).codes.tolist() == [0, -1, 1]


def test_one_hot_booleans_are_label_probabilities() -> None:
    labels = Labels.of(np.array([[True, False], [False, True]]), Probabilities([[0.5, 0.5]] * 2))
    assert labels.probabilities is not None
    assert labels.probabilities.tolist() == [[1, 0], [0, 1]]

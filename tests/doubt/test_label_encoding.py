"""Classes are those that occur, however their labels are written."""

from typing import Any

import numpy as np
import pytest

from dubito.doubt import MahalanobisDistance
from dubito.doubt.features import _encode_labels
from dubito.errors import BadTypeError, BadValueError


@pytest.mark.parametrize(
    ("y", "codes", "classes"),
    [
        ([3, 1, 3], [1, 0, 1], (1, 3)),
        (np.array([2.0, np.nan, 0.0]), [1, -1, 0], (0, 2)),
        ([2, None, 0], [1, -1, 0], (0, 2)),
        ([True, False], [1, 0], (False, True)),
        (["dog", "cat", None], [1, 0, -1], ("cat", "dog")),
        (["dog", float("nan")], [0, -1], ("dog",)),
        (np.array(["b", "a"]), [1, 0], ("a", "b")),
        ([None, None], [-1, -1], ()),
        (["a", 2], [1, 0], (2, "a")),
        (np.array([7, 7], np.uint8), [0, 0], (7,)),
    ],
)
def test_codes_are_places_among_the_sorted_classes(
    y: Any, codes: list[int], classes: tuple[Any, ...]
) -> None:
    found, names = _encode_labels(y, len(y), "caller")
    assert found.tolist() == codes
    assert names == classes
    assert [type(name) for name in names or ()] == [type(name) for name in classes]


def test_no_labels_are_one_class_without_a_name() -> None:
    codes, classes = _encode_labels(None, 3, "caller")
    assert codes.tolist() == [0, 0, 0]
    assert classes is None


RULE = "`y` must hold integers from 0 up, or class names, got"


@pytest.mark.parametrize(
    ("y", "kind", "text"),
    [
        ([0, -1], BadValueError, f"{RULE} -1 in row 1. Use None or NaN for a missing label."),
        ([0.5, 1], BadValueError, f"{RULE} 0.5 in row 0. Use one integer per class"),
        ([0, np.inf], BadValueError, f"{RULE} inf in row 1. Use one integer per class"),
        (
            np.array(["a", b"b"], dtype=object),
            BadTypeError,
            f"{RULE} a bytes in row 1. Use a name or an integer in every row",
        ),
        (
            [[0], [1]],
            BadValueError,
            r"`y` .*, got shape \(2, 1\)\. Use `\.ravel\(\)` for a single column",
        ),
        (
            [0, 1, 0],
            BadValueError,
            r"`y` .*, got length 3\. Align both in the same row order",
        ),
    ],
)
def test_invalid_labels_raise(y: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        _encode_labels(y, 2, "caller")


def test_several_labels_per_row_are_no_classes() -> None:
    with pytest.raises(BadValueError, match=r"got shape \(3, 2\). Leave `y` out if a row has sev"):
        MahalanobisDistance().fit(np.eye(3), [[0, 1], [1, 1], [0, 0]])

"""Classes are those that occur, however their labels are written."""

from typing import Any

import numpy as np
import pytest

from dubito.doubt.features import _codes_and_classes
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
    found, names = _codes_and_classes(y, len(y), "caller")
    assert found.tolist() == codes
    assert names == classes
    assert [type(name) for name in names or ()] == [type(name) for name in classes]


def test_no_labels_are_one_class_without_a_name() -> None:
    codes, classes = _codes_and_classes(None, 3, "caller")
    assert codes.tolist() == [0, 0, 0]
    assert classes is None


RULE = "`y` of caller must be class numbers from 0 up, or names."


@pytest.mark.parametrize(
    ("y", "kind", "text"),
    [
        ([0, -1], BadValueError, f"{RULE} Got -1 in row 1. Try NaN or None for a missing label."),
        ([0.5, 1], BadValueError, f"{RULE} Got 0.5 in row 0. Try one whole number a class."),
        ([0, np.inf], BadValueError, f"{RULE} Got inf in row 1. Try one whole number a class."),
        (
            np.array(["a", b"b"], dtype=object),
            BadTypeError,
            f"{RULE} Got a bytes in row 1. Try a name or a whole number in every row.",
        ),
        (
            [[0, 1], [1, 0]],
            BadValueError,
            "caller: `y` must be one label per row, got shape (2, 2). Use `.ravel()` for a "
            "single column.",
        ),
        (
            [0, 1, 0],
            BadValueError,
            "caller: `y` must have length 2, like the features, got length 3. Align both in the "
            "same row order.",
        ),
    ],
)
def test_labels_that_are_none_are_refused(y: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        _codes_and_classes(y, 2, "caller")
    assert str(caught.value) == text

"""What cells of text stand for."""

import math
from typing import Any

import pytest

from dubito.data.parsing import GAPS, labels, number, number_or_boolean


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("3.0", 3), (" -1.5 ", -1.5), ("1e3", 1000), ("inf", math.inf)],
)
def test_texts_that_spell_numbers(text: str, value: float) -> None:
    assert number(text) == number_or_boolean(text) == value


@pytest.mark.parametrize("text", ["", "cat", "1,5", "1_000", "0x10", "1 2", "--1"])
def test_texts_that_do_not(text: str) -> None:
    assert number(text) is None
    assert number_or_boolean(text) is None


def test_true_is_1_and_false_is_0() -> None:
    assert [number_or_boolean(text) for text in ("true", "True", " FALSE", "0.5")] == [1, 1, 0, 0.5]


@pytest.mark.parametrize(
    ("values", "classes", "meant"),
    [
        (["cat", "NA", ""], ["cat", "dog"], ["cat", None, None]),
        (["NA", "None", "null"], ["NA", "None"], ["NA", "None", None]),
        (["1", "2.0", "x", "nan", "7"], [1, 2, 3], [1, 2, "x", None, 7]),
        (["01", "1"], ["01", "1"], ["01", "1"]),
        (["True", "false"], [0, 1], [1, 0]),
        ([True, False], ["False", "True"], ["True", "False"]),
        ([True, 2, 2.5, None], [0, 1, 2], [True, 2, 2.5, None]),
        ([1, 2], ["1", "2"], [1, 2]),
        (["Cat"], ["cat"], ["Cat"]),
    ],
)
def test_labels_stand_for_classes_gaps_or_themselves(
    values: list[Any], classes: list[Any], meant: list[Any]
) -> None:
    assert labels(values, classes) == meant


def test_a_gap_is_never_a_number() -> None:
    assert all(number(gap) is None or math.isnan(number(gap) or 0) for gap in GAPS)


def test_whole_numbers_are_exact_however_large() -> None:
    assert number("9007199254740993") == 9007199254740993
    assert number(" -12 ") == -12


def test_where_gaps_are_gaps_no_text_stands_for_one() -> None:
    assert labels(["NA", "cat"], classes=["cat", "dog"], gaps=frozenset()) == ["NA", "cat"]

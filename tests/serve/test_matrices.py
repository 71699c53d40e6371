from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.errors import BadTypeError, BadValueError
from dubito.serve.matrices import as_row_costs, as_rows, counted, told
from dubito.serve.refusals import RefusedError
from dubito.serve.settings import Settings

SETTINGS = Settings(max_samples=3, most_columns=4)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ([], "no row"),
        ([[]], "rows without numbers"),
        (np.empty((0, 2)), "no row"),
        ([[1, 2], [3]], "1 number in row 1, 2 in row 0"),
        ([[1], [3, 4]], "2 numbers in row 1, 1 in row 0"),
        ([["1", "x"]], '"1" in row 0, column 0'),
        ([[1, 2], [None, 1]], "null in row 1, column 0"),
        ([[1, [2]]], "a list in row 0, column 1"),
        ([[10**400, 1]], "what is no finite number"),
        ([1, 2], "1 in row 0"),
        (np.array([1.5, 2.0]), "1.5 in row 0"),
        ("ab", '"ab"'),
        ("a" * 90, '"' + "a" * 49 + "..."),
        ({"a": 1}, "an object"),
    ],
)
def test_what_is_no_list_of_rows_is_told_in_the_words_of_a_request(value: Any, got: str) -> None:
    with pytest.raises(RefusedError) as refused:
        as_rows(value, "logits", SETTINGS)
    assert str(refused.value) == (
        "`logits` must be a list of rows, each a list of numbers, all of one length. "
        f'Got {got}. Try "logits": [[2.5, -1.0], [0.5, 0.0]].'
    )


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ([1, -1], "-1"),
        (7, "7"),
        ([1], "1 for 2 rows"),
        (["x", 1], '"x"'),
        ([[1], [2]], "a list"),
        ([None, 1], "null"),
        ([10**400, 1], "what is no finite number"),
        (np.array([np.nan, 1]), "what is no finite number"),
        ([1, float("inf")], "what is no finite number"),
    ],
)
def test_amounts_are_one_a_row(value: Any, got: str) -> None:
    with pytest.raises(RefusedError) as refused:
        as_row_costs(value, 2)
    assert str(refused.value) == (
        "`row_costs` must be a list of one number a row, 0 or above. "
        f'Got {got}. Try "row_costs": [120.0].'
    )


def test_numbers_are_kept() -> None:
    found = as_rows([[1, 2.5]], "logits", SETTINGS)
    assert found.tolist() == [[1.0, 2.5]]
    assert found.dtype == np.float32
    row_costs = as_row_costs([0, 3.5], 2)
    assert row_costs is not None
    assert row_costs.tolist() == [0.0, 3.5]
    assert as_row_costs(None, 2) is None


def test_a_rule_of_the_library_is_told_without_its_words() -> None:
    wrong = BadValueError("array", "Logits", "finite", "nan", "`.clip(0)`", 3, 1)
    assert str(told(wrong, "logits", "numbers")) == (
        "`logits` must be finite. Got nan in row 3, column 1. Try numbers."
    )
    none = BadTypeError("features", "Policy.decide", "given", "None", "features")
    assert str(told(none, "features", "them")) == "`features` must be given. Got none. Try them."


def test_one_is_one() -> None:
    assert (counted(1, "row"), counted(2000, "row")) == ("1 row", "2,000 rows")


@given(ANYTHING)
def test_whatever_comes_is_a_matrix_or_refused(value: Any) -> None:
    said = ""
    try:
        assert np.isfinite(as_rows(value, "logits", SETTINGS)).all()
    except (RefusedError, BadValueError) as error:
        said = str(error)
    assert "astype" not in said
    assert "reshape" not in said

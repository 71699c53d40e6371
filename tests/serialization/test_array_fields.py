"""Arrays are read from lists as from arrays, digit by digit, and anything else raises."""

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.errors import BadValueError
from dubito.serialization.array_fields import array, distribution, require_each, require_increasing
from dubito.serialization.fields import MAX_FLOAT, Check, Entry

ENTRY = Entry("fitted.x_", "Kind.from_dict", {"n_": 2, "none_": None, "list_": [1.0, 2.0, 3.0]})

LIST = "a ragged list, or one of other values."
ARRAY = "an array of shape"
INSIDE = "numbers from -1e+30 to 1e+30, got"
WHOLES = array(None, is_whole=True)


@pytest.mark.parametrize(
    ("check", "value", "said"),
    [
        (array(None), [], "a list of numbers, got 0."),
        (array(None), 3.0, "a list of numbers, got 3.0."),
        (array("n_"), [1.0], "a list of 2 numbers, got 1."),
        (array("none_"), [1.0, 2.0], "a list of 1 numbers, got 2."),
        (array("n_", None), [[1.0], [2.0, 3.0]], f"an array of 2 x n numbers, got {LIST}"),
        (array("n_", 2), [[1.0], [2.0]], "an array of 2 x 2 numbers, got 2 x 1."),
        (array(None), [True, 1.0], f"a list of numbers, got {LIST}"),
        (array(None), [1.0, 10**400], f"a list of numbers, got {LIST}"),
        (array(None), [1.0, 2**53 + 1], f"a list of numbers, got {LIST}"),
        (array(None, low=0), [1.0, -1.0], "numbers from 0 to 1e+30, got -1.0 in row 1."),
        (array(None, high=MAX_FLOAT), [np.nan], "numbers of at least -1e+30, got nan in row 0."),
        (array(None, None), [[1.0, np.inf]], f"{INSIDE} inf in row 0, column 1."),
        (array(None, is_whole=True), [1.0], f"a list of integers, got {LIST}"),
        (WHOLES, np.array([2**60]), f"a list of integers, got {ARRAY} (1,) and type int64."),
        (array(None), np.array(["1"]), f"a list of numbers, got {ARRAY} (1,) and type <U1."),
        (array(None), np.array([True]), f"a list of numbers, got {ARRAY} (1,) and type bool."),
        (array(None), np.ones((1, 1)), f"a list of numbers, got {ARRAY} (1, 1) and type float64."),
        (distribution(2), [0.5, 0.6], "probabilities that sum to 1, got a sum of 1.1."),
        (distribution(2), [-0.5, 1.5], "numbers from 0 to 1, got -0.5 in row 0."),
    ],
)
def test_values_that_are_no_array_raise(check: Check, value: Any, said: str) -> None:
    with pytest.raises(BadValueError) as caught:
        check(value, ENTRY)
    assert str(caught.value) == (
        f"Kind.from_dict: `fitted.x_` must be {said} Restore the values as they were written."
    )


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", "<f2", "<i4", "|u1"])
def test_arrays_are_copied_to_what_kernels_take(dtype: str) -> None:
    given = np.asfortranarray(np.array([[1, 2], [3, 4]], dtype))
    found = array("n_", "n_")(given, ENTRY)
    is_short = dtype in ("<f4", "<f2")
    assert found.dtype == (np.float32 if is_short else np.float64)
    assert found.dtype.isnative
    assert found.flags.c_contiguous
    assert found.tolist() == given.tolist()
    given[:] = 0
    assert found.tolist() == [[1, 2], [3, 4]]


def test_lists_of_arrays_are_lists_of_lists() -> None:
    rows = [np.array([1.0, 2.0]), np.array([3.0, 4.0])]
    assert array("n_", "n_")(rows, ENTRY).tolist() == [[1, 2], [3, 4]]
    found = array(None, is_whole=True)([1, 2], ENTRY)
    assert found.dtype == np.int64


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_no_digit_is_lost(values: list[float]) -> None:
    assert array(None, low=-MAX_FLOAT, high=MAX_FLOAT)(values, ENTRY).tolist() == values


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
anything = st.recursive(
    leaves,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=2), one, max_size=3),
)


@pytest.mark.slow
@given(anything)
def test_any_value_passes_or_raises_bad_value_error(value: Any) -> None:
    for check in (array(None), array("n_", None), array(1, 1, 1), distribution(None), WHOLES):
        with contextlib.suppress(BadValueError):
            check(value, ENTRY)


def test_rules_over_all_numbers_name_the_first_that_breaks_them() -> None:
    require_increasing(np.array([1.0, 2.0]), ENTRY)
    require_increasing(np.array([1.0, 1.0]), ENTRY, least=-0.5)
    with pytest.raises(
        BadValueError,
        match=r"`fitted\.x_` must be increasing, got 1\.0 in "
        r"row 1\. Restore the values as they were written",
    ):
        require_increasing(np.array([1.0, 1.0]), ENTRY)
    with pytest.raises(
        BadValueError,
        match=r"`fitted\.x_` must be even, got 3 in row 1\. "
        "Restore the values as they were written",
    ):
        require_each(np.array([True, False]), np.array([2, 3]), ENTRY, "even")

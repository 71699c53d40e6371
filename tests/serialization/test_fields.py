"""Each check takes what it should, and names what it does not take."""

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.errors import BadValueError
from dubito.serialization.fields import (
    MAX_FLOAT,
    Check,
    Entry,
    Omittable,
    boolean,
    class_names,
    declare,
    describe,
    dict_of,
    integer,
    list_of,
    number,
    one_of,
    optional,
    record,
    require_keys,
    scalar,
    text,
)

ENTRY = Entry("fitted.x_", "Kind.from_dict", {"n_": 2, "none_": None, "list_": [1.0, 2.0, 3.0]})


def rule_of(check: Check, value: Any) -> str:
    """Return the rule of an error, between the name of the entry and the remedy."""
    with pytest.raises(BadValueError) as caught:
        check(value, ENTRY)
    message = str(caught.value)
    start, end = "Kind.from_dict: `fitted.x_", " Restore the values as they were written."
    assert message.startswith(start)
    assert message.endswith(end)
    return message[len(start) : -len(end)].partition(" must ")[2].removeprefix("be ")


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (number(0, 1), 1, 1.0),
        (number(0, 1), np.float32(0.5), 0.5),
        (number(), np.int8(3), 3.0),
        (integer(), np.int64(3), 3),
        (integer(0, 2**64 - 1), 2**64 - 1, 2**64 - 1),
        (boolean, np.True_, True),
        (text, "", ""),
        (one_of("a", "b"), "b", "b"),
        (optional(boolean), None, None),
        (optional(boolean), False, False),
        (list_of(integer(), "n_"), (1, 2), [1, 2]),
        (list_of(integer()), np.array([4, 5]), [4, 5]),
        (list_of(integer()), [], []),
        (record(a=boolean, b=Omittable(boolean)), {"a": True}, {"a": True}),
        (dict_of(integer()), {"any": 1}, {"any": 1}),
        (class_names("n_"), ["a", 1.5], ("a", 1.5)),
        (class_names(), np.array([3, 4]), (3, 4)),
        (class_names(), None, None),
        (scalar, np.float64(2), 2.0),
        (scalar, np.inf, np.inf),
        (scalar, 2**100, 2**100),
        (Omittable(boolean), True, True),
    ],
)
def test_what_fits_is_returned_as_plain_python(check: Check, value: Any, expected: Any) -> None:
    found = check(value, ENTRY)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("check", "value", "said"),
    [
        (number(0, 1), np.nan, "a number from 0 to 1, got nan."),
        (number(0, MAX_FLOAT), -1, "a number of at least 0, got -1."),
        (number(-MAX_FLOAT, MAX_FLOAT), np.inf, "a number that is finite, got inf."),
        (number(0, MAX_FLOAT), 2**53 + 1, "a number of at least 0, got 9007199254740993."),
        (number(), "1", "a number from -1e+30 to 1e+30, got '1'."),
        (integer(1), 0, "an integer of at least 1, got 0."),
        (integer(2, 5), 2.0, "an integer from 2 to 5, got 2.0."),
        (integer(), True, "an integer of at least 0, got True."),
        (boolean, 1, "true or false, got 1."),
        (text, "x" * 10_001, f"a string of at most 10,000 characters, got '{'x' * 50}'."),
        (one_of("a", "b"), ["a"], "one of 'a', 'b', got a list."),
        (list_of(integer()), "abc", "a list, got 'abc'."),
        (list_of(integer(), "list_"), [1], "a list of 3, got 1."),
        (list_of(integer()), [1, -1], "an integer of at least 0, got -1."),
        (record(a=boolean), [], "a dict, got a list."),
        (record(a=boolean), {}, "have the keys a, got no 'a'."),
        (record(a=boolean), {"a": True, "b": 1}, "have no other keys than a, got 'b'."),
        (record(a=boolean), {"a": True, 3: 1}, "have no other keys than a, got 3."),
        (dict_of(integer()), {}, "a dict with at least one key, got a dict."),
        (dict_of(integer()), {1: 1}, "a dict with at least one key, got a dict."),
        (class_names(), [], "None, or a list of strings or numbers, got a list."),
        (class_names(), ["a", np.nan], "None, or a list of strings or numbers, got a list."),
        (class_names(), [1, True], "distinct names, got one twice."),
        (class_names(), [1, "1"], "names that are distinct as text, got a number and its text."),
        (class_names("n_"), ["a"], "2 names, one per class, got 1."),
        (scalar, np.nan, "None, a boolean, a number or a string, got nan."),
        (scalar, {}, "None, a boolean, a number or a string, got a dict."),
        (
            scalar,
            np.array([1]),
            "None, a boolean, a number or a string, got an array of shape (1,) and type int64.",
        ),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_raise(check: Check, value: Any, said: str) -> None:
    assert rule_of(check, value) == said


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
anything = st.recursive(
    leaves,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=2), one, max_size=3),
)


@pytest.mark.slow
@given(anything)
def test_any_value_passes_or_raises_bad_value_error(value: Any) -> None:
    checks = [
        number(), integer(), boolean, text, one_of("a"), optional(boolean),
        list_of(integer()), record(a=boolean), dict_of(boolean), class_names("n_"), scalar,
    ]  # fmt: skip
    for check in checks:
        with contextlib.suppress(BadValueError):
            check(value, ENTRY)


def test_what_is_shown_stays_short() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    assert [describe(one) for one in (deep, -(10**9999), "y" * 99, object(), None)] == [
        "a list",
        "a number beyond 2^128",
        repr("y" * 50),
        "a object",
        "None",
    ]


def test_places_are_named() -> None:
    top = Entry("values", "f", {})
    assert top.at("fitted").at("x_").name == "fitted.x_"
    assert (ENTRY.size(7), ENTRY.size(None), ENTRY.size("list_"), ENTRY.size("none_")) == (
        7,
        None,
        3,
        1,
    )
    with pytest.raises(
        BadValueError,
        match=r"Kind\.from_dict: `fitted\.x_\[1\]` .*, got 1\. "
        "Restore the values as they were written",
    ):
        list_of(boolean)([True, 1], ENTRY)
    with pytest.raises(
        BadValueError,
        match=r"Kind\.from_dict: `fitted\.x_\.a` .*, got 1\. "
        "Restore the values as they were written",
    ):
        dict_of(boolean)({"a": 1}, ENTRY)


def test_no_entries_at_all_are_empty() -> None:
    require_keys({}, declare(), ENTRY)
    with pytest.raises(
        BadValueError,
        match=r"`fitted\.x_` must have no other keys than none, "
        r"got 'x'\. Restore the values as they were written",
    ):
        require_keys({"x": 1}, declare(), ENTRY)

"""Each check takes what it should, and names what it does not take."""

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.errors import BadValueError
from dubito.serialization.fields import (
    MOST,
    Check,
    Entry,
    Maybe,
    by_name,
    entries,
    flag,
    listed,
    names,
    number,
    one_of,
    optional,
    plain_setting,
    record,
    require_keys,
    shown,
    text,
    whole,
)

ENTRY = Entry("learned.x_", "Kind.from_dict", {"n_": 2, "none_": None, "list_": [1.0, 2.0, 3.0]})


def refusal(check: Check, value: Any) -> str:
    """Return what is said between the name of the entry and the way out."""
    with pytest.raises(BadValueError) as caught:
        check(value, ENTRY)
    said = str(caught.value)
    start, end = "`learned.x_", " Try the file as `to_dict` wrote it."
    assert said.startswith(start)
    assert said.endswith(end)
    return said[len(start) : -len(end)].partition(" must be ")[2]


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (number(0, 1), 1, 1.0),
        (number(0, 1), np.float32(0.5), 0.5),
        (number(), np.int8(3), 3.0),
        (whole(), np.int64(3), 3),
        (whole(0, 2**64 - 1), 2**64 - 1, 2**64 - 1),
        (flag, np.True_, True),
        (text, "", ""),
        (one_of("a", "b"), "b", "b"),
        (optional(flag), None, None),
        (optional(flag), False, False),
        (listed(whole(), "n_"), (1, 2), [1, 2]),
        (listed(whole()), np.array([4, 5]), [4, 5]),
        (listed(whole()), [], []),
        (record(a=flag, b=Maybe(flag)), {"a": True}, {"a": True}),
        (by_name(whole()), {"any": 1}, {"any": 1}),
        (names("n_"), ["a", 1.5], ("a", 1.5)),
        (names(), np.array([3, 4]), (3, 4)),
        (names(), None, None),
        (plain_setting, np.float64(2), 2.0),
        (plain_setting, np.inf, np.inf),
        (plain_setting, 2**100, 2**100),
        (Maybe(flag), True, True),
    ],
)
def test_what_fits_is_returned_as_plain_python(check: Check, value: Any, expected: Any) -> None:
    found = check(value, ENTRY)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("check", "value", "said"),
    [
        (number(0, 1), np.nan, "a number from 0 to 1. Got nan."),
        (number(0, MOST), -1, "a number from 0 up. Got -1."),
        (number(-MOST, MOST), np.inf, "a number that is finite. Got inf."),
        (number(0, MOST), 2**53 + 1, "a number from 0 up. Got 9007199254740993."),
        (number(), "1", "a number from -1e+30 to 1e+30. Got '1'."),
        (whole(1), 0, "a whole number from 1 up. Got 0."),
        (whole(2, 5), 2.0, "a whole number from 2 to 5. Got 2.0."),
        (whole(), True, "a whole number from 0 up. Got True."),
        (flag, 1, "true or false. Got 1."),
        (text, "x" * 10_001, f"text of up to 10,000 letters. Got '{'x' * 50}'."),
        (one_of("a", "b"), ["a"], "one of 'a', 'b'. Got a list."),
        (listed(whole()), "abc", "a list. Got 'abc'."),
        (listed(whole(), "list_"), [1], "a list of 3. Got 1."),
        (listed(whole()), [1, -1], "a whole number from 0 up. Got -1."),
        (record(a=flag), [], "a dict. Got a list."),
        (record(a=flag), {}, "whole (a). Got no a."),
        (record(a=flag), {"a": True, "b": 1}, "of known entries (a). Got 'b'."),
        (record(a=flag), {"a": True, 3: 1}, "of known entries (a). Got 3."),
        (by_name(whole()), {}, "a dict of one name or more. Got a dict."),
        (by_name(whole()), {1: 1}, "a dict of one name or more. Got a dict."),
        (names(), [], "None, or a list of names or numbers. Got a list."),
        (names(), ["a", np.nan], "None, or a list of names or numbers. Got a list."),
        (names(), [1, True], "all different. Got one twice."),
        (names("n_"), ["a"], "2 names, one a class. Got 1."),
        (plain_setting, np.nan, "None, true, false, a number or a name. Got nan."),
        (plain_setting, {}, "None, true, false, a number or a name. Got a dict."),
        (
            plain_setting,
            np.array([1]),
            "None, true, false, a number or a name. Got an array of shape (1,) and type int64.",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told(check: Check, value: Any, said: str) -> None:
    assert refusal(check, value) == said


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
anything = st.recursive(
    leaves,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=2), one, max_size=3),
)


@given(anything)
def test_nothing_but_a_refusal_comes_of_anything(value: Any) -> None:
    checks = [
        number(), whole(), flag, text, one_of("a"), optional(flag), listed(whole()), record(a=flag),
        by_name(flag), names("n_"), plain_setting,
    ]  # fmt: skip
    for check in checks:
        with contextlib.suppress(BadValueError):
            check(value, ENTRY)


def test_what_is_shown_stays_short() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    assert [shown(one) for one in (deep, -(10**9999), "y" * 99, object(), None)] == [
        "a list",
        "a number beyond 2^128",
        repr("y" * 50),
        "a object",
        "None",
    ]


def test_places_are_named() -> None:
    top = Entry("values", "f", {})
    assert top.at("learned").at("x_").name == "learned.x_"
    assert (ENTRY.size(7), ENTRY.size(None), ENTRY.size("list_"), ENTRY.size("none_")) == (
        7,
        None,
        3,
        1,
    )
    with pytest.raises(BadValueError, match=r"^`learned\.x_\[1\]` of"):
        listed(flag)([True, 1], ENTRY)
    with pytest.raises(BadValueError, match=r"^`learned\.x_\.a` of"):
        by_name(flag)({"a": 1}, ENTRY)


def test_no_entries_at_all_are_empty() -> None:
    require_keys({}, entries(), ENTRY)
    with pytest.raises(BadValueError, match=r"must be of known entries \(empty\)\. Got 'x'\."):
        require_keys({"x": 1}, entries(), ENTRY)

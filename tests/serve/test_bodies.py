from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.serve.bodies import as_codes, as_fields, as_ids, as_json, as_name
from dubito.serve.refusals import RefusedError


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_json_holds_numbers_only(word: str) -> None:
    with pytest.raises(RefusedError) as refused:
        as_json(f'{{"logits": [[{word}]]}}'.encode())
    assert str(refused.value) == f"The body holds {word}, which is no number. Try finite numbers."


@pytest.mark.parametrize("body", ["true", '{"logits": [[1, false]]}', '[{"a": [[], {"b": true}]}]'])
def test_truth_values_are_no_numbers(body: str) -> None:
    with pytest.raises(RefusedError) as refused:
        as_json(body.encode())
    assert str(refused.value) == "The body holds true or false, which is no number. Try 1 or 0."


def test_texts_may_say_true() -> None:
    assert as_json(b'{"ids": ["true", "false"], "n": 1}') == {"ids": ["true", "false"], "n": 1}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 5000])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(RefusedError, match="The body is no JSON"):
        as_json(body)


@given(st.binary())
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        found = as_json(body)
    except RefusedError:
        return
    assert isinstance(found, dict | list | str | int | float | None)
    assert not isinstance(found, bool)


def test_fields_are_known_ones() -> None:
    assert as_fields({"a": 1}, ("a", "b")) == {"a": 1}
    with pytest.raises(RefusedError, match=r"The body must be an object. Try one with a, b\."):
        as_fields([1], ("a", "b"))
    with pytest.raises(RefusedError, match=r"no field but a, b. Got 'c'. Try leaving it out\."):
        as_fields({"c": 1}, ("a", "b"))
    with pytest.raises(RefusedError, match=r"The body must have `a`. Try adding it\."):
        as_fields({"b": 1, "a": None}, ("a", "b"), ("a",))


@pytest.mark.parametrize("value", ["", "a" * 201, "a\x00b", "\ud800", "line\nbreak", 3, None])
def test_names_are_short_and_printable(value: Any) -> None:
    with pytest.raises(RefusedError) as refused:
        as_name(value, "The id")
    assert str(refused.value).startswith("The id must be 1 to 200 printable characters. Got ")


def test_ids_may_be_whole_numbers() -> None:
    assert as_ids(["a", 7], 2) == ["a", "7"]
    with pytest.raises(RefusedError, match=r"as many as the rows, 3. Got 1. Try one id a row\."):
        as_ids(["a"], 3)
    with pytest.raises(RefusedError, match=r"`ids` must be a list. Try one id a row\."):
        as_ids("ab")
    with pytest.raises(RefusedError, match="Each of `ids`"):
        as_ids([True])


def test_labels_are_names_of_classes() -> None:
    assert as_codes(["b", "a"], ("a", "b")) == [1, 0]
    assert as_codes([1, "0"], (0, 1)) == [1, 0]
    with pytest.raises(RefusedError) as refused:
        as_codes(["a", "z"], ("a", "b"))
    assert str(refused.value) == "A label must be one of a, b. Got 'z'. Try one of them."
    for wrong in ([[1]], [None], [True], "ab", [10**400]):
        with pytest.raises(RefusedError):
            as_codes(wrong, (0, 1))

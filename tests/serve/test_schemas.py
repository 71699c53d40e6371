import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.serve.http_errors import HTTPError
from dubito.serve.schemas import (
    ARROW,
    ENTRIES,
    ERRORS,
    CascadeRequest,
    DecideRequest,
    ForecastsRequest,
    LabelsRequest,
    RequestModel,
    ReviewRequest,
    check_name,
    encode_labels,
    parse_json,
    request_body,
    validate,
)
from dubito.serve.service import Settings


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_json_has_finite_numbers_only(word: str) -> None:
    with pytest.raises(HTTPError, match="Send JSON in UTF-8 with finite numbers"):
        parse_json(f'{{"logits": [[{word}]]}}'.encode())


@pytest.mark.parametrize("body", ["true", '{"logits": [[1, false]]}', '[{"a": [[], {"b": true}]}]'])
def test_booleans_are_not_numbers(body: str) -> None:
    with pytest.raises(HTTPError) as caught:
        parse_json(body.encode())
    assert str(caught.value) == "The body contains true or false instead of a number. Use 1 or 0."


def test_strings_may_contain_true() -> None:
    assert parse_json(b'{"ids": ["true", "false"], "n": 1}') == {"ids": ["true", "false"], "n": 1}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 5000])
def test_invalid_json_is_rejected(body: bytes) -> None:
    with pytest.raises(HTTPError, match="The body is not valid JSON"):
        parse_json(body)


@given(st.binary())
def test_any_bytes_are_parsed_or_rejected(body: bytes) -> None:
    try:
        found = parse_json(body)
    except HTTPError:
        return
    assert isinstance(found, dict | list | str | int | float | None)
    assert not isinstance(found, bool)


def test_fields_are_validated() -> None:
    assert validate(LabelsRequest, {"ids": ["a"], "labels": ["x"]}).ids == ["a"]
    with pytest.raises(HTTPError, match=r"object, got a list. Send the fields ids, labels\."):
        validate(LabelsRequest, [1])
    with pytest.raises(HTTPError, match=r"an unknown field 'c'. Use only ids, labels\."):
        validate(LabelsRequest, {"ids": ["a"], "labels": ["x"], "c": 1})
    with pytest.raises(HTTPError, match=r"The field `ids` is missing. Add it\."):
        validate(LabelsRequest, {"labels": ["x"]})
    with pytest.raises(HTTPError, match=r"`ids` must be a list, got null\. Send one value"):
        validate(LabelsRequest, {"labels": ["x"], "ids": None})
    with pytest.raises(HTTPError, match=r"`labels` must be a list, got 'ab'\. Send one"):
        validate(LabelsRequest, {"labels": "ab", "ids": ["a"]})


REQUESTS = RequestModel.__subclasses__()
ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text("aé'", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("a"), inner, max_size=2),
    max_leaves=3,
)


@given(st.data())
def test_what_a_body_has_wrong_is_said_with_its_value_and_a_remedy(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(REQUESTS))
    names = [*model.model_fields, "other"]
    body = data.draw(ANY_JSON | st.dictionaries(st.sampled_from(names), ANY_JSON))
    refused = None
    try:
        validate(model, body)
    except HTTPError as error:
        refused = error
    if refused is not None:
        for words in ("Input should", "in the schema", "openapi", "None", "True", "dict"):
            assert words not in str(refused)
        says_value = ", got " in refused.problem or "unknown field" in refused.problem
        assert says_value or "is missing" in refused.problem


@pytest.mark.parametrize(
    ("model", "body", "words"),
    [
        (
            ReviewRequest,
            {"action": "label", "label": []},
            "`label` must be a string, a number, true or false, got a list. "
            "Send a string, a number, true or false, or leave `label` out.",
        ),
        (
            ReviewRequest,
            {"action": "label", "labels": 3},
            '`labels` must be an object, got 3. Send values by name, such as {"fever": 1}.',
        ),
        (
            ForecastsRequest,
            {"time": [1, "b", {}]},
            "`time[2]` must be a string or a number, got an object. Send a string or a number.",
        ),
        (
            ForecastsRequest,
            {"time": "2024"},
            "`time` must be a list, got '2024'. Send one value per row.",
        ),
    ],
)
def test_a_wrong_value_is_said_with_its_place(
    model: type[RequestModel], body: Any, words: str
) -> None:
    with pytest.raises(HTTPError) as refused:
        validate(model, body)
    assert str(refused.value) == words


def test_entries_are_checked_as_the_schema_says() -> None:
    schema = request_body(CascadeRequest)["requestBody"]["content"]["application/json"]["schema"]
    for name, entry in ENTRIES.items():
        items = schema["properties"][name]["additionalProperties"]["items"]
        assert items == entry.schema
        limit, wrong = items.get("maximum"), -1
        values = ["a" * items.get("maxLength", 0), "a" * (items.get("maxLength", 0) + 1)]
        if limit is not None:
            values = [limit, np.nextafter(limit, np.inf).item()]
        assert [entry.is_valid(one) for one in (*values, wrong)] == [True, False, False]
    assert "from 0 to 1e12" in ENTRIES["costs"].rule


@pytest.mark.parametrize("value", ["", "a" * 201, "a\x00b", "\ud800", "line\nbreak", 3, None])
def test_names_are_short_and_printable(value: Any) -> None:
    with pytest.raises(HTTPError) as caught:
        check_name(value, "The id")
    assert str(caught.value).startswith("The id must be 1 to 200 printable characters, got ")


def test_ids_may_be_integers() -> None:
    assert validate(DecideRequest, {"ids": ["a", 7]}).ids == ["a", "7"]
    with pytest.raises(HTTPError, match=r"`ids` must be a list, got 'ab'. Send one id per row\."):
        validate(DecideRequest, {"ids": "ab"})
    with pytest.raises(HTTPError, match=r"`ids\[1\]` must be 1 to 200 .*, got true\."):
        validate(DecideRequest, {"ids": ["a", True]})


def test_labels_are_names_of_classes() -> None:
    assert encode_labels(["b", "a"], ("a", "b")) == [1, 0]
    assert encode_labels([1, "0"], (0, 1)) == [1, 0]
    with pytest.raises(HTTPError) as caught:
        encode_labels(["a", "z"], ("a", "b"))
    assert str(caught.value) == "'z' is not a class of the policy. Use one of a, b."
    for wrong in ([[1]], [None], [True], "ab", [10**400]):
        with pytest.raises(HTTPError):
            encode_labels(wrong, (0, 1))


def test_a_body_is_described_with_its_fields() -> None:
    body = request_body(LabelsRequest, or_arrow=True)["requestBody"]
    schema = body["content"]["application/json"]["schema"]
    assert schema["required"] == ["ids", "labels"]
    assert not schema["additionalProperties"]
    assert schema["properties"]["ids"]["items"] == {
        "type": "string", "minLength": 1, "maxLength": 200,
    }  # fmt: skip
    assert ARROW in body["content"]
    assert ARROW not in request_body(LabelsRequest)["requestBody"]["content"]
    decide = request_body(DecideRequest)["requestBody"]["content"]["application/json"]["schema"]
    kinds = [["logits"], ["probabilities"], ["scores"], ["mean", "std"], ["quantiles"], ["samples"]]
    assert decide["oneOf"] == [{"required": names} for names in kinds]
    assert not decide["additionalProperties"]


def test_large_matrices_are_not_validated_element_by_element() -> None:
    rows = np.zeros((2, 3))
    assert validate(DecideRequest, {"logits": rows}).logits is rows


def test_all_errors_are_described() -> None:
    assert set(ERRORS) == {401, 403, 404, 409, 413, 422}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[" + b"[]," * 1010 + b"[]]", "at most 1,006 lists and objects, got 1,012."),
        (b"[" + b'{"a":1},' * 1010 + b"1]", "at most 1,006 lists and objects, got 1,011."),
        (b"[" + b'"a",' * 1010 + b"1]", "at most 1,006 strings, got 1,010."),
        (b"[[" + b"1," * 2001 + b"1]]", "at most 2,000 values, got 2,001."),
    ],
)
def test_a_body_of_too_many_values_is_not_parsed(body: bytes, words: str) -> None:
    settings = Settings(max_rows=3, max_values=2000)
    with pytest.raises(HTTPError) as caught:
        parse_json(body, settings)
    assert caught.value.status == 413
    assert words in str(caught.value)
    assert str(caught.value).endswith("Send fewer rows, or an Arrow stream.")
    assert parse_json(body)


def test_as_many_values_as_rows_need_are_parsed() -> None:
    row, text = [0] * 4, "x"
    body = {"logits": [row] * 3, "features": [row] * 3, "ids": [text] * 3, "links": [text] * 3}
    assert parse_json(json.dumps(body).encode(), Settings(max_rows=3)) == body

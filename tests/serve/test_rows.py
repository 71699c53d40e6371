from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.errors import BadTypeError, BadValueError, DubitoError
from dubito.outputs import Logits, Probabilities
from dubito.serve.http_errors import HTTPError
from dubito.serve.rows import RequestRows, _as_matrix, _as_row_costs, as_http_error
from dubito.serve.service import Settings
from studies.common.serving import fitted_policy

POLICY, SETTINGS = fitted_policy(2), Settings(max_rows=3, max_columns=4)


def parse(**body: Any) -> RequestRows:
    return RequestRows.of(body, POLICY, SETTINGS)


def test_the_body_declares_the_kind_of_outputs() -> None:
    assert isinstance(parse(logits=[[1, 2]]).outputs, Logits)
    assert isinstance(parse(probabilities=[[0.25, 0.75]]).outputs, Probabilities)
    assert parse(logits=[[1, 2]]).outputs.array.dtype == np.float32


def test_generated_ids_are_repeated_with_an_idempotency_key() -> None:
    first, second = parse(logits=[[1, 2], [3, 4]]), parse(logits=[[1, 2], [3, 4]])
    assert len({*first.ids, *second.ids}) == 4
    keyed = [RequestRows.of({"logits": [[1, 2]]}, POLICY, SETTINGS, "key").ids for _ in range(2)]
    assert keyed[0] == keyed[1]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "The body must have either `logits` or `probabilities`"),
        ({"logits": [[1, 2]], "probabilities": [[1, 0]]}, "either `logits` or `probabilities`"),
        (
            {"logits": [[1, 2]] * 4},
            "A request may have at most 3 rows. Send fewer rows per request.",
        ),
        ({"logits": [[1] * 5]}, "A request may have at most 4 columns. Send fewer columns"),
        ({"logits": [[1, 2, 3]]}, "`logits` must have 2 columns, one per class, got 3 in row 0."),
        ({"logits": [[1e300, 1]]}, "numbers, of at most 3.4e+38, got 1e+300 in row 0, column 0"),
        (
            {"probabilities": [[0.5, 0.5], [0.5, 0.9]]},
            "got a sum of 1.4 in row 1. Send numbers from 0 to 1 that sum to 1 per row, "
            "or use `logits`.",
        ),
        ({"probabilities": [[-0.5, 1.5]]}, "got -0.5 in row 0, column 0. Send numbers from 0"),
        (
            {"logits": [[1, 2]], "features": [[1], [2]]},
            "`features` must have 1 rows, got 2. Send one row of features per row of outputs.",
        ),
        (
            {"logits": [[1, 2]] * 2, "ids": ["a", "a"]},
            "`ids` must be unique, got 'a' twice. Send one id",
        ),
        ({"logits": [[1, 2]], "links": ["javascript:alert(1)"]}, "`links` must be a list of http"),
        ({"logits": [[1, 2]], "links": ["https://a", None]}, "`links` must be a list of http"),
        ({"logits": [[1, 2]], "links": ["http://["]}, "`links` must be a list of http"),
        ({"logits": [[1, 2]], "links": ["https:///a"]}, "`links` must be a list of http"),
        ({"logits": [[1, 2]], "links": ["https://a]/x"]}, "`links` must be a list of http"),
        ({"logits": [[1, 2]], "links": ["https://a\x00"]}, "`links` must be a list of http"),
        (
            {"logits": [[1, 2]], "other": 1},
            "unknown field 'other'. Use only logits, probabilities, scores",
        ),
    ],
)
def test_invalid_fields_are_reported(body: dict[str, Any], words: str) -> None:
    with pytest.raises(DubitoError) as caught:
        parse(**body)
    assert words in str(caught.value)


def test_a_digest_covers_everything_sent_about_a_row() -> None:
    body = {
        "logits": [[1, 2]],
        "features": [[3.0]],
        "row_costs": {"fee": [4.0]},
        "links": ["https://a"],
    }
    [digest] = parse(**body).digests
    assert parse(**body, ids=["x"]).digests == [digest]
    others = [
        {**body, "logits": [[1, 3]]},
        {**body, "features": [[3.5]]},
        {**body, "features": [[3.0, 0.0]]},
        {**body, "row_costs": {"fee": [5.0]}},
        {**body, "row_costs": {"amount": [4.0]}},
        {**body, "links": ["https://b"]},
        {name: value for name, value in body.items() if name != "links"},
        {name: value for name, value in body.items() if name != "row_costs"},
    ]
    found = {parse(**other).digests[0] for other in others}
    found.add(parse(probabilities=[[0.5, 0.5]]).digests[0])
    found.add(parse(logits=[[0.5, 0.5]]).digests[0])
    assert len(found | {digest}) == len(others) + 3


def test_each_row_has_its_own_digest() -> None:
    rows = parse(logits=[[1, 2], [1, 2], [2, 1]]).digests
    assert rows[0] == rows[1] != rows[2]


def test_web_links_are_kept_unchanged() -> None:
    links = ["http://[::1]:8000/x?[y]", "https://a.org?q", "http://me@a.org:80/é"]
    assert parse(logits=[[1, 2]] * 3, links=links).links == links


def test_ids_of_a_column_may_be_integers() -> None:
    assert parse(logits=[[1, 2]] * 2, ids=np.array([7, 8])).ids == ["7", "8"]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ([], "no rows"),
        ([[]], "empty rows"),
        (np.empty((0, 2)), "no rows"),
        ([[1, 2], [3]], "1 number in row 1, 2 in row 0"),
        ([[1], [3, 4]], "2 numbers in row 1, 1 in row 0"),
        ([["1", "x"]], '"1" in row 0, column 0'),
        ([[1, 2], [None, 1]], "null in row 1, column 0"),
        ([[1, [2]]], "a list in row 0, column 1"),
        ([[10**400, 1]], "a number that is not finite in row 0, column 0"),
        ([1, 2], "1 in row 0"),
        (np.array([1.5, 2.0]), "1.5 in row 0"),
        ("ab", '"ab"'),
        ("a" * 90, '"' + "a" * 49 + "..."),
        ({"a": 1}, "an object"),
    ],
)
def test_invalid_matrices_are_reported_with_their_place(value: Any, got: str) -> None:
    with pytest.raises(HTTPError) as caught:
        _as_matrix(value, "logits", SETTINGS)
    assert str(caught.value) == (
        f"`logits` must be rows of equally many numbers, of at most 3.4e+38, got {got}. "
        'Send for example "logits": [[2.5, -1.0], [0.5, 0.0]].'
    )


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (7, "7"),
        ([1], "1 for 2 rows"),
        (["x", 1], '"x" in row 0'),
        ([[1], [2]], "a list in row 0"),
        ([None, 1], "null in row 0"),
        ([10**400, 1], "a number that is not finite in row 0"),
        (np.array([np.nan, 1]), "a number that is not finite in row 0"),
        ([1, float("inf")], "a number that is not finite in row 1"),
    ],
)
def test_amounts_are_one_per_row(value: Any, got: str) -> None:
    with pytest.raises(HTTPError) as caught:
        _as_row_costs({"fee": value}, 2, SETTINGS)
    assert str(caught.value) == (
        f"`row_costs.fee` must be one number per row, got {got}. "
        'Send for example "row_costs": {"amount": [120.0]}.'
    )


@pytest.mark.parametrize(("value", "got"), [([1, 2], "a list"), ({}, "an object"), (7, "7")])
def test_row_costs_have_names(value: Any, got: str) -> None:
    with pytest.raises(HTTPError, match=f"`row_costs` must be lists of .* got {got}. Send for"):
        _as_row_costs(value, 2, SETTINGS)


def test_numbers_are_kept() -> None:
    found = _as_matrix([[1, 2.5]], "logits", SETTINGS)
    assert found.tolist() == [[1.0, 2.5]]
    assert found.dtype == np.float32
    row_costs = _as_row_costs({"fee": [0, -3.5]}, 2, SETTINGS)
    assert row_costs is not None
    assert row_costs["fee"].tolist() == [0.0, -3.5]
    assert _as_row_costs(None, 2, SETTINGS) is None


def test_library_errors_name_the_request_field() -> None:
    wrong = BadValueError("array", "Logits", "must be finite", "nan", "Clip it", 3, 1)
    assert str(as_http_error(wrong, "logits", "Send numbers")) == (
        "`logits` must be finite, got nan in row 3, column 1. Send numbers."
    )
    none = BadTypeError("features", "Policy.decide", "must be given", "None", "Pass them")
    error = as_http_error(none, "features", "Send them")
    assert str(error) == "`features` must be given, got none. Send them."


@given(ANYTHING)
def test_any_value_is_a_matrix_or_rejected(value: Any) -> None:
    message = ""
    try:
        assert np.isfinite(_as_matrix(value, "logits", SETTINGS)).all()
    except (HTTPError, BadValueError) as error:
        message = str(error)
    assert "astype" not in message
    assert "reshape" not in message

from typing import Any

import numpy as np
import pytest

from dubito.errors import DubitoError
from dubito.outputs import Logits, Probabilities
from dubito.serve.asking import AskedRows
from dubito.serve.settings import Settings

SETTINGS = Settings(max_samples=3, most_columns=4)


def asked(**body: Any) -> AskedRows:
    return AskedRows.of(body, 2, SETTINGS)


def test_a_body_says_what_its_numbers_are() -> None:
    assert isinstance(asked(logits=[[1, 2]]).outputs, Logits)
    assert isinstance(asked(probabilities=[[0.25, 0.75]]).outputs, Probabilities)
    assert asked(logits=[[1, 2]]).outputs.array.dtype == np.float32


def test_rows_without_ids_get_some_that_a_key_repeats() -> None:
    first, second = asked(logits=[[1, 2], [3, 4]]), asked(logits=[[1, 2], [3, 4]])
    assert len({*first.ids, *second.ids}) == 4
    keyed = [AskedRows.of({"logits": [[1, 2]]}, 2, SETTINGS, "key").ids for _ in range(2)]
    assert keyed[0] == keyed[1]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "The body must have either `logits` or `probabilities`"),
        ({"logits": [[1, 2]], "probabilities": [[1, 0]]}, "either `logits` or `probabilities`"),
        ({"logits": [[1, 2]] * 4}, "A request may have 3 rows at most. Try fewer rows a request."),
        ({"logits": [[1] * 5]}, "A request may have 4 columns at most. Try fewer columns"),
        ({"logits": [[1, 2, 3]]}, "A row must have 2 columns, one a class. Got 3."),
        ({"logits": [[1e300, 1]]}, "must be finite in single precision"),
        (
            {"probabilities": [[0.5, 0.5], [0.5, 0.9]]},
            "`probabilities` must be rows that sum to 1. Got a sum of 1.4 in row 1. Try `logits` "
            "if these are logits, or numbers from 0 to 1 that sum to 1 in each row.",
        ),
        ({"probabilities": [[-0.5, 1.5]]}, "0 or above. Got -0.5 in row 0, column 0. Try `logits`"),
        (
            {"logits": [[1, 2]], "features": [[1], [2]]},
            "`features` must be one row for each row that is decided. Got 2 for 1 row. "
            "Try sending both in the same order.",
        ),
        ({"logits": [[1, 2]] * 2, "ids": ["a", "a"]}, "`ids` must be all different. Try one id"),
        ({"logits": [[1, 2]], "links": ["javascript:alert(1)"]}, "`links` must be a list of web"),
        ({"logits": [[1, 2]], "links": ["https://a", None]}, "`links` must be a list of web"),
        ({"logits": [[1, 2]], "links": ["http://["]}, "`links` must be a list of web"),
        ({"logits": [[1, 2]], "links": ["https:///a"]}, "`links` must be a list of web"),
        ({"logits": [[1, 2]], "links": ["https://a]/x"]}, "`links` must be a list of web"),
        ({"logits": [[1, 2]], "links": ["https://a\x00"]}, "`links` must be a list of web"),
        ({"logits": [[1, 2]], "other": 1}, "no field but logits, probabilities, ids"),
    ],
)
def test_what_is_wrong_is_told(body: dict[str, Any], words: str) -> None:
    with pytest.raises(DubitoError) as refused:
        asked(**body)
    assert words in str(refused.value)


def test_a_digest_is_of_all_that_was_sent_about_a_row() -> None:
    body = {"logits": [[1, 2]], "features": [[3.0]], "row_costs": [4.0], "links": ["https://a"]}
    [digest] = asked(**body).digests
    assert asked(**body, ids=["x"]).digests == [digest]
    others = [
        {**body, "logits": [[1, 3]]},
        {**body, "features": [[3.5]]},
        {**body, "features": [[3.0, 0.0]]},
        {**body, "row_costs": [5.0]},
        {**body, "links": ["https://b"]},
        {name: value for name, value in body.items() if name != "links"},
        {name: value for name, value in body.items() if name != "row_costs"},
    ]
    found = {asked(**other).digests[0] for other in others}
    found.add(asked(probabilities=[[0.5, 0.5]]).digests[0])
    found.add(asked(logits=[[0.5, 0.5]]).digests[0])
    assert len(found | {digest}) == len(others) + 3


def test_rows_have_digests_of_their_own() -> None:
    rows = asked(logits=[[1, 2], [1, 2], [2, 1]]).digests
    assert rows[0] == rows[1] != rows[2]


def test_links_of_the_web_are_kept_as_they_came() -> None:
    links = ["http://[::1]:8000/x?[y]", "https://a.org?q", "http://me@a.org:80/é"]
    assert asked(logits=[[1, 2]] * 3, links=links).links == links


def test_ids_of_a_column_may_be_whole_numbers() -> None:
    assert asked(logits=[[1, 2]] * 2, ids=np.array([7, 8])).ids == ["7", "8"]

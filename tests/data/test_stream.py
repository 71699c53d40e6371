from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.data import EncodedLabels
from dubito.data.stream import read_stream, write_stream
from dubito.errors import BadFileError, BadValueError, DubitoError


def read(content: bytes) -> dict[str, Any]:
    return read_stream(content, max_rows=100, max_columns=4, max_bytes=100_000)


def stream_of(**columns: Any) -> bytes:
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for start in range(0, table.num_rows, 2):
            writer.write_table(table.slice(start, 2))
    return bytes(sink.getvalue())


def test_columns_survive() -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3)
    names = EncodedLabels(np.array([1, 0, 1, 0]), ("go", "ask"))
    given_columns = {"logits": matrix, "id": ["a", "b", "c", None], "n": [1, 2, 3, 4], "do": names}
    found = read(write_stream(given_columns))
    assert found["logits"].tolist() == matrix.tolist()
    assert found["logits"].dtype == np.float32
    assert found["id"] == ["a", "b", "c", None]
    assert found["n"].tolist() == [1, 2, 3, 4]
    assert found["do"] == ["ask", "go", "ask", "go"]


def test_lists_of_any_kind_in_several_batches_are_a_matrix() -> None:
    rows = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    for kind in (pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 2)):
        assert read(stream_of(x=pa.array(rows, kind)))["x"].tolist() == rows


def test_a_struct_of_numbers_is_a_dict() -> None:
    found = read(stream_of(x=[{"a": 1, "b": 0.5}, {"a": 2, "b": 1.5}]))["x"]
    assert {name: values.tolist() for name, values in found.items()} == {
        "a": [1, 2],
        "b": [0.5, 1.5],
    }


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"x": [[1.0], [2.0, 3.0]]},
            "lists of one length without nulls, got lengths 1 to 2, or",
        ),
        ({"x": [[1.0], None]}, "lists of one length without nulls"),
        ({"x": [[1.0], [None]]}, "lists of one length without nulls"),
        ({"x": [[1.0] * 5]}, "lists of at most 4 numbers, got 5. Send fewer columns."),
        ({"x": [["a"]]}, "lists of numbers, got string. Use float32."),
        ({"x": [1.0, None]}, "Arrow stream: `x` must not have missing values, got null."),
        ({"x": [{"a": {"b": 1}}]}, "or structs of numbers, got struct<a: struct<b: int64>>."),
        ({"x": [{"a": 1}, {"a": None}]}, "`x.a` must not have missing values, got null."),
        ({"x": [{"a": 1}, None]}, "`x.a` must not have missing values, got null."),
        ({"x": [1] * 101}, "Arrow stream: `rows` must be at most 100, got"),
    ],
)
def test_columns_that_are_no_numbers_or_texts_raise(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValueError) as caught:
        read(stream_of(**columns))
    assert words in str(caught.value)


def test_a_broken_stream_raises() -> None:
    whole = stream_of(x=[[1.0, 2.0]] * 10)
    for content in (b"", b"no stream", whole[:-40], whole[:100]):
        with pytest.raises(BadFileError, match="The Arrow stream cannot be read"):
            read(content)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_flipped_byte_is_read_or_raises(place: int, change: int) -> None:
    whole = bytearray(stream_of(x=[[1.0, 2.0]] * 10, y=["a"] * 10))
    whole[place % len(whole)] ^= change
    try:
        found = read(bytes(whole))
    except DubitoError:
        return
    assert all(len(column) <= 100 for column in found.values())

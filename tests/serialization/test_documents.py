"""One JSON file: readable, sealed, whole, of bounded size; any other file raises."""

import base64
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.errors import BadFileError, BadValueError
from dubito.serialization.documents import (
    _as_regular,
    _checksum,
    decode_document,
    encode_document,
    read_text,
)

FIX = "Pass a JSON file that dubito has written."


def write_document(document: dict[str, Any], path: Path) -> None:
    path.write_text(encode_document(document, "Policy.save"), encoding="utf-8")


def read_document(path: Path) -> dict[str, Any]:
    document, is_intact = decode_document(read_text(path), str(path))
    assert is_intact
    return document


MANY = (np.arange(300) / 7).tolist()
DOCUMENT: dict[str, Any] = {
    "kind": "dubito policy",
    "name": "naïve ☃",
    "few": [1, 2.5, 3],
    "many": MANY,
    "table": np.arange(400.0).reshape(20, 20).tolist(),
    "counts": list(range(201)),
    "flags": [True, False] * 150,
    "deep": {"none": None, "yes": True, "rows": [{"a": 1}, {"b": []}], "empty": {}},
}


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def error_of(path: Path) -> str:
    with pytest.raises(BadFileError) as caught:
        read_document(path)
    return str(caught.value)


def test_a_document_survives_to_the_last_digit(tmp_path: Path) -> None:
    write_document(DOCUMENT, tmp_path / "p.json")
    found = read_document(tmp_path / "p.json")
    assert plain(found) == DOCUMENT
    assert isinstance(found["many"], np.ndarray)
    assert {found[name].dtype.name for name in ("counts", "flags")} == {"int64", "bool"}
    write_document(found, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "p.json").read_bytes()


@pytest.mark.parametrize(
    ("numbers", "stored"),
    [
        (np.arange(-100.0, 101), "int8"),
        (np.arange(201), "int16"),
        (np.arange(201) + 2**20, "int32"),
        (np.arange(201) + 2**53, None),
        (np.arange(201) / 8, "float32"),
        (np.arange(201) / 7, None),
        (np.append(np.zeros(200), -0.0), "float32"),
        (np.full(201, True), None),
    ],
)
def test_numbers_are_stored_in_the_smallest_type_that_holds_them(
    tmp_path: Path, numbers: Any, stored: str | None
) -> None:
    write_document({"a": numbers}, tmp_path / "p.json")
    packed = json.loads((tmp_path / "p.json").read_text())["a"]
    assert packed.get("stored") == stored
    assert packed["dtype"] == numbers.dtype.name
    found = read_document(tmp_path / "p.json")["a"]
    assert found.dtype == numbers.dtype
    assert found.tobytes() == numbers.tobytes()
    packed["stored"] = "float64" if packed["dtype"] == "bool" else "complex64"
    with pytest.raises(BadFileError, match="unknown dtype"):
        decode_document(json.dumps({"a": packed}), "p.json")


def test_people_can_read_it(tmp_path: Path) -> None:
    write_document(DOCUMENT, tmp_path / "p.json")
    text = (tmp_path / "p.json").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[:4] == [
        "{",
        '  "kind": "dubito policy",',
        '  "name": "naïve ☃",',
        '  "few": [1, 2.5, 3],',
    ]
    packed = json.loads(text)["many"]
    assert packed["dtype"] == "float64"
    assert packed["shape"] == [300]
    assert np.frombuffer(base64.b64decode(packed["base64"]), "<f8").tolist() == MANY
    assert text.endswith("}\n")


def test_the_seal_is_a_digest_of_what_is_said_not_of_how(tmp_path: Path) -> None:
    write_document({"b": [1, 2], "a": "x"}, tmp_path / "p.json")
    packed = {"base64": base64.b64encode(np.array([1, 2]).tobytes()).decode()}
    packed |= {"dtype": "int64", "shape": [2]}  # type: ignore[dict-item]
    text = json.dumps({"a": "x", "b": packed}, sort_keys=True)
    seal = f"sha256:{sha256(text.encode()).hexdigest()}"
    document = json.loads((tmp_path / "p.json").read_text())
    assert document["checksum"] == seal == _checksum({"a": "x", "b": np.array([1, 2])})
    (tmp_path / "p.json").write_text(
        json.dumps({"checksum": seal, "a": "x", "b": packed}, indent=7)
    )
    assert plain(read_document(tmp_path / "p.json")) == {"a": "x", "b": [1, 2]}


def test_an_edit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    write_document(DOCUMENT, path)
    path.write_text(path.read_text().replace("2.5", "2.6"))
    document, is_intact = decode_document(read_text(path), "p.json")
    assert not is_intact
    assert document["few"] == [1, 2.6, 3]


@pytest.mark.parametrize("seal", [None, 5, "", ["x"], {"base64": "", "dtype": "float64"}, "packed"])
def test_only_the_right_checksum_matches(seal: Any) -> None:
    one = {"base64": base64.b64encode(np.ones(2).tobytes()).decode(), "dtype": "float64"}
    document = {"a": 1, "checksum": {**one, "shape": [2]} if seal == "packed" else seal}
    assert not decode_document(json.dumps(document), "p.json")[1]


BROKEN: list[tuple[str, str]] = [
    ("", "it is not valid JSON (line 1, column 1)"),
    ('{"a": 1,\n "b" 2}', "it is not valid JSON (line 2, column 6)"),
    ("[1, 2]", "it is not a dubito document (no JSON object)"),
    ("5", "it is not a dubito document (no JSON object)"),
    ('{"a": NaN}', "it is not a dubito document (NaN is not a number)"),
    ('{"a": -Infinity}', "it is not a dubito document (-Infinity is not a number)"),
    ('{"a": 1e999}', "it is not a dubito document (1e999 is too large for a float)"),
    ('{"a": 1, "a": 2}', "it is not a dubito document (a key occurs twice)"),
    ('{"a": ' + "[" * 50 + "]" * 50 + "}", "it is not a dubito document (it is nested too deeply)"),
    (
        '{"a": ' + "[" * 99999 + "]" * 99999 + "}",
        "it is not a dubito document (maximum recursion depth",
    ),
    ('{"a": ' + "9" * 5000 + "}", "it is not a dubito document (Exceeds the limit"),
    ('{"a": {"base64": "AAAA", "dtype": "object", "shape": [1]}}', "an unknown dtype"),
    ('{"a": {"base64": "AAAA", "dtype": ["float64"], "shape": [1]}}', "an unknown dtype"),
    ('{"a": {"base64": 5, "dtype": "float64", "shape": [1]}}', "an unknown dtype"),
    ('{"a": {"base64": "AAA", "dtype": "float64", "shape": [1]}}', "an array is not valid base64"),
    ('{"a": {"base64": "ä", "dtype": "float64", "shape": [1]}}', "an array is not valid base64"),
    ('{"a": {"base64": "AAAA", "dtype": "float64", "shape": [1]}}', "does not match its shape"),
    ('{"a": {"base64": "", "dtype": "float64", "shape": []}}', "an array has an invalid shape"),
    ('{"a": {"base64": "", "dtype": "float64", "shape": [-1]}}', "an array has an invalid shape"),
    ('{"a": {"base64": "", "dtype": "float64", "shape": [true]}}', "an array has an invalid shape"),
    ('{"a": {"base64": "", "dtype": "float64", "shape": [99999999999]}}', "an invalid shape"),
    ('{"a": {"base64": "AAAAAAAA+H8=", "dtype": "float64", "shape": [1]}}', "that are not finite"),
    ('{"a": {"base64": "Ag==", "dtype": "bool", "shape": [1]}}', "invalid booleans"),
]


@pytest.mark.parametrize(("text", "problem"), BROKEN)
def test_text_that_is_no_policy_raises(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(text, encoding="utf-8")
    said = error_of(path)
    assert said.startswith(f"{path} cannot be read: it is not ")
    assert problem in said
    assert said.endswith(FIX)
    assert len(said) < 400


@pytest.mark.slow
def test_files_that_are_absent_or_too_large_or_not_text(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    assert error_of(path).startswith(f"{path} cannot be read: there is no such file. Check the")
    path.write_bytes(b"\xff\xfe")
    assert f"{path} cannot be read: it is not UTF-8 (" in error_of(path)
    path.write_bytes(b" " * (64 * 2**20 + 1))
    assert error_of(path).startswith(f"{path} cannot be read: it is larger than 64 MB. ")
    with pytest.raises(
        BadValueError,
        match=r"`policy` must be at most 1 MB as a file, got 6 MB\. Use a calibrator or an "
        "OOD score with fewer numbers",
    ):
        encode_document({"a": "ä" * 2**20 * 3}, "Policy.save", max_bytes=2**20)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), "\ud800"])
def test_values_that_json_cannot_hold_are_not_written(value: Any) -> None:
    with pytest.raises(
        BadValueError,
        match=r"Policy\.save: `policy` must hold only finite numbers and valid text, got .*\. "
        "Rename what JSON cannot hold",
    ):
        encode_document({"a": value}, "Policy.save")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([1, 2], "int64"),
        ([1, 2.5], "float64"),
        ([[1, 2], [3, 4]], "int64"),
        ([True, False], "bool"),
        ([True, 1], None),
        ([[1], [2, 3]], None),
        (["1", "2"], None),
        ([None], None),
        ([2**63], None),
        ([10**400, 0.5], None),
    ],
)
def test_lists_of_numbers_alone_are_arrays(value: Any, kind: str | None) -> None:
    found = _as_regular(value)
    assert (None if found is None else found.dtype.name) == kind


def test_texts_do_not_fill_memory() -> None:
    """NumPy makes every text of an array as long as the longest."""
    assert _as_regular(["x" * 10**7] + [""] * 10**6) is None


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.slow
@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), values, max_size=4))
def test_any_document_survives(tmp_path_factory: Any, document: dict[str, Any]) -> None:
    document.pop("checksum", None)
    path = tmp_path_factory.getbasetemp() / "any.json"
    try:
        write_document(document, path)
    except BadValueError as error:
        assert "surrogates" in str(error)  # noqa: PT017
        return
    assert plain(read_document(path)) == document

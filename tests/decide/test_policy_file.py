"""One JSON file: readable, sealed, whole, of bounded size; what is no such file is refused."""

import base64
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.decide.policy import file as module
from dubito.decide.policy.file import (
    _digest,
    as_regular,
    open_document,
    read_document,
    write_document,
)
from dubito.errors import BadFileError, BadValueError

FIX = "Try the file as `dubito fit` or `Policy.save` wrote it."
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


def refusal(path: Path) -> str:
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
    assert document["seal"] == seal == _digest({"a": "x", "b": np.array([1, 2])})
    (tmp_path / "p.json").write_text(json.dumps({"seal": seal, "a": "x", "b": packed}, indent=7))
    assert plain(read_document(tmp_path / "p.json")) == {"a": "x", "b": [1, 2]}


def test_a_change_by_hand_breaks_the_seal_until_it_is_sealed_anew(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    write_document(DOCUMENT, path)
    path.write_text(path.read_text().replace("2.5", "2.6"))
    assert refusal(path) == (
        f"{path} cannot be read: it has changed since it was sealed. "
        f"Try `dubito policy seal {path}` if you changed it."
    )
    write_document(open_document(path)[0], path)
    assert read_document(path)["few"] == [1, 2.6, 3]


@pytest.mark.parametrize("seal", [None, 5, "", ["x"], {"base64": "", "dtype": "float64"}, "packed"])
def test_only_the_right_seal_is_one(seal: Any, tmp_path: Path) -> None:
    one = {"base64": base64.b64encode(np.ones(2).tobytes()).decode(), "dtype": "float64"}
    document = {"a": 1, "seal": {**one, "shape": [2]} if seal == "packed" else seal}
    (tmp_path / "p.json").write_text(json.dumps(document))
    assert "it has changed since it was sealed" in refusal(tmp_path / "p.json")


BROKEN: list[tuple[str, str]] = [
    ("", "it is no policy (Expecting value"),
    ("[1, 2]", "it is no policy (no object)"),
    ("5", "it is no policy (no object)"),
    ('{"a": NaN}', "it is no policy (NaN is no number)"),
    ('{"a": -Infinity}', "it is no policy (-Infinity is no number)"),
    ('{"a": 1e999}', "it is no policy (1e999 is beyond the largest number)"),
    ('{"a": 1, "a": 2}', "it is no policy (a name comes twice)"),
    ('{"a": ' + "[" * 50 + "]" * 50 + "}", "it is no policy (it is nested too deeply)"),
    ('{"a": ' + "[" * 99999 + "]" * 99999 + "}", "it is no policy (maximum recursion depth"),
    ('{"a": ' + "9" * 5000 + "}", "it is no policy (Exceeds the limit"),
    ('{"a": {"base64": "AAAA", "dtype": "object", "shape": [1]}}', "of no known kind"),
    ('{"a": {"base64": "AAAA", "dtype": ["float64"], "shape": [1]}}', "of no known kind"),
    ('{"a": {"base64": 5, "dtype": "float64", "shape": [1]}}', "of no known kind"),
    ('{"a": {"base64": "AAA", "dtype": "float64", "shape": [1]}}', "an array is no base64"),
    ('{"a": {"base64": "ä", "dtype": "float64", "shape": [1]}}', "an array is no base64"),
    ('{"a": {"base64": "AAAA", "dtype": "float64", "shape": [1]}}', "is not of its shape"),
    ('{"a": {"base64": "", "dtype": "float64", "shape": []}}', "an array has no shape"),
    ('{"a": {"base64": "", "dtype": "float64", "shape": [-1]}}', "an array has no shape"),
    ('{"a": {"base64": "", "dtype": "float64", "shape": [true]}}', "an array has no shape"),
    ('{"a": {"base64": "", "dtype": "float64", "shape": [99999999999]}}', "has no shape"),
    ('{"a": {"base64": "AAAAAAAA+H8=", "dtype": "float64", "shape": [1]}}', "what is no number"),
    ('{"a": {"base64": "Ag==", "dtype": "bool", "shape": [1]}}', "neither true nor false"),
]


@pytest.mark.parametrize(("text", "problem"), BROKEN)
def test_what_is_no_policy_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(text, encoding="utf-8")
    said = refusal(path)
    assert said.startswith(f"{path} cannot be read: it is no policy (")
    assert problem in said
    assert said.endswith(FIX)
    assert len(said) < 400


def test_files_that_are_not_there_or_too_large_or_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.json"
    assert refusal(path) == f"{path} cannot be read: No such file or directory. {FIX}"
    path.write_bytes(b"\xff\xfe")
    assert f"{path} cannot be read: it is no UTF-8 (" in refusal(path)
    path.write_bytes(b" " * (64 * 2**20 + 1))
    assert refusal(path) == f"{path} cannot be read: it is larger than 64 MB. {FIX}"
    path.unlink()
    monkeypatch.setattr(module, "MOST_BYTES", 40)
    with pytest.raises(BadValueError) as caught:
        write_document({"a": "ä" * 30}, path)
    assert str(caught.value) == (
        "`policy` of Policy.save must be at most 64 MB as a file. Got 0 MB. "
        "Try a calibrator or a doubt of fewer numbers."
    )
    assert not path.exists()


@pytest.mark.parametrize("value", [float("inf"), float("nan"), "\ud800"])
def test_what_json_cannot_hold_is_not_written(value: Any, tmp_path: Path) -> None:
    with pytest.raises(BadValueError) as caught:
        write_document({"a": value}, tmp_path / "p.json")
    assert str(caught.value).startswith(
        "`policy` of Policy.save must be of finite numbers and proper texts. Got "
    )
    assert list(tmp_path.iterdir()) == []


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
        ("text", None),
        (5, None),
        ({}, None),
    ],
)
def test_lists_of_numbers_alone_are_arrays(value: Any, kind: str | None) -> None:
    found = as_regular(value)
    assert (None if found is None else found.dtype.name) == kind


def test_texts_do_not_fill_memory() -> None:
    """NumPy makes every text of an array as long as the longest."""
    assert as_regular(["x" * 10**7] + [""] * 10**6) is None


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), values, max_size=4))
def test_any_document_survives(tmp_path_factory: Any, document: dict[str, Any]) -> None:
    document.pop("seal", None)
    path = tmp_path_factory.getbasetemp() / "any.json"
    try:
        write_document(document, path)
    except BadValueError as error:
        assert "surrogates" in str(error)  # noqa: PT017
        return
    assert plain(read_document(path)) == document

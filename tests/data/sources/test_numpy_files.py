"""NPZ files and folders of NPY files: each array is a column, and pickles are never loaded."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubito import Logits
from dubito.data import Columns, read, scan
from dubito.data.labels import Labels
from dubito.errors import BadFileError, BadTypeError, BadValueError

LOGITS = np.random.default_rng(0).normal(size=(6, 3))
Y = np.array([0, 1, 2, 2, 1, 0])
COLUMNS = Columns(label="y", logits="logits")


def save(folder: Path, form: str, **arrays: Any) -> Path:
    if form == "npz":
        np.savez(folder / "f.npz", **arrays)
        return folder / "f.npz"
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


each_form = pytest.mark.parametrize("form", ["npz", "npy"])


@each_form
@pytest.mark.parametrize(
    ("logits", "y"),
    [
        (LOGITS, Y),
        (np.asfortranarray(LOGITS), Y),
        (LOGITS.astype(">f8"), Y.astype(">i4")),
        (LOGITS.astype(np.longdouble), Y.astype(np.longdouble)),
        (LOGITS, Y.astype(np.uint8)),
        (LOGITS, Y.astype(np.int8)),
        (LOGITS, Y.astype(">f4")),
    ],
    ids=["plain", "Fortran", "big-endian", "long", "uint8", "int8", "big-endian labels"],
)
def test_arrays_are_read_however_they_lie(tmp_path: Path, form: str, logits: Any, y: Any) -> None:
    batch = read(save(tmp_path, form, logits=logits, y=y), COLUMNS)
    assert isinstance(batch.outputs, Logits)
    assert isinstance(batch.labels, Labels)
    np.testing.assert_array_equal(batch.outputs.array, LOGITS)
    np.testing.assert_array_equal(batch.labels.codes, Y)


@each_form
def test_half_precision_goes_up_to_single(tmp_path: Path, form: str) -> None:
    source = save(tmp_path, form, logits=LOGITS.astype(np.float16), y=Y)
    outputs = read(source, COLUMNS).outputs
    assert isinstance(outputs, Logits)
    assert outputs.array.dtype == np.float32


@each_form
def test_only_what_is_asked_for_must_fit(tmp_path: Path, form: str) -> None:
    others = {"loss": 0.5, "cube": np.zeros((2, 2, 2)), "train": np.zeros(99)}
    others["pickled"] = np.array([{}], dtype=object)
    assert len(read(save(tmp_path, form, logits=LOGITS, y=Y, **others), COLUMNS)) == 6


@each_form
@pytest.mark.parametrize(
    ("y", "words"),
    [
        (Y[:5], r".*: `y` must be as long as `logits` \(6 rows\), got 5 rows"),
        (np.float64(1), r".*: `y` must be rows, or rows x entries, got shape \(\)"),
        (np.zeros((6, 1, 1)), r"got shape \(6, 1, 1\)"),
        (Y[:, np.newaxis], r"must be one label per row, or rows x 3 .* got shape \(6, 1\)"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path: Path, form: str, y: Any, words: str) -> None:
    with pytest.raises(BadValueError, match=words):
        read(save(tmp_path, form, logits=LOGITS, y=y), COLUMNS)


@each_form
@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.zeros(6, [("a", "f4")]), "must be numbers or text, got dtype"),
        (np.zeros(6, np.complex64), "must be numbers or text, got dtype complex64"),
    ],
)
def test_arrays_of_other_kinds_are_named(tmp_path: Path, form: str, y: Any, words: str) -> None:
    with pytest.raises(BadTypeError, match=words):
        read(save(tmp_path, form, logits=LOGITS, y=y), COLUMNS)


class Trap:
    """Something that makes a folder when unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


@each_form
def test_pickled_objects_raise_and_are_never_executed(tmp_path: Path, form: str) -> None:
    trap = np.empty(6, dtype=object)
    trap[:] = [Trap(tmp_path / "sprung")] * 6
    source = save(tmp_path, form, logits=LOGITS, y=trap)
    with pytest.raises(BadTypeError, match="got pickled objects"):
        read(source, COLUMNS)
    for name in ("whole.npz", "whole.npy"):
        (tmp_path / name).write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
        with pytest.raises(BadFileError):
            scan(tmp_path / name, COLUMNS)
    assert not (tmp_path / "sprung").exists()


def test_a_folder_and_any_array_in_it_are_the_same_table(tmp_path: Path) -> None:
    folder = save(tmp_path, "npy", logits=LOGITS, y=Y)
    for source in (folder, folder / "y.npy", str(folder / "logits.npy")):
        assert len(read(source, COLUMNS)) == 6


def test_a_broken_array_is_named_alone(tmp_path: Path) -> None:
    folder = save(tmp_path, "npy", logits=LOGITS, y=Y)
    (folder / "y.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(BadFileError, match=r"y\.npy cannot be read"):
        scan(folder, COLUMNS)


def test_an_array_cut_short_is_found(tmp_path: Path) -> None:
    for form in ("npz", "npy"):
        source = save(tmp_path, form, logits=np.random.default_rng(0).normal(size=(500, 3)))
        path = source if form == "npz" else source / "logits.npy"
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(BadFileError, match="cannot be read"):
            read(source, Columns(logits="logits"))


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_cut_while_it_is_read_is_an_error_and_no_signal(
    tmp_path: Path, order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", str(1 << 12))
    logits = np.zeros((200_000, 3), order=order)
    folder = save(tmp_path, "npy", logits=logits, y=np.zeros(len(logits)))
    batches = scan(folder, COLUMNS).batches()
    next(batches)
    os.truncate(folder / "logits.npy", 100_000)
    with pytest.raises(BadFileError, match=r"logits\.npy cannot be read: it ends before row"):
        list(batches)

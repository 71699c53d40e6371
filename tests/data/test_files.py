"""Whatever a table is kept in, it is read as the same batch and adds up to the same audit."""

import pickle
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from pyarrow import parquet

from dubito import Logits, Normal, Probabilities, TopLabel
from dubito.data import Batch, Columns, read, scan
from dubito.data.files import _resized
from dubito.data.labels import Labels, Targets
from dubito.errors import BadValueError
from dubito.measure import AuditState

Write = Callable[[str, pa.Table], Any]

TEXT_FILES = ["csv", "csv.bz2", "csv.gz", "csv.zst", "tsv", "tsv.gz"]
NUMPY_FILES = ["npy", "npz"]
ARROW_FILES = ["arrow", "arrow stream", "feather", "parquet"]
TABLES = ["pandas", "polars", "record batch", "table"]

each_format = pytest.mark.parametrize("form", [*TEXT_FILES, *NUMPY_FILES, *ARROW_FILES, *TABLES])
each_format_with_gaps = pytest.mark.parametrize("form", [*TEXT_FILES, *ARROW_FILES, *TABLES])
each_format_with_lists = pytest.mark.parametrize("form", [*NUMPY_FILES, *ARROW_FILES, *TABLES])

N_ROWS = 40
ANIMALS = ["cat", "dog", "fox"]
rng = np.random.default_rng(0)
LOGITS = rng.normal(size=(N_ROWS, 12))
PROBABILITIES = rng.dirichlet([1, 1, 1], N_ROWS)
Y = rng.integers(0, 12, N_ROWS)


def table_of(matrix: Any, pattern: str, classes: Any, **others: Any) -> pa.Table:
    """Return a column a class, the last class first, and other columns."""
    names = [pattern.replace("*", str(name)) for name in classes]
    columns = dict(zip(reversed(names), reversed(matrix.T), strict=True))
    return pa.table({**columns, **others})


def codes_read(source: Any, columns: Columns) -> list[int]:
    truth = read(source, columns).labels
    assert isinstance(truth, Labels)
    return [int(code) for code in truth.codes]


@each_format
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_that_is_known_about_rows_comes_back(write: Write, form: str, dtype: str) -> None:
    logits, features = LOGITS.astype(dtype), PROBABILITIES.astype(dtype)
    ids, sites = [f"row {i}" for i in range(N_ROWS)], ["north", "south"] * (N_ROWS // 2)
    table = table_of(logits, "logit_*", range(12), y=Y, w=LOGITS[:, 0] ** 2, id=ids, site=sites)
    for k, column in enumerate(features.T):
        table = table.append_column(f"f_{k}", pa.array(column))

    columns = Columns(
        "y", logits="logit_*", weight="w", id="id", group="site", features="f_*", row_costs="w"
    )
    batch = read(write(form, table), columns)

    assert isinstance(batch.outputs, Logits)
    assert isinstance(batch.labels, Labels)
    assert batch.features is not None
    if form not in TEXT_FILES:
        assert batch.outputs.array.dtype == batch.features.dtype == dtype
    assert_array_equal(batch.outputs.array.astype(dtype), logits)
    assert batch.outputs.classes == tuple(range(12))
    assert_array_equal(batch.labels.codes, Y)
    assert_array_equal(batch.weight, LOGITS[:, 0] ** 2)
    assert_array_equal(batch.features.astype(dtype), features)
    assert_array_equal(batch.ids, ids)
    assert_array_equal(batch.groups, sites)
    assert batch.row_costs is not None
    assert_array_equal(batch.row_costs["w"], LOGITS[:, 0] ** 2)


LABELS = {
    "whole numbers": pa.array([2, 0, 1, 2]),
    "small numbers": pa.array([2, 0, 1, 2], pa.uint8()),
    "floats": pa.array([2.0, 0.0, 1.0, 2.0]),
    "floats with NaN": pa.array([2.0, np.nan, 1.0, np.nan]),
    "names": pa.array(["fox", "cat", "dog", "fox"]),
    "categories": pa.array(["fox", "cat", "dog", "fox"]).dictionary_encode(),
}
LABELS_WITH_GAPS = {
    "whole numbers": pa.array([2, None, 1, 2]),
    "decimals": pa.array([2, None, 1, 2], pa.decimal128(5, 1)),
    "floats": pa.array([2.0, None, 1.0, None]),
    "names": pa.array(["fox", None, "dog", "fox"]),
    "categories": pa.array(["fox", None, "dog", "fox"]).dictionary_encode(),
    "nothing else": pa.nulls(4),
}


def codes_by_hand(labels: pa.Array) -> list[int]:
    plain = [ANIMALS.index(v) if isinstance(v, str) else v for v in labels.to_pylist()]
    return [-1 if v is None or v != v else int(v) for v in plain]


def labeled(labels: pa.Array) -> pa.Table:
    is_text = any(isinstance(value, str) for value in labels.to_pylist())
    return table_of(PROBABILITIES[:4], "p_*", ANIMALS if is_text else range(3), y=labels)


@each_format
@pytest.mark.parametrize("kind", LABELS)
def test_labels_are_numbers_or_names(write: Write, form: str, kind: str) -> None:
    source = write(form, labeled(LABELS[kind]))
    assert codes_read(source, Columns("y", probabilities="p_*")) == codes_by_hand(LABELS[kind])


@each_format_with_gaps
@pytest.mark.parametrize("kind", LABELS_WITH_GAPS)
def test_a_gap_is_a_missing_label(write: Write, form: str, kind: str) -> None:
    labels = LABELS_WITH_GAPS[kind]
    source = write(form, labeled(labels))
    assert codes_read(source, Columns("y", probabilities="p_*")) == codes_by_hand(labels)


@each_format
def test_booleans_are_labels_of_the_positive_class(write: Write, form: str) -> None:
    source = write(form, pa.table({"p": [0.2, 0.9, 0.4], "y": [False, True, True]}))
    assert codes_read(source, Columns(label="y", probabilities="p")) == [0, 1, 1]


@each_format
def test_classes_whose_numbers_start_at_1_are_matched_by_name(write: Write, form: str) -> None:
    source = write(form, table_of(PROBABILITIES[:3], "p_*", [1, 2, 3], y=[3, 1, 2]))
    assert codes_read(source, Columns(label="y", probabilities="p_*")) == [2, 0, 1]


@each_format
def test_columns_can_be_listed(write: Write, form: str) -> None:
    table = table_of(PROBABILITIES[:3], "*", ANIMALS, y=["fox", "cat", "dog"])
    batch = read(write(form, table), Columns("y", probabilities=["dog", "cat", "fox"]))
    assert isinstance(batch.outputs, Probabilities)
    assert batch.outputs.classes == ("dog", "cat", "fox")
    assert_array_equal(batch.outputs.array, PROBABILITIES[:3, [1, 0, 2]])
    assert isinstance(batch.labels, Labels)
    assert batch.labels.codes.tolist() == [2, 1, 0]


@each_format_with_gaps
def test_votes_are_matched_to_the_classes_by_name(write: Write, form: str) -> None:
    votes = np.array([[0.5, 0.5, 0.0], [np.nan] * 3, [0.0, 0.25, 0.75]])
    table = table_of(PROBABILITIES[:3], "p_*", ANIMALS)
    for name, column in zip(ANIMALS, votes.T, strict=True):
        table = table.append_column(f"vote_{name}", pa.array(column, from_pandas=True))
    truth = read(write(form, table), Columns("vote_*", probabilities="p_*")).labels
    assert isinstance(truth, Labels)
    assert truth.probabilities is not None
    assert truth.is_missing.tolist() == [False, True, False]
    assert_array_equal(truth.probabilities[[0, 2]], votes[[0, 2]])


@each_format_with_lists
@pytest.mark.parametrize("kind", [pa.list_(pa.float32(), 12), pa.list_(pa.float32())], ids=str)
def test_a_column_of_lists_is_a_matrix(write: Write, form: str, kind: pa.DataType) -> None:
    logits = pa.array(LOGITS.tolist(), kind)
    columns = Columns(label="y", logits="logits", classes=[f"class {k}" for k in range(12)])
    labels = [f"class {k}" for k in Y]
    batch = read(write(form, pa.table({"logits": logits, "y": labels})), columns)
    assert isinstance(batch.outputs, Logits)
    assert isinstance(batch.labels, Labels)
    assert_array_equal(batch.outputs.array.astype(np.float32), LOGITS.astype(np.float32))
    assert_array_equal(batch.labels.codes, Y)


@pytest.mark.parametrize("form", [*ARROW_FILES, *TABLES])
def test_a_gap_in_place_of_a_list_of_votes_is_a_missing_label(write: Write, form: str) -> None:
    table = table_of(PROBABILITIES[:3], "p_*", ANIMALS, votes=[None, [0.5, 0.5, 0.0], None])
    truth = read(write(form, table), Columns(label="votes", probabilities="p_*")).labels
    assert isinstance(truth, Labels)
    assert truth.probabilities is not None
    assert truth.is_missing.tolist() == [True, False, True]
    assert truth.probabilities[1].tolist() == [0.5, 0.5, 0.0]


@each_format
@pytest.mark.parametrize(
    "correct", [[True, False], [1, 0], [1.0, 0.0], ["True", "FALSE"], ["1", "0.0"]], ids=str
)
def test_confidence_comes_with_what_was_right(
    write: Write, form: str, correct: list[object]
) -> None:
    source = write(form, pa.table({"c": [0.75, 0.5], "hit": correct}))
    outputs = read(source, Columns(confidence="c", correct="hit")).outputs
    assert isinstance(outputs, TopLabel)
    assert outputs.confidence.tolist() == [0.75, 0.5]
    assert outputs.correct.tolist() == [1.0, 0.0]


@each_format_with_gaps
def test_mean_and_std_come_with_targets_that_may_be_missing(write: Write, form: str) -> None:
    source = write(form, pa.table({"m": [1.5, 2.0], "s": [0.5, 1.0], "y": [1.0, None]}))
    batch = read(source, Columns(label="y", mean="m", std="s"))
    assert isinstance(batch.outputs, Normal)
    assert isinstance(batch.labels, Targets)
    assert batch.outputs.mean.tolist() == [1.5, 2.0]
    assert batch.outputs.std.tolist() == [0.5, 1.0]
    assert_array_equal(batch.labels.values, [1.0, np.nan])


def predictions(n_rows: int = N_ROWS) -> pa.Table:
    weight = np.arange(n_rows) % 5 / 4
    return table_of(LOGITS[:n_rows], "logit_*", range(12), y=Y[:n_rows], w=weight)


COLUMNS = Columns(label="y", logits="logit_*", weight="w")


@each_format
@pytest.mark.parametrize("n_entries", [1, 100, 1 << 20])
def test_streamed_equals_whole(
    write: Write, form: str, n_entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", str(n_entries))
    table = predictions()
    shards = scan(write(form, table), COLUMNS)
    weight = table["w"].to_numpy()
    whole = AuditState.of(Batch.of(Y, Logits(LOGITS), sample_weight=weight)).to_dict()
    for _ in range(2):  # a file can be summed again
        streamed = shards.sum(AuditState.of).to_dict()
        for part in ("scores", "reliability", "test", "ranked", "smooth", "by_class"):
            for name, values in whole[part].items():
                assert np.allclose(streamed[part][name], values, rtol=1e-9, atol=1e-9), part


@pytest.mark.slow
def test_digits_depend_on_neither_format_nor_threads(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "100")
    sums = []
    for form in [*TEXT_FILES, *NUMPY_FILES, *ARROW_FILES, *TABLES]:
        for threads in ("1", "2"):
            monkeypatch.setenv("DUBITO_THREADS", threads)
            sums.append(scan(write(form, predictions()), COLUMNS).sum(AuditState.of).to_dict())
    assert all(one == sums[0] for one in sums)


def test_empty_row_groups_are_no_rows(tmp_path: Path) -> None:
    table = predictions()
    with parquet.ParquetWriter(tmp_path / "p.parquet", table.schema) as file:
        for low, high in ((0, 0), (0, 11), (11, 11), (11, 40), (40, 40)):
            file.write_table(table[low:high])
    assert parquet.ParquetFile(tmp_path / "p.parquet").num_row_groups == 5
    batch = read(tmp_path / "p.parquet", COLUMNS)
    assert isinstance(batch.outputs, Logits)
    assert_array_equal(batch.outputs.array, LOGITS)


@pytest.mark.parametrize("sizes", [[10], [1] * 10, [0, 3, 0, 7], [4, 4, 2]], ids=str)
@pytest.mark.parametrize("n_rows", [1, 3, 4, 10, 11])
def test_pieces_are_of_one_size_however_batches_are_cut(sizes: list[int], n_rows: int) -> None:
    ends = np.cumsum(sizes)
    batches = [
        pa.record_batch({"i": np.arange(end - size, end)})
        for end, size in zip(ends, sizes, strict=True)
    ]
    pieces = list(_resized(batches, n_rows))
    assert [len(piece) for piece in pieces[:-1]] == [n_rows] * (len(pieces) - 1)
    assert pa.concat_tables(pieces)["i"].to_pylist() == list(range(10))


@pytest.mark.slow
def test_few_batches_are_alive_at_once(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "14")
    monkeypatch.setenv("DUBITO_THREADS", "2")
    alive: weakref.WeakSet[Batch] = weakref.WeakSet()
    most = []

    def count(batch: Batch) -> int:
        alive.add(batch)
        most.append(len(alive))
        return 1

    table = pa.concat_tables([predictions()] * 10)
    assert scan(write("parquet", table), COLUMNS).sum(count) == 400
    assert max(most) <= 8


@pytest.mark.slow
@pytest.mark.parametrize("row_group_size", [50_000, 1_000_000])
def test_little_of_a_parquet_file_is_in_memory(
    tmp_path: Path, row_group_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", str(1 << 16))
    logits = rng.random(size=(1_000_000, 8), dtype=np.float32)
    table, path = table_of(logits, "logit_*", range(8)), tmp_path / "big.parquet"
    parquet.write_table(table, path, row_group_size=row_group_size, use_dictionary=False)
    del logits, table
    before, most = pa.total_allocated_bytes(), []

    def look(batch: Batch) -> int:
        most.append(pa.total_allocated_bytes() - before)
        return len(batch)

    assert scan(path, Columns(logits="logit_*")).sum(look) == 1_000_000
    assert path.stat().st_size > 30e6
    assert max(most) < 16e6


def test_shards_survive_a_trip_to_another_process(write: Write) -> None:
    for form in [*TEXT_FILES, *NUMPY_FILES, *ARROW_FILES, "table"]:
        shards = scan(write(form, predictions()), COLUMNS)
        there = pickle.loads(pickle.dumps(shards))
        assert there.sum(AuditState.of).to_dict() == shards.sum(AuditState.of).to_dict()


def test_a_misspelt_class_is_missing_in_no_table_that_has_types() -> None:
    table = pa.table({"y": ["none", "None"], "p_none": [0.4, 0.4], "p_a": [0.6, 0.6]})
    with pytest.raises(BadValueError, match="got 'None' in row 1"):
        read(table, Columns(label="y", probabilities="p_*"))

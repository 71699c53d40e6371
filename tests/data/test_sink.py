"""Results are written in order, whole or not at all, and come back as they were."""

import os
from collections.abc import Callable, Iterator
from csv import reader as csv_reader
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, feather, ipc, parquet

from dubito.data import ArrayShards, Batch, Columns, EncodedLabels, Shards, Sink, scan
from dubito.errors import BadTypeError, BadValueError, DubitoError

RNG = np.random.default_rng(0)
N = 1000
P = RNG.dirichlet([1, 1, 1], N)
NAMES = ("accept", "review")


def columns_of(batch: Batch) -> dict[str, Any]:
    rows = np.arange(batch.first_row, batch.first_row + len(batch))
    return {
        "row": rows,
        "text": np.array([f'row "{i}", é' for i in rows]),
        "confidence": batch.rows.confidence,
        "is_sure": batch.rows.confidence > 0.5,
        "action": EncodedLabels(np.where(rows % 3 == 0, -1, rows % 2), NAMES),
    }


def expected() -> dict[str, list[Any]]:
    rows = range(N)
    return {
        "row": list(rows),
        "text": [f'row "{i}", é' for i in rows],
        "confidence": P.max(axis=1).tolist(),
        "is_sure": (P.max(axis=1) > 0.5).tolist(),
        "action": [None if i % 3 == 0 else NAMES[i % 2] for i in rows],
    }


def read_csv(path: Path) -> pa.Table:
    options = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    parsing = csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
    return csv.read_csv(path, parse_options=parsing, convert_options=options)


def read_arrow(path: Path) -> pa.Table:
    with ipc.open_file(path) as reader:
        return reader.read_all()


READERS: dict[str, Callable[[Path], pa.Table]] = {
    ".arrow": read_arrow,
    ".csv": read_csv,
    ".feather": read_arrow,
    ".ipc": read_arrow,
    ".parquet": parquet.read_table,
    ".pq": parquet.read_table,
    ".tsv": read_csv,
}


@pytest.mark.parametrize("ending", READERS)
@pytest.mark.parametrize("threads", ["1", "2"])
def test_columns_come_back_as_they_were_in_every_format(
    tmp_path: Path, ending: str, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "120")
    monkeypatch.setenv("DUBITO_THREADS", threads)
    path, reported = tmp_path / f"out{ending}", list[int]()
    with Sink(path, group_rows=64) as sink:
        shards = ArrayShards(Batch.of(None, P))
        assert shards.write(columns_of, sink, on_progress=reported.append) == N
        assert not path.exists()
    assert READERS[ending](path).to_pydict() == expected()
    assert reported == [*range(40, N, 40), N]
    assert list(tmp_path.iterdir()) == [path]


def test_row_groups_are_neither_tiny_nor_endless(tmp_path: Path) -> None:
    with Sink(tmp_path / "out.parquet", group_rows=100) as sink:
        for n_rows in (1, 30, 80, 250, 0, 9):
            sink.write({"x": np.ones(n_rows)})
    groups = parquet.ParquetFile(tmp_path / "out.parquet").metadata
    sizes = [groups.row_group(k).num_rows for k in range(groups.num_row_groups)]
    assert sizes == [100, 11, 100, 100, 50, 9]
    assert sink.n_rows == 370


def test_what_was_written_can_be_scanned(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    with Sink(path) as sink:
        ArrayShards(Batch.of(None, P)).write(
            lambda batch: {
                "p": batch.rows.confidence,
                "group": EncodedLabels(np.ones(len(batch), int), NAMES),
            },
            sink,
        )
    batch = next(scan(path, Columns(probabilities="p", group="group")).batches())
    assert batch.groups is not None
    assert set(batch.groups) == {"review"}
    assert len(batch) == N


def test_batches_may_write_nothing_or_no_rows(tmp_path: Path) -> None:
    with Sink(tmp_path / "out.csv") as sink:
        sink.write(None)
        sink.write({})
        sink.write({"id": np.array([], dtype=np.int64), "text": np.array([], dtype="U1")})
    assert (tmp_path / "out.csv").read_text() == '"id","text"\n'
    assert sink.n_rows == 0


def test_a_batch_of_gaps_is_of_any_type(tmp_path: Path) -> None:
    with Sink(tmp_path / "out.parquet") as sink:
        sink.write({"id": np.array(["a", None], dtype=object)})
        sink.write({"id": np.array([None], dtype=object)})
    assert parquet.read_table(tmp_path / "out.parquet")["id"].to_pylist() == ["a", None, None]
    with Sink(tmp_path / "coded.csv") as sink:
        sink.write({"action": EncodedLabels(np.array([0]), NAMES)})
        sink.write({"action": np.array([None], dtype=object)})
    assert (tmp_path / "coded.csv").read_text() == '"action"\n"accept"\n\n'


@pytest.mark.parametrize("ending", READERS)
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("is_there", [True, False])
def test_an_error_leaves_nothing_and_what_was_there(
    tmp_path: Path, ending: str, error: type[BaseException], is_there: bool
) -> None:
    path = tmp_path / f"out{ending}"
    if is_there:
        path.write_bytes(b"before")

    def failing(batch: Batch) -> dict[str, Any]:
        if batch.first_row > 500:
            raise error
        return columns_of(batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUBITO_BLOCK_ENTRIES", "120")
        with pytest.raises(error), Sink(path, group_rows=64) as sink:
            ArrayShards(Batch.of(None, P)).write(failing, sink)
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"before"] * is_there


def test_a_disk_that_cannot_keep_it_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "out.csv"
    path.write_bytes(b"before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), Sink(path) as sink:
        sink.write({"x": [1]})
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"before"]


def test_it_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "out.csv", list[bool]()
    monkeypatch.setattr(os, "fsync", lambda _: seen.append(path.exists()))
    with Sink(path) as sink:
        sink.write({"x": [1]})
    assert seen == [False, True]  # the file, then the folder that holds its name


def test_a_link_goes_on_pointing_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link, path = tmp_path / "out.csv", tmp_path / "real" / "out.csv"
    link.symlink_to(path)
    with Sink(link) as sink:
        sink.write({"x": [1]})
    assert link.is_symlink()
    assert path.read_text() == '"x"\n1\n'


class Lazy(Shards):
    """Many batches that count how many are made and not yet written."""

    def __init__(self) -> None:
        self.made = 0

    def parts(self) -> Iterator[Callable[[], Batch]]:
        return (partial(self.make) for _ in range(200))

    def make(self) -> Batch:
        self.made += 1
        return Batch.of(None, P[:5])


def test_few_batches_are_under_way_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUBITO_THREADS", "2")
    shards, ahead = Lazy(), list[int]()
    with Sink(tmp_path / "out.csv") as sink:
        shards.write(
            lambda batch: {"p": batch.rows.confidence},
            sink,
            on_progress=lambda n_rows: ahead.append(shards.made - n_rows // 5),
        )
    assert len(ahead) == 200
    assert max(ahead) <= 4


def two(first: Any, second: Any) -> Callable[[Sink], None]:
    def write(sink: Sink) -> None:
        sink.write(first)
        sink.write(second)

    return write


X = np.array([1.0])
BAD: list[tuple[Callable[[Sink], None], type[DubitoError], str]] = [
    (
        two({"x": X}, {"y": X}),
        BadValueError,
        "PATH: `columns` must be x, as in the first batch, got y. Write the same columns in "
        "every batch.",
    ),
    (
        two({"x": X}, {"x": np.array(["1"])}),
        BadValueError,
        "PATH: `x` must have type double, as in the first batch, got string. Write one type in "
        "every batch.",
    ),
    (
        two(
            {"x": EncodedLabels(np.array([0]), NAMES)}, {"x": EncodedLabels(np.array([0]), ("a",))}
        ),
        BadValueError,
        "PATH: `x` must have the names ('accept', 'review'), as in the first batch, got ('a',). "
        "Write the same names in every batch.",
    ),
    (
        lambda sink: sink.write({"x": X, "y": np.ones(2)}),
        BadValueError,
        "PATH: `y` must be as long as `x` (1 rows), got 2 rows. Provide one value per row.",
    ),
    (
        lambda sink: sink.write({"x": np.array([1, "a", 2.5], dtype=object)}),
        BadTypeError,
        "PATH: `x` must be numbers, text or booleans, one per row, got shape (3,) of object. Use "
        "one column for each kind of value.",
    ),
    (
        lambda sink: sink.write({"x": np.ones((2, 2))}),
        BadTypeError,
        "PATH: `x` must be numbers, text or booleans, one per row, got shape (2, 2) of float64. "
        "Use one column for each kind of value.",
    ),
    (
        lambda sink: sink.write({"x": "a", "y": "b"}),
        BadTypeError,
        "PATH: `x, y` must have one value per row in at least one column, got one text each. Use "
        "a list of the text.",
    ),
    (
        lambda sink: None,
        BadValueError,
        "PATH: `columns` must be given by at least one batch, got none. Write columns of length "
        "0 if there are no rows.",
    ),
]


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".arrow"])
def test_one_text_stands_for_a_column_of_it(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"out{ending}"
    with Sink(path) as sink:
        sink.write({"file": "a", "x": np.arange(2)})
        sink.write({"file": "b", "x": np.arange(0)})
        sink.write({"file": np.array(["c"]), "x": np.arange(1)})
    assert READERS[ending](path).to_pydict() == {"file": ["a", "a", "c"], "x": [0, 1, 0]}


def test_parquet_looks_for_repetition_among_names_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    names = {"action": EncodedLabels(np.array([0, 1]), NAMES), "file": "a"}
    with Sink(path) as sink:
        sink.write({"p": np.array([0.5, 0.5]), "id": np.array([7, 7]), **names})
    group = parquet.read_metadata(path).row_group(0)
    coded = {
        column.path_in_schema: "RLE_DICTIONARY" in column.encodings
        for column in map(group.column, range(group.num_columns))
    }
    assert coded == {"p": False, "id": False, "action": True, "file": True}


@pytest.mark.parametrize(("write", "kind", "message"), BAD)
@pytest.mark.parametrize("ending", [".parquet", ".csv", ".arrow"])
def test_invalid_columns_raise_and_leave_no_file(
    tmp_path: Path, ending: str, write: Any, kind: type[DubitoError], message: str
) -> None:
    path = tmp_path / f"out{ending}"
    with pytest.raises(kind) as caught, Sink(path) as sink:
        write(sink)
    assert str(caught.value) == message.replace("PATH", str(path))
    assert not list(tmp_path.iterdir())


def test_an_unknown_ending_a_missing_directory_and_a_closed_sink_raise(tmp_path: Path) -> None:
    with pytest.raises(BadValueError) as caught:
        Sink(tmp_path / "out.xlsx")
    assert str(caught.value) == (
        "Sink: `path` must end in one of .arrow, .csv, .feather, .ipc, .parquet, .pq, .tsv, got "
        "'out.xlsx'. Use a .parquet path."
    )
    with pytest.raises(BadValueError) as nowhere, Sink(tmp_path / "no" / "out.csv"):
        pass
    assert str(nowhere.value) == (
        f"Sink: `path` must be in an existing directory, got '{tmp_path}/no/out.csv'. Create the "
        f"directory first."
    )
    with pytest.raises(BadTypeError) as closed:
        Sink(tmp_path / "out.csv").write({"x": X})
    assert str(closed.value) == (
        "write: `sink` must be open, got a closed one. Use `with Sink(path) as sink:`."
    )


FORMULAS = ["=cmd|' /C calc'!A0", "+A1", "-A1", "@SUM(A1)", "\tx", "\rx", "=1+1"]
PLAIN = ["-5", "+3.5e-4", "-.5", "-inf", "a=b", "'=quoted", "", "é"]


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".arrow"])
def test_formulas_are_quoted_in_text_files_only(tmp_path: Path, ending: str) -> None:
    path, texts = tmp_path / f"out{ending}", FORMULAS + PLAIN
    codes = np.arange(len(texts))
    with Sink(path) as sink:
        for _ in range(2):  # a second batch has the same columns
            sink.write(
                {
                    "=id": np.array(texts),
                    "code": EncodedLabels(codes, tuple(texts)),
                    "one": "=1+1",
                    "-x": -codes.astype(float),
                }
            )
    quote = "'" if ending in (".csv", ".tsv") else ""
    if quote:
        with path.open(newline="") as file:
            names, *rows = csv_reader(file, delimiter="," if ending == ".csv" else "\t")
    else:
        read = parquet.read_table if ending == ".parquet" else feather.read_table
        table = read(path)
        names = table.column_names
        rows = [list(map(str, row.values())) for row in table.to_pylist()]
    assert names == [f"{quote}=id", "code", "one", f"{quote}-x"]
    wanted = [quote + text for text in FORMULAS] + PLAIN
    assert [row[0] for row in rows] == [row[1] for row in rows] == wanted * 2
    assert {row[2] for row in rows} == {f"{quote}=1+1"}
    assert [float(row[3]) for row in rows] == [-float(code) for code in codes] * 2


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_text_is_quoted_unless_it_is_a_number(tmp_path: Path, ending: str) -> None:
    texts = ["12.10", "-3", "1e5", "007", "1234567890123456", 'a "b"', "x,y\tz\n", "=1+1", "", None]
    path = tmp_path / f"rows{ending}"
    with Sink(path) as sink:
        sink.write({"text": pa.array(texts), "value": pa.array([0.5, None] * 5)})
    separator = "," if ending == ".csv" else "\t"
    lines = path.read_bytes().decode().replace("z\n", "z ").splitlines()
    shown = ['"007"', '"1234567890123456"', '"a ""b"""', '"x,y\tz "', '"\'=1+1"', '""', ""]
    expected = zip(["12.10", "-3", "1e5", *shown], ["0.5", ""] * 5, strict=True)
    assert lines == [f'"text"{separator}"value"', *(separator.join(pair) for pair in expected)]
    with path.open(newline="") as file:
        rows = list(csv_reader(file, delimiter=separator))
    assert [row[0] for row in rows[1:7]] == texts[:6]

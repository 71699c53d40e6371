"""CSV and TSV as people and programs really write them."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from dubito.data import BadRows, Batch, Columns, read, scan
from dubito.data.labels import Labels
from dubito.data.sources import open_source
from dubito.errors import BadFileError, BadValueError

COLUMNS = Columns(label="y", logits="z_*")
PLAIN = "y,z_0,z_1\n1,0.5,-2\n0,1e-3,3\n"


def read_text(path: Path, text: str, columns: Columns = COLUMNS) -> Batch:
    path.write_text(text, newline="")
    return read(path, columns)


def codes_of(batch: Batch) -> list[int]:
    assert isinstance(batch.labels, Labels)
    return [int(code) for code in batch.labels.codes]


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        "\ufeff" + PLAIN,
        PLAIN.replace("\n", "\r\n"),
        PLAIN.rstrip("\n"),
        "\n" + PLAIN + "\n\n",
        PLAIN.replace("1,0.5", '"1","0.5"'),
        PLAIN.replace("0.5", " 0.5 "),
        PLAIN.replace("y,", '"y",'),
        'z_1,note,y,z_0\n-2,"a\nb, and ""c""",1,0.5\n3,,0,1e-3\n',
        PLAIN.replace("y,z_0,z_1", "y,z_0,z_1,x,x").replace("-2", "-2,,").replace(",3", ",3,a,b"),
    ],
    ids=[
        "plain",
        "byte order mark",
        "Windows",
        "no last line end",
        "blank lines",
        "quoted cells",
        "spaces",
        "quoted header",
        "line end in quotes",
        "a name twice, not wanted",
    ],
)
def test_ways_to_write_the_same_table(tmp_path: Path, text: str) -> None:
    batch = read_text(tmp_path / "f.csv", text)
    assert batch.outputs.array.tolist() == [[0.5, -2.0], [0.001, 3.0]]  # type: ignore[attr-defined]
    assert codes_of(batch) == [1, 0]


@pytest.mark.parametrize("gap", ["", "NA", "NaN", "nan", "null", "None", "<NA>"])
def test_ways_to_write_a_missing_label(tmp_path: Path, gap: str) -> None:
    assert codes_of(read_text(tmp_path / "f.csv", PLAIN + f"{gap},1,2\n")) == [1, 0, -1]


def test_a_class_may_be_called_like_a_gap(tmp_path: Path) -> None:
    text = "y,z_NA,z_EU\nNA,1,2\nEU,1,2\nnull,1,2\n"
    assert codes_of(read_text(tmp_path / "f.csv", text)) == [1, 0, -1]


@pytest.mark.parametrize("true", ["True", "true", "TRUE", "1", "1.0"])
def test_ways_to_write_true(tmp_path: Path, true: str) -> None:
    text = f"y,p\n{true},0.5\n"
    assert codes_of(read_text(tmp_path / "f.csv", text, Columns("y", probabilities="p"))) == [1]


def test_ids_and_groups_are_texts_as_they_stand(tmp_path: Path) -> None:
    text = "y,z_0,z_1,id,site\n1,1,2,007,NA\n0,1,2,,\n"
    columns = Columns(label="y", logits="z_*", id="id", group="site")
    batch = read_text(tmp_path / "f.csv", text, columns)
    assert batch.ids is not None
    assert batch.groups is not None
    assert batch.ids.tolist() == ["007", ""]
    assert batch.groups.tolist() == ["NA", ""]


@pytest.mark.slow
def test_a_row_may_be_wider_than_a_usual_block(tmp_path: Path) -> None:
    names = ",".join(f"z_{k}" for k in range(50_000))
    cells = ",".join(["0.1234567890123456789012"] * 50_000)
    path = tmp_path / "wide.csv"
    path.write_text(f"y,{names}\n49999,{cells}\n")
    assert codes_of(read(path, COLUMNS)) == [49_999]


def test_line_ends_in_quotes_may_stand_at_the_end_of_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "62")
    rows = "".join(f'{i % 2},1,2,"a\n{"b" * (i % 7)}\nc"\n' for i in range(300))
    batch = read_text(tmp_path / "f.csv", "y,z_0,z_1,note\n" + rows)
    assert codes_of(batch) == [0, 1] * 150


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("1,oops,2", "{path}: `z_0` must be numbers, got 'oops' in row 300."),
        ('1,"1,5",2', "{path}: `z_0` must be numbers, got '1,5' in row 300."),
        ("1,0.5,1_000", "{path}: `z_1` must be numbers, got '1_000' in row 300."),
    ],
)
def test_text_among_numbers_is_found_in_a_later_block(
    tmp_path: Path, row: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "62")
    path = tmp_path / "f.csv"
    path.write_text("y,z_0,z_1\n" + "1,0.5,2\n" * 300 + f"{row}\n" * 2)
    with pytest.raises(BadValueError) as caught:
        scan(path, COLUMNS).sum(len)
    assert words.format(path=path) in str(caught.value)


@pytest.mark.parametrize("n_before", [0, 1, 300])
def test_a_row_of_too_few_cells_is_counted_by_rows_not_lines(
    tmp_path: Path, n_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "62")
    path = tmp_path / "f.csv"
    path.write_text("y,z_0,z_1,note\n" + '1,0.5,2,"a\nb"\n\n' * n_before + "1,0.5\n")
    with pytest.raises(BadFileError, match=f"row {n_before} has 2 cells, the header has 4"):
        scan(path, COLUMNS).sum(len)


@pytest.mark.parametrize("ending", ["csv", "tsv"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_header_shows_what_separates_cells(tmp_path: Path, ending: str, separator: str) -> None:
    text = f'"a|b",{PLAIN}'.replace("\n1,", '\n"x,y",1,').replace("\n0,", '\n"x,y",0,')
    text = text.replace(",", separator).replace(f"x{separator}y", "x,y")
    path = tmp_path / f"f.{ending}"
    batch = read_text(path, text)
    assert batch.outputs.array.tolist() == [[0.5, -2.0], [0.001, 3.0]]  # type: ignore[attr-defined]
    assert codes_of(batch) == [1, 0]
    assert open_source(path).separator == separator


@pytest.mark.parametrize("is_lenient", [False, True])
def test_decimal_commas_are_read_between_semicolons(tmp_path: Path, is_lenient: bool) -> None:
    path = tmp_path / "f.csv"
    path.write_text("y;z_0;z_1;id\n1;0,5;-2;1,5\n0; 1,000E-3 ;+3,0;2,5\n")
    columns, bad_rows = replace(COLUMNS, id="id"), BadRows() if is_lenient else None
    batch = read(path, columns, bad_rows=bad_rows)
    assert batch.outputs.array.tolist() == [[0.5, -2.0], [0.001, 3.0]]  # type: ignore[attr-defined]
    assert batch.ids is not None
    assert batch.ids.tolist() == ["1,5", "2,5"]  # texts as they stand
    assert scan(path, columns).sum(len) == 2
    assert not bad_rows


@pytest.mark.parametrize(
    ("cells", "words", "remedy"),
    [
        ("1,234;5,678", "'1,234', which may be 1.234 or 1234 in row 0", "Write decimal points"),
        ("1,234;0.5", "`z_0` must be numbers, got '1,234' in row 0", "Remove the thousands"),
        ("1.234,5;0,5", "`z_0` must be numbers, got '1.234,5' in row 0", "Remove the thousands"),
        ("1,234,567;2", "`z_0` must be numbers, got '1,234,567' in row 0", "Remove the thousands"),
        ("0,5;0.5", "`z_1` must be numbers, got '0.5' in row 0", "Fix the cell"),
    ],
)
def test_thousands_separators_are_never_guessed(
    tmp_path: Path, cells: str, words: str, remedy: str
) -> None:
    with pytest.raises(BadValueError) as caught:
        read_text(tmp_path / "f.csv", f"y;z_0;z_1\n1;{cells}\n")
    assert words in str(caught.value)
    assert remedy in caught.value.fix


def test_a_comma_between_commas_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(BadValueError, match="got '1,5' in row 0") as caught:
        read_text(tmp_path / "f.csv", 'y,z_0,z_1\n1,"1,5",2\n')
    assert caught.value.fix == "Write a decimal point, or separate cells by semicolons"


@pytest.mark.parametrize("ending", ["csv", "tsv.gz", "csv.zst"])
def test_a_line_that_expands_without_end_raises(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", str(1 << 17))
    cell = b'"x\n"\t' if "tsv" in ending else b'"x\n",'
    for text in (b"a" * (1 << 21), b"\n" * (1 << 21), cell * (1 << 18)):
        path = tmp_path / f"f.{ending}"
        with pa.output_stream(path, compression="detect") as stream:
            stream.write(text)
        with pytest.raises(BadFileError, match="its header has more than 1 MB"):
            scan(path, COLUMNS)
    with pa.output_stream(path, compression="detect") as stream:
        stream.write(b"y,z_0,z_1\n" + b"1" * (1 << 21))
    with pytest.raises(BadFileError, match="a row has more than 1 MB"):
        scan(path, COLUMNS).sum(len)

"""Rows in memory or streamed, and the paths that commands write to."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dubito import audit
from dubito.cli.reading import (
    Engine,
    Predictions,
    Reader,
    _as_bytes,
    require_output_paths,
    typed_names,
)
from dubito.data import ArrayShards, BadRows, Columns, FileShards, Shards
from dubito.data.sources import open_source
from dubito.errors import BadValueError
from tests.cli.conftest import Run

COLUMNS = Columns(probabilities="p")


def opened(file: str | Path) -> Predictions:
    """Return a file, opened."""
    return Predictions(str(file), open_source(str(file)), COLUMNS)


def rows_of(file: str | Path, max_bytes: int) -> Shards:
    """Read a file with this much memory."""
    return Reader(max_memory=str(max_bytes)).rows(opened(file))


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("0", 0), ("12", 12), ("500MB", 5 * 10**8), ("2 gb", 2 * 10**9), ("1.5K", 1500)],
)
def test_sizes_are_in_decimal_units(text: str, n_bytes: int) -> None:
    assert _as_bytes(text) == n_bytes


@pytest.mark.parametrize("text", ["", "much", "-1GB", "1GiB", "GB"])
def test_a_malformed_size_raises(text: str) -> None:
    with pytest.raises(BadValueError, match="--max-memory must be a size such as 500MB") as error:
        Reader(max_memory=text)
    assert f"got {text!r}. Pass --max-memory 2GB." in str(error.value)


def test_small_files_are_read_whole_and_large_ones_streamed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for k in range(3):
        pd.DataFrame({"p": [0.5, 0.25]}).to_parquet(tmp_path / f"{k}.parquet")
    size = 2 * 8  # of the numbers of one file
    places: list[str | Path] = [
        tmp_path / "0.parquet", tmp_path, f"{tmp_path}/*.parquet", f"file://{tmp_path}",
    ]  # fmt: skip
    assert all(isinstance(rows_of(place, 3 * size), ArrayShards) for place in places)
    assert capsys.readouterr().err == ""
    kinds = [type(rows_of(place, 3 * size - 1)) for place in places]
    assert kinds == [ArrayShards, FileShards, FileShards, FileShards]
    note = " ".join(capsys.readouterr().err.split())
    assert f"{tmp_path} exceeds --max-memory 47 and is streamed" in note
    assert isinstance(Reader().streamed(opened(places[0]), BadRows()), FileShards)


def test_a_file_of_unknown_row_count_is_judged_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    pd.DataFrame({"p": [0.5] * 500}).to_csv(path, index=False)
    size = path.stat().st_size
    assert isinstance(rows_of(path, 4 * size), ArrayShards)
    assert isinstance(rows_of(path, 3 * size), FileShards)


def test_the_memory_of_the_numbers_counts_not_the_file_size(tmp_path: Path) -> None:
    path = tmp_path / "alike.parquet"
    pd.DataFrame({"p": [[0.5, 0.25, 0.25]] * 9_000, "text": "unused"}).to_parquet(path)
    assert path.stat().st_size < 9_000
    assert isinstance(rows_of(path, 8 * 3 * 9_000), ArrayShards)
    assert isinstance(rows_of(path, 8 * 3 * 9_000 - 1), FileShards)


def test_a_scheduler_needs_its_engine() -> None:
    with pytest.raises(BadValueError) as caught:
        Reader(scheduler="tcp://here:1")
    assert str(caught.value) == (
        "--scheduler must be used with --engine dask, got tcp://here:1 alone. "
        "Pass --engine dask as well."
    )
    with Reader(Engine.DASK) as reader:
        assert "client" not in vars(reader)  # nothing is started before it is needed


def test_files_are_named_as_they_were_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = str(tmp_path / "rows" / "f.csv")
    assert typed_names("rows/")(file) == "rows/f.csv"
    assert typed_names(str(tmp_path / "rows"))(file) == file
    assert typed_names("*/*.csv")(file) == "rows/f.csv"
    shorten = typed_names("rows", "more")
    assert shorten(f"no {file}, unlike {file}") == "no rows/f.csv, unlike rows/f.csv"
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert typed_names("../rows")(file) == "../rows/f.csv"
    assert typed_names("s3://bucket/rows")("s3://bucket/rows/f.csv") == "s3://bucket/rows/f.csv"


def message_for(paths: dict[str, str | Path | None], inputs: list[str | Path]) -> str:
    with pytest.raises(BadValueError) as caught:
        require_output_paths(paths, inputs, {"--review": (".csv", ".tsv")})
    return str(caught.value)


def test_a_new_file_in_an_existing_directory_is_fine(tmp_path: Path) -> None:
    paths = {"--output": tmp_path / "new.html", "--review": None}
    require_output_paths(paths, [tmp_path / "in.csv"])
    assert not list(tmp_path.iterdir())  # nothing is created to find out


def test_inputs_are_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    same_file = tmp_path / ".." / tmp_path.name / "in.csv"
    assert message_for({"--output": same_file}, [file]) == (
        f"--output must not be an input or another output, got {same_file}. "
        "Pass --output other.csv."
    )
    assert "another output" in message_for({"--output": file, "--review": file}, [])


def test_a_missing_directory_or_a_wrong_ending_is_reported_first(tmp_path: Path) -> None:
    place = tmp_path / "none" / "report.html"
    assert message_for({"--output": place}, []) == (
        f"--output must be in an existing directory, got {place}. "
        f"Run mkdir -p {place.parent} first."
    )
    assert message_for({"--review": tmp_path / "review.txt"}, []) == (
        f"--review must end in .csv or .tsv, got {tmp_path / 'review.txt'}. "
        "Pass --review review.csv."
    )


def test_tables_are_not_written_into_input_directories(tmp_path: Path) -> None:
    place = tmp_path / "decisions.parquet"
    assert message_for({"--output": place}, [f"{tmp_path}/"]) == (
        f"--output must be outside the input directories, got {place}. "
        "Pass --output ../decisions.parquet."
    )
    assert "outside" in message_for({"--output": tmp_path / "parts"}, [tmp_path])
    require_output_paths({"--output": tmp_path / "report.html"}, [tmp_path])


def test_urls_are_compared_as_they_are() -> None:
    require_output_paths({"--output": "s3://bucket/out"}, ["s3://bucket/in", "f.csv"])
    assert "another output" in message_for({"--output": "s3://bucket/in"}, ["s3://bucket/in"])


def test_a_link_to_itself_is_reported_without_a_traceback(run: Run) -> None:
    Path("loop.csv").symlink_to("loop.csv")
    Path("p.csv").write_text("y,p\n0,0.5\n1,0.75\n")
    for words in (["audit", "loop.csv", "-o", "r.html"], ["fit", "p.csv", "--costs", "loop.csv"]):
        done = run(*words)
        assert done.exit_code == 2
        assert done.stderr.splitlines()[-2:][0].startswith("dubito: loop.csv")


@pytest.mark.slow
def test_semicolons_and_decimal_commas_are_read_and_reported(run: Run) -> None:
    plain = "label,p_cat,p_dog,weight\ncat,0.75,0.25,1\ndog,0.5,0.5,2.5\ndog,0.25,0.75,1\n"
    Path("a.csv").write_text(plain)
    Path("b.csv").write_text(plain.replace(",", ";").replace(".", ","))
    Path("c.tsv").write_text(plain.replace(",", "|"))
    Path("costs.csv").write_text("action,cat,dog\ncat,0,1.5\ndog,1,0\n")
    Path("kosten.csv").write_text("action;cat;dog\ncat;0;1,5\ndog;1;0\n")
    words = ["--weight", "weight", "--json"]
    first = run("audit", "a.csv", *words, "--costs", "costs.csv")
    assert first.stderr.endswith("Detected columns: label = label, probabilities = p_*.\n")
    notes = {"b.csv": "separated by semicolons, with decimal commas", "c.tsv": "vertical bars"}
    for file, note in notes.items():
        other = run("audit", file, *words, "--costs", "kosten.csv")
        assert other.stdout == first.stdout
        assert note in other.stderr
    Path("d.csv").write_text("label;p_cat;p_dog;weight\ncat;1;0;1,234\ndog;0;1;2,500\n")
    rejected = run("audit", "d.csv", *words)
    assert rejected.exit_code == 2
    assert (
        "column `weight`, row 0: must be unambiguous numbers, got '1,234', which may be 1.234 "
        in rejected.stderr
    )


@pytest.mark.parametrize("command", ["audit", "compare", "drift"])
@pytest.mark.parametrize("name", ["report.pdf", "report", "report.html.gz"])
def test_a_report_is_written_as_html_only(run: Run, command: str, name: str) -> None:
    Path("a.csv").write_text("y,p\n0,0.5\n1,0.75\n")
    Path("b.csv").write_text("y,p\n0,0.5\n1,0.75\n")
    files = ["a.csv"] if command == "audit" else ["a.csv", "b.csv"]
    done = run(command, *files, "--probability", "p", "-o", name)
    assert done.exit_code == 2
    assert f"--output must end in .html, got {name}" in done.stderr
    assert not Path(name).exists()


ROUNDED = "label,p_a,p_b,p_c\n" + "a,0.33,0.33,0.33\nb,0.2,0.5,0.3\nc,0.1,0.1,0.79\n" * 20


@pytest.mark.slow
def test_rounded_probabilities_are_normalized_on_request(run: Run) -> None:
    Path("r.csv").write_text(ROUNDED)
    rejected = run("audit", "r.csv")
    assert rejected.exit_code == 2
    assert "got a sum of 0.99 in row 0" in rejected.stderr
    assert rejected.stderr.endswith("Pass --normalize if rounding changed the sums.\n")
    done = run("audit", "r.csv", "--normalize", "--json")
    p = pd.read_csv("r.csv").filter(like="p_").to_numpy()
    y = np.array([0, 1, 2] * 20)
    wanted = audit(y, p / p.sum(axis=1, keepdims=True)).to_dict()
    assert json.loads(done.stdout)["log_loss"] == pytest.approx(wanted["log_loss"], rel=1e-12)
    output = run("audit", "r.csv", "--normalize").stdout
    assert "dubito fit r.csv --normalize" in " ".join(output.split())


@pytest.mark.slow
def test_percentages_are_read_on_request(run: Run) -> None:
    frame = pd.DataFrame({"p_a": [20.0, 75.0], "p_b": [80.0, 25.0], "label": ["b", "a"]}).sample(
        60, replace=True, random_state=0
    )
    top, hit = frame[["p_a", "p_b"]].max(axis=1), frame["label"] == "a"
    frame.assign(p=frame["p_b"], top=top, hit=hit.astype(int)).to_csv("p.csv", index=False)
    (frame[["p_a", "p_b"]] / 100).assign(
        label=frame["label"], p=frame["p_b"] / 100, top=top / 100, hit=hit.astype(int)
    ).to_csv("f.csv", index=False)
    kinds = [["--probabilities", "p_*"], ["--probability", "p", "--positive", "b"]]
    kinds.append(["--confidence", "top", "--correct", "hit"])
    for kind in kinds:
        rejected = run("audit", "p.csv", *kind)
        assert rejected.exit_code == 2
        assert "--percent for percentages." in rejected.stderr, kind
        done = run("audit", "p.csv", *kind, "--percent", "--json")
        assert done.stdout == run("audit", "f.csv", *kind, "--json").stdout


def test_independent_labels_are_named_as_such(run: Run) -> None:
    Path("m.csv").write_text("label,p_a,p_b\na,0.9,0.8\nb,0.7,0.9\n")
    assert "--multilabel if several labels may apply to a row.\n" in run("audit", "m.csv").stderr
    for switch in ("--normalize", "--percent"):
        rejected = run("audit", "m.csv", "--logits", "p_*", switch)
        assert f"`{switch[2:]}` requires probabilities" in rejected.stderr

"""The same words and files wherever rows are: folders, patterns, URLs; here, or on a cluster."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from threading import Timer
from typing import Any

import fsspec  # type: ignore[import-untyped]
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from dubito.data import DaskShards
from tests.cli.conftest import Run, animals
from tests.data.test_dask import started, wait_for

pytestmark = pytest.mark.dask

SIZES = [250, 0, 5, 145]  # unequal, one empty; the third has one class only


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The scheduler of two workers, each a process with one thread, in a folder of their own."""
    distributed: Any = import_module("distributed")
    here = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, **here) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(autouse=True)
def small_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "60")


def write_days(folder: Path, scale: float = 3.0) -> None:
    """Write predictions as a file a day, the days being names of folders."""
    frame, low = animals(sum(SIZES), scale, 0.0, 0), 0
    for day, size in enumerate(SIZES):
        part = frame.iloc[low : low + size]
        table = pa.Table.from_pandas(
            part.assign(label="cat") if size == 5 else part, preserve_index=False
        )
        place = folder / f"day={day}" / "rows.parquet"
        place.parent.mkdir(parents=True)
        parquet.write_table(table, place, row_group_size=50)
        low += size


@pytest.fixture
def days(run: Run) -> None:
    write_days(Path("sure"))
    write_days(Path("calm"), 1.0)


QUANTILES = ["--quantiles", "logit_*", "--levels", "0.1,0.5,0.9", "--label", "feature_1"]
COMMANDS = {
    "audit": ["audit", "sure/", "--group", "day"],
    "calibrate": ["calibrate", "sure"],
    "fit": ["fit", "sure/*/*.parquet", "--reject-cost", "0.3", "--calibrator", "VectorScaling"],
    "compare": ["compare", "sure", "calm"],
    "compare by ids": ["compare", "sure", "calm", "--id", "id"],
    "drift": ["drift", "sure", "calm/day=[03]/*.parquet"],
    "quantiles": ["audit", "sure", *QUANTILES, "--rearrange"],
    "draws": ["audit", "sure", "--samples", "logit_*", "--label", "feature_1"],
    "intervals": ["calibrate", "sure", *QUANTILES, "--rearrange"],
}


def without_notes(text: str) -> str:
    """Return what was printed, without the note that rows are streamed."""
    return "".join(
        line for line in text.splitlines(True) if not line.startswith(("dubito: ", "  "))
    )


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.usefixtures("days")
def test_a_cluster_says_the_same_as_one_machine(run: Run, address: str, words: list[str]) -> None:
    local = run(*words, "--max-memory", "0")
    assert local.exit_code == 0, local.output
    done = run(*words, "--engine", "dask", "--scheduler", address)
    assert done.exit_code == 0, done.output
    assert done.stdout == local.stdout
    assert done.stderr == without_notes(local.stderr)


@pytest.mark.parametrize("name", ["calibrate", "fit", "compare by ids", "drift"])
@pytest.mark.usefixtures("days")
def test_urls_say_the_same_as_paths(run: Run, name: str) -> None:
    words, limit = COMMANDS[name], ["--max-memory", "0"]
    memory = fsspec.filesystem("memory")
    for folder in ("sure", "calm"):
        memory.put(f"{folder}/", f"/{folder}/", recursive=True)
    try:
        places = [
            f"memory://{word}" if word.startswith(("sure", "calm")) else word for word in words
        ]
        done = run(*places, *limit)
    finally:
        memory.store.clear()
    assert done.exit_code == 0, done.output
    assert done.stdout.replace("memory://", "") == run(*words, *limit).stdout


def with_bad_rows(folder: Path) -> None:
    """Spoil a row in the second row group of the first file, and one of the last."""
    for day, row in ((0, 60), (3, 7)):
        path = folder / f"day={day}" / "rows.parquet"
        frame = pd.read_parquet(path)
        frame.loc[row, "logit_dog"] = np.nan
        parquet.write_table(pa.Table.from_pandas(frame), path, row_group_size=50)


def decided(folder: str) -> pd.DataFrame:
    parts = [pd.read_parquet(path) for path in sorted(Path(folder).glob("part-*.parquet"))]
    return pd.concat(parts).sort_values(["file", "id"], ignore_index=True)


def assert_alike(ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    """Numbers may differ by rounding, as matrix products of other blocks do; nothing else may."""
    pd.testing.assert_frame_equal(ours, theirs, rtol=1e-9, atol=1e-12, check_categorical=False)


@pytest.mark.usefixtures("days")
def test_a_cluster_decides_to_a_folder_as_one_machine_does(
    run: Run, made: Path, address: str
) -> None:
    with_bad_rows(Path("sure"))
    words = ["decide", made / "policy.json", "sure", "--json"]
    here = run(*words, "-o", "here", "--bad-rows", "here.csv", "--review", "here_review.csv")
    assert here.exit_code == 0, here.output
    on_dask = ["--engine", "dask", "--scheduler", address, "--bad-rows", "there.csv"]
    there = run(*words, "-o", "there", *on_dask, "--review", "there_review.csv")
    assert there.exit_code == 0, there.output
    assert json.loads(there.stdout) == {**json.loads(here.stdout), "output": "there"}
    assert_alike(decided("there"), decided("here"))
    assert Path("there.csv").read_text() == Path("here.csv").read_text()
    assert Path("there.csv").read_text().count("sure/day=") == 2
    assert_alike(pd.read_csv("there_review.csv"), pd.read_csv("here_review.csv"))
    parts = sorted(Path("there").glob("part-*.parquet"))
    assert len(parts) == 8  # tasks of 50 to 96 rows
    parts[1].unlink()  # the one that lacks a bad row
    parts[1].with_name(f"{parts[1].name}.0123abcd.partial").touch()
    marks = {part: part.stat().st_mtime_ns for part in parts if part != parts[1]}
    Path("there.csv").unlink()
    again = run(*words, "-o", "there", *on_dask)
    assert json.loads(again.stdout)["rows"] == json.loads(there.stdout)["rows"] == 398
    assert {part: part.stat().st_mtime_ns for part in marks} == marks
    assert parts[1].exists()
    assert Path("there.csv").read_text() == Path("here.csv").read_text()
    rejected = run(*words, "-o", "there", "--bad-rows", "e.csv").stderr
    assert "one part per 'file' (was 'task')" in rejected.replace("\n", " ")


@pytest.mark.usefixtures("days")
def test_a_cluster_decides_to_one_file_in_order(run: Run, made: Path, address: str) -> None:
    with_bad_rows(Path("sure"))
    words = ["decide", made / "policy.json", "sure", "calm/*/*.parquet"]
    for name, more in {"a": [], "b": ["--engine", "dask", "--scheduler", address]}.items():
        done = run(*words, "-o", f"{name}.parquet", "--bad-rows", f"{name}.csv", *more)
        assert done.exit_code == 0, done.output
    assert_alike(pd.read_parquet("a.parquet"), pd.read_parquet("b.parquet"))
    assert Path("a.csv").read_text() == Path("b.csv").read_text()


def test_rows_that_are_sorted_on_workers_are_counted(run: Run, address: str) -> None:
    rng = np.random.default_rng(0)
    center = rng.normal(size=120)
    frame = pd.DataFrame({f"q_{level:g}": center + level for level in (0.05, 0.5, 0.95)})
    frame["y"] = center + rng.normal(size=120)
    frame.loc[[3, 17, 110], "q_0.05"] += 9.0
    frame.to_csv("crossed.csv", index=False)
    words = ["crossed.csv", "--quantiles", "q_*", "--rearrange"]
    more = ["--label", "y", "--calibrator", "VarianceScaling"]
    costs = ["--cost-under", 1, "--cost-over", 1]
    for made in (["fit", *costs, "-o", "policy.json"], ["calibrate", "-o", "calibrator.json"]):
        assert (done := run(*made, *words, *more)).exit_code == 0, done.output
    for command in (["decide", "policy.json"], ["calibrate", "--apply", "calibrator.json"]):
        for more in ([], ["--engine", "dask", "--scheduler", address]):
            done = run(*command, *words, "-o", "out.parquet", *more, "--json")
            assert done.exit_code == 0, done.output
            assert json.loads(done.stdout)["rearranged"] == 3
    for _ in range(2):  # the second run finds all parts finished
        done = run("decide", "policy.json", *words, "-o", "parts/", "--json")
        assert json.loads(done.stdout)["rearranged"] == 3


@pytest.mark.usefixtures("days")
def test_a_url_is_a_folder_of_decisions_too(run: Run, made: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.put("sure/", "/sure/", recursive=True)
    words = ["decide", made / "policy.json", "memory://sure", "-o", "memory://out", "--json"]
    try:
        for _ in range(2):
            done = run(*words, "--review", "review.csv")
            assert done.exit_code == 0, done.output
            assert json.loads(done.stdout)["rows"] == 400
        names = sorted(name.rpartition("/")[2] for name in memory.find("/out"))
        assert names == ["_manifest.jsonl", *(f"part-0000{k}.parquet" for k in range(3))]
        run("decide", made / "policy.json", "sure", "-o", "here")
        with memory.open("/out/part-00000.parquet") as file:
            there = pd.read_parquet(file)
        here = pd.read_parquet("here/part-00000.parquet")
        assert there.drop(columns="file").equals(here.drop(columns="file"))
        assert set(there["file"]) == {"memory:///sure/day=0/rows.parquet"}
    finally:
        memory.store.clear()


@pytest.mark.usefixtures("days")
def test_a_corrupt_file_is_named(run: Run, address: str) -> None:
    bad = Path("sure/day=3/rows.parquet")
    whole = bytearray(bad.read_bytes())
    whole[4:400] = b"\xff" * 396
    bad.write_bytes(whole)
    for more in ([], ["--engine", "dask", "--scheduler", address]):
        done = run("audit", "sure", *more)
        assert done.exit_code == 2
        assert done.stdout == ""
        found, problem, fix, rest = done.stderr.split("\n")
        assert found.startswith("Detected columns")
        assert problem.startswith(f"dubito: {bad} cannot be read")
        assert fix.startswith("Write the file again")
        assert rest == ""


def test_engines_give_the_same_error_for_no_rows(run: Run, made: Path, address: str) -> None:
    Path("em").mkdir()
    table = pa.Table.from_pandas(animals(5, 1.0, 0.0, 0), preserve_index=False)
    parquet.write_table(table.slice(0, 0), "em/rows.parquet")
    for words in (
        ["audit", "em"],
        ["decide", made / "policy.json", "em", "-o", "x.parquet"],
        ["decide", made / "policy.json", "em", "-o", "x"],
    ):
        for more in ([], ["--engine", "dask", "--scheduler", address]):
            done = run(*words, *more)
            assert done.exit_code == 2
            message = (
                "dubito: em cannot be read: it has no rows.\nPass a file with at least one row.\n"
            )
            assert done.stderr.endswith(message)


@pytest.mark.usefixtures("days")
def test_an_input_that_changed_is_decided_alone(run: Run, made: Path, address: str) -> None:
    for more in (["-o", "here"], ["-o", "there", "--engine", "dask", "--scheduler", address]):
        words = ["decide", made / "policy.json", "sure", "--json", *more]
        assert json.loads(run(*words).stdout)["rows"] == 400
        path = Path("sure/day=0/rows.parquet")
        whole = parquet.read_table(path)
        parquet.write_table(whole.slice(0, 90), path, row_group_size=30)
        assert json.loads(run(*words).stdout)["rows"] == 240
        assert len(decided(more[1])) == 240
        parquet.write_table(whole, path, row_group_size=50)


def test_a_cluster_of_this_machine_needs_no_address(run: Run, made: Path) -> None:
    words = ["audit", made / "sure.csv", "--json"]
    done = run(*words, "--engine", "dask")
    assert done.exit_code == 0, done.output
    assert done.stdout == run(*words, "--max-memory", "0").stdout


def test_an_interrupt_while_a_cluster_starts_ends_quietly(run: Run, made: Path) -> None:
    words = [sys.executable, "-m", "dubito", "audit", str(made / "sure.csv"), "--engine", "dask"]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True
    )
    psutil: Any = import_module("psutil")
    wait_for(lambda: psutil.Process(process.pid).children())
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes of the command
    out, output = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in output
    assert "Error" not in output


def test_without_dask_the_error_names_the_extra(
    run: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    done = run("audit", made / "sure.csv", "--label", "label", "--logits", "logit_*",
               "--engine", "dask")  # fmt: skip
    assert done.exit_code == 2
    assert done.stderr == (
        "dubito: A Dask cluster needs Dask, which is not installed.\n"
        "Run `pip install 'dubito[dask]'`.\n"
    )


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address and the process of a scheduler whose worker stands still."""
    file = tmp_path / "scheduler.json"
    here = ("--host", "127.0.0.1", "--scheduler-file", str(file))
    processes = [started("distributed.cli.dask_scheduler", *here, "--port", "0")]
    try:
        wait_for(lambda: file.exists() and file.read_text().rstrip().endswith("}"))
        address = json.loads(file.read_text())["address"]
        processes.append(started("distributed.cli.dask_worker", *here, "--no-nanny"))
        distributed: Any = import_module("distributed")
        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(1)
        os.kill(processes[1].pid, signal.SIGSTOP)
        yield address, processes[0]
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.filterwarnings("ignore")  # what goes on in the background of a lost connection
def test_a_lost_scheduler_is_an_error_of_two_lines_and_leaves_no_files(
    run: Run,
    made: Path,
    lost: tuple[str, subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, process = lost
    rows = DaskShards.rows

    def killing(shards: DaskShards) -> Any:
        Timer(0.3, process.kill).start()
        return rows(shards)

    monkeypatch.setattr(DaskShards, "rows", killing)
    before = sorted(Path().iterdir())
    words = ["--logits", "logit_*", "--features", "feature_*"]
    words += ["--engine", "dask", "--scheduler", address, "-o", "d.parquet"]
    done = run("decide", made / "policy.json", made / "sure_new.csv", *words)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"dubito: {made / 'sure_new.csv'} cannot be read: "
        f"the Dask scheduler at {address} went away.\n"
        "Restart the cluster, then the run.\n"
    )
    assert sorted(Path().iterdir()) == before


@pytest.mark.usefixtures("days")
def test_models_by_ids_have_as_many_rows(run: Run) -> None:
    done = run("compare", "sure", "calm/day=0", "--id", "id", "--max-memory", "0")
    assert done.exit_code == 2
    message = "calm/day=0: --id must hold the ids of sure, got 250 rows instead of 400."
    assert message in done.stderr

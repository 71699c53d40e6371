"""How often the kernel opens a file of rows while a command runs, whoever asks it to."""

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dubito.cli import reading
from tests.cli.conftest import Run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux")

READ, CLOSED, OPENED, MOVED_HERE = 0x01, 0x08 | 0x10, 0x20, 0x80  # of <sys/inotify.h>
EVENT = struct.Struct("iIII")


@contextmanager
def watched(*files: Path) -> Iterator[list[tuple[str, int]]]:
    """Note what happens to files: their names, and what it is. Reads keep openings apart."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = libc.inotify_init1(os.O_NONBLOCK)
    assert handle >= 0, os.strerror(ctypes.get_errno())
    found: list[tuple[str, int]] = []
    try:
        names = {}
        for file in files:
            mask = MOVED_HERE if file.is_dir() else READ | CLOSED | OPENED
            number = libc.inotify_add_watch(handle, os.fsencode(file), mask)
            assert number > 0, os.strerror(ctypes.get_errno())
            names[number] = file.name
        yield found
        events = os.read(handle, 1 << 20)
        while events:
            number, what, _, length = EVENT.unpack_from(events)
            found.append((names[number], what))
            events = events[EVENT.size + length :]
    finally:
        os.close(handle)


def count(events: list[tuple[str, int]], what: int) -> int:
    """Return how often something happened to a file."""
    return sum(bool(event & what) for _, event in events)


def write_classes(file: Path) -> None:
    """Write 200 rows of three classes in the format of the file's name."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(200, 3))
    frame = pd.DataFrame(logits, columns=["logit_cat", "logit_dog", "logit_fox"])
    drawn = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    frame["label"] = np.array(["cat", "dog", "fox"])[drawn]
    frame["site"] = np.where(np.arange(200) % 2, "north", "south")
    if file.suffix == ".parquet":
        frame.to_parquet(file, index=False, row_group_size=50)
    elif file.suffix == ".feather":
        frame.to_feather(file)
    else:
        frame.to_csv(file, index=False, sep="\t" if ".tsv" in file.name else ",")


NAMES = ("rows.csv", "rows.tsv", "rows.csv.gz", "rows.parquet", "rows.feather")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("words", [(), ("--group", "site"), ("--max-memory", "1KB")])
def test_an_audit_opens_its_file_once(run: Run, name: str, words: tuple[str, ...]) -> None:
    write_classes(Path(name))
    with watched(Path(name)) as events:
        done = run("audit", name, *words)
    assert done.exit_code == 0, done.output
    assert ("is streamed" in done.stderr) == ("--max-memory" in words)
    assert (count(events, OPENED), count(events, CLOSED)) == (1, 1)


def test_a_single_probability_is_read_with_its_labels(run: Run, made: Path) -> None:
    words = ["--probability", "chance", "--positive", "fraud"]
    with watched(made / "fraud.csv") as events:
        assert run("audit", made / "fraud.csv", *words).exit_code == 0
    assert (count(events, OPENED), count(events, CLOSED)) == (1, 1)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_fitted_and_applied_opens_its_file_once(run: Run, name: str) -> None:
    write_classes(Path(name))
    for words in (
        ["fit", name, "--reject-cost", "0.3", "-o", "policy.json"],
        ["decide", "policy.json", name, "-o", "decided.parquet"],
        ["decide", "policy.json", name, "-o", "decided/"],
        ["calibrate", name, "-o", "calibrator.json"],
        ["calibrate", "--apply", "calibrator.json", name, "-o", "calibrated.csv"],
    ):
        with watched(Path(name)) as events:
            done = run(*words)
        assert done.exit_code == 0, done.output
        assert (count(events, OPENED), count(events, CLOSED)) == (1, 1), words


def test_an_input_is_closed_before_the_output_is_moved_to_its_place(run: Run, made: Path) -> None:
    file = made / "sure_new.csv"
    with watched(file, Path.cwd()) as events:
        assert run("decide", made / "policy.json", file, "-o", "decided.csv").exit_code == 0
    happened = [(name, event) for name, event in events if event & (CLOSED | MOVED_HERE)]
    assert [event & MOVED_HERE for _, event in happened] == [0, MOVED_HERE]


@pytest.mark.parametrize(
    ("text", "problem"),
    [("p,label\n0.5,cat,7\n", "row 0 has 3 cells"), ("p,label\n0.5,cat\nhigh,dog\n", "high")],
)
def test_a_command_that_fails_closes_its_file(run: Run, text: str, problem: str) -> None:
    Path("bad.csv").write_text(text)
    with watched(Path("bad.csv")) as events:
        done = run("audit", "bad.csv", "--probability", "p", "--positive", "cat")
    assert done.exit_code == 2
    assert problem in done.stderr
    assert (count(events, OPENED), count(events, CLOSED)) == (1, 1)


def test_files_beyond_a_limit_are_opened_in_each_pass(
    run: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_KEPT", 1)
    files = [made / "sure_new.csv", made / "later_new.csv"]
    with watched(*files) as events:
        done = run("decide", made / "policy.json", *files, "-o", "decided.csv")
    assert done.exit_code == 0, done.output
    n_opened = [count([one for one in events if one[0] == file.name], OPENED) for file in files]
    assert n_opened[0] == 1
    assert n_opened[1] > 1

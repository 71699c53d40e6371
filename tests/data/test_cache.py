"""A cache gives the same rows, faster, and leaves nothing behind, however the process ends."""

import errno
import gc
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from dubito import Logits, Members, Normal, TopLabel
from dubito.calibrate import TemperatureScaling
from dubito.data import ArrayShards, Batch, CachedShards, Columns, FileShards, Shards, scan
from dubito.data import cache as cache_module
from dubito.data.cache import BatchFile, cached
from dubito.data.shards import fingerprint
from dubito.errors import BadFileError
from dubito.measure import AuditState
from dubito.outputs import BaseOutputs

rng = np.random.default_rng(0)
COLUMNS = Columns(label="y", logits="z_*", weight="w", group="g", id="i")


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileShards:
    """A text file of a few hundred rows, in many batches."""
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "300")
    n_rows = 500
    z = rng.normal(size=(3, n_rows))
    columns: dict[str, Any] = {f"z_{k}": z[k] for k in range(3)}
    labels = (2 * z + rng.gumbel(size=z.shape)).argmax(axis=0)  # so that some temperature is best
    columns |= {"y": labels, "w": rng.random(n_rows) + 0.1}
    columns |= {"g": rng.integers(0, 9, n_rows), "i": [f"row {k}" for k in range(n_rows)]}
    pd.DataFrame(columns).to_csv(tmp_path / "f.csv", index=False)
    return scan(tmp_path / "f.csv", COLUMNS)


class Counting(Shards):
    """Other shards, that count how often a batch was made."""

    def __init__(self, shards: Shards) -> None:
        self.shards, self.n_made = shards, 0

    def parts(self) -> Iterator[Callable[[], Batch]]:
        return (partial(self.make, make) for make in self.shards.parts())

    def make(self, make: Callable[[], Batch]) -> Batch:
        self.n_made += 1
        return make()


def same(left: Batch, right: Batch) -> None:
    slots: tuple[str, ...] = left.outputs.__slots__
    for name in slots:
        a, b = getattr(left.outputs, name), getattr(right.outputs, name)
        np.testing.assert_array_equal(a, b)
        if isinstance(a, np.ndarray):
            assert (a.dtype, a.flags.writeable) == (b.dtype, False)
    assert type(left.outputs) is type(right.outputs)
    for name in ("weight", "features", "ids", "groups", "row_costs", "first_row"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))
    assert left.n_missing == right.n_missing


OUTPUTS: list[BaseOutputs] = [
    Logits(rng.normal(size=(4, 3)).astype(np.float32), classes=["a", "b", "c"]),
    Members(rng.dirichlet(np.ones(3), size=(5, 4))),
    TopLabel([0.5, 0.6, 0.7, 0.8], [1, 0, 1, 0]),
    Normal(rng.normal(size=4), np.ones(4)),
]


@pytest.mark.parametrize("outputs", OUTPUTS, ids=lambda outputs: type(outputs).__name__)
def test_a_batch_comes_back_as_it_was(outputs: BaseOutputs) -> None:
    y = {"Logits": ["a", None, "c", "b"], "Members": [0, 1, 2, 0], "TopLabel": None}
    batch = Batch.of(
        y.get(type(outputs).__name__, rng.normal(size=4)),
        outputs,
        sample_weight=[1, 2, 0, 1],
        features=rng.normal(size=(4, 2)),
        ids=np.array(["a", "b", None, "d"], dtype=object),
        groups=["x", "x", "y", "zz"],
        row_costs=[1.0, 2.0, 3.0, 4.0],
    )
    batch = replace(batch, first_row=7)
    with closing(BatchFile()) as file:
        assert file.keep(3, batch)
        assert file.keep(1, batch.take(slice(0, 0)))
        same(batch, file.load(3))
        assert len(file.load(1)) == 0


@pytest.mark.slow
@given(st.lists(st.integers(0, 40), min_size=1, max_size=8))
def test_batches_of_any_size_are_kept_apart(sizes: list[int]) -> None:
    batches = [Batch.of(None, Logits(rng.normal(size=(size, 2)))) for size in sizes]
    with closing(BatchFile()) as file:
        for number in reversed(range(len(batches))):
            assert file.keep(number, batches[number])
        for number, batch in enumerate(batches):
            same(batch, file.load(number))


@pytest.mark.slow
def test_a_batch_outlives_its_file() -> None:
    batch = Batch.of([1, 0], Logits([[1.0, 2.0], [3.0, 4.0]]))
    with closing(BatchFile()) as file:
        file.keep(0, batch)
        again = file.load(0)
    gc.collect()
    same(batch, again)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_rows_are_decoded_once(
    text: FileShards, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_THREADS", threads)
    counting = Counting(text)
    shards = CachedShards(counting)
    wanted = text.sum(AuditState.of).to_dict()
    for _ in range(3):
        assert shards.sum(AuditState.of).to_dict() == wanted
    assert fingerprint(shards) == fingerprint(text)
    n_batches = len(list(text.parts()))
    assert counting.n_made == n_batches > 5
    for ours, theirs in zip(shards.batches(), text.batches(), strict=True):
        same(theirs, ours)
    shards.close()
    assert shards.sum(len) == 500
    assert counting.n_made == 2 * n_batches


def test_a_pass_that_was_left_early_is_made_again(text: FileShards) -> None:
    shards = CachedShards(text)
    next(shards.batches())
    wanted = text.sum(AuditState.of).to_dict()
    for _ in range(2):
        assert shards.sum(AuditState.of).to_dict() == wanted
    shards.close()


class FunctionError(Exception):
    """A fault of the function, not of the rows."""


def test_a_function_that_fails_leaves_the_shards_of_use(text: FileShards) -> None:
    def fail(batch: Batch) -> int:
        if batch.first_row > 100:
            raise FunctionError
        return 1

    with cached(text) as shards:
        with pytest.raises(FunctionError):
            shards.sum(fail)
        assert shards.sum(len) == shards.sum(len) == 500


def test_a_disk_that_is_too_full_is_left_alone(
    text: FileShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "DISK_FRACTION", 1e-9)
    counting = Counting(text)
    shards = CachedShards(counting)
    assert shards.sum(len) == shards.sum(len) == 500
    assert shards.file is None
    assert counting.n_made == 2 * len(list(text.parts()))


def test_a_disk_that_fills_up_on_the_way_is_left_alone(
    text: FileShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def write(file: BatchFile, start: int, views: list[memoryview]) -> bool:
        written.append(start)
        if len(written) > 2:
            return False
        return genuine(file, start, views)

    genuine = BatchFile.write
    monkeypatch.setattr(BatchFile, "write", write)
    shards = CachedShards(text)
    assert shards.sum(len) == shards.sum(len) == 500
    assert shards.file is None


class Full(io.BytesIO):
    """A file on a device without room."""

    def write(self, _: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_no_room_on_the_device_is_no_error() -> None:
    with closing(BatchFile()) as file:
        file.file.close()
        file.file = Full()
        assert not file.keep(0, Batch.of(None, [0.5]))
        assert file.entries == {}


@pytest.mark.parametrize(("speed_up", "is_kept"), [(0.0, True), (1e9, False)])
def test_what_is_decoded_as_fast_as_it_is_read_is_not_kept(
    text: FileShards, speed_up: float, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "SPEED_UP", speed_up)
    monkeypatch.setattr(cache_module, "TRIAL_BYTES", 1 << 14)
    shards = CachedShards(text, is_tried=True)
    wanted = text.sum(AuditState.of).to_dict()
    for _ in range(3):
        assert shards.sum(AuditState.of).to_dict() == wanted
    assert (shards.file is not None) is is_kept
    shards.close()


def test_only_files_are_kept(text: FileShards) -> None:
    frame = scan(pd.DataFrame({"p": [0.5]}), Columns(probabilities="p"))
    for shards in (frame, ArrayShards(Batch.of(None, [0.5]))):
        with cached(shards) as same_shards:
            assert same_shards is shards
    with cached(text) as outer, cached(outer) as inner:
        assert inner is outer


def test_a_fit_decodes_text_once(text: FileShards, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Any] = []
    genuine = FileShards.pieces

    def pieces(shards: FileShards) -> Any:
        reads.append(shards)
        return genuine(shards)

    wanted = TemperatureScaling().fit(text).temperature_
    monkeypatch.setattr(FileShards, "pieces", pieces)
    assert TemperatureScaling().fit(text).temperature_ == wanted
    assert len(reads) == 2  # the first batch, to see what is there, and all of them


def test_an_error_of_a_file_stays_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("y,z\n")
    with (
        cached(scan(tmp_path / "f.csv", Columns(label="y", logits="z"))) as shards,
        pytest.raises(BadFileError, match="it has no rows"),
    ):
        shards.sum(len)


KILLED = """
import os, sys, numpy as np
from dubito.data.cache import BatchFile
from dubito.data import Batch
file = BatchFile()
file.keep(0, Batch.of(None, np.full(100_000, 0.5)))
print("kept", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_no_file(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"kept\n"
        process.send_signal(signal.SIGKILL)
    assert [path for path in tmp_path.rglob("*") if "dubito" in path.name] == []

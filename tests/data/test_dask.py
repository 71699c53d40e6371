"""A cluster gives what one machine gives, also when its workers die; without it, a clear error."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from sklearn.base import clone

from dubito.calibrate import IsotonicCalibration, OneVsRest, TemperatureScaling, VectorScaling
from dubito.data import (
    BadRows,
    Batch,
    Columns,
    DaskShards,
    DirectorySink,
    Shards,
    Sink,
    read,
    report_progress_to,
    scan,
)
from dubito.data.dask import connected
from dubito.data.shards import Result, Sum, sample_rows
from dubito.decide import CostMatrix, Policy, write_decisions
from dubito.doubt import ClassConditionalDensity, MahalanobisDistance, NearestNeighborDistance
from dubito.errors import (
    BadFileError,
    BadTypeError,
    BadValueError,
    DubitoError,
    MissingExtraError,
)
from dubito.measure import Audit, AuditState
from tests.data.test_progress import Noting

pytestmark = pytest.mark.dask

rng = np.random.default_rng(0)
COLUMNS = Columns(label="y", logits="z", weight="w")
SIZES = [3000, 0, 5, 1000, 1]  # unequal, one empty; the third has one class only
N_ROWS = sum(SIZES)


def table_of(n_rows: int, only: int | None = None) -> pa.Table:
    y = rng.integers(0, 4, n_rows) if only is None else np.full(n_rows, only)
    z = rng.normal(size=(n_rows, 4)).astype(np.float32)
    z[np.arange(n_rows), y] += 2 * (rng.random(n_rows) < 0.7)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(2 * z.ravel()), 4)
    return pa.table({"y": y, "z": lists, "w": rng.random(n_rows) + 0.5})


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client of two workers, each a process with one thread."""
    distributed: Any = import_module("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as one,
    ):
        yield one


@pytest.fixture(autouse=True)
def small_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "375")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parquet files of unequal sizes, in row groups of 200 rows."""
    folder = tmp_path_factory.mktemp("rows")
    for k, n_rows in enumerate(SIZES):
        table = table_of(n_rows, only=2 if n_rows == 5 else None)
        parquet.write_table(table, folder / f"part_{k}.parquet", row_group_size=200)
    return folder


@pytest.fixture(scope="module")
def policy(folder: Path) -> Policy:
    costs = CostMatrix.zero_one(4).with_reject(0.4)
    return Policy.fit(scan(folder, COLUMNS), costs=costs, calibrator=TemperatureScaling())


def decided(policy: Policy) -> Callable[[Batch], dict[str, Any]]:
    """Return a function of a batch that returns its row numbers and what to do with them."""

    def columns(batch: Batch) -> dict[str, Any]:
        found = policy.decide(batch.outputs)
        rows = np.arange(len(batch)) + batch.first_row
        return {"row": rows, "action": found.action, "cost": found.expected_cost}

    return columns


def placed(function: Callable[[Batch], dict[str, Any]]) -> Callable[[Batch, str], dict[str, Any]]:
    """Return a function of a batch and its file, which returns the file too."""
    return lambda batch, file: {"file": np.full(len(batch), file), **function(batch)}


def in_order(folder: Path) -> pa.Table:
    """Return the rows of all parts of a folder, by files and their numbers there."""
    parts = [parquet.read_table(path) for path in sorted(folder.glob("part-*.parquet"))]
    return pa.concat_tables(parts).sort_by([("file", "ascending"), ("row", "ascending")])


def by_files(table: pa.Table, folder: Path, sizes: list[int] = SIZES) -> pa.Table:
    """Return rows that count through files with their files, and their numbers there."""
    files = sorted(map(str, folder.iterdir()))
    rows = np.concatenate([np.arange(size) for size in sizes])
    named = table.set_column(0, "row", [rows])
    return named.add_column(0, "file", [np.repeat(files, sizes)])


def locally(shards: Shards, policy: Policy, path: Path) -> pa.Table:
    with Sink(path) as sink:
        shards.write(decided(policy), sink)
    return parquet.read_table(path)


def test_sums_are_those_of_one_machine(client: Any, folder: Path) -> None:
    local, shards = scan(folder, COLUMNS), DaskShards(client, folder, COLUMNS)
    assert len(shards.spans) == 14
    assert shards.sum(len) == local.sum(len) == N_ROWS
    counts = lambda batch: np.bincount(batch.labels.codes, minlength=4)  # noqa: E731
    np.testing.assert_array_equal(shards.sum(counts), local.sum(counts))
    weight = lambda batch: batch.labeled_weight.sum()  # noqa: E731
    assert shards.sum(weight) == pytest.approx(local.sum(weight), rel=1e-12)
    again = DaskShards(client, str(folder / "*.parquet"), COLUMNS)
    assert shards.sum(weight) == again.sum(weight)  # to the last digit


def test_audits_are_those_of_one_machine(client: Any, folder: Path) -> None:
    rows = (scan(folder, COLUMNS), DaskShards(client, folder, COLUMNS))
    audits = [Audit.of(shards, n_resamples=40) for shards in rows]
    figures = [audit.figures for audit in audits]
    assert figures[0] == pytest.approx(figures[1], rel=1e-9, abs=1e-12)
    assert audits[0].curve.count == pytest.approx(audits[1].curve.count, rel=1e-12)


def test_fits_are_those_of_one_machine(client: Any, folder: Path) -> None:
    local, shards = scan(folder, COLUMNS), DaskShards(client, folder, COLUMNS)
    outputs = next(local.batches()).outputs
    for fresh in (TemperatureScaling, VectorScaling, lambda: OneVsRest(IsotonicCalibration())):
        ours, theirs = (fresh().fit(one).predict_proba(outputs) for one in (shards, local))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_samples_are_those_of_one_machine(client: Any, folder: Path) -> None:
    local, shards = scan(folder, COLUMNS), DaskShards(client, folder, COLUMNS)
    for n_rows in (50, 10**6):
        ours, theirs = (sample_rows(one, n_rows, seed=3) for one in (shards, local))
        np.testing.assert_array_equal(ours.rows.confidence, theirs.rows.confidence)
        np.testing.assert_array_equal(ours.weight, theirs.weight)
    starts = [batch.first_row for batch in shards.batches()]
    assert starts == np.cumsum([0, *(len(batch) for batch in shards.batches())][:-1]).tolist()
    assert list(shards.apply(lambda number, _: number)) == list(range(len(starts)))
    lengths = shards.map(len)  # which holds the function, not the shards, where it travels
    assert lengths.sum(int) == sum(len(batch) for batch in shards.batches())
    assert list(lengths.apply(lambda number, _: number)) == list(range(len(starts)))


def test_policies_and_decisions_are_those_of_one_machine(
    client: Any, folder: Path, policy: Policy, tmp_path: Path
) -> None:
    shards = DaskShards(client, folder, COLUMNS)
    ours = Policy.fit(shards, costs=policy.costs, calibrator=TemperatureScaling())
    assert ours.calibrator.temperature_ == pytest.approx(policy.calibrator.temperature_, rel=1e-9)
    tables = []
    for name, one in {"a": scan(folder, COLUMNS), "b": shards}.items():
        with Sink(tmp_path / f"{name}.parquet") as sink:
            assert write_decisions(policy, one, sink) == N_ROWS
        tables.append(parquet.read_table(tmp_path / f"{name}.parquet"))
    assert tables[0].equals(tables[1])


def test_collections_are_rows_too(client: Any) -> None:
    da: Any = import_module("dask.array")
    dd: Any = import_module("dask.dataframe")
    table = table_of(900)
    columns = Columns(label="y", logits="z_*", weight="w")
    z = np.array(table["z"].to_pylist(), np.float32)
    flat = table.select(["y", "w"]).to_pandas()
    flat["k"] = np.arange(900)
    for k in range(4):
        flat[f"z_{k}"] = z[:, k]
    frame = dd.from_pandas(flat, npartitions=4)
    frame = frame[(frame["k"] < 200) | (frame["k"] > 600)]  # leaves a partition without rows
    kept = flat[(flat["k"] < 200) | (flat["k"] > 600)]
    wanted = scan(kept, columns).sum(AuditState.of).value.scores.value.log_loss
    found = DaskShards(client, frame, columns).sum(AuditState.of).value.scores.value.log_loss
    assert found == pytest.approx(wanted, rel=1e-12)
    arrays = {
        "z": da.from_array(z, chunks=(400, 2)),
        "y": da.from_array(table["y"].to_numpy(), chunks=250),
        "w": da.from_array(table["w"].to_numpy(), chunks=900),
    }
    shards = DaskShards(client, arrays, COLUMNS)
    wanted = scan(table, COLUMNS).sum(AuditState.of).value.scores.value.log_loss
    found = shards.sum(AuditState.of).value.scores.value.log_loss
    assert found == pytest.approx(wanted, rel=1e-12)
    with pytest.raises(BadTypeError, match="write_parts: `source` must be files, got a Dask"):
        shards.write_parts(lambda batch, file: {}, DirectorySink)  # type: ignore[arg-type]
    with pytest.raises(BadValueError, match=r"the Dask frame has no column 't' .* y, w, k"):
        DaskShards(client, frame, Columns(label="t", logits="z_*"))
    arrays["z"] = da.from_array(np.where(np.arange(900)[:, None] == 500, np.nan, z), chunks=400)
    with pytest.raises(BadValueError, match=r"partition 1: `z` .* in row 100,"):
        DaskShards(client, arrays, COLUMNS).sum(len)


def test_text_files_are_a_task_each(client: Any, tmp_path: Path) -> None:
    columns = Columns(label="y", probabilities="p")
    rows = tmp_path / "rows"
    rows.mkdir()
    for k, n_rows in enumerate([30, 0, 20]):
        table = pa.table({"p": rng.random(n_rows), "y": rng.integers(0, 2, n_rows)})
        csv.write_csv(table, rows / f"{k}.csv")
    shards = DaskShards(client, rows, columns)
    folder = DirectorySink(tmp_path / "out", {})
    numbered = placed(lambda batch: {"row": batch.first_row + np.arange(len(batch))})
    assert shards.write_parts(numbered, folder) == shards.sum(len) == 50
    assert in_order(tmp_path / "out")["row"].to_pylist() == [*range(30), *range(20)]
    assert shards.write_parts(numbered, DirectorySink(tmp_path / "again", {})) == 50  # as decoded
    assert in_order(tmp_path / "again").equals(in_order(tmp_path / "out"))
    for path in rows.glob("*.csv"):
        path.write_text("p,y\n")
    empty = DaskShards(client, rows, columns)
    with pytest.raises(BadFileError, match=r"rows cannot be read: it has no rows\. Pass a file"):
        empty.sum(len)
    with pytest.raises(BadFileError, match=r"rows cannot be read: it has no rows\. Pass a file"):
        empty.write_parts(numbered, DirectorySink(tmp_path / "none", {}))


def test_no_rows_raise_the_same_error_as_on_one_machine(client: Any, tmp_path: Path) -> None:
    parquet.write_table(table_of(0), tmp_path / "a.parquet")
    local = scan(tmp_path, COLUMNS)
    shards = DaskShards(client, tmp_path, COLUMNS)
    dd: Any = import_module("dask.dataframe")
    frame = dd.from_pandas(pd.DataFrame({"y": [0], "p": [0.5]}), npartitions=1)
    columns = Columns(label="y", probabilities="p")
    empty = DaskShards(client, frame[frame["y"] > 0], columns)
    with pytest.raises(BadFileError) as caught:
        local.sum(len)
    for read_them in (
        lambda one: one.sum(len),
        lambda one: next(one.batches()),
        Audit.of,
        TemperatureScaling().fit,
    ):
        with pytest.raises(BadFileError) as error:
            read_them(shards)
        assert str(error.value) == str(caught.value)
        with pytest.raises(BadFileError, match="the Dask collection cannot be read: it has no"):
            read_them(empty)
    with pytest.raises(BadFileError, match="it has no rows"), Sink(tmp_path / "f.csv") as sink:
        shards.write(lambda batch: {"row": np.arange(len(batch))}, sink)
    with pytest.raises(BadFileError, match="it has no rows"):
        shards.write_parts(lambda batch, _: {}, DirectorySink(tmp_path / "out", {}))


def test_a_file_that_workers_cannot_read_raises(client: Any, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes((folder / "part_3.parquet").read_bytes())
    shards = DaskShards(client, path, COLUMNS)
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(BadFileError) as caught:
        shards.sum(len)
    assert str(caught.value) == (
        f"{path} cannot be read: a Dask worker cannot read it. Use a directory that all workers "
        f"can read, or a URL."
    )


def test_parts_of_rows_that_are_no_more_are_dropped(client: Any, tmp_path: Path) -> None:
    rows, out = tmp_path / "rows.parquet", tmp_path / "out"
    numbered = placed(lambda batch: {"row": batch.first_row + np.arange(len(batch))})
    parquet.write_table(table_of(2000), rows, row_group_size=400)
    n_rows = DaskShards(client, rows, COLUMNS).write_parts(numbered, DirectorySink(out, {}))
    assert n_rows == 2000
    parquet.write_table(table_of(900), rows, row_group_size=300)
    n_rows = DaskShards(client, rows, COLUMNS).write_parts(numbered, DirectorySink(out, {}))
    assert n_rows == 900
    assert in_order(out)["row"].to_pylist() == list(range(900))


def test_parts_are_written_by_the_workers_and_a_second_run_goes_on(
    client: Any, folder: Path, policy: Policy, tmp_path: Path
) -> None:
    wanted = locally(scan(folder, COLUMNS), policy, tmp_path / "whole.parquet")
    shards, out = DaskShards(client, folder, COLUMNS), tmp_path / "out"
    seen: list[int] = []
    decide = placed(decided(policy))
    n_rows = shards.write_parts(decide, DirectorySink(out, {}), on_progress=seen.append)
    assert n_rows == seen[-1] == N_ROWS
    assert in_order(out).equals(by_files(wanted, folder))
    assert shards.kept is None  # one pass needs nothing kept
    marks = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
    (out / min(marks)).unlink()
    (out / f"{max(marks)}.0123abcd.partial").touch()
    assert shards.write_parts(decide, DirectorySink(out, {})) == N_ROWS
    again = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
    assert again.keys() == marks.keys()
    assert [name for name in marks if again[name] != marks[name]] == [min(marks)]


def test_a_run_that_fails_leaves_nothing_for_the_next_to_count_twice(
    client: Any, tmp_path: Path
) -> None:
    rows, out, gate = tmp_path / "rows", tmp_path / "out", tmp_path / "gate"
    rows.mkdir()
    for name in "abc":
        parquet.write_table(table_of(400), rows / f"{name}.parquet")

    def fails_and_lingers(batch: Batch, file: str) -> dict[str, Any]:
        if file.endswith("a.parquet"):
            raise BadValueError("p", file, "good", "bad", "another")
        while file.endswith("b.parquet") and not gate.exists():
            time.sleep(0.01)  # until the run has failed
        return {"file": file, "row": np.arange(len(batch))}

    shards = DaskShards(client, rows, COLUMNS)
    with pytest.raises(BadValueError):
        shards.write_parts(fails_and_lingers, DirectorySink(out, {}))
    gate.touch()
    (rows / "a.parquet").unlink()
    again = DaskShards(client, rows, COLUMNS)
    assert again.write_parts(fails_and_lingers, DirectorySink(out, {})) == 800
    time.sleep(0.5)  # what still lingered would have come by now
    assert in_order(out).num_rows == 800
    assert len(list(out.glob("part-*"))) == 2


class Killing(Shards):
    """Other shards, one of whose workers is killed before the third round."""

    def __init__(self, shards: DaskShards) -> None:
        self.shards, self.n_rounds = shards, 0

    def parts(self) -> Iterator[Callable[[], Batch]]:
        return self.shards.parts()

    def apply(self, function: Callable[[int, Batch], Result]) -> Iterator[Result]:
        return self.shards.apply(function)

    def sum(self, function: Callable[[Batch], Sum]) -> Sum:
        self.n_rounds += 1
        if self.n_rounds == 3:
            pids = self.shards.client.run(os.getpid)
            os.kill(min(pids.values()), signal.SIGKILL)
        return self.shards.sum(function)


def test_a_worker_killed_during_a_fit_costs_time_only(client: Any, folder: Path) -> None:
    shards = DaskShards(client, folder, COLUMNS)
    before = TemperatureScaling().fit(shards).temperature_
    killing = Killing(DaskShards(client, folder, COLUMNS))
    assert TemperatureScaling().fit(killing).temperature_ == before
    assert killing.n_rounds > 3


def test_a_worker_killed_while_it_decides_costs_time_only(
    client: Any, folder: Path, policy: Policy, tmp_path: Path
) -> None:
    wanted = locally(scan(folder, COLUMNS), policy, tmp_path / "whole.parquet")
    decide, killed = decided(policy), tmp_path / "killed"

    def fatal(batch: Batch) -> dict[str, Any]:
        if batch.first_row > 500 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return decide(batch)

    shards, out = DaskShards(client, folder, COLUMNS), tmp_path / "out"
    assert shards.write_parts(placed(fatal), DirectorySink(out, {})) == N_ROWS
    assert killed.exists()
    assert in_order(out).equals(by_files(wanted, folder))
    assert list(out.glob("*.partial")) == []


def test_a_corrupt_file_and_a_bad_row_are_reported_by_name(
    client: Any, folder: Path, tmp_path: Path
) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    bad = tmp_path / "part_3.parquet"
    table = parquet.read_table(bad)
    weights = np.where(np.arange(1000) == 777, -1.0, 1.0)
    parquet.write_table(table.set_column(2, "w", [weights]), bad, row_group_size=200)
    with pytest.raises(BadValueError) as caught:
        DaskShards(client, tmp_path, COLUMNS).sum(len)
    assert f"{bad}: `w` must not be negative, got -1.0 in row 777" in str(caught.value)
    whole = bytearray((folder / "part_3.parquet").read_bytes())
    whole[4:400] = b"\xff" * 396
    bad.write_bytes(whole)
    with pytest.raises(BadFileError, match=r"part_3\.parquet cannot be read"):
        DaskShards(client, tmp_path, COLUMNS).sum(len)


def spoilt(folder: Path, tmp_path: Path) -> Path:
    """Return a copy of a folder with three bad rows: two in one task, one in another file."""
    rows = tmp_path / "spoilt"
    rows.mkdir()
    for path in folder.iterdir():
        table = parquet.read_table(path)
        bad = {"part_0": [7, 8], "part_3": [777]}.get(path.stem, [])
        weights = np.where(np.isin(np.arange(len(table)), bad), -1.0, table["w"].to_numpy())
        new = table.set_column(2, "w", [weights])
        parquet.write_table(new, rows / path.name, row_group_size=200)
    return rows


def test_bad_rows_are_those_of_one_machine_each_once(
    client: Any, folder: Path, tmp_path: Path
) -> None:
    rows, found = spoilt(folder, tmp_path), (BadRows(), BadRows())
    local = scan(rows, COLUMNS, bad_rows=found[0])
    shards = DaskShards(client, rows, COLUMNS, bad_rows=found[1])
    assert shards.sum(len) == local.sum(len) == N_ROWS - 3
    assert list(found[0]) == list(found[1])
    assert len(found[1]) == 3
    wanted, ids = (np.concatenate(list(one.apply(lambda _, b: b.ids))) for one in (local, shards))
    np.testing.assert_array_equal(ids, wanted)
    assert 7 not in ids
    assert ids[-1] == N_ROWS - 1
    name, killed = placed(lambda batch: {"row": batch.ids}), tmp_path / "killed"

    def fatal(batch: Batch, file: str) -> dict[str, Any]:
        if file.endswith("part_3.parquet") and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return name(batch, file)

    again, out = BadRows(), DirectorySink(tmp_path / "out", {})
    fresh = DaskShards(client, rows, COLUMNS, bad_rows=again)
    assert fresh.write_parts(fatal, out) == N_ROWS - 3
    assert killed.exists()
    assert list(again) == list(found[0])
    resumed = BadRows()  # all parts are there: what they lack is known from the manifest
    shards = DaskShards(client, rows, COLUMNS, bad_rows=resumed)
    shards.write_parts(name, DirectorySink(tmp_path / "out", {}))
    assert list(resumed) == list(found[0])
    with pytest.raises(BadValueError, match=r"at most 2 bad rows, got 3"):
        DaskShards(client, rows, COLUMNS, bad_rows=BadRows(2)).sum(len)


def test_feature_scores_are_fitted_where_the_rows_are(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for k, n_rows in enumerate([900, 0, 3, 200]):
        table = table_of(n_rows, only=2 if n_rows == 3 else None)
        features = rng.normal(size=(n_rows, 3)) + np.eye(4, 3)[table["y"].to_numpy()]
        lists = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), 3)
        whole = table.append_column("f", lists)
        parquet.write_table(whole, tmp_path / f"{k}.parquet", row_group_size=100)
    columns = Columns(label="y", logits="z", weight="w", features="f")
    local, shards = scan(tmp_path, columns), DaskShards(client, tmp_path, columns)
    fetched: list[int] = []
    fetch = DaskShards.fetch

    def noted(shards: DaskShards, *place: Any) -> Batch:
        fetched.append(1)
        return fetch(shards, *place)

    monkeypatch.setattr(DaskShards, "fetch", noted)
    features = read(tmp_path, columns).features
    for uncertainty in (
        MahalanobisDistance(),
        MahalanobisDistance(normalize=True),
        NearestNeighborDistance(3, max_samples=200),
        ClassConditionalDensity(),
    ):
        fetched.clear()
        ours, theirs = (clone(uncertainty).fit(one).score(features) for one in (shards, local))
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        assert 1 <= len(fetched) <= 3  # the first batch determines the number of features
        assert len(shards.spans) > 3


def test_progress_counts_tasks(client: Any, folder: Path) -> None:
    noting = Noting()
    shards = DaskShards(client, folder, COLUMNS)
    with report_progress_to(noting):
        shards.sum(len)
        list(shards.apply(lambda number, _: number))
    wait_for(lambda: all(len(message) == 3 + 14 for message in noting.reported))
    assert [message[:3] for message in noting.reported] == [[folder.name, "tasks", 14]] * 3


def test_shards_that_travel_are_a_name(client: Any, folder: Path) -> None:
    left = pickle.loads(pickle.dumps(DaskShards(client, folder, COLUMNS)))
    with pytest.raises(BadTypeError) as caught:
        left.sum(len)
    assert str(caught.value) == (
        f"DaskShards: `shards` cannot be read on a Dask worker, got those of {folder} on a "
        f"worker. Call `shards.sum(...)` outside of the function."
    )


def test_invalid_arguments_raise(
    client: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadTypeError) as caught:
        DaskShards("tcp://here", folder, COLUMNS)
    assert str(caught.value) == (
        "DaskShards: `client` must be a distributed.Client, got str. Pass "
        "distributed.Client('tcp://...')."
    )
    with pytest.raises(BadTypeError, match=r"got a table in memory\. Use dask\.dataframe"):
        DaskShards(client, table_of(5), COLUMNS)
    with pytest.raises(BadTypeError, match="scan: `columns` must be Columns"):
        DaskShards(client, folder, "z")  # type: ignore[arg-type]
    da: Any = import_module("dask.array")
    with pytest.raises(BadTypeError, match="got a bare Array"):
        DaskShards(client, da.ones((8, 4)), COLUMNS)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"A Dask cluster needs .* 'dubito\[dask\]'"):
        DaskShards(client, folder, COLUMNS)


def test_no_scheduler_is_reported() -> None:
    with pytest.raises(BadValueError) as caught, connected("tcp://127.0.0.1:1", patience="1s"):
        pass
    assert str(caught.value) == (
        "Dask scheduler: `address` must be reachable, got tcp://127.0.0.1:1. Start "
        "`dask scheduler` and pass the address that it prints."
    )


def test_workers_that_lack_a_package_raise(client: Any, folder: Path) -> None:
    def needy(_: Batch) -> int:
        return len(import_module("not_there").__name__)

    with pytest.raises(BadFileError) as caught:
        DaskShards(client, folder, COLUMNS).sum(needy)
    assert str(caught.value) == (
        f"{folder} cannot be read: the Dask workers lack a package (No module named 'not_there'). "
        f"Install the same packages everywhere."
    )


@pytest.mark.parametrize("address", ["nonsense", "tcp://here"])
def test_an_address_without_a_port_raises(address: str) -> None:
    with pytest.raises(BadValueError, match="must be reachable"), connected(address):
        pass


def test_a_cluster_without_workers_is_reported() -> None:
    distributed: Any = import_module("distributed")
    here = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(n_workers=0, processes=False, **here, protocol="tcp://") as bare:
        address = bare.scheduler_address
        with pytest.raises(BadValueError) as caught, connected(address, joining="1s"):
            pass
    assert str(caught.value) == (
        f"Dask scheduler: `workers` must be at least 1, got 0. Start `dask worker "
        f"{address}` on each machine."
    )


def wait_for(is_done: Callable[[], bool]) -> None:
    """Wait until something is done, half a minute at most."""
    for _ in range(600):
        if is_done():
            return
        time.sleep(0.05)


def started(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", *command, "--no-dashboard"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address and the process of a scheduler with one worker."""
    file = tmp_path / "scheduler.json"
    here = ("--host", "127.0.0.1", "--scheduler-file", str(file))
    processes = [started("distributed.cli.dask_scheduler", *here, "--port", "0")]
    try:
        wait_for(lambda: file.exists() and file.read_text().rstrip().endswith("}"))
        processes.append(started("distributed.cli.dask_worker", *here, "--no-nanny"))
        yield json.loads(file.read_text())["address"], processes[0]
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.filterwarnings("ignore")  # what goes on in the background of a lost connection
def test_a_lost_scheduler_raises_and_leaves_no_partial_files(
    scheduler: tuple[str, subprocess.Popen[bytes]], folder: Path, tmp_path: Path
) -> None:
    address, process = scheduler
    reached, out = tmp_path / "reached", tmp_path / "out"

    def slow(batch: Batch) -> dict[str, Any]:
        if batch.first_row > 1000:
            reached.touch()
            time.sleep(60)
        return {"row": np.arange(len(batch))}

    def kill_when_reached() -> None:
        wait_for(reached.exists)
        process.kill()

    out.mkdir()
    killer = Thread(target=kill_when_reached)
    killer.start()
    with connected(address) as client:
        shards = DaskShards(client, folder, COLUMNS)
        with pytest.raises(BadFileError) as caught, Sink(out / "f.parquet") as sink:
            shards.write(slow, sink)
        assert str(caught.value) == (
            f"{folder} cannot be read: the Dask scheduler at {address} went away. Restart the "
            f"cluster, then the run."
        )
        killer.join()
        with pytest.raises(DubitoError, match=r"the Dask scheduler at .* went away"):
            shards.sum(len)
        with pytest.raises(DubitoError, match=r"the Dask scheduler at .* went away"):
            shards.write_parts(placed(slow), DirectorySink(out / "parts", {}))
        with (
            pytest.raises(DubitoError, match=r"the Dask scheduler at .* went away"),
            Sink(out / "f.parquet") as sink,
        ):
            shards.write(slow, sink)
    assert list(out.rglob("*")) == [out / "parts"]


@pytest.mark.filterwarnings("ignore")  # what goes on in the background of a lost connection
def test_a_scheduler_that_goes_away_leaves_whole_parts_and_a_later_run_goes_on(
    client: Any,
    scheduler: tuple[str, subprocess.Popen[bytes]],
    folder: Path,
    tmp_path: Path,
) -> None:
    address, process = scheduler
    reached, out = tmp_path / "reached", tmp_path / "out"
    numbered = placed(lambda batch: {"row": batch.first_row + np.arange(len(batch))})

    def slow(batch: Batch, file: str) -> dict[str, Any]:
        if batch.first_row > 1000:
            reached.touch()
            time.sleep(60)
        return numbered(batch, file)

    def kill_when_reached() -> None:
        manifest = out / "_manifest.jsonl"
        wait_for(lambda: reached.exists() and "n_rows" in manifest.read_text())
        process.kill()

    killer = Thread(target=kill_when_reached)
    killer.start()
    with connected(address) as other, pytest.raises(BadFileError) as caught:
        DaskShards(other, folder, COLUMNS).write_parts(slow, DirectorySink(out, {}))
    killer.join()
    assert str(caught.value) == (
        f"{folder} cannot be read: the Dask scheduler at {address} went away. Restart the "
        f"cluster, then the run."
    )
    assert 0 < DirectorySink(out, {}).n_rows < N_ROWS
    assert (
        DaskShards(client, folder, COLUMNS).write_parts(numbered, DirectorySink(out, {})) == N_ROWS
    )
    assert len(in_order(out)) == N_ROWS

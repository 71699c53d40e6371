from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from dubito.data.table_queries import (
    MAX_VALUES,
    distinct_values,
    row_count,
    rows_where,
    value_counts,
)
from dubito.errors import BadFileError


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_different_values_are_texts_in_order_without_gaps(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"f.{ending}"
    frame = pd.DataFrame({"y": ["ok", None, "fraud", "ok"], "k": [3, 1, 2, 2]})
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    assert distinct_values(path, "y") == ["fraud", "ok"]
    assert distinct_values(path, "k") == ["1", "2", "3"]


def test_reading_stops_where_there_are_too_many_values() -> None:
    many = pa.table({"id": np.arange(1 << 18)})
    assert MAX_VALUES < len(distinct_values(many, "id")) < 1 << 18


def test_rows_are_counted_where_that_is_quick(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": np.arange(70_000)}), tmp_path / "f.parquet")
    assert row_count(tmp_path / "f.parquet") == 70_000
    (tmp_path / "f.csv").write_text("a,b\n1,2\n3,4\n")
    assert row_count(str(tmp_path / "f.csv")) == 2
    (tmp_path / "empty.tsv").write_text("a\tb")
    assert row_count(tmp_path / "empty.tsv") == 0
    np.savez(tmp_path / "f.npz", a=np.arange(3))
    assert row_count(tmp_path / "f.npz") is None
    (tmp_path / "bad.parquet").write_text("a,b\n")
    with pytest.raises(BadFileError, match="cannot be read"):
        row_count(tmp_path / "bad.parquet")


def test_rows_of_folders_and_patterns_are_those_of_their_files(tmp_path: Path) -> None:
    for day, n_rows in enumerate([300, 0, 45]):
        folder = tmp_path / f"day={day}"
        folder.mkdir()
        parquet.write_table(pa.table({"a": np.arange(n_rows)}), folder / "f.parquet", 100)
        (folder / "f.csv").write_text("a\n" + "1\n" * day)
    assert row_count(f"{tmp_path}/*/*.parquet") == 345
    assert row_count(f"{tmp_path}/*/*.csv") == 3
    assert row_count(f"file://{tmp_path}/*/*.parquet") == 345
    assert row_count(f"file://{tmp_path}/*/*.csv") is None


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_rows_where_a_column_holds_a_value(tmp_path: Path, ending: str) -> None:
    rng = np.random.default_rng(0)
    actions = rng.choice(["go", "ask"], 500)
    frame = pd.DataFrame({"id": np.arange(500), "action": actions, "review_value": rng.random(500)})
    path = tmp_path / f"f.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    found = rows_where([path, path], "action", ["ask"], by="review_value")
    twice = pd.concat([frame, frame])
    expected = twice[twice["action"] == "ask"].sort_values(
        "review_value", ascending=False, kind="stable"
    )
    assert list(found) == ["id", "action", "review_value"]
    for name, column in found.items():
        values = pd.Series(column.to_pylist()).astype(expected[name].dtype)
        assert values.tolist() == expected[name].tolist()
    nothing = rows_where([path], "action", ["stay"], by="review_value")
    assert len(nothing["id"]) == 0
    counts = expected.shape[0], 1000 - expected.shape[0]
    wanted = dict(zip(["ask", "go", "stay"], [*counts, 0], strict=True))
    assert value_counts([path, path], "action", list(wanted)) == wanted

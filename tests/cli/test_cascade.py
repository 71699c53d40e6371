"""`dubito cascade`: columns that new files need."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from dubito import Cascade
from dubito.cli.commands import app


def test_new_rows_need_no_costs(tmp_path: Path) -> None:
    """A cost of the fit counts with its mean, one that is named has to be there."""
    rng = np.random.default_rng(0)
    lines = ["small,small_ok,large,large_ok,price"]
    for ease, price in zip(rng.normal(size=200), rng.uniform(0.1, 0.14, 200), strict=True):
        low, high = 1 / (1 + np.exp(-2 * ease)), 1 / (1 + np.exp(-2 * ease - 3))
        lines.append(f"{low},{int(rng.random() < low)},{high},{int(rng.random() < high)},{price}")
    (tmp_path / "old.csv").write_text("\n".join(lines))
    (tmp_path / "new.csv").write_text("small\n0.5\n0.999\n")
    runner, cascade, new = CliRunner(), f"{tmp_path}/cascade.json", f"{tmp_path}/new.csv"
    models = ["--model", "small=small:small_ok:0.001", "--model", "large=large:large_ok:price"]
    done = runner.invoke(app, ["cascade", "fit", f"{tmp_path}/old.csv", *models, "-o", cascade])
    assert done.exit_code == 0, done.output
    found = json.loads(runner.invoke(app, ["cascade", "decide", cascade, new, "--json"]).stdout)
    assert (found["actions"]["call large"], found["actions"]["answer small"]) == (1, 1)
    [note] = found["notes"]
    assert "new.csv has no column price: a call of large counts as 0.1" in note
    named = ["--model", "large=large:price"]
    rejected = runner.invoke(app, ["cascade", "decide", cascade, new, *named])
    assert rejected.exit_code != 0
    # Without any output all rows begin with the first model.
    (tmp_path / "blank.csv").write_text("question\nwho\nwhy\nwhen\n")
    blank = runner.invoke(app, ["cascade", "decide", cascade, f"{tmp_path}/blank.csv", "--json"])
    assert json.loads(blank.stdout)["actions"]["call small"] == 3
    assert "blank.csv has none of the columns small, large" in " ".join(blank.stderr.split())
    assert (
        "none of the columns" not in runner.invoke(app, ["cascade", "decide", cascade, new]).stderr
    )


MODELS = ["--model", "small=small:small_ok:0.001", "--model", "large=large:large_ok:0.1"]


def cascade_rows(n_rows: int = 200) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rows = []
    for ease in rng.normal(size=n_rows):
        low, high = 1 / (1 + np.exp(-2 * ease)), 1 / (1 + np.exp(-2 * ease - 3))
        small_ok, large_ok = int(rng.random() < low), int(rng.random() < high)
        rows.append({"small": low, "small_ok": small_ok, "large": high, "large_ok": large_ok})
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    with path.open("w") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["cascade", *words])


def test_percentages_are_fractions_in_fit_and_decide(tmp_path: Path) -> None:
    rows = cascade_rows()
    plain, cascade = write(tmp_path / "a.csv", rows), f"{tmp_path}/cascade.json"
    scaled = [{**row, "small": 100 * row["small"], "large": 100 * row["large"]} for row in rows]
    percent = write(tmp_path / "b.csv", scaled)
    found = json.loads(run("fit", plain, *MODELS, "--json").stdout)
    same = json.loads(run("fit", percent, *MODELS, "--percent", "-o", cascade, "--json").stdout)
    assert same["cost"] == pytest.approx(found["cost"])
    rejected = run("fit", percent, *MODELS)
    assert rejected.exit_code == 2
    text = " ".join(rejected.stderr.split())
    assert "b.csv" in text
    assert "column `small`, row 0: must be from 0 to 1" in text
    assert "Pass --percent" in text
    (tmp_path / "new.csv").write_text("small\n50\n99.9\n")
    decided = json.loads(run("decide", cascade, f"{tmp_path}/new.csv", "--json").stdout)
    assert decided["actions"]["call large"] == decided["actions"]["answer small"] == 1


def test_p_correct_is_blank_before_the_first_call(tmp_path: Path) -> None:
    file, cascade = write(tmp_path / "a.csv", cascade_rows()), f"{tmp_path}/cascade.json"
    assert run("fit", file, *MODELS, "-o", cascade).exit_code == 0
    (tmp_path / "new.csv").write_text("id,small\na,\nb,0.5\n")
    new, out = f"{tmp_path}/new.csv", f"{tmp_path}/next.csv"
    assert run("decide", cascade, new, "--id", "id", "-o", out).exit_code == 0
    first, second = csv.DictReader(Path(out).read_text().splitlines())
    assert first["p_correct"] == ""
    assert 0.3 < float(second["p_correct"]) < 0.7
    shown = CliRunner().invoke(app, ["policy", "show", cascade])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith(str(Cascade.load(cascade)).splitlines()[0])
    assert "Costs: wrong answer 1." in shown.stdout
    printed = json.loads(CliRunner().invoke(app, ["policy", "show", cascade, "--json"]).stdout)
    assert printed["report"]["n_rows"] == 200


def test_answers_of_unknown_truth_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = cascade_rows()
    gaps = [{**row, "large_ok": ""} if k % 10 == 0 else row for k, row in enumerate(rows)]
    known = [row for k, row in enumerate(rows) if k % 10]
    some = run("fit", write(tmp_path / "a.csv", gaps), *MODELS)
    assert some.exit_code == 0, some.output
    assert "Left out: 20 rows" in some.stdout
    fewer = run("fit", write(tmp_path / "b.csv", known), *MODELS)
    assert some.stdout.startswith(fewer.stdout)


def test_options_without_effect_and_invalid_columns_exit_with_2(tmp_path: Path) -> None:
    rows = cascade_rows()
    file, cascade = write(tmp_path / "a.csv", rows), f"{tmp_path}/cascade.json"
    assert run("fit", file, *MODELS, "-o", cascade).exit_code == 0
    odd = write(tmp_path / "odd.csv", [{**row, "price": -0.1} for row in rows])
    (tmp_path / "ids.csv").write_text("id,small,large\na,0.5,\na,0.6,\n")
    (tmp_path / "high.csv").write_text("id,small,large\na,0.5,7\n")
    priced = ["--model", "small=small:small_ok:price", *MODELS[2:]]
    for words, message in [
        (("fit", file, *MODELS, "--cost-per-second", "1"), "large_ok:0.002:1.5|latency"),
        (("fit", file, *MODELS, "--review-error-rate", "0.1"), "Pass --review-cost"),
        (("fit", odd, *priced), "odd.csv, column `price`, row 0: must be at least 0.* got -0.1"),
        (("fit", file, "--model", "a=small:small_ok:-1"), "--model.* at least 0.* got -1"),
        (
            ("decide", cascade, f"{tmp_path}/ids.csv", "--id", "id"),
            "column `id`, row .*: must be different",
        ),
        (
            ("decide", cascade, f"{tmp_path}/high.csv"),
            "column `large`, row .: must be from 0 to 1, got 7",
        ),
    ]:
        done = run(*words)
        assert done.exit_code == 2, done.output
        assert re.search(message, " ".join(done.stderr.split())), done.stderr
    only = json.loads(Path(cascade).read_text())
    assert only["tiers"] == ["small", "large"]
    free = ["--model", "small=small:small_ok:9", *MODELS[2:]]
    assert run("fit", file, *free, "-o", cascade).exit_code == 0
    assert Cascade.load(cascade).tiers == ("large",)
    (tmp_path / "high.csv").write_text("id,small,large\na,7,0.5\n")
    done = run("decide", cascade, f"{tmp_path}/high.csv")
    assert done.exit_code == 2
    assert "column `small`, row 0: must be from 0 to 1, got 7" in " ".join(done.stderr.split())

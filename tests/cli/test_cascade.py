"""`dubito cascade`: columns that new files need."""

import json
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

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
    refused = runner.invoke(app, ["cascade", "decide", cascade, new, *named])
    assert refused.exit_code != 0
    # Without any output all rows begin with the first model.
    (tmp_path / "blank.csv").write_text("question\nwho\nwhy\nwhen\n")
    blank = runner.invoke(app, ["cascade", "decide", cascade, f"{tmp_path}/blank.csv", "--json"])
    assert json.loads(blank.stdout)["actions"]["call small"] == 3

"""Every problem with a file is reported on two lines: the problem, then the remedy."""

from pathlib import Path

import pandas as pd
import pytest

from dubito.data import Columns
from tests.cli.conftest import Run
from tests.data.test_bad_files import BAD_ROW, BROKEN, FAULTS, NAMED, SMALL, good_columns

TEXT_FAULTS = [name for name, fault in FAULTS.items() if "csv" in fault.forms]
ROLES = ("label", "probabilities", "weight", "features", "id", "confidence", "correct")


def options_of(columns: Columns) -> list[str]:
    """Return columns as they are typed."""
    roles = [*ROLES, "mean", "std"]
    return [
        word for role in roles if (name := getattr(columns, role)) for word in (f"--{role}", name)
    ]


def assert_two_lines(message: str, name: str) -> None:
    """The problem, with the file, and the fix."""
    problem, fix, rest = message.split("\n")
    assert problem.startswith("dubito: ")
    assert name in problem
    assert fix[0].isupper()
    assert fix.endswith(".")
    assert rest == ""


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named_with_what_to_try(run: Run, name: str) -> None:
    content, words = BROKEN[name]
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    columns = NAMED if name in ("damaged.parquet", "cut_stream.arrow") else SMALL
    done = run("audit", name, *options_of(columns))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert_two_lines(done.stderr, name)
    assert words in " ".join(done.stderr.split())


@pytest.mark.parametrize("name", TEXT_FAULTS)
def test_a_bad_value_is_named_with_what_to_try(run: Run, name: str) -> None:
    fault, columns = FAULTS[name], good_columns()
    columns[fault.column][BAD_ROW] = fault.value
    pd.DataFrame(columns, dtype=object).to_csv("bad.csv", index=False)
    done = run("audit", "bad.csv", *options_of(fault.columns))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert_two_lines(done.stderr, "bad.csv")
    assert f"row {BAD_ROW}" in done.stderr

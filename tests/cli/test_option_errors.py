"""Bad values of options: the message names the option, the value and a remedy that works."""

import shlex
from pathlib import Path

import numpy as np
import pytest

from dubito.cli.options import _errors_of_options
from dubito.errors import BadTypeError, BadValueError
from tests.cli.conftest import Run

FIT = "fit p.csv --calibrator TemperatureScaling --reject-cost 0.3"
VALUES = "--quantiles 'q_*' --label y --cost-under 1 --cost-over 1 --calibrator VarianceScaling"
CASCADE = (
    "cascade fit answers.csv --model small=c1:ok1:0.002:0.1 --model large=c2:ok2:0.05:1 "
    "--review-cost 0.3"
)
NUMBERS = [  # a command, a bad option, what is said of it, and an option that works instead
    (f"{FIT} --features 'x_*'", "--ood-alpha 2", "--ood-alpha must be a number strictly between 0 "
     "and 1, got 2.", "--ood-alpha 0.01"),
    (f"fit q.csv {VALUES} --review-cost 5 --features 'x_*'", "--ood-alpha nan", "--ood-alpha must "
     "be a number strictly between 0 and 1, got nan.", "--ood-alpha 0.01"),
    (f"{FIT} --max-risk 0.1", "--risk-delta 0", "--risk-delta must be a number strictly between 0 "
     "and 1, got 0.", "--risk-delta 0.05"),
    (FIT, "--max-cost=-3", "--max-cost must be at least 0, the lowest cost, got -3.",
     "--max-risk 0.05"),
    (f"{FIT} --cost b,a=amount", "--max-cost 1", "--max-cost 1 needs costs that are the same for "
     "all rows, got amount.", "--max-risk 0.05"),
    (FIT, "--seed=-1", "--seed must be an integer from 0 to 4294967295 (2**32 - 1), got -1.",
     "--seed 0"),
    ("fit p.csv", "--reject-cost nan", "--reject-cost must be finite, got nan.",
     "--reject-cost 0.3"),
    ("fit m.csv --multilabel 'p_*' --label 'y_*' --calibrator temperature", "--f-beta 0",
     "--f-beta must be a finite number of at least 0.001 and at most 1000, got 0.", "--f-beta 1"),
    (CASCADE, "--error-cost 0", "--error-cost must be a finite number above 0, got 0.",
     "--error-cost 1"),
    (CASCADE, "--abstain-cost=-1", "--abstain-cost must be a finite number of at least 0, got -1.",
     "--abstain-cost 0.2"),
    (CASCADE, "--cost-per-second nan", "--cost-per-second must be a finite number of at least 0, "
     "got nan.", "--cost-per-second 0.1"),
    (CASCADE, "--max-calls 0", "--max-calls must be an integer of at least 1, got 0.",
     "--max-calls 1"),
]  # fmt: skip
WORDS = [  # a command, what is said of it, and the remedy
    (f"{FIT} --current-action act", "--current-action act must hold names of actions of the "
     "costs, got 'g'.", "Use one of 'a', 'b', 'reject' there, or leave out --current-action."),
    ("audit m.csv --multilabel 'p_*' --label 'y_*' --uncertain 2", "--uncertain must be 'ignore', "
     "'multi-class', 'zeros', 'ones' or a probability, got 2.", "Pass --uncertain ignore."),
    ("audit q.csv --quantiles 'q_*' --label y --levels 0.1,0.9", "--levels 0.1,0.9 must be 3 "
     "numbers, one per column, got 2.", "Pass --levels for q_0.05, q_0.5, q_0.95."),
    ("audit p.csv --probabilities 'p_*' --classes a,b", "--classes a,b applies to a single list "
     "column; the names of p_a and p_b already state the classes.", "Leave out --classes."),
    ("audit p.csv --percent", "p.csv: `p_a, ..., p_b` must have rows that sum to 1, got a sum of "
     "0.01 in row 0.", "Leave out --percent, unless the numbers are from 0 to 100."),
    ("audit p.csv --weight region", "p.csv, column `region` (--weight) holds text such as 'north', "
     "not numbers.", "Pass --weight with a column of numbers."),
    ("fit p.csv --cost b,a=region --reject-cost 1", "p.csv, column `region` (used by the costs) "
     "holds text such as 'north', not numbers.", "Name a column of numbers in the costs."),
    (f"{FIT} --deploy-prior 0.4,0.6", "--deploy-prior 0.4,0.6: there is no such file.",
     "Pass a CSV with one line per class, such as cat,0.25."),
]  # fmt: skip


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files of predictions of each kind, in the working directory."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines: dict[str, list[str]] = {
        "p.csv": ["p_a,p_b,label,x_1,x_2,amount,region,act"],
        "q.csv": ["q_0.05,q_0.5,q_0.95,y,x_1,x_2"],
        "m.csv": ["p_u,p_v,y_u,y_v"],
        "answers.csv": ["c1,ok1,c2,ok2"],
    }
    for k in range(200):
        p, q, x_1, x_2 = *rng.uniform(0.05, 0.95, 2), *rng.normal(size=2)
        one, other = rng.random() < p, rng.random() < q
        region = "north" if k % 2 == 0 else "south"
        lines["p.csv"].append(f"{1 - p},{p},{'b' if one else 'a'},{x_1},{x_2},{1 + q},{region},g")
        lines["q.csv"].append(f"{x_1 - 1.6},{x_1},{x_1 + 1.6},{x_1 + x_2},{p},{q}")
        lines["m.csv"].append(f"{p},{q},{one:d},{other:d}")
        lines["answers.csv"].append(f"{p},{one:d},{q},{other:d}")
    for name, table in lines.items():
        Path(name).write_text("\n".join(table) + "\n")


@pytest.mark.usefixtures("tables")
@pytest.mark.filterwarnings("ignore:.*Every row is rejected")
@pytest.mark.parametrize(("words", "bad", "problem", "good"), NUMBERS)
def test_a_number_out_of_range_is_named_as_it_was_typed(
    run: Run, words: str, bad: str, problem: str, good: str
) -> None:
    done = run(*shlex.split(f"{words} {bad}"))
    assert done.exit_code == 2
    first, last = done.stderr.splitlines()[-2:]
    assert first == f"dubito: {problem}"
    assert good in last
    assert run(*shlex.split(f"{words} {good}")).exit_code == 0


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(("words", "problem", "fix"), WORDS)
def test_an_option_that_does_not_fit_is_named_as_it_was_typed(
    run: Run, words: str, problem: str, fix: str
) -> None:
    done = run(*shlex.split(words))
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-2:] == [f"dubito: {problem}", fix]


@pytest.mark.usefixtures("tables")
def test_a_cell_that_is_no_number_among_numbers_is_named(run: Run) -> None:
    text = Path("p.csv").read_text().splitlines()
    first = text[1].split(",")
    text[1] = ",".join(["n/a?", *first[1:]])
    Path("cell.csv").write_text("\n".join(text) + "\n")
    done = run("audit", "cell.csv")
    assert "cell.csv, column `p_a`, row 0: 'n/a?' is not a number.\nFix the cell" in done.stderr
    assert run("audit", "cell.csv", "--bad-rows", "bad.csv").exit_code == 0


def test_an_argument_that_no_option_set_keeps_its_name() -> None:
    error = BadValueError("alpha", "OODGate", "must be a number", "2.0", "Pass another")
    with pytest.raises(BadValueError) as caught, _errors_of_options({"ood_alpha": None}):
        raise error
    assert caught.value is error


def test_options_are_shown_without_backticks() -> None:
    error = BadTypeError("--port", "dubito serve", "must be a port", "x", "Use --port 8000")
    with (
        pytest.raises(BadTypeError, match=r"^--port must be a port, got x"),
        _errors_of_options({}),
    ):
        raise error
    error = BadTypeError("--id", "f.csv", "must be unique", "x", "Pass another")
    with pytest.raises(BadTypeError, match=r"^f\.csv: --id must be unique"), _errors_of_options({}):
        raise error


def test_a_calibrator_for_other_outputs_is_named(run: Run, made: Path) -> None:
    done = run("fit", made / "sure.csv", "--reject-cost", 0.3, "--calibrator", "PlattScaling")
    assert "--calibrator PlattScaling supports exactly 2 classes, got 3.\n" in done.stderr
    assert "Pass --calibrator auto or --calibrator TemperatureScaling." in done.stderr

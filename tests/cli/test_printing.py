import io
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from rich.progress import Progress

from dubito.cli.printing import (
    passes,
    printed_as_json,
    progress,
    put,
    say,
    say_error,
    say_json,
    say_note,
    show_table,
    typed,
)
from dubito.data import Columns, report_progress_to, scan
from dubito.data.progress import PassProgress, _rows_done
from dubito.errors import BadFileError, BadValueError
from tests.cli.conftest import Run, control_characters


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")


def test_text_is_wrapped_between_words(capsys: pytest.CaptureFixture[str]) -> None:
    say(
        "one two three four five six seven eight nine\n  indented words go on under themselves, too"
    )
    assert capsys.readouterr().out == (
        "one two three four five six seven eight\nnine\n"
        "  indented words go on under themselves,\n  too\n"
    )
    say("x" * 60)
    assert capsys.readouterr().out == "x" * 60 + "\n"


def test_numbers_in_a_table_are_right_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("name", "loss"), [("a", "0.5"), ("b", "10.25")])
    assert capsys.readouterr().out == "name   loss\na       0.5\nb     10.25\n"


def test_a_long_name_is_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("name", "loss"), [("a rather long name of a calibrator, it is", "0.5")])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[1].endswith("  0.5")
    assert lines[2].startswith("  ")


def test_numbers_outside_json_raise(capsys: pytest.CaptureFixture[str]) -> None:
    with printed_as_json(True):
        say_json({"name": "Süd", "value": 0.5})
        assert '"Süd"' in capsys.readouterr().out
        with pytest.raises(ValueError, match="not JSON compliant"):
            say_json({"value": float("nan")})


def test_results_are_printed_once_as_text_or_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert not say_json({"rows": 1})
    say("one row")
    assert capsys.readouterr().out == "one row\n"
    with printed_as_json(True):
        assert say_json({"rows": 1})
        say("one row")
        show_table(("a", "b"), [("c", "d")])
        say_note("a note")
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"rows": 1}
    assert printed.err == "dubito: a note\n"


def test_the_remedy_of_an_error_has_its_own_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say_error(BadFileError("f.csv", "it is empty", "Write it again"))
    assert capsys.readouterr().err == (
        "dubito: f.csv cannot be read: it is empty.\nWrite it again.\n"
    )
    say_error(BadValueError("", "--bins", "must be positive", "0", "Pass --bins 15"))
    assert capsys.readouterr().err == "dubito: --bins must be positive, got 0.\nPass --bins 15.\n"
    say_error(PermissionError(13, "Permission denied", "out.html"))
    assert capsys.readouterr().err == "dubito: out.html: Permission denied.\n"
    say_error(FileNotFoundError(2, "No such file or directory", "p.json"))
    assert capsys.readouterr().err == (
        "dubito: p.json cannot be read: there is no such file.\nCheck the path.\n"
    )


def test_a_cell_that_is_not_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    fix = "Fix the cell, or drop the row"
    say_error(BadValueError("logit_Dress", "text.csv", "must be numbers", "'n/a'", fix, 17))
    assert capsys.readouterr().err == (
        "dubito: text.csv, column `logit_Dress`, row 17: 'n/a' is not a number.\n"
        "Fix the cell, or drop the row.\n"
    )


@pytest.mark.parametrize(
    ("fix", "flag"),
    [
        (
            "Use Logits(...) for logits, or divide each row by its sum",
            "Pass --logits if these are logits, or divide each row by its sum.",
        ),
    ],
)
def test_remedies_in_python_become_options(
    capsys: pytest.CaptureFixture[str], fix: str, flag: str
) -> None:
    say_error(BadValueError("p_a", "f.csv", "must be valid", "7", fix, 1))
    assert capsys.readouterr().err.endswith(f"\n{flag}\n")


def test_the_command_is_shown_as_it_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/bin/dubito", "audit", "f.csv", "--logits", "z_*"])
    assert typed() == "dubito audit f.csv --logits 'z_*'"


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("deciding", lambda: 10) as show:
        show(5)
    assert capsys.readouterr().err == ""


def test_rows_are_shown_with_their_rate() -> None:
    bar = Progress(console=Console(file=io.StringIO()))
    bar.add_task("deciding", total=4000)
    [task] = bar.tasks
    task.completed = 2500
    assert _rows_done(task) == "2,500 rows"
    task.finished_speed = 1234.5
    assert _rows_done(task) == "2,500 rows, 1,234/s"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress("deciding", lambda: 10) as show:
        show(10)
    assert "10 rows" in terminal.getvalue()


def test_tasks_are_shown_of_all() -> None:
    bar = Progress(console=Console(file=io.StringIO()))
    step = PassProgress(bar).start("rows/", "tasks", 12)
    step(5)
    [task] = bar.tasks
    assert task.description == "pass 1 over rows"
    assert _rows_done(task) == "5 of 12 tasks"


def test_each_pass_begins_anew_with_the_total_of_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("p\n0.5\n0.25\n0.75\n")
    bar = Progress(console=Console(file=io.StringIO()))
    shown = PassProgress(bar)
    rows = scan(path, Columns(probabilities="p"))
    with report_progress_to(shown):
        rows.sum(len)
        [first] = bar.tasks
        assert (first.completed, first.total, first.description) == (3, 3, "pass 1 over f.csv")
        late = shown.start(str(path), "rows", None)
        rows.sum(len)
    late(7)  # reported after the next pass began
    [third] = bar.tasks
    assert (third.completed, third.total, third.description) == (3, 3, "pass 3 over f.csv")


def test_passes_are_shown_on_a_terminal_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.csv"
    path.write_text("p\n0.5\n0.25\n0.75\n")
    with passes():
        scan(path, Columns(probabilities="p")).sum(len)
    assert capsys.readouterr().err == ""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with passes():
        scan(path, Columns(probabilities="p")).sum(len)
        print("a result")
    assert "pass 1 over" in terminal.getvalue()
    assert "a result" not in terminal.getvalue()
    assert capsys.readouterr().out == "a result\n"


HOSTILE = (
    "\x1b]0;owned\x07[red]\x9b31m\u202e"  # a title, markup, a color, and text from right to left
)


def test_control_characters_are_shown_and_never_sent(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"{HOSTILE}\n  {HOSTILE} a b c d e f g h i j k l m n o p")
    say_note(HOSTILE)
    say_error(BadValueError("label", f"{HOSTILE}\n", "must be", HOSTILE, f"Pass {HOSTILE}\n"))
    say_error(BadFileError("\udcff.csv", HOSTILE, "Check it"))
    show_table(("a", "b"), [(f"{HOSTILE}\n", HOSTILE)])
    put(HOSTILE)
    with printed_as_json(True):
        say_json({HOSTILE: HOSTILE})
    printed = capsys.readouterr()
    assert control_characters(printed.out + printed.err) == set()
    assert printed.out.count(r"\x1b]0;owned\x07[red]\x9b31m\u202e") == 4
    assert r"\udcff.csv cannot be read" in printed.err
    assert r"\u001b]0;owned\u0007[red]\u009b31m\u202e" in printed.out


def test_a_file_may_be_named_like_markup_or_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "[red]\x1b]0;owned\x07.csv"
    path.write_text("p\n0.5\n0.25\n0.75\n")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with passes():
        scan(path, Columns(probabilities="p")).sum(len)
    assert r"pass 1 over [red]\x1b]0;" in terminal.getvalue()
    assert "\x07" not in terminal.getvalue()


@pytest.mark.slow
def test_hostile_names_stay_text_from_the_file_to_the_review(run: Run) -> None:
    evil, reject = "\x1b]0;owned\x07", "=HYPERLINK(1)"
    rows = 60
    p = np.linspace(0.02, 0.98, rows)
    frame = pd.DataFrame({f"p_{evil}": p, "p_ok": 1 - p, "id": [f"=cmd|{k}" for k in range(rows)]})
    frame["label"] = np.where(np.random.default_rng(0).random(rows) < p, evil, "ok")
    frame.to_csv("new.csv", index=False)
    matrix = pd.DataFrame([[0, 9], [9, 0], [1, 1]], index=["a", "b", reject], columns=[evil, "ok"])
    matrix.rename_axis("action").to_csv("costs.csv")
    fit = ["fit", "new.csv", "--costs", "costs.csv", "--reject-action", reject, "-o", "p.json"]
    decide = ["decide", "p.json", "new.csv", "--id", "id", "-o", "d.csv", "--review", "r.csv"]
    for words in (["audit", "new.csv"], fit, ["policy", "show", "p.json"], decide):
        done = run(*words)
        assert done.exit_code == 0, done.output
        assert control_characters(done.output) == set(), words
    decisions, review = pd.read_csv("d.csv"), pd.read_csv("r.csv")
    assert decisions["id"].tolist() == [f"'=cmd|{k}" for k in range(rows)]
    assert set(decisions["action"]) == {"a", "b", f"'{reject}"}
    assert len(review) == (decisions["action"] == f"'{reject}").sum()
    assert review["id"].str.startswith("'=cmd|").all()
    assert review["review_value"].dtype == float


def test_an_error_keeps_the_ellipsis_of_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    say_error(ValueError("Got labels a, b, ...."))
    say_error(ValueError("Got labels a, b"))
    assert capsys.readouterr().err == "dubito: Got labels a, b, ....\ndubito: Got labels a, b.\n"

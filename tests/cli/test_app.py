import errno
import json
import os
import pty
import subprocess
import sys
import termios
import warnings
from pathlib import Path

import pytest
from typer.main import get_command

import dubito
from dubito.cli.commands import app
from dubito.errors import DubitoWarning
from tests.cli.conftest import Run, assert_same, control_characters

SCRIPT = Path(sys.executable).with_name("dubito")
COMMANDS = ["audit", "calibrate", "compare", "decide", "demo", "doctor", "drift", "fit"]
COMMANDS += ["explain", "export", "forecast", "serve"]
GROUPS = ["cascade", "policy", "review", "token"]


def test_help_names_the_commands(run: Run) -> None:
    done = run("--help")
    assert done.exit_code == 0
    assert all(name in done.stdout for name in [*COMMANDS, *GROUPS, "--install-completion"])
    assert get_command(app).commands.keys() == {*COMMANDS, *GROUPS}  # type: ignore[attr-defined]


def test_no_arguments_show_help(run: Run) -> None:
    assert "Usage" in run().output


def test_the_version(run: Run) -> None:
    assert run("--version").stdout == f"dubito {dubito.__version__}\n"


@pytest.mark.parametrize(
    "command",
    [
        *COMMANDS,
        "cascade fit",
        "cascade decide",
        "policy show",
        "policy seal",
        "review plan",
        "token create",
        "token list",
        "token revoke",
    ],
)
def test_every_help_text_has_an_example_and_json(run: Run, command: str) -> None:
    output = " ".join(run(*command.split(), "--help").stdout.split())
    assert f"Example: dubito {command}" in output
    assert "--json" in output


def test_unknown_options_end_with_2(run: Run) -> None:
    assert run("audit", "f.csv", "--nothing").exit_code == 2
    assert run("nothing").exit_code == 2


def test_an_unwritable_path_is_reported_without_a_traceback(run: Run, made: Path) -> None:
    Path("taken").write_text("a file, no folder")
    done = run("demo", "--folder", "taken/folder")
    assert done.exit_code == 2
    assert done.stderr.startswith("dubito: taken")
    assert "Traceback" not in done.output


def test_a_closed_pipe_is_not_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("dubito.cli.doctor.say_json", gone)
    done = run("doctor", "--json")
    assert done.exit_code == 1
    assert done.stderr == ""


@pytest.mark.slow
def test_compilation_shows_what_is_left_beside_pure_json(made: Path, tmp_path: Path) -> None:
    script = """
from numba.core import event
from dubito.kernels import compile

n_compiled = []
class Counter(compile.CompilationNotice):
    def on_end(self, event):
        super().on_end(event)
        n_compiled[:] = [self.n_compiled]
event.register("numba:compile", Counter())
from dubito.cli import main
try:
    main()
finally:
    import sys
    print(*n_compiled, file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, "audit", made / "sure.csv", "--json"],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["n_rows"] == 400
    *lines, n_compiled = done.stderr.splitlines()
    assert "dubito: compiling kernels, once per machine: 0 of about 8, about 8 s left" in lines
    assert abs(int(n_compiled) - 8) <= 2


@pytest.mark.filterwarnings("always")
def test_a_warning_is_printed_as_a_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def warned() -> dict[str, float]:
        warnings.warn("Rows are few. Try more.", DubitoWarning, stacklevel=2)
        return {}

    monkeypatch.setattr("dubito.cli.doctor._computed_metrics", warned)
    monkeypatch.setattr("dubito.cli.doctor.STORED", {})
    assert run("doctor", "--json").stderr == "dubito: Rows are few. Try more.\n"


@pytest.mark.slow
def test_piped_output_is_plain_text(run: Run, made: Path) -> None:
    command = [str(SCRIPT), "audit", "sure.csv", "--costs", "costs.csv"]
    settings = {**os.environ, "COLUMNS": "80", "FORCE_COLOR": "1"}
    done = subprocess.run(
        command, cwd=made, env=settings, capture_output=True, text=True, check=True
    )
    output = done.stdout.replace("fit sure.csv --costs ", "fit ./sure.csv --costs ./")
    assert_same(output, "audit")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert control_characters(done.stdout + done.stderr) == set()


def test_a_terminal_shows_the_same_arguments_and_progress(made: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    arguments = ["decide", "policy.json", "sure_new.csv", "later_new.csv", "--id", "id"]
    arguments += ["-o", "d.parquet", "--review", "r.csv", "--bad-rows", "e.csv"]
    places = [
        str(tmp_path / word) if word in ("d.parquet", "r.csv", "e.csv") else word
        for word in arguments
    ]
    running = subprocess.Popen(
        [str(SCRIPT), *places],
        cwd=made,
        env={**kept, "TERM": "xterm"},
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    output = b""
    while part := read_some(ours):
        output += part
    assert running.wait() == 0
    os.close(ours)
    text = output.decode()
    assert "800 rows" in text
    assert "deciding" in text
    assert "\x1b[" in text
    last = text.replace("\r\n", "\n").split("\x1b")[-1]
    last = last[last.index("800 rows of") :]
    assert_same(
        last.replace(f"{tmp_path}/", "")
        .replace("d.parquet", "decisions.parquet")
        .replace("r.csv", "review.csv")
        .replace("e.csv", "errors.csv"),
        "decide",
    )


def read_some(terminal: int) -> bytes:
    """Return what a terminal shows next, nothing when its program has ended."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""

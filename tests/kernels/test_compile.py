"""Kernels are compiled once a machine, with a notice, and load from disk afterwards."""

import fcntl
import gc
import io
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dubito.kernels
from dubito.kernels import Workload
from dubito.kernels.compile import (
    KERNELS,
    CompilationNotice,
    GarbageCollectionPause,
    LockedCache,
)
from dubito.kernels.row_statistics import narrow_rows

NOTICE = "dubito: compiling kernels, once per machine: 0 ready, about 1 s each\n"

# Few and many classes, both kinds of outputs and precisions, labels and label probabilities.
MANY_KERNELS = """
import numpy as np
from dubito import Logits, Probabilities
from dubito.data import Batch

few, many = np.full((4, 3), 1 / 3, np.float32), np.full((4, 65), 1 / 65)
for y, outputs in (([0, 1, 2, 0], Logits(few)), (many, Probabilities(many))):
    rows = Batch.of(y, outputs).rows
    print(rows.confidence, rows.entropy, rows.log_loss, rows.brier_score)
"""

ONE_KERNEL = """
from dubito import Probabilities

print(Probabilities([[0.25, 0.75]]).array)
"""


def run(script: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", script]
    environment = {**os.environ, **settings}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


@pytest.mark.slow
def test_a_second_process_loads_kernels_from_disk(tmp_path: Path) -> None:
    first = run(MANY_KERNELS, NUMBA_CACHE_DIR=str(tmp_path))
    second = run(MANY_KERNELS, NUMBA_CACHE_DIR=str(tmp_path))
    lines = first.stderr.splitlines(keepends=True)
    assert lines[0] == NOTICE
    assert all(re.fullmatch(NOTICE.replace(" 0 ", r" \d+ "), line) for line in lines)
    assert second.stderr == ""
    assert first.stdout == second.stdout


@pytest.mark.slow
def test_kernels_compile_in_memory_where_there_is_no_folder_to_write_to(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    # Nobody, root included, can make a folder below a file.
    settings = {
        "NUMBA_CACHE_DIR": str(file / "cache"),
        "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator",
    }
    assert run(ONE_KERNEL, **settings).stdout == "[[0.25 0.75]]\n"
    assert run(ONE_KERNEL, **settings).stderr == NOTICE


@pytest.mark.slow
def test_a_kernel_loads_from_disk_without_the_compiler(tmp_path: Path) -> None:
    script = f"{ONE_KERNEL}import sys; print('numba.np.arraymath' in sys.modules)"
    outputs = [run(script, NUMBA_CACHE_DIR=str(tmp_path)).stdout for _ in range(2)]
    assert [output.split()[-1] for output in outputs] == ["True", "False"]


def test_no_kernel_calls_another_as_its_cache_holds_nothing_to_inline() -> None:
    for module in iter_modules(dubito.kernels.__path__):
        import_module(f"dubito.kernels.{module.name}")
    functions = [one.py_func for one in KERNELS]
    names = {name for one in functions for name in one.__code__.co_names}
    assert len(functions) > 40
    assert not names & {one.__name__ for one in functions}


def compilation_of(function: Any) -> Any:
    return SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=function)})


@pytest.fixture
def notice(monkeypatch: pytest.MonkeyPatch) -> CompilationNotice:
    """A notice about 4 kernels, of which none is ready, and a clock that it reads."""
    clock = iter(np.arange(100.0).tolist())  # a second passes between two looks
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    monkeypatch.setattr("dubito.kernels.compile.KERNELS", [])
    monkeypatch.setattr(Workload, "n_kernels", 4)
    return CompilationNotice()


@pytest.mark.parametrize("is_enabled", [True, False])
def test_garbage_is_collected_as_before_once_a_kernel_is_compiled(is_enabled: bool) -> None:
    pause, of_kernel = GarbageCollectionPause(), compilation_of(narrow_rows.py_func)
    (gc.enable if is_enabled else gc.disable)()
    try:
        pause.on_start(of_kernel)
        pause.on_start(of_kernel)  # a kernel that this one calls
        pause.on_end(of_kernel)
        assert not gc.isenabled()
        pause.on_end(of_kernel)
        assert gc.isenabled() == is_enabled
    finally:
        gc.enable()


def compile_times(notice: CompilationNotice, times: int) -> None:
    for _ in range(times):
        notice.on_start(compilation_of(narrow_rows.py_func))
        notice.on_start(compilation_of(narrow_rows.py_func))  # a kernel that this one calls
        notice.on_end(compilation_of(narrow_rows.py_func))
        notice.on_end(compilation_of(narrow_rows.py_func))


def test_notice_is_a_line_every_few_seconds_of_what_is_left(
    notice: CompilationNotice, capsys: pytest.CaptureFixture[str]
) -> None:
    compile_times(notice, 6)
    assert capsys.readouterr().err == (
        "dubito: compiling kernels, once per machine: 0 of about 4, about 4 s left\n"
        "dubito: compiling kernels, once per machine: 5 of about 6, about 1 s left\n"
    )


def test_kernels_loaded_from_disk_are_ready(
    notice: CompilationNotice,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = SimpleNamespace(stats=SimpleNamespace(cache_hits={"float32": 1, "float64": 1}))
    monkeypatch.setattr("dubito.kernels.compile.KERNELS", [loaded])
    compile_times(notice, 1)
    assert "2 of about 4, about 2 s left" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_notice_on_a_terminal_is_one_line_that_is_erased(
    notice: CompilationNotice, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "__stderr__", terminal)
    compile_times(notice, 2)
    first, second, rest = terminal.getvalue().split("\x1b[K\r\x1b[K")
    assert first == "\rdubito: compiling kernels, once per machine: 0 of about 4, about 4 s left"
    assert second == "\rdubito: compiling kernels, once per machine: 1 of about 4, about 3 s left"
    assert rest == ""
    assert max(len(first), len(second)) <= 80


def test_notice_is_silent_about_the_kernels_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    notice = CompilationNotice()
    notice.on_start(compilation_of(run))
    notice.on_end(compilation_of(run))
    assert capsys.readouterr().err == ""
    assert notice.n_compiled == 0


def test_notice_needs_no_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    notice = CompilationNotice()
    monkeypatch.setattr(sys, "stderr", None)
    compile_times(notice, 1)
    assert notice.n_compiled == 0


def test_one_process_at_a_time_writes_to_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LockedCache, "cache_path", tmp_path)
    is_locked = []

    def save(cache: Any, sig: Any, data: Any) -> None:
        with open(tmp_path / "lock", "ab") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_locked.append((sig, data))

    monkeypatch.setattr(LockedCache.__mro__[1], "save_overload", save)
    cache: Any = LockedCache
    cache(narrow_rows.py_func).save_overload("types", "code")
    assert is_locked == [("types", "code")]

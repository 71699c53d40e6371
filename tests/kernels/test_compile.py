"""Kernels are compiled once a machine, with a notice, and load from disk afterwards."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dubito.kernels.compile import CompilationNotice
from dubito.kernels.row_statistics import narrow_rows

NOTICE = "dubito: compiling Numba kernels (first use only, a few seconds)...\n"

EVERY_KERNEL = """
import numpy as np
from dubito import Logits, Probabilities, audit

for dtype in (np.float32, np.float64):
    for n_classes in (3, 65):
        shares = np.full((4, n_classes), 1 / n_classes, dtype)
        for outputs in (Logits(shares), Probabilities(shares)):
            print(audit([0, 1, 2, 0], outputs).to_dict())
            print(audit(shares, outputs).to_dict())
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
def test_second_process_loads_every_kernel_from_disk(tmp_path: Path) -> None:
    first = run(EVERY_KERNEL, NUMBA_CACHE_DIR=str(tmp_path))
    second = run(EVERY_KERNEL, NUMBA_CACHE_DIR=str(tmp_path))
    assert (first.stderr, second.stderr) == (NOTICE, "")
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


def compilation_of(function: Any) -> Any:
    return SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=function)})


def test_notice_comes_once(capsys: pytest.CaptureFixture[str]) -> None:
    notice = CompilationNotice()
    for _ in range(2):
        notice.on_start(compilation_of(narrow_rows.py_func))
        notice.on_end(compilation_of(narrow_rows.py_func))
    assert capsys.readouterr().err == NOTICE


def test_notice_is_silent_about_the_kernels_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    CompilationNotice().on_start(compilation_of(run))
    assert capsys.readouterr().err == ""


def test_notice_needs_no_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    notice = CompilationNotice()
    monkeypatch.setattr(sys, "stderr", None)
    notice.on_start(compilation_of(narrow_rows.py_func))
    assert not notice.has_spoken

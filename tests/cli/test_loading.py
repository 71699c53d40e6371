"""Which packages each command loads: start-up time is what a user waits for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"matplotlib", "narwhals", "pandas", "rich", "sklearn", "torch", "fastapi", "sqlalchemy"}
SLOW = ("scipy.fft", "scipy.optimize", "scipy.sparse", "scipy.special", "scipy.stats")
SCRIPT = f"""
SLOW = {SLOW}
import json, sys
from dubito.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
names = {{name.split(".")[0] for name in sys.modules}} & set(json.loads(sys.argv.pop()))
ours = {{name.split(".")[1] for name in sys.modules if name.startswith("dubito.")}}
scipy = {{name for name in sys.modules if name in SLOW}}
print(json.dumps([sorted(names | scipy), sorted(ours)]), file=sys.stderr)
"""
AUDIT = {"arrays", "charts", "cli", "data", "errors", "formatting", "kernels", "measure", "outputs"}
FIT = AUDIT | {"calibrate", "decide", "doubt"}


def loaded_by(folder: Path, *words: str) -> tuple[set[str], set[str]]:
    """Run a command in a process of its own; return the packages it loaded: heavy ones, ours."""
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = SCRIPT.replace("sys.argv.pop()", repr(json.dumps(sorted(HEAVY))))
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        cwd=folder, env=settings, capture_output=True, text=True, check=True,
    )  # fmt: skip
    heavy, ours = json.loads(done.stderr.splitlines()[-1])
    return set(heavy), set(ours) - {"__main__"}


def test_the_version_loads_nothing(made: Path) -> None:
    assert loaded_by(made, "--version") == (set(), {"cli", "errors"})


@pytest.mark.parametrize(
    "words", [["sure.csv"], ["sure.csv", "--json"], ["fraud.csv", "--probability", "chance"]]
)
def test_an_audit_loads_neither_report_nor_calibrators_nor_scikit_learn(
    made: Path, words: list[str]
) -> None:
    more = ["--positive", "fraud"] if "fraud.csv" in words else []
    heavy, ours = loaded_by(made, "audit", *words, *more)
    assert heavy == set()
    assert ours <= AUDIT


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["audit", "sure.csv", "--costs", "costs.csv"], FIT),
        (["calibrate", "sure.csv", "-o", "calibrator.json"], FIT - {"decide", "doubt"}),
        (["fit", "sure.csv", "--calibrator", "TemperatureScaling", "-o", "p.json"], FIT),
        (["decide", "policy.json", "sure_new.csv", "-o", "decisions.csv"], FIT),
        (["policy", "show", "policy.json"], FIT),
        (["compare", "sure.csv", "calm.csv"], FIT | {"monitor"}),
        (["drift", "sure.csv", "later.csv"], FIT | {"monitor"}),
        (["audit", "sure.csv", "-o", "report.html"], FIT | {"monitor", "report"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_each_command_loads_only_the_packages_it_needs(
    made: Path, words: list[str], ours: set[str]
) -> None:
    heavy, loaded = loaded_by(made, *words)
    assert loaded <= ours | {"serialization"}
    allowed = {"pandas", "scipy.sparse", "scipy.special"}
    if words[0] == "drift":  # its tests
        allowed |= {"scipy.fft", "scipy.optimize", "scipy.stats"}
    assert heavy <= allowed

"""Which packages each command loads: start-up time is what a user waits for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"matplotlib", "narwhals", "pandas", "rich", "sklearn", "torch", "fastapi", "sqlalchemy"}
SLOW = {"scipy.fft", "scipy.optimize", "scipy.sparse", "scipy.special", "scipy.stats"}
SCRIPT = f"""
import json, sys
from dubito.cli import main
for command in json.load(sys.stdin):
    sys.argv = ["dubito", *command]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
    heavy = {{name.split(".")[0] for name in sys.modules}} & {HEAVY}
    heavy |= {{name for name in sys.modules if name in {SLOW}}}
    ours = {{name.split(".")[1] for name in sys.modules if name.startswith("dubito.")}}
    print(json.dumps([sorted(heavy), sorted(ours - {{"__main__"}})]), file=sys.stderr)
"""
BASE = {"arrays", "charts", "cli", "data", "errors", "formatting", "kernels", "outputs"}
AUDIT = BASE | {"measure", "serialization"}
CALIBRATE = AUDIT | {"calibrate"}
FIT = CALIBRATE | {"decide", "doubt"}
COMPARE = FIT | {"monitor"}
ALLOWED = {"pandas", "scipy.sparse", "scipy.special"}
# Commands, and the packages they may load, heavy ones and ours.
EACH = [
    (["--version"], set(), {"cli", "errors"}),
    (["audit", "sure.csv"], set(), AUDIT),
    (["audit", "sure.csv", "--json"], set(), AUDIT),
    (["audit", "fraud.csv", "--probability", "chance", "--positive", "fraud"], set(), AUDIT),
    (["calibrate", "sure.csv", "-o", "calibrator.json"], ALLOWED, CALIBRATE),
    (["audit", "sure.csv", "--costs", "costs.csv"], ALLOWED, FIT),
    (["fit", "sure.csv", "--calibrator", "TemperatureScaling", "-o", "p.json"], ALLOWED, FIT),
    (["decide", "policy.json", "sure_new.csv", "-o", "decisions.csv"], ALLOWED, FIT),
    (["policy", "show", "policy.json"], ALLOWED, FIT),
    (["compare", "sure.csv", "calm.csv"], ALLOWED, COMPARE),
]
DRIFT = (
    ["drift", "sure.csv", "later.csv"],
    ALLOWED | {"scipy.fft", "scipy.optimize", "scipy.stats"},  # its tests
    COMPARE,
)
REPORT = (["audit", "sure.csv", "-o", "report.html"], ALLOWED, COMPARE | {"report"})
Case = tuple[list[str], set[str], set[str]]


@pytest.mark.parametrize("cases", [EACH, [DRIFT], [REPORT]], ids=["each", "drift", "report"])
def test_each_command_loads_only_the_packages_it_needs(made: Path, cases: list[Case]) -> None:
    """One process runs all whose packages include those of the commands before."""
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=json.dumps([words for words, _, _ in cases]),
        cwd=made, env=settings, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = [line for line in done.stderr.splitlines() if line.startswith("[[")]
    assert len(found) == len(cases)
    for line, (words, heavy, ours) in zip(found, cases, strict=True):
        loaded_heavy, loaded = (set(names) for names in json.loads(line))
        assert loaded_heavy <= heavy, words
        assert loaded <= ours, words

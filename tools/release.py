"""Build the wheel and the sdist, and test them outside of the checkout.

    python -m tools.release check               # the wheel alone, then with each extra
    python -m tools.release matrix [--record FILE]  # each Python x lowest and newest dependencies

Every environment is empty and lies in a temporary directory. Tests come from the sdist, without its
`src`: nothing is imported from the checkout.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = ("plots", "dask", "serve", "onnx", "mlflow", "torch")
TORCH = "torch==2.13.0"
TEST_TOOLS = ("pytest", "hypothesis", "jsonschema", "pandas", "polars")
MARKERS = "not (slow or browser or postgres or torch or dask)"
TESTS = (  # a few of each package: what an old or a new dependency would break
    "tests/test_arrays.py", "tests/test_errors.py", "tests/test_outputs.py",
    "tests/serialization", "tests/data/test_files.py", "tests/measure/test_proper_scores.py",
    "tests/measure/test_detection.py", "tests/calibrate/test_temperature.py",
    "tests/calibrate/test_platt.py", "tests/doubt/test_scores.py", "tests/decide/test_costs.py",
    "tests/decide/test_actions.py", "tests/cli/test_explain.py", "tests/cli/test_policy.py",
)  # fmt: skip
MINUTES = 40  # that one run of the tests may take

SMOKE = """
import sys
import numpy as np
import dubito
from dubito import AutoCalibrator, CostMatrix, Logits, Policy, audit, calibrate, data, decide
from dubito import doubt, export, measure, monitor, report

sample = data.load_fashion_mnist()
outputs, labels = Logits(sample.validation_logits[:1000]), sample.validation_labels[:1000]
print(round(audit(labels, outputs).expected_calibration_error, 4))
costs = CostMatrix.zero_one(len(sample.classes)).with_reject(0.2)
policy = Policy.fit(outputs, labels, costs=costs, calibrator=calibrate.TemperatureScaling())
policy.save("smoke.json")
again = Policy.load("smoke.json").decide(Logits(sample.test_logits[:50]))
assert np.array_equal(again.action, policy.decide(Logits(sample.test_logits[:50])).action)
optional = {"matplotlib", "torch", "dask", "fastapi", "sqlalchemy", "onnx", "pandas", "polars"}
assert not optional & set(sys.modules), optional & set(sys.modules)
"""

EXTRA_SMOKE = {
    "plots": """
import matplotlib
matplotlib.use("agg")
from dubito.report import ReliabilityDisplay
ReliabilityDisplay.from_predictions([0, 1, 1], [[0.8, 0.2], [0.3, 0.7], [0.4, 0.6]])
""",
    "dask": """
from pathlib import Path
from dubito.data import Columns, DaskShards
from dubito.measure import ProperScoresState
from dask.distributed import Client, LocalCluster

if __name__ == "__main__":
    Path("rows").mkdir(exist_ok=True)
    for k in range(2):
        Path(f"rows/{k}.csv").write_text("label,p_a,p_b\\na,0.75,0.25\\nb,0.5,0.5\\n")
    with LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            columns = Columns(label="label", probabilities="p_*")
            shards = DaskShards(client, "rows/*.csv", columns)
            print(shards.sum(ProperScoresState.of).n_rows, "rows on a cluster")
""",
    "serve": """
import json, subprocess, sys, urllib.request
command = [sys.executable, "-m", "dubito", "serve", "--demo", "--port", "0", "--json"]
command += ["--database", "sqlite:///smoke.db"]
server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
try:
    text = ""
    while not text.rstrip().endswith("}"):
        text += server.stdout.readline()
    served = json.loads(text)
    with urllib.request.urlopen(served["address"] + "/readyz") as answer:
        print("readyz", answer.status)
    with urllib.request.urlopen(served["address"] + "/sign-in") as answer:
        assert b"token" in answer.read().lower()
finally:
    server.terminate()
    server.wait(30)
""",
    "onnx": """
import onnx
from dubito import Policy
from dubito.export import to_onnx
to_onnx(Policy.load("smoke.json"), "smoke.onnx")
onnx.checker.check_model(onnx.load("smoke.onnx"))
""",
    "mlflow": """
import mlflow
from dubito import audit
from dubito.export import log_audit
mlflow.set_tracking_uri("file:runs")
with mlflow.start_run():
    log_audit(audit([0, 1, 1], [[0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]))
""",
    "torch": """
import torch
from dubito.learn import MonteCarloDropout
network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2))
print(MonteCarloDropout(network, n_passes=3)(torch.zeros(5, 3)).n_rows, "rows")
""",
}

PREDICTIONS = "y,p_cat,p_dog\n" + "cat,0.9,0.1\ndog,0.3,0.7\ncat,0.6,0.4\ndog,0.8,0.2\n" * 25


class CommandError(Exception):
    """A command that did not end as it should, with what it printed."""


class Environment:
    """An empty virtual environment, in a directory of its own."""

    def __init__(self, python: str, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        self.run_any(python, "-m", "venv", str(folder / "venv"))

    def run_any(self, *command: str, code: int = 0, minutes: float = 15) -> str:
        """Run a command in the working directory and return what it printed."""
        # Nothing of the checkout, and none of the caller's environments.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            command, cwd=self.work, env=kept, capture_output=True, text=True, timeout=60 * minutes
        )
        if done.returncode != code:
            tail = (done.stdout + done.stderr)[-6000:]
            raise CommandError(f"{' '.join(command)[:300]}\nended with {done.returncode}:\n{tail}")
        return done.stdout + done.stderr

    def python(self, *words: str, code: int = 0, minutes: float = 15) -> str:
        """Run Python, which is isolated from the user's site-packages."""
        return self.run_any(
            str(self.folder / "venv/bin/python"), *words, code=code, minutes=minutes
        )

    def pip(self, *words: str) -> None:
        """Install packages, binary ones only."""
        self.python("-m", "pip", "--quiet", "install", "--only-binary", ":all:", *words)

    def dubito(self, *words: str, code: int = 0) -> str:
        """Run the installed command."""
        return self.run_any(str(self.folder / "venv/bin/dubito"), *words, code=code)

    def versions(self, names: list[str]) -> str:
        """Return the installed versions of packages."""
        text = self.python("-m", "pip", "list", "--format", "freeze").replace("_", "-")
        found = dict(line.split("==") for line in text.lower().splitlines() if "==" in line)
        return " ".join(f"{name} {found[name]}" for name in names)


def build(folder: Path) -> tuple[Path, Path]:
    """Build and check the wheel and the sdist; return both."""
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    command = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    missing = set(_package_files()) - set(zipfile.ZipFile(wheel).namelist())
    if missing:
        sys.exit(f"The wheel lacks {', '.join(sorted(missing))}.")
    return wheel, sdist


def _package_files() -> Iterator[str]:
    """Yield every file of the package that must be in the wheel."""
    source = ROOT / "src"
    for path in source.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(source).as_posix()


def lowest_pins(requirements: list[str]) -> list[str]:
    """Return the lower bounds of requirements as exact versions."""
    return [re.sub(r"\s*>=\s*", "==", one.split(";")[0]) for one in requirements]


def find_python(number: str) -> str | None:
    """Return a Python of a version, such as 3.12, if there is one on this machine."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" == number:
        return sys.executable
    for place in sorted(Path.home().glob(f".pyenv/versions/{number}.*/bin/python"), reverse=True):
        return str(place)
    return shutil.which(f"python{number}")


def check(folder: Path, say: Callable[[str], None]) -> None:
    """Install the wheel alone and with each extra, and use it there."""
    wheel, sdist = build(folder / "dist")
    for one in (wheel, sdist):
        say(f"{one.name}: {one.stat().st_size / 1e6:.2f} MB, twine check passed")
    plain = Environment(sys.executable, folder / "core")
    plain.pip(str(wheel))
    core = smoke_test(plain)
    say(f"core dependencies only: {core}")
    told = plain.dubito("serve", "smoke.json", code=2)
    assert "pip install 'dubito[serve]'" in told, told
    for extra in EXTRAS:
        place = Environment(sys.executable, folder / extra)
        more = [TORCH] if extra == "torch" else []
        place.pip(f"dubito[{extra}] @ {wheel.as_uri()}", *more)
        shutil.copy(plain.work / "smoke.json", place.work)
        (place.work / "smoke.py").write_text(EXTRA_SMOKE[extra], encoding="utf-8")
        place.python("smoke.py")
        names = [re.split("[>=;\\[]", one)[0] for one in PROJECT["optional-dependencies"][extra]]
        say(f"dubito[{extra}]: works with {place.versions(names)}")


def smoke_test(place: Environment) -> str:
    """Use an installed wheel as a newcomer would; return what was done."""
    place.python("-m", "pip", "check")
    home = place.python("-c", "import dubito; print(dubito.__file__)")
    assert str(place.folder) in home, home
    number = place.dubito("--version").split()[-1]
    assert number == version_of_source(), number
    assert "All checks passed" in place.dubito("doctor")
    assert "Expected calibration error" in place.dubito("explain", "ece")
    place.dubito("demo", "--folder", "demo")
    (place.work / "predictions.csv").write_text(PREDICTIONS, encoding="utf-8")
    place.dubito("audit", "predictions.csv", "-o", "report.html")
    (place.work / "smoke.py").write_text(SMOKE, encoding="utf-8")
    place.python("-W", "error", "smoke.py")
    return f"dubito {number}: doctor, demo, explain, audit -o report.html and a policy work"


def version_of_source() -> str:
    """Return the version in `dubito/__init__.py`."""
    text = (ROOT / "src/dubito/__init__.py").read_text(encoding="utf-8")
    [number] = re.findall(r'^__version__ = "(.+)"', text, re.MULTILINE)
    return str(number)


def matrix(folder: Path, pythons: list[str], say: Callable[[str], None]) -> int:
    """Run fast tests of the core from the wheel, over Pythons and dependencies; count failures."""
    wheel, sdist = build(folder / "dist")
    core = [re.split("[>=]", one)[0] for one in PROJECT["dependencies"]]
    n_failed = 0
    for number in pythons:
        python = find_python(number)
        if python is None:
            say(f"Python {number}: not on this machine")
            continue
        for kind in ("lowest", "newest"):
            place = Environment(python, folder / f"{number}-{kind}")
            pins = lowest_pins(PROJECT["dependencies"]) if kind == "lowest" else []
            started = time.monotonic()
            try:
                place.pip("--upgrade", str(wheel), *pins, *TEST_TOOLS)
                result = run_tests(place, sdist)
            except CommandError as failure:
                print(failure, file=sys.stderr, flush=True)
                say(f"Python {number}, {kind}: FAILED")
                n_failed += 1
                continue
            full = place.python("-c", "import platform; print(platform.python_version())").strip()
            say(f"Python {full}, {kind}: {result} ({time.monotonic() - started:.0f} s)")
            say(f"    {place.versions(core)}")
            shutil.rmtree(place.folder)
    return n_failed


def run_tests(place: Environment, sdist: Path) -> str:
    """Run the tests of the sdist, without its sources; return the last line that pytest prints."""
    with tarfile.open(sdist) as archive:
        archive.extractall(place.work, filter="data")
    [unpacked] = place.work.glob("dubito-*")
    shutil.rmtree(unpacked / "src")
    place.work = unpacked
    assert "All checks passed" in place.dubito("doctor")
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-profile", "quick"]
    told = place.python(*words, "-m", MARKERS, *TESTS, minutes=MINUTES)
    return told.strip().splitlines()[-1].strip("= ")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["check", "matrix"])
    parser.add_argument("--record", type=Path, help="write what is printed to this file as well")
    parser.add_argument("--python", action="append", help="3.11, 3.12 or 3.13; default: all")
    options = parser.parse_args()
    lines = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    say(f"{datetime.now(UTC):%Y-%m-%d}, dubito {version_of_source()}, build {version('build')}")
    with tempfile.TemporaryDirectory(prefix="dubito-") as folder:
        if options.what == "check":
            check(Path(folder), say)
            n_failed = 0
        else:
            n_failed = matrix(Path(folder), options.python or list(PYTHONS), say)
    if options.record:
        options.record.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.exit(1 if n_failed else 0)


if __name__ == "__main__":
    main()

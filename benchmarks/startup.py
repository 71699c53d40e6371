"""Time of each command on a small file, beside the imports that none of them can avoid, in one run.

    python -m benchmarks.startup            # kernels cached
    python -m benchmarks.startup --cold     # and with an empty cache of kernels
    python -m benchmarks.startup --page docs/fraud.md   # the commands that a page shows, instead

The file holds the first 2,000 validation rows of the bundled sample. Each command runs in a process
of its own, several times in turn; the minimum of its CPU seconds (of all threads and processes) and
of its seconds is printed.
"""

import argparse
import csv
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dubito.data import load_fashion_mnist

__all__ = ["main"]

N_ROWS = 2_000
IMPORTS = "import numba, pyarrow.csv, typer"
COMMANDS = {
    IMPORTS: ["-c", IMPORTS],
    "dubito audit": ["-m", "dubito", "audit", "rows.csv"],
    "dubito audit -o": ["-m", "dubito", "audit", "rows.csv", "-o", "report.html"],
    "dubito fit": ["-m", "dubito", "fit", "rows.csv", "--reject-cost", "0.2"],
    "dubito decide": ["-m", "dubito", "decide", "policy.json", "rows.csv", "-o", "decisions.csv"],
    "dubito demo": ["-m", "dubito", "demo"],
}
COLD = ("dubito audit", "dubito fit", "dubito demo")


def write_rows(path: Path, n_rows: int = N_ROWS) -> None:
    """Write the first validation rows of the bundled sample: logits and labels."""
    sample = load_fashion_mnist()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"logit_{name}" for name in sample.classes), "label"])
        rows = zip(sample.validation_logits[:n_rows], sample.validation_labels, strict=False)
        writer.writerows([*map(float, row), sample.classes[label]] for row, label in rows)


def seconds_of(words: list[str], folder: Path, **settings: str) -> tuple[float, float]:
    """Return the CPU seconds and the seconds that a run of Python takes, its children included."""
    command = [sys.executable, *words]
    path = os.pathsep.join(os.path.abspath(place) for place in sys.path)
    environment = {**os.environ, "PYTHONPATH": path, **settings}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # the first run compiles modules, as pip does
    start = time.perf_counter()
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{printed.decode()}")
    return used.ru_utime + used.ru_stime, time.perf_counter() - start


def print_line(name: str, times: list[tuple[float, float]], imports: float) -> None:
    """Print the minimum of the times of a command, also relative to the imports."""
    cpu, wall = (min(column) for column in zip(*times, strict=True))
    print(f"{name:<36}{cpu:>10.2f}{wall:>10.2f}{cpu / imports:>14.1f}", flush=True)


def time_page(page: Path, n_runs: int) -> None:
    """Print the times of the commands in the `sh` blocks of a page, in their order."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    times: dict[str, list[tuple[float, float]]] = {line: [] for line in lines}
    with tempfile.TemporaryDirectory() as name:
        for _ in range(n_runs + 1):
            for line in lines:
                words = ["-m", "dubito", *shlex.split(line)[1:]]
                times[line].append(seconds_of(words, Path(name)))
    print(f"{'CPU s':>6}{'s':>7}   commands of {page}, kernels cached, best of {n_runs}")
    for line, found in times.items():
        cpu, wall = (min(column) for column in zip(*found[1:], strict=True))
        print(f"{cpu:>6.2f}{wall:>7.2f}   {line}")


def main() -> None:
    """Print the times of all commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cold", action="store_true", help="also with an empty cache of kernels")
    parser.add_argument("--runs", type=int, default=5, help="runs of each command")
    parser.add_argument("--page", type=Path, help="a Markdown page whose commands run instead")
    options = parser.parse_args()
    if options.page is not None:
        time_page(options.page, options.runs)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder / "rows.csv")
        for words in COMMANDS.values():  # compiles the kernels, and writes the policy
            seconds_of(words, folder)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
        for _ in range(options.runs):
            for command, words in COMMANDS.items():
                times[command].append(seconds_of(words, folder))
        imports = min(cpu for cpu, _ in times[IMPORTS])
        print(f"{N_ROWS:,} rows, best of {options.runs}")
        print(f"{'kernels cached':<36}{'CPU s':>10}{'s':>10}{'CPU / imports':>14}")
        for command, found in times.items():
            print_line(command, found, imports)
        if options.cold:
            print(f"{'no kernels cached':<36}{'CPU s':>10}{'s':>10}{'CPU / imports':>14}")
            for command in COLD:
                with tempfile.TemporaryDirectory() as cache:
                    cold = seconds_of(COMMANDS[command], folder, NUMBA_CACHE_DIR=cache)
                print_line(command, [cold], imports)


if __name__ == "__main__":
    main()

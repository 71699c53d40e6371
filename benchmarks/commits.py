"""Two commits side by side: the same work by the code of each in turn, and the ratios of its times.

    python -m benchmarks.commits OLD [NEW]                       # NEW: HEAD
    python -m benchmarks.commits OLD --only startup,policy_decide
    python -m benchmarks.commits OLD --runs 9 --seconds 4

Each commit gets a worktree in a temporary directory, with kernels of its own, which are compiled
before anything is timed. Work runs in a new process each time, OLD and NEW in turn; the best of all
runs counts. Where a commit lacks a name that the work needs, the table says which.
"""

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["WORK", "compare_times", "table_lines"]

ROOT = Path(__file__).parents[1]
N_TIMES = 5  # calls in a process, after one that is not timed
BATCH_ROWS, N_CLASSES, N_CONNECTIONS = 5000, 10, 3  # of requests
MISSING = ("ImportError", "ModuleNotFoundError", "AttributeError", "TypeError", "No such option")

Times = dict[str, float]  # more is better of rows per second, less of everything else


def _best_of(name: str, call: Callable[[], object]) -> Times:
    """Return the least CPU seconds and the least seconds of several calls."""
    call()
    cpu = wall = float("inf")
    for _ in range(N_TIMES):
        start, start_cpu = time.perf_counter(), time.process_time()
        call()
        wall = min(wall, time.perf_counter() - start)
        cpu = min(cpu, time.process_time() - start_cpu)
    return {f"{name}, CPU s": cpu, f"{name}, s": wall}


def _rows(n_rows: int, n_classes: int) -> tuple[Any, Any]:
    """Return overconfident logits, and the labels that were drawn from the calibrated ones."""
    import numpy as np

    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(n_rows, n_classes)).astype(np.float32)
    return logits, (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)


def startup(seconds: float) -> Times:
    """Run `dubito audit` of a CSV file of 2,000 rows."""
    logits, labels = _rows(2000, N_CLASSES)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "rows.csv")
        header = ",".join([*(f"logit_{k}" for k in range(N_CLASSES)), "label"])
        lines = (
            f"{','.join(map(str, row))},{label}" for row, label in zip(logits, labels, strict=True)
        )
        place.write_text("\n".join([header, *lines]) + "\n")
        command = [sys.executable, "-m", "dubito", "audit", str(place), "--label", "label"]
        command += ["--logits", "logit_*"]
        cpu = wall = float("inf")
        for _ in range(N_TIMES):
            start, before = time.perf_counter(), os.times()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            after = os.times()
            wall = min(wall, time.perf_counter() - start)
            used = after.children_user + after.children_system
            cpu = min(cpu, used - before.children_user - before.children_system)
    return {"dubito audit, CPU s": cpu, "dubito audit, s": wall}


def row_pass(seconds: float) -> Times:
    """Audit 10,000 x 1,000 logits, and compute five metrics of them."""
    from dubito import Logits, audit
    from dubito.measure import accuracy, brier_score, expected_calibration_error, log_loss

    logits, labels = _rows(10_000, 1000)
    metrics = (accuracy, brier_score, expected_calibration_error, log_loss)
    found = _best_of("audit", lambda: audit(labels, Logits(logits)))
    one_by_one = lambda: [metric(labels, Logits(logits)) for metric in metrics]  # noqa: E731
    return {**found, **_best_of("four metrics", one_by_one)}


def calibration_speed(seconds: float) -> Times:
    """Fit calibrators to 20,000 x 10 logits."""
    from dubito import Logits
    from dubito.calibrate import IsotonicCalibration, OneVsRest, TemperatureScaling, VectorScaling

    logits, labels = _rows(20_000, N_CLASSES)
    found: Times = {}
    for name, made in {
        "temperature": TemperatureScaling,
        "vector": VectorScaling,
        "isotonic": lambda: OneVsRest(IsotonicCalibration()),
    }.items():
        found |= _best_of(name, lambda made=made: made().fit(Logits(logits), labels))  # type: ignore[misc]
    return found


def _policy(n_classes: int) -> Any:
    """Return a policy by temperature that rejects some rows."""
    from dubito import Logits
    from dubito.calibrate import TemperatureScaling
    from dubito.decide import CostMatrix, Policy

    logits, labels = _rows(2000, n_classes)
    costs = CostMatrix.zero_one(n_classes).with_reject(0.3)
    return Policy.fit(Logits(logits), labels, costs=costs, calibrator=TemperatureScaling())


def policy_decide(seconds: float) -> Times:
    """Decide 200,000 x 10 logits."""
    from dubito import Logits

    policy, (logits, _) = _policy(N_CLASSES), _rows(200_000, N_CLASSES)
    return _best_of("decide", lambda: policy.decide(Logits(logits)))


def serve_load(seconds: float) -> Times:
    """Send batches of 5,000 rows on three connections to a service with SQLite (Linux)."""
    with tempfile.TemporaryDirectory() as folder:
        return _served("SQLite", f"sqlite:///{folder}/load.db", seconds)


def serve_load_postgres(seconds: float) -> Times:
    """Send the same batches to a service with a PostgreSQL server of its own."""
    # The server of this commit, for both: the older one may have no such module.
    postgres = runpy.run_path(str(ROOT / "studies" / "common" / "postgres.py"))
    with postgres["cluster"]() as server:
        return _served("PostgreSQL", postgres["new_database"](server, "load"), seconds)


def _served(name: str, url: str, seconds: float) -> Times:
    """Return the throughput of a service with a database, and what a batch costs its process."""
    from benchmarks.serve_client import load
    from dubito.data.stream import write_stream
    from dubito.serve.store import Store

    body = write_stream({"logits": 5 * _rows(BATCH_ROWS, N_CLASSES)[0]})
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder, "policy.json")
        _policy(N_CLASSES).save(policy)
        store = Store.open(url)
        headers = {"Authorization": f"Bearer {store.create_token('load', ['decide'])}"}
        headers["Content-Type"] = "application/vnd.apache.arrow.stream"
        store.close()
        command = [sys.executable, "-m", "dubito", "serve", str(policy)]
        command += ["--database", url, "--port", "0", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            printed = ""
            while not printed.rstrip().endswith("}"):
                line = process.stdout.readline()
                if not line:
                    raise RuntimeError(f"The service did not start. {printed}")
                printed += line
            try:
                address = str(json.loads(printed)["address"])
                load(address, "/v1/decide", headers, lambda _: body, N_CONNECTIONS, 1.0)
                before = _process_cpu(process.pid)
                found = load(address, "/v1/decide", headers, lambda _: body, N_CONNECTIONS, seconds)
                used = _process_cpu(process.pid) - before
            finally:
                process.terminate()
    return {
        f"{name}, rows/s": found.n_requests * BATCH_ROWS / found.seconds,
        f"{name}, server CPU s per batch": used / found.n_requests,
    }


def _process_cpu(pid: int) -> float:
    """Return the CPU seconds that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


WORK: dict[str, Callable[[float], Times]] = {
    "startup": startup,
    "row_pass": row_pass,
    "calibration_speed": calibration_speed,
    "policy_decide": policy_decide,
    "serve_load": serve_load,
    "serve_load_postgres": serve_load_postgres,
}


def _measured(tree: Path, name: str, seconds: float) -> Times | str:
    """Return the times of work by the code of a worktree, or what that code lacks."""
    command = [sys.executable, "-P", str(Path(__file__)), "--measure", name]
    path = os.pathsep.join([str(tree / "src"), str(tree)])
    done = subprocess.run(
        [*command, "--seconds", str(seconds)], cwd=tree, capture_output=True, text=True,
        check=False, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    if not done.returncode:
        times: Times = json.loads(done.stdout.splitlines()[-1])
        return times
    last = (done.stderr.strip() or "no message").splitlines()[-1]
    if any(word in done.stderr for word in MISSING):
        return f"does not have what this needs: {last}"
    raise SystemExit(f"{name} failed at {tree.name}:\n{done.stderr}")


def compare_times(
    trees: tuple[Path, Path], name: str, n_runs: int, seconds: float
) -> tuple[Times | str, Times | str]:
    """Run work by two worktrees in turn; return the best times of each.

    The first run of each, which compiles kernels and modules, does not count.
    """
    best: list[Times | str] = [_measured(tree, name, seconds) for tree in trees]
    for number in range(n_runs):
        for k, tree in enumerate(trees):
            before = best[k]
            if isinstance(before, str):
                continue
            found = _measured(tree, name, seconds)
            assert not isinstance(found, str)
            best[k] = found if not number else _better(before, found)
    return best[0], best[1]


def _better(one: Times, other: Times) -> Times:
    """Return the best of two runs, figure by figure."""
    return {
        name: (max if "rows/s" in name else min)(value, other[name]) for name, value in one.items()
    }


def table_lines(name: str, old: Times | str, new: Times | str) -> list[str]:
    """Return the lines of the table on some work: both figures and their ratio."""
    if isinstance(old, str) or isinstance(new, str):
        problems = {"OLD": old, "NEW": new}
        return [f"{name}: {k} {v}" for k, v in problems.items() if isinstance(v, str)]
    return [
        f"{f'{name}: {figure}':<52}{_shown(value):>10}{_shown(new[figure]):>10}"
        f"{new[figure] / value:>10.3f}"
        for figure, value in old.items()
    ]


def _shown(value: float) -> str:
    """Return a figure with four digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


@contextmanager
def _worktrees(commits: list[str]) -> Iterator[tuple[Path, Path]]:
    """Check out two commits in a temporary directory, which is removed in the end."""
    git = ["git", "-C", str(ROOT)]
    with tempfile.TemporaryDirectory() as folder:
        old, new = Path(folder, "old"), Path(folder, "new")
        try:
            for place, commit in zip((old, new), commits, strict=True):
                add = [*git, "worktree", "add", "--quiet", "--detach", str(place), commit]
                if subprocess.run(add, check=False).returncode:
                    raise SystemExit(f"There is no commit {commit} to check out.")
            yield old, new
        finally:
            for place in (old, new):
                if place.exists():
                    remove = [*git, "worktree", "remove", "--force", str(place)]
                    subprocess.run(remove, check=True)


def main() -> None:
    """Print the table of two commits."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", nargs="?", help="a commit")
    parser.add_argument("new", nargs="?", default="HEAD", help="another, by default HEAD")
    parser.add_argument("--only", default=",".join(WORK), help="names of work, with commas between")
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each")
    parser.add_argument("--seconds", type=float, default=3.0, help="of load on a service, per run")
    parser.add_argument("--measure", choices=WORK, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(WORK[options.measure](options.seconds)))
        return
    names = options.only.split(",")
    unknown = [name for name in names if name not in WORK]
    if unknown or options.old is None:
        parser.error(f"unknown: {', '.join(unknown)}" if unknown else "name a commit, OLD")
    print(f"OLD {options.old}, NEW {options.new}: in turn, best of {options.runs}")
    print(f"{'':<52}{'OLD':>10}{'NEW':>10}{'NEW/OLD':>10}", flush=True)
    with _worktrees([options.old, options.new]) as trees:
        for name in names:
            found = compare_times(trees, name, options.runs, options.seconds)
            print("\n".join(table_lines(name, *found)), flush=True)


if __name__ == "__main__":
    main()

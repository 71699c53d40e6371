"""Markers, skips, hypothesis settings and the browser that all tests use."""

import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# On the small matrices of tests, threads of BLAS and OpenMP only spin, and test processes run side
# by side anyway. Set before NumPy and PyTorch are loaded, and inherited by child processes.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# No test speaks TLS, yet each client of HTTP would read all certificates of the system, which takes
# longer than to start a service. From a folder they are read when they are needed.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)


def _is_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


# The first example may compile kernels, so no example has a deadline.
settings.register_profile("untimed", deadline=None, max_examples=50)
settings.register_profile("quick", deadline=None, max_examples=10)  # of `make quick`
# CI draws the same examples every time: its result depends on the commit alone. Runs on the
# machines of developers search on.
settings.register_profile("ci", settings.get_profile("untimed"), derandomize=True, database=None)
settings.load_profile("ci" if _is_ci() else "untimed")

ROOT = Path(__file__).parents[1]

# These modules, and everything below these directories, carry the marker.
PATH_MARKERS = {
    "src/dubito/export/torch_module.py": "torch",
    "src/dubito/learn": "torch",
    "src/dubito/report": "slow",
    "tests/benchmarks": "slow",
    "tests/cli/test_answers.py": "slow",
    "tests/cli/test_app.py": "slow",
    "tests/cli/test_audit.py": "slow",
    "tests/cli/test_cascade.py": "slow",
    "tests/cli/test_fit.py": "slow",
    "tests/cli/test_forecast.py": "slow",
    "tests/cli/test_label_policy.py": "slow",
    "tests/cli/test_loading.py": "slow",
    "tests/cli/test_multilabel.py": "slow",
    "tests/cli/test_regression.py": "slow",
    "tests/cli/test_serve.py": "slow",
    "tests/examples": "torch",
    "tests/export/test_torch_module.py": "torch",
    "tests/learn": "torch",
    "tests/report": "slow",
    "tests/serve": "slow",
    "tests/studies": "slow",
}

# Tests run with one thread of kernels, as there is a process per core, and to hand a task of few
# rows to a thread takes longer than the task. These use all cores; others that are about threads
# set how many.
ALL_CORES = ("tests/data", "tests/kernels", "tests/serve")

# A test that uses one of these fixtures carries the marker.
FIXTURE_MARKERS = {
    "browser": "browser",
    "postgres": "postgres",
    "empty_postgres": "postgres",
    "fashion_mnist_folder": "slow",
    "run_notebook": "slow",
}

CHROMIUM_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def _has_postgres() -> bool:
    servers = Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")
    return shutil.which("pg_ctl") is not None or any(servers)


@pytest.hookimpl(tryfirst=True)  # before -m selects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add markers by path, fixture and database; skip what this system cannot run."""
    missing = {}
    if shutil.which("chromium") is None:
        missing["browser"] = "Chromium is not installed (apt-get install chromium)"
    if not _has_postgres():
        missing["postgres"] = "PostgreSQL is not installed (apt-get install postgresql)"
    marked = {(ROOT / path): marker for path, marker in PATH_MARKERS.items()}
    markers = {
        path: [marked[one] for one in (path, *path.parents) if one in marked]
        for path in {item.path for item in items}
    }
    for item in items:
        for marker in markers[item.path]:
            item.add_marker(marker)
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in FIXTURE_MARKERS:
                item.add_marker(FIXTURE_MARKERS[fixture])
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if any(value == "postgresql" for value in parameters.values() if isinstance(value, str)):
            item.add_marker("postgres")
        for marker, reason in missing.items():
            if item.get_closest_marker(marker) is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect no garbage while tests are collected: there is next to none, and much to look at."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Leave tests and imported modules out of later garbage collections, and collect less often.

    They stay to the end. Kernels that are compiled leave little garbage among many new objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


def _fail_if_skipped(report: Any) -> None:
    """Turn a skip into a failure: CI must run every test."""
    if _is_ci() and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"A test may not be skipped when CI is set. {reason}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Fail on a skipped test when CI is set."""
    outcome: Any = yield
    _fail_if_skipped(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    """Fail on a skipped module when CI is set."""
    outcome: Any = yield
    _fail_if_skipped(outcome.get_result())


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print one line per reason for which tests were skipped."""
    counts: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        counts[reason] = counts.get(reason, 0) + 1
    for reason, count in counts.items():
        tests = "1 test" if count == 1 else f"{count} tests"
        terminalreporter.write_line(f"Skipped {tests}: {reason}.")


@pytest.fixture(autouse=True, scope="module")
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run most tests, and what they share, with one thread of kernels."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.path.relative_to(ROOT).as_posix().startswith(ALL_CORES):
            patch.setenv("DUBITO_THREADS", "1")
        yield


@pytest.fixture(scope="module")  # while it is open, no test of this process may run an event loop
def browser() -> "Iterator[Browser]":
    """Headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=CHROMIUM_ARGUMENTS
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def fashion_mnist_folder() -> Path:
    """The directory where Debian's package installs Fashion-MNIST."""
    folder = Path("/usr/share/datasets/fashion-mnist")
    if not folder.is_dir():
        pytest.skip("Fashion-MNIST is not installed (apt-get install dataset-fashion-mnist)")
    return folder


@pytest.fixture(scope="session")
def run_notebook() -> Iterator[Callable[..., None]]:
    """A function that runs notebooks in one Jupyter kernel, so that they share its start-up."""
    from jupyter_client.manager import KernelManager
    from nbclient import NotebookClient

    def run(notebook: Any, client: type[NotebookClient] = NotebookClient) -> None:
        running = client(notebook, km=manager, timeout=300)
        try:
            running.execute()
        finally:
            assert running.kc is not None
            running.kc.stop_channels()

    # Not below the folder of pytest: the path of a socket has at most about 100 characters.
    with tempfile.TemporaryDirectory(prefix="dubito") as folder:
        settings = dict.fromkeys(("IPYTHONDIR", "JUPYTER_CONFIG_DIR"), folder)
        settings["PYTHONPATH"] = str(ROOT / "src")
        manager = KernelManager(transport="ipc", connection_file=f"{folder}/kernel.json")
        manager.ip = f"{folder}/kernel"
        manager.start_kernel(cwd=folder, env={**os.environ, **settings})
        try:
            yield run
        finally:
            manager.shutdown_kernel(now=True)
            manager.cleanup_resources()

"""Throughput on loopback: the service with its database beside a bare handler, in one run.

    python -m benchmarks.serve_load [--seconds 8]

Client and server share the cores of one machine; every response waits for its sync.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

import numpy as np

from benchmarks.serve_client import Load, load
from dubito.data.stream import write_stream
from dubito.serve.store import Store
from studies.common.postgres import cluster, free_port, new_database
from studies.common.serving import fitted_policy, served

__all__ = ["ARROW", "N_CLASSES"]

ARROW = "application/vnd.apache.arrow.stream"
N_CLASSES, BATCH_ROWS = 10, 5000
N_SINGLE, N_BATCH = 16, 3  # connections
SCALE = 16.0  # of logits: about a fifth of the rows is rejected


def main() -> None:
    """Measure, and print a table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=8.0)
    seconds = options.parse_args().seconds
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}; client on the same cores.")
    print(f"Rows of {N_CLASSES} classes; single rows as JSON on {N_SINGLE} connections,")
    print(f"batches of {BATCH_ROWS:,} rows as Arrow streams on {N_BATCH}; {seconds:g} s each.")
    print("SQLite: WAL, synchronous=FULL. PostgreSQL: fsync=on, synchronous_commit=on.")
    print("One server process each; commits are grouped, every response waits for its sync.")
    print("Client: fraction of one core that the client used.\n")
    print(f"{'':<28}{'requests/s':>11}{'rows/s':>10}{'p50 ms':>9}{'p99 ms':>9}{'client':>8}")
    with TemporaryDirectory() as folder, cluster() as server:
        place = Path(folder)
        policy = place / "policy.json"
        fitted_policy(N_CLASSES).save(policy)
        with bare() as address:
            plain = {"Content-Type": "application/json"}
            found = load(address, "/json", plain, single, N_SINGLE, seconds)
            show("bare, single rows", found, 1)
            content = batches(1)
            found = load(address, "/arrow", {"Content-Type": ARROW}, content, N_BATCH, seconds)
            show("bare, batches", found, BATCH_ROWS)
        for name, url in {
            "SQLite": f"sqlite:///{place}/load.db",
            "PostgreSQL": new_database(server, "load"),
        }.items():
            store = Store.open(url)
            token = store.create_token("load", ["decide"])
            store.close()
            headers = {"Authorization": f"Bearer {token}"}
            with served(policy, url, place / "log") as address:
                measure(address, headers, name, seconds)


def measure(address: str, headers: dict[str, str], name: str, seconds: float) -> None:
    """Measure one service."""
    load(address, "/v1/decide", headers, single, 2, 1.0)  # compiles the kernels
    found = load(address, "/v1/decide", headers, single, N_SINGLE, seconds)
    show(f"{name}, single rows", found, 1)
    arrow = {**headers, "Content-Type": ARROW}
    found = load(address, "/v1/decide", arrow, batches(40), N_BATCH, seconds)
    show(f"{name}, batches", found, BATCH_ROWS)


def single(number: int) -> bytes:
    """Return the body of a request of one row."""
    row = np.random.default_rng(number).normal(size=N_CLASSES) * SCALE
    return json.dumps({"logits": [row.round(4).tolist()]}).encode()


def batches(n_different: int) -> Callable[[int], bytes]:
    """Return prepared bodies of many rows; the service generates their ids."""
    rng = np.random.default_rng(0)
    made = [
        write_stream(
            {"logits": (SCALE * rng.normal(size=(BATCH_ROWS, N_CLASSES))).astype(np.float32)}
        )
        for _ in range(n_different)
    ]
    return lambda number: made[number % n_different]


@contextmanager
def bare() -> Iterator[str]:
    """Yield the address of the bare handler."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.serve_bare", str(port)])
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(200):
            try:
                urlopen(f"{address}/openapi.json").close()
                break
            except OSError:
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def show(name: str, found: Load, n_rows: int) -> None:
    """Print a line."""
    print(
        f"{name:<28}{found.rate:>11,.0f}{found.rate * n_rows:>10,.0f}"
        f"{1000 * found.p50:>9.1f}{1000 * found.p99:>9.1f}{found.client_fraction:>8.0%}",
        flush=True,
    )


if __name__ == "__main__":
    main()

"""Does a well-behaved client notice when the service is attacked, and is anything lost?

    python -m studies.serve_attacks [--seconds 4] [--quick] [-o docs/serve_attacks.txt]

A service on this machine, with 256 file descriptors, is attacked in one way after the other, while
a client sends a health check on a new connection and a decision of one row in turn. The attacks run
in another process and end by themselves. Then every acknowledged decision must be in the database.
"""

from __future__ import annotations

import argparse
import json
import resource
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import final

import numpy as np

from dubito.serve.store import Store
from studies.common.attacks import ATTACKS
from studies.common.serving import Process, fitted_policy, start

__all__ = ["Figures", "attack_all", "report"]

ROOT = Path(__file__).parents[1]
MAX_SECONDS = 0.5  # that a well-behaved client may wait
N_FILES = 256
PAUSE, TIMEOUT = 0.02, 30.0
BYTES, QUICK_BYTES = 30_000_000, 300_000  # of a body; the service takes 32 MB
QUICK_SECONDS, WARM_UP = 0.5, 1.0
MAX_BATCHES = 200  # until the disk is full
NO_ATTACK, FULL_DISK = "no-attack", "full-disk"
ALL = [NO_ATTACK, *ATTACKS, FULL_DISK]


@final
class Client:
    """A well-behaved client, which measures its own latency."""

    def __init__(self, port: int, token: str) -> None:
        self.port, self.headers = port, {"Authorization": f"Bearer {token}"}
        self.line = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
        self.health: list[float] = []
        self.decide: list[float] = []
        self.acknowledged: list[str] = []
        self.failed: list[str] = []
        self.stop = Event()

    def run(self) -> None:
        """Send requests until it is stopped."""
        while not self.stop.wait(PAUSE):
            began = time.perf_counter()
            fresh = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
            self.send("GET", "/healthz", line=fresh)
            fresh.close()
            self.health.append(time.perf_counter() - began)
            name = secrets.token_hex(8)
            body = json.dumps({"logits": [[0.1, 0.0, 0.0]], "ids": [name]})
            began = time.perf_counter()
            if self.send("POST", "/v1/decide", body) == 200:
                self.acknowledged.append(name)
            self.decide.append(time.perf_counter() - began)
        self.line.close()

    def send(
        self, method: str, path: str, body: str | None = None, line: HTTPConnection | None = None
    ) -> int:
        """Return the status of a request, 0 without response."""
        used = line or self.line
        try:
            used.request(method, path, body, self.headers)
            response = used.getresponse()
            response.read()
        except (OSError, HTTPException) as error:
            self.failed.append(f"{path}: {error!r}")
            used.close()
            return 0
        return response.status


@final
@dataclass(frozen=True)
class Figures:
    """What a client met during one attack: medians and maxima in seconds."""

    attack: str
    outcome: str
    health: tuple[float, float]
    decide: tuple[float, float]
    n_acknowledged: int
    lost: list[str]
    failed: list[str]

    @property
    def is_harmless(self) -> bool:
        """Whether the client noticed nothing, and nothing was lost."""
        slowest = max(self.health[1], self.decide[1])
        return slowest <= MAX_SECONDS and not self.lost and not self.failed


@final
@dataclass
class Service:
    """A service under attack, and what its client met."""

    process: Process
    port: int
    database: Path
    token: str
    observed: list[tuple[str, str, Client]] = field(default_factory=list)

    def observe(self, name: str, attack: Callable[[], str]) -> None:
        """Measure a client during an attack."""
        client = Client(self.port, self.token)
        thread = Thread(target=client.run)
        thread.start()
        try:
            outcome = attack()
        finally:
            client.stop.set()
            thread.join()
        self.observed.append((name, outcome, client))

    def figures(self) -> list[Figures]:
        """Return the figures, once the service was killed, with what is not stored."""
        store = Store.open(f"sqlite:///{self.database}")
        found = []
        for name, outcome, client in self.observed:
            stored = store.find_decisions(client.acknowledged)
            found.append(
                Figures(
                    name,
                    outcome,
                    (float(np.median(client.health)), max(client.health)),
                    (float(np.median(client.decide)), max(client.decide)),
                    len(client.acknowledged),
                    [one for one in client.acknowledged if one not in stored],
                    client.failed,
                )
            )
        store.close()
        return found

    def run_attack(self, name: str, seconds: float, n_bytes: int) -> str:
        """Run an attack in a process of its own, and return what it met."""
        words = [name, self.port, seconds, n_bytes, self.token, self.database]
        command = [sys.executable, "-m", "studies.common.attacks", *map(str, words)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + 300, cwd=ROOT, check=False
        )
        return done.stdout.strip() or f"did not run: {done.stderr[-200:]}"

    def fill_disk(self, seconds: float) -> str:
        """Keep files from growing, as if the disk were full, then make room again."""
        limits = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
        full = self.database.stat().st_size
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (full, limits[1]))
        statuses: Counter[int] = Counter()
        body = json.dumps({"logits": [[0.1, 0.0, 0.0]] * 1000})
        sender, until = Client(self.port, self.token), time.monotonic() + seconds
        while time.monotonic() < until or (not statuses[503] and statuses.total() < MAX_BATCHES):
            statuses[sender.send("POST", "/v1/decide", body)] += 1
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, limits)
        after = sender.send("POST", "/v1/decide", body)
        sender.line.close()
        met = ", ".join(f"{n} x {status}" for status, n in sorted(statuses.items()))
        return f"batches of 1,000 rows: {met}; with room again {after}"


@contextmanager
def service(folder: Path) -> Iterator[Service]:
    """Start a service with few file descriptors, and kill it in the end."""
    policy, database = folder / "policy.json", folder / "dubito.db"
    fitted_policy().save(policy)
    store = Store.open(f"sqlite:///{database}")
    token = store.create_token("client", ["decide", "review", "admin"])
    store.close()
    limited = ["sh", "-c", f'ulimit -n {N_FILES}; exec "$@"', "sh"]
    process, address = start(policy, f"sqlite:///{database}", folder / "log", under=limited)
    try:
        found = Service(process, int(address.rpartition(":")[2]), database, token)
        found.observe("first requests", partial(rest, WARM_UP))
        found.observed.clear()
        yield found
    finally:
        process.kill()
        process.communicate()


def attack_all(names: Sequence[str], seconds: float, n_bytes: int) -> list[Figures]:
    """Attack a service in several ways, one after the other; return the figures of each."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # another user may enter: the files themselves must be safe
        with service(folder) as attacked:
            for name in names:
                if name == NO_ATTACK:
                    attacked.observe(name, partial(rest, seconds))
                elif name == FULL_DISK:
                    attacked.observe(name, partial(attacked.fill_disk, seconds))
                else:
                    attacked.observe(name, partial(attacked.run_attack, name, seconds, n_bytes))
        return attacked.figures()


def rest(seconds: float) -> str:
    """Do nothing for some time."""
    time.sleep(seconds)
    return ""


def report(found: Sequence[Figures]) -> str:
    """Return a table and a verdict."""
    lines = [
        "Latency of a well-behaved client in ms: health checks on new connections, and decisions.",
        "",
        f"{'':<18}{'healthz p50':>12}{'max':>7}{'decide p50':>12}{'max':>7}{'stored':>8}"
        f"{'lost':>6}{'failed':>8}",
    ]
    for one in found:
        times = [1000 * seconds for seconds in (*one.health, *one.decide)]
        lines.append(
            f"{one.attack:<18}{times[0]:>12.1f}{times[1]:>7.0f}{times[2]:>12.1f}{times[3]:>7.0f}"
            f"{one.n_acknowledged:>8,}{len(one.lost):>6}{len(one.failed):>8}"
        )
    lines += ["", "What the attacker met:", ""]
    lines += [f"{one.attack:<18} {one.outcome}" for one in found if one.outcome]
    harmful = [one.attack for one in found if not one.is_harmless]
    slowest = max(max(one.health[1], one.decide[1]) for one in found)
    n_stored, n_lost = sum(one.n_acknowledged for one in found), sum(len(one.lost) for one in found)
    n_failed = sum(len(one.failed) for one in found)
    verdict = f"Harmful: {', '.join(harmful)}." if harmful else "No attack was noticed."
    lines += [
        "",
        f"{verdict} Slowest response {1000 * slowest:.0f} ms (limit {1000 * MAX_SECONDS:.0f}), "
        f"{n_failed} requests failed; {n_stored:,} decisions acknowledged, {n_lost} lost.",
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Attack, and print the table."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each attack")
    parser.add_argument("--quick", action="store_true", help="half a second each, small bodies")
    parser.add_argument("--only", nargs="+", default=ALL, choices=ALL, help="some attacks only")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    seconds, n_bytes = (QUICK_SECONDS, QUICK_BYTES) if options.quick else (options.seconds, BYTES)
    text = report(attack_all(options.only, seconds, n_bytes))
    print(text, end="")
    if options.output:
        options.output.write_text(f"$ python -m studies.serve_attacks\n{text}")


if __name__ == "__main__":
    main()

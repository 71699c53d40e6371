"""Does every acknowledged write survive when the service is killed at a random moment?

    python -m studies.serve_durability [--rounds 20] [--writes 1000] [--quick]

In each round 8 concurrent clients send writes, half of them decisions and half labels, one per
request. At a random moment of each round the service is killed with SIGKILL and started again; the
clients repeat what was not acknowledged until all writes of the round are. In the end every
decision and label must be in the database as it was acknowledged, and none twice.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, final

import httpx
from sqlalchemy import select

from dubito.formatting import quantity
from dubito.serve.store import Store
from dubito.serve.store.tables import decisions, labels, reviews
from studies.common.postgres import cluster, new_database
from studies.common.serving import Process, fitted_policy, start

__all__ = ["Endured", "endure"]

N_CLIENTS = 8
MAX_DELAY = 0.01  # seconds between the last counted response and the kill
QUICK_ROUNDS, QUICK_WRITES = 2, 40


@final
@dataclass
class Sent:
    """The writes to send, and those that were acknowledged."""

    todo: deque[int] = field(default_factory=deque)
    decided: dict[str, dict[str, Any]] = field(default_factory=dict)
    labeled: dict[str, str] = field(default_factory=dict)
    n_repeated: int = 0

    @property
    def n_writes(self) -> int:
        """The number of acknowledged writes."""
        return len(self.decided) + len(self.labeled)


@final
@dataclass(frozen=True)
class Endured:
    """The acknowledged writes, and those that are missing, different or repeated."""

    n_rounds: int
    n_writes: int
    n_decisions: int
    n_labels: int
    n_repeated: int
    seconds: float
    wrong: list[str]

    def __str__(self) -> str:
        return (
            f"{quantity(self.n_rounds, 'round')} of {self.n_writes:,} writes, the service killed "
            f"(SIGKILL) at a random moment of each: {self.n_decisions:,} decisions and "
            f"{self.n_labels:,} labels acknowledged, {self.n_repeated} of them sent again after a "
            f"kill; {len(self.wrong)} missing, different or twice. {self.seconds:.0f} seconds."
        )


@final
@dataclass
class Service:
    """A service process that is started, killed, and started again."""

    policy: Path
    url: str
    log: Path
    token: str
    process: Process | None = None
    address: str = ""

    def start(self) -> None:
        """Start the process."""
        self.process, self.address = start(self.policy, self.url, self.log)

    def kill(self) -> None:
        """Kill the process."""
        assert self.process is not None
        self.process.kill()
        self.process.communicate()

    def clients(self, sent: Sent) -> list[Thread]:
        """Start clients that send the writes."""
        arguments = (self.address, self.token, sent)
        found = [Thread(target=write, args=arguments) for _ in range(N_CLIENTS)]
        for client in found:
            client.start()
        return found


def endure(url: str, policy: Path, log: Path, n_rounds: int, n_writes: int, seed: int) -> Endured:
    """Write, kill, and write again; then compare the database with what was acknowledged."""
    began, rng, sent = time.monotonic(), random.Random(seed), Sent()
    store = Store.open(url)
    service = Service(policy, url, log, store.create_token("client", ["decide"]))
    store.close()
    service.start()
    for number in range(n_rounds):
        half = n_writes // 2
        sent.todo.extend(range(number * half, (number + 1) * half))
        run_round(service, sent, sent.n_writes + rng.randrange(1, n_writes), rng)
    service.kill()
    found, seconds = problems(url, sent), time.monotonic() - began
    counts = len(sent.decided), len(sent.labeled), sent.n_repeated
    return Endured(n_rounds, n_writes, *counts, seconds, found)


def run_round(service: Service, sent: Sent, kill_after: int, rng: random.Random) -> None:
    """Send all writes of a round; kill the service once `kill_after` are acknowledged."""
    clients = service.clients(sent)
    while sent.n_writes < kill_after and any(client.is_alive() for client in clients):
        time.sleep(0.0005)
    time.sleep(rng.uniform(0, MAX_DELAY))
    service.kill()
    for client in clients:
        client.join()
    service.start()
    for client in service.clients(sent):
        client.join()
    if sent.todo:
        raise RuntimeError(f"The service ended by itself: {service.log.read_text()[-2000:]}")


def write(address: str, token: str, sent: Sent) -> None:
    """Send decisions and labels until all are acknowledged or the service is gone."""
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=address, headers=headers, timeout=60) as client:
        while True:
            try:
                number = sent.todo.popleft()
            except IndexError:
                return
            try:
                send(client, number, sent)
            except httpx.TransportError:
                sent.todo.append(number)
                sent.n_repeated += 1
                return


def send(client: httpx.Client, number: int, sent: Sent) -> None:
    """Send a decision and its label, unless they are acknowledged; the number determines both."""
    name, label = f"row-{number}", "abc"[number % 3]
    row = [number % 7 - 3.0, number % 5 - 2.0, number % 3 - 1.0]
    if name not in sent.decided:
        answer = client.post("/v1/decide", json={"logits": [row], "ids": [name]})
        sent.decided[name] = answer.raise_for_status().json()["decisions"][0]
    client.post("/v1/labels", json={"ids": [name], "labels": [label]}).raise_for_status()
    sent.labeled[name] = label


def problems(url: str, sent: Sent) -> list[str]:
    """Return the rows that are missing, different, repeated or were never sent."""
    store = Store.open(url)
    kept = store.read(lambda c: [dict(row) for row in c.execute(select(decisions)).mappings()])
    known = store.read(lambda c: list(c.execute(select(labels.c.decision_id, labels.c.label))))
    queued = store.read(lambda c: list(c.execute(select(reviews.c.decision_id)).scalars()))
    store.close()
    found = [
        *compared("decision", [row["id"] for row in kept], sent.decided),
        *compared("label", [name for name, _ in known], sent.labeled),
    ]
    for row in kept:
        answer = sent.decided.get(row["id"], {})
        if any(
            row[name] != answer.get(name)
            for name in ("probability", "expected_cost", "review_value")
        ):
            found.append(f"decision {row['id']} differs from its response")
    found += [
        f"label {name} differs from what was sent"
        for name, code in known
        if "abc"[code] != sent.labeled.get(name)
    ]
    return found + [f"review {name} is repeated" for name in twice(queued)]


def compared(kind: str, kept: list[str], sent: Collection[str]) -> list[str]:
    """Return the names that are missing, repeated or were never sent."""
    there, wanted = set(kept), set(sent)
    return [
        *(f"{kind} {name} is missing" for name in sorted(wanted - there)),
        *(f"{kind} {name} was never sent" for name in sorted(there - wanted)),
        *(f"{kind} {name} is repeated" for name in twice(kept)),
    ]


def twice(names: list[str]) -> list[str]:
    """Return the names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def main() -> None:
    """Run on both databases and print the results."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--writes", type=int, default=1000, help="writes per round")
    options.add_argument("--quick", action="store_true", help="a run of a few seconds")
    wanted = options.parse_args()
    n_rounds = QUICK_ROUNDS if wanted.quick else wanted.rounds
    n_writes = QUICK_WRITES if wanted.quick else wanted.writes
    with TemporaryDirectory() as folder, cluster() as server:
        place = Path(folder)
        policy = place / "policy.json"
        fitted_policy().save(policy)
        for name, url in {
            "SQLite": f"sqlite:///{place}/durable.db",
            "PostgreSQL": new_database(server, "durable"),
        }.items():
            found = endure(url, policy, place / "log", n_rounds, n_writes, seed=0)
            print(f"{name}: {found}", flush=True)
            for problem in found.wrong[:10]:
                print(f"  {problem}")


if __name__ == "__main__":
    main()

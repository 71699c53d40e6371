"""Is every acknowledged write there after the service is killed at any moment?

    python -m studies.serve_durability [--rounds 20] [--writes 1000]

Clients send decisions and labels, the service gets SIGKILL at random moments, starts again, and
clients repeat what was not acknowledged. In the end every acknowledged decision and label must be
in the database as it was answered, and none twice.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from typing import Any, final

import httpx
from sqlalchemy import func, select

from dubito.serve.store import Store
from dubito.serve.store.tables import decisions, labels, reviews
from studies.postgres import cluster, new_database
from studies.serving import fitted_policy, start

__all__ = ["Endured", "endure"]

N_CLIENTS = 8
ROUND_SECONDS = (0.05, 0.8)  # from the first answer of a round to its end


@final
@dataclass
class Sent:
    """What clients sent, and what was acknowledged."""

    lock: Lock = field(default_factory=Lock)
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1 << 60)))
    decided: dict[str, dict[str, Any]] = field(default_factory=dict)
    labelled: dict[str, str] = field(default_factory=dict)
    n_repeated: int = 0

    @property
    def n_writes(self) -> int:
        """How many writes were acknowledged."""
        return len(self.decided) + len(self.labelled)


@final
@dataclass(frozen=True)
class Endured:
    """What was acknowledged, and what of it is wrong: nothing, one hopes."""

    n_rounds: int
    n_decisions: int
    n_labels: int
    n_repeated: int
    wrong: list[str]


def endure(url: str, policy: Path, log: Path, n_rounds: int, n_writes: int, seed: int) -> Endured:
    """Write, kill, and write again; then compare what was acknowledged with what is there."""
    rng = random.Random(seed)
    store = Store.open(url)
    token = store.create_token("client", ["decide"])
    store.close()
    sent, n_done = Sent(), 0
    while n_done < n_rounds or sent.n_writes < n_writes:
        process, address = start(policy, url, log)
        before = sent.n_writes
        clients = [Thread(target=write, args=(address, token, sent)) for _ in range(N_CLIENTS)]
        for client in clients:
            client.start()
        while sent.n_writes == before and process.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.uniform(*ROUND_SECONDS))
        process.kill()
        for client in clients:
            client.join()
        process.communicate()
        n_done += 1
    found = problems(url, sent)
    return Endured(n_done, len(sent.decided), len(sent.labelled), sent.n_repeated, found)


def write(address: str, token: str, sent: Sent) -> None:
    """Send a decision, then its label, again and again, until the service is gone."""
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=address, headers=headers, timeout=30) as client:
        while True:
            with sent.lock:
                name = f"row-{next(sent.numbers)}"
            try:
                send(client, name, sent)
            except httpx.TransportError:
                return repeat_later(name, sent)


def repeat_later(name: str, sent: Sent) -> None:
    """Put a row that was not acknowledged before those that are new."""
    with sent.lock:
        rest, number = sent.numbers, int(name.removeprefix("row-"))
        sent.n_repeated += 1

        def numbers() -> Iterator[int]:
            yield number
            yield from rest

        sent.numbers = numbers()


def send(client: httpx.Client, name: str, sent: Sent) -> None:
    """Send a decision and its label; the row's number says what they are."""
    number = int(name.removeprefix("row-"))
    row = [number % 7 - 3.0, number % 5 - 2.0, number % 3 - 1.0]
    answer = client.post("/v1/decide", json={"logits": [row], "ids": [name]})
    answer.raise_for_status()
    sent.decided[name] = answer.json()["decisions"][0]
    label = "abc"[number % 3]
    client.post("/v1/labels", json={"ids": [name], "labels": [label]}).raise_for_status()
    sent.labelled[name] = label


def problems(url: str, sent: Sent) -> list[str]:
    """Return what is missing, different, or there twice."""
    store = Store.open(url)
    rows = store.rows_for_monitor()
    kept = {name: place for place, name in enumerate(rows.id.tolist())}
    found = [f"{name} is missing" for name in sent.decided if name not in kept]
    if len(kept) != len(rows):
        found.append("decisions are there twice")
    for name, answer in sent.decided.items():
        row = store.decision(name)
        if row is not None and row["probability"] != answer["probability"]:
            found.append(f"{name} was answered otherwise")
    for name, label in sent.labelled.items():
        if name in kept and "abc"[rows.label[kept[name]]] != label:
            found.append(f"the label of {name} is missing")
    for table, key in ((decisions, "id"), (labels, "decision_id"), (reviews, "decision_id")):
        counts = select(func.count(), func.count(table.c[key].distinct()))
        n_rows, n_keys = store.read(lambda c, q=counts: c.execute(q).one())  # type: ignore[misc]
        if n_rows != n_keys:
            found.append(f"{table.name} has rows twice")
    store.close()
    return found


def main() -> None:
    """Run on both databases, and print what came of it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--writes", type=int, default=1000)
    wanted = options.parse_args()
    with TemporaryDirectory() as folder, cluster() as server:
        place = Path(folder)
        policy = place / "policy.json"
        fitted_policy().save(policy)
        for name, url in {
            "SQLite": f"sqlite:///{place}/durable.db",
            "PostgreSQL": new_database(server, "durable"),
        }.items():
            found = endure(url, policy, place / "log", wanted.rounds, wanted.writes, seed=0)
            print(
                f"{name}: {found.n_rounds} rounds of SIGKILL, {found.n_decisions:,} decisions and "
                f"{found.n_labels:,} labels acknowledged, {found.n_repeated} requests repeated; "
                f"{len(found.wrong)} missing, different or twice.",
                flush=True,
            )
            for problem in found.wrong[:10]:
                print(f"  {problem}")


if __name__ == "__main__":
    main()

import json
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from dubito.decide import Policy
from dubito.errors import BadValueError
from dubito.serve.running import is_loopback, listening, put_in_force
from dubito.serve.store import Store
from dubito.serve.store.documents import text_of_policy
from studies.serve_durability import endure
from studies.serving import fitted_policy, start
from tests.serve.conftest import TORN


def test_a_file_is_put_in_force_once(small_store: Store, policy: Policy) -> None:
    newer = small_store.add_policy(text_of_policy(fitted_policy(reject_cost=0.1)))
    small_store.activate(newer)
    assert put_in_force(small_store, policy) == 1
    assert small_store.active_id() == newer
    newest = put_in_force(small_store, fitted_policy(reject_cost=0.2))
    assert small_store.active_id() == newest


def test_a_port_that_is_taken_is_told() -> None:
    taken = listening("127.0.0.1", 0)
    port = taken.getsockname()[1]
    with pytest.raises(BadValueError) as refused:
        listening("127.0.0.1", port)
    assert str(refused.value).startswith(
        "`--host` of dubito serve must be an address and a port that are free. "
        f"Got 127.0.0.1:{port} ("
    )
    taken.close()
    with pytest.raises(BadValueError, match="Try another --port"):
        listening("127.0.0.1", 99_999)


@pytest.mark.parametrize(
    ("host", "is_here"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("a.org", False)],
)
def test_what_only_this_machine_reaches(host: str, is_here: bool) -> None:
    assert is_loopback(host) == is_here


def early_answers(trace: str) -> tuple[int, int]:
    """Return how many answers are written down, and how many of them before their sync."""
    n_answers = n_early = 0
    is_synced = False
    for line in trace.splitlines():
        if line.startswith("received POST /v1/"):
            is_synced = False
        elif line.startswith("synced"):
            is_synced = True
        elif line.startswith("sent HTTP/1.1 200"):
            n_answers += 1
            n_early += not is_synced
    return n_answers, n_early


def test_an_early_answer_would_be_seen() -> None:
    asked, synced, answered = "received POST /v1/decide", "synced", "sent HTTP/1.1 200 OK"
    assert early_answers("\n".join([asked, synced, answered])) == (1, 0)
    assert early_answers("\n".join([synced, asked, answered])) == (1, 1)
    assert early_answers("\n".join([asked, answered, synced])) == (1, 1)


def test_a_process_syncs_before_it_answers_and_stops_when_told(
    policy_file: Path, tmp_path: Path
) -> None:
    url, trace, log = f"sqlite:///{tmp_path}/dubito.db", tmp_path / "trace", tmp_path / "log"
    watcher = tmp_path / "watched.so"
    source = Path(__file__).with_name("watched.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", watcher, source, "-ldl"], check=True)
    under = ["env", f"LD_PRELOAD={watcher}", f"WATCHED={trace}"]
    process, address = start(policy_file, url, log, under=under)
    assert address.startswith("http://127.0.0.1:")
    store = Store.open(url)
    token = store.create_token("ann", ["decide"])
    headers, query = {"Authorization": f"Bearer {token}"}, {"token": token}
    with httpx.Client(base_url=address, headers=headers, params=query, timeout=60) as client:
        for number in range(10):
            ids = [f"row-{number}"]
            client.post("/v1/decide", json={"logits": [TORN], "ids": ids}).raise_for_status()
            client.post("/v1/labels", json={"ids": ids, "labels": ["a"]}).raise_for_status()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert early_answers(trace.read_text()) == (20, 0)
    assert len(store.rows_for_monitor()) == 10
    store.close()
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events[0] == "started"
    assert events.count("request") == 20
    assert events[-1].startswith("Finished server process")
    assert token not in log.read_text()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_what_was_acknowledged_survives_being_killed(
    kind: str, policy_file: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/dubito.db"
    if kind == "postgresql":
        url = request.getfixturevalue("empty_postgres")
    found = endure(url, policy_file, tmp_path / "log", n_rounds=2, n_writes=10, seed=1)
    assert found.wrong == []
    assert found.n_decisions + found.n_labels >= 10

import asyncio
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

from dubito.decide import Policy
from dubito.errors import BadValueError
from dubito.serve.running import is_loopback, listening, put_in_force
from dubito.serve.store import Store
from dubito.serve.store.documents import text_of_policy
from studies.common.postgres import cluster, new_database
from studies.common.serving import fitted_policy, served, start
from studies.serve_durability import endure
from tests.serve.conftest import TORN


def test_a_file_is_put_in_force_once(small_store: Store, policy: Policy) -> None:
    newer = small_store.add_policy(text_of_policy(fitted_policy(reject_cost=0.1)))
    small_store.activate(newer)
    assert put_in_force(small_store, policy) == 1
    assert small_store.active_id() == newer
    newest = put_in_force(small_store, fitted_policy(reject_cost=0.2))
    assert small_store.active_id() == newest


def test_each_part_of_an_answer_is_sent_at_once() -> None:
    taken = listening("127.0.0.1", 0)
    found: list[int] = []

    def met(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = writer.get_extra_info("socket")
        found.append(line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async def meet() -> None:
        async with await asyncio.start_server(met, sock=taken):
            reader, writer = await asyncio.open_connection(*taken.getsockname())
            assert await reader.read() == b""
            writer.close()

    asyncio.run(meet())
    assert found == [1]


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
    """Return how many answers are written down, and how many of them before the log was synced."""
    n_answers = n_early = 0
    is_synced = False
    for line in trace.splitlines():
        if line.startswith("received POST /v1/"):
            is_synced = False
        elif line.startswith("synced") and "wal" in line:
            is_synced = True
        elif line.startswith("sent HTTP/1.1 200"):
            n_answers += 1
            n_early += not is_synced
    return n_answers, n_early


def test_an_early_answer_would_be_seen() -> None:
    asked, answered = "received POST /v1/decide", "sent HTTP/1.1 200 OK"
    synced, elsewhere = "synced /folder/dubito.db-wal", "synced /folder/dubito.db"
    assert early_answers("\n".join([asked, synced, answered])) == (1, 0)
    assert early_answers("\n".join([synced, asked, answered])) == (1, 1)
    assert early_answers("\n".join([asked, answered, synced])) == (1, 1)
    assert early_answers("\n".join([asked, elsewhere, answered])) == (1, 1)


@pytest.fixture
def watching() -> Iterator[tuple[list[str], Path]]:
    """What a process is to run under so that it writes down what it does, and where to."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # a server of PostgreSQL is another user
        watcher, trace = Path(folder) / "watched.so", Path(folder) / "trace"
        source = Path(__file__).with_name("watched.c")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", watcher, source, "-ldl"], check=True)
        trace.touch()
        trace.chmod(0o666)
        yield ["env", f"LD_PRELOAD={watcher}", f"WATCHED={trace}"], trace


def write_ten(address: str, token: str) -> None:
    """Send ten decisions and their labels, one after the other."""
    headers, query = {"Authorization": f"Bearer {token}"}, {"token": token}
    with httpx.Client(base_url=address, headers=headers, params=query, timeout=60) as client:
        for number in range(10):
            ids = [f"row-{number}"]
            client.post("/v1/decide", json={"logits": [TORN], "ids": ids}).raise_for_status()
            client.post("/v1/labels", json={"ids": ids, "labels": ["a"]}).raise_for_status()


def test_a_process_syncs_before_it_answers_and_stops_when_told(
    policy_file: Path, tmp_path: Path, watching: tuple[list[str], Path]
) -> None:
    url, log = f"sqlite:///{tmp_path}/dubito.db", tmp_path / "log"
    under, trace = watching
    process, address = start(policy_file, url, log, under=under)
    assert address.startswith("http://127.0.0.1:")
    store = Store.open(url)
    token = store.create_token("ann", ["decide"])
    write_ten(address, token)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert early_answers(trace.read_text()) == (20, 0)
    assert len(store.rows_for_monitor()) == 10
    store.close()
    told = [line for line in log.read_text().splitlines() if not line.startswith("dubito: ")]
    events = [json.loads(line)["event"] for line in told]  # beside notes about kernels
    assert events[0] == "started"
    assert events.count("request") == 20
    assert events[-1].startswith("Finished server process")
    assert token not in log.read_text()


@pytest.mark.postgres
def test_postgresql_syncs_its_log_before_the_service_answers(
    policy_file: Path, tmp_path: Path, watching: tuple[list[str], Path]
) -> None:
    under, trace = watching
    with cluster(under) as server:
        url = new_database(server, "dubito")
        process, address = start(policy_file, url, tmp_path / "log", under=under)
        store = Store.open(url)
        token = store.create_token("ann", ["decide"])
        write_ten(address, token)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert len(store.rows_for_monitor()) == 10
        store.close()
    assert early_answers(trace.read_text()) == (20, 0)


def read_all(address: str, token: str, held: list[str], holding: dict[str, str]) -> None:
    """Claim rows and settle them until none waits; a row that two hold is an error."""
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=address, headers=headers, timeout=60) as client:
        while (item := client.post("/v1/review").raise_for_status().json()["item"]) is not None:
            name = item["id"]
            assert holding.setdefault(name, token) == token
            held.append(name)
            body = {"do": "settle", "label": "b"}
            client.post(f"/v1/review/{name}", json=body).raise_for_status()


def test_two_processes_and_32_readers_never_hold_the_same_row(
    policy_file: Path, tmp_path: Path, empty_postgres: str
) -> None:
    log, names = tmp_path / "log", [f"r{k}" for k in range(96)]
    with (
        served(policy_file, empty_postgres, log) as first,
        served(policy_file, empty_postgres, log) as second,
    ):
        store = Store.open(empty_postgres)
        writer = {"Authorization": f"Bearer {store.create_token('client', ['decide'])}"}
        body = {"logits": [TORN] * 96, "ids": names}
        httpx.post(f"{first}/v1/decide", json=body, headers=writer).raise_for_status()
        tokens = [store.create_token(f"reader {k}", ["review"]) for k in range(32)]
        held: list[str] = []
        holding: dict[str, str] = {}
        with ThreadPoolExecutor(32) as readers:
            reads = [
                readers.submit(read_all, (first, second)[k % 2], token, held, holding)
                for k, token in enumerate(tokens)
            ]
            for read in reads:
                read.result()
        assert sorted(held) == sorted(names)
        assert len(set(holding.values())) > 1
        rows = store.rows_for_monitor()
        assert (rows.label >= 0).all()
        assert set(rows.label.tolist()) == {1}
        store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_what_was_acknowledged_survives_being_killed(
    kind: str, policy_file: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/dubito.db"
    if kind == "postgresql":
        url = request.getfixturevalue("empty_postgres")
    found = endure(url, policy_file, tmp_path / "log", n_rounds=2, n_writes=40, seed=1)
    assert found.wrong == []
    assert (found.n_decisions, found.n_labels) == (40, 40)
    assert str(found).startswith(
        "2 rounds of 40 writes, the service killed (SIGKILL) at a random moment of each: "
        "40 decisions and 40 labels acknowledged, "
    )

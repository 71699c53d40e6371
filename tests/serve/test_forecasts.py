"""Forecasts in the service: from a state file to intervals that adapt as true values arrive."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import numpy as np
import pytest
from scipy.stats import binomtest
from sqlalchemy import select

from dubito.decide import Policy
from dubito.doubt import OnlineConformal, PredictionIntervals, PredictionSets
from dubito.outputs import Logits, Normal, Quantiles, Samples
from dubito.serialization.documents import encode_document
from dubito.serve.forecasts import Forecaster, ForecastRequest, deploy_state, load_state
from dubito.serve.http_errors import HTTPError
from dubito.serve.policies import deploy_policy
from dubito.serve.store import Store
from dubito.serve.store.tables import forecast_events
from studies.common.serving import start
from tests.serve.conftest import Api, services

Running = Callable[..., Api]
NAMES = ["east", "west", "north"]
N_STEPS = 26


@contextmanager
def opened(url: str, online: OnlineConformal) -> Iterator[Store]:
    """Open a store with a state, and close it in the end."""
    store = Store.open(url)
    deploy_state(store, online, "state.json")
    yield store
    store.close()


def history(kind: str, n_steps: int = 12, seed: int = 0, first: int = 0) -> dict[str, Any]:
    """Return forecasts of three series for horizons 0 and 1, and their true values."""
    rng = np.random.default_rng(seed)
    steps = np.repeat(np.arange(first, first + n_steps), 6)
    center = 20 + rng.normal(size=steps.size)
    noise = rng.normal(size=steps.size) * np.where(steps > 18, 4.0, 1.5)
    outputs: dict[str, Any] = {
        "points": {"points": center},
        "normal": {"mean": center, "std": np.full(steps.size, 0.7)},
        "quantiles": {
            "quantiles": center[:, None] + [[-1.0, 0.0, 1.2]], "levels": np.array([0.05, 0.5, 0.95])
        },
        "samples": {"samples": center[:, None] + rng.normal(size=(steps.size, 19))},
        "classes": {"logits": 2 * rng.normal(size=(steps.size, 3))},
    }[kind]  # fmt: skip
    y: Any = center + noise
    if kind == "classes":
        logits = outputs["logits"] / 2
        y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return {
        "outputs": outputs,
        "series": np.array(NAMES * (2 * n_steps)),
        "horizon": np.array([0, 0, 0, 1, 1, 1] * n_steps),
        "time": steps.astype(float),
        "y": y,
        "arrival": steps + 1 + rng.integers(0, 4, steps.size) + rng.random(steps.size) / 2 + 0.25,
    }


def outputs_of(fields: dict[str, Any], rows: Any = slice(None)) -> Any:
    """Return forecasts as the library takes them."""
    some = {name: one if name == "levels" else one[rows] for name, one in fields.items()}
    if "points" in some:
        return some["points"]
    if "mean" in some:
        return Normal(**some)
    if "quantiles" in some:
        return Quantiles(some["quantiles"], some["levels"])
    return (
        Samples(some["samples"]) if "samples" in some else Logits(some["logits"], ("a", "b", "c"))
    )


def fitted(kind: str, *, waits: bool = False) -> OnlineConformal:
    """Return a state that has seen some steps; if it waits, without the true values of the last."""
    past, online = history(kind), OnlineConformal()
    y: Any = np.array(["a", "b", "c"])[past["y"]] if kind == "classes" else past["y"]
    ids = [f"past {row}" for row in range(len(y))]
    places = {one: past[one] for one in ("series", "horizon", "time")}
    online.replay(outputs_of(past["outputs"]), y, ids=ids, known=past["time"] + 0.5, **places)
    if waits:
        return online.schedule([np.nan] * 5, ids=ids[-5:])
    return online.update(y[-6:], ids=ids[-6:])


def body_of(rows: dict[str, Any], chosen: Any) -> dict[str, Any]:
    """Return some forecasts as a request; their ids are the numbers of the rows."""
    outputs = {
        name: (one if name == "levels" else one[chosen]).tolist()
        for name, one in rows["outputs"].items()
    }
    names = ("series", "horizon", "time")
    places = {name: rows[name][chosen].tolist() for name in names}
    return {**outputs, **places, "ids": [f"{row}" for row in chosen]}


def requests_of(
    rows: dict[str, Any], kind: str, first: int, last: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the forecasts of some steps, and before each the true values that have arrived."""
    for step in range(first, last):
        is_due = (rows["arrival"] <= step) & (rows["arrival"] > step - 1)
        due = np.flatnonzero(is_due)[np.argsort(rows["arrival"][is_due], kind="stable")]
        for some in np.array_split(due, 3):
            if some.size:
                y = rows["y"][some].tolist()
                truths = ["abc"[one] for one in y] if kind == "classes" else y
                yield "/v1/labels", {"ids": [f"{row}" for row in some], "labels": truths}
        chosen = np.flatnonzero(rows["time"] == step)
        for some in (chosen[:2], chosen[2:]):
            yield "/v1/forecasts", body_of(rows, some)


def send(client: Any, rows: dict[str, Any], kind: str, first: int, last: int) -> list[Any]:
    """Send the forecasts and true values of some steps; return what was issued."""
    found = []
    for path, body in requests_of(rows, kind, first, last):
        answer = client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        found += answer.json().get("forecasts", [])
    return found


def replayed(kind: str, later: dict[str, Any]) -> tuple[Any, OnlineConformal]:
    """Return what the library issues if true values are known when they arrive, and its state."""
    y = np.array(["a", "b", "c"])[later["y"]] if kind == "classes" else later["y"]
    places = {name: later[name] for name in ("series", "horizon", "time")}
    online = fitted(kind)
    issued = online.replay(outputs_of(later["outputs"]), y, known=later["arrival"], **places)
    return issued, online


@pytest.mark.parametrize("kind", ["points", "normal", "quantiles", "samples", "classes"])
def test_what_is_served_is_what_a_replay_returns(
    kind: str, tmp_path: Path, running: Running
) -> None:
    later = history(kind, N_STEPS - 12, seed=1, first=12)
    url = f"sqlite:///{tmp_path}/dubito.db"
    with opened(url, fitted(kind)) as store:
        served = send(running(store).client, later, kind, 12, N_STEPS)
        state = Forecaster(store).online
    found, expected = replayed(kind, later)
    if kind == "classes":
        names = [found.names(row) for row in range(len(served))]
        assert [one["classes"] for one in served] == names
        assert len({*map(len, names)}) > 1
    else:
        assert [one["low"] for one in served] == found.low.tolist()
        assert [one["high"] for one in served] == found.high.tolist()
        assert np.ptp(found.width) > 1
    assert state.n_truths_ == expected.n_truths_
    assert state.n_covered_ == expected.n_covered_
    assert np.array_equal(state.trees_, expected.trees_)


def test_a_restart_changes_nothing_on_both_databases(
    url: str, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dubito.serve.forecasts.MAX_EVENTS", 10)  # the log begins anew in between
    online, later = fitted("normal"), history("normal", N_STEPS - 12, seed=1, first=12)
    found, states = [], [online.to_dict()]
    for first, last in ((12, 17), (17, 18), (18, N_STEPS)):
        with opened(url, online) as store:
            forecaster = Forecaster(store)
            assert forecaster.online.to_dict() == states[-1]
            found += send(running(store).client, later, "normal", first, last)
            store.write(forecaster._catch_up)
            states.append(forecaster.online.to_dict())
            numbers = store.read(lambda c: c.execute(select(forecast_events.c.number)).scalars())
            assert len(states) == 2 or min(numbers) > 10
    assert len({one["fitted"]["n_truths_"] for one in states}) == 4
    expected, _ = replayed("normal", later)
    assert [one["low"] for one in found] == expected.low.tolist()
    assert [one["high"] for one in found] == expected.high.tolist()


def test_processes_that_share_a_database_have_one_state(
    empty_postgres: str, running: Running
) -> None:
    """Each learns what the other has stored, in the order of the commits."""
    online, later = fitted("points"), history("points", 6, seed=1, first=12)
    with opened(empty_postgres, online) as store, opened(empty_postgres, online) as other:
        clients = [running(store).client, running(other).client]
        found = []
        for step in range(12, 18):
            found += send(clients[step % 2], later, "points", step, step + 1)
    expected, _ = replayed("points", later)
    assert [one["high"] for one in found] == expected.high.tolist()


def test_what_was_not_committed_is_not_in_the_state(tmp_path: Path) -> None:
    """A state that is ahead of the log is read anew."""
    url = f"sqlite:///{tmp_path}/dubito.db"
    with opened(url, fitted("points")) as store:
        forecaster = Forecaster(store)
        before = forecaster.online.to_dict()
        body = body_of(history("points", 1, seed=1, first=12), range(6))
        rows = ForecastRequest.of(body, forecaster, 10)

        def fail(connection: Any) -> None:
            forecaster.add_forecasts(connection, rows)
            raise RuntimeError

        with pytest.raises(RuntimeError):
            store.write(fail)
        assert forecaster.online.to_dict() != before
        store.write(forecaster._catch_up)
        assert forecaster.online.to_dict() == before
        issued = store.write(lambda connection: forecaster.add_forecasts(connection, rows))
        assert list(issued) == body["ids"]


def test_retries_conflicts_and_corrections(tmp_path: Path, running: Running) -> None:
    later = history("quantiles", 1, seed=1, first=12)
    with opened(f"sqlite:///{tmp_path}/dubito.db", fitted("quantiles", waits=True)) as store:
        api = running(store)
        client, forecaster = api.client, api.app.state.service.forecaster
        body = body_of(later, range(6))
        del body["ids"]
        first = client.post("/v1/forecasts", json=body).json()["forecasts"]
        assert first[3]["id"] == "east, 1, 12.0"
        state = forecaster.online.to_dict()
        assert client.post("/v1/forecasts", json=body).json()["forecasts"] == first  # repeated
        changed = {**body, "quantiles": [[1.0, 2.0, 3.0], *body["quantiles"][1:]]}
        rejected = client.post("/v1/forecasts", json=changed)
        assert rejected.status_code == 409
        assert "'east, 0, 12.0' was forecast with a different body" in rejected.json()["detail"]
        waiting = {**body_of(history("quantiles"), [71]), "ids": ["past 71"]}  # in the state file
        assert client.post("/v1/forecasts", json=waiting).status_code == 200
        other = {**waiting, "quantiles": [[1.0, 2.0, 3.0]]}
        assert client.post("/v1/forecasts", json=other).status_code == 409
        truths: Any = {"ids": ["east, 1, 12.0", "past 71"], "labels": [20.5, 21]}
        assert client.get("/v1/forecasts/past 66").json()["label"] == history("quantiles")["y"][66]
        assert forecaster.online.to_dict() == state
        for n_new in (2, 0):
            answer = client.post("/v1/labels", json=truths).json()
            assert answer == {"received": 2, "new": n_new, "corrected": 0}
        learned = forecaster.online.to_dict()
        assert learned["fitted"]["waiting_ids_"] != state["fitted"]["waiting_ids_"]
        truths["labels"][0] = 22
        assert client.post("/v1/labels", json=truths).status_code == 409
        assert client.post("/v1/labels?correct=true", json=truths).json()["corrected"] == 1
        assert forecaster.online.to_dict() == learned  # a correction is not learned from
        stored = client.get("/v1/forecasts/east, 1, 12.0").json()
        assert (stored["label"], stored["previous_labels"][0]["label"]) == (22.0, 20.5)
        assert {name: stored[name] for name in first[3]} == first[3]
        assert client.get("/v1/forecasts/none").status_code == 404
        unknown = client.post("/v1/labels", json={"ids": ["none"], "labels": [1.0]})
        assert (unknown.status_code, unknown.json()["detail"]) == (
            404,
            "There is no forecast 'none'. Send it to POST /v1/forecasts before its outcome.",
        )
        assert client.post("/v1/decide", json={"logits": [[1, 2]]}).status_code == 409
        assert client.post("/v1/policies", content=b"{}").status_code == 409
        assert client.get("/readyz").json() == {"status": "ok"}
        assert store.delete_before(2e10) == 0  # no decisions, but all forecasts
        assert client.get("/v1/forecasts/east, 1, 12.0").status_code == 404


@pytest.mark.slow
def test_forecasts_survive_a_kill(tmp_path: Path) -> None:
    """A client repeats what was not acknowledged, and nothing is lost or learned twice."""
    url, file = f"sqlite:///{tmp_path}/dubito.db", tmp_path / "state.json"
    file.write_text(json.dumps(fitted("points").to_dict()))
    store = Store.open(url)
    headers = {"Authorization": f"Bearer {store.create_token('client', ['decide'])}"}
    store.close()
    later = history("points", 10, seed=1, first=12)
    requests, answers = list(requests_of(later, "points", 12, 22)), list[Any]()
    process, address = start(file, url, tmp_path / "log")
    addresses = [address]

    def send_all() -> None:
        with httpx.Client(headers=headers, timeout=60) as client:
            for path, body in requests:
                while True:
                    try:
                        answer = client.post(addresses[-1] + path, json=body)
                        break
                    except httpx.TransportError:
                        time.sleep(0.01)
                assert answer.status_code == 200, answer.text
                answers.append(answer.json())

    sender = Thread(target=send_all)
    sender.start()
    while len(answers) < len(requests) // 2:
        time.sleep(0.0005)
    process.kill()
    process.communicate()
    process, address = start(file, url, tmp_path / "log")
    addresses.append(address)
    sender.join()
    process.kill()
    process.communicate()
    issued = [one for answer in answers for one in answer.get("forecasts", [])]
    found, expected = replayed("points", later)
    assert [one["low"] for one in issued] == found.low.tolist()
    assert [one["high"] for one in issued] == found.high.tolist()
    store = Store.open(url)
    assert Forecaster(store).online.n_truths_ == expected.n_truths_
    store.close()


@pytest.fixture(scope="module")
def shared_apis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Api]]:
    """Services that only requests which store nothing are sent to."""
    with services() as started, ExitStack() as stack:
        folder = tmp_path_factory.mktemp("shared")
        yield {
            kind: started(
                stack.enter_context(opened(f"sqlite:///{folder}/{kind}.db", fitted(kind)))
            )
            for kind in ("points", "normal", "classes")
        }


NOW = {"time": ["2024-11-23"]}


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("points", {"points": [1.0]}, "The field `time` is missing"),
        ("points", {**NOW, "points": [1.0, 2.0]}, "`points` must be a list with one value per "
         "forecast, got 2 for 1. Send as many values as `time` has."),
        ("points", {**NOW, "points": ["x"]}, "`points` must be one number per row, of at most "
         '1e+100, got "x" in row 0.'),
        ("points", {**NOW, "points": [1e200]}, "got 1e+200 in row 0"),
        ("points", {**NOW, "mean": [1.0], "std": [1.0]}, "The body must have `points`, and no "
         'other forecasts. Send for example {"points": [120.0], "time": ["2024-11-23"]}.'),
        ("points", {"time": ["May"], "points": [1.0]}, "`time[0]` must be a date or a number, got "
         "'May'. Send for example 2024-11-23, or 17."),
        ("points", {**NOW, "points": [1.0], "horizon": [-1]}, "`horizon[0]` must be a whole number "
         "from 0 to 10,000, got -1. Count steps ahead from 0."),
        ("points", {**NOW, "points": [1.0], "series": ["a", "b"]}, "`series` must be a list with "
         "one value per forecast, got 2 for 1"),
        ("points", {"time": [1, 1], "points": [1.0, 2.0]}, "one forecast per series, horizon and "
         "time. Leave out what is repeated, or send other `ids`."),
        ("normal", {**NOW, "mean": [1.0]}, "`mean` and `std`, or `quantiles` and `levels`, or "
         "`samples`, and no other forecasts"),
        ("normal", {**NOW, "mean": [1.0], "std": [0.0]}, "`std` must be positive, got 0.0"),
        ("normal", {**NOW, "quantiles": [[1.0, 2.0]], "levels": [0.1, 0.9]}, "`levels` must "
         "include 0.05 and 0.95 for prediction intervals at 90 %, got 0.1, 0.9. Send the quantiles "
         "at these two levels as well."),
        ("normal", {**NOW, "quantiles": [[3.0, 2.0]], "levels": [0.05, 0.95]},
         "`quantiles` has crossing quantiles in row 0, column 1: 2 at level 0.95 is below 3"),
        ("normal", {**NOW, "samples": [[1.0, 2.0]]}, "`samples` must have at least "
         "19 draws per row for prediction intervals at 90 %, got 2. Send more draws."),
        ("classes", {**NOW, "logits": [[1.0, 2.0]]}, "must have 3 columns, one per class, got 2"),
        ("classes", {**NOW, "probabilities": [[1.0, 2.0, 3.0]]}, "`probabilities` must"),
        ("classes", {**NOW, "logits": [[1.0, 2.0], [1.0]]}, "got 2"),
    ],
)  # fmt: skip
def test_invalid_forecasts_are_rejected_with_422(
    kind: str, body: dict[str, Any], message: str, shared_apis: dict[str, Api]
) -> None:
    answer = shared_apis[kind].client.post("/v1/forecasts", json=body)
    assert answer.status_code == 422
    assert message in answer.json()["detail"]


def test_numbers_for_a_state_of_dates_are_rejected_with_422(
    tmp_path: Path, running: Running
) -> None:
    online = OnlineConformal()
    days = np.array(["2025-02-20", "2025-02-21"], dtype="datetime64[D]")
    online.replay([1.0, 2.0], [1.5, 2.5], time=days)
    with opened(f"sqlite:///{tmp_path}/dubito.db", online) as store:
        client = running(store).client
        for time_sent, status in ((20250222, 422), ("5", 422), ("2025-02-22", 200)):
            answer = client.post("/v1/forecasts", json={"time": [time_sent], "points": [1.0]})
            assert answer.status_code == status, time_sent
        numbers = client.post("/v1/forecasts", json={"time": [5], "points": [1.0]})
    assert (
        "must be one of the dates that the state has, got 5. Send for example 2024-11-23"
        in (numbers.json()["detail"])
    )


def test_crossing_quantiles_are_sorted_on_request(tmp_path: Path, running: Running) -> None:
    with opened(f"sqlite:///{tmp_path}/dubito.db", fitted("quantiles")) as store:
        client = running(store).client
        body = {"time": [12, 13], "levels": [0.05, 0.5, 0.95], "series": ["east", "east"]}
        body["quantiles"] = [[21.0, 20.0, 22.0], [20.0, 21.0, 22.0]]
        rejected = client.post("/v1/forecasts", json=body)
        assert "Send it with ?rearrange=true to sort them" in rejected.json()["detail"]
        answer = client.post("/v1/forecasts?rearrange=true", json=body).json()
        assert answer["n_rearranged"] == 1
        first, second = answer["forecasts"]
        assert (first["low"], first["high"]) == (second["low"], second["high"])


def test_invalid_true_values_are_rejected_with_422(shared_apis: dict[str, Api]) -> None:
    for kind, label, message in (
        ("points", "x", '`labels[0]` must be the true value, a number, got "x"'),
        ("classes", "x", "'x' is not a class of the policy. Use one of a, b, c."),
    ):
        body = {"ids": ["past 71"], "labels": [label]}
        answer = shared_apis[kind].client.post("/v1/labels", json=body)
        assert (answer.status_code, answer.json()["detail"][: len(message)]) == (422, message)


def test_a_state_is_served_and_no_other_replaces_it(
    tmp_path: Path, policy: Policy, shared_api: Api
) -> None:
    past = fitted("points")
    file = tmp_path / "state.json"
    file.write_text(encode_document(past.to_dict(), "test"))
    state, other = load_state(file), fitted("normal")
    assert state is not None
    assert state.to_dict() == past.to_dict()
    policy.save(file)
    assert load_state(file) is None
    with opened(f"sqlite:///{tmp_path}/dubito.db", state) as store:
        deploy_state(store, state, "state.json")  # goes on
        with pytest.raises(HTTPError, match="continues another state than that of other"):
            deploy_state(store, other, "other.json")
        with pytest.raises(HTTPError, match="serves forecasts, and no policies"):
            deploy_policy(store, policy)
    with pytest.raises(HTTPError, match="has policies, and state"):
        deploy_state(shared_api.store, state, "state.json")
    answer = shared_api.client.post("/v1/forecasts", json={})
    assert answer.status_code == 409
    assert "Use POST /v1/decide" in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["quantiles", "classes"])
def test_metrics_are_those_of_the_library(kind: str, tmp_path: Path, running: Running) -> None:
    later = history(kind, N_STEPS - 12, seed=1, first=12)
    with opened(f"sqlite:///{tmp_path}/dubito.db", fitted(kind)) as store:
        client = running(store).client
        send(client, later, kind, 12, N_STEPS)
        found = client.get("/v1/monitor").json()
        page = client.get("/monitor").text
    issued, online = replayed(kind, later)
    known = later["arrival"] <= N_STEPS - 1
    overall = found["overall"]
    assert (found["n_waiting"], found["n_dropped"]) == (int((~known).sum()), 0)
    assert found["method_weights"].keys() == online.choice.keys()
    assert (
        sum(one["n_outcomes"] for one in found["windows"]) == overall["n_outcomes"] == known.sum()
    )
    assert len(found["cells"]) == 6
    [cell] = [one for one in found["cells"] if (one["series"], one["horizon"]) == ("west", 1)]
    mine = known & (later["series"] == "west") & (later["horizon"] == 1)
    y = later["y"][mine]
    if kind == "classes":
        sets = PredictionSets(issued.contains[mine], issued.classes)
        covered, width = sets.coverage(np.array(["a", "b", "c"])[y]), sets.sizes.mean()
        assert overall["interval_score"] is None
        last = issued.sizes[later["series"] == "west"][-1]
    else:
        some = PredictionIntervals(issued.low[mine], issued.high[mine])
        covered, width = some.coverage(y), some.width.mean()
        score = cell["metrics"]["interval_score"]["interval"]
        assert score["value"] == pytest.approx(some.interval_score(y, level=0.9))
        assert score["low"] < score["value"] < score["high"]
        last = issued.width[later["series"] == "west"][-1]
        assert cell["widening"] == pytest.approx(last / 2.2)
    assert cell["current_width"] == pytest.approx(last)
    assert cell["metrics"]["width"]["interval"]["value"] == pytest.approx(width)
    assert cell["metrics"]["coverage"]["interval"]["value"] == pytest.approx(covered)
    coverage = overall["coverage"]["interval"]
    exact = binomtest(round(coverage["value"] * known.sum()), int(known.sum())).proportion_ci()
    assert coverage["low"] <= exact.low + 1e-9
    assert coverage["high"] >= exact.high - 1e-9
    assert f"{coverage['value'] * 100:.1f} %" in page
    assert "identity aci" in page
    assert "nan" not in page

"""Cascades in the whole service: outputs of models under one id, reviews, labels and metrics."""

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from dubito.cli.commands import app
from dubito.decide import Cascade, Policy, Reviewer, ReviewTeam
from dubito.errors import BadValueError
from dubito.outputs import TopLabel
from dubito.serve.http_errors import HTTPError
from dubito.serve.policies import add_candidate, deploy_policy
from dubito.serve.service import PolicyCatalog, Settings
from dubito.serve.store import Store
from dubito.serve.team import TeamQueue
from studies.common.serving import start
from tests.serve.conftest import Api, services
from tests.serve.conftest import opened as policy_opened

Running = Callable[..., Api]
COSTS = {"small": 0.002, "medium": 0.05, "large": 0.12}


def model(rng: np.random.Generator, skill: Any, offset: float, noise: float) -> tuple[Any, Any]:
    """Return confidences of a model, and whether it is correct."""
    odds = 2 * skill + offset
    confidence = 1 / (1 + np.exp(-odds - noise * rng.normal(size=skill.size)))
    return confidence, rng.random(skill.size) < 1 / (1 + np.exp(-odds))


def rows_of(n: int, seed: int) -> dict[str, tuple[Any, Any]]:
    """Return rows of three models, of which the medium one does not repay its price."""
    rng = np.random.default_rng(seed)
    skill = rng.normal(size=n)
    offsets = {"small": (0.0, 0.3), "medium": (0.0, 2.0), "large": (3.0, 1.0)}
    return {name: model(rng, skill, *one) for name, one in offsets.items()}


def fitted(**settings: Any) -> Cascade:
    outputs = {name: TopLabel(*one) for name, one in rows_of(600, 0).items()}
    return Cascade.fit(outputs, costs=COSTS, **{"review_cost": 0.3, **settings})


@pytest.fixture(scope="module")
def cascade() -> Cascade:
    """A cascade of a small and a large model, and a person."""
    found = fitted(review_error_rate=0.02)
    assert found.tiers == ("small", "large")
    return found


@contextmanager
def opened(url: str, cascade: Cascade) -> Iterator[Store]:
    """Open a store with a cascade active, and close it in the end."""
    store = Store.open(url)
    deploy_policy(store, cascade)
    yield store
    store.close()


@pytest.fixture(scope="module")
def shared(cascade: Cascade, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service for tests with ids of their own."""
    url = f"sqlite:///{tmp_path_factory.mktemp('cascades')}/dubito.db"
    with opened(url, cascade) as store, services() as started:
        yield started(store, Settings(audit_fraction=0.0))


def decide(client: httpx.Client, **body: Any) -> list[Any]:
    """Return the decisions on a body."""
    answer = client.post("/v1/decide", json=body)
    assert answer.status_code == 200, answer.text
    decisions: list[Any] = answer.json()["decisions"]
    return decisions


def sent(client: httpx.Client, name: str, **outputs: float) -> Any:
    """Send outputs of a row; return its decision."""
    [found] = decide(client, ids=[name], confidences={k: [one] for k, one in outputs.items()})
    return found


def test_a_row_is_decided_stage_by_stage_as_by_the_library(
    url: str, cascade: Cascade, running: Running
) -> None:
    """Also if the service is restarted between the stages."""
    known: dict[str, Any] = {"small": [0.7, 0.999, 0.7], "large": [None, None, 0.96]}
    ids, costs = ["q-1", "q-2", "q-3"], {"large": [0.2, None, None]}
    with opened(url, cascade) as store:
        first = decide(running(store).client, ids=ids, confidences=known, costs=costs)
    expected = [
        cascade.decide({"small": 0.7}, costs={"large": 0.2}),
        cascade.decide({"small": 0.999}),
        cascade.decide({"small": 0.7, "large": 0.96}),
    ]
    assert [one["action"] for one in first] == ["call large", "answer small", "answer large"]
    for found, one in zip(first, expected, strict=True):
        assert [found["action"]] == one.names
        assert found["p_correct"] == pytest.approx(one.p_correct[0])
        assert found["expected_cost"] == pytest.approx(one.expected_cost.min())
        finite = np.isfinite(one.expected_cost[0])
        assert list(found["expected_costs"]) == [one.actions[k] for k in np.flatnonzero(finite)]
    assert [one["next_model"] for one in first] == ["large", None, None]
    with opened(url, cascade) as store:
        client = running(store).client
        assert decide(client, ids=ids, confidences=known, costs=costs) == first
        second = sent(client, "q-1", large=0.9)
        both = cascade.decide({"small": 0.7, "large": 0.9})
        assert second["action"] == "answer large"
        assert second["p_correct"] == pytest.approx(both.p_correct[0])
        assert decide(client, ids=ids, confidences=known, costs=costs) == first  # as then
        assert sent(client, "q-1", large=0.9) == sent(client, "q-1", small=0.7, large=0.9) == second
        stored = client.get("/v1/decisions/q-1").json()
        assert {name: stored[name] for name in second} == second
        assert [one["action"] for one in stored["stages"]] == ["call large", "answer large"]
        assert [one["confidences"] for one in stored["stages"]] == [{"small": 0.7}, {"large": 0.9}]
        assert stored["stages"][0]["costs"] == {"large": 0.2}
        assert stored["label"] is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"confidences": {"small": [0.8]}}, "'a' has confidence 0.7 of small, got 0.8"),
        ({"confidences": {"small": [0.7]}, "costs": {"large": [0.3]}}, "with other `costs`"),
        ({"confidences": {"small": [0.7]}, "answers": {"small": ["5"]}}, "with other `answers`"),
        ({"confidences": {"small": [0.7]}, "links": ["https://a.b"]}, "with other `links`"),
        ({"ids": ["b"], "confidences": {"large": [0.9]}}, "'b' is decided: answer small. The"),
    ],
)
def test_what_differs_from_what_is_stored_is_a_conflict(
    shared: Api, body: dict[str, Any], message: str
) -> None:
    assert sent(shared.client, "a", small=0.7)["action"] == "call large"
    assert sent(shared.client, "b", small=0.999)["action"] == "answer small"
    answer = shared.client.post("/v1/decide", json={"ids": ["a"], **body})
    assert (answer.status_code, message in answer.json()["detail"]) == (409, True), answer.text
    more = {"ids": ["new", *body.get("ids", ["a"])], "confidences": {"small": [0.5, 0.1]}}
    assert shared.client.post("/v1/decide", json=more).status_code == 409
    assert shared.client.get("/v1/decisions/new").status_code == 404  # nothing is stored


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "must have rows"),
        ({"ids": []}, "must have rows"),
        ({"logits": [[1.0]]}, "unknown field 'logits'. Use only ids, confidences"),
        ({"confidences": [0.7]}, "`confidences` must be lists by model (small, medium, large)"),
        ({"confidences": {"huge": [0.7]}}, "`confidences.huge` is not a model of the cascade"),
        ({"confidences": {"small": 0.7}}, "`confidences.small` must be a list"),
        ({"ids": ["x"], "confidences": {"small": 0.7}}, "one entry per row, got 0.7 for 1 row"),
        ({"confidences": {"small": [0.7], "large": []}}, "`confidences.large` must be a list"),
        ({"confidences": {"small": [70]}}, "`confidences.small[0]` must be a number from 0 to 1"),
        ({"confidences": {"small": ["x"]}}, 'or null, got "x"'),
        ({"confidences": {"small": [0.7]}, "costs": {"large": [-1]}}, "`costs.large[0]` must be"),
        ({"ids": ["x"], "answers": {"small": ["5"]}}, "`answers.small[0]` has no confidence"),
        ({"confidences": {"small": [0.7]}, "answers": {"small": [5]}}, "must be a string"),
        ({"confidences": {"small": [True]}}, "true or false"),
        ({"confidences": {"small": [0.7]}, "ids": ["x", "y"]}, "per row, got 1 for 2 rows"),
        (
            {"confidences": {"small": [0.7, 0.7]}, "ids": ["x", "x"]},
            "`ids` must be unique, got 'x' twice",
        ),
    ],
)
def test_invalid_requests_are_rejected_with_422(
    shared: Api, body: dict[str, Any], message: str
) -> None:
    answer = shared.client.post("/v1/decide", json=body)
    assert (answer.status_code, message in answer.json()["detail"]) == (422, True), answer.text


def test_answers_are_texts_and_bodies_json(shared: Api) -> None:
    body = b'{"confidences": {"small": [0.7]}, "answers": {"small": ["\\ud800"]}}'
    assert shared.client.post("/v1/decide", content=body).status_code == 422
    headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
    rejected = shared.client.post("/v1/decide", content=body, headers=headers)
    assert (rejected.status_code, "Send the rows as JSON" in rejected.text) == (422, True)


def test_outputs_that_were_not_asked_for_count_until_the_row_is_decided(
    shared: Api, cascade: Cascade
) -> None:
    """As in `Cascade.decide`, which ignores models that are no tiers."""
    client = shared.client
    [nothing] = decide(client, ids=["n"])
    assert (nothing["action"], nothing["p_correct"]) == ("call small", None)
    assert sent(client, "n", medium=0.6)["next_model"] == "small"
    assert decide(client, ids=["n"]) == [nothing]
    skipped = sent(client, "n", large=0.97)
    [expected] = cascade.decide({"large": 0.97}).names
    assert skipped["action"] == expected
    [fallback] = decide(client, confidences={"small": [0.7]})  # a random id
    assert sent(client, fallback["id"], large=0.97)["next_model"] is None


def test_an_idempotency_key_gives_the_same_ids_and_one_body(shared: Api) -> None:
    headers, body = {"Idempotency-Key": "k"}, {"confidences": {"small": [0.7, 0.2]}}
    answers = [shared.client.post("/v1/decide", json=body, headers=headers) for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    other = {"ids": [answers[0].json()["decisions"][0]["id"]]}
    rejected = shared.client.post("/v1/decide", json=other, headers=headers)
    assert (rejected.status_code, "different body" in rejected.json()["detail"]) == (409, True)


def test_concurrent_requests_for_one_id_store_one_output(
    url: str, cascade: Cascade, running: Running
) -> None:
    """Also from two processes; PostgreSQL serves several."""
    with opened(url, cascade) as store:
        stores = [store] if url.startswith("sqlite") else [store, Store.open(url)]
        clients = [running(one).client for one in stores] * 6
        sent(clients[0], "one", small=0.7)
        with ThreadPoolExecutor(len(clients)) as pool:

            def send(client: httpx.Client, large: float) -> Any:
                name = f"row {large}"
                same = {"ids": [name], "confidences": {"small": [0.7]}}
                answer = client.post("/v1/decide", json=same)
                assert (answer.status_code, answer.json()["decisions"][0]["action"]) == (
                    200, "call large",
                )  # fmt: skip
                later = {"ids": ["one"], "confidences": {"large": [large]}}
                return client.post("/v1/decide", json=later)

            values = [0.9 + 0.01 * (k % 3) for k in range(len(clients))]
            answers = list(pool.map(send, clients, values))
        for one in stores[1:]:
            one.close()
        stored = clients[0].get("/v1/decisions/one").json()
        assert len(stored["stages"]) == 2
        kept = stored["stages"][1]["confidences"]["large"]
        assert [one.status_code for one in answers] == [
            200 if value == kept else 409 for value in values
        ]
        assert len({one.text for one in answers if one.status_code == 200}) == 1
        assert len(store.decisions_since()) == 1


def test_many_rows_in_several_commits(shared: Api) -> None:
    ids = [f"many {k}" for k in range(2500)]
    found = decide(shared.client, ids=ids, confidences={"small": [0.7] * 2500})
    assert {one["action"] for one in found} == {"call large"}
    outputs = np.linspace(0.01, 0.99, 2500).tolist()
    found = decide(shared.client, ids=ids, confidences={"large": outputs})
    assert [one["id"] for one in found] == ids
    assert {one["action"] for one in found} == {"answer large", "review"}


def test_reviews_and_labels(tmp_path: Path, cascade: Cascade, running: Running) -> None:
    with opened(f"sqlite:///{tmp_path}/dubito.db", cascade) as store:
        api = running(store, Settings(audit_fraction=0.0))
        client = api.client
        body = {
            "ids": ["hard", "open", "easy"],
            "confidences": {"small": [0.1, 0.7, 0.999]},
            "answers": {"small": ["Lyon", None, "Rome\n<b>"]},
            "links": ["https://example.org/hard", None, None],
        }
        actions = [one["action"] for one in decide(client, **body)]
        assert actions == ["review", "call large", "answer small"]
        assert client.get("/v1/review").json() == {"waiting": 1, "next": ["hard"]}
        item = client.post("/v1/review").json()["item"]
        assert (item["id"], item["link"]) == ("hard", "https://example.org/hard")
        assert item["models"] == [{"model": "small", "answer": "Lyon", "confidence": 0.1}]
        assert item["action"] == "review"
        page = client.get("/review").text
        assert "Is the answer of small correct?" in page
        assert "Lyon (confidence 0.1)" in page
        label = {"action": "label", "label": "maybe"}
        rejected = client.post("/v1/review/hard", json=label)
        assert (rejected.status_code, "true or false" in rejected.json()["detail"]) == (422, True)
        given = client.post("/v1/review/hard", json={"action": "label", "label": False})
        assert given.status_code == 200, given.text
        assert client.get("/v1/review").json()["waiting"] == 0
        assert "Row hard was labeled wrong." in client.get("/review").text
        assert client.get("/v1/decisions/hard").json()["label"] is False
        for name, status, message in (
            ("open", 409, "waits for the output of large"),
            ("none", 404, "There is no decision 'none'"),
        ):
            answer = client.post("/v1/labels", json={"ids": [name], "labels": [True]})
            assert (answer.status_code, message in answer.json()["detail"]) == (status, True)
        for value, status in ((True, 200), (1, 200), (False, 409), (0.5, 422), (None, 422)):
            answer = client.post("/v1/labels", json={"ids": ["easy"], "labels": [value]})
            assert answer.status_code == status, answer.text
        wrong = client.post("/v1/labels?correct=true", json={"ids": ["easy"], "labels": [False]})
        assert wrong.json() == {"received": 1, "new": 0, "corrected": 1}
        stored = client.get("/v1/decisions/easy").json()
        assert (stored["label"], stored["previous_labels"][0]["label"]) == (False, True)
        assert (
            client.post("/v1/labels", json={"ids": ["hard"], "labels": [False]}).json()["new"] == 0
        )
        assert store.delete_before(time.time() + 1) == 2
        assert client.get("/v1/decisions/open").status_code == 404  # not decided, but as old
        assert client.get("/v1/decisions/easy").status_code == 404


def test_blind_reviewers_see_answers_only_and_the_page_labels(
    tmp_path: Path, cascade: Cascade, running: Running
) -> None:
    with opened(f"sqlite:///{tmp_path}/dubito.db", cascade) as store:
        api = running(store, Settings(audit_fraction=1.0, blind=True))
        [row] = decide(
            api.client, confidences={"small": [0.7], "large": [0.99]}, answers={"large": ["4"]}
        )
        item = api.client.post("/v1/review").json()["item"]
        assert [*item] == ["id", "lease_until", "created", "link", "models"]
        assert item["models"][-1] == {"model": "large", "answer": "4"}
        page = api.client.get("/review").text
        assert "Is the answer of large correct?" in page
        assert "confidence" not in page
        browser = api.client_of("bob", "review")
        token = store.create_token("eve", ["review"])
        browser.headers.pop("Authorization")
        form = browser.get("/sign-in").text
        csrf = form.partition('name="csrf" value="')[2].partition('"')[0]
        browser.post("/sign-in", data={"csrf": csrf, "token": token})
        api.client.post(f"/v1/review/{row['id']}", json={"action": "skip"})
        page = browser.get("/review").text
        csrf = page.partition('name="csrf" value="')[2].partition('"')[0]
        data = {"csrf": csrf, "item": row["id"], "answer": "label:1"}
        assert browser.post("/review", data={**data, "answer": "label:2"}).status_code == 422
        assert browser.post("/review", data=data).status_code == 303
        assert api.client.get(f"/v1/decisions/{row['id']}").json()["label"] is True


@pytest.fixture(scope="module")
def monitored(
    cascade: Cascade, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Api, Any, dict[str, tuple[Any, Any]]]]:
    """A service with 400 rows that have labels, and the decisions."""
    url = f"sqlite:///{tmp_path_factory.mktemp('monitored')}/dubito.db"
    rows, ids = rows_of(400, 1), [f"{k}" for k in range(400)]
    with opened(url, cascade) as store, services() as started:
        client = (api := started(store, Settings(audit_fraction=1.0))).client
        first = decide(client, ids=ids, confidences={"small": rows["small"][0].tolist()})
        called = [k for k, one in enumerate(first) if one["next_model"]]
        waiting, called = called[:3], called[3:]
        outputs = {"large": rows["large"][0][called].tolist()}
        last = decide(client, ids=[ids[k] for k in called], confidences=outputs)
        decided = {one["id"]: one for one in [*first, *last] if not one["next_model"]}
        assert not {ids[k] for k in waiting} & {*decided}
        correct = {
            name: bool(rows["large" if int(name) in called else "small"][1][int(name)])
            for name in decided
        }
        labels = {"ids": [*correct], "labels": [*correct.values()]}
        assert client.post("/v1/labels", json=labels).json()["new"] == 397
        yield api, decided, rows


def test_metrics_are_those_of_the_rows(
    monitored: tuple[Api, Any, dict[str, tuple[Any, Any]]], cascade: Cascade
) -> None:
    api, decided, rows = monitored
    found = api.client.get("/v1/monitor").json()
    overall = found["overall"]
    assert (overall["n_rows"], overall["n_labels"], found["waiting"]) == (397, 397, {"large": 3})
    actions = [one["action"] for one in decided.values()]
    assert overall["actions"] == {
        name: actions.count(name) for name in ("answer small", "answer large", "review")
    }
    calls = {name for name, one in decided.items() if "answer large" in one["expected_costs"]}
    assert overall["calls"] == {"small": 397, "medium": 0, "large": len(calls)}
    cost, correct = [], []
    for name, one in decided.items():
        paid = 0.002 + 0.12 * (name in calls)
        who = one["action"].partition("answer ")[2]
        if who:
            correct.append(rows[who][1][int(name)])
        cost.append(paid + (0.3 + 0.02 if not who else float(not correct[-1])))
    assert overall["cost"]["interval"]["value"] == pytest.approx(np.mean(cost))
    assert overall["accuracy"]["interval"]["value"] == pytest.approx(np.mean(correct))
    assert overall["accuracy"]["interval"]["low"] < np.mean(correct)
    p = [one["p_correct"] for one in decided.values() if one["action"] != "review"]
    assert overall["p_correct"] == pytest.approx(np.mean(p))
    assert sum(one["n_rows"] for one in found["windows"]) == 397
    assert sum(one["calls"]["large"] for one in found["windows"]) == len(calls)
    assert found["alarms"]["calibration"]["alarmed_after"] is None
    assert found["alarms"]["calibration"]["n_labels"] == 397
    assert sum(found["reliability"]["n_labels"]) == 397
    low, high = cascade.report.cost.low, cascade.report.cost.high
    assert low - 0.05 < np.mean(cost) < high + 0.05


def test_the_monitor_page(
    monitored: tuple[Api, Any, dict[str, tuple[Any, Any]]], cascade: Cascade
) -> None:
    api, _, _ = monitored
    page = api.client.get("/monitor").text
    for message in (
        "No alarm.", "Still waiting for an output: 3 rows for large", "Accuracy of answers",
        "Actions over time", "ECE of P(correct)", "dubito cascade fit",
    ):  # fmt: skip
        assert message in page
    assert "Refit to the labels so far" not in page
    with pytest.raises(HTTPError, match="Fit it again with `dubito cascade fit`"):
        add_candidate(api.app.state.service)
    newer = fitted(review_cost=0.25, review_error_rate=0.02)
    number = api.client.post("/v1/policies", content=newer.to_json()).json()["id"]
    assert f"Activate policy {number}" in api.client.get("/monitor").text
    listed = api.client.get("/v1/policies").json()["policies"]
    assert [one["is_active"] for one in listed] == [True, False]


def test_an_alarm_on_p_correct(tmp_path: Path, cascade: Cascade, running: Running) -> None:
    with opened(f"sqlite:///{tmp_path}/dubito.db", cascade) as store:
        client = running(store, Settings(audit_fraction=1.0)).client
        ids = [f"{k}" for k in range(60)]
        decide(client, ids=ids, confidences={"small": [0.995] * 60})
        client.post("/v1/labels", json={"ids": ids, "labels": [k % 2 == 0 for k in range(60)]})
        assert client.get("/v1/monitor").json()["alarms"]["calibration"]["direction"] == "over"
        page = client.get("/monitor").text
        assert "Over-confident." in page
        assert "P(correct) deviates from accuracy by more than 2 points" in page


def test_batches_of_rows_like_those_before_raise_no_alarm(
    url: str, cascade: Cascade, running: Running
) -> None:
    """In a batch, rows that the small model answers are decided first: that is no shift."""
    with opened(url, cascade) as store:
        client = running(store, Settings(audit_fraction=0.0)).client
        for batch in range(3):
            rows, ids = rows_of(500, 10 + batch), [f"{batch}-{k}" for k in range(500)]
            known = {name: one[0].tolist() for name, one in rows.items()}
            first = decide(client, ids=ids, confidences={"small": known["small"]})
            called = [k for k, one in enumerate(first) if one["next_model"]]
            outputs = {"large": [known["large"][k] for k in called]}
            decide(client, ids=[ids[k] for k in called], confidences=outputs)
        found = client.get("/v1/monitor").json()
        alarm, shift = found["alarms"]["uncertainty"], found["uncertainty"]
        assert (alarm["n_labels"], alarm["direction"]) == (500, None)
        assert abs(shift["difference"]["value"]) < 0.05
        shares = [one["actions"]["answer small"] / one["n_rows"] for one in found["windows"]]
        assert max(shares) - min(shares) < 0.15
        # A shift of the inputs is found, whatever becomes of the rows.
        decide(client, confidences={"small": [0.1] * 300})
        assert client.get("/v1/monitor").json()["alarms"]["uncertainty"]["direction"] == "under"


def test_another_cascade_takes_over_rows_that_wait(
    tmp_path: Path, cascade: Cascade, running: Running, policy: Policy
) -> None:
    with opened(f"sqlite:///{tmp_path}/dubito.db", cascade) as store:
        client = running(store).client
        assert sent(client, "a", small=0.7)["policy"] == 1
        rest = {name: TopLabel(*one) for name, one in rows_of(600, 0).items() if name != "medium"}
        newer = Cascade.fit(rest, costs={"small": 0.002, "large": 0.12}, abstain_cost=0.1)
        sent(client, "b", medium=0.7)
        number = client.post("/v1/policies", content=newer.to_json()).json()["id"]
        assert client.post(f"/v1/policies/{number}/activate").json() == {"active": number}
        found = sent(client, "a", large=0.6)
        expected = newer.decide({"small": 0.7, "large": 0.6})
        assert ([found["action"]], found["policy"]) == (expected.names, number)
        assert found["p_correct"] == pytest.approx(expected.p_correct[0])
        assert sent(client, "b", small=0.7)["policy"] == number  # the other model is unknown now
        assert sent(client, "a", small=0.7)["policy"] == 1
        assert client.post("/v1/policies/rollback").json() == {"active": 1}
        rejected = client.post("/v1/policies", content=policy.to_json())
        assert (rejected.status_code, "of a cascade" in rejected.json()["detail"]) == (409, True)
    with policy_opened(f"sqlite:///{tmp_path}/other.db", policy) as store:
        rejected = running(store).client.post("/v1/policies", content=newer.to_json())
        assert (rejected.status_code, "same classes" in rejected.json()["detail"]) == (409, True)


def test_without_tiers_all_rows_are_reviewed(tmp_path: Path, running: Running) -> None:
    none = fitted(review_cost=0.0)
    assert none.tiers == ()
    with opened(f"sqlite:///{tmp_path}/dubito.db", none) as store:
        client = running(store).client
        found = decide(client, ids=["a", "b"])
        assert [one["action"] for one in found] == ["review", "review"]
        assert "No model answered" in client.get("/review").text
        assert client.get("/monitor").status_code == 200


@pytest.mark.slow
def test_stages_survive_a_kill(tmp_path: Path, cascade: Cascade) -> None:
    """A client repeats what was not acknowledged; every row has one decision of each stage."""
    url, file = f"sqlite:///{tmp_path}/dubito.db", tmp_path / "cascade.json"
    cascade.save(file)
    store = Store.open(url)
    headers = {"Authorization": f"Bearer {store.create_token('client', ['decide'])}"}
    store.close()
    process, address = start(file, url, tmp_path / "log")
    addresses, found = [address], list[Any]()
    requests = [
        {"ids": [f"{k}"], "confidences": outputs}
        for k in range(60)
        for outputs in ({"small": [0.7]}, {"large": [0.5 + k / 200]})
    ]

    def send_all() -> None:
        with httpx.Client(headers=headers, timeout=60) as client:
            for body in requests:
                while True:
                    try:
                        answer = client.post(f"{addresses[-1]}/v1/decide", json=body)
                        break
                    except httpx.TransportError:
                        time.sleep(0.01)
                assert answer.status_code == 200, answer.text
                found.extend(answer.json()["decisions"])

    sender = Thread(target=send_all)
    sender.start()
    while len(found) < len(requests) // 2:
        time.sleep(0.0005)
    process.kill()
    process.communicate()
    process, address = start(file, url, tmp_path / "log")
    addresses.append(address)
    sender.join()
    process.kill()
    process.communicate()
    store = Store.open(url)
    stored = store.find_stages([f"{k}" for k in range(60)])
    steps = [
        {"id": name, "policy": one.policy_id, **one.response}
        for name, stages in stored.items()
        for one in stages
    ]
    assert sorted(steps, key=str) == sorted(found, key=str)
    assert len(store.decisions_since()) == 60
    store.close()


def test_the_page_shows_what_runs(
    tmp_path: Path, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service answers the requests of docs/cascade.md as shown, up to rounding."""
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "cascade.md").read_text()
    for line in re.findall(r"^dubito ((?:demo|cascade fit) .*)$", page, flags=re.MULTILINE):
        done = CliRunner().invoke(app, shlex.split(line))
        assert done.exit_code == 0, done.output
    [shown] = re.findall(r"```console\n(.*?)```", page, flags=re.DOTALL)
    requests = re.findall(r"8000(/\S+) -d '(.*)'\n([^$]*)", shown)
    assert len(requests) == 3
    read = partial(json.loads, parse_float=lambda text: round(float(text), 6))
    with opened(f"sqlite:///{tmp_path}/questions.db", Cascade.load("cascade.json")) as store:
        client = running(store, Settings(audit_fraction=0.0)).client
        for path, body, expected in requests:
            text = client.post(path, content=body).text
            assert read(text) == read(expected)


def test_the_last_tier_may_be_a_team(cascade: Cascade, tmp_path: Path, running: Running) -> None:
    team = ReviewTeam([Reviewer("ann", 9, 0.05, cost=0.01), Reviewer("bob", 9, 0.3, cost=0.01)])
    with opened(f"sqlite:///{tmp_path}/dubito.db", cascade) as store:
        api = running(store, Settings(audit_fraction=0.0), team=team)
        low = {"small": [0.02, 0.3], "large": [0.02, 0.3]}
        body = {"ids": ["x", "y"], "confidences": low}
        found = api.client.post("/v1/decide", json=body).json()["decisions"]
        assert [one["action"] for one in found] == ["review", "review"]
        item = api.client.post("/v1/review").json()["item"]
        assert item["id"] == "x"  # the less probable answer has the higher review value
        wrong = 1 - item["p_correct"]
        assert item["value_with_reviewer"] == pytest.approx(wrong - 0.05 - 0.01, abs=1e-6)
        assert item["is_second_opinion"] is False
        answer = {"action": "label", "label": False}
        assert api.client.post("/v1/review/x", json=answer).is_success
        assert store.get_label("x") == 0  # ann knows the answer: no second opinion pays
        ann = api.client.get("/v1/team").json()["reviewers"][0]
        assert (ann["used_today"], ann["queue"], ann["error_rate"]) == (1, 1, 0.05)
        assert "Review team" in api.client.get("/monitor").text


def test_a_team_needs_something_to_review(tmp_path: Path) -> None:
    alone = fitted(review_cost=None, abstain_cost=0.3)
    team = ReviewTeam([Reviewer("ann", 9, 0.05)])
    with opened(f"sqlite:///{tmp_path}/dubito.db", alone) as store:
        with pytest.raises(BadValueError, match=r"--team.*needs a cascade with reviews") as raised:
            TeamQueue.open(team, store, PolicyCatalog(store), Settings())
        assert "Fit it with --review-cost, or leave --team out" in str(raised.value)

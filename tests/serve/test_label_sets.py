"""Policies of several labels per row in the whole service, from requests to refits."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc
from sklearn.metrics import log_loss

from dubito.data.stream import read_stream, write_stream
from dubito.decide import FBeta, MultiLabelPolicy
from dubito.outputs import MultiLabel
from dubito.serve.monitor import active_report
from dubito.serve.policies import deploy_policy
from dubito.serve.policy_metrics import LabelWindow
from dubito.serve.schemas import ARROW
from dubito.serve.service import Settings
from dubito.serve.store import Store
from studies.common.serving import fitted_label_policy, fitted_policy, served
from tests.serve.conftest import Api, opened, services

NAMES = ["edema", "effusion", "fracture"]
# Reviewed as a whole, decided, and reviewed in its first label alone.
WHOLE, DECIDED, ALONE = [0.9, 0.5, 0.4], [0.001, 0.002, 0.003], [0.2, 0.002, 0.003]
ROWS = {"whole": WHOLE, "decided": DECIDED, "alone": ALONE}
Running = Callable[..., Api]


@pytest.fixture(scope="module")
def label_policy() -> MultiLabelPolicy:
    return fitted_label_policy()


@pytest.fixture
def label_store(url: str, label_policy: MultiLabelPolicy) -> Iterator[Store]:
    with opened(url, label_policy) as store:
        yield store


@pytest.fixture
def small_label_store(tmp_path: Path, label_policy: MultiLabelPolicy) -> Iterator[Store]:
    with opened(f"sqlite:///{tmp_path}/dubito.db", label_policy) as store:
        yield store


@pytest.fixture
def api(small_label_store: Store, running: Running) -> Api:
    return running(small_label_store, Settings(audit_fraction=0.0))


@pytest.fixture(scope="module")
def shared_api(
    label_policy: MultiLabelPolicy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    url = f"sqlite:///{tmp_path_factory.mktemp('shared')}/dubito.db"
    with opened(url, label_policy) as store, services() as started:
        yield started(store)


def decide_rows(api: Api) -> list[dict[str, Any]]:
    body = {"probabilities": list(ROWS.values()), "ids": list(ROWS)}
    found: list[dict[str, Any]] = api.client.post("/v1/decide", json=body).json()["decisions"]
    return found


def test_decisions_are_those_of_the_policy_and_labels_are_stored_on_both_databases(
    label_store: Store, running: Running, label_policy: MultiLabelPolicy
) -> None:
    api = running(label_store, Settings(audit_fraction=0.0))
    found = decide_rows(api)
    expected = label_policy.decide(MultiLabel(np.array(list(ROWS.values()), np.float32), NAMES))
    assert [one["action"] for one in found] == ["review row", "automatic", "review labels"]
    for row, one in enumerate(found):
        assert list(one["labels"]) == NAMES
        for k, name in enumerate(NAMES):
            label = one["labels"][name]
            assert label["action"] == expected.actions[expected.action[row, k]]
            assert label["probability"] == pytest.approx(expected.probabilities[row, k], rel=1e-6)
            without = expected.actions[expected.fallback[row, k]]
            is_reviewed = label["action"] == "review"
            assert label["fallback_action"] == (without if is_reviewed else None)
        assert one["expected_cost"] == pytest.approx(expected.expected_cost[row])
        assert one["review_value"] == pytest.approx(expected.review_value[row])
    reasons = [one["reason"] for one in found]
    assert reasons == ["review_costs_less", "lowest_expected_cost", "review_costs_less"]
    assert decide_rows(api) == found  # repeated
    other = {"probabilities": [DECIDED], "ids": ["whole"]}
    assert api.client.post("/v1/decide", json=other).status_code == 409
    assert api.store.queue_length() == 2

    answers = {"edema": 1, "effusion": None}
    body = {"ids": ["whole", "later"], "labels": [answers, {"fracture": 0}]}
    for n_new in (2, 0):
        response = api.client.post("/v1/labels", json=body).json()
        assert response == {"received": 2, "new": n_new, "corrected": 0}
    body["labels"] = [{"edema": 0}, {"fracture": 0}]
    assert api.client.post("/v1/labels", json=body).status_code == 409
    assert api.client.post("/v1/labels?correct=true", json=body).json()["corrected"] == 1
    stored = api.client.get("/v1/decisions/whole").json()
    assert stored["answers"] == {"edema": 0, "effusion": None, "fracture": None}
    [previous] = stored["previous_answers"]
    assert previous["answers"] == {"edema": 1, "effusion": None, "fracture": None}
    assert {name: stored[name] for name in found[0]} == found[0]
    assert api.store.queue_length() == 1


def test_logits_and_streams(api: Api) -> None:
    rows = np.array(list(ROWS.values()), np.float32)
    logits = np.log(rows) - np.log1p(-rows)
    plain = decide_rows(api)
    by_logits = api.client.post("/v1/decide", json={"logits": logits.tolist()}).json()["decisions"]
    assert [one["action"] for one in by_logits] == [one["action"] for one in plain]
    body = write_stream({"probabilities": rows, "ids": np.array(["x", "y", "z"])})
    answer = api.client.post("/v1/decide", content=body, headers={"Content-Type": ARROW})
    found = read_stream(answer.content, max_rows=9, max_columns=9, max_bytes=10**6)
    assert found["action"] == [one["action"] for one in plain]
    for name in NAMES:
        labels = [one["labels"][name] for one in plain]
        assert found[f"decision_{name}"] == [one["action"] for one in labels]
        assert found[f"probability_{name}"].tolist() == [one["probability"] for one in labels]
    values = pa.array([{"edema": 1, "effusion": None}, {"edema": None, "effusion": 0}])
    table = pa.table({"ids": ["x", "y"], "labels": values})
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content = bytes(sink.getvalue())
    answer = api.client.post("/v1/labels", content=content, headers={"Content-Type": ARROW})
    assert answer.json() == {"received": 2, "new": 2, "corrected": 0}
    assert (api.store.get_label("x"), api.store.get_label("y")) == ("y??", "?n?")


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        ({"probabilities": [[0.5, 0.5]]}, ["3 columns, one per label", "got 2"]),
        ({"probabilities": [WHOLE, [0.5, 1.5, 0]]}, ["got 1.5 in row 1, column 1", "logits"]),
        ({"logits": [[1, 2, 3]], "features": [[1.0]]}, ["`features`", "Leave it out"]),
        ({"logits": [[1, 2, 3]], "row_costs": {"a": [1.0]}}, ["`row_costs`", "Leave it out"]),
        ({"ids": ["a"]}, ["either `logits` or `probabilities`"]),
    ],
)
def test_rows_that_do_not_fit_are_rejected(
    shared_api: Api, body: dict[str, Any], parts: list[str]
) -> None:
    answer = shared_api.client.post("/v1/decide", json=body)
    assert answer.status_code == 422
    for part in parts:
        assert part in answer.json()["detail"]
    assert shared_api.counts() == (0, 0)


@pytest.mark.parametrize(
    ("labels", "parts"),
    [
        ([{"edema": 1}, {"oedema": 1}], ["labels[1]", "'oedema'", "edema, effusion, fracture"]),
        ([{"edema": 1}, {"edema": 0.5}], ["labels[1]", "'edema'", "0, 1 or null", "got 0.5"]),
        ([{"edema": 1}, {"edema": "yes"}], ["labels[1]", 'got "yes"']),
        ([{"edema": 1}, "edema"], ["labels[1]", "by label name", 'got "edema"']),
        ([{"edema": 1}, {"edema": None}], ["labels[1]", "no label that is known"]),
        ([{"edema": 1}, {}], ["labels[1]", "no label that is known"]),
    ],
)
def test_labels_that_do_not_fit_are_rejected(
    shared_api: Api, labels: list[Any], parts: list[str]
) -> None:
    answer = shared_api.client.post("/v1/labels", json={"ids": ["a", "b"], "labels": labels})
    assert answer.status_code == 422
    for part in parts:
        assert part in answer.json()["detail"]
    assert shared_api.store.find_labels(["a", "b"]) == {}


def test_policies_of_one_database_are_of_one_kind_with_the_same_labels(api: Api) -> None:
    def upload(document: str) -> httpx.Response:
        return api.client.post("/v1/policies", content=document)

    wrong_kind = upload(fitted_policy().to_json())
    assert wrong_kind.status_code == 409
    assert "same labels (edema, effusion, fracture)" in wrong_kind.json()["detail"]
    assert "this one is of classes" in wrong_kind.json()["detail"]
    assert upload(fitted_label_policy(n_labels=2).to_json()).status_code == 409
    number = upload(fitted_label_policy(review=0.28).to_json()).json()["id"]
    assert api.client.post(f"/v1/policies/{number}/activate").json() == {"active": number}
    [one] = api.client.post("/v1/decide", json={"probabilities": [WHOLE]}).json()["decisions"]
    assert one["policy"] == number
    assert api.client.post("/v1/policies/rollback").json() == {"active": 1}
    listed = api.client.get("/v1/policies").json()["policies"]
    assert [policy["is_active"] for policy in listed] == [True, False]


def test_a_class_policy_rejects_a_policy_of_labels(small_store: Store, running: Running) -> None:
    api = running(small_store)
    answer = api.client.post("/v1/policies", content=fitted_label_policy().to_json())
    assert answer.status_code == 409
    assert "same classes (a, b, c), and this one is of labels" in answer.json()["detail"]
    body = {"ids": ["a"], "labels": [{"edema": 1}]}
    assert api.client.post("/v1/labels", json=body).status_code == 422
    body = {"action": "label", "labels": {"edema": 1}}
    assert api.client.post("/v1/review/a", json=body).status_code == 422


def test_labels_are_reviewed_one_by_one_undone_and_escalated(
    label_store: Store, running: Running
) -> None:
    api = running(label_store, Settings(audit_fraction=0.0))
    decide_rows(api)
    item = api.client.post("/v1/review").json()["item"]
    assert (item["id"], item["action"], item["reason"]) == (
        "whole", "review row", "review_costs_less",
    )  # fmt: skip
    costs = [one["expected_cost"] for one in item["labels"]]
    assert costs == sorted(costs, reverse=True)
    assert all(one["is_required"] for one in item["labels"])
    answers = {"edema": 0, "effusion": 1, "fracture": None}
    path = "/v1/review/whole"
    assert api.client.post(path, json={"action": "label"}).status_code == 422
    assert api.client.post(path, json={"action": "label", "label": "edema"}).status_code == 422
    for _ in range(2):  # repeated
        answer = api.client.post(path, json={"action": "label", "labels": answers})
        assert answer.json() == {"action": "label", "item": None}
    assert label_store.get_label("whole") == "ny?"
    assert api.client.post(path, json={"action": "undo"}).json()["item"]["id"] == "whole"
    assert label_store.get_label("whole") is None
    api.client.post(path, json={"action": "escalate"})
    item = api.client.post("/v1/review").json()["item"]
    assert item["id"] == "alone"
    assert item["labels"][0]["name"] == "edema"
    assert [one["is_required"] for one in item["labels"]] == [True, False, False]
    api.client.post("/v1/review/alone", json={"action": "skip"})
    ben = api.client_of("ben", "review")
    assert ben.post("/v1/review").json()["item"]["n_escalations"] == 1


def test_blind_reviewers_see_no_prediction(small_label_store: Store, running: Running) -> None:
    api = running(small_label_store, Settings(audit_fraction=0.0, blind=True))
    decide_rows(api)
    item = api.client.post("/v1/review").json()["item"]
    assert item["labels"] == [{"name": name, "is_required": True} for name in NAMES]
    assert "action" not in item


def signed_in(api: Api) -> tuple[httpx.Client, str]:
    """Return a client with a session, and the token for its forms."""
    client = httpx.Client(base_url=api.address, follow_redirects=True)
    api.clients.append(client)
    page = client.get("/sign-in").text
    token = api.store.create_token("eve", ["review", "admin"])
    form = {"csrf": csrf_of(page), "token": token}
    page = client.post("/sign-in", data=form).text
    return client, page


def csrf_of(page: str) -> str:
    found = re.search(r'name="csrf" value="([^"]*)"', page)
    assert found is not None
    return found[1]


def test_the_review_page_takes_answers_and_says_what_was_saved(api: Api) -> None:
    decide_rows(api)
    client, page = signed_in(api)
    assert page.count('class="chip"') == 3
    assert page.count('type="radio"') == 9
    form = {"csrf": csrf_of(page), "item": "whole", "answer": "label"}
    bad = client.post("/review", data={**form, "label:0": "maybe"})
    assert (bad.status_code, "unknown answer" in bad.text) == (422, True)
    none = client.post("/review", data={**form, "label:0": "unknown"})
    assert none.status_code == 422
    assert "All labels are unknown. Escalate or skip the row instead." in none.text
    assert api.store.get_label("whole") is None
    page = client.post("/review", data={**form, "label:0": "yes", "label:2": "no"}).text
    assert api.store.get_label("whole") == "y?n"
    assert "Row whole was labeled: 1 yes, 1 no, 1 unknown." in page
    assert "Decided without review" in page  # the other labels of the next row
    assert page.count(" required>") == 3
    client.post("/review/undo", data={"csrf": csrf_of(page), "item": "whole"})
    assert api.store.get_label("whole") is None


def drawn(n: int, seed: int = 1) -> tuple[Any, Any]:
    """Return logits of the model that the policy was fitted on, and labels."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1, 1.5, (n, 3))
    y = (rng.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(int)
    return 2 * odds, y


def send_rows(api: Api, n: int, *, which: Any = slice(None)) -> tuple[list[Any], Any]:
    """Decide rows, send all labels of some of them, and return the decisions and labels."""
    logits, y = drawn(n)
    ids = [f"r{k}" for k in range(n)]
    body = {"logits": logits.tolist(), "ids": ids}
    found = api.client.post("/v1/decide", json=body).json()["decisions"]
    rows = np.arange(n)[which]
    labels = [dict(zip(NAMES, y[k].tolist(), strict=True)) for k in rows]
    api.client.post("/v1/labels", json={"ids": [ids[k] for k in rows], "labels": labels})
    return found, y


def monitor_report(api: Api) -> Any:
    _, report = active_report(api.app.state.service)
    assert isinstance(report.overall, LabelWindow)
    return report


def row_costs(found: list[Any], y: Any) -> Any:
    """Return the realized cost of each row, by hand."""
    total = []
    for one, truth in zip(found, y, strict=True):
        cost = 0.0
        for k, label in enumerate(one["labels"].values()):
            if label["action"] == "review":
                cost += 0.3
            elif label["action"] == "positive":
                cost += 1 - truth[k]
            else:
                cost += (5 if k == 0 else 2) * truth[k]
        total.append(0.8 if one["action"] == "review row" else cost)
    return np.array(total)


def test_metrics_of_labels_equal_references(small_label_store: Store, running: Running) -> None:
    api = running(small_label_store, Settings(audit_fraction=1.0))
    found, y = send_rows(api, 400)
    report, overall = monitor_report(api), monitor_report(api).overall
    p = np.array([[one["labels"][name]["probability"] for name in NAMES] for one in found])
    losses = [log_loss(y[:, k], p[:, k]) for k in range(3)]
    for k, label in enumerate(report.labels):
        assert label.name == NAMES[k]
        assert label.log_loss == pytest.approx(losses[k], rel=1e-6)
        assert label.audit is not None
        assert label.audit.base_rate == pytest.approx(y[:, k].mean())
        assert label.audit.mean_probability == pytest.approx(p[:, k].mean(), rel=1e-6)
        assert not label.alarm.has_alarmed
        assert label.alarm.n_labels == 400
    assert overall.log_loss.interval is not None
    assert overall.log_loss.interval.value == pytest.approx(np.mean(losses), rel=1e-6)
    assert overall.cost.interval is not None
    assert overall.cost.interval.value == pytest.approx(row_costs(found, y).mean())
    assert sum(label.cost or 0.0 for label in report.labels) == pytest.approx(
        overall.cost.interval.value
    )
    actions = [one["action"] for one in found]
    assert overall.coverage.interval is not None
    assert overall.coverage.interval.value == pytest.approx(actions.count("automatic") / 400)
    assert overall.row_review_rate == pytest.approx(actions.count("review row") / 400)
    answer = api.client.get("/v1/monitor").json()
    assert list(answer["labels"]) == NAMES
    assert answer["labels"]["edema"]["expected_calibration_error"]["value"] > 0
    assert answer["prior"] is None


def test_labels_of_reviewed_rows_alone_do_not_bias_the_metrics(
    small_label_store: Store, running: Running
) -> None:
    api = running(small_label_store, Settings(audit_fraction=0.3))
    api.app.state.service.rng = np.random.default_rng(0)
    found, y = send_rows(api, 2000, which=slice(0, 0))
    rows = api.store.decisions_since()
    position = {name: k for k, name in enumerate(rows.id.tolist())}
    order = [position[one["id"]] for one in found]
    is_audit = rows.is_audit[order]
    ids, labels = [], []
    for k, one in enumerate(found):
        # As a reviewer does: everything of audited rows, otherwise what is under review.
        asked = {
            name: int(y[k, j])
            for j, (name, label) in enumerate(one["labels"].items())
            if is_audit[k] or label["action"] == "review"
        }
        if asked:
            ids.append(one["id"])
            labels.append(asked)
    assert api.client.post("/v1/labels", json={"ids": ids, "labels": labels}).status_code == 200
    report = monitor_report(api)
    cost = report.overall.cost.interval
    assert cost is not None
    assert cost.low <= row_costs(found, y).mean() <= cost.high
    for k, label in enumerate(report.labels):
        assert label.audit is not None
        rate = label.audit.intervals["base_rate"]
        assert rate.low <= y[:, k].mean() <= rate.high
        asked_only = np.mean([one[label.name] for one in labels if label.name in one])
        assert abs(label.audit.base_rate - y[:, k].mean()) < abs(asked_only - y[:, k].mean())


def test_unknown_answers_above_the_limit_withhold_the_metrics_of_that_label_alone(
    small_label_store: Store, running: Running
) -> None:
    api = running(small_label_store, Settings(audit_fraction=1.0))
    found, y = send_rows(api, 200, which=slice(0, 0))
    labels = [dict(zip(NAMES, map(int, row), strict=True)) for row in y]
    for one in labels[:10]:
        one.pop("edema")
    api.client.post("/v1/labels", json={"ids": [one["id"] for one in found], "labels": labels})
    edema, effusion, _ = monitor_report(api).labels
    assert (edema.audit, effusion.audit is None) == (None, False)
    assert "10 of 200" in edema.unavailable
    assert monitor_report(api).overall.log_loss.unavailable.startswith("edema: ")


def test_a_label_that_is_predicted_too_often_raises_its_alarm(
    small_label_store: Store, running: Running
) -> None:
    api = running(small_label_store, Settings(audit_fraction=1.0))
    logits, y = drawn(600)
    logits[:, 1] += 4
    ids = [f"r{k}" for k in range(600)]
    api.client.post("/v1/decide", json={"logits": logits.tolist(), "ids": ids})
    labels = [dict(zip(NAMES, map(int, row), strict=True)) for row in y]
    api.client.post("/v1/labels", json={"ids": ids, "labels": labels})
    alarms = {one.name: one.alarm.direction for one in monitor_report(api).labels}
    assert alarms == {"edema": None, "effusion": "over", "fracture": None}
    client, _ = signed_in(api)
    page = client.get("/monitor").text
    assert "Miscalibrated labels." in page
    assert "The probability of effusion is too high by more than 2 points." in page
    assert "effusion *" in page


def test_a_refit_is_a_candidate_that_is_compared_and_activated(
    label_store: Store, running: Running
) -> None:
    api = running(label_store, Settings(audit_fraction=0.5))
    send_rows(api, 400)
    client, page = signed_in(api)
    page = client.post("/monitor/refit", data={"csrf": csrf_of(client.get("/monitor").text)}).text
    assert "Policy 2 is a candidate." in page
    assert "rows reviewed as a whole" in page
    assert label_store.active_id() == 1
    candidate = label_store.list_policies()[1].policy
    assert isinstance(candidate, MultiLabelPolicy)
    assert candidate.label_names == tuple(NAMES)
    assert candidate.costs == fitted_label_policy().costs
    page = client.post("/monitor/activate", data={"csrf": csrf_of(page), "policy": "2"}).text
    assert "Active policy: 2" in page
    [one] = api.client.post("/v1/decide", json={"logits": [[0, 0, 0]]}).json()["decisions"]
    assert one["policy"] == 2


def test_a_refit_without_labels_says_what_is_missing(api: Api) -> None:
    decide_rows(api)
    client, _ = signed_in(api)
    answer = client.post("/monitor/refit", data={"csrf": csrf_of(client.get("/monitor").text)})
    assert answer.status_code == 409
    assert "Use an audit fraction above 0" in answer.text


def test_the_command_serves_a_policy_of_labels(
    label_policy: MultiLabelPolicy, tmp_path: Path
) -> None:
    path, url = tmp_path / "multi.json", f"sqlite:///{tmp_path}/dubito.db"
    label_policy.save(path)
    with served(path, url, tmp_path / "log") as address:
        store = Store.open(url)
        headers = {"Authorization": f"Bearer {store.create_token('ann', ['decide'])}"}
        body = {"probabilities": [WHOLE], "ids": ["a"]}
        answer = httpx.post(f"{address}/v1/decide", json=body, headers=headers, timeout=60)
        assert answer.json()["decisions"][0]["action"] == "review row"
        assert httpx.get(f"{address}/readyz").json() == {"status": "ok"}
        store.close()


def test_f_beta_without_reviews_and_labels_without_names(tmp_path: Path, running: Running) -> None:
    logits, y = drawn(300)
    fitted = MultiLabelPolicy.fit(MultiLabel.from_logits(logits), y, f_beta=FBeta())
    store = Store.open(f"sqlite:///{tmp_path}/dubito.db")
    deploy_policy(store, fitted)
    api = running(store, Settings(audit_fraction=1.0))
    ids = [f"r{k}" for k in range(300)]
    body = {"logits": logits.tolist(), "ids": ids}
    found = api.client.post("/v1/decide", json=body).json()["decisions"]
    assert {(one["action"], one["reason"]) for one in found} == {("automatic", "highest_f_beta")}
    assert list(found[0]["labels"]) == ["0", "1", "2"]
    labels = [{str(k): int(one) for k, one in enumerate(row)} for row in y]
    api.client.post("/v1/labels", json={"ids": ids, "labels": labels})
    is_positive = [[x["action"] == "positive" for x in one["labels"].values()] for one in found]
    cost = monitor_report(api).overall.cost.interval
    assert cost is not None
    assert cost.value == pytest.approx((np.array(is_positive) != y).sum(axis=1).mean())
    client, _ = signed_in(api)
    assert "Wrong labels per row" in client.get("/monitor").text

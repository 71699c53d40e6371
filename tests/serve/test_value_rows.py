"""Regression policies in the whole service, from requests to refits."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubito.data.stream import read_stream, write_stream
from dubito.decide import ErrorCosts, RegressionPolicy
from dubito.doubt import ConformalRegressor
from dubito.outputs import Normal, Quantiles, Samples
from dubito.serve.monitor import active_report
from dubito.serve.policies import _refit
from dubito.serve.policy_metrics import MonitorReport, ValueWindow
from dubito.serve.schemas import ARROW
from dubito.serve.service import Settings
from dubito.serve.store import Store
from studies.common.serving import fitted_policy, fitted_value_policy
from tests.serve.conftest import Api, opened, services
from tests.serve.test_label_sets import csrf_of, signed_in

MEANS, STDS = [100.0, 90.123456789, 120.0], [1.0, 20.0, 6.0]
IDS = ["certain", "wide", "costly"]
BODY: dict[str, Any] = {"mean": MEANS, "std": STDS, "ids": IDS}
Running = Callable[..., Api]


@pytest.fixture(scope="module")
def value_policy() -> RegressionPolicy:
    return fitted_value_policy()


@pytest.fixture
def value_store(url: str, value_policy: RegressionPolicy) -> Iterator[Store]:
    with opened(url, value_policy) as store:
        yield store


@pytest.fixture
def small_value_store(tmp_path: Path, value_policy: RegressionPolicy) -> Iterator[Store]:
    with opened(f"sqlite:///{tmp_path}/dubito.db", value_policy) as store:
        yield store


@pytest.fixture(scope="module")
def shared_api(
    value_policy: RegressionPolicy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    """A service that only requests which store nothing are sent to."""
    url = f"sqlite:///{tmp_path_factory.mktemp('shared')}/dubito.db"
    with opened(url, value_policy) as store, services() as started:
        yield started(store)


def test_values_are_those_of_the_policy_and_truths_are_stored_on_both_databases(
    value_store: Store, running: Running, value_policy: RegressionPolicy
) -> None:
    api = running(value_store, Settings(audit_fraction=0.0))
    found = api.client.post("/v1/decide", json=BODY).json()["decisions"]
    expected = value_policy.decide(Normal(MEANS, STDS))
    for name, column in expected.columns().items():
        assert [one[name] for one in found] == column.tolist()  # in double precision
    assert {one["action"] for one in found} == {"automatic", "review"}
    assert api.client.post("/v1/decide", json=BODY).json()["decisions"] == found  # repeated
    other = {"mean": [1.0], "std": [1.0], "ids": ["wide"]}
    assert api.client.post("/v1/decide", json=other).status_code == 409
    assert value_store.queue_length() == sum(one["action"] == "review" for one in found)

    body = {"ids": ["certain", "later"], "labels": [101.25, 7]}
    for n_new in (2, 0):
        response = api.client.post("/v1/labels", json=body).json()
        assert response == {"received": 2, "new": n_new, "corrected": 0}
    body["labels"] = [99, 7]
    assert api.client.post("/v1/labels", json=body).status_code == 409
    assert api.client.post("/v1/labels?correct=true", json=body).json()["corrected"] == 1
    stored = api.client.get("/v1/decisions/certain").json()
    assert stored["label"] == 99.0
    assert stored["previous_labels"][0]["label"] == 101.25
    assert {name: stored[name] for name in found[0]} == found[0]

    item = api.client.post("/v1/review").json()["item"]
    assert (item["answer"], item["action"]) == ("number", "review")
    assert item["low"] < item["value"] < item["high"]
    path = f"/v1/review/{item['id']}"
    assert api.client.post(path, json={"action": "label", "label": "many"}).status_code == 422
    for _ in range(2):  # repeated
        answer = api.client.post(path, json={"action": "label", "label": 88.5})
        assert answer.json() == {"action": "label", "item": None}
    assert value_store.get_label(item["id"]) == "88.5"
    assert api.client.post(path, json={"action": "undo"}).json()["item"]["id"] == item["id"]


@pytest.mark.parametrize("kind", ["Quantiles", "Samples"])
def test_quantiles_and_samples_as_json_and_streams(
    kind: str, tmp_path: Path, running: Running
) -> None:
    policy = fitted_value_policy(kind)
    rng = np.random.default_rng(1)
    rows = np.sort(rng.normal(100, 5, (3, policy.n_columns or 0)), axis=1)
    name = kind.lower()
    outputs = Samples(rows) if policy.levels is None else Quantiles(rows, policy.levels)
    expected = policy.decide(outputs)
    with opened(f"sqlite:///{tmp_path}/dubito.db", policy) as store:
        client = running(store, Settings(audit_fraction=0.0)).client
        found = client.post("/v1/decide", json={name: rows.tolist()}).json()["decisions"]
        assert [one["value"] for one in found] == expected.value.tolist()
        assert [one["low"] for one in found] == expected.low.tolist()
        body = write_stream({name: rows})
        answer = client.post("/v1/decide", content=body, headers={"Content-Type": ARROW})
        columns = read_stream(answer.content, max_rows=9, max_columns=9, max_bytes=10**6)
        assert columns["value"].tolist() == expected.value.tolist()
        assert columns["reason"] == [one["reason"] for one in found]
        labels = write_stream({"ids": np.array(["a", "b"]), "labels": np.array([1.5, 2.0])})
        sent = client.post("/v1/labels", content=labels, headers={"Content-Type": ARROW})
        assert sent.json()["new"] == 2
        short = client.post("/v1/decide", json={name: [[1.0, 2.0]]})
        message = f"`{name}` must be rows of {policy.n_columns} numbers, of at most 1e+100, got "
        assert f"{message}2 numbers in row 0" in short.json()["detail"]
        words = client.post("/v1/decide", json={name: [*rows.tolist(), ["x", *rows[0, 1:]]]})
        assert f'{message}"x" in row 3, column 0' in words.json()["detail"]


def test_crossing_quantiles_are_sorted_if_the_fit_did(tmp_path: Path, running: Running) -> None:
    policy = fitted_value_policy("Quantiles")
    rows = np.sort(np.random.default_rng(1).normal(100, 5, (2, policy.n_columns or 0)), axis=1)
    body = {"quantiles": rows[:, ::-1].tolist()}
    with opened(f"sqlite:///{tmp_path}/a.db", policy) as store:
        answer = running(store).client.post("/v1/decide", json=body)
        assert answer.status_code == 422
        assert "Send it with ?rearrange=true" in answer.text
        sorted_ = running(store).client.post("/v1/decide?rearrange=true", json=body).json()
        assert sorted_["n_rearranged"] == 2
    with opened(f"sqlite:///{tmp_path}/b.db", replace(policy, rearrange=True)) as store:
        found = running(store).client.post("/v1/decide", json=body).json()["decisions"]
    expected = policy.decide(Quantiles(rows, policy.levels)).value
    assert [one["value"] for one in found] == expected.tolist()
    assert [one["value"] for one in sorted_["decisions"]] == expected.tolist()


def test_levels_are_compared_with_those_of_the_fit(tmp_path: Path, running: Running) -> None:
    policy = fitted_value_policy("Quantiles")
    levels = list(policy.levels or ())
    row = [100.0 + k for k in range(len(levels))]
    with opened(f"sqlite:///{tmp_path}/a.db", policy) as store:
        client = running(store).client
        body: dict[str, Any] = {"quantiles": [row], "levels": levels}
        assert client.post("/v1/decide", json=body).status_code == 200
        for wrong in ([0.5], [x / 2 for x in levels], "x", [[0.1]]):
            answer = client.post("/v1/decide", json={**body, "levels": wrong})
            assert answer.status_code == 422
            assert "`levels` must be those that the policy was fitted on" in answer.json()["detail"]
        short = client.post("/v1/decide", json={"quantiles": [[1.0]]}).text
        assert short.partition("example")[2].count(",") == len(levels) - 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"std": None}, "must have `mean` and `std`"),
        ({"logits": [[1.0]]}, "and no other outputs"),
        ({"row_costs": {"x": [1.0]}}, "and no other outputs"),
        ({"mean": [[1.0]]}, "`mean` must be one number per row"),
        ({"mean": ["x"]}, '`mean` must be one number per row, of at most 1e+100, got "x" in row 0'),
        ({"mean": [1e200]}, "of at most 1e+100, got 1e+200 in row 0"),
        ({"levels": [0.5]}, "and no other outputs"),
        ({"std": [0.0]}, "`std` must be positive, got 0.0 in row 0"),
        ({"std": [1.0, 2.0]}, "`std` must have the shape of `mean`"),
    ],
)
def test_rows_that_do_not_fit_are_rejected(
    shared_api: Api, change: dict[str, Any], problem: str
) -> None:
    body = {name: x for name, x in {"mean": [1.0], "std": [1.0], **change}.items() if x is not None}
    answer = shared_api.client.post("/v1/decide", json=body)
    assert answer.status_code == 422
    assert problem in answer.json()["detail"]


@pytest.mark.parametrize("label", ["12", None, {"x": 1}, [1.0], 10**400])
def test_labels_that_are_no_numbers_are_rejected(shared_api: Api, label: Any) -> None:
    answer = shared_api.client.post("/v1/labels", json={"ids": ["a"], "labels": [label]})
    assert answer.status_code == 422


def test_policies_of_one_database_take_the_same_outputs(shared_api: Api) -> None:
    for other in (fitted_policy(), fitted_value_policy("Samples")):
        answer = shared_api.client.post("/v1/policies", content=other.to_json())
        assert answer.status_code == 409
        assert "the same outputs (Normal)" in answer.json()["detail"]


def test_a_class_policy_rejects_numbers(small_store: Store, running: Running) -> None:
    api = running(small_store)
    answer = api.client.post("/v1/decide", json={"logits": [[1.0, 2.0, 3.0]], "mean": [1.0]})
    assert "`mean` must not be sent to a policy that decides on classes" in answer.json()["detail"]


def test_the_review_page_takes_a_number(small_value_store: Store, running: Running) -> None:
    api = running(small_value_store, Settings(audit_fraction=0.0))
    api.client.post("/v1/decide", json=BODY)
    client, page = signed_in(api)
    assert 'id="number"' in page
    assert "What is the true value?" in page
    item = api.store.review_queue("eve")[0]
    form = {"csrf": csrf_of(page), "item": item, "answer": "label"}
    for text in ("", "many", "nan", "1e999"):
        bad = client.post("/review", data={**form, "number": text})
        assert bad.status_code == 422
        assert "number" in bad.text
    assert api.store.get_label(item) is None
    page = client.post("/review", data={**form, "number": " 95.0 "}).text
    assert api.store.get_label(item) == "95.0"
    assert f"Row {item} was labeled 95." in page
    client.post("/review/undo", data={"csrf": csrf_of(page), "item": item})
    assert api.store.get_label(item) is None


def test_blind_reviewers_see_no_prediction(small_value_store: Store, running: Running) -> None:
    api = running(small_value_store, Settings(audit_fraction=0.0, blind=True))
    api.client.post("/v1/decide", json=BODY)
    item = api.client.post("/v1/review").json()["item"]
    assert {*item} == {"id", "lease_until", "created", "link", "answer"}
    _, page = signed_in(api)
    assert "Value of the policy" not in page


def send_rows(api: Api, n: int, *, bias: float = 0.0, spread: float = 2.0) -> tuple[Any, Any]:
    """Decide rows of the model of the fit, send all true values, and return both."""
    rng = np.random.default_rng(5)
    mean, std = rng.normal(100, 20, n), np.exp(rng.normal(1, 0.6, n))
    y = mean - bias + spread * std * rng.normal(size=n)
    ids = [f"r{k}" for k in range(n)]
    body = {"mean": mean.tolist(), "std": std.tolist(), "ids": ids}
    found = api.client.post("/v1/decide", json=body).json()["decisions"]
    api.client.post("/v1/labels", json={"ids": ids, "labels": y.tolist()})
    return found, y


def monitor_report(api: Api) -> MonitorReport[ValueWindow]:
    _, report = active_report(api.app.state.service)
    assert isinstance(report.overall, ValueWindow)
    return report


@pytest.mark.slow
def test_metrics_equal_references_and_nothing_alarms(
    small_value_store: Store, running: Running, value_policy: RegressionPolicy
) -> None:
    api = running(small_value_store, Settings(audit_fraction=1.0))
    found, y = send_rows(api, 400)
    report = monitor_report(api)
    value, low, high = (np.array([one[name] for one in found]) for name in ("value", "low", "high"))
    is_reviewed = np.array([one["action"] == "review" for one in found])
    paid = np.where(is_reviewed, 12.0, np.maximum(4 * (y - value), value - y))
    outside = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    rng = np.random.default_rng(5)
    mean = rng.normal(100, 20, 400)
    expected = {
        "coverage": ((low <= y) & (y <= high)).mean(),
        "bias": (mean - y).mean(),  # variance scaling leaves the mean unchanged
        "interval_score": (high - low + 20 * outside).mean(),
        "cost": paid.mean(),
        "automatic": 1 - is_reviewed.mean(),
    }
    for name, wanted in expected.items():
        estimate = getattr(report.overall, name).interval
        assert estimate.value == pytest.approx(wanted)
        assert estimate.low <= wanted <= estimate.high
    assert len(report.windows) == 4
    assert not any(alarm.has_alarmed for alarm in report.alarms.values())
    assert report.alarms["coverage"].n_labels == 400
    content = api.client.get("/v1/monitor").json()
    assert content["overall"]["coverage"]["interval"]["value"] == pytest.approx(
        expected["coverage"]
    )
    client, _ = signed_in(api)
    page = client.get("/monitor").text
    assert "Coverage of 90" in page
    assert "No alarm." in page

    # A refit to these labels is a candidate, which is compared and activated.
    page = client.post("/monitor/refit", data={"csrf": csrf_of(page)}).text
    assert "coverage of intervals" in page
    client.post("/monitor/activate", data={"csrf": csrf_of(page), "policy": "2"})
    policy = api.app.state.service.catalog.policy(2)
    assert policy.report.n_rows == 400
    outputs = Normal(mean, np.exp(rng.normal(1, 0.6, 400)))
    by_hand = RegressionPolicy.fit(
        outputs, y, costs=value_policy.costs, calibrator=value_policy.calibrator,
        review_cost=12.0, max_width=60,
    )  # fmt: skip
    assert policy.decide(outputs).value == pytest.approx(by_hand.decide(outputs).value)


@pytest.mark.slow
def test_wrong_intervals_and_a_bias_raise_their_alarms(
    small_value_store: Store, running: Running
) -> None:
    api = running(small_value_store, Settings(audit_fraction=1.0))
    send_rows(api, 600, bias=6.0, spread=4.0)
    alarms = monitor_report(api).alarms
    assert (alarms["coverage"].direction, alarms["bias"].direction) == ("over", "over")
    client, _ = signed_in(api)
    page = client.get("/monitor").text
    assert "Prediction intervals are too narrow, found after" in page
    assert "Predictions are too high, found after" in page


@pytest.mark.slow
def test_outliers_are_reviewed_and_the_gate_is_refitted(tmp_path: Path, running: Running) -> None:
    rng = np.random.default_rng(0)
    mean, features = rng.normal(size=300), rng.normal(size=(300, 2))
    y = mean + rng.normal(size=300)
    policy = RegressionPolicy.fit(
        Normal(mean, np.ones(300)), y, costs=ErrorCosts.absolute(), calibrator=None,
        interval=ConformalRegressor(method="normalized"), review_cost=5.0, features=features,
    )  # fmt: skip
    with opened(f"sqlite:///{tmp_path}/dubito.db", policy) as store:
        api = running(store, Settings(audit_fraction=1.0))
        body: dict[str, Any] = {"mean": [0.0, 0.0], "std": [1.0, 1.0]}
        missing = api.client.post("/v1/decide", json=body)
        assert "`features` must be given for the OOD gate" in missing.json()["detail"]
        body["features"] = [[0.0, 0.1], [90.0, -90.0]]
        found = api.client.post("/v1/decide", json=body).json()["decisions"]
        assert [one["reason"] for one in found] == ["lowest_expected_cost", "out_of_distribution"]
        ids = [f"r{k}" for k in range(300)]
        body = {"mean": mean.tolist(), "std": [1.0] * 300, "features": features.tolist()}
        api.client.post("/v1/decide", json={**body, "ids": ids})
        api.client.post("/v1/labels", json={"ids": ids, "labels": y.tolist()})
        rows = store.decisions_since()
        refitted = _refit(rows, policy, store.find_features)
        assert refitted.report.n_rows == 300
        assert refitted.ood is not None
        assert refitted.ood is not policy.ood
        kept = _refit(rows, policy, lambda _: None)
        assert kept.ood is policy.ood
        assert "The OOD gate is unchanged" in kept.report.notes[-1]

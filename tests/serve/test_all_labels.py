"""`--labels all`: metrics, alarms and refits from the labels of all rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dubito.serve.service import Settings
from studies.common.serving import fitted_label_policy, fitted_policy, fitted_value_policy
from tests.serve.conftest import SURE, TORN, Api, opened
from tests.serve.test_label_sets import csrf_of, signed_in

ALL = Settings(labels="all")
Running = Callable[..., Api]


def requests_of(kind: str, n: int) -> tuple[Any, dict[str, Any], list[Any]]:
    """Return a policy, rows, and labels that follow the outputs."""
    rng = np.random.default_rng(0)
    if kind == "classes":
        logits = 4 * rng.normal(size=(n, 3))
        y = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
        return fitted_policy(), {"logits": logits.tolist()}, ["abc"[k] for k in y]
    if kind == "labels":
        odds = rng.normal(-1, 1.5, (n, 3))
        y = rng.random(odds.shape) < 1 / (1 + np.exp(-odds))
        names = ("edema", "effusion", "fracture")
        labels = [dict(zip(names, map(int, row), strict=True)) for row in y]
        return fitted_label_policy(), {"logits": (2 * odds).tolist()}, labels
    mean, std = rng.normal(100, 20, n), np.exp(rng.normal(1, 0.6, n))
    y = mean + 2 * std * rng.normal(size=n)
    return fitted_value_policy(), {"mean": mean.tolist(), "std": std.tolist()}, y.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classes", "labels", "values"])
def test_metrics_alarms_and_refits_use_the_labels_of_all_rows(
    kind: str, tmp_path: Any, running: Running
) -> None:
    policy, body, labels = requests_of(kind, 400)
    ids = [f"r{k}" for k in range(400)]
    with opened(f"sqlite:///{tmp_path}/dubito.db", policy) as store:
        api = running(store, ALL)
        decided = api.client.post("/v1/decide", json={**body, "ids": ids}).json()["decisions"]
        rows = store.decisions_since()
        assert not rows.is_audit.any()
        assert set(rows.propensity) == set(rows.audit_probability) == {1.0}
        # Only rejected rows are in the queue.
        n_reviewed = sum(one["reason"] != "lowest_expected_cost" for one in decided)
        assert 0 < store.queue_length() == n_reviewed < 400

        api.client.post("/v1/labels", json={"ids": ids[:200], "labels": labels[:200]})
        found = api.client.get("/v1/monitor").json()
        assert found["delay"]["n_missing"] == 200
        assert found["delay"]["seconds"] is None
        assert found["overall"]["cost"]["interval"] is None
        assert "200 of 400 rows have no label yet" in found["overall"]["cost"]["unavailable"]
        client, page = signed_in(api)
        what = "true value" if kind == "values" else "label"
        verdict = f"200 of 400 rows have no {what} yet, and metrics need"
        assert verdict in client.get("/monitor").text

        rest = {"ids": ids[200:], "labels": labels[200:]}
        assert api.client.post("/v1/labels", json=rest).json()["new"] == 200
        found = api.client.get("/v1/monitor").json()
        assert found["delay"]["n_missing"] == 0
        overall, n_answers = found["overall"], 1200 if kind == "labels" else 400
        assert overall["n_labels"] == n_answers
        assert overall["cost"]["interval"] is not None
        alarms = found["labels"] if kind == "labels" else found["alarms"]
        name = {"classes": "calibration", "labels": "edema", "values": "coverage"}[kind]
        alarm = alarms[name]["alarm"] if kind == "labels" else alarms[name]
        assert alarm["n_labels"] == 400

        form = {"csrf": csrf_of(page)}
        page = client.get("/monitor").text
        assert "400 labels, 0 missing; 0 rows wait for" in page
        assert "The label of every row is expected, sooner or later (--labels all)" in page
        assert "of audited rows" not in page
        assert client.post("/monitor/refit", data=form).status_code == 200
        assert store.list_policies()[-1].policy.report.n_rows == 400


def test_the_truth_replaces_the_label_of_a_reviewer_but_not_that_of_a_program(
    small_store: Any, running: Running
) -> None:
    api = running(small_store, ALL)
    ids = ["torn", "same", "sure"]
    api.client.post("/v1/decide", json={"logits": [TORN, TORN, SURE], "ids": ids})
    for _ in range(2):
        item = api.client.post("/v1/review").json()["item"]
        answer = {"action": "label", "label": "a"}
        assert api.client.post(f"/v1/review/{item['id']}", json=answer).status_code == 200
    truth = {"ids": ids, "labels": ["b", "a", "c"]}
    assert api.client.post("/v1/labels", json=truth).json() == {
        "received": 3, "new": 1, "corrected": 1,
    }  # fmt: skip
    stored = api.client.get("/v1/decisions/torn").json()
    assert stored["label"] == "b"
    [before] = stored["previous_labels"]
    assert (before["label"], before["reviewer"], before["corrected_by"]) == ("a", "ann", "ann")
    assert api.client.post("/v1/labels", json=truth).json()["corrected"] == 0
    for name in ("torn", "same"):  # the true label is known: there is nothing to undo
        assert api.client.post(f"/v1/review/{name}", json={"action": "undo"}).status_code == 409
    other = {"ids": ["sure"], "labels": ["a"]}
    assert api.client.post("/v1/labels", json=other).status_code == 409


def test_the_mode_is_one_of_two() -> None:
    with pytest.raises(ValueError, match=r"must be audited or all, got 'some'. Pass --labels all"):
        Settings(labels="some")

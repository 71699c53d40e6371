from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from dubito.data.stream import write_stream
from dubito.serve.api.monitoring import _plain
from dubito.serve.api.schemas import ARROW
from dubito.serve.settings import Settings
from dubito.serve.store import Store
from dubito.serve.store.documents import text_of_policy
from studies.common.serving import fitted_policy
from tests.serve.conftest import SURE, TORN, Api


def test_figures_of_what_is_kept(api: Api) -> None:
    api.client.post("/v1/decide", json={"logits": [TORN] * 30, "ids": list(range(30))})
    api.client.post("/v1/labels", json={"ids": list(range(30)), "labels": ["a"] * 30})
    answer = api.client.get("/v1/monitor")
    assert answer.status_code == 200
    told = answer.json()
    assert (told["policy"], told["days"], told["n_rows"]) == (1, 30.0, 30)
    assert told["whole"]["n_labels"] == 30
    for days in ("0", "-1", "x", "nan"):
        assert api.client.get("/v1/monitor", params={"days": days}).status_code == 422


def test_rows_of_the_policy_before_do_not_enter(api: Api) -> None:
    api.client.post("/v1/decide", json={"logits": [TORN] * 30, "ids": list(range(30))})
    api.client.post("/v1/labels", json={"ids": list(range(30)), "labels": ["b"] * 30})
    other = text_of_policy(fitted_policy(reject_cost=0.2))
    number = api.client.post("/v1/policies", content=other).json()["id"]
    api.client.post(f"/v1/policies/{number}/activate")
    told = api.client.get("/v1/monitor").json()
    assert (told["policy"], told["n_rows"], told["whole"]["n_labels"]) == (number, 0, 0)
    ids = list(range(30, 55))
    api.client.post("/v1/decide", json={"logits": [TORN] * 25, "ids": ids})
    api.client.post("/v1/labels", json={"ids": ids, "labels": ["a"] * 25})
    told = api.client.get("/v1/monitor").json()
    assert (told["n_rows"], told["whole"]["n_labels"]) == (25, 25)
    assert told["whole"]["cost"]["interval"]["value"] == pytest.approx(0.2)
    api.client.post("/v1/policies/rollback")
    assert api.client.get("/v1/monitor").json()["n_rows"] == 30


def test_without_an_audit_the_figures_are_unknown(
    small_store: Store, running: Callable[..., Api]
) -> None:
    api = running(small_store, Settings(audit_share=0.0))
    ids = list(range(60))
    api.client.post("/v1/decide", json={"logits": [TORN] * 30 + [SURE] * 30, "ids": ids})
    api.client.post("/v1/labels", json={"ids": ids, "labels": ["a"] * 60})
    whole = api.client.get("/v1/monitor").json()["whole"]
    for name in ("calibration_error", "log_loss", "cost"):
        assert whole[name] == {
            "interval": None,
            "unknown": "30 rows were let pass while none was drawn at random to be checked.",
        }
    assert whole["coverage"]["interval"]["value"] == 0.5


def test_figures_stay_honest_while_readers_take_the_doubtful_rows_first(
    small_store: Store, running: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the rows that chance drew are read, and of the others those with most doubt."""
    api = running(small_store, Settings(audit_share=0.2))
    object.__setattr__(api.app.state.service, "drawing", np.random.default_rng(0))
    monkeypatch.setattr("dubito.serve.store.deciding.random", Random(0).random)
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(6000, 3)).astype(np.float32)
    truth = (0.6 * logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    content = write_stream({"logits": logits, "ids": np.arange(6000).astype(str)})
    api.client.post("/v1/decide", content=content, headers={"Content-Type": ARROW})
    rows = api.store.rows_for_monitor()
    at = rows.id.astype(int)
    waits = api.store.next_ids("ann", 6000)
    n_drawn = int(rows.is_audit.sum())
    read = np.array([*waits[: n_drawn // 2], *waits[n_drawn : n_drawn + 200]], int)
    api.store.add_labels(read.astype(str).tolist(), truth[read].tolist())
    whole = api.client.get("/v1/monitor").json()["whole"]
    y, p = truth[at], rows.probabilities
    loss = -np.log(p[np.arange(6000), y])
    expected = {
        "log_loss": loss.mean(),
        "cost": np.where(rows.action == 3, 0.3, rows.action != y).mean(),
    }
    is_read = np.isin(at, read)
    assert whole["n_labels"] == n_drawn // 2
    assert loss[is_read].mean() > whole["log_loss"]["interval"]["high"]
    for name, value in expected.items():
        interval = whole[name]["interval"]
        assert interval["low"] <= value <= interval["high"]


def test_one_sorted_batch_is_no_drift(small_store: Store, running: Callable[..., Api]) -> None:
    """Rows of one request come in their order, whatever their ids are."""
    api = running(small_store)
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(4000, 3)).astype(np.float32)
    is_sure = np.sort(logits, axis=1)[:, -1] - np.sort(logits, axis=1)[:, -2] > 2
    ids = [f"{'A' if sure else 'B'}-{k}" for k, sure in enumerate(is_sure)]
    content = write_stream({"logits": logits, "ids": np.array(ids)})
    api.client.post("/v1/decide", content=content, headers={"Content-Type": ARROW})
    told = api.client.get("/v1/monitor").json()
    assert told["alarms"]["doubt"]["n_labels"] == 3000
    assert told["alarms"]["doubt"]["alarmed_after"] is None


def test_labels_that_came_before_their_rows_do_not_change_an_alarm(
    small_store: Store, running: Callable[..., Api]
) -> None:
    early = [f"early-{k}" for k in range(300)]
    first = running(small_store, Settings(audit_share=1.0))
    first.client.post("/v1/labels", json={"ids": early, "labels": ["a"] * 300})
    wrong = [f"wrong-{k}" for k in range(60)]
    first.client.post("/v1/decide", json={"logits": [SURE] * 60, "ids": wrong})
    first.client.post("/v1/labels", json={"ids": wrong, "labels": ["c"] * 60})
    before = first.client.get("/v1/monitor").json()["alarms"]["calibration"]
    assert before["direction"] == "over"
    first.client.post("/v1/decide", json={"logits": [TORN] * 300, "ids": early})
    after = first.client.get("/v1/monitor").json()["alarms"]["calibration"]
    assert after["n_labels"] == 360
    for name in ("direction", "alarmed_after"):
        assert after[name] == before[name]


def test_one_row_without_an_audit_does_not_hide_what_came_since(
    small_store: Store, running: Callable[..., Api]
) -> None:
    blind = running(small_store, Settings(audit_share=0.0))
    blind.client.post("/v1/decide", json={"logits": [SURE], "ids": ["blind"]})
    api = running(small_store, Settings(audit_share=1.0))
    ids = list(range(60))
    api.client.post("/v1/decide", json={"logits": [SURE] * 60, "ids": ids})
    api.client.post("/v1/labels", json={"ids": ids, "labels": ["a"] * 60})
    whole = api.client.get("/v1/monitor").json()["whole"]
    assert (whole["n_rows"], whole["n_labels"]) == (61, 60)
    assert whole["cost"]["interval"] is not None
    assert whole["note"].startswith("All but coverage is of the 60 rows decided since ")


def test_figures_of_nothing(api: Api) -> None:
    assert api.client.get("/v1/monitor").json()["n_rows"] == 0


def test_what_is_no_number_is_null() -> None:
    nasty = {"a": np.array([1.0, np.nan]), 2: (np.float64("inf"), np.int64(3), "x", None)}
    assert _plain(nasty) == {"a": [1.0, None], "2": [None, 3, "x", None]}

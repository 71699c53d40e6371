import numpy as np

from dubito.serve.api.monitoring import plain
from tests.serve.conftest import TORN, Api


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


def test_figures_of_nothing(api: Api) -> None:
    assert api.client.get("/v1/monitor").json()["n_rows"] == 0


def test_what_is_no_number_is_null() -> None:
    nasty = {"a": np.array([1.0, np.nan]), 2: (np.float64("inf"), np.int64(3), "x", None)}
    assert plain(nasty) == {"a": [1.0, None], "2": [None, 3, "x", None]}

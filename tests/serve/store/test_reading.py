import time
from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
from sqlalchemy import text

from dubito.decide import Policy
from dubito.outputs import Logits
from dubito.serve.store import NewDecisions, Store
from tests.serve.conftest import SURE, TORN

New = Callable[..., NewDecisions]


def test_rows_come_back_as_they_were_decided(store: Store, new: New, policy: Policy) -> None:
    rng = np.random.default_rng(0)
    logits = {f"r{k:03d}": rng.normal(size=3).tolist() for k in range(50)}
    amounts = list(map(float, range(50)))
    store.add_decisions(new(logits, audit_share=0.5, amounts=amounts))
    before = time.time()
    store.add_labels(["r003"], [2])
    rows = store.rows_for_monitor()
    matrix = np.array(list(logits.values()), np.float32)
    wanted = policy.decide(Logits(matrix))
    assert rows.id.tolist() == list(logits)
    assert rows.outputs.tolist() == matrix.tolist()
    assert rows.is_logits.all()
    assert rows.probabilities == pytest.approx(policy.predict_proba(Logits(matrix)), abs=1e-7)
    assert rows.action.tolist() == wanted.action.tolist()
    assert rows.class_.tolist() == wanted.class_.tolist()
    assert rows.label.tolist() == [2 if k == 3 else -1 for k in range(50)]
    assert not rows.is_reviewed.any()
    assert rows.amount.tolist() == amounts
    assert before <= rows.labelled[3] <= time.time()
    assert np.isnan(np.delete(rows.labelled, 3)).all()
    assert {len(getattr(rows, field.name)) for field in fields(rows)} == {50}


def test_features_come_back_in_the_order_asked_for(store: Store, new: New) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(1200, 4)).astype(np.float32)
    names = [f"r{k}" for k in range(1200)]
    store.add_decisions(new(dict.fromkeys(names, SURE), features=features.tolist()))
    order = rng.permutation(1200)
    kept = store.features_of([names[k] for k in order])
    assert kept is not None
    assert kept.tolist() == features[order].tolist()
    assert store.features_of([*names, "unknown"]) is None


def test_only_rows_since_a_time(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}))
    rows = store.rows_for_monitor(time.time() + 1)
    assert len(rows) == 0
    assert rows.probabilities.shape == (0, 0)


def test_what_is_forgotten_leaves_nothing(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN, "b": TORN, "c": SURE}, key="k"))
    store.next_review("ann")
    store.skip("a", "ann")
    store.add_labels(["c", "early"], [1, 1])
    store.add_labels(["c"], [2], "ann")
    assert store.forget(time.time() - 100) == 0
    assert len(store.rows_for_monitor()) == 3
    assert store.forget(time.time() + 1) == 3
    with store.engine.connect() as connection:
        for name in ("decisions", "labels", "reviews", "review_events", "requests", "corrections"):
            assert connection.execute(text(f"SELECT count(*) FROM {name}")).scalar() == 0

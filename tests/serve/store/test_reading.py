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
    row_costs = list(map(float, range(50)))
    store.add_decisions(new(logits, audit_share=0.5, row_costs=row_costs))
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
    assert not rows.is_unsettled.any()
    assert set(rows.audit_share.tolist()) == {0.5}
    assert rows.amount.tolist() == row_costs
    assert before <= rows.labeled[3] <= time.time()
    assert np.isnan(np.delete(rows.labeled, 3)).all()
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


def test_rows_of_one_request_keep_the_order_in_which_they_came(store: Store, new: New) -> None:
    names = ["z", "m", "a", "k"]
    logits = [[2.0 * k, 0.0, 0.0] for k in range(4)]
    store.add_decisions(new(dict(zip(names, logits, strict=True))))
    assert store.rows_for_monitor().id.tolist() == names
    doubt = store.history_of(1).doubt
    assert (np.diff(doubt) < 0).all()
    assert store.history_of(2).doubt.size == 0


def test_rows_that_readers_passed_on_are_unsettled(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN, "b": TORN, "c": TORN}))
    for item, do in (("a", store.unsure), ("b", store.skip)):
        store.next_review("ann", item_id=item)
        do(item, "ann")
    assert store.rows_for_monitor().is_unsettled.tolist() == [True, True, False]
    store.undo("b", "ann")
    assert store.rows_for_monitor().is_unsettled.tolist() == [True, False, False]
    store.add_labels(["a"], [0])
    assert not store.rows_for_monitor().is_unsettled.any()


def test_history_is_in_the_order_in_which_a_row_and_its_label_were_there(
    store: Store, new: New
) -> None:
    tilted = [[0.1 * k, 0.0, 0.0] for k in range(4)]
    store.add_labels(["early"], [1])
    for k, name in enumerate(("first", "second")):
        store.add_decisions(new({name: tilted[k]}, audit_share=1.0))
    store.add_labels(["second"], [0])
    store.add_labels(["first"], [1])
    before = store.history_of(1)
    confidence = before.confidence
    assert confidence[0] > confidence[1]
    assert before.is_right.tolist() == [True, False]
    # Truth that was there before its decision counts when the decision comes.
    store.add_decisions(new({"early": tilted[2]}, audit_share=1.0))
    after = store.history_of(1)
    assert after.confidence[:2].tolist() == confidence.tolist()
    assert after.is_right.tolist() == [True, False, False]
    assert after.confidence[2] == pytest.approx(1 - after.doubt[2])


def test_history_does_not_change_with_labels_that_are_corrected_or_taken_back(
    store: Store, new: New
) -> None:
    store.add_decisions(new({"a": SURE, "b": SURE}, audit_share=1.0))
    store.add_labels(["a"], [0])
    store.next_review("ann", item_id="b")
    store.settle("b", "ann", 0)
    seen = store.history_of(1).is_right.tolist()
    store.add_labels(["a"], [1], "ben")
    store.undo("b", "ann")
    store.settle("b", "ann", 2)
    assert store.history_of(1).is_right.tolist() == seen
    assert len(set(seen)) == 1
    store.undo("b", "ann")
    assert store.history_of(1).is_right.tolist() == seen


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

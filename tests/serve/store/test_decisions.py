import time
from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sqlalchemy import Connection, Table, event, func, select, text

from dubito.decide import Policy
from dubito.outputs import Logits
from dubito.serve.http_errors import HTTPError
from dubito.serve.store import NewDecisions, Store
from dubito.serve.store.decisions import MAX_IDS, IdempotencyKey, _row_bytes
from dubito.serve.store.tables import decisions, idempotency_keys, reviews
from dubito.serve.store.writer import PART_ROWS
from tests.serve.conftest import SURE, TORN

New = Callable[..., NewDecisions]


def n_rows(store: Store, table: Table) -> int:
    return int(
        store.read(lambda c: c.execute(select(func.count()).select_from(table)).scalar_one())
    )


def test_a_repeated_id_gets_the_first_answer(store: Store, new: New) -> None:
    assert store.add_decisions(new({"a": TORN, "b": SURE})) == {}
    found = store.add_decisions(new({"b": SURE, "c": SURE}))
    assert set(found) == {"b"}
    assert found["b"]["action"] == 0
    assert n_rows(store, decisions) == 3


def test_a_different_body_is_rejected_as_a_whole(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}))
    with pytest.raises(HTTPError) as caught:
        store.add_decisions(new({"new": SURE, "a": SURE}))
    assert str(caught.value) == (
        "Id 'a' was decided with a different body. Use another id, or send the same body."
    )
    assert caught.value.status == 409
    assert n_rows(store, decisions) == 1
    assert store.get_decision("new") is None


def test_an_idempotency_key_is_for_one_body(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}, key="k"))
    assert set(store.add_decisions(new({"a": TORN}, key="k"))) == {"a"}
    other = new({"a": TORN})
    with pytest.raises(HTTPError, match="Idempotency key 'k' was used with a different body"):
        store.add_decisions(other.part(slice(None), IdempotencyKey("k", 1, b"another")))
    assert n_rows(store, idempotency_keys) == 1
    assert store.add_decisions(other.part(slice(None), IdempotencyKey("k", 2, b"another")))
    assert n_rows(store, idempotency_keys) == 2


def test_many_rows_are_stored_in_several_commits(store: Store, new: New) -> None:
    commits = []

    def counted(connection: Connection) -> None:
        commits.append(connection)

    event.listen(store.engine, "commit", counted)
    rows = {f"r{k}": TORN for k in range(2 * PART_ROWS + 1)}
    assert store.add_decisions(new(rows, key="k")) == {}
    event.remove(store.engine, "commit", counted)
    assert len(commits) >= 2
    assert store.decisions_since().id.tolist() == list(rows)
    assert set(store.add_decisions(new(rows, key="k"))) == set(rows)


def test_a_conflict_in_the_last_of_many_rows_stores_none(store: Store, new: New) -> None:
    rows = {f"r{k}": TORN for k in range(PART_ROWS + 1)}
    store.add_decisions(new({f"r{PART_ROWS}": SURE}))
    with pytest.raises(HTTPError, match=f"Id 'r{PART_ROWS}' was decided with a different body"):
        store.add_decisions(new(rows))
    assert n_rows(store, decisions) == 1


def test_rejected_and_audited_rows_wait_for_review(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN, "b": SURE}))
    assert n_rows(store, reviews) == 1
    store.add_decisions(new({"c": SURE}, audit_fraction=1.0))
    assert n_rows(store, reviews) == 2
    [c] = [row for row in store.decisions_since().id.tolist() if row == "c"]
    rows = store.decisions_since()
    assert rows.propensity[rows.id == c].tolist() == [1.0]
    assert rows.propensity[rows.id == "b"].tolist() == [0.0]


def test_requests_of_one_group_may_repeat_ids(store: Store, new: New) -> None:
    futures = [store.submit(new({"x": TORN})) for _ in range(20)]
    futures.append(store.submit(new({"x": SURE})))
    futures += [store.submit(new({f"y{k}": TORN})) for k in range(20)]
    kept = [future for future in futures if future.exception() is None]
    assert len(kept) == 40
    assert n_rows(store, decisions) == 21
    assert n_rows(store, reviews) == 21


@pytest.mark.slow
def test_more_ids_than_one_query_takes(store: Store, new: New) -> None:
    many = {f"r{k}": TORN for k in range(1100)}
    store.add_decisions(new(many))
    assert set(store.find_decisions(list(many))) == set(many)
    assert len(store.write(new(many).insert)) == 1100


def test_rows_are_read_as_they_were_decided(store: Store, new: New, policy: Policy) -> None:
    rng = np.random.default_rng(0)
    logits = {f"r{k:03d}": rng.normal(size=3).tolist() for k in range(50)}
    row_costs = {"amount": list(map(float, range(50)))}
    store.add_decisions(new(logits, audit_fraction=0.5, row_costs=row_costs))
    before = time.time()
    store.add_labels(["r003"], [2])
    rows = store.decisions_since()
    matrix = np.array(list(logits.values()), np.float32)
    wanted = policy.decide(Logits(matrix))
    assert rows.id.tolist() == list(logits)
    assert rows.outputs.tolist() == matrix.tolist()
    assert rows.is_logits.all()
    assert rows.probabilities == pytest.approx(policy.predict_proba(Logits(matrix)), abs=1e-7)
    assert rows.action.tolist() == wanted.action.tolist()
    assert rows.predicted_class.tolist() == wanted.predicted_class.tolist()
    assert rows.label.tolist() == [2 if k == 3 else -1 for k in range(50)]
    assert not rows.is_unresolved.any()
    assert set(rows.audit_probability.tolist()) == {0.5}
    assert rows.columns_of(["amount", "fee"])["amount"].tolist() == row_costs["amount"]
    assert np.isnan(rows.columns_of(["amount", "fee"])["fee"]).all()
    assert before <= rows.labeled[3] <= time.time()
    assert np.isnan(np.delete(rows.labeled, 3)).all()
    assert rows.delay is None
    names = [field.name for field in fields(rows) if field.name != "delay"]
    assert {len(getattr(rows, name)) for name in names} == {50}


def test_features_are_returned_in_the_order_of_the_ids(store: Store, new: New) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(1200, 4)).astype(np.float32)
    names = [f"r{k}" for k in range(1200)]
    store.add_decisions(new(dict.fromkeys(names, SURE), features=features.tolist()))
    order = rng.permutation(1200)
    kept = store.find_features([names[k] for k in order])
    assert kept is not None
    assert kept.tolist() == features[order].tolist()
    assert store.find_features([*names, "unknown"]) is None


def test_only_rows_since_a_time(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}))
    rows = store.decisions_since(time.time() + 1)
    assert len(rows) == 0
    assert rows.probabilities.shape == (0, 0)


def test_rows_of_one_request_keep_the_order_in_which_they_came(store: Store, new: New) -> None:
    names = ["z", "m", "a", "k"]
    logits = [[2.0 * k, 0.0, 0.0] for k in range(4)]
    store.add_decisions(new(dict(zip(names, logits, strict=True))))
    assert store.decisions_since().id.tolist() == names
    uncertainty = store.alarm_history(1).uncertainty
    assert (np.diff(uncertainty) < 0).all()
    assert store.alarm_history(2).uncertainty.size == 0


def test_rows_that_reviewers_passed_on_are_unresolved(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN, "b": TORN, "c": TORN}))
    for item, kind in (("a", "escalate"), ("b", "skip")):
        store.claim_review("ann", item_id=item)
        store.pass_review(item, "ann", kind)
    assert store.decisions_since().is_unresolved.tolist() == [True, True, False]
    store.undo_review("b", "ann")
    assert store.decisions_since().is_unresolved.tolist() == [True, False, False]
    store.add_labels(["a"], [0])
    assert not store.decisions_since().is_unresolved.any()


def test_history_is_in_the_order_in_which_a_row_and_its_label_were_there(
    store: Store, new: New
) -> None:
    tilted = [[0.1 * k, 0.0, 0.0] for k in range(4)]
    store.add_labels(["early"], [1])
    for k, name in enumerate(("first", "second")):
        store.add_decisions(new({name: tilted[k]}, audit_fraction=1.0))
    store.add_labels(["second"], [0])
    store.add_labels(["first"], [1])
    before = store.alarm_history(1)
    confidence = before.confidence
    assert confidence[0] > confidence[1]
    assert before.is_correct.tolist() == [True, False]
    # A label that came before its decision counts when the decision comes.
    store.add_decisions(new({"early": tilted[2]}, audit_fraction=1.0))
    after = store.alarm_history(1)
    assert after.confidence[:2].tolist() == confidence.tolist()
    assert after.is_correct.tolist() == [True, False, False]
    assert after.confidence[2] == pytest.approx(1 - after.uncertainty[2])


def test_history_does_not_change_when_labels_are_corrected_or_undone(
    store: Store, new: New
) -> None:
    store.add_decisions(new({"a": SURE, "b": SURE}, audit_fraction=1.0))
    store.add_labels(["a"], [0])
    store.claim_review("ann", item_id="b")
    store.label_review("b", "ann", 0)
    seen = store.alarm_history(1).is_correct.tolist()
    store.add_labels(["a"], [1], "ben")
    store.undo_review("b", "ann")
    store.label_review("b", "ann", 2)
    assert store.alarm_history(1).is_correct.tolist() == seen
    assert len(set(seen)) == 1
    store.undo_review("b", "ann")
    assert store.alarm_history(1).is_correct.tolist() == seen


def test_deleted_decisions_leave_nothing(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN, "b": TORN, "c": SURE}, key="k"))
    store.claim_review("ann")
    store.pass_review("a", "ann", "skip")
    store.add_labels(["c", "early"], [1, 1])
    store.add_labels(["c"], [2], "ann")
    assert store.delete_before(time.time() - 100) == 0
    assert len(store.decisions_since()) == 3
    assert store.delete_before(time.time() + 1) == 3
    store.add_decisions(new({f"r{k}": TORN for k in range(2 * MAX_IDS)}))
    assert store.delete_before(time.time() + 1) == 2 * MAX_IDS
    with store.engine.connect() as connection:
        for name in (
            "decisions",
            "labels",
            "reviews",
            "review_events",
            "idempotency_keys",
            "corrections",
        ):
            assert connection.execute(text(f"SELECT count(*) FROM {name}")).scalar() == 0


@given(arrays.arrays(np.float32, st.tuples(st.integers(0, 5), st.integers(1, 5))))
def test_rows_of_bytes_are_the_rows(
    array: np.ndarray[tuple[int, int], np.dtype[np.float32]],
) -> None:
    rows = _row_bytes(array)
    assert len(rows) == len(array)
    assert b"".join(rows) == array.astype("<f4").tobytes()


def test_new_decisions_know_what_was_rejected(new: Callable[..., NewDecisions]) -> None:
    made = new({"a": TORN, "b": SURE})
    assert len(made) == 2
    assert made.is_rejected.tolist() == [True, False]
    assert made.columns["propensity"] == [1.0, 0.0]
    assert made.columns["link"] == [None, None]


def test_audited_rows_wait_in_random_order(store: Store, new: New) -> None:
    made = new({f"r{k}": [k / 10, 0.0, 0.0] for k in range(40)}, audit_fraction=1.0)
    store.add_decisions(made)
    values = dict(zip(made.columns["id"], made.columns["review_value"], strict=True))
    waiting = store.review_queue("ann", 40)
    assert len(waiting) == 40
    assert waiting != sorted(waiting, key=lambda name: -values[name])

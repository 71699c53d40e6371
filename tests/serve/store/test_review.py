import time
from collections.abc import Callable
from threading import Thread

import pytest

from dubito.serve.http_errors import HTTPError
from dubito.serve.store import NewDecisions, ReviewItem, Store
from tests.serve.conftest import SURE, TORN

New = Callable[..., NewDecisions]
LESS_TORN = [0.6, 0.0, 0.0]


def claimed(store: Store, reviewer: str) -> ReviewItem:
    item = store.claim_review(reviewer)
    assert item is not None
    return item


def test_the_row_with_the_highest_review_value_comes_first(store: Store, new: New) -> None:
    store.add_decisions(new({"less": LESS_TORN, "most": TORN, "sure": SURE}))
    assert store.review_queue("ann") == ["most", "less"]
    item = claimed(store, "ann")
    assert item.id == "most"
    assert item.review_value == pytest.approx(1 - item.probability)
    assert item.probabilities.sum() == pytest.approx(1)
    assert claimed(store, "bob").id == "less"
    assert store.claim_review("cy") is None
    assert store.queue_length() == 2


def test_audited_rows_come_first(store: Store, new: New) -> None:
    store.add_decisions(new({"torn": TORN}))
    store.add_decisions(new({"drawn": SURE}, audit_fraction=1.0))
    item = claimed(store, "ann")
    assert item.id == "drawn"
    assert item.is_audit


def test_claiming_again_returns_the_same_row(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN, "b": TORN}))
    assert claimed(store, "ann").id == claimed(store, "ann").id


def test_a_lease_expires(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}))
    now = time.time()
    assert store.claim_review("ann", now=now, lease_seconds=60) is not None
    assert store.claim_review("bob", now=now + 59, lease_seconds=60) is None
    assert store.claim_review("bob", now=now + 60, lease_seconds=60) is not None
    with pytest.raises(HTTPError) as caught:
        store.label_review("a", "ann", 0)
    assert str(caught.value) == "Id 'a' is not claimed by 'ann'. Claim it first."
    store.label_review("a", "bob", 0)
    assert store.get_label("a") == 0


def test_an_expired_lease_cannot_label(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}))
    store.claim_review("ann", now=time.time() - 100, lease_seconds=60)
    with pytest.raises(HTTPError) as caught:
        store.label_review("a", "ann", 0)
    claim = "The claim of id 'a' by 'ann' expired 40 seconds ago. Claim it again."
    assert str(caught.value) == claim


def test_labeling_twice_is_labeling_once(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}))
    claimed(store, "ann")
    store.label_review("a", "ann", 1)
    store.label_review("a", "ann", 1)
    with pytest.raises(HTTPError, match="is not claimed"):
        store.label_review("a", "ann", 2)
    rows = store.decisions_since()
    assert rows.label.tolist() == [1]


def test_escalation_goes_to_a_second_reviewer_and_no_third(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}))
    claimed(store, "ann")
    store.pass_review("a", "ann", "escalate")
    store.pass_review("a", "ann", "escalate")
    assert store.claim_review("ann") is None
    second = claimed(store, "bob")
    assert second.n_escalations == 1
    store.pass_review("a", "bob", "escalate")
    assert store.claim_review("cy") is None
    assert store.queue_length() == 0
    assert store.get_label("a") is None


def test_a_skipped_row_is_for_others(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}))
    claimed(store, "ann")
    store.pass_review("a", "ann", "skip")
    assert store.claim_review("ann") is None
    assert claimed(store, "bob").n_escalations == 0


@pytest.mark.parametrize("kind", ["label", "escalate", "skip"])
def test_undo_returns_the_row(store: Store, new: New, kind: str) -> None:
    store.add_decisions(new({"a": TORN}))
    claimed(store, "ann")
    if kind == "label":
        store.label_review("a", "ann", 1)
    else:
        store.pass_review("a", "ann", kind)
    assert store.undo_review("a", "ann").n_escalations == 0
    assert store.get_label("a") is None
    assert store.claim_review("bob") is None
    store.label_review("a", "ann", 2)
    assert store.get_label("a") == 2


def test_undo_takes_nothing_from_others(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}))
    with pytest.raises(HTTPError) as caught:
        store.undo_review("a", "ann")
    assert str(caught.value) == (
        "Reviewer 'ann' has nothing to undo for id 'a'. "
        "Undo a row that you labeled, escalated or skipped."
    )
    claimed(store, "ann")
    store.pass_review("a", "ann", "skip")
    claimed(store, "bob")
    with pytest.raises(HTTPError, match="Id 'a' is with another reviewer now"):
        store.undo_review("a", "ann")
    store.label_review("a", "bob", 0)
    with pytest.raises(HTTPError, match="Id 'a' is with another reviewer now"):
        store.undo_review("a", "ann")
    assert store.get_label("a") == 0


def test_a_row_that_is_not_in_review_is_not_found(store: Store) -> None:
    with pytest.raises(HTTPError) as caught:
        store.pass_review("z", "ann", "skip")
    assert str(caught.value) == "Id 'z' is not in review. Use an id from GET /v1/review."
    assert caught.value.status == 404


def test_two_processes_and_many_reviewers_never_hold_the_same_row(
    url: str, store: Store, new: New
) -> None:
    store.add_decisions(new({f"r{k}": TORN for k in range(60)}))
    other = Store.open(url)
    held: list[str] = []

    def read(reviewer: str, mine: Store) -> None:
        while (item := mine.claim_review(reviewer)) is not None:
            held.append(item.id)
            mine.label_review(item.id, reviewer, 0)

    threads = [
        Thread(target=read, args=(f"reviewer {k}", store if k % 2 else other)) for k in range(32)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    assert sorted(held) == sorted(f"r{k}" for k in range(60))

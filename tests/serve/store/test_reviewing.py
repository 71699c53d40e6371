import time
from collections.abc import Callable
from threading import Thread

import pytest

from dubito.serve.refusals import RefusedError
from dubito.serve.store import NewDecisions, ReviewItem, Store
from tests.serve.conftest import SURE, TORN

New = Callable[..., NewDecisions]
LESS_TORN = [0.6, 0.0, 0.0]


def claimed(store: Store, reader: str) -> ReviewItem:
    item = store.next_review(reader)
    assert item is not None
    return item


def test_the_item_comes_first_where_a_look_is_worth_most(store: Store, new: New) -> None:
    store.add_decisions(new({"less": LESS_TORN, "most": TORN, "sure": SURE}))
    assert store.next_ids("ann") == ["most", "less"]
    item = claimed(store, "ann")
    assert item.id == "most"
    assert item.review_value == pytest.approx(1 - item.probability)
    assert item.probabilities.sum() == pytest.approx(1)
    assert claimed(store, "bob").id == "less"
    assert store.next_review("cy") is None
    assert store.queue_length() == 2


def test_rows_drawn_at_random_come_before_all_others(store: Store, new: New) -> None:
    store.add_decisions(new({"torn": TORN}))
    store.add_decisions(new({"drawn": SURE}, audit_share=1.0))
    item = claimed(store, "ann")
    assert item.id == "drawn"
    assert item.is_audit


def test_who_claims_again_gets_the_same_item(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN, "b": TORN}))
    assert claimed(store, "ann").id == claimed(store, "ann").id


def test_a_lease_expires(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}))
    now = time.time()
    assert store.next_review("ann", now, 60) is not None
    assert store.next_review("bob", now + 59, 60) is None
    assert store.next_review("bob", now + 60, 60) is not None
    with pytest.raises(RefusedError) as refused:
        store.settle("a", "ann", 0)
    assert str(refused.value) == (
        "Id 'a' is not held for 'ann'. Try claiming it first: a claim ends after a while."
    )
    store.settle("a", "bob", 0)
    assert store.label("a") == 0


def test_a_lease_that_is_over_settles_nothing(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}))
    store.next_review("ann", time.time() - 100, 60)
    with pytest.raises(RefusedError, match="is not held for 'ann'"):
        store.settle("a", "ann", 0)


def test_settling_twice_is_settling_once(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}))
    claimed(store, "ann")
    store.settle("a", "ann", 1)
    store.settle("a", "ann", 1)
    with pytest.raises(RefusedError, match="is not held"):
        store.settle("a", "ann", 2)
    rows = store.rows_for_monitor()
    assert rows.label.tolist() == [1]


def test_unsure_asks_a_second_reader_and_no_third(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}))
    claimed(store, "ann")
    store.unsure("a", "ann")
    store.unsure("a", "ann")
    assert store.next_review("ann") is None
    second = claimed(store, "bob")
    assert second.n_unsure == 1
    store.unsure("a", "bob")
    assert store.next_review("cy") is None
    assert store.queue_length() == 0
    assert store.label("a") is None


def test_a_skipped_item_is_for_others(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}))
    claimed(store, "ann")
    store.skip("a", "ann")
    assert store.next_review("ann") is None
    assert claimed(store, "bob").n_unsure == 0


@pytest.mark.parametrize("kind", ["settle", "unsure", "skip"])
def test_undo_gives_the_item_back(store: Store, new: New, kind: str) -> None:
    store.add_decisions(new({"a": TORN}))
    claimed(store, "ann")
    if kind == "settle":
        store.settle("a", "ann", 1)
    else:
        getattr(store, kind)("a", "ann")
    assert store.undo("a", "ann").n_unsure == 0
    assert store.label("a") is None
    assert store.next_review("bob") is None
    store.settle("a", "ann", 2)
    assert store.label("a") == 2


def test_undo_takes_nothing_from_others(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}))
    with pytest.raises(RefusedError) as refused:
        store.undo("a", "ann")
    assert str(refused.value) == (
        "There is nothing of 'ann' to undo for id 'a'. "
        "Try undoing what was settled, unsure or skipped."
    )
    claimed(store, "ann")
    store.skip("a", "ann")
    claimed(store, "bob")
    with pytest.raises(RefusedError, match="Id 'a' is with another reader by now"):
        store.undo("a", "ann")
    store.settle("a", "bob", 0)
    with pytest.raises(RefusedError, match="Id 'a' is with another reader by now"):
        store.undo("a", "ann")
    assert store.label("a") == 0


def test_what_is_not_in_review_is_missing(store: Store) -> None:
    with pytest.raises(RefusedError) as refused:
        store.skip("z", "ann")
    assert str(refused.value) == "Id 'z' is not in review. Try an id of GET /v1/review."
    assert refused.value.status == 404


def test_two_processes_and_many_readers_never_hold_the_same(
    url: str, store: Store, new: New
) -> None:
    store.add_decisions(new({f"r{k}": TORN for k in range(60)}))
    other = Store.open(url)
    held: list[str] = []

    def read(reader: str, mine: Store) -> None:
        while (item := mine.next_review(reader)) is not None:
            held.append(item.id)
            mine.settle(item.id, reader, 0)

    threads = [
        Thread(target=read, args=(f"reader {k}", store if k % 2 else other)) for k in range(32)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    assert sorted(held) == sorted(f"r{k}" for k in range(60))

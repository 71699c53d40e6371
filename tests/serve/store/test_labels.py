import time
from collections.abc import Callable
from itertools import count
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dubito.serve.http_errors import HTTPError
from dubito.serve.store import NewDecisions, Store
from dubito.serve.store.labels import LabelCounts, find_labels
from tests.serve.conftest import TORN

NUMBERS = count()


def test_labels_may_come_before_their_decisions(
    store: Store, new: Callable[..., NewDecisions]
) -> None:
    assert store.add_labels(["a", "b"], [2, 0]) == LabelCounts(2, 0)
    store.add_decisions(new({"a": TORN, "c": TORN}))
    rows = store.decisions_since()
    assert dict(zip(rows.id.tolist(), rows.label.tolist(), strict=True)) == {"a": 2, "c": -1}
    assert store.queue_length() == 1
    item = store.claim_review("ann")
    assert item is not None
    assert item.id == "c"


def test_a_label_takes_its_row_out_of_review(
    store: Store, new: Callable[..., NewDecisions]
) -> None:
    store.add_decisions(new({"a": TORN}))
    assert store.queue_length() == 1
    store.add_labels(["a"], [1])
    assert store.queue_length() == 0
    assert store.claim_review("ann") is None


def test_a_different_label_is_rejected_with_its_whole_request(store: Store) -> None:
    store.add_labels(["a"], [1])
    with pytest.raises(HTTPError) as caught:
        store.add_labels(["b", "a"], [0, 2])
    assert str(caught.value) == (
        "Id 'a' has a different label. Send the same label, or add ?correct=true to replace it."
    )
    assert store.get_label("b") is None
    assert store.get_label("a") == 1


def test_the_last_correction_counts_and_previous_labels_are_recorded(store: Store) -> None:
    start = time.time()
    store.add_labels(["a", "b"], [1, 0])
    names = [f"n{k}" for k in range(1200)]
    store.add_labels(names, [0] * 1200)
    assert store.add_labels(["c", "a", "b"], [2, 2, 0], "ann") == LabelCounts(1, 1)
    assert store.add_labels(["c", "a", "b"], [2, 2, 0], "ann") == LabelCounts(0, 0)
    assert store.add_labels(["a"], [0], "bob") == LabelCounts(0, 1)
    assert store.add_labels(names, [1] * 1200, "ann") == LabelCounts(0, 1200)
    assert (store.get_label("a"), store.get_label("b"), store.get_label("c")) == (0, 0, 2)
    assert set(store.read(lambda c: find_labels(c, names)).values()) == {1}
    first, second = store.find_corrections("a")
    assert (first.label, first.corrected_by, second.label, second.corrected_by) == (
        (1, "ann", 2, "bob")
    )
    assert start <= first.created <= first.corrected == second.created <= second.corrected
    assert store.find_corrections("b") == []
    store.delete_before(time.time() + 1)
    assert store.find_corrections("a") == []


def test_a_reviewer_cannot_undo_a_corrected_label(
    store: Store, new: Callable[..., NewDecisions]
) -> None:
    store.add_decisions(new({"a": TORN}))
    store.claim_review("ann")
    store.label_review("a", "ann", 1)
    store.add_labels(["a"], [2], "cy")
    [before] = store.find_corrections("a")
    assert (before.label, before.reviewer) == (1, "ann")
    with pytest.raises(HTTPError) as caught:
        store.undo_review("a", "ann")
    assert str(caught.value) == (
        "The label of id 'a' has been corrected. Correct it with POST /v1/labels?correct=true."
    )
    assert store.get_label("a") == 2
    assert store.queue_length() == 0


def test_concurrent_corrections_are_all_recorded(url: str, store: Store) -> None:
    store.add_labels(["a"], [0])
    other = Store.open(url)
    threads = [
        Thread(target=(store if k % 2 else other).add_labels, args=(["a"], [k], f"reviewer {k}"))
        for k in range(1, 9)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    found = {one.label for one in store.find_corrections("a")}
    assert len(store.find_corrections("a")) == 8
    assert found | {store.get_label("a")} == set(range(9))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 40), unique=True, max_size=20), max_size=6))
def test_any_order_and_repetition_gives_the_same(
    small_store: Store, requests: list[list[int]]
) -> None:
    number = next(NUMBERS)
    truth = {f"{number}-{k}": k % 3 for k in range(41)}
    names = list(truth)
    n_new = 0
    for request in requests:
        ids = [names[k] for k in request]
        n_new += small_store.add_labels(ids, [truth[name] for name in ids]).n_new
    sent = {names[k] for request in requests for k in request}
    kept = small_store.read(lambda c: find_labels(c, names))
    assert kept == {name: truth[name] for name in sent}
    assert n_new == len(sent)

import time
from collections.abc import Callable
from itertools import count
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dubito.serve.refusals import RefusedError
from dubito.serve.store import NewDecisions, Store
from dubito.serve.store.labeling import NewLabels, labels_of
from tests.serve.conftest import TORN

NUMBERS = count()


def test_labels_may_come_before_their_decisions(
    store: Store, new: Callable[..., NewDecisions]
) -> None:
    assert store.add_labels(["a", "b"], [2, 0]) == NewLabels(2, 0)
    store.add_decisions(new({"a": TORN, "c": TORN}))
    rows = store.rows_for_monitor()
    assert dict(zip(rows.id.tolist(), rows.label.tolist(), strict=True)) == {"a": 2, "c": -1}
    assert store.queue_length() == 1
    item = store.next_review("ann")
    assert item is not None
    assert item.id == "c"


def test_a_label_takes_its_row_out_of_review(
    store: Store, new: Callable[..., NewDecisions]
) -> None:
    store.add_decisions(new({"a": TORN}))
    assert store.queue_length() == 1
    store.add_labels(["a"], [1])
    assert store.queue_length() == 0
    assert store.next_review("ann") is None


def test_another_label_is_refused_with_all_that_came_along(store: Store) -> None:
    store.add_labels(["a"], [1])
    with pytest.raises(RefusedError) as refused:
        store.add_labels(["b", "a"], [0, 2])
    assert str(refused.value) == (
        "Id 'a' has another label already. Try the label as it was sent first, or ?correct=true."
    )
    assert store.label("b") is None
    assert store.label("a") == 1


def test_the_last_correction_counts_and_all_before_are_on_record(store: Store) -> None:
    start = time.time()
    store.add_labels(["a", "b"], [1, 0])
    names = [f"n{k}" for k in range(1200)]
    store.add_labels(names, [0] * 1200)
    assert store.add_labels(["c", "a", "b"], [2, 2, 0], "ann") == NewLabels(1, 1)
    assert store.add_labels(["c", "a", "b"], [2, 2, 0], "ann") == NewLabels(0, 0)
    assert store.add_labels(["a"], [0], "bob") == NewLabels(0, 1)
    assert store.add_labels(names, [1] * 1200, "ann") == NewLabels(0, 1200)
    assert (store.label("a"), store.label("b"), store.label("c")) == (0, 0, 2)
    assert set(store.read(lambda c: labels_of(c, names)).values()) == {1}
    first, second = store.corrections("a")
    assert (first.label, first.corrected_by, second.label, second.corrected_by) == (
        (1, "ann", 2, "bob")
    )
    assert start <= first.created <= first.corrected == second.created <= second.corrected
    assert store.corrections("b") == []
    store.forget(time.time() + 1)
    assert store.corrections("a") == []


def test_a_correction_of_what_a_reader_settled_cannot_be_undone_by_them(
    store: Store, new: Callable[..., NewDecisions]
) -> None:
    store.add_decisions(new({"a": TORN}))
    store.next_review("ann")
    store.settle("a", "ann", 1)
    store.add_labels(["a"], [2], "cy")
    [before] = store.corrections("a")
    assert (before.label, before.reader) == (1, "ann")
    with pytest.raises(RefusedError) as refused:
        store.undo("a", "ann")
    assert str(refused.value) == (
        "The label of id 'a' was corrected since. Try correcting it in turn."
    )
    assert store.label("a") == 2
    assert store.queue_length() == 0


def test_of_many_who_correct_at_once_each_leaves_its_trace(url: str, store: Store) -> None:
    store.add_labels(["a"], [0])
    other = Store.open(url)
    threads = [
        Thread(target=(store if k % 2 else other).add_labels, args=(["a"], [k], f"reader {k}"))
        for k in range(1, 9)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    found = {one.label for one in store.corrections("a")}
    assert len(store.corrections("a")) == 8
    assert found | {store.label("a")} == set(range(9))


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
    kept = small_store.read(lambda c: labels_of(c, names))
    assert kept == {name: truth[name] for name in sent}
    assert n_new == len(sent)

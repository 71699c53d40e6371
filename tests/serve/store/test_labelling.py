from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dubito.serve.refusals import RefusedError
from dubito.serve.store import NewDecisions, Store
from dubito.serve.store.labelling import labels_of
from tests.serve.conftest import TORN

NUMBERS = count()


def test_labels_may_come_before_their_decisions(
    store: Store, new: Callable[..., NewDecisions]
) -> None:
    assert store.add_labels(["a", "b"], [2, 0]) == 2
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
        "Id 'a' has another label already. Try the label as it was sent first."
    )
    assert store.label("b") is None
    assert store.label("a") == 1


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
        n_new += small_store.add_labels(ids, [truth[name] for name in ids])
    sent = {names[k] for request in requests for k in request}
    kept = small_store.read(lambda c: labels_of(c, names))
    assert kept == {name: truth[name] for name in sent}
    assert n_new == len(sent)

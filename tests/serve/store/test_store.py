from functools import partial

import pytest
from sqlalchemy import Connection

from dubito.serve.store import Store


def kept(number: int, _: Connection) -> int:
    return number


def test_what_was_accepted_is_written_before_it_closes(url: str) -> None:
    store = Store.open(url)
    answers = [store.submit(partial(kept, k)) for k in range(200)]
    store.add_labels(["a"], [1])
    store.close()
    assert [answer.result(0) for answer in answers] == list(range(200))
    store.close()
    with pytest.raises(RuntimeError, match="The store is closed"):
        store.add_labels(["b"], [1])
    again = Store.open(url)
    assert again.label("a") == 1
    assert again.label("b") is None
    again.require_ready()
    again.close()

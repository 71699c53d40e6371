"""What was done last is known, and what was taken back is not the last any more."""

from functools import partial

from dubito.serve.pages.last_answer import LastAnswer, last_answer
from dubito.serve.store import Store


def test_the_last_answer_of_each_reader(store: Store) -> None:
    def last(reader: str) -> LastAnswer | None:
        return store.read(partial(last_answer, reader=reader))

    assert last("anna") is None
    for _ in range(2):
        item = store.next_review("anna")
        assert item is not None
        store.settle(item.id, "anna", 2)
    item = store.next_review("ben")
    assert item is not None
    store.skip(item.id, "ben")
    assert last("anna") == LastAnswer("c", "settle", 2)
    assert last("ben") == LastAnswer(item.id, "skip", None)
    store.undo("c", "anna")
    assert last("anna") == LastAnswer("d<b>", "settle", 2)


def test_words() -> None:
    classes = ["cat", 7]
    assert LastAnswer("a", "settle", 1).words(classes) == "Row a is settled: 7."
    assert LastAnswer("a", "unsure", None).words(classes) == "Row a goes to a second reader."
    assert LastAnswer("a", "skip", None).words(classes) == "Row a is left to others."

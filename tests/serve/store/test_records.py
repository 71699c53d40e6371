from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dubito.serve.store import NewDecisions, Policies, StoredPolicy
from dubito.serve.store.records import _bytes_of_rows
from tests.serve.conftest import SURE, TORN


@given(arrays.arrays(np.float32, st.tuples(st.integers(0, 5), st.integers(1, 5))))
def test_rows_of_bytes_are_the_rows(
    array: np.ndarray[tuple[int, int], np.dtype[np.float32]],
) -> None:
    rows = _bytes_of_rows(array)
    assert len(rows) == len(array)
    assert b"".join(rows) == array.astype("<f4").tobytes()


def test_new_decisions_know_what_was_rejected(new: Callable[..., NewDecisions]) -> None:
    made = new({"a": TORN, "b": SURE})
    assert len(made) == 2
    assert made.is_rejected.tolist() == [True, False]
    assert made.columns["propensity"] == [1.0, 0.0]
    assert made.columns["link"] == [None, None]


def test_one_policy_is_active_or_none() -> None:
    first, second = StoredPolicy(1, 0.0, "{}", False), StoredPolicy(2, 0.0, "{}", True)
    assert Policies((first, second)).active == second
    assert Policies((first,)).active is None

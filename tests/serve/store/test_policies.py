import json

import pytest

from dubito.decide import Policy
from dubito.errors import BadFileError
from dubito.serve.refusals import RefusedError
from dubito.serve.store import Store
from dubito.serve.store.documents import policy_of, text_of_policy
from studies.common.serving import fitted_policy


def test_policies_are_put_in_force_and_taken_back(store: Store, policy: Policy) -> None:
    others = [store.add_policy(text_of_policy(fitted_policy(reject_cost=c))) for c in (0.1, 0.2)]
    assert store.active_id() == 1
    for number in (*others, others[1]):
        store.activate(number)
    assert [one.is_active for one in store.policies().all] == [False, False, True]
    assert store.policies().before == others[0]
    assert store.roll_back() == others[0]
    assert store.roll_back() == 1
    with pytest.raises(RefusedError) as refused:
        store.roll_back()
    assert str(refused.value) == "There is no policy before. Try activating one by its id."
    assert store.active_id() == 1
    assert store.policies().before is None
    assert [one.was_active for one in store.policies().all] == [True, True, True]


def test_a_refit_says_until_when_it_learned(store: Store) -> None:
    number = store.add_policy(text_of_policy(fitted_policy(reject_cost=0.1)), learned_until=7.0)
    first, last = store.policies().all
    assert (last.id, last.learned_until, last.was_active) == (number, 7.0, False)
    assert first.learned_until is None


def test_the_same_policy_is_kept_once(store: Store, policy: Policy) -> None:
    text = text_of_policy(policy)
    assert store.add_policy(text) == 1
    assert store.add_policy(text_of_policy(policy_of(text))) == 1
    assert store.add_policy(json.dumps(json.loads(text))) == 1
    assert len(store.policies().all) == 1


def test_other_classes_need_another_store(store: Store) -> None:
    with pytest.raises(RefusedError) as refused:
        store.add_policy(text_of_policy(fitted_policy(n_classes=4)))
    assert str(refused.value) == (
        "The classes must be those of the policies before (a, b, c), in their order. "
        "Try another database for a policy of other classes."
    )


def test_what_is_no_policy_is_not_kept(store: Store) -> None:
    with pytest.raises(BadFileError, match="The policy cannot be read"):
        store.add_policy("{}")
    with pytest.raises(RefusedError, match=r"There is no policy 99. Try an id of GET /v1/policies"):
        store.activate(99)
    assert len(store.policies().all) == 1

import json
from dataclasses import replace

import pytest

from dubito.decide import Policy
from dubito.errors import BadFileError
from dubito.serve.http_errors import HTTPError
from dubito.serve.store import Store
from dubito.serve.store.policies import policy_content
from studies.common.serving import fitted_policy


def test_policies_are_activated_and_rolled_back(store: Store, policy: Policy) -> None:
    others = [store.add_policy(fitted_policy(reject_cost=c).to_json()) for c in (0.1, 0.2)]
    assert store.active_id() == 1
    for number in (*others, others[1]):
        store.activate(number)
    assert [one.is_active for one in store.list_policies()] == [False, False, True]
    assert [one.is_previous for one in store.list_policies()] == [False, True, False]
    assert store.roll_back() == others[0]
    assert store.roll_back() == 1
    with pytest.raises(HTTPError) as caught:
        store.roll_back()
    assert (
        str(caught.value)
        == "There is no previous policy to roll back to. Activate a policy by its id."
    )
    assert store.active_id() == 1
    assert not any(one.is_previous for one in store.list_policies())
    assert [one.was_active for one in store.list_policies()] == [True, True, True]


def test_a_refit_records_the_end_of_its_training_rows(store: Store) -> None:
    number = store.add_policy(fitted_policy(reject_cost=0.1).to_json(), trained_until=7.0)
    first, last = store.list_policies()
    assert (last.id, last.trained_until, last.was_active) == (number, 7.0, False)
    assert first.trained_until is None


def test_the_same_policy_is_stored_once(store: Store, policy: Policy) -> None:
    text = policy.to_json()
    assert store.add_policy(text) == 1
    assert store.add_policy(Policy.from_json(text).to_json()) == 1
    assert store.add_policy(json.dumps(json.loads(text))) == 1
    assert len(store.list_policies()) == 1


def test_other_classes_need_another_store(store: Store) -> None:
    with pytest.raises(HTTPError) as caught:
        store.add_policy(fitted_policy(n_classes=4).to_json())
    assert str(caught.value) == (
        "All policies of a database must have the same classes (a, b, c). "
        "Use another database for other classes."
    )


def test_an_invalid_policy_is_not_stored(store: Store) -> None:
    with pytest.raises(BadFileError, match=r"policy\.json cannot be read"):
        store.add_policy("{}")
    with pytest.raises(HTTPError, match=r"There is no policy 99. Use an id from GET /v1/policies"):
        store.activate(99)
    assert len(store.list_policies()) == 1


def test_a_policy_survives_as_text(policy: Policy) -> None:
    again = Policy.from_json(policy.to_json())
    assert json.loads(again.to_json()) == json.loads(policy.to_json())


@pytest.mark.parametrize("text", ["", "{}", "[]", "\ud800", "NaN"])
def test_an_invalid_document_is_rejected_without_a_path(text: str) -> None:
    with pytest.raises(BadFileError) as caught:
        Policy.from_json(text)
    assert str(caught.value).startswith("The policy cannot be read: ")
    assert "/tmp" not in str(caught.value)


def test_the_same_fit_at_another_time_has_the_same_content(policy: Policy) -> None:
    later = replace(policy, provenance={**policy.provenance, "created": "2026-01-01"})
    assert later.to_json() != policy.to_json()
    assert policy_content(later.to_json()) == policy_content(policy.to_json())
    other = replace(policy, provenance={**policy.provenance, "random_state": 1})
    assert policy_content(other.to_json()) != policy_content(policy.to_json())

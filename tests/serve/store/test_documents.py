import json
from dataclasses import replace

import pytest

from dubito.decide import Policy
from dubito.errors import BadFileError
from dubito.serve.store.documents import content_of, policy_of, text_of_policy


def test_a_policy_survives_as_text(policy: Policy) -> None:
    again = policy_of(text_of_policy(policy))
    assert json.loads(text_of_policy(again)) == json.loads(text_of_policy(policy))


@pytest.mark.parametrize("text", ["", "{}", "[]", "\ud800", "NaN"])
def test_what_is_no_policy_is_refused_without_a_path(text: str) -> None:
    with pytest.raises(BadFileError) as refused:
        policy_of(text)
    assert str(refused.value).startswith("The policy cannot be read: ")
    assert "/tmp" not in str(refused.value)


def test_the_same_fit_at_another_time_says_the_same(policy: Policy) -> None:
    later = replace(policy, provenance={**policy.provenance, "created": "2026-01-01"})
    assert text_of_policy(later) != text_of_policy(policy)
    assert content_of(text_of_policy(later)) == content_of(text_of_policy(policy))
    other = replace(policy, provenance={**policy.provenance, "seed": 1})
    assert content_of(text_of_policy(other)) != content_of(text_of_policy(policy))

import pytest

from dubito.decide import Policy
from dubito.serve.catalog import Catalog
from dubito.serve.refusals import RefusedError
from dubito.serve.store import Store
from dubito.serve.store.documents import text_of_policy
from studies.common.serving import fitted_policy


def test_it_follows_what_others_put_in_force(small_store: Store, policy: Policy) -> None:
    catalog = Catalog(small_store)
    assert catalog.active[0] == 1
    other = small_store.add_policy(text_of_policy(fitted_policy(reject_cost=0.1)))
    small_store.activate(other)
    assert catalog.active[0] == 1
    catalog.refresh()
    number, found = catalog.active
    assert number == other
    assert found.costs.array[-1, 0] == 0.1
    assert catalog.policy(1).costs.array[-1, 0] == 0.3


def test_no_policy_is_a_clear_refusal(tmp_path_factory: pytest.TempPathFactory) -> None:
    store = Store.open(f"sqlite:///{tmp_path_factory.mktemp('empty')}/d.db")
    catalog = Catalog(store)
    with pytest.raises(RefusedError) as refused:
        _ = catalog.active
    assert str(refused.value) == (
        "No policy is in force yet. Try POST /v1/policies and activating it."
    )
    store.close()

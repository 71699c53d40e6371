import time

import pytest
from sqlalchemy import text

from dubito.errors import BadValueError
from dubito.serve.refusals import RefusedError
from dubito.serve.store import Store


def test_only_a_hash_is_kept(store: Store) -> None:
    token = store.create_token("ann", ["review", "decide", "review"])
    found = store.find_token(token)
    assert found is not None
    assert (found.name, found.scopes, found.is_valid) == (
        "ann",
        frozenset({"decide", "review"}),
        True,
    )
    with store.engine.connect() as connection:
        kept = connection.execute(text("SELECT * FROM tokens")).all()
    assert token not in repr(kept)
    assert token.removeprefix("dubito_") not in repr(kept)
    assert store.create_token("ann", ["decide"]) != token


def test_tokens_end(store: Store) -> None:
    brief = store.create_token("bob", ["decide"], lifetime=1e-3)
    time.sleep(0.01)
    long = store.create_token("cy", ["decide"], lifetime=1000)
    found = {one.name: one for one in store.tokens()}
    assert not found["bob"].is_valid
    assert found["cy"].is_valid
    store.revoke_token(found["cy"].id)
    for token in (brief, long):
        known = store.find_token(token)
        assert known is not None
        assert not known.is_valid
    assert store.find_token("dubito_unknown") is None


def test_wrong_ones_are_refused(store: Store) -> None:
    with pytest.raises(BadValueError) as refused:
        store.create_token("ann", ["decide", "root"])
    assert str(refused.value) == (
        "`--scope` of dubito token create must be one or more of decide, review, admin. "
        "Got decide, root. Try --scope decide."
    )
    with pytest.raises(BadValueError, match="Got none"):
        store.create_token("ann", [])
    with pytest.raises(
        RefusedError, match=r"There is no token 7. Try an id of `dubito token list`"
    ):
        store.revoke_token(7)


def test_a_token_is_found_by_its_id(store: Store) -> None:
    token = store.create_token("ann", ["review"])
    found = store.find_token(token)
    assert found is not None
    assert store.token_of(found.id) == found
    assert store.token_of(found.id + 1) is None


def test_all_processes_share_one_secret(url: str, store: Store) -> None:
    other = Store.open(url)
    secret = other.session_secret()
    assert store.session_secret() == other.session_secret() == secret
    assert len(secret) == 32
    other.close()

import time
from concurrent.futures import ThreadPoolExecutor

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
    assert store.create_token("bob", ["decide"]) != token


def test_a_name_is_of_one_reader(store: Store) -> None:
    store.create_token("ann", ["review"])
    with pytest.raises(RefusedError) as refused:
        store.create_token("ann", ["decide"])
    assert str(refused.value) == (
        "Token 1 is of 'ann' already, and readers are told apart by name. "
        "Try another --name, or `dubito token revoke 1` first."
    )
    store.revoke_token(1)
    store.create_token("ann", ["review"], lifetime=1e-3)
    time.sleep(0.01)
    store.create_token("ann", ["review"])
    assert [one.name for one in store.tokens() if one.is_valid] == ["ann"]


def test_of_many_who_take_a_name_at_once_one_gets_it(url: str) -> None:
    stores = [Store.open(url) for _ in range(4)]

    def taken(opened: Store) -> bool:
        try:
            return bool(opened.create_token("ann", ["review"]))
        except RefusedError:
            return False

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(taken, stores)) == [False, False, False, True]
    for opened in stores:
        opened.close()


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


def test_a_session_that_was_ended_has_no_token(store: Store) -> None:
    found = store.find_token(store.create_token("ann", ["review"]))
    assert found is not None
    assert store.token_of_session("s1", found.id) == found
    assert store.token_of_session("s1", found.id + 1) is None
    store.end_session("s1", time.time() + 60)
    store.end_session("s1", time.time() + 60)
    assert store.token_of_session("s1", found.id) is None
    assert store.token_of_session("s2", found.id) == found


def test_sessions_that_are_over_are_forgotten(store: Store) -> None:
    store.end_session("s1", time.time() - 1)
    store.end_session("s2", time.time() + 60)
    with store.engine.connect() as connection:
        assert connection.execute(text("SELECT id FROM ended_sessions")).scalars().all() == ["s2"]


def test_all_processes_share_one_secret(url: str, store: Store) -> None:
    other = Store.open(url)
    secret = other.session_secret()
    assert store.session_secret() == other.session_secret() == secret
    assert len(secret) == 32
    other.close()

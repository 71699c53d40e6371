import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from dubito.errors import BadValueError
from dubito.serve.http_errors import HTTPError
from dubito.serve.store import Store


def test_only_a_hash_is_stored(store: Store) -> None:
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


def test_a_name_identifies_one_reviewer(store: Store) -> None:
    store.create_token("ann", ["review"])
    with pytest.raises(HTTPError) as caught:
        store.create_token("ann", ["decide"])
    assert str(caught.value) == (
        "Token 1 already has the name 'ann', and names identify reviewers. "
        "Use another --name, or run `dubito token revoke 1` first."
    )
    store.revoke_token(1)
    store.create_token("ann", ["review"], lifetime=1e-3)
    time.sleep(0.01)
    store.create_token("ann", ["review"])
    assert [one.name for one in store.list_tokens() if one.is_valid] == ["ann"]


def test_one_of_many_concurrent_requests_gets_a_name(url: str) -> None:
    stores = [Store.open(url) for _ in range(4)]

    def taken(opened: Store) -> bool:
        try:
            return bool(opened.create_token("ann", ["review"]))
        except HTTPError:
            return False

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(taken, stores)) == [False, False, False, True]
    for opened in stores:
        opened.close()


def test_tokens_expire_and_are_revoked(store: Store) -> None:
    brief = store.create_token("bob", ["decide"], lifetime=1e-3)
    time.sleep(0.01)
    long = store.create_token("cy", ["decide"], lifetime=1000)
    found = {one.name: one for one in store.list_tokens()}
    assert not found["bob"].is_valid
    assert found["cy"].is_valid
    store.revoke_token(found["cy"].id)
    for token in (brief, long):
        known = store.find_token(token)
        assert known is not None
        assert not known.is_valid
    assert store.find_token("dubito_unknown") is None


def test_invalid_scopes_and_ids_are_rejected(store: Store) -> None:
    with pytest.raises(BadValueError) as caught:
        store.create_token("ann", ["decide", "root"])
    assert str(caught.value) == (
        "dubito token create: `--scope` must be one or more of decide, review, admin, "
        "got decide, root. Use --scope decide."
    )
    with pytest.raises(BadValueError, match="got none"):
        store.create_token("ann", [])
    with pytest.raises(HTTPError, match=r"There is no token 7. Use an id from `dubito token list`"):
        store.revoke_token(7)


def test_a_session_that_was_ended_has_no_token(store: Store) -> None:
    found = store.find_token(store.create_token("ann", ["review"]))
    assert found is not None
    assert store.session_token("s1", found.id) == found
    assert store.session_token("s1", found.id + 1) is None
    store.end_session("s1", time.time() + 60)
    store.end_session("s1", time.time() + 60)
    assert store.session_token("s1", found.id) is None
    assert store.session_token("s2", found.id) == found


def test_records_of_expired_sessions_are_deleted(store: Store) -> None:
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

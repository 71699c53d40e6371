"""A token starts a session, in a cookie that no script and no other site can use."""

import time

import pytest

from dubito.serve.store import Store
from tests.serve.pages.conftest import Person


def test_a_token_signs_in_and_a_button_out(store: Store) -> None:
    ben = Person(store, "ben", ["review"])
    assert ben.ask("GET", "/review").headers["location"] == "/sign-in"
    assert 'name="token"' in ben.get("/sign-in")
    answer = ben.post("/sign-in", token=f"  {ben.token} ")
    assert (answer.status, answer.headers["location"]) == (303, "/review")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie
    assert ben.token.lower() not in cookie
    assert "Sign out ben" in ben.get("/review")
    kept = ben.cookie
    answer = ben.post("/sign-out")
    assert (answer.status, answer.headers["location"]) == (303, "/sign-in")
    assert ben.ask("GET", "/review").status == 303
    ben.cookie = kept  # as if someone had a copy
    assert ben.ask("GET", "/review").headers["location"] == "/sign-in"
    assert ben.sign_in().ask("GET", "/review").status == 200


def test_over_tls_the_cookie_is_secure(store: Store) -> None:
    ben = Person(store, "ben", ["review"], scheme="https")
    answer = ben.post("/sign-in", token=ben.token)
    assert "; secure" in answer.headers["set-cookie"].lower()


def test_a_session_ends_when_its_token_is_revoked(store: Store) -> None:
    ben = Person(store, "ben", ["review"]).sign_in()
    assert ben.ask("GET", "/review").status == 200
    found = store.find_token(ben.token)
    assert found is not None
    store.revoke_token(found.id)
    time.sleep(1.1)  # as long as a token is cached
    assert ben.ask("GET", "/review").headers["location"] == "/sign-in"


def test_users_without_the_review_scope_start_at_the_monitor(store: Store) -> None:
    eva = Person(store, "eva", ["admin"])
    assert eva.post("/sign-in", token=eva.token).headers["location"] == "/monitor"
    assert 'href="/review"' not in eva.get("/monitor").split("</header>")[0]
    rejected = eva.ask("GET", "/review")
    assert rejected.status == 403
    assert "The token needs the scope review." in rejected.text


def test_an_invalid_token_is_reported_and_not_shown(store: Store) -> None:
    ben = Person(store, "ben", ["review"])
    answer = ben.post("/sign-in", token="dubito_secret")
    assert answer.status == 401
    assert "This token is unknown, expired or revoked." in answer.text
    assert "dubito_secret" not in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("address", ["/sign-in", "/sign-out", "/review", "/review/undo"])
@pytest.mark.parametrize("kind", ["no proof", "https://evil.example", "http://[", "null"])
def test_requests_from_other_sites_are_rejected(anna: Person, address: str, kind: str) -> None:
    form = {"token": anna.token, "item": "c", "answer": "label:0"}
    origin = ""
    if kind != "no proof":
        form["csrf"], origin = anna.csrf(), kind
    answer = anna.ask("POST", address, form, origin)
    assert answer.status == 403
    assert "The request does not come from a page of this service." in answer.text


def test_the_root_redirects_to_the_review(anna: Person) -> None:
    assert anna.ask("GET", "/").headers["location"] == "/review"

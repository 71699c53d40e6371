from pathlib import Path
from threading import current_thread
from typing import Any

import pytest

from dubito.decide import Policy
from dubito.serve.http_errors import HTTPError
from dubito.serve.store import Store
from studies.common.serving import fitted_policy
from tests.serve.conftest import Api, add_newer_policy


def test_policies_are_uploaded_activated_and_rolled_back(api: Api) -> None:
    other = fitted_policy(reject_cost=0.1).to_json()
    made = api.client.post("/v1/policies", content=other)
    assert made.status_code == 201
    number = made.json()["id"]
    listed = api.client.get("/v1/policies").json()["policies"]
    assert [(one["id"], one["is_active"]) for one in listed] == [(1, True), (number, False)]
    assert listed[0]["provenance"]["n_rows"] == 1000
    assert api.client.post(f"/v1/policies/{number}/activate").json() == {"active": number}
    assert api.client.post("/v1/policies/rollback").json() == {"active": 1}
    again = api.client.post("/v1/policies/rollback")
    assert again.status_code == 409
    assert (
        again.json()["detail"]
        == "There is no previous policy to roll back to. Activate a policy by its id."
    )


def test_a_policy_is_parsed_outside_the_writer(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    parse = Policy.from_document

    def recorded(*arguments: Any) -> Policy:
        threads.append(current_thread().name)
        return parse(*arguments)

    monkeypatch.setattr(Policy, "from_document", recorded)
    with_mark = b"\xef\xbb\xbf" + fitted_policy(reject_cost=0.1).to_json().encode()
    assert api.client.post("/v1/policies", content=with_mark).status_code == 201
    assert threads
    assert "dubito-writer" not in threads
    nested = b"[" + b"[]," * 200_000 + b"[]]"
    rejected = api.client.post("/v1/policies", content=nested)
    assert rejected.status_code == 413
    assert "A JSON body may have at most 101,000 lists" in rejected.json()["detail"]


def test_two_first_policies_have_the_same_classes(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/empty.db")
    other = fitted_policy(n_classes=4)
    find = store.find_document

    def late(policy_id: int | None = None) -> tuple[int, str] | None:
        found = find(policy_id)
        if found is None:  # someone else stores the first policy meanwhile
            monkeypatched.undo()
            store.add_policy(fitted_policy().to_json())
        return found

    monkeypatched = pytest.MonkeyPatch()
    monkeypatched.setattr(store, "find_document", late)
    with pytest.raises(HTTPError, match="must have the same classes"):
        store.add_policy(other.to_json())
    assert len(store.list_policies()) == 1
    store.close()


def test_a_policy_of_a_newer_format_is_not_activated(api: Api) -> None:
    number = add_newer_policy(api.store)
    answer = api.client.post(f"/v1/policies/{number}/activate")
    assert answer.status_code == 503
    assert answer.json()["detail"] == (
        f"This version of dubito cannot read policy {number}. Upgrade dubito."
    )
    assert api.store.active_id() == 1
    listed = api.client.get("/v1/policies").json()["policies"]
    assert listed[0]["provenance"]["n_rows"] == 1000
    assert listed[1]["provenance"] == {"error": answer.json()["detail"]}
    assert api.client.get("/monitor").status_code == 200


def test_invalid_policies_are_rejected(api: Api) -> None:
    for content in (b"{}", b"\xff", b"", fitted_policy().to_json().encode()[:-100]):
        answer = api.client.post("/v1/policies", content=content)
        assert answer.status_code == 422
    changed = fitted_policy().to_json().replace('"random_state": 0', '"random_state": 1').encode()
    answer = api.client.post("/v1/policies", content=changed)
    assert "its checksum does not match" in answer.json()["detail"]
    assert len(api.store.list_policies()) == 1
    assert api.client.post("/v1/policies/99/activate").status_code == 404
    assert api.client.post(f"/v1/policies/{10**30}/activate").status_code == 422
    assert api.client.post("/v1/policies/x/activate").status_code == 422

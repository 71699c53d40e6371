from studies.common.serving import fitted_policy
from tests.serve.conftest import Api


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


def test_invalid_policies_are_rejected(api: Api) -> None:
    for content in (b"{}", b"\xff", b"", fitted_policy().to_json().encode()[:-100]):
        answer = api.client.post("/v1/policies", content=content)
        assert answer.status_code == 422
    changed = fitted_policy().to_json().replace('"random_state": 0', '"random_state": 1').encode()
    answer = api.client.post("/v1/policies", content=changed)
    assert "its checksum does not match" in answer.json()["detail"]
    assert len(api.store.list_policies().all) == 1
    assert api.client.post("/v1/policies/99/activate").status_code == 404
    assert api.client.post(f"/v1/policies/{10**30}/activate").status_code == 422
    assert api.client.post("/v1/policies/x/activate").status_code == 422

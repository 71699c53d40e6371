from dubito.serve.api.schemas import ARROW, REFUSALS, body_of, list_of, text_of


def test_a_body_is_described_with_its_fields() -> None:
    described = body_of({"ids": list_of(text_of(5))}, ["ids"], or_arrow=True)["requestBody"]
    schema = described["content"]["application/json"]["schema"]
    assert schema["required"] == ["ids"]
    assert schema["properties"]["ids"]["items"] == {
        "type": "string", "minLength": 1, "maxLength": 5,
    }  # fmt: skip
    assert ARROW in described["content"]
    assert ARROW not in body_of({}, [])["requestBody"]["content"]


def test_all_refusals_are_described() -> None:
    assert set(REFUSALS) == {401, 403, 404, 409, 413, 422}

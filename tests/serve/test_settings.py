import pytest

from dubito.errors import BadValueError
from dubito.serve.settings import Settings


def test_defaults_are_an_audit_of_one_in_a_hundred_and_no_deleting() -> None:
    settings = Settings()
    assert settings.audit_share == 0.01
    assert settings.retention_days is None
    assert not settings.is_blind


@pytest.mark.parametrize(
    ("name", "value"), [("retention_days", 0.0), ("lease_seconds", -1.0), ("max_samples", 0)]
)
def test_numbers_must_be_above_0(name: str, value: float) -> None:
    with pytest.raises(BadValueError) as refused:
        Settings(**{name: value})  # type: ignore[arg-type]
    assert str(refused.value) == (
        f"`{name}` of Settings must be a number above 0. Got {value!r}. Try {name}=30."
    )


def test_a_share_is_between_0_and_1() -> None:
    with pytest.raises(BadValueError, match="`audit_share` of Settings must be"):
        Settings(audit_share=1.5)

"""The attacks end by themselves, are noticed where they do harm, and do none here."""

import os

import pytest

from studies import serve_attacks as study
from studies.common.attacks import ATTACKS

# The others differ only in what they send, which tests of the service do too.
NAMES = [
    study.NO_ATTACK, "endless-header", "half-heads", "half-bodies", "cancelled", "json-bombs",
    "policy-bombs", "forged-sessions", "foreign-hosts", study.FULL_DISK,
]  # fmt: skip


@pytest.fixture(scope="module")
def found() -> dict[str, study.Figures]:
    return {one.attack: one for one in study.attack_all(NAMES, 0.3, 300_000)}


@pytest.mark.parametrize("name", NAMES)
def test_every_request_of_another_client_is_answered_and_kept(
    name: str, found: dict[str, study.Figures]
) -> None:
    one = found[name]
    assert one.failed == []
    assert one.lost == []
    assert len(one.decide) == len(one.health) == 2
    assert one.n_acknowledged > 0 or name == study.FULL_DISK


def test_attacks_meet_the_limits(found: dict[str, study.Figures]) -> None:
    assert " x 431" in found["endless-header"].outcome
    for name in ("half-heads", "half-bodies"):
        assert " x closed by the service" in found[name].outcome
    assert set(found["foreign-hosts"].outcome.split(" x ")[1:]) == {"400"}
    for name in ("json-bombs", "policy-bombs"):
        assert " x 5" not in found[name].outcome
        assert " x 422" in found[name].outcome
    disk = found[study.FULL_DISK].outcome
    assert " x 503" in disk
    assert disk.endswith("with room again 200")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_read_the_key(found: dict[str, study.Figures]) -> None:
    outcome = found["forged-sessions"].outcome
    assert "key not readable" in outcome
    assert " x 401" in outcome
    assert "200" not in outcome
    assert "files read" not in outcome


def test_the_table_has_a_verdict() -> None:
    good = study.Figures("none", "", (0.001, 0.002), (0.01, 0.02), 9, [], [])
    slow = study.Figures("slow", "met", (0.001, 0.6), (0.01, 0.02), 9, [], [])
    lossy = study.Figures("lossy", "met", (0.001, 0.002), (0.01, 0.02), 9, ["x"], [])
    text = study.report([good])
    assert "No attack was noticed. Slowest response 20 ms (limit 500)" in text
    assert "9 decisions acknowledged, 0 lost." in text
    assert "Harmful: slow, lossy. Slowest response 600 ms" in study.report([good, slow, lossy])


def test_all_attacks_are_described() -> None:
    assert all(attack.__doc__ for attack in ATTACKS.values())

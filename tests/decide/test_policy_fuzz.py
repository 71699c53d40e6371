"""Files broken on purpose raise a DubitoError, or decide; nothing else happens."""

import time
from pathlib import Path

import pytest

from dubito.decide.policy.loading import AnyPolicy
from studies import policy_fuzz


@pytest.fixture(scope="module")
def sound() -> dict[str, AnyPolicy]:
    return policy_fuzz.sound_policies()


@pytest.mark.slow
def test_broken_files_raise_or_decide(sound: dict[str, AnyPolicy], tmp_path: Path) -> None:
    outcomes = policy_fuzz.fuzz(sound, 1000, tmp_path, seed=1)
    assert outcomes.faults == []
    assert sum(outcomes.counts.values()) == 1000
    assert outcomes.slowest < policy_fuzz.SLOW
    by_outcome = {
        (has_new_checksum, outcome): sum(
            n for (_, s, o), n in outcomes.counts.items() if (s, o) == (has_new_checksum, outcome)
        )
        for _, has_new_checksum, outcome in outcomes.counts
    }
    # The digest stops nearly all that was not sealed anew, and validation much of what was.
    assert by_outcome[False, "BadFileError"] > 450
    assert by_outcome[True, "BadValueError"] > 150
    assert by_outcome[True, policy_fuzz.DECIDED] > 5


def test_corrupted_states_are_refused_or_read() -> None:
    outcomes = policy_fuzz.fuzz_states(policy_fuzz.sound_states(), 1000, seed=1)
    assert outcomes.faults == []
    assert outcomes.slowest < policy_fuzz.SLOW
    found = {outcome for *_, outcome in outcomes.counts}
    assert found == {"BadValueError", policy_fuzz.READS}


def test_what_is_executed_would_be_heard() -> None:
    with policy_fuzz.executed_events() as heard:
        exec(compile("1 + 1", "text", "eval"))
    assert [event.split()[0] for event in heard] == ["compile", "exec"]
    with policy_fuzz.executed_events() as heard:
        time.sleep(0)
    assert heard == []

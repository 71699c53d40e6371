import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.serve.sessions import Sessions
from dubito.serve.store.tokens import Token

OURS = Sessions(b"x" * 32)
ANN = Token(12, "ann", frozenset({"review"}), 0.0, None, None)
TEXT = OURS.begin(ANN)


def token_id(sessions: Sessions, text: str) -> int | None:
    found = sessions.read(text)
    return None if found is None else found.token_id


def test_a_session_names_its_token_and_no_other_secret_reads_it() -> None:
    assert token_id(OURS, TEXT) == 12
    assert token_id(Sessions(b"y" * 32), TEXT) is None
    other = OURS.begin(ANN)
    assert other != TEXT
    first, second = OURS.read(TEXT), OURS.read(other)
    assert first is not None
    assert second is not None
    assert first.id != second.id


def test_a_session_ends_with_its_token_or_after_half_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    brief = OURS.begin(replace(ANN, expires=now + 60))
    for later, has_brief, has_long in ((30, 12, 12), (61, None, 12), (12 * 3600 + 1, None, None)):
        monkeypatch.setattr(time, "time", lambda later=later: now + later)
        assert token_id(OURS, brief) == has_brief
        assert token_id(OURS, TEXT) == has_long


@given(st.integers(0, len(TEXT) - 1), st.characters(max_codepoint=255))
def test_whoever_changes_a_letter_has_none(place: int, letter: str) -> None:
    forged = TEXT[:place] + letter + TEXT[place + 1 :]
    assert token_id(OURS, forged) == (12 if forged == TEXT else None)


@given(st.text(st.characters(max_codepoint=255)))
def test_any_text_is_no_session(text: str) -> None:
    assert token_id(OURS, text) is None


def test_the_proof_of_a_form_is_none_of_a_session() -> None:
    said = TEXT.rpartition(".")[0]
    assert token_id(OURS, f"{said}.{OURS.csrf(said)}") is None
    assert OURS.csrf(TEXT) != OURS.csrf(OURS.begin(ANN))

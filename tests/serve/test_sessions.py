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


def test_a_session_names_its_token_and_no_other_secret_reads_it() -> None:
    assert OURS.token_id(TEXT) == 12
    assert Sessions(b"y" * 32).token_id(TEXT) is None
    assert OURS.begin(ANN) != TEXT


def test_a_session_ends_with_its_token_or_after_half_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    brief = OURS.begin(replace(ANN, expires=now + 60))
    for later, has_brief, has_long in ((30, 12, 12), (61, None, 12), (12 * 3600 + 1, None, None)):
        monkeypatch.setattr(time, "time", lambda later=later: now + later)
        assert OURS.token_id(brief) == has_brief
        assert OURS.token_id(TEXT) == has_long


@given(st.integers(0, len(TEXT) - 1), st.characters(max_codepoint=255))
def test_whoever_changes_a_letter_has_none(place: int, letter: str) -> None:
    forged = TEXT[:place] + letter + TEXT[place + 1 :]
    assert OURS.token_id(forged) == (12 if forged == TEXT else None)


@given(st.text(st.characters(max_codepoint=255)))
def test_any_text_is_no_session(text: str) -> None:
    assert OURS.token_id(text) is None


def test_the_proof_of_a_form_is_none_of_a_session() -> None:
    said = TEXT.rpartition(".")[0]
    assert OURS.token_id(f"{said}.{OURS.csrf(said)}") is None
    assert OURS.csrf(TEXT) != OURS.csrf(OURS.begin(ANN))

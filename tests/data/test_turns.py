"""One run writes to a folder at a time: what it has under way when it ends does not land later."""

from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import pytest

from dubito.data.directory_sink import Turn
from dubito.errors import BadFileError


@pytest.fixture(params=["here", "elsewhere"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{tmp_path}/_turn" if request.param == "here" else "memory://turns/out/_turn"


def over(place: str) -> str:
    return (
        f"{place.removesuffix('/_turn')} cannot be read: the run that writes this part has ended, "
        f"or another run has started. Run one at a time."
    )


def test_a_turn_is_on_until_it_ends(place: str) -> None:
    turn = Turn.begin(place)
    turn.require()
    turn.end()
    with pytest.raises(BadFileError) as caught:
        turn.require()
    assert str(caught.value) == over(place)
    turn.end()  # once more is fine
    assert not Path(place).exists()
    assert not fsspec.filesystem("memory").exists("/turns/out/_turn")


def test_the_turn_is_of_the_run_that_began_last(place: str) -> None:
    first, second = Turn.begin(place), Turn.begin(place)
    second.require()
    with pytest.raises(BadFileError):
        first.require()
    first.end()  # which must not end the other's
    second.require()
    second.end()

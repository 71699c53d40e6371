"""One run writes to a folder at a time: what it has under way when it ends does not land later."""

from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import pytest

from dubito.data.directory_sink import WriteLock
from dubito.errors import BadFileError


@pytest.fixture(params=["here", "elsewhere"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{tmp_path}/_lock" if request.param == "here" else "memory://turns/out/_lock"


def over(place: str) -> str:
    return (
        f"{place.removesuffix('/_lock')} cannot be read: the run that writes this part has ended, "
        f"or another run has started. Run one at a time."
    )


def test_a_lock_is_held_until_it_is_released(place: str) -> None:
    lock = WriteLock.acquire(place)
    lock.require()
    lock.release()
    with pytest.raises(BadFileError) as caught:
        lock.require()
    assert str(caught.value) == over(place)
    lock.release()  # once more is fine
    assert not Path(place).exists()
    assert not fsspec.filesystem("memory").exists("/turns/out/_lock")


def test_the_run_that_started_last_holds_the_lock(place: str) -> None:
    first, second = WriteLock.acquire(place), WriteLock.acquire(place)
    second.require()
    with pytest.raises(BadFileError):
        first.require()
    first.release()  # which must not end the other's
    second.require()
    second.release()

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from threading import Thread

import pytest

from dubito.data.dask import _interrupts_wait


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def in_a_thread() -> None:
    """Interrupt from a thread that was there before, as those of other libraries are."""
    thread = Thread(target=interrupt)
    thread.start()
    thread.join()


@pytest.fixture
def _usual() -> Iterator[None]:
    """Interrupts as they usually are: a process that was started in the background has none."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_usual")
@pytest.mark.parametrize("press", [interrupt, in_a_thread])
def test_an_interrupt_waits_for_the_end_of_the_block(press: Callable[[], None]) -> None:
    before, done = signal.getsignal(signal.SIGINT), []

    def start() -> None:
        with _interrupts_wait():
            press()
            done.append("the rest")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == ["the rest"]
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        interrupt()


@pytest.mark.slow
def test_processes_that_start_inside_see_none() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('went on')"
    with _interrupts_wait():
        done = subprocess.check_output([sys.executable, "-c", code], text=True)
        process = get_context("spawn").Process(target=interrupt)
        process.start()
        process.join()
    assert done == "went on\n"
    assert process.exitcode == 0


def test_an_error_takes_precedence_over_an_interrupt() -> None:
    def fail() -> None:
        with _interrupts_wait():
            interrupt()
            raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        fail()


def test_other_threads_are_left_alone() -> None:
    seen: list[str] = []

    def run() -> None:
        with _interrupts_wait():
            seen.append("inside")

    thread = Thread(target=run)
    thread.start()
    thread.join()
    assert seen == ["inside"]

"""Row blocks over threads: the same digits, order and errors for any number of threads."""

import multiprocessing
import os
import threading
from itertools import count, islice

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dubito import Logits, Probabilities, audit
from dubito.data import Batch
from dubito.errors import BadValueError
from dubito.kernels import blocks
from dubito.kernels.blocks import (
    BLOCK_ENTRIES,
    kept_threads,
    map_in_order,
    n_threads,
    row_blocks,
)

WAIT = 60  # seconds until a test that hangs fails


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUBITO_THREADS", "2")


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.mark.parametrize(("setting", "threads"), [("1", 1), ("3", 3), (" 8\n", 8)])
def test_environment_sets_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, setting: str, threads: int
) -> None:
    monkeypatch.setenv("DUBITO_THREADS", setting)
    assert n_threads() == threads


@pytest.mark.parametrize("setting", ["", "  "])
def test_without_a_setting_there_are_as_many_threads_as_allowed(
    monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv("DUBITO_THREADS", setting)
    assert 1 <= n_threads() <= (os.cpu_count() or 1)


@pytest.mark.parametrize("setting", ["0", "-1", "1.5", "two", "²"])
def test_a_setting_that_is_no_positive_integer_raises(
    monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv("DUBITO_THREADS", setting)
    with pytest.raises(BadValueError, match="must be a positive integer"):
        n_threads()
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", setting)
    with pytest.raises(BadValueError, match="`DUBITO_BLOCK_ENTRIES` must be a positive integer"):
        row_blocks(3, 2)


def test_environment_limits_the_entries_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "10")
    assert [part.stop for part in row_blocks(12, 2)] == [5, 10, 12]
    assert [part.stop for part in row_blocks(12, 2, 4)] == [2, 4, 6, 8, 10, 12]
    assert [part.stop for part in row_blocks(12, 2, 100)] == [5, 10, 12]
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "")
    assert row_blocks(12, 2) == [slice(0, 12)]


@pytest.mark.parametrize("n_rows", [0, 1, 1000, BLOCK_ENTRIES, 2 * BLOCK_ENTRIES + 1])
@pytest.mark.parametrize("n_columns", [0, 1, 10, 1000, 2 * BLOCK_ENTRIES])
def test_blocks_hold_every_row_once_in_order_and_are_bounded(n_rows: int, n_columns: int) -> None:
    n_rows = min(n_rows, 10 * BLOCK_ENTRIES // max(n_columns, 1) + 1)
    parts = row_blocks(n_rows, n_columns)
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])][: len(parts)]
    assert sum(part.stop - part.start for part in parts) == n_rows
    for part in parts:
        assert part.stop - part.start == 1 or (part.stop - part.start) * n_columns <= BLOCK_ENTRIES


@pytest.mark.parametrize("threads", ["1", "2", "7"])
@pytest.mark.parametrize("n_items", [0, 1, 2, 3, 50])
def test_results_come_in_the_order_of_the_items(
    monkeypatch: pytest.MonkeyPatch, threads: str, n_items: int
) -> None:
    monkeypatch.setenv("DUBITO_THREADS", threads)
    assert list(map_in_order(lambda i: i * i, range(n_items))) == [i * i for i in range(n_items)]


@pytest.mark.usefixtures("two_threads")
def test_items_run_at_once_and_still_come_in_order() -> None:
    second_is_done = threading.Event()

    def wait_for_the_second(item: int) -> int:
        if item == 0:
            assert second_is_done.wait(WAIT)
        if item == 1:
            second_is_done.set()
        return item

    assert list(map_in_order(wait_for_the_second, range(5))) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("threads", "n_items"), [("1", 5), ("2", 1)])
def test_one_thread_or_one_item_stays_in_the_callers_thread(
    monkeypatch: pytest.MonkeyPatch, threads: str, n_items: int
) -> None:
    monkeypatch.setenv("DUBITO_THREADS", threads)
    used = set(map_in_order(lambda _: threading.get_ident(), range(n_items)))
    assert used == {threading.get_ident()}


@pytest.mark.usefixtures("two_threads")
def test_the_first_error_is_raised_though_a_later_one_came_sooner() -> None:
    later_has_failed = threading.Event()

    def fail(item: int) -> int:
        if item == 1:
            assert later_has_failed.wait(WAIT)
        if item == 2:
            later_has_failed.set()
        if item:
            raise ValueError(f"item {item}")
        return item

    results = map_in_order(fail, range(9))
    assert next(results) == 0
    with pytest.raises(ValueError, match="item 1"):
        next(results)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_few_items_are_under_way_of_an_endless_stream(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setenv("DUBITO_THREADS", str(threads))
    stream = count()
    results = map_in_order(lambda item: -item, stream)
    assert list(islice(results, 20)) == [-item for item in range(20)]
    assert next(stream) <= 20 + 2 * threads


@pytest.mark.usefixtures("two_threads")
def test_an_error_ends_the_threads() -> None:
    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError):
        list(map_in_order(lambda item: 1 // item, count()))
    assert set(threading.enumerate()) <= before  # those of an earlier test may end meanwhile


@pytest.mark.usefixtures("two_threads")
def test_leaving_early_waits_for_nothing_and_ends_the_threads() -> None:
    before = set(threading.enumerate())
    has_left, is_done = threading.Event(), threading.Event()

    def wait_from_the_second_on(item: int) -> None:
        if item:
            has_left.wait(10)
            is_done.set()

    results = map_in_order(wait_from_the_second_on, count())
    next(results)
    threads = set(threading.enumerate()) - before
    del results
    assert not is_done.is_set()
    has_left.set()
    for thread in threads:
        thread.join(WAIT)
    assert set(threading.enumerate()) <= before


def nested(n: int) -> list[int]:
    return list(map_in_order(lambda i: sum(map_in_order(lambda j: i * j, range(n))), range(n)))


@pytest.mark.usefixtures("two_threads")
def test_maps_nest() -> None:
    assert nested(6) == [15 * i for i in range(6)]


@pytest.mark.parametrize(
    ("threads", "n_items", "share"), [("2", 5, 1), ("8", 8, 1), ("8", 3, 2), ("8", 2, 4)]
)
def test_a_map_inside_a_map_has_the_threads_that_are_idle(
    monkeypatch: pytest.MonkeyPatch, threads: str, n_items: int, share: int
) -> None:
    monkeypatch.setenv("DUBITO_THREADS", threads)
    assert set(map_in_order(lambda _: n_threads(), range(n_items))) == {share}
    assert n_threads() == int(threads)


def assert_child_succeeds() -> None:
    def work() -> None:
        assert nested(4) == [6 * i for i in range(4)]
        assert audit([0, 1], [0.2, 0.9]).accuracy == 1

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(WAIT)
    exit_code = child.exitcode
    child.kill()
    assert exit_code == 0


@pytest.mark.slow
@needs_fork
@pytest.mark.usefixtures("two_threads")
def test_maps_work_in_a_process_forked_after_one() -> None:
    nested(4)
    assert_child_succeeds()


@pytest.mark.slow
@needs_fork
@pytest.mark.usefixtures("two_threads")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_maps_work_in_a_process_forked_in_the_middle_of_one() -> None:
    results = map_in_order(lambda item: item, range(100))
    next(results)
    assert_child_succeeds()
    assert list(results) == list(range(1, 100))


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [4, 70])
@pytest.mark.parametrize("is_logits", [True, False], ids=["logits", "probabilities"])
def test_digits_do_not_depend_on_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, n_classes: int, is_logits: bool
) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "1000")
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(n_classes), 3000).astype(np.float32)
    y = rng.integers(0, n_classes, 3000)

    def digits(threads: int) -> tuple[bytes, ...]:
        monkeypatch.setenv("DUBITO_THREADS", str(threads))
        outputs = Logits(np.log(shares)) if is_logits else Probabilities(shares)
        rows = Batch.of(y, outputs).rows
        numbers = [
            rows.confidence,
            rows.least_confidence,
            rows.entropy,
            rows.log_loss,
            rows.brier_score,
        ]
        figures = np.array([number for number in numbers if number is not None])
        return figures.tobytes(), repr(audit(y, outputs).to_dict()).encode()

    assert digits(1) == digits(2) == digits(5)


def test_products_start_no_threads_where_threads_are_kept() -> None:
    with threadpool_limits(2, user_api="blas"), kept_threads():
        of_blas = [one for one in threadpool_info() if one["user_api"] == "blas"]
        assert {one["num_threads"] for one in of_blas} == {1}


@pytest.mark.usefixtures("two_threads")
def test_threads_are_kept_between_maps_and_end_with_the_context() -> None:
    before = threading.active_count()
    with kept_threads():
        first, second = (
            set(map_in_order(lambda _: threading.get_ident(), range(50))) for _ in range(2)
        )
        assert threading.get_ident() not in first | second
        assert len(first | second) <= 2
    assert threading.active_count() == before


@pytest.mark.usefixtures("two_threads")
def test_an_error_leaves_kept_threads_of_use() -> None:
    with kept_threads():
        with pytest.raises(ZeroDivisionError):
            list(map_in_order(lambda i: 1 / (i - 2), range(10)))
        assert list(map_in_order(lambda i: i, range(10))) == list(range(10))


@pytest.mark.usefixtures("two_threads")
def test_maps_nest_within_kept_threads() -> None:
    def inner(item: int) -> int:
        return sum(map_in_order(lambda i: item * i, range(4)))

    with kept_threads():
        assert list(map_in_order(inner, range(6))) == [6 * item for item in range(6)]


@pytest.mark.usefixtures("two_threads")
def test_threads_kept_twice_are_the_same() -> None:
    with kept_threads():
        outer = blocks.KEPT.get()
        with kept_threads():
            assert blocks.KEPT.get() is outer
        assert list(map_in_order(lambda i: i, range(5))) == list(range(5))

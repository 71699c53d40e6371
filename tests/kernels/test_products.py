"""Products start no threads of their own inside, whichever thread asks, and may again after."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dubito.kernels.blocks import _single_products

WAIT = 60  # seconds until a test that hangs fails


def n_of_blas() -> set[int]:
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


@pytest.fixture
def two_of_blas() -> Iterator[None]:
    with threadpool_limits(2, user_api="blas"):
        assert n_of_blas() == {2}
        yield


@pytest.mark.usefixtures("two_of_blas")
def test_matrix_products_start_no_threads_of_their_own_inside() -> None:
    with _single_products():
        assert n_of_blas() == {1}
    assert n_of_blas() == {2}


@pytest.mark.usefixtures("two_of_blas")
def test_matrix_products_of_any_thread_start_none() -> None:
    def inside(_: int) -> set[int]:
        with _single_products():
            return n_of_blas()

    with ThreadPoolExecutor(1) as other:
        assert other.submit(inside, 0).result() == inside(0) == {1}
    assert n_of_blas() == {2}


@pytest.mark.usefixtures("two_of_blas")
def test_whoever_leaves_last_sets_the_threads_of_products_back() -> None:
    first_is_in, second_is_in = threading.Event(), threading.Event()

    def enter_first_and_leave_first() -> None:
        with _single_products():
            first_is_in.set()
            assert second_is_in.wait(WAIT)

    with ThreadPoolExecutor(1) as other:
        first = other.submit(enter_first_and_leave_first)
        assert first_is_in.wait(WAIT)
        with _single_products():
            second_is_in.set()
            first.result(WAIT)
            assert n_of_blas() == {1}
        assert n_of_blas() == {2}  # while the first to set them lives

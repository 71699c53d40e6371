"""Anything array-like becomes a checked array, without a copy and without a change to it."""

import threading
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from dubito.arrays import (
    as_array,
    as_distributions,
    as_finite,
    as_floats,
    as_fractions,
    as_number,
    contiguous,
    freeze,
    own,
    require_dimensions,
    require_everywhere,
    require_rows,
)
from dubito.data.labels import Labels
from dubito.errors import BadTypeError, BadValueError
from dubito.outputs import Samples

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]

pd = pytest.importorskip("pandas")

each_precision = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@pytest.fixture(params=["1", "2"])
def many_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUBITO_THREADS", request.param)
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "8")


@pytest.mark.parametrize(
    "value",
    [
        [[1.0, 2.0], [3.0, 4.0]],
        ((1.0, 2.0), (3.0, 4.0)),
        np.array([[1.0, 2.0], [3.0, 4.0]]),
        np.ma.MaskedArray([[1.0, 2.0], [3.0, 4.0]]),
        pd.DataFrame({"a": [1.0, 3.0], "b": [2.0, 4.0]}),
        pl.DataFrame({"a": [1.0, 3.0], "b": [2.0, 4.0]}),
    ],
    ids=lambda value: f"{type(value).__module__}.{type(value).__name__}",
)
def test_lists_arrays_and_frames_become_plain_arrays(value: Any) -> None:
    array = as_array(value, "array", "Logits")
    assert type(array) is np.ndarray
    assert array.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_an_array_is_not_copied() -> None:
    array = np.ones((2, 3), np.float32)
    assert np.shares_memory(as_floats(array, "array", "Logits"), array)


class Tensor:
    def __init__(self, message: str) -> None:
        self.message = message

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError(self.message)


@pytest.mark.parametrize(
    ("message", "shown"),
    [("on the GPU.\nSee the manual.", "Tensor (on the GPU)"), ("", "Tensor ()")],
)
def test_the_error_contains_why_an_object_cannot_become_an_array(message: str, shown: str) -> None:
    with pytest.raises(BadTypeError) as caught:
        as_array(Tensor(message), "array", "Logits")
    assert caught.value.got == shown


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("float16", "float32"),
        ("float32", "float32"),
        (">f4", "float32"),
        ("float64", "float64"),
        (">f8", "float64"),
        ("longdouble", "float64"),
        ("int8", "float64"),
        ("uint64", "float64"),
    ],
)
def test_precision_is_kept_or_goes_up(given: str, kept: str) -> None:
    floats = as_floats(np.array([1, 2, 3], given), "array", "Logits")
    assert floats.dtype == np.dtype(kept)
    assert floats.dtype.isnative
    assert floats.tolist() == [1.0, 2.0, 3.0]


def test_a_frozen_view_is_read_only_and_leaves_the_array_writeable() -> None:
    array = np.zeros(3)
    view = freeze(array)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    array[0] = 2
    assert view.tolist() == [2.0, 0.0, 0.0]


@pytest.mark.parametrize("order", ["C", "F"])
def test_kernels_get_c_order_and_a_copy_only_where_needed(order: Any) -> None:
    array = np.asarray(np.arange(6.0).reshape(2, 3), order=order)
    ready = contiguous(array)
    assert ready.flags.c_contiguous
    assert not ready.flags.writeable
    assert ready.tolist() == array.tolist()
    assert np.shares_memory(ready, array) == (order == "C")


@pytest.mark.usefixtures("many_blocks")
@each_precision
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("shape", "place", "column"),
    [
        ((30,), (17,), None),
        ((30, 3), (0, 0), 0),
        ((30, 3), (29, 2), 2),
        ((30, 2, 2), (11, 1, 0), "(1, 0)"),
        ((30, 20), (21, 13), 13),
    ],
)
def test_the_first_entry_that_is_not_finite_is_named(
    dtype: Precision, bad: float, shape: Any, place: Any, column: Any
) -> None:
    array = np.ones(shape, dtype)
    array[place[0] + 1 :] = np.nan
    array[place] = bad
    with pytest.raises(BadValueError) as caught:
        as_finite(array, "array", "Logits")
    assert (caught.value.row, caught.value.column, caught.value.got) == (place[0], column, str(bad))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4), (3, 2)])
def test_what_is_finite_comes_back_as_it_is(shape: tuple[int, ...]) -> None:
    array = np.ones(shape)
    assert as_finite(array, "array", "Logits") is array


@pytest.mark.usefixtures("many_blocks")
@each_precision
def test_distributions_come_back_as_they_are(dtype: Precision) -> None:
    array = np.random.default_rng(0).dirichlet(np.ones(3), 50).astype(dtype)
    assert as_distributions(array, "array", "Probabilities") is array


@pytest.mark.usefixtures("many_blocks")
@each_precision
@pytest.mark.parametrize("factor", [0.9991, 1.0009])
def test_rows_nearly_one_are_divided_by_their_sum(dtype: Precision, factor: float) -> None:
    exact = np.random.default_rng(0).dirichlet(np.ones(3), 50)
    array = exact.astype(dtype)
    array[33] *= dtype(factor)
    before = array.tobytes()
    rows = as_distributions(array, "array", "Probabilities")
    assert array.tobytes() == before
    assert rows.dtype == dtype
    assert_allclose(rows, exact, rtol=4 * float(np.finfo(dtype).eps))


@pytest.mark.usefixtures("many_blocks")
@each_precision
@pytest.mark.parametrize("factor", [0.9989, 1.0011])
def test_rows_that_do_not_sum_to_one_raise(dtype: Precision, factor: float) -> None:
    array = np.full((50, 4), 0.25, dtype)
    array[33:] *= dtype(factor)
    with pytest.raises(BadValueError) as caught:
        as_distributions(array, "array", "Probabilities")
    assert (caught.value.row, caught.value.got) == (33, f"a sum of {factor}")


@pytest.mark.usefixtures("many_blocks")
@pytest.mark.parametrize("check", [as_finite, as_distributions])
def test_an_invalid_array_leaves_no_thread_behind(check: Any) -> None:
    before = set(threading.enumerate())
    with pytest.raises(BadValueError):
        check(np.full((50, 4), np.nan), "array", "Probabilities")
    assert set(threading.enumerate()) == before


def test_a_sum_beyond_the_largest_float_raises_like_any_other() -> None:
    with pytest.raises(BadValueError, match="must sum to 1, got inf"):
        as_distributions(np.full((1, 2), 1e308), "array", "Probabilities")


def test_shares_include_both_ends() -> None:
    assert as_fractions([0, 0.5, 1], "confidence", "TopLabel").tolist() == [0.0, 0.5, 1.0]


def test_length_dimensions_and_entries_that_fit_pass() -> None:
    array = np.ones((2, 3))
    require_rows(array, 2, "array", "Logits")
    require_dimensions(array, (1, 2), "array", "Logits", "rows x classes")
    require_everywhere(array > 0, array, "array", "Logits", "above 0", "a floor")
    with pytest.raises(BadValueError, match="above 1"):
        require_everywhere(array > 1, array, "array", "Logits", "above 1", "a floor")


@pytest.mark.parametrize(
    ("shape", "allowed", "fix"),
    [
        ((3, 1), (1,), "Use `.ravel()` for a single column"),
        ((3,), (2,), "Use `.reshape(-1, 1)` for a single column"),
        ((3, 0), (2,), "Provide at least one column"),
    ],
)
def test_the_remedy_for_a_shape_depends_on_it(
    shape: tuple[int, ...], allowed: tuple[int, ...], fix: str
) -> None:
    with pytest.raises(BadValueError) as caught:
        require_dimensions(np.ones(shape), allowed, "array", "Logits", "of another shape")
    assert caught.value.fix == fix


def test_the_first_entry_that_breaks_a_rule_is_named() -> None:
    array = np.array([[1.0, 2.0], [3.0, -4.0], [-5.0, 6.0]])
    with pytest.raises(BadValueError) as caught:
        require_everywhere(array > 0, array, "std", "Normal", "above 0", "a floor")
    assert (caught.value.got, caught.value.row, caught.value.column) == ("-4.0", 1, 1)


def test_large_arrays_are_shared_and_labels_never() -> None:
    numbers = np.zeros(1000)
    assert not np.shares_memory(own(numbers, numbers, max_bytes=8000), numbers)
    assert np.shares_memory(own(numbers, numbers, max_bytes=7999), numbers)
    assert not own(numbers, numbers, max_bytes=0).flags.writeable
    large = np.zeros((1 << 19) + 1)  # above 4 MB
    assert np.shares_memory(Samples(large[np.newaxis]).array, large)
    codes = np.zeros((1 << 23) + 1, np.int64)
    assert not np.shares_memory(Labels(codes).codes, codes)


@pytest.mark.parametrize("value", [0, 0.5, 3, np.inf, -np.inf, np.nan, True, "2", None])
def test_a_number_outside_its_bounds_raises(value: Any) -> None:
    assert as_number(np.float32(2), "one", "f", 1, 2, fix="Pass one=2") == 2.0
    with pytest.raises(BadValueError) as caught:
        as_number(value, "one", "f", 1, 2, fix="Pass one=2")
    rule = "must be a finite number of at least 1 and at most 2"
    assert str(caught.value) == f"f: `one` {rule}, got {value!r}. Pass one=2."

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.errors import BadValueError
from dubito.measure.calibration_error import _quantile_edges, assign, uniform_edges


def test_bins_are_closed_on_the_right() -> None:
    edges = uniform_edges(4)
    values = np.array([0.0, 1e-9, 0.25, 0.2500001, 0.5, 0.75, 1.0])
    assert assign(values, edges).tolist() == [0, 0, 0, 1, 1, 2, 3]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.integers(1, 20))
def test_every_value_lies_in_its_bin(values: list[float], n_bins: int) -> None:
    edges = uniform_edges(n_bins)
    for value, k in zip(values, assign(np.array(values), edges), strict=True):
        assert edges[k] < value <= edges[k + 1] or (value == 0 and k == 0)


@pytest.mark.slow
@given(
    st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.3000001, 0.5, 0.9, 1.0]), min_size=1),
    st.integers(1, 9),
)
def test_equal_mass_bins_are_never_empty(values: list[float], n_bins: int) -> None:
    array = np.array(values)
    edges = _quantile_edges(array, np.ones(array.size), n_bins)
    counts = np.bincount(assign(array, edges), minlength=edges.size - 1)
    assert counts.sum() == array.size
    assert (counts > 0).all()
    assert edges.size - 1 <= n_bins
    assert edges[0] == 0
    assert edges[-1] == 1


def test_equal_mass_bins_hold_equal_mass_without_ties() -> None:
    values = np.random.default_rng(0).permutation(np.linspace(0.01, 0.99, 90))
    counts = np.bincount(assign(values, _quantile_edges(values, np.ones(90), 9)))
    assert counts.tolist() == [10] * 9


def test_a_weight_counts_as_so_many_rows() -> None:
    values, weight = np.array([0.1, 0.2, 0.6, 0.7]), np.array([3, 1, 1, 0])
    repeated = np.repeat(values, weight)
    expected = _quantile_edges(repeated, np.ones(repeated.size), 3)
    assert _quantile_edges(values, weight.astype(float), 3).tolist() == expected.tolist()


@pytest.mark.parametrize("n_bins", [0, -1, 1.5, True, "15", 10**12])
def test_a_number_of_bins_is_a_whole_number_from_1_up(n_bins: object) -> None:
    with pytest.raises(BadValueError, match="must be an integer from 1 to 100,000"):
        uniform_edges(n_bins)  # type: ignore[arg-type]

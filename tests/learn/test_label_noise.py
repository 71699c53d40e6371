from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dubito.errors import BadTypeError, BadValueError, DubitoError
from dubito.learn import flip_labels

Y = np.random.default_rng(0).integers(10, size=20_000)


def shares(y: Any, noisy: Any) -> Any:
    """Return how often each class (row) is given as each class, counted one by one."""
    counts = np.zeros((10, 10))
    for old, new in zip(y, noisy, strict=True):
        counts[old, new] += 1
    return counts / counts.sum(axis=1, keepdims=True)


def test_pairs_are_swapped_both_ways_and_others_stay() -> None:
    noisy, is_flipped = flip_labels(Y, 0.4, pairs=[(3, 8), (1, 7)])
    expected = np.eye(10)
    for a, b in [(3, 8), (8, 3), (1, 7), (7, 1)]:
        expected[a, a], expected[a, b] = 0.6, 0.4
    assert np.abs(shares(Y, noisy) - expected).max() < 0.04
    assert (shares(Y, noisy) > 0).tolist() == (expected > 0).tolist()
    assert (is_flipped == (noisy != Y)).all()


def test_one_way_maps_do_not_come_back() -> None:
    noisy, _ = flip_labels(Y, 0.3, one_way={1: 7, 2: 7})
    found = shares(Y, noisy)
    assert found[1, 7] == pytest.approx(0.3, abs=0.04)
    assert found[2, 7] == pytest.approx(0.3, abs=0.04)
    assert found[7, 7] == 1


def test_symmetric_noise_hits_all_other_classes_alike() -> None:
    noisy, is_flipped = flip_labels(Y, 0.5, n_classes=10)
    assert is_flipped.mean() == pytest.approx(0.5, abs=0.02)
    moves = (noisy[is_flipped] - Y[is_flipped]) % 10
    assert stats.chisquare(np.bincount(moves, minlength=10)[1:]).pvalue > 1e-3


def test_any_transition_matrix() -> None:
    matrix = np.random.default_rng(1).dirichlet(np.full(10, 0.3), size=10)
    found = shares(Y, flip_labels(Y, transition=matrix).noisy)
    assert np.abs(found - matrix).max() < 0.05


def test_a_seed_repeats_itself() -> None:
    first, again = (flip_labels(Y, 0.4, [(3, 8)], random_state=5).noisy for _ in range(2))
    assert (first == again).all()
    assert (first != flip_labels(Y, 0.4, [(3, 8)], random_state=6).noisy).any()


def test_tensors_come_back_as_tensors_and_nothing_is_changed() -> None:
    y = torch.tensor([[0, 1], [1, 2]], dtype=torch.int32)
    noisy, is_flipped = flip_labels(y, 1.0, pairs=[(0, 1)])
    assert noisy.tolist() == [[1, 0], [0, 2]]
    assert noisy.dtype == torch.int32
    assert is_flipped.tolist() == [[True, True], [True, False]]
    assert y.tolist() == [[0, 1], [1, 2]]


@given(
    st.lists(st.integers(0, 4), max_size=30),
    st.floats(0, 1),
    st.integers(5, 8),
    st.integers(0, 2**32 - 1),
)
def test_noisy_labels_are_classes(y: list[int], rate: float, n_classes: int, seed: int) -> None:
    labels = np.array(y, dtype=np.int64)
    noisy, is_flipped = flip_labels(labels, rate, n_classes=n_classes, random_state=seed)
    assert ((noisy >= 0) & (noisy < n_classes)).all()
    assert (is_flipped == (noisy != labels)).all()
    assert rate > 0 or not is_flipped.any()
    assert rate < 1 or is_flipped.all()


def test_no_class_of_chance_0_is_drawn() -> None:
    tenths = np.full((11, 11), 0.0)
    tenths[:, :10] = 0.1  # ten times 0.1 is a little less than 1
    noisy = flip_labels(np.zeros(50_000, dtype=int), transition=tenths).noisy
    assert noisy.max() == 9


BAD: list[tuple[Any, type[DubitoError], str]] = [
    (
        lambda: flip_labels([0, 1], 0.4),
        BadValueError,
        "`pairs` of flip_labels must be given, or else `one_way`, `n_classes` or `transition`, and "
        "only one of them. Got none. Try pairs=[(3, 8)].",
    ),
    (
        lambda: flip_labels([0, 1], 0.4, [(0, 1)], n_classes=2),
        BadValueError,
        "`pairs` of flip_labels must be given, or else `one_way`, `n_classes` or `transition`, and "
        "only one of them. Got pairs and n_classes. Try pairs=[(3, 8)].",
    ),
    (
        lambda: flip_labels([0, 1], 40, [(0, 1)]),
        BadValueError,
        "`rate` of flip_labels must be a number between 0 and 1. Got 40. "
        "Try dividing percentages by 100.",
    ),
    (
        lambda: flip_labels([0, 1], 0.4, transition=np.eye(2)),
        BadValueError,
        "`rate` of flip_labels must be None with a transition matrix. Got 0.4. "
        "Try the rates in the matrix.",
    ),
    (
        lambda: flip_labels([0, 1], transition=np.ones((2, 3))),
        BadValueError,
        "`transition` of flip_labels must be true classes x given classes. Got shape (2, 3). "
        "Try one row and one column a class.",
    ),
    (
        lambda: flip_labels([0, 1], transition=[[1.0, 1.0], [0.0, 1.0]]),
        BadValueError,
        "`transition` of flip_labels must be rows that sum to 1. Got a sum of 2 in row 0. "
        "Try dividing each row by its sum.",
    ),
    (
        lambda: flip_labels([0, 2], transition=np.eye(2)),
        BadValueError,
        "`y` of flip_labels must be class numbers below 2, the rows of the matrix. Got 2 in row 1. "
        "Try one row and one column a class.",
    ),
    (
        lambda: flip_labels([0, 2], 0.5, n_classes=2),
        BadValueError,
        "`n_classes` of flip_labels must be a whole number from 3 up. Got 2. Try n_classes=3.",
    ),
    (
        lambda: flip_labels([0, -1], 0.5, [(0, 1)]),
        BadValueError,
        "`y` of flip_labels must be class numbers, 0 or above. Got -1 in row 1. "
        "Try leaving out rows without a label.",
    ),
    (
        lambda: flip_labels([0.0, 1.0], 0.5, [(0, 1)]),
        BadTypeError,
        "`y` of flip_labels must be class numbers. Got dtype float64. "
        "Try `.astype(int)` once every label is a whole number.",
    ),
    (
        lambda: flip_labels([0, 1], 0.5, [(0, 1), (1, 2)]),
        BadValueError,
        "`pairs` of flip_labels must be pairs of different classes. Got class 1 twice. "
        "Try a transition matrix.",
    ),
    (
        lambda: flip_labels([0, 1], 0.5, one_way={1: 1}),
        BadValueError,
        "`one_way` of flip_labels must be two different class numbers, 0 or above. Got 1 to 1. "
        "Try one_way={1: 7}.",
    ),
    (
        lambda: flip_labels([0, 1], 0.5, [3, 8]),  # type: ignore[list-item]
        BadTypeError,
        "`pairs` of flip_labels must be pairs of class numbers. Got [3, 8]. "
        "Try pairs=[(3, 8), (1, 7)].",
    ),
    (
        lambda: flip_labels([0, 1], 0.5, one_way=[(0, 1)]),  # type: ignore[arg-type]
        BadTypeError,
        "`one_way` of flip_labels must be a dict of class numbers. Got [(0, 1)]. "
        "Try one_way={1: 7}.",
    ),
    (
        lambda: flip_labels([0, 1], 0.5, [(0, 1)], random_state=-1),
        BadValueError,
        "flip_labels: `random_state` must be None, an integer from 0 to 2**32 - 1 or a numpy "
        "RandomState, got -1. Pass random_state=0.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_what_is_wrong_is_told(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message

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
        r"flip_labels .*got none\. Use for example pairs=\[\(3, 8\)\]",
    ),
    (
        lambda: flip_labels([0, 1], 0.4, [(0, 1)], n_classes=2),
        BadValueError,
        r"flip_labels .*got pairs and n_classes\. Use for example pairs=\[\(3, 8\)\]",
    ),
    (
        lambda: flip_labels([0, 1], 40, [(0, 1)]),
        BadValueError,
        r"`rate` .*, got 40\. Divide percentages by 100",
    ),
    (
        lambda: flip_labels([0, 1], 0.4, transition=np.eye(2)),
        BadValueError,
        r"`rate` .*, got 0\.4\. Put the rates into the matrix",
    ),
    (
        lambda: flip_labels([0, 1], transition=np.ones((2, 3))),
        BadValueError,
        r"`transition` .*, got shape \(2, 3\)\. Use one row and one column per class",
    ),
    (
        lambda: flip_labels([0, 1], transition=[[1.0, 1.0], [0.0, 1.0]]),
        BadValueError,
        r"`transition` .*, got a sum of 2 in row 0\. Divide each row by its sum",
    ),
    (
        lambda: flip_labels([0, 2], transition=np.eye(2)),
        BadValueError,
        r"`y` .*, got 2 in row 1\. Use one row and one column per class",
    ),
    (
        lambda: flip_labels([0, 2], 0.5, n_classes=2),
        BadValueError,
        r"`n_classes` .*, got 2\. Use n_classes=3",
    ),
    (
        lambda: flip_labels([0, -1], 0.5, [(0, 1)]),
        BadValueError,
        r"`y` .*, got -1 in row 1\. Drop rows without a label",
    ),
    (
        lambda: flip_labels([0.0, 1.0], 0.5, [(0, 1)]),
        BadTypeError,
        r"`y` .*, got dtype float64\. Use \.astype\(int\) once every label is an integer",
    ),
    (
        lambda: flip_labels([0, 1], 0.5, [(0, 1), (1, 2)]),
        BadValueError,
        r"`pairs` .*, got class 1 twice\. Use a transition matrix",
    ),
    (
        lambda: flip_labels([0, 1], 0.5, one_way={1: 1}),
        BadValueError,
        r"`one_way` .*, got 1 to 1\. Use one_way=\{1: 7\}",
    ),
    (
        lambda: flip_labels([0, 1], 0.5, [3, 8]),  # type: ignore[list-item]
        BadTypeError,
        r"`pairs` .*, got \[3, 8\]\. Use pairs=\[\(3, 8\), \(1, 7\)\]",
    ),
    (
        lambda: flip_labels([0, 1], 0.5, one_way=[(0, 1)]),  # type: ignore[arg-type]
        BadTypeError,
        r"`one_way` .*, got \[\(0, 1\)\]\. Use one_way=\{1: 7\}",
    ),
    (
        lambda: flip_labels([0, 1], 0.5, [(0, 1)], random_state=-1),
        BadValueError,
        r"`random_state` .*, got -1\. Pass random_state=0",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_what_is_wrong_is_reported(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_noisy_labels_are_shown_by_their_number() -> None:
    found = flip_labels([0, 1, 6, 2], rate=1.0, pairs=[(0, 6)])
    assert repr(found) == "NoisyLabels(2 of 4 labels flipped)"

"""Trees split by their definition, whatever rows come, and forests are means over leaves."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray

from dubito.arrays import contiguous
from dubito.kernels.nonparametric import add_forest, grow_tree, leaves_of

Array = NDArray[Any]


def grown(
    numbers: Array, codes: Array, weights: Array, least: float = 1.0, seed: int = 0
) -> tuple[Array, Array, Array]:
    """Return column, threshold and child of each node."""
    size = 2 * codes.size + 1
    column, child = np.zeros(size, np.int64), np.zeros(size, np.int64)
    threshold = np.zeros(size, np.float32)
    rows = (contiguous(numbers), contiguous(codes), contiguous(weights))
    numbers, *labels = rows
    n_nodes = grow_tree(
        np.ascontiguousarray(numbers.T), *labels, least, seed, column, threshold, child
    )
    return column[:n_nodes], threshold[:n_nodes], child[:n_nodes]


def leaves(numbers: Array, tree: tuple[Array, Array, Array]) -> Array:
    """Return the leaf of each row."""
    found = np.empty(len(numbers), np.int64)
    leaves_of(contiguous(numbers), 0, *tree, found)
    return found


def made(seed: int, n_rows: int, n_columns: int, n_classes: int) -> tuple[Array, Array]:
    """Return rows with many ties, and labels."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 6, (n_rows, n_columns)).astype(np.float32)
    return numbers, rng.integers(0, n_classes, n_rows)


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 4), st.integers(1, 5))
def test_leaves_weigh_enough_and_nodes_hang_together(
    seed: int, n_rows: int, n_columns: int, n_classes: int
) -> None:
    numbers, codes = made(seed, n_rows, n_columns, n_classes)
    weights = np.random.default_rng(seed).uniform(0.5, 2, n_rows)
    tree = grown(numbers, codes, weights, least=3.0, seed=seed)
    _, _, child = tree
    inner = np.flatnonzero(child)
    assert (np.diff(np.sort(child[inner])) == 2).all()  # two children each, and no other parent
    assert child.size == 2 * inner.size + 1
    ended = leaves(numbers, tree)
    assert (child[ended] == 0).all()
    assert set(ended) == set(np.flatnonzero(child == 0))
    held = np.bincount(ended, weights, child.size)[child == 0]
    assert held.min() >= 3 or child.size == 1


def test_labels_that_features_separate_end_in_different_leaves() -> None:
    numbers = np.random.default_rng(0).random((200, 3)).astype(np.float32)
    codes = ((numbers[:, 1] > 0.3) & (numbers[:, 1] < 0.7)).astype(np.int64)
    ended = leaves(numbers, grown(numbers, codes, np.ones(200), least=1.0))
    for leaf in np.unique(ended):
        assert len(set(codes[ended == leaf])) == 1


@pytest.mark.parametrize("what", ["numbers", "labels"])
def test_constant_features_or_labels_give_one_leaf(what: str) -> None:
    numbers, codes = made(0, 50, 3, 3)
    if what == "numbers":
        numbers = np.ones_like(numbers)
    else:
        codes = np.ones_like(codes)
    assert grown(numbers, codes, np.ones(50))[2].tolist() == [0]


def test_a_weight_of_two_is_a_row_twice() -> None:
    numbers, codes = made(0, 40, 3, 3)
    weights = np.where(np.arange(40) < 10, 2.0, 1.0)
    twice = np.concatenate([np.arange(40), np.arange(10)])
    for seed in range(5):
        weighted = grown(numbers, codes, weights, 3.0, seed)
        doubled = grown(numbers[twice], codes[twice], np.ones(50), 3.0, seed)
        for ours, theirs in zip(weighted, doubled, strict=True):
            assert ours.tolist() == theirs.tolist()


def test_the_seed_makes_the_tree() -> None:
    numbers = np.random.default_rng(0).random((100, 3)).astype(np.float32)
    codes = np.random.default_rng(1).integers(0, 3, 100)
    first, again, other = (grown(numbers, codes, np.ones(100), seed=seed) for seed in (1, 1, 2))
    assert first[1].tolist() == again[1].tolist()
    assert first[1].tolist() != other[1].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("is_listed", [False, True])
def test_a_forest_is_the_mean_of_what_leaves_counted(is_listed: bool) -> None:
    rng = np.random.default_rng(0)
    known, codes = np.log(rng.dirichlet(np.ones(4), 60)), rng.integers(0, 4, 60)
    numbers = np.column_stack([known, np.exp(known)]).astype(np.float32)
    trees = [grown(numbers, codes, np.ones(60), 5.0, seed) for seed in range(3)]
    trees.append(grown(numbers, codes, np.ones(60), 100.0))  # a single leaf
    sizes = [tree[2].size for tree in trees]
    roots = np.cumsum([0, *sizes[:-1]])
    x = np.log(rng.dirichlet(np.ones(4), 600))
    new = np.column_stack([x, np.exp(x)]).astype(np.float32)
    prior = rng.dirichlet(np.ones(4), 600)
    counts = np.concatenate(
        [
            np.stack([np.bincount(codes[leaves(numbers, tree) == node], minlength=4)
                      for node in range(tree[2].size)])
            for tree in trees
        ]
    ).astype(float)  # fmt: skip
    column, threshold = (np.concatenate([tree[i] for tree in trees]) for i in range(2))
    moved = zip(trees, roots, strict=True)
    child = np.concatenate([tree[2] + root * (tree[2] > 0) for tree, root in moved])
    total = counts.sum(axis=1, keepdims=True) + 2
    table = np.column_stack([counts, np.full(len(counts), 2)]) / total
    x_prior = (np.ascontiguousarray(x.T), np.ascontiguousarray(prior.T))
    whole = [one.astype(np.uint32) for one in (roots, column, child, np.arange(child.size))]
    tree_arrays = map(contiguous, (whole[0], whole[1], threshold, *whole[2:]))
    nodes, labels = np.nonzero(table)
    start = np.concatenate([[0], np.cumsum(np.bincount(nodes, minlength=len(table)))])
    listed = (start, labels) if is_listed else (np.empty(0), np.empty(0))
    shares = table[nodes, labels][np.newaxis] if is_listed else table
    leaf_arrays = [contiguous(one.astype(np.uint32)) for one in listed]
    got = np.full((4, 600), 0.5)
    add_forest(*x_prior, *tree_arrays, *leaf_arrays, contiguous(shares), 0.25, got)
    by_hand = np.zeros((600, 4))
    for tree, root in zip(trees, roots, strict=True):
        leaf = counts[root + leaves(new, tree)]
        by_hand += (leaf + 2 * prior) / (leaf.sum(axis=1, keepdims=True) + 2) / 4
    close((got.T - 0.5) / 0.25, by_hand, rtol=1e-12)

"""Forest calibration: label frequencies in the leaves of extremely randomized trees."""

from __future__ import annotations

from functools import cached_property, partial
from typing import NamedTuple, final

import numpy as np

from dubito.arrays import (
    FloatArray,
    IntArray,
    RandomState,
    as_count,
    contiguous,
    draw_seed,
    freeze,
    require_random_state,
)
from dubito.calibrate.affine import MIN_LOG_PROBA, Basis
from dubito.calibrate.calibrator import (
    FLOOR,
    BaseCalibrator,
    ColumnBlock,
    LabeledRows,
    as_penalty,
    drop_unlabeled,
    require_same_classes,
)
from dubito.calibrate.matrix import VectorScaling
from dubito.data.shards import Shards, sample_rows
from dubito.kernels.blocks import map_in_order
from dubito.kernels.nonparametric import add_forest, grow_tree, leaves_of
from dubito.outputs import Logits, Probabilities
from dubito.serialization.array_fields import array, require_each, require_increasing
from dubito.serialization.fields import MAX_FLOAT, Entry, fitted
from dubito.serialization.objects import estimator

MAX_WEIGHT = 1e200  # of a label in a leaf, in a file: sums stay finite
MAX_TABLE = 1 << 22  # probabilities of leaves x classes; of more, only those above 0 are listed
MAX_LABELS = 2**31  # in a leaf, in a file: sums are exact


@final
class ForestCalibration(BaseCalibrator):
    """Average label frequencies over the leaves of extremely randomized trees.

    For miscalibration that no smooth or monotone map can correct, and at least a thousand rows.
    Leaves are smoothed towards vector scaling. The predicted class may change.

    Parameters
    ----------
    n_estimators : int
        Number of trees.
    min_samples_leaf : float
        Minimum weight of a leaf.
    prior_weight : float
        How many rows vector scaling counts as in each leaf.
    max_samples : int
        With more rows, trees are grown on a random sample of this size.
    random_state : int, RandomState or None
        Seed of the sample and the trees.

    Attributes
    ----------
    prior_ : VectorScaling
        What leaves are smoothed towards.
    roots_ : array of int of shape (n_estimators,)
        The first node of each tree.
    column_ : array of int of shape (n_nodes,)
        The feature that each node splits on, -1 for a leaf. The nodes of a tree are listed level by
        level, and those that split have two children each, in the same order.
    threshold_ : array of shape (n_splits,)
        The threshold of each node that splits.
    n_labels_ : array of int of shape (n_nodes,)
        The number of different labels in each leaf.
    labels_, weights_ : array
        The labels in each leaf and their weights.

    References
    ----------
    Geurts, Ernst and Wehenkel, "Extremely randomized trees", Machine Learning, 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito.calibrate import ForestCalibration
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(2000)
    >>> y = (p > 0.3) & (p < 0.8)  # no monotone curve can follow
    >>> ForestCalibration().fit(p, y).predict_proba([0.1, 0.5, 0.9])[:, 1].round(1).tolist()
    [0.0, 1.0, 0.0]
    """

    prior_: VectorScaling = fitted(estimator(VectorScaling))
    roots_: IntArray = fitted(array(None, low=0, high=MAX_FLOAT, is_whole=True))
    column_: IntArray = fitted(array(None, low=-1, high=MAX_FLOAT, is_whole=True))
    threshold_: FloatArray = fitted(array(None, is_empty_allowed=True))
    n_labels_: IntArray = fitted(array("column_", low=0, high=MAX_LABELS, is_whole=True))
    labels_: IntArray = fitted(array(None, low=0, high=MAX_FLOAT, is_whole=True))
    weights_: FloatArray = fitted(array("labels_", low=0, high=MAX_WEIGHT))

    def __init__(
        self,
        n_estimators: int = 12,
        min_samples_leaf: float = 10.0,
        prior_weight: float = 5.0,
        max_samples: int = 20_000,
        random_state: RandomState = 0,
    ):
        self.n_estimators = n_estimators
        self.min_samples_leaf = min_samples_leaf
        self.prior_weight = prior_weight
        self.max_samples = max_samples
        self.random_state = random_state

    def _check_params(self) -> None:
        name = type(self).__name__
        as_count(self.n_estimators, "n_estimators", name, example=12)
        as_count(self.max_samples, "max_samples", name, least=2, example=20_000)
        for argument in ("min_samples_leaf", "prior_weight"):
            as_penalty(getattr(self, argument), argument, name)
        require_random_state(self.random_state, name)

    def _check_fitted(self, entry: Entry) -> None:
        """Raise unless every row reaches a leaf that has labels, whatever its features are."""
        require_same_classes(self, self.prior_, entry.at("prior_"))
        columns, roots, place = self.column_, self.roots_, entry.at("roots_")
        n_nodes = columns.size
        require_increasing(roots, place)
        require_each(roots < n_nodes, roots, place, f"below {n_nodes}, the number of nodes")
        if roots[0] != 0:
            raise place.error("from 0 on", f"{roots[0]}")
        rule = f"below {2 * self.n_classes_}, twice the number of classes"
        require_each(columns < 2 * self.n_classes_, columns, entry.at("column_"), rule)
        n_splits = np.add.reduceat(columns >= 0, roots)
        sizes = np.diff(np.append(roots, n_nodes))
        # Children follow their parent, so that there are no cycles.
        is_inside = (columns < 0) | (self._children() > np.arange(n_nodes))
        is_inside &= np.repeat(sizes == 2 * n_splits + 1, sizes)
        require_each(is_inside, columns, entry.at("column_"), "must have two later nodes per split")
        if self.threshold_.size != n_splits.sum():
            rule = f"{n_splits.sum()} numbers, one per split"
            raise entry.at("threshold_").error(rule, f"{self.threshold_.size}")
        rule = f"below {self.n_classes_}, the number of classes"
        require_each(self.labels_ < self.n_classes_, self.labels_, entry.at("labels_"), rule)
        n_labels = int(self.n_labels_.sum())
        if n_labels != self.labels_.size:
            raise entry.at("n_labels_").error(f"{self.labels_.size} labels in all", f"{n_labels}")
        node_of_label = np.repeat(np.arange(n_nodes), self.n_labels_)
        total = np.bincount(node_of_label, self.weights_, n_nodes)
        is_empty = (columns < 0) & (total + float(self.prior_weight) <= 0)
        if is_empty.any():
            node = int(np.argmax(is_empty))
            raise entry.at("weights_").error("above 0 in each leaf", f"none in node {node}")

    def _learn(self, shards: Shards) -> None:
        self.prior_ = VectorScaling(regularization=1.0, input="log_proba")
        self.prior_.n_classes_, self.prior_.classes_ = self.n_classes_, self.classes_
        self.prior_._is_rough = self._is_rough
        self.prior_._learn(shards)
        seed = draw_seed(self.random_state, type(self).__name__)
        rows = LabeledRows.of(drop_unlabeled(sample_rows(shards, self.max_samples, seed)))
        seeds = np.random.default_rng(seed).integers(0, 2**31, self.n_estimators).tolist()
        places, labels, weight = map(contiguous, rows.label_entries())
        x = Basis(1.0).features(rows.outputs)[places]
        features = contiguous(np.column_stack([x, np.exp(x)]).astype(np.float32))
        columns, least = contiguous(features.T), float(self.min_samples_leaf)
        grow = partial(_grow_tree, features, columns, labels, weight, least)
        trees = list(map_in_order(grow, seeds))
        self.roots_ = np.cumsum([0, *(tree.column.size for tree in trees[:-1])])
        joined = _Tree(*(np.concatenate(parts) for parts in zip(*trees, strict=True)))
        self.column_, self.threshold_, self.n_labels_, self.labels_, self.weights_ = joined

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        mixed = np.zeros(outputs.array.shape[::-1])
        self._add_probabilities(ColumnBlock(outputs), 1.0, mixed)
        return np.log(np.maximum(mixed, FLOOR)).T

    def _add_probabilities(self, block: ColumnBlock, weight: float, mixed: FloatArray) -> None:
        prior = np.zeros(mixed.shape)
        self.prior_._add_probabilities(block, 1.0, prior)
        x = np.maximum(block.log_proba, MIN_LOG_PROBA)
        add_forest(x, prior, *self._nodes_and_leaves, weight, mixed)

    @cached_property
    def _nodes_and_leaves(self) -> tuple[FloatArray | IntArray, ...]:
        """Nodes and leaves as the kernel takes them."""
        is_leaf = self.column_ < 0
        numbers, n_leaves = np.cumsum(is_leaf) - 1, int(is_leaf.sum())
        nodes = np.repeat(np.arange(is_leaf.size), self.n_labels_)
        is_used = is_leaf[nodes]
        # The prior is one more label of each leaf.
        leaves = np.append(numbers[nodes[is_used]], np.arange(n_leaves))
        labels = np.append(self.labels_[is_used], np.full(n_leaves, self.n_classes_))
        prior = np.full(n_leaves, float(self.prior_weight))
        weights = np.append(self.weights_[is_used], prior)
        fractions = weights / np.bincount(leaves, weights)[leaves]
        if n_leaves * self.n_classes_ <= MAX_TABLE:
            table = np.zeros((n_leaves, self.n_classes_ + 1))
            np.add.at(table, (leaves, labels), fractions)
            start, labels = np.empty(0), np.empty(0)
        else:
            order = np.argsort(leaves, kind="stable")
            table, labels = fractions[np.newaxis, order], labels[order]
            start = np.append(0, np.cumsum(np.bincount(leaves)))
        column = np.maximum(self.column_, 0)
        whole = (self.roots_, column, self._children(), numbers, start, labels)
        roots, column, *others = (freeze(one.astype(np.uint32)) for one in whole)
        threshold = np.zeros(is_leaf.size, np.float32)
        threshold[~is_leaf] = self.threshold_
        return roots, column, freeze(threshold), *others, freeze(table)

    def _children(self) -> IntArray:
        """Return the first child of each node, 0 for leaves."""
        is_split = self.column_ >= 0
        n_before: IntArray = np.cumsum(is_split) - is_split
        sizes = np.diff(np.append(self.roots_, is_split.size))
        root = np.repeat(self.roots_, sizes)
        return np.where(is_split, root + 1 + 2 * (n_before - n_before[root]), 0)

    def _describe(self) -> str:
        n_leaves = int((self.column_ < 0).sum()) / self.roots_.size
        return f"{self.roots_.size} trees of about {n_leaves:.0f} leaves, on vector scaling"


class _Tree(NamedTuple):
    """The nodes of a tree, and the labels of its leaves."""

    column: IntArray  # per node, -1 for leaves
    threshold: FloatArray  # per split
    n_labels: IntArray  # per node
    labels: IntArray
    weights: FloatArray


def _grow_tree(
    features: FloatArray,
    columns: FloatArray,
    labels: IntArray,
    weight: FloatArray,
    min_samples_leaf: float,
    seed: int,
) -> _Tree:
    """Grow a tree on rows, whose features are also given as columns, and count leaf labels."""
    size = 2 * labels.size + 1
    column, child = np.zeros(size, np.int64), np.zeros(size, np.int64)
    threshold = np.zeros(size, np.float32)
    n_nodes = grow_tree(columns, labels, weight, min_samples_leaf, seed, column, threshold, child)
    column, threshold, child = column[:n_nodes], threshold[:n_nodes], child[:n_nodes]
    leaves = np.empty(labels.size, np.int64)
    leaves_of(features, 0, column, threshold, child, leaves)
    counts = np.zeros((n_nodes, labels.max() + 1))
    np.add.at(counts, (leaves, labels), weight)
    nodes, classes = np.nonzero(counts)
    n_labels = np.bincount(nodes, minlength=n_nodes)
    is_split = child > 0
    split_column = np.where(is_split, column, -1)
    return _Tree(split_column, threshold[is_split], n_labels, classes, counts[nodes, classes])

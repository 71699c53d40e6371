"""Forest calibration: labels counted among rows whose outputs are alike."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, final

import numpy as np

from dubito.arrays import (
    FloatArray,
    IntArray,
    RandomState,
    contiguous,
    draw_seed,
    freeze,
    require_random_state,
)
from dubito.calibrate.basis import Basis
from dubito.calibrate.calibrator import BaseCalibrator, require_same_classes
from dubito.calibrate.cross_validation import labeled_only
from dubito.calibrate.inputs import FLOOR, LabelledRows, as_penalty
from dubito.calibrate.matrix import VectorScaling
from dubito.data.shards import Shards, sample_rows
from dubito.errors import BadValueError
from dubito.kernels.blocks import map_in_order
from dubito.kernels.softmax import softmax_rows
from dubito.kernels.trees import add_forest, grow_tree, leaves_of
from dubito.outputs import Logits, Probabilities
from dubito.serialization.arrays import array, require_each, require_increasing
from dubito.serialization.fields import MOST, Entry, declare
from dubito.serialization.objects import estimator

HEAVIEST = 1e200  # labels of a leaf; sums of such can be held


class Tree(NamedTuple):
    """The nodes of a tree, and the labels that its leaves counted, leaf by leaf."""

    column: IntArray
    threshold: FloatArray
    child: IntArray
    n_labels: IntArray  # a node
    labels: IntArray
    weights: FloatArray


@final
class ForestCalibration(BaseCalibrator):
    """Count labels among rows whose outputs are alike, as random trees see it.

    For outputs that are wrong in ways no smooth map follows, and a thousand rows or more. Leaves of
    at least `min_samples_leaf` rows are pulled towards vector scaling, as if it had counted `prior_weight` rows
    there. Trees grow on a seeded sample where there are over `max_samples` rows. The predicted class
    may change. Geurts, Ernst and Wehenkel, "Extremely randomized trees", 2006.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(2000)
    >>> y = (p > 0.3) & (p < 0.8)  # no rising curve can follow
    >>> ForestCalibration().fit(p, y).predict_proba([0.1, 0.5, 0.9])[:, 1].round(1).tolist()
    [0.0, 1.0, 0.0]
    """

    prior_: VectorScaling
    roots_: IntArray
    column_: IntArray
    threshold_: FloatArray
    child_: IntArray
    start_: IntArray
    labels_: IntArray
    weights_: FloatArray

    fitted_fields = declare(
        prior_=estimator(VectorScaling),
        roots_=array(None, low=0, high=MOST, is_whole=True),
        column_=array(None, low=0, high=MOST, is_whole=True),
        threshold_=array("column_"),
        child_=array("column_", low=0, high=MOST, is_whole=True),
        start_=array(None, low=0, high=MOST, is_whole=True),
        labels_=array(None, low=0, high=MOST, is_whole=True),
        weights_=array("labels_", low=0, high=HEAVIEST),
    )

    def __init__(
        self,
        n_estimators: int = 30,
        min_samples_leaf: float = 5.0,
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
        for argument, least in {"n_estimators": 1, "max_samples": 2}.items():
            self._require_whole(argument, least)
        for argument in ("min_samples_leaf", "prior_weight"):
            as_penalty(getattr(self, argument), argument, type(self).__name__)
        require_random_state(self.random_state, type(self).__name__)

    def _check_fitted(self, entry: Entry) -> None:
        require_same_classes(self, self.prior_, entry.at("prior_"))
        _require_trees(self, entry)

    def _learn(self, shards: Shards) -> None:
        self.prior_ = VectorScaling(regularization=1.0)
        self.prior_.n_classes_, self.prior_.classes_ = self.n_classes_, self.classes_
        self.prior_._learn(shards)
        seed = draw_seed(self.random_state, type(self).__name__)
        rows = LabelledRows.of(labeled_only(sample_rows(shards, self.max_samples, seed)))
        seeds = np.random.default_rng(seed).integers(0, 2**31, self.n_estimators).tolist()
        grow = partial(_tree_of, Counted.of(rows), float(self.min_samples_leaf))
        self._plant(list(map_in_order(grow, seeds)))

    def _require_whole(self, argument: str, least: int) -> None:
        value = getattr(self, argument)
        is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not (is_whole and value >= least):
            rule, fix = f"a whole number from {least} up", f"{argument}={max(least, 30)}"
            raise BadValueError(argument, type(self).__name__, rule, repr(value), fix)

    def _plant(self, trees: list[Tree]) -> None:
        """Join the nodes of all trees, and what their leaves counted."""
        sizes = [tree.child.size for tree in trees]
        self.roots_ = np.cumsum([0, *sizes[:-1]])
        self.column_ = np.concatenate([tree.column for tree in trees])
        self.threshold_ = np.concatenate([tree.threshold for tree in trees])
        moved = zip(trees, self.roots_, strict=True)
        self.child_ = np.concatenate([tree.child + root * (tree.child > 0) for tree, root in moved])
        counts = np.concatenate([tree.n_labels for tree in trees])
        self.start_ = np.concatenate([[0], np.cumsum(counts)])
        self.labels_ = np.concatenate([tree.labels for tree in trees])
        self.weights_ = np.concatenate([tree.weights for tree in trees])

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        shares = np.empty(outputs.array.shape)
        softmax_rows(contiguous(self.prior_._logits(outputs)), FLOOR, shares)
        nodes = (self.roots_, self.column_, self.threshold_, self.child_, self.start_)
        leaves = (self.labels_, self.weights_)
        add_forest(
            _numbers_of(outputs), *map(freeze, nodes + leaves), float(self.prior_weight), shares
        )
        return np.log(np.maximum(shares, FLOOR))

    def _words(self) -> str:
        n_leaves = int((self.child_ == 0).sum()) / self.roots_.size
        return f"{self.roots_.size} trees of about {n_leaves:.0f} leaves, on vector scaling"


def _require_trees(forest: ForestCalibration, entry: Entry) -> None:
    """Raise unless every row ends at a leaf, wherever it turns, and finds something there."""
    n_nodes, n_labels = forest.child_.size, forest.labels_.size
    roots, start, child = forest.roots_, forest.start_, forest.child_
    place = entry.at("roots_")
    require_increasing(roots, place)
    require_each(roots < n_nodes, roots, place, f"below {n_nodes}, the number of nodes")
    if roots[0] != 0:
        raise place.error("from 0 on", f"{roots[0]}")
    # Children stand after their parent, and in its own tree: no row goes in circles.
    ends = np.append(roots, n_nodes)[np.searchsorted(roots, np.arange(n_nodes), side="right")]
    is_inside = (child == 0) | ((child > np.arange(n_nodes)) & (child + 1 < ends))
    require_each(is_inside, child, entry.at("child_"), "0, or further on in the same tree")
    columns, labels, n_classes = forest.column_, forest.labels_, forest.n_classes_
    rule = f"below {2 * n_classes}, twice the number of classes"
    require_each(columns < 2 * n_classes, columns, entry.at("column_"), rule)
    rule = f"below {n_classes}, the number of classes"
    require_each(labels < n_classes, labels, entry.at("labels_"), rule)
    require_increasing(start, entry.at("start_"), least=-1)
    if (start.size, start[0], start[-1]) != (n_nodes + 1, 0, n_labels):
        rule = f"{n_nodes + 1} numbers from 0 to {n_labels}, the number of labels"
        raise entry.at("start_").error(rule, f"{start.size} from {start[0]} to {start[-1]}")
    node_of = np.repeat(np.arange(n_nodes), np.diff(start))
    counted = np.bincount(node_of, forest.weights_, n_nodes)
    is_empty = (child == 0) & (counted + float(forest.prior_weight) <= 0)
    if is_empty.any():
        node = int(np.argmax(is_empty))
        raise entry.at("weights_").error("above 0 in each leaf", f"none in node {node}")


def _numbers_of(outputs: Logits | Probabilities) -> FloatArray:
    """Return what trees look at: log probabilities, and probabilities."""
    x = Basis(1.0).numbers(outputs)
    return freeze(np.column_stack([x, np.exp(x)]).astype(np.float32))


class Counted(NamedTuple):
    """What trees grow on: numbers, a label and a weight a row, rows again for each soft label."""

    numbers: FloatArray
    codes: IntArray
    weight: FloatArray

    @classmethod
    def of(cls, rows: LabelledRows) -> Counted:
        numbers = _numbers_of(rows.outputs)
        if not rows.soft.shape[0]:
            return cls(numbers, rows.codes, rows.weight)
        shares = rows.weight[:, np.newaxis] * rows.soft
        chosen, codes = np.nonzero(shares)
        return cls(freeze(numbers[chosen]), freeze(codes), freeze(shares[chosen, codes]))


def _tree_of(rows: Counted, min_samples_leaf: float, seed: int) -> Tree:
    """Grow a tree, and count the labels in its leaves."""
    size = 2 * rows.codes.size + 1
    column, child = np.zeros(size, np.int64), np.zeros(size, np.int64)
    threshold = np.zeros(size, np.float32)
    n_nodes = grow_tree(*rows, min_samples_leaf, seed, column, threshold, child)
    column, threshold, child = column[:n_nodes], threshold[:n_nodes], child[:n_nodes]
    leaves = np.empty(rows.codes.size, np.int64)
    leaves_of(rows.numbers, 0, column, threshold, child, leaves)
    counts = np.zeros((n_nodes, rows.codes.max() + 1))
    np.add.at(counts, (leaves, rows.codes), rows.weight)
    nodes, labels = np.nonzero(counts)
    n_labels = np.bincount(nodes, minlength=n_nodes)
    return Tree(column, threshold, child, n_labels, labels, counts[nodes, labels])

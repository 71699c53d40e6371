"""Conformal prediction sets for classification."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, Self, final

import numpy as np

from dubito.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    RandomState,
    as_count,
    as_fraction,
    as_number,
    contiguous,
    draw_seed,
    freeze,
    require_bool,
    require_choice,
    require_random_state,
)
from dubito.data.batch import Batch
from dubito.data.labels import Labels, names_of
from dubito.data.shards import ArrayShards, Shards, load_rows
from dubito.doubt.conformal.predictor import (
    BaseConformalPredictor,
    class_probabilities,
    rows_needed,
)
from dubito.errors import BadTypeError, BadValueError, DubitoWarning, EmptyStateError
from dubito.formatting import (
    HTMLTable,
    html_rows,
    html_view,
    join_words,
    percent,
    quantity,
    short_percent,
)
from dubito.kernels.blocks import row_blocks, run_in_order
from dubito.kernels.sets import fill_sets, hash_factors, row_uniforms, score_labels
from dubito.measure.state import warn_of_missing
from dubito.outputs import (
    ClassName,
    Logits,
    Probabilities,
    as_class_matrix,
    require_classes,
    unchecked,
)
from dubito.serialization.fields import (
    Entry,
    boolean,
    class_names,
    fitted,
    integer,
    list_of,
    number,
    one_of,
    optional,
    text,
)
from dubito.serialization.objects import clone

Method = Literal["lac", "aps", "raps", "saps"]

METHODS: tuple[Method, ...] = ("lac", "aps", "raps", "saps")  # in the order of the kernels
TUNED: tuple[Method, ...] = ("raps", "saps")
SAPS_PENALTIES = (0.025, 0.035, 0.05, 0.07, 0.1, 0.14, 0.2, 0.28)
RAPS_PENALTIES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
MIN_TUNED, MAX_TUNING = 100, 1000  # rows from which penalties are tuned, and the most used for it
TUNING_FRACTION = 0.3  # of the calibration rows
MIN_STRATUM, EVEN = 0.025, 0.02  # the rows of a stratum, and the coverage that counts as even
MIN_ROWS, N_SIMULATED = 50, 1000  # of a stratum in a diagnosis, and draws of what chance explains
N_UNIFORMS = 4  # per row where penalties are tuned


@final
class ConformalClassifier(BaseConformalPredictor):
    """Prediction sets that contain the true class with probability at least `level`.

    The guarantee holds for any model and any number of calibration rows, if these were not
    trained on and are exchangeable with new rows.

    Parameters
    ----------
    level : float, default=0.9
        The coverage, above 0 and below 1.
    method : {"lac", "aps", "raps", "saps"}, default="lac"
        How classes are scored. "lac", by 1 - probability, gives the smallest sets on average, but
        covers difficult rows too rarely. "aps" scores a class by the total probability of more
        probable classes, and adapts to difficult rows. "raps" adds a penalty per rank beyond
        `k_reg`; "saps" uses the largest probability and the rank only. Both have smaller sets
        than randomized "aps".
    randomize : bool, optional
        Count a random part of a class's own probability (or rank), for exact coverage. By default
        True for "raps" and "saps". Without it the most probable class has the lowest possible
        score, so that no set is empty. The random number depends on the row's outputs and
        `random_state` only: a row has the same set alone and in a batch.
    allow_empty : bool, optional
        If False, every set holds the most probable class, and the threshold is fitted accordingly:
        coverage stays exact unless the model is more accurate than `level`. By default True for
        "lac" and "aps"; "aps" has empty sets only if randomized.
    random_state : int, RandomState or None, default=0
        The seed of the randomization, and of splits of the calibration rows.
    conditional : {None, "class", "cluster"}, default=None
        None guarantees coverage on average over all classes; "class" for the rows of each class,
        with one threshold per class; "cluster" for clusters of classes with similar scores, where
        classes have too few rows for a threshold each. Clusters are found on a part of the
        calibration rows. Classes too rare to be clustered share a threshold ("rare classes"), or,
        if they have few rows together, that of the largest cluster.
    penalty : float, optional
        The penalty per rank, lambda of RAPS or SAPS. By default it is tuned, with `k_reg`, on a
        part of the calibration rows (the threshold is fitted on the others, so that coverage stays
        exact): the smallest sets whose coverage does not depend on their size. With fewer than
        100 rows, 0.01 (RAPS) or 0.1 (SAPS).
    k_reg : int, optional
        For RAPS, the number of ranks without penalty; tuned like `penalty`, otherwise 5.

    Attributes
    ----------
    thresholds_ : dict
        The threshold by group: "all" without groups, by class or cluster if `conditional`; None if
        there are too few rows. It is on the scale of the score: log odds for LAC and APS, the score
        for SAPS, and the score minus 1 for RAPS, which keeps its digits. With a density ratio, that
        of a row with the mean ratio.
    n_rows_ : dict
        The number (or weight) of rows that each threshold is fitted on; their effective number with
        a density ratio.
    is_grouped_ : bool
        Whether the fit had groups.
    level_, weighted_scores_ : float, dict or None
        The level of the fit; scores and weights by group, if it had a density ratio.
    n_classes_, classes_ : int, tuple or None
        The number of classes, and their names if they have any.
    method_, is_randomized_, random_state_ : str, bool, int
        The settings of the fit, with the seed drawn.
    allow_empty_ : bool
        Whether sets may be empty.
    penalty_, k_reg_ : float
        Those of RAPS or SAPS, given or tuned; 0 for other methods.
    class_groups_ : list of str or None
        The key of each class in `thresholds_`, if `conditional`.

    References
    ----------
    Vovk, Gammerman and Shafer, "Algorithmic learning in a random world", 2005; Sadinle, Lei and
    Wasserman, "Least ambiguous set-valued classifiers with bounded error levels", 2019 (LAC);
    Romano, Sesia and Candès, "Classification with valid and adaptive coverage", 2020 (APS);
    Angelopoulos, Bates, Malik and Jordan, "Uncertainty sets for image classifiers using conformal
    prediction", 2021 (RAPS); Huang et al., "Conformal prediction for deep classifier via label
    ranking", 2024 (SAPS); Ding et al., "Class-conditional conformal prediction with many classes",
    2023 (clusters).

    Examples
    --------
    >>> from dubito import ConformalClassifier
    >>> p = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]]
    >>> sets = ConformalClassifier(level=0.8).fit(p, [0, 0, 0, 0]).predict([[0.9, 0.1], [0.6, 0.4]])
    >>> sets.sizes.tolist(), sets.names(0), sets.names(1)
    ([1, 2], [0], [0, 1])
    """

    n_classes_: int = fitted(integer(2))
    classes_: tuple[ClassName, ...] | None = fitted(class_names("n_classes_"))
    method_: Method = fitted(one_of(*METHODS))
    is_randomized_: bool = fitted(boolean)
    allow_empty_: bool = fitted(boolean)
    random_state_: int = fitted(integer(0, 2**32 - 1))
    penalty_: float = fitted(number(0))
    k_reg_: float = fitted(number(0))
    class_groups_: list[str] | None = fitted(optional(list_of(text, "n_classes_")))

    unbounded = "sets contain every class"

    @property
    def _more_rows(self) -> str:
        if self.conditional == "class":
            return " of each class, or conditional='cluster'"
        return super()._more_rows

    _clusters: list[str] | None = None  # of a copy that scores the rows of a fit

    def __init__(
        self,
        level: float = 0.9,
        method: Method = "lac",
        randomize: bool | None = None,
        allow_empty: bool | None = None,
        random_state: RandomState = 0,
        conditional: Literal["class", "cluster"] | None = None,
        penalty: float | None = None,
        k_reg: int | None = None,
    ) -> None:
        self.level = level
        self.method = method
        self.randomize = randomize
        self.allow_empty = allow_empty
        self.random_state = random_state
        self.conditional = conditional
        self.penalty = penalty
        self.k_reg = k_reg

    def predict(
        self, outputs: Any, groups: Any = None, density_ratio: Any = None
    ) -> PredictionSets:
        """Return the prediction set of each row.

        Parameters
        ----------
        outputs : Logits, Probabilities, Members or array-like of shape (n_rows, n_classes)
            Outputs over the classes of the fit.
        groups : array-like of shape (n_rows,), optional
            The group of each row, if the fit had groups.
        density_ratio : array-like of shape (n_rows,), optional
            The density ratio of each row, if the fit had it.

        Returns
        -------
        PredictionSets
            The sets; they hold every class if there were too few calibration rows.
        """
        caller = self._require_fitted("predict")
        wrapped = self._as_outputs(outputs, caller)
        require_classes(wrapped, self.n_classes_, self.classes_, caller)
        limits, group = self._limits(groups, wrapped.n_rows, density_ratio, caller)
        contains = np.empty(wrapped.array.shape, dtype=bool)
        code, settings = METHODS.index(self.method_), np.array([self.penalty_, self.k_reg_])

        def fill(rows: slice) -> None:
            part = wrapped.take(rows)
            uniforms = _uniforms(part, self.is_randomized_, self.random_state_)
            fill_sets(
                contiguous(part.array),
                isinstance(part, Logits),
                code,
                settings,
                uniforms,
                limits if len(limits) == 1 else limits[rows],
                group,
                not self.allow_empty_,
                contains[rows],
            )

        run_in_order(fill, row_blocks(wrapped.n_rows, wrapped.n_classes))
        return PredictionSets(freeze(contains), self.classes_, self.level_)

    def _limits(
        self, groups: Any, n_rows: int, density_ratio: Any, caller: str
    ) -> tuple[FloatArray, IntArray]:
        """Return thresholds, one row for all or one per row, and the column of each class."""
        if self.class_groups_ is None:
            limits = self._row_thresholds(groups, n_rows, caller, density_ratio)
            is_same = not self.is_grouped_ and density_ratio is None
            column = np.zeros(self.n_classes_, dtype=np.int64)
            return np.ascontiguousarray(limits[: 1 if is_same else None, np.newaxis]), column
        _require_no_groups(groups, caller)
        ratio = self._ratio_of_rows(density_ratio, n_rows, caller)
        names = list(self.thresholds_)
        columns = [self._thresholds_of(name, ratio, slice(None)) for name in names]
        limits = np.stack([np.broadcast_to(one, 1 if ratio is None else n_rows) for one in columns])
        if ratio is not None:
            self._warn_of_large_ratios(np.isinf(limits).any(axis=0), stacklevel=4)
        position = {name: i for i, name in enumerate(names)}
        return np.ascontiguousarray(limits.T), np.array([position[g] for g in self.class_groups_])

    @property
    def _is_randomized(self) -> bool:
        """Whether scores are randomized; those of LAC cannot be."""
        is_wanted = self.method in TUNED if self.randomize is None else bool(self.randomize)
        return is_wanted and self.method != "lac"

    @property
    def _may_be_empty(self) -> bool:
        """Whether sets may be empty, by default those of LAC and APS."""
        return self.method not in TUNED if self.allow_empty is None else bool(self.allow_empty)

    def _check_params(self) -> None:
        super()._check_params()
        name = type(self).__name__
        require_choice(self.method, METHODS, "method", name)
        for option in ("randomize", "allow_empty"):
            if getattr(self, option) is not None:
                require_bool(getattr(self, option), option, name)
        require_random_state(self.random_state, name)
        if self.conditional is not None:
            require_choice(self.conditional, ("class", "cluster"), "conditional", name)
        unused = {"lac": ("randomize", "penalty", "k_reg"), "aps": ("penalty", "k_reg")}
        for option in unused.get(self.method, ("k_reg",) if self.method == "saps" else ()):
            value = getattr(self, option)
            if value not in (None, False):
                rule = f"cannot be used with method={self.method!r}"
                raise BadValueError(option, name, rule, f"{value}", f"Leave out {option}")
        if self.penalty is not None:
            as_number(self.penalty, "penalty", name, 0, fix="Use penalty=None to tune it")
        if self.k_reg is not None:
            as_count(self.k_reg, "k_reg", name, 0, example=5)

    def _check_groups(self, entry: Entry) -> None:
        if self.class_groups_ is None:
            super()._check_groups(entry)
        elif self.is_grouped_ or not {*self.class_groups_} <= {*self.thresholds_}:
            raise entry.at("class_groups_").error("of the keys of thresholds_", "others")

    def _prepare(
        self, shards: Shards, ratio: FloatArray | None
    ) -> tuple[Self, Shards, FloatArray | None]:
        name = type(self).__name__
        scorer: Self = clone(self)
        scorer.random_state = seed = draw_seed(self.random_state, name)
        scorer.randomize = self._is_randomized
        is_open = self.penalty is None or (self.method == "raps" and self.k_reg is None)
        is_tuned = self.method in TUNED and is_open
        if not is_tuned and self.conditional != "cluster":
            return scorer, shards, ratio
        batch = load_rows(shards, seed=seed)
        batch = replace(batch, outputs=self._as_outputs(batch.outputs, name))
        self._facts(batch)
        rng = np.random.default_rng(seed)
        if is_tuned:
            n_rows = int(np.count_nonzero(batch.labeled_weight))
            n_tuning = min(int(n_rows * TUNING_FRACTION), MAX_TUNING) if n_rows >= MIN_TUNED else 0
            part, rest = _split_rows(batch, n_tuning, rng)
            scorer.penalty, scorer.k_reg = _tune(self, batch.take(part), seed)
            batch, ratio = batch.take(rest), None if ratio is None else ratio[rest]
        if self.conditional == "cluster":
            scores = scorer._all_scores(batch)
            part, scorer._clusters = _cluster_classes(scores, batch, self.level, rng)
            rest = np.setdiff1d(np.arange(len(batch)), part)
            batch, ratio = batch.take(rest), None if ratio is None else ratio[rest]
        return scorer, ArrayShards(batch), ratio

    def _as_outputs(self, outputs: Any, caller: str) -> Logits | Probabilities:
        fix = "Pass probabilities of all classes, or use ConformalRegressor for regression"
        return as_class_matrix(outputs, "outputs", caller, fix)

    def _facts(self, batch: Batch) -> dict[str, Any]:
        name = type(self).__name__
        outputs = self._as_outputs(batch.outputs, name)
        _require_labels(batch.labels, name)
        if self.conditional is not None:
            _require_no_groups(batch.groups, name)
        groups = [str(one) for one in names_of(outputs)] if self.conditional == "class" else None
        return {
            "n_classes_": outputs.n_classes,
            "classes_": outputs.classes,
            "method_": self.method,
            "is_randomized_": self._is_randomized,
            "allow_empty_": self._may_be_empty,
            "random_state_": draw_seed(self.random_state, name),
            "penalty_": float(self.penalty or 0) if self.method in TUNED else 0.0,
            "k_reg_": float(self.k_reg or 0) if self.method == "raps" else 0.0,
            "class_groups_": groups if self._clusters is None else self._clusters,
        }

    def _row_groups(self, batch: Batch) -> tuple[list[str], IntArray]:
        groups = self._facts(batch)["class_groups_"]
        if groups is None:
            return super()._row_groups(batch)
        names = list(dict.fromkeys(groups))
        position = {name: i for i, name in enumerate(names)}
        of_class = np.array([position[name] for name in groups])
        return names, of_class[np.maximum(batch.class_labels.codes, 0)]

    def _scores(self, batch: Batch) -> FloatArray:
        name = type(self).__name__
        outputs, seed = self._as_outputs(batch.outputs, name), draw_seed(self.random_state, name)
        uniforms = _uniforms(outputs, self._is_randomized, seed)
        scores = np.empty(outputs.n_rows)
        score_labels(
            contiguous(outputs.array),
            np.maximum(batch.class_labels.codes, 0),
            isinstance(outputs, Logits),
            METHODS.index(self.method),
            np.array([self.penalty or 0.0, self.k_reg or 0.0]),
            uniforms,
            not self._may_be_empty,
            scores,
        )
        return scores


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PredictionSets:
    """A set of classes per row.

    Attributes
    ----------
    contains : ndarray of bool, shape (n_rows, n_classes)
        Whether each class is in the set.
    classes : tuple or None
        The names of the classes.
    level : float or None
        The coverage that the sets were made for.
    thresholds : ndarray of shape (n_rows,) or None
        For `OnlineConformal`: the largest -log p in each set, infinite before the first correction.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito.doubt import PredictionSets
    >>> sets = PredictionSets(np.array([[True, False], [True, True]]), ("cat", "dog"))
    >>> sets.sizes.tolist(), sets.names(1), sets.coverage(["cat", "dog"])
    ([1, 2], ['cat', 'dog'], 1.0)
    """

    contains: BoolArray
    classes: tuple[ClassName, ...] | None = None
    level: float | None = None
    thresholds: FloatArray | None = None

    def __repr__(self) -> str:
        n_rows, n_classes = self.contains.shape
        size = f", mean size {self.sizes.mean():.3g}" if n_rows else ""
        return f"PredictionSets({n_rows} rows x {n_classes} classes{size})"

    def _repr_html_(self) -> str:
        n_rows, sizes = len(self.contains), np.bincount(self.sizes, minlength=1)
        level = "" if self.level is None else f" at {short_percent(self.level)}"
        verdict = f"Prediction sets{level} of {quantity(n_rows)}"
        verdict += f": {self.sizes.mean():.3g} classes on average." if n_rows else "."
        counted = [(size, n) for size, n in enumerate(sizes.tolist()) if n]
        counts = [(f"{size}", f"{n:,}", percent(n / n_rows)) for size, n in counted]
        shown = [join_words([str(one) for one in self.names(k)], 8) for k in range(min(n_rows, 10))]
        rows = html_rows({"set": np.array(shown, dtype=object)}, n_rows)
        return html_view(verdict, HTMLTable(("size", "rows", ""), counts), rows)

    @property
    def sizes(self) -> IntArray:
        """The number of classes in each set."""
        return np.asarray(np.count_nonzero(self.contains, axis=1))

    def names(self, row: int) -> list[ClassName]:
        """Return the classes in a row's set.

        Parameters
        ----------
        row : int
            The row.

        Returns
        -------
        list
            Names, or column indices if classes have no names.
        """
        return [self._class_names[column] for column in np.flatnonzero(self.contains[row])]

    def coverage(self, y: Any) -> float:
        """Return the fraction of rows whose label is in their set.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            The true labels. Rows where it is missing are ignored with a warning.

        Returns
        -------
        float
            The empirical coverage.
        """
        is_covered, _ = self._covered(y, "PredictionSets.coverage")
        return float(is_covered.mean())

    def diagnose(
        self, y: Any, level: float | None = None, min_rows: int = MIN_ROWS
    ) -> SetDiagnosis:
        """Return whether coverage depends on the size of the set or on the class.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            The true labels. Rows where it is missing are ignored with a warning.
        level : float, optional
            The coverage that is compared with, by default that of the fit.
        min_rows : int, default=50
            Sizes with fewer rows are left out. Classes are not, as their number is known.

        Returns
        -------
        SetDiagnosis
            Size-stratified and class-conditional coverage, beside what chance explains.

        Examples
        --------
        >>> import numpy as np
        >>> from dubito import ConformalClassifier
        >>> p = np.tile([[0.7, 0.2, 0.1]], (90, 1))
        >>> y = [0] * 63 + [1] * 18 + [2] * 9
        >>> ConformalClassifier(0.8).fit(p, y).predict(p).diagnose(y)
        90 rows: coverage 90.0 % (level 80.0 %), mean size 2.
        By size: off by up to 10.0 points (by chance 3.3, p=0.025); size 2: 90.0 % of 90 rows.
        By class: off by 40.0 points on average (by chance 7.5, p=0.001); class 2: 0.0 % of 9 rows.
        """
        caller = "PredictionSets.diagnose"
        is_covered, codes = self._covered(y, caller)
        if level is None and self.level is None:
            fix = "Pass level=0.9"
            raise BadTypeError("level", caller, "must be given for these sets", "None", fix)
        nominal = as_fraction(self.level if level is None else level, "level", caller, is_open=True)
        as_count(min_rows, "min_rows", caller)
        known = self.sizes[codes >= 0]
        by_size = CoverageTable.of(known, is_covered, nominal, min_rows, np.max)
        by_class = CoverageTable.of(codes[codes >= 0], is_covered, nominal, 1, np.mean)
        means = float(is_covered.mean()), float(known.mean())
        return SetDiagnosis(nominal, *means, by_size, by_class, self._class_names)

    def _covered(self, y: Any, caller: str) -> tuple[BoolArray, IntArray]:
        """Return whether each labeled row is covered, and the labels of all rows, -1 if missing."""
        labels = _require_labels(Labels.of(y, self._columns(), "y", caller), caller)
        warn_of_missing(labels.n_missing, labels.codes.size, caller, stacklevel=4)
        is_known = ~labels.is_missing
        if not is_known.any():
            raise EmptyStateError("Coverage")
        return self.contains[is_known, labels.codes[is_known]], np.where(is_known, labels.codes, -1)

    @property
    def _class_names(self) -> tuple[ClassName, ...]:
        """The names of the classes, or their column numbers."""
        return names_of(self._columns())

    def _columns(self) -> Probabilities:
        """Return outputs of the same shape and classes, against which labels are read."""
        blank = np.broadcast_to(np.float32(1), self.contains.shape)
        return unchecked(Probabilities, {"array": blank, "classes": self.classes})


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CoverageTable:
    """Coverage by stratum (size of the set, or class), and how far it is from the level.

    Attributes
    ----------
    strata, n_rows, coverage : ndarray
        The size or the column of the class, the number of its rows and their coverage.
    deviation : float
        Over strata, the maximum (sizes) or mean (classes) of the distance from the level.
    by_chance : float
        What is expected of it if every row is covered with the probability `level`.
    p_value : float
        How often chance alone gives at least the deviation, in 1,000 simulations.
    """

    strata: IntArray
    n_rows: IntArray
    coverage: FloatArray
    deviation: float
    by_chance: float
    p_value: float

    @classmethod
    def of(
        cls, values: IntArray, is_covered: BoolArray, level: float, min_rows: int, summarize: Any
    ) -> CoverageTable:
        """Return the table over strata of enough rows, of the largest one if none has."""
        strata, position, n_rows = np.unique(values, return_inverse=True, return_counts=True)
        coverage = np.bincount(position, is_covered) / n_rows
        is_large = n_rows >= min(min_rows, n_rows.max())
        strata, n_rows, coverage = strata[is_large], n_rows[is_large], coverage[is_large]
        deviation = float(summarize(np.abs(coverage - level)))
        drawn = np.random.default_rng(0).binomial(n_rows, level, (N_SIMULATED, n_rows.size))
        simulated = summarize(np.abs(drawn / n_rows - level), axis=1)
        p_value = (np.count_nonzero(simulated >= deviation - 1e-12) + 1) / (N_SIMULATED + 1)
        return cls(strata, n_rows, coverage, deviation, float(simulated.mean()), float(p_value))

    def __repr__(self) -> str:
        n = self.strata.size
        figures = f"deviation {self.deviation:.3f}, by chance {self.by_chance:.3f}"
        return f"CoverageTable({n} strata, {figures})"

    def worst(self, level: float) -> int:
        """Return the position of the stratum whose coverage is furthest from a level."""
        return int(np.argmax(np.abs(self.coverage - level)))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SetDiagnosis:
    """Coverage of prediction sets by their size and by class, beside what chance explains.

    Attributes
    ----------
    level, coverage, mean_size : float
        The coverage that was asked for and that was found, and the mean size of the sets.
    by_size, by_class : CoverageTable
        Size-stratified coverage, whose deviation is the size-stratified coverage violation (SSCV),
        and class-conditional coverage, whose deviation is the class gap (CovGap).
    class_names : tuple
        The names of the classes.

    References
    ----------
    Angelopoulos, Bates, Malik and Jordan, "Uncertainty sets for image classifiers using conformal
    prediction", 2021; Ding et al., "Class-conditional conformal prediction with many classes",
    2023.
    """

    level: float
    coverage: float
    mean_size: float
    by_size: CoverageTable
    by_class: CoverageTable
    class_names: tuple[ClassName, ...]

    def _repr_html_(self) -> str:
        return html_view(*repr(self).split("\n", 1))

    def __repr__(self) -> str:
        n_rows = int(self.by_class.n_rows.sum())
        lines = [
            f"{n_rows:,} rows: coverage {percent(self.coverage)} (level {percent(self.level)}), "
            f"mean size {self.mean_size:.3g}."
        ]
        largest = f"up to {100 * self.by_size.deviation:.1f} points"
        average = f"{100 * self.by_class.deviation:.1f} points on average"
        tables = ("size", largest, self.by_size), ("class", average, self.by_class)
        for what, off, table in tables:
            at = table.worst(self.level)
            code = int(table.strata[at])
            shown = self.class_names[code] if what == "class" else code
            lines.append(
                f"By {what}: off by {off} (by chance {100 * table.by_chance:.1f}, "
                f"p={table.p_value:.3f}); {what} {shown}: "
                f"{percent(table.coverage[at])} of {quantity(int(table.n_rows[at]))}."
            )
        return "\n".join(lines)


def _require_labels(labels: Any, caller: str) -> Labels:
    """Return labels with one class per row, or raise."""
    if not isinstance(labels, Labels):
        fix = "Pass y, or shards with a label column"
        raise BadTypeError("y", caller, "must hold the labels", "None", fix)
    if labels.probabilities is not None:
        rule, fix = "must hold one label per row", "Use the most probable class of each row"
        raise BadValueError("y", caller, rule, "label probabilities", fix)
    return labels


def _require_no_groups(groups: Any, caller: str) -> None:
    """Raise if there are groups beside thresholds by class."""
    if groups is not None:
        rule, fix = "must be None if `conditional` is set", "Use either groups or conditional"
        raise BadTypeError("groups", caller, rule, "groups", fix)


def _uniforms(outputs: Logits | Probabilities, is_randomized: bool, seed: int) -> FloatArray:
    """Return a pseudorandom number from 0 to 1 per row, determined by its entries and the seed.

    The score of a row is then a function of the row alone: the guarantee needs exchangeable rows
    only, and a row has the same set alone and in a batch. All are 0 without randomization.
    """
    uniforms = np.zeros(outputs.n_rows)
    if is_randomized:
        factors = hash_factors(outputs.n_classes, seed)
        row_uniforms(contiguous(outputs.array), isinstance(outputs, Logits), factors, uniforms)
    return uniforms


def _split_rows(batch: Batch, n_rows: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Return a random choice of labeled rows, and all others."""
    part = np.sort(rng.choice(np.flatnonzero(batch.labeled_weight), n_rows, replace=False))
    return part, np.setdiff1d(np.arange(len(batch)), part)


def _cluster_classes(
    scores: FloatArray, batch: Batch, level: float, rng: np.random.Generator
) -> tuple[IntArray, list[str]]:
    """Return rows by which classes were clustered, and the name of each class's cluster.

    Classes are embedded by quantiles of their scores. The number of clusters and the fraction of
    the rows are those of Ding et al.; classes with too few rows for a quantile are one cluster.
    """
    from sklearn.cluster import KMeans

    codes = batch.class_labels.codes
    n_classes = as_class_matrix(batch.outputs, "outputs", "ConformalClassifier").n_classes
    counts = np.bincount(codes[batch.labeled_weight > 0], minlength=n_classes)
    needed = rows_needed(max(level, 0.9))
    n_least = max(int(counts.min()), needed)
    n_frequent = np.count_nonzero(counts >= n_least)
    n_chosen = n_least * n_frequent // (75 + n_frequent)
    part, _ = _split_rows(batch, int(counts.sum() * n_chosen / n_least), rng)
    counts = np.bincount(codes[part], minlength=n_classes)
    frequent = np.flatnonzero(counts >= needed)
    n_clusters = n_chosen // 2
    if n_clusters < 2 or frequent.size <= n_clusters:
        return part[:0], ["cluster 0"] * n_classes
    levels = np.unique([0.5, 0.6, 0.7, 0.8, 0.9, level])
    embedded = [np.quantile(scores[part][codes[part] == k], levels) for k in frequent]
    means = KMeans(n_clusters, n_init=10, random_state=int(rng.integers(2**32)))
    cluster = np.full(n_classes, -1)
    cluster[frequent] = means.fit(embedded, sample_weight=np.sqrt(counts[frequent])).labels_
    rows = np.bincount(cluster + 1, counts, n_clusters + 1)
    if rows[0] < 2 * needed:
        cluster[cluster < 0] = int(np.argmax(rows[1:]))
    n_rare = int(np.count_nonzero(cluster < 0))
    if 2 * n_rare > n_classes:
        text = (
            f"ConformalClassifier: {n_rare:,} of {n_classes:,} classes are too rare to be "
            "clustered and share a threshold. Use conditional=None, or more rows per class."
        )
        warnings.warn(text, DubitoWarning, stacklevel=4)
    return part, ["rare classes" if one < 0 else f"cluster {one}" for one in cluster.tolist()]


def _tune(sets: ConformalClassifier, batch: Batch, seed: int) -> tuple[float, int]:
    """Return the penalty and `k_reg` that give the smallest sets among those of even coverage.

    On the given rows, at the threshold that covers `level` of them, coverage is compared over the
    sizes of sets that at least 2.5 % of the rows have. Settings whose largest deviation from the
    level is within 0.02 of the lowest count as even. Each row counts with several uniform numbers.
    """
    penalties: tuple[float, ...] = RAPS_PENALTIES if sets.method == "raps" else SAPS_PENALTIES
    if sets.penalty is not None:
        penalties = (float(sets.penalty),)
    free_ranks = (1, 2, 3, 5, 8) if sets.method == "raps" else (0,)
    if sets.k_reg is not None:
        free_ranks = (int(sets.k_reg),)
    if not len(batch):
        default = 0.01 if sets.method == "raps" else 0.1
        return (default if sets.penalty is None else sets.penalty), sets.k_reg or 5
    ranked = _RankedRows.of(batch, sets._is_randomized, seed)
    found = [
        (*ranked.evaluate(sets, penalty, k_reg), penalty, k_reg)
        for penalty, k_reg in product(penalties, free_ranks)
    ]
    lowest = min(deviation for deviation, *_ in found)
    return min(one[1:] for one in found if one[0] <= lowest + EVEN)[1:]


@final
@dataclass(frozen=True, slots=True, eq=False)
class _RankedRows:
    """Probabilities of some rows in descending order, their running sums, and ranks of labels."""

    p: FloatArray
    before: FloatArray
    rank: IntArray  # from 1
    uniforms: FloatArray

    @classmethod
    def of(cls, batch: Batch, is_randomized: bool, seed: int) -> _RankedRows:
        """Rank the classes of a batch, for several uniform numbers per row."""
        outputs = as_class_matrix(batch.outputs, "outputs", "ConformalClassifier")
        y = batch.class_labels.codes[:, np.newaxis]
        p = class_probabilities(outputs)
        own = np.take_along_axis(p, y, axis=1)
        is_before = (p > own) | ((p == own) & (np.arange(p.shape[1]) < y))
        ranked = -np.sort(-p, axis=1)
        before = np.cumsum(ranked, axis=1) - ranked
        first = _uniforms(outputs, is_randomized, seed)
        steps = np.arange(N_UNIFORMS) / N_UNIFORMS if is_randomized else np.zeros(1)
        return cls(ranked, before, is_before.sum(axis=1) + 1, (first + steps[:, np.newaxis]) % 1)

    def evaluate(
        self, sets: ConformalClassifier, penalty: float, k_reg: int
    ) -> tuple[float, float]:
        """Return how much coverage deviates over the sizes of sets, and their mean size."""
        is_filled = not sets._may_be_empty
        ranks = np.broadcast_to(self.rank, self.uniforms.shape)
        scores = self._scores(sets.method, ranks, penalty, k_reg)
        scores = np.where(is_filled & (self.rank == 1), -np.inf, scores)
        limit = np.quantile(scores, sets.level, method="inverted_cdf")
        # Scores grow with the rank: a binary search for the last rank in the set.
        low = np.zeros(self.uniforms.shape, dtype=np.int64)
        high = np.full(self.uniforms.shape, self.p.shape[1])
        while (low < high).any():
            middle = (low + high + 1) // 2
            is_in = self._scores(sets.method, middle, penalty, k_reg) <= limit
            low, high = np.where(is_in, middle, low), np.where(is_in, high, middle - 1)
        size = np.maximum(low, 1) if is_filled else low
        count = np.bincount(size.ravel())
        covered = np.bincount(size.ravel(), (scores <= limit).ravel())
        is_stratum = count >= min(MIN_STRATUM * size.size, count.max())
        deviation = np.abs(covered[is_stratum] / count[is_stratum] - sets.level)
        return float(deviation.max()), float(size.mean())

    def _scores(self, method: Method, rank: IntArray, penalty: float, k_reg: int) -> FloatArray:
        """Return the score of the class of a rank in each row, for each uniform number."""
        rows, u = np.arange(len(self.p)), self.uniforms
        if method == "saps":
            top = self.p[:, 0]
            return np.asarray(np.where(rank == 1, u * top, top + (rank - 2 + u) * penalty))
        own, before = self.p[rows, rank - 1], self.before[rows, rank - 1]
        return np.asarray(before + u * own + penalty * np.maximum(rank - k_reg, 0))

"""The sums of every metric in an audit, computed in one pass over the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Annotated, Self, final

import numpy as np

from dubito.arrays import FloatArray, IntArray, freeze
from dubito.data.batch import Batch, require_labels
from dubito.data.shards import Shards
from dubito.kernels.bins import N_MOMENTS, moment_sums
from dubito.measure.binary import THRESHOLD, bins_of, rank_positives
from dubito.measure.calibration_error import (
    ClasswiseCalibrationState,
    ReliabilityState,
    debiased_error,
    uniform_edges,
)
from dubito.measure.calibration_test import CalibrationTestState, SmoothCalibrationErrorState
from dubito.measure.detection import RankingState
from dubito.measure.groups import DecidesRows, DecisionState
from dubito.measure.intervals import resampled_sums
from dubito.measure.proper_scores import ProperScoresState
from dubito.measure.state import (
    GroupedState,
    State,
    edges_field,
    per_bin,
    require_weight,
    rows_of_groups,
)
from dubito.outputs import BaseClassOutputs, ClassName, TopLabel
from dubito.serialization.fields import class_names, optional
from dubito.serialization.objects import record_of, stores_fields

NOTHING = RankingState(np.empty(0), np.empty(0), np.empty(0))
MAX_POISSON = 1e15  # above, a Poisson number is as good as normal


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class AuditState(State):
    """Sums of every metric in an audit; `by_class` is None for `TopLabel` outputs.

    `positive` ranks the rows by the probability of the positive class, if there is one.

    Adding two states pools their rows: use it to audit data that arrives in parts.

    Attributes
    ----------
    scores : ProperScoresState
        Accuracy, confidence, log loss, Brier score, entropy and sharpness.
    reliability : ReliabilityState
        Bins of the confidence.
    test : CalibrationTestState
        The calibration test.
    ranked : RankingState
        Rows by least confidence, and the errors among them.
    smooth : SmoothCalibrationErrorState
        Calibration error without bins.
    by_class : ClasswiseCalibrationState or None
        Bins of each class.
    positive : RankingState or None
        Rows by the probability of the positive class.
    classes : tuple of str or number, or None
        Class names, if the outputs have any.

    Examples
    --------
    >>> from dubito.measure import AuditState
    >>> from dubito.data import Batch
    >>> state = AuditState.of(Batch.of([0], [0.1])) + AuditState.of(Batch.of([1], [0.8]))
    >>> state.value.scores.value.accuracy
    1.0
    """

    scores: Annotated[ProperScoresState, record_of(ProperScoresState)]
    reliability: Annotated[ReliabilityState, record_of(ReliabilityState)]
    test: Annotated[CalibrationTestState, record_of(CalibrationTestState)]
    ranked: Annotated[RankingState, record_of(RankingState)]
    smooth: Annotated[SmoothCalibrationErrorState, record_of(SmoothCalibrationErrorState)]
    by_class: Annotated[
        ClasswiseCalibrationState | None, optional(record_of(ClasswiseCalibrationState))
    ]
    positive: Annotated[RankingState | None, optional(record_of(RankingState))]
    classes: Annotated[tuple[ClassName, ...] | None, class_names()]
    shared = ("classes",)

    @classmethod
    def of(
        cls,
        batch: Batch,
        *,
        n_bins: int = 15,
        is_gridded: bool = False,
        pos_column: int | None = None,
    ) -> Self:
        """Return the sums of a batch.

        Parameters
        ----------
        batch : Batch
            Rows with labels.
        n_bins : int, default=15
            Number of confidence bins of equal width.
        is_gridded : bool, default=False
            Round scores to a fixed grid, which bounds the size of the rankings.
        pos_column : int, optional
            The column of the positive class of two.

        Returns
        -------
        AuditState
            The sums of these rows.
        """
        require_labels(batch, "audit")
        edges = uniform_edges(n_bins, "audit")
        outputs = batch.outputs
        has_classes = isinstance(outputs, BaseClassOutputs)
        return cls(
            ProperScoresState.of(batch),
            ReliabilityState.of(batch, edges),
            CalibrationTestState.of(batch),
            RankingState.of(batch, is_gridded=is_gridded),
            SmoothCalibrationErrorState.of(batch),
            ClasswiseCalibrationState.of(batch, edges) if has_classes else None,
            None
            if pos_column is None
            else rank_positives(batch, pos_column, is_gridded=is_gridded),
            outputs.classes if isinstance(outputs, BaseClassOutputs) else None,
        )

    @property
    def value(self) -> Self:
        """The state itself, from which `Audit` is computed; raises for no rows."""
        _ = self.scores.value
        return self


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class BootstrapState(State):
    """Sums per confidence bin of many Poisson bootstrap resamples.

    A row's draw depends on its number in the whole data set, so that any split into shards gives
    the same resamples. The sums are: weight, noise (see `ReliabilityState`), confidence, correct,
    Brier score, log loss where finite, and the weight of infinite losses.

    Attributes
    ----------
    edges : array of shape (n_bins + 1,)
        Edges of the confidence bins.
    sums : array of shape (n_resamples, 7, n_bins)
        The sums above, per resample and bin.
    n_top_only : int
        Rows of which only the top label is known, so that they have no proper scores.
    """

    edges: Annotated[FloatArray, edges_field]
    # resamples x sums x bins
    sums: Annotated[FloatArray, per_bin(None, 7, "bins")]
    n_top_only: int
    shared = ("edges",)

    @classmethod
    def of(
        cls, batch: Batch, *, n_bins: int = 15, n_resamples: int = 100, random_state: int = 0
    ) -> Self:
        """Return the resamples of a batch.

        Parameters
        ----------
        batch : Batch
            Rows with labels; `first_row` determines their draws.
        n_bins : int, default=15
            Number of confidence bins of equal width.
        n_resamples : int, default=100
            Number of resamples.
        random_state : int, default=0
            Seed of the draws: the same for all batches that are added.

        Returns
        -------
        BootstrapState
            The sums of each resample.
        """
        rows = {"": np.arange(len(batch))}
        return cls._of_parts(batch, rows, n_bins, n_resamples, random_state)[""]

    @classmethod
    def of_groups(
        cls, batch: Batch, *, n_bins: int = 15, n_resamples: int = 100, random_state: int = 0
    ) -> GroupedState[Self]:
        """Return the resamples of each group: the rows of each resample of the whole batch.

        Parameters
        ----------
        batch : Batch
            Rows with labels and groups.
        n_bins : int, default=15
            Number of confidence bins of equal width.
        n_resamples : int, default=100
            Number of resamples.
        random_state : int, default=0
            Seed of the draws: the same for all batches that are added.

        Returns
        -------
        GroupedState
            A `BootstrapState` by the name of the group.
        """
        rows = rows_of_groups(batch)
        return GroupedState(cls._of_parts(batch, rows, n_bins, n_resamples, random_state))

    @classmethod
    def _of_parts(
        cls, batch: Batch, parts: Mapping[str, IntArray], n_bins: int, n_resamples: int, seed: int
    ) -> dict[str, Self]:
        """Return the sums of parts of a batch over the resamples of the whole."""
        edges, rows = uniform_edges(n_bins, "audit"), batch.rows
        cells = bins_of(rows.confidence, edges)
        for number, indices in enumerate(parts.values()):
            cells[indices] += number * n_bins
        is_top_only = isinstance(batch.outputs, TopLabel)
        nothing = np.zeros(len(batch))  # what top labels do not determine is summed as 0
        loss = nothing if rows.log_loss is None else rows.log_loss
        is_finite = loss < np.inf
        columns = (
            rows.confidence,
            rows.correct,
            nothing if rows.brier_score is None else rows.brier_score,
            np.where(is_finite, loss, 0.0),
            1.0 - is_finite,
        )
        sums = resampled_sums(
            columns,
            batch.labeled_weight,
            seed,
            n_resamples,
            groups=cells,
            n_groups=len(parts) * n_bins,
            first_row=batch.first_row,
        )
        split = np.split(sums, len(parts), axis=2) if parts else []
        return {
            name: cls(edges, part, indices.size if is_top_only else 0)
            for (name, indices), part in zip(parts.items(), split, strict=True)
        }

    @property
    def value(self) -> dict[str, list[float]]:
        """The values of each metric over the resamples; unknown or infinite ones are left out."""
        return _values_of(self.sums, is_top_only=self.n_top_only > 0)


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class BootstrapMoments(State):
    """What the bootstrap of many rows is drawn from: moments of the rows of each confidence bin.

    A Poisson resample draws a Poisson number of the rows of a bin (wrong and correct ones apart),
    and the sums of that many draws are as good as normal. Drawing these sums instead of the rows
    takes one pass over the rows, however many resamples there are.

    Examples
    --------
    >>> moments = BootstrapMoments.of(Batch.of([0, 1, 1] * 500, [0.1, 0.8, 0.7] * 500))
    >>> len(moments.resampled(100, seed=0)["brier_score"])
    100
    """

    edges: Annotated[FloatArray, edges_field]
    # bins x wrong and correct x moments
    sums: Annotated[FloatArray, per_bin("bins", 2, N_MOMENTS)]
    n_top_only: int
    shared = ("edges",)

    @classmethod
    def of(cls, batch: Batch, *, n_bins: int = 15) -> Self:
        edges, rows = uniform_edges(n_bins, "audit"), batch.rows
        losses = (rows.log_loss, rows.brier_score)
        known = [rows.confidence if column is None else column for column in losses]
        columns = (rows.confidence, rows.correct, *known, batch.labeled_weight, edges)
        sums = np.zeros((n_bins, 2, N_MOMENTS))
        moment_sums(*map(freeze, columns), sums)
        return cls(edges, sums, len(batch) if isinstance(batch.outputs, TopLabel) else 0)

    @property
    def value(self) -> Self:
        """The state itself, from which resamples are drawn; raises for no rows."""
        require_weight(self.sums.sum(), "A bootstrap")
        return self

    def resampled(self, n_resamples: int, seed: int = 0) -> dict[str, list[float]]:
        """Return the values of each metric over so many resamples, as of `BootstrapState`."""
        rng = np.random.default_rng(seed)
        bins, _ = held = np.nonzero(self.sums[:, :, 1])
        count, weight, *moments = self.sums[held].T
        mean, products = np.split(np.stack(moments, axis=1) / weight[:, np.newaxis], [4], axis=1)
        covariance = products.reshape(-1, 4, 4) - mean[:, :, np.newaxis] * mean[:, np.newaxis]
        variance, axes = np.linalg.eigh(covariance)
        # The symmetric root: unlike axes, whose signs are arbitrary, it follows the covariance, so
        # that sums of blocks in another order lead to the same draws.
        scaled = axes * np.sqrt(np.maximum(variance, 0.0))[:, np.newaxis]
        spread = scaled @ axes.transpose(0, 2, 1)
        n_bins = self.edges.size - 1
        resamples = np.zeros((n_resamples, 7, n_bins))
        for resample in resamples:
            normal = weight + np.sqrt(weight) * rng.standard_normal(weight.size)
            poisson = rng.poisson(np.minimum(weight, MAX_POISSON))
            drawn = np.where(weight < MAX_POISSON, poisson, normal)
            noise = (spread @ rng.standard_normal((*mean.shape, 1)))[:, :, 0]
            sums = drawn[:, np.newaxis] * mean + np.sqrt(drawn)[:, np.newaxis] * noise
            # What the noise of `ReliabilityState` is on average, given the number of draws.
            repeated = drawn / weight * (count - 1 + drawn)
            confidence, correct, loss, brier = sums.T
            columns = (drawn, repeated, confidence, correct, brier, loss)
            resample[:6] = [np.bincount(bins, column, n_bins) for column in columns]
        return _values_of(resamples, is_top_only=self.n_top_only > 0)


def _values_of(sums: FloatArray, *, is_top_only: bool) -> dict[str, list[float]]:
    """Return the values of each metric over resamples, given the sums of a `BootstrapState`.

    Unknown or infinite values are left out.
    """
    sums = sums[sums[:, 0].sum(axis=1) > 0]  # a resample of few rows may draw none of them
    weight, noise, confidence, correct, *_ = np.moveaxis(sums, 1, 0)
    totals = sums.sum(axis=2).T
    means = totals / totals[0]
    values = {
        "accuracy": means[3],
        "confidence": means[2],
        "gap": means[2] - means[3],
        "log_loss": means[5][totals[6] == 0],
        "brier_score": means[4],
        "expected_calibration_error": np.abs(confidence - correct).sum(axis=1) / totals[0],
        "debiased_calibration_error": debiased_error(weight, noise, confidence, correct),
    }
    unknown = ("log_loss", "brier_score") if is_top_only else ()
    return {k: column.tolist() for k, column in values.items() if column.size and k not in unknown}


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class AuditSums(State):
    """The sums of an audit, and the moments that the intervals of many rows are drawn from.

    `decided` sums over the decisions: at a threshold, or of lowest expected cost.
    """

    state: Annotated[AuditState, record_of(AuditState)]
    moments: Annotated[BootstrapMoments | None, optional(record_of(BootstrapMoments))]
    decided: Annotated[DecisionState, record_of(DecisionState)]

    @classmethod
    def of(
        cls,
        batch: Batch,
        *,
        n_bins: int = 15,
        is_gridded: bool = False,
        has_moments: bool = False,
        pos_column: int | None = None,
        threshold: float = THRESHOLD,
        costs: DecidesRows | None = None,
    ) -> Self:
        """Return all of them from the same row statistics."""
        return cls(
            AuditState.of(batch, n_bins=n_bins, is_gridded=is_gridded, pos_column=pos_column),
            BootstrapMoments.of(batch, n_bins=n_bins) if has_moments else None,
            DecisionState.of(batch, pos_column, threshold=threshold, costs=costs),
        )

    @classmethod
    def of_blocks(cls, shards: Shards, of: Callable[[Batch], Self]) -> Self:
        """Return the sums of blocks in memory, using threads, with one exact ranking of all."""
        rankings: list[tuple[RankingState, RankingState | None]] = []

        def unranked(part: Self) -> Self:
            rankings.append((part.state.ranked, part.state.positive))
            return replace(part, state=replace(part.state, ranked=NOTHING, positive=None))

        total = reduce(add, map(unranked, shards.apply(lambda _, block: of(block))))
        ranked = RankingState.pooled([one for one, _ in rankings])
        positives = [one for _, one in rankings if one is not None]
        positive = RankingState.pooled(positives) if positives else None
        return replace(total, state=replace(total.state, ranked=ranked, positive=positive))

    @property
    def value(self) -> Self:
        """The sums themselves; raises for no rows."""
        _ = self.state.value
        return self

    def resampled(self, n_resamples: int, seed: int) -> dict[str, list[float]]:
        """Return the values of each metric over resamples."""
        assert self.moments is not None
        return self.moments.resampled(n_resamples, seed)

"""The tiers of a cascade: how probable each answer is correct, and what a call is worth.

Each model's score becomes the log odds that its answer is correct (Platt scaling). Over the log
odds of all models stands one joint model: they are normally distributed, and whether a model is
correct is a logistic regression on all of them, shrunk towards the model's own. So the probability
of a correct answer follows from any scores that are known, and so does the distribution of a score
that is not known yet, which is what a call is worth (dynamic programming over quadrature points).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Annotated, Any, ClassVar, NamedTuple, final

import numpy as np
from scipy.special import expit, ndtri

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.serialization.array_fields import array
from dubito.serialization.fields import Entry
from dubito.serialization.objects import Record, stores_fields

NODES = (9, 5, 3)  # quadrature points of the score of the next tier, of the one after, and so on
PRIOR_WEIGHT = 5.0  # of the models' own log odds against all models' scores, in rows
INTERCEPT_WEIGHT = 0.01
FLATTEST = 1e-3  # penalty on a slope, so that separable rows have a finite one
MAX_STEPS, MAX_STEP, CONVERGED = 50, 2.0, 1e-8  # of Newton's method
MIN_VARIANCE = 1e-6
MARGIN = 1.0  # standard deviations of scores beyond their range, where exact 0 and 1 lie
MIN_MARGIN = np.log(2.0)  # half as far from 1 as the closest confidence
END_WEIGHT = 1 / 9  # of the prior that exact 0 and 1 follow the slope of other confidences
PROBIT = np.pi / 8  # of MacKay's approximation to a mean of logistic functions
MAX_LOG_ODDS = 1e6
N_FOLDS = 5
REALIZED_WEIGHT = 0.3  # of realized against expected errors in the score of a cascade
CHEAPER = 0.95  # a later tier may cost this fraction of the one before
N_ERRORS = 1.0  # standard errors by which a further tier has to lower the score
SAME = 1e-9  # relative difference of scores that is one of rounding
N_EXTENDED = 5  # best cascades to which a further tier is added
BLOCK_ENTRIES = 1 << 20  # what memory is bounded by

_per_tier = array("slope", low=-MAX_LOG_ODDS, high=MAX_LOG_ODDS)
_per_pair = array("slope", "slope", low=-MAX_LOG_ODDS, high=MAX_LOG_ODDS)


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class TierModel(Record):
    """The joint model of the scores of some models and of whether their answers are correct.

    Attributes
    ----------
    slope, offset : array
        Log odds of a correct answer: slope x score + offset, the score as log odds too.
    least, most : array
        What scores are clipped to: their range in the fit with a margin. Confidences of exactly 0
        and 1, whose log odds are infinite, lie there.
    at_zero, at_one : array
        What is added to the log odds of these: many exact 1 are rounded, or a habit of the model.
    mean, covariance : array
        Mean and covariance of these log odds.
    low, high : array
        Their range among the rows of the fit.
    coef, intercept : array
        The log odds that each answer is correct, from those of all tiers.
    """

    has_header: ClassVar[bool] = False

    slope: Annotated[FloatArray, array(None, low=0, high=MAX_LOG_ODDS)]
    offset: Annotated[FloatArray, _per_tier]
    least: Annotated[FloatArray, _per_tier]
    most: Annotated[FloatArray, _per_tier]
    at_zero: Annotated[FloatArray, _per_tier]
    at_one: Annotated[FloatArray, _per_tier]
    mean: Annotated[FloatArray, _per_tier]
    covariance: Annotated[FloatArray, _per_pair]
    low: Annotated[FloatArray, _per_tier]
    high: Annotated[FloatArray, _per_tier]
    coef: Annotated[FloatArray, _per_pair]
    intercept: Annotated[FloatArray, _per_tier]

    @classmethod
    def fit(cls, scores: FloatArray, correct: FloatArray) -> TierModel:
        """Fit to the scores of all models, rows x models, and whether they were correct."""
        n_rows, n_models = scores.shape
        hits = correct.sum(axis=0)
        # Platt's targets keep the slope finite where a threshold separates both.
        high, low = (hits + 1) / (hits + 2), 1 / (n_rows - hits + 2)
        platt = _Platt.fit(scores, correct * high + (1 - correct) * low)
        x = platt.log_odds(scores)
        centered = x - x.mean(axis=0)  # np.cov would sum in another order
        covariance = centered.T @ centered / n_rows + MIN_VARIANCE * np.eye(n_models)
        width = np.sqrt(np.diag(covariance))
        scaled = np.broadcast_to(x / width, (n_models, n_rows, n_models))
        prior_weight = np.full((n_models, n_models), PRIOR_WEIGHT)
        joint = _logistic_fits(scaled, correct.T, np.diag(width), prior_weight)
        return cls(
            **platt._asdict(),
            mean=x.mean(axis=0),
            covariance=covariance,
            low=x.min(axis=0),
            high=x.max(axis=0),
            coef=joint[:, :-1] / width,
            intercept=joint[:, -1],
        )

    def log_odds(self, scores: FloatArray) -> FloatArray:
        """Return the log odds that each model's answer is correct by its own score."""
        own = _Platt(*(getattr(self, name) for name in _Platt._fields))
        return np.clip(own.log_odds(scores), -MAX_LOG_ODDS, MAX_LOG_ODDS)

    def chances(self, x: FloatArray) -> FloatArray:
        """Return the probability that each answer is correct, from the log odds of all models."""
        return np.asarray(expit(x @ self.coef.T + self.intercept))

    def of_tiers(self, chain: Sequence[int]) -> TierModel:
        """Return the model of some tiers alone, the scores of others unknown."""
        tiers = np.array(chain, dtype=np.int64)
        found = [_Stage.of(self, tiers[np.newaxis], len(chain), k) for k in range(len(chain))]
        each = (*_Platt._fields, "mean", "low", "high")
        return TierModel(
            **{name: getattr(self, name)[tiers] for name in each},
            covariance=self.covariance[np.ix_(tiers, tiers)],
            coef=np.stack([one.coef[0] for one in found]),
            intercept=np.array([one.intercept[0] for one in found]),
        )

    @classmethod
    def _from_values(cls, values: dict[str, Any], entry: Entry) -> TierModel:
        covariance = values["covariance"]
        if not np.array_equal(covariance, covariance.T):
            raise entry.at("covariance").error("must be symmetric", "another")
        least = float(np.linalg.eigvalsh(covariance).min())
        if not least > MIN_VARIANCE / 2:
            raise entry.at("covariance").error("must be positive definite", f"{least:.3g}")
        for low, high in (("low", "high"), ("least", "most")):
            if (values[low] > values[high]).any():
                raise entry.at(low).error(f"must be at most `{high}`", "more")
        return cls(**values)


class _Platt(NamedTuple):
    """Platt scaling of each model's scores; see `TierModel`."""

    slope: FloatArray
    offset: FloatArray
    least: FloatArray
    most: FloatArray
    at_zero: FloatArray
    at_one: FloatArray

    @classmethod
    def fit(cls, scores: FloatArray, targets: FloatArray) -> _Platt:
        """Fit to the scores of all models, rows x models, and Platt's targets."""
        n_models = scores.shape[1]
        least, most = np.empty((2, n_models))
        for k, column in enumerate(scores.T):
            inside = column[np.isfinite(column)]
            inside = inside if inside.size else np.zeros(1)
            margin = max(MARGIN * float(inside.std()), MIN_MARGIN)
            least[k], most[k] = inside.min() - margin, inside.max() + margin
        clipped = np.clip(scores, least, most)
        scale = np.maximum(np.abs(clipped).max(axis=0), 1.0)
        design = np.stack([clipped / scale, scores == -np.inf, scores == np.inf], axis=2)
        weight = np.tile([FLATTEST, END_WEIGHT, END_WEIGHT], (n_models, 1))
        nothing = np.zeros((n_models, 3))
        found = _logistic_fits(design.transpose(1, 0, 2), targets.T, nothing, weight)
        if (found[:, 0] < 0).any():  # a score that falls with accuracy says nothing
            design[:, found[:, 0] < 0, 0] = 0.0
            found = _logistic_fits(design.transpose(1, 0, 2), targets.T, nothing, weight)
        slope, at_zero, at_one, offset = found.T
        return cls(slope / scale, offset, least, most, at_zero, at_one)

    def log_odds(self, scores: FloatArray) -> FloatArray:
        """Return the log odds that each model's answer is correct by its own score."""
        x = np.clip(scores, self.least, self.most) * self.slope + self.offset
        ends = np.where(scores == np.inf, self.at_one, 0.0)
        return np.asarray(x + ends + np.where(scores == -np.inf, self.at_zero, 0.0))


def _logistic_fits(
    x: FloatArray, y: FloatArray, prior: FloatArray, weight: FloatArray
) -> FloatArray:
    """Return the coefficients of several ridge logistic regressions, the intercept last.

    `x` is fits x rows x columns. Coefficients are shrunk towards `prior` with a penalty of
    `weight` / 2 times the squared distance.
    """
    n_fits, n_rows, n_columns = x.shape
    design = np.concatenate([x, np.ones((n_fits, n_rows, 1))], axis=2)
    center = np.concatenate([prior, np.zeros((n_fits, 1))], axis=1)
    penalty = np.concatenate([weight, np.full((n_fits, 1), INTERCEPT_WEIGHT)], axis=1)
    found = center.copy()
    diagonal = np.eye(n_columns + 1)
    for _ in range(MAX_STEPS):
        p = expit(np.einsum("frc,fc->fr", design, found))
        slopes = np.einsum("frc,fr->fc", design, y - p) - penalty * (found - center)
        curved = design * (p * (1 - p) + 1e-12)[:, :, np.newaxis]
        curvature = np.matmul(design.transpose(0, 2, 1), curved) + penalty[:, :, None] * diagonal
        step = np.linalg.solve(curvature, slopes[:, :, np.newaxis])[:, :, 0]
        longest = np.abs(step).max(axis=1, keepdims=True)
        found += step * np.minimum(1.0, MAX_STEP / np.maximum(longest, CONVERGED))
        if longest.max() < CONVERGED:
            break
    return found


class _Stage(NamedTuple):
    """What is known of several chains after their first tiers: one entry per chain.

    `coef` and `intercept` give the log odds that one tier is correct, `next_coef`, `next_mean`
    and `next_std` the distribution of another's log odds.
    """

    coef: FloatArray
    intercept: FloatArray
    next_coef: FloatArray
    next_mean: FloatArray
    next_std: FloatArray

    @classmethod
    def of(
        cls, model: TierModel, chains: IntArray, n_called: int, answers: int, calls: int = 0
    ) -> _Stage:
        """Return the stage after some calls; `answers` and `calls` are positions in a chain."""
        known = chains[:, :n_called]
        among = model.covariance[known[:, :, None], known[:, None, :]]
        across = model.covariance[known]  # chains x known x models
        regression = np.linalg.solve(among, across) if n_called else across
        left = model.covariance - np.matmul(across.transpose(0, 2, 1), regression)
        mean = model.mean - np.einsum("pt,ptm->pm", model.mean[known], regression)
        answerer, called = chains[:, answers], chains[:, calls]
        weights = model.coef[answerer]
        spread = np.einsum("pm,pmk,pk->p", weights, left, weights)
        shrink = 1 / np.sqrt(1 + PROBIT * np.maximum(spread, 0.0))
        each = np.arange(len(chains))
        return cls(
            coef=np.einsum("ptm,pm->pt", regression, weights) * shrink[:, None],
            intercept=(model.intercept[answerer] + (weights * mean).sum(axis=1)) * shrink,
            next_coef=regression[each, :, called],
            next_mean=mean[each, called],
            next_std=np.sqrt(np.maximum(left[each, called, called], 0.0)),
        )


@final
class Chains:
    """Chains of equally many tiers, each called in order until it answers or gives up.

    Parameters
    ----------
    model : TierModel
    chains : array of int, chains x tiers
        Columns of the model.
    error_cost, fallback : float
        The cost of a wrong answer, and of no answer.
    """

    def __init__(
        self, model: TierModel, chains: IntArray, error_cost: float, fallback: float
    ) -> None:
        self.model, self.chains = model, chains
        self.error_cost, self.fallback = error_cost, fallback
        n = self.n_tiers = chains.shape[1]
        self.stages = [
            _Stage.of(model, chains, k, max(k - 1, 0), min(k, n - 1)) for k in range(n + 1)
        ]

    def chance(self, x: FloatArray, n_called: int) -> FloatArray:
        """Return the probability that the last tier called is correct.

        `x` is chains x rows x points x tiers: their log odds, of which the first are known.
        """
        stage = self.stages[n_called]
        odds = np.einsum("prqt,pt->prq", x, stage.coef) + stage.intercept[:, None, None]
        return np.asarray(expit(odds))

    def costs(
        self, x: FloatArray, prices: FloatArray, n_ahead: int = 0
    ) -> tuple[FloatArray, FloatArray | None]:
        """Return the expected costs of an answer (infinite without one) and of the next call.

        `prices` is chains x rows x tiers. The second is None after the last tier. Calls that are
        further ahead take fewer quadrature points.
        """
        n_called = x.shape[3]
        answer = np.full(x.shape[:3], np.inf)
        if n_called:
            answer = self.error_cost * (1 - self.chance(x, n_called))
        if n_called == self.n_tiers:
            return answer, None
        stage = self.stages[n_called]
        center = np.einsum("prqt,pt->prq", x, stage.next_coef) + stage.next_mean[:, None, None]
        n_nodes = NODES[min(n_ahead, len(NODES) - 1)]
        nodes = ndtri((np.arange(n_nodes) + 0.5) / n_nodes)
        drawn = center[..., None] + stage.next_std[:, None, None, None] * nodes
        tiers = self.chains[:, n_called]
        low, high = (one[tiers][:, None, None, None] for one in (self.model.low, self.model.high))
        drawn = np.clip(drawn, low, high)
        then = np.concatenate(
            [np.repeat(x[:, :, :, None, :], n_nodes, axis=3), drawn[..., None]], axis=4
        )
        shape = then.shape
        value = self._lowest(then.reshape(*shape[:2], -1, shape[4]), prices, n_ahead + 1)
        call = value.reshape(shape[:4]).mean(axis=3) + prices[:, :, n_called, None]
        return answer, call

    def _lowest(self, x: FloatArray, prices: FloatArray, n_ahead: int) -> FloatArray:
        """Return the expected cost of the best action."""
        answer, call = self.costs(x, prices, n_ahead)
        stop = np.minimum(answer, self.fallback)
        return stop if call is None else np.minimum(stop, call)

    def walk(self, x: FloatArray, prices: FloatArray) -> tuple[IntArray, BoolArray]:
        """Return how many tiers are called, chains x rows, and whether the last one answers.

        `x` is rows x models, the log odds of all; `prices` those of all models.
        """
        by_tier = x[:, self.chains].transpose(1, 0, 2)[:, :, np.newaxis]
        price = prices[:, self.chains].transpose(1, 0, 2)
        n_called = np.zeros(price.shape[:2], np.int64)
        is_answered = np.zeros(price.shape[:2], np.bool_)
        is_open = ~is_answered
        for k in range(self.n_tiers + 1):
            answer, call = self.costs(by_tier[..., :k], price)
            best = np.minimum(answer, self.fallback)
            goes_on = is_open & False if call is None else is_open & (call < best)[:, :, 0]
            is_answered |= is_open & ~goes_on & (answer < self.fallback)[:, :, 0]
            n_called += goes_on
            is_open = goes_on
        return n_called, is_answered


class Held(NamedTuple):
    """What chains of tiers did on rows that they were not fitted on; arrays are chains x rows.

    `score` mixes the realized errors with those that the scores of all models predict, which vary
    less: it is what chains are chosen by. `cost` is the realized cost alone.
    """

    chains: list[tuple[int, ...]]
    score: FloatArray
    cost: FloatArray
    n_called: IntArray
    is_answered: BoolArray

    def __add__(self, other: Any) -> Held:
        arrays = (np.concatenate(pair) for pair in zip(self[1:], other[1:], strict=True))
        return Held(self.chains + other.chains, *arrays)

    def best(self, rows: Any = slice(None), *, single: bool = False) -> int:
        """Return the chain to use by the scores of some rows; `single` for one model alone.

        A further tier has to lower the score by more than its standard error. At equal scores no
        model is called.
        """
        means, sizes = self.score[:, rows].mean(axis=1), np.array([*map(len, self.chains)])
        equal = SAME * np.abs(means).max()
        ones = np.flatnonzero(sizes == 1 if single else sizes <= 1)
        chosen = int(ones[(means[ones] <= means[ones].min() + equal).argmax()])
        for size in range(2, 1 if single else sizes.max() + 1):
            longer = np.flatnonzero(sizes == size)
            found = int(longer[means[longer].argmin()])
            gain = self.score[chosen, rows] - self.score[found, rows]
            if gain.mean() > max(N_ERRORS * gain.std() / np.sqrt(gain.size), equal):
                chosen = found
        return chosen


@final
@dataclass(frozen=True, eq=False)
class CrossFit:
    """Fits tiers without each fold in turn, to compare chains on rows that were held out."""

    scores: FloatArray
    correct: FloatArray
    prices: FloatArray
    error_cost: float
    fallback: float
    fold_of: IntArray

    @cached_property
    def folds(self) -> Sequence[tuple[IntArray, TierModel, FloatArray]]:
        """The rows of each fold, the model of all other rows, and its log odds of these rows."""
        found = []
        for fold in range(int(self.fold_of.max()) + 1):
            is_here = self.fold_of == fold
            model = TierModel.fit(self.scores[~is_here], self.correct[~is_here])
            found.append((np.flatnonzero(is_here), model, model.log_odds(self.scores[is_here])))
        return found

    @cached_property
    def expected(self) -> FloatArray:
        """The probability that each answer is correct, rows x models."""
        result = np.empty(self.scores.shape)
        for rows, model, x in self.folds:
            result[rows] = model.chances(x)
        return result

    def search(self, max_calls: int) -> Held:
        """Return the chains that were tried: all pairs, and the best ones with further tiers."""
        n_rows, n_models = self.correct.shape
        longest: list[tuple[int, ...]] = [(k,) for k in range(n_models)]
        held = self.run(longest)
        if np.isfinite(self.fallback):
            none, n_called = np.full((1, n_rows), self.fallback), np.zeros((1, n_rows), np.int64)
            held = Held([()], none, none, n_called, n_called.astype(np.bool_)) + held
        for _ in range(1, min(max_calls, n_models)):
            longest = sorted(set(self._longer(longest)))
            if not longest:
                break
            found = self.run(longest)
            order = np.argsort(found.score.mean(axis=1), kind="stable")[:N_EXTENDED]
            longest = [longest[k] for k in order]
            held += found
        return held

    def _longer(self, chains: list[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
        """Yield chains with one more tier, where no tier is much cheaper than one before it."""
        price = self.prices.mean(axis=0)
        for chain in chains:
            for k in set(range(price.size)) - set(chain):
                for at in range(len(chain) + 1):
                    longer = (*chain[:at], k, *chain[at:])
                    if all(price[b] >= CHEAPER * price[a] for a, b in pairwise(longer)):
                        yield longer

    def run(self, chains: list[tuple[int, ...]]) -> Held:
        """Return what chains of one length do on held-out rows."""
        tiers = np.array(chains)
        shape = len(chains), len(self.correct)
        n_called, is_answered = np.empty(shape, np.int64), np.empty(shape, np.bool_)
        for rows, model, x in self.folds:
            step = max(1, BLOCK_ENTRIES // (len(rows) * prod(NODES[: tiers.shape[1]])))
            for start in range(0, len(chains), step):
                some = slice(start, start + step)
                run = Chains(model, tiers[some], self.error_cost, self.fallback)
                n_called[some, rows], is_answered[some, rows] = run.walk(x, self.prices[rows])
        each, last = np.arange(shape[1]), np.maximum(n_called - 1, 0)
        by_tier = self.prices[:, tiers].transpose(1, 0, 2).cumsum(axis=2)
        spent = np.take_along_axis(by_tier, last[:, :, None], axis=2)[:, :, 0] * (n_called > 0)
        answerer = np.take_along_axis(tiers, last, axis=1)
        stopped = np.where(is_answered, 0.0, self.fallback if np.isfinite(self.fallback) else 0.0)
        cost, expected = (
            spent + stopped + is_answered * self.error_cost * (1 - one[each, answerer])
            for one in (self.correct, self.expected)
        )
        score = REALIZED_WEIGHT * cost + (1 - REALIZED_WEIGHT) * expected
        return Held(chains, score, cost, n_called, is_answered)

"""The most likely class prior of unlabeled rows, by expectation-maximization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dubito.arrays import FloatArray, contiguous
from dubito.decide.priors import log_posteriors
from dubito.kernels.mixture import mixture_step
from dubito.outputs import Logits, Probabilities

__all__ = ["PriorLikelihood"]

CLOSE = 1e-6  # log likelihood of all rows together that another prior could still gain
CLOSE_ENOUGH = 1e-2  # the same of a resample, whose noise is about 1
ROUNDING = 1e-12  # of it a row
MOST_ROUNDS = 2000
LEAST = 1e-300  # a share, so that no row is ever impossible
MOST_DRAWN = 20_000  # rows of a resample; the spread of more is scaled from so many
NO_INFORMATION = 1e-9


@final
@dataclass(frozen=True, slots=True, eq=False)
class PriorLikelihood:
    """What each row's input is worth under each class, classes x rows, up to a factor a row."""

    parts: FloatArray
    start: FloatArray

    @classmethod
    def of(cls, outputs: Logits | Probabilities, train_prior: FloatArray) -> PriorLikelihood:
        """Return posteriors over the prior they were trained with."""
        logs = log_posteriors(outputs) - np.log(train_prior)
        logs -= logs.max(axis=1, keepdims=True)
        return cls(contiguous(np.exp(logs).T), train_prior)

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return int(self.parts.shape[1])

    def estimate(self) -> FloatArray:
        """Return the most likely prior."""
        return most_likely(self.parts, self.start, CLOSE)

    def standard_errors(self, prior: FloatArray) -> FloatArray:
        """Return how uncertain each share is, by the curvature of the likelihood."""
        ratio = self.parts / np.maximum(prior @ self.parts, LEAST)
        # Shares move, their sum does not: directions across that of equal changes.
        columns = np.column_stack([np.ones(prior.size), np.eye(prior.size)[:, 1:]])
        across = np.linalg.qr(columns)[0][:, 1:]
        values, vectors = np.linalg.eigh(across.T @ (ratio @ ratio.T) @ across)
        spread = (across @ vectors) ** 2 / np.maximum(values, NO_INFORMATION)
        return np.asarray(np.sqrt(spread.sum(axis=1)))

    def resampled(self, prior: FloatArray, seed: int) -> FloatArray:
        """Return the estimate of as many rows, drawn with replacement.

        Of very many fewer are drawn, and the deviation shrinks as that of all rows would.
        """
        n_drawn = min(self.n_rows, MOST_DRAWN)
        rows = np.random.default_rng(seed).integers(self.n_rows, size=n_drawn)
        start = 0.9 * prior + 0.1 * self.start  # a share of 0 could not grow again
        drawn = most_likely(contiguous(self.parts[:, rows]), start, CLOSE_ENOUGH)
        return np.asarray(prior + (drawn - prior) * np.sqrt(n_drawn / self.n_rows))


def most_likely(parts: FloatArray, start: FloatArray, close: float) -> FloatArray:
    """Return the shares under which classes x rows of likelihoods are most likely.

    Steps of expectation-maximization, stretched where two of them show the way (Varadhan and
    Roland, 2008). The problem is concave: the slopes bound what is left to gain.
    """
    weights = contiguous(np.ones(parts.shape[1]))
    explained = np.empty(start.size)

    def step(shares: FloatArray) -> tuple[FloatArray, float]:
        mixture_step(parts, weights, shares, explained)
        new = np.maximum(explained / weights.size, LEAST)
        return new, float((explained / shares).max()) - weights.size

    enough = max(close, ROUNDING * weights.size)
    shares = np.maximum(start, LEAST)
    for _ in range(MOST_ROUNDS):
        first, gain = step(shares)
        if gain < enough:
            break
        second, _ = step(first)
        shares = stretched(shares, first, second)
    return np.asarray(shares / shares.sum())


def stretched(zeroth: FloatArray, first: FloatArray, second: FloatArray) -> FloatArray:
    """Return where three steps in a row lead, or the last where that leaves the simplex."""
    move = first - zeroth
    bend = second - first - move
    size = float(np.sqrt(bend @ bend))
    if size == 0:
        return second
    length = max(1.0, float(np.sqrt(move @ move)) / size)
    result = zeroth + 2 * length * move + length**2 * bend
    return result if (result > 0.01 * second).all() else second

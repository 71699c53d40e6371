"""A Gaussian mixture over inputs and targets, conditioned on the inputs: once more a mixture."""

from __future__ import annotations

from typing import final

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import log_softmax, logsumexp, softmax

from dubito.arrays import FloatArray
from dubito.doubt.gaussians import OwnGaussians, Whitening, squares_of

__all__ = ["ConditionalMixture"]


@final
class ConditionalMixture:
    """p(y | x) of a mixture of normal distributions over (x, y), x in the first `n_inputs` columns.

    Given x, each component is normal about a plane, and weighs what x makes of it. Bishop, "Pattern
    recognition and machine learning", 2.3.1.
    """

    def __init__(
        self, weights: FloatArray, means: FloatArray, covariances: FloatArray, n_inputs: int
    ) -> None:
        d = n_inputs
        self.log_weights = np.log(weights)
        self.inputs = OwnGaussians(means[:, :d], covariances[:, :d, :d])
        self.target_means = means[:, d:]
        # Slopes of the planes (components x inputs x targets), and what is left about them.
        self.slopes = np.stack([cho_solve(cho_factor(c[:d, :d]), c[:d, d:]) for c in covariances])
        explained = np.einsum("kij,kil->kjl", self.slopes, covariances[:, :d, d:])
        left = covariances[:, d:, d:] - explained
        self.noise = [Whitening.of((one + one.T) / 2) for one in left]

    def is_finite(self) -> bool:
        """Tell whether nothing was too large to be held."""
        parts = [self.slopes, *(one.matrix for one in self.noise)]
        return all(bool(np.isfinite(part).all()) for part in parts)

    def joint(self, x: FloatArray) -> FloatArray:
        """Return log p(x, component), rows x components."""
        return np.asarray(self.inputs.log_likelihoods(x) + self.log_weights)

    def means(self, x: FloatArray) -> FloatArray:
        """Return what each component expects: rows x components x targets."""
        parts = [
            mean + (x - middle) @ slopes
            for mean, middle, slopes in zip(
                self.target_means, self.inputs.means, self.slopes, strict=True
            )
        ]
        return np.stack(parts, axis=1)

    def log_density(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return log p(y | x) of each row."""
        log_shares, off = log_softmax(self.joint(x), axis=1), y[:, np.newaxis] - self.means(x)
        constant = y.shape[1] * np.log(2 * np.pi)
        conditional = np.stack(
            [
                -0.5 * (squares_of(off[:, k] @ one.matrix) + one.log_determinant + constant)
                for k, one in enumerate(self.noise)
            ],
            axis=1,
        )
        return np.asarray(logsumexp(log_shares + conditional, axis=1))

    def mean_and_std(self, x: FloatArray) -> FloatArray:
        """Return rows x 2 x targets: the mean of y given x, and its standard deviation."""
        shares, means = softmax(self.joint(x), axis=1)[:, :, np.newaxis], self.means(x)
        variances = np.stack([squares_of(one.factor) for one in self.noise])
        mean = (shares * means).sum(axis=1)
        between = np.square(means - mean[:, np.newaxis])
        return np.stack([mean, np.sqrt((shares * (variances + between)).sum(axis=1))], axis=1)

    def draws(self, x: FloatArray, n_draws: int, random: np.random.Generator) -> FloatArray:
        """Return rows x draws x targets of y given x."""
        shares = softmax(self.joint(x), axis=1)
        ends = np.cumsum(shares, axis=1)[:, np.newaxis, :-1]
        chosen = (random.random((len(x), n_draws, 1)) > ends).sum(axis=2)
        noise = random.standard_normal((len(x), n_draws, self.target_means.shape[1]))
        factors = np.stack([one.factor for one in self.noise])
        middle = self.means(x)[np.arange(len(x))[:, np.newaxis], chosen]
        return np.asarray(middle + np.einsum("rdij,rdj->rdi", factors[chosen], noise))

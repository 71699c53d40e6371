"""A learned variance finds input-dependent noise, possibly at the expense of the mean.

    python -m studies.regression_noise            # 5 seeds, minutes
    python -m studies.regression_noise --quick    # seconds: few rows, one seed

Nix and Weigend, "Estimating the mean and variance of the target probability distribution", 1994,
learn both by the normal likelihood. Seitzer et al., "On the pitfalls of heteroscedastic uncertainty
estimation with probabilistic neural networks", 2022, find the mean badly fitted where the noise
seems large, and weigh losses by variance ** beta. Bishop, "Neural networks for pattern
recognition", 1995, derives what |r|^p estimates. Each network stops where its validation likelihood
was best; a factor for its standard deviations is fitted on the same validation rows. Variance that
does not depend on the input is that of the training residuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from dubito import Normal, audit
from dubito.arrays import FloatArray
from dubito.calibrate import VarianceScaling
from dubito.learn import Gaussian, HeteroscedasticGaussian
from dubito.measure import RegressionAudit
from studies.common.images import Images
from studies.common.networks import seeded
from studies.common.runs import RunResult
from studies.common.study import Options, Study
from studies.common.training import Recipe, slowing, train
from studies.regression_noise.data import TEST_SEED, RegressionParts, Rows, Sizes, parts_of
from studies.regression_noise.minkowski import POWERS, minkowski_loss, skewed_rows
from studies.regression_noise.reporting import summarize

LIKELIHOODS: tuple[Gaussian | HeteroscedasticGaussian, ...] = (
    Gaussian(),
    HeteroscedasticGaussian(),
    HeteroscedasticGaussian(beta=0.5),
    HeteroscedasticGaussian(beta=1.0),
)
LEVEL = 0.9


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """One task, whose rows and first weights a seed draws."""

    task: str
    seed: int
    sizes: Sizes
    recipe: Recipe
    width: int


def settings(options: Options) -> list[Setting]:
    """Return all tasks of each seed."""
    tasks: dict[str, tuple[Sizes, Recipe, int]] = {
        "diabetes": (Sizes(200, 100, 142), Recipe(150, 2e-3, batch_rows=32), 32),
        "noisy sine": (Sizes(500, 200, 2_000), Recipe(300, 3e-3, batch_rows=64), 64),
        "quiet sine": (Sizes(600, 200, 2_000), Recipe(300, 3e-3, batch_rows=64), 128),
        "minkowski": (Sizes(2_000, 0, 2_000), Recipe(2_000, 1e-2, batch_rows=2_000), 32),
    }
    if options.is_quick:
        few = Recipe(3, 1e-2, batch_rows=20)
        tasks = {task: (Sizes(60, 40, 50), few, 8) for task in tasks}
    return [Setting(task, seed, *one) for seed in options.seeds for task, one in tasks.items()]


def work(setting: Setting) -> RunResult:
    """Return figures of each likelihood as learned and scaled, or what each power estimates."""
    if setting.task == "minkowski":
        return centers(setting)
    parts = parts_of(setting.task, setting.sizes, setting.seed)
    said = [predictions(setting, likelihood, parts) for likelihood in LIKELIHOODS]
    figures = [[figures_of(parts.test, one) for one in pair] for pair in said]
    return {
        "figures": figures,
        "means": [pair[0].mean for pair in said],
        "stds": [pair[0].std for pair in said],
    }


def predictions(
    setting: Setting, likelihood: Gaussian | HeteroscedasticGaussian, parts: RegressionParts
) -> tuple[Normal, Normal]:
    """Return the distributions of the test's targets, as learned and with a fitted factor."""
    scale = float(parts.train.y.std())
    middle = float(parts.train.y.mean())
    targets = [
        Images(as_tensor(part.features), as_tensor((part.y - middle) / scale)) for part in parts
    ]
    network = stopped_at_best(setting, likelihood, targets[0], targets[1])
    learned, kept, requested = (distributions(likelihood, network(one.pixels)) for one in targets)
    if isinstance(likelihood, Gaussian):
        spread = np.sqrt(np.mean((targets[0].labels.numpy() - learned.mean) ** 2))
        kept, requested = (
            Normal(one.mean, np.full_like(one.std, spread)) for one in (kept, requested)
        )
    kept, requested = (
        Normal(one.mean * scale + middle, one.std * scale) for one in (kept, requested)
    )
    scaled = VarianceScaling().fit(kept, parts.validation.y).transform(requested)
    assert isinstance(scaled, Normal)
    return requested, scaled


def stopped_at_best(
    setting: Setting,
    likelihood: Gaussian | HeteroscedasticGaussian,
    rows: Images,
    validation: Images,
) -> nn.Module:
    """Return the network of the epoch after which validation rows were likeliest."""
    evaluator = Gaussian() if isinstance(likelihood, Gaussian) else HeteroscedasticGaussian()
    generator = seeded(setting.seed)
    network = perceptron(rows.pixels.shape[1], setting.width, likelihood.n_outputs)
    best, least = deepcopy(network.state_dict()), np.inf

    def loss(outputs: Tensor, y: Tensor, _: Tensor) -> Tensor:
        return likelihood.loss(outputs, y)

    def look(_: int) -> None:
        nonlocal best, least
        with torch.no_grad():
            found = float(evaluator.loss(network(validation.pixels), validation.labels))
        if found < least:
            best, least = deepcopy(network.state_dict()), found

    train(network, rows, loss, setting.recipe, generator, on_epoch=look)
    network.load_state_dict(best)
    return network.requires_grad_(False)


def distributions(likelihood: Gaussian | HeteroscedasticGaussian, outputs: Tensor) -> Normal:
    """Return what a network says of each row."""
    found = likelihood.predict(outputs)
    return Normal(
        found.mean.squeeze(-1).double().numpy(), found.stddev.squeeze(-1).double().numpy()
    )


def figures_of(rows: Rows, said: Normal) -> FloatArray:
    """Return RMSE, NLL, coverage of 90 %, calibration error, and error of the deviation.

    Calibration error is the mean distance of coverage from its level, at all levels of the audit.
    The last is the root mean square of log(stated deviation / known one); 0 where none is known.
    """
    audited = audit(rows.y, said)
    assert isinstance(audited, RegressionAudit)
    held = dict(zip(audited.levels.tolist(), audited.coverage.tolist(), strict=True))[LEVEL]
    gap = np.abs(audited.coverage - audited.levels).mean()
    off = 0.0 if rows.std is None else np.sqrt(np.mean(np.log(said.std / rows.std) ** 2))
    nll = audited.negative_log_likelihood
    assert nll is not None
    return np.array([audited.root_mean_squared_error, nll, held, gap, off])


def centers(setting: Setting) -> RunResult:
    """Return by how much each power's network is above the sine, and what lies below it."""
    x, y, _ = skewed_rows(setting.sizes.train, np.random.default_rng(setting.seed))
    new_x, new_y, sine = skewed_rows(setting.sizes.test, np.random.default_rng(TEST_SEED))
    rows = Images(as_tensor(x), as_tensor(y))
    above, below = [], []
    for power in POWERS:
        generator = seeded(setting.seed)
        network = perceptron(1, setting.width, 1)

        def loss(outputs: Tensor, y: Tensor, _: Tensor, power: float = power) -> Tensor:
            return minkowski_loss(outputs, y, power)

        train(network, rows, loss, setting.recipe, generator, pace=slowing)
        with torch.no_grad():
            said = network(as_tensor(new_x)).squeeze(1).double().numpy()
        above.append(said - sine)
        below.append(np.mean(new_y < said))
    offsets = np.array(above)
    return {"offset": offsets.mean(axis=1), "spread": offsets.std(axis=1), "below": below}


def perceptron(n_inputs: int, width: int, n_outputs: int) -> nn.Sequential:
    """Return a network of two hidden layers."""
    return nn.Sequential(
        *(nn.Linear(n_inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()),
        nn.Linear(width, n_outputs),
    )


def as_tensor(values: FloatArray) -> Tensor:
    """Return numbers as PyTorch's networks take them."""
    return torch.from_numpy(values).float()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study."""
    Study("regression_noise", settings, work, summarize, n_seeds=5).main(arguments)

"""Ensembles hold up best under shift, and a temperature fitted on clean images fails there.

    python -m studies.shift            # 3 ensembles of 5, all test images in 26 versions
    python -m studies.shift --quick    # seconds: few rows, one seed

Ovadia et al., "Can you trust your model's uncertainty? Evaluating predictive uncertainty under
dataset shift", 2019. LeNet5 on Fashion-MNIST; test images are made worse by `dubito.learn.corrupt`
in five ways and five severities. Each seed trains five networks, which are the plain ones (figures
are their mean) and the ensemble, and one with dropout. Temperatures are fitted on clean validation
images: one for each plain network, one for the ensemble's mean prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, final

import numpy as np
from torch import Tensor, nn

from dubito import Members, Probabilities
from dubito.arrays import FloatArray, IntArray
from dubito.calibrate import TemperatureScaling
from dubito.learn import CORRUPTIONS, Categorical, DeepEnsemble, corrupt
from studies.common.asking import FIGURES, dropout_passes, figures_of, members_over
from studies.common.images import Images, fashion_mnist
from studies.common.networks import lenet5, seeded
from studies.common.runs import RunResult
from studies.common.study import Options, Study
from studies.common.training import Recipe, train
from studies.shift.reporting import METHODS, N_SEVERITIES, summarize

LIKELIHOOD = Categorical(10)


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """One ensemble and one network with dropout, and their data."""

    seed: int
    n_train: int
    n_validation: int
    n_test: int
    recipe: Recipe
    folder: Path
    n_members: int = 5
    dropout: float = 0.2
    n_passes: int = 20


def settings(options: Options) -> list[Setting]:
    """Return one setting per seed."""
    sizes = 40_000, 10_000, 10_000, Recipe(10)
    if options.is_quick:
        sizes = 600, 150, 150, Recipe(2, learning_rate=5e-3, batch_rows=32)
    return [Setting(seed, *sizes, options.folder) for seed in options.seeds]


def work(setting: Setting) -> RunResult:
    """Return metrics by method, corruption and severity, and the temperatures."""
    parts = fashion_mnist(
        setting.n_train, setting.n_validation, setting.n_test, setting.seed, setting.folder
    )
    first = setting.seed * (setting.n_members + 1)
    seeds = range(first, first + setting.n_members)
    networks = [trained(seed, parts.train, setting, dropout=0.0) for seed in seeds]
    dropping = trained(first + setting.n_members, parts.train, setting, setting.dropout)
    methods = Methods(networks, dropping, setting.n_passes, parts.validation)
    labels = parts.test.labels.numpy()
    found = np.empty((len(METHODS), len(CORRUPTIONS), N_SEVERITIES, len(FIGURES)))
    needed = np.empty((len(CORRUPTIONS), N_SEVERITIES))
    clean, needed[:, 0] = methods.evaluate(parts.test.pixels, labels)
    found[:, :, 0] = clean[:, np.newaxis]
    for kind, name in enumerate(CORRUPTIONS):
        for severity in range(1, N_SEVERITIES):
            pixels = corrupt(parts.test.pixels, name, severity)
            found[:, kind, severity], needed[kind, severity] = methods.evaluate(pixels, labels)
    temperatures = [one.temperature_ for one in methods.scalings]
    return {"figures": found, "temperatures": temperatures, "needed_temperatures": needed}


def trained(seed: int, images: Images, setting: Setting, dropout: float) -> nn.Sequential:
    """Return a trained LeNet5 with its own initialization."""
    generator = seeded(seed)
    network = lenet5(dropout=dropout)

    def loss(outputs: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        return LIKELIHOOD.loss(outputs, labels)

    return cast(nn.Sequential, train(network, images, loss, setting.recipe, generator))


@final
class Methods:
    """All methods, calibrated on clean images where they are."""

    def __init__(
        self, networks: Sequence[nn.Module], dropping: nn.Sequential, n_passes: int, clean: Images
    ) -> None:
        self.ensemble = DeepEnsemble(networks, likelihood=LIKELIHOOD)
        self.dropping = DeepEnsemble([dropping], likelihood=LIKELIHOOD)
        self.passes = dropout_passes(dropping, n_passes, LIKELIHOOD)
        members, labels = members_over(self.ensemble, clean.pixels), clean.labels.numpy()
        self.scalings = [TemperatureScaling().fit(one, labels) for one in each(members)]
        self.ensemble_scaling = TemperatureScaling().fit(members.mean, labels)

    def evaluate(self, pixels: Tensor, labels: IntArray) -> tuple[FloatArray, float]:
        """Return the metrics of all methods on some images, and their optimal temperature.

        It is the mean over the plain networks, each fitted on the test images themselves.
        """
        members = members_over(self.ensemble, pixels)
        alone = each(members)
        scaled = [
            Probabilities(scaling.predict_proba(one))
            for scaling, one in zip(self.scalings, alone, strict=True)
        ]
        together = Probabilities(self.ensemble_scaling.predict_proba(members.mean))
        said: dict[str, list[Probabilities]] = {
            "plain": alone,
            "temperature": scaled,
            "dropout, one pass": each(members_over(self.dropping, pixels)),
            "Monte Carlo dropout": [members_over(self.passes, pixels).mean],
            "ensemble": [members.mean],
            "ensemble and temperature": [together],
        }
        found = [
            np.mean([figures_of(labels, one) for one in said[name]], axis=0) for name in METHODS
        ]
        needed = [TemperatureScaling().fit(one, labels).temperature_ for one in alone]
        return np.array(found), float(np.mean(needed))


def each(members: Members) -> list[Probabilities]:
    """Return the predictions of each member."""
    return [Probabilities(one, members.classes) for one in members.array]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study."""
    Study("shift", settings, work, summarize).main(arguments)

"""Labels of similar classes are swapped: what do losses make of it, and does s know where?

    python -m studies.noisy_pairs --cifar PATH    # the whole study; without a path no CIFAR-10
    python -m studies.noisy_pairs --quick         # seconds

A network of three convolutions learns from labels of which 0, 20 or 40 % are swapped within pairs
of classes, both ways; two classes stay clean. The uncertainty-aware loss, in its joint form (with
the floor chosen on validation rows) and its faithful one, stands beside cross-entropy, square loss,
GCE and ELR, and beside its own form with a slip, in which no row's s sees that row's error.
Accuracy is on true labels; validation labels are as noisy as those of training.
"""

from __future__ import annotations

from studies.common.cifar import read_cifar10
from studies.common.study import Options, Study
from studies.noisy_pairs.losses import FLOORS, LOSSES
from studies.noisy_pairs.reporting import summarize
from studies.noisy_pairs.training import (
    CACHE_NAME,
    RATES,
    Setting,
    cifar,
    fashion,
    work,
)

N_CIFAR_SEEDS = 3
CIFAR_LOSSES = {0.0: tuple(LOSSES), 0.2: ("cross-entropy", *FLOORS), 0.4: tuple(LOSSES)}


def settings(options: Options) -> list[Setting]:
    """Return the runs: every loss at every rate and seed; on CIFAR-10 at 20 % only the claim's.

    The noisiest come first, as they are the most informative.
    """
    on_fashion = [
        fashion(options, loss, rate, seed)
        for seed in options.seeds
        for rate in reversed(RATES)
        for loss in LOSSES
    ]
    if options.cifar is None:
        return on_fashion
    read_cifar10(options.cifar)  # fail before the long runs if the path is wrong
    return on_fashion + [
        cifar(options.cifar, options, loss, rate, seed)
        for seed in options.seeds[:N_CIFAR_SEEDS]
        for rate in reversed(RATES)
        for loss in CIFAR_LOSSES[rate]
    ]


main = Study(
    "noisy_pairs", settings, work, summarize, cache_name=CACHE_NAME, n_seeds=5, has_cifar=True
).main

"""Better fit, more over-confidence: depth and width harm calibration, weight decay helps.

    python -m studies.training_choices            # Fashion-MNIST, 2,000 rows, 3 seeds
    python -m studies.training_choices --quick    # seconds; the numbers mean nothing

One network is varied in one way at a time: depth, width, batch normalization at two learning rates,
weight decay, what is minimized. Label smoothing is also analyzed in the last layer's features; a
small old network is compared with a larger modern one; another is followed over the epochs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise

import numpy as np

from dubito.arrays import FloatArray
from studies.common.reporting import StudyReport, markdown_table, mean_and_spread
from studies.common.runs import Arrays
from studies.common.study import Options, Study
from studies.training_choices.image_networks import (
    CACHE_NAME,
    Choices,
    Seen,
    Size,
    Trained,
    by_choices,
    trained,
)
from studies.training_choices.picture import picture

USUAL = Choices()
OLD, NEW = Choices(is_lenet5=True), Choices(n_layers=6, width=32, norm="batch")
LOSSES, OLD_AND_NEW = "Loss, LeNet5", "Old and new"
SLOW = replace(USUAL, learning_rate=5e-4)
SWEEPS: Mapping[str, Mapping[str, Choices]] = {
    "Depth": {
        "1 layer": replace(USUAL, n_layers=1),
        "3 layers": USUAL,
        "6 layers": replace(USUAL, n_layers=6),
    },
    "Width": {f"{width} channels": replace(USUAL, width=width) for width in (4, 16, 32)},
    "Weight decay": {
        f"{decay:g}": replace(USUAL, weight_decay=decay) for decay in (0, 2e-3, 5e-3, 1e-2, 2e-2)
    },
    "Batch norm": {
        "none, rate 0.0005": SLOW,
        "batch norm, rate 0.0005": replace(SLOW, norm="batch"),
        "none, rate 0.002": USUAL,
        "batch norm, rate 0.002": replace(USUAL, norm="batch"),
    },
    LOSSES: {
        "cross-entropy": OLD,
        "smoothing 0.05": replace(OLD, smoothing=0.05),
        "smoothing 0.1": replace(OLD, smoothing=0.1),
        "square loss": replace(OLD, loss="square"),
        "square loss on raw scores": replace(OLD, loss="square on scores"),
    },
    OLD_AND_NEW: {
        "LeNet5": OLD,
        "6 layers of 32, batch norm": NEW,
        "6 layers of 64, batch norm": replace(NEW, width=64),
    },
}
CLAIMED = {"Depth": "rises", "Width": "rises", "Weight decay": "falls"}  # what ECE does
CLUSTERS = {"scatter": "within / between classes", "cosine": "cosine to the class's weights"}
PARTS, FIGURES = ("train", "test"), ("log loss", "error", "ECE")
SIZE, FOLLOWED_SIZE = Size(2_000, 24, 6), Size(20_000, 30)
QUICK = Size(100, 1, 1, 100, 100)
FOLLOWED = replace(OLD, learning_rate=1e-3)


def settings(options: Options) -> Sequence[Trained]:
    """Return every choice once, and the network that is followed, seed by seed."""
    choices = dict.fromkeys(chain.from_iterable(sweep.values() for sweep in SWEEPS.values()))
    sizes = (QUICK, QUICK) if options.is_quick else (SIZE, FOLLOWED_SIZE)
    return [
        Trained(one, size, seed, is_followed, options.folder)
        for seed in options.seeds
        for size, is_followed, several in zip(
            sizes, (False, True), (choices, [FOLLOWED]), strict=True
        )
        for one in several
    ]


def summarize(found: Mapping[Trained, Arrays]) -> StudyReport:
    """Return one table per sweep, and the figure."""
    plain = {setting: one for setting, one in found.items() if not setting.is_followed}
    seen, first = by_choices(plain), next(iter(plain))
    curves = np.stack([one["curves"] for setting, one in found.items() if setting.is_followed])
    size, n_seeds = first.size, len({setting.seed for setting in plain})
    parts = [
        f"Trained on {size.n_train:,} images, {size.n_epochs} epochs of Adam (rate 0.002, 32 "
        f"images per step, decay as L2 in the gradient) and {size.n_settling} more at a tenth of "
        f"that rate; evaluated on {size.n_test:,} test images; {n_seeds} seeds. Unless stated "
        "otherwise: 3 convolutions of 16 channels, no batch norm, no decay, cross-entropy. The "
        "gap is confidence minus accuracy: above 0 is over-confident. LeNet5 has ReLU and max "
        "pooling here; that of 1998 had neither.",
        *(sweep_text(name, sweep, seen) for name, sweep in SWEEPS.items()),
        cluster_text(seen),
        curve_text(curves, next(setting.size for setting in found if setting.is_followed)),
    ]
    return StudyReport("\n\n".join(parts), picture(SWEEPS, seen, curves))


def sweep_text(name: str, sweep: Mapping[str, Choices], seen: Seen) -> str:
    """Return the table of one sweep, and whether ECE behaves as claimed."""
    heads = [name, "training error", "error", "log loss", "ECE", "ECE minus first row", "gap"]
    has_sizes = name == OLD_AND_NEW
    if has_sizes:
        heads.insert(1, "parameters")
    first = seen[next(iter(sweep.values()))]["ece"]
    rows = []
    for label, choices in sweep.items():
        one = seen[choices]
        keys = ("train_error", "error", "log_loss", "ece")
        less = "" if one["ece"] is first else mean_and_spread(one["ece"] - first)
        cells = [mean_and_spread(one[key]) for key in keys]
        size = [f"{choices.n_parameters():,}"] if has_sizes else []
        rows.append([label, *size, *cells, less, mean_and_spread(one["gap"])])
    return "\n\n".join([markdown_table(heads, rows), *sweep_words(name, sweep, seen)])


def sweep_words(name: str, sweep: Mapping[str, Choices], seen: Seen) -> list[str]:
    """Return the sentences on one sweep, if any."""
    if name == "Batch norm":
        slow, slow_norm, usual, usual_norm = sweep.items()
        pairs = (dict([slow, slow_norm]), dict([usual, usual_norm]))
        return [" ".join(step_words(pair, seen, "rises") for pair in pairs)]
    if name == OLD_AND_NEW:
        old, *others = sweep.items()
        return [" ".join(step_words(dict([old, one]), seen, "rises") for one in others)]
    if name == LOSSES:
        return [loss_words(sweep, seen)]
    words = [step_words(sweep, seen, CLAIMED[name])]
    return [" ".join([*words, decay_words(sweep, seen)])] if name == "Weight decay" else words


def step_words(sweep: Mapping[str, Choices], seen: Seen, verb: str) -> str:
    """Describe in how many seeds ECE changes as claimed, step by step."""
    sign = 1 if verb == "rises" else -1
    steps = []
    for (low, one), (high, other) in pairwise(sweep.items()):
        is_so = sign * (seen[other]["ece"] - seen[one]["ece"]) > 0
        steps.append(f"from {low} to {high} in {is_so.sum()} of {is_so.size} seeds")
    return f"ECE {verb} {', '.join(steps)}."


def loss_words(sweep: Mapping[str, Choices], seen: Seen) -> str:
    """Describe in how many seeds each other loss has a higher error, and a lower ECE."""
    (first, base), *others = sweep.items()
    counts = []
    for label, one in others:
        errs = seen[one]["error"] > seen[base]["error"]
        calibrates = seen[one]["ece"] < seen[base]["ece"]
        counts.append(f"{label} {errs.sum()} and {calibrates.sum()} of {errs.size}")
    return f"Seeds with higher error, and with lower ECE, than {first}: {', '.join(counts)}."


def decay_words(sweep: Mapping[str, Choices], seen: Seen) -> str:
    """Describe which decay has the lowest validation error, and which the lowest ECE."""
    labels = list(sweep)
    best, least = (
        [labels[k] for k in np.argmin([seen[one][key] for one in sweep.values()], axis=0)]
        for key in ("validation_error", "ece")
    )
    return (
        f"Seed by seed, the most accurate on validation images is {', '.join(best)}; ECE is lowest "
        f"at {', '.join(least)}."
    )


def cluster_text(seen: Seen) -> str:
    """Return the scatter of features by training loss."""
    heads = ["Last layer", *(f"{what}, {part}" for what in CLUSTERS.values() for part in PARTS)]
    rows = [
        [label]
        + [mean_and_spread(seen[one][f"{part}_{key}"]) for key in CLUSTERS for part in PARTS]
        for label, one in SWEEPS[LOSSES].items()
    ]
    return markdown_table(heads, rows)


def curve_text(curves: FloatArray, size: Size) -> str:
    """Return the metrics of the followed network at its best validation loss, and at the end."""
    validation, test = curves[:, :, 0], curves[:, :, 1]  # seeds x epochs x figures
    best = validation[:, :, 0].argmin(axis=1)
    rows = np.arange(len(best))
    early, late = test[rows, best], test[:, -1]
    n_epochs = test.shape[1]
    lines = {
        f"lowest validation log loss (epoch {', '.join(map(str, best + 1))})": early,
        f"epoch {n_epochs}": late,
        "difference": late - early,
    }
    table = markdown_table(
        [f"LeNet5, {size.n_train:,} images, rate {FOLLOWED.learning_rate:g}", *FIGURES],
        [[label, *map(mean_and_spread, figures.T[:3])] for label, figures in lines.items()],
    )
    more, fewer = (late - early)[:, 0] > 0, (late - early)[:, 1] < 0
    return (
        f"{table}\n\nAfter that epoch log loss rises in {more.sum()} of {more.size} seeds, while "
        f"the error ends lower in {fewer.sum()}."
    )


main = Study("training_choices", settings, trained, summarize, cache_name=CACHE_NAME).main

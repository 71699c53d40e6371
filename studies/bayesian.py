"""Frequentist and Bayesian answers, by the number of rows and the size of theta.

    python -m studies.bayesian            # a few minutes: 4 numbers of rows, 3 widths, 5 seeds
    python -m studies.bayesian --quick    # seconds

MacKay, "The evidence framework applied to classification networks", 1992; Gal and Ghahramani,
"Dropout as a Bayesian approximation", 2016; Daxberger et al., "Laplace redux", 2021. Where there
are many more rows than weights, the posterior is narrow, and Bayesian and frequentist answers
agree; where there are few, averaging over the posterior helps. A network with two hidden layers
learns three classes of 10 features with 10 % wrong labels. Its weights as trained, a Laplace
approximation of its last layer (full and diagonal, the precision of the prior chosen on validation
rows), and passes with dropout of a second network are compared on new rows with the same noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import torch
from sklearn.datasets import make_classification
from torch import nn

from dubito import Probabilities
from dubito.arrays import FloatArray, IntArray
from dubito.doubt import decompose_uncertainty, laplace_last_layer
from dubito.learn import Categorical, MonteCarloDropout
from dubito.measure import expected_calibration_error, log_loss
from studies.common.networks import seeded
from studies.common.reporting import StudyReport, markdown_table, mean_and_spread, panels
from studies.common.runs import Arrays, RunResult
from studies.common.seeds import mean_interval
from studies.common.study import Options, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

N_CLASSES, N_FEATURES = 3, 10
METHODS = ("as trained", "Laplace, full", "Laplace, diagonal", "Monte Carlo dropout")
FIGURES = ("log loss", "ECE", "distance", "epistemic")
LOG_LOSS, ECE, DISTANCE, EPISTEMIC = range(len(FIGURES))
PRECISIONS = (0.1, 1.0, 10.0, 100.0)
LIKELIHOOD = Categorical(N_CLASSES)
COLORS = ("#d95f02", "#1f78b4", "#1b7837", "#7570b3")


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """Two networks of one width, learned from so many rows."""

    seed: int
    n_rows: int
    width: int
    n_steps: int = 600
    n_test: int = 4_000
    dropout: float = 0.1
    n_draws: int = 50

    @property
    def n_weights(self) -> int:
        """The number of weights of the whole network."""
        return (N_FEATURES + 1 + self.width + 1) * self.width + (self.width + 1) * N_CLASSES


def settings(options: Options) -> list[Setting]:
    """Return one setting per seed, number of rows and width."""
    sizes, widths = (
        ((50, 200), (4, 8)) if options.is_quick else ((50, 200, 1000, 5000), (4, 16, 64))
    )
    extra = {"n_steps": 40, "n_test": 200, "n_draws": 10} if options.is_quick else {}
    return [
        Setting(seed, n_rows, width, **extra)
        for seed in options.seeds
        for n_rows in sizes
        for width in widths
    ]


def work(setting: Setting) -> RunResult:
    """Return the figures of every method, methods x figures."""
    n_rows, n_validation = setting.n_rows, max(50, setting.n_rows // 4)
    x, y = make_classification(
        n_rows + n_validation + setting.n_test,
        N_FEATURES,
        n_informative=5,
        n_redundant=0,
        n_classes=N_CLASSES,
        flip_y=0.1,
        random_state=setting.seed,
    )
    x = x.astype(np.float32)
    parts = np.split(np.arange(len(x)), [n_rows, n_rows + n_validation])
    train, validation, test = ((x[rows], y[rows]) for rows in parts)
    network = trained(setting, *train, dropout=0.0)
    dropping = trained(setting, *train, dropout=setting.dropout)
    members = {
        f"Laplace, {kind}": laplace(network, train, validation, test[0], kind, setting.n_draws)
        for kind in ("full", "diagonal")
    }
    passes = MonteCarloDropout(dropping, setting.n_draws, likelihood=LIKELIHOOD)
    members["Monte Carlo dropout"] = passes(torch.from_numpy(test[0]))
    with torch.no_grad():
        plain = network(torch.from_numpy(test[0])).double().softmax(1).numpy()
    found = [figures(test[1], plain, plain, 0.0)]
    for name in METHODS[1:]:
        doubt = float(decompose_uncertainty(members[name]).epistemic.mean())
        found.append(figures(test[1], np.asarray(members[name].mean.array), plain, doubt))
    return {"figures": found}


def figures(y: IntArray, said: FloatArray, plain: FloatArray, epistemic: float) -> list[float]:
    """Return log loss, ECE, the total variation distance to the trained weights, and the doubt."""
    outputs = Probabilities(said)
    distance = float(np.abs(said - plain).sum(axis=1).mean() / 2)
    return [log_loss(y, outputs), expected_calibration_error(y, outputs), distance, epistemic]


def trained(setting: Setting, x: FloatArray, y: IntArray, dropout: float) -> nn.Sequential:
    """Return a network trained by maximum likelihood."""
    generator = seeded(setting.seed)
    network = nn.Sequential(
        *(nn.Linear(N_FEATURES, setting.width), nn.ReLU()),
        *(nn.Linear(setting.width, setting.width), nn.ReLU(), nn.Dropout(dropout)),
        nn.Linear(setting.width, N_CLASSES),
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))
    network.train()
    for _ in range(setting.n_steps):
        rows = torch.randint(len(x), (64,), generator=generator)
        loss = LIKELIHOOD.loss(network(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return network.eval()


def laplace(
    network: nn.Sequential,
    train: tuple[FloatArray, IntArray],
    validation: tuple[FloatArray, IntArray],
    new_x: FloatArray,
    covariance: Literal["full", "diagonal"],
    n_draws: int,
) -> Any:
    """Return draws of the last layer, with the prior of the lowest validation loss."""
    last = network[-1]
    assert isinstance(last, nn.Linear)
    head = [one.detach().double().numpy() for one in (last.weight, last.bias)]
    with torch.no_grad():
        features, seen, new = (
            network[:-1](torch.from_numpy(one)).double().numpy()
            for one in (train[0], validation[0], new_x)
        )
    models = [
        laplace_last_layer(features, *head, prior_precision=one, covariance=covariance)
        for one in PRECISIONS
    ]
    losses = [
        log_loss(validation[1], Probabilities(one.predict_proba(seen, n_draws))) for one in models
    ]
    return models[int(np.argmin(losses))].members(new, n_draws)


def summarize(found: Mapping[Setting, Arrays]) -> StudyReport:
    """Return the figures by rows and width, what Bayesian averages gain, and where they agree."""
    cells: dict[tuple[int, int], list[FloatArray]] = {}
    weights = {}
    for setting, arrays in found.items():
        cells.setdefault((setting.n_rows, setting.width), []).append(arrays["figures"])
        weights[setting.n_rows, setting.width] = setting.n_weights
    stacks = {key: np.stack(values) for key, values in cells.items()}
    texts = []
    for title, number in (("Log loss", LOG_LOSS), ("ECE", ECE)):
        rows = table(stacks, weights, lambda one, n=number: one[:, :, n])
        texts.append(f"**{title}**\n\n{markdown_table(heads(METHODS), rows)}")
    rows = [
        [
            *name(key, weights),
            *(interval(one[:, k, LOG_LOSS] - one[:, 0, LOG_LOSS]) for k in (1, 2, 3)),
        ]
        for key, one in stacks.items()
    ]
    title = "**Log loss minus that of the weights as trained**, same seed; 95 % intervals"
    texts.append(f"{title}\n\n{markdown_table(heads(METHODS[1:]), rows)}")
    for title, number in (
        ("Distance to the weights as trained", DISTANCE),
        ("Epistemic uncertainty in nats", EPISTEMIC),
    ):
        rows = table(stacks, weights, lambda one, n=number: one[:, 1:, n])
        texts.append(f"**{title}**\n\n{markdown_table(heads(METHODS[1:]), rows)}")
    return StudyReport("\n\n".join(texts), picture(stacks, weights))


def heads(methods: Sequence[str]) -> list[str]:
    """Return the heads of a table."""
    return ["", "rows / weights", *methods]


def name(key: tuple[int, int], weights: Mapping[tuple[int, int], int]) -> list[str]:
    """Return the name of a line, and rows per weight."""
    return [f"{key[0]:,} rows, width {key[1]}", f"{key[0] / weights[key]:.2g}"]


def table(
    stacks: Mapping[tuple[int, int], FloatArray],
    weights: Mapping[tuple[int, int], int],
    of: Callable[..., FloatArray],
) -> list[list[str]]:
    """Return means and spreads over seeds, one line per number of rows and width."""
    return [
        [*name(key, weights), *(mean_and_spread(values) for values in of(one).T)]
        for key, one in stacks.items()
    ]


def interval(differences: FloatArray) -> str:
    """Return a paired difference and its interval."""
    found = mean_interval(differences)
    return f"{found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def picture(
    stacks: Mapping[tuple[int, int], FloatArray], weights: Mapping[tuple[int, int], int]
) -> Figure:
    """Plot the gain in log loss and the distance over rows per weight."""
    figure = panels(1, 2, size=(5.2, 3.6))
    ratios = np.array([key[0] / weights[key] for key in stacks])
    order = np.argsort(ratios)
    gain, distance = figure.axes
    for k, method in enumerate(METHODS[1:], start=1):
        gains = np.array([(one[:, 0, 0] - one[:, k, 0]).mean() for one in stacks.values()])
        gaps = np.array([one[:, k, DISTANCE].mean() for one in stacks.values()])
        style: dict[str, Any] = {"marker": "o", "ms": 4, "lw": 1.2, "color": COLORS[k]}
        gain.plot(ratios[order], gains[order], label=method, **style)
        distance.plot(ratios[order], gaps[order], **style)
    gain.axhline(0, color="0.5", lw=0.8)
    gain.set_ylabel("log loss, as trained minus Bayesian")
    gain.set_yscale("symlog", linthresh=0.01)
    distance.set_ylabel("total variation distance to as trained")
    for axes in figure.axes:
        axes.set_xscale("log")
        axes.set_xlabel("training rows per weight")
    figure.legend(*gain.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


main = Study("bayesian", settings, work, summarize, n_seeds=5).main

if __name__ == "__main__":
    main()

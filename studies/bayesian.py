"""Frequentist and Bayesian answers, by the number of rows and the width of the network.

    python -m studies.bayesian            # a few minutes: 4 numbers of rows, 3 widths, 5 seeds
    python -m studies.bayesian --quick    # seconds

MacKay, "The evidence framework applied to classification networks", 1992; Gal and Ghahramani,
"Dropout as a Bayesian approximation", 2016; Daxberger et al., "Laplace redux", 2021. With many
rows the posterior is narrow, and Bayesian and frequentist answers agree; with few, averaging over
the posterior helps. A network with two hidden layers learns three classes of 10 features with 10 %
wrong labels. A Laplace approximation of its last layer (full and diagonal, the precision of the
prior chosen on validation rows) is compared with the same weights as trained, and with what a
frequentist gets from the same validation rows: a temperature, or the step of training at which to
stop. Passes with dropout are compared with the same network, trained with dropout, in one pass
without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import torch
from scipy.special import softmax
from sklearn.datasets import make_classification
from torch import nn

from dubito import Logits, Probabilities
from dubito.arrays import FloatArray, IntArray
from dubito.calibrate import TemperatureScaling
from dubito.doubt import decompose_uncertainty, laplace_last_layer
from dubito.learn import Categorical, MonteCarloDropout
from dubito.measure import expected_calibration_error, log_loss
from studies.common.networks import seeded
from studies.common.reporting import StudyReport, markdown_table, mean_and_spread, panels
from studies.common.runs import Arrays, RunResult
from studies.common.seeds import mean_and_interval
from studies.common.study import Options, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

N_CLASSES, N_FEATURES = 3, 10
LAPLACE = ("Laplace, full", "Laplace, diagonal")
TRAINED, SCALED, STOPPED = "as trained", "temperature", "stopped early"
ONE_PASS, PASSES = "dropout, one pass", "Monte Carlo dropout"
METHODS = (TRAINED, SCALED, STOPPED, *LAPLACE, ONE_PASS, PASSES)
AVERAGES = {**dict.fromkeys(LAPLACE, TRAINED), PASSES: ONE_PASS}  # and the network averaged
FIGURES = ("log loss", "ECE", "distance", "epistemic")
LOG_LOSS, ECE, DISTANCE, EPISTEMIC = range(len(FIGURES))
N_BETWEEN = 10  # steps of training between two looks at the validation rows
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
    def n_last(self) -> int:
        """The number of weights of the last layer."""
        return (self.width + 1) * N_CLASSES

    @property
    def n_weights(self) -> int:
        """The number of weights of the whole network."""
        return (N_FEATURES + 1 + self.width + 1) * self.width + self.n_last


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
    network, stopped = trained(setting, train, validation, dropout=0.0)
    dropping, _ = trained(setting, train, validation, dropout=setting.dropout)
    seen, new, early, one_pass = (
        Logits(logits(model, rows[0]))
        for model, rows in (
            (network, validation),
            (network, test),
            (stopped, test),
            (dropping, test),
        )
    )
    single = {
        TRAINED: Probabilities(softmax(new.array, axis=1)),
        SCALED: Probabilities(TemperatureScaling().fit(seen, validation[1]).predict_proba(new)),
        STOPPED: Probabilities(softmax(early.array, axis=1)),
        ONE_PASS: Probabilities(softmax(one_pass.array, axis=1)),
    }
    members = {
        f"Laplace, {kind}": laplace(network, train, validation, test[0], kind, setting.n_draws)
        for kind in ("full", "diagonal")
    }
    passes = MonteCarloDropout(dropping, setting.n_draws, likelihood=LIKELIHOOD)
    members[PASSES] = passes(torch.from_numpy(test[0]))
    found = []
    for name in METHODS:
        if name in single:
            found.append(figures(test[1], single[name], single[TRAINED], 0.0))
        else:
            uncertainty = float(decompose_uncertainty(members[name]).epistemic.mean())
            found.append(figures(test[1], members[name].mean, single[AVERAGES[name]], uncertainty))
    return {"figures": found}


def figures(y: IntArray, said: Any, reference: Any, epistemic: float) -> list[float]:
    """Return log loss, ECE, the total variation distance to a reference, and the doubt."""
    distance = float(np.abs(np.asarray(said.array) - reference.array).sum(axis=1).mean() / 2)
    return [log_loss(y, said), expected_calibration_error(y, said), distance, epistemic]


def logits(network: nn.Module, x: FloatArray) -> FloatArray:
    """Return the logits of a network in double precision."""
    with torch.no_grad():
        return np.asarray(network(torch.from_numpy(x)).double().numpy())


def trained(
    setting: Setting,
    train: tuple[FloatArray, IntArray],
    validation: tuple[FloatArray, IntArray],
    dropout: float,
) -> tuple[nn.Sequential, nn.Sequential]:
    """Return a network trained by maximum likelihood, and as it was at its best validation loss."""
    generator = seeded(setting.seed)
    network = nn.Sequential(
        *(nn.Linear(N_FEATURES, setting.width), nn.ReLU()),
        *(nn.Linear(setting.width, setting.width), nn.ReLU(), nn.Dropout(dropout)),
        nn.Linear(setting.width, N_CLASSES),
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    inputs, labels = torch.from_numpy(train[0]), torch.from_numpy(train[1].astype(np.int64))
    best, lowest = network, np.inf
    for step in range(setting.n_steps):
        network.train()
        rows = torch.randint(len(inputs), (64,), generator=generator)
        loss = LIKELIHOOD.loss(network(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        if step % N_BETWEEN == N_BETWEEN - 1:
            held_out = log_loss(validation[1], Logits(logits(network.eval(), validation[0])))
            if held_out < lowest:
                best, lowest = deepcopy(network), held_out
    return network.eval(), best


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
    features, seen, new = (logits(network[:-1], one) for one in (train[0], validation[0], new_x))
    models = [
        laplace_last_layer(features, *head, prior_precision=one, covariance=covariance)
        for one in PRECISIONS
    ]
    losses = [
        log_loss(validation[1], Probabilities(one.predict_proba(seen, n_draws))) for one in models
    ]
    return models[int(np.argmin(losses))].members(new, n_draws)


def summarize(found: Mapping[Setting, Arrays]) -> StudyReport:
    """Return the figures by rows and width, what averages gain, and how much they change."""
    cells: dict[tuple[int, int], list[FloatArray]] = {}
    names = {}
    for one, arrays in found.items():
        key = one.n_rows, one.width
        cells.setdefault(key, []).append(arrays["figures"])
        names[key] = [
            f"{one.n_rows:,} rows, width {one.width}",
            f"{one.n_weights:,} ({one.n_last})",
        ]
    stacks = {key: np.stack(values) for key, values in cells.items()}

    def table(title: str, columns: Mapping[str, Callable[[FloatArray], str]]) -> str:
        rows = [
            [*names[key], *(cell(one) for cell in columns.values())] for key, one in stacks.items()
        ]
        heads = ["", "weights (of the last layer)", *columns]
        return f"**{title}\n\n{markdown_table(heads, rows)}"

    texts = [
        table(
            f"{title}**",
            {
                name: partial(spread, number=number, method=method)
                for method, name in enumerate(METHODS)
            },
        )
        for title, number in (("Log loss", LOG_LOSS), ("ECE", ECE))
    ]
    own = {f"{name} minus {of}": (name, of) for name, of in AVERAGES.items()}
    rivals = {f"{name} minus {of}": (name, of) for of in (SCALED, STOPPED) for name in LAPLACE}
    for title, pairs in (
        ("Log loss of averages minus the same network** without averaging", own),
        ("Log loss of averages minus a frequentist** who uses the same validation rows", rivals),
    ):
        columns = {name: partial(gap, pair=pair) for name, pair in pairs.items()}
        texts.append(table(f"{title}, same seed; 95 % intervals", columns))
    averages = {name: METHODS.index(name) for name in AVERAGES}
    other = {f"{ONE_PASS}, to {TRAINED}": METHODS.index(ONE_PASS)}  # two networks, no average
    for title, number, methods in (
        ("Distance to the same network** without averaging", DISTANCE, averages | other),
        ("Epistemic uncertainty in nats**", EPISTEMIC, averages),
    ):
        columns = {name: partial(mean, number=number, method=k) for name, k in methods.items()}
        texts.append(table(f"{title}; 95 % intervals", columns))
    return StudyReport("\n\n".join(texts), picture(stacks))


def spread(one: FloatArray, number: int, method: int) -> str:
    """Return the mean of a figure over seeds, and its standard deviation."""
    return mean_and_spread(one[:, method, number])


def mean(one: FloatArray, number: int, method: int) -> str:
    """Return the mean of a figure over seeds, and its interval."""
    return mean_and_interval(one[:, method, number])


def gap(one: FloatArray, pair: tuple[str, str]) -> str:
    """Return the difference in log loss of two methods, and its interval."""
    first, second = (one[:, METHODS.index(name), LOG_LOSS] for name in pair)
    return mean_and_interval(first - second)


def picture(stacks: Mapping[tuple[int, int], FloatArray]) -> Figure:
    """Plot the gain in log loss and the distance over rows, one line per width."""
    figure = panels(2, len(AVERAGES), size=(3.7, 3.0))
    widths = sorted({width for _, width in stacks})
    for k, (name, of) in enumerate(AVERAGES.items()):
        gain, distance = figure.axes[k], figure.axes[k + len(AVERAGES)]
        method, network = METHODS.index(name), METHODS.index(of)
        for width, color in zip(widths, COLORS, strict=False):
            sizes = [n for n, one in stacks if one == width]
            cells = [stacks[n, width] for n in sizes]
            gains = [(one[:, network, LOG_LOSS] - one[:, method, LOG_LOSS]).mean() for one in cells]
            style: dict[str, Any] = {"marker": "o", "ms": 4, "lw": 1.2, "color": color}
            gain.plot(sizes, gains, label=f"width {width}", **style)
            distance.plot(sizes, [one[:, method, DISTANCE].mean() for one in cells], **style)
        gain.axhline(0, color="0.5", lw=0.8)
        gain.set_yscale("symlog", linthresh=0.01)
        gain.set_title(f"{name}, against {of}", fontsize=9)
        gain.set_ylim(-0.01, 10)
        distance.set_ylim(0, 0.5)
        distance.set_xlabel("training rows")
        for axes in (gain, distance):
            axes.set_xscale("log")
    figure.axes[0].set_ylabel("gain in log loss by averaging")
    figure.axes[len(AVERAGES)].set_ylabel("total variation distance")
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3)
    return figure


main = Study("bayesian", settings, work, summarize, n_seeds=5).main

if __name__ == "__main__":
    main()

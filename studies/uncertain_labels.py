"""Labels that annotators marked as uncertain: does it matter what training takes them for?

    python -m studies.uncertain_labels            # the whole study, about 5 minutes
    python -m studies.uncertain_labels --quick    # seconds

Five labels per row depend on twelve features by known probabilities. Some labels of the training
rows are marked as uncertain: at random, mainly the positive or mainly the negative ones, or those
that are hard to tell. A network is trained with each policy for marks, and with no label marked.
Figures are on new rows whose labels are all known, also after calibration on 500 such rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import torch
from scipy.special import expit
from torch import nn

from dubito import MultiLabel, audit
from dubito.arrays import FloatArray
from dubito.calibrate import MultiLabelCalibrator
from dubito.data.labels import LabelMatrix
from dubito.learn import Bernoulli, collect_outputs
from dubito.measure import Interval, log_loss
from studies.common.reporting import StudyReport, markdown_table, mean_and_spread, panels
from studies.common.runs import Arrays
from studies.common.seeds import mean_interval
from studies.common.study import Options, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

N_FEATURES, N_LABELS, N_HIDDEN = 12, 5, 64
N_CALIBRATION = 500
N_EPOCHS, BATCH, RATE, DECAY = 40, 128, 2e-3, 1e-2
UNMARKED, IGNORE = "no label marked", "ignore"
POLICIES: dict[str, Any] = {
    IGNORE: "ignore",
    "zeros": "zeros",
    "ones": "ones",
    "soft: frequency of the label": "soft",
    "soft: 0.7": 0.7,
    "multi-class": "multi-class",
}
# The probability of a mark where the label is 0, and where it is 1; None if it is hard to tell.
MECHANISMS = {
    "at random": (0.3, 0.3),
    "mainly positive": (0.1, 0.6),
    "mainly negative": (0.4, 0.1),
    "hard to tell": None,
}
FIGURES = ("ROC-AUC", "log loss", "ECE", "log loss, calibrated", "ECE, calibrated")


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """Which labels are marked, how they are treated, and the size of a run."""

    mechanism: str
    policy: str
    seed: int
    n_train: int = 4000
    n_test: int = 20_000
    n_epochs: int = N_EPOCHS


def settings(options: Options) -> list[Setting]:
    """Return the runs: each mechanism with each policy and seed."""
    sizes = (400, 1000, 2) if options.is_quick else (4000, 20_000, N_EPOCHS)
    return [
        Setting(mechanism, policy, seed, *sizes)
        for seed in options.seeds
        for mechanism in MECHANISMS
        for policy in (UNMARKED, *POLICIES)
    ]


class Rows(NamedTuple):
    """Features, probabilities of the labels, and the labels."""

    features: FloatArray
    p: FloatArray
    y: FloatArray


def draw_rows(n_rows: int, seed: int) -> Rows:
    """Return rows of the same distribution for every seed."""
    fixed, rng = np.random.default_rng(0), np.random.default_rng(seed)
    linear, curved = fixed.normal(size=(2, N_FEATURES, N_LABELS)) / np.sqrt(N_FEATURES)
    x = rng.normal(size=(n_rows, N_FEATURES))
    odds = np.linspace(-3, -0.5, N_LABELS) + 2 * x @ linear + 1.5 * np.sin(2 * x @ curved)
    p = expit(odds)
    return Rows(x, p, (rng.random(p.shape) < p) * 1.0)


def mark(rows: Rows, mechanism: str, seed: int) -> FloatArray:
    """Return the labels, -1 where they are marked as uncertain."""
    rates, rng = MECHANISMS[mechanism], np.random.default_rng([seed, 1])
    if rates is None:
        chance = 0.9 * 4 * rows.p * (1 - rows.p)  # 0.9 where both are as probable
    else:
        chance = np.where(rows.y == 1, rates[1], rates[0])
    return np.where(rng.random(chance.shape) < chance, -1.0, rows.y)


def work(setting: Setting) -> dict[str, Any]:
    """Train a network, and return its figures on rows of known labels."""
    train, new, known = (
        draw_rows(n, 3 * setting.seed + k + 1)
        for k, n in enumerate((setting.n_train, setting.n_test, N_CALIBRATION))
    )
    marks = mark(train, setting.mechanism, setting.seed)
    y, policy = marks, POLICIES.get(setting.policy)
    if policy is None:
        y = train.y
    elif policy == "soft":  # the likelihood sees one batch at a time
        y = LabelMatrix.of(marks, MultiLabel(train.p), uncertain="soft").values
    likelihood = Bernoulli(N_LABELS, uncertain=None if policy in (None, "soft") else policy)
    model = fit(likelihood, train.features, y, setting)
    outputs, held_out = (
        collect_outputs(model, [torch.tensor(one.features).float()], likelihood=likelihood).outputs
        for one in (new, known)
    )
    calibrated = MultiLabelCalibrator().fit(held_out, known.y).transform(outputs)
    before, after = figures(new.y, outputs), figures(new.y, calibrated)
    return {
        **before,
        **{f"{name}, calibrated": value for name, value in after.items()},
        "marked": np.mean(marks == -1),
        "marked, positive": np.mean(train.y[marks == -1]),
    }


def fit(likelihood: Bernoulli, x: FloatArray, y: FloatArray, setting: Setting) -> nn.Module:
    """Return a network trained on marked labels."""
    torch.manual_seed(setting.seed)
    model = nn.Sequential(
        nn.Linear(N_FEATURES, N_HIDDEN),
        nn.ReLU(),
        nn.Linear(N_HIDDEN, N_HIDDEN),
        nn.ReLU(),
        nn.Linear(N_HIDDEN, likelihood.n_outputs),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    inputs, labels = torch.tensor(x).float(), torch.tensor(y).float()
    for _ in range(setting.n_epochs):
        for rows in torch.split(torch.randperm(len(inputs)), BATCH):
            optimizer.zero_grad()
            torch.autograd.backward(likelihood.loss(model(inputs[rows]), labels[rows]))
            optimizer.step()
    return model


def figures(y: FloatArray, outputs: Any) -> dict[str, float]:
    """Return the means over labels of ROC-AUC, log loss and ECE."""
    means = audit(y, outputs, n_resamples=0).means["macro"]
    losses = [log_loss(y[:, k].astype(int), outputs.label(k)) for k in range(N_LABELS)]
    return {
        "ROC-AUC": means["roc_auc"],
        "log loss": float(np.mean(losses)),
        "ECE": means["expected_calibration_error"],
    }


class Compared(NamedTuple):
    """The figures of a policy by seed, and those of ignoring marks."""

    mechanism: str
    policy: str
    found: dict[str, FloatArray]
    ignored: dict[str, FloatArray]

    def difference(self, figure: str) -> Interval:
        """The paired difference to ignoring marks."""
        return mean_interval(self.found[figure] - self.ignored[figure])


def compared(found: Mapping[Setting, Arrays]) -> Iterator[Compared]:
    """Yield each policy with each mechanism."""
    seeds: dict[tuple[str, str], dict[str, FloatArray]] = {}
    for mechanism in MECHANISMS:
        for policy in (UNMARKED, *POLICIES):
            runs = [
                run
                for one, run in found.items()
                if (one.mechanism, one.policy) == (mechanism, policy)
            ]
            seeds[mechanism, policy] = {
                name: np.array([run[name] for run in runs]) for name in runs[0]
            }
    for (mechanism, policy), values in seeds.items():
        yield Compared(mechanism, policy, values, seeds[mechanism, IGNORE])


def summarize(found: Mapping[Setting, Arrays]) -> StudyReport:
    """Return the tables of all policies, and the figure."""
    rows = list(compared(found))
    some = next(iter(found))
    intro = (
        f"Trained on {some.n_train:,} rows, evaluated on {some.n_test:,} new ones; means over "
        f"{N_LABELS} labels and seeds ± the standard deviation over seeds. ECE in 10 equally "
        "filled bins. Differences to `ignore` are paired by seed, with 95 % intervals; `*` marks "
        "those that exclude 0."
    )
    tables = [table([row for row in rows if row.mechanism == one]) for one in MECHANISMS]
    return StudyReport("\n\n".join([intro, *tables, words(rows)]), picture(rows))


def table(rows: list[Compared]) -> str:
    """Return the figures of all policies with one mechanism."""
    marked, positive = (
        float(rows[1].found[name].mean()) for name in ("marked", "marked, positive")
    )
    title = f"Marked: {rows[0].mechanism} ({marked:.0%}, of which {positive:.0%} positive)"
    heads = [title, *FIGURES[:3], "ROC-AUC minus ignore", "log loss minus ignore"]
    heads += ["log loss, calibrated", "minus ignore"]
    lines = []
    for row in rows:
        is_ignore = row.policy == IGNORE
        values = {name: mean_and_spread(row.found[name]) for name in FIGURES}
        gaps = {name: "" if is_ignore else marked_gap(row.difference(name)) for name in FIGURES}
        cells = [values[name] for name in FIGURES[:3]] + [gaps["ROC-AUC"], gaps["log loss"]]
        lines.append([row.policy, *cells, values[FIGURES[3]], gaps[FIGURES[3]]])
    return markdown_table(heads, lines)


def marked_gap(gap: Interval) -> str:
    """Format a difference and its interval, with a star if it excludes 0."""
    if np.isinf(gap.low):
        return f"{gap.value:+.3f}"
    star = "*" if gap.low > 0 or gap.high < 0 else ""
    return f"{gap.value:+.3f} ({gap.low:+.3f} to {gap.high:+.3f}){star}"


def words(rows: list[Compared]) -> str:
    """Describe the best and the worst policy of each mechanism."""
    lines = []
    for mechanism in MECHANISMS:
        of = [row for row in rows if row.mechanism == mechanism and row.policy != UNMARKED]
        parts = []
        for name in ("ROC-AUC", "log loss", "log loss, calibrated"):
            sign = -1 if name == "ROC-AUC" else 1
            ranked = sorted(of, key=lambda row: sign * float(row.found[name].mean()))
            best, worst = ranked[0], ranked[-1]
            spread = abs(float(worst.found[name].mean() - best.found[name].mean()))
            parts.append(f"{name} {best.policy} to {worst.policy}, {spread:.3f} apart")
        lines.append(f"- {mechanism}: {'; '.join(parts)}.")
    return "\n".join(["The best policy to the worst:", "", *lines])


def picture(rows: list[Compared]) -> Figure:
    """Plot the log loss of each policy relative to ignoring marks."""
    figure = panels(1, len(MECHANISMS), size=(3.4, 3.2))
    for axes, mechanism in zip(figure.axes, MECHANISMS, strict=True):
        draw(axes, [row for row in rows if row.mechanism == mechanism and row.policy != IGNORE])
        axes.set_title(f"marked: {mechanism}")
    for axes in figure.axes[1:]:
        axes.set_yticklabels([])
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle("Treatment of uncertain labels: log loss minus that of ignoring them")
    return figure


def draw(axes: Axes, rows: list[Compared]) -> None:
    """Plot the differences of one mechanism, before and after calibration."""
    for shift, name in ((-0.12, "log loss"), (0.12, "log loss, calibrated")):
        gaps = [row.difference(name) for row in rows]
        values = np.array([gap.value for gap in gaps])
        halves = np.array([gap.high - gap.value for gap in gaps])
        halves = np.where(np.isinf(halves), 0.0, halves)
        heights = np.arange(len(rows)) + shift
        axes.errorbar(values, heights, xerr=halves, fmt="o", ms=3, lw=1, label=name)
    axes.axvline(0, color="0.6", lw=0.8, zorder=0)
    axes.set_yticks(range(len(rows)), [row.policy for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("log loss minus ignore")


main = Study("uncertain_labels", settings, work, summarize, n_seeds=5).main

if __name__ == "__main__":
    main()

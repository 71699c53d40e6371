"""Report on swapped labels: accuracy, detection by s, and ranking of errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dubito.arrays import FloatArray
from studies.common.reporting import StudyReport, markdown_table, mean_and_spread
from studies.common.runs import Arrays
from studies.common.seeds import mean_interval, points
from studies.noisy_pairs.losses import CHOSEN, FLOORS, LOSSES
from studies.noisy_pairs.picture import picture
from studies.noisy_pairs.training import CIFAR, FASHION, RATES, Setting

PLAIN, SLIP, FAITHFUL = "cross-entropy", "slip", "faithful"
NO_FLOOR = FLOORS[-1]
LOST = 0.05  # the accuracy below which a class counts as lost
JOINT = (CHOSEN, *FLOORS)
WITH_S = (*JOINT, FAITHFUL, SLIP)
SHOWN = (*(name for name in LOSSES if name not in WITH_S), *WITH_S)
NO_CIFAR = "CIFAR-10 was left out: pass its location as `--cifar PATH`."


@final
@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The runs on one set of images, by loss and rate, in the order of seeds."""

    title: str
    rates: tuple[float, ...]
    runs: Mapping[tuple[str, float], Sequence[Arrays]]

    @classmethod
    def of(cls, found: Mapping[Setting, Arrays], data: str, rates: tuple[float, ...]) -> Table:
        """Sort runs, and add those of the floor that each seed's validation rows choose."""
        runs: dict[tuple[str, float], list[Arrays]] = {}
        for setting, arrays in sorted(found.items(), key=lambda pair: pair[0].seed):
            if setting.data == data:
                runs.setdefault((setting.loss, setting.rate), []).append(arrays)
        for rate in rates if runs else ():
            tried = zip(*(runs[floor, rate] for floor in FLOORS), strict=True)
            runs[CHOSEN, rate] = [min(of_seed, key=validation_loss) for of_seed in tried]
        return cls(data, rates, runs)

    def last(self, loss: str, rate: float, name: str) -> FloatArray:
        """Return a figure of each seed, or the last of a curve."""
        return np.array([np.atleast_1d(run[name])[-1] for run in self.runs[loss, rate]])

    def cell(self, loss: str, rate: float, name: str) -> str:
        """Return the mean and spread of a figure, or nothing where the loss was not run."""
        return mean_and_spread(self.last(loss, rate, name)) if (loss, rate) in self.runs else ""

    def chosen(self, rate: float) -> str:
        """Say how often each floor was chosen."""
        runs = self.runs[CHOSEN, rate]
        counts = {
            floor: sum(any(run is one for one in self.runs[floor, rate]) for run in runs)
            for floor in FLOORS
        }
        return ", ".join(f'"{name}" in {n} of {len(runs)} seeds' for name, n in counts.items() if n)

    def accuracies(self) -> str:
        """Return accuracy by rate, with the paired difference to cross-entropy at the highest."""
        last = self.rates[-1]
        heads = [f"{self.title}: accuracy", *(f"{rate:.0%} swapped" for rate in self.rates)]
        heads += [
            f"points above cross-entropy at {last:.0%}",
            f"log loss, {last:.0%}",
            f"ECE, {last:.0%}",
        ]
        rows = []
        for loss in SHOWN:
            cells = [self.cell(loss, rate, "test accuracy") for rate in self.rates]
            accuracy, plain = (self.last(one, last, "test accuracy") for one in (loss, PLAIN))
            gain = accuracy - plain
            cells.append("" if loss == PLAIN else points(mean_interval(gain)))
            cells += [
                mean_and_spread(self.last(loss, last, name)) for name in ("test log loss", "ECE")
            ]
            rows.append([loss, *cells])
        return markdown_table(heads, rows)

    def findings(self) -> str:
        """Return how well s, and entropy beside it, finds the classes of noisy pairs."""
        heads = [f"{self.title}: AUROC for noisy classes"]
        heads += [f"s, {rate:.0%}" for rate in self.rates]
        heads += [f"s, {self.rates[-1]:.0%}, minimum and maximum", f"entropy, {self.rates[-1]:.0%}"]
        rows = []
        for loss in (*WITH_S, PLAIN):
            entropy = mean_and_spread(self.last(loss, self.rates[-1], "entropy for noisy classes"))
            if loss == PLAIN:
                rows.append([loss, *[""] * (len(self.rates) + 1), entropy])
                continue
            found = self.last(loss, self.rates[-1], "s for noisy classes")
            bounds = f"{found.min():.3f} to {found.max():.3f}"
            cells = [self.cell(loss, rate, "s for noisy classes") for rate in self.rates]
            rows.append([loss, *cells, bounds, entropy])
        return markdown_table(heads, rows)

    def errors(self) -> str:
        """Return how well s and entropy of the same network rank its errors."""
        title = f"{self.title}: AUROC for errors"
        heads = [title, "swapped", "s", "entropy", "s minus entropy, in hundredths"]
        rows = []
        for loss in (CHOSEN, FAITHFUL):
            for rate in (rate for rate in self.rates if (loss, rate) in self.runs):
                by_s, by_entropy = (
                    self.last(loss, rate, f"{score} for errors") for score in ("s", "entropy")
                )
                gap = mean_interval(by_s - by_entropy)
                cells = [mean_and_spread(by_s), mean_and_spread(by_entropy), points(gap)]
                rows.append([loss, f"{rate:.0%}", *cells])
        return markdown_table(heads, rows)

    def words(self) -> str:
        """Say what the tables show at the highest rate."""
        rate = self.rates[-1]
        plain = self.last(PLAIN, rate, "test accuracy")
        parts = [
            f"{self.title}, {rate:.0%} swapped: validation chose {self.chosen(rate)}.",
            self.bound(rate, CHOSEN, np.min, "at least"),
            self.bound(rate, FAITHFUL, np.min, "at least"),
            self.bound(rate, SLIP, np.max, "at most"),
        ]
        for loss in (CHOSEN, FAITHFUL):
            gain = mean_interval(self.last(loss, rate, "test accuracy") - plain)
            parts.append(f'Accuracy of "{loss}" against cross-entropy: {points(gain)} points.')
        parts.append(f'"{NO_FLOOR}" loses a class in {self.n_lost(NO_FLOOR, rate)} seeds.')
        return " ".join(parts)

    def n_lost(self, loss: str, rate: float) -> str:
        """Say in how many seeds some class is hardly ever found."""
        least = [run["accuracy by class"].min() for run in self.runs[loss, rate]]
        return f"{sum(one < LOST for one in least)} of {len(least)}"

    def bound(self, rate: float, loss: str, of: Callable[[FloatArray], float], words: str) -> str:
        """Say what AUROC of s is in every seed."""
        found = of(self.last(loss, rate, "s for noisy classes"))
        return f'AUROC of s for noisy classes by "{loss}": {words} {found:.3f} in every seed.'


def validation_loss(run: Arrays) -> float:
    """Return the log loss on validation rows, whose labels are as noisy as those of training."""
    return float(run["validation log loss"][-1])


def summarize(found: Mapping[Setting, Arrays]) -> StudyReport:
    """Return tables of both sets of images, and the picture."""
    on_fashion, on_cifar = Table.of(found, FASHION, RATES), Table.of(found, CIFAR, RATES)
    texts = [part for table in (on_fashion, on_cifar) if table.runs for part in parts_of(table)]
    if not on_cifar.runs:
        texts.append(NO_CIFAR)
    return StudyReport("\n\n".join(texts), picture(on_fashion, on_cifar))


def parts_of(table: Table) -> list[str]:
    """Return the report on one data set."""
    return [table.accuracies(), table.findings(), table.errors(), table.words()]

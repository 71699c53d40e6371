"""Log loss, Brier score and ECE after calibration, beside peers, on real outputs of real models.

    python -m benchmarks.calibration_quality FOLDER               # NPZ files of outputs and labels
    python -m benchmarks.calibration_quality FOLDER --cache FILE  # keeps what peers reached there
    python -m benchmarks.calibration_quality --quick              # two small generated sets
    python -m benchmarks.calibration_quality FOLDER -o FILE       # writes the tables there too

Every set is split into five fixed random halves, to fit on and to test on; figures are means over
the five. All get the same probabilities, none below 1e-12, as logits if they take logits. A
probability of 0 that came true counts as 1e-12. Each contestant runs in a process of its own, with
two threads; seconds are those of a fit, on a machine that may have had other things to do.
Peers are left out where they are not installed.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.contest import (
    CONTESTANTS,
    N_BINS,
    Figures,
    figures_of,
    in_fresh_process,
    quietly,
    seconds_of,
    versions,
)
from benchmarks.peers import PEERS, Contestant
from benchmarks.sets import CalibrationSet, real_sets, small_sets

__all__ = ["main"]

PLAIN = "dubito TemperatureScaling"
OURS = "dubito AutoCalibrator"
YARDSTICK = "probmetrics logistic"


class Outcome(NamedTuple):
    """What a contestant reached on a set, and in how many seconds of fitting: means over splits."""

    log_loss: float
    brier: float
    ece: float
    peer_ece: float  # torchmetrics' of the same probabilities
    seconds: float


Outcomes = dict[str, Outcome]  # by the name of the set


def sets_in(folder: Path | None) -> Iterator[CalibrationSet]:
    """Return the real sets of a folder, or the small ones."""
    return small_sets() if folder is None else real_sets(folder)


def outcomes(name: str, folder: Path | None) -> Outcomes:
    """Return what a contestant reaches on every set that it can take."""
    contestant = CONTESTANTS[name]
    return {
        entry.name: outcome(contestant, entry)
        for entry in sets_in(folder)
        if contestant.can_take(entry.n_classes)
    }


def outcome(contestant: Contestant, entry: CalibrationSet) -> Outcome:
    """Fit and test a contestant on every split of a set."""
    figures, seconds = [], []
    for fit, test in entry.splits:
        call = partial(contestant.fit, contestant.takes(entry.logits[fit]), entry.y[fit])
        time, fitted = seconds_of(call)
        seconds.append(time)
        probabilities = fitted.predict(contestant.takes(entry.logits[test]))
        figures.append(figures_of(probabilities, entry.y[test]))
    means = Figures(*np.mean(figures, axis=0).tolist())
    return Outcome(*means, seconds=float(np.mean(seconds)))


def all_outcomes(folder: Path | None, cache: Path | None) -> dict[str, Outcomes]:
    """Run everyone who is installed; peers that the cache knows are taken from there."""
    known = json.loads(cache.read_text()) if cache is not None and cache.exists() else {}
    call = quietly if folder is None else in_fresh_process
    found: dict[str, Outcomes] = {}
    for name, contestant in CONTESTANTS.items():
        if name == "float64 reference" or not contestant.is_installed:
            continue
        if name not in known or name not in PEERS:
            print(name, file=sys.stderr, flush=True)
            known[name] = call(outcomes, name, folder)
        found[name] = {entry: Outcome(*values) for entry, values in known[name].items()}
        if cache is not None:
            cache.write_text(json.dumps({peer: known[peer] for peer in PEERS if peer in known}))
    return found


class Standing(NamedTuple):
    """How our choice does on a set, beside the peer that is best there."""

    entry: CalibrationSet
    none: Outcome
    plain: Outcome
    ours: Outcome
    best_name: str
    best: Outcome
    yardstick: Outcome | None

    @property
    def to_best(self) -> float:
        """Our log loss relative to the best peer's."""
        return self.ours.log_loss / self.best.log_loss

    @property
    def to_yardstick(self) -> float:
        """Our log loss relative to the yardstick's, NaN where that is not installed."""
        return np.nan if self.yardstick is None else self.ours.log_loss / self.yardstick.log_loss


def standing(found: dict[str, Outcomes], entry: CalibrationSet) -> Standing:
    """Return how we stand on a set."""
    here = {name: entries[entry.name] for name, entries in found.items() if entry.name in entries}
    best = min((name for name in here if name in PEERS), key=lambda name: here[name].log_loss)
    three = here["none"], here[PLAIN], here[OURS]
    return Standing(entry, *three, best, here[best], here.get(YARDSTICK))


def table_of(standings: list[Standing]) -> list[str]:
    """Return a line for each set."""
    heads = f"{'none':>8} {'plain T':>8} {'auto':>8} {'best peer':>8}  {'':<28} {'/ best':>7}"
    last = f"{'/ logistic':>10} {'Brier':>7} {'best':>7} {f'ECE ({N_BINS})':>8} {'best':>7}"
    return [f"{'':<21} {'n':>6} {'K':>4} {heads} {last}", *map(line_of, standings)]


def line_of(one: Standing) -> str:
    """Return the line of a set."""
    size = f"{one.entry.name:<21} {one.entry.y.size:>6} {one.entry.n_classes:>4}"
    losses = f"{one.none.log_loss:>8.5f} {one.plain.log_loss:>8.5f} {one.ours.log_loss:>8.5f}"
    ratios = f"{one.to_best:>7.4f} {one.to_yardstick:>10.4f}"
    others = (
        f"{one.ours.brier:>7.4f} {one.best.brier:>7.4f} {one.ours.ece:>8.4f} {one.best.ece:>7.4f}"
    )
    return f"{size} {losses} {one.best.log_loss:>9.5f}  {one.best_name:<28} {ratios} {others}"


def summary(standings: list[Standing]) -> list[str]:
    """Return the figures that sum it up."""
    worst = max(standings, key=lambda one: one.to_best)
    families: dict[str, list[float]] = {}
    for one in standings:
        families.setdefault(one.entry.family, []).append(one.to_yardstick)
    mean = np.mean([np.mean(ratios) for ratios in families.values()])
    apart = np.mean([one.to_yardstick for one in standings])
    n_better = sum(one.to_best < 1 for one in standings)
    return [
        f"mean log loss relative to {YARDSTICK}, {len(families)} sets of rows: {mean:.4f}",
        f"with every prompt of llama as a set of its own, {len(standings)} sets: {apart:.4f}",
        f"below the best peer there on {n_better} of {len(standings)}; "
        f"largest relative to it: {worst.to_best:.4f} ({worst.entry.name})",
    ]


def contestants_table(found: dict[str, Outcomes], names: list[str]) -> list[str]:
    """Return a line for each contestant: means over the sets it took."""
    heads = f"{'sets':>5} {'/ none':>8} {'/ logistic':>10} {'Brier':>7} {f'ECE ({N_BINS})':>8}"
    lines = [f"{'':<32} {heads} {'torchmetrics':>12} {'seconds':>9}"]
    for name, entries in found.items():
        taken = [entry for entry in names if entry in entries]
        means = Outcome(*np.mean([entries[entry] for entry in taken], axis=0).tolist())
        none, yardstick = (relative(entries, found.get(to), taken) for to in ("none", YARDSTICK))
        ratios = f"{len(taken):>5} {none:>8.4f} {yardstick:>10.4f}"
        figures = f"{means.brier:>7.4f} {means.ece:>8.5f} {means.peer_ece:>12.5f}"
        lines.append(f"{name:<32} {ratios} {figures} {means.seconds:>9.4f}")
    return lines


def relative(entries: Outcomes, to: Outcomes | None, names: list[str]) -> float:
    """Return the mean over sets of one log loss relative to another, NaN where that is missing."""
    if to is None:
        return np.nan
    return float(np.mean([entries[name].log_loss / to[name].log_loss for name in names]))


def report(found: dict[str, Outcomes], folder: Path | None) -> str:
    """Return all tables as text."""
    standings = [standing(found, entry) for entry in sets_in(folder)]
    regular = [one for one in standings if not one.entry.is_shift]
    shifts = [one for one in standings if one.entry.is_shift]
    names = [one.entry.name for one in regular]
    parts = [
        [versions()],
        ["Log loss on the other half, by set", *table_of(regular), *summary(regular)],
        ["Means over the sets each can take", *contestants_table(found, names)],
    ]
    if shifts:
        title = "Fitted on one set, tested on another; not among the means"
        parts.insert(2, [title, *table_of(shifts)])
    return "\n\n".join("\n".join(lines) for lines in parts)


def main() -> None:
    """Print the tables."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folder", type=Path, nargs="?", help="NPZ files of outputs and labels")
    parser.add_argument("--quick", action="store_true", help="two small sets, all in one process")
    parser.add_argument("--cache", type=Path, help="a JSON file of what peers reached")
    parser.add_argument("-o", "--output", type=Path, help="a file for the tables")
    arguments = parser.parse_args()
    if (arguments.folder is None) != arguments.quick:
        parser.error("either a FOLDER or --quick")
    text = report(all_outcomes(arguments.folder, arguments.cache), arguments.folder)
    print(text)
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()

"""Five views of a test image vote for its class: does any vote beat the single view?

    python -m studies.votes            # the whole study
    python -m studies.votes --quick    # seconds

Views are shifts by two pixels, or mirror images and shifts, with and without such views in
training. They vote by mode, by mean probability, by confidence, and by the certainty that an
uncertainty-aware network outputs for each view; thresholds are chosen on validation images.
Labels of pairs of classes were swapped in no row or in 40 %; accuracy is on true labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dubito.arrays import FloatArray
from dubito.measure import Interval
from studies.common.reporting import StudyReport, markdown_table, mean_and_spread, panels
from studies.common.runs import Arrays
from studies.common.seeds import mean_interval, points
from studies.common.study import Options, Study
from studies.noisy_pairs.training import CACHE_NAME, VOTED_RATES, VOTERS, Setting, fashion, work
from studies.noisy_pairs.view_votes import SINGLE, VIEWS, WAYS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Case(NamedTuple):
    """Views at test time, and those in training."""

    tested: str
    trained: str

    @property
    def title(self) -> str:
        """The title of a column."""
        how = "not" if self.trained == "none" else "also"
        return f"{self.tested}, {how} in training"


VIEW_SETS = tuple(VIEWS)[1:]
CASES = tuple(Case(tested, trained) for tested in VIEW_SETS for trained in ("none", tested))


def settings(options: Options) -> list[Setting]:
    """Return the runs: each voter at each rate and seed, with each kind of views in training."""
    return [
        fashion(options, loss, rate, seed, views)
        for seed in options.seeds
        for rate in VOTED_RATES
        for loss in VOTERS
        for views in VIEWS
    ]


class Voted(NamedTuple):
    """Accuracies by seed, of the single view and of each vote: one loss at one rate and case."""

    loss: str
    rate: float
    case: Case
    accuracies: dict[str, FloatArray]

    @property
    def ways(self) -> list[str]:
        """The available votes; those by certainty need an uncertainty-aware loss."""
        return [way for way in WAYS if way in self.accuracies]

    def gain(self, way: str) -> Interval:
        """The gain of a vote over the single view."""
        return mean_interval(self.accuracies[way] - self.accuracies[SINGLE])


def all_voted(found: Mapping[Setting, Arrays]) -> Iterator[Voted]:
    """Yield the votes by loss, rate and case."""
    for loss in VOTERS:
        for rate in VOTED_RATES:
            for case in CASES:
                runs = [
                    arrays
                    for setting, arrays in found.items()
                    if (setting.loss, setting.rate, setting.views) == (loss, rate, case.trained)
                ]
                names = {way: f"{case.tested}: {way}" for way in (SINGLE, *WAYS)}
                accuracies = {
                    way: np.array([run[name] for run in runs])
                    for way, name in names.items()
                    if name in runs[0]
                }
                yield Voted(loss, rate, case, accuracies)


def summarize(found: Mapping[Setting, Arrays]) -> StudyReport:
    """Return the table of votes relative to the single view, and the figure."""
    voted = list(all_voted(found))
    tables = [table(one_table) for one_table in batched_by_table(voted)]
    intro = (
        "Accuracy of the single view, and the gain of each vote in points: the mean of "
        "the paired differences over seeds and their 95 % interval. `*` marks "
        "intervals that exclude 0."
    )
    return StudyReport("\n\n".join([intro, *tables, words(voted)]), picture(voted))


def batched_by_table(voted: Sequence[Voted]) -> Iterator[Sequence[Voted]]:
    """Yield the cases of one loss at one rate together."""
    for start in range(0, len(voted), len(CASES)):
        yield voted[start : start + len(CASES)]


def table(voted: Sequence[Voted]) -> str:
    """Return the votes of one loss at one rate."""
    title = f"{voted[0].loss}, {voted[0].rate:.0%} swapped"
    single = [mean_and_spread(one.accuracies[SINGLE]) for one in voted]
    rows = [[way, *(marked(one.gain(way)) for one in voted)] for way in voted[0].ways]
    heads = [title, *(one.case.title for one in voted)]
    return markdown_table(heads, [[SINGLE, *single], *rows])


def marked(gain: Interval) -> str:
    """Format a gain in points, with a star if its interval excludes 0."""
    return points(gain) + ("*" if is_without_0(gain) else "")


def is_without_0(gain: Interval) -> bool:
    """Whether an interval excludes 0."""
    return gain.low > 0 or gain.high < 0


def words(voted: Sequence[Voted]) -> str:
    """Describe how often each vote was better or worse than the single view."""
    lines = []
    for case in CASES:
        parts = []
        for way in WAYS:
            gains = [one.gain(way) for one in voted if one.case == case and way in one.ways]
            better, worse = sum(one.low > 0 for one in gains), sum(one.high < 0 for one in gains)
            if better or worse:
                parts.append(f"{way} better in {better} and worse in {worse} of {len(gains)}")
        lines.append(f"- {case.title}: {'; '.join(parts) or 'nothing'}.")
    n_gains = sum(len(one.ways) for one in voted)
    head = (
        f"Intervals that exclude 0, over losses and rates; of {n_gains}, about {n_gains / 20:.0f} "
        "are expected by chance:"
    )
    return "\n".join([head, "", *lines])


def picture(voted: Sequence[Voted]) -> Figure:
    """Plot the gains of all votes, one panel per loss and rate."""
    figure = panels(len(VOTED_RATES), len(VOTERS), size=(4.2, 3.2))
    tables = list(batched_by_table(voted))
    for number, axes in enumerate(figure.axes):
        rate, loss = divmod(number, len(VOTERS))
        draw(axes, tables[loss * len(VOTED_RATES) + rate], is_first=loss == 0)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(CASES), frameon=False)
    figure.suptitle("Five views against one: gain in accuracy, Fashion-MNIST, 95 % intervals")
    return figure


def draw(axes: Axes, voted: Sequence[Voted], *, is_first: bool) -> None:
    """Plot the gains of one loss at one rate."""
    ways = list(WAYS)
    for number, one in enumerate(voted):
        gains = [one.gain(way) for way in one.ways]
        heights = [ways.index(way) + 0.16 * (number - 1.5) for way in one.ways]
        values = np.array([gain.value for gain in gains])
        halves = np.array([gain.high - gain.value for gain in gains])
        halves = np.where(np.isinf(halves), 0.0, halves)
        axes.errorbar(
            100 * values, heights, xerr=100 * halves, fmt="o", ms=3, lw=1, label=one.case.title
        )
    axes.axvline(0, color="0.6", lw=0.8, zorder=0)
    axes.set_yticks(range(len(ways)), ways if is_first else [""] * len(ways))
    axes.set_ylim(len(ways) - 0.5, -0.5)
    axes.set_xlabel("points above the single view")
    axes.set_title(f"{voted[0].loss}, {voted[0].rate:.0%} swapped")


main = Study("votes", settings, work, summarize, cache_name=CACHE_NAME, n_seeds=5).main

if __name__ == "__main__":
    main()

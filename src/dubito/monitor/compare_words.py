"""A comparison in plain words: what is sure first, then the figures and differences."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from dubito.measure.intervals import Interval
from dubito.monitor.figures import TITLES

if TYPE_CHECKING:
    from dubito.monitor.compare import Comparison, Difference

__all__ = ["comparison_lines", "verdict_on"]

WIDTH = 80
FEWEST_ROWS = 20


def verdict_on(found: Comparison) -> str:
    """Say of each model in what it is better or worse than the first, and which is best."""
    if found.n_rows < FEWEST_ROWS:
        return f"Too few rows to tell ({found.n_rows:,})."
    first = found.models[0]
    words = [pair_words(found, model, first) for model in found.models[1:]]
    if len(found.models) > 2:
        words.append(best_words(found))
    endless = [
        model for model, one in found.figures.items() if one.get("log_loss") and is_endless(one)
    ]
    if endless:
        words.append(
            f"Log loss is infinite for {listed(endless)}: a class of probability 0 happened."
        )
    return " ".join(words)


def is_endless(figures: dict[str, Interval]) -> bool:
    """Whether a log loss is infinite."""
    return figures["log_loss"].value == float("inf")


def pair_words(found: Comparison, model: str, baseline: str) -> str:
    """Say in what a model differs from a baseline."""
    pair = [d for d in found.differences if (d.model, d.baseline) == (model, baseline)]
    better = [amount(d) for d in pair if d.is_better]
    worse = [amount(d) for d in pair if d.is_better is False]
    unsure = [TITLES[d.metric] for d in pair if d.is_better is None]
    if not better and not worse:
        return f"No sure difference between {model} and {baseline} in {listed(unsure)}."
    parts = [f"better than {baseline} in {listed(better)}"] if better else []
    parts += [f"worse {'' if better else f'than {baseline} '}in {listed(worse)}"] if worse else []
    rest = f"; no sure difference in {listed(unsure)}" if unsure else ""
    return f"{model} is {' but '.join(parts)}{rest}."


def best_words(found: Comparison) -> str:
    """Say which model is best on these rows, and than which of the others it surely is better."""
    title, best = TITLES[found.best_by], found.best
    beaten = [model for model in found.models if model != best and surely_beats(found, model)]
    others = [model for model in found.models if model != best and model not in beaten]
    said = f"Best by {title} on these rows: {best}"
    if beaten:
        said += f", surely better than {listed(beaten)}"
    return f"{said}{', not surely than ' + listed(others) if others else ''}."


def surely_beats(found: Comparison, model: str) -> bool:
    """Whether the best is surely better than another model in what it is best by."""
    for one in found.differences:
        if one.metric == found.best_by and {one.model, one.baseline} == {model, found.best}:
            return one.is_better is (one.model == found.best)
    return False


def amount(difference: Difference) -> str:
    """Say in what and by how much, without a sign."""
    one = difference.interval
    ends = (one.low, one.high) if one.value >= 0 else (-one.high, -one.low)
    by = f"{abs(one.value):.3g} ({ends[0]:.3g} to {ends[1]:.3g})"
    return f"{TITLES[difference.metric]} by {by}"


def listed(words: list[str]) -> str:
    """Return words as a list in a sentence."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def shown(one: Interval, sign: str = "") -> str:
    """Return an interval in a few digits."""
    return f"{one.value:{sign}.4g} ({one.low:{sign}.4g} to {one.high:{sign}.4g})"


def comparison_lines(found: Comparison) -> list[str]:
    """Tell a comparison line by line, in 80 columns."""
    missing = f"; {found.n_missing:,} more without a truth left out" if found.n_missing else ""
    note = (
        f"{found.n_rows:,} rows{missing}. Each interval holds at {found.level:.0%}; what is said "
        f"to be better or worse holds for all {len(found.differences)} comparisons together (Holm)."
    )
    lines = [*wrap(found.verdict, WIDTH), "", *wrap(note, WIDTH)]
    for model in found.models:
        lines += ["", f"  {model[:76]}"]
        figures = found.figures[model].items()
        lines += [f"    {TITLES[name]:<30} {shown(figure)}" for name, figure in figures]
    pairs = dict.fromkeys((one.model, one.baseline) for one in found.differences)
    for pair in pairs:
        lines += ["", f"  {pair[0][:35]} less {pair[1][:35]}"]
        for one in found.differences:
            if (one.model, one.baseline) == pair:
                word = {True: "  better", False: "  worse", None: ""}[one.is_better]
                lines.append(f"    {TITLES[one.metric]:<30} {shown(one.interval, '+')}{word}")
    return lines

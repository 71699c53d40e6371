"""Report of the study of noisy inputs: which score detects which noise, and the benefit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dubito import Probabilities
from dubito.arrays import FloatArray
from dubito.doubt import entropy
from studies.common.reporting import StudyReport, markdown_table, mean_and_spread
from studies.common.runs import Arrays
from studies.input_noise.picture import LEVELS, RATES, SCORES, OfSet, percent, picture

WAYS = ("label given input, classifier", "label given input, densities", "input given label")
LEARNED_LEVEL = 3
LEARNED = ("error, classifier", "error, densities", "ECE, classifier", "ECE, densities")
MIDDLE = LEVELS.index(LEARNED_LEVEL)
DENSITY = SCORES.index("density")


def summarize(found: Mapping[Any, Arrays]) -> StudyReport:
    """Return tables, sentences and the figure of all runs."""
    names = list(dict.fromkeys(setting.name for setting in found))
    sets = [of_set(found, name) for name in names]
    levels, rates = [f"level {level}" for level in LEVELS], [percent(rate) for rate in RATES]
    tables = {
        "**AUROC, noisy vs. clean inputs**, both scored by models of clean inputs": (
            table_of(levels, input_rows(sets))
        ),
        "**Median log p(x | its class) per feature**": table_of(
            ["clean", *levels], likelihood_rows(sets)
        ),
        "**Error**, models of clean inputs": table_of(["clean", *levels], error_rows(sets)),
        f"**Noise of level {LEARNED_LEVEL} that is new, or was in the training "
        "inputs**; AUROC vs. clean inputs": (
            table_of([*LEARNED, *(f"AUROC, {one}" for one in SCORES)], learned_rows(sets))
        ),
        "**AUROC, classes with swapped labels vs. the others**, by swap rate": (
            table_of(rates, label_rows(sets))
        ),
        "**Mean entropy in the swapped classes**, nats": table_of(rates, entropy_rows(sets)),
        "**AUROC of wrong labels** in the swapped classes, by their unlikelihood": (
            table_of(rates[1:], wrong_rows(sets))
        ),
        "**The classifier's error** on all rows, and on the 80 % retained by each score": (
            table_of(["all", *SCORES], retained_rows(sets))
        ),
    }
    texts = [f"{title}\n\n{table}" for title, table in tables.items()]
    return StudyReport("\n\n".join([*texts, *words(sets)]), picture(sets))


def of_set(found: Mapping[Any, Arrays], name: str) -> OfSet:
    """Put the runs of one set together."""
    runs = [arrays for setting, arrays in found.items() if setting.name == name]
    return OfSet(name, {key: np.stack([run[key] for run in runs]) for key in runs[0]})


Rows = dict[str, FloatArray]  # by name, seeds x columns


def table_of(heads: Sequence[str], rows: Rows) -> str:
    """Return a table of means and spreads."""
    lines = [[name, *map(mean_and_spread, cells.T)] for name, cells in rows.items()]
    return markdown_table(["", *heads], lines)


def input_rows(sets: Sequence[OfSet]) -> Rows:
    """Return AUROC by level."""
    return {
        f"{one.name}, {kind}: {score}": one.arrays["input_aurocs"][:, row, :, column]
        for one in sets
        for row, kind in enumerate(one.kinds)
        for column, score in enumerate(SCORES)
    }


def likelihood_rows(sets: Sequence[OfSet]) -> Rows:
    """Return p(x | class) by level."""
    return {
        f"{one.name}, {kind}": one.arrays["likelihoods"][:, row]
        for one in sets
        for row, kind in enumerate(one.kinds)
    }


def error_rows(sets: Sequence[OfSet]) -> Rows:
    """Return errors of classifier and densities by level."""
    return {
        f"{one.name}, {kind}: {who}": one.arrays["input_errors"][:, row, :, column]
        for one in sets
        for row, kind in enumerate(one.kinds)
        for column, who in enumerate(("classifier", "densities"))
    }


def learned_rows(sets: Sequence[OfSet]) -> Rows:
    """Return errors, calibration errors and AUROC, with new and with known noise."""
    return {
        f"{one.name}, {kind}, {way}": one.arrays["learned"][:, row, number]
        for one in sets
        for row, kind in enumerate(one.kinds)
        for number, way in enumerate(("new", "learned"))
    }


def label_rows(sets: Sequence[OfSet]) -> Rows:
    """Return AUROC by rate."""
    return {
        f"{one.name}: {score}": one.arrays["label_aurocs"][:, :, column]
        for one in sets
        for column, score in enumerate(SCORES)
    }


def entropy_rows(sets: Sequence[OfSet]) -> Rows:
    """Return entropies by rate, and the entropy due to the swaps alone."""
    rows = {"from the swaps alone": np.array([[known_entropy(rate) for rate in RATES]])}
    return rows | {
        f"{one.name}: {score}": one.arrays["label_entropies"][:, :, column]
        for one in sets
        for column, score in enumerate(SCORES[:2])
    }


def known_entropy(rate: float) -> float:
    """Return the entropy of a label that is swapped with its partner at this rate.

    >>> round(known_entropy(0.3), 3)
    0.611
    """
    return float(entropy(Probabilities([[1 - rate, rate]]))[0])


def wrong_rows(sets: Sequence[OfSet]) -> Rows:
    """Return how well wrong labels are detected by rate."""
    return {
        f"{one.name}: {way}": one.arrays["wrong_aurocs"][:, :, column]
        for one in sets
        for column, way in enumerate(WAYS)
    }


def retained_rows(sets: Sequence[OfSet]) -> Rows:
    """Return errors of all and of the retained rows, for some noise of each kind."""
    rows: Rows = {}
    for one in sets:
        for row, kind in enumerate(one.kinds):
            for level in (MIDDLE, len(LEVELS) - 1):
                name = f"{one.name}, half of the inputs with {kind} of level {LEVELS[level]}"
                rows[name] = one.arrays["input_kept"][:, row, level]
        for number, rate in enumerate(RATES):
            if rate in (0.2, 0.4):
                rows[f"{one.name}, {percent(rate)} swapped"] = one.arrays["label_kept"][:, number]
    return rows


def words(sets: Sequence[OfSet]) -> list[str]:
    """Describe which score detects which noise, and which helps to avoid errors."""
    levels = {
        f"{one.name} {kind}": one.arrays["input_aurocs"][:, row, MIDDLE]
        for one in sets
        for row, kind in enumerate(one.kinds)
    }
    gaps = {name: mean_and_spread(a[:, DENSITY] - a[:, 0]) for name, a in levels.items()}
    rises = [
        f"{one.name} "
        + ", ".join(
            f"{score} {mean_and_spread(rise)}"
            for score, rise in zip(SCORES, rises_of(one).T, strict=True)
        )
        for one in sets
    ]
    return [
        f"Noise in inputs at level {LEARNED_LEVEL}, AUROC of density minus that of the "
        "classifier's entropy, same seed: "
        f"{'; '.join(f'{name} {gap}' for name, gap in gaps.items())}.",
        "Noise in labels, AUROC at 40 % minus that at 0 %, same seed: " + "; ".join(rises) + ".",
        helps(sets),
    ]


def rises_of(one: OfSet) -> FloatArray:
    """Return the increase of the AUROC of each score with the swaps, seeds x scores."""
    aurocs = one.arrays["label_aurocs"]
    return np.asarray(aurocs[:, -1] - aurocs[:, 0])


def helps(sets: Sequence[OfSet]) -> str:
    """Describe which score retains the rows with the lowest mean error."""
    rows = retained_rows(sets)
    wins = np.bincount([kept[:, 1:].mean(0).argmin() for kept in rows.values()], minlength=3)
    worse = [
        sum(kept[:, 1 + score].mean() > kept[:, 0].mean() for kept in rows.values())
        for score in range(len(SCORES))
    ]
    counts = ", ".join(
        f"{name} {win} ({bad} worse than dropping rows at random)"
        for name, win, bad in zip(SCORES, wins, worse, strict=True)
    )
    return (
        f"Of {len(rows)} cases in the last table, lowest mean error on the retained rows: {counts}."
    )

"""Uncertainty sections: correct and wrong rows, out-of-distribution rows, aleatoric and epistemic parts."""

from __future__ import annotations

import numpy as np

from dubito.report.blocks import Block, Figure, Row, Section, Text
from dubito.report.figures.charts import Population, doubt_histogram, doubt_parts
from dubito.report.formatting import figure, share
from dubito.report.ood import EPSILON, Strangeness
from dubito.report.summary import Summary

MOST_SPECKS = 1500


def doubting(summary: Summary) -> Section:
    """Return how doubt spreads over kinds of rows."""
    blocks: list[Block] = [_right_and_wrong(summary)]
    found = summary.strangeness
    notes = []
    if found is not None:
        blocks += _strange_figures(found)
        notes = [Text(words) for words in _strange_words(found)]
    if summary.parts is not None:
        blocks.append(_two_parts(summary))
    intro = "Doubt is of use where wrong and strange rows have more of it than the others."
    return Section(
        "doubt", "Does it doubt the right rows?", (Text(intro), *notes, Row(tuple(blocks)))
    )


def _right_and_wrong(summary: Summary) -> Figure:
    """Return the doubt of right rows against that of wrong ones."""
    rows, weight = summary.after.rows, summary.after.labeled_weight
    kinds = (("right rows", "right", rows.correct), ("wrong rows", "wrong", 1 - rows.correct))
    populations = [
        Population(name, kind, rows.least_confidence[part > 0], (weight * part)[part > 0])
        for name, kind, part in kinds
        if (weight * part).sum() > 0
    ]
    area = summary.audit_after.auroc_of_errors
    tells = (
        ""
        if area is None
        else f" A wrong row has more doubt than a right one in {share(area)} of pairs."
    )
    return Figure(
        "Right and wrong rows",
        (
            doubt_histogram(
                "Doubt of right and of wrong rows",
                "doubt: 1 - confidence, after calibration",
                populations,
            ),
        ),
        f"The further the two are apart, the more errors a threshold finds.{tells}",
        tuple((one.kind, f"{one.name} ({one.doubt.size:,})") for one in populations),
    )


def _strange_figures(found: Strangeness) -> list[Block]:
    """Return doubts of known and strange rows: by confidence, and by distance of the features."""
    figures: list[Block] = []
    known = np.ones(found.doubt.size)
    if found.strange_doubt is not None:
        populations = [
            Population("known rows", "known", found.doubt, known),
            Population(
                "strange rows", "strange", found.strange_doubt, np.ones(found.strange_doubt.size)
            ),
        ]
        figures.append(
            _known_and_strange(
                "Known and strange rows, by confidence",
                "doubt: 1 - confidence, as it came",
                populations,
                found.area_of_doubt,
            )
        )
    if found.distance is not None:
        right, wrong = found.is_right, ~found.is_right
        populations = [
            Population(name, kind, found.distance[part], found.weight[part])
            for name, kind, part in (("right rows", "right", right), ("wrong rows", "wrong", wrong))
            if found.weight[part].sum() > 0
        ]
        if found.strange_distance is not None:
            strange = Population(
                "strange rows",
                "strange",
                found.strange_distance,
                np.ones(found.strange_distance.size),
            )
            populations.append(strange)
        figures.append(
            _known_and_strange(
                "How far from what is known, by features",
                "squared Mahalanobis distance",
                populations,
                found.area_of_distance,
            )
        )
    return figures


def _known_and_strange(
    title: str, label: str, populations: list[Population], area: float | None
) -> Figure:
    """Return a histogram of several kinds of rows."""
    tells = "Each kind as shares of itself; the last bin holds all beyond."
    if area is not None:
        pairs = f"{share(area)} of pairs; {share(0.5, 0)} is guessing"
        tells += f" A strange row has more doubt than a known one in {pairs}."
    legend = tuple((one.kind, f"{one.name} ({one.doubt.size:,})") for one in populations)
    return Figure(title, (doubt_histogram(title, label, populations),), tells, legend)


def _strange_words(found: Strangeness) -> list[str]:
    """Say what was learned from what, and how many strangers are found."""
    words = []
    if found.distance is not None:
        words.append(
            f"Distances are to the {'nearest class' if found.is_by_class else 'mean of all rows'}, "
            f"learned from the features of {found.n_taught:,} rows, and shown of the "
            f"{found.distance.size:,} others."
        )
    if found.found is not None and found.strange_distance is not None:
        words.append(
            f"Where {share(EPSILON, 0)} of known rows may be called strange, distance finds "
            f"{share(found.found)} of the {found.strange_distance.size:,} strange rows."
        )
    return words


def _two_parts(summary: Summary) -> Figure:
    """Return noise against ignorance, of at most so many rows."""
    parts, correct = summary.parts, summary.before.rows.correct > 0.5
    assert parts is not None
    rows = np.arange(correct.size)
    if rows.size > MOST_SPECKS:
        rng = np.random.default_rng(summary.provenance.seed)
        rows = np.sort(rng.choice(rows, MOST_SPECKS, replace=False))
    populations = [
        (kind, parts.aleatoric[rows[is_kind[rows]]], parts.epistemic[rows[is_kind[rows]]])
        for kind, is_kind in (("right", correct), ("wrong", ~correct))
    ]
    share_of = float(parts.epistemic.sum() / max(parts.total.sum(), 1e-300))
    return Figure(
        "Noise in the data, or ignorance of the model",
        (doubt_parts("Aleatoric against epistemic doubt, a point a row", populations),),
        f"{share(share_of)} of all doubt is epistemic: what the passes disagree about, and what "
        f"more data could lower. Mean aleatoric doubt: {figure(float(parts.aleatoric.mean()))} "
        f"nats. {rows.size:,} rows are shown.",
        (("right", "right rows"), ("wrong", "wrong rows")),
    )

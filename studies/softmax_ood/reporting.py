"""Report of the study of OOD inputs: norms, scores, thresholds and scaled inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dubito.arrays import BoolArray, FloatArray
from studies.common.ood_images import KINDS
from studies.common.reporting import StudyReport, markdown_table, mean_and_spread
from studies.common.runs import Arrays
from studies.common.seeds import mean_interval
from studies.softmax_ood.evaluation import LAYERS, PARTS, SCORES
from studies.softmax_ood.picture import SCALED, Stacks, picture
from studies.softmax_ood.scaled_inputs import DIMENSIONS, FACTORS

EVERY = ("known", *KINDS)
LAST = len(LAYERS) - 1
BY_ANGLE, BY_NORM = PARTS.index("angles alone"), PARTS.index("norms alone")
PLAIN = SCORES.index("least confidence")


def summarize(found: Mapping[Any, Arrays]) -> StudyReport:
    """Return tables, sentences and the figure of all seeds."""
    runs = list(found.values())
    stacks = {name: np.stack([run[name] for run in runs]) for name in runs[0]}
    tables = {
        "**OOD inputs as seen by the network** (medians; confidence: mean)": seen_table(stacks),
        "**AUROC** of scores, OOD inputs vs. known test images": auroc_table(stacks),
        "**Fraction flagged as OOD** at a nominal false positive rate of 5 %": (
            region_table(stacks)
        ),
        "**Median norm relative to known images**, by layer": layer_table(stacks),
        "**Fraction of active units**, after training": active_table(stacks),
        "**Mean confidence** for inputs multiplied by a factor": scaled_table(stacks),
        "**Saturation or extrapolation?** Known rows and random directions of a toy set": toy_table(
            stacks
        ),
        "**2 penultimate features instead of 84**, least confidence": plane_table(stacks),
    }
    texts = [f"{title}\n\n{table}" for title, table in tables.items()]
    return StudyReport("\n\n".join([*texts, *words(stacks)]), picture(stacks))


def table_of(heads: Sequence[str], rows: Mapping[str, Sequence[FloatArray]]) -> str:
    """Return a table of means and spreads over seeds, one array of seeds per cell."""
    lines = [[name, *map(mean_and_spread, cells)] for name, cells in rows.items()]
    return markdown_table(["", *heads], lines)


def norm_ratios(layers: FloatArray) -> FloatArray:
    """Return norms of OOD images relative to known ones: seeds x kinds x layers."""
    norms = layers[..., 0]
    return np.asarray(norms[:, 1:] / norms[:, :1])


def seen_table(stacks: Stacks) -> str:
    """Return confidence, norm and familiarity of every kind, and dubito's diagnosis."""
    ratios = norm_ratios(stacks["layers"])
    by_pixel = ratios[..., LAST] / ratios[..., 0]
    heads = ["confidence", "more confident than the median known image", "norm", "norm / known"]
    heads += ["norm / pixel norm, relative to known", "familiarity", "`diagnose_ood`"]
    lines = []
    for row, name in enumerate(EVERY):
        ood = [stacks["as_sure"], ratios[..., LAST], by_pixel]
        as_sure, ratio, by_pixels = (mean_and_spread(one[:, row - 1]) if row else "" for one in ood)
        kinds = Counter(stacks["kinds"][:, row - 1].tolist()).most_common() if row else []
        confidence, norm, angle = (
            mean_and_spread(stacks[key][:, row]) for key in ("confidence", "norms", "familiarity")
        )
        counted = ", ".join(f"{kind} {count}" for kind, count in kinds)
        lines.append([name, confidence, as_sure, norm, ratio, by_pixels, angle, counted])
    return markdown_table(["", *heads], lines)


def auroc_table(stacks: Stacks) -> str:
    """Return AUROC by score and kind, and of the softmax by angles and by norms alone."""
    kinds = range(len(KINDS))
    rows = {
        name: [stacks["aurocs"][:, kind, row] for kind in kinds] for row, name in enumerate(SCORES)
    }
    rows |= {
        f"softmax, {PARTS[part]}": [stacks["part_aurocs"][:, kind, part] for kind in kinds]
        for part in (BY_ANGLE, BY_NORM)
    }
    return table_of(KINDS, rows)


def region_table(stacks: Stacks) -> str:
    """Return the fraction flagged by each score."""
    rows = {
        name: [stacks["found"][:, kind, row] for kind in range(len(EVERY))]
        for row, name in enumerate(SCORES)
    }
    return table_of(EVERY, rows)


def layer_table(stacks: Stacks) -> str:
    """Return norms relative to known images, before and after training."""
    ways = {"untrained": "untrained_layers", "trained": "layers"}
    ratios = {way: norm_ratios(stacks[key]) for way, key in ways.items()}
    rows = {
        f"{kind}, {way}": [ratios[way][:, row, layer] for layer in range(len(LAYERS))]
        for row, kind in enumerate(KINDS)
        for way in ways
    }
    return table_of(LAYERS, rows)


def active_table(stacks: Stacks) -> str:
    """Return the fraction of units above 0."""
    rows = {
        name: [stacks["layers"][:, row, layer, 1] for layer in range(1, len(LAYERS))]
        for row, name in enumerate(EVERY)
    }
    return table_of(LAYERS[1:], rows)


def scaled_table(stacks: Stacks) -> str:
    """Return confidence by factor: images, and random directions of the toy sets."""
    columns = range(len(FACTORS))
    rows = {
        f"images, {name}": [stacks["scaled_confidence"][:, row, i] for i in columns]
        for row, name in enumerate(SCALED)
    }
    rows |= {
        f"random directions, {size} dimensions": [stacks["toy"][:, row, 0, 1 + i] for i in columns]
        for row, size in enumerate(DIMENSIONS)
    }
    mahalanobis = SCORES.index("Mahalanobis")
    rows |= {
        f"flagged by {name}, images, known": [
            stacks["scaled_found"][:, 0, i, score] for i in columns
        ]
        for name, score in (("least confidence", PLAIN), ("Mahalanobis", mahalanobis))
    }
    return table_of([f"times {factor}" for factor in FACTORS], rows)


def toy_table(stacks: Stacks) -> str:
    """Return confidence in known rows and random directions, and which are more confident."""
    heads = ["confidence, known rows"]
    for what in ("confidence", "AUROC of least confidence"):
        heads += [f"{what}, directions times {FACTORS[place]}" for place in (0, -1)]
    rows = {
        f"{size} dimensions": [
            stacks["toy"][:, row, figure, place]
            for figure, place in ((0, 0), (0, 1), (0, -1), (1, 1), (1, -1))
        ]
        for row, size in enumerate(DIMENSIONS)
    }
    return table_of(heads, rows)


def plane_table(stacks: Stacks) -> str:
    """Return what least confidence detects with few and with many penultimate features."""
    rows = {}
    for name, prefix in (("84", ""), ("2", "plane_")):
        kinds = range(len(KINDS))
        aurocs, found = stacks[f"{prefix}aurocs"], stacks[f"{prefix}found"]
        rows[f"{name} features, AUROC"] = [aurocs[:, kind, PLAIN] for kind in kinds]
        rows[f"{name} features, flagged"] = [found[:, 1 + kind, PLAIN] for kind in kinds]
    return table_of(KINDS, rows)


def words(stacks: Stacks) -> list[str]:
    """Describe whose norms are larger in every seed, and the parts of angles and norms."""
    ratios = norm_ratios(stacks["layers"])[..., LAST]
    parts = stacks["part_aurocs"]
    gaps = [mean_interval(parts[:, kind, BY_ANGLE] - parts[:, kind, BY_NORM]) for kind in range(6)]
    by_angle = [name for name, gap in zip(KINDS, gaps, strict=True) if gap.low > 0]
    by_norm = [name for name, gap in zip(KINDS, gaps, strict=True) if gap.high < 0]
    best = stacks["aurocs"].mean(axis=0).argmax(axis=1)
    bests = [f"{kind} {SCORES[one]}" for kind, one in zip(KINDS, best, strict=True)]
    return [
        f"Accuracy on known classes: {mean_and_spread(stacks['accuracy'])}; of the network with "
        f"2 penultimate features {mean_and_spread(stacks['plane_accuracy'])}.",
        "OOD inputs whose median norm is larger than that of known images in every seed: "
        f"{in_every_seed(ratios > 1)}; smaller in every seed: {in_every_seed(ratios < 1)}.",
        "Angles alone detect OOD inputs better than norms alone (the interval of the paired "
        f"difference in AUROC is above 0): {', '.join(by_angle) or 'none'}; norms better: "
        f"{', '.join(by_norm) or 'none'}.",
        "Least confidence has an AUROC above 0.5 in every seed for: "
        f"{in_every_seed(stacks['aurocs'][..., PLAIN] > 0.5)}; below 0.5: "
        f"{in_every_seed(stacks['aurocs'][..., PLAIN] < 0.5)}.",
        f"The score with the highest mean AUROC, by kind: {', '.join(bests)}.",
    ]


def in_every_seed(holds: BoolArray) -> str:
    """Name the kinds for which something holds in all seeds, seeds x kinds."""
    return ", ".join(np.array(KINDS)[holds.all(axis=0)]) or "none"

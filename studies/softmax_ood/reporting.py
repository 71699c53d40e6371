"""What the study of strangers tells: tables of norms, doubts, regions and scaled inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dubito.arrays import BoolArray, FloatArray
from studies.common.ood_images import KINDS
from studies.common.reporting import Told, markdown_table, mean_and_spread
from studies.common.runs import Arrays
from studies.common.seeds import mean_interval
from studies.softmax_ood.evaluation import DOUBTS, LAYERS, PARTS
from studies.softmax_ood.picture import SCALED, Stacks, picture
from studies.softmax_ood.scaled_inputs import DIMENSIONS, FACTORS

EVERY = ("known", *KINDS)
LAST = len(LAYERS) - 1
BY_ANGLE, BY_NORM = PARTS.index("angles alone"), PARTS.index("norms alone")
PLAIN = DOUBTS.index("least confidence")


def tell(found: Mapping[Any, Arrays]) -> Told:
    """Return tables, sentences and the picture of all seeds."""
    runs = list(found.values())
    stacks = {name: np.stack([run[name] for run in runs]) for name in runs[0]}
    tables = {
        "**Strangers as the network sees them** (medians, but mean confidence)": seen_table(stacks),
        "**AUROC** of doubts, strangers against known test images": auroc_table(stacks),
        "**Share called strange** by the region that 5 % of known images are to fall into": (
            region_table(stacks)
        ),
        "**Median norm over that of known images**, layer by layer": layer_table(stacks),
        "**Share of units awake**, after training": awake_table(stacks),
        "**Mean confidence** in inputs times a factor": scaled_table(stacks),
        "**Two last features instead of 84**, least confidence": plane_table(stacks),
    }
    texts = [f"{title}\n\n{table}" for title, table in tables.items()]
    return Told("\n\n".join([*texts, *words(stacks)]), picture(stacks))


def table_of(heads: Sequence[str], rows: Mapping[str, Sequence[FloatArray]]) -> str:
    """Return a table of means and spreads over seeds, one array of seeds a cell."""
    lines = [[name, *map(mean_and_spread, cells)] for name, cells in rows.items()]
    return markdown_table(["", *heads], lines)


def norm_ratios(layers: FloatArray) -> FloatArray:
    """Return norms of strangers over those of known images: seeds x kinds x layers."""
    norms = layers[..., 0]
    return np.asarray(norms[:, 1:] / norms[:, :1])


def seen_table(stacks: Stacks) -> str:
    """Return confidence, norm and familiarity of every kind, and what dubito diagnoses."""
    ratios = norm_ratios(stacks["layers"])
    by_pixel = ratios[..., LAST] / ratios[..., 0]
    heads = ["confidence", "as sure as half of the known", "norm", "norm / known"]
    heads += ["norm by pixels' norm / known", "familiarity", "`diagnose`"]
    lines = []
    for row, name in enumerate(EVERY):
        strange = [stacks["as_sure"], ratios[..., LAST], by_pixel]
        as_sure, ratio, by_pixels = (
            mean_and_spread(one[:, row - 1]) if row else "" for one in strange
        )
        kinds = Counter(stacks["kinds"][:, row - 1].tolist()).most_common() if row else []
        confidence, norm, angle = (
            mean_and_spread(stacks[key][:, row]) for key in ("confidence", "norms", "familiarity")
        )
        told = ", ".join(f"{kind} {count}" for kind, count in kinds)
        lines.append([name, confidence, as_sure, norm, ratio, by_pixels, angle, told])
    return markdown_table(["", *heads], lines)


def auroc_table(stacks: Stacks) -> str:
    """Return AUROC by doubt and kind, and of the softmax by angles and by norms alone."""
    kinds = range(len(KINDS))
    rows = {
        name: [stacks["aurocs"][:, kind, row] for kind in kinds] for row, name in enumerate(DOUBTS)
    }
    rows |= {
        f"softmax, {PARTS[part]}": [stacks["part_aurocs"][:, kind, part] for kind in kinds]
        for part in (BY_ANGLE, BY_NORM)
    }
    return table_of(KINDS, rows)


def region_table(stacks: Stacks) -> str:
    """Return the share that each doubt's region holds."""
    rows = {
        name: [stacks["found"][:, kind, row] for kind in range(len(EVERY))]
        for row, name in enumerate(DOUBTS)
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


def awake_table(stacks: Stacks) -> str:
    """Return the share of units above 0."""
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
        f"random directions, {size} dimensions": [stacks["toy"][:, row, 1 + i] for i in columns]
        for row, size in enumerate(DIMENSIONS)
    }
    mahalanobis = DOUBTS.index("Mahalanobis")
    rows |= {
        f"strange by {name}, images, known": [
            stacks["scaled_found"][:, 0, i, doubt] for i in columns
        ]
        for name, doubt in (("least confidence", PLAIN), ("Mahalanobis", mahalanobis))
    }
    return table_of([f"times {factor}" for factor in FACTORS], rows)


def plane_table(stacks: Stacks) -> str:
    """Return what least confidence notices with few last features, and with many."""
    rows = {}
    for name, prefix in (("84", ""), ("2", "plane_")):
        kinds = range(len(KINDS))
        aurocs, found = stacks[f"{prefix}aurocs"], stacks[f"{prefix}found"]
        rows[f"{name} features, AUROC"] = [aurocs[:, kind, PLAIN] for kind in kinds]
        rows[f"{name} features, called strange"] = [found[:, 1 + kind, PLAIN] for kind in kinds]
    return table_of(KINDS, rows)


def words(stacks: Stacks) -> list[str]:
    """Say whose norms are larger in every seed, and what of it is angles and what norms."""
    ratios = norm_ratios(stacks["layers"])[..., LAST]
    parts = stacks["part_aurocs"]
    gaps = [mean_interval(parts[:, kind, BY_ANGLE] - parts[:, kind, BY_NORM]) for kind in range(6)]
    by_angle = [name for name, gap in zip(KINDS, gaps, strict=True) if gap.low > 0]
    by_norm = [name for name, gap in zip(KINDS, gaps, strict=True) if gap.high < 0]
    best = stacks["aurocs"].mean(axis=0).argmax(axis=1)
    bests = [f"{kind} {DOUBTS[one]}" for kind, one in zip(KINDS, best, strict=True)]
    return [
        f"Accuracy on known classes: {mean_and_spread(stacks['accuracy'])}; of the network with "
        f"two last features {mean_and_spread(stacks['plane_accuracy'])}.",
        "Strangers whose median norm is larger than that of known images in every seed: "
        f"{in_every_seed(ratios > 1)}; smaller in every seed: {in_every_seed(ratios < 1)}.",
        "Angles alone tell strangers better than norms alone (the interval of the paired "
        f"difference in AUROC is above 0): {', '.join(by_angle) or 'none'}; norms better: "
        f"{', '.join(by_norm) or 'none'}.",
        "Least confidence has an AUROC above 0.5 in every seed for: "
        f"{in_every_seed(stacks['aurocs'][..., PLAIN] > 0.5)}; below 0.5: "
        f"{in_every_seed(stacks['aurocs'][..., PLAIN] < 0.5)}.",
        f"The doubt with the largest mean AUROC, by kind: {', '.join(bests)}.",
    ]


def in_every_seed(holds: BoolArray) -> str:
    """Name the kinds for which something holds in all seeds, seeds x kinds."""
    return ", ".join(np.array(KINDS)[holds.all(axis=0)]) or "none"

"""Which doubts tell strangers from what a network knows? On the sample that ships with dubito.

    python -m studies.ood            # prints the table
    python -m studies.ood -o FILE    # writes it there too

Everything is fitted on validation images; test images are what is known. AUROC is the chance that a
stranger has more doubt than a known image (0.5 is guessing), FPR95 the share of known images above
the doubt that 95 % of strangers exceed.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from dubito import Logits
from dubito.arrays import FloatArray
from dubito.data import FashionMNISTSample, load_fashion_mnist
from dubito.doubt import (
    ClassConditionalDensity,
    MahalanobisDistance,
    NearestNeighborDistance,
    VirtualLogitMatching,
    energy,
    entropy,
    least_confidence,
    margin_uncertainty,
    mental_model,
    negative_feature_norm,
    unfamiliarity,
)
from dubito.measure import false_positive_rate_at_recall, roc_auc

PLAIN = "least confidence"
STRANGERS = {"unseen classes": "unseen_classes", "digits": "digits", "corrupted": "corrupted"}
SURE = 1.96  # standard errors


class Images(NamedTuple):
    """What the network made of some images."""

    logits: Logits
    features: FloatArray


Score = Callable[[Images], FloatArray]


def images(sample: FashionMNISTSample, name: str) -> Images:
    """Return one of the sample's sets."""
    logits, features = (getattr(sample, f"{name}_{kind}") for kind in ("logits", "features"))
    return Images(Logits(logits), features.astype(np.float32))


def scores(sample: FashionMNISTSample) -> Mapping[str, Score]:
    """Return every doubt by name, fitted where it has to be."""
    known, labels = images(sample, "validation").features, sample.validation_labels.astype(int)
    weight, bias = sample.weight, sample.bias
    of_outputs: dict[str, Callable[..., FloatArray]] = {
        PLAIN: least_confidence,
        "entropy": entropy,
        "narrow margin": margin_uncertainty,
        "energy": energy,
    }
    of_layer: dict[str, Callable[..., FloatArray]] = {
        "weak activation": negative_feature_norm,
        "unfamiliarity": partial(unfamiliarity, weights=weight),
        "mental model (published)": partial(mental_model, weights=weight),
        "mental model (simplex)": partial(mental_model, weights=weight, form="simplex"),
    }
    fitted = {
        "Mahalanobis": MahalanobisDistance().fit(known, labels),
        "Mahalanobis (normalized)": MahalanobisDistance(normalize=True).fit(known, labels),
        "neighbors": NearestNeighborDistance().fit(known),
        "virtual logit": VirtualLogitMatching(weight, bias).fit(known),
        "densities (shared)": ClassConditionalDensity("shared").fit(known, labels),
        "densities (own)": ClassConditionalDensity("per_class").fit(known, labels),
        "densities (naive)": ClassConditionalDensity("diagonal").fit(known, labels),
    }
    of_layer |= {name: one.score for name, one in fitted.items()}
    on_logits = {name: partial(of_field, "logits", score) for name, score in of_outputs.items()}
    on_features = {name: partial(of_field, "features", score) for name, score in of_layer.items()}
    return on_logits | on_features


def of_field(field: str, score: Callable[..., FloatArray], of: Images) -> FloatArray:
    """Return the doubt of some images by what it looks at."""
    return score(getattr(of, field))


class Detection(NamedTuple):
    """How well a doubt finds one kind of stranger."""

    auroc: float
    fpr95: float
    gain: float  # in AUROC, over least confidence
    error: float  # of the gain


def detection(known: Sequence[FloatArray], strange: Sequence[FloatArray]) -> Detection:
    """Return how a doubt (first of each pair) does, beside least confidence (second)."""
    is_outlier = np.repeat([False, True], [known[0].size, strange[0].size])
    doubt = np.concatenate([known[0], strange[0]])
    gain, error = paired_gain(known, strange)
    rate = false_positive_rate_at_recall(is_outlier, doubt)
    return Detection(roc_auc(is_outlier, doubt), rate, gain, error)


def paired_gain(known: Sequence[FloatArray], strange: Sequence[FloatArray]) -> tuple[float, float]:
    """Return by how much the first AUROC is above the second, and its standard error.

    DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated ROC
    curves", 1988.
    """
    among_known, among_strange = [], []
    for kept, met in zip(known, strange, strict=True):
        ranks = rankdata(np.concatenate([kept, met]))
        below = (ranks[kept.size :] - rankdata(met)) / kept.size
        above = 1 - (ranks[: kept.size] - rankdata(kept)) / met.size
        among_strange.append(below)
        among_known.append(above)
    gains = among_strange[0] - among_strange[1], among_known[0] - among_known[1]
    return float(gains[0].mean()), float(np.sqrt(sum(one.var(ddof=1) / one.size for one in gains)))


def table() -> str:
    """Return the table, and in words who beats least confidence on what."""
    sample = load_fashion_mnist()
    known = images(sample, "test")
    strangers = {name: images(sample, kind) for name, kind in STRANGERS.items()}
    functions = scores(sample)
    plain = functions[PLAIN]
    found = {
        name: {
            kind: detection([score(known), plain(known)], [score(of), plain(of)])
            for kind, of in strangers.items()
        }
        for name, score in functions.items()
    }
    heads = "".join(f" {kind:>17}" for kind in strangers)
    lines = [
        f"{known.logits.n_rows:,} known images; strangers: "
        + ", ".join(f"{of.logits.n_rows:,} {kind}" for kind, of in strangers.items()),
        "AUROC: the chance that a stranger has more doubt than a known image (0.5 is guessing);",
        "FPR95: the share of known images above the doubt that 95 % of strangers exceed",
        "",
        f"{'':<24}{heads}",
        f"{'':<24}" + f" {'AUROC':>9} {'FPR95':>7}" * len(strangers),
    ]
    for name, entries in found.items():
        cells = "".join(f" {one.auroc:>9.4f} {one.fpr95:>7.4f}" for one in entries.values())
        lines.append(f"{name:<24}{cells}")
    return "\n".join([*lines, "", *words(found)])


def words(found: dict[str, dict[str, Detection]]) -> list[str]:
    """Say who beats least confidence on what, and who does worse, beyond chance."""
    lines = []
    for kind in STRANGERS:
        better, worse = (
            [
                name
                for name, entries in sorted(found.items(), key=lambda pair: -pair[1][kind].auroc)
                if side * entries[kind].gain > SURE * entries[kind].error
            ]
            for side in (1, -1)
        )
        text = f"{kind}: better than {PLAIN}, beyond chance: {', '.join(better) or 'none'}"
        text += f"; worse: {', '.join(worse)}." if worse else "."
        lines.extend(wrap(text, 100, subsequent_indent="  "))
    return lines


def main() -> None:
    """Print the table, and write it where asked."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("-o", type=Path, help="a file to write the table to")
    path = parser.parse_args().o
    text = table()
    print(text)
    if path is not None:
        path.write_text(f"{text}\n")


if __name__ == "__main__":
    main()

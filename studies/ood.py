"""Which scores detect out-of-distribution images? On the sample that ships with dubito.

    python -m studies.ood            # prints the table
    python -m studies.ood -o FILE    # also writes it to FILE

Scores are fitted on validation images; test images are the known ones. AUROC is the probability
that an OOD image has a higher score than a known one (0.5 is chance), FPR95 the fraction of known
images above the threshold that detects 95 % of OOD images.
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

BASELINE = "least confidence"
OOD_KINDS = {"unseen classes": "unseen_classes", "digits": "digits", "corrupted": "corrupted"}
Z_95 = 1.96  # standard errors


class Images(NamedTuple):
    """Logits and features of some images."""

    logits: Logits
    features: FloatArray


Score = Callable[[Images], FloatArray]


def images(sample: FashionMNISTSample, name: str) -> Images:
    """Return one of the sample's sets of images."""
    logits, features = (getattr(sample, f"{name}_{kind}") for kind in ("logits", "features"))
    return Images(Logits(logits), features.astype(np.float32))


def scores(sample: FashionMNISTSample) -> Mapping[str, Score]:
    """Return every score by name, fitted if necessary."""
    known, labels = images(sample, "validation").features, sample.validation_labels.astype(int)
    weight, bias = sample.weight, sample.bias
    of_outputs: dict[str, Callable[..., FloatArray]] = {
        BASELINE: least_confidence,
        "entropy": entropy,
        "margin uncertainty": margin_uncertainty,
        "energy": energy,
    }
    of_layer: dict[str, Callable[..., FloatArray]] = {
        "negative feature norm": negative_feature_norm,
        "unfamiliarity": partial(unfamiliarity, weights=weight),
        "mental model (published)": partial(mental_model, weights=weight),
        "mental model (simplex)": partial(mental_model, weights=weight, form="simplex"),
    }
    fitted = {
        "Mahalanobis": MahalanobisDistance().fit(known, labels),
        "Mahalanobis (normalized)": MahalanobisDistance(normalize=True).fit(known, labels),
        "neighbors": NearestNeighborDistance().fit(known),
        "virtual logit": VirtualLogitMatching(weight, bias).fit(known),
        "density (shared covariance)": ClassConditionalDensity("shared").fit(known, labels),
        "density (own covariance)": ClassConditionalDensity("per_class").fit(known, labels),
        "density (naive Bayes)": ClassConditionalDensity("diagonal").fit(known, labels),
    }
    of_layer |= {name: one.score for name, one in fitted.items()}
    on_logits = {name: partial(of_field, "logits", score) for name, score in of_outputs.items()}
    on_features = {name: partial(of_field, "features", score) for name, score in of_layer.items()}
    return on_logits | on_features


def of_field(field: str, score: Callable[..., FloatArray], of: Images) -> FloatArray:
    """Return the scores of some images, from the field that the score uses."""
    return score(getattr(of, field))


class Detection(NamedTuple):
    """How well a score detects one kind of OOD image."""

    auroc: float
    fpr95: float
    gain: float  # in AUROC, over least confidence
    error: float  # of the gain


def detection(known: Sequence[FloatArray], ood: Sequence[FloatArray]) -> Detection:
    """Return the performance of a score (first of each pair) relative to least confidence."""
    is_outlier = np.repeat([False, True], [known[0].size, ood[0].size])
    score = np.concatenate([known[0], ood[0]])
    gain, error = paired_gain(known, ood)
    rate = false_positive_rate_at_recall(is_outlier, score)
    return Detection(roc_auc(is_outlier, score), rate, gain, error)


def paired_gain(known: Sequence[FloatArray], ood: Sequence[FloatArray]) -> tuple[float, float]:
    """Return the difference of two AUROCs, and its standard error.

    DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated ROC
    curves", 1988.
    """
    among_known, among_ood = [], []
    for first, second in zip(known, ood, strict=True):
        ranks = rankdata(np.concatenate([first, second]))
        below = (ranks[first.size :] - rankdata(second)) / first.size
        above = 1 - (ranks[: first.size] - rankdata(first)) / second.size
        among_ood.append(below)
        among_known.append(above)
    gains = among_ood[0] - among_ood[1], among_known[0] - among_known[1]
    return float(gains[0].mean()), float(np.sqrt(sum(one.var(ddof=1) / one.size for one in gains)))


def table() -> str:
    """Return the table, and which scores beat least confidence."""
    sample = load_fashion_mnist()
    known = images(sample, "test")
    ood_images = {name: images(sample, kind) for name, kind in OOD_KINDS.items()}
    functions = scores(sample)
    baseline = functions[BASELINE]
    found = {
        name: {
            kind: detection([score(known), baseline(known)], [score(of), baseline(of)])
            for kind, of in ood_images.items()
        }
        for name, score in functions.items()
    }
    heads = "".join(f" {kind:>17}" for kind in ood_images)
    lines = [
        f"{known.logits.n_rows:,} known images; out of distribution: "
        + ", ".join(f"{of.logits.n_rows:,} {kind}" for kind, of in ood_images.items()),
        "AUROC: the probability that an OOD image has a higher score than a known one "
        "(0.5 is chance);",
        "FPR95: the fraction of known images above the threshold that detects 95 % of OOD images",
        "",
        f"{'':<28}{heads}",
        f"{'':<28}" + f" {'AUROC':>9} {'FPR95':>7}" * len(ood_images),
    ]
    for name, entries in found.items():
        cells = "".join(f" {one.auroc:>9.4f} {one.fpr95:>7.4f}" for one in entries.values())
        lines.append(f"{name:<28}{cells}")
    return "\n".join([*lines, "", *words(found)])


def words(found: dict[str, dict[str, Detection]]) -> list[str]:
    """Describe which scores are significantly better or worse than least confidence."""
    lines = []
    for kind in OOD_KINDS:
        better, worse = (
            [
                name
                for name, entries in sorted(found.items(), key=lambda pair: -pair[1][kind].auroc)
                if side * entries[kind].gain > Z_95 * entries[kind].error
            ]
            for side in (1, -1)
        )
        text = f"{kind}: significantly better than {BASELINE}: {', '.join(better) or 'none'}"
        text += f"; worse: {', '.join(worse)}." if worse else "."
        lines.extend(wrap(text, 100, subsequent_indent="  "))
    return lines


def main() -> None:
    """Print the table, and write it to a file if requested."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("-o", type=Path, help="write the table to this file")
    path = parser.parse_args().o
    text = table()
    print(text)
    if path is not None:
        path.write_text(f"{text}\n")


if __name__ == "__main__":
    main()

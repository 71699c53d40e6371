"""Which scores detect out-of-distribution images? On the shipped sample, and on digits.

    python -m studies.ood            # prints the tables, in half a minute
    python -m studies.ood -o FILE    # also writes them to FILE

Fashion-MNIST is the sample that ships with dubito: scores are fitted on validation images, test
images are the known ones. Digits are those of scikit-learn: a small network learns eight of them,
scores are fitted on its training images. AUROC is the probability that an OOD image has a higher
score than a known one (0.5 is chance), FPR95 the fraction of OOD images accepted by the threshold
that accepts 95 % of known ones, as papers on OOD detection define it. Which score to use is then
chosen by `diagnose_ood` on one kind of OOD image and half of the known ones, and measured on the
other kinds with the other half. Last, policies with gates of one score and of several are fitted
on that half. There is one network per data set: intervals are over images, not over networks.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from dubito import Logits
from dubito.arrays import FloatArray, IntArray
from dubito.calibrate import TemperatureScaling
from dubito.data import FashionMNISTSample, load_fashion_mnist
from dubito.decide import CostMatrix, OODGate, Policy
from dubito.doubt import (
    SCALE,
    ClassConditionalDensity,
    DecisionBoundaryDistance,
    MahalanobisDistance,
    NearestNeighborDistance,
    ReAct,
    VirtualLogitMatching,
    diagnose_ood,
    energy,
    entropy,
    generalized_entropy,
    least_confidence,
    margin_uncertainty,
    mental_model,
    negative_feature_norm,
    unfamiliarity,
)
from dubito.doubt.diagnosis import paired_gain
from dubito.doubt.features import BaseOODScore
from dubito.measure import false_positive_rate_at_recall, roc_auc

BASELINE = "least confidence"
OOD_KINDS = {"unseen classes": "unseen_classes", "digits": "digits", "corrupted": "corrupted"}
Z_95 = 1.96  # standard errors
WORTHWHILE = 0.02  # a gain in AUROC
UNSEEN_DIGITS = (8, 9)
GATE: dict[str, BaseOODScore | str] = {  # what gates use, alone and together
    "relative Mahalanobis": MahalanobisDistance(relative=True),
    "neighbors": NearestNeighborDistance(),
    "energy": "energy",
}
ALPHA, FLAGGED = 0.05, "out_of_distribution"
WIDTH = 30  # of the names of scores


class Images(NamedTuple):
    """Logits and features of some images."""

    logits: Logits
    features: FloatArray

    def take(self, rows: slice) -> "Images":
        """Return some of the images."""
        return Images(Logits(self.logits.array[rows]), self.features[rows])


Score = Callable[[Images], FloatArray]


class Setting(NamedTuple):
    """A network's last layer, the features that scores are fitted on, and images to detect."""

    name: str
    reference: FloatArray
    labels: IntArray
    weight: FloatArray
    bias: FloatArray
    known: Images
    known_labels: IntArray
    ood: Mapping[str, Images]


def images(sample: FashionMNISTSample, name: str) -> Images:
    """Return one of the sample's sets of images."""
    logits, features = (getattr(sample, f"{name}_{kind}") for kind in ("logits", "features"))
    return Images(Logits(logits), features.astype(np.float32))


def sample_setting() -> Setting:
    """Return the shipped sample."""
    sample = load_fashion_mnist()
    return Setting(
        "Fashion-MNIST, the shipped sample",
        images(sample, "validation").features,
        sample.validation_labels.astype(int),
        sample.weight,
        sample.bias,
        images(sample, "test"),
        sample.test_labels.astype(int),
        {name: images(sample, kind) for name, kind in OOD_KINDS.items()},
    )


def digits_setting() -> Setting:
    """Return a network that learned eight digits, and images that it did not learn."""
    pixels, labels = load_digits(return_X_y=True)
    rng, is_unseen = np.random.default_rng(0), np.isin(labels, UNSEEN_DIGITS)
    known, y = pixels[~is_unseen] / 16, labels[~is_unseen]
    order = rng.permutation(len(known))
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    network = MLPClassifier((64, 32), alpha=1e-4, max_iter=200, tol=1e-3, random_state=0)
    network.fit(known[train], y[train])

    def seen(rows: FloatArray) -> Images:
        for weights, bias in zip(network.coefs_[:-1], network.intercepts_[:-1], strict=True):
            rows = np.maximum(rows @ weights + bias, 0)
        return Images(Logits(rows @ network.coefs_[-1] + network.intercepts_[-1]), rows)

    return Setting(
        "scikit-learn's digits 0 to 7",
        seen(known[train]).features,
        y[train],
        network.coefs_[-1].T,
        network.intercepts_[-1],
        seen(known[test]),
        y[test],
        {
            "unseen digits": seen(pixels[is_unseen] / 16),
            "transposed": seen(known[test].reshape(-1, 8, 8).transpose(0, 2, 1).reshape(-1, 64)),
            "shuffled": seen(rng.permuted(known[test], axis=1)),
        },
    )


def fitted_scores(setting: Setting) -> dict[str, BaseOODScore]:
    """Return the scores that are fitted on features, by name."""
    known, labels = setting.reference, setting.labels
    weight, bias = setting.weight, setting.bias
    return {
        "Mahalanobis": MahalanobisDistance().fit(known, labels),
        "Mahalanobis (normalized)": MahalanobisDistance(normalize=True).fit(known, labels),
        "relative Mahalanobis": MahalanobisDistance(relative=True).fit(known, labels),
        "neighbors": NearestNeighborDistance().fit(known),
        "virtual logit": VirtualLogitMatching(weight, bias).fit(known),
        "decision boundary (fDBD)": DecisionBoundaryDistance(weight, bias).fit(known),
        "ReAct": ReAct(weight, bias).fit(known),
        "SCALE": SCALE(weight, bias).fit(known),
        "density (shared covariance)": ClassConditionalDensity("shared").fit(known, labels),
        "density (own covariance)": ClassConditionalDensity("per_class").fit(known, labels),
        "density (naive Bayes)": ClassConditionalDensity("diagonal").fit(known, labels),
    }


def scores(setting: Setting, fitted: Mapping[str, BaseOODScore]) -> Mapping[str, Score]:
    """Return every score by name."""
    weight = setting.weight
    of_outputs: dict[str, Callable[..., FloatArray]] = {
        BASELINE: least_confidence,
        "entropy": entropy,
        "generalized entropy (GEN)": generalized_entropy,
        "margin uncertainty": margin_uncertainty,
        "energy": energy,
    }
    of_layer: dict[str, Callable[..., FloatArray]] = {
        "negative feature norm": negative_feature_norm,
        "unfamiliarity": partial(unfamiliarity, weights=weight),
        "mental model (published)": partial(mental_model, weights=weight),
        "mental model (simplex)": partial(mental_model, weights=weight, form="simplex"),
        **{name: one.score for name, one in fitted.items()},
    }
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
    rate = false_positive_rate_at_recall(~is_outlier, -score)
    return Detection(roc_auc(is_outlier, score), rate, gain, error)


def tables() -> str:
    """Return the table of each setting, which scores beat least confidence, and the choices."""
    return "\n\n\n".join(table(setting) for setting in (sample_setting(), digits_setting()))


def table(setting: Setting) -> str:
    """Return the figures of every score in a setting, and what they show."""
    known, kinds = setting.known, setting.ood
    fitted = fitted_scores(setting)
    functions = scores(setting, fitted)
    baseline = functions[BASELINE]
    found = {
        name: {
            kind: detection([score(known), baseline(known)], [score(of), baseline(of)])
            for kind, of in kinds.items()
        }
        for name, score in functions.items()
    }
    lines = [
        f"{setting.name}: {known.logits.n_rows:,} known images; out of distribution: "
        + ", ".join(f"{of.logits.n_rows:,} {kind}" for kind, of in kinds.items()),
        "AUROC: the probability that an OOD image has a higher score than a known one "
        "(0.5 is chance);",
        "FPR95: the fraction of OOD images accepted where 95 % of known images are accepted",
        "",
        f"{'':<{WIDTH}}" + "".join(f" {kind:>17}" for kind in kinds),
        f"{'':<{WIDTH}}" + f" {'AUROC':>9} {'FPR95':>7}" * len(kinds),
    ]
    for name, entries in found.items():
        cells = "".join(f" {one.auroc:>9.4f} {one.fpr95:>7.4f}" for one in entries.values())
        lines.append(f"{name:<{WIDTH}}{cells}")
    chosen, gates = choice_lines(setting, fitted), gate_lines(setting)
    return "\n".join([*lines, "", *words(found), "", *chosen, "", *gates])


def words(found: dict[str, dict[str, Detection]]) -> list[str]:
    """Describe which scores are significantly better or worse than least confidence.

    At the 5 % level, corrected for the number of scores (Bonferroni).
    """
    critical = float(norm.isf(0.025 / (len(found) - 1)))
    lines = [f"At the 5 % level, corrected for {len(found) - 1} comparisons on each kind:"]
    for kind in found[BASELINE]:
        better, worse = (
            [
                name
                for name, entries in sorted(found.items(), key=lambda pair: -pair[1][kind].auroc)
                if side * entries[kind].gain > critical * entries[kind].error
            ]
            for side in (1, -1)
        )
        text = f"{kind}: significantly better than {BASELINE}: {', '.join(better) or 'none'}"
        text += f"; worse: {', '.join(worse)}." if worse else "."
        lines.extend(wrap(text, 100, subsequent_indent="  "))
    return lines


class Choice(NamedTuple):
    """A score that was chosen on one kind of OOD image, measured on another."""

    chosen_on: str
    score: str
    kind: str
    gain: float  # in AUROC, over least confidence
    error: float


def choices(setting: Setting, fitted: Mapping[str, BaseOODScore]) -> list[Choice]:
    """Return what each kind's recommended score gains on the other kinds, and other known rows."""
    seen, held_out = (setting.known.take(slice(start, None, 2)) for start in (0, 1))
    functions = scores(setting, fitted)
    baseline, found = functions[BASELINE], []
    for chosen_on, ood in setting.ood.items():
        options: dict[str, Any] = {"weights": setting.weight, "scores": fitted}
        name = diagnose_ood(
            seen.logits,
            ood.logits,
            id_features=seen.features,
            ood_features=ood.features,
            **options,
        ).recommended.replace("_", " ")
        score = functions[{"generalized entropy": "generalized entropy (GEN)"}.get(name, name)]
        for kind, of in setting.ood.items():
            if kind != chosen_on:
                pairs = [score(held_out), baseline(held_out)], [score(of), baseline(of)]
                found.append(Choice(chosen_on, name, kind, *paired_gain(*pairs)))
    return found


def choice_lines(setting: Setting, fitted: Mapping[str, BaseOODScore]) -> list[str]:
    """Return the choices as a table."""
    lines = [
        f"Score that `diagnose_ood` recommends on one kind, and its gain in AUROC over {BASELINE}",
        "on the other kinds (95 % interval; known images that the choice did not use)",
        "",
        f"{'chosen on':<16} {'recommended':<28} {'measured on':<16} {'gain':>8}    interval",
    ]
    ends = []
    for one in choices(setting, fitted):
        low, high = (one.gain + side * Z_95 * one.error for side in (-1, 1))
        ends.append((low, high))
        head = f"{one.chosen_on:<16} {one.score:<28} {one.kind:<16}"
        lines.append(f"{head} {one.gain:>+8.4f}    {low:+.4f} to {high:+.4f}")
    worthwhile, better, worse = (
        sum(low > WORTHWHILE for low, _ in ends),
        sum(low > 0 for low, _ in ends),
        sum(high < 0 for _, high in ends),
    )
    return [
        *lines,
        f"Of {len(ends)} intervals, {better} are above 0, {worthwhile} of these above "
        f"{WORTHWHILE:g}; {worse} are below 0.",
    ]


def gate_lines(setting: Setting) -> list[str]:
    """Return which images the gates of policies flag, as a table."""
    calibration, test = (setting.known.take(slice(start, None, 2)) for start in (0, 1))
    costs = CostMatrix.zero_one(range(len(setting.weight))).with_reject(0.5)
    lines = [
        f"Fraction flagged by the OOD gates of policies at alpha={ALPHA:g}, fitted on half of the",
        "known images",
        "",
        f"{'':<42} {'known':>8}" + "".join(f" {kind:>15}" for kind in setting.ood),
    ]
    for names in (*((name,) for name in GATE), tuple(GATE)):
        policy = Policy.fit(
            calibration.logits,
            setting.known_labels[::2],
            costs=costs,
            calibrator=TemperatureScaling(),
            features=calibration.features,
            ood=OODGate([GATE[name] for name in names], alpha=ALPHA),
        )
        flagged = [
            float((decided.columns()["reason"] == FLAGGED).mean())
            for of in (test, *setting.ood.values())
            for decided in [policy.decide(of.logits, features=of.features)]
        ]
        cells = f"{flagged[0]:>8.4f}" + "".join(f" {one:>15.4f}" for one in flagged[1:])
        lines.append(f"{' + '.join(names):<42} {cells}")
    return lines


def main() -> None:
    """Print the tables, and write them to a file if requested."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("-o", type=Path, help="write the tables to this file")
    path = parser.parse_args().o
    text = tables()
    print(text)
    if path is not None:
        path.write_text(f"{text}\n")


if __name__ == "__main__":
    main()

"""Activations of a network by layer, and which scores detect OOD inputs from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from dubito import Logits
from dubito.arrays import FloatArray, IntArray
from dubito.doubt import (
    ConformalOutlierDetector,
    MahalanobisDistance,
    NearestNeighborDistance,
    VirtualLogitMatching,
    diagnose_ood,
    energy,
    familiarity,
    feature_norm,
    least_confidence,
    mental_model,
    negative_feature_norm,
    softmax_decomposition,
    unfamiliarity,
)
from dubito.learn import collect_outputs
from dubito.measure import roc_auc
from studies.common.images import READ_ROWS
from studies.common.runs import RunResult

SCORES = (
    "least confidence",
    "energy",
    "negative feature norm",
    "unfamiliarity",
    "mental model",
    "Mahalanobis",
    "virtual logit",
    "neighbors",
    "patterns",
)
PARTS = ("unchanged", "angles alone", "norms alone")  # of the softmax
LAYERS = ("pixels", "convolution 1", "convolution 2", "hidden layer", "penultimate features")
EPSILON = 0.05
N_NEIGHBorS = 50
N_SHOWN = 200  # rows of each kind in a figure


class Seen(NamedTuple):
    """Outputs of a network: `patterns` are its active hidden units."""

    logits: Logits
    features: FloatArray
    patterns: FloatArray
    weights: FloatArray
    bias: FloatArray


def look(network: nn.Sequential, pixels: Tensor) -> Seen:
    """Return the outputs of a network; its hidden units are those of the linear layers."""
    batches = torch.split(pixels, READ_ROWS)
    found = collect_outputs(network, batches)
    assert found.features is not None
    assert found.weights is not None
    assert found.bias is not None
    hidden = [outputs[-2:] for outputs in map(partial(after_relus, network), batches)]
    patterns = torch.cat([torch.cat(both, dim=1) > 0 for both in hidden]).float()
    return Seen(found.logits, found.features, patterns.numpy(), found.weights, found.bias)


def after_relus(network: nn.Sequential, pixels: Tensor) -> list[Tensor]:
    """Return the outputs of all ReLUs, rows x units."""
    outputs = []
    with torch.no_grad():
        for layer in network:
            pixels = layer(pixels)
            if isinstance(layer, nn.ReLU):
                outputs.append(pixels.flatten(1))
    return outputs


def layers_of(network: nn.Sequential, every: Mapping[str, Tensor]) -> FloatArray:
    """Return the median norm and the mean fraction of active units, kinds x layers x 2."""
    found = []
    for pixels in every.values():
        outputs = [pixels.flatten(1), *after_relus(network, pixels)]
        found.append(
            [
                [np.median(feature_norm(one.numpy())), (one > 0).float().mean().item()]
                for one in outputs
            ]
        )
    return np.array(found)


@final
class OODEvaluator:
    """All scores, fitted on validation images if necessary, and their outlier detectors."""

    def __init__(self, known: Seen, labels: IntArray) -> None:
        self.known = known
        weights, bias = known.weights, known.bias
        # One half fits the distances, the other calibrates the detectors.
        taught, rest = halves(known)
        distances = {
            "Mahalanobis": MahalanobisDistance().fit(taught.features, labels[::2]),
            "virtual logit": VirtualLogitMatching(weights, bias).fit(taught.features),
            "neighbors": NearestNeighborDistance(n_neighbors_of(taught)).fit(taught.features),
        }
        patterns = NearestNeighborDistance(n_neighbors_of(taught), normalize=False)
        patterns.fit(taught.patterns)
        self.uncertainties: dict[str, Callable[[Seen], FloatArray]] = {
            "least confidence": lambda seen: least_confidence(seen.logits),
            "energy": lambda seen: energy(seen.logits),
            "negative feature norm": lambda seen: negative_feature_norm(seen.features),
            "unfamiliarity": lambda seen: unfamiliarity(seen.features, weights),
            "mental model": lambda seen: mental_model(seen.features, weights),
            **{name: partial(of_features, one.score) for name, one in distances.items()},
            "patterns": lambda seen: patterns.score(seen.patterns),
        }
        self.regions = {
            name: ConformalOutlierDetector(EPSILON).fit(self.uncertainties[name](rest))
            for name in SCORES
        }

    def threshold(self, name: str) -> float:
        """Return the score above which an image is flagged."""
        return self.regions[name].threshold_

    def flagged_fractions(self, seen: Seen) -> list[float]:
        """Return the fraction of images flagged by each score."""
        return [
            float(self.regions[name].predict(self.uncertainties[name](seen)).mean())
            for name in SCORES
        ]

    def figures(self, seen: Mapping[str, Seen]) -> RunResult:
        """Return the metrics of known images (first) and of each kind of OOD image."""
        known, *ood = seen.values()
        weights = self.known.weights
        diagnoses = [diagnosis(known, one, weights) for one in ood]
        return {
            "found": [self.flagged_fractions(one) for one in seen.values()],
            "aurocs": [
                [
                    detection_auroc(self.uncertainties[name](known), self.uncertainties[name](one))
                    for name in SCORES
                ]
                for one in ood
            ],
            "part_aurocs": [part_aurocs(known, one) for one in ood],
            "confidence": [1 - least_confidence(one.logits).mean() for one in seen.values()],
            "norms": [np.median(feature_norm(one.features)) for one in seen.values()],
            "familiarity": [np.median(familiarity(one.features, weights)) for one in seen.values()],
            "as_sure": [fraction for fraction, _ in diagnoses],
            "kinds": [kind for _, kind in diagnoses],
            "layer_sample": layer_sample([one.features for one in seen.values()], weights),
        }


def of_features(score: Callable[[FloatArray], FloatArray], seen: Seen) -> FloatArray:
    """Return a score of features."""
    return score(seen.features)


def halves(seen: Seen) -> tuple[Seen, Seen]:
    """Return every other row, and the rest."""
    every = np.arange(len(seen.features))
    return tuple(  # type: ignore[return-value]
        seen._replace(
            logits=seen.logits.take(rows),
            features=seen.features[rows],
            patterns=seen.patterns[rows],
        )
        for rows in (every[::2], every[1::2])
    )


def n_neighbors_of(seen: Seen) -> int:
    """Return 50, or fewer where there are few rows."""
    return min(N_NEIGHBorS, len(seen.features) // 10)


def detection_auroc(known: FloatArray, ood: FloatArray) -> float:
    """Return the AUROC of a score for OOD vs. known rows."""
    is_ood = np.repeat([False, True], [known.size, ood.size])
    return roc_auc(is_ood, np.concatenate([known, ood]))


def part_aurocs(known: Seen, ood: Seen) -> list[float]:
    """Return the AUROC of the softmax: unchanged, by angles alone, by norms alone."""
    features = np.concatenate([known.features, ood.features])
    parts = softmax_decomposition(features, known.weights, known.bias)
    size = len(known.features)
    uncertainties = parts.uncertainty, parts.uncertainty_by_angle, parts.uncertainty_by_norm
    return [detection_auroc(one[:size], one[size:]) for one in uncertainties]


def diagnosis(known: Seen, ood: Seen, weights: FloatArray) -> tuple[float, str]:
    """Return the fraction of OOD inputs above the median known confidence, and the diagnosis."""
    found = diagnose_ood(
        known.logits,
        ood.logits,
        id_features=known.features,
        ood_features=ood.features,
        weights=weights,
    )
    return found.fraction_as_confident, found.kind


def layer_sample(features: Sequence[FloatArray], weights: FloatArray) -> FloatArray:
    """Return norm and familiarity of the first rows of each kind, for a figure."""
    return np.array(
        [
            np.stack([feature_norm(one), familiarity(one, weights)], axis=1)
            for one in first_rows(features)
        ]
    )


def first_rows(features: Sequence[FloatArray]) -> list[FloatArray]:
    """Return a few rows of each kind, of all the same number."""
    size = min(N_SHOWN, *map(len, features))
    return [one[:size].astype(np.float32) for one in features]

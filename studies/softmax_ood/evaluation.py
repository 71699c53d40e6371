"""What a network makes of images, layer by layer, and which doubts tell strangers by it."""

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
from studies.common.runs import Found

DOUBTS = (
    "least confidence",
    "energy",
    "weak activation",
    "unfamiliarity",
    "mental model",
    "Mahalanobis",
    "virtual logit",
    "neighbors",
    "patterns",
)
PARTS = ("as it is", "angles alone", "norms alone")  # of the softmax
LAYERS = ("pixels", "convolution 1", "convolution 2", "hidden layer", "last features")
EPSILON = 0.05
N_NEIGHBorS = 50
N_SHOWN = 200  # rows of each kind that a picture may show


class Seen(NamedTuple):
    """What a network makes of images: `patterns` say which of its hidden units are awake."""

    logits: Logits
    features: FloatArray
    patterns: FloatArray
    weights: FloatArray
    bias: FloatArray


def look(network: nn.Sequential, pixels: Tensor) -> Seen:
    """Return what a network makes of images; its hidden units are those of the linear layers."""
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
    """Return the median norm and the mean share of units awake, kinds x layers x 2."""
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
class Judge:
    """All doubts, learned from validation images where they learn, and their regions."""

    def __init__(self, known: Seen, labels: IntArray) -> None:
        self.known = known
        weights, bias = known.weights, known.bias
        # One half teaches distances, the other, which they have not seen, the regions.
        taught, rest = halves(known)
        distances = {
            "Mahalanobis": MahalanobisDistance().fit(taught.features, labels[::2]),
            "virtual logit": VirtualLogitMatching(weights, bias).fit(taught.features),
            "neighbors": NearestNeighborDistance(n_neighbors_of(taught)).fit(taught.features),
        }
        patterns = NearestNeighborDistance(n_neighbors_of(taught), normalize=False)
        patterns.fit(taught.patterns)
        self.doubts: dict[str, Callable[[Seen], FloatArray]] = {
            "least confidence": lambda seen: least_confidence(seen.logits),
            "energy": lambda seen: energy(seen.logits),
            "weak activation": lambda seen: negative_feature_norm(seen.features),
            "unfamiliarity": lambda seen: unfamiliarity(seen.features, weights),
            "mental model": lambda seen: mental_model(seen.features, weights),
            **{name: partial(of_features, one.score) for name, one in distances.items()},
            "patterns": lambda seen: patterns.score(seen.patterns),
        }
        self.regions = {
            name: ConformalOutlierDetector(EPSILON).fit(self.doubts[name](rest)) for name in DOUBTS
        }

    def threshold(self, name: str) -> float:
        """Return the doubt above which an image is strange."""
        return self.regions[name].threshold_

    def shares_found(self, seen: Seen) -> list[float]:
        """Return what share of images is strange, by each doubt."""
        return [
            float(self.regions[name].predict(self.doubts[name](seen)).mean()) for name in DOUBTS
        ]

    def figures(self, seen: Mapping[str, Seen]) -> Found:
        """Return figures of known images and of each kind of stranger, known ones the first."""
        known, *strange = seen.values()
        weights = self.known.weights
        told = [diagnosis(known, one, weights) for one in strange]
        return {
            "found": [self.shares_found(one) for one in seen.values()],
            "aurocs": [
                [tells(self.doubts[name](known), self.doubts[name](one)) for name in DOUBTS]
                for one in strange
            ],
            "part_aurocs": [by_parts(known, one) for one in strange],
            "confidence": [1 - least_confidence(one.logits).mean() for one in seen.values()],
            "norms": [np.median(feature_norm(one.features)) for one in seen.values()],
            "familiarity": [np.median(familiarity(one.features, weights)) for one in seen.values()],
            "as_sure": [share for share, _ in told],
            "kinds": [kind for _, kind in told],
            "layer_sample": layer_sample([one.features for one in seen.values()], weights),
        }


def of_features(score: Callable[[FloatArray], FloatArray], seen: Seen) -> FloatArray:
    """Return a doubt that looks at features."""
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


def tells(known: FloatArray, strange: FloatArray) -> float:
    """Return how well a doubt tells strangers from known rows: AUROC."""
    is_strange = np.repeat([False, True], [known.size, strange.size])
    return roc_auc(is_strange, np.concatenate([known, strange]))


def by_parts(known: Seen, strange: Seen) -> list[float]:
    """Return how well the softmax tells strangers, as it is, by angles alone, by norms alone."""
    features = np.concatenate([known.features, strange.features])
    parts = softmax_decomposition(features, known.weights, known.bias)
    size = len(known.features)
    doubts = parts.uncertainty, parts.uncertainty_by_angle, parts.uncertainty_by_norm
    return [tells(one[:size], one[size:]) for one in doubts]


def diagnosis(known: Seen, strange: Seen, weights: FloatArray) -> tuple[float, str]:
    """Return what share of strangers is as sure as the median known image, and what that is."""
    found = diagnose_ood(
        known.logits,
        strange.logits,
        id_features=known.features,
        ood_features=strange.features,
        weights=weights,
    )
    return found.fraction_as_confident, found.kind


def layer_sample(features: Sequence[FloatArray], weights: FloatArray) -> FloatArray:
    """Return norm and familiarity of the first rows of each kind, for a picture."""
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

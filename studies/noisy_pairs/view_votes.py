"""Several views of a test image, and every way in which they can vote for its class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from torch import Tensor, nn

from dubito import Members
from dubito.arrays import IntArray
from dubito.doubt import vote
from dubito.learn import (
    TestTimeAugmentation,
    UncertaintyAware,
    flip_views,
    identity_view,
    shift_views,
)
from studies.common.images import Images
from studies.common.training import View

N_PIXELS = 2
RIGHT, LEFT, DOWN, UP = shift_views(N_PIXELS)
(MIRRORED,) = flip_views()


def mirrored_down(pixels: Tensor) -> Tensor:
    """Return images mirrored and shifted down."""
    return DOWN(MIRRORED(pixels))


VIEWS: dict[str, tuple[View, ...]] = {
    "none": (),
    "shifts": (identity_view, RIGHT, LEFT, DOWN, UP),
    "mirrors": (identity_view, MIRRORED, RIGHT, LEFT, mirrored_down),
}
SINGLE = "single view"
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)  # of validation values: the thresholds to choose from


@final
@dataclass(frozen=True, slots=True)
class Way:
    """A way to vote: by what, with what value of it as certainty, and whether by a threshold."""

    by: Literal["mode", "mean", "confidence", "certainty"]
    is_sigmoid: bool = False
    is_hard: bool = False

    def values(self, members: Members) -> Members:
        """Return the same views with the certainty of this way: exp(-s), or 1 - sigmoid(s)."""
        if not self.is_sigmoid or members.certainty is None:
            return members
        return Members(members.array, certainty=members.certainty / (1 + members.certainty))

    def classes(self, members: Members, threshold: float | None = None) -> IntArray:
        """Return the class that wins in each row."""
        return vote(self.values(members), self.by, threshold).prediction

    def threshold(self, members: Members, labels: IntArray) -> float | None:
        """Return the threshold by which most rows are right, on rows that are not the test."""
        if not self.is_hard:
            return None
        values = members.array.max(axis=2) if self.by == "confidence" else members.certainty
        tried = np.unique(np.quantile(np.asarray(values), QUANTILES))
        right = [(self.classes(members, one) == labels).mean() for one in tried]
        return float(tried[np.argmax(right)])


WAYS: dict[str, Way] = {
    "mode": Way("mode"),
    "mean probability": Way("mean"),
    "confidence": Way("confidence"),
    "confidence above a threshold": Way("confidence", is_hard=True),
    "certainty exp(-s)": Way("certainty"),
    "certainty 1 - sigmoid(s)": Way("certainty", is_sigmoid=True),
    "certainty above a threshold": Way("certainty", is_hard=True),
}


def seen(network: nn.Module, images: Images, name: str, likelihood: Any) -> Members:
    """Return what a network says of each view of some images."""
    augmented = TestTimeAugmentation(network, VIEWS[name], likelihood=likelihood)
    parts = [augmented(pixels) for pixels, _ in images]
    array = np.concatenate([part.array for part in parts], axis=1)
    if not isinstance(likelihood, UncertaintyAware):
        return Members(array)
    return Members(array, certainty=np.concatenate([one.certainty for one in parts], axis=1))


def vote_accuracies(
    validation: tuple[Members, IntArray], test: tuple[Members, IntArray]
) -> Mapping[str, float]:
    """Return the accuracy of each way to vote on the test, and of its first view alone.

    Thresholds are chosen on validation rows. Without certainties nothing votes by them.
    """
    members, labels = test
    found = {SINGLE: float((members.array[0].argmax(axis=1) == labels).mean())}
    for name, way in WAYS.items():
        if way.by == "certainty" and members.certainty is None:
            continue
        threshold = way.threshold(*validation)
        found[name] = float((way.classes(members, threshold) == labels).mean())
    return found

"""The OOD gate of a policy: out-of-distribution inputs are rejected whatever their probabilities."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from sklearn.base import clone

from dubito.arrays import BoolArray, FloatArray
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards
from dubito.decide.policy.file import AS_WRITTEN
from dubito.doubt import (
    ConformalOutlierDetector,
    NearestNeighborDistance,
    energy,
    entropy,
    least_confidence,
    margin_uncertainty,
)
from dubito.doubt.features import BaseOODScore
from dubito.errors import BadTypeError, BadValueError, DubitoWarning, MissingLabelsWarning

OUTPUT_DOUBTS: dict[str, Callable[[Any], FloatArray]] = {
    "energy": energy,
    "entropy": entropy,
    "least_confidence": least_confidence,
    "margin_uncertainty": margin_uncertainty,
}
KEYS = ("score", "region")

Score = BaseOODScore | str  # fitted on features, or the name of a doubt of outputs
Fold = tuple[Any, Any]


@final
@dataclass(frozen=True, slots=True, eq=False)
class OODGate:
    """A doubt, and the region that known rows leave as seldom as wished."""

    score: Score
    region: ConformalOutlierDetector

    @classmethod
    def fit(
        cls, score: Score, shards: Shards, batch: Batch, folds: Sequence[Fold], epsilon: float
    ) -> tuple[OODGate, FloatArray]:
        """Fit the score on all rows, and the region on doubts of rows its score did not see.

        Returns these doubts too, one for each row of `batch` that a fold holds out.
        """
        doubt = np.full(len(batch), np.nan)
        for train, test in folds:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DubitoWarning)
                others = _fitted(score, ArrayShards(batch.take(train)))
            held = batch.take(test)
            doubt[test] = _doubt_of(others, held.outputs, held.features)
        region = ConformalOutlierDetector(epsilon).fit(doubt[~np.isnan(doubt)])
        with warnings.catch_warnings():  # the calibrator's fit told of the same rows
            warnings.simplefilter("ignore", MissingLabelsWarning)
            return cls(_fitted(score, shards), region), doubt

    @property
    def needs_features(self) -> bool:
        """Whether it looks at features rather than outputs."""
        return not isinstance(self.score, str)

    @property
    def name(self) -> str:
        """What the doubt is called."""
        return self.score if isinstance(self.score, str) else type(self.score).__name__

    @property
    def n_features(self) -> int | None:
        """How many features a row has, where it needs them."""
        return None if isinstance(self.score, str) else self.score.n_features_

    def doubt(self, outputs: Any, features: Any) -> FloatArray:
        """Return the doubt of each row."""
        return _doubt_of(self.score, outputs, features)

    def contains(self, outputs: Any, features: Any) -> BoolArray:
        """Return which rows are strange."""
        return self.region.predict(self.doubt(outputs, features))

    def require_storable(self) -> None:
        """Raise where the doubt is made of the very rows it was fitted on."""
        if isinstance(self.score, NearestNeighborDistance):
            rule, fix = "a doubt that can be kept in a file", "MahalanobisDistance()"
            raise BadTypeError("doubt", "Policy.save", rule, "NearestNeighborDistance", fix)

    def to_dict(self) -> dict[str, Any]:
        """Return what was fitted, ready for JSON."""
        score = self.score if isinstance(self.score, str) else self.score.to_dict()
        return {"score": score, "region": self.region.to_dict()}

    @classmethod
    def from_dict(cls, values: Any) -> OODGate:
        """Return the gate that `to_dict` wrote; all of it is checked."""
        if not isinstance(values, Mapping) or sorted(values) != sorted(KEYS):
            rule = f"a dict with the keys {', '.join(KEYS)}"
            raise BadTypeError("gate", "Policy.load", rule, type(values).__name__, AS_WRITTEN)
        score = values["score"]
        if not isinstance(score, str):
            score = BaseOODScore.from_dict(score)
        return cls(
            as_score(score, "Policy.load"), ConformalOutlierDetector.from_dict(values["region"])
        )


def as_score(score: Any, caller: str) -> Score:
    """Return a score of features, or the name of a doubt of outputs."""
    if isinstance(score, BaseOODScore):
        return score
    if callable(score):
        score = next((name for name, known in OUTPUT_DOUBTS.items() if known is score), score)
    if not isinstance(score, str):
        rule = f"a score of `dubito.doubt`, or one of {', '.join(OUTPUT_DOUBTS)}"
        fix = "doubt=MahalanobisDistance(), with features"
        raise BadTypeError("doubt", caller, rule, type(score).__name__, fix)
    if score not in OUTPUT_DOUBTS:
        rule = f"one of {', '.join(OUTPUT_DOUBTS)}"
        raise BadValueError("doubt", caller, rule, repr(score), "doubt='energy' beside logits")
    return score


def _fitted(score: Score, shards: Shards) -> Score:
    """Return a score fitted to rows; a doubt of outputs needs no fit."""
    return score if isinstance(score, str) else clone(score).fit(shards)


def _doubt_of(score: Score, outputs: Any, features: Any) -> FloatArray:
    """Return the doubt of each row."""
    return OUTPUT_DOUBTS[score](outputs) if isinstance(score, str) else score.score(features)
